/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/layout/layout.h"

#include "base/cleanup.h"
#include "tool/common/command.h"
#include "tool/common/tool.h"
#include "view/strategy_files.h"

#include <langinfo.h>
#include <locale.h>

/* "1024,512"; "" is that of a scalar. */
static bool parse_shape(const char *text, struct rfs_layout_job *out)
{
    RFS_FREE char *copy = strdup(text);
    uint64_t extent = 0;

    out->has_shape = true;
    out->n_shape = 0;
    for (char *part = copy && *copy ? copy : NULL, *next; part; part = next) {
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (out->n_shape == RFS_GRID_DIMS || !rfs_tool_number(part, false, 1, INT64_MAX, &extent))
            return false;
        out->shape[out->n_shape++] = extent;
    }
    return copy != NULL;
}

static int take_shape(const struct rfs_given *given, void *request, struct rfs_error *err)
{
    return parse_shape(given->value, request)
               ? 0
               : rfs_args_refuse(given, "a tensor's dims, such as --shape 1024,512", err);
}

static const struct rfs_argument arguments[] = {
    RFS_ARG_PLACE("FILE", struct rfs_layout_job, file, "one FILE"),
    RFS_ARG_TEXT("param", "NAME", struct rfs_layout_job, param, "one parameter"),
    RFS_ARG_OWN("shape", "N,N,...", take_shape,
                "the dims of its whole tensor, for slices in elements; else\nthey are fractions of "
                "the axes"),
    RFS_ARG_TEXT("svg", "FILE", struct rfs_layout_job, svg,
                 "also a picture; - for the standard output"),
    RFS_ARG_FLAG("json", struct rfs_layout_job, json, "for scripts"),
    {0},
};

static int show(struct rfs_layout_job *job, struct rfs_error *err)
{
    if (!job->file)
        return rfs_fail_usage(err, "reshard layout FILE", "layout takes a strategy file");
    if (job->has_shape && !job->param)
        return rfs_fail_usage(err, "--param NAME", "--shape is that of one parameter");
    int rc = rfs_view_read_strategy(job->file, &job->strategy, err);
    if (rc)
        return rc;
    const struct rfs_groups_use use = {.strategy = job->strategy,
                                       .param = job->param,
                                       .shape = job->has_shape ? job->shape : NULL,
                                       .n_shape = job->n_shape};
    rc = rfs_groups_make(&use, &job->groups, err);
    if (rc == 0 && job->svg)
        rc = rfs_layout_picture(job, err);
    if (rc == 0 && job->json)
        rfs_layout_json(job);
    else if (rc == 0 && (!job->svg || strcmp(job->svg, "-") != 0))
        rfs_layout_draw(job, strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
    return rc;
}

static int run(void *request, struct rfs_error *err)
{
    struct rfs_layout_job *job = request;

    setlocale(LC_CTYPE, "");
    const int rc = show(job, err);
    rfs_groups_free(&job->groups);
    rfs_strategy_free(job->strategy);
    return rc;
}

const struct rfs_command rfs_command_layout = {
    .name = "layout",
    .usage = "reshard layout FILE [--param NAME [--shape N,...]] [--svg FILE] [--json]\n",
    .summary = "draws how a strategy spreads tensors over its devices",
    .arguments = arguments,
    .request_bytes = sizeof(struct rfs_layout_job),
    .run = run,
};
