/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of what conversion rules make: where each part of one comes from. */
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/explain/made.h"
#include "tool/explain/ranges.h"

void rfs_made_axis(const struct rfs_explain *explain, const struct rfs_explained_part *part,
                   int side, uint32_t number, struct rfs_made_axis *axis)
{
    const struct rfs_rules_map *map = rfs_by_rules_map(explain->plans.converted);
    const struct rfs_rules_link *link = part->link;

    *axis = (struct rfs_made_axis){.first = map->ats.data[link->at[side] + number]};
    for (uint32_t k = 0; k < link->n; k++) {
        const struct rfs_rules_digit *digit = &map->digits.data[link->digits + k];
        const uint64_t count = part->span.end[k] - part->span.first[k];
        uint32_t at = axis->n;
        if (digit->axis[side] != number)
            continue;
        axis->first += part->span.first[k] * digit->step[side];
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

const struct rfs_target *rfs_made_source(const struct rfs_explain *explain,
                                         const struct rfs_explained_part *part)
{
    return rfs_by_rules_target(explain->plans.converted, part->link->source);
}

void rfs_made_put_axis(FILE *out, const struct rfs_made_axis *axis, uint64_t size)
{
    const bool rows = axis->n > 0;
    const uint64_t step = rows ? axis->step[0] : 1;
    const uint64_t end = axis->first + (rows ? (axis->count[0] - 1) * step : 0) + 1;

    if (axis->first == 0 && end == size && step == 1)
        fputs(":", out);
    else
        fprintf(out, "%" PRIu64 ":%" PRIu64, axis->first, end);
    if (step > 1)
        fprintf(out, ":%" PRIu64, step);
    for (uint32_t k = 1; k < axis->n; k++)
        fprintf(out, " and %" PRIu64 " more, each %" PRIu64 " further", axis->count[k] - 1,
                axis->step[k]);
}

static void put_place(const struct rfs_explain *explain, const struct rfs_explained_part *part,
                      int side, const struct rfs_type *type)
{
    putchar('[');
    for (uint32_t a = 0; a < type->ndim; a++) {
        struct rfs_made_axis axis;
        rfs_made_axis(explain, part, side, a, &axis);
        fputs(a > 0 ? ", " : "", stdout);
        rfs_made_put_axis(stdout, &axis, type->dims[a]);
    }
    putchar(']');
}

static void put_part(const struct rfs_explain *explain, const struct rfs_explained *slice,
                     const struct rfs_explained_part *part)
{
    const struct rfs_target *target = rfs_made_source(explain, part);
    struct rfs_catalog *catalog = explain->plans.catalog;
    char size[RFS_SHOWN_BYTES];

    fputs("    ", stdout);
    put_place(explain, part, RFS_MADE, &slice->made->type);
    printf(" is %s ", rfs_catalog_name(catalog, target->name));
    put_place(explain, part, RFS_SOURCE, rfs_catalog_type(catalog, target->type));
    printf(" in %s, %s\n", rfs_explain_file(explain, part->block.file),
           rfs_show_bytes(rfs_block_source_bytes(&part->block), size));
}

static int put_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    const struct rfs_explain *explain = ctx;

    (void)err;
    printf("rank_%" PRIu32 ": %s ", slice->rank, slice->shown_name);
    rfs_put_dims(stdout, slice->shown->ndim, slice->shown->dims);
    printf(" %s", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    for (size_t k = 0; k < slice->boxes.n; k++) {
        fputs(k > 0 ? " and " : ": ", stdout);
        rfs_put_box(stdout, slice->type->ndim, slice->whole, slice->boxes.data[k].at,
                    slice->boxes.data[k].len);
    }
    if (slice->made->file)
        printf("\n  made by %s: line %" PRIu32 "; places are in whole tensors\n", slice->made->file,
               slice->made->line);
    else
        puts("\n  kept as it is; places are in whole tensors");
    for (size_t i = 0; i < slice->parts.n; i++)
        put_part(explain, slice, &slice->parts.data[i]);
    return 0;
}

int rfs_explain_converted_text(struct rfs_explain *explain, struct rfs_error *err)
{
    return rfs_explain_each(explain, put_slice, explain, err);
}
