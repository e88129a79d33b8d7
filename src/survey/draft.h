/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A first file of conversion rules, made of the names and shapes of one side's tensors: one rule
 * for all names that differ in numbers alone, an index for each set of numbers, and sizes by the
 * values of the config that fit, as "num_attention_heads * head_dim". What fits need not be meant:
 * other values that fit, too, are said. The rules rename each tensor: its user puts the names and
 * forms of the other side there.
 *
 * Cost: time in the tensors times their logarithm; a few hundred bytes for each.
 */
#pragma once

#include "base/error.h"
#include "formats/index.h"
#include "rules/hf_config.h"

struct rfs_draft;

/* Begins a draft; NULL when out of memory. */
struct rfs_draft *rfs_draft_new(void);
void rfs_draft_free(struct rfs_draft *draft);
/* Adds a tensor. NAME lasts until the draft is freed, TYPE too. Out of memory shows in printing. */
void rfs_draft_add(struct rfs_draft *draft, const char *name, const struct rfs_type *type);
/*
 * Prints the rules to OUT. RIGHT: the names are those of HuggingFace; else they are the training's.
 * 0, or -ENOMEM with *err filled.
 */
int rfs_draft_print(struct rfs_draft *draft, const struct rfs_hf_config *config, bool right,
                    FILE *out, struct rfs_error *err);
