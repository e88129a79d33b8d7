/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a long piece of work is: a line on the standard error that is drawn over again, on a
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
    uint64_t bytes, files; /* of the phase */
    atomic_uint_least64_t bytes_done, files_done;
    double begun;           /* seconds, CLOCK_MONOTONIC */
    pthread_mutex_t lock;   /* of the rest; held while a line is written */
    double drawn, reported; /* when the line was drawn, and printed as JSON, for the last time */
    double mark;            /* the rate is that since then */
    uint64_t mark_bytes;
    double rate; /* bytes a second, smoothed */
    bool shown;  /* a line is on the terminal */
};

void rfs_progress_init(struct rfs_progress *progress, bool json);
void rfs_progress_destroy(struct rfs_progress *progress);

/* BYTES and FILES are to be done; 0 bytes: files count. */
void rfs_progress_begin(struct rfs_progress *progress, const char *phase, uint64_t bytes,
                        uint64_t files);
void rfs_progress_add(struct rfs_progress *progress, uint64_t bytes);
void rfs_progress_file(struct rfs_progress *progress);
/* Draws if it is time to. */
void rfs_progress_tick(struct rfs_progress *progress);
/* Takes the line off the terminal, for something else to be printed. */
void rfs_progress_end(struct rfs_progress *progress);

/* Seconds since some moment. */
double rfs_progress_now(void);
