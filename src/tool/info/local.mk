# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/info/encrypted.c \
	src/tool/info/info.c src/tool/info/info.h \
	src/tool/info/source.c \
	src/tool/info/strategy.c
