/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/message.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 4096 /* a message takes 2 KiB of it */

static atomic_bool to_syslog, any_error;
static atomic_int least = RESHARD_LOG_INFO;

static const struct {
    const char *name, *label;
    int priority;
} levels[] = {
    [RESHARD_LOG_ERROR] = {"error", "error: ", LOG_ERR},
    [RESHARD_LOG_WARNING] = {"warning", "warning: ", LOG_WARNING},
    [RESHARD_LOG_INFO] = {"info", "", LOG_INFO},
    [RESHARD_LOG_DEBUG] = {"debug", "debug: ", LOG_DEBUG},
};

/* ---- the last lines -------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock; /* a leaf lock, for the rest */
    char bytes[RFS_MESSAGE_KEPT_BYTES];
    uint64_t written; /* bytes in all: the next goes to written % RFS_MESSAGE_KEPT_BYTES */
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Copies N bytes that begin at a position of all that was written, out of the ring or into it. */
static void move(uint64_t at, char *out, const char *in, size_t n)
{
    const size_t begin = (size_t)(at % RFS_MESSAGE_KEPT_BYTES);
    const size_t first = n < RFS_MESSAGE_KEPT_BYTES - begin ? n : RFS_MESSAGE_KEPT_BYTES - begin;

    if (in) {
        memcpy(ring.bytes + begin, in, first);
        memcpy(ring.bytes, in + first, n - first);
    } else {
        memcpy(out, ring.bytes + begin, first);
        memcpy(out + first, ring.bytes, n - first);
    }
}

/* Adds "2026-01-31T12:00:00Z warning: LINE" to the ring. */
static void add_to_ring(enum reshard_level level, const char *line)
{
    const time_t now = time(NULL);
    struct tm utc;
    char text[LINE_BYTES];
    size_t n;

    gmtime_r(&now, &utc);
    n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ ", &utc);
    n += (size_t)snprintf(text + n, sizeof text - n, "%s: %s", levels[level].name, line);
    if (n >= sizeof text)
        n = sizeof text - 1;
    text[n++] = '\n';
    RFS_LOCKED(&ring.lock);
    move(ring.written, NULL, text, n);
    ring.written += n;
}

char *rfs_message_copy_last(size_t *bytes)
{
    char *copy = malloc(RFS_MESSAGE_KEPT_BYTES);
    size_t cut = 0;

    if (!copy)
        return NULL;
    pthread_mutex_lock(&ring.lock);
    const bool full = ring.written > RFS_MESSAGE_KEPT_BYTES;
    *bytes = full ? RFS_MESSAGE_KEPT_BYTES : (size_t)ring.written;
    move(ring.written - *bytes, copy, NULL, *bytes);
    pthread_mutex_unlock(&ring.lock);
    while (full && cut < *bytes && copy[cut++] != '\n') /* the oldest line is one cut off */
        ;
    *bytes -= cut;
    memmove(copy, copy + cut, *bytes);
    return copy;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *coloured(enum reshard_level level)
{
    return level == RESHARD_LOG_ERROR     ? rfs_text_error_label(STDERR_FILENO)
           : level == RESHARD_LOG_WARNING ? rfs_text_warning_label(STDERR_FILENO)
                                          : levels[level].label;
}

void rfs_message_set_level(enum reshard_level level)
{
    atomic_store(&least, (int)level);
}

void rfs_message_reach_syslog(void)
{
    openlog(RFS_PROGRAM, LOG_PID | LOG_NDELAY, LOG_DAEMON);
}

void rfs_message_use_syslog(void)
{
    atomic_store(&to_syslog, true);
}

void rfs_message_put(void *ctx, enum reshard_level level, const char *line)
{
    (void)ctx;
    if (level < RESHARD_LOG_ERROR || level > RESHARD_LOG_DEBUG)
        level = RESHARD_LOG_ERROR;
    if ((int)level > atomic_load(&least))
        return;
    if (level == RESHARD_LOG_ERROR)
        atomic_store(&any_error, true);
    add_to_ring(level, line);
    if (atomic_load(&to_syslog))
        syslog(levels[level].priority, "%s%s", levels[level].label, line);
    else
        fprintf(stderr, "%s: %s%s\n", RFS_PROGRAM, coloured(level), line);
}

bool rfs_message_any_error(void)
{
    return atomic_load(&any_error);
}
