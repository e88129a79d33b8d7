# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/unit/quant/test_blocks tests/unit/quant/test_expand tests/unit/quant/test_pair
TESTS += tests/unit/quant/test_blocks tests/unit/quant/test_expand tests/unit/quant/test_pair
tests_unit_quant_test_blocks_SOURCES = tests/unit/quant/test_blocks.c tests/support/tree.c tests/support/tree.h
tests_unit_quant_test_blocks_LDADD = librfs.la $(CMOCKA_LIBS) -lm
tests_unit_quant_test_expand_SOURCES = tests/unit/quant/test_expand.c tests/support/tree.c tests/support/tree.h
tests_unit_quant_test_expand_LDADD = librfs.la $(CMOCKA_LIBS) -lm
tests_unit_quant_test_pair_SOURCES = tests/unit/quant/test_pair.c tests/support/tree.c tests/support/tree.h
tests_unit_quant_test_pair_LDADD = librfs.la $(CMOCKA_LIBS)
