# SPDX-License-Identifier: Apache-2.0
librfstool_la_SOURCES += \
	src/tool/example/cut.c \
	src/tool/example/example.c \
	src/tool/example/network.c src/tool/example/network.h \
	src/tool/example/value.c src/tool/example/value.h \
	src/tool/example/write.h src/tool/example/write_rank.c src/tool/example/write_strategy.c \
	src/tool/example/write_tree.c src/tool/example/write_tree.h

EXTRA_DIST += scripts/check-example
