/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares a strategy with a tree: each parameter's whole shape, from the slices and the cuts, and
 * all that does not go together.
 *
 * A strategy of one stage whose operators are of a later one is that part of a pipeline: its ranks
 * are counted from there, as a mount does.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/vec.h"
#include "layout/grid.h"
#include "layout/strategy.h"
#include "survey/headers/rank_headers.h"

struct rfs_fit {
    const struct rfs_headers *headers;
    const struct rfs_strategy *strategy;
    uint32_t stages, devices;
    uint32_t base; /* the rank of device 0 of stage 0 */
    /* The comparison that says how the tree is cut; NULL: the strategy does, or WHOLE. */
    const struct rfs_fit *source;
    bool whole; /* the tensors of the tree are not cut at all */
    bool bytes; /* samples of ranks are compared with what the strategy says that they hold */
};

/* Sets how a strategy is compared with a tree; it borrows both. */
void rfs_fit_begin(const struct rfs_headers *headers, const struct rfs_strategy *strategy,
                   struct rfs_fit *out);

/*
 * Proves that the last rank of the tree is the strategy's: shapes of a tree of other ranks are
 * wrong. Nothing is proved of parameters that this strategy does not cut. Returns 0, or -EINVAL
 * with *err filled.
 */
int rfs_fit_ranks(const struct rfs_fit *fit, struct rfs_error *err);

/* A parameter on a stage. */
struct rfs_fit_tensor {
    const struct rfs_layout *layout;
    const struct rfs_type *slice; /* type that the tree holds in RANK */
    uint32_t rank;
    struct rfs_grid grid; /* it borrows the layout */
    uint64_t whole[RFS_MAX_DIMS];
};

/*
 * Finds a parameter on a stage. Returns 1 with *out filled, 0 when the tree does not hold it there,
 * or -EINVAL with *err filled when it does not fit.
 */
int rfs_fit_tensor(const struct rfs_fit *fit, size_t param, uint32_t stage,
                   struct rfs_fit_tensor *out, struct rfs_error *err);

/*
 * Finds a parameter on the first stage that the tree holds it on. Returns as rfs_fit_tensor does; 0
 * also when the strategy does not have it.
 */
int rfs_fit_find(const struct rfs_fit *fit, const char *param, struct rfs_fit_tensor *out,
                 struct rfs_error *err);

/* The place of a contradiction. */
struct rfs_fit_place {
    const char *param;   /* NULL: all parameters */
    int64_t stage, rank; /* -1: all of them */
};
#define RFS_FIT_AT(param, stage, rank) ((struct rfs_fit_place){param, stage, rank})
#define RFS_FIT_ALL RFS_FIT_AT(NULL, -1, -1)

/* A contradiction; texts are in the arena of the list. */
struct rfs_fit_finding {
    /*
     * "ranks", "unreadable", "no parameters", "shape", "type", "hole", "only in the strategy",
     * "only in the tree", "bytes"
     */
    const char *kind;
    bool bad; /* else it is worth knowing, and no reason to refuse */
    struct rfs_fit_place at;
    const char *text;
};

struct rfs_fit_findings {
    struct rfs_arena arena;
    RFS_VEC(struct rfs_fit_finding) list;
    size_t bad;
    bool failed; /* out of memory: some are missing */
};
void rfs_fit_findings_free(struct rfs_fit_findings *findings);
/* Adds a finding with a text; KIND is a constant. */
void rfs_fit_findings_add(struct rfs_fit_findings *findings, const char *kind, bool bad,
                          struct rfs_fit_place at, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/*
 * Adds all findings: of ranks that the tree does not have, or that could not be read or have no
 * parameters; and without a strategy no others. Bytes are compared where none is a reason to
 * refuse. Returns 0, or -ENOMEM or -EINTR with *err filled. O(parameters x (kinds + ranks)).
 */
int rfs_fit_check(const struct rfs_fit *fit, struct rfs_fit_findings *findings,
                  struct rfs_error *err);
