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

static const char *pair_name(const struct pair *pair)
{
    return rfs_tensor_name(pair->of[!pair->of[0].list]);
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

static const struct rfs_column columns[] = {
    {"", RFS_CELL_TEXT | RFS_FOR_PEOPLE},
    {"name", RFS_CELL_TEXT},
    {"state", RFS_CELL_TEXT | RFS_FOR_SCRIPTS},
    {"dtype", RFS_CELL_TEXT | RFS_FOR_PEOPLE},
    {"dtype_a", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"dtype_b", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"shape", RFS_CELL_TEXT | RFS_FOR_PEOPLE},
    {"shape_a", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"shape_b", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"bytes_equal", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"differ", RFS_CELL_NUMBER | RFS_FOR_PEOPLE},
    {"count", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"equal", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"beyond", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"max abs", RFS_CELL_NUMBER},
    {"max rel", RFS_CELL_NUMBER},
    {"NaN", RFS_CELL_NUMBER | RFS_FOR_PEOPLE},
    {"nan_a", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"nan_b", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"inf", RFS_CELL_NUMBER | RFS_FOR_PEOPLE},
    {"inf_a", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"inf_b", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"cosine", RFS_CELL_NUMBER},
};
enum { NUMBERS = 12 }; /* columns from count on */

struct counts {
    size_t same, different, only[2];
};

/* Adds, for people, one value for both sides, or "A → B"; for scripts both, QUOTED as strings. */
static void add_both(struct rfs_table *table, const struct pair *pair, bool other, const char *a,
                     const char *b, bool quoted)
{
    const char *of[2] = {a, b};

    rfs_table_add(table, "%s%s%s", pair->of[0].list ? a : b, other ? " → " : "", other ? b : "");
    for (int side = 0; side < 2; side++)
        if (pair->of[side].list)
            rfs_table_add(table, quoted ? "\"%s\"" : "%s", of[side]);
        else
            rfs_table_none(table, "");
}

static void add_headers(struct rfs_table *table, const struct pair *pair)
{
    const char *dtype[2] = {"", ""};
    char shape[2][RFS_SHAPE_TEXT] = {"", ""};

    for (int side = 0; side < 2; side++) {
        if (!pair->of[side].list)
            continue;
        const struct rfs_type *type = type_of(pair, side);
        dtype[side] = rfs_whole_dtype(type);
        rfs_text_dims(shape[side], sizeof shape[side], type->ndim, type->dims);
    }
    add_both(table, pair, pair->other_dtype, dtype[0], dtype[1], true);
    add_both(table, pair, pair->other_shape, shape[0], shape[1], false);
}

/* Adds, for people, one count for both sides, or "A → B"; for scripts both. */
static void add_counts(struct rfs_table *table, uint64_t a, uint64_t b)
{
    if (a == b)
        rfs_table_u64(table, a);
    else
        rfs_table_add(table, "%" PRIu64 " → %" PRIu64, a, b);
    rfs_table_u64(table, a);
    rfs_table_u64(table, b);
}

static void add_values(struct rfs_table *table, const struct pair *pair)
{
    const struct rfs_comparison *found = &pair->found;
    const bool numbers = pair->read && found->numbers > 0;
    const double cosine = rfs_comparison_cosine(found);

    if (pair->read)
        rfs_table_bool(table, pair->other_bytes == 0);
    else
        rfs_table_none(table, "");
    if (numbers)
        rfs_table_u64(table, found->numbers - found->same);
    else
        rfs_table_text(table, pair->other_bytes > 0 ? "bytes" : "");
    for (int i = 0; !numbers && i < NUMBERS; i++)
        rfs_table_none(table, "");
    if (!numbers)
        return;
    rfs_table_u64(table, found->numbers);
    rfs_table_u64(table, found->same);
    rfs_table_u64(table, found->beyond);
    rfs_table_real(table, 3, rfs_comparison_most(found));
    rfs_table_real(table, 3, rfs_comparison_most_relative(found));
    add_counts(table, found->nan_a, found->nan_b);
    add_counts(table, found->inf_a, found->inf_b);
    if (isnan(cosine))
        rfs_table_none(table, "-");
    else
        rfs_table_real(table, 9, cosine);
}

static void add_row(struct rfs_table *table, const struct pair *pair, bool same)
{
    static const struct {
        const char *sign, *word;
    } states[] = {{"-", "only_a"}, {"+", "only_b"}, {"=", "same"}, {"!", "different"}};
    const int state = !pair->of[1].list ? 0 : !pair->of[0].list ? 1 : same ? 2 : 3;

    rfs_table_text(table, states[state].sign);
    rfs_table_text(table, pair_name(pair));
    rfs_table_text(table, states[state].word);
    add_headers(table, pair);
    add_values(table, pair);
}

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
        if (json || !same || diff->request->all)
            add_row(&table, pair, same);
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
