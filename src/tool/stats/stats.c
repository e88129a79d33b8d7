/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard stats`: statistics of the numbers of each tensor. */
#include "tool/stats/stats.h"

#include "base/cleanup.h"
#include "tool/common/command.h"
#include "tool/common/numbers.h"
#include "tool/common/sweep.h"

struct request {
    const char *path;
    struct rfs_settings options;
    struct rfs_globs globs;
    unsigned threads;
    bool json;
};

struct measuring {
    struct rfs_whole whole;
    struct rfs_moments *moments; /* [whole.n] */
    struct rfs_progress progress;
};

/* ---- measuring ------------------------------------------------------------------------------- */

static const struct rfs_whole_tensor *tensor_at(void *ctx, size_t item, unsigned side)
{
    const struct measuring *measuring = ctx;

    (void)side;
    return &measuring->whole.tensors[item];
}

/* Bytes are the units; values without numbers are not read. */
static uint64_t units(void *ctx, size_t item)
{
    const struct rfs_type *type = tensor_at(ctx, item, 0)->type;

    return rfs_numbers_each(type) > 0 ? type->bytes : 0;
}

static int measure(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                   struct rfs_error *err)
{
    const struct rfs_type *type = tensor_at(ctx, piece->item, 0)->type;

    (void)err;
    if (piece->n > 0)
        rfs_moments_add(worker->own, type, worker->bytes[0],
                        (size_t)piece->n / rfs_numbers_bytes(type));
    return 0;
}

static int merge(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                 struct rfs_error *err)
{
    const struct measuring *measuring = ctx;

    (void)err;
    rfs_moments_merge(&measuring->moments[piece->item], worker->own);
    return 0;
}

static int measure_all(struct measuring *measuring, unsigned threads, struct rfs_error *err)
{
    const struct rfs_whole *whole = &measuring->whole;
    const struct rfs_sweep sweep = {
        .ctx = measuring,
        .n = whole->n,
        .whole = {whole},
        .sides = 1,
        .own_bytes = sizeof(struct rfs_moments),
        .tensor = tensor_at,
        .units = units,
        .work = measure,
        .fold = merge,
        .progress = &measuring->progress,
        .phase = "measuring",
    };

    measuring->moments = calloc(whole->n + 1, sizeof *measuring->moments);
    if (!measuring->moments)
        return rfs_fail_memory(err);
    rfs_progress_init(&measuring->progress, false);
    const int rc = rfs_sweep_run(&sweep, threads, err);
    rfs_progress_destroy(&measuring->progress);
    return rc;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const struct rfs_argument arguments[] = {
    RFS_ARG_PLACE("PATH", struct request, path, "one PATH"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct request, options,
                 "the strategy of PATH, if it is sharded"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, options, "options to read PATH by"),
    RFS_ARG_TEXTS("name", "GLOB", struct request, globs,
                  "only these tensors; may be given several times"),
    RFS_ARG_THREADS("threads", struct request, threads),
    RFS_ARG_FLAG("json", struct request, json, "for scripts, with 64 bins of the histogram"),
    {0},
};

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;
    struct measuring measuring = {0};

    if (!request->path)
        return rfs_fail_usage(err, "reshard stats PATH", "stats takes a path");
    int rc = rfs_whole_open(request->path, &request->options, &request->globs, NULL,
                            &measuring.whole, NULL, err);
    rfs_whole_name_strategy("-s", err);
    if (rc == 0)
        rc = rfs_globs_check(&request->globs, err);
    if (rc == 0)
        rc = measure_all(&measuring, request->threads, err);
    if (rc == 0)
        rfs_stats_write(&measuring.whole, measuring.moments, request->json);
    rfs_whole_close(&measuring.whole);
    free(measuring.moments);
    return rc;
}

const struct rfs_command rfs_command_stats = {
    .name = "stats",
    .usage = "reshard stats PATH [-s FILE] [-o OPTION,…] [option…]\n",
    .summary = "prints min, max, mean, deviation, NaN and more of each tensor",
    .arguments = arguments,
    .request_bytes = sizeof(struct request),
    .run = run,
};
