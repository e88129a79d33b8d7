/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout rules: a strategy in a few lines of text, for checkpoints that have no strategy file.
 *
 *   # a comment, to the end of the line; at its beginning or after a blank
 *   axes dp=2 tp=4                the device matrix, outermost axis first; ranks count row by row
 *   like source with dp 8 -> 6    what no rule matches is cut as in the source strategy, see below
 *   *.wq.weight: axis 0 over tp   a rule: a glob (base/glob.h), and the cuts
 *   *.moe.w: axis 0 over dp, axis -1 over tp
 *   *.emb: axis 0 over dp tp      axis 0 over dp, and each piece over tp
 *   *.adam_m: axis 0 over tp, optimizer 2
 *   *.k.weight: axis 0 over tp in num_key_value_heads
 *   *: whole
 *
 *   text = { [axes | stages | stage | like | rule] [comment] newline }
 *   axes = "axes" { NAME "=" NUMBER }        before the rules that use them; without it there is
 *                                            one device axis, "all", of all ranks. A further line
 *                                            is for the rules after it, and has as many devices
 *   stages = "stages" NUMBER                 pipeline stages, at most once; 1 without it
 *   stage = "stage" { "first" | "last" | "layer" | "all" }
 *                                            the stages that have the parameters of the rules after
 *                                            it; "layer": layers are divided evenly, and the first
 *                                            part of a name that is a number is its layer
 *   like = "like" "source" [ "with" "dp" NUMBER "->" NUMBER ]
 *                                            at most once, in any place
 *   rule = GLOB ":" ( "whole" | cut { ("," | "and") cut } )
 *   cut  = "axis" NUMBER "over" NAME { NAME } [ "in" KEY ]
 *                                            negative: -1 is the tensor's last axis. It has as many
 *                                            equal parts as KEY, a number of the model, says, and
 *                                            none of them may be cut
 *        | "fields" NUMBER                   the axis of the cut before it has so many equal fields
 *                                            one after the other, and each device an equal part of
 *                                            every field
 *        | "optimizer" [ NUMBER ]            axis 0 is cut further, into so many pieces, over what
 *                                            device axes the rule leaves, as an optimizer shard is;
 *                                            without the number over all of them
 *
 * The first rule that matches a parameter's name counts. A parameter that none matches is an error
 * unless there is a line "like source". Rules that no parameter takes are logged. If none is taken,
 * or none that cuts although some would, the rules are for other names, and refused. All cuts are
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
 * With "like source" a strategy has the source's stages.
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
    uint32_t ranks;           /* of all stages; 0: as many as the rules say */
    const char *ranks_option; /* the option that gives them, for messages */
    bool ready;               /* the rules are for more models, so most are not taken */
    bool by_columns;          /* ready cuts of Meta's Llama cut the embedding by columns */
    /*
     * Gives a number of the model by its key in config.json; NULL: none is known. 0, -ENOENT if it
     * is not known, or -errno with *err filled.
     */
    int (*number)(void *ctx, const char *key, uint64_t *number, struct rfs_error *err);
    void *ctx;
};

/*
 * Makes the strategy that the rules describe. It names each parameter's layout by its line and
 * leaves the number of its axes open (rfs_layout.open), so whether a rule fits a tensor shows in
 * rfs_grid_resolve. 0 with *out owned by the caller, -ENOMEM, or -EINVAL with *err filled.
 */
int rfs_layout_rules_strategy(const struct rfs_layout_rules *rules,
                              const struct rfs_layout_rules_use *use, struct rfs_log *log,
                              struct rfs_strategy **out, struct rfs_error *err);

/*
 * Returns how many parameters of USE no rule matches, and sets the first of them; counts up to
 * MOST. O(parameters * rules).
 */
size_t rfs_layout_rules_unmatched(const struct rfs_layout_rules *rules,
                                  const struct rfs_layout_rules_use *use, size_t most,
                                  const char **first);
