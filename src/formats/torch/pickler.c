/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CPython's Modules/_pickle.c writes in protocol 2: texts, names, tuples, containers and
 * objects go to the memo once written, lists and dicts before they are filled; items are added in
 * batches of 1,000; a tuple that was written while its own items were is taken from the memo
 * instead.
 */
#include "formats/torch/pickler.h"

#include "formats/image.h"
#include "formats/torch/document.h"

enum { BATCH = 1000 };
#define NO_MEMO UINT32_MAX

struct seen {
    const struct rfs_node *node; /* NULL: a free cell */
    uint32_t memo;
};

struct pickler {
    rfs_pickler_key_fn *key;
    void *ctx;
    struct rfs_bytes *out;
    int rc;                     /* first failure */
    bool failed_by_key;         /* KEY failed, and filled the error */
    struct seen *table;         /* nodes of files; open addressing; at most half full */
    size_t cap;                 /* a power of two, or 0 */
    size_t used;                /* cells */
    uint32_t n;                 /* next memo number */
    uint32_t storage;           /* memo number of the text "storage", or NO_MEMO */
    uint32_t cpu;               /* memo number of the location, or NO_MEMO */
    RFS_VEC(uint32_t) keys;     /* memo number of each storage's key, or NO_MEMO */
    RFS_VEC(struct seen) names; /* globals: those of several files are the same objects */
    unsigned depth;
};

/* Notes the first failure; nothing is written after it. */
static void fail(struct pickler *pickler, int rc)
{
    if (pickler->rc == 0)
        pickler->rc = rc;
}

static void put(struct pickler *pickler, const void *bytes, size_t n)
{
    if (!rfs_bytes_put(pickler->out, bytes, n))
        fail(pickler, -ENOMEM);
}

static void put_op(struct pickler *pickler, unsigned char op)
{
    put(pickler, &op, 1);
}

/* Puts an opcode and a little-endian number of BYTES bytes. */
static void put_number(struct pickler *pickler, unsigned char op, uint64_t number, unsigned bytes)
{
    put_op(pickler, op);
    if (!rfs_image_put_little(pickler->out, number, bytes))
        fail(pickler, -ENOMEM);
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

/* Memoizes the top of the stack under the next number, which the caller remembers. */
static void put_memo(struct pickler *pickler)
{
    const uint32_t memo = pickler->n++;
    put_number(pickler, memo < 256 ? 'q' : 'r', memo, memo < 256 ? 1 : 4);
}

static void get_memo(struct pickler *pickler, uint32_t memo)
{
    put_number(pickler, memo < 256 ? 'h' : 'j', memo, memo < 256 ? 1 : 4);
}

/*
 * Nodes of a document are its own, and their numbers are free for 1 + that of the memo. Those of
 * files may be in other documents, too.
 */
static bool has_number(const struct rfs_node *node)
{
    return node->origin == RFS_ORIGIN_MADE;
}

static void memoize(struct pickler *pickler, const struct rfs_node *node)
{
    if (has_number(node)) {
        ((struct rfs_node *)(uintptr_t)node)->number = pickler->n + 1;
    } else if (2 * (pickler->used + 1) > pickler->cap && !grow(pickler)) {
        fail(pickler, -ENOMEM);
        return;
    } else {
        *cell_of(pickler, node) = (struct seen){node, pickler->n};
        pickler->used++;
    }
    put_memo(pickler);
}

/* Returns the memo number of a node, or NO_MEMO when it was not written before. */
static uint32_t memo_of(const struct pickler *pickler, const struct rfs_node *node)
{
    if (has_number(node))
        return node->number - 1;
    const struct seen *cell = pickler->cap ? cell_of(pickler, node) : NULL;
    return cell && cell->node ? cell->memo : NO_MEMO;
}

/* Takes a node from the memo; returns false when it was not written before. */
static bool recall(struct pickler *pickler, const struct rfs_node *node)
{
    const uint32_t memo = memo_of(pickler, node);

    if (memo != NO_MEMO)
        get_memo(pickler, memo);
    return memo != NO_MEMO;
}

static void save(struct pickler *pickler, const struct rfs_node *node);

static void save_int(struct pickler *pickler, int64_t value)
{
    if (value >= 0 && value <= 0xff) {
        put_number(pickler, 'K', (uint64_t)value, 1);
    } else if (value >= 0 && value <= 0xffff) {
        put_number(pickler, 'M', (uint64_t)value, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put_number(pickler, 'J', (uint64_t)value, 4);
    } else { /* the fewest bytes that have room for the sign */
        const uint64_t magnitude = value < 0 ? ~(uint64_t)value : (uint64_t)value;
        unsigned n = 1;
        while (n < 8 && magnitude >> (8 * n - 1) != 0)
            n++;
        put_op(pickler, 0x8a);
        put_number(pickler, (unsigned char)n, (uint64_t)value, n);
    }
}

static void save_long(struct pickler *pickler, const struct rfs_node *node)
{
    const bool is_short = node->of.text.n < 256;

    put_number(pickler, is_short ? 0x8a : 0x8b, node->of.text.n, is_short ? 1 : 4);
    put(pickler, node->of.text.data, node->of.text.n);
}

static void save_float(struct pickler *pickler, uint64_t bits)
{
    unsigned char bytes[9] = {'G'};

    for (unsigned i = 0; i < 8; i++)
        bytes[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
    put(pickler, bytes, sizeof bytes);
}

static void put_text(struct pickler *pickler, const char *text, uint32_t n)
{
    put_number(pickler, 'X', n, 4);
    put(pickler, text, n);
}

static void save_global(struct pickler *pickler, const struct rfs_node *node)
{
    for (size_t i = 0; i < pickler->names.n; i++)
        if (rfs_pickle_same_name(pickler->names.data[i].node, node)) {
            get_memo(pickler, pickler->names.data[i].memo);
            return;
        }
    if (!RFS_PUSH(&pickler->names, (struct seen){node, pickler->n}))
        fail(pickler, -ENOMEM);
    put_op(pickler, 'c');
    put(pickler, node->of.global.module, node->of.global.module_bytes);
    put_op(pickler, '\n');
    put(pickler, rfs_pickle_global_name(node), node->of.global.name_bytes);
    put_op(pickler, '\n');
    put_memo(pickler);
}

/* Saves a tuple. Items are put on a mark if there are more than three. */
static void save_tuple(struct pickler *pickler, const struct rfs_node *node)
{
    const uint32_t n = node->of.items.n;
    const bool marked = n > 3;

    if (marked)
        put_op(pickler, '(');
    for (uint32_t i = 0; i < n; i++)
        save(pickler, node->of.items.data[i]);
    if (n == 0) {
        put_op(pickler, ')');
    } else if (memo_of(pickler, node) == NO_MEMO) {
        put_op(pickler, marked ? 't' : (unsigned char)(0x84 + n));
        memoize(pickler, node);
    } else { /* one of its items contains it */
        if (marked)
            put_op(pickler, '1');
        for (uint32_t i = 0; !marked && i < n; i++)
            put_op(pickler, '0');
        recall(pickler, node);
    }
}

/* Saves items from FIRST on: as one batch if MARKED, else as the single one that they are. */
static void save_batch(struct pickler *pickler, const struct rfs_items *items, uint32_t width,
                       uint32_t first, uint32_t n, bool marked)
{
    if (marked)
        put_op(pickler, '(');
    for (uint32_t k = first * width; k < (first + n) * width; k++)
        save(pickler, items->data[k]);
    put_op(pickler, width == 2 ? (marked ? 'u' : 's') : (marked ? 'e' : 'a'));
}

/*
 * Adds the items to the container on the stack, WIDTH of them (1, or a key and a value) as one.
 * CPython does it in three ways: of a list, of a dict (an empty batch follows a full one at its
 * end), and of what an iterator gives after a call (the last one is single if a full batch ended
 * before it).
 */
enum way { OF_LIST, OF_DICT, OF_ITERATOR };

static void save_items(struct pickler *pickler, const struct rfs_items *items, uint32_t width,
                       enum way way)
{
    const uint32_t n = items->n / width;

    if (n == 1) {
        save_batch(pickler, items, width, 0, 1, false);
        return;
    }
    for (uint32_t at = 0; at < n && pickler->rc == 0; at += BATCH) {
        const uint32_t batch = n - at < BATCH ? n - at : BATCH;
        save_batch(pickler, items, width, at, batch, way != OF_ITERATOR || batch > 1);
    }
    if (way == OF_DICT && n > 0 && n % BATCH == 0)
        save_batch(pickler, items, width, n, 0, true);
}

static void save_container(struct pickler *pickler, const struct rfs_node *node, bool dict)
{
    put_op(pickler, dict ? '}' : ']');
    memoize(pickler, node);
    save_items(pickler, &node->of.items, dict ? 2 : 1, dict ? OF_DICT : OF_LIST);
}

static void save_call(struct pickler *pickler, const struct rfs_node *node)
{
    const struct rfs_after *after = node->of.call.after;

    save(pickler, node->of.call.callee);
    save(pickler, node->of.call.args);
    put_op(pickler, node->kind == RFS_NODE_NEW ? 0x81 : 'R');
    memoize(pickler, node);
    if (after && after->list)
        save_items(pickler, &after->list->of.items, 1, OF_ITERATOR);
    if (after && after->dict)
        save_items(pickler, &after->dict->of.items, 2, OF_ITERATOR);
    if (after && after->state) {
        save(pickler, after->state);
        put_op(pickler, 'b');
    }
}

/* Saves a text that many storages name; *MEMO is its number once it was written. */
static void save_word(struct pickler *pickler, const char *word, uint32_t *memo)
{
    if (*memo != NO_MEMO) {
        get_memo(pickler, *memo);
        return;
    }
    put_text(pickler, word, (uint32_t)strlen(word));
    *memo = pickler->n;
    put_memo(pickler);
}

static void save_key(struct pickler *pickler, uint32_t key)
{
    char text[16];

    uint32_t *memo = RFS_VEC_AT(&pickler->keys, key, NO_MEMO);
    if (!memo) {
        fail(pickler, -ENOMEM);
        return;
    }
    snprintf(text, sizeof text, "%u", key);
    save_word(pickler, text, memo);
}

/*
 * Saves ("storage", CLASS, KEY, "cpu", ELEMENTS), made anew each time, as torch's pickler does.
 */
static void save_storage(struct pickler *pickler, const struct rfs_node *node)
{
    struct rfs_node *const *id = node->of.items.data;
    uint32_t key;

    const int rc = pickler->key(pickler->ctx, node, &key);
    if (rc) {
        pickler->failed_by_key = pickler->rc == 0; /* the error is KEY's */
        fail(pickler, rc);
        return;
    }
    put_op(pickler, '(');
    save_word(pickler, "storage", &pickler->storage);
    save(pickler, id[1]);
    save_key(pickler, key);
    save_word(pickler, "cpu", &pickler->cpu);
    save(pickler, id[4]);
    put_op(pickler, 't');
    put_memo(pickler);
    put_op(pickler, 'Q');
}

static void save_kind(struct pickler *pickler, const struct rfs_node *node)
{
    switch ((enum rfs_node_kind)node->kind) {
    case RFS_NODE_NONE:
        put_op(pickler, 'N');
        break;
    case RFS_NODE_BOOL:
        put_op(pickler, node->of.truth ? 0x88 : 0x89);
        break;
    case RFS_NODE_INT:
        save_int(pickler, node->of.integer);
        break;
    case RFS_NODE_LONG:
        save_long(pickler, node);
        break;
    case RFS_NODE_FLOAT:
        save_float(pickler, node->of.bits);
        break;
    case RFS_NODE_TEXT:
        put_text(pickler, node->of.text.data, node->of.text.n);
        memoize(pickler, node);
        break;
    case RFS_NODE_TUPLE:
        save_tuple(pickler, node);
        break;
    case RFS_NODE_LIST:
    case RFS_NODE_DICT:
        save_container(pickler, node, node->kind == RFS_NODE_DICT);
        break;
    case RFS_NODE_GLOBAL:
        save_global(pickler, node);
        break;
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        save_call(pickler, node);
        break;
    case RFS_NODE_STORAGE:
        save_storage(pickler, node);
        break;
    case RFS_NODE_OPAQUE:
        break; /* never written */
    }
}

static void save(struct pickler *pickler, const struct rfs_node *node)
{
    const bool memoized = node->kind != RFS_NODE_NONE && node->kind != RFS_NODE_BOOL &&
                          node->kind != RFS_NODE_INT && node->kind != RFS_NODE_LONG &&
                          node->kind != RFS_NODE_FLOAT && node->kind != RFS_NODE_STORAGE &&
                          node->kind != RFS_NODE_GLOBAL;

    if (pickler->rc || (memoized && recall(pickler, node)))
        return;
    if (pickler->depth >= RFS_PICKLE_DEPTH) {
        fail(pickler, -EINVAL);
        return;
    }
    pickler->depth++;
    save_kind(pickler, node);
    pickler->depth--;
}

int rfs_pickler_write(const struct rfs_node *root, rfs_pickler_key_fn *key, void *ctx,
                      struct rfs_bytes *out, struct rfs_error *err)
{
    struct pickler pickler = {
        .key = key, .ctx = ctx, .out = out, .storage = NO_MEMO, .cpu = NO_MEMO};

    put_number(&pickler, 0x80, 2, 1);
    save(&pickler, root);
    put_op(&pickler, '.');
    free(pickler.table);
    free(pickler.keys.data);
    free(pickler.names.data);
    if (pickler.rc == 0 || pickler.failed_by_key)
        return pickler.rc;
    return pickler.rc == -ENOMEM
               ? rfs_fail_memory(err)
               : rfs_fail(err, pickler.rc, RFS_NOWHERE, NULL,
                          "a value is nested deeper than %d levels", RFS_PICKLE_DEPTH);
}
