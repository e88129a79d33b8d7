# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/unit/mount/test_options
TESTS += tests/unit/mount/test_options
tests_unit_mount_test_options_CFLAGS = $(AM_CFLAGS)
tests_unit_mount_test_options_SOURCES = \
	src/mount/mount_options.c \
	tests/unit/mount/test_options.c
tests_unit_mount_test_options_LDADD = librfs.la $(CMOCKA_LIBS)
