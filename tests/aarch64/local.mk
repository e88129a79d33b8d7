# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test --long.
EXTRA_DIST += tests/aarch64
