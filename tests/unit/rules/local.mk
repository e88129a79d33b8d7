# SPDX-License-Identifier: Apache-2.0
RULES_TESTS = \
	tests/unit/rules/test_conversion_model \
	tests/unit/rules/test_conversion_rules \
	tests/unit/rules/test_cuts \
	tests/unit/rules/test_hf_config \
	tests/unit/rules/test_known
check_PROGRAMS += $(RULES_TESTS)
TESTS += $(RULES_TESTS)
tests_unit_rules_test_conversion_model_SOURCES = tests/unit/rules/test_conversion_model.c
tests_unit_rules_test_conversion_model_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_rules_test_conversion_rules_SOURCES = tests/unit/rules/test_conversion_rules.c
tests_unit_rules_test_conversion_rules_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_rules_test_cuts_SOURCES = tests/unit/rules/test_cuts.c
tests_unit_rules_test_cuts_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_rules_test_hf_config_SOURCES = tests/unit/rules/test_hf_config.c
tests_unit_rules_test_hf_config_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_rules_test_known_SOURCES = tests/unit/rules/test_known.c
tests_unit_rules_test_known_LDADD = librfs.la $(CMOCKA_LIBS)
