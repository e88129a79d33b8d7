/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How deep a graph is: as deep as writing it again goes, which looks at each node once. Others may meet a
 * shared node at a deeper place first; they bound their own walks.
 */
#include "source/pickle_internal.h"

#include <errno.h>
#include <stdlib.h>

struct walk {
    unsigned char *met; /* a bit for each node */
};

static bool is_shallow(struct walk *walk, const struct rfs_node *node, unsigned depth);

static bool are_shallow(struct walk *walk, const struct rfs_items *items, unsigned depth)
{
    for (uint32_t i = 0; i < items->n; i++)
        if (!is_shallow(walk, items->data[i], depth))
            return false;
    return true;
}

static bool is_shallow_call(struct walk *walk, const struct rfs_node *node, unsigned depth)
{
    const struct rfs_after *after = node->of.call.after;

    return is_shallow(walk, node->of.call.args, depth) &&
           (!after || !after->list || are_shallow(walk, &after->list->of.items, depth)) &&
           (!after || !after->dict || are_shallow(walk, &after->dict->of.items, depth)) &&
           (!after || !after->state || is_shallow(walk, after->state, depth));
}

static bool is_shallow(struct walk *walk, const struct rfs_node *node, unsigned depth)
{
    const bool call = node->kind == RFS_NODE_CALL || node->kind == RFS_NODE_NEW;
    const bool items =
        node->kind == RFS_NODE_TUPLE || node->kind == RFS_NODE_LIST || node->kind == RFS_NODE_DICT;

    if (depth >= RFS_PICKLE_DEPTH)
        return false;
    if (!call && !items) /* those that are shared by all pickles among them */
        return true;
    const unsigned char bit = (unsigned char)(1u << node->number % 8);
    if (walk->met[node->number / 8] & bit)
        return true;
    walk->met[node->number / 8] |= bit;
    return call ? is_shallow_call(walk, node, depth + 1)
                : are_shallow(walk, &node->of.items, depth + 1);
}

int rfs_pickle_is_shallow(const struct rfs_pickle *pickle)
{
    struct walk walk = {calloc(1, (size_t)pickle->n_nodes / 8 + 1)};

    if (!walk.met)
        return -ENOMEM;
    const bool shallow = is_shallow(&walk, pickle->root, 0);
    free(walk.met);
    return shallow;
}
