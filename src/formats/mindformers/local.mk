# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/mindformers/mindformers.c \
	src/formats/mindformers/mindformers.h \
	src/formats/mindformers/mindformers_encode.c \
	src/formats/mindformers/mindformers_encode.h \
	src/formats/mindformers/mindformers_seen.c
