# SPDX-License-Identifier: Apache-2.0
view_tests = \
	tests/unit/view/test_adapter \
	tests/unit/view/test_archives \
	tests/unit/view/test_by_rules \
	tests/unit/view/test_closing \
	tests/unit/view/test_hidden \
	tests/unit/view/test_computed \
	tests/unit/view/test_converted \
	tests/unit/view/test_encrypted \
	tests/unit/view/test_left_out \
	tests/unit/view/test_load \
	tests/unit/view/test_lost \
	tests/unit/view/test_no_tensors \
	tests/unit/view/test_options \
	tests/unit/view/test_outputs \
	tests/unit/view/test_reading \
	tests/unit/view/test_kept_sizes \
	tests/unit/view/test_saves \
	tests/unit/view/test_start \
	tests/unit/view/test_statistics \
	tests/unit/view/test_view
check_PROGRAMS += $(view_tests)
TESTS += $(view_tests)

view_support = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/view/support.c \
	tests/unit/view/support.h
tests_unit_view_test_adapter_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/view/test_adapter.c
tests_unit_view_test_adapter_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_encrypted_SOURCES = $(view_support) \
	tests/support/sealer.c \
	tests/support/sealer.h \
	tests/unit/view/test_encrypted.c
tests_unit_view_test_encrypted_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_archives_SOURCES = $(view_support) tests/unit/view/test_archives.c
tests_unit_view_test_archives_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_statistics_SOURCES = $(view_support) tests/unit/view/test_statistics.c
tests_unit_view_test_statistics_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_hidden_SOURCES = $(view_support) tests/unit/view/test_hidden.c
tests_unit_view_test_hidden_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_left_out_SOURCES = $(view_support) \
	tests/unit/plan/world.c \
	tests/unit/plan/world.h \
	tests/unit/view/test_left_out.c
tests_unit_view_test_left_out_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_load_SOURCES = $(view_support) \
	tests/support/loads.c \
	tests/support/loads.h \
	tests/support/sealer.c \
	tests/support/sealer.h \
	tests/unit/plan/world.c \
	tests/unit/plan/world.h \
	tests/unit/view/test_load.c
tests_unit_view_test_load_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_lost_SOURCES = $(view_support) tests/unit/view/test_lost.c
tests_unit_view_test_lost_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_no_tensors_SOURCES = $(view_support) tests/unit/view/test_no_tensors.c
tests_unit_view_test_no_tensors_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_options_SOURCES = $(view_support) tests/unit/view/test_options.c
tests_unit_view_test_options_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_closing_SOURCES = $(view_support) tests/unit/view/test_closing.c
tests_unit_view_test_closing_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_computed_SOURCES = $(view_support) \
	tests/support/loads.c \
	tests/support/loads.h \
	tests/unit/view/test_computed.c
tests_unit_view_test_computed_LDADD = librfssurvey.la $(CMOCKA_LIBS) -lm
tests_unit_view_test_converted_SOURCES = $(view_support) tests/unit/view/test_converted.c
tests_unit_view_test_converted_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_outputs_SOURCES = $(view_support) tests/unit/view/test_outputs.c
tests_unit_view_test_outputs_LDADD = librfs.la $(CMOCKA_LIBS)
if HAVE_HFAI
check_PROGRAMS += tests/unit/view/test_parts
TESTS += tests/unit/view/test_parts
endif
tests_unit_view_test_parts_SOURCES = $(view_support) \
	tests/support/archive.c \
	tests/support/archive.h \
	tests/support/torch_file.c \
	tests/support/torch_file.h \
	tests/unit/view/test_parts.c
tests_unit_view_test_parts_LDADD = librfs.la $(CMOCKA_LIBS) -lz
tests_unit_view_test_reading_SOURCES = $(view_support) tests/unit/view/test_reading.c
tests_unit_view_test_reading_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_by_rules_SOURCES = $(view_support) tests/unit/view/test_by_rules.c
tests_unit_view_test_by_rules_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_kept_sizes_SOURCES = $(view_support) tests/unit/view/test_kept_sizes.c
tests_unit_view_test_kept_sizes_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_saves_SOURCES = $(view_support) tests/unit/view/test_saves.c
tests_unit_view_test_saves_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_saves_LDFLAGS = -Wl,--wrap=rfs_view_list_saves,--wrap=rfs_wait_now
tests_unit_view_test_start_SOURCES = $(view_support) tests/unit/view/test_start.c
tests_unit_view_test_start_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_view_test_view_SOURCES = $(view_support) tests/unit/view/test_view.c
tests_unit_view_test_view_LDADD = librfs.la $(CMOCKA_LIBS)
