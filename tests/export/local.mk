# SPDX-License-Identifier: Apache-2.0
#
# Not in make check, as tests/mount/run is not.
EXTRA_DIST += tests/export
