# SPDX-License-Identifier: Apache-2.0

# Run by scripts/test, not by make check: it needs numpy, ml_dtypes and xxhash.
EXTRA_DIST += tests/numbers/run tests/numbers/main.py
