/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that shipped rules know, for callers that look at names alone: no config and no tensor
 * is read. Immutable once open, so any thread may use them. Cost of opening: parsing all shipped
 * rules, about a millisecond.
 */
#pragma once

#include "base/error.h"
#include "rules/hf_config.h"

struct rfs_known;

/*
 * Finds the names of what a training saves beside the weights: states of optimizers, counters and
 * the like, which the rules drop. 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_known_states(struct rfs_known **out, struct rfs_error *err);
/*
 * Finds the names of the tensors that HuggingFace's models of a type have. *out is NULL when no
 * rules are for that type. Returns as rfs_known_states does.
 */
int rfs_known_tensors(const char *model_type, struct rfs_known **out, struct rfs_error *err);
void rfs_known_free(struct rfs_known *known);

/* Returns whether a name is one of them; the number in a name may be any text. O(names). */
bool rfs_known_has(const struct rfs_known *known, const char *name);
/* Returns one of them, with "*" in place of numbers. */
const char *rfs_known_example(const struct rfs_known *known);

/*
 * Looks for what the N names of a checkpoint lack, for which a loader makes random weights: a layer
 * without a tensor, one that has less than the others have, or a tensor that a model has once.
 * CONFIG is the model's; SOURCE is named in messages. Returns 1 with *missed filled, 0: nothing is
 * known to be missing, or -ENOMEM. O(names + layers × kinds of tensors).
 */
int rfs_known_find_missing(const struct rfs_known *known, const struct rfs_hf_config *config,
                           const char *const *names, size_t n, const char *source,
                           struct rfs_error *missed);
