/* SPDX-License-Identifier: Apache-2.0 */
/* JSON for scripts; reshard(1) has the keys. */
#include "base/cleanup.h"
#include "base/json_write.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/layout/layout.h"

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

void rfs_layout_json(const struct rfs_layout_job *job)
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
