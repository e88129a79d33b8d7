/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are shown, and how they are called. */
#include "view/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* rank_R/{prefix}R.ckpt, or rank_R/{prefix}R_part{stage}.ckpt by stage. */
static int name_rank(const struct reshard_view *view, uint32_t rank, struct shown_file *file)
{
    const int64_t part = rfs_planner_part(view->planner);
    const char *prefix = view->options.prefix;

    file->rank = rank;
    if (asprintf(&file->dir, "rank_%u", rank) < 0)
        file->dir = NULL;
    const int n = part < 0
                      ? asprintf(&file->name, "%s%u.ckpt", prefix, rank)
                      : asprintf(&file->name, "%s%u_part%lld.ckpt", prefix, rank, (long long)part);
    if (n < 0)
        file->name = NULL;
    return file->dir && file->name ? 0 : -ENOMEM;
}

int rfs_view_name_files(struct reshard_view *view, struct rfs_error *err)
{
    view->files = calloc(view->n_ranks, sizeof *view->files);
    if (!view->files)
        return rfs_fail_memory(err);
    view->n_files = view->n_ranks;
    for (uint32_t r = 0; r < view->n_ranks; r++)
        if (name_rank(view, r, &view->files[r]))
            return rfs_fail_memory(err);
    return 0;
}
