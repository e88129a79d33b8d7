# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs a current PyTorch, transformers and compressed-tensors.
EXTRA_DIST += tests/quantized
