/* SPDX-License-Identifier: Apache-2.0 */
/* reshard strategy new --tree: the layouts that a Checkpoint 2.0 has of its ranks. */
#include "base/cleanup.h"
#include "layout/builder.h"
#include "source/boxes/mindformers.h"
#include "tool/strategy/strategy.h"

static const struct rfs_mf_layout *layout_of(const struct rfs_mf_layouts *layouts, uint32_t tensor)
{
    return (const struct rfs_mf_layout *)rfs_intern_bytes(layouts->distinct,
                                                          layouts->of.data[tensor], NULL);
}

static int add_axes(struct rfs_layout_builder *item, const struct rfs_mf_layout *layout)
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

/* A tensor without a layout is whole in all devices. */
static int fill(struct rfs_layout_builder *item, const struct rfs_mf_layouts *layouts,
                const struct rfs_mf_layout *layout)
{
    int rc = layout->n_dev == 0 ? rfs_layout_add_dev(item, (int64_t)layouts->devices) : 0;

    for (uint32_t i = 0; rc == 0 && i < layout->n_dev; i++)
        rc = rfs_layout_add_dev(item, (int64_t)layout->dev[i]);
    if (rc == 0)
        rc = add_axes(item, layout);
    return rc ? rc : rfs_layout_check(item);
}

static int place(struct rfs_strategy_builder *builder, struct rfs_layout_builder *item,
                 const struct rfs_boxes *boxes, const struct rfs_mf_layouts *layouts,
                 const struct rfs_mf_held *held)
{
    const char *name =
        rfs_intern_text(boxes->tables->names, boxes->tensors.data[held->tensor].name);
    uint32_t id;

    rfs_layout_begin(item, name, strlen(name));
    const int rc = fill(item, layouts, layout_of(layouts, held->tensor));
    if (rc)
        return rc;
    if (!rfs_strategy_builder_layout(builder, &item->layout, &id))
        return rfs_fail_memory(item->err);
    return rfs_strategy_builder_place(builder, name, strlen(name), held->stage, id, item->err);
}

int rfs_strategy_derive(const struct rfs_strategy_tree *tree, const char *name,
                        struct rfs_strategy **out, struct rfs_error *err)
{
    struct rfs_boxes *boxes = rfs_catalog_boxes(tree->source.catalog);
    RFS_CLEANUP(rfs_mf_layouts_free) struct rfs_mf_layouts layouts = {0};
    RFS_CLEANUP(rfs_layout_end) struct rfs_layout_builder item = {.file = name, .err = err};
    RFS_CLEANUP(rfs_strategy_builder_cleanup) struct rfs_strategy_builder *builder = NULL;

    if (!boxes || !rfs_boxes_are_mindformers(boxes))
        return rfs_fail(err, -EINVAL, RFS_IN(name), "--rules with --ranks",
                        "only a Checkpoint 2.0 with metadata.json says which ranks held what");
    int rc = rfs_mindformers_layouts(boxes, &layouts, err);
    if (rc)
        return rc;
    builder = rfs_strategy_builder_new(name);
    if (!builder)
        return rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < layouts.held.n; i++)
        rc = place(builder, &item, boxes, &layouts, &layouts.held.data[i]);
    return rc ? rc : rfs_strategy_builder_finish(builder, out, err);
}
