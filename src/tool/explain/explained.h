/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard explain`: where the bytes of destination slices come from. Headers are read, and no
 * tensor.
 *
 * One slice at a time is in memory. What lasts of many slices are lines of output, or the sums of
 * source_bytes.h. Not thread-safe.
 */
#pragma once

#include "base/progress.h"
#include "base/settings.h"
#include "plan/by_rules.h"
#include "plan/trace.h"
#include "tool/common/args.h"
#include "view/plans.h"

/* The nouns for members of the source and of the destination. */
struct rfs_explain_words {
    const char *one, *many;       /* "rank", "ranks" of the destination */
    const char *source, *sources; /* "rank", "ranks"; or "file", "files" of a chunked source */
    const char *from, *from_many; /* "from rank", "from ranks" */
};

/*
 * hfai's parts: the tensors of their state, and where the bytes of each lie. A tensor that either
 * side cuts is a row of elements, cut along its only axis. One that is whole on both sides is
 * copied.
 */
struct rfs_explain_parts;

/* The command line, the view, and what was looked up last. */
struct rfs_explain {
    const char *source, *param, *svg; /* borrowed; param and svg may be NULL */
    struct rfs_settings options;      /* options of the view */
    int64_t rank;                     /* --rank; -1: none */
    struct rfs_ranks ranks;           /* --ranks, or the one of --rank */
    bool one;                         /* --rank is given: its slice is explained in full */
    bool json;

    reshard_view *view;
    struct rfs_view_plans plans;
    struct rfs_explain_parts *parts; /* owned; NULL if the source is not hfai's parts, which have no
                                        planner */
    const struct rfs_explain_words *words;
    uint32_t n_sources; /* number of ranks, parts or files of the source */
    uint32_t *selected; /* [n_selected] destination ranks, ascending; owned */
    size_t n_selected;
    struct rfs_progress progress;

    const struct rfs_params *params; /* the parameter list that was searched last, for param */
    const struct rfs_target *target; /* target of param in that list; NULL: none */
    size_t tensor;                   /* number of param in the parts; SIZE_MAX: they lack it */
};

/* The cuts of the parameter in the source, or in the destination. */
struct rfs_explained_side {
    const char *words;               /* a sentence instead of a grid; or NULL */
    const struct rfs_layout *layout; /* NULL: no strategy has the parameter */
    const struct rfs_grid *grid;     /* NULL: the parameter is copied */
    const uint64_t *slice;           /* dims of a slice; NULL: they differ, or there is no grid */
};

/* The slice of one destination rank: what text, JSON, pictures and sums are made from. */
struct rfs_explained {
    uint32_t rank;
    size_t position; /* index of rank in rfs_explain.selected */
    const struct rfs_target *target;
    struct rfs_trace trace;            /* the list of pieces */
    const struct rfs_rules_made *made; /* NULL: no rules */

    const char *name, *shown_name;
    const struct rfs_type *type;  /* dims and axes as boxes have them */
    const struct rfs_type *shown; /* dims and axes as the file has them */
    const uint64_t *whole;        /* [type->ndim] dims of the tensor that the boxes lie in */
    bool copied; /* no strategy cuts the tensor: the boxes of pieces are all of it */
    uint32_t n_dims;
    /* [n_dims] dims as users know them, also where the whole is a row of hfai's parts */
    const uint64_t *dims;
    struct rfs_explained_side source, destination;
    char chunks[256];              /* "21 chunks, axis 0 in 21" */
    RFS_VEC(struct rfs_box) boxes; /* boxes of the whole; none: the tensor is copied */
    char *path;                    /* file that shows the slice, or NULL; owned */
    uint64_t offset;               /* offset in that file, bytes */
};

/* Frees what the slice owns, not the slice itself. */
void rfs_explained_free(struct rfs_explained *slice);
/* Sets trace and made of a slice whose rank and target are set. 0 or -errno. */
int rfs_explain_trace(const struct rfs_explain *explain, struct rfs_explained *slice);

/*
 * Checks that one of the selected ranks has the parameter; all of them are planned. 0, or -ENOENT
 * with *err filled.
 */
int rfs_explain_check(struct rfs_explain *explain, struct rfs_error *err);
/*
 * Calls fn for the slice of the parameter of each selected rank that has it. 0, the result of fn if
 * that is not 0, or -errno with *err filled.
 */
typedef int rfs_explained_fn(void *ctx, const struct rfs_explained *slice, struct rfs_error *err);
int rfs_explain_each(struct rfs_explain *explain, rfs_explained_fn *fn, void *ctx,
                     struct rfs_error *err);

/* ---- the places of a piece ------------------------------------------------------------------- */

/* Returns the source tensor of a piece. */
const struct rfs_target *rfs_explained_source(const struct rfs_explain *explain,
                                              const struct rfs_explained *slice,
                                              const struct rfs_piece_trace *piece);
/*
 * Sets where a piece begins in the tensor of a side: RFS_MADE, which is the whole tensor that the
 * slice is of, or RFS_SOURCE. Other elements of *at stay.
 */
void rfs_explained_begin(const struct rfs_explain *explain, const struct rfs_explained *slice,
                         const struct rfs_piece_trace *piece, int side, uint64_t *at);
/*
 * Prints a piece's elements of a side's tensor as a numpy index; of a link, rows in groups are
 * "0:64 and 2 more, each 96 further". The source's tensor is that of the file, if LINK is NULL.
 */
void rfs_explained_put_place(FILE *out, const struct rfs_explain *explain,
                             const struct rfs_explained *slice, const struct rfs_piece_trace *piece,
                             int side);

/* ---- hfai's parts ---------------------------------------------------------------------------- */

/*
 * Opens the parts of EXPLAIN's view. 0 or -errno with *err filled; explain->parts is to be freed in
 * any case.
 */
int rfs_explain_parts_open(struct rfs_explain *explain, struct rfs_error *err);
/* Frees the parts; NULL is allowed. */
void rfs_explain_parts_free(struct rfs_explain_parts *parts);

/* Returns the number of tensors of the state. */
size_t rfs_explain_parts_tensors(const struct rfs_explain_parts *parts);
/* Makes the slice of a tensor for slice->rank: 1, 0 if that part has nothing of it, or -ENOMEM. */
int rfs_explain_parts_slice(struct rfs_explain *explain, size_t tensor,
                            struct rfs_explained *slice);
