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
	src/store/crypt/evp.c \
	src/store/crypt/hmac.c \
	src/store/crypt/hmac.h \
	src/store/crypt/key.c \
	src/store/crypt/key.h \
	src/store/encrypted.c \
	src/store/encrypted.h \
	src/store/fds.c \
	src/store/fds.h \
	src/store/files.c \
	src/store/files.h \
	src/store/files_internal.h \
	src/store/home.c \
	src/store/home.h \
	src/store/identity.c \
	src/store/json_map.c \
	src/store/json_map.h \
	src/store/places.c \
	src/store/places.h \
	src/store/reading.c
