# SPDX-License-Identifier: Apache-2.0
#
# The program uses the public library; from the base room it takes a few small files of its own, with the
# words of format=, because the library exports none of its inside. The flags of its own keep its objects apart from librfs's.
if HAVE_FUSE
reshardfs_CFLAGS = $(AM_CFLAGS)
reshardfs_LDADD += $(CJSON_LIBS)
reshardfs_SOURCES = \
	src/base/cancel.c \
	src/base/error.c \
	src/base/glob.c \
	src/base/io.c \
	src/base/json_read.c \
	src/base/json_tree.c \
	src/base/json_write.c \
	src/base/home.c \
	src/base/limits.c \
	src/base/log.c \
	src/base/mountinfo.c \
	src/base/options.c \
	src/base/pages.c \
	src/base/path.c \
	src/base/patience.c \
	src/base/secret.c \
	src/base/settings.c \
	src/base/store.c \
	src/base/suggest.c \
	src/base/text.c \
	src/base/thread.c \
	src/base/variables.c \
	src/base/vec.c \
	src/formats/words.c \
	src/mount/control.c src/mount/control.h \
	src/mount/descriptor.c src/mount/descriptor.h \
	src/mount/fuse.c src/mount/fuse.h \
	src/mount/internal.h \
	src/mount/keeper.c src/mount/keeper.h \
	src/mount/main.c \
	src/mount/message.c src/mount/message.h \
	src/mount/mount_options.c src/mount/mount_options.h \
	src/mount/mountpoint.c src/mount/mountpoint.h \
	src/mount/ops.c src/mount/ops.h \
	src/mount/request.c src/mount/request.h \
	src/mount/request_buffer.c src/mount/request_buffer.h \
	src/mount/sandbox.c src/mount/sandbox.h \
	src/mount/session.c src/mount/session.h \
	src/mount/unmount.c src/mount/unmount.h
endif
