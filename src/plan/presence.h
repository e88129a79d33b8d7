/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks of one source stage have which parameter: made where its files do not list the same
 * ones, as after remove_redundancy, from the indexes of all ranks that have a file. Immutable once
 * made; thread-safe.
 *
 * Cost: 4 bytes for each name of each distinct index (ranks with the same headers share one), 8 a
 * rank, and 24 for each name that the catalogue knows.
 */
#pragma once

#include "catalog/catalog.h"

/* Of one name. */
struct rfs_presence_view {
    size_t first;   /* of the indexes that list it, in rfs_presence.lists */
    uint32_t lists; /* how many */
    uint32_t ranks; /* how many ranks have it; 0: none */
    uint32_t type;  /* in the first of those ranks; id in the catalogue's types */
    bool mixed;     /* other ranks have it with another type */
};

struct rfs_presence {
    uint32_t devices; /* ranks of the stage; all ranks here are local to it */
    uint32_t present; /* how many have a file, if only one without parameters */
    size_t n;
    uint32_t *order;  /* [n] names as they first appear over the files, the first loaded first */
    uint32_t n_names; /* ids below this are known */
    struct rfs_presence_view *of; /* [n_names] */
    uint32_t *lists;              /* indexes by number, ascending for each name */
    uint32_t n_lists;
    uint32_t *list_of; /* [devices] the number of a rank's index; n_lists: it has none */
    uint32_t *members; /* ranks, ascending, index by index: those of index i */
    size_t *member;    /* [n_lists + 1] begin at member[i] */
};

/*
 * Of DEVICES ranks from global rank BASE; those that have a file are indexed already, as far as it
 * has parameters. ASCENDING: the lowest rank is loaded first, else the highest. 0 with *out owned
 * by the caller, or -ENOMEM.
 */
int rfs_presence_make(struct rfs_catalog *catalog, uint32_t base, uint32_t devices, bool ascending,
                      struct rfs_presence **out);
void rfs_presence_free(struct rfs_presence *presence);

/* The ranks that have a name, or NULL when none has. O(1). */
static inline const struct rfs_presence_view *rfs_presence_of(const struct rfs_presence *presence,
                                                              uint32_t name)
{
    return name < presence->n_names && presence->of[name].ranks > 0 ? &presence->of[name] : NULL;
}
/* Whether a rank has it. O(log indexes that list it). */
bool rfs_presence_has(const struct rfs_presence *presence, uint32_t name, uint32_t rank);
/*
 * The lowest rank that has it and for which fits(ctx, rank) is true; RFS_NO_RANK when there is
 * none. Calls it only for ranks that have it.
 */
uint32_t rfs_presence_lowest(const struct rfs_presence *presence, uint32_t name,
                             bool (*fits)(const void *ctx, uint32_t rank), const void *ctx);
