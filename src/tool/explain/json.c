/* SPDX-License-Identifier: Apache-2.0 */
/* JSON for scripts; reshard(1) has the keys. */
#include "base/cleanup.h"
#include "base/json_write.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/explain/made.h"
#include "tool/explain/ranges.h"
#include "tool/explain/totals.h"

struct output {
    struct rfs_explain *explain;
    struct rfs_totals totals;
    struct rfs_json_write json;
    bool begun; /* there was a slice */
};

/* [[begin, end], ...] */
static void put_box(struct rfs_json_write *json, const char *key, uint32_t ndim,
                    const struct rfs_box *box)
{
    rfs_json_array(json, key, RFS_JSON_TIGHT);
    for (uint32_t i = 0; i < ndim; i++)
        rfs_json_put_u64s(json, NULL, RFS_JSON_TIGHT,
                          (const uint64_t[]){box->at[i], box->at[i] + box->len[i]}, 2);
    rfs_json_end(json);
}

static void put_axes(struct rfs_json_write *json, const char *key, const struct rfs_layout *layout,
                     void (*put)(FILE *out, const struct rfs_layout *layout))
{
    struct rfs_printed shown;

    put(rfs_printed_begin(&shown), layout);
    RFS_FREE char *text = rfs_printed_end(&shown);
    rfs_json_print(json, key, "%s", text);
}

static void put_layout(struct rfs_json_write *json, const char *key,
                       const struct rfs_explained_side *side)
{
    if (!side->layout) {
        rfs_json_put_null(json, key);
        return;
    }
    rfs_json_object(json, key, RFS_JSON_TIGHT);
    put_axes(json, "device_matrix", side->layout, rfs_put_matrix);
    put_axes(json, "tensor_map", side->layout, rfs_put_map);
    rfs_json_put_u64(json, "optimizer_shard", side->layout->opt_size);
    if (side->grid && side->grid->ndim > 0)
        rfs_json_put_u32s(json, "cuts", RFS_JSON_TIGHT, side->grid->pieces, side->grid->ndim);
    if (side->grid)
        rfs_json_put_u64(json, "replicas", side->grid->replicas);
    rfs_json_end(json);
}

static void put_head(struct rfs_json_write *json, const struct rfs_explained *slice)
{
    rfs_json_put_text(json, "parameter", slice->name);
    rfs_json_put_text(json, "shown_as", slice->shown_name);
    rfs_json_put_text(json, "dtype", rfs_dtype_name((enum rfs_dtype)slice->type->dtype));
    rfs_json_put_text(json, "shown_dtype", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, slice->dims, slice->n_dims);
    rfs_json_put_bool(json, "copied", !slice->trace.geometry && !slice->made);
    if (slice->made && slice->made->file) {
        rfs_json_object(json, "rule", RFS_JSON_TIGHT);
        rfs_json_put_text(json, "file", slice->made->file);
        rfs_json_put_u64(json, "line", slice->made->line);
        rfs_json_end(json);
    } else if (slice->made) {
        rfs_json_put_null(json, "rule");
    }
    put_layout(json, "source_layout", &slice->source);
    put_layout(json, "destination_layout", &slice->destination);
    rfs_json_array(json, "slices", RFS_JSON_TIGHT);
}

static void put_loop(struct rfs_json_write *json, uint64_t count, uint64_t stride)
{
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "count", count);
    rfs_json_put_u64(json, "stride", stride);
    rfs_json_end(json);
}

/* SORTED: in the order of the file, not of the block's elements. */
static void put_ranges(struct rfs_json_write *json, const struct rfs_block *block, bool sorted)
{
    struct rfs_file_ranges ranges = {0};

    if (!rfs_ranges_add(block, &ranges))
        rfs_printed_memory(NULL);
    rfs_json_array(json, "ranges", RFS_JSON_TIGHT);
    for (size_t i = 0; i < ranges.n; i++) {
        struct rfs_file_range *range = &ranges.data[i];
        if (sorted)
            rfs_range_sort(range);
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(json, "offset", range->offset);
        rfs_json_put_u64(json, "run", range->run);
        rfs_json_array(json, "loops", RFS_JSON_TIGHT);
        for (uint32_t k = 0; k < range->n_loops; k++)
            put_loop(json, range->loop[k].count, range->loop[k].stride);
        rfs_json_end(json);
        rfs_json_end(json);
    }
    rfs_json_end(json);
    free(ranges.data);
}

/* The ranks that have something of the piece's cell, in three lists. */
static void put_others(struct rfs_json_write *json, const struct rfs_explain *explain,
                       const struct rfs_explained *slice, const struct rfs_piece_trace *piece)
{
    static const struct {
        enum rfs_holding holding;
        const char *key;
    } lists[] = {{RFS_HOLDS, "same"}, {RFS_HOLDS_BARE, "left_out"}, {RFS_HOLDS_LOST, "lost"}};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        size_t n;
        RFS_FREE uint32_t *ranks =
            rfs_explained_others(explain, slice, piece, lists[i].holding, &n);
        rfs_json_put_u32s(json, lists[i].key, RFS_JSON_TIGHT, ranks, n);
    }
}

static void put_piece(struct rfs_json_write *json, const struct rfs_explain *explain,
                      const struct rfs_explained *slice, const struct rfs_piece_trace *piece)
{
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "rank", piece->rank);
    if (piece->first == piece->rank)
        rfs_json_put_null(json, "instead_of");
    else
        rfs_json_put_u64(json, "instead_of", piece->first);
    rfs_json_put_text(json, "file", rfs_explain_file(explain, piece->block.file));
    put_box(json, "box", slice->type->ndim, &piece->whole);
    put_box(json, "source_box", slice->type->ndim, &piece->source);
    put_box(json, "destination_box", slice->type->ndim, &piece->target);
    rfs_json_put_u64(json, "bytes", rfs_block_source_bytes(&piece->block));
    put_ranges(json, &piece->block, false);
    if (explain->one)
        put_others(json, explain, slice, piece);
    rfs_json_end(json);
}

/* Where a piece begins in one of both tensors. */
static void put_begin(struct rfs_json_write *json, const char *key,
                      const struct rfs_explain *explain, const struct rfs_explained_part *part,
                      int side, uint32_t ndim)
{
    uint64_t at[RFS_MAX_DIMS];

    for (uint32_t a = 0; a < ndim; a++) {
        struct rfs_made_axis axis;
        rfs_made_axis(explain, part, side, a, &axis);
        at[a] = axis.first;
    }
    rfs_json_put_u64s(json, key, RFS_JSON_TIGHT, at, ndim);
}

/* The steps from there, along an axis of either tensor. */
static void put_steps(struct rfs_json_write *json, const struct rfs_explain *explain,
                      const struct rfs_explained_part *part)
{
    const struct rfs_rules_map *map = rfs_by_rules_map(explain->plans.converted);

    rfs_json_array(json, "steps", RFS_JSON_TIGHT);
    for (uint32_t k = 0; k < part->link->n; k++) {
        const struct rfs_rules_digit *digit = &map->digits.data[part->link->digits + k];
        const uint64_t count = part->span.end[k] - part->span.first[k];
        if (count == 1)
            continue;
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(json, "count", count);
        rfs_json_put_u64(json, "axis", digit->axis[RFS_MADE]);
        rfs_json_put_u64(json, "stride", digit->step[RFS_MADE]);
        rfs_json_put_u64(json, "source_axis", digit->axis[RFS_SOURCE]);
        rfs_json_put_u64(json, "source_stride", digit->step[RFS_SOURCE]);
        rfs_json_end(json);
    }
    rfs_json_end(json);
}

/* A piece of what rules make. */
static void put_part(struct rfs_json_write *json, const struct rfs_explain *explain,
                     const struct rfs_explained *slice, const struct rfs_explained_part *part)
{
    const struct rfs_target *target = rfs_made_source(explain, part);
    const struct rfs_type *type = rfs_catalog_type(explain->plans.catalog, target->type);

    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "rank", part->rank);
    rfs_json_put_text(json, "file", rfs_explain_file(explain, part->block.file));
    rfs_json_put_text(json, "source", rfs_catalog_name(explain->plans.catalog, target->name));
    rfs_json_put_u64s(json, "source_shape", RFS_JSON_TIGHT, type->dims, type->ndim);
    put_begin(json, "at", explain, part, RFS_MADE, slice->made->type.ndim);
    put_begin(json, "source_at", explain, part, RFS_SOURCE, type->ndim);
    put_steps(json, explain, part);
    rfs_json_put_u64(json, "bytes", rfs_block_source_bytes(&part->block));
    put_ranges(json, &part->block, true); /* the steps tell the order */
    rfs_json_end(json);
}

static int put_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    struct output *output = ctx;
    struct rfs_json_write *json = &output->json;

    if (!output->begun)
        put_head(json, slice);
    output->begun = true;
    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "rank", slice->rank);
    rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, slice->shown->dims, slice->shown->ndim);
    rfs_json_put_u64(json, "bytes", slice->shown->bytes);
    if (slice->path) {
        rfs_json_put_text(json, "file", slice->path);
        rfs_json_put_u64(json, "offset", slice->offset);
    }
    rfs_json_array(json, "boxes", RFS_JSON_TIGHT);
    for (size_t k = 0; k < slice->boxes.n; k++)
        put_box(json, NULL, slice->type->ndim, &slice->boxes.data[k]);
    rfs_json_end(json);
    rfs_json_array(json, "pieces", RFS_JSON_TIGHT);
    for (size_t i = 0; i < slice->trace.n; i++) {
        rfs_json_break(json);
        put_piece(json, output->explain, slice, &slice->trace.pieces[i]);
    }
    for (size_t i = 0; i < slice->parts.n; i++) {
        rfs_json_break(json);
        put_part(json, output->explain, slice, &slice->parts.data[i]);
    }
    rfs_json_end(json);
    rfs_json_end(json);
    return rfs_totals_add(&output->totals, output->explain, slice) ? 0 : rfs_fail_memory(err);
}

static void put_takings(struct output *output, const struct rfs_takings *takings)
{
    struct rfs_json_write *json = &output->json;

    rfs_json_array(json, "sources", RFS_JSON_TIGHT);
    for (size_t i = 0; i < takings->n; i++) {
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(json, "rank", takings->data[i].rank);
        rfs_json_put_text(json, "file", rfs_explain_file(output->explain, takings->data[i].file));
        rfs_json_put_u64(json, "bytes", takings->data[i].bytes);
        rfs_json_end(json);
    }
    rfs_json_end(json);
}

static void put_ranks(struct output *output)
{
    const struct rfs_explain *explain = output->explain;
    struct rfs_json_write *json = &output->json;

    rfs_json_array(json, "ranks", RFS_JSON_TIGHT);
    for (size_t i = 0; i < explain->n_selected; i++) {
        const struct rfs_totals_rank *rank = &output->totals.ranks[i];
        rfs_json_break(json);
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(json, "rank", explain->selected[i]);
        rfs_json_put_u64(json, "parameters", rank->parameters);
        rfs_json_put_u64(json, "bytes", rank->shown_bytes);
        rfs_json_put_u64(json, "files", rfs_explain_files(explain, explain->selected[i]));
        rfs_json_put_u64(json, "source_bytes", rfs_takings_bytes(&rank->taken));
        put_takings(output, &rank->taken);
        rfs_json_end(json);
    }
}

int rfs_explain_json(struct rfs_explain *explain, struct rfs_error *err)
{
    struct output output = {.explain = explain, .json = {.file = stdout}};
    struct rfs_json_write *json = &output.json;
    int rc = rfs_totals_begin(&output.totals, explain->n_selected, err);

    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "source", rfs_catalog_path(explain->plans.catalog));
    if (rc == 0)
        rc = explain->param ? rfs_explain_each(explain, put_slice, &output, err)
                            : rfs_totals_all(&output.totals, explain, err);
    if (rc == 0 && !explain->param)
        put_ranks(&output);
    if (rc == 0 && !rfs_totals_next(&output.totals))
        rc = rfs_fail_memory(err);
    if (rc == 0) {
        rfs_json_end(json);
        rfs_json_break(json);
        rfs_json_object(json, "together", RFS_JSON_TIGHT);
        rfs_json_put_u64(json, "bytes", rfs_takings_bytes(&output.totals.together));
        put_takings(&output, &output.totals.together);
        rfs_json_finish(json);
    }
    rfs_totals_free(&output.totals);
    return rc;
}
