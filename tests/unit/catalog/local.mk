# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += $(CATALOG_TESTS)
TESTS += $(CATALOG_TESTS)
CATALOG_TESTS = \
	tests/unit/catalog/test_aside \
	tests/unit/catalog/test_catalog \
	tests/unit/catalog/test_parts \
	tests/unit/catalog/test_kept \
	tests/unit/catalog/test_scan \
	tests/unit/catalog/test_scan_described \
	tests/unit/catalog/test_scan_divided \
	tests/unit/catalog/test_scan_group \
	tests/unit/catalog/test_scan_iterations \
	tests/unit/catalog/test_scan_saves \
	tests/unit/catalog/test_scan_series \
	tests/unit/catalog/test_scan_watch \
	tests/unit/catalog/test_scan_whole
tests_unit_catalog_test_catalog_SOURCES = tests/unit/catalog/test_catalog.c $(STORE_TREE)
tests_unit_catalog_test_catalog_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_kept_SOURCES = tests/unit/catalog/test_kept.c $(STORE_TREE)
tests_unit_catalog_test_kept_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_parts_SOURCES = tests/unit/catalog/test_parts.c $(STORE_TREE)
tests_unit_catalog_test_parts_LDADD = librfs.la $(CMOCKA_LIBS)
CATALOG_SCANNING = tests/unit/catalog/scanning.c tests/unit/catalog/scanning.h $(STORE_TREE)
tests_unit_catalog_test_aside_SOURCES = tests/unit/catalog/test_aside.c $(CATALOG_SCANNING)
tests_unit_catalog_test_aside_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_SOURCES = tests/unit/catalog/test_scan.c $(CATALOG_SCANNING)
tests_unit_catalog_test_scan_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_group_SOURCES = tests/unit/catalog/test_scan_group.c $(CATALOG_SCANNING)
tests_unit_catalog_test_scan_group_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_iterations_SOURCES = \
	tests/unit/catalog/test_scan_iterations.c $(CATALOG_SCANNING)
tests_unit_catalog_test_scan_iterations_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_described_SOURCES = tests/unit/catalog/test_scan_described.c $(CATALOG_SCANNING)
tests_unit_catalog_test_scan_described_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_divided_SOURCES = tests/unit/catalog/test_scan_divided.c $(CATALOG_SCANNING)
tests_unit_catalog_test_scan_divided_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_saves_SOURCES = tests/unit/catalog/test_scan_saves.c $(CATALOG_SCANNING)
tests_unit_catalog_test_scan_saves_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_series_SOURCES = tests/unit/catalog/test_scan_series.c $(CATALOG_SCANNING)
tests_unit_catalog_test_scan_series_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_watch_SOURCES = tests/unit/catalog/test_scan_watch.c $(STORE_TREE)
tests_unit_catalog_test_scan_watch_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_catalog_test_scan_whole_SOURCES = tests/unit/catalog/test_scan_whole.c $(CATALOG_SCANNING)
tests_unit_catalog_test_scan_whole_LDADD = librfs.la $(CMOCKA_LIBS)
