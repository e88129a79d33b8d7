# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/verify/findings.c src/tool/verify/findings.h \
	src/tool/verify/verify.c src/tool/verify/verify.h \
	src/tool/verify/verify_files.c \
	src/tool/verify/verify_tensors.c
