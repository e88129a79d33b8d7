/* SPDX-License-Identifier: Apache-2.0 */
#include "view/streak.h"

#include "base/checked.h"

/* Parallel requests of one reader arrive a little out of order. */
#define NEAR_BYTES (2 * RFS_PIECE)
/* Windows are given in steps, as each makes work. */
#define STEP (RFS_PIECE / 4)

/* What lies between what was read and was not. */
static uint64_t holes(const struct rfs_streak *streak)
{
    const uint64_t span = streak->end - streak->begin;
    return span > streak->bytes ? span - streak->bytes : 0;
}

/* A jump by more than was read before makes that no part of what follows. */
static bool goes_on(const struct rfs_streak *streak, uint64_t offset)
{
    const uint64_t gap = offset > streak->end ? offset - streak->end : 0;
    const bool near = gap <= NEAR_BYTES && streak->end <= offset + NEAR_BYTES;
    return near && gap <= streak->bytes && holes(streak) <= NEAR_BYTES;
}

/* What is new since *asked between the streak's end and BYTES, less the holes, after it. */
static struct rfs_window window(const struct rfs_streak *streak, uint64_t bytes, uint64_t *asked)
{
    const uint64_t allowed = rfs_min_u64(bytes, RFS_AHEAD_BYTES);
    const uint64_t lost = holes(streak);
    const uint64_t to = streak->end + (allowed > lost ? allowed - lost : 0);
    const uint64_t from = rfs_max_u64(*asked, streak->end);
    if (to < from + STEP)
        return (struct rfs_window){0};
    *asked = to;
    return (struct rfs_window){from, to};
}

bool rfs_streak_note(struct rfs_streak *streak, uint64_t offset, uint64_t end,
                     struct rfs_windows *ahead)
{
    const bool on = goes_on(streak, offset);
    *ahead = (struct rfs_windows){0};
    if (!on)
        *streak = (struct rfs_streak){.begin = offset, .end = offset};
    streak->begin = rfs_min_u64(streak->begin, offset);
    streak->end = rfs_max_u64(streak->end, end);
    streak->bytes += end - offset;
    if (!on)
        return false;
    ahead->kept = window(streak, streak->bytes, &streak->kept_to);
    ahead->lent = window(streak, streak->bytes / RFS_AHEAD_SHARE, &streak->lent_to);
    /* A piece that ended beyond the last window was not made then: it may be now. */
    if (ahead->lent.end > 0)
        ahead->lent.begin = rfs_max_u64(
            streak->end, ahead->lent.begin > RFS_PIECE ? ahead->lent.begin - RFS_PIECE + 1 : 0);
    return streak->bytes >= RFS_SMALL;
}

struct rfs_window rfs_streak_stage(struct rfs_streak *streak, uint64_t reach)
{
    const uint64_t allowed = rfs_min_u64(streak->bytes, reach);
    const uint64_t lost = holes(streak);
    const uint64_t to = streak->end + (allowed > lost ? allowed - lost : 0);
    const uint64_t from = rfs_max_u64(streak->staged_to, streak->end);
    const uint64_t step = from > streak->end ? rfs_max_u64(reach / 4, STEP) : STEP;
    if (to < from + step)
        return (struct rfs_window){0};
    streak->staged_to = to;
    return (struct rfs_window){from, to};
}
