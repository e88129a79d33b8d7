/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/command.h"
#include "tool/example/write_tree.h"

#define MAX_RANKS 65536
#define REMEDY_RANKS "a number from 1 to 65536"
#define REMEDY "reshard example --help"

struct request {
    struct rfs_net_options net;
    uint64_t seed;
    int dtype; /* of dtypes */
    bool force;
    const char *dir;
};

/* By their numbers in enum rfs_net_kind, but for the tutorial's. */
static const char *const cuts[] = {"tp", "mixed", "opt", "cols", "rows", NULL};

static const char *const dtypes[] = {"float32", "float16", "bfloat16", "float64",
                                     "int8",    "int32",   NULL};
static const enum rfs_dtype dtype_of[] = {RFS_FLOAT32, RFS_FLOAT16, RFS_BFLOAT16,
                                          RFS_FLOAT64, RFS_INT8,    RFS_INT32};

static const struct rfs_argument arguments[] = {
    {.value = "DIR",
     .as = RFS_AS_TEXT,
     RFS_TO(struct request, dir),
     .remedy = "one DIR",
     .is_folder = true},
    RFS_ARG_NUMBER("src", "M", 1, MAX_RANKS, REMEDY_RANKS, struct request, net.ranks[0],
                   "ranks of the source (8)"),
    RFS_ARG_NUMBER("dst", "N", 1, MAX_RANKS, REMEDY_RANKS, struct request, net.ranks[1],
                   "ranks of the destination (4)"),
    RFS_ARG_NUMBER("layers", "L", 1, UINT32_MAX, REMEDY, struct request, net.layers,
                   "a transformer of L layers, not the tutorial's network"),
    RFS_ARG_NUMBER("hidden", "H", 1, INT64_MAX, REMEDY, struct request, net.hidden,
                   "its width, rounded up until every cut divides (256)"),
    RFS_ARG_BYTES("size", 1, INT64_MAX, REMEDY, struct request, net.size,
                  "about this many bytes of tensors, with K, M, G or T"),
    RFS_ARG_WORD("cut", "KIND", cuts, REMEDY, struct request, net.kind,
                 "tp, mixed, opt: how the transformer is cut;\nrows, cols: matrices, cut along the "
                 "first or the last axis"),
    RFS_ARG_BYTES("run-bytes", 1, INT64_MAX, REMEDY, struct request, net.run_bytes,
                  "cols: bytes of a row that one source rank holds (1024)"),
    RFS_ARG_WORD("dtype", "TYPE", dtypes, REMEDY, struct request, dtype,
                 "float32, float16, bfloat16, float64, int8, int32 (float32)"),
    RFS_ARG_NUMBER("seed", "S", 0, UINT64_MAX, REMEDY, struct request, seed, "another content (1)"),
    RFS_ARG_FLAG("force", struct request, force, "replace an example that is in DIR already"),
    {0},
};

/* Derives values from the given options, and refuses contradictions. */
static int settle(struct request *request, struct rfs_error *err)
{
    if (request->dir == NULL || request->dir[0] == '\0')
        return rfs_fail_usage(err, "reshard example DIR", "example takes one folder");
    request->net.dtype = dtype_of[request->dtype];
    if (request->net.kind == RFS_NET_TUTORIAL && request->net.run_bytes != 0)
        request->net.kind = RFS_NET_COLS;
    if (request->net.kind == RFS_NET_TUTORIAL &&
        (request->net.layers != 0 || request->net.hidden != 0 || request->net.size != 0))
        request->net.kind = RFS_NET_MIXED;
    if (request->net.run_bytes != 0 && request->net.kind != RFS_NET_COLS)
        return rfs_fail_usage(err, "--cut cols", "--run-bytes needs --cut cols");
    return 0;
}

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;
    struct rfs_net net = {0};
    uint64_t bytes = 0;
    int rc = settle(request, err)
            ?: rfs_net_make(&request->net, &net, err)
            ?: rfs_tree_write(request->dir, &net, request->seed, request->force, &bytes, err);

    if (rc == 0)
        printf("%s: %" PRIu32 " → %" PRIu32 " ranks, %zu parameters, %" PRIu64
               " bytes in the source files\n",
               request->dir, net.ranks[0], net.ranks[1], net.params.n, bytes);
    rfs_net_free(&net);
    return rc;
}

static const struct request defaults = {.net = {.kind = RFS_NET_TUTORIAL, .ranks = {8, 4}},
                                        .seed = 1};

const struct rfs_command rfs_command_example = {
    .name = "example",
    .usage = "reshard example DIR [option...]\n",
    .summary = "writes a sharded checkpoint and two strategies, of any size",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .run = run,
};
