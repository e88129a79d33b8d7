/* SPDX-License-Identifier: Apache-2.0 */
#include "view/plans.h"

#include "view/hfai_view.h"

int rfs_view_plans(struct reshard_view *set, struct rfs_view_plans *out, struct rfs_error *err)
{
    struct rfs_view *view = rfs_view_only(set);

    if (!view)
        return rfs_fail_usage(err, "-o step=N, or -o epoch=N", "step=all shows several saves");
    *out = (struct rfs_view_plans){.planner = view->planner,
                                   .notes = &view->notes,
                                   .catalog = view->catalog,
                                   .by_rules = view->rules.made,
                                   .stored = view->stored,
                                   .pool = set->pool,
                                   .src = view->src,
                                   .dst = view->dst,
                                   .n_ranks = view->n_ranks,
                                   .keyed = set->encrypted != NULL};
    if (view->hfai)
        rfs_view_hfai_parts(view, &out->hfai, &out->division);
    else if (!view->dst && view->n_ranks > 1)
        return rfs_fail_usage(err, "-d, or -o dst_rules=",
                              "without a strategy view=dcp divides rows over its files, and ranks "
                              "have no slices");
    return 0;
}

int rfs_view_shown_at(struct reshard_view *set, uint32_t rank, uint32_t target,
                      struct rfs_view_location *out)
{
    struct rfs_view *view = rfs_view_only(set);
    const struct rfs_image *image;

    if (!view->kind->by_rank || rank >= view->n_files)
        return 0;
    const int rc = rfs_view_image(view, rank, &image, NULL);
    if (rc)
        return rc;
    for (size_t i = 0; i < image->n; i++)
        if (image->regions[i].target == target && image->regions[i].at == 0) {
            *out = (struct rfs_view_location){view->folders[rank].name, view->files[rank].name,
                                              image->regions[i].start};
            return 1;
        }
    return 0;
}

/*
 * Returns whether the next ranges of an item are the bytes of the pieces; sets where these begin in
 * the first range.
 */
static bool is_stored(const struct rfs_storage_range *ranges, size_t left,
                      const struct rfs_piece_trace *pieces, size_t n, uint64_t *in)
{
    const struct rfs_block *first = &pieces[0].block;
    const uint64_t begin = first->content.offset + first->src;

    if (n > left || ranges[0].file != first->file || begin < ranges[0].offset ||
        begin - ranges[0].offset + first->run > ranges[0].bytes ||
        (n > 1 && begin - ranges[0].offset + first->run < ranges[0].bytes))
        return false;
    for (size_t i = 1; i < n; i++)
        if (ranges[i].file != pieces[i].block.file || ranges[i].bytes != pieces[i].block.run ||
            ranges[i].offset != pieces[i].block.content.offset + pieces[i].block.src)
            return false;
    *in = begin - ranges[0].offset;
    return true;
}

/* Finds where the pieces begin in an item; false if they are not in it. */
static bool find_stored(const struct rfs_storages *storages, uint32_t item,
                        const struct rfs_piece_trace *pieces, size_t n, uint64_t *in)
{
    const struct rfs_storage_item *of = &storages->items.data[item];
    uint64_t at = 0;

    for (size_t r = 0; r < of->n; r++) {
        const struct rfs_storage_range *ranges = &storages->ranges.data[of->first + r];
        if (is_stored(ranges, of->n - r, pieces, n, in)) {
            *in += at;
            return true;
        }
        at += ranges[0].bytes;
    }
    return false;
}

int rfs_view_stored_at(struct reshard_view *set, uint32_t part,
                       const struct rfs_piece_trace *pieces, size_t n,
                       struct rfs_view_location *out)
{
    struct rfs_view *view = rfs_view_only(set);
    const struct rfs_image *image;
    uint64_t in = 0;

    for (size_t i = 0; i < n; i++)
        if (pieces[i].block.n_loops > 0)
            return 0;
    if (n == 0)
        return 0;
    const int rc = rfs_view_image(view, part, &image, NULL);
    if (rc)
        return rc;
    for (size_t i = 0; i < image->n; i++)
        if (image->regions[i].target < image->storages->items.n && image->regions[i].at == 0 &&
            find_stored(image->storages, image->regions[i].target, pieces, n, &in)) {
            *out = (struct rfs_view_location){NULL, view->files[part].name,
                                              image->regions[i].start + in};
            return 1;
        }
    return 0;
}
