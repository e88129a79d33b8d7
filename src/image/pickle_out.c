/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CPython's Modules/_pickle.c does with protocol 2 (pickle.c in the source room draws the opcodes):
 * texts, names, tuples, containers and objects go to the memo once written, lists and dicts before they are
 * filled; items are added in batches of 1,000; a tuple that was written while its own items were is taken
 * from the memo instead.
 */
#include "image/pickle_out.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1000 };
#define NO_MEMO UINT32_MAX

struct seen {
    const struct rfs_node *node; /* NULL: a free cell */
    uint32_t memo;
};

struct pickler {
    rfs_storage_key_fn *key;
    void *ctx;
    struct rfs_bytes *out;
    struct rfs_error *err;
    struct seen *table;         /* open addressing; at most half full */
    size_t cap;                 /* a power of two, or 0 */
    uint32_t n;                 /* of the memo */
    uint32_t storage;           /* the memo number of the text "storage", or NO_MEMO */
    uint32_t cpu;               /* the same of the location */
    RFS_VEC(uint32_t) keys;     /* the same of each storage's key */
    RFS_VEC(struct seen) names; /* globals: those of several files are the same objects */
    unsigned depth;
};

static int put(struct pickler *pickler, const void *bytes, size_t n)
{
    return rfs_bytes_put(pickler->out, bytes, n) ? 0 : rfs_fail_memory(pickler->err);
}

static int put_op(struct pickler *pickler, unsigned char op)
{
    return put(pickler, &op, 1);
}

/* An opcode and a little-endian number of BYTES bytes. */
static int put_number(struct pickler *pickler, unsigned char op, uint64_t number, unsigned bytes)
{
    unsigned char buf[9] = {op};

    for (unsigned i = 0; i < bytes; i++)
        buf[1 + i] = (unsigned char)(number >> (8 * i));
    return put(pickler, buf, 1 + bytes);
}

static struct seen *cell_of(const struct pickler *pickler, const struct rfs_node *node)
{
    const uint64_t hash = ((uintptr_t)node >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(hash >> 20) & (pickler->cap - 1);

    while (pickler->table[at].node && pickler->table[at].node != node)
        at = (at + 1) & (pickler->cap - 1);
    return &pickler->table[at];
}

static bool grow(struct pickler *pickler)
{
    struct seen *old = pickler->table;
    const size_t old_cap = pickler->cap;
    struct seen *table = calloc(old_cap ? old_cap * 2 : 256, sizeof *table);

    if (!table)
        return false;
    pickler->table = table;
    pickler->cap = old_cap ? old_cap * 2 : 256;
    for (size_t i = 0; i < old_cap; i++)
        if (old[i].node)
            *cell_of(pickler, old[i].node) = old[i];
    free(old);
    return true;
}

/* Gives what is on the stack the next number, for whoever remembers it. */
static int put_memo(struct pickler *pickler)
{
    const uint32_t memo = pickler->n++;
    return memo < 256 ? put_number(pickler, 'q', memo, 1) : put_number(pickler, 'r', memo, 4);
}

static int get_memo(struct pickler *pickler, uint32_t memo)
{
    return memo < 256 ? put_number(pickler, 'h', memo, 1) : put_number(pickler, 'j', memo, 4);
}

static int memoize(struct pickler *pickler, const struct rfs_node *node)
{
    if (2 * ((size_t)pickler->n + 1) > pickler->cap && !grow(pickler))
        return rfs_fail_memory(pickler->err);
    *cell_of(pickler, node) = (struct seen){node, pickler->n};
    return put_memo(pickler);
}

/* Whether the node was written before; it is then taken from the memo: 1, 0 or -errno. */
static int recall(struct pickler *pickler, const struct rfs_node *node)
{
    const struct seen *cell = pickler->cap ? cell_of(pickler, node) : NULL;

    if (!cell || !cell->node)
        return 0;
    const int rc = get_memo(pickler, cell->memo);
    return rc ? rc : 1;
}

static int save(struct pickler *pickler, const struct rfs_node *node);

static int save_int(struct pickler *pickler, int64_t value)
{
    if (value >= 0 && value <= 0xff)
        return put_number(pickler, 'K', (uint64_t)value, 1);
    if (value >= 0 && value <= 0xffff)
        return put_number(pickler, 'M', (uint64_t)value, 2);
    if (value >= INT32_MIN && value <= INT32_MAX)
        return put_number(pickler, 'J', (uint64_t)value, 4);
    /* As few bytes as keep the sign. */
    const uint64_t magnitude = value < 0 ? ~(uint64_t)value : (uint64_t)value;
    unsigned n = 1;
    while (n < 8 && magnitude >> (8 * n - 1) != 0)
        n++;
    const int rc = put_number(pickler, 0x8a, n, 1);
    unsigned char bytes[8];
    for (unsigned i = 0; i < n; i++)
        bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    return rc ? rc : put(pickler, bytes, n);
}

static int save_long(struct pickler *pickler, const struct rfs_node *node)
{
    const int rc = node->of.text.n < 256 ? put_number(pickler, 0x8a, node->of.text.n, 1)
                                         : put_number(pickler, 0x8b, node->of.text.n, 4);
    return rc ? rc : put(pickler, node->of.text.data, node->of.text.n);
}

static int save_float(struct pickler *pickler, uint64_t bits)
{
    unsigned char bytes[9] = {'G'};

    for (unsigned i = 0; i < 8; i++)
        bytes[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
    return put(pickler, bytes, sizeof bytes);
}

static int save_bytes_of_text(struct pickler *pickler, const char *text, uint32_t n)
{
    const int rc = put_number(pickler, 'X', n, 4);
    return rc ? rc : put(pickler, text, n);
}

static int save_text(struct pickler *pickler, const struct rfs_node *node)
{
    const int rc = save_bytes_of_text(pickler, node->of.text.data, node->of.text.n);
    return rc ? rc : memoize(pickler, node);
}

static int save_global(struct pickler *pickler, const struct rfs_node *node)
{
    for (size_t i = 0; i < pickler->names.n; i++)
        if (rfs_node_same_name(pickler->names.data[i].node, node))
            return get_memo(pickler, pickler->names.data[i].memo);
    if (!RFS_PUSH(&pickler->names, (struct seen){node, pickler->n}))
        return rfs_fail_memory(pickler->err);
    int rc = put_op(pickler, 'c');
    if (!rc)
        rc = put(pickler, node->of.global.module, node->of.global.module_bytes);
    if (!rc)
        rc = put_op(pickler, '\n');
    if (!rc)
        rc = put(pickler, rfs_node_global_name(node), node->of.global.name_bytes);
    if (!rc)
        rc = put_op(pickler, '\n');
    return rc ? rc : put_memo(pickler);
}

/* Its items are on the stack, below them a mark if there are more than three. */
static int end_tuple(struct pickler *pickler, const struct rfs_node *node)
{
    const uint32_t n = node->of.items.n;
    const struct seen *cell = pickler->cap ? cell_of(pickler, node) : NULL;

    if (cell && cell->node) { /* one of its items contains it */
        int rc = n > 3 ? put_op(pickler, '1') : 0;
        for (uint32_t i = 0; !rc && n <= 3 && i < n; i++)
            rc = put_op(pickler, '0');
        const int got = rc ? rc : recall(pickler, node);
        return got < 0 ? got : 0;
    }
    const int rc = put_op(pickler, n > 3 ? 't' : (unsigned char)(0x84 + n));
    return rc ? rc : memoize(pickler, node);
}

static int save_tuple(struct pickler *pickler, const struct rfs_node *node)
{
    const struct rfs_items *items = &node->of.items;
    int rc = items->n > 3 ? put_op(pickler, '(') : 0;

    if (items->n == 0)
        return put_op(pickler, ')');
    for (uint32_t i = 0; !rc && i < items->n; i++)
        rc = save(pickler, items->data[i]);
    return rc ? rc : end_tuple(pickler, node);
}

/* Items from FIRST on: as one batch if MARKED, else as the single one that they are. */
static int save_batch(struct pickler *pickler, const struct rfs_items *items, uint32_t width,
                      uint32_t first, uint32_t n, bool marked)
{
    int rc = marked ? put_op(pickler, '(') : 0;

    for (uint32_t k = first * width; !rc && k < (first + n) * width; k++)
        rc = save(pickler, items->data[k]);
    return rc ? rc : put_op(pickler, width == 2 ? (marked ? 'u' : 's') : (marked ? 'e' : 'a'));
}

/*
 * Adds the items to the container on the stack, WIDTH of them (1, or a key and a value) as one. CPython does it
 * in three ways: of a list, of a dict (an empty batch follows a full one at its end), and of what an iterator
 * gives after a call (the last one is single if a full batch ended before it).
 */
enum way { OF_LIST, OF_DICT, OF_ITERATOR };

static int save_items(struct pickler *pickler, const struct rfs_items *items, uint32_t width,
                      enum way way)
{
    const uint32_t n = items->n / width;
    uint32_t at = 0;
    int rc = 0;

    if (n == 1)
        return save_batch(pickler, items, width, 0, 1, false);
    while (!rc && at < n) {
        const uint32_t batch = n - at < BATCH ? n - at : BATCH;
        rc = save_batch(pickler, items, width, at, batch, way != OF_ITERATOR || batch > 1);
        at += batch;
    }
    const bool full = n > 0 && n % BATCH == 0;
    return !rc && way == OF_DICT && full ? save_batch(pickler, items, width, n, 0, true) : rc;
}

static int save_container(struct pickler *pickler, const struct rfs_node *node, bool dict)
{
    int rc = put_op(pickler, dict ? '}' : ']');
    if (!rc)
        rc = memoize(pickler, node);
    return rc ? rc : save_items(pickler, &node->of.items, dict ? 2 : 1, dict ? OF_DICT : OF_LIST);
}

static int save_call(struct pickler *pickler, const struct rfs_node *node)
{
    const struct rfs_after *after = node->of.call.after;
    int rc = save(pickler, node->of.call.callee);

    if (!rc)
        rc = save(pickler, node->of.call.args);
    if (!rc)
        rc = put_op(pickler, node->kind == RFS_NODE_NEW ? 0x81 : 'R');
    if (!rc)
        rc = memoize(pickler, node);
    if (!rc && after && after->list)
        rc = save_items(pickler, &after->list->of.items, 1, OF_ITERATOR);
    if (!rc && after && after->dict)
        rc = save_items(pickler, &after->dict->of.items, 2, OF_ITERATOR);
    if (!rc && after && after->state) {
        rc = save(pickler, after->state);
        rc = rc ? rc : put_op(pickler, 'b');
    }
    return rc;
}

/* One of the texts that all storages name; *MEMO is its number once it was written. */
static int save_word(struct pickler *pickler, const char *word, uint32_t *memo)
{
    if (*memo != NO_MEMO)
        return get_memo(pickler, *memo);
    const int rc = save_bytes_of_text(pickler, word, (uint32_t)strlen(word));
    *memo = pickler->n;
    return rc ? rc : put_memo(pickler);
}

static int save_key(struct pickler *pickler, uint32_t key)
{
    char text[16];

    while (pickler->keys.n <= key)
        if (!RFS_PUSH(&pickler->keys, NO_MEMO))
            return rfs_fail_memory(pickler->err);
    if (pickler->keys.data[key] != NO_MEMO)
        return get_memo(pickler, pickler->keys.data[key]);
    const int n = snprintf(text, sizeof text, "%u", key);
    const int rc = save_bytes_of_text(pickler, text, (uint32_t)n);
    pickler->keys.data[key] = pickler->n;
    return rc ? rc : put_memo(pickler);
}

/* ("storage", CLASS, KEY, "cpu", ELEMENTS), made anew each time, as torch's pickler does. */
static int save_storage(struct pickler *pickler, const struct rfs_node *node)
{
    struct rfs_node *const *id = node->of.items.data;
    uint32_t key;

    int rc = pickler->key(pickler->ctx, node, &key);
    if (!rc)
        rc = put_op(pickler, '(');
    if (!rc)
        rc = save_word(pickler, "storage", &pickler->storage);
    if (!rc)
        rc = save(pickler, id[1]);
    if (!rc)
        rc = save_key(pickler, key);
    if (!rc)
        rc = save_word(pickler, "cpu", &pickler->cpu);
    if (!rc)
        rc = save(pickler, id[4]);
    if (!rc)
        rc = put_op(pickler, 't');
    if (!rc)
        rc = put_memo(pickler);
    return rc ? rc : put_op(pickler, 'Q');
}

static int save_kind(struct pickler *pickler, const struct rfs_node *node)
{
    switch ((enum rfs_node_kind)node->kind) {
    case RFS_NODE_NONE:
        return put_op(pickler, 'N');
    case RFS_NODE_BOOL:
        return put_op(pickler, node->of.truth ? 0x88 : 0x89);
    case RFS_NODE_INT:
        return save_int(pickler, node->of.integer);
    case RFS_NODE_LONG:
        return save_long(pickler, node);
    case RFS_NODE_FLOAT:
        return save_float(pickler, node->of.bits);
    case RFS_NODE_TEXT:
        return save_text(pickler, node);
    case RFS_NODE_TUPLE:
        return save_tuple(pickler, node);
    case RFS_NODE_LIST:
    case RFS_NODE_DICT:
        return save_container(pickler, node, node->kind == RFS_NODE_DICT);
    case RFS_NODE_GLOBAL:
        return save_global(pickler, node);
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        return save_call(pickler, node);
    case RFS_NODE_STORAGE:
        return save_storage(pickler, node);
    }
    return -EINVAL;
}

static int save(struct pickler *pickler, const struct rfs_node *node)
{
    const bool kept = node->kind != RFS_NODE_NONE && node->kind != RFS_NODE_BOOL &&
                      node->kind != RFS_NODE_INT && node->kind != RFS_NODE_LONG &&
                      node->kind != RFS_NODE_FLOAT && node->kind != RFS_NODE_STORAGE &&
                      node->kind != RFS_NODE_GLOBAL;
    int rc = kept ? recall(pickler, node) : 0;

    if (rc)
        return rc < 0 ? rc : 0;
    if (pickler->depth >= RFS_PICKLE_DEPTH)
        return rfs_fail(pickler->err, -EINVAL, RFS_NOWHERE, NULL,
                        "a value is nested deeper than %d levels", RFS_PICKLE_DEPTH);
    pickler->depth++;
    rc = save_kind(pickler, node);
    pickler->depth--;
    return rc;
}

int rfs_pickle_write(const struct rfs_node *root, rfs_storage_key_fn *key, void *ctx,
                     struct rfs_bytes *out, struct rfs_error *err)
{
    struct pickler pickler = {
        .key = key, .ctx = ctx, .out = out, .err = err, .storage = NO_MEMO, .cpu = NO_MEMO};

    int rc = put_number(&pickler, 0x80, 2, 1);
    if (!rc)
        rc = save(&pickler, root);
    if (!rc)
        rc = put_op(&pickler, '.');
    free(pickler.table);
    free(pickler.keys.data);
    free(pickler.names.data);
    return rc;
}
