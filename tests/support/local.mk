# SPDX-License-Identifier: Apache-2.0
#
# Shared by several suites.
check_PROGRAMS += tests/support/check_headers tests/support/check_loads
tests_support_check_headers_SOURCES = tests/support/check_headers.c
tests_support_check_headers_LDADD = librfs.la
tests_support_check_loads_SOURCES = tests/support/check_loads.c tests/support/loads.c tests/support/loads.h
tests_support_check_loads_LDADD = librfs.la

EXTRA_DIST += tests/support/delays.c tests/support/families.py tests/support/loading.py tests/support/parts.py tests/support/safetensors_file.py tests/support/tensor_bytes.py tests/support/usage.py tests/support/valgrind.supp
