/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pickle of protocol 2 as a graph of nodes. Nothing in it is executed: a callable is a name from
 * a short list, a call is a node that keeps its name and arguments, and any other name, and any
 * call that pickling does not write, is refused (or stands for nothing: RFS_PICKLE_ANY). So loading
 * the graph, written again, executes no foreign code either.
 *
 * Nodes are shared where the pickle shares them, and a list may contain itself: code that walks the
 * graph must bound its depth (RFS_PICKLE_DEPTH) and, to visit each node once, mark nodes by number.
 *
 * Cost: 32 bytes a node, and nothing for None, booleans and integers up to 65,535; 8 to
 * 12 for each item of a container; and the pickle itself, which texts point into. While it is read,
 * 8 for each value on the stack or in the memo. Immutable once read.
 */
#pragma once

#include "base/arena.h"
#include "base/budget.h"
#include "base/error.h"

#define RFS_PICKLE_MOST ((size_t)256 << 20) /* bytes of a pickle that is read */
/*
 * Returns how many bytes of memory a pickle of N bytes may take besides those: one of torch.save
 * takes about 4 times its bytes, lists of numbers 6 times, lists of pairs 8 times. Opcodes that
 * take 40 times theirs are refused.
 */
static inline size_t rfs_pickle_memory(size_t n)
{
    const size_t more = (size_t)24 << 20;
    return 6 * n + (n < more / 12 ? 12 * n : more) + ((size_t)128 << 10);
}
#define RFS_PICKLE_NODES (UINT32_C(1) << 23)
#define RFS_PICKLE_DEPTH 64 /* no state of a training is nested as deep */

enum rfs_node_kind {
    RFS_NODE_NONE,
    RFS_NODE_BOOL,
    RFS_NODE_INT,   /* fits 64 bits */
    RFS_NODE_LONG,  /* does not: two's complement, little-endian, in text */
    RFS_NODE_FLOAT, /* the bits of a double */
    RFS_NODE_TEXT,  /* UTF-8, lone surrogates included */
    RFS_NODE_TUPLE,
    RFS_NODE_LIST,
    RFS_NODE_DICT, /* keys and values in turn */
    RFS_NODE_GLOBAL,
    RFS_NODE_CALL,    /* a callable and its arguments */
    RFS_NODE_NEW,     /* a class and the arguments of its __new__ */
    RFS_NODE_STORAGE, /* a persistent id: items are "storage", class, key, location, elements */
    RFS_NODE_OPAQUE,  /* an object that is not known; only with RFS_PICKLE_ANY */
};

struct rfs_node;

struct rfs_items {
    struct rfs_node **data;
    uint32_t n, cap;
};

/* The additions to a call: appended items, set items, a state. Any may be NULL. */
struct rfs_after {
    struct rfs_node *list;
    struct rfs_node *dict;
    struct rfs_node *state;
};

struct rfs_node {
    uint8_t kind; /* enum rfs_node_kind */
    uint8_t
        callable; /* enum rfs_callable of a GLOBAL; whether a TUPLE that was read has counts only */
    uint16_t origin; /* number of its file, of several; meaningless for constants */
    uint32_t number; /* from 0 on, in the order of the pickle; meaningless for constants */
    union {
        bool truth;
        int64_t integer;
        uint64_t bits;
        struct {
            const char *data; /* in the pickle; not terminated */
            uint32_t n;
        } text;
        struct rfs_items items; /* TUPLE, LIST, DICT, STORAGE */
        struct {
            const char *module; /* in the pickle, not terminated; the name follows after one byte */
            uint16_t module_bytes;
            uint16_t name_bytes;
            uint16_t allowed; /* position among the names that may be read; pickle.c */
        } global;
        struct {
            struct rfs_node *callee; /* a GLOBAL */
            struct rfs_node *args;   /* a TUPLE */
            struct rfs_after *after; /* NULL: nothing follows */
        } call;
    } of;
};

/* The names that a pickle may call, by their use. */
enum rfs_callable {
    RFS_CALL_ORDERED_DICT,
    RFS_CALL_SIZE,
    RFS_CALL_TENSOR,    /* _rebuild_tensor_v2 */
    RFS_CALL_TENSOR_V3, /* with a dtype that has no storage class */
    RFS_CALL_PARAMETER,
    RFS_CALL_WRAPPED,       /* _rebuild_from_type_v2, of a DTensor or a ShardedTensor */
    RFS_CALL_STORAGE_CLASS, /* not called: named by persistent ids */
    RFS_CALL_DTYPE,         /* not called: an object by its name */
    RFS_CALL_PLAIN,         /* makes a value that is carried along as it is */
    RFS_CALL_UNKNOWN,       /* none of the list; only with RFS_PICKLE_ANY */
};

/* The names that a pickle may have besides those of plain values and tensors. */
enum rfs_pickle_names {
    RFS_PICKLE_PLAIN,   /* no others */
    RFS_PICKLE_SHARDED, /* DTensors, ShardedTensors, and their parts */
    /*
     * All. Objects of unknown classes, and known ones that are made in another way, are
     * RFS_NODE_OPAQUE, and all that is said of them is left out. The graph is for reading what one
     * knows in it; it is not to be written again.
     */
    RFS_PICKLE_ANY,
};

struct rfs_pickle {
    struct rfs_arena arena;
    unsigned char *bytes; /* owned */
    size_t n_bytes;
    const struct rfs_node *root;
    uint32_t n_nodes;
};

/* The source of a pickle: for messages, and the origin of its nodes. */
struct rfs_pickle_from {
    const char *file;
    uint64_t offset; /* where it begins in the file */
    uint16_t origin;
    struct rfs_budget *budget; /* pays for the pickle if it is valid; or NULL */
    enum rfs_pickle_names names;
};

/*
 * Reads a pickle, and takes BYTES (from malloc) over in any case. 0, -ENOMEM, -EINVAL for an
 * invalid pickle, -ENOTSUP for a name or call that is not allowed, or another protocol, -EFBIG for
 * one that takes more memory than allowed; *err (may be NULL) is filled.
 */
int rfs_pickle_read(unsigned char *bytes, size_t n, const struct rfs_pickle_from *from,
                    struct rfs_pickle *out, struct rfs_error *err);
void rfs_pickle_free(struct rfs_pickle *pickle);

/* Adds N nodes to items of the arena. False when out of memory. */
bool rfs_pickle_add_items(struct rfs_arena *arena, struct rfs_items *items,
                          struct rfs_node *const *nodes, size_t n);
/* Says whether a node is a CALL of a name with that use. */
static inline bool rfs_pickle_is_call(const struct rfs_node *node, enum rfs_callable callable)
{
    return node->kind == RFS_NODE_CALL && node->of.call.callee->callable == callable;
}
/* Says whether two GLOBALs are one name. */
bool rfs_pickle_same_name(const struct rfs_node *a, const struct rfs_node *b);
/* Says whether a node is this TEXT. */
bool rfs_pickle_is_text(const struct rfs_node *node, const char *text);
/* Returns the last value of KEY in a dict or an OrderedDict; NULL: there is none. O(n). */
const struct rfs_node *rfs_pickle_get(const struct rfs_node *node, const char *key);
/* Returns the pairs of a dict or an OrderedDict, n twice their number; NULL of all else. */
const struct rfs_items *rfs_pickle_pairs(const struct rfs_node *node);
/* Returns the name of a GLOBAL within its module; not terminated. */
static inline const char *rfs_pickle_global_name(const struct rfs_node *node)
{
    return node->of.global.module + node->of.global.module_bytes + 1;
}
/* Says whether a GLOBAL has that name within its module. */
static inline bool rfs_pickle_is_named(const struct rfs_node *node, const char *name)
{
    return node->of.global.name_bytes == strlen(name) &&
           memcmp(rfs_pickle_global_name(node), name, strlen(name)) == 0;
}
