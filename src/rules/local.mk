# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/rules/compile.c \
	src/rules/compile.h \
	src/rules/compile_internal.h \
	src/rules/config.c \
	src/rules/config.h \
	src/rules/internal.h \
	src/rules/learn.c \
	src/rules/links.c \
	src/rules/map.c \
	src/rules/map.h \
	src/rules/open.c \
	src/rules/parse.c \
	src/rules/parse_number.c \
	src/rules/parse_tensor.c \
	src/rules/parse_text.c \
	src/rules/pieces.c \
	src/rules/repeat.c \
	src/rules/reshape.c \
	src/rules/reshape.h \
	src/rules/rules.h \
	src/rules/shapes.c \
	src/rules/shipped.h \
	src/rules/sides.c \
	src/rules/values.c
