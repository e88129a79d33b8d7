# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs MindSpore and a mount.
EXTRA_DIST += tests/interop/README.md tests/interop/run tests/interop/build.py tests/interop/cases.py \
	tests/interop/fixed_compiler.py tests/interop/fixed_encrypted.py tests/interop/fixed_files.py tests/interop/fixed_layouts.py \
	tests/interop/fixed_outputs.py tests/interop/fixed_stories.py tests/interop/fixed_trees.py tests/interop/fixed_whole.py \
	tests/interop/fixed_outward.py tests/interop/fixed_redundancy.py tests/interop/fixed_safetensors.py \
	tests/interop/fixed_rules.py tests/interop/fixed_strategies.py \
	tests/interop/fixed_manual.py tests/interop/fixed_pipelines.py \
	tests/interop/layouts.py tests/interop/main.py tests/interop/model.py tests/interop/mounting.py \
	tests/interop/needed.py tests/interop/oracle.py tests/interop/random_cases.py tests/interop/registry.py \
	tests/interop/serving.py tests/interop/story.py \
	tests/interop/values.py
