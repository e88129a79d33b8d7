# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs MindSpore and a current PyTorch.
EXTRA_DIST += tests/chunks/README.md tests/chunks/run tests/chunks/alone_cases.py tests/chunks/chosen.py tests/chunks/compared.py tests/chunks/dcp_cases.py \
	tests/chunks/dcp_program.py tests/chunks/flattened_program.py tests/chunks/fsdp_cases.py tests/chunks/hyper_cases.py \
	tests/chunks/hyper_program.py tests/chunks/hyperprogram_cases.py tests/chunks/main.py \
	tests/chunks/megatron_cases.py \
	tests/chunks/megatron_program.py tests/chunks/mindformers_cases.py \
	tests/chunks/mindformers_program.py tests/chunks/mindformers_saves.py \
	tests/chunks/newest_program.py tests/chunks/packed_cases.py \
	tests/chunks/pairs_cases.py tests/chunks/pairs_mindspore.py \
	tests/chunks/zero_cases.py tests/chunks/zero_program.py
