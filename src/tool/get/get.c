/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard get`: writes one tensor as a file, whole or as a destination rank has it. Several
 * threads read it in pieces.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/suggest.h"
#include "survey/sweep.h"
#include "survey/tensor_file.h"
#include "tool/common/command.h"
#include "tool/common/output.h"
#include "tool/common/source.h"
#include "tool/common/tool.h"

#include <unistd.h>

enum { NPY, SAFETENSORS, BY_NAME };
static const char *const formats[] = {"npy", "safetensors", NULL};

struct request {
    const char *source, *name, *out;
    struct rfs_settings options;
    int64_t rank; /* -1: whole tensors */
    int format;
    unsigned threads;
    bool force;
};

struct getting {
    const struct request *request;
    struct rfs_whole whole;
    struct rfs_tensor tensor;
    struct rfs_output *output; /* while it is written */
    struct rfs_progress progress;
};

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes the header before the tensor's bytes. */
static int write_head(struct getting *getting, struct rfs_error *err)
{
    struct rfs_bytes head;
    int rc = rfs_inspect_head(getting->tensor, getting->request->format == SAFETENSORS, &head, err);

    if (rc == 0)
        rc = rfs_output_add(getting->output, head.data, head.n, err);
    rfs_bytes_free(&head);
    return rc;
}

static struct rfs_tensor tensor_of(void *ctx, size_t item, unsigned side)
{
    (void)item;
    (void)side;
    return ((const struct getting *)ctx)->tensor;
}

static uint64_t bytes_of(void *ctx, size_t item)
{
    return rfs_tensor_type(tensor_of(ctx, item, 0))->bytes;
}

static int is_read(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                   struct rfs_error *err)
{
    (void)ctx;
    (void)worker;
    (void)piece;
    return rfs_tool_stopped() ? rfs_fail(err, -EINTR, RFS_NOWHERE, NULL, "stopped by a signal") : 0;
}

static int write_piece(void *ctx, struct rfs_sweep_worker *worker,
                       const struct rfs_sweep_piece *piece, struct rfs_error *err)
{
    struct getting *getting = ctx;

    return rfs_output_add(getting->output, worker->bytes[0], (size_t)piece->n, err);
}

static int write_tensor(struct getting *getting, struct rfs_error *err)
{
    const uint64_t pieces = rfs_tensor_type(getting->tensor)->bytes / RFS_SWEEP_PIECE + 1;
    const struct rfs_sweep sweep = {
        .ctx = getting,
        .n = 1,
        .sides = 1,
        .tensor = tensor_of,
        .units = bytes_of,
        .work = is_read,
        .fold = write_piece,
        .progress = &getting->progress,
        .phase = "writing",
    };

    return rfs_sweep_run(&sweep, (unsigned)rfs_min_u64(getting->request->threads, pieces), err);
}

static int fill(void *ctx, struct rfs_output *out, struct rfs_error *err)
{
    struct getting *getting = ctx;

    getting->output = out;
    return write_head(getting, err) ?: write_tensor(getting, err);
}

static int get(struct getting *getting, struct rfs_error *err)
{
    const struct request *request = getting->request;
    const struct rfs_view_how how = {.tensors = true};
    reshard_view *view;
    const int rc = rfs_tool_open(request->source, &request->options, &how, &view, err);

    if (rc)
        return rc;
    return rfs_whole_open_rank(request->source, view, request->rank, &getting->whole, err)
            ?: rfs_whole_choose(&getting->whole, request->name, &getting->tensor, err)
            ?: rfs_output_make(request->out, request->force, fill, getting, err);
}

/* ---- the command line ------------------------------------------------------------------------ */

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("SRC", struct request, source, NULL),
    RFS_ARG_OPERAND("NAME", struct request, name, NULL),
    RFS_ARG_OPERAND("OUT", struct request, out, "one SRC, one NAME and one OUT"),
    RFS_ARG_DESTINATION(struct request, options, "the strategies of SRC and of the destination",
                        "any option of the view, see reshardfs(1)"),
    RFS_ARG_NUMBER("ranks", "N", 0, UINT32_MAX - 1, "a rank of the destination, from 0 up",
                   struct request, rank, NULL),
    RFS_ARG_NUMBER("rank", "N", 0, UINT32_MAX - 1, "a rank of the destination, from 0 up",
                   struct request, rank, "the slice of this destination rank, not the whole"),
    RFS_ARG_WORD("to", "FORMAT", formats, "npy or safetensors", struct request, format,
                 "npy or safetensors (by the name of OUT; npy for -)"),
    RFS_ARG_FLAG("force", struct request, force, "replace OUT"),
    RFS_ARG_THREADS("threads", struct request, threads),
    {0},
};

static int choose_format(struct request *request, struct rfs_error *err)
{
    const char *ending = strrchr(request->out, '.');

    if (strcmp(request->out, "-") == 0) {
        request->format = request->format == BY_NAME ? NPY : request->format;
        return isatty(STDOUT_FILENO) ? rfs_fail_usage(err, "a file, or a program behind a pipe",
                                                      "a tensor is not written to a terminal")
                                     : 0;
    }
    if (request->format == BY_NAME)
        for (request->format = NPY; request->format < BY_NAME; request->format++)
            if (ending && strcmp(ending + 1, formats[request->format]) == 0)
                return 0;
    return request->format < BY_NAME
               ? 0
               : rfs_fail_usage(err, "--to npy or --to safetensors, or a name that ends so",
                                "the name of OUT has no format: '%s'", request->out);
}

static int check(struct request *request, struct rfs_error *err)
{
    if (!request->out)
        return rfs_fail_usage(err, "reshard get SRC NAME OUT",
                              "get takes a source, a name and a file to write");
    if (!*request->source || !*request->out)
        return rfs_fail_usage(err, "reshard get SRC NAME OUT", "a path is empty");
    return choose_format(request, err);
}

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;
    struct getting getting = {.request = request};
    int rc = check(request, err);

    if (rc)
        return rc;
    rfs_progress_init(&getting.progress, false);
    rfs_tool_catch_signals();
    rc = get(&getting, err);
    rfs_progress_destroy(&getting.progress);
    rfs_whole_close(&getting.whole);
    return rc;
}

static const struct request defaults = {.rank = -1, .format = BY_NAME};

const struct rfs_command rfs_command_get = {
    .name = "get",
    .usage = "reshard get SRC NAME OUT [-s FILE] [option…]\n"
             "reshard get SRC NAME OUT -s FILE -d FILE --rank N [option…]\n",
    .summary = "writes one tensor into a .npy or safetensors file",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .run = run,
};
