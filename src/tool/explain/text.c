/* SPDX-License-Identifier: Apache-2.0 */
/* The text for people. */
#include "base/text.h"
#include "base/cleanup.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/common/table.h"
#include "tool/common/whole.h"
#include "tool/explain/explained.h"
#include "tool/explain/ranges.h"
#include "tool/explain/totals.h"

/* ---- cells ----------------------------------------------------------------------------------- */

static void add_box(struct rfs_table *table, uint32_t ndim, const uint64_t *whole,
                    const struct rfs_box *box)
{
    rfs_put_box(rfs_table_cell(table), ndim, whole, box->at, box->len);
    rfs_table_cell_end(table);
}

/* Takes RANKS over. */
static void add_ranks(struct rfs_table *table, uint32_t *ranks, size_t n)
{
    rfs_text_ranks(rfs_table_cell(table), ranks, n);
    rfs_table_cell_end(table);
    free(ranks);
}

static void end_table(struct rfs_table *table)
{
    rfs_table_print(table, stdout);
    rfs_table_free(table);
}

/* ---- the parameter --------------------------------------------------------------------------- */

static void put_side(const char *title, const struct rfs_explained_side *side)
{
    printf("%-12s ", title);
    if (side->words) {
        puts(side->words);
        return;
    }
    if (side->layout) {
        fputs("devices ", stdout);
        rfs_put_matrix(stdout, side->layout);
        fputs(", map ", stdout);
        rfs_put_map(stdout, side->layout);
        if (side->layout->opt_size > 1)
            printf(", optimizer shard %u", side->layout->opt_size);
        fputs(": ", stdout);
    }
    rfs_put_cuts(stdout, side->grid);
    if (side->slice) {
        fputs("; slices of ", stdout);
        rfs_put_dims(stdout, side->grid->ndim, side->slice);
    }
    putchar('\n');
}

static void put_head(const struct rfs_explain *explain, const struct rfs_explained *slice)
{
    const struct rfs_geometry *geometry = slice->trace.geometry;
    uint64_t bytes = geometry ? geometry->item : slice->type->bytes;
    char size[RFS_SHOWN_BYTES];

    for (uint32_t i = 0; geometry && i < slice->n_dims; i++)
        bytes *= slice->dims[i];
    rfs_text_put(stdout, slice->name);
    printf(": %s ", rfs_whole_dtype(slice->type));
    rfs_put_dims(stdout, slice->n_dims, slice->dims);
    printf(", %s\n", rfs_show_bytes(bytes, size));
    if (slice->shown_name != slice->name) {
        printf("%-12s ", "shown as");
        rfs_text_put(stdout, slice->shown_name);
        putchar('\n');
    }
    if (slice->shown->dtype != slice->type->dtype)
        printf("%-12s %s\n", "converted to", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    if (explain->parts && geometry)
        printf("%-12s a row of %" PRIu64 " elements\n", "cut as", geometry->whole[0]);
    put_side("source", &slice->source);
    put_side("destination", &slice->destination);
}

/* ---- one slice ------------------------------------------------------------------------------- */

static void put_slice(const struct rfs_explain *explain, const struct rfs_explained *slice)
{
    char title[32];

    snprintf(title, sizeof title, explain->parts ? "part %u" : "rank_%u", slice->rank);
    printf("%-12s ", title);
    for (size_t k = 0; k < slice->boxes.n; k++) {
        if (k > 0)
            fputs(", ", stdout);
        rfs_put_box(stdout, slice->type->ndim, slice->whole, slice->boxes.data[k].at,
                    slice->boxes.data[k].len);
    }
    printf("%s%s ", slice->boxes.n > 0 ? ": " : "",
           rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    rfs_put_dims(stdout, slice->shown->ndim, slice->shown->dims);
    printf(", %" PRIu64 " bytes", slice->shown->bytes);
    if (slice->path)
        printf(" from offset %" PRIu64 " of %s", slice->offset, slice->path);
    putchar('\n');
}

static void add_piece(struct rfs_table *table, const struct rfs_explain *explain,
                      const struct rfs_explained *slice, const struct rfs_piece_trace *piece,
                      const struct rfs_file_range *range, bool first)
{
    const struct rfs_type *source = rfs_catalog_type(explain->plans.catalog, piece->type);
    char times[RFS_MAX_DIMS * 24] = "1";
    char every[RFS_MAX_DIMS * 24] = "";
    uint64_t bytes = range->run;

    if (first) {
        rfs_table_u64(table, piece->rank);
        add_box(table, slice->type->ndim, slice->whole, &piece->whole);
        add_box(table, slice->type->ndim, source->dims, &piece->source);
        add_box(table, slice->type->ndim, slice->type->dims, &piece->target);
    } else {
        for (int i = 0; i < 4; i++)
            rfs_table_text(table, "");
    }
    for (uint32_t k = 0, t = 0, e = 0; k < range->n_loops; k++) {
        t += (uint32_t)snprintf(times + t, sizeof times - t, "%s%" PRIu64, k > 0 ? " * " : "",
                                range->loop[k].count);
        e += (uint32_t)snprintf(every + e, sizeof every - e, "%s%" PRIu64, k > 0 ? ", " : "",
                                range->loop[k].stride);
        bytes *= range->loop[k].count;
    }
    rfs_table_u64(table, range->offset);
    rfs_table_u64(table, range->run);
    rfs_table_text(table, times);
    rfs_table_text(table, every);
    rfs_table_u64(table, bytes);
}

/* The ranks that hold a piece's slice, by their state. */
static void put_others(const struct rfs_explain *explain, const struct rfs_explained *slice,
                       const struct rfs_piece_trace *piece, enum rfs_holding holding,
                       const char *before, const char *after)
{
    size_t n;
    RFS_FREE uint32_t *ranks = rfs_explained_others(explain, slice, piece, holding, &n);
    RFS_FREE char *text = rfs_ranks_text(ranks, n);

    if (n > 0)
        printf("%s%s %s%s", before, n > 1 ? "ranks" : "rank", text, after);
}

/*
 * Of each source rank that gives something: where its file is, which others have the same, and why
 * it was chosen.
 */
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
        printf("%s %u  %s", explain->words->source, piece->rank,
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
        {explain->words->from, RFS_CELL_NUMBER},
        {"of the tensor", RFS_CELL_TEXT},
        {"of its slice", RFS_CELL_TEXT},
        {"to", RFS_CELL_TEXT},
        {"offset", RFS_CELL_NUMBER},
        {"run", RFS_CELL_NUMBER},
        {"times", RFS_CELL_NUMBER},
        {"every", RFS_CELL_NUMBER},
        {"bytes", RFS_CELL_NUMBER},
    };
    struct rfs_table table = RFS_TABLE(columns, false);
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
    size_t n;
    free(rfs_explained_ranks(slice, &n)); /* how many */
    putchar('\n');
    put_providers(explain, slice);
    printf("\n%zu piece%s from %zu source %s, %" PRIu64 " bytes%s\n", slice->trace.n,
           slice->trace.n == 1 ? "" : "s", n,
           n == 1 ? explain->words->source : explain->words->sources, bytes,
           explain->plans.keyed ? "; offsets are those of the decrypted content" : "");
    return 0;
}

/* ---- tables of ranks ------------------------------------------------------------------------- */

struct listing {
    struct rfs_explain *explain;
    struct rfs_table table;
    struct rfs_totals totals;
    size_t n; /* slices */
};

static int list_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    struct listing *listing = ctx;
    struct rfs_table *table = &listing->table;
    uint64_t bytes = 0;
    size_t n;

    if (listing->n++ == 0)
        put_head(listing->explain, slice);
    rfs_table_u64(table, slice->rank);
    if (slice->boxes.n == 1)
        add_box(table, slice->type->ndim, slice->whole, &slice->boxes.data[0]);
    else
        rfs_table_text(table, slice->boxes.n > 0 ? "in fields" : "whole");
    rfs_table_dims(table, slice->shown->ndim, slice->shown->dims);
    rfs_table_u64(table, slice->shown->bytes);
    uint32_t *ranks = rfs_explained_ranks(slice, &n);
    add_ranks(table, ranks, n);
    for (size_t i = 0; i < slice->trace.n; i++)
        bytes += rfs_block_source_bytes(&slice->trace.pieces[i].block);
    rfs_table_u64(table, bytes);
    return rfs_totals_add(&listing->totals, listing->explain, slice) ? 0 : rfs_fail_memory(err);
}

/* "together: …": each source byte once. */
static void put_together(const struct rfs_explain *explain, const struct rfs_totals *totals,
                         size_t ranks)
{
    const struct rfs_explain_words *words = explain->words;
    const uint64_t once = rfs_takings_bytes(&totals->together);
    uint64_t all = 0;
    char size[RFS_SHOWN_BYTES];
    size_t n;

    free(rfs_takings_ranks(&totals->together, &n)); /* how many */
    for (size_t i = 0; i < totals->n_ranks; i++)
        all += rfs_takings_bytes(&totals->ranks[i].taken);
    printf("\n%zu %s of the destination together: %" PRIu64 " bytes", ranks,
           ranks == 1 ? words->one : words->many, once);
    if (once >= 1024)
        printf(" (%s)", rfs_show_bytes(once, size));
    printf(" from %zu source %s, each byte counted once", n,
           n == 1 ? words->source : words->sources);
    if (all != once)
        printf("; %" PRIu64 " if each %s reads its own", all, words->one);
    putchar('\n');
}

static int print_slices(struct rfs_explain *explain, struct listing *listing, struct rfs_error *err)
{
    const struct rfs_column columns[] = {
        {explain->words->one, RFS_CELL_NUMBER},
        {"slice", RFS_CELL_TEXT},
        {"shape", RFS_CELL_JSON},
        {"bytes", RFS_CELL_NUMBER},
        {explain->words->from_many, RFS_CELL_TEXT},
        {"source bytes", RFS_CELL_NUMBER},
    };

    RFS_TABLE_DESCRIBE(&listing->table, columns);
    const int rc = rfs_explain_each(explain, list_slice, listing, err);
    if (rc)
        return rc;
    if (!rfs_totals_next(&listing->totals))
        return rfs_fail_memory(err);
    putchar('\n');
    rfs_table_print(&listing->table, stdout);
    put_together(explain, &listing->totals, listing->n);
    return 0;
}

/* ---- all parameters -------------------------------------------------------------------------- */

static void add_rank(struct rfs_table *table, const struct rfs_explain *explain, size_t i,
                     const struct rfs_totals_rank *rank)
{
    size_t n;

    rfs_table_u64(table, explain->selected[i]);
    rfs_table_u64(table, rank->parameters);
    rfs_table_u64(table, rank->shown_bytes);
    rfs_table_u64(table, rfs_explain_files(explain, explain->selected[i]));
    uint32_t *ranks = rfs_takings_ranks(&rank->taken, &n);
    add_ranks(table, ranks, n);
    rfs_table_u64(table, rfs_takings_bytes(&rank->taken));
}

static void print_files(const struct rfs_explain *explain, const struct rfs_takings *takings)
{
    const struct rfs_column columns[] = {
        {explain->words->from, RFS_CELL_NUMBER},
        {"file", RFS_CELL_TEXT},
        {"bytes", RFS_CELL_NUMBER},
    };
    struct rfs_table table = RFS_TABLE(columns, false);

    for (size_t i = 0; i < takings->n; i++) {
        rfs_table_u64(&table, takings->data[i].rank);
        rfs_table_text(&table, rfs_explain_file(explain, takings->data[i].file));
        rfs_table_u64(&table, takings->data[i].bytes);
    }
    putchar('\n');
    end_table(&table);
}

static int print_ranks(struct rfs_explain *explain, struct listing *listing, struct rfs_error *err)
{
    const struct rfs_column columns[] = {
        {explain->words->one, RFS_CELL_NUMBER},
        {"parameters", RFS_CELL_NUMBER},
        {"bytes", RFS_CELL_NUMBER},
        {"files", RFS_CELL_NUMBER},
        {explain->words->from_many, RFS_CELL_TEXT},
        {"source bytes", RFS_CELL_NUMBER},
    };
    const int rc = rfs_totals_all(&listing->totals, explain, err);

    if (rc)
        return rc;
    RFS_TABLE_DESCRIBE(&listing->table, columns);
    for (size_t i = 0; i < explain->n_selected; i++)
        add_rank(&listing->table, explain, i, &listing->totals.ranks[i]);
    rfs_table_print(&listing->table, stdout);
    /* Those of one rank, or of a node. */
    if (explain->ranks.n > 0)
        print_files(explain, &listing->totals.together);
    put_together(explain, &listing->totals, explain->n_selected);
    return 0;
}

int rfs_explain_text(struct rfs_explain *explain, struct rfs_error *err)
{
    struct listing listing = {.explain = explain};

    if (explain->param && explain->one)
        return rfs_explain_each(explain, print_slice, explain, err);
    int rc = rfs_totals_begin(&listing.totals, explain->n_selected, err);
    if (rc == 0)
        rc = explain->param ? print_slices(explain, &listing, err)
                            : print_ranks(explain, &listing, err);
    rfs_table_free(&listing.table);
    rfs_totals_free(&listing.totals);
    return rc;
}
