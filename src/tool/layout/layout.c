/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/layout/layout.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "tool/common/command.h"
#include "tool/common/layout_text.h"
#include "tool/common/open.h"
#include "tool/common/show.h"
#include "tool/common/tool.h"
#include "view/strategy_files.h"

#include <langinfo.h>
#include <locale.h>

/* ---- JSON for scripts; reshard(1) has the keys ---- */

static void put_boxes(struct rfs_json_write *json, const struct rfs_group *group, uint32_t *cell)
{
    const struct rfs_grid *grid = &group->grid;

    rfs_json_array(json, "boxes", RFS_JSON_TIGHT);
    for (uint32_t k = 0; k < grid->rounds; k++) {
        rfs_json_array(json, NULL, RFS_JSON_TIGHT);
        for (uint32_t i = 0; i < grid->ndim; i++) {
            const uint64_t at = rfs_grid_begin(grid, group->whole, i, cell[i]);
            const uint64_t ends[] = {at, at + rfs_grid_length(grid, group->whole, i, cell[i])};
            rfs_json_put_u64s(json, NULL, RFS_JSON_TIGHT, ends, 2);
        }
        rfs_json_end(json);
        cell[0] += grid->pieces[0] / grid->rounds;
    }
    rfs_json_end(json);
}

static void put_rank(struct rfs_json_write *json, const struct rfs_group *group, uint32_t rank)
{
    const struct rfs_grid *grid = &group->grid;
    uint32_t cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(grid, rank, cell);
    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "rank", group->stage * grid->ranks + rank);
    rfs_json_put_u64(json, "slice", rfs_group_slice(group, rank));
    rfs_json_put_u32s(json, "pieces", RFS_JSON_TIGHT, cell, grid->ndim);
    if (group->known)
        put_boxes(json, group, cell);
    rfs_json_end(json);
}

static void put_group(struct rfs_json_write *json, const struct rfs_layout_job *job,
                      const struct rfs_group *group)
{
    const struct rfs_layout *layout = group->layout;
    struct rfs_printed shown;

    rfs_put_map(rfs_printed_begin(&shown), layout);
    RFS_FREE char *map = rfs_printed_end(&shown);
    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "stage", group->stage);
    rfs_json_put_u32s(json, "device_matrix", RFS_JSON_SPACED, layout->dev, layout->n_dev);
    rfs_json_print(json, "tensor_map", "%s", map);
    rfs_json_put_u64(json, "optimizer_shard", layout->opt_size);
    if (group->known)
        rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, group->whole, group->grid.ndim);
    else
        rfs_json_put_null(json, "shape");
    rfs_json_put_u32s(json, "cuts", RFS_JSON_TIGHT, group->grid.pieces, group->grid.ndim);
    rfs_json_put_u64(json, "replicas", group->grid.replicas);
    rfs_json_put_u64(json, "fields", group->grid.rounds);
    rfs_json_array(json, "parameters", RFS_JSON_TIGHT);
    for (size_t i = 0; i < group->n; i++)
        rfs_json_put_text(json, NULL,
                          rfs_strategy_param(job->strategy, job->groups.params[group->first + i]));
    rfs_json_end(json);
    rfs_json_array(json, "ranks", RFS_JSON_TIGHT);
    for (uint32_t rank = 0; rank < group->grid.ranks; rank++)
        put_rank(json, group, rank);
    rfs_json_end(json);
    rfs_json_end(json);
}

static void print_json(const struct rfs_layout_job *job)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "file", job->file);
    rfs_json_put_u64(&json, "stages", rfs_strategy_stages(job->strategy));
    rfs_json_put_u64(&json, "devices", rfs_strategy_devices(job->strategy));
    rfs_json_array(&json, "layouts", RFS_JSON_TIGHT);
    for (size_t i = 0; i < job->groups.n; i++)
        put_group(&json, job, &job->groups.data[i]);
    rfs_json_finish(&json);
}

/* ---- the command ---- */

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
    int rc = rfs_tool_reach(NULL, &job->file, 1, err)
                 ?: rfs_view_read_strategy(job->file, &job->strategy, err);
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
        print_json(job);
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
