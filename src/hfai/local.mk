# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/hfai/divide.c \
	src/hfai/hfai.h \
	src/hfai/internal.h \
	src/hfai/list.c \
	src/hfai/state.c
