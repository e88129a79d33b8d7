# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/info/info.c src/tool/info/info.h \
	src/tool/info/info_folder.c \
	src/tool/info/info_rows.c
