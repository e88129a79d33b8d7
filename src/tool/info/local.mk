# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/info/boxes.c \
	src/tool/info/detect.c \
	src/tool/info/file.c \
	src/tool/info/folder.c \
	src/tool/info/info.c src/tool/info/info.h \
	src/tool/info/mount.c \
	src/tool/info/parts.c \
	src/tool/info/rows.c src/tool/info/rows.h \
	src/tool/info/strategy.c \
	src/tool/info/torch.c \
	src/tool/info/tree.c src/tool/info/tree.h src/tool/info/tree_odd.c src/tool/info/tree_params.c
