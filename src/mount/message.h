/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's messages: to stderr while there is a terminal or a parent to see them, to syslog
 * once the daemon has let go of both. The last lines can be read later, in RFS_MESSAGE_KEPT_BYTES
 * of memory that is taken as it fills; older lines make room.
 *
 * Threads: rfs_message_put and rfs_message_copy_last from any, with a leaf lock; the others from
 * the main thread before the session runs, except rfs_message_use_syslog, which may overtake lines
 * that other threads are writing.
 */
#pragma once

#include "base/error.h"
#include "reshard.h"

#define RFS_PROGRAM "reshardfs"
#define RFS_MESSAGE_KEPT_BYTES (256u << 10)

enum { RFS_EXIT_INPUT = 1, RFS_EXIT_USAGE = 2 };

/* Drops lines that are less urgent from now on; at first, debug lines are dropped. */
void rfs_message_set_level(enum reshard_level level);
/*
 * Connects to syslog, as long as that can be done: in the sandbox it can't. Whether there is one
 * shows when lines go there.
 */
void rfs_message_reach_syslog(void);
/* Sends lines to syslog from now on. */
void rfs_message_use_syslog(void);

/* Writes a line; a reshard_log_fn. CTX is not used. */
void rfs_message_put(void *ctx, enum reshard_level level, const char *line);
/* Says whether an error was written. */
bool rfs_message_any_error(void);
/*
 * Copies all whole lines that are kept, "2026-01-31T12:00:00Z warning: LINE", each with its
 * newline: owned by the caller. NULL when out of memory.
 */
char *rfs_message_copy_last(size_t *bytes);
