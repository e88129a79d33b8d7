/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that read pickles only. */
#pragma once

#include "base/vec.h"
#include "formats/torch/pickle.h"

struct rfs_unpickler {
    struct rfs_pickle *pickle;
    const char *file;
    struct rfs_error *err;             /* or NULL */
    const unsigned char *p, *end, *op; /* op: the opcode at hand */
    RFS_VEC(struct rfs_node *) stack;
    RFS_VEC(uint32_t) marks; /* heights of the stack */
    RFS_VEC(struct rfs_node *) memo;
    uint32_t pushes;
    size_t most; /* bytes of memory */
    struct rfs_budget *budget;
    uint64_t offset; /* of the pickle in the file */
    uint16_t origin;
    bool pieces;
};

/* ---- nodes (pickle_node.c) ---- */

/* A node of the pickle's own; NULL when there are too many, or out of memory. */
struct rfs_node *rfs_unpickle_node(struct rfs_unpickler *machine, enum rfs_node_kind kind);
/* The node that stands for None, a boolean or a number up to 65,535 in all pickles. */
struct rfs_node *rfs_node_constant(enum rfs_node_kind kind, uint16_t value);

/* ---- the stack (pickle.c): 0 or -errno with the error filled ---- */

/* The opcode at hand, for messages. */
struct rfs_where rfs_unpickle_where(const struct rfs_unpickler *machine);
int rfs_unpickle_fail(const struct rfs_unpickler *machine, const char *what);
/* The error when rfs_unpickle_node returned NULL. */
int rfs_unpickle_no_node(const struct rfs_unpickler *machine);
/* NODE may be NULL, as rfs_unpickle_node returns it: then the error is filled. */
int rfs_unpickle_push(struct rfs_unpickler *machine, struct rfs_node *node);
/* How many nodes lie above the last mark (or the bottom): only those may be taken. */
size_t rfs_unpickle_above_mark(const struct rfs_unpickler *machine);
/* The last of them; NULL when there is none. */
struct rfs_node *rfs_unpickle_pop(struct rfs_unpickler *machine);
struct rfs_node *rfs_unpickle_top(const struct rfs_unpickler *machine);
/* Takes the last mark off: the height that it marks, or -EINVAL with the error filled. */
int64_t rfs_unpickle_pop_mark(struct rfs_unpickler *machine);

/* ---- nodes made from those on the stack (pickle_make.c): 0, or -errno with the error filled */

/* HEIGHT: of the stack, from which on the nodes are taken, or -errno, which is handed on. */
int rfs_unpickle_fold(struct rfs_unpickler *machine, enum rfs_node_kind kind, int64_t height);
int rfs_unpickle_tuple(struct rfs_unpickler *machine, size_t n);
/* Adds the nodes from HEIGHT on to the list, dict or call below them. */
int rfs_unpickle_add(struct rfs_unpickler *machine, int64_t height, bool dict);
/* The same for the last N. */
int rfs_unpickle_add_last(struct rfs_unpickler *machine, size_t n, bool dict);
int rfs_unpickle_global(struct rfs_unpickler *machine);
int rfs_unpickle_call(struct rfs_unpickler *machine, enum rfs_node_kind kind);
int rfs_unpickle_build(struct rfs_unpickler *machine);
int rfs_unpickle_storage(struct rfs_unpickler *machine);

/* ---- the allowed names (pickle_names.c) ---- */

/*
 * The place of "MODULE\nNAME", N bytes, among the names that may stand in a pickle; -1 when it is
 * none. PIECES: as in struct rfs_pickle_from.
 */
int rfs_pickle_find_name(const unsigned char *both, size_t n, bool pieces);
enum rfs_callable rfs_pickle_callable(uint16_t place);
/* Whether a CALL (or a NEW) is one that Python makes when it pickles an object of that name. */
bool rfs_pickle_may_call(const struct rfs_node *call);
/* Whether items may be appended to its object or, DICT, set on it. */
bool rfs_pickle_may_add(const struct rfs_node *call, bool dict);
/* Whether it may be given that state. */
bool rfs_pickle_may_build(const struct rfs_node *call, const struct rfs_node *state);
