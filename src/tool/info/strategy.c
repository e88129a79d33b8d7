/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/strategy.h"
#include "base/cleanup.h"
#include "source/files.h"
#include "tool/info/info.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const struct rfs_column columns[] = {
    {"name", false, false}, {"stage", true, true},           {"devices", true, false},
    {"map", true, false},   {"optimizer_shard", true, true}, {"note", false, false},
};

/* "[2, 2, 2]" */
static void add_matrix(struct rfs_table *table, const struct rfs_layout *layout)
{
    char text[RFS_MAX_DEVICE_AXES * 12 + 3];
    size_t n = 0;
    text[n++] = '[';
    for (uint32_t i = 0; i < layout->n_dev; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRIu32, i > 0 ? ", " : "",
                              layout->dev[i]);
    text[n++] = ']';
    text[n] = '\0';
    rfs_table_add(table, "%s", text);
}

/* "[-1, 1]"; an axis that several device axes cut is a list of its own: "[[1, 0], -1]" */
static void add_map(struct rfs_table *table, const struct rfs_layout *layout)
{
    char text[RFS_MAX_CUTS * 18 + 3];
    size_t n = 0;
    text[n++] = '[';
    for (uint32_t axis = 0; axis < layout->n_axes; axis++) {
        const uint32_t begin = layout->start[axis];
        const uint32_t end = layout->start[axis + 1];
        const bool one = end == begin + 1;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", axis > 0 ? ", " : "",
                              one ? "" : "[");
        for (uint32_t i = begin; i < end; i++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRId32, i > begin ? ", " : "",
                                  layout->map[i]);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", one ? "" : "]");
    }
    text[n++] = ']';
    text[n] = '\0';
    rfs_table_add(table, "%s", text);
}

static void add_layout(struct rfs_table *table, const char *name, uint32_t stage,
                       const struct rfs_layout *layout)
{
    rfs_table_add(table, "%s", name);
    rfs_table_add(table, "%" PRIu32, stage);
    add_matrix(table, layout);
    add_map(table, layout);
    rfs_table_add(table, "%" PRIu32, layout->opt_size);
    rfs_table_add(table, "%s",
                  layout->edge || layout->unclear == RFS_UNCLEAR_OFFSETS ||
                          layout->unclear == RFS_UNCLEAR_SPLIT
                      ? "uneven split"
                  : layout->field || layout->unclear == RFS_UNCLEAR_FIELD ? "field slicing"
                                                                          : "");
}

int rfs_info_strategy(const char *path, struct rfs_report *report, struct rfs_error *err)
{
    report->kind = "strategy";
    report->path = strdup(path);
    report->table.columns = columns;
    report->table.n_columns = sizeof columns / sizeof *columns;
    if (report->path == NULL)
        return rfs_fail_memory(err);
    RFS_FREE char *data = NULL;
    size_t size = 0;
    int rc = rfs_read_whole(path, RFS_STRATEGY_BYTES, &data, &size, err);
    if (rc != 0)
        return rc;
    struct rfs_strategy *strategy = NULL;
    rc = rfs_strategy_parse(path, data, size, &strategy, err);
    if (rc != 0)
        return rc;
    const uint32_t stages = rfs_strategy_stages(strategy);
    const size_t n = rfs_strategy_count(strategy);
    for (size_t i = 0; i < n; i++)
        for (uint32_t stage = rfs_strategy_next_stage(strategy, i, 0); stage != RFS_NO_STAGE;
             stage = rfs_strategy_next_stage(strategy, i, stage + 1))
            add_layout(&report->table, rfs_strategy_param(strategy, i), stage,
                       rfs_strategy_layout(strategy, i, stage));
    const uint32_t devices = rfs_strategy_devices(strategy);
    snprintf(report->summary, sizeof report->summary,
             "strategy: %zu parameters, %" PRIu32 " stage%s of %" PRIu32 " device%s", n, stages,
             stages == 1 ? "" : "s", devices, devices == 1 ? "" : "s");
    rfs_strategy_free(strategy);
    return 0;
}
