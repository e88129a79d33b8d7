# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/layout/grid.c \
	src/layout/grid.h \
	src/layout/layout_rules.c \
	src/layout/layout_rules.h \
	src/layout/stages.c \
	src/layout/stages.h \
	src/layout/strategy.c \
	src/layout/strategy.h \
	src/layout/strategy_doc.c \
	src/layout/strategy_doc.h \
	src/layout/strategy_doc_json.c \
	src/layout/tensor_layout.c \
	src/layout/tensor_layout.h
