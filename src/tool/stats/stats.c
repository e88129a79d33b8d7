/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard stats`: statistics of the numbers of each tensor. */
#include "base/cleanup.h"
#include "survey/moments.h"
#include "survey/numbers.h"
#include "survey/sweep.h"
#include "tool/common/command.h"
#include "tool/common/show.h"
#include "tool/common/source.h"

/* ---- showing them ---------------------------------------------------------------------------- */

/* A tensor, and the moments of its numbers. */
struct measured {
    const struct rfs_whole *whole;
    size_t i;
    const struct rfs_type *type;
    const struct rfs_moments *moments;
};

/* Adds the least or the greatest value; integers as they are. */
static void add_extreme(struct rfs_table *table, const struct rfs_type *type,
                        const struct rfs_moments *moments, bool max)
{
    const double value = max ? moments->max : moments->min;
    const uint64_t exact = max ? moments->most : moments->least;

    if (type->dtype == RFS_INT64)
        rfs_table_add(table, "%" PRId64, (int64_t)(exact ^ RFS_MOMENTS_SIGN));
    else if (type->dtype == RFS_UINT64)
        rfs_table_u64(table, exact);
    else if (rfs_numbers_are_integers(type))
        rfs_table_add(table, "%.0f", value);
    else
        rfs_table_real(table, 4, value);
}

RFS_CELL(put_name, struct measured,
         rfs_table_text(table, rfs_tensors_name(&row->whole->list, row->i)))
RFS_CELL(put_dtype, struct measured, rfs_table_text(table, rfs_whole_dtype(row->type)))
RFS_CELL(put_shape, struct measured, rfs_table_dims(table, row->type->ndim, row->type->dims))
RFS_CELL(put_bytes, struct measured, rfs_table_u64(table, row->type->bytes))
RFS_CELL(put_count, struct measured, rfs_table_u64(table, rfs_numbers_count(row->type)))
RFS_CELL(put_rank_own, struct measured, rfs_table_bool(table, rfs_whole_is_own(row->whole, row->i)))

/* Define the cell of a tensor that has numbers, and of one that has finite numbers. */
#define CELL_IF(name, is_there, call)                                                              \
    RFS_CELL(name, struct measured, (is_there) ? (call) : rfs_table_none(table, "-"))
#define CELL_OF_COUNT(name, count)                                                                 \
    CELL_IF(name, rfs_numbers_each(row->type) > 0, rfs_table_u64(table, count))
#define CELL_OF_FINITE(name, call) CELL_IF(name, row->moments->finite > 0, call)
CELL_OF_FINITE(put_min, add_extreme(table, row->type, row->moments, false))
CELL_OF_FINITE(put_max, add_extreme(table, row->type, row->moments, true))
CELL_OF_FINITE(put_mean, rfs_table_real(table, 4, row->moments->mean))
CELL_OF_FINITE(put_std, rfs_table_real(table, 4, rfs_moments_deviation(row->moments)))
CELL_OF_COUNT(put_nan, row->moments->nan)
CELL_OF_COUNT(put_infinite, row->moments->above + row->moments->below)
CELL_OF_COUNT(put_inf, row->moments->above)
CELL_OF_COUNT(put_neg_inf, row->moments->below)
CELL_OF_COUNT(put_zeros, row->moments->zeros)

static const struct rfs_column columns[] = {
    {"name", RFS_CELL_TEXT, put_name},
    {"dtype", RFS_CELL_TEXT, put_dtype},
    {"shape", RFS_CELL_JSON, put_shape},
    {"bytes", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_bytes},
    {"count", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_count},
    {"rank_own", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_rank_own},
    {"min", RFS_CELL_NUMBER, put_min},
    {"max", RFS_CELL_NUMBER, put_max},
    {"mean", RFS_CELL_NUMBER, put_mean},
    {"std", RFS_CELL_NUMBER, put_std},
    {"nan", RFS_CELL_NUMBER, put_nan},
    {"inf", RFS_CELL_NUMBER | RFS_FOR_PEOPLE, put_infinite},
    {"inf", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_inf},
    {"neg_inf", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_neg_inf},
    {"zeros", RFS_CELL_NUMBER, put_zeros},
};

static void print_summary(const struct rfs_whole *whole, const struct rfs_moments *moments)
{
    const size_t n = rfs_tensors_count(&whole->list);
    uint64_t numbers = 0;
    uint64_t nan = 0;
    uint64_t infinite = 0;

    for (size_t i = 0; i < n; i++) {
        numbers += rfs_numbers_count(rfs_tensors_type(&whole->list, i));
        nan += moments[i].nan;
        infinite += moments[i].above + moments[i].below;
    }
    printf("%s%zu tensor%s, %" PRIu64 " numbers: %" PRIu64 " NaN, %" PRIu64 " infinite\n",
           n > 0 ? "\n" : "", n, n == 1 ? "" : "s", numbers, nan, infinite);
}

/* Prints MOMENTS, one for each tensor, of the tensors that have numbers, to the standard output. */
static void write_stats(const struct rfs_whole *whole, const struct rfs_moments *moments, bool json)
{
    struct rfs_table table = RFS_TABLE(columns, json);
    const size_t n = rfs_tensors_count(&whole->list);

    for (size_t i = 0; i < n; i++) {
        const struct measured row = {whole, i, rfs_tensors_type(&whole->list, i), &moments[i]};
        rfs_table_row(&table, &row);
    }
    if (json) {
        struct rfs_json_write out = {.file = stdout};
        rfs_json_object(&out, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(&out, "path", whole->list.path);
        rfs_table_put_json(&table, &out, "rows");
        rfs_json_finish(&out);
    } else {
        if (n > 0)
            rfs_table_print(&table, stdout);
        print_summary(whole, moments);
    }
    rfs_table_free(&table);
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct request {
    const char *path;
    struct rfs_settings options;
    struct rfs_globs globs;
    unsigned threads;
    bool json;
};

struct measuring {
    struct rfs_whole whole;
    struct rfs_moments *moments; /* [tensors] */
    struct rfs_progress progress;
};

static struct rfs_tensor tensor_at(void *ctx, size_t item, unsigned side)
{
    const struct measuring *measuring = ctx;

    (void)side;
    return (struct rfs_tensor){&measuring->whole.list, (uint32_t)item};
}

/* Returns the bytes to read, which are the units; values without numbers are not read. */
static uint64_t units(void *ctx, size_t item)
{
    const struct rfs_type *type = rfs_tensor_type(tensor_at(ctx, item, 0));

    return rfs_numbers_each(type) > 0 ? type->bytes : 0;
}

static int measure(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                   struct rfs_error *err)
{
    const struct rfs_type *type = rfs_tensor_type(tensor_at(ctx, piece->item, 0));

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
    const struct rfs_sweep sweep = {
        .ctx = measuring,
        .n = rfs_tensors_count(&measuring->whole.list),
        .sides = 1,
        .own_bytes = sizeof(struct rfs_moments),
        .tensor = tensor_at,
        .units = units,
        .work = measure,
        .fold = merge,
        .progress = &measuring->progress,
        .phase = "measuring",
    };

    measuring->moments = calloc(sweep.n + 1, sizeof *measuring->moments);
    if (!measuring->moments)
        return rfs_fail_memory(err);
    rfs_progress_init(&measuring->progress, false);
    const int rc = rfs_sweep_run(&sweep, threads, err);
    rfs_progress_destroy(&measuring->progress);
    return rc;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("PATH", struct request, path, "one PATH"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct request, options,
                 "the strategy of PATH, if it is sharded"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, options, "options to read PATH by"),
    RFS_ARG_TEXTS("name", "GLOB", struct request, globs,
                  "only these tensors; may be given several times"),
    RFS_ARG_THREADS("threads", struct request, threads),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;
    struct measuring measuring = {0};

    if (!request->path)
        return rfs_fail_usage(err, "reshard stats PATH", "stats takes a path");
    int rc = rfs_tool_tensors(request->path, &request->options, &request->globs, NULL,
                              &measuring.whole, NULL, err);
    rfs_tool_name_strategy("-s", err);
    if (rc == 0)
        rc = rfs_globs_check(&request->globs, err);
    if (rc == 0)
        rc = measure_all(&measuring, request->threads, err);
    if (rc == 0)
        write_stats(&measuring.whole, measuring.moments, request->json);
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
