/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of a draft of rules, written by the values of a config that fit: a size of a tensor as
 * "num_attention_heads * head_dim". What fits need not be meant: other values that fit, too, are
 * said.
 *
 * Cost: a table of at most a few thousand products, once; each new size searches it. Not
 * thread-safe.
 */
#pragma once

#include "base/arena.h"
#include "rules/hf_config.h"

struct rfs_draft_sizes;

/*
 * Makes the table of a config, in ARENA; both are borrowed. NULL when out of memory. Keys that the
 * language of rules cannot say are left out.
 */
struct rfs_draft_sizes *rfs_draft_sizes_new(struct rfs_arena *arena,
                                            const struct rfs_hf_config *config);
/* Returns the text of a size; what it names counts as used. */
const char *rfs_draft_size(struct rfs_draft_sizes *sizes, uint64_t size);
/* Returns the name of the first value of an index, or NULL: none fits. */
const char *rfs_draft_begin(struct rfs_draft_sizes *sizes, uint64_t begin);
/*
 * Returns the name of the end of an index that counts NOUN, as "layers", or NULL: none fits.
 */
const char *rfs_draft_end(struct rfs_draft_sizes *sizes, uint64_t end, const char *noun);
/*
 * Returns the name of the number of layers for a condition on them, and sets *LAYERS to it; NULL:
 * the config has none.
 */
const char *rfs_draft_layers(struct rfs_draft_sizes *sizes, uint64_t *layers);
/* Prints a "let" for each value that is used, and the sizes that other values fit, too. */
void rfs_draft_print_lets(const struct rfs_draft_sizes *sizes, FILE *out);
