# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/unit/plan/test_geometry
TESTS += tests/unit/plan/test_geometry
tests_unit_plan_test_geometry_SOURCES = tests/unit/plan/test_geometry.c
tests_unit_plan_test_geometry_LDADD = librfs.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/plan/test_parts
TESTS += tests/unit/plan/test_parts
tests_unit_plan_test_parts_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_parts.c
tests_unit_plan_test_parts_LDADD = librfs.la $(CMOCKA_LIBS)
