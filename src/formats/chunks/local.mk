# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/chunks/boxes.c \
	src/formats/chunks/boxes.h \
	src/formats/chunks/build.c \
	src/formats/chunks/chunk_reader.h \
	src/formats/chunks/chunks.h \
	src/formats/chunks/headers.c \
	src/formats/chunks/headers.h \
	src/formats/chunks/state_parts.h
