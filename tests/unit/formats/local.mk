# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += $(FORMATS_TESTS)
TESTS += $(FORMATS_TESTS) tests/unit/formats/formats
dist_check_SCRIPTS += tests/unit/formats/formats
FORMATS_TESTS = \
	tests/unit/formats/test_chunks \
	tests/unit/formats/test_ckpt \
	tests/unit/formats/test_ckpt_bad \
	tests/unit/formats/test_ckpt_fixtures \
	tests/unit/formats/test_ckpt_match \
	tests/unit/formats/test_ckpt_messages \
	tests/unit/formats/test_crc \
	tests/unit/formats/test_dcp \
	tests/unit/formats/test_dcp_item \
	tests/unit/formats/test_dcp_pickle \
	tests/unit/formats/test_gguf \
	tests/unit/formats/test_hyper_parallel \
	tests/unit/formats/test_dtype \
	tests/unit/formats/test_images \
	tests/unit/formats/test_mindformers \
	tests/unit/formats/test_npy \
	tests/unit/formats/test_pickle \
	tests/unit/formats/test_pickler \
	tests/unit/formats/test_safetensors \
	tests/unit/formats/test_safetensors_bad \
	tests/unit/formats/test_safetensors_encode \
	tests/unit/formats/test_shards \
	tests/unit/formats/test_torch \
	tests/unit/formats/test_torch_encode \
	tests/unit/formats/test_zero \
	tests/unit/formats/test_zip
tests_unit_formats_test_ckpt_SOURCES = tests/unit/formats/test_ckpt.c $(STORE_WRITER)
tests_unit_formats_test_ckpt_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_ckpt_bad_SOURCES = tests/unit/formats/test_ckpt_bad.c $(STORE_WRITER)
tests_unit_formats_test_ckpt_bad_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_ckpt_fixtures_SOURCES = \
	tests/unit/formats/test_ckpt_fixtures.c $(STORE_WRITER)
tests_unit_formats_test_ckpt_fixtures_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_ckpt_match_SOURCES = tests/unit/formats/test_ckpt_match.c $(STORE_WRITER)
tests_unit_formats_test_ckpt_match_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_dcp_SOURCES = \
	tests/support/dcp_file.c \
	tests/support/dcp_file.h \
	tests/unit/formats/test_dcp.c $(FORMATS_TORCH)
tests_unit_formats_test_dcp_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_dcp_pickle_SOURCES = \
	tests/unit/formats/test_dcp_pickle.c $(STORE_WRITER)
tests_unit_formats_test_dcp_pickle_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_dtype_SOURCES = tests/unit/formats/test_dtype.c
tests_unit_formats_test_dtype_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_crc_SOURCES = tests/unit/formats/test_crc.c $(STORE_WRITER)
tests_unit_formats_test_crc_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_safetensors_SOURCES = tests/unit/formats/test_safetensors.c $(STORE_WRITER)
tests_unit_formats_test_safetensors_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_safetensors_bad_SOURCES = \
	tests/unit/formats/test_safetensors_bad.c $(STORE_WRITER)
tests_unit_formats_test_safetensors_bad_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_pickle_SOURCES = tests/unit/formats/test_pickle.c $(STORE_WRITER)
tests_unit_formats_test_pickle_LDADD = librfs.la $(CMOCKA_LIBS)
FORMATS_ARCHIVE = \
	tests/support/archive.c \
	tests/support/archive.h \
	tests/support/tree.c \
	tests/support/tree.h
tests_unit_formats_test_zip_SOURCES = tests/unit/formats/test_zip.c $(FORMATS_ARCHIVE)
tests_unit_formats_test_zip_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_zero_SOURCES = tests/unit/formats/test_zero.c
tests_unit_formats_test_zero_LDADD = librfs.la $(CMOCKA_LIBS)
FORMATS_TORCH = tests/support/torch_file.c tests/support/torch_file.h $(FORMATS_ARCHIVE)
tests_unit_formats_test_torch_SOURCES = tests/unit/formats/test_torch.c $(FORMATS_TORCH)
tests_unit_formats_test_torch_LDADD = librfs.la $(CMOCKA_LIBS)
if HAVE_HFAI
check_PROGRAMS += tests/unit/formats/test_hfai
TESTS += tests/unit/formats/test_hfai
endif
tests_unit_formats_test_hfai_SOURCES = tests/unit/formats/test_hfai.c $(FORMATS_TORCH)
tests_unit_formats_test_hfai_LDADD = librfs.la $(CMOCKA_LIBS) -lz
tests_unit_formats_test_hyper_parallel_SOURCES = \
	tests/support/dcp_file.c \
	tests/support/dcp_file.h \
	tests/unit/formats/test_hyper_parallel.c $(FORMATS_TORCH)
tests_unit_formats_test_hyper_parallel_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_dcp_item_SOURCES = tests/unit/formats/test_dcp_item.c $(FORMATS_TORCH)
tests_unit_formats_test_dcp_item_LDADD = librfs.la $(CMOCKA_LIBS)
EXTRA_DIST += tests/fixtures/dcp tests/fixtures/hyper tests/fixtures/make_ckpt.py tests/fixtures/make_dcp.py tests/fixtures/layouts tests/fixtures/make_layouts.py tests/fixtures/ckpt tests/fixtures/gguf tests/fixtures/make_gguf.py
tests_unit_formats_test_chunks_SOURCES = tests/unit/formats/test_chunks.c
tests_unit_formats_test_chunks_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_shards_SOURCES = tests/unit/formats/chunks.h tests/unit/formats/test_shards.c $(STORE_TREE)
tests_unit_formats_test_shards_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_mindformers_SOURCES = tests/unit/formats/chunks.h tests/unit/formats/test_mindformers.c $(STORE_TREE)
tests_unit_formats_test_mindformers_LDADD = librfs.la $(CMOCKA_LIBS)
FORMATS_ENCODED = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/formats/encoded.c \
	tests/unit/formats/encoded.h
tests_unit_formats_test_ckpt_messages_SOURCES = $(FORMATS_ENCODED) tests/unit/formats/test_ckpt_messages.c
tests_unit_formats_test_ckpt_messages_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_images_SOURCES = $(FORMATS_ENCODED) tests/unit/formats/test_images.c
tests_unit_formats_test_images_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_gguf_SOURCES = tests/unit/formats/test_gguf.c tests/support/tree.c tests/support/tree.h
tests_unit_formats_test_gguf_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_npy_SOURCES = $(FORMATS_ENCODED) tests/unit/formats/test_npy.c
tests_unit_formats_test_npy_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_pickler_SOURCES = $(FORMATS_ENCODED) tests/unit/formats/test_pickler.c
tests_unit_formats_test_pickler_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_safetensors_encode_SOURCES = $(FORMATS_ENCODED) tests/unit/formats/test_safetensors_encode.c
tests_unit_formats_test_safetensors_encode_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_formats_test_torch_encode_SOURCES = $(FORMATS_ENCODED) tests/unit/formats/test_torch_encode.c
tests_unit_formats_test_torch_encode_LDADD = librfs.la $(CMOCKA_LIBS) -lz
