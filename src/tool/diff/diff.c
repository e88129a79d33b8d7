/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard diff`: two checkpoints, tensor by tensor. */
#include "base/differ.h"
#include "base/progress.h"
#include "base/settings.h"
#include "survey/comparison.h"
#include "survey/numbers.h"
#include "survey/sweep.h"
#include "tool/common/command.h"
#include "tool/common/show.h"
#include "tool/common/source.h"

#include <math.h>

/* ---- pairs ----------------------------------------------------------------------------------- */

enum depth { NAMES, HEADERS, VALUES };

struct request {
    const char *path[2];
    struct rfs_settings view[2]; /* options of A's and B's view */
    struct rfs_globs globs;
    struct rfs_tolerance tolerance;
    enum depth depth;
    bool any_dtype; /* accept another element type */
    bool all;       /* show also equal tensors */
    bool json;
    unsigned threads;
};

/* A name, and each side's tensor. */
struct pair {
    struct rfs_tensor of[2]; /* A's and B's; either may be none */
    bool other_shape, other_dtype;
    bool read;                   /* values were compared */
    uint64_t other_bytes;        /* number of pieces of up to 4 MiB whose bytes differ */
    struct rfs_comparison found; /* differences of tensors with numbers */
};

struct diff {
    struct request *request;
    struct rfs_whole whole[2];
    /* side that is hfai's parts: only their models are compared; NULL: all is compared */
    const char *parts;
    RFS_VEC(struct pair) pairs; /* pairs in A's order, then those that only B has */
    struct rfs_progress progress;
};

/* Returns the first side that has the tensor. */
static int first_side(const struct pair *pair)
{
    return pair->of[0].list ? 0 : 1;
}

static const char *pair_name(const struct pair *pair)
{
    return rfs_tensor_name(pair->of[first_side(pair)]);
}

static const struct rfs_type *type_of(const struct pair *pair, int side)
{
    return rfs_tensor_type(pair->of[side]);
}

static bool has_both(const struct pair *pair)
{
    return pair->of[0].list && pair->of[1].list;
}

static bool same_shape(const struct rfs_type *a, const struct rfs_type *b)
{
    return a->ndim == b->ndim && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static bool same_dtype(const struct rfs_type *a, const struct rfs_type *b)
{
    return a->dtype == b->dtype && a->kind == b->kind;
}

static int pair_up(struct diff *diff, struct rfs_error *err)
{
    const struct rfs_tensors *a = &diff->whole[0].list;
    const struct rfs_tensors *b = &diff->whole[1].list;
    const uint32_t n = (uint32_t)rfs_tensors_count(a);

    for (uint32_t i = 0; i < n + rfs_tensors_count(b); i++) {
        struct pair pair = {0};
        if (i < n) {
            pair.of[0] = (struct rfs_tensor){a, i};
            pair.of[1] = rfs_tensors_find(b, rfs_tensors_name(a, i));
        } else {
            pair.of[1] = (struct rfs_tensor){b, i - n};
            if (rfs_tensors_find(a, rfs_tensors_name(b, i - n)).list)
                continue;
        }
        if (has_both(&pair)) {
            pair.other_shape = !same_shape(type_of(&pair, 0), type_of(&pair, 1));
            pair.other_dtype = !same_dtype(type_of(&pair, 0), type_of(&pair, 1));
        }
        if (!RFS_PUSH(&diff->pairs, pair))
            return rfs_fail_memory(err);
    }
    return 0;
}

/* Says whether the numbers of a pair can be compared one by one. */
static bool have_numbers(const struct pair *pair)
{
    const uint32_t each = rfs_numbers_each(type_of(pair, 0));

    return each > 0 && each == rfs_numbers_each(type_of(pair, 1));
}

static bool is_readable(const struct request *request, const struct pair *pair)
{
    if (request->depth < VALUES || !has_both(pair) || pair->other_shape)
        return false;
    return have_numbers(pair) ||
           (!pair->other_dtype && type_of(pair, 0)->bytes == type_of(pair, 1)->bytes);
}

/* Says whether the two are the same, as far as the request asks. */
static bool is_same(const struct request *request, const struct pair *pair)
{
    if (!has_both(pair))
        return false;
    if (request->depth == NAMES)
        return true;
    if (pair->other_shape || (pair->other_dtype && !request->any_dtype))
        return false;
    if (request->depth == HEADERS)
        return true;
    if (!pair->read)
        return false;
    return have_numbers(pair) ? pair->found.beyond == 0 : pair->other_bytes == 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The result of a piece. */
struct found {
    struct rfs_comparison numbers;
    bool other_bytes;
};

static struct rfs_tensor tensor_of(void *ctx, size_t item, unsigned side)
{
    const struct diff *diff = ctx;

    return diff->pairs.data[item].of[side];
}

/* Returns the bytes of a unit: of a number, or 1 where there are none. */
static uint64_t unit_bytes(void *ctx, size_t item, unsigned side)
{
    const struct diff *diff = ctx;
    const struct pair *pair = &diff->pairs.data[item];

    return pair->read && have_numbers(pair) ? rfs_numbers_bytes(rfs_tensor_type(pair->of[side]))
                                            : 1;
}

static uint64_t units(void *ctx, size_t item)
{
    const struct diff *diff = ctx;
    const struct pair *pair = &diff->pairs.data[item];

    return pair->read ? type_of(pair, 0)->bytes / unit_bytes(ctx, item, 0) : 0;
}

static int compare(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                   struct rfs_error *err)
{
    const struct diff *diff = ctx;
    const struct pair *pair = &diff->pairs.data[piece->item];
    const size_t bytes = (size_t)(piece->n * unit_bytes(ctx, piece->item, 0));
    struct found *found = worker->own;

    (void)err;
    if (piece->n == 0)
        return 0;
    found->other_bytes =
        pair->other_dtype || rfs_differ_at(worker->bytes[0], worker->bytes[1], 0, bytes) < bytes;
    if (have_numbers(pair))
        rfs_comparison_add(&found->numbers, &diff->request->tolerance, type_of(pair, 0),
                           worker->bytes[0], type_of(pair, 1), worker->bytes[1], (size_t)piece->n);
    return 0;
}

static int merge(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                 struct rfs_error *err)
{
    struct diff *diff = ctx;
    struct pair *pair = &diff->pairs.data[piece->item];
    const struct found *found = worker->own;

    (void)err;
    rfs_comparison_merge(&pair->found, &found->numbers);
    pair->other_bytes += found->other_bytes;
    return 0;
}

static int read_pairs(struct diff *diff, struct rfs_error *err)
{
    const struct rfs_sweep sweep = {
        .ctx = diff,
        .n = diff->pairs.n,
        .sides = 2,
        .own_bytes = sizeof(struct found),
        .tensor = tensor_of,
        .units = units,
        .unit = unit_bytes,
        .work = compare,
        .fold = merge,
        .progress = &diff->progress,
        .phase = "comparing",
    };

    for (size_t i = 0; i < diff->pairs.n; i++)
        diff->pairs.data[i].read = is_readable(diff->request, &diff->pairs.data[i]);
    if (diff->request->depth < VALUES)
        return 0;
    rfs_progress_init(&diff->progress, false);
    const int rc = rfs_sweep_run(&sweep, diff->request->threads, err);
    rfs_progress_destroy(&diff->progress);
    return rc;
}

/* ---- showing them ---------------------------------------------------------------------------- */

/* A row of the table. */
struct compared {
    const struct pair *pair;
    const struct rfs_comparison *found;
    bool same;
    bool numbers; /* FOUND has the result */
};

struct state {
    const char *sign, *word;
};

static const struct state *state_of(const struct compared *row)
{
    static const struct state states[] = {
        {"-", "only_a"}, {"+", "only_b"}, {"=", "same"}, {"!", "different"}};
    const struct pair *pair = row->pair;

    return &states[!pair->of[1].list ? 0 : !pair->of[0].list ? 1 : row->same ? 2 : 3];
}

/* Adds, for people, what both sides have: one text, or "A → B". */
static void add_both(struct rfs_table *table, bool other, const char *a, const char *b)
{
    rfs_table_add(table, "%s%s%s", a, other ? " → " : "", other ? b : "");
}

static void put_dtypes(struct rfs_table *table, const void *of)
{
    const struct pair *pair = ((const struct compared *)of)->pair;

    add_both(table, pair->other_dtype, rfs_whole_dtype(type_of(pair, first_side(pair))),
             pair->other_dtype ? rfs_whole_dtype(type_of(pair, 1)) : "");
}

static void put_shapes(struct rfs_table *table, const void *of)
{
    const struct pair *pair = ((const struct compared *)of)->pair;
    const struct rfs_type *a = type_of(pair, first_side(pair));
    const struct rfs_type *b = pair->other_shape ? type_of(pair, 1) : a;
    char shape[2][RFS_SHAPE_TEXT];

    add_both(table, pair->other_shape, rfs_text_dims(shape[0], sizeof shape[0], a->ndim, a->dims),
             rfs_text_dims(shape[1], sizeof shape[1], b->ndim, b->dims));
}

static void add_shape(struct rfs_table *table, const struct rfs_type *type)
{
    rfs_table_dims(table, type->ndim, type->dims);
}

/* Adds, for people, one count for both sides, or "A → B". */
static void add_counts(struct rfs_table *table, uint64_t a, uint64_t b)
{
    if (a == b)
        rfs_table_u64(table, a);
    else
        rfs_table_add(table, "%" PRIu64 " → %" PRIu64, a, b);
}

static void put_cosine(struct rfs_table *table, const void *of)
{
    const struct compared *row = of;
    const double cosine = row->numbers ? rfs_comparison_cosine(row->found) : NAN;

    if (isnan(cosine))
        rfs_table_none(table, row->numbers ? "-" : "");
    else
        rfs_table_real(table, 9, cosine);
}

RFS_CELL(put_sign, struct compared, rfs_table_text(table, state_of(row)->sign))
RFS_CELL(put_name, struct compared, rfs_table_text(table, pair_name(row->pair)))
RFS_CELL(put_state, struct compared, rfs_table_text(table, state_of(row)->word))
RFS_CELL(put_bytes_equal, struct compared,
         row->pair->read ? rfs_table_bool(table, row->pair->other_bytes == 0)
                         : rfs_table_none(table, ""))
RFS_CELL(put_differ, struct compared,
         row->numbers ? rfs_table_u64(table, row->found->numbers - row->found->same)
                      : rfs_table_text(table, row->pair->other_bytes > 0 ? "bytes" : ""))

/* Define the cell of a side that has the tensor, and of numbers that were compared. */
#define CELL_OF_SIDE(name, side, call)                                                             \
    RFS_CELL(name, struct compared, row->pair->of[side].list ? (call) : rfs_table_none(table, ""))
#define CELL_OF_NUMBERS(name, call)                                                                \
    RFS_CELL(name, struct compared, row->numbers ? (call) : rfs_table_none(table, ""))
CELL_OF_SIDE(put_dtype_a, 0, rfs_table_text(table, rfs_whole_dtype(type_of(row->pair, 0))))
CELL_OF_SIDE(put_dtype_b, 1, rfs_table_text(table, rfs_whole_dtype(type_of(row->pair, 1))))
CELL_OF_SIDE(put_shape_a, 0, add_shape(table, type_of(row->pair, 0)))
CELL_OF_SIDE(put_shape_b, 1, add_shape(table, type_of(row->pair, 1)))
CELL_OF_NUMBERS(put_count, rfs_table_u64(table, row->found->numbers))
CELL_OF_NUMBERS(put_equal, rfs_table_u64(table, row->found->same))
CELL_OF_NUMBERS(put_beyond, rfs_table_u64(table, row->found->beyond))
CELL_OF_NUMBERS(put_max_abs, rfs_table_real(table, 3, rfs_comparison_most(row->found)))
CELL_OF_NUMBERS(put_max_rel, rfs_table_real(table, 3, rfs_comparison_most_relative(row->found)))
CELL_OF_NUMBERS(put_nan, add_counts(table, row->found->nan_a, row->found->nan_b))
CELL_OF_NUMBERS(put_nan_a, rfs_table_u64(table, row->found->nan_a))
CELL_OF_NUMBERS(put_nan_b, rfs_table_u64(table, row->found->nan_b))
CELL_OF_NUMBERS(put_inf, add_counts(table, row->found->inf_a, row->found->inf_b))
CELL_OF_NUMBERS(put_inf_a, rfs_table_u64(table, row->found->inf_a))
CELL_OF_NUMBERS(put_inf_b, rfs_table_u64(table, row->found->inf_b))

static const struct rfs_column columns[] = {
    {"", RFS_CELL_TEXT | RFS_FOR_PEOPLE, put_sign},
    {"name", RFS_CELL_TEXT, put_name},
    {"state", RFS_CELL_TEXT | RFS_FOR_SCRIPTS, put_state},
    {"dtype", RFS_CELL_TEXT | RFS_FOR_PEOPLE, put_dtypes},
    {"dtype_a", RFS_CELL_TEXT | RFS_FOR_SCRIPTS, put_dtype_a},
    {"dtype_b", RFS_CELL_TEXT | RFS_FOR_SCRIPTS, put_dtype_b},
    {"shape", RFS_CELL_TEXT | RFS_FOR_PEOPLE, put_shapes},
    {"shape_a", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_shape_a},
    {"shape_b", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_shape_b},
    {"bytes_equal", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_bytes_equal},
    {"differ", RFS_CELL_NUMBER | RFS_FOR_PEOPLE, put_differ},
    {"count", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_count},
    {"equal", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_equal},
    {"beyond", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_beyond},
    {"max abs", RFS_CELL_NUMBER, put_max_abs},
    {"max rel", RFS_CELL_NUMBER, put_max_rel},
    {"NaN", RFS_CELL_NUMBER | RFS_FOR_PEOPLE, put_nan},
    {"nan_a", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_nan_a},
    {"nan_b", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_nan_b},
    {"inf", RFS_CELL_NUMBER | RFS_FOR_PEOPLE, put_inf},
    {"inf_a", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_inf_a},
    {"inf_b", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_inf_b},
    {"cosine", RFS_CELL_NUMBER, put_cosine},
};

struct counts {
    size_t same, different, only[2];
};

static void print_summary(const struct diff *diff, const struct counts *counts, bool rows)
{
    if (rows)
        putchar('\n');
    if (diff->parts)
        printf("note: of %s the models' tensors were compared, and nothing else\n", diff->parts);
    if (counts->different + counts->only[0] + counts->only[1] == 0)
        printf("%zu tensor%s the same\n", counts->same, counts->same == 1 ? " is" : "s are");
    else
        printf("the same: %zu, different: %zu, only in %s: %zu, only in %s: %zu\n", counts->same,
               counts->different, diff->request->path[0], counts->only[0], diff->request->path[1],
               counts->only[1]);
}

static void print_json(const struct diff *diff, const struct rfs_table *table, bool same)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "a", diff->request->path[0]);
    rfs_json_put_text(&json, "b", diff->request->path[1]);
    rfs_json_put_bool(&json, "same", same);
    rfs_json_put_bool(&json, "models_only", diff->parts != NULL);
    rfs_table_put_json(table, &json, "rows");
    rfs_json_finish(&json);
}

/* Prints to the standard output. */
static void write_diff(const struct diff *diff)
{
    const bool json = diff->request->json;
    struct rfs_table table = RFS_TABLE(columns, json);
    struct counts counts = {0};

    for (size_t i = 0; i < diff->pairs.n; i++) {
        const struct pair *pair = &diff->pairs.data[i];
        const bool same = is_same(diff->request, pair);
        counts.same += same;
        counts.different += !same && has_both(pair);
        counts.only[0] += !pair->of[1].list;
        counts.only[1] += !pair->of[0].list;
        const struct compared row = {pair, &pair->found, same,
                                     pair->read && pair->found.numbers > 0};
        if (json || !same || diff->request->all)
            rfs_table_row(&table, &row);
    }
    const bool rows = table.cells.n > 0;
    if (json) {
        print_json(diff, &table, counts.same == diff->pairs.n);
    } else {
        if (rows)
            rfs_table_print(&table, stdout);
        print_summary(diff, &counts, rows);
    }
    rfs_table_free(&table);
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Exit codes, the ones of diff(1). */
enum { SAME = 0, DIFFERENT = 1, TROUBLE = 2 };

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("A", struct request, path[0], NULL),
    RFS_ARG_OPERAND("B", struct request, path[1], "reshard diff A B"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct request, view[0], NULL),
    RFS_ARG_VIEW('d', "FILE", "src_strategy", struct request, view[1],
                 "the strategies of A and of B, where they are sharded"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, view[0], "options to read A by"),
    RFS_ARG_VIEW_NAMED("options-b", "OPTION,…", NULL, struct request, view[1], "the same for B"),
    RFS_ARG_REAL("rtol", "R", struct request, tolerance.relative, NULL),
    RFS_ARG_REAL("atol", "A", struct request, tolerance.absolute, "accept |a - b| <= A + R * |b|"),
    RFS_ARG_FLAG("any-dtype", struct request, any_dtype, "accept another element type"),
    RFS_ARG_CHOICE("names-only", struct request, depth, NAMES, "compare only names"),
    RFS_ARG_CHOICE("headers", struct request, depth, HEADERS,
                   "compare only names, shapes and element types"),
    RFS_ARG_TEXTS("name", "GLOB", struct request, globs,
                  "only these tensors; may be given several times"),
    RFS_ARG_FLAG("all", struct request, all, "list equal tensors, too"),
    RFS_ARG_THREADS("threads", struct request, threads),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

static int diff_both(struct diff *diff, bool *same, struct rfs_error *err)
{
    struct request *request = diff->request;
    int rc = rfs_tool_share_store(&request->view[0], &request->view[1]) ? rfs_fail_memory(err) : 0;

    for (int side = 0; rc == 0 && side < 2; side++) {
        rc = rfs_tool_tensors(request->path[side], &request->view[side], &request->globs, NULL,
                              &diff->whole[side], NULL, err);
        rfs_tool_name_strategy(side == 0 ? "-s" : "-d", err);
    }
    if (rc == 0)
        rc = rfs_globs_check(&request->globs, err);
    if (rc == 0)
        diff->parts = rfs_whole_match(&diff->whole[0], &diff->whole[1]);
    if (rc == 0)
        rc = pair_up(diff, err);
    if (rc == 0)
        rc = read_pairs(diff, err);
    if (rc == 0)
        write_diff(diff);
    *same = true;
    for (size_t i = 0; i < diff->pairs.n; i++)
        *same &= is_same(request, &diff->pairs.data[i]);
    return rc;
}

static int run(void *request, struct rfs_error *err)
{
    struct diff diff = {.request = request};
    bool same = false;
    int rc = 0;

    if (!diff.request->path[1])
        return rfs_fail_usage(err, "reshard diff A B", "diff takes two paths");
    rc = diff_both(&diff, &same, err);
    for (int side = 0; side < 2; side++)
        rfs_whole_close(&diff.whole[side]);
    free(diff.pairs.data);
    return rc ? rc : same ? SAME : DIFFERENT;
}

static const struct request defaults = {.depth = VALUES};

const struct rfs_command rfs_command_diff = {
    .name = "diff",
    .usage = "reshard diff A B [-s FILE] [-d FILE] [option…]\n",
    .summary = "compares the values of two checkpoints, however they are sharded",
    .arguments = arguments,
    .after = "\nExit status: 0 the same, 1 different, 2 trouble, as diff(1).\n",
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .trouble = TROUBLE,
    .run = run,
};
