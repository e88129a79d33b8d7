# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs numpy, ml_dtypes, safetensors and xxhash.
EXTRA_DIST += tests/numbers
