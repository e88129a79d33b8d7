/* SPDX-License-Identifier: Apache-2.0 */
/* What people read. */
#include "base/text.h"
#include "base/cleanup.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/common/table.h"
#include "tool/explain/explain.h"
#include "tool/explain/ranges.h"
#include "tool/explain/totals.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- cells ------------------------------------------------------------------------------------------- */

static void add_box(struct rfs_table *table, uint32_t ndim, const uint64_t *whole,
                    const struct rfs_box *box)
{
    struct rfs_printed shown;

    rfs_put_box(rfs_printed_begin(&shown), ndim, whole, box->at, box->len);
    rfs_table_add_printed(table, &shown);
}

/* Takes RANKS over; NULL when memory is short. */
static void add_ranks(struct rfs_table *table, uint32_t *ranks, size_t n)
{
    RFS_FREE char *text = rfs_ranks_text(rfs_printed_memory(ranks), n);

    free(ranks);
    rfs_table_add(table, "%s", text);
}

static void end_table(struct rfs_table *table)
{
    rfs_table_print(table, stdout);
    rfs_table_free(table);
}

/* ---- the parameter ----------------------------------------------------------------------------------- */

static void put_side(const char *title, const char *part, const struct rfs_layout *layout,
                     const struct rfs_grid *grid, const uint64_t *slice_dims)
{
    printf("%-12s ", title);
    if (part) {
        puts(part);
        return;
    }
    if (!grid) {
        puts(layout ? "only one of the strategies has it: copied as it is"
                    : "in neither strategy: copied as it is");
        return;
    }
    if (layout) {
        fputs("devices ", stdout);
        rfs_put_matrix(stdout, layout);
        fputs(", map ", stdout);
        rfs_put_map(stdout, layout);
        if (layout->opt_size > 1)
            printf(", optimizer shard %u", layout->opt_size);
        fputs(": ", stdout);
    }
    rfs_put_cuts(stdout, grid);
    if (slice_dims) {
        fputs("; slices of ", stdout);
        rfs_put_dims(stdout, grid->ndim, slice_dims);
    }
    putchar('\n');
}

static void put_head(const struct rfs_explain *explain, const struct rfs_explained *slice)
{
    const struct rfs_type *type = rfs_explained_type(explain, slice);
    const struct rfs_type *shown = rfs_explained_shown_type(explain, slice);
    const struct rfs_geometry *geometry = slice->trace.geometry;
    const uint64_t *whole;
    const uint32_t ndim = rfs_explained_dims(explain, slice, &whole);
    uint64_t bytes = type->bytes;
    char size[RFS_SHOWN_BYTES];
    char name[1024];

    rfs_text_printable(name, sizeof name,
                       rfs_catalog_name(explain->rooms.catalog, slice->target->name));
    if (geometry) {
        bytes = geometry->item;
        for (uint32_t i = 0; i < ndim; i++)
            bytes *= whole[i];
    }
    printf("%s: %s ", name,
           type->kind == RFS_MAP ? "map" : rfs_dtype_name((enum rfs_dtype)type->dtype));
    rfs_put_dims(stdout, ndim, whole);
    printf(", %s\n", rfs_show_bytes(bytes, size));
    if (slice->target->shown_name != slice->target->name) {
        rfs_text_printable(name, sizeof name,
                           rfs_catalog_name(explain->rooms.catalog, slice->target->shown_name));
        printf("%-12s %s\n", "shown as", name);
    }
    if (shown->dtype != type->dtype)
        printf("%-12s %s\n", "converted to", rfs_dtype_name((enum rfs_dtype)shown->dtype));
    if (slice->tensor && geometry)
        printf("%-12s a row of %" PRIu64 " elements\n", "cut as", geometry->whole[0]);
    put_side("source", slice->sides[0], slice->trace.src, geometry ? &geometry->src : NULL,
             geometry && !geometry->src.edge ? geometry->src_dims : NULL);
    put_side("destination", slice->sides[1], slice->trace.dst, geometry ? &geometry->dst : NULL,
             geometry && !geometry->dst.edge ? geometry->dst_dims : NULL);
}

/* ---- one slice --------------------------------------------------------------------------------------- */

static void put_slice(const struct rfs_explain *explain, const struct rfs_explained *slice)
{
    const uint32_t ndim = rfs_explained_ndim(explain, slice);
    const struct rfs_type *shown = rfs_explained_shown_type(explain, slice);
    char title[32];

    snprintf(title, sizeof title, explain->parts ? "part %u" : "rank_%u", slice->rank);
    printf("%-12s ", title);
    for (uint32_t k = 0; slice->trace.geometry && k < slice->trace.geometry->dst.rounds; k++) {
        struct rfs_box box;
        rfs_trace_box(&slice->trace.geometry->dst, slice->trace.geometry->whole,
                      slice->rank % slice->trace.geometry->dst.ranks, k, &box);
        if (k > 0)
            fputs(", ", stdout);
        rfs_put_box(stdout, ndim, slice->trace.geometry->whole, box.at, box.len);
    }
    fputs(slice->trace.geometry ? ": " : "", stdout);
    printf("%s ", rfs_dtype_name((enum rfs_dtype)shown->dtype));
    rfs_put_dims(stdout, shown->ndim, shown->dims);
    printf(", %" PRIu64 " bytes", shown->bytes);
    if (slice->is_shown)
        printf(" from offset %" PRIu64 " of %s%s%s", slice->at.offset,
               slice->at.folder ? slice->at.folder : "", slice->at.folder ? "/" : "",
               slice->at.name);
    putchar('\n');
}

static void add_piece(struct rfs_table *table, const struct rfs_explain *explain,
                      const struct rfs_explained *slice, const struct rfs_piece_trace *piece,
                      const struct rfs_file_range *range, bool first)
{
    const uint32_t ndim = rfs_explained_ndim(explain, slice);
    const struct rfs_type *source = rfs_catalog_type(explain->rooms.catalog, piece->type);
    char times[RFS_MAX_DIMS * 24] = "1";
    char every[RFS_MAX_DIMS * 24] = "";
    uint64_t bytes = range->run;

    if (first) {
        rfs_table_add(table, "%" PRIu32, piece->rank);
        add_box(table, ndim, rfs_explained_whole(explain, slice), &piece->whole);
        add_box(table, ndim, source->dims, &piece->source);
        add_box(table, ndim, rfs_explained_type(explain, slice)->dims, &piece->target);
    } else {
        for (int i = 0; i < 4; i++)
            rfs_table_add(table, "%s", "");
    }
    for (uint32_t k = 0, t = 0, e = 0; k < range->n_loops; k++) {
        t += (uint32_t)snprintf(times + t, sizeof times - t, "%s%" PRIu64, k > 0 ? " * " : "",
                                range->loop[k].count);
        e += (uint32_t)snprintf(every + e, sizeof every - e, "%s%" PRIu64, k > 0 ? ", " : "",
                                range->loop[k].stride);
        bytes *= range->loop[k].count;
    }
    rfs_table_add(table, "%" PRIu64, range->offset);
    rfs_table_add(table, "%" PRIu64, range->run);
    rfs_table_add(table, "%s", times);
    rfs_table_add(table, "%s", every);
    rfs_table_add(table, "%" PRIu64, bytes);
}

/* The ranks that hold what a piece is part of, by what they have of it. */
static void put_others(const struct rfs_explain *explain, const struct rfs_explained *slice,
                       const struct rfs_piece_trace *piece, enum rfs_holding holding,
                       const char *before, const char *after)
{
    const struct rfs_trace *trace = &slice->trace;
    RFS_FREE uint32_t *ranks = rfs_printed_memory(calloc(trace->devices + 1, sizeof *ranks));
    size_t n = 0;

    for (uint32_t rank = trace->base; rank < trace->base + trace->devices; rank++)
        if (rank != piece->rank &&
            rfs_trace_holding(explain->rooms.planner, slice->target, trace, piece, rank) == holding)
            ranks[n++] = rank;
    RFS_FREE char *text = n > 0 ? rfs_ranks_text(ranks, n) : NULL;
    if (text)
        printf("%s%s %s%s", before, n > 1 ? "ranks" : "rank", text, after);
}

/* Of each source rank that gives something: where its file is, who else has the same, and why it was chosen. */
static void put_providers(const struct rfs_explain *explain, const struct rfs_explained *slice)
{
    const struct rfs_trace *trace = &slice->trace;

    for (size_t i = 0; i < trace->n; i++) {
        const struct rfs_piece_trace *piece = &trace->pieces[i];
        bool seen = false;

        for (size_t k = 0; !seen && k < i; k++)
            seen = trace->pieces[k].rank == piece->rank;
        if (seen)
            continue;
        printf("%s %u  %s", explain->words->one, piece->rank,
               rfs_explain_file(explain, piece->block.file));
        put_others(explain, slice, piece, RFS_HOLDS, "; the same is on ", "");
        put_others(explain, slice, piece, RFS_HOLDS_BARE, "; left out by ", "");
        put_others(explain, slice, piece, RFS_HOLDS_LOST, "; ", " has no file");
        if (piece->first != piece->rank)
            printf("; instead of rank %u", piece->first);
        putchar('\n');
    }
}

static int print_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    (void)err;
    const struct rfs_explain *explain = ctx;
    const struct rfs_column columns[] = {
        {explain->words->from, true, true},
        {"of the tensor", false, false},
        {"of its slice", false, false},
        {"to", false, false},
        {"offset", true, true},
        {"run", true, true},
        {"times", false, true},
        {"every", false, true},
        {"bytes", true, true},
    };
    struct rfs_table table = {.columns = columns, .n_columns = sizeof columns / sizeof *columns};
    struct rfs_file_ranges ranges = {0};
    uint64_t bytes = 0;

    put_head(explain, slice);
    put_slice(explain, slice);
    for (size_t i = 0; i < slice->trace.n; i++) {
        ranges.n = 0;
        if (!rfs_ranges_add(&slice->trace.pieces[i].block, &ranges))
            rfs_printed_memory(NULL);
        for (size_t k = 0; k < ranges.n; k++)
            add_piece(&table, explain, slice, &slice->trace.pieces[i], &ranges.data[k], k == 0);
        bytes += rfs_block_source_bytes(&slice->trace.pieces[i].block);
    }
    free(ranges.data);
    if (slice->trace.n == 0) {
        puts("\nIt has no bytes: nothing is read for it.");
        rfs_table_free(&table);
        return 0;
    }
    putchar('\n');
    end_table(&table);
    size_t n = 0;
    free(rfs_explained_providers(slice, &n)); /* how many */
    putchar('\n');
    put_providers(explain, slice);
    printf("\n%zu piece%s from %zu source %s, %" PRIu64 " bytes%s\n", slice->trace.n,
           slice->trace.n == 1 ? "" : "s", n, n == 1 ? explain->words->one : explain->words->many,
           bytes, explain->rooms.keyed ? "; offsets are those of the decrypted content" : "");
    return 0;
}

/* ---- tables of ranks --------------------------------------------------------------------------------- */

struct listing {
    struct rfs_explain *explain;
    struct rfs_table table;
    struct rfs_totals totals;
    bool begun;
};

static int list_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    struct listing *listing = ctx;
    struct rfs_explain *explain = listing->explain;
    struct rfs_table *table = &listing->table;
    const struct rfs_type *shown = rfs_explained_shown_type(explain, slice);
    const struct rfs_geometry *geometry = slice->trace.geometry;
    struct rfs_printed dims;
    size_t n = 0;

    if (!listing->begun)
        put_head(explain, slice);
    listing->begun = true;
    rfs_table_add(table, "%" PRIu32, slice->rank);
    if (geometry && geometry->dst.rounds == 1) {
        struct rfs_box box;
        rfs_trace_box(&geometry->dst, geometry->whole, slice->rank % geometry->dst.ranks, 0, &box);
        add_box(table, geometry->ndim, geometry->whole, &box);
    } else {
        rfs_table_add(table, "%s", geometry ? "in fields" : "whole");
    }
    rfs_put_dims(rfs_printed_begin(&dims), shown->ndim, shown->dims);
    rfs_table_add_printed(table, &dims);
    rfs_table_add(table, "%" PRIu64, shown->bytes);
    uint32_t *providers = rfs_explained_providers(slice, &n);
    add_ranks(table, providers, n);
    uint64_t bytes = 0;
    for (size_t i = 0; i < slice->trace.n; i++)
        bytes += rfs_block_source_bytes(&slice->trace.pieces[i].block);
    rfs_table_add(table, "%" PRIu64, bytes);
    return rfs_totals_add(&listing->totals, explain, slice) ? 0 : rfs_fail_memory(err);
}

/* "together: …": each source byte once. */
static int put_together(const struct rfs_explain *explain, const struct rfs_totals *totals,
                        size_t ranks, struct rfs_error *err)
{
    const struct rfs_explain_words *words = explain->words;
    size_t n = 0;
    RFS_FREE uint32_t *sources = rfs_takings_ranks(&totals->together, &n);
    const uint64_t once = rfs_takings_bytes(&totals->together);
    uint64_t all = 0;
    char size[RFS_SHOWN_BYTES];

    if (!sources)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < totals->n_ranks; i++)
        all += rfs_takings_bytes(&totals->ranks[i]);
    printf("\n%zu %s of the destination together: %" PRIu64 " bytes%s%s%s from %zu source "
           "%s, each byte counted once",
           ranks, ranks == 1 ? words->one : words->many, once, once < 1024 ? "" : " (",
           once < 1024 ? "" : rfs_show_bytes(once, size), once < 1024 ? "" : ")", n,
           n == 1 ? words->one : words->many);
    if (all != once)
        printf("; %" PRIu64 " if each %s reads its own", all, words->one);
    putchar('\n');
    return 0;
}

static int print_slices(struct rfs_explain *explain, struct rfs_error *err)
{
    const struct rfs_column columns[] = {
        {explain->words->one, true, true},
        {"slice", false, false},
        {"shape", true, false},
        {"bytes", true, true},
        {explain->words->from_many, false, false},
        {"source bytes", true, true},
    };
    struct listing listing = {
        .explain = explain,
        .table = {.columns = columns, .n_columns = sizeof columns / sizeof *columns}};
    size_t n;
    int rc = rfs_totals_begin(&listing.totals, explain->n_selected) ? 0 : rfs_fail_memory(err);

    if (rc == 0)
        rc = rfs_explain_each(explain, list_slice, &listing, &n, err);
    if (rc == 0 && !rfs_totals_next(&listing.totals))
        rc = rfs_fail_memory(err);
    if (rc == 0)
        putchar('\n');
    if (rc == 0)
        end_table(&listing.table);
    else
        rfs_table_free(&listing.table);
    if (rc == 0)
        rc = put_together(explain, &listing.totals, n, err);
    rfs_totals_free(&listing.totals);
    return rc;
}

/* ---- all parameters ---------------------------------------------------------------------------------- */

static void add_rank(struct rfs_table *table, const struct rfs_explain *explain,
                     const struct rfs_totals *totals, size_t i)
{
    const uint32_t rank = explain->selected[i];
    size_t n = 0;

    rfs_table_add(table, "%" PRIu32, rank);
    rfs_table_add(table, "%" PRIu64, totals->parameters[i]);
    rfs_table_add(table, "%" PRIu64, totals->shown_bytes[i]);
    rfs_table_add(table, "%" PRIu32, rfs_explain_files(explain, rank));
    uint32_t *ranks = rfs_takings_ranks(&totals->ranks[i], &n);
    add_ranks(table, ranks, n);
    rfs_table_add(table, "%" PRIu64, rfs_takings_bytes(&totals->ranks[i]));
}

static void print_files(const struct rfs_explain *explain, const struct rfs_takings *takings)
{
    const struct rfs_column columns[] = {
        {explain->words->from, true, true},
        {"file", false, false},
        {"bytes", true, true},
    };
    struct rfs_table table = {.columns = columns, .n_columns = sizeof columns / sizeof *columns};

    for (size_t i = 0; i < takings->n; i++) {
        rfs_table_add(&table, "%" PRIu32, takings->data[i].rank);
        rfs_table_add(&table, "%s", rfs_explain_file(explain, takings->data[i].file));
        rfs_table_add(&table, "%" PRIu64, takings->data[i].bytes);
    }
    putchar('\n');
    end_table(&table);
}

static int print_ranks(struct rfs_explain *explain, struct rfs_error *err)
{
    const struct rfs_column columns[] = {
        {explain->words->one, true, true},
        {"parameters", true, true},
        {"bytes", true, true},
        {"files", true, true},
        {explain->words->from_many, false, false},
        {"source bytes", true, true},
    };
    struct rfs_table table = {.columns = columns, .n_columns = sizeof columns / sizeof *columns};
    struct rfs_totals totals = {0};
    int rc = rfs_totals_begin(&totals, explain->n_selected) ? 0 : rfs_fail_memory(err);

    if (rc == 0)
        rc = rfs_totals_all(&totals, explain, err);
    for (size_t i = 0; rc == 0 && i < explain->n_selected; i++)
        add_rank(&table, explain, &totals, i);
    if (rc == 0)
        end_table(&table);
    /* Those of one rank, or of a node. */
    if (rc == 0 && explain->ranks.n > 0)
        print_files(explain, &totals.together);
    if (rc == 0)
        rc = put_together(explain, &totals, explain->n_selected, err);
    rfs_totals_free(&totals);
    return rc;
}

int rfs_explain_text(struct rfs_explain *explain, struct rfs_error *err)
{
    size_t n;

    if (!explain->param)
        return print_ranks(explain, err);
    return explain->one ? rfs_explain_each(explain, print_slice, explain, &n, err)
                        : print_slices(explain, err);
}
