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
#include "base/settings.h"
#include "base/text.h"
#include "base/vec.h"
#include "plan/copies.h"
#include "reshard.h"
#include "tool/common/globs.h"

struct rfs_whole_tensor {
    const char *name;            /* as shown; the view's, as the next members */
    const struct rfs_type *type; /* as shown: its element type may be that of the option dtype */
    const struct rfs_target *target;
    bool own; /* of a source of several ranks, and no strategy knows it: this is the first rank's */
    const struct rfs_whole *cut; /* NULL, or a slice of its rank RANK stands for the tensor */
    uint32_t rank;
};

struct rfs_view_how;
struct rfs_whole_parts;

struct rfs_whole {
    const char *path;              /* as it was given */
    reshard_view *opened;          /* owned, but by a cut */
    struct rfs_view *view;         /* the only one in there; set once all is well */
    bool is_cut;                   /* for a destination, by the view of another */
    struct rfs_planner *planner;   /* owned; NULL with parts */
    struct rfs_whole_parts *parts; /* owned; of hfai's parts; or NULL */
    struct rfs_catalog *catalog;
    struct rfs_lacking lacking;      /* owned; damaged ranks, if there may be any */
    uint32_t first, ranks, stages;   /* the ranks that its strategy tells, from the first on */
    const struct rfs_params *params; /* that the targets are of */
    uint32_t rank;                   /* of the destination, by whose slices they are */
    size_t n;
    struct rfs_whole_tensor *tensors; /* [n] owned; in the order of the files */
    uint32_t *by_name;                /* [n] owned; positions, by the names' bytes */
};

/* After a failure: where PATH lacks a strategy, names the command's FLAG for it ("-s"). */
void rfs_whole_name_strategy(const char *flag, struct rfs_error *err);
/*
 * Of hfai's parts the tensors are those of all that dist_ckpt.load returns (hfai/hfai.h).
 *
 * OPTIONS as of rfs_tool_open; those of the outputs' format are taken and do nothing. Of the
 * tensors those are kept whose names GLOBS take. PATH is borrowed.
 *
 * With a destination in OPTIONS, *CUT (else without a view) is the same checkpoint by the same
 * view: its tensors are those of destination rank 0, as that has them. For others, make a tensor of
 * a target of the rank's plan, and its slice by rfs_planner_slice. CUT NULL: a destination is
 * refused.
 *
 * HOW as of rfs_tool_open. If it is late, ranks may be missing or damaged. A tensor that cannot be
 * read without them is left out, and rfs_whole_lost tells it; plans are made one at a time.
 *
 * 0, or -errno with *err filled; both to be closed in any case, CUT first.
 */
int rfs_whole_open(const char *path, const struct rfs_settings *options, struct rfs_globs *globs,
                   const struct rfs_view_how *how, struct rfs_whole *whole, struct rfs_whole *cut,
                   struct rfs_error *err);
void rfs_whole_close(struct rfs_whole *whole);

/*
 * Takes for WHOLE what a view of CUT's destination describes as whole tensors (view=dcp,
 * view=mindformers): a tensor that only one of the two strategies has is not cut there, and is what
 * the first rank has of it. 0, or -errno with *err filled.
 */
int rfs_whole_describe(struct rfs_whole *whole, const struct rfs_whole *cut, struct rfs_error *err);

/*
 * The same of destination rank RANK's slices, as it has them, or whole for -1, whatever the
 * destination in OPTIONS. Of hfai's parts, and without a destination, there is rank 0 alone, which
 * has all whole. 0, or -errno with *err filled; to be closed in any case.
 */
int rfs_whole_open_rank(const char *path, const struct rfs_settings *options, int64_t rank,
                        struct rfs_whole *whole, struct rfs_error *err);

/*
 * For two that are to be compared, B without a view for none: if one is hfai's parts and the other
 * is not, of the parts the models' tensors are kept alone, and their path is given; else NULL.
 */
const char *rfs_whole_match(struct rfs_whole *a, struct rfs_whole *b);

/* The tensor of that name, or NULL. O(log n). */
const struct rfs_whole_tensor *rfs_whole_find(const struct rfs_whole *whole, const char *name);

/*
 * The tensors that lost ranks had alone, as far as the plans that were made tell: the next one from
 * *AT on, which begins as 0, and in *RANK one of those ranks. NULL: no more.
 */
const char *rfs_whole_lost(const struct rfs_whole *whole, uint32_t *at, uint32_t *rank);
/* Whether that name is among them. */
bool rfs_whole_lacks(const struct rfs_whole *whole, const char *name);

/* Its slice: zero-initialised or one to use again, to be freed by rfs_slice_free. 0 or -errno. */
int rfs_whole_slice(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                    struct rfs_slice *slice);

/*
 * Bytes [begin, begin + size) of a tensor whose SLICE that is, or of another copy of it, as shown.
 * 0, or -errno with *err filled.
 */
int rfs_whole_read(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                   const struct rfs_slice *slice, uint64_t begin, size_t size, void *buf,
                   struct rfs_error *err);

/* Where a byte of a tensor, as shown, comes from. */
struct rfs_whole_place {
    const char *file; /* NULL: nowhere; the catalogue's */
    uint32_t rank;
    uint64_t offset; /* of the byte's element in the file */
    /* bytes of the tensor, as shown, that go on from there in the same file; at least 1 */
    uint64_t left;
};
struct rfs_whole_place rfs_whole_locate(const struct rfs_whole *whole,
                                        const struct rfs_whole_tensor *tensor,
                                        const struct rfs_slice *slice, uint64_t at);

/*
 * Memory for SIZE bytes of content (WHOLE NULL: of none): guarded, where it is encrypted in the
 * files. NULL when out of memory.
 */
void *rfs_whole_memory(const struct rfs_whole *whole, size_t size);
void rfs_whole_memory_free(const struct rfs_whole *whole, void *memory, size_t size);

/* "[768, 24]" and the like; returns OUT. */
#define RFS_SHAPE_TEXT RFS_DIMS_TEXT(RFS_MAX_DIMS)
const char *rfs_whole_shape(const struct rfs_type *type, char out[RFS_SHAPE_TEXT]);
/* "Float32", or "map". */
const char *rfs_whole_dtype(const struct rfs_type *type);
