# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs a current PyTorch, transformers and compressed-tensors.
EXTRA_DIST += tests/quantized/README.md tests/quantized/run tests/quantized/costs.py tests/quantized/folders.py tests/quantized/formats.py \
	tests/quantized/main.py tests/quantized/models.py tests/quantized/quantized_cases.py tests/quantized/refusals.py \
	tests/quantized/shown.py
