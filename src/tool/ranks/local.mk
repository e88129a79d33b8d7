# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/ranks/needed.c src/tool/ranks/needed.h \
	src/tool/ranks/ranks.c
