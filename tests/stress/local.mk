# SPDX-License-Identifier: Apache-2.0
#
# Not in make check: they need /dev/fuse and minutes. scripts/test --long runs them.
EXTRA_DIST += tests/stress
