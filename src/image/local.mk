# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/image/ckpt.c \
	src/image/image.c \
	src/image/image.h
