/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/headers/made_strategy.h"

#include "base/cleanup.h"
#include "formats/mindformers/mindformers.h"
#include "plan/strategy_files.h"

static int add_axes(struct rfs_layout_builder *item, const struct rfs_mindformers_layout *layout)
{
    uint64_t entry = 0;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < layout->n_axes; i++) {
        rc = rfs_layout_add_axis(item);
        for (; rc == 0 && layout->n_dev > 0 && entry < layout->end[i]; entry++)
            rc = rfs_layout_add_cut(item, layout->map[entry]);
    }
    return rc;
}

/* Fills in a layout; a tensor without one is whole in all devices. */
static int fill(struct rfs_layout_builder *item, const struct rfs_mindformers_strategy *layouts,
                const struct rfs_mindformers_layout *layout)
{
    int rc = layout->n_dev == 0 ? rfs_layout_add_dev(item, (int64_t)layouts->devices) : 0;

    for (uint32_t i = 0; rc == 0 && i < layout->n_dev; i++)
        rc = rfs_layout_add_dev(item, (int64_t)layout->dev[i]);
    if (rc == 0)
        rc = add_axes(item, layout);
    return rc ? rc : rfs_layout_check(item);
}

static int add_held(struct rfs_strategy_builder *builder, struct rfs_layout_builder *item,
                    const struct rfs_chunks *chunks, const struct rfs_mindformers_strategy *layouts,
                    const struct rfs_mindformers_held *held)
{
    const char *name =
        rfs_intern_text(chunks->tables->names, chunks->tensors.data[held->tensor].name);

    rfs_layout_begin(item, name, strlen(name));
    const int rc = fill(item, layouts, rfs_mindformers_layout_of(layouts, held->tensor));
    return rc ? rc
              : rfs_strategy_builder_place(builder, name, strlen(name), held->stage,
                                           rfs_strategy_builder_layout(builder, &item->layout),
                                           item->err);
}

/* Makes the strategy of the training that saved a Checkpoint 2.0. NAME is for messages. */
static int derive(const struct rfs_headers_source *source, const char *name,
                  struct rfs_strategy **out, struct rfs_error *err)
{
    struct rfs_chunks *chunks = rfs_catalog_chunks(source->catalog);
    RFS_CLEANUP(rfs_mindformers_strategy_free) struct rfs_mindformers_strategy layouts = {0};
    RFS_CLEANUP(rfs_layout_end) struct rfs_layout_builder item = {.file = name, .err = err};
    RFS_CLEANUP(rfs_strategy_builder_cleanup) struct rfs_strategy_builder *builder = NULL;

    if (!chunks || !rfs_mindformers_owns(chunks))
        return rfs_fail(err, -EINVAL, RFS_IN(name), "--rules with --ranks",
                        "only a Checkpoint 2.0 with metadata.json says which ranks held what");
    int rc = rfs_mindformers_read_strategy(chunks, &layouts, err);
    if (rc)
        return rc;
    builder = rfs_strategy_builder_new(name, NULL);
    if (!builder)
        return rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < layouts.held.n; i++)
        rc = add_held(builder, &item, chunks, &layouts, &layouts.held.data[i]);
    return rc ? rc : rfs_strategy_builder_finish(builder, out, err);
}

int rfs_inspect_strategy(struct rfs_headers_source *source, const char *path,
                         const struct rfs_headers *headers, const char *rules,
                         const struct rfs_layout_rules_use *use, struct rfs_strategy **out,
                         struct rfs_error *err)
{
    RFS_CLEANUP(rfs_plan_model_end)
    struct rfs_plan_model model = {source->store, NULL, path ? path : ".", NULL, NULL};
    struct rfs_layout_rules_use all = *use;

    if (!rules)
        return derive(source, path, out, err);
    RFS_FREE const char **names = calloc(headers->parameters.n + 1, sizeof *names);
    if (!names)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < headers->parameters.n; i++)
        if (headers->parameters.data[i].type->kind == RFS_TENSOR)
            names[all.n++] = headers->parameters.data[i].name;
    all.names = names;
    all.number = rfs_plan_model_number;
    all.ctx = &model;
    return rfs_plan_strategy_by_rules(source->store, "--rules", rules, &all, &source->log, out,
                                      err);
}
