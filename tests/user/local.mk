# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: only root can.
EXTRA_DIST += tests/user
