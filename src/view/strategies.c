/* SPDX-License-Identifier: Apache-2.0 */
#include "view/strategies.h"

#include "view/rules.h"
#include "view/strategy_files.h"

static int load_strategy(const char *text, struct rfs_strategy **out, struct rfs_error *err)
{
    return text ? rfs_view_read_strategy(text, out, err) : 0;
}

int rfs_view_strategies(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    int rc = options->src_rules ? rfs_view_src_rules(view, err)
                                : load_strategy(options->src_strategy, &view->src, err);

    if (!rc)
        rc = options->dst_rules ? rfs_view_dst_rules(view, err)
                                : load_strategy(options->dst_strategy, &view->dst, err);
    return rc ? rc : rfs_view_check_rules(view, err);
}
