# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/export/begin.c \
	src/tool/export/check.c \
	src/tool/export/copy.c src/tool/export/copy.h \
	src/tool/export/dest.c src/tool/export/dest.h \
	src/tool/export/export.c src/tool/export/export.h \
	src/tool/export/list.c \
	src/tool/export/manifest.c src/tool/export/manifest.h \
	src/tool/export/options.c src/tool/export/options.h \
	src/tool/export/record.c src/tool/export/record.h \
	src/tool/export/run.c \
	src/tool/export/stale.c \
	src/tool/export/task.c src/tool/export/task.h \
	src/tool/export/verify.c \
	src/tool/export/wave.c src/tool/export/wave.h \
	src/tool/export/write.c src/tool/export/write.h
