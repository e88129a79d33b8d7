/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/verify/verify.h"

#include "base/cleanup.h"
#include "tool/common/args.h"
#include "tool/common/sweep.h"
#include "tool/common/tool.h"
#include "view/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    O_AGAINST = RFS_ARGS_LONG,
    O_JSON,
    O_LIST,
    O_MANIFEST,
    O_NAME,
    O_NO_REPLICAS,
    O_TREE,
    O_WRITE
};

static const struct option names[] = {
    {"against", required_argument, NULL, O_AGAINST},
    {"json", no_argument, NULL, O_JSON},
    {"list", no_argument, NULL, O_LIST},
    {"manifest", required_argument, NULL, O_MANIFEST},
    {"name", required_argument, NULL, O_NAME},
    {"no-replicas", no_argument, NULL, O_NO_REPLICAS},
    {"tree-options", required_argument, NULL, O_TREE},
    {"write", no_argument, NULL, O_WRITE},
    {"threads", required_argument, NULL, 'j'},
    {NULL, 0, NULL, 0},
};

/* As given; the lists are owned. */
struct given {
    const char *strategy[2]; /* -s and -d; NULL: none */
    char *view, *tree_view;  /* -o and --tree-options */
};

static int take_value(const struct rfs_args *args, int option, struct rfs_verify_options *out,
                      struct given *given, struct rfs_error *err)
{
    uint64_t number;

    switch (option) {
    case 's':
    case 'd':
        given->strategy[option == 'd'] = args->value;
        return 0;
    case 'o':
        return rfs_args_add(&given->view, NULL, args->value, err);
    case O_TREE:
        return rfs_args_add(&given->tree_view, NULL, args->value, err);
    case O_AGAINST:
        out->against = args->value;
        return 0;
    case O_MANIFEST:
        out->manifest = args->value;
        return 0;
    case O_NAME:
        return RFS_PUSH(&out->globs, args->value) ? 0 : rfs_fail_memory(err);
    default:
        if (!rfs_tool_number(args->value, false, 1, RFS_SWEEP_THREADS, &number))
            return rfs_args_refuse(args, "-j 1 to -j 256", err);
        out->threads = (unsigned)number;
        return 0;
    }
}

static int take(const struct rfs_args *args, int option, struct rfs_verify_options *out,
                struct given *given, struct rfs_error *err)
{
    switch (option) {
    case RFS_ARGS_PLACE:
        if (out->tree)
            return rfs_fail_usage(err, "--against SRC for the source", "'%s' is a second path",
                                  args->value);
        out->tree = args->value;
        return 0;
    case O_JSON:
        out->json = true;
        return 0;
    case O_LIST:
        out->list = true;
        return 0;
    case O_NO_REPLICAS:
        out->no_replicas = true;
        return 0;
    case O_WRITE:
        out->write = true;
        return 0;
    default:
        return take_value(args, option, out, given, err);
    }
}

/* A list of a strategy for each side (NULL: none) and of more options (NULL: none). 0 or -ENOMEM. */
static int make_view(char **list, const char *src, const char *dst, const char *more,
                     struct rfs_error *err)
{
    int rc = src ? rfs_args_add(list, "src_strategy", src, err) : 0;

    if (rc == 0 && dst)
        rc = rfs_args_add(list, "dst_strategy", dst, err);
    if (rc == 0 && more && *more)
        rc = rfs_args_add(list, NULL, more, err);
    return rc;
}

/* The tree is read by what -o says of the destination, beside what says how it is read. */
static int add_destination(const char *view, char **tree, struct rfs_error *err)
{
    struct rfs_options options;
    char ranks[16];
    int rc = rfs_options_parse(view, &options, err);

    snprintf(ranks, sizeof ranks, "%" PRIu32, options.dst_ranks);
    if (rc == 0 && options.dst_strategy)
        rc = rfs_args_add(tree, "src_strategy", options.dst_strategy, err);
    if (rc == 0 && options.dst_rules)
        rc = rfs_args_add(tree, "src_rules", options.dst_rules, err);
    if (rc == 0 && options.dst_rules)
        rc = rfs_args_add(tree, "src_ranks", ranks, err);
    rfs_options_free(&options);
    return rc;
}

static int make_views(const struct given *given, struct rfs_verify_options *out,
                      struct rfs_error *err)
{
    const char *const *strategy = given->strategy;

    /* Headers of the tree are read, whatever an earlier view has kept of them. */
    if (rfs_args_add(&out->tree_view, "index_cache", "no", err))
        return -ENOMEM;
    if (!out->against)
        return make_view(&out->tree_view, strategy[0], NULL, given->view, err);
    int rc = strategy[1] ? 0 : add_destination(given->view, &out->tree_view, err);
    if (rc == 0)
        rc = make_view(&out->tree_view, strategy[1], NULL, given->tree_view, err);
    return rc ? rc : make_view(&out->src_view, strategy[0], strategy[1], given->view, err);
}

static int check(const struct rfs_verify_options *options, const struct given *given,
                 struct rfs_error *err)
{
    if (!options->tree)
        return rfs_fail_usage(err, "reshard verify TREE --against SRC",
                              "verify takes the path of a tree");
    if (!options->against && given->strategy[1])
        return rfs_fail_usage(err, "-s FILE for the strategy of TREE",
                              "-d is the strategy of TREE beside --against SRC only");
    if (!options->against && given->tree_view)
        return rfs_fail_usage(err, "-o", "--tree-options goes with --against SRC only");
    if (options->write && !options->manifest)
        return rfs_fail_usage(err, "--manifest FILE",
                              "--write writes a manifest, and none is named");
    return 0;
}

int rfs_verify_parse(int argc, char **argv, struct rfs_verify_options *out, struct rfs_error *err)
{
    struct rfs_args args = {.argc = argc, .argv = argv, .letters = "s:d:o:j:", .names = names};
    struct given given = {0};
    int rc = 0;

    *out = (struct rfs_verify_options){.threads = rfs_tool_processors(RFS_SWEEP_THREADS)};
    for (int option; rc == 0 && (option = rfs_args_next(&args, err)) != RFS_ARGS_END;)
        rc = option < 0 ? option : take(&args, option, out, &given, err);
    if (rc == 0)
        rc = make_views(&given, out, err);
    if (rc == 0)
        rc = check(out, &given, err);
    free(given.view);
    free(given.tree_view);
    return rc;
}

void rfs_verify_options_free(struct rfs_verify_options *options)
{
    free(options->tree_view);
    free(options->src_view);
    free(options->globs.data);
}
