/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/sequential.h"

#include "base/checked.h"

/* Parallel requests of one reader arrive a little out of order. */
#define NEAR_BYTES (2 * RFS_PIECE)
/* Windows are given in steps, as each makes work. */
#define STEP (RFS_PIECE / 4)

/* Returns the bytes that were skipped between the ranges that were read. */
static uint64_t holes(const struct rfs_sequential *sequential)
{
    const uint64_t span = sequential->end - sequential->begin;
    return span > sequential->bytes ? span - sequential->bytes : 0;
}

/* Returns whether a run goes on; after a jump by more than it has read, a new one begins. */
static bool goes_on(const struct rfs_sequential *sequential, uint64_t offset)
{
    const uint64_t gap = offset > sequential->end ? offset - sequential->end : 0;
    const bool near = gap <= NEAR_BYTES && sequential->end <= offset + NEAR_BYTES;
    return near && gap <= sequential->bytes && holes(sequential) <= NEAR_BYTES;
}

/*
 * Returns the range beyond *asked, between the sequential run's end and BYTES after it less the
 * holes.
 */
static struct rfs_window window(const struct rfs_sequential *sequential, uint64_t bytes,
                                uint64_t *asked)
{
    const uint64_t allowed = rfs_min_u64(bytes, RFS_AHEAD_BYTES);
    const uint64_t lost = holes(sequential);
    const uint64_t to = sequential->end + (allowed > lost ? allowed - lost : 0);
    const uint64_t from = rfs_max_u64(*asked, sequential->end);
    if (to < from + STEP)
        return (struct rfs_window){0};
    *asked = to;
    return (struct rfs_window){from, to};
}

bool rfs_sequential_note(struct rfs_sequential *sequential, uint64_t offset, uint64_t end,
                         struct rfs_windows *ahead)
{
    const bool on = goes_on(sequential, offset);
    *ahead = (struct rfs_windows){0};
    if (!on)
        *sequential = (struct rfs_sequential){.begin = offset, .end = offset};
    sequential->begin = rfs_min_u64(sequential->begin, offset);
    sequential->end = rfs_max_u64(sequential->end, end);
    sequential->bytes += end - offset;
    ahead->bytes = sequential->bytes;
    if (!on)
        return false;
    ahead->kept = window(sequential, sequential->bytes, &sequential->kept_to);
    ahead->lent = window(sequential, sequential->bytes / RFS_AHEAD_SHARE, &sequential->lent_to);
    /* A piece that ended beyond the last window was not made then: it may be now. */
    if (ahead->lent.end > 0)
        ahead->lent.begin = rfs_max_u64(
            sequential->end, ahead->lent.begin > RFS_PIECE ? ahead->lent.begin - RFS_PIECE + 1 : 0);
    return sequential->bytes >= RFS_SMALL;
}

struct rfs_window rfs_sequential_prefetch(struct rfs_sequential *sequential, uint64_t offset,
                                          uint64_t reach, uint32_t sources, unsigned times)
{
    const uint64_t shares = rfs_max_u64(reach / times, sources * RFS_PIECE);
    const uint64_t step = rfs_max_u64(rfs_min_u64(shares, reach / 4), STEP);
    const uint64_t allowed = rfs_min_u64(sequential->bytes * times, reach);
    const uint64_t lost = holes(sequential);
    const uint64_t to = sequential->end + (allowed > lost ? allowed - lost : 0);
    const uint64_t from =
        sequential->staged_to == 0 ? offset : rfs_max_u64(sequential->staged_to, sequential->end);
    if (sequential->staging || offset < sequential->begin || offset >= sequential->end ||
        to < from + (from > sequential->end ? step : STEP))
        return (struct rfs_window){0};
    sequential->staging = true;
    sequential->staged_to = rfs_min_u64(to, from + step);
    return (struct rfs_window){from, sequential->staged_to};
}

void rfs_sequential_staged(struct rfs_sequential *sequential, const struct rfs_window *window,
                           bool room)
{
    if (sequential->staged_to != window->end) /* the reader has jumped */
        return;
    sequential->staging = false;
    if (!room)
        sequential->staged_to = window->begin;
}
