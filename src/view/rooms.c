/* SPDX-License-Identifier: Apache-2.0 */
#include "view/rooms.h"

#include "view/internal.h"

int rfs_view_rooms(struct reshard_view *view, struct rfs_rooms *out, struct rfs_error *err)
{
    if (view->side)
        return rfs_fail_usage(err, "-o step=N, or -o epoch=N", "step=all shows several saves");
    if (!view->planner)
        return rfs_fail_usage(err, NULL,
                              "hfai's parts are not cut by strategies: each part says what it has");
    *out = (struct rfs_rooms){.planner = view->planner,
                              .catalog = view->catalog,
                              .pool = view->pool,
                              .src = view->src,
                              .dst = view->dst,
                              .n_ranks = view->n_ranks,
                              .keyed = view->sealed != NULL};
    return 0;
}

int rfs_view_shown_at(struct reshard_view *view, uint32_t rank, uint32_t target,
                      struct rfs_shown_at *out)
{
    const struct rfs_image *image;

    if (view->flat || rank >= view->n_files)
        return 0;
    const int rc = rfs_view_image(view, rank, &image, NULL);
    if (rc)
        return rc;
    for (size_t i = 0; i < image->n; i++)
        if (image->regions[i].target == target && image->regions[i].at == 0) {
            *out = (struct rfs_shown_at){view->files[rank].dir, view->files[rank].name,
                                         image->regions[i].start};
            return 1;
        }
    return 0;
}
