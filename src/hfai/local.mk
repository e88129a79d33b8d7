# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/hfai/divide.c \
	src/hfai/document.c \
	src/hfai/document.h \
	src/hfai/document_params.c \
	src/hfai/hfai.h \
	src/hfai/internal.h \
	src/hfai/large.c \
	src/hfai/list.c \
	src/hfai/list_value.c \
	src/hfai/listing.h \
	src/hfai/read.c \
	src/hfai/steps.c \
	src/hfai/storages.c \
	src/hfai/storages.h \
	src/hfai/tensors.c \
	src/hfai/value.c \
	src/hfai/write.c
