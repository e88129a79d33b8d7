# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += $(BASE_TESTS)
TESTS += $(BASE_TESTS)
BASE_TESTS = \
	tests/unit/base/test_error \
	tests/unit/base/test_filename \
	tests/unit/base/test_forks \
	tests/unit/base/test_glob \
	tests/unit/base/test_intern \
	tests/unit/base/test_json_read \
	tests/unit/base/test_json_write \
	tests/unit/base/test_log \
	tests/unit/base/test_memory \
	tests/unit/base/test_memory_limit \
	tests/unit/base/test_origin \
	tests/unit/base/test_pages \
	tests/unit/base/test_pathlist \
	tests/unit/base/test_pool \
	tests/unit/base/test_secret \
	tests/unit/base/test_small \
	tests/unit/base/test_wait
tests_unit_base_test_error_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_forks_SOURCES = tests/support/forking.h tests/unit/base/test_forks.c
tests_unit_base_test_forks_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_glob_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_intern_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_log_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_memory_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_origin_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/base/test_origin.c
tests_unit_base_test_origin_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_pages_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_pathlist_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/base/test_pathlist.c
tests_unit_base_test_pathlist_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_pool_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_secret_SOURCES = tests/support/smaps.h tests/unit/base/test_secret.c
tests_unit_base_test_secret_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_json_read_SOURCES = tests/unit/base/test_json_read.c
tests_unit_base_test_json_read_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_json_write_SOURCES = tests/unit/base/test_json_write.c
tests_unit_base_test_json_write_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_small_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_wait_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_filename_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/base/test_filename.c
tests_unit_base_test_filename_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_base_test_memory_limit_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/base/test_memory_limit.c
tests_unit_base_test_memory_limit_LDADD = librfs.la $(CMOCKA_LIBS)
