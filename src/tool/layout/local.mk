# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/layout/devices.c src/tool/layout/devices.h \
	src/tool/layout/draw.c \
	src/tool/layout/layout.c src/tool/layout/layout.h \
	src/tool/layout/picture.c
