/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/diff/diff.h"

#include "tool/common/numbers.h"
#include "tool/common/sweep.h"

#include <stdlib.h>
#include <string.h>

#define PIECE ((uint64_t)4 << 20) /* bytes of the wider side, or less; of whole numbers */

/* ---- names and headers ------------------------------------------------------------------------------ */

static bool same_shape(const struct rfs_type *a, const struct rfs_type *b)
{
    return a->ndim == b->ndim && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static bool same_dtype(const struct rfs_type *a, const struct rfs_type *b)
{
    return a->dtype == b->dtype && a->kind == b->kind;
}

int rfs_diff_pair(struct rfs_diff *diff, struct rfs_error *err)
{
    const struct rfs_whole *a = &diff->whole[0];
    const struct rfs_whole *b = &diff->whole[1];

    for (size_t i = 0; i < a->n + b->n; i++) {
        struct rfs_pair pair = {0};
        if (i < a->n) {
            pair.of[0] = &a->tensors[i];
            pair.of[1] = rfs_whole_find(b, pair.of[0]->name);
        } else {
            pair.of[1] = &b->tensors[i - a->n];
            if (rfs_whole_find(a, pair.of[1]->name))
                continue;
        }
        if (pair.of[0] && pair.of[1]) {
            pair.other_shape = !same_shape(pair.of[0]->type, pair.of[1]->type);
            pair.other_dtype = !same_dtype(pair.of[0]->type, pair.of[1]->type);
        }
        if (!RFS_PUSH(&diff->pairs, pair))
            return rfs_fail_memory(err);
    }
    return 0;
}

/* Whether their numbers can be compared one by one. */
static bool have_numbers(const struct rfs_pair *pair)
{
    const uint32_t each = rfs_numbers_each(pair->of[0]->type);

    return each > 0 && each == rfs_numbers_each(pair->of[1]->type);
}

static bool is_readable(const struct rfs_diff_options *options, const struct rfs_pair *pair)
{
    if (options->depth < RFS_DIFF_VALUES || !pair->of[0] || !pair->of[1] || pair->other_shape)
        return false;
    return have_numbers(pair) ||
           (!pair->other_dtype && pair->of[0]->type->bytes == pair->of[1]->type->bytes);
}

bool rfs_pair_is_same(const struct rfs_diff_options *options, const struct rfs_pair *pair)
{
    if (!pair->of[0] || !pair->of[1])
        return false;
    if (options->depth == RFS_DIFF_NAMES)
        return true;
    if (pair->other_shape || (pair->other_dtype && !options->any_dtype))
        return false;
    if (options->depth == RFS_DIFF_HEADERS)
        return true;
    if (!pair->read)
        return false;
    return have_numbers(pair) ? pair->found.beyond == 0 : pair->other_bytes == 0;
}

/* ---- values ----------------------------------------------------------------------------------------- */

struct worker {
    unsigned char *bytes[2]; /* PIECE each */
    struct rfs_slice slice[2];
    const struct rfs_pair *of; /* of the slices; NULL: none yet */
    struct rfs_comparison found;
    bool other_bytes;
};

/* Units are numbers, or bytes where there are none. */
static uint64_t unit_bytes(const struct rfs_pair *pair, int side)
{
    return have_numbers(pair) ? rfs_numbers_bytes(pair->of[side]->type) : 1;
}

static uint64_t units(void *ctx, size_t item)
{
    const struct rfs_diff *diff = ctx;
    const struct rfs_pair *pair = &diff->pairs.data[item];

    return pair->read ? pair->of[0]->type->bytes / unit_bytes(pair, 0) : 0;
}

/* Pieces begin where a multiple of 1 MiB does, on either side, as the assembler's do. */
static uint64_t step(void *ctx, size_t item)
{
    const struct rfs_diff *diff = ctx;
    const struct rfs_pair *pair = &diff->pairs.data[item];

    if (!pair->read)
        return 1;
    const uint64_t a = unit_bytes(pair, 0);
    const uint64_t b = unit_bytes(pair, 1);
    return PIECE / (a > b ? (a > 4 ? a : 4) : (b > 4 ? b : 4));
}

static uint64_t bytes(void *ctx, size_t item, uint64_t n)
{
    const struct rfs_diff *diff = ctx;
    const struct rfs_pair *pair = &diff->pairs.data[item];

    return pair->read ? n * (unit_bytes(pair, 0) + unit_bytes(pair, 1)) : 0;
}

static void worker_free(void *ctx, void *memory)
{
    const struct rfs_diff *diff = ctx;
    struct worker *worker = memory;

    for (int side = 0; side < 2; side++) {
        if (worker->bytes[side])
            rfs_whole_memory_free(&diff->whole[side], worker->bytes[side], PIECE);
        rfs_slice_free(&worker->slice[side]);
    }
    free(worker);
}

static void *worker_new(void *ctx)
{
    const struct rfs_diff *diff = ctx;
    struct worker *worker = calloc(1, sizeof *worker);

    for (int side = 0; worker && side < 2; side++) {
        worker->bytes[side] = rfs_whole_memory(&diff->whole[side], PIECE);
        if (!worker->bytes[side]) {
            worker_free(ctx, worker);
            worker = NULL;
        }
    }
    return worker;
}

static int fetch(const struct rfs_diff *diff, struct worker *worker, const struct rfs_pair *pair,
                 const struct rfs_sweep_piece *piece, struct rfs_error *err)
{
    for (int side = 0; side < 2; side++) {
        const struct rfs_whole *whole = &diff->whole[side];
        const uint64_t unit = unit_bytes(pair, side);
        int rc = 0;
        if (worker->of != pair)
            rc = rfs_whole_slice(whole, pair->of[side], &worker->slice[side]);
        if (rc)
            return rfs_fail(err, rc, RFS_OF(whole->path, pair->of[side]->name), NULL,
                            "cannot be read: %s", strerror(-rc));
        rc = rfs_whole_read(whole, pair->of[side], &worker->slice[side], piece->begin * unit,
                            (size_t)(piece->n * unit), worker->bytes[side], err);
        if (rc)
            return rc;
    }
    worker->of = pair;
    return 0;
}

static int compare(void *ctx, void *memory, const struct rfs_sweep_piece *piece,
                   struct rfs_error *err)
{
    const struct rfs_diff *diff = ctx;
    const struct rfs_pair *pair = &diff->pairs.data[piece->item];
    struct worker *worker = memory;

    worker->found = (struct rfs_comparison){0};
    worker->other_bytes = false;
    if (piece->n == 0)
        return 0;
    const int rc = fetch(diff, worker, pair, piece, err);
    if (rc)
        return rc;
    worker->other_bytes = pair->other_dtype || memcmp(worker->bytes[0], worker->bytes[1],
                                                      piece->n * unit_bytes(pair, 0)) != 0;
    if (have_numbers(pair))
        rfs_compare_add(&worker->found, &diff->options->tolerance, pair->of[0]->type,
                        worker->bytes[0], pair->of[1]->type, worker->bytes[1], (size_t)piece->n);
    return 0;
}

static int merge(void *ctx, void *memory, const struct rfs_sweep_piece *piece,
                 struct rfs_error *err)
{
    struct rfs_diff *diff = ctx;
    struct rfs_pair *pair = &diff->pairs.data[piece->item];
    const struct worker *worker = memory;

    (void)err;
    rfs_compare_merge(&pair->found, &worker->found);
    pair->other_bytes += worker->other_bytes;
    return 0;
}

int rfs_diff_read(struct rfs_diff *diff, struct rfs_error *err)
{
    const struct rfs_sweep sweep = {
        .ctx = diff,
        .n = diff->pairs.n,
        .units = units,
        .step = step,
        .bytes = bytes,
        .worker = worker_new,
        .worker_free = worker_free,
        .work = compare,
        .fold = merge,
        .progress = &diff->progress,
    };
    uint64_t all = 0;

    for (size_t i = 0; i < diff->pairs.n; i++) {
        diff->pairs.data[i].read = is_readable(diff->options, &diff->pairs.data[i]);
        all += bytes(diff, i, units(diff, i));
    }
    if (diff->options->depth < RFS_DIFF_VALUES)
        return 0;
    rfs_progress_init(&diff->progress, false);
    rfs_progress_begin(&diff->progress, "comparing", all, diff->pairs.n);
    const int rc = rfs_sweep_run(&sweep, diff->options->threads, err);
    rfs_progress_destroy(&diff->progress);
    return rc;
}
