# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/explain/explain.c src/tool/explain/explained.h \
	src/tool/explain/chunks.c \
	src/tool/explain/converted.c src/tool/explain/made.h \
	src/tool/explain/draw_matrices.c src/tool/explain/matrices.h \
	src/tool/explain/flow.c src/tool/explain/picture.h \
	src/tool/explain/json.c \
	src/tool/explain/matrices.c \
	src/tool/explain/panels.c \
	src/tool/explain/parts.c src/tool/explain/parts.h \
	src/tool/explain/picture.c \
	src/tool/explain/ranges.c src/tool/explain/ranges.h \
	src/tool/explain/slices.c \
	src/tool/explain/totals.c src/tool/explain/totals.h \
	src/tool/explain/text.c \
	src/tool/explain/union.c src/tool/explain/union.h
