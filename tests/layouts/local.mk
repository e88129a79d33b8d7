# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: PyTorch writes what they are about.
EXTRA_DIST += tests/layouts
