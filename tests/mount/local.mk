# SPDX-License-Identifier: Apache-2.0
#
# Not in make check: these need /dev/fuse. scripts/test runs them by themselves.
EXTRA_DIST += tests/mount
