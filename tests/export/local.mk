# SPDX-License-Identifier: Apache-2.0
#
# Not in make check, as tests/mount/run is not.
EXTRA_DIST += \
	tests/export/exporting.py \
	tests/export/run \
	tests/export/test_cluster.py \
	tests/export/test_content.py \
	tests/export/test_failures.py \
	tests/export/test_folder.py \
	tests/export/test_restart.py \
	tests/export/test_same.py \
	tests/export/test_terminal.py \
	tests/export/test_verify.py
