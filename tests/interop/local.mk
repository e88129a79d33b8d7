# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs MindSpore and a mount.
EXTRA_DIST += tests/interop
