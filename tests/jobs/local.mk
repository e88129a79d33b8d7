# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: they need what they are for, such as MindSpore, PyTorch and transformers.
EXTRA_DIST += tests/jobs
