# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += \
	tests/unit/assemble/test_assembler \
	tests/unit/assemble/test_bands \
	tests/unit/assemble/test_cache \
	tests/unit/assemble/test_cast \
	tests/unit/assemble/test_gather \
	tests/unit/assemble/test_kernels \
	tests/unit/assemble/test_latency \
	tests/unit/assemble/test_prefetch \
	tests/unit/assemble/test_sequential \
	tests/unit/assemble/test_strided
TESTS += \
	tests/unit/assemble/test_assembler \
	tests/unit/assemble/test_bands \
	tests/unit/assemble/test_cache \
	tests/unit/assemble/test_cast \
	tests/unit/assemble/test_gather \
	tests/unit/assemble/test_kernels \
	tests/unit/assemble/test_latency \
	tests/unit/assemble/test_prefetch \
	tests/unit/assemble/test_sequential \
	tests/unit/assemble/test_strided
tests_unit_assemble_test_assembler_SOURCES = tests/unit/assemble/test_assembler.c \
	tests/unit/assemble/support.c tests/unit/assemble/support.h
tests_unit_assemble_test_assembler_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_assemble_test_bands_SOURCES = tests/unit/assemble/test_bands.c \
	tests/unit/assemble/support.c tests/unit/assemble/support.h
tests_unit_assemble_test_bands_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_assemble_test_gather_SOURCES = tests/unit/assemble/test_gather.c \
	tests/unit/assemble/support.c tests/unit/assemble/support.h tests/support/allocations.h
tests_unit_assemble_test_gather_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_assemble_test_kernels_SOURCES = tests/unit/assemble/test_kernels.c \
	tests/unit/assemble/support.c tests/unit/assemble/support.h
tests_unit_assemble_test_kernels_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_assemble_test_cache_SOURCES = tests/unit/assemble/test_cache.c
tests_unit_assemble_test_cache_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_assemble_test_cast_SOURCES = tests/unit/assemble/test_cast.c \
	tests/unit/assemble/support.c tests/unit/assemble/support.h
tests_unit_assemble_test_cast_LDADD = librfs.la $(CMOCKA_LIBS) -lm
tests_unit_assemble_test_strided_SOURCES = tests/unit/assemble/test_strided.c \
	tests/unit/assemble/support.c tests/unit/assemble/support.h
tests_unit_assemble_test_strided_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_assemble_test_latency_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_assemble_test_prefetch_SOURCES = tests/unit/assemble/test_prefetch.c \
	tests/unit/assemble/support.c tests/unit/assemble/support.h
tests_unit_assemble_test_prefetch_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_assemble_test_sequential_SOURCES = tests/unit/assemble/test_sequential.c \
	tests/support/tree.c tests/support/tree.h
tests_unit_assemble_test_sequential_LDADD = librfs.la $(CMOCKA_LIBS)
