/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/slots.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

void rfs_slots_init(struct rfs_slots *slots, uint64_t bytes)
{
    *slots = (struct rfs_slots){0};
    const uint64_t total = bytes / RFS_SLOT_BYTES;
    if (total == 0 || total >= RFS_NO_SLOT || total > (SIZE_MAX - HUGE_PAGE) / RFS_SLOT_BYTES)
        return;
    uint32_t *stacks = malloc((size_t)total * 2 * sizeof *stacks);
    if (!stacks)
        return;
    const size_t mapping_bytes = (size_t)total * RFS_SLOT_BYTES + HUGE_PAGE;
    void *mapping = mmap(NULL, mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        free(stacks);
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
}

void rfs_slots_destroy(struct rfs_slots *slots)
{
    while (slots->secret && slots->n_warm > 0)
        rfs_wipe(rfs_slots_data(slots, slots->warm[--slots->n_warm]), RFS_SLOT_BYTES);
    if (slots->mapping)
        munmap(slots->mapping, slots->mapping_bytes);
    free(slots->warm);
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
