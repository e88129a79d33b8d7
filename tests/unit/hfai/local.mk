# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/unit/hfai/test_hfai
TESTS += tests/unit/hfai/test_hfai
tests_unit_hfai_test_hfai_SOURCES = \
	tests/support/archive.c \
	tests/support/archive.h \
	tests/support/torch_file.c \
	tests/support/torch_file.h \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/hfai/test_hfai.c
tests_unit_hfai_test_hfai_LDADD = librfs.la $(CMOCKA_LIBS) -lz
