/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout rules: a strategy in a few lines of text, for checkpoints that have no strategy file.
 *
 *   # a comment, to the end of the line; at its beginning or after a blank
 *   axes dp=2 tp=4                the device matrix, outermost axis first; ranks count row by row in it
 *   like source with dp 8 -> 6    what no rule matches is cut as in the source strategy, see below
 *   *.wq.weight: axis 0 over tp   a rule: a glob (base/glob.h), and the cuts
 *   *.moe.w: axis 0 over dp, axis -1 over tp
 *   *.emb: axis 0 over dp tp      axis 0 over dp, and each piece over tp
 *   *.adam_m: axis 0 over tp, optimizer 2
 *   *: whole
 *
 *   text = { [axes | like | rule] [comment] newline }
 *   axes = "axes" { NAME "=" NUMBER }            at most once, and before the rules; without it there is one
 *                                                device axis, "all", of all ranks
 *   like = "like" "source" [ "with" "dp" NUMBER "->" NUMBER ]            at most once, in any place
 *   rule = GLOB ":" ( "whole" | cut { ("," | "and") cut } )
 *   cut  = "axis" NUMBER "over" NAME { NAME }    negative: -1 is the tensor's last axis
 *        | "optimizer" [ NUMBER ]                axis 0 is cut further, into so many pieces, over what device
 *                                                axes the rule leaves, as an optimizer shard is; without the
 *                                                number over all of them
 *
 * The first rule that matches a parameter's name counts. A parameter that none matches is an error
 * unless there is a line "like source"; rules that no parameter takes are logged. All cuts are
 * even.
 *
 * "with dp N -> M" makes the strategy of another number of replicas. A parameter that is the same
 * in all devices, or cut by an optimizer shard over all of them and by nothing else, has M/N times
 * its devices. In the device matrix of any other, the axis of N devices that cuts no axis of the
 * tensor gets M. Of several such the choice must not matter: no axis that cuts may lie between
 * them, nor may there be an optimizer shard. An optimizer shard over all N of that axis becomes one
 * over all M; one over a part of it stays as it is. From 1, a new outermost axis is put in. What
 * fits none of this is an error.
 *
 * A strategy by rules has one stage; with "like source" it has the source's stages.
 *
 * Immutable once parsed. Costs the patterns, and 56 bytes a rule.
 */
#pragma once

#include "base/log.h"
#include "layout/strategy.h"

/* The longest text that is read. */
#define RFS_LAYOUT_RULES_BYTES ((size_t)16 << 20)

struct rfs_layout_rules;

/*
 * Parses rules. NAME is that of a file, or of the option that TEXT was given to; messages begin
 * "NAME: line N". 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_layout_rules_parse(const char *name, const char *text, size_t size,
                           struct rfs_layout_rules **out, struct rfs_error *err);
void rfs_layout_rules_free(struct rfs_layout_rules *rules);

/* The tensors and ranks that a strategy is made for; all borrowed. */
struct rfs_layout_rules_use {
    const struct rfs_strategy *source; /* its parameters; NULL: those that are named here */
    const char *const *names;
    size_t n;
    uint32_t ranks;           /* of all stages */
    const char *ranks_option; /* the option that gave them, for messages */
};

/*
 * Makes the strategy that the rules describe. It names each parameter's layout by its line and
 * leaves the number of its axes open (rfs_layout.open), so whether a rule fits a tensor shows in
 * rfs_grid_resolve. 0 with *out owned by the caller, -ENOMEM, or -EINVAL with *err filled.
 */
int rfs_layout_rules_strategy(const struct rfs_layout_rules *rules,
                              const struct rfs_layout_rules_use *use, struct rfs_log *log,
                              struct rfs_strategy **out, struct rfs_error *err);
