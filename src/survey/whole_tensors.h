/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint as its whole tensors, however it is sharded and in whatever format: what the
 * commands read that compare and measure. Opening one reads the headers that a view of one rank
 * needs.
 *
 * Memory: 48 bytes a tensor beside the view's. Threads: all functions but open and close.
 */
#pragma once

#include "base/error.h"
#include "base/text.h"
#include "formats/hfai/hfai.h"
#include "plan/planner.h"
#include "reshard.h"
#include "view/tensors.h"

struct rfs_view;
struct rfs_view_hfai_list;

struct rfs_whole_tensor {
    const char *name;            /* the shown name; owned by the view, as the next members are */
    const struct rfs_type *type; /* the shown type, which option dtype may set */
    const struct rfs_target *target;
    bool own; /* no strategy of several ranks knows it: this is the first rank's */
    const struct rfs_whole *cut; /* NULL, or a slice of its rank RANK stands for the tensor */
    uint32_t rank;
};

struct rfs_whole {
    const char *path;            /* the path as it was given; borrowed */
    reshard_view *opened;        /* owned, but by a cut */
    struct rfs_view *view;       /* the only one in there; set once all is well */
    bool is_cut;                 /* it has slices of a destination, and its view is another's */
    struct rfs_planner *planner; /* owned; with parts, theirs */
    struct rfs_view_hfai_list *parts; /* owned; hfai's parts; or NULL */
    struct rfs_catalog *catalog;
    struct rfs_lacking *lacking;     /* owned; what damaged ranks lack, if there may be any */
    uint32_t first, ranks, stages;   /* ranks of its strategy, from the first on, and stages */
    const struct rfs_params *params; /* the list of the targets */
    uint32_t rank;                   /* rank of the destination whose slices they are */
    bool of_rank;                    /* that rank was asked for */
    size_t n;
    struct rfs_whole_tensor *tensors; /* [n] owned; in the order of the files */
    uint32_t *by_name;                /* [n] owned; positions, by the names' bytes */
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
 * its tensors are those of destination rank 0, as that has them. For others, make a tensor of a
 * target of the rank's plan, and its slice by rfs_planner_slice. CUT NULL: a destination is
 * refused.
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
int rfs_whole_choose(const struct rfs_whole *whole, const char *name,
                     const struct rfs_whole_tensor **out, struct rfs_error *err);
/* Returns the tensor of that name, or NULL. O(log n). */
const struct rfs_whole_tensor *rfs_whole_find(const struct rfs_whole *whole, const char *name);

/*
 * Returns whether NAME is a tensor that lost ranks had alone, as far as plans that were made tell.
 */
bool rfs_whole_lacks(const struct rfs_whole *whole, const char *name);

#define RFS_SHAPE_TEXT RFS_DIMS_TEXT(RFS_MAX_DIMS) /* bytes of a shape as text */
/* Returns "Float32" and the like, or "map". */
const char *rfs_whole_dtype(const struct rfs_type *type);

/*
 * Takes for WHOLE what a view of CUT's destination describes as whole tensors (view=dcp,
 * view=mindformers): a tensor that only one of the two strategies has is not cut there, and is what
 * the first rank has of it. Returns 0, or -errno with *err filled.
 */
int rfs_whole_describe(struct rfs_whole *whole, const struct rfs_whole *cut, struct rfs_error *err);

/*
 * Returns the next tensor from *AT on, which begins as 0, that lost ranks had alone, as far as the
 * plans that were made tell; sets *rank to one of those ranks. NULL: no more.
 */
const char *rfs_whole_lost(const struct rfs_whole *whole, uint32_t *at, uint32_t *rank);
/*
 * Makes the slice of a tensor: zero-initialised or one to use again, to be freed by rfs_slice_free.
 * Returns 0 or -errno.
 */
int rfs_whole_slice(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                    struct rfs_slice *slice);

/*
 * Reads bytes [begin, begin + size) of a tensor whose SLICE that is, or of another copy of it, as
 * shown. Returns 0, or -errno with *err filled.
 */
int rfs_whole_read(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                   const struct rfs_slice *slice, uint64_t begin, size_t size, void *buf,
                   struct rfs_error *err);

/* The source of a byte of a tensor as shown. */
struct rfs_whole_source {
    const char *file; /* NULL: nowhere; the catalogue's */
    uint32_t rank;
    uint64_t offset; /* offset of the byte's element in the file */
    /* bytes of the tensor, as shown, that go on from there in this file; at least 1 */
    uint64_t left;
};
struct rfs_whole_source rfs_whole_locate(const struct rfs_whole *whole,
                                         const struct rfs_whole_tensor *tensor,
                                         const struct rfs_slice *slice, uint64_t at);

/* Returns the N values of hfai's parts that are not tensors, sorted by name and hash. */
const struct rfs_hfai_value *rfs_whole_values(const struct rfs_whole *whole, size_t *n);
