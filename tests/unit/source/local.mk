# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += $(SOURCE_TESTS)
TESTS += $(SOURCE_TESTS)
SOURCE_TESTS = \
	tests/unit/source/test_boxes \
	tests/unit/source/test_blocks \
	tests/unit/source/test_catalog \
	tests/unit/source/test_cipher \
	tests/unit/source/test_cipher_bad \
	tests/unit/source/test_ckpt \
	tests/unit/source/test_ckpt_bad \
	tests/unit/source/test_ckpt_fixtures \
	tests/unit/source/test_ckpt_match \
	tests/unit/source/test_crc \
	tests/unit/source/test_dcp \
	tests/unit/source/test_dcp_item \
	tests/unit/source/test_dcp_pickle \
	tests/unit/source/test_dtype \
	tests/unit/source/test_access \
	tests/unit/source/test_beneath \
	tests/unit/source/test_files \
	tests/unit/source/test_key \
	tests/unit/source/test_mindformers \
	tests/unit/source/test_shards \
	tests/unit/source/test_key_schedule \
	tests/unit/source/test_parts \
	tests/unit/source/test_pickle \
	tests/unit/source/test_safetensors \
	tests/unit/source/test_safetensors_bad \
	tests/unit/source/test_saved \
	tests/unit/source/test_scan \
	tests/unit/source/test_scan_group \
	tests/unit/source/test_scan_iterations \
	tests/unit/source/test_scan_described \
	tests/unit/source/test_scan_whole \
	tests/unit/source/test_torch \
	tests/unit/source/test_zip
SOURCE_WRITER = tests/unit/source/writer.c tests/unit/source/writer.h
SOURCE_TREE = tests/unit/source/tree.c tests/unit/source/tree.h $(SOURCE_WRITER)
tests_unit_source_test_catalog_SOURCES = tests/unit/source/test_catalog.c $(SOURCE_TREE)
tests_unit_source_test_catalog_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_saved_SOURCES = tests/unit/source/test_saved.c $(SOURCE_TREE)
tests_unit_source_test_saved_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_ckpt_SOURCES = tests/unit/source/test_ckpt.c $(SOURCE_WRITER)
tests_unit_source_test_ckpt_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_ckpt_bad_SOURCES = tests/unit/source/test_ckpt_bad.c $(SOURCE_WRITER)
tests_unit_source_test_ckpt_bad_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_ckpt_fixtures_SOURCES = \
	tests/unit/source/test_ckpt_fixtures.c $(SOURCE_WRITER)
tests_unit_source_test_ckpt_fixtures_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_ckpt_match_SOURCES = tests/unit/source/test_ckpt_match.c $(SOURCE_WRITER)
tests_unit_source_test_ckpt_match_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_dcp_SOURCES = \
	tests/support/dcp_file.c \
	tests/support/dcp_file.h \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/source/test_dcp.c
tests_unit_source_test_dcp_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_dcp_pickle_SOURCES = \
	tests/unit/source/test_dcp_pickle.c $(SOURCE_WRITER)
tests_unit_source_test_dcp_pickle_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_dtype_SOURCES = tests/unit/source/test_dtype.c
tests_unit_source_test_dtype_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_access_SOURCES = tests/unit/source/test_access.c $(SOURCE_TREE)
tests_unit_source_test_access_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_beneath_SOURCES = tests/unit/source/test_beneath.c $(SOURCE_TREE)
tests_unit_source_test_beneath_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_files_SOURCES = tests/unit/source/test_files.c $(SOURCE_TREE)
tests_unit_source_test_files_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_crc_SOURCES = tests/unit/source/test_crc.c $(SOURCE_WRITER)
tests_unit_source_test_crc_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_parts_SOURCES = tests/unit/source/test_parts.c $(SOURCE_TREE)
tests_unit_source_test_parts_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_safetensors_SOURCES = tests/unit/source/test_safetensors.c $(SOURCE_WRITER)
tests_unit_source_test_safetensors_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_safetensors_bad_SOURCES = \
	tests/unit/source/test_safetensors_bad.c $(SOURCE_WRITER)
tests_unit_source_test_safetensors_bad_LDADD = librfs.la $(CMOCKA_LIBS)
SOURCE_SCANNING = tests/unit/source/scanning.c tests/unit/source/scanning.h $(SOURCE_TREE)
tests_unit_source_test_scan_SOURCES = tests/unit/source/test_scan.c $(SOURCE_SCANNING)
tests_unit_source_test_scan_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_scan_group_SOURCES = tests/unit/source/test_scan_group.c $(SOURCE_SCANNING)
tests_unit_source_test_scan_group_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_scan_iterations_SOURCES = \
	tests/unit/source/test_scan_iterations.c $(SOURCE_SCANNING)
tests_unit_source_test_scan_iterations_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_scan_described_SOURCES = tests/unit/source/test_scan_described.c $(SOURCE_SCANNING)
tests_unit_source_test_scan_described_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_scan_whole_SOURCES = tests/unit/source/test_scan_whole.c $(SOURCE_SCANNING)
tests_unit_source_test_scan_whole_LDADD = librfs.la $(CMOCKA_LIBS)
SOURCE_SEALER = tests/support/sealer.c tests/support/sealer.h $(SOURCE_TREE)
tests_unit_source_test_blocks_SOURCES = tests/unit/source/test_blocks.c
tests_unit_source_test_blocks_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_cipher_SOURCES = tests/unit/source/test_cipher.c $(SOURCE_SEALER)
tests_unit_source_test_cipher_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_cipher_bad_SOURCES = tests/unit/source/test_cipher_bad.c $(SOURCE_SEALER)
tests_unit_source_test_cipher_bad_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_key_schedule_SOURCES = tests/support/smaps.h tests/unit/source/test_key_schedule.c $(SOURCE_SEALER)
tests_unit_source_test_key_schedule_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_key_SOURCES = tests/support/smaps.h tests/unit/source/test_key.c $(SOURCE_TREE)
tests_unit_source_test_key_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_pickle_SOURCES = tests/unit/source/test_pickle.c $(SOURCE_WRITER)
tests_unit_source_test_pickle_LDADD = librfs.la $(CMOCKA_LIBS)
SOURCE_ARCHIVE = \
	tests/support/archive.c \
	tests/support/archive.h \
	tests/support/tree.c \
	tests/support/tree.h
tests_unit_source_test_zip_SOURCES = tests/unit/source/test_zip.c $(SOURCE_ARCHIVE)
tests_unit_source_test_zip_LDADD = librfs.la $(CMOCKA_LIBS)
SOURCE_TORCH = tests/support/torch_file.c tests/support/torch_file.h $(SOURCE_ARCHIVE)
tests_unit_source_test_torch_SOURCES = tests/unit/source/test_torch.c $(SOURCE_TORCH)
tests_unit_source_test_torch_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_dcp_item_SOURCES = tests/unit/source/test_dcp_item.c $(SOURCE_TORCH)
tests_unit_source_test_dcp_item_LDADD = librfs.la $(CMOCKA_LIBS)
EXTRA_DIST += tests/fixtures/dcp tests/fixtures/make_ckpt.py tests/fixtures/make_dcp.py tests/fixtures/ckpt

tests_unit_source_test_boxes_SOURCES = tests/unit/source/test_boxes.c
tests_unit_source_test_boxes_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_shards_SOURCES = tests/unit/source/boxes.h tests/unit/source/test_shards.c $(SOURCE_TREE)
tests_unit_source_test_shards_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_source_test_mindformers_SOURCES = tests/unit/source/boxes.h tests/unit/source/test_mindformers.c $(SOURCE_TREE)
tests_unit_source_test_mindformers_LDADD = librfs.la $(CMOCKA_LIBS)
if HAVE_CURL
check_PROGRAMS += tests/unit/source/test_remote
TESTS += tests/unit/source/test_remote
tests_unit_source_test_remote_SOURCES = tests/unit/source/test_remote.c
tests_unit_source_test_remote_LDADD = librfs.la $(CMOCKA_LIBS)
else
EXTRA_DIST += tests/unit/source/test_remote.c
endif
