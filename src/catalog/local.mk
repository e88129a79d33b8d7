# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/catalog/built.c \
	src/catalog/built.h \
	src/catalog/catalog.c \
	src/catalog/catalog.h \
	src/catalog/merge.c \
	src/catalog/merge.h \
	src/catalog/kept.c \
	src/catalog/kept.h \
	src/catalog/kept_index.c \
	src/catalog/kept_index.h \
	src/catalog/kept_sizes.c \
	src/catalog/kept_sizes.h \
	src/catalog/weigh.c \
	src/catalog/scan/aside.c \
	src/catalog/scan/aside.h \
	src/catalog/scan/described.c \
	src/catalog/scan/divided.c \
	src/catalog/scan/folder.c \
	src/catalog/scan/group.c \
	src/catalog/scan/group.h \
	src/catalog/scan/hints.c \
	src/catalog/scan/internal.h \
	src/catalog/scan/map.c \
	src/catalog/scan/numbered_save.c \
	src/catalog/scan/parts.c \
	src/catalog/scan/same.c \
	src/catalog/scan/scan.c \
	src/catalog/scan/scan.h \
	src/catalog/scan/series.c \
	src/catalog/scan/spec.h \
	src/catalog/scan/steps.c \
	src/catalog/scan/tree.c \
	src/catalog/scan/watch.c \
	src/catalog/scan/watch.h \
	src/catalog/scan/whole.c \
	src/catalog/scan/zero.c
