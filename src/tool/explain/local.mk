# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/explain/explain.c \
	src/tool/explain/picture.c src/tool/explain/picture.h
