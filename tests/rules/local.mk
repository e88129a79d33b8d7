# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs MindSpore, PyTorch and transformers.
EXTRA_DIST += tests/rules
