/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include "base/cleanup.h"
#include "base/forks.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

int rfs_secret_harden(struct rfs_error *err)
{
    const struct rlimit none = {0, 0};

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || setrlimit(RLIMIT_CORE, &none) != 0)
        return rfs_fail(err, -errno, RFS_NOWHERE, NULL,
                        "core files cannot be switched off, and so no key is read: %s",
                        strerror(errno));
    return 0;
}

void rfs_secret_wipe(void *at, size_t bytes)
{
    if (bytes > 0)
        explicit_bzero(at, bytes);
}

int rfs_secret_guard(void *at, size_t bytes)
{
    madvise(at, bytes, MADV_DONTDUMP); /* advice: it fails only for unmapped pages */
    return mlock(at, bytes) == 0 ? 0 : -errno;
}

void *rfs_secret_map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    (void)rfs_secret_guard(at, bytes);
    return at;
}

void rfs_secret_unmap(void *at, size_t bytes)
{
    if (!at)
        return;
    rfs_secret_wipe(at, bytes);
    munmap(at, bytes);
}

/* ---- slots ----------------------------------------------------------------------------------- */

#define ROOM ((size_t)RFS_SECRET_SLOTS * RFS_SECRET_SLOT_BYTES)

/* A slot that is free. */
struct slot {
    struct slot *next;
};

static struct {
    pthread_mutex_t lock;
    unsigned char *base; /* constant once it is set */
    struct slot *free;
    pid_t locked_in; /* the process in which the pages are locked */
} room = {.lock = PTHREAD_MUTEX_INITIALIZER};

RFS_FORKS_WITH(room.lock, rfs_forks_nothing)

bool rfs_secret_slots_open(void)
{
    if (room.base)
        return true;
    room.base = rfs_secret_map(ROOM);
    if (!room.base)
        return false;
    room.locked_in = getpid();
    for (size_t at = ROOM; at > 0; at -= RFS_SECRET_SLOT_BYTES) {
        struct slot *slot = (struct slot *)(void *)(room.base + at - RFS_SECRET_SLOT_BYTES);
        slot->next = room.free;
        room.free = slot;
    }
    return true;
}

bool rfs_secret_slots_has(const void *at)
{
    const uintptr_t from = (uintptr_t)room.base;

    return from != 0 && (uintptr_t)at >= from && (uintptr_t)at - from < ROOM;
}

void *rfs_secret_slots_take(size_t n)
{
    if (n > RFS_SECRET_SLOT_BYTES || !room.base)
        return NULL;
    const pid_t process = getpid();
    pthread_mutex_lock(&room.lock);
    struct slot *slot = room.free;
    const bool relock = room.locked_in != process; /* after a fork */
    if (slot)
        room.free = slot->next;
    room.locked_in = process;
    pthread_mutex_unlock(&room.lock);
    if (relock)
        (void)rfs_secret_guard(room.base, ROOM);
    return slot;
}

void rfs_secret_slots_give(void *at)
{
    struct slot *slot = at;

    rfs_secret_wipe(at, RFS_SECRET_SLOT_BYTES);
    RFS_LOCKED(&room.lock);
    slot->next = room.free;
    room.free = slot;
}
