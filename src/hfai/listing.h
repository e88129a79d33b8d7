/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list in the making (rfs_hfai_list): the functions of list_value.c for list.c. Functions return
 * 0, or -errno with the error filled.
 */
#pragma once

#include "base/bytes.h"
#include "hfai/internal.h"

/* Levels that are visited: the pickle's; a call counts as several. */
#define HFAI_LIST_DEPTH (4 * RFS_PICKLE_DEPTH)

struct hfai_listing {
    const struct rfs_hfai *hfai;
    struct rfs_hfai_list *out;
    uint64_t work;
    struct rfs_bytes path; /* of the current node */
    struct rfs_bytes said; /* of values that are not complete, the outermost first; */
    size_t value;          /* of the innermost one, from here on */
    const struct rfs_node *above[HFAI_LIST_DEPTH]; /* the visited nodes, by depth */
    struct rfs_hfai_owner owner;                   /* of the tensors that are listed */
    const struct rfs_items *cut;                   /* its tensors are cut by themselves; or NULL */
    struct rfs_error *err;
};

/*
 * Goes a step down; the caller restores path.n. A lack of memory is reported where the path is
 * used.
 */
void rfs_hfai_step(struct hfai_listing *listing, const char *name, size_t n);
void rfs_hfai_step_to(struct hfai_listing *listing, int64_t number);
int rfs_hfai_step_by_key(struct hfai_listing *listing, const struct rfs_node *key, unsigned depth);
/* The path as a name that stays, of something that takes UNITS of the budget. */
int rfs_hfai_keep_path(struct hfai_listing *listing, uint64_t units, const char **name);
/* A value of a dict, with all that is in it. */
int rfs_hfai_list_pair(struct hfai_listing *listing, const struct rfs_node *key,
                       const struct rfs_node *value, unsigned depth);
int rfs_hfai_list_large(struct hfai_listing *listing, const struct hfai_state *state,
                        const struct hfai_large *large);
