# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/convert/compile.c \
	src/convert/compile.h \
	src/convert/compile_internal.h \
	src/convert/config.c \
	src/convert/config.h \
	src/convert/internal.h \
	src/convert/learn.c \
	src/convert/links.c \
	src/convert/map.c \
	src/convert/map.h \
	src/convert/open.c \
	src/convert/parse.c \
	src/convert/parse_number.c \
	src/convert/parse_tensor.c \
	src/convert/parse_text.c \
	src/convert/pieces.c \
	src/convert/repeat.c \
	src/convert/reshape.c \
	src/convert/reshape.h \
	src/convert/rules.h \
	src/convert/shapes.c \
	src/convert/shipped.h \
	src/convert/sides.c \
	src/convert/values.c
