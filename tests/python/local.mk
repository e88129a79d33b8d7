# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs PyTorch, fsspec and MindSpore.
EXTRA_DIST += \
	python/README.md \
	python/pyproject.toml \
	python/reshard/__init__.py \
	python/reshard/__main__.py \
	python/reshard/_gate.py \
	python/reshard/_library.py \
	python/reshard/filesystem.py \
	python/reshard/loading.py \
	python/reshard/places.py \
	python/reshard/py.typed \
	python/reshard/safetensors.py \
	python/reshard/tensors.py \
	python/reshard/torch.py \
	python/reshard/view.py \
	python/setup.py \
	tests/python/cases.py \
	tests/python/odd_files.py \
	tests/python/run \
	tests/python/safetensors_own.py \
	tests/python/stress.py \
	tests/python/test_files_that_count.py \
	tests/python/test_lives.py \
	tests/python/test_packaging.py \
	tests/python/test_reshard.py \
	tests/python/test_safe_open.py \
	tests/python/test_tensors.py \
	tests/python/test_wheel.py
