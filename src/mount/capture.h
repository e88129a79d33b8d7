/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Catches the output of libfuse and fusermount3 while they mount, so that a failure is printed once
 * and in our form. Only while the process has one thread.
 */
#pragma once

#include "base/std.h"

struct rfs_capture {
    int saved;   /* the real stderr */
    int ends[2]; /* of a pipe in its place */
};

/* If it cannot be caught, output goes to stderr. */
void rfs_capture_start(struct rfs_capture *capture);
/*
 * Ends it and gives the first line that was printed, without the name of the program; "" for none.
 */
void rfs_capture_end(struct rfs_capture *capture, char *line, size_t cap);
