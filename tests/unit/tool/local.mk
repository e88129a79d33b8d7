# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += $(TOOL_TESTS)
TESTS += $(TOOL_TESTS) tests/unit/tool/commands tests/unit/tool/completions tests/unit/tool/convert tests/unit/tool/options tests/unit/tool/suggest
TOOL_TESTS = \
	tests/unit/tool/test_bucket \
	tests/unit/tool/test_export \
	tests/unit/tool/test_manifest \
	tests/unit/tool/test_sums \
	tests/unit/tool/test_value \
	tests/unit/tool/test_write
tests_unit_tool_test_bucket_SOURCES = tests/unit/tool/test_bucket.c tests/support/tree.c tests/support/tree.h
tests_unit_tool_test_bucket_LDADD = librfstool.la $(CMOCKA_LIBS)
tests_unit_tool_test_export_SOURCES = tests/unit/tool/test_export.c tests/support/tree.c tests/support/tree.h
tests_unit_tool_test_export_LDADD = librfstool.la $(CMOCKA_LIBS)
tests_unit_tool_test_manifest_SOURCES = tests/unit/tool/test_manifest.c tests/support/tree.c tests/support/tree.h
tests_unit_tool_test_manifest_LDADD = librfstool.la $(CMOCKA_LIBS)
tests_unit_tool_test_sums_SOURCES = tests/unit/tool/test_sums.c tests/support/tree.c tests/support/tree.h
tests_unit_tool_test_sums_LDADD = librfstool.la $(CMOCKA_LIBS)
tests_unit_tool_test_value_SOURCES = tests/unit/tool/test_value.c
tests_unit_tool_test_value_LDADD = librfstool.la $(CMOCKA_LIBS) -lm
tests_unit_tool_test_write_SOURCES = tests/unit/tool/test_write.c
tests_unit_tool_test_write_LDADD = librfstool.la $(CMOCKA_LIBS)
dist_check_SCRIPTS += tests/unit/tool/commands tests/unit/tool/completions tests/unit/tool/convert tests/unit/tool/messages tests/unit/tool/options tests/unit/tool/suggest
