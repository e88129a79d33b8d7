/* SPDX-License-Identifier: Apache-2.0 */
#include "view/groups.h"

#include "base/publish.h"
#include "view/hidden.h"
#include "view/outputs.h"

/* The planner of one whole checkpoint if it is there: the view's own, where that shows one. */
static struct rfs_planner *ready_whole(const struct rfs_view *view)
{
    return view->dst ? RFS_PUBLISHED(&view->hidden.whole) : view->planner;
}

static int whole_planner(struct rfs_view *view, struct rfs_planner **out, struct rfs_error *err)
{
    const struct rfs_planner_config config = {
        .catalog = view->catalog,
        .src = view->src,
        .pool = view->set->pool,
        .keep_empty = rfs_view_format(&view->options) != RFS_FORMAT_CKPT,
        .output_map = view->output_map,
        .template = view->planner,
        .converted = view->convert.made,
    };
    struct rfs_planner *fresh = NULL;

    *out = ready_whole(view);
    const int rc = *out ? 0 : rfs_planner_new(&config, &fresh, err);
    if (*out || rc)
        return rc;
    *out = RFS_PUBLISH(&view->hidden.whole, fresh, rfs_planner_free);
    return 0;
}

int rfs_groups_tensors(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                       struct rfs_error *err)
{
    *out = (struct rfs_tensors){.rank = group > 0 ? group - 1 : 0, .planner = view->planner};
    int rc = group == 0 ? whole_planner(view, &out->planner, err) : 0;
    if (rc == 0)
        rc = rfs_planner_rank(out->planner, out->rank, &out->plan, err);
    if (rc == 0)
        out->params = out->plan->params;
    return rc;
}

bool rfs_groups_tensors_are_ready(struct rfs_view *view, uint32_t group)
{
    const struct rfs_planner *planner = group == 0 ? ready_whole(view) : view->planner;

    return planner && rfs_planner_ready(planner, group == 0 ? 0 : group - 1);
}

void rfs_groups_name_group(const struct rfs_view *view, uint32_t group, char out[32])
{
    (void)view;
    if (group == 0)
        snprintf(out, 32, "full");
    else
        snprintf(out, 32, "rank_%u", group - 1);
}

uint32_t rfs_groups_count(const struct rfs_view *view)
{
    return view->n_ranks < RFS_HIDDEN_GROUPS ? view->n_ranks + 1 : RFS_HIDDEN_GROUPS;
}
