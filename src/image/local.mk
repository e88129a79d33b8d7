# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/image/build.c \
	src/image/build.h \
	src/image/ckpt.c \
	src/image/image.c \
	src/image/image.h \
	src/image/safetensors.c \
	src/image/weight_map.c
