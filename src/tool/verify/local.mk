# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/verify/content.c \
	src/tool/verify/findings.c src/tool/verify/findings.h \
	src/tool/verify/frame.c \
	src/tool/verify/lost.c \
	src/tool/verify/objects.c \
	src/tool/verify/options.c \
	src/tool/verify/own.c \
	src/tool/verify/parts.c \
	src/tool/verify/ranks.c \
	src/tool/verify/sums.c src/tool/verify/sums.h \
	src/tool/verify/verify.c src/tool/verify/verify.h \
	src/tool/verify/write.c
