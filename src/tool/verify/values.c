/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of hfai's parts that are no tensors: numbers, texts, lists, and which dicts there are.
 * They are compared by its path in the state, however the parts divide that.
 */
#include "tool/common/whole_parts.h"
#include "tool/verify/verify.h"

static void find(struct rfs_verify *verify, const char *name, const char *detail)
{
    rfs_verify_find(verify, RFS_FOUND_VALUE, name, RFS_NO_RANK, detail);
}

void rfs_verify_values(struct rfs_verify *verify)
{
    size_t n_tree;
    size_t n_src;
    size_t i = 0;
    size_t k = 0;

    if (!verify->tree.parts || !verify->src.parts || verify->options->globs.n > 0)
        return;
    const struct rfs_hfai_value *tree = rfs_whole_parts_values(verify->tree.parts, &n_tree);
    const struct rfs_hfai_value *src = rfs_whole_parts_values(verify->src.parts, &n_src);
    while (i < n_tree || k < n_src) {
        const int order = i == n_tree ? 1 : k == n_src ? -1 : strcmp(tree[i].name, src[k].name);
        if (order < 0)
            find(verify, tree[i].name, "should not be there");
        else if (order > 0)
            find(verify, src[k].name, "is missing");
        else if (memcmp(tree[i].hash, src[k].hash, sizeof src[k].hash) != 0)
            find(verify, tree[i].name, "differs from the source");
        i += order <= 0;
        k += order >= 0;
    }
    verify->values = n_src;
}
