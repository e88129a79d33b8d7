/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, exit codes and numbers of all commands of `reshard`. */
#pragma once

#include "base/error.h"

enum { RFS_EXIT_OK = 0, RFS_EXIT_INPUT = 1, RFS_EXIT_USAGE = 2 };

/* Prints "reshard: error: …" and gives the exit code. */
int rfs_tool_failed(const struct rfs_error *err);

/*
 * "reshard: error: …" and "reshard: warning: …; try: REMEDY" (NULL: none), for failures that do not
 * end the command.
 */
void rfs_tool_print_error(const char *line);
void rfs_tool_warn(const char *line, const char *remedy);

/* Flushes the standard output: it fails if not all could be written. Gives the exit code. */
int rfs_tool_done(void);

/* A decimal number in [MIN, MAX], with a suffix K, M, G or T (powers of 1024) if SUFFIX. */
bool rfs_tool_number(const char *text, bool suffix, uint64_t min, uint64_t max, uint64_t *out);

/* How many processors this process may use, as engines of clusters bind it; from 1 to MOST. */
unsigned rfs_tool_processors(unsigned most);
