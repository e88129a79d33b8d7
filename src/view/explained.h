/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of destination slices come from, for reshard explain: a slice has one list of
 * pieces, whatever the source is. Headers are read, and no tensor.
 *
 * One slice at a time is in memory. Not thread-safe.
 */
#pragma once

#include "base/progress.h"
#include "plan/by_rules.h"
#include "plan/trace.h"
#include "reshard.h"

/* The nouns for members of the source and of the destination. */
struct rfs_explained_words {
    const char *one, *many;       /* "rank", "ranks" of the destination */
    const char *source, *sources; /* "rank", "ranks"; or "file", "files" of a chunked source */
    const char *from, *from_many; /* "from rank", "from ranks" */
};

struct rfs_explained_parts;

/* A view, and what is asked about it. */
struct rfs_explained_view {
    const char *path; /* path of the source; the view's */
    const struct rfs_explained_words *words;
    uint32_t n_sources; /* number of ranks, parts or files of the source */
    uint32_t n_ranks;   /* ranks of the destination */
    bool keyed;         /* sources are decrypted: offsets are in the plain content */
    bool chunked;       /* a file may have several chunks of a tensor */
    bool by_rules;      /* conversion rules make the tensors */
    bool in_parts;      /* hfai's parts */

    const uint32_t *selected; /* [n_selected] destination ranks, ascending; set by the caller */
    size_t n_selected;
    bool some, one;                /* they were chosen; as the only one */
    const char *param;             /* the parameter that is asked for; set by the caller, or NULL */
    struct rfs_progress *progress; /* progress of plans and counts; set by the caller */

    struct rfs_view *view; /* this and the rest are for explained.c alone */
    struct rfs_explained_parts *parts;
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

/* The slice of one destination rank. */
struct rfs_explained {
    uint32_t rank;
    size_t position; /* index of rank in the view's selected ranks */
    const struct rfs_target *target;
    struct rfs_trace trace;            /* the list of pieces */
    const struct rfs_rules_made *made; /* NULL: no rules */

    const struct rfs_type *type;  /* dims and axes as boxes have them */
    const struct rfs_type *shown; /* dims and axes as the file has them */

    /* The rest is set by rfs_explained_each alone. */
    const char *name, *shown_name;
    const uint64_t *whole; /* [type->ndim] dims of the tensor that the boxes lie in */
    bool copied;           /* no strategy cuts the tensor: the boxes of pieces are all of it */
    uint32_t n_dims;
    /* [n_dims] dims as users know them, also where the whole is a row of hfai's parts */
    const uint64_t *dims;
    struct rfs_explained_side source, destination;
    char chunks[256];              /* "21 chunks, axis 0 in 21" */
    RFS_VEC(struct rfs_box) boxes; /* boxes of the whole; none: the tensor is copied */
    char *path;                    /* file that shows the slice, or NULL; owned */
    uint64_t offset;               /* offset in that file, bytes */
};

/*
 * Opens what can be asked about OPENED, a view of one save. 0, or -errno with *err filled; *out is
 * to be closed in any case, before the view is.
 */
int rfs_explained_open(reshard_view *opened, struct rfs_explained_view *out, struct rfs_error *err);
void rfs_explained_close(struct rfs_explained_view *view);

/*
 * Plans the selected ranks. 0, or -errno with *err filled by the lowest refused one that was tried.
 */
int rfs_explained_plan(struct rfs_explained_view *view, struct rfs_error *err);
/* Checks that one of the selected ranks has the parameter. 0, or -ENOENT with *err filled. */
int rfs_explained_check(struct rfs_explained_view *view, struct rfs_error *err);
/*
 * Calls fn for the slice of the parameter of each selected rank that has it. 0, the result of fn if
 * that is not 0, or -errno with *err filled.
 */
typedef int rfs_explained_fn(void *ctx, const struct rfs_explained *slice, struct rfs_error *err);
int rfs_explained_each(struct rfs_explained_view *view, rfs_explained_fn *fn, void *ctx,
                       struct rfs_error *err);

/* What takes the slices of all parameters. False stands for a lack of memory. */
struct rfs_explained_taker {
    /* Takes the slice of a parameter, which stands for TIMES parameters with equal pieces. */
    bool (*take)(void *ctx, const struct rfs_explained *slice, uint64_t times);
    bool (*end)(void *ctx); /* the parameter has no more slices */
    void *ctx;
};
/*
 * Gives TAKER the slices of all parameters of the selected ranks, which are planned, one parameter
 * after the other; those of the same geometries once, where all files list the same. 0, or -errno
 * with *err filled.
 */
int rfs_explained_all(struct rfs_explained_view *view, const struct rfs_explained_taker *taker,
                      struct rfs_error *err);

/* Returns how many files a destination rank depends on. */
uint32_t rfs_explained_files(const struct rfs_explained_view *view, uint32_t rank);
/* Returns the type of the source rank's slice, or of the chunk, that a piece without a link is in. */
const struct rfs_type *rfs_explained_type(const struct rfs_explained_view *view,
                                          const struct rfs_piece_trace *piece);
/* Returns the path of a source file below the source's folder. */
const char *rfs_explained_path(const struct rfs_explained_view *view, uint32_t file);
/*
 * Sets RANKS, with room for the trace's devices, to the other source ranks whose file holds a
 * piece's slice in that way, ascending. Returns their number; hfai's parts have none.
 */
size_t rfs_explained_holders(const struct rfs_explained_view *view,
                             const struct rfs_explained *slice, const struct rfs_piece_trace *piece,
                             enum rfs_holding holding, uint32_t *ranks);

/* ---- the places of a piece ------------------------------------------------------------------- */

/* Returns the name of the source tensor of a piece. */
const char *rfs_explained_name(const struct rfs_explained_view *view,
                               const struct rfs_explained *slice,
                               const struct rfs_piece_trace *piece);
/*
 * Returns the tensor that a piece's places on a side are in: RFS_MADE, the one that the slice is of,
 * or RFS_SOURCE; that of the file, or of a link the whole one. *ndim gets the number of axes.
 */
const uint64_t *rfs_explained_dims(const struct rfs_explained_view *view,
                                   const struct rfs_explained *slice,
                                   const struct rfs_piece_trace *piece, int side, uint32_t *ndim);

/*
 * Entries along an axis: FIRST + Σ i_k * step[k] for all i_k below count[k]; the smallest step
 * first, counts above 1.
 */
struct rfs_explained_entries {
    uint32_t n;
    uint64_t first;
    uint64_t count[RFS_RULES_DIGITS];
    uint64_t step[RFS_RULES_DIGITS];
};
/* Returns a piece's entries along axis NUMBER of a side's tensor. */
struct rfs_explained_entries rfs_explained_along(const struct rfs_explained_view *view,
                                                 const struct rfs_piece_trace *piece, int side,
                                                 uint32_t number);
/* Returns the digits of a piece's link. */
const struct rfs_rules_digit *rfs_explained_digits(const struct rfs_explained_view *view,
                                                   const struct rfs_piece_trace *piece);
/*
 * Prints a piece's elements of a side's tensor as a numpy index; of a link, rows in groups are
 * "0:64 and 2 more, each 96 further".
 */
void rfs_explained_put_place(FILE *out, const struct rfs_explained_view *view,
                             const struct rfs_explained *slice, const struct rfs_piece_trace *piece,
                             int side);
