/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log is a function that takes one line; the caller that opens the view supplies it. Safe from
 * any thread: the limiter has its own lock, held only while a counter is changed, never while the
 * sink runs.
 */
#pragma once

#include "base/std.h"

#include <pthread.h>
#include <time.h>

enum rfs_level { RFS_ERROR, RFS_WARNING, RFS_INFO, RFS_DEBUG };

typedef void rfs_log_sink(void *ctx, enum rfs_level level, const char *line);

struct rfs_log {
    rfs_log_sink *sink; /* takes each line; NULL: silent */
    void *ctx;
    pthread_mutex_t lock;
    time_t window; /* start of the current second of the limiter, CLOCK_MONOTONIC */
    uint32_t in_window;
    uint64_t dropped; /* lines dropped since the last one that got through */
};

void rfs_log_init(struct rfs_log *log, rfs_log_sink *sink, void *ctx);
void rfs_log_destroy(struct rfs_log *log);

/* Logs one line. log may be NULL. */
void rfs_log(struct rfs_log *log, enum rfs_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Logs a line that a failing disk could produce by the thousand: at most 10 a second; the next line
 * that is logged has the number of those dropped.
 */
void rfs_log_limited(struct rfs_log *log, enum rfs_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
