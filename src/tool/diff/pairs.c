/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/diff/diff.h"

#include "tool/common/numbers.h"
#include "tool/common/sweep.h"

/* ---- names and headers ----------------------------------------------------------------------- */

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

/* ---- values ---------------------------------------------------------------------------------- */

/* The result of a piece. */
struct found {
    struct rfs_comparison numbers;
    bool other_bytes;
};

static const struct rfs_whole_tensor *tensor_of(void *ctx, size_t item, unsigned side)
{
    const struct rfs_diff *diff = ctx;

    return diff->pairs.data[item].of[side];
}

/* Units are numbers, or bytes where there are none. */
static uint64_t unit_bytes(void *ctx, size_t item, unsigned side)
{
    const struct rfs_diff *diff = ctx;
    const struct rfs_pair *pair = &diff->pairs.data[item];

    return pair->read && have_numbers(pair) ? rfs_numbers_bytes(pair->of[side]->type) : 1;
}

static uint64_t units(void *ctx, size_t item)
{
    const struct rfs_diff *diff = ctx;
    const struct rfs_pair *pair = &diff->pairs.data[item];

    return pair->read ? pair->of[0]->type->bytes / unit_bytes(ctx, item, 0) : 0;
}

static int compare(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                   struct rfs_error *err)
{
    const struct rfs_diff *diff = ctx;
    const struct rfs_pair *pair = &diff->pairs.data[piece->item];
    struct found *found = worker->own;

    (void)err;
    if (piece->n == 0)
        return 0;
    found->other_bytes =
        pair->other_dtype ||
        memcmp(worker->bytes[0], worker->bytes[1], piece->n * unit_bytes(ctx, piece->item, 0)) != 0;
    if (have_numbers(pair))
        rfs_compare_add(&found->numbers, &diff->options->tolerance, pair->of[0]->type,
                        worker->bytes[0], pair->of[1]->type, worker->bytes[1], (size_t)piece->n);
    return 0;
}

static int merge(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                 struct rfs_error *err)
{
    struct rfs_diff *diff = ctx;
    struct rfs_pair *pair = &diff->pairs.data[piece->item];
    const struct found *found = worker->own;

    (void)err;
    rfs_compare_merge(&pair->found, &found->numbers);
    pair->other_bytes += found->other_bytes;
    return 0;
}

int rfs_diff_read(struct rfs_diff *diff, struct rfs_error *err)
{
    const struct rfs_sweep sweep = {
        .ctx = diff,
        .n = diff->pairs.n,
        .whole = {&diff->whole[0], &diff->whole[1]},
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
        diff->pairs.data[i].read = is_readable(diff->options, &diff->pairs.data[i]);
    if (diff->options->depth < RFS_DIFF_VALUES)
        return 0;
    rfs_progress_init(&diff->progress, false);
    const int rc = rfs_sweep_run(&sweep, diff->options->threads, err);
    rfs_progress_destroy(&diff->progress);
    return rc;
}
