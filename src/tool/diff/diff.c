/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `reshard diff`. */
#include "tool/diff/diff.h"

#include "tool/common/command.h"
#include "tool/common/open.h"
#include "tool/common/sweep.h"

/* As diff(1). */
enum { SAME = 0, DIFFERENT = 1, TROUBLE = 2 };

static const struct rfs_argument arguments[] = {
    RFS_ARG_PLACE("A", struct rfs_diff_options, path[0], NULL),
    RFS_ARG_PLACE("B", struct rfs_diff_options, path[1], "reshard diff A B"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct rfs_diff_options, view[0], NULL),
    RFS_ARG_VIEW('d', "FILE", "src_strategy", struct rfs_diff_options, view[1],
                 "the strategies of A and of B, where they are sharded"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct rfs_diff_options, view[0], "options to read A by"),
    RFS_ARG_VIEW_NAMED("options-b", "OPTION,…", NULL, struct rfs_diff_options, view[1],
                       "the same for B"),
    RFS_ARG_REAL("rtol", "R", struct rfs_diff_options, tolerance.relative, NULL),
    RFS_ARG_REAL("atol", "A", struct rfs_diff_options, tolerance.absolute,
                 "accept |a - b| <= A + R * |b|"),
    RFS_ARG_FLAG("any-dtype", struct rfs_diff_options, any_dtype, "accept another element type"),
    RFS_ARG_CHOICE("names-only", struct rfs_diff_options, depth, RFS_DIFF_NAMES,
                   "compare only names"),
    RFS_ARG_CHOICE("headers", struct rfs_diff_options, depth, RFS_DIFF_HEADERS,
                   "compare only names, shapes and element types"),
    RFS_ARG_TEXTS("name", "GLOB", struct rfs_diff_options, globs,
                  "only these tensors; may be given several times"),
    RFS_ARG_FLAG("all", struct rfs_diff_options, all, "list equal tensors, too"),
    RFS_ARG_THREADS("threads", struct rfs_diff_options, threads),
    RFS_ARG_FLAG("json", struct rfs_diff_options, json, "for scripts"),
    {0},
};

static int compare(struct rfs_diff *diff, bool *same, struct rfs_error *err)
{
    struct rfs_diff_options *options = diff->options;
    int rc = rfs_tool_share_store(&options->view[0], &options->view[1]) ? rfs_fail_memory(err) : 0;

    for (int side = 0; rc == 0 && side < 2; side++) {
        rc = rfs_whole_open(options->path[side], &options->view[side], &options->globs, NULL,
                            &diff->whole[side], NULL, err);
        rfs_whole_name_strategy(side == 0 ? "-s" : "-d", err);
    }
    if (rc == 0)
        rc = rfs_globs_check(&options->globs, err);
    if (rc == 0)
        diff->parts = rfs_whole_match(&diff->whole[0], &diff->whole[1]);
    if (rc == 0)
        rc = rfs_diff_pair(diff, err);
    if (rc == 0)
        rc = rfs_diff_read(diff, err);
    if (rc == 0)
        rfs_diff_write(diff);
    *same = true;
    for (size_t i = 0; i < diff->pairs.n; i++)
        *same &= rfs_pair_is_same(options, &diff->pairs.data[i]);
    return rc;
}

static int run(void *request, struct rfs_error *err)
{
    struct rfs_diff diff = {.options = request};
    bool same = false;
    int rc = 0;

    if (!diff.options->path[1])
        return rfs_fail_usage(err, "reshard diff A B", "diff takes two paths");
    rc = compare(&diff, &same, err);
    for (int side = 0; side < 2; side++)
        rfs_whole_close(&diff.whole[side]);
    free(diff.pairs.data);
    return rc ? rc : same ? SAME : DIFFERENT;
}

static const struct rfs_diff_options defaults = {.depth = RFS_DIFF_VALUES};

const struct rfs_command rfs_command_diff = {
    .name = "diff",
    .usage = "reshard diff A B [-s FILE] [-d FILE] [option…]\n",
    .summary = "compares the values of two checkpoints, however they are sharded",
    .arguments = arguments,
    .after = "\nExit status: 0 the same, 1 different, 2 trouble, as diff(1).\n",
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .trouble = TROUBLE,
    .run = run,
};
