# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/shards/shards.c \
	src/formats/shards/shards.h
