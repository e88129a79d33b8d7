# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs MindSpore and a current PyTorch.
EXTRA_DIST += tests/boxes/README.md tests/boxes/run tests/boxes/compared.py tests/boxes/dcp_cases.py \
	tests/boxes/dcp_program.py tests/boxes/flattened_program.py tests/boxes/main.py \
	tests/boxes/megatron_cases.py \
	tests/boxes/megatron_program.py tests/boxes/mindformers_cases.py \
	tests/boxes/mindformers_program.py tests/boxes/mindformers_saves.py tests/support/families.py \
	tests/support/safetensors_file.py
