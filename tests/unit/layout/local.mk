# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += $(LAYOUT_TESTS)
TESTS += $(LAYOUT_TESTS)
LAYOUT_TESTS = \
	tests/unit/layout/test_fixtures \
	tests/unit/layout/test_manual \
	tests/unit/layout/test_merge \
	tests/unit/layout/test_model \
	tests/unit/layout/test_refused \
	tests/unit/layout/test_layout_rules \
	tests/unit/layout/test_layout_rules_model \
	tests/unit/layout/test_strategy \
	tests/unit/layout/test_vectors \
	tests/unit/layout/test_document
LAYOUT_SUPPORT = tests/unit/layout/support.c tests/unit/layout/support.h
tests_unit_layout_test_fixtures_SOURCES = tests/unit/layout/test_fixtures.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_fixtures_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_manual_SOURCES = tests/unit/layout/test_manual.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_manual_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_merge_SOURCES = tests/unit/layout/test_merge.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_merge_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_model_SOURCES = tests/unit/layout/test_model.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_model_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_refused_SOURCES = tests/unit/layout/test_refused.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_refused_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_layout_rules_SOURCES = tests/unit/layout/test_layout_rules.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_layout_rules_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_layout_rules_model_SOURCES = tests/unit/layout/test_layout_rules_model.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_layout_rules_model_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_strategy_SOURCES = tests/unit/layout/test_strategy.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_strategy_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_document_SOURCES = tests/unit/layout/test_document.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_document_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_layout_test_vectors_SOURCES = tests/unit/layout/test_vectors.c $(LAYOUT_SUPPORT)
tests_unit_layout_test_vectors_LDADD = librfs.la $(CMOCKA_LIBS)
EXTRA_DIST += \
	tests/fixtures/layout_vectors.tsv \
	tests/fixtures/make_layout_vectors.py \
	tests/fixtures/strategies
