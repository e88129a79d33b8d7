/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for whole pieces: one range of addresses, reserved once and cut in slots of
 * RFS_SLOT_BYTES. The kernel backs it by huge pages where it may, which makes fresh memory several
 * times cheaper, and a slot that is used again costs nothing.
 *
 * Where slots hold secret data, their memory is guarded, and wiped before it is given back.
 *
 * A free slot is warm (it holds memory) or cold. A slot that was taken may be cut in units of
 * RFS_UNIT_BYTES, for shorter pieces; it is whole again when all of them are given back. So pieces
 * of any size, in any order, never take more memory than the range. Its owner locks; only
 * rfs_slots_cool and rfs_slots_guard may be called without the lock, on a slot that was taken.
 */
#pragma once

#include "base/secret.h"

#define RFS_SLOT_BYTES ((size_t)1 << 20)
#define RFS_NO_SLOT UINT32_MAX
#define RFS_SLOT_UNITS 64u
#define RFS_UNIT_BYTES (RFS_SLOT_BYTES / RFS_SLOT_UNITS)

/* Of a slot that is cut. */
struct rfs_cut {
    uint64_t used; /* its units that are, a bit each */
    uint32_t next,
        prev; /* list of slots with an equally long longest free run of units; RFS_NO_SLOT: none */
};

struct rfs_slots {
    void *mapping;
    size_t mapping_bytes;
    unsigned char *base;
    uint32_t total;
    uint32_t fresh; /* those from here on were never used */
    uint32_t n_warm, n_cold;
    uint32_t *warm, *cold;           /* stacks with room for all */
    struct rfs_cut *cuts;            /* [total] */
    uint32_t by_run[RFS_SLOT_UNITS]; /* by the length of the longest free run: the first slot */
    uint64_t runs;                   /* which of these there are, a bit each */
    /* borrowed; NULL: the bytes in slots are not secret; set before the first is taken */
    struct rfs_secret *secret;
};

/* As many slots as BYTES hold, or as the system will reserve addresses for. */
void rfs_slots_init(struct rfs_slots *slots, uint64_t bytes);
/* No slot may be in use. */
void rfs_slots_destroy(struct rfs_slots *slots);

/* A free slot, now the caller's, or RFS_NO_SLOT. Its bytes are undefined. */
uint32_t rfs_slots_take_warm(struct rfs_slots *slots);
uint32_t rfs_slots_take_cold(struct rfs_slots *slots);
/* Makes a slot that was taken free again: warm as it is, cold after rfs_slots_cool. */
void rfs_slots_give_warm(struct rfs_slots *slots, uint32_t slot);
void rfs_slots_give_cold(struct rfs_slots *slots, uint32_t slot);

/* Whether a slot that is cut has UNITS free that follow each other. */
static inline bool rfs_slots_have_run(const struct rfs_slots *slots, uint32_t units)
{
    return units < RFS_SLOT_UNITS && slots->runs >> units != 0;
}
/* So many units that follow each other of a slot that is cut, now the caller's, or NULL. */
void *rfs_slots_take_units(struct rfs_slots *slots, uint32_t units);
/*
 * Cuts a slot that was taken: its first units stay the caller's, fewer than all, and the others are
 * free.
 */
void *rfs_slots_cut(struct rfs_slots *slots, uint32_t slot, uint32_t units);
/* Makes them free again. True when the slot is whole now, and the caller's. */
bool rfs_slots_give_units(struct rfs_slots *slots, const void *data, uint32_t units);

/* Guards the memory of a slot that will hold secret bytes, before its first use. */
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
