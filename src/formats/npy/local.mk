# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/npy/npy.c \
	src/formats/npy/npy.h
