/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/slots.h"

#include "base/checked.h"
#include "base/limits.h"

#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* Fewer are not worth asking for again. */
#define RESERVE_LEAST 16

/*
 * Addresses for *TOTAL slots, or for half as many, and so on, where a limit of the process leaves
 * no more.
 */
static void *reserve(uint64_t *total, size_t *bytes)
{
    for (;; *total /= 2) {
        *bytes = (size_t)*total * RFS_SLOT_BYTES + HUGE_PAGE;
        void *mapping = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping != MAP_FAILED)
            return mapping;
        if (*total < RESERVE_LEAST)
            return NULL;
    }
}

void rfs_slots_init(struct rfs_slots *slots, uint64_t bytes)
{
    *slots = (struct rfs_slots){0};
    for (uint32_t run = 0; run < RFS_SLOT_UNITS; run++)
        slots->by_run[run] = RFS_NO_SLOT;
    /* Where addresses are limited, threads need some as well. */
    uint64_t total = rfs_min_u64(bytes, rfs_limits_addresses() / 4) / RFS_SLOT_BYTES;
    if (total == 0 || total >= RFS_NO_SLOT || total > (SIZE_MAX - HUGE_PAGE) / RFS_SLOT_BYTES)
        return;
    size_t mapping_bytes;
    void *mapping = reserve(&total, &mapping_bytes);
    if (!mapping)
        return;
    uint32_t *stacks = malloc((size_t)total * 2 * sizeof *stacks);
    struct rfs_cut *cuts = malloc((size_t)total * sizeof *cuts);
    if (!stacks || !cuts) {
        munmap(mapping, mapping_bytes);
        free(stacks);
        free(cuts);
        return;
    }
    /* Both are advice. A core dump is for our own state, not for the checkpoint's content. */
    madvise(mapping, mapping_bytes, MADV_HUGEPAGE);
    madvise(mapping, mapping_bytes, MADV_DONTDUMP);
    slots->mapping = mapping;
    slots->mapping_bytes = mapping_bytes;
    slots->base = (unsigned char *)mapping + (HUGE_PAGE - (uintptr_t)mapping % HUGE_PAGE);
    slots->total = (uint32_t)total;
    slots->warm = stacks;
    slots->cold = stacks + total;
    slots->cuts = cuts;
}

void rfs_slots_destroy(struct rfs_slots *slots)
{
    while (slots->secret && slots->n_warm > 0)
        rfs_wipe(rfs_slots_data(slots, slots->warm[--slots->n_warm]), RFS_SLOT_BYTES);
    if (slots->mapping)
        munmap(slots->mapping, slots->mapping_bytes);
    free(slots->warm);
    free(slots->cuts);
    *slots = (struct rfs_slots){0};
}

uint32_t rfs_slots_take_warm(struct rfs_slots *slots)
{
    return slots->n_warm > 0 ? slots->warm[--slots->n_warm] : RFS_NO_SLOT;
}

uint32_t rfs_slots_take_cold(struct rfs_slots *slots)
{
    if (slots->n_cold > 0)
        return slots->cold[--slots->n_cold];
    return slots->fresh < slots->total ? slots->fresh++ : RFS_NO_SLOT;
}

void rfs_slots_give_warm(struct rfs_slots *slots, uint32_t slot)
{
    slots->warm[slots->n_warm++] = slot;
}

void rfs_slots_give_cold(struct rfs_slots *slots, uint32_t slot)
{
    slots->cold[slots->n_cold++] = slot;
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Where in FREE a run of N units begins, as bits. */
static uint64_t beginnings(uint64_t free, uint32_t n)
{
    for (uint32_t done = 1; done < n && free; done++)
        free &= free >> 1;
    return free;
}

static uint32_t longest_run(uint64_t free)
{
    uint32_t n = 0;
    for (; free; free &= free >> 1)
        n++;
    return n;
}

static void list_cut(struct rfs_slots *slots, uint32_t slot)
{
    struct rfs_cut *cut = &slots->cuts[slot];
    const uint32_t run = longest_run(~cut->used);
    const uint32_t next = slots->by_run[run];
    cut->next = next;
    cut->prev = RFS_NO_SLOT;
    if (next != RFS_NO_SLOT)
        slots->cuts[next].prev = slot;
    slots->by_run[run] = slot;
    slots->runs |= UINT64_C(1) << run;
}

static void unlist_cut(struct rfs_slots *slots, uint32_t slot)
{
    const struct rfs_cut *cut = &slots->cuts[slot];
    const uint32_t run = longest_run(~cut->used);
    if (cut->next != RFS_NO_SLOT)
        slots->cuts[cut->next].prev = cut->prev;
    if (cut->prev != RFS_NO_SLOT)
        slots->cuts[cut->prev].next = cut->next;
    else
        slots->by_run[run] = cut->next;
    if (slots->by_run[run] == RFS_NO_SLOT)
        slots->runs &= ~(UINT64_C(1) << run);
}

/* Bits of N units from FIRST on; N is less than all. */
static uint64_t bits(uint32_t first, uint32_t n)
{
    return ((UINT64_C(1) << n) - 1) << first;
}

static void *unit_data(const struct rfs_slots *slots, uint32_t slot, uint32_t unit)
{
    return rfs_slots_data(slots, slot) + unit * RFS_UNIT_BYTES;
}

void *rfs_slots_take_units(struct rfs_slots *slots, uint32_t units)
{
    if (!rfs_slots_have_run(slots, units))
        return NULL;
    /* Of those where the longest run is the shortest that is long enough. */
    const uint32_t run = (uint32_t)__builtin_ctzll(slots->runs >> units) + units;
    const uint32_t slot = slots->by_run[run];
    struct rfs_cut *cut = &slots->cuts[slot];
    unlist_cut(slots, slot);
    const uint32_t unit = (uint32_t)__builtin_ctzll(beginnings(~cut->used, units));
    cut->used |= bits(unit, units);
    list_cut(slots, slot);
    return unit_data(slots, slot, unit);
}

void *rfs_slots_cut(struct rfs_slots *slots, uint32_t slot, uint32_t units)
{
    slots->cuts[slot].used = bits(0, units);
    list_cut(slots, slot);
    return unit_data(slots, slot, 0);
}

bool rfs_slots_give_units(struct rfs_slots *slots, const void *data, uint32_t units)
{
    const uint32_t slot = rfs_slots_of(slots, data);
    struct rfs_cut *cut = &slots->cuts[slot];
    const size_t at = (size_t)((const unsigned char *)data - rfs_slots_data(slots, slot));
    unlist_cut(slots, slot);
    cut->used &= ~bits((uint32_t)(at / RFS_UNIT_BYTES), units);
    if (cut->used == 0)
        return true;
    list_cut(slots, slot);
    return false;
}

/* ---- memory ---------------------------------------------------------------------------------- */

void rfs_slots_guard(const struct rfs_slots *slots, uint32_t slot)
{
    if (slots->secret)
        rfs_secret_guard(slots->secret, rfs_slots_data(slots, slot), RFS_SLOT_BYTES);
}

void rfs_slots_cool(const struct rfs_slots *slots, uint32_t slot)
{
    if (slots->secret)
        rfs_secret_release(rfs_slots_data(slots, slot), RFS_SLOT_BYTES);
    madvise(rfs_slots_data(slots, slot), RFS_SLOT_BYTES, MADV_DONTNEED);
}
