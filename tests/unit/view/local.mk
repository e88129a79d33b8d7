# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/unit/view/test_view
TESTS += tests/unit/view/test_view
tests_unit_view_test_view_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/view/test_view.c
tests_unit_view_test_view_LDADD = librfs.la $(CMOCKA_LIBS)
