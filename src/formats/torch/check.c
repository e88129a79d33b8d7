/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk through all of a file's graph: each node once, in the order in which it would be written.
 */
#include "formats/torch/archive.h"

#include "base/cleanup.h"

struct walk {
    const struct rfs_torch *torch;
    const char *file;
    struct rfs_error *err;
    unsigned char *seen; /* a bit for each node */
    unsigned depth;
    unsigned n_keys;
    const struct rfs_node *keys[RFS_PICKLE_DEPTH + 1]; /* that lead here, for messages */
    char name[200];
};

static int visit(struct walk *walk, const struct rfs_node *node);

static bool is_constant(const struct rfs_node *node)
{
    return node->kind <= RFS_NODE_TEXT || node->kind == RFS_NODE_GLOBAL;
}

/* Whether the node was met before; it counts as met then. */
static bool was_seen(struct walk *walk, const struct rfs_node *node)
{
    unsigned char *byte = &walk->seen[node->number / 8];
    const unsigned char bit = (unsigned char)(1u << node->number % 8);
    const bool seen = *byte & bit;

    *byte |= bit;
    return seen;
}

/* For messages; NULL at the root. */
static const char *name_of(struct walk *walk)
{
    size_t named = 0;

    for (unsigned i = 0; i < walk->n_keys; i++) {
        const struct rfs_node *key = walk->keys[i];
        const size_t left = sizeof walk->name - named;
        const char *dot = named > 0 ? "." : "";
        int n = 0;
        if (key->kind == RFS_NODE_TEXT)
            n = snprintf(walk->name + named, left, "%s%.*s", dot,
                         (int)(key->of.text.n < left ? key->of.text.n : left), key->of.text.data);
        else if (key->kind == RFS_NODE_INT)
            n = snprintf(walk->name + named, left, "%s%lld", dot, (long long)key->of.integer);
        if (n > 0)
            named += (size_t)n < left ? (size_t)n : left - 1;
    }
    return named > 0 ? walk->name : NULL;
}

static int visit_pairs(struct walk *walk, const struct rfs_items *pairs)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i + 1 < pairs->n; i += 2) {
        rc = visit(walk, pairs->data[i]);
        walk->keys[walk->n_keys++] = pairs->data[i]; /* one for each level at most */
        if (rc == 0)
            rc = visit(walk, pairs->data[i + 1]);
        walk->n_keys--;
    }
    return rc;
}

static int visit_items(struct walk *walk, const struct rfs_items *items)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < items->n; i++)
        rc = visit(walk, items->data[i]);
    return rc;
}

static int visit_call(struct walk *walk, const struct rfs_node *node)
{
    const struct rfs_after *after = node->of.call.after;
    struct rfs_torch_tensor tensor;

    int rc = rfs_torch_tensor(walk->torch, node, walk->file, NULL, &tensor, NULL);
    if (rc == 1 || rc == -ENOTSUP) /* lazily conjugated tensors can be written again as they are */
        return 0;
    if (rc < 0) /* again, for the error message */
        return rfs_torch_tensor(walk->torch, node, walk->file, name_of(walk), &tensor, walk->err);
    rc = visit(walk, node->of.call.args);
    if (rc == 0 && after && after->list)
        rc = visit_items(walk, &after->list->of.items);
    if (rc == 0 && after && after->dict)
        rc = visit_pairs(walk, &after->dict->of.items);
    return rc == 0 && after && after->state ? visit(walk, after->state) : rc;
}

static int visit_kind(struct walk *walk, const struct rfs_node *node)
{
    const struct rfs_zip_entry *record;

    switch ((enum rfs_node_kind)node->kind) {
    case RFS_NODE_TUPLE:
    case RFS_NODE_LIST:
        return visit_items(walk, &node->of.items);
    case RFS_NODE_DICT:
        return visit_pairs(walk, &node->of.items);
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        return visit_call(walk, node);
    case RFS_NODE_STORAGE:
        return rfs_torch_record(walk->torch, node, walk->file, NULL, &record, NULL) == 0
                   ? 0
                   : rfs_torch_record(walk->torch, node, walk->file, name_of(walk), &record,
                                      walk->err);
    default:
        return 0;
    }
}

static int visit(struct walk *walk, const struct rfs_node *node)
{
    if (is_constant(node) || was_seen(walk, node))
        return 0;
    if (walk->depth >= RFS_PICKLE_DEPTH)
        return rfs_fail(walk->err, -EINVAL, RFS_OF(walk->file, name_of(walk)),
                        "save it with less nesting",
                        "a value in it is nested deeper than %d levels", RFS_PICKLE_DEPTH);
    walk->depth++;
    const int rc = visit_kind(walk, node);
    walk->depth--;
    return rc;
}

int rfs_torch_check(const struct rfs_torch *torch, const char *file, struct rfs_error *err)
{
    RFS_FREE unsigned char *seen = calloc((size_t)torch->pickle.n_nodes / 8 + 1, 1);
    struct walk walk = {.torch = torch, .file = file, .err = err, .seen = seen};

    return seen ? visit(&walk, torch->pickle.root) : rfs_fail_memory(err);
}
