/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a part's graph: keys, sameness, weight. What is shared many times is not walked as many times. */
#include "plan/hfai_internal.h"

#include "base/checked.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nodes that one walk looks at: shared ones count each time, so that no graph takes for ever. */
#define WALK_MOST (UINT32_C(1) << 22)

char *rfs_hfai_key(const struct rfs_node *key, size_t *n)
{
    char *out = NULL;

    if (key->kind == RFS_NODE_TEXT) {
        *n = (size_t)key->of.text.n + 1;
        out = malloc(*n);
        if (out) {
            out[0] = 't';
            memcpy(out + 1, key->of.text.data, key->of.text.n);
        }
    } else if (key->kind == RFS_NODE_INT) {
        const int length = asprintf(&out, "i%lld", (long long)key->of.integer);
        *n = length < 0 ? 0 : (size_t)length;
        out = length < 0 ? NULL : out;
    }
    return out;
}

void rfs_hfai_show_key(const struct rfs_node *key, char *out, size_t cap)
{
    char left[96];
    char right[96];

    if (key->kind == RFS_NODE_TEXT) {
        snprintf(out, cap, "%.*s", (int)(key->of.text.n < 200 ? key->of.text.n : 200),
                 key->of.text.data);
    } else if (key->kind == RFS_NODE_INT) {
        snprintf(out, cap, "%lld", (long long)key->of.integer);
    } else if (key->kind == RFS_NODE_TUPLE && key->of.items.n == 2 &&
               key->of.items.data[0]->kind != RFS_NODE_TUPLE &&
               key->of.items.data[1]->kind != RFS_NODE_TUPLE) {
        rfs_hfai_show_key(key->of.items.data[0], left, sizeof left);
        rfs_hfai_show_key(key->of.items.data[1], right, sizeof right);
        snprintf(out, cap, "%s.%s", left, right);
    } else {
        snprintf(out, cap, "(a key of kind %d)", key->kind);
    }
}

struct walk {
    uint32_t steps;
};

static bool same(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                 unsigned depth);

static bool same_items(struct walk *walk, const struct rfs_items *a, const struct rfs_items *b,
                       unsigned depth)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!same(walk, a->data[i], b->data[i], depth + 1))
            return false;
    return true;
}

/* Either may be NULL. */
static bool same_optional(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                          unsigned depth)
{
    return a && b ? same(walk, a, b, depth) : a == b;
}

static bool same_call(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                      unsigned depth)
{
    static const struct rfs_after none;
    const struct rfs_after *x = a->of.call.after ? a->of.call.after : &none;
    const struct rfs_after *y = b->of.call.after ? b->of.call.after : &none;

    return same(walk, a->of.call.callee, b->of.call.callee, depth + 1) &&
           same(walk, a->of.call.args, b->of.call.args, depth + 1) &&
           same_optional(walk, x->list, y->list, depth + 1) &&
           same_optional(walk, x->dict, y->dict, depth + 1) &&
           same_optional(walk, x->state, y->state, depth + 1);
}

static bool same_text(const struct rfs_node *a, const struct rfs_node *b)
{
    return a->of.text.n == b->of.text.n &&
           memcmp(a->of.text.data, b->of.text.data, a->of.text.n) == 0;
}

/* Class and size; keys and locations are each file's own, and bytes are not looked at. */
static bool same_storage(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                         unsigned depth)
{
    struct rfs_node *const *x = a->of.items.data;
    struct rfs_node *const *y = b->of.items.data;
    return same(walk, x[1], y[1], depth + 1) && same(walk, x[4], y[4], depth + 1);
}

static bool same(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                 unsigned depth)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || depth > RFS_PICKLE_DEPTH || ++walk->steps > WALK_MOST)
        return false;
    switch ((enum rfs_node_kind)a->kind) {
    case RFS_NODE_NONE:
        return true;
    case RFS_NODE_BOOL:
        return a->of.truth == b->of.truth;
    case RFS_NODE_INT:
        return a->of.integer == b->of.integer;
    case RFS_NODE_FLOAT:
        return a->of.bits == b->of.bits;
    case RFS_NODE_LONG:
    case RFS_NODE_TEXT:
        return same_text(a, b);
    case RFS_NODE_TUPLE:
    case RFS_NODE_LIST:
    case RFS_NODE_DICT:
        return same_items(walk, &a->of.items, &b->of.items, depth);
    case RFS_NODE_GLOBAL:
        return a->of.global.module_bytes == b->of.global.module_bytes &&
               a->of.global.name_bytes == b->of.global.name_bytes &&
               memcmp(a->of.global.module, b->of.global.module,
                      (size_t)a->of.global.module_bytes + 1 + a->of.global.name_bytes) == 0;
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        return same_call(walk, a, b, depth);
    case RFS_NODE_STORAGE:
        return same_storage(walk, a, b, depth);
    }
    return false;
}

bool rfs_hfai_same(const struct rfs_node *a, const struct rfs_node *b)
{
    struct walk walk = {0};
    return same(&walk, a, b, 0);
}

/* The storage of a tensor that was made here: it is all of it. NULL for anything else. */
static const struct rfs_node *made_storage(const struct rfs_node *value)
{
    if (value->origin != RFS_ORIGIN_MADE || value->kind != RFS_NODE_CALL ||
        (value->of.call.callee->callable != RFS_CALL_TENSOR &&
         value->of.call.callee->callable != RFS_CALL_TENSOR_V3))
        return NULL;
    return value->of.call.args->of.items.data[0];
}

static uint64_t weigh(struct walk *walk, const struct rfs_hfai *hfai, const struct rfs_node *value,
                      unsigned depth)
{
    struct rfs_torch_tensor tensor;
    uint64_t sum = 0;

    if (depth > RFS_PICKLE_DEPTH || ++walk->steps > WALK_MOST)
        return 0;
    if (value->kind == RFS_NODE_INT || value->kind == RFS_NODE_FLOAT ||
        value->kind == RFS_NODE_BOOL)
        return 8;
    if (value->origin < hfai->n_parts &&
        rfs_torch_tensor(&hfai->parts[value->origin].torch, value, "", "", &tensor, NULL) == 1)
        return tensor.elements * rfs_dtype_bytes(tensor.dtype);
    const struct rfs_node *storage = made_storage(value);
    if (storage)
        return rfs_torch_storage_bytes(storage);
    const struct rfs_items *pairs = rfs_node_pairs(value);
    for (uint32_t i = 1; pairs && i < pairs->n; i += 2)
        rfs_add_u64(sum, weigh(walk, hfai, pairs->data[i], depth + 1), &sum);
    const bool row = value->kind == RFS_NODE_LIST || value->kind == RFS_NODE_TUPLE;
    for (uint32_t i = 0; row && i < value->of.items.n; i++)
        rfs_add_u64(sum, weigh(walk, hfai, value->of.items.data[i], depth + 1), &sum);
    return sum;
}

uint64_t rfs_hfai_weight(const struct rfs_hfai *hfai, const struct rfs_node *value)
{
    struct walk walk = {0};
    return weigh(&walk, hfai, value, 0);
}
