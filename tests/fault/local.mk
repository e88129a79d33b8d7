# SPDX-License-Identifier: Apache-2.0
if HAVE_CMOCKA
check_PROGRAMS += tests/fault/test_allocation tests/fault/test_costs tests/fault/test_hostile
TESTS += tests/fault/test_hostile tests/fault/test_allocation tests/fault/test_costs tests/fault/large_pages
dist_check_SCRIPTS += tests/fault/large_pages
tests_fault_test_hostile_SOURCES = \
	tests/support/archive.c \
	tests/support/archive.h \
	tests/support/dcp_file.c \
	tests/support/dcp_file.h \
	tests/support/hostile.h \
	tests/support/hostile_dcp.c \
	tests/support/hostile_gguf.c \
	tests/support/hostile_pickles.c \
	tests/support/hostile_pieces.c \
	tests/support/hostile_texts.c \
	tests/support/smaps.h \
	tests/support/valgrind.h \
	tests/support/torch_file.c \
	tests/support/torch_file.h \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/fault/test_hostile.c
tests_fault_test_hostile_LDADD = librfs.la $(CMOCKA_LIBS)
if HAVE_CURL
tests_fault_test_hostile_CPPFLAGS = $(AM_CPPFLAGS) -DWITH_OBJECTS
else
tests_fault_test_hostile_CPPFLAGS = $(AM_CPPFLAGS)
endif
tests_fault_test_costs_SOURCES = \
	tests/support/allocations.h \
	tests/support/smaps.h \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/view/support.c \
	tests/unit/view/support.h \
	tests/fault/test_costs.c
tests_fault_test_costs_LDADD = librfs.la $(CMOCKA_LIBS)
tests_fault_test_allocation_SOURCES = \
	tests/support/allocations.h \
	tests/support/archive.c \
	tests/support/archive.h \
	tests/support/torch_file.c \
	tests/support/torch_file.h \
	tests/support/sealer.c \
	tests/support/sealer.h \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/view/support.c \
	tests/unit/view/support.h \
	tests/fault/test_allocation.c
tests_fault_test_allocation_LDADD = librfs.la $(CMOCKA_LIBS)
endif

# Not in make check, as tests/mount/run is not.
EXTRA_DIST += \
	tests/fault/run \
	tests/fault/short_reads.c \
	tests/fault/test_calls.py \
	tests/fault/test_conversions.py
