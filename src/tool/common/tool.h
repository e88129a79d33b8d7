/* SPDX-License-Identifier: Apache-2.0 */
/* A command of `reshard` as a process: its messages, exit status, signals, and numbers for it. */
#pragma once

#include "base/error.h"
#include "reshard.h"

enum { RFS_EXIT_OK = 0, RFS_EXIT_INPUT = 1, RFS_EXIT_USAGE = 2 };

/* Prints "reshard: error: …", and returns the exit status. */
int rfs_tool_failed(const struct rfs_error *err);

/*
 * A reshard_log_fn: prints errors and warnings to the standard error, as the tool prints its own.
 */
void rfs_tool_log(void *ctx, enum reshard_level level, const char *line);
/* Prints "reshard: warning: …; try: REMEDY" (NULL: none), for failures that do not end it. */
void rfs_tool_warn(const char *line, const char *remedy);

/*
 * Parses a decimal number in [MIN, MAX], with a suffix K, M, G or T (powers of 1024) if SUFFIX.
 * False when TEXT is none.
 */
bool rfs_tool_number(const char *text, bool suffix, uint64_t min, uint64_t max, uint64_t *out);

/* Returns how many processors this process may use, as engines of clusters bind it: 1 to MOST. */
unsigned rfs_tool_processors(unsigned most);

/*
 * Signals that end a command which has something to clean up first: SIGINT, SIGTERM and SIGHUP.
 * There is one state for the whole process, because a signal handler has nothing else to know it
 * by.
 *
 * From rfs_tool_catch_signals on, they are only noted. A second one of a kind ends the process; an
 * ignored one stays so.
 */
void rfs_tool_catch_signals(void);
/* Returns the signal that asked to stop, or 0. Any thread. */
int rfs_tool_stopped(void);
