# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/example/example.c src/tool/example/example.h

EXTRA_DIST += scripts/check-example
