/* SPDX-License-Identifier: Apache-2.0 */
#include "view/inspect.h"

#include "base/cleanup.h"
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
