# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs MindSpore.
EXTRA_DIST += tests/boxes/README.md tests/boxes/run tests/boxes/compared.py tests/boxes/main.py tests/boxes/mindformers_cases.py \
	tests/boxes/mindformers_program.py tests/boxes/mindformers_saves.py
