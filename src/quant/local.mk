# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/quant/codes.h \
	src/quant/expand.c \
	src/quant/expand.h \
	src/quant/expand_neon.c \
	src/quant/expand_x86.c \
	src/quant/pair.c \
	src/quant/quant.c \
	src/quant/quant.h \
	src/quant/scheme.c \
	src/quant/scheme.h \
	src/quant/targets.c \
	src/quant/targets.h
