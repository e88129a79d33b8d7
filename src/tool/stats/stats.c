/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard stats`: what the numbers of each tensor are like. */
#include "tool/stats/stats.h"

#include "base/cleanup.h"
#include "tool/common/command.h"
#include "tool/common/numbers.h"
#include "tool/common/sweep.h"
#include "tool/common/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE                                                                                      \
    ((uint64_t)4 << 20) /* bytes; a multiple of what is assembled at once, and of any element */

struct request {
    const char *path;
    char *options; /* owned */
    struct rfs_globs globs;
    unsigned threads;
    bool json;
};

struct measuring {
    struct rfs_whole whole;
    struct rfs_moments *moments; /* [whole.n] */
    struct rfs_progress progress;
};

/* Of one thread. */
struct worker {
    unsigned char *bytes; /* PIECE */
    struct rfs_moments moments;
    struct rfs_slice slice;
    const struct rfs_whole_tensor *of; /* of slice; NULL: none yet */
};

/* ---- measuring -------------------------------------------------------------------------------------- */

static const struct rfs_whole_tensor *tensor_at(void *ctx, size_t item)
{
    const struct measuring *measuring = ctx;

    return &measuring->whole.tensors[item];
}

/* Bytes are the units; what has no numbers is not read. */
static uint64_t units(void *ctx, size_t item)
{
    const struct rfs_type *type = tensor_at(ctx, item)->type;

    return rfs_numbers_each(type) > 0 ? type->bytes : 0;
}

static uint64_t step(void *ctx, size_t item)
{
    (void)ctx;
    (void)item;
    return PIECE;
}

static uint64_t bytes(void *ctx, size_t item, uint64_t n)
{
    (void)ctx;
    (void)item;
    return n;
}

static void worker_free(void *ctx, void *memory)
{
    const struct measuring *measuring = ctx;
    struct worker *worker = memory;

    rfs_whole_memory_free(&measuring->whole, worker->bytes, PIECE);
    rfs_slice_free(&worker->slice);
    free(worker);
}

static void *worker_new(void *ctx)
{
    const struct measuring *measuring = ctx;
    struct worker *worker = calloc(1, sizeof *worker);

    if (worker)
        worker->bytes = rfs_whole_memory(&measuring->whole, PIECE);
    if (worker && !worker->bytes) {
        free(worker);
        return NULL;
    }
    return worker;
}

static int measure(void *ctx, void *memory, const struct rfs_sweep_piece *piece,
                   struct rfs_error *err)
{
    const struct measuring *measuring = ctx;
    struct worker *worker = memory;
    const struct rfs_whole_tensor *tensor = tensor_at(ctx, piece->item);

    worker->moments = (struct rfs_moments){0};
    if (piece->n == 0)
        return 0;
    if (worker->of != tensor) {
        const int rc = rfs_whole_slice(&measuring->whole, tensor, &worker->slice);
        if (rc)
            return rfs_fail(err, rc, RFS_OF(measuring->whole.path, tensor->name), NULL,
                            "cannot be read: %s", strerror(-rc));
        worker->of = tensor;
    }
    const int rc = rfs_whole_read(&measuring->whole, tensor, &worker->slice, piece->begin,
                                  (size_t)piece->n, worker->bytes, err);
    if (rc == 0)
        rfs_moments_add(&worker->moments, tensor->type, worker->bytes,
                        (size_t)piece->n / rfs_numbers_bytes(tensor->type));
    return rc;
}

static int merge(void *ctx, void *memory, const struct rfs_sweep_piece *piece,
                 struct rfs_error *err)
{
    const struct measuring *measuring = ctx;
    const struct worker *worker = memory;

    (void)err;
    rfs_moments_merge(&measuring->moments[piece->item], &worker->moments);
    return 0;
}

static int measure_all(struct measuring *measuring, unsigned threads, struct rfs_error *err)
{
    const struct rfs_whole *whole = &measuring->whole;
    const struct rfs_sweep sweep = {
        .ctx = measuring,
        .n = whole->n,
        .units = units,
        .step = step,
        .bytes = bytes,
        .worker = worker_new,
        .worker_free = worker_free,
        .work = measure,
        .fold = merge,
        .progress = &measuring->progress,
    };
    uint64_t all = 0;

    measuring->moments = calloc(whole->n + 1, sizeof *measuring->moments);
    if (!measuring->moments)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < whole->n; i++)
        all += units(measuring, i);
    rfs_progress_init(&measuring->progress, false);
    rfs_progress_begin(&measuring->progress, "measuring", all, whole->n);
    const int rc = rfs_sweep_run(&sweep, threads, err);
    rfs_progress_destroy(&measuring->progress);
    return rc;
}

/* ---- the command line ------------------------------------------------------------------------------- */

static const struct rfs_argument arguments[] = {
    RFS_ARG_PLACE("PATH", struct request, path, "one PATH"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct request, options,
                 "the strategy of PATH, if it is sharded"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, options,
                 "any option of the view that says how PATH is read"),
    RFS_ARG_TEXTS("name", "GLOB", struct request, globs,
                  "the tensors with such a name alone; may be given again"),
    RFS_ARG_THREADS("threads", struct request, threads),
    RFS_ARG_FLAG("json", struct request, json, "for scripts, with 64 bins of the histogram"),
    {0},
};

static int run(int argc, char **argv)
{
    struct rfs_error err = {0};
    struct request request = {.threads = rfs_tool_processors(RFS_MOST_THREADS)};
    struct measuring measuring = {0};
    int rc = rfs_args_parse(arguments, argc, argv, &request, &err);

    if (rc == 0 && !request.path)
        rc = rfs_fail_usage(&err, "reshard stats PATH", "stats takes a path");
    if (rc == 0)
        rc = rfs_whole_open(request.path, request.options, &request.globs, false, &measuring.whole,
                            NULL, &err);
    if (rc == 0)
        rc = rfs_globs_check(&request.globs, &err);
    if (rc == 0)
        rc = measure_all(&measuring, request.threads, &err);
    if (rc == 0)
        rfs_stats_write(&measuring.whole, measuring.moments, request.json);
    rfs_whole_close(&measuring.whole);
    free(measuring.moments);
    free(request.globs.data);
    free(request.options);
    return rc == 0 ? rfs_tool_done() : rfs_tool_failed(&err);
}

const struct rfs_command rfs_command_stats = {
    .name = "stats",
    .usage = "reshard stats PATH [-s FILE] [-o OPTION,…] [option…]\n",
    .summary = "tells least, greatest, mean, deviation, NaN and more of each tensor",
    .arguments = arguments,
    .run = run,
};
