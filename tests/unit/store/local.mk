# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += $(STORE_TESTS)
TESTS += $(STORE_TESTS)
STORE_TESTS = \
	tests/unit/store/test_access \
	tests/unit/store/test_beneath \
	tests/unit/store/test_blocks \
	tests/unit/store/test_cipher \
	tests/unit/store/test_cipher_bad \
	tests/unit/store/test_files \
	tests/unit/store/test_key \
	tests/unit/store/test_key_schedule \
	tests/unit/store/test_packed
STORE_WRITER = tests/unit/store/writer.c tests/unit/store/writer.h
STORE_TREE = tests/unit/store/tree.c tests/unit/store/tree.h $(STORE_WRITER)
tests_unit_store_test_access_SOURCES = tests/unit/store/test_access.c $(STORE_TREE)
tests_unit_store_test_access_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_store_test_beneath_SOURCES = tests/unit/store/test_beneath.c $(STORE_TREE)
tests_unit_store_test_beneath_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_store_test_files_SOURCES = tests/unit/store/test_files.c $(STORE_TREE)
tests_unit_store_test_files_LDADD = librfs.la $(CMOCKA_LIBS)
STORE_SEALER = tests/support/sealer.c tests/support/sealer.h $(STORE_TREE)
tests_unit_store_test_blocks_SOURCES = tests/unit/store/test_blocks.c
tests_unit_store_test_blocks_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_store_test_cipher_SOURCES = tests/unit/store/test_cipher.c $(STORE_SEALER)
tests_unit_store_test_cipher_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_store_test_cipher_bad_SOURCES = tests/unit/store/test_cipher_bad.c $(STORE_SEALER)
tests_unit_store_test_cipher_bad_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_store_test_packed_SOURCES = tests/unit/store/test_packed.c $(STORE_TREE)
tests_unit_store_test_packed_LDADD = librfs.la $(ZSTD_LIBS) $(CMOCKA_LIBS)
tests_unit_store_test_key_schedule_SOURCES = tests/support/smaps.h tests/unit/store/test_key_schedule.c $(STORE_SEALER)
tests_unit_store_test_key_schedule_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_store_test_key_SOURCES = tests/support/smaps.h tests/unit/store/test_key.c $(STORE_TREE)
tests_unit_store_test_key_LDADD = librfs.la $(CMOCKA_LIBS)
if HAVE_CURL
check_PROGRAMS += tests/unit/store/test_remote
TESTS += tests/unit/store/test_remote
tests_unit_store_test_remote_SOURCES = tests/support/forking.h tests/unit/store/test_remote.c
tests_unit_store_test_remote_LDADD = librfs.la $(CMOCKA_LIBS)
else
EXTRA_DIST += tests/unit/store/test_remote.c
endif
