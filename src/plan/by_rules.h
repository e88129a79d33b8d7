/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result of conversion rules (rules/links.h), as a source of its own: a derived catalogue lists
 * the made tensors as one whole checkpoint, which a planner cuts as any other. That planner's
 * slices are found in two steps: links lead from a box of the destination to elements of whole
 * source tensors, and an unsharded plan of the source says where those are stored.
 *
 * Cost: the unsharded plan, for which all source ranks that give something are indexed; the map. A
 * slice takes time in the links of its tensor, and in the stored boxes that it touches.
 *
 * Threads: as planners.
 */
#pragma once

#include "plan/planner.h"
#include "rules/compile.h"

struct rfs_by_rules_config {
    /*
     * planner of the source, borrowed; its destination is unsharded, it renames nothing, and it
     * lists incomplete tensors
     */
    struct rfs_planner *whole;
    struct rfs_catalog *catalog; /* the planner's */
    const struct rfs_rules *rules;
    const struct rfs_hf_config *hf_config;
    const char *options; /* of the rules, or NULL */
    /*
     * Compares the copies that the rules leave out (struct rfs_rules_copy) with their originals.
     * 0, or -errno. Slices of tensors that are made of an original are found only after it gave 0,
     * so it is called for each of them, and has to remember.
     */
    int (*compare)(void *ctx);
    /* Takes the errors before the last: struct rfs_rules_input. May be NULL. */
    void (*report)(void *ctx, const struct rfs_error *err);
    void *ctx;
};

/* Rules that are applied to a source; constant. Its users read the members up to the catalogue. */
struct rfs_by_rules {
    struct rfs_by_rules_config config;
    const struct rfs_rank_plan *plan; /* of the whole source, unsharded: config.whole's */
    struct rfs_rules_map *map;
    struct rfs_catalog *catalog;   /* of the made tensors; owned, as the map */
    const struct rfs_index *index; /* of the catalogue, by number of the made tensor */
    /* [made] a source tensor that is needed and not complete, or RFS_NO_ID; owned */
    uint32_t *lost;
};

/* Plans the source, and applies the rules. 0 with *out owned, or -errno with *err filled. */
int rfs_by_rules_new(const struct rfs_by_rules_config *config, struct rfs_by_rules **out,
                     struct rfs_error *err);
void rfs_by_rules_free(struct rfs_by_rules *by_rules);

/* Returns the target of that plan that a link's source number stands for. */
const struct rfs_target *rfs_by_rules_target(const struct rfs_by_rules *by_rules, uint32_t source);
/* Returns the made tensor of a name, id in the catalogue's names, or NULL. */
const struct rfs_rules_made *rfs_by_rules_made(const struct rfs_by_rules *by_rules, uint32_t name);

/*
 * Says whether the made tensor of a name needs a tensor of the source that is not complete, so that
 * it has no slices: *source gets the number of that one. BY_RULES may be NULL, which needs nothing.
 */
bool rfs_by_rules_needs_lost(const struct rfs_by_rules *by_rules, uint32_t name, uint32_t *source);
/* Returns the number of made tensors that need such a tensor. */
size_t rfs_by_rules_incomplete(const struct rfs_by_rules *by_rules);
/*
 * Refuses the made tensor of a name, because SOURCE, from which rules make it, is not complete, or
 * notes that the planner goes without it. Returns 0, -ENOENT or -ENOMEM with *err filled.
 */
int rfs_by_rules_lose(const struct rfs_planner *planner, uint32_t name, uint32_t source,
                      struct rfs_error *err);

/* Says whether a copy and its original are complete. If not, neither is any tensor made of them. */
bool rfs_by_rules_can_compare(const struct rfs_by_rules *by_rules,
                              const struct rfs_rules_copy *copy);
/*
 * Says whether the made tensor of a name is made of the original of a copy that the rules leave
 * out.
 */
bool rfs_by_rules_is_compared(const struct rfs_by_rules *by_rules, uint32_t name);
