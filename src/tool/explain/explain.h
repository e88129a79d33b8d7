/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard explain`: where the bytes of destination slices come from. Headers are read, and no tensor.
 *
 * What is told of many slices is made and dropped slice by slice: only their lines, or totals.h, are kept.
 */
#ifndef RFS_TOOL_EXPLAIN_EXPLAIN_H
#define RFS_TOOL_EXPLAIN_EXPLAIN_H

#include "plan/trace.h"
#include "tool/common/progress.h"
#include "tool/common/ranks.h"
#include "view/rooms.h"

/* What source and destination are divided into. */
struct rfs_explain_words {
    const char *one, *many, *from, *from_many; /* "rank", "ranks", "from rank", "from ranks" */
};

struct rfs_explain_parts;

struct rfs_explain {
    const char *source, *param, *svg; /* the caller's; param and svg may be NULL */
    char *options;                    /* owned; of the view */
    struct rfs_ranks ranks;
    bool one; /* --rank: told in full */
    bool json;

    reshard_view *view;
    struct rfs_rooms rooms;
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

/* The slice of one destination rank. */
struct rfs_explained {
    uint32_t rank;
    size_t position;                 /* in rfs_explain.selected */
    const struct rfs_target *target; /* its type is as the boxes are */
    const struct rfs_type *tensor;   /* of parts: the whole, which boxes have as a row; or NULL */
    const char *sides[2];            /* of parts: how source and destination have it */
    struct rfs_trace trace;
    bool is_shown; /* in a file of its rank */
    struct rfs_shown_at at;
};

/* 0, or -ENOENT with *err filled when none of the selected ranks, which are planned, has the parameter. */
int rfs_explain_check(struct rfs_explain *explain, struct rfs_error *err);
/*
 * Calls fn for the slice of the parameter of each selected rank that has it. *n is how many have. 0, what fn gave
 * if that is not 0, or -errno with *err filled.
 */
typedef int rfs_explained_fn(void *ctx, const struct rfs_explained *slice, struct rfs_error *err);
int rfs_explain_each(struct rfs_explain *explain, rfs_explained_fn *fn, void *ctx, size_t *n,
                     struct rfs_error *err);

const struct rfs_type *rfs_explained_type(const struct rfs_explain *explain,
                                          const struct rfs_explained *slice);
const struct rfs_type *rfs_explained_shown_type(const struct rfs_explain *explain,
                                                const struct rfs_explained *slice);
/* The dims of the whole tensor; of what is copied unsliced, its own. */
const uint64_t *rfs_explained_whole(const struct rfs_explain *explain,
                                    const struct rfs_explained *slice);
/* The number of its axes, as of boxes. */
uint32_t rfs_explained_ndim(const struct rfs_explain *explain, const struct rfs_explained *slice);
/* The whole tensor as its users know it. */
uint32_t rfs_explained_dims(const struct rfs_explain *explain, const struct rfs_explained *slice,
                            const uint64_t **dims);
/* How many files a destination rank depends on. */
uint32_t rfs_explain_files(const struct rfs_explain *explain, uint32_t rank);
/* A source file below the source's folder. */
const char *rfs_explain_file(const struct rfs_explain *explain, uint32_t file);
/* The source ranks that give it something, ascending, malloc'ed; NULL when out of memory. */
uint32_t *rfs_explained_providers(const struct rfs_explained *slice, size_t *n);

/* What is printed, all of it, or -errno with *err filled. */
int rfs_explain_text(struct rfs_explain *explain, struct rfs_error *err);
int rfs_explain_json(struct rfs_explain *explain, struct rfs_error *err);
/* Writes the picture of the parameter to explain->svg. */
int rfs_explain_picture(struct rfs_explain *explain, struct rfs_error *err);

#endif
