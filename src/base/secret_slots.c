/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret_slots.h"

#include "base/secret.h"

#include <pthread.h>
#include <unistd.h>

#define ROOM ((size_t)RFS_SLOTS * RFS_SLOT_BYTES)

/* A free slot. */
struct slot {
    struct slot *next;
};

static struct {
    pthread_mutex_t lock;
    unsigned char *base; /* constant once it is set */
    struct slot *free;
    pid_t locked_in; /* the process in which the pages are locked */
    struct rfs_secret secret;
} room = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool rfs_slots_open(void)
{
    if (room.base)
        return true;
    room.base = rfs_secret_map(&room.secret, ROOM);
    if (!room.base)
        return false;
    room.locked_in = getpid();
    for (size_t at = ROOM; at > 0; at -= RFS_SLOT_BYTES) {
        struct slot *slot = (struct slot *)(void *)(room.base + at - RFS_SLOT_BYTES);
        slot->next = room.free;
        room.free = slot;
    }
    return true;
}

bool rfs_slots_has(const void *at)
{
    const uintptr_t from = (uintptr_t)room.base;

    return from != 0 && (uintptr_t)at >= from && (uintptr_t)at - from < ROOM;
}

void *rfs_slots_take(size_t n)
{
    if (n > RFS_SLOT_BYTES || !room.base)
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
        (void)rfs_secret_guard(&room.secret, room.base, ROOM);
    return slot;
}

void rfs_slots_give(void *at)
{
    struct slot *slot = at;

    rfs_wipe(at, RFS_SLOT_BYTES);
    pthread_mutex_lock(&room.lock);
    slot->next = room.free;
    room.free = slot;
    pthread_mutex_unlock(&room.lock);
}
