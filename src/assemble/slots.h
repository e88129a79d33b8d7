/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for whole pieces: one range of addresses, reserved once and cut in slots of RFS_SLOT_BYTES.
 * The kernel backs it by huge pages where it may, which makes fresh memory several times cheaper, and
 * a slot that is used again costs nothing.
 *
 * Where what slots hold is secret, their memory is guarded, and wiped before it is given back.
 *
 * A free slot is warm (it holds memory) or cold. Its owner locks; only rfs_slots_cool and rfs_slots_guard
 * may be called without the lock, on a slot that was taken.
 */
#ifndef RFS_ASSEMBLE_SLOTS_H
#define RFS_ASSEMBLE_SLOTS_H

#include "base/secret.h"

#include <stddef.h>
#include <stdint.h>

#define RFS_SLOT_BYTES ((size_t)1 << 20)
#define RFS_NO_SLOT UINT32_MAX

struct rfs_slots {
    void *mapping;
    size_t mapping_bytes;
    unsigned char *base;
    uint32_t total;
    uint32_t fresh; /* those from here on were never used */
    uint32_t n_warm, n_cold;
    uint32_t *warm, *cold; /* stacks with room for all */
    struct rfs_secret
        *secret; /* borrowed; NULL: what slots hold is not; set before the first is taken */
};

/* As many slots as BYTES hold; none where the system won't reserve them. */
void rfs_slots_init(struct rfs_slots *slots, uint64_t bytes);
/* No slot may be in use. */
void rfs_slots_destroy(struct rfs_slots *slots);

/* A free slot, now the caller's, or RFS_NO_SLOT. What it holds is undefined. */
uint32_t rfs_slots_take_warm(struct rfs_slots *slots);
uint32_t rfs_slots_take_cold(struct rfs_slots *slots);
/* Makes a slot that was taken free again: warm as it is, cold after rfs_slots_cool. */
void rfs_slots_give_warm(struct rfs_slots *slots, uint32_t slot);
void rfs_slots_give_cold(struct rfs_slots *slots, uint32_t slot);
/* Guards the memory of a slot that was taken, if what it will hold is secret: before it is used. */
void rfs_slots_guard(const struct rfs_slots *slots, uint32_t slot);
/* Gives the slot's memory back to the system; its content is lost. */
void rfs_slots_cool(const struct rfs_slots *slots, uint32_t slot);

static inline unsigned char *rfs_slots_data(const struct rfs_slots *slots, uint32_t slot)
{
    return slots->base + (size_t)slot * RFS_SLOT_BYTES;
}

static inline uint32_t rfs_slots_of(const struct rfs_slots *slots, const void *data)
{
    return (uint32_t)((size_t)((const unsigned char *)data - slots->base) / RFS_SLOT_BYTES);
}

#endif
