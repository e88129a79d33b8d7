/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/verify/verify.h"

#include "tool/common/open.h"
#include "view/options.h"

const struct rfs_argument rfs_verify_arguments[] = {
    RFS_ARG_PLACE("TREE", struct rfs_verify_options, tree, "--against SRC for the source"),
    RFS_ARG_TEXT("against", "SRC", struct rfs_verify_options, against, "the source of TREE"),
    RFS_ARG_FILE('s', struct rfs_verify_options, given.strategy[0], NULL),
    RFS_ARG_FILE('d', struct rfs_verify_options, given.strategy[1],
                 "the strategies of SRC and of TREE; -s alone: of TREE"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct rfs_verify_options, given.view,
                 "the options that TREE was mounted or exported with"),
    RFS_ARG_VIEW_NAMED("tree-options", "OPTION,…", NULL, struct rfs_verify_options, given.tree_view,
                       "options to read TREE by"),
    RFS_ARG_TEXT("manifest", "FILE", struct rfs_verify_options, manifest,
                 "compare with the checksums in FILE; if missing, write it"),
    RFS_ARG_FLAG("write", struct rfs_verify_options, write, "write it in any case"),
    RFS_ARG_FLAG("no-replicas", struct rfs_verify_options, no_replicas,
                 "read one copy of slices that several ranks have"),
    RFS_ARG_TEXTS("name", "GLOB", struct rfs_verify_options, globs,
                  "only these tensors; may be given several times"),
    RFS_ARG_FLAG("list", struct rfs_verify_options, list,
                 "show the XXH3-128 of each tensor as a whole"),
    RFS_ARG_THREADS("threads", struct rfs_verify_options, threads),
    RFS_ARG_FLAG("json", struct rfs_verify_options, json, "for scripts"),
    {0},
};

/* Adds an option, if there is a value. 0 or -ENOMEM. */
static int add(struct rfs_settings *view, const char *name, const char *value)
{
    return value ? rfs_settings_add(view, name, value, NULL) : 0;
}

/*
 * The tree is read by the destination's strategy, that of -d or of -o. What view=dcp and
 * view=mindformers make describes its own cuts, and takes none.
 */
static int add_destination(struct rfs_verify_options *out, struct rfs_error *err)
{
    struct rfs_settings *tree = &out->tree_view;
    const char *dst = out->given.strategy[1];
    struct rfs_options options;
    char ranks[16];
    int rc = rfs_options_take(&out->given.view, &options, err);

    snprintf(ranks, sizeof ranks, "%" PRIu32, options.dst_ranks);
    out->described = options.shown == RFS_SHOW_DCP || options.shown == RFS_SHOW_MINDFORMERS;
    if (rc == 0 && options.names && !(out->names = strdup(options.names)))
        rc = -ENOMEM;
    if (rc == 0 && !out->described) {
        rc = add(tree, "src_strategy", dst ? dst : options.dst_strategy);
        if (rc == 0 && !dst)
            rc = add(tree, "src_rules", options.dst_rules)
                     ?: add(tree, "src_ranks", options.dst_rules ? ranks : NULL);
    }
    rfs_options_free(&options);
    return rc;
}

static int make_views(struct rfs_verify_options *out, struct rfs_error *err)
{
    const char *const *strategy = out->given.strategy;
    /* Headers of the tree are read, whatever an earlier view has kept of them. */
    int rc = add(&out->tree_view, "index_cache", "no");

    if (rc == 0)
        rc = out->against ? add_destination(out, err)
                                ?: rfs_settings_add_all(&out->tree_view, &out->given.tree_view)
                          : add(&out->tree_view, "src_strategy", strategy[0])
                                ?: rfs_settings_add_all(&out->tree_view, &out->given.view);
    if (rc || !out->against)
        return rc;
    return add(&out->src_view, "src_strategy", strategy[0])
            ?: add(&out->src_view, "dst_strategy", strategy[1])
            ?: rfs_settings_add_all(&out->src_view, &out->given.view)
            ?: rfs_tool_share_store(&out->src_view, &out->tree_view);
}

static int check(const struct rfs_verify_options *options, struct rfs_error *err)
{
    if (!options->tree)
        return rfs_fail_usage(err, "reshard verify TREE --against SRC",
                              "verify takes the path of a tree");
    if (!options->against && options->given.strategy[1])
        return rfs_fail_usage(err, "-s FILE for the strategy of TREE",
                              "-d is the strategy of TREE beside --against SRC only");
    if (!options->against && options->given.tree_view.list.n > 0)
        return rfs_fail_usage(err, "-o", "--tree-options goes with --against SRC only");
    if (options->write && !options->manifest)
        return rfs_fail_usage(err, "--manifest FILE",
                              "--write writes a manifest, and none is named");
    return 0;
}

int rfs_verify_settle(struct rfs_verify_options *options, struct rfs_error *err)
{
    const int rc = make_views(options, err);

    return rc == -ENOMEM ? rfs_fail_memory(err) : rc ? rc : check(options, err);
}

void rfs_verify_views_free(struct rfs_verify_options *options)
{
    rfs_settings_free(&options->tree_view);
    rfs_settings_free(&options->src_view);
    free(options->names);
}
