/* SPDX-License-Identifier: Apache-2.0 */
/* What scripts read; reshard(1) tells the keys. */
#include "tool/common/layout_text.h"
#include "tool/common/table.h"
#include "tool/layout/layout.h"

#include <inttypes.h>

static void put_rank(const struct rfs_group *group, uint32_t rank)
{
    const struct rfs_grid *grid = &group->grid;
    uint32_t cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(grid, rank, cell);
    printf("{\"rank\":%" PRIu32 ",\"slice\":%" PRIu32 ",\"pieces\":[",
           group->stage * grid->ranks + rank, rfs_group_slice(group, rank));
    for (uint32_t i = 0; i < grid->ndim; i++)
        printf("%s%" PRIu32, i > 0 ? "," : "", cell[i]);
    putchar(']');
    for (uint32_t k = 0; group->known && k < grid->rounds; k++) {
        fputs(k > 0 ? ",[" : ",\"boxes\":[[", stdout);
        for (uint32_t i = 0; i < grid->ndim; i++) {
            const uint64_t at = rfs_grid_begin(grid, group->whole, i, cell[i]);
            printf("%s[%" PRIu64 ",%" PRIu64 "]", i > 0 ? "," : "", at,
                   at + rfs_grid_length(grid, group->whole, i, cell[i]));
        }
        fputs(k + 1 == grid->rounds ? "]]" : "]", stdout);
        cell[0] += grid->pieces[0] / grid->rounds;
    }
    putchar('}');
}

static void put_group(const struct rfs_layout_job *job, const struct rfs_group *group)
{
    const struct rfs_layout *layout = group->layout;

    printf("{\"stage\":%" PRIu32 ",\"device_matrix\":", group->stage);
    rfs_put_matrix(stdout, layout);
    fputs(",\"tensor_map\":", stdout);
    rfs_put_map(stdout, layout);
    printf(",\"optimizer_shard\":%" PRIu32 ",\"shape\":", layout->opt_size);
    if (group->known)
        rfs_put_dims(stdout, group->grid.ndim, group->whole);
    else
        fputs("null", stdout);
    fputs(",\"cuts\":[", stdout);
    for (uint32_t i = 0; i < group->grid.ndim; i++)
        printf("%s%" PRIu32, i > 0 ? "," : "", group->grid.pieces[i]);
    printf("],\"replicas\":%" PRIu32 ",\"fields\":%" PRIu32 ",\"parameters\":[",
           group->grid.replicas, group->grid.rounds);
    for (size_t i = 0; i < group->n; i++) {
        if (i > 0)
            putchar(',');
        rfs_json_text(stdout,
                      rfs_strategy_param(job->strategy, job->groups.params[group->first + i]));
    }
    fputs("],\"ranks\":[", stdout);
    for (uint32_t rank = 0; rank < group->grid.ranks; rank++) {
        fputs(rank > 0 ? ",\n" : "\n", stdout);
        put_rank(group, rank);
    }
    fputs("]}", stdout);
}

void rfs_layout_json(const struct rfs_layout_job *job)
{
    fputs("{\"file\":", stdout);
    rfs_json_text(stdout, job->file);
    printf(",\"stages\":%" PRIu32 ",\"devices\":%" PRIu32 ",\"layouts\":[",
           rfs_strategy_stages(job->strategy), rfs_strategy_devices(job->strategy));
    for (size_t i = 0; i < job->groups.n; i++) {
        fputs(i > 0 ? ",\n" : "\n", stdout);
        put_group(job, &job->groups.data[i]);
    }
    fputs("]}\n", stdout);
}
