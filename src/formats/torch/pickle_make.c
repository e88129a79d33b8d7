/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes of a pickle that make nodes of those on its stack. */
#include "formats/torch/pickle_internal.h"

#define REMEDY_PLAIN "save plain values and tensors only"
#define NAME_MOST 256 /* bytes of a module's or a callable's name */

/* Moves the nodes above HEIGHT to ITEMS. */
static int fold(struct rfs_unpickler *machine, size_t height, struct rfs_items *items)
{
    const size_t n = machine->stack.n - height;

    /* A stack that was never used has no memory. */
    if (n > 0 && !rfs_items_add(&machine->pickle->arena, items, machine->stack.data + height, n))
        return rfs_fail_memory(machine->err);
    machine->stack.n = height;
    return 0;
}

/* Looked at once, when the tuple is made: a memo may hand it to any number of calls. */
static bool are_counts(const struct rfs_items *items)
{
    for (uint32_t i = 0; i < items->n; i++)
        if (items->data[i]->kind != RFS_NODE_INT || items->data[i]->of.integer < 0)
            return false;
    return true;
}

int rfs_unpickle_fold(struct rfs_unpickler *machine, enum rfs_node_kind kind, int64_t height)
{
    struct rfs_node *node = rfs_unpickle_node(machine, kind);

    if (height < 0)
        return (int)height;
    if (!node)
        return rfs_unpickle_no_node(machine);
    if (kind == RFS_NODE_DICT && (machine->stack.n - (size_t)height) % 2 != 0)
        return rfs_unpickle_fail(machine, "a key without a value");
    const int rc = fold(machine, (size_t)height, &node->of.items);
    node->callable = rc == 0 && kind == RFS_NODE_TUPLE && are_counts(&node->of.items);
    return rc ? rc : rfs_unpickle_push(machine, node);
}

int rfs_unpickle_tuple(struct rfs_unpickler *machine, size_t n)
{
    if (rfs_unpickle_above_mark(machine) < n)
        return rfs_unpickle_fail(machine, "too few values for a tuple");
    return rfs_unpickle_fold(machine, RFS_NODE_TUPLE, (int64_t)(machine->stack.n - n));
}

static struct rfs_after *after_of(struct rfs_unpickler *machine, struct rfs_node *node)
{
    if (!node->of.call.after) {
        node->of.call.after = rfs_arena_alloc(&machine->pickle->arena, sizeof(struct rfs_after));
        if (node->of.call.after)
            *node->of.call.after = (struct rfs_after){NULL, NULL, NULL};
    }
    return node->of.call.after;
}

static bool is_call(const struct rfs_node *node)
{
    return node->kind == RFS_NODE_CALL || node->kind == RFS_NODE_NEW;
}

/* The items that are appended to the object of a call (or, of a dict, set on it). */
static int items_after(struct rfs_unpickler *machine, struct rfs_node *call, bool dict,
                       struct rfs_items **items)
{
    struct rfs_after *after = after_of(machine, call);

    if (!after)
        return rfs_fail_memory(machine->err);
    struct rfs_node **slot = dict ? &after->dict : &after->list;
    if (!*slot)
        *slot = rfs_unpickle_node(machine, dict ? RFS_NODE_DICT : RFS_NODE_LIST);
    if (!*slot)
        return rfs_unpickle_no_node(machine);
    *items = &(*slot)->of.items;
    return 0;
}

int rfs_unpickle_add(struct rfs_unpickler *machine, int64_t height, bool dict)
{
    const size_t below = machine->marks.n > 0 ? machine->marks.data[machine->marks.n - 1] : 0;
    struct rfs_items *items = NULL;

    if (height < 0)
        return (int)height;
    if ((size_t)height <= below)
        return rfs_unpickle_fail(machine, "items without a container");
    if (dict && (machine->stack.n - (size_t)height) % 2 != 0)
        return rfs_unpickle_fail(machine, "a key without a value");
    struct rfs_node *node = machine->stack.data[(size_t)height - 1];
    if (node->kind == (dict ? RFS_NODE_DICT : RFS_NODE_LIST)) {
        items = &node->of.items;
    } else if (is_call(node) && rfs_pickle_may_add(node, dict)) {
        const int rc = items_after(machine, node, dict, &items);
        if (rc)
            return rc;
    } else {
        return rfs_unpickle_fail(machine, dict ? "items are set on something that is not a dict"
                                               : "items are added to something that is not a list");
    }
    return fold(machine, (size_t)height, items);
}

int rfs_unpickle_add_last(struct rfs_unpickler *machine, size_t n, bool dict)
{
    if (rfs_unpickle_above_mark(machine) < n + 1)
        return rfs_unpickle_fail(machine, "items without a container");
    return rfs_unpickle_add(machine, (int64_t)(machine->stack.n - n), dict);
}

int rfs_unpickle_global(struct rfs_unpickler *machine)
{
    const unsigned char *module = machine->p;
    const size_t left = (size_t)(machine->end - module);
    const unsigned char *first = memchr(module, '\n', left);
    const unsigned char *name = first ? first + 1 : NULL;
    const unsigned char *last = name ? memchr(name, '\n', (size_t)(machine->end - name)) : NULL;

    if (!last || first - module > NAME_MOST || last - name > NAME_MOST)
        return rfs_unpickle_fail(machine, "a name without an end");
    machine->p = last + 1;
    const int place = rfs_pickle_find_name(module, (size_t)(last - module), machine->pieces);
    if (place < 0)
        return rfs_fail(machine->err, -ENOTSUP, rfs_unpickle_where(machine), REMEDY_PLAIN,
                        "the pickle in it names %.*s.%.*s, which is not read; nothing was executed",
                        (int)(first - module), (const char *)module, (int)(last - name),
                        (const char *)name);
    struct rfs_node *node = rfs_unpickle_node(machine, RFS_NODE_GLOBAL);
    if (node) {
        node->callable = (uint8_t)rfs_pickle_callable((uint16_t)place);
        node->of.global.module = (const char *)module;
        node->of.global.module_bytes = (uint16_t)(first - module);
        node->of.global.name_bytes = (uint16_t)(last - name);
        node->of.global.place = (uint16_t)place;
    }
    return rfs_unpickle_push(machine, node);
}

static int fail_call(const struct rfs_unpickler *machine, const struct rfs_node *callee)
{
    return rfs_fail(
        machine->err, -ENOTSUP, rfs_unpickle_where(machine), REMEDY_PLAIN,
        "the pickle in it uses %.*s.%.*s in a way that is not read; nothing was executed",
        (int)callee->of.global.module_bytes, callee->of.global.module,
        (int)callee->of.global.name_bytes, rfs_node_global_name(callee));
}

int rfs_unpickle_call(struct rfs_unpickler *machine, enum rfs_node_kind kind)
{
    struct rfs_node *args = rfs_unpickle_pop(machine);
    struct rfs_node *callee = rfs_unpickle_pop(machine);
    struct rfs_node *node = rfs_unpickle_node(machine, kind);

    if (!args || !callee || args->kind != RFS_NODE_TUPLE || callee->kind != RFS_NODE_GLOBAL)
        return rfs_unpickle_fail(machine, "a call of something that is not callable");
    if (!node)
        return rfs_unpickle_no_node(machine);
    node->of.call.callee = callee;
    node->of.call.args = args;
    return rfs_pickle_may_call(node) ? rfs_unpickle_push(machine, node)
                                     : fail_call(machine, callee);
}

int rfs_unpickle_build(struct rfs_unpickler *machine)
{
    struct rfs_node *state = rfs_unpickle_pop(machine);
    struct rfs_node *node = rfs_unpickle_top(machine);

    if (!state || !node || !is_call(node))
        return rfs_unpickle_fail(machine, "a state without an object");
    if (!rfs_pickle_may_build(node, state))
        return fail_call(machine, node->of.call.callee);
    struct rfs_after *after = after_of(machine, node);
    if (!after)
        return rfs_fail_memory(machine->err);
    if (after->state)
        return rfs_unpickle_fail(machine, "an object with two states");
    after->state = state;
    return 0;
}

/* The only persistent ids are storages. */
int rfs_unpickle_storage(struct rfs_unpickler *machine)
{
    struct rfs_node *id = rfs_unpickle_pop(machine);
    struct rfs_node *node = rfs_unpickle_node(machine, RFS_NODE_STORAGE);

    if (!id || id->kind != RFS_NODE_TUPLE)
        return rfs_unpickle_fail(machine, "a persistent id that is not a storage");
    struct rfs_node **item = id->of.items.data;
    if (id->of.items.n != 5 || !rfs_node_is_text(item[0], "storage") ||
        item[1]->kind != RFS_NODE_GLOBAL || item[1]->callable != RFS_CALL_STORAGE_CLASS ||
        item[2]->kind != RFS_NODE_TEXT || item[3]->kind != RFS_NODE_TEXT ||
        item[4]->kind != RFS_NODE_INT || item[4]->of.integer < 0)
        return rfs_unpickle_fail(machine, "a persistent id that is not a storage");
    if (node)
        node->of.items = id->of.items;
    return rfs_unpickle_push(machine, node);
}
