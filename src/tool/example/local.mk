# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/example/example.c src/tool/example/example.h \
	src/tool/example/network.c src/tool/example/network.h

EXTRA_DIST += scripts/check-example
