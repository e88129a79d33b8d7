/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be preloaded: reads of regular files take random times of up to RFS_DELAY_MOST microseconds,
 * and a thread sometimes pauses before it takes a lock, so that threads do their work in another
 * order each time. RFS_DELAY_SEED says in which. delays() in tests/mount/harness.py builds it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TAKES_PART __attribute__((visibility("default")))
#define PAUSES_EVERY 8u /* locks */

static uint64_t seed;
static uint32_t most;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("RFS_DELAY_SEED");
    const char *limit = getenv("RFS_DELAY_MOST");

    seed = text ? strtoull(text, NULL, 10) : 0;
    most = limit ? (uint32_t)atol(limit) : 0;
}

/* Returns the next random number (splitmix64). */
static uint32_t draw(void)
{
    static atomic_uint_least64_t calls;
    uint64_t x = seed + 0x9E3779B97F4A7C15u * (atomic_fetch_add(&calls, 1) + 1);

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((x ^ (x >> 31)) >> 32);
}

static void pause_once(void)
{
    const struct timespec time = {.tv_nsec = (long)(draw() % (most + 1)) * 1000};

    if (most > 0)
        nanosleep(&time, NULL);
}

static void delay(int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        pause_once();
}

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

TAKES_PART ssize_t pread64(int fd, void *buf, size_t n, off_t offset)
{
    static ssize_t (*call)(int, void *, size_t, off_t);

    if (!call)
        *(void **)&call = real("pread64");
    delay(fd);
    return call(fd, buf, n, offset);
}

TAKES_PART ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
    return pread64(fd, buf, n, offset);
}

TAKES_PART ssize_t preadv64(int fd, const struct iovec *list, int n, off_t offset)
{
    static ssize_t (*call)(int, const struct iovec *, int, off_t);

    if (!call)
        *(void **)&call = real("preadv64");
    delay(fd);
    return call(fd, list, n, offset);
}

TAKES_PART ssize_t preadv(int fd, const struct iovec *list, int n, off_t offset)
{
    return preadv64(fd, list, n, offset);
}

TAKES_PART int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*call)(pthread_mutex_t *);

    if (!call)
        *(void **)&call = real("pthread_mutex_lock");
    if (draw() % PAUSES_EVERY == 0)
        pause_once();
    return call(mutex);
}
