/* SPDX-License-Identifier: Apache-2.0 */
#include "view/contents.h"

#include "view/internal.h"
#include "view/rules_view.h"

struct rfs_view *rfs_view_only(const struct reshard_view *set)
{
    return set->several ? NULL : set->data[0];
}

struct rfs_view_contents rfs_view_contents(struct rfs_view *view)
{
    struct rfs_view_contents contents = {
        .options = &view->options,
        .source = view->source,
        .catalog = view->catalog,
        .src = view->src,
        .dst = view->dst,
        .planner = view->planner,
        .by_rules = rfs_view_by_rules(view),
        .names = view->names,
        .notes = &view->notes,
        .pool = view->set->pool,
        .scale = view->scale,
        .source_scale = view->scale,
        .n_ranks = rfs_view_ranks(view),
        .n_files = view->n_files,
        .by_rank = view->kind->by_rank,
        .late = view->set->how.late,
        .encrypted = view->set->encrypted != NULL,
    };

    if (view->planner)
        rfs_planner_scale(view->rules ? view->rules->whole : view->planner, &contents.source_scale);
    return contents;
}

int rfs_view_compare_all_copies(struct reshard_view *set, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < set->n; i++)
        rc = rfs_view_compare_copies(set->data[i], err);
    return rc;
}

/* ---- files ----------------------------------------------------------------------------------- */

struct rfs_view_shown rfs_view_shown(const struct rfs_view *view, size_t file)
{
    return (struct rfs_view_shown){.name = view->files[file].name,
                                   .folder =
                                       view->kind->by_rank ? view->folders.data[file].name : NULL,
                                   .rank = view->files[file].rank};
}

bool rfs_view_find_file(struct reshard_view *set, uint64_t id, struct rfs_view **view, size_t *file)
{
    RFS_VIEW_TAKEN *taken = rfs_view_take(set, id);

    *view = taken;
    return taken && rfs_view_entry(taken, id, file) == RFS_ENTRY_FILE;
}

const struct rfs_image *rfs_view_ready_image(struct rfs_view *view, size_t file)
{
    const struct rfs_image *image = NULL;
    uint64_t bytes;

    if (rfs_view_is_planned(view, file, &bytes))
        rfs_view_image(view, file, &image, NULL);
    return image;
}

void rfs_view_set_crc(struct rfs_view *view, size_t file, uint32_t crc)
{
    struct rfs_view_file *shown = &view->files[file];

    RFS_LOCKED(&view->lock);
    if (shown->crc_made.state == RFS_ONCE_NOT_YET) {
        shown->crc_made.state = RFS_ONCE_MADE;
        shown->crc = crc;
    }
}
