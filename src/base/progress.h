/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress of long work: a line on the standard error that is drawn over again, on a
 * terminal only, and with JSON a line a second on the standard output.
 *
 * Threads: rfs_progress_add, file and tick from any; the others from one.
 */
#pragma once

#include "base/std.h"

#include <pthread.h>
#include <stdatomic.h>

struct rfs_progress {
    bool terminal, json;
    const char *phase;     /* such as "planning"; a constant */
    uint64_t bytes, files; /* work of the phase */
    atomic_uint_least64_t bytes_done, files_done;
    double begun;           /* seconds, CLOCK_MONOTONIC */
    pthread_mutex_t lock;   /* guards the rest; held while a line is written */
    double drawn, reported; /* last time that the line was drawn, and was printed as JSON */
    double mark;            /* begin of the time that the rate is measured in */
    uint64_t mark_bytes;    /* bytes that were done then */
    double rate;            /* bytes a second, smoothed */
    bool shown;             /* a line is on the terminal */
};

void rfs_progress_init(struct rfs_progress *progress, bool json);
void rfs_progress_destroy(struct rfs_progress *progress);

/* Begins a phase with BYTES and FILES to be done; if BYTES is 0, files count. */
void rfs_progress_begin(struct rfs_progress *progress, const char *phase, uint64_t bytes,
                        uint64_t files);
/* Adds bytes, or a file, that are done. */
void rfs_progress_add(struct rfs_progress *progress, uint64_t bytes);
void rfs_progress_file(struct rfs_progress *progress);
/* Draws the line, or prints it, if it is time to. */
void rfs_progress_tick(struct rfs_progress *progress);
/* Takes the line off the terminal, for something else to be printed. */
void rfs_progress_end(struct rfs_progress *progress);

/* Returns the seconds since some moment. */
double rfs_progress_now(void);
