# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/layout/digest.c src/layout/digest.h \
	src/layout/builder.c src/layout/builder.h \
	src/layout/grid.c src/layout/grid.h \
	src/layout/grid_resolve.c \
	src/layout/json_text.c src/layout/json_text.h \
	src/layout/manual.c \
	src/layout/merge.c src/layout/merge.h \
	src/layout/open.c \
	src/layout/rules.c src/layout/rules.h \
	src/layout/rules_layout.c \
	src/layout/rules_parse.c \
	src/layout/rules_parts.h \
	src/layout/strategy.c src/layout/strategy.h \
	src/layout/strategy_json.c \
	src/layout/strategy_proto.h \
	src/layout/strategy_protobuf.c \
	src/layout/written.c src/layout/written.h \
	src/layout/written_json.c \
	src/layout/written_protobuf.c
