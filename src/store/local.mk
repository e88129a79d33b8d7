# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/store/access.c \
	src/store/access.h \
	src/store/beneath.c \
	src/store/beneath.h \
	src/store/blocks.c \
	src/store/blocks.h \
	src/store/crypt/cipher.c \
	src/store/crypt/cipher.h \
	src/store/crypt/key.c \
	src/store/crypt/key.h \
	src/store/encrypted.c \
	src/store/encrypted.h \
	src/store/files.c \
	src/store/files.h \
	src/store/mapfile.c \
	src/store/mapfile.h \
	src/store/packed.c \
	src/store/packed.h
