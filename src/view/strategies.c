/* SPDX-License-Identifier: Apache-2.0 */
#include "view/strategies.h"

#include "view/strategy_files.h"

static int load_strategy(const char *text, struct rfs_strategy **out, struct rfs_error *err)
{
    return text ? rfs_view_read_strategy(text, out, err) : 0;
}

int rfs_view_strategies(struct reshard_view *view, struct rfs_error *err)
{
    const int rc = load_strategy(view->options.src_strategy, &view->src, err);

    return rc ? rc : load_strategy(view->options.dst_strategy, &view->dst, err);
}
