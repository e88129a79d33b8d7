# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/export/dest.c src/tool/export/dest.h \
	src/tool/export/dest_bucket.c src/tool/export/dest_folder.c \
	src/tool/export/export.c src/tool/export/export.h \
	src/tool/export/resume.c \
	src/tool/export/task.c \
	src/tool/export/verify_export.c \
	src/tool/export/write_files.c
