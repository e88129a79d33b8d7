/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/verify/verify.h"

#include "base/cleanup.h"
#include "tool/common/tool.h"
#include "view/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const struct rfs_argument rfs_verify_arguments[] = {
    RFS_ARG_PLACE("TREE", struct rfs_verify_options, tree, "--against SRC for the source"),
    RFS_ARG_TEXT("against", "SRC", struct rfs_verify_options, against, "what TREE was made from"),
    RFS_ARG_FILE('s', struct rfs_verify_options, given.strategy[0], NULL),
    RFS_ARG_FILE('d', struct rfs_verify_options, given.strategy[1],
                 "the strategies of SRC and of TREE; -s alone: of TREE"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct rfs_verify_options, given.view,
                 "the options that TREE was mounted or exported with"),
    RFS_ARG_VIEW_NAMED("tree-options", "OPTION,…", NULL, struct rfs_verify_options, given.tree_view,
                       "options of a view that say how TREE is read"),
    RFS_ARG_TEXT("manifest", "FILE", struct rfs_verify_options, manifest,
                 "compare with the checksums in FILE; if missing, write it"),
    RFS_ARG_FLAG("write", struct rfs_verify_options, write, "write it in any case"),
    RFS_ARG_FLAG("no-replicas", struct rfs_verify_options, no_replicas,
                 "read one copy of what several ranks hold, not all"),
    RFS_ARG_TEXTS("name", "GLOB", struct rfs_verify_options, globs,
                  "the tensors with such a name alone; may be given again"),
    RFS_ARG_FLAG("list", struct rfs_verify_options, list,
                 "show the XXH3-128 of each tensor as a whole"),
    RFS_ARG_THREADS("threads", struct rfs_verify_options, threads),
    RFS_ARG_FLAG("json", struct rfs_verify_options, json, "for scripts"),
    {0},
};

/*
 * A list of a strategy for each side (NULL: none) and of more options (NULL: none). 0 or -ENOMEM.
 */
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

static int make_views(struct rfs_verify_options *out, struct rfs_error *err)
{
    const char *const *strategy = out->given.strategy;

    /* Headers of the tree are read, whatever an earlier view has kept of them. */
    if (rfs_args_add(&out->tree_view, "index_cache", "no", err))
        return -ENOMEM;
    if (!out->against)
        return make_view(&out->tree_view, strategy[0], NULL, out->given.view, err);
    int rc = strategy[1] ? 0 : add_destination(out->given.view, &out->tree_view, err);
    if (rc == 0)
        rc = make_view(&out->tree_view, strategy[1], NULL, out->given.tree_view, err);
    return rc ? rc : make_view(&out->src_view, strategy[0], strategy[1], out->given.view, err);
}

static int check(const struct rfs_verify_options *options, struct rfs_error *err)
{
    if (!options->tree)
        return rfs_fail_usage(err, "reshard verify TREE --against SRC",
                              "verify takes the path of a tree");
    if (!options->against && options->given.strategy[1])
        return rfs_fail_usage(err, "-s FILE for the strategy of TREE",
                              "-d is the strategy of TREE beside --against SRC only");
    if (!options->against && options->given.tree_view)
        return rfs_fail_usage(err, "-o", "--tree-options goes with --against SRC only");
    if (options->write && !options->manifest)
        return rfs_fail_usage(err, "--manifest FILE",
                              "--write writes a manifest, and none is named");
    return 0;
}

int rfs_verify_parse(int argc, char **argv, struct rfs_verify_options *out, struct rfs_error *err)
{
    *out = (struct rfs_verify_options){.threads = rfs_tool_processors(RFS_MOST_THREADS)};
    int rc = rfs_args_parse(rfs_verify_arguments, argc, argv, out, err);
    if (rc == 0)
        rc = make_views(out, err);
    return rc ? rc : check(out, err);
}

void rfs_verify_options_free(struct rfs_verify_options *options)
{
    free(options->tree_view);
    free(options->src_view);
    free(options->given.view);
    free(options->given.tree_view);
    free(options->globs.data);
}
