/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint that a command opened to compare or measure it: the list of its whole tensors, in
 * any sharding and format. Opening one reads the headers that a view of one rank needs.
 *
 * Memory: 36 bytes a tensor beside the view's. Threads: all functions but open and close.
 */
#pragma once

#include "base/error.h"
#include "base/text.h"
#include "formats/hfai/hfai.h"
#include "plan/planner.h"
#include "reshard.h"
#include "view/contents.h"

struct rfs_view;
struct rfs_view_hfai_list;

struct rfs_whole {
    reshard_view *opened;        /* owned, but by a cut */
    struct rfs_view_contents of; /* what the list's view is made of; zero without */
    /*
     * The tensors that are taken, in the order of the files; the view is the only one in OPENED, or
     * NULL before it is there, the path is as it was given, and the rank that of the destination
     * whose slices they are. The planner (with parts, theirs) and the sorted names are owned.
     */
    struct rfs_tensors list;
    struct rfs_params *taken; /* owned; the list's */
    bool is_cut;              /* it has slices of a destination, and its view is another's */
    struct rfs_view_hfai_list *parts; /* owned; hfai's parts; or NULL */
    size_t n_models;                  /* tensors of the parts, the first ones, that are models' */
    struct rfs_lacking *lacking;      /* owned; what damaged ranks lack, if there may be any */
    uint32_t first, ranks, stages;    /* ranks of its strategy, from the first on, and stages */
    bool of_rank;                     /* the list's rank was asked for */
};

/* The names that a caller wants: TAKE says so of each name that there is. */
struct rfs_whole_names {
    bool (*take)(void *ctx, const char *name);
    void *ctx;
};

/*
 * Lists the tensors of OPENED, a view of PATH, and takes the view over in any case. Tensors of
 * hfai's parts are those of all that dist_ckpt.load returns (hfai/hfai.h). Tensors whose names are
 * not taken are dropped; NAMES may be NULL. PATH is borrowed.
 *
 * If the view has a destination, *CUT (else without a view) is this checkpoint by this view, but
 * its tensors are those of destination rank 0, as that has them; other ranks of its planner have
 * lists of their own (rfs_tensors_of_rank). CUT NULL: a destination is refused.
 *
 * If the view is late (struct rfs_view_how), ranks may be missing or damaged. A tensor that cannot
 * be read without them is left out, and rfs_whole_lost names it; plans are made one at a time.
 *
 * Returns 0, or -errno with *err filled; both are to be closed in any case, CUT first.
 */
int rfs_whole_open(const char *path, reshard_view *opened, const struct rfs_whole_names *names,
                   struct rfs_whole *whole, struct rfs_whole *cut, struct rfs_error *err);
void rfs_whole_close(struct rfs_whole *whole);

/*
 * Lists the slices of destination rank RANK of a view, as it has them, or whole tensors for -1,
 * whatever the destination. With hfai's parts, and without a destination, there is rank 0 alone,
 * which has all whole. Takes the view over. Returns 0, or -errno with *err filled; to be closed in
 * any case.
 */
int rfs_whole_open_rank(const char *path, reshard_view *opened, int64_t rank,
                        struct rfs_whole *whole, struct rfs_error *err);

/*
 * Prepares two checkpoints to be compared; B without a view is none. If one is hfai's parts and the
 * other is not, drops all tensors of the parts but those of models, and returns the path of the
 * parts; else NULL.
 */
const char *rfs_whole_match(struct rfs_whole *a, struct rfs_whole *b);

/*
 * Sets *OUT to the tensor that is shown, or else stored, by that name. 0, or -ENOENT with *err
 * filled, which names another.
 */
int rfs_whole_choose(const struct rfs_whole *whole, const char *name, struct rfs_tensor *out,
                     struct rfs_error *err);

/* Returns whether no strategy of several ranks knows tensor I, so that it is the first rank's. */
bool rfs_whole_is_own(const struct rfs_whole *whole, size_t i);

/*
 * Returns whether NAME is a tensor that lost ranks had alone, as far as plans that were made tell.
 */
bool rfs_whole_lacks(const struct rfs_whole *whole, const char *name);

#define RFS_SHAPE_TEXT RFS_DIMS_TEXT(RFS_MAX_DIMS) /* bytes of a shape as text */
/* Returns "Float32" and the like, or "map". */
const char *rfs_whole_dtype(const struct rfs_type *type);

/*
 * Returns the next tensor from *AT on, which begins as 0, that lost ranks had alone, as far as the
 * plans that were made tell; sets *rank to one of those ranks. NULL: no more.
 */
const char *rfs_whole_lost(const struct rfs_whole *whole, uint32_t *at, uint32_t *rank);
