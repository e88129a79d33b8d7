# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/layout/builder.h \
	src/layout/digest.c \
	src/layout/digest.h \
	src/layout/document.c \
	src/layout/document.h \
	src/layout/document_json.c \
	src/layout/grid.c \
	src/layout/grid.h \
	src/layout/grid_resolve.c \
	src/layout/layout_builder.c \
	src/layout/manual.c \
	src/layout/merge.c \
	src/layout/merge.h \
	src/layout/open.c \
	src/layout/layout_rules.c \
	src/layout/layout_rules.h \
	src/layout/layout_rules_layout.c \
	src/layout/layout_rules_parse.c \
	src/layout/layout_rules_internal.h \
	src/layout/strategy.c \
	src/layout/strategy_build.c \
	src/layout/strategy_internal.h \
	src/layout/strategy.h
