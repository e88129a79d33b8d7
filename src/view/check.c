/* SPDX-License-Identifier: Apache-2.0 */
/* Finding out ahead whether the files of a view can be made. */
#include "view/copies.h"

/* Plans the files of one view. DONE of TOTAL were before. */
static int check_files(struct rfs_view *view, reshard_progress_fn *progress, void *ctx,
                       uint64_t *done, uint64_t total, struct rfs_error *err)
{
    const struct rfs_image *image;
    int rc = 0;

    if (view->planner)
        rfs_planner_report(view->planner, RFS_TELL_EACH);
    for (size_t f = 0; f < view->n_files && (rc = rfs_view_image(view, f, &image, err)) == 0; f++)
        if (++*done, progress)
            progress(ctx, *done, total);
    if (view->planner)
        rfs_planner_report(view->planner, RFS_TELL_SOME);
    return rc ? rc : rfs_view_compare(view, err);
}

int reshard_check(reshard_view *set, reshard_progress_fn *progress, void *ctx, reshard_error *err)
{
    struct rfs_error failure = {0};
    uint64_t done = 0;
    uint64_t total = 0;
    int rc = 0;

    for (size_t i = 0; i < set->n; i++)
        total += set->data[i]->n_files;
    for (size_t i = 0; i < set->n && rc == 0; i++)
        rc = check_files(set->data[i], progress, ctx, &done, total, &failure);
    return rfs_view_report(err, &failure, rc);
}

int reshard_check_strategies(reshard_view *set, reshard_error *err)
{
    struct rfs_error failure = {0};
    int rc = 0;

    for (size_t i = 0; i < set->n; i++) {
        struct rfs_planner *planner = set->data[i]->planner;
        rc = planner ? rfs_planner_check_shapes(planner, &failure) : 0;
        if (rc == 0) /* another save may be of another network */
            break;
    }
    return rfs_view_report(err, &failure, rc);
}
