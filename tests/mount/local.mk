# SPDX-License-Identifier: Apache-2.0
#
# Not in make check: these need /dev/fuse. scripts/test runs them by themselves.
EXTRA_DIST += \
	tests/mount/forge.py \
	tests/mount/harness.py \
	tests/mount/run \
	tests/mount/seal.py \
	tests/mount/test_access.py \
	tests/mount/test_citizen.py \
	tests/mount/test_command.py \
	tests/mount/test_containers.py \
	tests/mount/test_control.py \
	tests/mount/test_converted.py \
	tests/mount/test_costs.py \
	tests/mount/test_encrypted.py \
	tests/mount/test_errors.py \
	tests/mount/test_follow.py \
	tests/mount/test_interrupt.py \
	tests/mount/test_life.py \
	tests/mount/test_limits.py \
	tests/mount/test_outputs.py \
	tests/mount/test_pipelines.py \
	tests/mount/test_reading.py \
	tests/mount/test_rules.py \
	tests/mount/misbehave.c \
	tests/mount/test_sandbox.py \
	tests/mount/test_saved.py \
	tests/mount/test_slow.py \
	tests/mount/test_stale.py \
	tests/mount/test_trees.py \
	tests/mount/test_trust.py
