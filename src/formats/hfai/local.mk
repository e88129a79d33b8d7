# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += src/formats/hfai/hfai.h
if HAVE_HFAI
librfs_la_SOURCES += \
	src/formats/hfai/divide.c \
	src/formats/hfai/internal.h \
	src/formats/hfai/list.c \
	src/formats/hfai/state.c
else
librfs_la_SOURCES += src/formats/hfai/without_hfai.c
endif
