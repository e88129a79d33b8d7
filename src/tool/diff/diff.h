/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard diff`: two checkpoints, tensor by tensor. pairs.c reads and compares, write.c shows.
 */
#pragma once

#include "base/settings.h"
#include "tool/common/progress.h"
#include "tool/common/whole.h"
#include "tool/diff/compare.h"

enum rfs_diff_depth { RFS_DIFF_NAMES, RFS_DIFF_HEADERS, RFS_DIFF_VALUES };

struct rfs_diff_options {
    const char *path[2];
    struct rfs_settings view[2]; /* options of A's and B's view */
    struct rfs_globs globs;
    struct rfs_tolerance tolerance;
    enum rfs_diff_depth depth;
    bool any_dtype; /* a difference in the element type is none */
    bool all;       /* show also equal tensors */
    bool json;
    unsigned threads;
};

/* A name, and either side's tensor. */
struct rfs_pair {
    const struct rfs_whole_tensor *of[2]; /* one of them may be NULL */
    bool other_shape, other_dtype;
    bool read;                   /* its values were compared: */
    uint64_t other_bytes;        /* pieces of up to 4 MiB whose bytes are not the same */
    struct rfs_comparison found; /* of tensors with numbers */
};

struct rfs_diff {
    struct rfs_diff_options *options;
    struct rfs_whole whole[2];
    /* The side that is hfai's parts: only their models are compared. NULL: all is compared. */
    const char *parts;
    RFS_VEC(struct rfs_pair) pairs; /* in the order of A, then those that only B has */
    struct rfs_progress progress;
};

static inline const char *rfs_pair_name(const struct rfs_pair *pair)
{
    return pair->of[pair->of[0] == NULL]->name;
}
/* Whether the two are the same, as far as the options ask. */
bool rfs_pair_is_same(const struct rfs_diff_options *options, const struct rfs_pair *pair);

/* 0, or -errno with *err filled. */
int rfs_diff_pair(struct rfs_diff *diff, struct rfs_error *err);
int rfs_diff_read(struct rfs_diff *diff, struct rfs_error *err);
/* Prints to the standard output. */
void rfs_diff_write(const struct rfs_diff *diff);
