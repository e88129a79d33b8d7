# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/view/budget.c \
	src/view/budget.h \
	src/view/internal.h \
	src/view/names.c \
	src/view/options.c \
	src/view/options.h \
	src/view/read.c \
	src/view/strategies.c \
	src/view/strategies.h \
	src/view/strategy_files.c \
	src/view/strategy_files.h \
	src/view/tree.c \
	src/view/view.c
