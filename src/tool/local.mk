# SPDX-License-Identifier: Apache-2.0
# What the tests of this room link as well.
rfs_tool_sources = \
	src/tool/cut.c \
	src/tool/emit.c src/tool/emit.h \
	src/tool/network.c src/tool/network.h \
	src/tool/table.c src/tool/table.h \
	src/tool/value.c src/tool/value.h \
	src/tool/write.h src/tool/write_rank.c src/tool/write_strategy.c

# What the tests of exporting link as well: what needs no view.
rfs_export_sources = \
	src/tool/common.c \
	src/tool/export_copy.c src/tool/export_copy.h \
	src/tool/export_dest.c src/tool/export_dest.h \
	src/tool/export_manifest.c src/tool/export_manifest.h \
	src/tool/export_options.c src/tool/export_options.h \
	src/tool/export_show.c src/tool/export_show.h \
	src/tool/export_task.c src/tool/export_task.h \
	src/tool/export_wave.c src/tool/export_wave.h

reshard_SOURCES = \
	$(rfs_tool_sources) \
	src/tool/example.c \
	$(rfs_export_sources) \
	src/tool/export.c src/tool/export.h \
	src/tool/export_begin.c \
	src/tool/export_check.c \
	src/tool/export_list.c \
	src/tool/export_progress.c src/tool/export_progress.h \
	src/tool/export_record.c src/tool/export_record.h \
	src/tool/export_run.c \
	src/tool/export_verify.c \
	src/tool/export_write.c src/tool/export_write.h \
	src/tool/info.c src/tool/info.h src/tool/info_encrypted.c src/tool/info_source.c src/tool/info_strategy.c \
	src/tool/main.c src/tool/tool.h \
	src/tool/tree.c src/tool/tree.h

EXTRA_DIST += scripts/check-example

dist_doc_DATA = README.md HACKING.md doc/CLUSTER.md doc/SEMANTICS.md doc/TROUBLESHOOTING.md
