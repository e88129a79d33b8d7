# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs MindSpore, PyTorch and transformers.
EXTRA_DIST += tests/rules/README.md tests/rules/run tests/rules/adapters.py tests/rules/adapters_cases.py tests/rules/architectures.py tests/rules/converters.py \
	tests/rules/fixed_cases.py tests/rules/gemma_cases.py tests/rules/language.py tests/rules/language_cases.py tests/rules/main.py \
	tests/rules/mbridge_program.py tests/rules/megatron_ranks.py \
	tests/rules/megatron_cases.py tests/rules/megatron_gpt.py tests/rules/merged_adapter.py \
	tests/rules/mindformers_adapters.py tests/rules/mindformers_cases.py tests/rules/ready_cuts.py \
	tests/rules/saved_config.py tests/rules/training_names.py \
	tests/rules/transformers_cases.py tests/rules/views.py
