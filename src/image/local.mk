# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/image/ckpt.c \
	src/image/dcp.c src/image/dcp.h \
	src/image/image.c src/image/image.h \
	src/image/mindformers.c src/image/mindformers.h \
	src/image/npy.c src/image/npy.h \
	src/image/pickler.c src/image/pickler.h \
	src/image/pt.c src/image/pt.h \
	src/image/safetensors.c \
	src/image/weight_map.c
