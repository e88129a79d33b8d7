# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/view/budget.c \
	src/view/budget.h \
	src/view/bundle.c \
	src/view/bundle.h \
	src/view/crc.c \
	src/view/crypt.c \
	src/view/crypt.h \
	src/view/features.c \
	src/view/flat.c \
	src/view/flat.h \
	src/view/huggingface.c \
	src/view/internal.h \
	src/view/options.c \
	src/view/options.h \
	src/view/outputs.c \
	src/view/outputs.h \
	src/view/ranges.c \
	src/view/ranges.h \
	src/view/read.c \
	src/view/rules.c \
	src/view/rules.h \
	src/view/saved_sizes.c \
	src/view/saved_sizes.h \
	src/view/side.c \
	src/view/side.h \
	src/view/statistics.c \
	src/view/statistics.h \
	src/view/strategies.c \
	src/view/strategies.h \
	src/view/strategy_files.c \
	src/view/strategy_files.h \
	src/view/streak.c \
	src/view/streak.h \
	src/view/tree.c \
	src/view/unified.c \
	src/view/view.c
