/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that shipped rules know, for callers that look at names alone: no config and no tensor
 * is read. Immutable once open, so any thread may use them. Cost of opening: parsing all shipped
 * rules, about a millisecond.
 */
#pragma once

#include "base/error.h"

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
/* What a name says of a tensor that each layer has. */
struct rfs_known_tensor {
    size_t kind;    /* one of rfs_known_kinds */
    uint64_t layer; /* 3 of "model.layers.3.mlp.weight" */
};
/* Finds it in a name that has a number in the place of the first "*". False: no. O(names). */
bool rfs_known_layer(const struct rfs_known *known, const char *name, struct rfs_known_tensor *out);
size_t rfs_known_kinds(const struct rfs_known *known);
/* Returns the names of a kind, with "*" in place of numbers. */
const char *rfs_known_kind(const struct rfs_known *known, size_t kind);
/* Returns one of them, with "*" in place of numbers. */
const char *rfs_known_example(const struct rfs_known *known);
