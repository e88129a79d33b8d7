/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/cleanup.h"
#include "base/text.h"

enum { LINE_BYTES = 2304, LINES_A_SECOND = 10 };

void rfs_log_init(struct rfs_log *log, rfs_log_sink *sink, void *ctx)
{
    log->sink = sink;
    log->ctx = ctx;
    log->window = 0;
    log->in_window = 0;
    log->dropped = 0;
    pthread_mutex_init(&log->lock, NULL);
}

void rfs_log_destroy(struct rfs_log *log)
{
    pthread_mutex_destroy(&log->lock);
}

/* Names in a line come from files, so it is made printable before it is output. */
static void emit(struct rfs_log *log, enum rfs_level level, const char *fmt, va_list args)
{
    char raw[LINE_BYTES], line[LINE_BYTES];

    vsnprintf(raw, sizeof raw, fmt, args);
    rfs_text_printable(line, sizeof line, raw);
    log->sink(log->ctx, level, line);
}

void rfs_log(struct rfs_log *log, enum rfs_level level, const char *fmt, ...)
{
    va_list args;

    if (!log || !log->sink)
        return;
    va_start(args, fmt);
    emit(log, level, fmt, args);
    va_end(args);
}

/* Returns whether a line may pass now; *dropped is how many did not since the last that did. */
static bool admit(struct rfs_log *log, uint64_t *dropped)
{
    struct timespec now;
    bool pass;

    clock_gettime(CLOCK_MONOTONIC, &now);
    RFS_LOCKED(&log->lock);
    if (now.tv_sec != log->window) {
        log->window = now.tv_sec;
        log->in_window = 0;
    }
    pass = log->in_window < LINES_A_SECOND;
    if (pass) {
        log->in_window++;
        *dropped = log->dropped;
        log->dropped = 0;
    } else {
        log->dropped++;
    }
    return pass;
}

void rfs_log_limited(struct rfs_log *log, enum rfs_level level, const char *fmt, ...)
{
    uint64_t dropped = 0;
    va_list args;

    if (!log || !log->sink || !admit(log, &dropped))
        return;
    if (dropped > 0)
        rfs_log(log, level, "%" PRIu64 " similar lines were left out", dropped);
    va_start(args, fmt);
    emit(log, level, fmt, args);
    va_end(args);
}
