/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/tool.h"
#include "tool/example/write_tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_RANKS 65536

struct request {
    struct rfs_net_options net;
    uint64_t seed;
    bool force;
    bool cut_given;
    const char *dir;
};

enum {
    O_SRC = RFS_ARGS_LONG,
    O_DST,
    O_LAYERS,
    O_HIDDEN,
    O_SIZE,
    O_CUT,
    O_RUN,
    O_DTYPE,
    O_SEED,
    O_FORCE
};

static const struct option long_options[] = {
    {"src", required_argument, NULL, O_SRC},
    {"dst", required_argument, NULL, O_DST},
    {"layers", required_argument, NULL, O_LAYERS},
    {"hidden", required_argument, NULL, O_HIDDEN},
    {"size", required_argument, NULL, O_SIZE},
    {"cut", required_argument, NULL, O_CUT},
    {"run-bytes", required_argument, NULL, O_RUN},
    {"dtype", required_argument, NULL, O_DTYPE},
    {"seed", required_argument, NULL, O_SEED},
    {"force", no_argument, NULL, O_FORCE},
    {NULL, 0, NULL, 0},
};

static bool parse_cut(const char *text, enum rfs_net_kind *out)
{
    static const char *const names[] = {[RFS_NET_TP] = "tp",
                                        [RFS_NET_MIXED] = "mixed",
                                        [RFS_NET_OPT] = "opt",
                                        [RFS_NET_COLS] = "cols",
                                        [RFS_NET_ROWS] = "rows"};
    for (size_t i = RFS_NET_TP; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum rfs_net_kind)i;
            return true;
        }
    return false;
}

static bool parse_dtype(const char *text, enum rfs_dtype *out)
{
    static const struct {
        const char *name;
        enum rfs_dtype dtype;
    } known[] = {{"float32", RFS_FLOAT32}, {"float16", RFS_FLOAT16}, {"bfloat16", RFS_BFLOAT16},
                 {"float64", RFS_FLOAT64}, {"int8", RFS_INT8},       {"int32", RFS_INT32}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].name) == 0) {
            *out = known[i].dtype;
            return true;
        }
    return false;
}

static bool parse_number(int option, const char *text, struct request *request)
{
    uint64_t value = 0;
    const bool suffix = option == O_SIZE || option == O_RUN;
    const uint64_t max = option == O_SRC || option == O_DST ? MAX_RANKS
                         : option == O_LAYERS               ? UINT32_MAX
                         : option == O_SEED                 ? UINT64_MAX
                                                            : INT64_MAX;
    if (!rfs_tool_number(text, suffix, option == O_SEED ? 0 : 1, max, &value))
        return false;
    switch (option) {
    case O_SRC:
        request->net.ranks[0] = (uint32_t)value;
        break;
    case O_DST:
        request->net.ranks[1] = (uint32_t)value;
        break;
    case O_LAYERS:
        request->net.layers = (uint32_t)value;
        break;
    case O_HIDDEN:
        request->net.hidden = value;
        break;
    case O_SIZE:
        request->net.size = value;
        break;
    case O_RUN:
        request->net.run_bytes = value;
        break;
    default:
        request->seed = value;
        break;
    }
    return true;
}

static int parse_option(const struct rfs_args *args, int option, struct request *request,
                        struct rfs_error *err)
{
    bool good = true;
    if (option == O_FORCE)
        request->force = true;
    else if (option == O_CUT)
        good = request->cut_given = parse_cut(args->value, &request->net.kind);
    else if (option == O_DTYPE)
        good = parse_dtype(args->value, &request->net.dtype);
    else
        good = parse_number(option, args->value, request);
    return good ? 0 : rfs_args_refuse(args, "reshard example --help", err);
}

/* What follows from the options that were given, and what contradicts them. */
static int settle(struct request *request, struct rfs_error *err)
{
    if (request->dir == NULL || request->dir[0] == '\0')
        return rfs_fail_usage(err, "reshard example DIR", "example takes one folder");
    if (!request->cut_given &&
        (request->net.layers != 0 || request->net.hidden != 0 || request->net.size != 0))
        request->net.kind = RFS_NET_MIXED;
    if (request->net.run_bytes != 0 && !request->cut_given)
        request->net.kind = RFS_NET_COLS;
    if (request->net.run_bytes != 0 && request->net.kind != RFS_NET_COLS)
        return rfs_fail_usage(err, "--cut cols", "--run-bytes needs --cut cols");
    return 0;
}

static int parse(int argc, char **argv, struct request *request, struct rfs_error *err)
{
    struct rfs_args args = {.argc = argc, .argv = argv, .names = long_options};

    for (int option; (option = rfs_args_next(&args, err)) != RFS_ARGS_END;) {
        int rc = option < 0 ? option : 0;
        if (option == RFS_ARGS_PLACE && request->dir == NULL)
            request->dir = args.value;
        else if (option == RFS_ARGS_PLACE)
            rc = rfs_fail_usage(err, "one DIR", "'%s' is a second folder", args.value);
        else if (rc == 0)
            rc = parse_option(&args, option, request, err);
        if (rc != 0)
            return rc;
    }
    return settle(request, err);
}

static int run(int argc, char **argv)
{
    struct rfs_error err = {0};
    struct request request = {
        .net = {.kind = RFS_NET_TUTORIAL, .ranks = {8, 4}, .dtype = RFS_FLOAT32}, .seed = 1};
    struct rfs_net net = {0};
    int rc = parse(argc, argv, &request, &err);
    if (rc == 0)
        rc = rfs_net_make(&request.net, &net, &err);
    uint64_t bytes = 0;
    if (rc == 0)
        rc = rfs_tree_write(request.dir, &net, request.seed, request.force, &bytes, &err);
    if (rc == 0)
        printf("%s: %" PRIu32 " → %" PRIu32 " ranks, %zu parameters, %" PRIu64
               " bytes in the source files\n",
               request.dir, net.ranks[0], net.ranks[1], net.params.n, bytes);
    rfs_net_free(&net);
    return rc == 0 ? rfs_tool_done() : rfs_tool_failed(&err);
}

const struct rfs_command rfs_command_example = {
    .name = "example",
    .usage = "reshard example DIR [option...]\n",
    .summary = "writes a sharded checkpoint and two strategies, of any size",
    .options = "  --src M            ranks of the source (8)\n"
               "  --dst N            ranks of the destination (4)\n"
               "  --layers L         a transformer of L layers, not the tutorial's network\n"
               "  --hidden H         its width, rounded up until every cut divides (256)\n"
               "  --size BYTES       about this many bytes of tensors, with K, M, G or T\n"
               "  --cut KIND         tp, mixed, opt: how the transformer is cut;\n"
               "                     rows, cols: matrices, cut along the first or the last axis\n"
               "  --run-bytes BYTES  cols: bytes of a row that one source rank holds (1024)\n"
               "  --dtype TYPE       float32, float16, bfloat16, float64, int8, int32 (float32)\n"
               "  --seed S           another content (1)\n"
               "  --force            replace an example that is in DIR already\n",
    .run = run,
};
