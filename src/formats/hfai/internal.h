/* SPDX-License-Identifier: Apache-2.0 */
/* The state that hfai's parts hold, in memory. */
#pragma once

#include "base/budget.h"
#include "base/intern.h"
#include "formats/hfai/hfai.h"

#define RFS_HFAI_FORMAT "2.0.0"
#define RFS_HFAI_REMEDY "save it again, all ranks together, into an empty folder"

#define HFAI_NONE UINT32_MAX

/*
 * A value that one part holds whole: a parameter, a buffer, or an optimizer's state of a parameter.
 */
struct rfs_hfai_entry {
    const struct rfs_node *key;
    const struct rfs_node *value;
    uint32_t part; /* that it is from */
    /* first of the large tensors that go back into an optimizer's entry, or HFAI_NONE */
    uint32_t first_large;
};

/* A large tensor; each part holds a piece. */
struct rfs_hfai_large {
    const struct rfs_node *key;   /* a name, or a tuple (k1, k2) */
    const struct rfs_node *inner; /* k2 of (k1, k2) */
    uint32_t next;                /* the owner's next one, or HFAI_NONE */
    enum rfs_dtype dtype;
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
    uint64_t elements;
    size_t first; /* its ranges in the state's; one for each part */
};

/* A model, or the state of an optimizer, over all parts. */
struct rfs_hfai_state {
    struct rfs_intern *keys;                /* of entries, in a canonical form: id = position */
    struct rfs_intern *large_keys;          /* of large tensors, in that form */
    RFS_VEC(struct rfs_hfai_entry) entries; /* in the order in which load() would have them */
    RFS_VEC(struct rfs_hfai_large) large;
    RFS_VEC(struct rfs_range) ranges; /* part by part; once all are read, tensor by tensor */
    uint64_t *ends;                   /* [ranges.n] bytes: where each range ends in its tensor */
    const struct rfs_node *rest;      /* of an optimizer: part 0's dict, with "state" in it */
};

struct rfs_hfai_part {
    struct rfs_torch torch;
    uint32_t file; /* number in the source's files */
    bool open;
    uint64_t work; /* the rest of its budget */
    /* [nodes] while it is read: the node of part 0 that a container was found to be equal to */
    const struct rfs_node **same;
};

struct rfs_hfai {
    const char *folder;
    struct rfs_files *files;
    uint32_t n_parts;
    struct rfs_hfai_part *parts;
    size_t n_models, n_optimizers;
    struct rfs_hfai_state *models;
    struct rfs_hfai_state *optimizers;
    struct rfs_torch_shown large; /* bytes of the large tensors of all parts */
    struct rfs_budget memory;
};

/* Returns the path of a part's file. */
static inline const char *rfs_hfai_path(const struct rfs_hfai *hfai, uint32_t part)
{
    return rfs_files_path(hfai->files, hfai->parts[part].file);
}
/* Says whether a key of a part is one that save() itself writes. */
bool rfs_hfai_is_own(const struct rfs_node *key);

/* Says whether a division cuts a tensor over its parts. */
bool rfs_hfai_is_cut(const struct rfs_hfai_division *division,
                     const struct rfs_hfai_listed *tensor);

/*
 * A pickle can have a value again for two bytes. So all walks through the values of a part, when it
 * is opened, share a budget: so many units for each byte of its pickle. A unit is about as much
 * time as a byte takes to be copied.
 */
#define HFAI_WORK_TIMES 64
#define HFAI_WORK_MORE (UINT64_C(1) << 20)
#define HFAI_WORK_NODE 16 /* a node that is looked at */
#define HFAI_WORK_TENSOR                                                                           \
    1024 /* a tensor of an optimizer's state, which each file that is shown looks at again */

/* Takes UNITS of a budget: 0, or -EFBIG with *err filled. PATH is for messages. */
int rfs_hfai_take(uint64_t *work, uint64_t units, const char *path, struct rfs_error *err);
/*
 * Returns the units for looking a key up; as bytes, they are no less than the memory of an interned
 * key.
 */
uint64_t rfs_hfai_key_bytes(const struct rfs_node *key);
