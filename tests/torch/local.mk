# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs PyTorch and a mount.
EXTRA_DIST += \
	tests/torch/README.md \
	tests/torch/archive.py \
	tests/torch/forged.py \
	tests/torch/hfai.py \
	tests/torch/main.py \
	tests/torch/run \
	tests/torch/states.py \
	tests/torch/test_casts.py \
	tests/torch/test_compared.py \
	tests/torch/test_current.py \
	tests/torch/test_explained.py \
	tests/torch/test_files.py \
	tests/torch/test_parts.py \
	tests/torch/test_reading.py \
	tests/torch/test_refused.py \
	tests/torch/test_safetensors.py \
	tests/torch/test_sums.py \
	tests/torch/without_cuda.py
