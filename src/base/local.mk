# SPDX-License-Identifier: Apache-2.0
librfs_la_SOURCES += \
	src/base/aged.h \
	src/base/arena.c src/base/arena.h \
	src/base/budget.c src/base/budget.h \
	src/base/cancel.c src/base/cancel.h \
	src/base/checked.h \
	src/base/cleanup.h \
	src/base/differ.h \
	src/base/error.c src/base/error.h \
	src/base/filename.c src/base/filename.h \
	src/base/first_error.h \
	src/base/forks.h \
	src/base/glob.c src/base/glob.h \
	src/base/hash.c src/base/hash.h \
	src/base/intern.c src/base/intern.h \
	src/base/io.c src/base/io.h \
	src/base/json_read.c src/base/json_read.h \
	src/base/json_tree.c src/base/json_tree.h \
	src/base/json_write.c src/base/json_write.h \
	src/base/home.c src/base/home.h \
	src/base/lex.c src/base/lex.h \
	src/base/limits.c src/base/limits.h \
	src/base/log.c src/base/log.h \
	src/base/memory_limit.c src/base/memory_limit.h \
	src/base/mountinfo.c src/base/mountinfo.h \
	src/base/once.h \
	src/base/options.c src/base/options.h \
	src/base/order.h \
	src/base/origin.c src/base/origin.h \
	src/base/pages.c src/base/pages.h \
	src/base/path.c src/base/path.h \
	src/base/patience.c src/base/patience.h \
	src/base/pool.c src/base/pool.h \
	src/base/processor.c src/base/processor.h \
	src/base/progress.c src/base/progress.h \
	src/base/secret.c src/base/secret.h \
	src/base/settings.c src/base/settings.h \
	src/base/std.h \
	src/base/store.c src/base/store.h \
	src/base/suggest.c src/base/suggest.h \
	src/base/text.c src/base/text.h \
	src/base/thread.c src/base/thread.h \
	src/base/turns.c src/base/turns.h \
	src/base/variables.c src/base/variables.h \
	src/base/vec.c src/base/vec.h \
	src/base/wait.c src/base/wait.h
