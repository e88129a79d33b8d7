/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wall between the view and the tool: what commands need that reshard.h does not have. Tensors
 * and their pieces, the sources of shown files, needed ranks, and the findings of rules. A command
 * sees no planner, catalogue or format.
 *
 * Threads: all functions, unless a header says otherwise.
 */
#pragma once

#include "view/ranges.h"
#include "view/whole_tensors.h"

/* ---- needed ranks ---------------------------------------------------------------------------- */

/* Two strategies, and which ranks of one need which of the other (plan/needed.h). */
struct rfs_inspect_ranks;

/*
 * Reads the strategies that SRC and DST name (view/strategy_options.h); a side that is NULL is one
 * whole checkpoint. 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_ranks_open(const char *src, const char *dst, struct rfs_inspect_ranks **out,
                           struct rfs_error *err);
/* Frees them; NULL is allowed. */
void rfs_inspect_ranks_close(struct rfs_inspect_ranks *ranks);
/* Gives the number of ranks of the source and of the destination. */
void rfs_inspect_ranks_count(const struct rfs_inspect_ranks *ranks, uint32_t *sources,
                             uint32_t *destinations);
/*
 * Sets wanted[R] for each source rank R that destination rank RANK needs; clears the others. 0 or
 * -errno with *err filled. One thread at a time.
 */
int rfs_inspect_ranks_needed(struct rfs_inspect_ranks *ranks, uint32_t rank, unsigned char *wanted,
                             struct rfs_error *err);

/* ---- conversion rules ------------------------------------------------------------------------ */

/* A tensor that rules make; all is the view's. */
struct rfs_inspect_made {
    const char *name;
    const struct rfs_type *type; /* with the dtype of its sources */
    enum rfs_dtype shown;        /* after a cast */
    size_t sources;              /* tensors of the source that it is made of */
    const char *file;            /* where the rule is */
    uint32_t line;
};

/* The result of the rules of a view. */
struct rfs_inspect_rules {
    const char *from, *to; /* names of the two sides */
    size_t sources, dropped, made;
    size_t incomplete; /* made tensors that need a lost part of the source */
};
/*
 * Gives the result of a view's rules, whose copies are compared first. 0, or -errno with *err
 * filled: a copy differs; the source cannot be converted; several saves are shown.
 */
int rfs_inspect_rules(reshard_view *view, struct rfs_inspect_rules *out, struct rfs_error *err);
/* Gives made tensor I, below out->made, of a view for which rfs_inspect_rules gave 0. */
void rfs_inspect_made(reshard_view *view, size_t i, struct rfs_inspect_made *out);

/* ---- one tensor as a file -------------------------------------------------------------------- */

/*
 * Makes the bytes that stand before those of a tensor, in a .npy file or with SAFETENSORS in a file
 * of that format. 0 with OUT owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_head(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                     bool safetensors, struct rfs_bytes *out, struct rfs_error *err);
/* Returns the name that a tensor has in the source. */
const char *rfs_inspect_source_name(const struct rfs_whole *whole,
                                    const struct rfs_whole_tensor *tensor);
/*
 * Finds the lowest destination rank whose strategy has a parameter of that name, and its stage.
 * False if there is none, or no strategy.
 */
bool rfs_inspect_rank_with(const struct rfs_whole *whole, const char *name, uint32_t *rank,
                           uint32_t *stage);
