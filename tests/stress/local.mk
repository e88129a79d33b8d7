# SPDX-License-Identifier: Apache-2.0
#
# Not in make check: they need /dev/fuse and minutes. scripts/test --long runs them.
EXTRA_DIST += \
	tests/stress/fail_each.py \
	tests/stress/fail_nth.c \
	tests/stress/readers.py \
	tests/stress/run \
	tests/stress/scenarios.py
