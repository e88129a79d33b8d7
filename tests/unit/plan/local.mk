# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/unit/plan/test_geometry
TESTS += tests/unit/plan/test_geometry
tests_unit_plan_test_geometry_SOURCES = tests/unit/plan/test_geometry.c
tests_unit_plan_test_geometry_LDADD = librfs.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/plan/test_stages
TESTS += tests/unit/plan/test_stages
tests_unit_plan_test_stages_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_stages.c
tests_unit_plan_test_stages_LDADD = librfs.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/plan/test_sibling
TESTS += tests/unit/plan/test_sibling
tests_unit_plan_test_sibling_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_sibling.c
tests_unit_plan_test_sibling_LDADD = librfs.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/plan/test_output_map
TESTS += tests/unit/plan/test_output_map
tests_unit_plan_test_output_map_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_output_map.c
tests_unit_plan_test_output_map_LDADD = librfs.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/plan/test_sparse
TESTS += tests/unit/plan/test_sparse
tests_unit_plan_test_sparse_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_sparse.c \
	tests/unit/plan/world.c \
	tests/unit/plan/world.h
tests_unit_plan_test_sparse_LDADD = librfs.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/plan/test_removed
TESTS += tests/unit/plan/test_removed
tests_unit_plan_test_removed_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_removed.c
tests_unit_plan_test_removed_LDADD = librfs.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/plan/test_scale
TESTS += tests/unit/plan/test_scale
tests_unit_plan_test_scale_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_scale.c
tests_unit_plan_test_scale_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_plan_test_scale_LDFLAGS = -Wl,--wrap=rfs_intern_find

check_PROGRAMS += tests/unit/plan/test_failures
TESTS += tests/unit/plan/test_failures
tests_unit_plan_test_failures_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_failures.c
tests_unit_plan_test_failures_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_plan_test_failures_LDFLAGS = -Wl,--wrap=rfs_pool_for

check_PROGRAMS += tests/unit/plan/test_needed
TESTS += tests/unit/plan/test_needed
tests_unit_plan_test_needed_SOURCES = tests/unit/plan/test_needed.c
tests_unit_plan_test_needed_LDADD = librfs.la $(CMOCKA_LIBS)

check_PROGRAMS += tests/unit/plan/test_strategy_files
TESTS += tests/unit/plan/test_strategy_files
tests_unit_plan_test_strategy_files_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/plan/test_strategy_files.c
tests_unit_plan_test_strategy_files_LDADD = librfs.la $(CMOCKA_LIBS)
