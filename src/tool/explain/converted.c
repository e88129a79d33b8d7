/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices of what conversion rules make: where each part of one comes from, as numpy indexes. Rows in
 * groups are "0:64 and 2 more, each 96 further".
 */
#include "tool/explain/explained.h"

#include "plan/converted.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct telling {
    const struct rfs_explain *explain;
    const struct rfs_explained *slice;
    const struct rfs_convert_map *map;
};

/* The digits of a piece along an axis of one of both tensors, the smallest step first. */
struct axis {
    uint32_t n;
    uint64_t first;
    uint64_t count[RFS_CONVERT_DIGITS];
    uint64_t step[RFS_CONVERT_DIGITS];
};

static void read_axis(const struct rfs_convert_map *map, const struct rfs_converted_piece *piece,
                      int side, uint32_t number, struct axis *axis)
{
    const struct rfs_convert_link *link = piece->link;

    *axis = (struct axis){.first = map->ats.data[link->at[side] + number]};
    for (uint32_t k = 0; k < link->n; k++) {
        const struct rfs_convert_digit *digit = &map->digits.data[link->digits + k];
        const uint64_t count = piece->span->end[k] - piece->span->first[k];
        uint32_t at = axis->n;
        if (digit->axis[side] != number)
            continue;
        axis->first += piece->span->first[k] * digit->step[side];
        if (count == 1)
            continue;
        for (; at > 0 && axis->step[at - 1] > digit->step[side]; at--) {
            axis->step[at] = axis->step[at - 1];
            axis->count[at] = axis->count[at - 1];
        }
        axis->step[at] = digit->step[side];
        axis->count[at] = count;
        axis->n++;
    }
}

static void put_axis(const struct axis *axis, uint64_t size)
{
    const bool rows = axis->n > 0;
    const uint64_t step = rows ? axis->step[0] : 1;
    const uint64_t end = axis->first + (rows ? (axis->count[0] - 1) * step : 0) + 1;

    if (axis->first == 0 && end == size && step == 1)
        fputs(":", stdout);
    else
        printf("%" PRIu64 ":%" PRIu64, axis->first, end);
    if (step > 1)
        printf(":%" PRIu64, step);
    for (uint32_t k = 1; k < axis->n; k++)
        printf(" and %" PRIu64 " more, each %" PRIu64 " further", axis->count[k] - 1,
               axis->step[k]);
}

static void put_place(const struct telling *telling, const struct rfs_converted_piece *piece,
                      int side, const struct rfs_type *type)
{
    putchar('[');
    for (uint32_t a = 0; a < type->ndim; a++) {
        struct axis axis;
        read_axis(telling->map, piece, side, a, &axis);
        fputs(a > 0 ? ", " : "", stdout);
        put_axis(&axis, type->dims[a]);
    }
    putchar(']');
}

static int put_piece(void *ctx, const struct rfs_converted_piece *piece)
{
    const struct telling *telling = ctx;
    const struct rfs_converted *converted = telling->explain->rooms.converted;
    const struct rfs_convert_made *made =
        rfs_converted_made(converted, telling->slice->target->name);
    const struct rfs_target *target = rfs_converted_target(converted, piece->link->source);
    struct rfs_catalog *catalog = telling->explain->rooms.catalog;
    uint64_t bytes = rfs_dtype_bytes((enum rfs_dtype)made->type.dtype);
    char size[RFS_SHOWN_BYTES];

    for (uint32_t k = 0; k < piece->link->n; k++)
        bytes *= piece->span->end[k] - piece->span->first[k];
    fputs("    ", stdout);
    put_place(telling, piece, RFS_MADE, &made->type);
    printf(" is %s ", rfs_catalog_name(catalog, target->name));
    put_place(telling, piece, RFS_SOURCE, rfs_catalog_type(catalog, target->type));
    printf(" in %s, %s\n", rfs_explain_file(telling->explain, piece->block->file),
           rfs_show_bytes(bytes, size));
    return 0;
}

static int put_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    const struct rfs_explain *explain = ctx;
    const struct rfs_converted *converted = explain->rooms.converted;
    const struct rfs_convert_made *made = rfs_converted_made(converted, slice->target->name);
    struct telling telling = {explain, slice, rfs_converted_map(converted)};

    printf("rank_%" PRIu32 ": %s ", slice->rank, slice->shown_name);
    rfs_put_dims(stdout, slice->shown->ndim, slice->shown->dims);
    printf(" %s", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    for (size_t k = 0; k < slice->boxes.n; k++) {
        fputs(k > 0 ? " and " : ": ", stdout);
        rfs_put_box(stdout, slice->type->ndim, slice->whole, slice->boxes.data[k].at,
                    slice->boxes.data[k].len);
    }
    printf("\n  made by %s: line %" PRIu32 "; places are in whole tensors\n", made->file,
           made->line);
    const int rc = rfs_planner_converted_walk(explain->rooms.planner, slice->rank, slice->target,
                                              put_piece, &telling);
    return rc ? rfs_fail(err, rc, RFS_OF(explain->source, explain->param), NULL,
                         "cannot be traced for rank_%" PRIu32 ": %s", slice->rank, strerror(-rc))
              : 0;
}

int rfs_explain_converted(struct rfs_explain *explain, struct rfs_error *err)
{
    if (explain->json || explain->svg)
        return rfs_fail_usage(err, "the text, without --json and --svg",
                              "conversion rules are explained as text only");
    if (!explain->param)
        return rfs_fail_usage(err, "--param NAME",
                              "conversion rules are explained for one tensor at a time");
    return rfs_explain_each(explain, put_slice, explain, err);
}
