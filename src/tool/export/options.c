/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/options.h"

static int take_task(const struct rfs_given *given, void *request, struct rfs_error *err)
{
    struct rfs_export_options *out = request;

    return rfs_task_parse(given->value, &out->task)
               ? 0
               : rfs_args_refuse(given, "--task K/N, K from 0 to N - 1", err);
}

const struct rfs_argument rfs_export_arguments[] = {
    RFS_ARG_PLACE("SRC", struct rfs_export_options, source, NULL),
    RFS_ARG_PLACE("DST", struct rfs_export_options, target, "one SRC and one DST"),
    RFS_ARG_DESTINATION(struct rfs_export_options, view,
                        "strategies of SRC and of DST (none: one whole checkpoint)",
                        "any option of the view, as of reshardfs: view=huggingface"),
    RFS_ARG_VIEW_NAMED("format", "FORMAT", "format", struct rfs_export_options, view,
                       "ckpt, safetensors or pt (ckpt)"),
    RFS_ARG_RANKS("ranks", "0-63,70", "ranks and ranges of them, such as --ranks 0-63,70",
                  struct rfs_export_options, ranks, "only the files of these ranks"),
    RFS_ARG_THREADS(NULL, struct rfs_export_options, threads),
    RFS_ARG_FLAG("no-fsync", struct rfs_export_options, no_fsync,
                 "do not wait until all is on the disk"),
    RFS_ARG_FLAG("force", struct rfs_export_options, force,
                 "replace files that differ; write into any folder"),
    RFS_ARG_FLAG("trust", struct rfs_export_options, trust,
                 "keep files of the manifest without reading them again"),
    RFS_ARG_FLAG("verify", struct rfs_export_options, verify,
                 "write nothing: compare all with the manifest"),
    RFS_ARG_OWN("task", "K/N", take_task, "the files of task K of N (srun and mpirun set it)"),
    RFS_ARG_FLAG("json", struct rfs_export_options, json,
                 "progress and result as JSON, a line each"),
    {0},
};

int rfs_export_options_check(struct rfs_export_options *out, struct rfs_error *err)
{
    if (!out->source || (!out->target && !out->verify))
        return rfs_fail_usage(err, "reshard export SRC DST -s FILE -d FILE",
                              "export takes a source and a folder to write to");
    /* "" is a variable of the caller's that is not set, not the current folder. */
    if (!*out->source || (out->target && !*out->target))
        return rfs_fail_usage(err, "reshard export SRC DST", "a path is empty");
    if (out->target)
        return 0;
    out->target = out->source;
    out->source = NULL;
    return out->view.list.n > 0 || out->ranks.n > 0
               ? rfs_fail_usage(err, "reshard export SRC DST --verify, or --verify DST alone",
                                "options of a source are given, and no source")
               : 0;
}
