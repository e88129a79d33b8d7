/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes, and looking at them. None, booleans and small numbers are most of the nodes of a state
 * (the dimensions of tensors, the numbers of parameters, which each of a thousand parts lists):
 * they are one node each for all pickles, made at the first use.
 */
#include "formats/torch/pickle_internal.h"

#include <pthread.h>

#define CONSTANT_INTS (UINT16_MAX + 1)

static struct rfs_node ints[CONSTANT_INTS];
static struct rfs_node booleans[2];
static struct rfs_node none;

static void make_constants(void)
{
    none.kind = RFS_NODE_NONE;
    for (unsigned i = 0; i < 2; i++) {
        booleans[i].kind = RFS_NODE_BOOL;
        booleans[i].of.truth = i == 1;
    }
    for (unsigned i = 0; i < CONSTANT_INTS; i++) {
        ints[i].kind = RFS_NODE_INT;
        ints[i].of.integer = i;
    }
}

struct rfs_node *rfs_node_constant(enum rfs_node_kind kind, uint16_t value)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_constants);
    return kind == RFS_NODE_INT    ? &ints[value]
           : kind == RFS_NODE_BOOL ? &booleans[value != 0]
                                   : &none;
}

struct rfs_node *rfs_unpickle_node(struct rfs_unpickler *machine, enum rfs_node_kind kind)
{
    if (machine->pickle->n_nodes >= RFS_PICKLE_NODES)
        return NULL;
    /* Numbers take no more room than they need: there may be millions. */
    const bool is_number = kind == RFS_NODE_INT || kind == RFS_NODE_FLOAT;
    const size_t bytes =
        is_number ? offsetof(struct rfs_node, of) + sizeof(int64_t) : sizeof(struct rfs_node);
    struct rfs_node *node = rfs_arena_alloc(&machine->pickle->arena, bytes);
    if (node) {
        memset(node, 0, bytes);
        node->kind = (uint8_t)kind;
        node->origin = machine->origin;
        node->number = machine->pickle->n_nodes++;
    }
    return node;
}

bool rfs_items_add(struct rfs_arena *arena, struct rfs_items *items, struct rfs_node *const *nodes,
                   size_t n)
{
    if (n > items->cap - items->n) {
        const uint64_t least = (uint64_t)items->n + n;
        const uint64_t more = items->n > 2 ? items->n + (uint64_t)items->n / 2 : 2 * items->n;
        const uint64_t cap = least > more ? least : more;
        if (cap > UINT32_MAX)
            return false;
        struct rfs_node **data = rfs_arena_grow(arena, items->data, items->cap * sizeof *data,
                                                (size_t)cap * sizeof *data);
        if (!data)
            return false;
        items->data = data;
        items->cap = (uint32_t)cap;
    }
    if (n > 0)
        memcpy(items->data + items->n, nodes, n * sizeof *nodes);
    items->n += (uint32_t)n;
    return true;
}

bool rfs_node_same_name(const struct rfs_node *a, const struct rfs_node *b)
{
    const size_t n = (size_t)a->of.global.module_bytes + 1 + a->of.global.name_bytes;

    return a->of.global.module_bytes == b->of.global.module_bytes &&
           a->of.global.name_bytes == b->of.global.name_bytes &&
           memcmp(a->of.global.module, b->of.global.module, n) == 0;
}

bool rfs_node_is_text(const struct rfs_node *node, const char *text)
{
    return node && node->kind == RFS_NODE_TEXT && node->of.text.n == strlen(text) &&
           memcmp(node->of.text.data, text, node->of.text.n) == 0;
}

const struct rfs_items *rfs_node_pairs(const struct rfs_node *node)
{
    static const struct rfs_items nothing;

    if (node->kind == RFS_NODE_DICT)
        return &node->of.items;
    if (node->kind == RFS_NODE_CALL && node->of.call.callee->callable == RFS_CALL_ORDERED_DICT)
        return node->of.call.after && node->of.call.after->dict
                   ? &node->of.call.after->dict->of.items
                   : &nothing;
    return NULL;
}

const struct rfs_node *rfs_node_get(const struct rfs_node *node, const char *key)
{
    const struct rfs_items *pairs = rfs_node_pairs(node);
    const struct rfs_node *found = NULL;

    for (uint32_t i = 0; pairs && i + 1 < pairs->n; i += 2)
        if (rfs_node_is_text(pairs->data[i], key))
            found = pairs->data[i + 1];
    return found;
}
