# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/gguf/gguf.c \
	src/formats/gguf/gguf.h \
	src/formats/gguf/gguf_encode.c
