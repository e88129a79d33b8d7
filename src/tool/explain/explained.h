/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard explain`: where the bytes of destination slices come from. Headers are read, and no
 * tensor.
 *
 * Of many slices each is made and dropped in turn: only their lines, or totals.h, are kept.
 */
#pragma once

#include "base/settings.h"
#include "plan/converted.h"
#include "plan/trace.h"
#include "tool/common/progress.h"
#include "tool/common/ranks.h"
#include "view/plans.h"

/* The words for the parts of source and destination. */
struct rfs_explain_words {
    const char *one, *many; /* of the destination: "rank", "ranks" */
    /* the same; or "file", "files" of a source that describes itself */
    const char *source, *sources;
    const char *from, *from_many; /* "from rank", "from ranks" */
};

struct rfs_explain_parts;

struct rfs_explain {
    const char *source, *param, *svg; /* the caller's; param and svg may be NULL */
    struct rfs_settings options;      /* of the view */
    int64_t rank;                     /* -1: none */
    struct rfs_ranks ranks;           /* or that one */
    bool one;                         /* --rank: explained in full */
    bool json;

    reshard_view *view;
    struct rfs_view_plans plans;
    struct rfs_explain_parts *parts; /* owned; of hfai's parts: there is no planner; or NULL */
    const struct rfs_explain_words *words;
    uint32_t n_sources; /* ranks or parts of the source */
    uint32_t *selected; /* [n_selected] owned; destination ranks, ascending */
    size_t n_selected;
    struct rfs_progress progress;

    /* The target of param in the parameter list that was looked at last; NULL: it has none. */
    const struct rfs_params *params;
    const struct rfs_target *target;
    size_t tensor; /* of the parts */
};

/* How source or destination have the parameter. */
struct rfs_explained_side {
    const char *words;               /* where there is no grid, and of parts; or NULL */
    const struct rfs_layout *layout; /* NULL: no strategy has it */
    const struct rfs_grid *grid;     /* NULL: it is copied */
    const uint64_t *slice;           /* dims of a slice; NULL: there are several, or none */
    bool chunks;                     /* it describes itself: WORDS say how it is cut */
};

/* A part of a slice by conversion rules: elements of one source tensor, in one file. */
struct rfs_explained_part {
    const struct rfs_rules_link *link;
    struct rfs_rules_span span; /* of its digits */
    uint32_t rank;              /* of the source, as of rfs_by_rules_piece */
    struct rfs_block block;
};

/* The slice of one destination rank: all that text, JSON and picture have of it. */
struct rfs_explained {
    uint32_t rank;
    size_t position; /* in rfs_explain.selected */
    const struct rfs_target *target;
    struct rfs_trace trace;            /* without pieces, if rules make it: */
    const struct rfs_rules_made *made; /* NULL: no rules */
    RFS_VEC(struct rfs_explained_part) parts;

    const char *name, *shown_name;
    const struct rfs_type *type;  /* its dims and axes are those of boxes; */
    const struct rfs_type *shown; /* these those of the file */
    const uint64_t *whole;        /* [type->ndim] the tensor that the boxes lie in; */
    uint32_t n_dims;
    const uint64_t *dims; /* [n_dims] the same as its users know it: parts have it as a row */
    struct rfs_explained_side source, destination;
    char chunks[256];              /* "21 chunks, axis 0 in 21" */
    RFS_VEC(struct rfs_box) boxes; /* in the whole; none: it is copied */
    char *path;                    /* owned; of its file; NULL: it is in none */
    uint64_t offset;               /* in the file */
};

void rfs_explained_free(struct rfs_explained *slice);
/* Sets the trace of a slice whose rank and target are set, and its parts. 0 or -errno. */
int rfs_explain_trace(const struct rfs_explain *explain, struct rfs_explained *slice);

/*
 * 0, or -ENOENT with *err filled when none of the selected ranks, which are planned, has the
 * parameter.
 */
int rfs_explain_check(struct rfs_explain *explain, struct rfs_error *err);
/*
 * Calls fn for the slice of the parameter of each selected rank that has it. 0, the result of fn if
 * that is not 0, or -errno with *err filled.
 */
typedef int rfs_explained_fn(void *ctx, const struct rfs_explained *slice, struct rfs_error *err);
int rfs_explain_each(struct rfs_explain *explain, rfs_explained_fn *fn, void *ctx,
                     struct rfs_error *err);

/* How many files a destination rank depends on. */
uint32_t rfs_explain_files(const struct rfs_explain *explain, uint32_t rank);
/* A source file below the source's folder. */
const char *rfs_explain_file(const struct rfs_explain *explain, uint32_t file);
/* Other source ranks that hold a piece's slice in that way, ascending, malloc'ed; none of parts. */
uint32_t *rfs_explained_others(const struct rfs_explain *explain, const struct rfs_explained *slice,
                               const struct rfs_piece_trace *piece, enum rfs_holding holding,
                               size_t *n);

/* Prints all of it. 0, or -errno with *err filled. */
int rfs_explain_text(struct rfs_explain *explain, struct rfs_error *err);
/* The same of a parameter that conversion rules make. */
int rfs_explain_converted_text(struct rfs_explain *explain, struct rfs_error *err);
int rfs_explain_json(struct rfs_explain *explain, struct rfs_error *err);
/* Writes the picture of the parameter to explain->svg. */
int rfs_explain_picture(struct rfs_explain *explain, struct rfs_error *err);
int rfs_explain_converted_picture(struct rfs_explain *explain, struct rfs_error *err);
