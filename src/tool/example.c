/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/tool.h"
#include "tool/tree.h"

#include <errno.h>
#include <getopt.h>
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

enum { O_SRC = 256, O_DST, O_LAYERS, O_HIDDEN, O_SIZE, O_CUT, O_RUN, O_DTYPE, O_SEED, O_FORCE };

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

static bool parse_number(int option, struct request *request)
{
    uint64_t value = 0;
    const bool suffix = option == O_SIZE || option == O_RUN;
    const uint64_t max = option == O_SRC || option == O_DST ? MAX_RANKS
                         : option == O_LAYERS               ? UINT32_MAX
                         : option == O_SEED                 ? UINT64_MAX
                                                            : INT64_MAX;
    if (!rfs_tool_number(optarg, suffix, option == O_SEED ? 0 : 1, max, &value))
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

static int parse_option(int option, int index, struct request *request, struct rfs_error *err)
{
    bool good = true;
    if (option == O_FORCE)
        request->force = true;
    else if (option == O_CUT)
        good = request->cut_given = parse_cut(optarg, &request->net.kind);
    else if (option == O_DTYPE)
        good = parse_dtype(optarg, &request->net.dtype);
    else
        good = parse_number(option, request);
    if (!good)
        return rfs_fail_usage(err, "reshard example --help", "--%s cannot be '%s'",
                              long_options[index].name, optarg);
    return 0;
}

static int parse(int argc, char **argv, struct request *request, struct rfs_error *err)
{
    opterr = 0;
    optind = 1;
    for (;;) {
        int index = 0;
        const int at = optind;
        const int option = getopt_long(argc, argv, "-:", long_options, &index);
        int rc = 0;
        if (option == -1)
            break;
        if (option == 1 && request->dir == NULL)
            request->dir = optarg;
        else if (option == 1)
            rc = rfs_fail_usage(err, "one DIR", "'%s' is a second folder", optarg);
        else if (option == '?')
            rc = rfs_fail_usage(err, "reshard example --help", "unknown option '%s'", argv[at]);
        else if (option == ':')
            rc = rfs_fail_usage(err, "reshard example --help", "a value is missing after '%s'",
                                argv[at]);
        else
            rc = parse_option(option, index, request, err);
        if (rc != 0)
            return rc;
    }
    if (request->dir == NULL && optind < argc)
        request->dir = argv[optind++];
    if (request->dir == NULL || request->dir[0] == '\0' || optind < argc)
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

int rfs_tool_example(int argc, char **argv)
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
