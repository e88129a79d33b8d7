/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard explain`: the command, and its output as text and as JSON. What lasts of many slices are
 * lines of output, or the sums of slices.
 */
#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"
#include "base/progress.h"
#include "base/settings.h"
#include "base/text.h"
#include "reshard.h"
#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/show.h"
#include "tool/common/source.h"
#include "tool/explain/picture.h"

/* The command line, and the view. */
struct explain {
    const char *source, *param, *svg; /* borrowed; param and svg may be NULL */
    struct rfs_settings options;      /* options of the view */
    int64_t rank;                     /* --rank; -1: none */
    struct rfs_ranks ranks;           /* --ranks, or the one of --rank */
    bool one;                         /* --rank is given: its slice is explained in full */
    bool json;

    reshard_view *opened;
    struct rfs_explained_view view;
    uint32_t *selected; /* the view's; owned */
    struct rfs_progress progress;
};

/* ---- source ranks ---------------------------------------------------------------------------- */

RFS_COMPARE(by_number, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Returns the distinct ranks of some sources, ascending, malloc'ed. */
static uint32_t *ranks_of(const struct rfs_explained_sources *sources, size_t *n)
{
    uint32_t *ranks = rfs_printed_memory(calloc(sources->n + 1, sizeof *ranks));

    for (size_t i = 0; i < sources->n; i++)
        ranks[i] = sources->data[i].rank;
    RFS_SORT(ranks, sources->n, by_number);
    *n = 0;
    for (size_t i = 0; i < sources->n; i++)
        if (*n == 0 || ranks[*n - 1] != ranks[i])
            ranks[(*n)++] = ranks[i];
    return ranks;
}

/* Returns the other source ranks whose file holds a piece's slice in that way, malloc'ed. */
static uint32_t *other_holders(const struct explain *explain, const struct rfs_explained *slice,
                               size_t piece, enum rfs_explained_holding holding, size_t *n)
{
    return rfs_printed_memory(rfs_explained_holders(&explain->view, slice, piece, holding, n));
}

/* ---- what is printed ------------------------------------------------------------------------- */

/* The output in the making. */
struct report {
    struct explain *explain;
    struct rfs_explained_totals totals;
    struct rfs_table table;     /* of people */
    struct rfs_json_write json; /* of scripts */
    size_t n;                   /* slices so far */
    void (*print)(struct report *report, const struct rfs_explained *slice);
};

static int take_slice(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    struct report *report = ctx;

    (void)err;
    report->print(report, slice);
    report->n++;
    return 0;
}

/* Prints the slice of each rank. */
static int print_each(struct report *report,
                      void (*print)(struct report *report, const struct rfs_explained *slice),
                      struct rfs_error *err)
{
    report->print = print;
    return rfs_explained_each(&report->explain->view, &report->totals, take_slice, report, err);
}

/* ---- text: cells ----------------------------------------------------------------------------- */

static void add_box(struct rfs_table *table, uint32_t ndim, const uint64_t *whole,
                    const struct rfs_box *box)
{
    rfs_show_box(rfs_table_cell(table), ndim, whole, box->at, box->len);
    rfs_table_cell_end(table);
}

/* Adds the ranks of some sources. */
static void add_ranks(struct rfs_table *table, const struct rfs_explained_sources *sources)
{
    size_t n;
    RFS_FREE uint32_t *ranks = ranks_of(sources, &n);

    rfs_table_ranks(table, ranks, n);
}

static void end_table(struct rfs_table *table)
{
    rfs_table_print(table, stdout);
    rfs_table_free(table);
}

/* ---- the parameter --------------------------------------------------------------------------- */

static void print_side(const char *title, const struct rfs_explained_side *side)
{
    printf("%-12s ", title);
    if (side->words) {
        puts(side->words);
        return;
    }
    if (side->layout) {
        fputs("devices ", stdout);
        rfs_show_matrix(stdout, side->layout);
        fputs(", map ", stdout);
        rfs_show_map(stdout, side->layout);
        if (side->layout->opt_size > 1)
            printf(", optimizer shard %u", side->layout->opt_size);
        fputs(": ", stdout);
    }
    rfs_show_cuts(stdout, side->grid);
    if (side->slice) {
        fputs("; slices of ", stdout);
        rfs_show_dims(stdout, side->grid->ndim, side->slice);
    }
    putchar('\n');
}

static void print_head(const struct explain *explain, const struct rfs_explained *slice)
{
    uint64_t bytes =
        slice->copied ? slice->type->bytes : rfs_dtype_bytes((enum rfs_dtype)slice->type->dtype);
    char size[RFS_TEXT_AMOUNT];

    for (uint32_t i = 0; !slice->copied && i < slice->n_dims; i++)
        bytes *= slice->dims[i];
    rfs_text_put(stdout, slice->name);
    printf(": %s ", rfs_whole_dtype(slice->type));
    rfs_show_dims(stdout, slice->n_dims, slice->dims);
    printf(", %s\n", rfs_text_amount(bytes, size));
    if (slice->shown_name != slice->name) {
        printf("%-12s ", "shown as");
        rfs_text_put(stdout, slice->shown_name);
        putchar('\n');
    }
    if (slice->shown->dtype != slice->type->dtype)
        printf("%-12s %s\n", "converted to", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    if (explain->view.in_parts && !slice->copied)
        printf("%-12s a row of %" PRIu64 " elements\n", "cut as", slice->whole[0]);
    print_side("source", &slice->source);
    print_side("destination", &slice->destination);
}

/* ---- one slice ------------------------------------------------------------------------------- */

static void print_boxes(const struct rfs_explained *slice, const char *before, const char *between)
{
    for (size_t k = 0; k < slice->boxes.n; k++) {
        fputs(k > 0 ? between : before, stdout);
        rfs_show_box(stdout, slice->type->ndim, slice->whole, slice->boxes.data[k].at,
                     slice->boxes.data[k].len);
    }
}

static void print_shown(const struct explain *explain, const struct rfs_explained *slice)
{
    char title[32];

    snprintf(title, sizeof title, explain->view.in_parts ? "part %u" : "rank_%u", slice->rank);
    printf("%-12s ", title);
    print_boxes(slice, "", ", ");
    printf("%s%s ", slice->boxes.n > 0 ? ": " : "",
           rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    rfs_show_dims(stdout, slice->shown->ndim, slice->shown->dims);
    printf(", %" PRIu64 " bytes", slice->shown->bytes);
    if (slice->path)
        printf(" from offset %" PRIu64 " of %s", slice->offset, slice->path);
    putchar('\n');
}

/* A row of the table of a slice: a range of bytes of a piece. */
struct ranged {
    const struct rfs_explained *slice;
    const struct rfs_explained_piece *piece; /* NULL: that of the row before */
    const struct rfs_explained_range *range;
};

/* Adds the counts of a range's loops, or their strides, with a text between them. */
static void add_loops(struct rfs_table *table, const struct rfs_explained_range *range,
                      bool strides, const char *between)
{
    FILE *out = rfs_table_cell(table);

    for (uint32_t k = 0; k < range->n_loops; k++)
        fprintf(out, "%s%" PRIu64, k > 0 ? between : "",
                strides ? range->loop[k].stride : range->loop[k].count);
    if (range->n_loops == 0 && !strides)
        fputc('1', out);
    rfs_table_cell_end(table);
}

static uint64_t range_bytes(const struct rfs_explained_range *range)
{
    uint64_t bytes = range->run;

    for (uint32_t k = 0; k < range->n_loops; k++)
        bytes *= range->loop[k].count;
    return bytes;
}

/* Defines a cell of the piece, which its first range has. */
#define CELL_OF_PIECE(name, call)                                                                  \
    RFS_CELL(name, struct ranged, row->piece ? (call) : rfs_table_text(table, ""))
CELL_OF_PIECE(cell_from, rfs_table_u64(table, row->piece->rank))
CELL_OF_PIECE(cell_whole,
              add_box(table, row->slice->type->ndim, row->slice->whole, row->piece->whole))
CELL_OF_PIECE(cell_source, add_box(table, row->slice->type->ndim,
                                   row->piece->side[RFS_EXPLAINED_SOURCE].dims, row->piece->source))
CELL_OF_PIECE(cell_target,
              add_box(table, row->slice->type->ndim, row->slice->type->dims, row->piece->target))
RFS_CELL(cell_offset, struct ranged, rfs_table_u64(table, row->range->offset))
RFS_CELL(cell_run, struct ranged, rfs_table_u64(table, row->range->run))
RFS_CELL(cell_times, struct ranged, add_loops(table, row->range, false, " * "))
RFS_CELL(cell_every, struct ranged, add_loops(table, row->range, true, ", "))
RFS_CELL(cell_bytes, struct ranged, rfs_table_u64(table, range_bytes(row->range)))

/* Prints the other ranks that hold a piece's slice in that way. */
static void print_others(const struct explain *explain, const struct rfs_explained *slice,
                         size_t piece, enum rfs_explained_holding holding, const char *before,
                         const char *after)
{
    size_t n;
    RFS_FREE uint32_t *ranks = other_holders(explain, slice, piece, holding, &n);
    RFS_FREE char *text = rfs_ranks_text(ranks, n);

    if (n > 0)
        printf("%s%s %s%s", before, n > 1 ? "ranks" : "rank", text, after);
}

/*
 * Prints the file of each source rank that gives something, who else has it, and why it was chosen.
 */
static void print_providers(const struct explain *explain, const struct rfs_explained *slice)
{
    RFS_VEC(uint32_t) seen = {0};

    for (size_t i = 0; i < slice->n; i++) {
        struct rfs_explained_piece piece;
        size_t k = 0;

        rfs_explained_piece(&explain->view, slice, i, &piece);
        while (k < seen.n && seen.data[k] != piece.rank)
            k++;
        if (k < seen.n)
            continue;
        if (!RFS_PUSH(&seen, piece.rank))
            rfs_printed_memory(NULL);
        printf("%s %u  %s", explain->view.words->source, piece.rank, piece.path);
        print_others(explain, slice, i, RFS_EXPLAINED_SAME, "; the same is on ", "");
        print_others(explain, slice, i, RFS_EXPLAINED_LEFT_OUT, "; left out by ", "");
        print_others(explain, slice, i, RFS_EXPLAINED_LOST, "; ", " has no file");
        if (piece.first != piece.rank)
            printf("; instead of rank %u", piece.first);
        putchar('\n');
    }
    free(seen.data);
}

/* Prints "2 pieces from 2 source ranks, 36864 bytes". */
static void print_sum(const struct explain *explain, size_t pieces,
                      const struct rfs_explained_sources *sources)
{
    size_t n;

    free(ranks_of(sources, &n)); /* n is needed, the list is not */
    printf("\n%zu piece%s from %zu source %s, %" PRIu64 " bytes%s%s\n", pieces,
           pieces == 1 ? "" : "s", n,
           n == 1 ? explain->view.words->source : explain->view.words->sources, sources->bytes,
           explain->view.offsets ? "; " : "", explain->view.offsets ?: "");
}

static void print_slice(struct report *report, const struct rfs_explained *slice)
{
    const struct explain *explain = report->explain;
    const struct rfs_column columns[] = {
        {explain->view.words->from, RFS_CELL_NUMBER, cell_from},
        {"of the tensor", RFS_CELL_TEXT, cell_whole},
        {"of its slice", RFS_CELL_TEXT, cell_source},
        {"to", RFS_CELL_TEXT, cell_target},
        {"offset", RFS_CELL_NUMBER, cell_offset},
        {"run", RFS_CELL_NUMBER, cell_run},
        {"times", RFS_CELL_NUMBER, cell_times},
        {"every", RFS_CELL_NUMBER, cell_every},
        {"bytes", RFS_CELL_NUMBER, cell_bytes},
    };
    struct rfs_table table = RFS_TABLE(columns, false);

    print_head(explain, slice);
    print_shown(explain, slice);
    for (size_t i = 0; i < slice->n; i++) {
        struct rfs_explained_piece piece;
        struct rfs_explained_ranges ranges;
        if (!rfs_explained_piece_ranges(&explain->view, slice, i, &ranges))
            rfs_printed_memory(NULL);
        rfs_explained_piece(&explain->view, slice, i, &piece);
        for (size_t k = 0; k < ranges.n; k++) {
            const struct ranged row = {slice, k == 0 ? &piece : NULL, &ranges.data[k]};
            rfs_table_row(&table, &row);
        }
        free(ranges.data);
    }
    if (slice->n == 0) {
        puts("\nIt has no bytes: nothing is read for it.");
        rfs_table_free(&table);
        return;
    }
    putchar('\n');
    end_table(&table);
    putchar('\n');
    print_providers(explain, slice);
    print_sum(explain, slice->n, &report->totals.ranks[slice->position].sources);
}

/* ---- tables of ranks ------------------------------------------------------------------------- */

/* A row of the tables of ranks: a destination rank, and of one parameter its slice. */
struct ranked {
    uint32_t rank;
    const struct rfs_explained_rank *sums;
    const struct rfs_explained *slice;
};

static void cell_slice(struct rfs_table *table, const void *of)
{
    const struct rfs_explained *slice = ((const struct ranked *)of)->slice;

    if (slice->boxes.n == 1)
        add_box(table, slice->type->ndim, slice->whole, &slice->boxes.data[0]);
    else
        rfs_table_text(table, slice->boxes.n > 0 ? "in fields" : "whole");
}

RFS_CELL(cell_rank, struct ranked, rfs_table_u64(table, row->rank))
RFS_CELL(cell_shape, struct ranked,
         rfs_table_dims(table, row->slice->shown->ndim, row->slice->shown->dims))
RFS_CELL(cell_slice_bytes, struct ranked, rfs_table_u64(table, row->slice->shown->bytes))
RFS_CELL(cell_source_ranks, struct ranked, add_ranks(table, &row->sums->sources))
RFS_CELL(cell_source_bytes, struct ranked, rfs_table_u64(table, row->sums->sources.bytes))

static void list_slice(struct report *report, const struct rfs_explained *slice)
{
    const struct ranked row = {slice->rank, &report->totals.ranks[slice->position], slice};

    if (report->n == 0)
        print_head(report->explain, slice);
    rfs_table_row(&report->table, &row);
}

/* Prints the bytes that the ranks take together, each source byte once. */
static void print_together(const struct explain *explain, const struct rfs_explained_totals *totals,
                           size_t ranks)
{
    const struct rfs_explained_words *words = explain->view.words;
    const uint64_t once = totals->together.bytes;
    uint64_t all = 0;
    char size[RFS_TEXT_AMOUNT];
    size_t n;

    free(ranks_of(&totals->together, &n)); /* n is needed, the list is not */
    for (size_t i = 0; i < totals->n_ranks; i++)
        all += totals->ranks[i].sources.bytes;
    printf("\n%zu %s of the destination together: %" PRIu64 " bytes", ranks,
           ranks == 1 ? words->one : words->many, once);
    if (once >= 1024)
        printf(" (%s)", rfs_text_amount(once, size));
    printf(" from %zu source %s, each byte counted once", n,
           n == 1 ? words->source : words->sources);
    if (all != once)
        printf("; %" PRIu64 " if each %s reads its own", all, words->one);
    putchar('\n');
}

static int print_slices(struct report *report, struct rfs_error *err)
{
    struct explain *explain = report->explain;
    const struct rfs_column columns[] = {
        {explain->view.words->one, RFS_CELL_NUMBER, cell_rank},
        {"slice", RFS_CELL_TEXT, cell_slice},
        {"shape", RFS_CELL_JSON, cell_shape},
        {"bytes", RFS_CELL_NUMBER, cell_slice_bytes},
        {explain->view.words->from_many, RFS_CELL_TEXT, cell_source_ranks},
        {"source bytes", RFS_CELL_NUMBER, cell_source_bytes},
    };

    RFS_TABLE_DESCRIBE(&report->table, columns);
    const int rc = print_each(report, list_slice, err);
    if (rc)
        return rc;
    putchar('\n');
    rfs_table_print(&report->table, stdout);
    print_together(explain, &report->totals, report->n);
    return 0;
}

/* ---- all parameters -------------------------------------------------------------------------- */

RFS_CELL(cell_file_rank, struct rfs_explained_source, rfs_table_u64(table, row->rank))
RFS_CELL(cell_file, struct rfs_explained_source, rfs_table_text(table, row->path))
RFS_CELL(cell_file_bytes, struct rfs_explained_source, rfs_table_u64(table, row->bytes))

static void print_files(const struct explain *explain, const struct rfs_explained_sources *sources)
{
    const struct rfs_column columns[] = {
        {explain->view.words->from, RFS_CELL_NUMBER, cell_file_rank},
        {"file", RFS_CELL_TEXT, cell_file},
        {"bytes", RFS_CELL_NUMBER, cell_file_bytes},
    };
    struct rfs_table table = RFS_TABLE(columns, false);

    for (size_t i = 0; i < sources->n; i++)
        rfs_table_row(&table, &sources->data[i]);
    putchar('\n');
    end_table(&table);
}

RFS_CELL(cell_parameters, struct ranked, rfs_table_u64(table, row->sums->parameters))
RFS_CELL(cell_shown_bytes, struct ranked, rfs_table_u64(table, row->sums->shown_bytes))
RFS_CELL(cell_files, struct ranked, rfs_table_u64(table, row->sums->files))

static int print_ranks(struct report *report, struct rfs_error *err)
{
    struct explain *explain = report->explain;
    struct rfs_table *table = &report->table;
    const struct rfs_column columns[] = {
        {explain->view.words->one, RFS_CELL_NUMBER, cell_rank},
        {"parameters", RFS_CELL_NUMBER, cell_parameters},
        {"bytes", RFS_CELL_NUMBER, cell_shown_bytes},
        {"files", RFS_CELL_NUMBER, cell_files},
        {explain->view.words->from_many, RFS_CELL_TEXT, cell_source_ranks},
        {"source bytes", RFS_CELL_NUMBER, cell_source_bytes},
    };
    const int rc = rfs_explained_all(&explain->view, &report->totals, err);

    if (rc)
        return rc;
    RFS_TABLE_DESCRIBE(table, columns);
    for (size_t i = 0; i < explain->view.n_selected; i++) {
        const struct ranked row = {explain->view.selected[i], &report->totals.ranks[i], NULL};
        rfs_table_row(table, &row);
    }
    rfs_table_print(table, stdout);
    /* The files of one rank, or of a node. */
    if (explain->ranks.n > 0)
        print_files(explain, &report->totals.together);
    print_together(explain, &report->totals, explain->view.n_selected);
    return 0;
}

/* ---- a slice that conversion rules make ------------------------------------------------------ */

static void print_made_piece(const struct rfs_explained_piece *piece)
{
    char size[RFS_TEXT_AMOUNT];

    fputs("    ", stdout);
    rfs_explain_put_place(stdout, piece, RFS_EXPLAINED_MADE);
    if (piece->zeros) {
        puts(" is zeros");
        return;
    }
    printf(" is %s ", piece->name);
    rfs_explain_put_place(stdout, piece, RFS_EXPLAINED_SOURCE);
    if (piece->plus != 0)
        printf(" %c %d", piece->plus > 0 ? '+' : '-', abs(piece->plus));
    printf(" in %s, %s\n", piece->path, rfs_text_amount(piece->bytes, size));
}

static void print_made_slice(struct report *report, const struct rfs_explained *slice)
{
    const struct explain *explain = report->explain;

    printf("rank_%" PRIu32 ": %s ", slice->rank, slice->shown_name);
    rfs_show_dims(stdout, slice->shown->ndim, slice->shown->dims);
    printf(" %s", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    print_boxes(slice, ": ", " and ");
    if (slice->rule_file)
        printf("\n  made by %s: line %" PRIu32 "; places are in whole tensors\n", slice->rule_file,
               slice->rule_line);
    else
        puts("\n  kept as it is; places are in whole tensors");
    for (size_t i = 0; i < slice->n; i++) {
        struct rfs_explained_piece piece;
        rfs_explained_piece(&explain->view, slice, i, &piece);
        print_made_piece(&piece);
    }
}

static int print_text(struct report *report, struct rfs_error *err)
{
    struct explain *explain = report->explain;

    if (!explain->param)
        return print_ranks(report, err);
    if (explain->view.by_rules)
        return print_each(report, print_made_slice, err);
    return explain->one ? print_each(report, print_slice, err) : print_slices(report, err);
}

/* ---- JSON; reshard(1) has the keys ----------------------------------------------------------- */

/* Writes [[begin, end], ...]. */
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
    put_axes(json, "device_matrix", side->layout, rfs_show_matrix);
    put_axes(json, "tensor_map", side->layout, rfs_show_map);
    rfs_json_put_u64(json, "optimizer_shard", side->layout->opt_size);
    if (side->grid && side->grid->ndim > 0)
        rfs_json_put_u32s(json, "cuts", RFS_JSON_TIGHT, side->grid->pieces, side->grid->ndim);
    if (side->grid)
        rfs_json_put_u64(json, "replicas", side->grid->replicas);
    rfs_json_end(json);
}

static void put_head(struct rfs_json_write *json, const struct rfs_explained_view *view,
                     const struct rfs_explained *slice)
{
    rfs_json_put_text(json, "parameter", slice->name);
    rfs_json_put_text(json, "shown_as", slice->shown_name);
    rfs_json_put_text(json, "dtype", rfs_dtype_name((enum rfs_dtype)slice->type->dtype));
    rfs_json_put_text(json, "shown_dtype", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, slice->dims, slice->n_dims);
    rfs_json_put_bool(json, "copied", slice->copied && !slice->made);
    if (view->offsets)
        rfs_json_put_text(json, "offsets", view->offsets);
    if (slice->rule_file) {
        rfs_json_object(json, "rule", RFS_JSON_TIGHT);
        rfs_json_put_text(json, "file", slice->rule_file);
        rfs_json_put_u64(json, "line", slice->rule_line);
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

static void put_ranges(struct rfs_json_write *json, const struct rfs_explained_view *view,
                       const struct rfs_explained *slice, size_t piece)
{
    struct rfs_explained_ranges ranges;

    if (!rfs_explained_piece_ranges(view, slice, piece, &ranges))
        rfs_printed_memory(NULL);
    rfs_json_array(json, "ranges", RFS_JSON_TIGHT);
    for (size_t i = 0; i < ranges.n; i++) {
        const struct rfs_explained_range *range = &ranges.data[i];
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

/* Writes the ranks that have something of the piece's cell, in three lists. */
static void put_others(struct rfs_json_write *json, const struct explain *explain,
                       const struct rfs_explained *slice, size_t piece)
{
    static const char *const keys[] = {[RFS_EXPLAINED_SAME] = "same",
                                       [RFS_EXPLAINED_LEFT_OUT] = "left_out",
                                       [RFS_EXPLAINED_LOST] = "lost"};

    for (int i = RFS_EXPLAINED_SAME; i <= RFS_EXPLAINED_LOST; i++) {
        size_t n;
        RFS_FREE uint32_t *ranks =
            other_holders(explain, slice, piece, (enum rfs_explained_holding)i, &n);
        rfs_json_put_u32s(json, keys[i], RFS_JSON_TIGHT, ranks, n);
    }
}

/* Writes the steps of a piece from its beginning, along an axis of either tensor. */
static void put_steps(struct rfs_json_write *json, const struct rfs_explained_piece *piece)
{
    rfs_json_array(json, "steps", RFS_JSON_TIGHT);
    for (uint32_t k = 0; k < piece->n; k++) {
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(json, "count", piece->steps[k].count);
        rfs_json_put_u64(json, "axis", piece->steps[k].axis[RFS_EXPLAINED_MADE]);
        rfs_json_put_u64(json, "stride", piece->steps[k].step[RFS_EXPLAINED_MADE]);
        rfs_json_put_u64(json, "source_axis", piece->steps[k].axis[RFS_EXPLAINED_SOURCE]);
        rfs_json_put_u64(json, "source_stride", piece->steps[k].step[RFS_EXPLAINED_SOURCE]);
        rfs_json_end(json);
    }
    rfs_json_end(json);
}

static void put_begin(struct rfs_json_write *json, const char *key,
                      const struct rfs_explained_piece *piece, int side)
{
    rfs_json_put_u64s(json, key, RFS_JSON_TIGHT, piece->side[side].begin, piece->side[side].ndim);
}

/* Writes the places that rules give. */
static void put_link(struct rfs_json_write *json, const struct rfs_explained_piece *piece)
{
    rfs_json_put_text(json, "source", piece->name);
    rfs_json_put_u64s(json, "source_shape", RFS_JSON_TIGHT, piece->side[RFS_EXPLAINED_SOURCE].dims,
                      piece->side[RFS_EXPLAINED_SOURCE].ndim);
    put_begin(json, "at", piece, RFS_EXPLAINED_MADE);
    put_begin(json, "source_at", piece, RFS_EXPLAINED_SOURCE);
    put_steps(json, piece);
    if (piece->plus != 0)
        rfs_json_print(json, "plus", "%d", piece->plus);
    if (piece->zeros)
        rfs_json_put_bool(json, "zeros", true);
}

static void put_piece(struct rfs_json_write *json, const struct explain *explain,
                      const struct rfs_explained *slice, size_t i)
{
    struct rfs_explained_piece piece;

    rfs_explained_piece(&explain->view, slice, i, &piece);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "rank", piece.rank);
    if (piece.whole && piece.first == piece.rank)
        rfs_json_put_null(json, "instead_of");
    else if (piece.whole)
        rfs_json_put_u64(json, "instead_of", piece.first);
    rfs_json_put_text(json, "file", piece.path);
    if (piece.whole) {
        put_box(json, "box", slice->type->ndim, piece.whole);
        put_box(json, "source_box", slice->type->ndim, piece.source);
        put_box(json, "destination_box", slice->type->ndim, piece.target);
    } else {
        put_link(json, &piece);
    }
    rfs_json_put_u64(json, "bytes", piece.bytes);
    put_ranges(json, &explain->view, slice, i); /* steps tell the order of the elements */
    if (explain->one && piece.whole)
        put_others(json, explain, slice, i);
    rfs_json_end(json);
}

static void put_slice(struct report *report, const struct rfs_explained *slice)
{
    struct rfs_json_write *json = &report->json;

    if (report->n == 0)
        put_head(json, &report->explain->view, slice);
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
    for (size_t i = 0; i < slice->n; i++) {
        rfs_json_break(json);
        put_piece(json, report->explain, slice, i);
    }
    rfs_json_end(json);
    rfs_json_end(json);
}

static void put_sources(struct report *report, const struct rfs_explained_sources *sources)
{
    struct rfs_json_write *json = &report->json;

    rfs_json_array(json, "sources", RFS_JSON_TIGHT);
    for (size_t i = 0; i < sources->n; i++) {
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(json, "rank", sources->data[i].rank);
        rfs_json_put_text(json, "file", sources->data[i].path);
        rfs_json_put_u64(json, "bytes", sources->data[i].bytes);
        rfs_json_end(json);
    }
    rfs_json_end(json);
}

static void put_ranks(struct report *report)
{
    const struct explain *explain = report->explain;
    struct rfs_json_write *json = &report->json;

    rfs_json_array(json, "ranks", RFS_JSON_TIGHT);
    for (size_t i = 0; i < explain->view.n_selected; i++) {
        const struct rfs_explained_rank *rank = &report->totals.ranks[i];
        rfs_json_break(json);
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(json, "rank", explain->view.selected[i]);
        rfs_json_put_u64(json, "parameters", rank->parameters);
        rfs_json_put_u64(json, "bytes", rank->shown_bytes);
        rfs_json_put_u64(json, "files", rank->files);
        rfs_json_put_u64(json, "source_bytes", rank->sources.bytes);
        put_sources(report, &rank->sources);
        rfs_json_end(json);
    }
}

static int print_json(struct report *report, struct rfs_error *err)
{
    struct explain *explain = report->explain;
    struct rfs_json_write *json = &report->json;

    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "source", explain->view.path);
    const int rc = explain->param ? print_each(report, put_slice, err)
                                  : rfs_explained_all(&explain->view, &report->totals, err);
    if (rc)
        return rc;
    if (!explain->param)
        put_ranks(report);
    rfs_json_end(json);
    rfs_json_break(json);
    rfs_json_object(json, "together", RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "bytes", report->totals.together.bytes);
    put_sources(report, &report->totals.together);
    rfs_json_finish(json);
    return 0;
}

static int print(struct explain *explain, struct rfs_error *err)
{
    struct report report = {.explain = explain, .json = {.file = stdout}};
    const int rc = (explain->json ? print_json : print_text)(&report, err);

    rfs_table_free(&report.table);
    rfs_explained_totals_free(&report.totals);
    return rc;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("SRC", struct explain, source, "one SRC"),
    RFS_ARG_DESTINATION(struct explain, options, "the strategies of SRC and of the destination",
                        "any option of the view, see reshardfs(1)"),
    RFS_ARG_VIEW_NAMED("format", "FORMAT", "format", struct explain, options,
                       "of the destination: ckpt, safetensors, pt or gguf"),
    RFS_ARG_TEXT("param", "NAME", struct explain, param,
                 "one parameter; without it, bytes by destination rank"),
    RFS_ARG_NUMBER("rank", "N", 0, UINT32_MAX - 1, "a rank of the destination, from 0 up",
                   struct explain, rank, "one destination rank, with every byte range"),
    RFS_ARG_RANKS(
        "ranks", "LIST", "ranks and ranges of them, such as --ranks 0-63,70", struct explain, ranks,
        "some ranks, such as 0-7 on one node; bytes that several\nof them take count once"),
    RFS_ARG_TEXT("svg", "FILE", struct explain, svg,
                 "also draws the parameter; - for the standard output"),
    RFS_ARG_FLAG("json", struct explain, json, "for scripts"),
    {0},
};

static int check(struct explain *explain, struct rfs_error *err)
{
    if (!explain->source || !*explain->source)
        return rfs_fail_usage(err, "reshard explain SRC -s FILE -d FILE --param NAME",
                              "explain takes a source");
    if (explain->svg && !explain->param)
        return rfs_fail_usage(err, "--param NAME", "--svg draws one parameter");
    explain->one = explain->rank >= 0;
    if (!explain->one)
        return 0;
    const struct rfs_ranks_range one = {(uint32_t)explain->rank, (uint32_t)explain->rank};
    explain->ranks.n = 0;
    return RFS_PUSH(&explain->ranks, one) ? 0 : rfs_fail_memory(err);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int select_ranks(struct explain *explain, struct rfs_error *err)
{
    struct rfs_explained_view *view = &explain->view;
    const int rc = rfs_ranks_check(&explain->ranks, view->n_ranks, "", err);

    if (rc)
        return rc;
    explain->selected = calloc(view->n_ranks, sizeof *explain->selected);
    if (!explain->selected)
        return rfs_fail_memory(err);
    for (uint32_t rank = 0; rank < view->n_ranks; rank++)
        if (rfs_ranks_has(&explain->ranks, rank))
            explain->selected[view->n_selected++] = rank;
    view->selected = explain->selected;
    view->param = explain->param;
    view->some = explain->ranks.n > 0;
    view->one = explain->one;
    view->progress = &explain->progress;
    return 0;
}

static int explain_all(struct explain *explain, struct rfs_error *err)
{
    int rc =
        rfs_tool_open(explain->source, &explain->options, NULL, &explain->opened, err)
            ?: rfs_explained_open(explain->opened, &explain->view, err)
            ?: select_ranks(explain, err)
            ?: rfs_explained_plan(&explain->view, err);

    if (rc == 0 && explain->svg)
        rc = rfs_explain_picture(&explain->view, explain->svg, err);
    if (rc == 0 && (explain->json || !explain->svg || strcmp(explain->svg, "-") != 0))
        rc = print(explain, err);
    return rc;
}

static int run(void *request, struct rfs_error *err)
{
    struct explain *explain = request;
    int rc = check(explain, err);

    if (rc)
        return rc;
    rfs_progress_init(&explain->progress, false);
    rc = explain_all(explain, err);
    rfs_progress_destroy(&explain->progress);
    rfs_explained_close(&explain->view);
    reshard_close(explain->opened);
    free(explain->selected);
    return rc;
}

static const struct explain defaults = {.rank = -1};

const struct rfs_command rfs_command_explain = {
    .name = "explain",
    .usage = "reshard explain SRC -s FILE -d FILE --param NAME [--rank N] [--svg FILE]\n"
             "reshard explain SRC -s FILE -d FILE [--ranks LIST]\n"
             "reshard explain PARTS -o nshards=N [--param NAME] [--rank N]\n",
    .summary = "shows the source ranks, files and bytes of a destination slice",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .run = run,
};
