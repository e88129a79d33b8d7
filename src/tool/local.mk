# SPDX-License-Identifier: Apache-2.0
# What the tests of this room link as well.
rfs_tool_sources = \
	src/tool/cut.c \
	src/tool/emit.c src/tool/emit.h \
	src/tool/network.c src/tool/network.h \
	src/tool/table.c src/tool/table.h \
	src/tool/value.c src/tool/value.h \
	src/tool/write.h src/tool/write_rank.c src/tool/write_strategy.c

reshard_SOURCES = \
	$(rfs_tool_sources) \
	src/tool/common.c \
	src/tool/example.c \
	src/tool/info.c src/tool/info.h src/tool/info_encrypted.c src/tool/info_source.c src/tool/info_strategy.c \
	src/tool/main.c src/tool/tool.h \
	src/tool/tree.c src/tool/tree.h

EXTRA_DIST += scripts/check-example

dist_doc_DATA = README.md HACKING.md doc/SEMANTICS.md doc/TROUBLESHOOTING.md
