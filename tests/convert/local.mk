# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs MindSpore, PyTorch and transformers.
EXTRA_DIST += tests/convert/README.md tests/convert/run tests/convert/architectures.py tests/convert/converters.py \
	tests/convert/fixed_cases.py tests/convert/language.py tests/convert/language_cases.py tests/convert/main.py \
	tests/convert/megatron_cases.py tests/convert/megatron_gpt.py tests/convert/mindformers_cases.py tests/convert/training_names.py \
	tests/convert/transformers_cases.py tests/convert/views.py
