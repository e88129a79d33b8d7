# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/layout/draft.c src/layout/draft.h \
	src/layout/grid.c src/layout/grid.h \
	src/layout/grid_resolve.c \
	src/layout/json_text.c src/layout/json_text.h \
	src/layout/strategy.c src/layout/strategy.h \
	src/layout/strategy_json.c \
	src/layout/strategy_protobuf.c
