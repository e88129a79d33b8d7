/* SPDX-License-Identifier: Apache-2.0 */
/* What scripts read; reshard(1) tells the keys. */
#include "base/cleanup.h"
#include "tool/common/layout_text.h"
#include "tool/common/table.h"
#include "tool/explain/explain.h"
#include "tool/explain/ranges.h"
#include "tool/explain/totals.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct output {
    struct rfs_explain *explain;
    struct rfs_totals totals;
    size_t n; /* slices so far */
};

static void put_key_text(const char *key, const char *text)
{
    printf(",\"%s\":", key);
    rfs_json_text(stdout, text);
}

/* [[begin, end], ...] */
static void put_box(const char *key, uint32_t ndim, const struct rfs_box *box)
{
    printf(",\"%s\":[", key);
    for (uint32_t i = 0; i < ndim; i++)
        printf("%s[%" PRIu64 ",%" PRIu64 "]", i > 0 ? "," : "", box->at[i],
               box->at[i] + box->len[i]);
    putchar(']');
}

static void put_layout(const char *key, const struct rfs_layout *layout,
                       const struct rfs_grid *grid)
{
    printf(",\"%s\":", key);
    if (!layout) {
        fputs("null", stdout);
        return;
    }
    fputs("{\"device_matrix\":", stdout);
    rfs_put_matrix(stdout, layout);
    fputs(",\"tensor_map\":", stdout);
    rfs_put_map(stdout, layout);
    printf(",\"optimizer_shard\":%" PRIu32, layout->opt_size);
    for (uint32_t i = 0; grid && i < grid->ndim; i++)
        printf("%s%" PRIu32 "%s", i == 0 ? ",\"cuts\":[" : ",", grid->pieces[i],
               i + 1 == grid->ndim ? "]" : "");
    if (grid)
        printf(",\"replicas\":%" PRIu32, grid->replicas);
    putchar('}');
}

static void put_head(const struct rfs_explain *explain, const struct rfs_explained *slice)
{
    const struct rfs_type *type = rfs_explained_type(explain, slice);
    const struct rfs_type *shown = rfs_explained_shown_type(explain, slice);
    const struct rfs_geometry *geometry = slice->trace.geometry;
    const uint64_t *dims;

    put_key_text("parameter", rfs_catalog_name(explain->rooms.catalog, slice->target->name));
    put_key_text("shown_as", rfs_catalog_name(explain->rooms.catalog, slice->target->shown_name));
    put_key_text("dtype", rfs_dtype_name((enum rfs_dtype)type->dtype));
    put_key_text("shown_dtype", rfs_dtype_name((enum rfs_dtype)shown->dtype));
    fputs(",\"shape\":", stdout);
    const uint32_t ndim = rfs_explained_dims(explain, slice, &dims);
    rfs_put_dims(stdout, ndim, dims);
    printf(",\"copied\":%s", geometry ? "false" : "true");
    put_layout("source_layout", slice->trace.src, geometry ? &geometry->src : NULL);
    put_layout("destination_layout", slice->trace.dst, geometry ? &geometry->dst : NULL);
}

static void put_ranges(const struct rfs_file_ranges *ranges)
{
    fputs(",\"ranges\":[", stdout);
    for (size_t i = 0; i < ranges->n; i++) {
        const struct rfs_file_range *range = &ranges->data[i];
        printf("%s{\"offset\":%" PRIu64 ",\"run\":%" PRIu64 ",\"loops\":[", i > 0 ? "," : "",
               range->offset, range->run);
        for (uint32_t k = 0; k < range->n_loops; k++)
            printf("%s{\"count\":%" PRIu64 ",\"stride\":%" PRIu64 "}", k > 0 ? "," : "",
                   range->loop[k].count, range->loop[k].stride);
        fputs("]}", stdout);
    }
    putchar(']');
}

/* The ranks that have something of the piece's cell, in three lists. */
static void put_others(const struct rfs_explain *explain, const struct rfs_explained *slice,
                       const struct rfs_piece_trace *piece)
{
    static const struct {
        enum rfs_holding holding;
        const char *key;
    } lists[] = {{RFS_HOLDS, "same"}, {RFS_HOLDS_BARE, "left_out"}, {RFS_HOLDS_LOST, "lost"}};
    const struct rfs_trace *trace = &slice->trace;

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *before = "";
        printf(",\"%s\":[", lists[i].key);
        for (uint32_t rank = trace->base; rank < trace->base + trace->devices; rank++) {
            if (rank == piece->rank || rfs_trace_holding(explain->rooms.planner, slice->target,
                                                         trace, piece, rank) != lists[i].holding)
                continue;
            printf("%s%" PRIu32, before, rank);
            before = ",";
        }
        putchar(']');
    }
}

static bool put_piece(const struct rfs_explain *explain, const struct rfs_explained *slice,
                      const struct rfs_piece_trace *piece)
{
    const uint32_t ndim = rfs_explained_ndim(explain, slice);
    struct rfs_file_ranges ranges = {0};
    const bool ok = rfs_ranges_add(&piece->block, &ranges);

    printf("{\"rank\":%" PRIu32 ",\"instead_of\":", piece->rank);
    if (piece->first == piece->rank)
        fputs("null", stdout);
    else
        printf("%" PRIu32, piece->first);
    put_key_text("file", rfs_explain_file(explain, piece->block.file));
    put_box("box", ndim, &piece->whole);
    put_box("source_box", ndim, &piece->source);
    put_box("destination_box", ndim, &piece->target);
    printf(",\"bytes\":%" PRIu64, rfs_block_source_bytes(&piece->block));
    put_ranges(&ranges);
    if (explain->one)
        put_others(explain, slice, piece);
    putchar('}');
    free(ranges.data);
    return ok;
}

static int put_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    struct output *output = ctx;
    const struct rfs_explain *explain = output->explain;
    const struct rfs_type *shown = rfs_explained_shown_type(explain, slice);
    const struct rfs_geometry *geometry = slice->trace.geometry;
    bool ok = rfs_totals_add(&output->totals, explain, slice);

    if (output->n++ == 0) {
        put_head(explain, slice);
        fputs(",\"slices\":[\n", stdout);
    } else {
        fputs(",\n", stdout);
    }
    printf("{\"rank\":%" PRIu32 ",\"shape\":", slice->rank);
    rfs_put_dims(stdout, shown->ndim, shown->dims);
    printf(",\"bytes\":%" PRIu64, shown->bytes);
    if (slice->is_shown) {
        RFS_FREE char *path = NULL;
        if (asprintf(&path, "%s%s%s", slice->at.folder ? slice->at.folder : "",
                     slice->at.folder ? "/" : "", slice->at.name) < 0)
            path = NULL;
        ok &= path != NULL;
        put_key_text("file", path ? path : "");
        printf(",\"offset\":%" PRIu64, slice->at.offset);
    }
    fputs(",\"boxes\":[", stdout);
    for (uint32_t k = 0; geometry && k < geometry->dst.rounds; k++) {
        struct rfs_box box;
        rfs_trace_box(&geometry->dst, geometry->whole, slice->rank % geometry->dst.ranks, k, &box);
        fputs(k > 0 ? ",[" : "[", stdout);
        for (uint32_t i = 0; i < geometry->ndim; i++)
            printf("%s[%" PRIu64 ",%" PRIu64 "]", i > 0 ? "," : "", box.at[i],
                   box.at[i] + box.len[i]);
        putchar(']');
    }
    fputs("],\"pieces\":[", stdout);
    for (size_t i = 0; i < slice->trace.n; i++) {
        fputs(i > 0 ? ",\n" : "\n", stdout);
        ok &= put_piece(explain, slice, &slice->trace.pieces[i]);
    }
    fputs("]}", stdout);
    return ok ? 0 : rfs_fail_memory(err);
}

static bool put_takings(const char *key, const struct rfs_explain *explain,
                        const struct rfs_takings *takings)
{
    printf(",\"%s\":[", key);
    for (size_t i = 0; i < takings->n; i++) {
        printf("%s{\"rank\":%" PRIu32, i > 0 ? "," : "", takings->data[i].rank);
        put_key_text("file", rfs_explain_file(explain, takings->data[i].file));
        printf(",\"bytes\":%" PRIu64 "}", takings->data[i].bytes);
    }
    putchar(']');
    return true;
}

static void put_together(const struct output *output)
{
    printf(",\n\"together\":{\"bytes\":%" PRIu64, rfs_takings_bytes(&output->totals.together));
    put_takings("sources", output->explain, &output->totals.together);
    fputs("}}\n", stdout);
}

static int put_param(struct output *output, struct rfs_error *err)
{
    size_t n;
    int rc = rfs_explain_each(output->explain, put_slice, output, &n, err);

    if (rc == 0 && !rfs_totals_next(&output->totals))
        rc = rfs_fail_memory(err);
    if (rc == 0)
        putchar(']');
    return rc;
}

static int put_ranks(struct output *output, struct rfs_error *err)
{
    struct rfs_explain *explain = output->explain;
    const struct rfs_totals *totals = &output->totals;
    const int rc = rfs_totals_all(&output->totals, explain, err);

    fputs(",\"ranks\":[", stdout);
    for (size_t i = 0; rc == 0 && i < explain->n_selected; i++) {
        printf("%s\n{\"rank\":%" PRIu32 ",\"parameters\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"files\":%" PRIu32 ",\"source_bytes\":%" PRIu64,
               i > 0 ? "," : "", explain->selected[i], totals->parameters[i],
               totals->shown_bytes[i], rfs_explain_files(explain, explain->selected[i]),
               rfs_takings_bytes(&totals->ranks[i]));
        put_takings("sources", explain, &totals->ranks[i]);
        putchar('}');
    }
    putchar(']');
    return rc;
}

int rfs_explain_json(struct rfs_explain *explain, struct rfs_error *err)
{
    struct output output = {.explain = explain};
    int rc = rfs_totals_begin(&output.totals, explain->n_selected) ? 0 : rfs_fail_memory(err);

    if (rc == 0) {
        fputs("{\"source\":", stdout);
        rfs_json_text(stdout, rfs_catalog_path(explain->rooms.catalog));
        rc = explain->param ? put_param(&output, err) : put_ranks(&output, err);
    }
    if (rc == 0)
        put_together(&output);
    rfs_totals_free(&output.totals);
    return rc;
}
