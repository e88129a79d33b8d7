# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/hfai/divide.c \
	src/formats/hfai/hfai.h \
	src/formats/hfai/internal.h \
	src/formats/hfai/list.c \
	src/formats/hfai/state.c
