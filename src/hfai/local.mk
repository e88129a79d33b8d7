# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/hfai/divide.c \
	src/hfai/hfai.h \
	src/hfai/hfai_document.c \
	src/hfai/hfai_document.h \
	src/hfai/internal.h \
	src/hfai/list.c \
	src/hfai/state.c \
	src/hfai/storages.c \
	src/hfai/storages.h
