# SPDX-License-Identifier: Apache-2.0
CONVERT_TESTS = \
	tests/unit/convert/test_conversion_model \
	tests/unit/convert/test_conversion_rules
check_PROGRAMS += $(CONVERT_TESTS)
TESTS += $(CONVERT_TESTS)
tests_unit_convert_test_conversion_model_SOURCES = tests/unit/convert/test_conversion_model.c
tests_unit_convert_test_conversion_model_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_convert_test_conversion_rules_SOURCES = tests/unit/convert/test_conversion_rules.c
tests_unit_convert_test_conversion_rules_LDADD = librfs.la $(CMOCKA_LIBS)
