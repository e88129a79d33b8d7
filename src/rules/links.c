/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/links.h"

#include "base/checked.h"

void rfs_rules_map_free(struct rfs_rules_map *map)
{
    if (!map)
        return;
    free(map->made.data);
    free(map->links.data);
    free(map->digits.data);
    free(map->ats.data);
    free(map->copies.data);
    rfs_intern_free(map->names);
    rfs_arena_free(&map->arena);
    free(map);
}

void rfs_rules_span_all(const struct rfs_rules_map *map, const struct rfs_rules_link *link,
                        struct rfs_rules_span *span)
{
    for (uint32_t k = 0; k < link->n; k++) {
        span->first[k] = 0;
        span->end[k] = map->digits.data[link->digits + k].count;
    }
}

void rfs_rules_span_box(const struct rfs_rules_map *map, const struct rfs_rules_link *link,
                        int side, uint32_t ndim, const struct rfs_rules_span *span, uint64_t *lo,
                        uint64_t *hi)
{
    const uint64_t *at = map->ats.data + link->at[side];

    for (uint32_t a = 0; a < ndim; a++) {
        lo[a] = at[a];
        hi[a] = at[a] + 1;
    }
    for (uint32_t k = 0; k < link->n; k++) {
        const struct rfs_rules_digit *digit = &map->digits.data[link->digits + k];
        lo[digit->axis[side]] += span->first[k] * digit->step[side];
        hi[digit->axis[side]] += (span->end[k] - 1) * digit->step[side];
    }
}

/* ---- the elements in a box ------------------------------------------------------------------- */

/* A box being cut out of a link, axis by axis. */
struct cutting {
    const struct rfs_rules_digit *digits;
    uint32_t n;
    int side;
    uint32_t ndim;
    const uint64_t *at;
    const uint64_t *lo, *hi;
    struct rfs_rules_spans *out;
};

/*
 * Returns the digit with the largest step among those of the axis with steps below BELOW; NO_DIGIT:
 * none.
 */
#define NO_DIGIT UINT32_MAX
static uint32_t next_digit(const struct cutting *cutting, uint32_t axis, uint64_t below)
{
    uint32_t best = NO_DIGIT;

    for (uint32_t k = 0; k < cutting->n; k++) {
        const struct rfs_rules_digit *digit = &cutting->digits[k];
        if (digit->axis[cutting->side] == axis && digit->step[cutting->side] < below &&
            (best == NO_DIGIT ||
             digit->step[cutting->side] > cutting->digits[best].step[cutting->side]))
            best = k;
    }
    return best;
}

static int cut_axis(const struct cutting *cutting, uint32_t axis, struct rfs_rules_span *span);

/*
 * Cuts [LO, HI) out of the digits of the axis with steps below BELOW, whose first elements are at
 * 0, then goes on with the next axis. The digits are nested: all values of those below take less
 * than a step.
 */
static int cut_digits(const struct cutting *cutting, uint32_t axis, uint64_t below, uint64_t lo,
                      uint64_t hi, struct rfs_rules_span *span)
{
    const uint32_t k = next_digit(cutting, axis, below);

    if (k == NO_DIGIT)
        return lo == 0 && hi > 0 ? cut_axis(cutting, axis + 1, span) : 0;
    const uint64_t step = cutting->digits[k].step[cutting->side];
    const uint64_t first = span->first[k];
    const uint64_t end = span->end[k];
    /* The range that the digits below take, from the first to one past the last. */
    uint64_t extent = 1;
    for (uint64_t s = step;;) {
        const uint32_t j = next_digit(cutting, axis, s);
        if (j == NO_DIGIT)
            break;
        s = cutting->digits[j].step[cutting->side];
        extent += (cutting->digits[j].count - 1) * s;
    }
    /* Values that have something in the box, and those that are in it as a whole. */
    const uint64_t some = lo < extent ? 0 : (lo - extent) / step + 1;
    const uint64_t none = hi == 0 ? 0 : (hi - 1) / step + 1;
    const uint64_t from = rfs_max_u64(first, some);
    const uint64_t to = rfs_min_u64(end, none);
    const uint64_t whole_from = rfs_max_u64(from, rfs_ceil_u64(lo, step));
    const uint64_t whole_to = rfs_min_u64(to, hi < extent ? 0 : (hi - extent) / step + 1);
    int rc = 0;

    for (uint64_t d = from; rc == 0 && d < to; d++) {
        uint64_t stop = d + 1;
        if (d >= whole_from && d < whole_to)
            stop = whole_to;
        span->first[k] = d;
        span->end[k] = stop;
        const uint64_t base = d * step;
        if (stop > d + 1 || (base >= lo && base + extent <= hi))
            rc = cut_digits(cutting, axis, step, 0, extent, span);
        else
            rc = cut_digits(cutting, axis, step, lo > base ? lo - base : 0,
                            rfs_min_u64(extent, hi - base), span);
        d = stop - 1;
    }
    span->first[k] = first;
    span->end[k] = end;
    return rc;
}

static int cut_axis(const struct cutting *cutting, uint32_t axis, struct rfs_rules_span *span)
{
    if (axis == cutting->ndim) {
        struct rfs_rules_spans *out = cutting->out;
        return RFS_PUSH(out, *span) ? 0 : -ENOMEM;
    }
    const uint64_t at = cutting->at[axis];
    if (cutting->hi[axis] <= at)
        return 0;
    return cut_digits(cutting, axis, UINT64_MAX,
                      cutting->lo[axis] > at ? cutting->lo[axis] - at : 0, cutting->hi[axis] - at,
                      span);
}

int rfs_rules_spans_in(const struct rfs_rules_map *map, const struct rfs_rules_link *link, int side,
                       uint32_t ndim, const uint64_t *lo, const uint64_t *hi,
                       const struct rfs_rules_span *from, struct rfs_rules_spans *out)
{
    const struct cutting cutting = {.digits = &map->digits.data[link->digits],
                                    .n = link->n,
                                    .side = side,
                                    .ndim = ndim,
                                    .at = map->ats.data + link->at[side],
                                    .lo = lo,
                                    .hi = hi,
                                    .out = out};
    struct rfs_rules_span span;

    if (from)
        span = *from;
    else
        rfs_rules_span_all(map, link, &span);
    return cut_axis(&cutting, 0, &span);
}
