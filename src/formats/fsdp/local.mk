# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/formats/fsdp/fsdp.c \
	src/formats/fsdp/fsdp.h
