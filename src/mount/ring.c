/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/ring.h"

#include <pthread.h>
#include <time.h>

#define LINE_BYTES 4096 /* a message takes 2 KiB of it */

static struct {
    pthread_mutex_t lock; /* of the rest; a leaf lock */
    char bytes[RFS_RING_BYTES];
    uint64_t written; /* in all: the next byte goes to written % RFS_RING_BYTES */
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const names[] = {
    [RESHARD_LOG_ERROR] = "error",
    [RESHARD_LOG_WARNING] = "warning",
    [RESHARD_LOG_INFO] = "info",
    [RESHARD_LOG_DEBUG] = "debug",
};

/* Copies N bytes that begin at a position of all that was written, out of the ring or into it. */
static void move(uint64_t at, char *out, const char *in, size_t n)
{
    const size_t begin = (size_t)(at % RFS_RING_BYTES);
    const size_t first = n < RFS_RING_BYTES - begin ? n : RFS_RING_BYTES - begin;

    if (in) {
        memcpy(ring.bytes + begin, in, first);
        memcpy(ring.bytes, in + first, n - first);
    } else {
        memcpy(out, ring.bytes + begin, first);
        memcpy(out + first, ring.bytes, n - first);
    }
}

void rfs_ring_add(enum reshard_level level, const char *line)
{
    const time_t now = time(NULL);
    struct tm utc;
    char text[LINE_BYTES];
    size_t n;

    gmtime_r(&now, &utc);
    n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ ", &utc);
    n += (size_t)snprintf(text + n, sizeof text - n, "%s: %s", names[level], line);
    if (n >= sizeof text)
        n = sizeof text - 1;
    text[n++] = '\n';
    pthread_mutex_lock(&ring.lock);
    move(ring.written, NULL, text, n);
    ring.written += n;
    pthread_mutex_unlock(&ring.lock);
}

char *rfs_ring_copy(size_t *bytes)
{
    char *copy = malloc(RFS_RING_BYTES);
    size_t cut = 0;

    if (!copy)
        return NULL;
    pthread_mutex_lock(&ring.lock);
    const bool full = ring.written > RFS_RING_BYTES;
    *bytes = full ? RFS_RING_BYTES : (size_t)ring.written;
    move(ring.written - *bytes, copy, NULL, *bytes);
    pthread_mutex_unlock(&ring.lock);
    while (full && cut < *bytes && copy[cut++] != '\n') /* the oldest line is one cut off */
        ;
    *bytes -= cut;
    memmove(copy, copy + cut, *bytes);
    return copy;
}
