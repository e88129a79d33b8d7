/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of slices from their sources: read as they come while those are fast, and by way of
 * windows that are read ahead (prefetch.h) while they are slow.
 */
#include "assemble/internal.h"

/*
 * A range that needs more windows than there is room for is fetched by halves, down to so many
 * bytes.
 */
#define HALVE_LEAST (UINT64_C(4) << 10)

/* A range that is being fetched. */
struct fetch {
    struct rfs_assembler *assembler;
    const struct rfs_slice *slice;
    unsigned char *scratch;
    unsigned char *dst; /* where byte BEGIN goes */
    uint64_t begin;
    enum rfs_gather_proof proof;
    bool ahead;
};

static int fetch_plainly(const struct fetch *fetch, uint64_t begin, uint64_t end)
{
    static _Thread_local struct rfs_wait wait;
    struct rfs_assembler *assembler = fetch->assembler;

    rfs_wait_begin(&wait);
    const int rc = rfs_gather_with(assembler->files, fetch->slice, begin, end, fetch->scratch,
                                   fetch->dst + (begin - fetch->begin), fetch->proof,
                                   &(struct rfs_gather_held){.ahead = fetch->ahead});
    rfs_prefetch_watch(assembler->prefetch, &wait, end - begin);
    return rc;
}

static int fetch_by_windows(const struct fetch *fetch, uint64_t begin, uint64_t end)
{
    struct rfs_assembler *assembler = fetch->assembler;
    struct rfs_gather_ranges ranges = {0};
    struct rfs_prefetch_hold hold;

    int rc = rfs_gather_note(fetch->slice, begin, end, &ranges);
    if (rc == 0)
        rfs_prefetch_hold(assembler->prefetch, &ranges, &hold);
    free(ranges.data);
    if (rc < 0)
        return rc;
    const bool halve = hold.partly && end - begin > HALVE_LEAST;
    if (hold.n_windows == 0 && !halve)
        return fetch_plainly(fetch, begin, end);
    if (!halve)
        rc = rfs_gather_with(
            assembler->files, fetch->slice, begin, end, fetch->scratch,
            fetch->dst + (begin - fetch->begin), fetch->proof,
            &(struct rfs_gather_held){.parts = hold.parts, .n = hold.n, .ahead = fetch->ahead});
    rfs_prefetch_release(assembler->prefetch, &hold);
    if (!halve)
        return rc;
    const uint64_t middle = begin + (end - begin) / 2;
    rc = fetch_by_windows(fetch, begin, middle);
    return rc < 0 ? rc : fetch_by_windows(fetch, middle, end);
}

int rfs_fetch(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t begin,
              uint64_t end, unsigned char *dst, enum rfs_gather_proof proof, bool ahead)
{
    struct scratch *scratch = rfs_scratch_take(assembler);

    if (!scratch)
        return -ENOMEM;
    const struct fetch fetch = {assembler, slice, scratch->bytes, dst, begin, proof, ahead};
    const int rc = rfs_prefetch_is_slow(assembler->prefetch) ? fetch_by_windows(&fetch, begin, end)
                                                             : fetch_plainly(&fetch, begin, end);
    rfs_scratch_give(assembler, scratch);
    return rc;
}

void rfs_fetch_soon(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t begin,
                    uint64_t end)
{
    struct rfs_gather_ranges ranges = {0};

    if (!rfs_prefetch_is_slow(assembler->prefetch))
        return;
    if (rfs_gather_note(slice, begin, end, &ranges) == 0)
        rfs_prefetch_want(assembler->prefetch, &ranges, true);
    free(ranges.data);
}

uint64_t rfs_assemble_reach(struct rfs_assembler *assembler)
{
    return rfs_prefetch_reach(assembler->prefetch);
}

void rfs_assemble_prefetch(struct rfs_assembler *assembler, const struct rfs_gather_ranges *ranges)
{
    rfs_prefetch_want(assembler->prefetch, ranges, false);
}
