/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a part's graph: keys, sameness, weight. Values that are shared many times are not
 * walked as many times.
 */
#include "hfai/internal.h"

#include "base/checked.h"
#include "base/cleanup.h"

static bool is_pair(const struct rfs_node *key)
{
    return key->kind == RFS_NODE_TUPLE && key->of.items.n == 2 &&
           key->of.items.data[0]->kind != RFS_NODE_TUPLE &&
           key->of.items.data[1]->kind != RFS_NODE_TUPLE;
}

/* Both keys, and how long the first is. */
static int pair_key(const struct rfs_node *key, char **out, size_t *n)
{
    RFS_FREE char *left = NULL;
    RFS_FREE char *right = NULL;
    size_t left_n;
    size_t right_n;

    int rc = rfs_hfai_key(key->of.items.data[0], &left, &left_n)
                 ?: rfs_hfai_key(key->of.items.data[1], &right, &right_n);
    if (rc)
        return rc;
    char *at = *out = malloc(1 + sizeof left_n + left_n + right_n);
    if (!at)
        return -ENOMEM;
    *at++ = 'p';
    at = (char *)mempcpy(at, &left_n, sizeof left_n);
    at = (char *)mempcpy(at, left, left_n);
    at = (char *)mempcpy(at, right, right_n);
    *n = (size_t)(at - *out);
    return 0;
}

uint64_t rfs_hfai_key_bytes(const struct rfs_node *key)
{
    if (key->kind == RFS_NODE_TEXT)
        return HFAI_WORK_KEY + (uint64_t)key->of.text.n;
    return is_pair(key) ? HFAI_WORK_KEY + rfs_hfai_key_bytes(key->of.items.data[0]) +
                              rfs_hfai_key_bytes(key->of.items.data[1])
                        : HFAI_WORK_KEY;
}

int rfs_hfai_key(const struct rfs_node *key, char **out, size_t *n)
{
    *out = NULL;
    if (key->kind == RFS_NODE_TEXT) {
        *n = (size_t)key->of.text.n + 1;
        *out = malloc(*n);
        if (!*out)
            return -ENOMEM;
        **out = 't';
        memcpy(*out + 1, key->of.text.data, key->of.text.n);
        return 0;
    }
    if (key->kind == RFS_NODE_INT) {
        *n = 1 + sizeof key->of.integer;
        *out = malloc(*n);
        if (!*out)
            return -ENOMEM;
        **out = 'i';
        memcpy(*out + 1, &key->of.integer, sizeof key->of.integer);
        return 0;
    }
    return is_pair(key) ? pair_key(key, out, n) : -EINVAL;
}

/* A key that is no name, in words. */
static const char *what_is(const struct rfs_node *key)
{
    switch ((enum rfs_node_kind)key->kind) {
    case RFS_NODE_NONE:
        return "None";
    case RFS_NODE_BOOL:
        return "a boolean";
    case RFS_NODE_LONG:
    case RFS_NODE_FLOAT:
        return "a number";
    case RFS_NODE_TUPLE:
        return "a tuple";
    default:
        return "an object";
    }
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
    } else if (is_pair(key)) {
        rfs_hfai_show_key(key->of.items.data[0], left, sizeof left);
        rfs_hfai_show_key(key->of.items.data[1], right, sizeof right);
        snprintf(out, cap, "%s.%s", left, right);
    } else {
        snprintf(out, cap, "(%s)", what_is(key));
    }
}

int rfs_hfai_spend(const struct hfai_reading *reading, uint64_t units)
{
    return rfs_hfai_take(&reading->hfai->parts[reading->part].work, units, reading->path,
                         reading->err);
}

int rfs_hfai_take(uint64_t *work, uint64_t units, const char *path, struct rfs_error *err)
{
    if (units <= *work) {
        *work -= units;
        return 0;
    }
    *work = 0;
    return rfs_fail(err, -EFBIG, RFS_IN(path), RFS_HFAI_REMEDY,
                    "the pickle in it uses the same values so often that reading it would take "
                    "more than %d times its bytes",
                    HFAI_WORK_TIMES);
}

/* Two graphs side by side. */
struct walk {
    const struct hfai_reading *reading;
    int rc; /* the budget's */
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

static bool same_kind(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                      unsigned depth)
{
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
        return rfs_node_same_name(a, b);
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        return same_call(walk, a, b, depth);
    case RFS_NODE_STORAGE:
        return same_storage(walk, a, b, depth);
    }
    return false;
}

/*
 * The place of the node that a container of this part is the same as; NULL for another value, or
 * when out of memory.
 */
static const struct rfs_node **same_as(const struct walk *walk, const struct rfs_node *node)
{
    struct hfai_part *part = &walk->reading->hfai->parts[walk->reading->part];

    if (node->kind < RFS_NODE_TUPLE || node->kind == RFS_NODE_GLOBAL ||
        node->origin != walk->reading->part)
        return NULL;
    if (!part->same)
        part->same = calloc(part->torch.pickle.n_nodes, sizeof *part->same);
    return part->same ? &part->same[node->number] : NULL;
}

static bool same(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                 unsigned depth)
{
    const bool text = a != b && (a->kind == RFS_NODE_TEXT || a->kind == RFS_NODE_LONG);

    if (walk->rc == 0)
        walk->rc = rfs_hfai_spend(walk->reading, HFAI_WORK_NODE + (text ? a->of.text.n : 0));
    if (walk->rc)
        return false;
    if (a == b)
        return true;
    if (a->kind != b->kind || depth > RFS_PICKLE_DEPTH)
        return false;
    const struct rfs_node **known = same_as(walk, a);
    if (known && *known == b)
        return true;
    const bool is_same = same_kind(walk, a, b, depth);
    if (known && is_same)
        *known = b;
    return is_same;
}

int rfs_hfai_same(const struct hfai_reading *reading, const struct rfs_node *a,
                  const struct rfs_node *b)
{
    struct walk walk = {reading, 0};
    const bool is_same = same(&walk, a, b, 0);

    return walk.rc ? walk.rc : is_same;
}

/* Where the weight of a container is kept; NULL for another value, or when out of memory. */
static uint64_t *known_of(struct hfai_weigher *weigher, const struct rfs_node *node)
{
    const struct rfs_hfai *hfai = weigher->hfai;

    if (node->kind < RFS_NODE_TUPLE || node->origin >= hfai->n_parts)
        return NULL;
    if (!weigher->known)
        weigher->known = calloc(hfai->n_parts, sizeof *weigher->known);
    uint64_t **nodes = weigher->known ? &weigher->known[node->origin] : NULL;
    if (nodes && !*nodes)
        *nodes = calloc(hfai->parts[node->origin].torch.pickle.n_nodes, sizeof **nodes);
    weigher->no_memory |= !nodes || !*nodes;
    return weigher->no_memory ? NULL : *nodes + node->number;
}

void rfs_hfai_weigher_end(struct hfai_weigher *weigher)
{
    for (uint32_t p = 0; weigher->known && p < weigher->hfai->n_parts; p++)
        free(weigher->known[p]);
    free(weigher->known);
}

static uint64_t weigh(struct hfai_weigher *weigher, const struct rfs_node *value, unsigned depth);

/* Every STEPth item, from FIRST on. */
static uint64_t weigh_items(struct hfai_weigher *weigher, const struct rfs_items *items,
                            uint32_t first, uint32_t step, unsigned depth)
{
    uint64_t sum = 0;

    for (uint32_t i = first; i < items->n; i += step)
        if (!rfs_add_u64(sum, weigh(weigher, items->data[i], depth + 1), &sum))
            sum = UINT64_MAX - 1;
    return sum;
}

static uint64_t weigh_container(struct hfai_weigher *weigher, const struct rfs_node *value,
                                unsigned depth)
{
    const struct rfs_torch *torch = &weigher->hfai->parts[value->origin].torch;
    const struct rfs_items *pairs = rfs_node_pairs(value);
    struct rfs_torch_tensor tensor;

    if (value->kind == RFS_NODE_LIST || value->kind == RFS_NODE_TUPLE)
        return weigh_items(weigher, &value->of.items, 0, 1, depth);
    if (pairs)
        return weigh_items(weigher, pairs, 1, 2, depth);
    /* Tensors are sound; one that is lazily conjugate has its size as well. */
    return rfs_torch_tensor(torch, value, "", "", &tensor, NULL) == 0
               ? 0
               : tensor.elements * rfs_dtype_bytes(tensor.dtype);
}

static uint64_t weigh(struct hfai_weigher *weigher, const struct rfs_node *value, unsigned depth)
{
    if (value->kind == RFS_NODE_INT || value->kind == RFS_NODE_LONG ||
        value->kind == RFS_NODE_FLOAT || value->kind == RFS_NODE_BOOL)
        return 8;
    uint64_t *known = depth > RFS_PICKLE_DEPTH ? NULL : known_of(weigher, value);
    if (!known)
        return 0;
    if (*known == 0) {
        *known = 1; /* a container in itself weighs nothing there */
        *known = weigh_container(weigher, value, depth) + 1;
    }
    return *known - 1;
}

uint64_t rfs_hfai_weight(struct hfai_weigher *weigher, const struct rfs_node *value)
{
    return weigh(weigher, value, 0);
}

bool rfs_hfai_is_cut(const struct rfs_hfai *hfai, const struct rfs_node *value, uint64_t large,
                     struct rfs_torch_tensor *tensor)
{
    return large < UINT64_MAX && value->kind == RFS_NODE_CALL &&
           rfs_torch_tensor(&hfai->parts[value->origin].torch, value, "", "", tensor, NULL) == 1 &&
           tensor->contiguous && tensor->elements * rfs_dtype_bytes(tensor->dtype) > large;
}
