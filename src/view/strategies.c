/* SPDX-License-Identifier: Apache-2.0 */
#include "view/strategies.h"

#include "base/cleanup.h"

static int load_strategy(const char *path, struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;

    if (!path)
        return 0;
    const int rc = rfs_read_whole(path, RFS_STRATEGY_BYTES, &data, &size, err);
    return rc ? rc : rfs_strategy_parse(path, data, size, out, err);
}

int rfs_view_strategies(struct reshard_view *view, struct rfs_error *err)
{
    const int rc = load_strategy(view->options.src_strategy, &view->src, err);

    return rc ? rc : load_strategy(view->options.dst_strategy, &view->dst, err);
}
