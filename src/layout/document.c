/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy documents: filled by readers and rules; shapes, merging. */
#include "layout/document.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "layout/builder.h"
#include "layout/grid.h"

#define MERGED_STAGE 1   /* current_stage, as merge_pipeline_strategys writes */
#define COMPILED_STAGE 2 /* as the compiler does at the first compilation */

bool rfs_strategy_doc_begin(struct rfs_strategy_doc *doc, const char *name)
{
    *doc = (struct rfs_strategy_doc){
        .name = name, .pool = rfs_intern_new(), .current_stage = MERGED_STAGE};
    return doc->pool != NULL;
}

void rfs_strategy_doc_free(struct rfs_strategy_doc *doc)
{
    if (doc->pool)
        rfs_intern_free(doc->pool);
    free(doc->nodes.data);
    free(doc->params.data);
    free(doc->numbers.data);
    *doc = (struct rfs_strategy_doc){0};
}

struct rfs_error *rfs_strategy_doc_lost(struct rfs_strategy_doc *doc)
{
    return doc && doc->lost.code == 0 ? &doc->lost : NULL;
}

const char *rfs_strategy_doc_param(const struct rfs_strategy_doc *doc, size_t i)
{
    return rfs_intern_text(doc->pool, doc->params.data[i].name);
}

const struct rfs_doc_layout *rfs_strategy_doc_layout(const struct rfs_strategy_doc *doc, size_t i)
{
    return rfs_intern_bytes(doc->pool, doc->params.data[i].value, NULL);
}

struct rfs_doc_numbers rfs_strategy_doc_numbers(const struct rfs_strategy_doc *doc, uint32_t id)
{
    size_t bytes;
    const int64_t *data = rfs_intern_bytes(doc->pool, id, &bytes);

    return (struct rfs_doc_numbers){data, bytes / sizeof *data};
}

bool rfs_doc_is_nested(const struct rfs_doc_layout *layout)
{
    return rfs_layout_cuts(&layout->layout) != layout->layout.n_axes;
}

/* ---- for readers ---- */

static bool keep_bytes(struct rfs_strategy_doc *doc, const void *data, size_t n, uint32_t *id)
{
    *id = rfs_intern_add(doc->pool, n > 0 ? data : "", n);
    return *id != RFS_NO_ID;
}

/* The geometry as written; unused bytes are zero. */
static struct rfs_doc_layout as_written(const struct rfs_layout *from)
{
    struct rfs_doc_layout layout;
    struct rfs_layout *to = &layout.layout;

    memset(&layout, 0, sizeof layout);
    to->n_dev = from->n_dev;
    memcpy(to->dev, from->dev, from->n_dev * sizeof *to->dev);
    to->n_axes = from->n_axes;
    memcpy(to->start, from->start, (from->n_axes + 1) * sizeof *to->start);
    memcpy(to->map, from->map, rfs_layout_cuts(from) * sizeof *to->map);
    to->n_expanded = from->n_expanded;
    memcpy(to->expanded, from->expanded, from->n_expanded * sizeof *to->expanded);
    return layout;
}

bool rfs_strategy_doc_keep(struct rfs_layout_builder *item)
{
    struct rfs_doc_layout layout = as_written(&item->layout);

    layout.field = item->field;
    layout.opt_step = item->opt_step;
    layout.opt_size = item->opt_size;
    layout.flat = item->flat;
    layout.per_axis = item->per_axis;
    layout.has_shape = item->has_shape;
    return keep_bytes(item->doc, item->rows.data, item->rows.n * sizeof *item->rows.data,
                      &layout.split) &&
           keep_bytes(item->doc, item->offsets.data, item->offsets.n * sizeof *item->offsets.data,
                      &layout.offsets) &&
           keep_bytes(item->doc, &layout, sizeof layout, &item->written);
}

static bool add_param(struct rfs_strategy_doc *doc, const char *name, size_t bytes, uint32_t layout)
{
    const struct rfs_doc_item item = {rfs_intern_add(doc->pool, name, bytes), layout};

    return item.name != RFS_NO_ID && RFS_PUSH(&doc->params, item);
}

bool rfs_strategy_doc_add(const struct rfs_layout_builder *item)
{
    return add_param(item->doc, item->name, item->name_bytes, item->written);
}

bool rfs_strategy_doc_node(struct rfs_strategy_doc *doc)
{
    doc->numbers.n = 0;
    return RFS_PUSH(&doc->numbers, 0) && RFS_PUSH(&doc->numbers, 0);
}

bool rfs_strategy_doc_input(struct rfs_strategy_doc *doc)
{
    doc->numbers.data[1]++;
    doc->input = doc->numbers.n;
    return RFS_PUSH(&doc->numbers, 0);
}

bool rfs_strategy_doc_cut(struct rfs_strategy_doc *doc, int64_t cut)
{
    doc->numbers.data[doc->input]++;
    return RFS_PUSH(&doc->numbers, cut);
}

bool rfs_strategy_doc_node_end(struct rfs_strategy_doc *doc, uint32_t name, uint32_t stage)
{
    struct rfs_doc_item item = {.name = name};

    doc->numbers.data[0] = stage;
    return keep_bytes(doc, doc->numbers.data, doc->numbers.n * sizeof *doc->numbers.data,
                      &item.value) &&
           RFS_PUSH(&doc->nodes, item);
}

bool rfs_strategy_doc_once(const struct rfs_strategy_doc *doc, struct rfs_doc_items *items)
{
    /* Of each name one more than its place among those kept. */
    RFS_FREE uint32_t *place = calloc((size_t)rfs_intern_count(doc->pool) + 1, sizeof *place);
    uint32_t kept = 0;

    for (size_t i = 0; place && i < items->n; i++) {
        const struct rfs_doc_item item = items->data[i];
        if (place[item.name] == 0)
            place[item.name] = ++kept;
        items->data[place[item.name] - 1] = item;
    }
    items->n = kept;
    return place != NULL;
}

/* ---- shapes ---- */

/*
 * The entries of a flat map by axis: their parts of the expanded shape multiply to the axis.
 * Entries of 1, of device axes of one device, may fall to either side: they cut nothing.
 */
static bool nest(struct rfs_layout *layout, uint32_t ndim, const uint64_t *whole)
{
    const uint32_t n = layout->n_axes;
    uint32_t at = 0;

    for (uint32_t i = 0; i < ndim; i++) {
        uint64_t product = 1;
        layout->start[i] = at;
        while (at < n && (at == layout->start[i] || product < whole[i] || i + 1 == ndim))
            if (__builtin_mul_overflow(product, layout->expanded[at++], &product))
                return false;
        if (at == layout->start[i] || product != whole[i])
            return false;
    }
    memset(layout->start + ndim, 0, sizeof layout->start - ndim * sizeof *layout->start);
    layout->start[ndim] = at;
    layout->n_axes = ndim;
    return at == n;
}

/* The whole shape, each axis that several device axes cut as their extents and the rest. */
static void expand(struct rfs_layout *layout, const uint64_t *whole)
{
    layout->n_expanded = rfs_layout_cuts(layout);
    for (uint32_t i = 0; i < layout->n_axes; i++) {
        uint64_t rest = whole[i];
        for (uint32_t e = layout->start[i]; e < layout->start[i + 1]; e++) {
            const int32_t axis = layout->map[e];
            const uint64_t extent = axis < 0 ? 1 : layout->dev[rfs_layout_position(layout, axis)];
            layout->expanded[e] = e + 1 < layout->start[i + 1] ? extent : rest;
            rest /= extent;
        }
    }
}

int rfs_strategy_doc_shape(struct rfs_strategy_doc *doc, size_t i, uint32_t ndim,
                           const uint64_t *whole, struct rfs_error *err)
{
    struct rfs_doc_layout layout = *rfs_strategy_doc_layout(doc, i);
    const uint32_t axes = layout.layout.n_axes;
    bool fits = axes == ndim;

    if (layout.flat && axes > ndim && layout.has_shape) {
        fits = nest(&layout.layout, ndim, whole);
        layout.per_axis = true;
    }
    if (!fits)
        return rfs_fail(err, -EINVAL, RFS_OF(doc->name, rfs_strategy_doc_param(doc, i)),
                        "the tree that was saved under this strategy",
                        "its tensor map does not go with the shape of the tensor");
    layout.flat = false;
    layout.has_shape = true;
    expand(&layout.layout, whole);
    return keep_bytes(doc, &layout, sizeof layout, &doc->params.data[i].value)
               ? 0
               : rfs_fail_memory(err);
}

/* ---- merging ---- */

static bool copy_bytes(struct rfs_strategy_doc *into, const struct rfs_strategy_doc *from,
                       uint32_t id, uint32_t *copy)
{
    size_t n;
    const void *data = rfs_intern_bytes(from->pool, id, &n);

    return keep_bytes(into, data, n, copy);
}

static bool add_prefixed(struct rfs_strategy_doc *doc, uint32_t stage, const char *name,
                         uint32_t layout)
{
    RFS_FREE char *text = rfs_text_printf("%" PRIu32 "-%s", stage, name);

    return text && add_param(doc, text, strlen(text), layout);
}

bool rfs_strategy_doc_merge(struct rfs_strategy_doc *into, const struct rfs_strategy_doc *from,
                            uint32_t stage)
{
    for (size_t i = 0; i < from->nodes.n; i++) {
        struct rfs_doc_item item;
        if (!copy_bytes(into, from, from->nodes.data[i].name, &item.name) ||
            !copy_bytes(into, from, from->nodes.data[i].value, &item.value) ||
            !RFS_PUSH(&into->nodes, item))
            return false;
    }
    for (size_t i = 0; i < from->params.n; i++) {
        struct rfs_doc_layout layout = *rfs_strategy_doc_layout(from, i);
        uint32_t id;
        if (!copy_bytes(into, from, layout.split, &layout.split) ||
            !copy_bytes(into, from, layout.offsets, &layout.offsets) ||
            !keep_bytes(into, &layout, sizeof layout, &id) ||
            !add_prefixed(into, stage, rfs_strategy_doc_param(from, i), id))
            return false;
    }
    return true;
}

/* ---- from a strategy ---- */

static bool make_param(struct rfs_strategy_doc *doc, const char *name, uint32_t stage, bool stages,
                       const struct rfs_layout *from)
{
    struct rfs_doc_layout layout = as_written(from);
    const uint32_t n = from->n_edges > 0 ? from->n_edges - 1 : 0;
    RFS_FREE int64_t *split = malloc((n + 1) * sizeof *split);
    uint32_t id;

    for (uint32_t k = 0; split && k < n; k++)
        split[k] = (int64_t)(from->edge[k + 1] - from->edge[k]);
    layout.field = from->field;
    layout.opt_step = from->opt_step;
    layout.opt_size = from->opt_size;
    layout.flat = layout.has_shape = from->n_expanded > 0;
    layout.per_axis = rfs_doc_is_nested(&layout);
    return split && keep_bytes(doc, split, n * sizeof *split, &layout.split) &&
           keep_bytes(doc, from->edge, n * sizeof *from->edge, &layout.offsets) &&
           keep_bytes(doc, &layout, sizeof layout, &id) &&
           (stages ? add_prefixed(doc, stage, name, id) : add_param(doc, name, strlen(name), id));
}

/* Each axis that nothing cuts is -1, as files have it. */
static void fill_uncut(struct rfs_layout *layout)
{
    struct rfs_layout full = *layout;
    uint32_t end = 0;

    if (rfs_layout_cuts(layout) + layout->n_axes > RFS_MAX_CUTS)
        return;
    for (uint32_t i = 0; i < layout->n_axes; i++) {
        const uint32_t before = end;
        full.start[i] = end;
        for (uint32_t k = layout->start[i]; k < layout->start[i + 1]; k++)
            full.map[end++] = layout->map[k];
        if (end == before)
            full.map[end++] = -1;
    }
    full.start[layout->n_axes] = end;
    *layout = full;
}

static int make_one(const struct rfs_strategy *strategy, size_t i, uint32_t stage,
                    const struct rfs_doc_tensors *tensors, struct rfs_strategy_doc *doc,
                    struct rfs_error *err)
{
    const char *param = rfs_strategy_param(strategy, i);
    const struct rfs_where where = RFS_OF(rfs_strategy_name(strategy), param);
    struct rfs_layout layout = *rfs_strategy_layout(strategy, i, stage);
    int rc = 0;

    if (strchr(param, '-'))
        return rfs_fail(err, -EINVAL, where, "names= in -o with another name",
                        "its name has a \"-\", and strategy files have stages before that");
    if (layout.unclear != RFS_CLEAR)
        return rfs_fail(err, -EINVAL, where, NULL, "it is not clear what its layout means: %s",
                        rfs_layout_unclear(&layout));
    if (layout.open) {
        const int ndim = tensors ? tensors->ndim(tensors->ctx, param, stage) : -1;
        const struct rfs_layout open = layout;
        if (ndim < 0 || ndim > RFS_GRID_DIMS)
            return rfs_fail(err, -EINVAL, where, "--tree SRC with the checkpoint",
                            "a rule says how it is cut, but not how many axes it has");
        rc = rfs_layout_close(&open, (uint32_t)ndim, &layout, where, err);
    }
    if (rc)
        return rc;
    fill_uncut(&layout);
    return make_param(doc, param, stage, rfs_strategy_stages(strategy) > 1, &layout)
               ? 0
               : rfs_fail_memory(err);
}

static bool make_node(struct rfs_strategy_doc *doc, uint32_t stage)
{
    char name[32];
    uint32_t id;
    const int n = snprintf(name, sizeof name, "Stage%" PRIu32, stage);

    return keep_bytes(doc, name, (size_t)n, &id) && rfs_strategy_doc_node(doc) &&
           rfs_strategy_doc_node_end(doc, id, stage);
}

int rfs_strategy_doc_make(const struct rfs_strategy *strategy,
                          const struct rfs_doc_tensors *tensors, struct rfs_strategy_doc *doc,
                          struct rfs_error *err)
{
    const uint32_t stages = rfs_strategy_stages(strategy);
    bool ok = rfs_strategy_doc_begin(doc, rfs_strategy_name(strategy));
    int rc = 0;

    doc->current_stage = stages > 1 ? MERGED_STAGE : COMPILED_STAGE;
    for (uint32_t stage = 0; ok && stage < stages; stage++)
        ok = make_node(doc, stage);
    if (!ok)
        return rfs_fail_memory(err);
    for (uint32_t stage = 0; stage < stages; stage++)
        for (size_t i = 0; i < rfs_strategy_count(strategy) && rc == 0; i++)
            if (rfs_strategy_layout(strategy, i, stage))
                rc = make_one(strategy, i, stage, tensors, doc, err);
    return rc;
}
