# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs PyTorch, fsspec and MindSpore.
EXTRA_DIST += \
	python/README.md \
	python/pyproject.toml \
	python/reshard/__init__.py \
	python/reshard/_library.py \
	python/reshard/filesystem.py \
	python/reshard/py.typed \
	python/reshard/view.py \
	tests/python/run \
	tests/python/test_reshard.py
