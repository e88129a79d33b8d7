/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where lines go: to stderr while there is a terminal or a parent to see them, to syslog once the
 * daemon has let go of both.
 *
 * Threads: rfs_report_line from any; the others from the main thread before the session runs,
 * except rfs_report_to_syslog, which may overtake lines that other threads are writing.
 */
#pragma once

#include "base/error.h"
#include "reshard.h"

#define RFS_PROGRAM "reshardfs"

enum { RFS_EXIT_INPUT = 1, RFS_EXIT_USAGE = 2 };

/* Lines that are less urgent are dropped; at first, debug lines. */
void rfs_report_level(enum reshard_level level);
/*
 * Connects to syslog, as long as that can be done: in the sandbox it can't. Whether there is one
 * shows when lines go there.
 */
void rfs_report_reach_syslog(void);
/* From here on, lines go there. */
void rfs_report_to_syslog(void);

/* A reshard_log_fn. ctx is not used. */
void rfs_report_line(void *ctx, enum reshard_level level, const char *line);

/* "reshardfs: error: …" to wherever lines go now. Returns the exit status that belongs to it. */
int rfs_report_error(const struct rfs_error *err);

/* The library's failure, in our own form. */
void rfs_report_adopt(struct rfs_error *err, const reshard_error *from);

/* "8 → 4 ranks, 412 parameters", with an ASCII arrow where the locale is not UTF-8. */
void rfs_report_summary(char *out, size_t cap, reshard_view *view);
