/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and times as people read them, and other short texts that a command prints. */
#pragma once

#include "base/std.h"

#define RFS_SHOWN_BYTES 32

/* "1.4 GiB"; returns OUT. */
const char *rfs_show_bytes(uint64_t bytes, char out[RFS_SHOWN_BYTES]);
/* "2:05" or "1:02:05", hours beyond 99 as "99:59:59"; returns OUT. */
const char *rfs_show_seconds(double seconds, char out[RFS_SHOWN_BYTES]);

/*
 * A text in the making. Where memory is short, the command ends with one line and status 1, as what
 * it prints would be incomplete. By the main thread only.
 */
struct rfs_printed {
    FILE *out; /* to be written to, until it is ended */
    char *text;
    size_t size;
};

FILE *rfs_printed_begin(struct rfs_printed *shown);
/* The text, malloc'ed; never NULL. */
char *rfs_printed_end(struct rfs_printed *shown);

/* MEMORY, which was allocated for output: never NULL. */
void *rfs_printed_memory(void *memory);
