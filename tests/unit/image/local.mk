# SPDX-License-Identifier: Apache-2.0
image_tests = \
	tests/unit/image/test_images \
	tests/unit/image/test_image_safetensors \
	tests/unit/image/test_messages \
	tests/unit/image/test_npy \
	tests/unit/image/test_pickler \
	tests/unit/image/test_pt
check_PROGRAMS += $(image_tests)
TESTS += $(image_tests)

image_support = \
	tests/support/tree.c \
	tests/support/tree.h \
	tests/unit/image/support.c \
	tests/unit/image/support.h
tests_unit_image_test_images_SOURCES = $(image_support) tests/unit/image/test_images.c
tests_unit_image_test_images_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_image_test_image_safetensors_SOURCES = $(image_support) tests/unit/image/test_image_safetensors.c
tests_unit_image_test_image_safetensors_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_image_test_messages_SOURCES = $(image_support) tests/unit/image/test_messages.c
tests_unit_image_test_messages_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_image_test_npy_SOURCES = $(image_support) tests/unit/image/test_npy.c
tests_unit_image_test_npy_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_image_test_pickler_SOURCES = $(image_support) tests/unit/image/test_pickler.c
tests_unit_image_test_pickler_LDADD = librfs.la $(CMOCKA_LIBS)
tests_unit_image_test_pt_SOURCES = $(image_support) tests/unit/image/test_pt.c
tests_unit_image_test_pt_LDADD = librfs.la $(CMOCKA_LIBS) -lz
