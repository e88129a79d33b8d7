# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/zero/internal.h \
	src/formats/zero/zero.c \
	src/formats/zero/zero.h \
	src/formats/zero/zero_name.c \
	src/formats/zero/zero_tensors.c
