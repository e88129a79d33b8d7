/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `reshard diff`. */
#include "tool/diff/diff.h"

#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/sweep.h"
#include "tool/common/tool.h"

#include <math.h>
#include <stdlib.h>

/* As diff(1). */
enum { SAME = 0, DIFFERENT = 1, TROUBLE = 2 };

enum { O_JSON = RFS_ARGS_LONG, O_NAME, O_NAMES, O_HEADERS, O_DTYPE, O_ALL, O_RTOL, O_ATOL, O_B };

static const struct option names[] = {
    {"json", no_argument, NULL, O_JSON},
    {"name", required_argument, NULL, O_NAME},
    {"names-only", no_argument, NULL, O_NAMES},
    {"headers", no_argument, NULL, O_HEADERS},
    {"any-dtype", no_argument, NULL, O_DTYPE},
    {"all", no_argument, NULL, O_ALL},
    {"rtol", required_argument, NULL, O_RTOL},
    {"atol", required_argument, NULL, O_ATOL},
    {"options-b", required_argument, NULL, O_B},
    {"threads", required_argument, NULL, 'j'},
    {NULL, 0, NULL, 0},
};

static int take_tolerance(const struct rfs_args *args, double *out, struct rfs_error *err)
{
    char *end;

    *out = strtod(args->value, &end);
    return end > args->value && *end == '\0' && *out >= 0 && isfinite(*out)
               ? 0
               : rfs_args_refuse(args, "a number from 0 on, such as 1e-5", err);
}

static int take_path(const struct rfs_args *args, struct rfs_diff_options *out,
                     struct rfs_error *err)
{
    const int at = out->path[0] != NULL;

    if (out->path[at])
        return rfs_fail_usage(err, "reshard diff A B", "'%s' is a third path", args->value);
    out->path[at] = args->value;
    return 0;
}

static int take_value(const struct rfs_args *args, int option, struct rfs_diff_options *out,
                      struct rfs_error *err)
{
    uint64_t number;

    switch (option) {
    case 's':
        return rfs_args_add(&out->view[0], "src_strategy", args->value, err);
    case 'd':
        return rfs_args_add(&out->view[1], "src_strategy", args->value, err);
    case 'o':
        return rfs_args_add(&out->view[0], NULL, args->value, err);
    case O_B:
        return rfs_args_add(&out->view[1], NULL, args->value, err);
    case O_NAME:
        return RFS_PUSH(&out->globs, args->value) ? 0 : rfs_fail_memory(err);
    case O_RTOL:
        return take_tolerance(args, &out->tolerance.relative, err);
    case O_ATOL:
        return take_tolerance(args, &out->tolerance.absolute, err);
    default:
        if (!rfs_tool_number(args->value, false, 1, RFS_SWEEP_THREADS, &number))
            return rfs_args_refuse(args, "-j 1 to -j 256", err);
        out->threads = (unsigned)number;
        return 0;
    }
}

static int take(const struct rfs_args *args, int option, struct rfs_diff_options *out,
                struct rfs_error *err)
{
    switch (option) {
    case RFS_ARGS_PLACE:
        return take_path(args, out, err);
    case O_JSON:
        out->json = true;
        return 0;
    case O_NAMES:
        out->depth = RFS_DIFF_NAMES;
        return 0;
    case O_HEADERS:
        out->depth = RFS_DIFF_HEADERS;
        return 0;
    case O_DTYPE:
        out->any_dtype = true;
        return 0;
    case O_ALL:
        out->all = true;
        return 0;
    default:
        return take_value(args, option, out, err);
    }
}

static int parse(int argc, char **argv, struct rfs_diff_options *out, struct rfs_error *err)
{
    struct rfs_args args = {.argc = argc, .argv = argv, .letters = "s:d:o:j:", .names = names};
    int rc = 0;

    for (int option; rc == 0 && (option = rfs_args_next(&args, err)) != RFS_ARGS_END;)
        rc = option < 0 ? option : take(&args, option, out, err);
    if (rc == 0 && !out->path[1])
        rc = rfs_fail_usage(err, "reshard diff A B", "diff takes two paths");
    return rc;
}

static int compare(struct rfs_diff *diff, bool *same, struct rfs_error *err)
{
    struct rfs_diff_options *options = diff->options;
    int rc = 0;

    for (int side = 0; rc == 0 && side < 2; side++)
        rc = rfs_whole_open(options->path[side], options->view[side], &options->globs, false,
                            &diff->whole[side], NULL, err);
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

static int run(int argc, char **argv)
{
    struct rfs_error err = {0};
    struct rfs_diff_options options = {.threads = rfs_tool_processors(RFS_SWEEP_THREADS),
                                       .depth = RFS_DIFF_VALUES};
    struct rfs_diff diff = {.options = &options};
    bool same = false;
    int rc = parse(argc, argv, &options, &err);

    if (rc == 0)
        rc = compare(&diff, &same, &err);
    for (int side = 0; side < 2; side++) {
        rfs_whole_close(&diff.whole[side]);
        free(options.view[side]);
    }
    free(diff.pairs.data);
    free(options.globs.data);
    if (rc) {
        rfs_tool_failed(&err);
        return TROUBLE;
    }
    return rfs_tool_done() ? TROUBLE : same ? SAME : DIFFERENT;
}

const struct rfs_command rfs_command_diff = {
    .name = "diff",
    .usage = "reshard diff A B [-s FILE] [-d FILE] [option…]\n",
    .summary = "compares two checkpoints, however they are sharded, by their values",
    .options = "  -s FILE, -d FILE   the strategies of A and of B, where they are sharded\n"
               "  -o OPTION,…        any option of the view that says how A is read\n"
               "  --options-b OPTION,…  the same for B\n"
               "  --rtol R, --atol A  what |a - b| <= A + R * |b| holds for is no difference\n"
               "  --any-dtype        another element type alone is no difference\n"
               "  --names-only       compare names alone\n"
               "  --headers          compare names, shapes and element types alone\n"
               "  --name GLOB        the tensors with such a name alone; may be given again\n"
               "  --all              show also what is the same\n"
               "  -j, --threads N    threads (as many as there are processors)\n"
               "  --json             for scripts\n"
               "\nExit status: 0 the same, 1 different, 2 trouble, as diff(1).\n",
    .run = run,
};
