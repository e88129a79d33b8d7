# SPDX-License-Identifier: Apache-2.0
#
# The program uses the public library; from the base room it takes a few small files of its own, because
# the library exports none of its inside. The flags of its own keep its objects apart from librfs's.
if HAVE_FUSE
reshardfs_CFLAGS = $(AM_CFLAGS)
reshardfs_SOURCES = \
	src/base/bytes.c \
	src/base/cancel.c \
	src/base/error.c \
	src/base/fd.c \
	src/base/harden.c \
	src/base/json_read.c \
	src/base/json_string.c \
	src/base/json_write.c \
	src/base/kept.c \
	src/base/limits.c \
	src/base/log.c \
	src/base/mountinfo.c \
	src/base/option_values.c \
	src/base/options.c \
	src/base/pathlist.c \
	src/base/read_whole.c \
	src/base/secret.c \
	src/base/settings.c \
	src/base/store.c \
	src/base/suggest.c \
	src/base/term.c \
	src/base/text.c \
	src/base/variables.c \
	src/base/vec.c \
	src/mount/arguments.c src/mount/arguments.h \
	src/mount/bell.h \
	src/mount/capture.c src/mount/capture.h \
	src/mount/channel.c src/mount/channel.h \
	src/mount/hidden.c src/mount/hidden.h \
	src/mount/hidden_json.c \
	src/mount/daemon.c src/mount/daemon.h \
	src/mount/fuse.h \
	src/mount/guard.c src/mount/guard.h \
	src/mount/internal.h \
	src/mount/keeper.c src/mount/keeper.h \
	src/mount/main.c \
	src/mount/ops.c src/mount/ops.h \
	src/mount/options.c src/mount/options.h \
	src/mount/pages.c src/mount/pages.h \
	src/mount/paths.c src/mount/paths.h \
	src/mount/readahead.c src/mount/readahead.h \
	src/mount/readonly.c \
	src/mount/report.c src/mount/report.h \
	src/mount/request.c src/mount/request.h \
	src/mount/ring.c src/mount/ring.h \
	src/mount/sandbox.c src/mount/sandbox.h \
	src/mount/sandbox_calls.c \
	src/mount/sandbox_files.c \
	src/mount/scratch.c src/mount/scratch.h \
	src/mount/session.c src/mount/session.h \
	src/mount/settings.c src/mount/settings.h \
	src/mount/table.c src/mount/table.h \
	src/mount/unwind.c src/mount/unwind.h \
	src/mount/waits.c src/mount/waits.h
endif
