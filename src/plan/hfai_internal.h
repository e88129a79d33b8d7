/* SPDX-License-Identifier: Apache-2.0 */
/* What the files on hfai's parts share; nobody else includes it. */
#ifndef RFS_PLAN_HFAI_INTERNAL_H
#define RFS_PLAN_HFAI_INTERNAL_H

#include "base/intern.h"
#include "plan/hfai.h"

#define RFS_HFAI_REMEDY "save it again, all ranks together, into an empty folder"

/* A value that one part holds whole: a parameter, a buffer, or an optimizer's state of a parameter. */
struct hfai_entry {
    const struct rfs_node *key;
    const struct rfs_node *value;
};

/* A large tensor, of which each part holds a piece. */
struct hfai_large {
    const struct rfs_node *key;   /* a name, or a tuple (k1, k2) */
    uint32_t owner;               /* of (k1, k2): the entry of k1; else unused */
    const struct rfs_node *inner; /* of (k1, k2): k2 */
    enum rfs_dtype dtype;
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
    uint64_t elements;
    size_t first; /* its ranges in the state's; one for each part */
};

/* A model, or the state of an optimizer, over all parts. */
struct hfai_state {
    struct rfs_intern *keys;            /* of entries, in a canonical form: id = position */
    RFS_VEC(struct hfai_entry) entries; /* in the order in which load() would have them */
    RFS_VEC(struct hfai_large) large;
    RFS_VEC(struct rfs_range) ranges;
    const struct rfs_node *rest; /* of an optimizer: part 0's dict, with "state" in it */
};

struct hfai_part {
    struct rfs_torch torch;
    uint32_t file; /* in the catalogue's files */
    bool open;
};

struct rfs_hfai {
    struct rfs_catalog *catalog;
    uint32_t n_parts;
    struct hfai_part *parts;
    size_t n_models, n_optimizers;
    struct hfai_state *models;
    struct hfai_state *optimizers;
};

const char *rfs_hfai_path(const struct rfs_hfai *hfai, uint32_t part);
/* A key as bytes by which equal keys are equal, malloc'ed; NULL for one that is no text or integer. */
char *rfs_hfai_key(const struct rfs_node *key, size_t *n);
/* A key for messages. */
void rfs_hfai_show_key(const struct rfs_node *key, char *out, size_t cap);
/* Whether two graphs say the same (bytes of storages aside). */
bool rfs_hfai_same(const struct rfs_node *a, const struct rfs_node *b);
/* The steps of a part's optimizers; hfai_steps.c. 0 or -errno with *err filled. */
int rfs_hfai_check_steps(const struct rfs_hfai *hfai, struct rfs_error *err);
/* Bytes by which a value is weighed when it is divided, as split_dict does. */
uint64_t rfs_hfai_weight(const struct rfs_hfai *hfai, const struct rfs_node *value);

#endif
