# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/ckpt/ckpt.c \
	src/formats/ckpt/ckpt.h \
	src/formats/ckpt/ckpt_encode.c \
	src/formats/ckpt/crc.c \
	src/formats/ckpt/crc.h
