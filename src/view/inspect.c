/* SPDX-License-Identifier: Apache-2.0 */
#include "view/inspect.h"

#include "assemble/cast.h"
#include "base/cleanup.h"
#include "formats/ckpt/ckpt.h"
#include "formats/mindformers/mindformers.h"
#include "formats/npy/npy.h"
#include "plan/by_rules.h"
#include "plan/needed.h"
#include "view/internal.h"
#include "view/rules_view.h"
#include "view/strategy_options.h"

/* ---- needed ranks ---------------------------------------------------------------------------- */

struct rfs_inspect_ranks {
    struct rfs_strategy *src, *dst; /* owned; NULL: unsharded */
    struct rfs_needed *needed;      /* owned */
};

void rfs_inspect_ranks_close(struct rfs_inspect_ranks *ranks)
{
    if (!ranks)
        return;
    rfs_needed_free(ranks->needed);
    rfs_strategy_free(ranks->src);
    rfs_strategy_free(ranks->dst);
    free(ranks);
}

RFS_CLEANUP_OF(close_ranks, struct rfs_inspect_ranks *, rfs_inspect_ranks_close)

int rfs_inspect_ranks_open(const char *src, const char *dst, struct rfs_inspect_ranks **out,
                           struct rfs_error *err)
{
    RFS_CLEANUP(close_ranks) struct rfs_inspect_ranks *ranks = calloc(1, sizeof *ranks);

    *out = NULL;
    if (!ranks)
        return rfs_fail_memory(err);
    const int rc = (src ? rfs_view_read_strategy(src, &ranks->src, err) : 0)
                       ?: (dst ? rfs_view_read_strategy(dst, &ranks->dst, err) : 0)
                       ?: rfs_needed_open(ranks->src, ranks->dst, &ranks->needed, err);
    if (rc == 0)
        *out = RFS_STEAL(ranks);
    return rc;
}

void rfs_inspect_ranks_count(const struct rfs_inspect_ranks *ranks, uint32_t *sources,
                             uint32_t *destinations)
{
    *sources = rfs_needed_sources(ranks->needed);
    *destinations = rfs_needed_ranks(ranks->needed);
}

int rfs_inspect_ranks_needed(struct rfs_inspect_ranks *ranks, uint32_t rank, unsigned char *wanted,
                             struct rfs_error *err)
{
    return rfs_needed_by(ranks->needed, rank, wanted, err);
}

/* ---- strategies of sources that have them -------------------------------------------------- */

bool rfs_inspect_has_parts(const struct rfs_headers_source *source)
{
    return rfs_catalog_has_parts(source->catalog);
}

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
    uint32_t id;

    rfs_layout_begin(item, name, strlen(name));
    const int rc = fill(item, layouts, rfs_mindformers_layout_of(layouts, held->tensor));
    if (rc)
        return rc;
    if (!rfs_strategy_builder_layout(builder, &item->layout, &id))
        return rfs_fail_memory(item->err);
    return rfs_strategy_builder_place(builder, name, strlen(name), held->stage, id, item->err);
}

int rfs_inspect_derive(const struct rfs_headers_source *source, const char *name,
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
    builder = rfs_strategy_builder_new(name);
    if (!builder)
        return rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < layouts.held.n; i++)
        rc = add_held(builder, &item, chunks, &layouts, &layouts.held.data[i]);
    return rc ? rc : rfs_strategy_builder_finish(builder, out, err);
}

/* ---- conversion rules ------------------------------------------------------------------------ */

int rfs_inspect_rules(reshard_view *set, struct rfs_inspect_rules *out, struct rfs_error *err)
{
    struct rfs_view *view = rfs_view_only(set);

    if (!view)
        return rfs_fail_usage(err, "-o step=N, or -o epoch=N", "step=all shows several saves");
    const struct rfs_by_rules *by_rules = view->rules.made;
    if (!by_rules)
        return rfs_fail_usage(err, "a checkpoint of a model", "the source cannot be converted");
    const struct rfs_rules_map *map = rfs_by_rules_map(by_rules);
    *out = (struct rfs_inspect_rules){.from = map->side[!map->from_left],
                                      .to = map->side[map->from_left],
                                      .sources = rfs_by_rules_sources(by_rules),
                                      .dropped = map->dropped,
                                      .made = map->made.n,
                                      .incomplete = rfs_by_rules_incomplete(by_rules)};
    return rfs_view_compare_copies(view, err);
}

void rfs_inspect_made(reshard_view *set, size_t i, struct rfs_inspect_made *out)
{
    const struct rfs_rules_map *map = rfs_by_rules_map(rfs_view_only(set)->rules.made);
    const struct rfs_rules_made *made = &map->made.data[i];

    *out = (struct rfs_inspect_made){.name = made->name,
                                     .type = &made->type,
                                     .shown = made->shown,
                                     .file = made->file,
                                     .line = made->line};
    for (size_t k = 0; k < made->n; k++) {
        const struct rfs_rules_link *link = &map->links.data[made->links + k];
        out->sources += k == 0 || link->source != link[-1].source;
    }
}

int rfs_inspect_compare_copies(reshard_view *set, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < set->n; i++)
        rc = rfs_view_compare_copies(set->data[i], err);
    return rc;
}

/* ---- one tensor as a file -------------------------------------------------------------------- */

RFS_CLEANUP_OF(free_image, struct rfs_image *, rfs_image_free)

int rfs_inspect_head(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                     bool safetensors, struct rfs_bytes *out, struct rfs_error *err)
{
    const uint32_t position = (uint32_t)(tensor->target - whole->params->targets);
    const struct rfs_safetensors_content alone = {.n = 1};
    RFS_CLEANUP(free_image) struct rfs_image *image = NULL;
    int rc;

    *out = (struct rfs_bytes){0};
    if (safetensors)
        rc = rfs_view_encode_safetensors(whole->catalog, whole->params, &position, alone, &image,
                                         err);
    else if ((rc = rfs_npy_encode(tensor->type, position, &image)) != 0)
        rc = rc == -ENOMEM ? rfs_fail_memory(err)
                           : rfs_fail(err, rc, RFS_OF(whole->path, tensor->name), NULL,
                                      "the file would be too large");
    if (rc)
        return rc;
    rfs_bytes_put(out, image->literals, image->literal_bytes);
    return out->failed ? rfs_fail_memory(err) : 0;
}

_Static_assert(RFS_INSPECT_CKPT_CHUNK == RFS_CKPT_CHUNK, "the tool writes as the encoder does");

bool rfs_inspect_ckpt_head(struct rfs_bytes *out, const char *name, const struct rfs_type *type,
                           uint64_t content)
{
    return rfs_ckpt_put_head(out, name, strlen(name), type, content);
}

const char *rfs_inspect_source_name(const struct rfs_whole *whole,
                                    const struct rfs_whole_tensor *tensor)
{
    return rfs_catalog_name(whole->catalog, tensor->target->name);
}

bool rfs_inspect_rank_with(const struct rfs_whole *whole, const char *name, uint32_t *rank,
                           uint32_t *stage)
{
    const struct rfs_strategy *dst = whole->view->dst;
    const ptrdiff_t at = dst ? rfs_strategy_find(dst, name) : -1;

    if (at < 0)
        return false;
    *stage = rfs_strategy_next_stage(dst, (size_t)at, 0);
    *rank = *stage * rfs_strategy_devices(dst);
    return true;
}

void rfs_inspect_floats(enum rfs_dtype from, const void *src, float *out, size_t n)
{
    rfs_cast(RFS_FLOAT32, out, from, src, n);
}
