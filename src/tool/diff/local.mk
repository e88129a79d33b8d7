# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/diff/compare.c src/tool/diff/compare.h \
	src/tool/diff/diff.c src/tool/diff/diff.h \
	src/tool/diff/pairs.c \
	src/tool/diff/write.c
