/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which source rank each piece is read from. A presence map says which ranks of one source stage
 * have which parameter. It is made where the files do not list the same ones, as after
 * remove_redundancy, from the indexes of all ranks that have a file. It is immutable once made;
 * thread-safe.
 *
 * Cost of a map: 4 bytes for each name of each distinct index (ranks with the same headers share
 * one), 8 a rank, and 24 for each name that the catalogue knows.
 */
#pragma once

#include "catalog/catalog.h"
#include "plan/geometry.h"

struct rfs_planner;
struct rfs_planning;
struct rfs_stage_use;
struct rfs_target;

/* Ranks that have one name. */
struct rfs_presence_view {
    size_t first;   /* place in rfs_presence.lists of the first index that has it */
    uint32_t lists; /* number of indexes that have it */
    uint32_t ranks; /* number of ranks that have it; 0: none */
    uint32_t type;  /* in the first of those ranks; id in the catalogue's types */
    bool mixed;     /* other ranks have it with another type */
};

struct rfs_presence {
    uint32_t devices; /* ranks of the stage; all ranks here are local to it */
    uint32_t present; /* ranks that have a file, even one without parameters */
    size_t n;
    uint32_t *order;  /* [n] names as they first appear over the files, the first loaded first */
    uint32_t n_names; /* ids below this are known */
    struct rfs_presence_view *of; /* [n_names] */
    uint32_t *lists;              /* indexes by number, ascending for each name */
    uint32_t n_lists;
    uint32_t *list_of; /* [devices] number of a rank's index; n_lists: it has none */
    uint32_t *members; /* ranks, ascending, index by index */
    size_t *member;    /* [n_lists + 1] where the ranks of each index begin in members */
};

/*
 * Makes the map of DEVICES ranks from global rank BASE; those that have a file are indexed already,
 * as far as it has parameters. ASCENDING: the lowest rank is loaded first, else the highest. 0 with
 * *out owned by the caller, or -ENOMEM.
 */
int rfs_presence_make(struct rfs_catalog *catalog, uint32_t base, uint32_t devices, bool ascending,
                      struct rfs_presence **out);
void rfs_presence_free(struct rfs_presence *presence);

/* Returns what the map says of a name, or NULL when no rank has it. O(1). */
static inline const struct rfs_presence_view *rfs_presence_of(const struct rfs_presence *presence,
                                                              uint32_t name)
{
    return name < presence->n_names && presence->of[name].ranks > 0 ? &presence->of[name] : NULL;
}
/*
 * Returns the lowest rank that has a name and for which fits(ctx, rank) is true, or RFS_NO_RANK.
 * Calls fits only for ranks that have the name.
 */
uint32_t rfs_presence_lowest(const struct rfs_presence *presence, uint32_t name,
                             bool (*fits)(const void *ctx, uint32_t rank), const void *ctx);

/* A parameter that the files of a source stage have, for a destination rank. */
struct rfs_provider_query {
    const struct rfs_planner *planner;
    const struct rfs_presence *presence; /* of the stage, or NULL */
    uint32_t base;                       /* of the stage */
    uint32_t name;
    uint32_t template; /* the local rank that MindSpore takes the destination rank for */
};
/* Makes the query of a target in the plan of a local destination rank. */
struct rfs_provider_query rfs_plan_query_of(const struct rfs_planner *planner, uint32_t local,
                                            const struct rfs_target *target);
/* Makes the query of a parameter of a stage while a plan is being made. */
struct rfs_provider_query rfs_plan_query(const struct rfs_planning *planning,
                                         const struct rfs_stage_use *use, uint32_t name);

/*
 * The requested data of a parameter: a cell of a grid, or the slice that the template's rank holds
 * by a layout, or neither.
 */
struct rfs_plan_piece {
    const struct rfs_grid *grid;
    const uint32_t *cell;
    const struct rfs_layout *layout; /* NULL without a grid: whatever the template's rank has */
    uint32_t slice;                  /* of the layout */
};
static inline struct rfs_plan_piece rfs_plan_piece_cell(const struct rfs_geometry *geometry,
                                                        const uint32_t *cell)
{
    return (struct rfs_plan_piece){.grid = &geometry->src, .cell = cell};
}
static inline struct rfs_plan_piece rfs_plan_piece_slice(const struct rfs_layout *layout,
                                                         uint32_t template)
{
    return (struct rfs_plan_piece){.layout = layout,
                                   .slice = layout ? rfs_layout_slice(layout, template) : 0};
}

/* Returns the global rank of a source stage's local rank 0. */
uint32_t rfs_plan_base(const struct rfs_planner *planner, uint32_t src_stage);
/* Says whether a local rank has a file with the parameter. */
bool rfs_plan_has(const struct rfs_provider_query *query, uint32_t rank);
/*
 * Says whether a local rank holds a piece by the strategy, whatever its file has. CTX is a struct
 * rfs_plan_piece.
 */
bool rfs_plan_holds(const void *ctx, uint32_t rank);
/*
 * Returns the local rank that MindSpore takes a piece from: the one that holds it and is the
 * template in every digit that cuts nothing.
 */
uint32_t rfs_plan_first(const struct rfs_provider_query *query, const struct rfs_plan_piece *piece);
/*
 * Returns the global rank that gives a piece: MindSpore's, or the lowest that holds it and has a
 * file with the parameter; RFS_NO_RANK when there is none. In one view all calls give the same
 * answer, with the presence map or (as long as there is none) without.
 */
uint32_t rfs_plan_provider(const struct rfs_provider_query *query,
                           const struct rfs_plan_piece *piece);
