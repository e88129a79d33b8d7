# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/diff/diff.c
