# SPDX-License-Identifier: Apache-2.0
survey_tests = \
	tests/unit/survey/test_detect \
	tests/unit/survey/test_draft \
	tests/unit/survey/test_explain \
	tests/unit/survey/test_moments \
	tests/unit/survey/test_origins
check_PROGRAMS += $(survey_tests)
TESTS += $(survey_tests)

tests_unit_survey_test_explain_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/survey/test_explain.c
tests_unit_survey_test_explain_LDADD = librfssurvey.la $(CMOCKA_LIBS)
tests_unit_survey_test_origins_SOURCES = $(view_support) tests/unit/survey/test_origins.c
tests_unit_survey_test_origins_LDADD = librfssurvey.la $(CMOCKA_LIBS)
tests_unit_survey_test_detect_SOURCES = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/survey/test_detect.c
tests_unit_survey_test_detect_LDADD = librfssurvey.la $(CMOCKA_LIBS)
tests_unit_survey_test_draft_SOURCES = tests/unit/survey/test_draft.c tests/support/tree.c tests/support/tree.h
tests_unit_survey_test_draft_LDADD = librfssurvey.la $(CMOCKA_LIBS)
tests_unit_survey_test_moments_SOURCES = tests/unit/survey/test_moments.c tests/support/tree.c tests/support/tree.h
tests_unit_survey_test_moments_LDADD = librfssurvey.la $(CMOCKA_LIBS) -lm
