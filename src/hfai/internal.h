/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files on hfai's parts only. */
#pragma once

#include "base/budget.h"
#include "base/intern.h"
#include "hfai/hfai.h"

#define RFS_HFAI_FORMAT "2.0.0"
#define RFS_HFAI_REMEDY "save it again, all ranks together, into an empty folder"

#define HFAI_NONE UINT32_MAX

/*
 * A value that one part holds whole: a parameter, a buffer, or an optimizer's state of a parameter.
 */
struct hfai_entry {
    const struct rfs_node *key;
    const struct rfs_node *value;
    uint32_t part; /* that it is from */
    /* of an optimizer: the first of the large tensors that go back into it, or HFAI_NONE */
    uint32_t first_large;
};

/*
 * A pickle can have a value again for two bytes. So all walks through the values of a part, when it
 * is opened, share a budget: so many units for each byte of its pickle. A unit is about as much
 * time as a byte takes to be copied.
 */
#define HFAI_WORK_TIMES 64
#define HFAI_WORK_MORE (UINT64_C(1) << 20)
#define HFAI_WORK_NODE 16 /* a node that is looked at */
#define HFAI_WORK_KEY 64  /* a key that is looked up, besides its bytes */
#define HFAI_WORK_TENSOR                                                                           \
    1024 /* a tensor of an optimizer's state, which each file that is shown looks at again */
#define HFAI_WORK_READ 2048 /* a number that is read from the file */

#define HFAI_GROWN 2 /* a list that grows takes so many times the memory of its items */

/* Ranges that follow each other: the bytes of one tensor. */
struct hfai_row {
    const struct rfs_range *ranges;
    const uint64_t *ends; /* [n] of each range in the tensor */
    size_t n;
};

/* A large tensor; each part holds a piece. */
struct hfai_large {
    const struct rfs_node *key;   /* a name, or a tuple (k1, k2) */
    const struct rfs_node *inner; /* of (k1, k2): k2 */
    uint32_t next;                /* the owner's next one, or HFAI_NONE */
    enum rfs_dtype dtype;
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
    uint64_t elements;
    size_t first; /* its ranges in the state's; one for each part */
};

/* A model, or the state of an optimizer, over all parts. */
struct hfai_state {
    struct rfs_intern *keys;            /* of entries, in a canonical form: id = position */
    struct rfs_intern *large_keys;      /* the same of large tensors */
    RFS_VEC(struct hfai_entry) entries; /* in the order in which load() would have them */
    RFS_VEC(struct hfai_large) large;
    RFS_VEC(struct rfs_range) ranges; /* part by part; once all are read, tensor by tensor */
    uint64_t *ends;                   /* [ranges.n] of each range in its tensor */
    const struct rfs_node *rest;      /* of an optimizer: part 0's dict, with "state" in it */
};

struct hfai_part {
    struct rfs_torch torch;
    uint32_t file; /* in the catalogue's files */
    bool open;
    uint64_t work; /* the rest of its budget */
    /* [nodes] while it is read: the node of part 0 that a container was found to be the same as */
    const struct rfs_node **same;
};

struct rfs_hfai {
    struct rfs_catalog *catalog;
    uint32_t n_parts;
    struct hfai_part *parts;
    size_t n_models, n_optimizers;
    struct hfai_state *models;
    struct hfai_state *optimizers;
    struct rfs_torch_shown large; /* of all parts: how many bytes their large tensors have */
    struct rfs_budget memory;
};

const char *rfs_hfai_path(const struct rfs_hfai *hfai, uint32_t part);

/* A part that is being read. */
struct hfai_reading {
    struct rfs_hfai *hfai;
    uint32_t part;
    const char *path;
    struct rfs_error *err;
};
/* Takes memory for the values of the part: 0, or -EFBIG with the error filled. */
int rfs_hfai_pay(const struct hfai_reading *reading, uint64_t bytes);
/* -EINVAL, about the part. */
int rfs_hfai_fail(const struct hfai_reading *reading, const char *what);
/* The same, about the value of that key. */
int rfs_hfai_fail_key(const struct hfai_reading *reading, const struct rfs_node *key,
                      const char *what);
/* As rfs_hfai_key, within the budget and with the error filled. */
int rfs_hfai_canonical(const struct hfai_reading *reading, const struct rfs_node *key, char **out,
                       size_t *n);
/*
 * Takes a part's pieces of a state's large tensors. 0 or -errno with *err filled, as of the next.
 */
int rfs_hfai_read_large(const struct hfai_reading *reading, struct hfai_state *state,
                        const struct rfs_items *pairs);
/* Proves those of N states once all parts are read, and finds out where they belong. */
int rfs_hfai_check_large(const struct hfai_reading *reading, struct hfai_state *states, size_t n,
                         bool optimizer);

/*
 * A key, a text or an integer or a pair of such, as bytes by which equal keys are equal; *OUT is
 * malloc'ed. 0, -EINVAL for another one, or -ENOMEM.
 */
int rfs_hfai_key(const struct rfs_node *key, char **out, size_t *n);
/* Whether a key of a part is one that save() itself writes. */
bool rfs_hfai_is_own(const struct rfs_node *key);
/* The units of the budget for that; as bytes, no less than the memory of an interned key. */
uint64_t rfs_hfai_key_bytes(const struct rfs_node *key);
/* A key for messages. */
void rfs_hfai_show_key(const struct rfs_node *key, char *out, size_t cap);
/* Takes UNITS of the budget of the part that is being read: 0, or -EFBIG with the error filled. */
int rfs_hfai_spend(const struct hfai_reading *reading, uint64_t units);
/* The same of a budget that is the caller's; PATH is for messages. */
int rfs_hfai_take(uint64_t *work, uint64_t units, const char *path, struct rfs_error *err);
/*
 * Begins an item for a whole tensor of a part, or a large one, and sets *type. False when out of
 * memory.
 */
bool rfs_hfai_tensors_whole(const struct rfs_hfai *hfai, const struct rfs_torch_tensor *tensor,
                            uint16_t origin, struct rfs_storages *storages, struct rfs_type *type);
bool rfs_hfai_tensors_large(const struct rfs_hfai *hfai, const struct hfai_state *state,
                            const struct hfai_large *large, struct rfs_storages *storages,
                            struct rfs_type *type);
/* Counts the bytes of an item that is shown as a tensor: 0, or -EFBIG with *err filled. */
int rfs_hfai_tensors_show(const struct rfs_hfai *hfai, struct rfs_storages *storages,
                          uint64_t bytes, struct rfs_error *err);
/*
 * Whether two graphs are equal (but for the bytes of storages): A of the part that is being read, B
 * of part 0. 1, 0, or -errno with the error filled.
 */
int rfs_hfai_same(const struct hfai_reading *reading, const struct rfs_node *a,
                  const struct rfs_node *b);
/* The steps of a part's optimizers; steps.c. 0 or -errno with *err filled. */
int rfs_hfai_check_steps(struct rfs_hfai *hfai, struct rfs_error *err);

/* Weighs values; zero-initialise but for hfai, end by rfs_hfai_weigher_end. */
struct hfai_weigher {
    const struct rfs_hfai *hfai;
    uint64_t **known; /* [parts][nodes] weight + 1 of containers; owned */
    bool no_memory;
};
/*
 * Bytes by which a value is weighed when it is divided, as split_dict does; 0 when out of memory.
 * All of them together cost O(nodes), however often they share some.
 */
uint64_t rfs_hfai_weight(struct hfai_weigher *weigher, const struct rfs_node *value);
void rfs_hfai_weigher_end(struct hfai_weigher *weigher);

static inline uint64_t rfs_hfai_large_bytes(const struct hfai_large *large)
{
    return large->elements * rfs_dtype_bytes(large->dtype);
}
static inline struct hfai_row rfs_hfai_row(const struct rfs_hfai *hfai,
                                           const struct hfai_state *state,
                                           const struct hfai_large *large)
{
    return (struct hfai_row){&state->ranges.data[large->first], &state->ends[large->first],
                             hfai->n_parts};
}
/*
 * The tensor of a value if it is to be cut: larger than LARGE bytes, and its bytes are one range.
 */
bool rfs_hfai_is_cut(const struct rfs_hfai *hfai, const struct rfs_node *value, uint64_t large,
                     struct rfs_torch_tensor *tensor);

/* A value; each part holds a piece. */
struct hfai_cut {
    uint32_t entry; /* the value itself, or */
    uint32_t pair;  /* unless HFAI_NONE, that one of the entry's dict */
    uint32_t large; /* or, unless HFAI_NONE, a large tensor, and no entry at all */
};

/* The division of a state into parts. */
struct hfai_share {
    RFS_VEC(struct hfai_cut) cuts; /* all parts, a piece each */
    /*
     * By part, in its order: an entry, or (of a model) entries.n + a large tensor that is joined.
     */
    uint32_t *items; /* owned */
    size_t *first;   /* [n + 1] owned */
};

struct rfs_hfai_division {
    const struct rfs_hfai *hfai;
    uint32_t n;
    uint64_t large; /* bytes; more than that is cut */
    struct hfai_share *models;
    struct hfai_share *optimizers;
};
