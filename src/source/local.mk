# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/source/catalog.c src/source/catalog.h \
	src/source/ckpt.c src/source/ckpt.h \
	src/source/ckpt_match.c \
	src/source/ckpt_value.c src/source/ckpt_value.h \
	src/source/dtype.c src/source/dtype.h \
	src/source/fds.c src/source/fds.h \
	src/source/files.c src/source/files.h \
	src/source/index.c src/source/index.h \
	src/source/read_whole.c \
	src/source/scan.c src/source/scan.h \
	src/source/spec.h \
	src/source/wire.c src/source/wire.h
