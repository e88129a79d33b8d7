/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/layout_text.h"
#include "tool/strategy/strategy.h"
#include "view/strategy_files.h"

static const struct rfs_column columns[] = {
    {"name", RFS_CELL_TEXT},    {"stage", RFS_CELL_NUMBER}, {"shape", RFS_CELL_JSON},
    {"devices", RFS_CELL_JSON}, {"map", RFS_CELL_JSON},     {"optimizer_shard", RFS_CELL_NUMBER},
    {"note", RFS_CELL_TEXT},
};

/* The whole shape: as the tree has it, or as JSON does where nothing is flattened. Gives a note. */
static const char *add_shape(struct rfs_table *table, size_t i, uint32_t stage,
                             const struct rfs_layout *layout, const struct rfs_fit *fit)
{
    struct rfs_fit_tensor tensor = {.slice = NULL};
    struct rfs_error err = {0};
    const int rc = fit ? rfs_fit_tensor(fit, i, stage, &tensor, &err) : 0;

    if (rc == 1)
        rfs_table_dims(table, tensor.slice->ndim, tensor.whole);
    else if (layout->n_expanded > 0 && !layout->edge)
        rfs_table_dims(table, layout->n_expanded, layout->expanded);
    else
        rfs_table_none(table, "?");
    return rc < 0 ? "does not fit the tree" : fit && rc == 0 ? "not in the tree" : "";
}

static const char *note_of(const struct rfs_layout *layout, const char *of_shape)
{
    if (layout->edge || layout->unclear == RFS_UNCLEAR_OFFSETS ||
        layout->unclear == RFS_UNCLEAR_SPLIT)
        return "uneven split";
    return layout->field || layout->unclear == RFS_UNCLEAR_FIELD ? "field slicing" : of_shape;
}

static void add_row(const struct rfs_strategy *strategy, const struct rfs_fit *fit, size_t i,
                    uint32_t stage, struct rfs_table *table)
{
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, i, stage);

    rfs_table_text(table, rfs_strategy_param(strategy, i));
    rfs_table_u64(table, stage);
    const char *note = add_shape(table, i, stage, layout, fit);
    rfs_table_layout(table, layout);
    rfs_table_text(table, note_of(layout, note));
}

void rfs_strategy_rows(const struct rfs_strategy *strategy, const struct rfs_fit *fit,
                       struct rfs_globs *globs, struct rfs_table *table)
{
    RFS_TABLE_DESCRIBE(table, columns);
    for (size_t i = 0; i < rfs_strategy_count(strategy); i++)
        for (uint32_t stage = rfs_strategy_next_stage(strategy, i, 0);
             stage != RFS_NO_STAGE && rfs_globs_take(globs, rfs_strategy_param(strategy, i));
             stage = rfs_strategy_next_stage(strategy, i, stage + 1))
            add_row(strategy, fit, i, stage, table);
}

void rfs_strategy_summary(const struct rfs_strategy *strategy, char *out, size_t size)
{
    const uint32_t stages = rfs_strategy_stages(strategy);
    const uint32_t devices = rfs_strategy_devices(strategy);

    snprintf(out, size, "strategy: %zu parameters, %" PRIu32 " stage%s of %" PRIu32 " device%s",
             rfs_strategy_count(strategy), stages, stages == 1 ? "" : "s", devices,
             devices == 1 ? "" : "s");
}

void rfs_strategy_json(struct rfs_json_write *json, const struct rfs_strategy *strategy)
{
    rfs_json_put_u64(json, "parameters", rfs_strategy_count(strategy));
    rfs_json_put_u64(json, "stages", rfs_strategy_stages(strategy));
    rfs_json_put_u64(json, "devices", rfs_strategy_devices(strategy));
}

static void print(const char *path, const struct rfs_strategy *strategy,
                  const struct rfs_table *table, bool json)
{
    char summary[256];

    rfs_strategy_summary(strategy, summary, sizeof summary);
    if (!json) {
        rfs_table_print(table, stdout);
        printf("\n%s\n", summary);
        return;
    }
    struct rfs_json_write out = {.file = stdout};
    rfs_json_object(&out, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&out, "kind", "strategy");
    rfs_json_put_text(&out, "path", path);
    rfs_strategy_json(&out, strategy);
    rfs_table_put_json(table, &out, "rows");
    rfs_json_finish(&out);
}

int rfs_strategy_show(const struct rfs_strategy_args *args, struct rfs_error *err)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_strategy_tree tree;
    struct rfs_globs globs = args->globs;
    struct rfs_table table = {.json = args->json};
    const char *path = args->places.data[0];
    int rc = rfs_strategy_tree_open(args->tree, &args->options, &tree, err)
                 ?: rfs_view_read_strategy(path, &strategy, err);

    if (rc == 0 && args->tree) {
        rfs_fit_begin(&tree.headers, strategy, &tree.fit);
        rc = rfs_fit_ranks(&tree.fit, err);
    }
    if (rc == 0) {
        rfs_strategy_rows(strategy, args->tree ? &tree.fit : NULL, &globs, &table);
        rc = rfs_globs_check(&globs, err);
    }
    if (rc == 0)
        print(path, strategy, &table, args->json);
    rfs_table_free(&table);
    rfs_strategy_free(strategy);
    rfs_strategy_tree_close(&tree);
    return rc;
}
