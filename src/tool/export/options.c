/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/options.h"

#include "tool/common/args.h"
#include "tool/common/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    O_RANKS = RFS_ARGS_LONG,
    O_NO_FSYNC,
    O_VERIFY,
    O_TRUST,
    O_JSON,
    O_FORCE,
    O_TASK,
};

static const struct option long_options[] = {
    {"ranks", required_argument, NULL, O_RANKS},
    {"format", required_argument, NULL, RFS_ARGS_FORMAT},
    {"no-fsync", no_argument, NULL, O_NO_FSYNC},
    {"verify", no_argument, NULL, O_VERIFY},
    {"trust", no_argument, NULL, O_TRUST},
    {"json", no_argument, NULL, O_JSON},
    {"force", no_argument, NULL, O_FORCE},
    {"task", required_argument, NULL, O_TASK},
    {NULL, 0, NULL, 0},
};

/* ---- the command line -------------------------------------------------------------------------------- */

static int take_value(const struct rfs_args *args, int option, struct rfs_export_options *out,
                      struct rfs_error *err)
{
    uint64_t number = 0;

    switch (option) {
    case O_RANKS:
        return rfs_ranks_parse(args->value, &out->ranks, err);
    case O_TASK:
        return rfs_task_parse(args->value, &out->task)
                   ? 0
                   : rfs_args_refuse(args, "--task K/N, K from 0 to N - 1", err);
    default:
        if (!rfs_tool_number(args->value, false, 1, RFS_EXPORT_MOST_THREADS, &number))
            return rfs_args_refuse(args, "-j 1 to -j 256", err);
        out->threads = (unsigned)number;
        return 0;
    }
}

static void take_flag(int option, struct rfs_export_options *out)
{
    out->no_fsync |= option == O_NO_FSYNC;
    out->verify |= option == O_VERIFY;
    out->trust |= option == O_TRUST;
    out->json |= option == O_JSON;
    out->force |= option == O_FORCE;
}

static int take_place(const char *place, struct rfs_export_options *out, struct rfs_error *err)
{
    if (out->target)
        return rfs_fail_usage(err, "one SRC and one DST", "'%s' is a third path", place);
    /* "" is a variable of the caller's that is not set, not the current folder. */
    if (!*place)
        return rfs_fail_usage(err, "reshard export SRC DST", "a path is empty");
    *(out->source ? &out->target : &out->source) = place;
    return 0;
}

static int check_places(struct rfs_export_options *out, struct rfs_error *err)
{
    if (!out->source || (!out->target && !out->verify))
        return rfs_fail_usage(err, "reshard export SRC DST -s FILE -d FILE",
                              "export takes a source and a folder to write to");
    if (out->target)
        return 0;
    out->target = out->source;
    out->source = NULL;
    return out->view || out->ranks.n > 0
               ? rfs_fail_usage(err, "reshard export SRC DST --verify, or --verify DST alone",
                                "options of a source are given, and no source")
               : 0;
}

int rfs_export_options_parse(int argc, char **argv, struct rfs_export_options *out,
                             struct rfs_error *err)
{
    struct rfs_args args = {
        .argc = argc, .argv = argv, .letters = RFS_ARGS_VIEW "j:", .names = long_options};
    int rc = 0;

    *out = (struct rfs_export_options){0};
    for (int option; rc == 0 && (option = rfs_args_next(&args, err)) != RFS_ARGS_END;) {
        if (option < 0)
            return option;
        if (option == RFS_ARGS_PLACE) {
            rc = take_place(args.value, out, err);
            continue;
        }
        rc = rfs_args_view(&args, option, &out->view, err);
        if (rc != 0)
            rc = rc < 0 ? rc : 0;
        else if (args.value)
            rc = take_value(&args, option, out, err);
        else
            take_flag(option, out);
    }
    return rc ? rc : check_places(out, err);
}

void rfs_export_options_free(struct rfs_export_options *options)
{
    free(options->view);
    free(options->ranks.data);
    *options = (struct rfs_export_options){0};
}
