/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/replicas.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "plan/internal.h"

/* A presence map while it is being made. */
struct making {
    struct rfs_catalog *catalog;
    uint32_t base;
    const struct rfs_index **indexes; /* [n_lists] by number */
};

void rfs_presence_free(struct rfs_presence *presence)
{
    if (!presence)
        return;
    free(presence->order);
    free(presence->of);
    free(presence->lists);
    free(presence->list_of);
    free(presence->members);
    free(presence->member);
    free(presence);
}

RFS_CLEANUP_OF(presence_cleanup, struct rfs_presence *, rfs_presence_free)

static const struct rfs_index *index_of(const struct making *making, uint32_t rank)
{
    return rfs_catalog_ready(making->catalog, making->base + rank);
}

/* A rank, its index, and the lowest rank that has that one. */
struct keyed {
    const struct rfs_index *index;
    uint32_t rank, lowest;
};

RFS_COMPARE(by_index, struct keyed, x, y,
            RFS_ORDER((uintptr_t)x->index, (uintptr_t)y->index) ?: RFS_ORDER(x->rank, y->rank))
RFS_COMPARE(by_lowest, struct keyed, x, y,
            RFS_ORDER(x->lowest, y->lowest) ?: RFS_ORDER(x->rank, y->rank))

/* Sorts ranks by their indexes, and these by their lowest ranks: addresses differ each time. */
static void sort_keyed(struct keyed *keyed, uint32_t n)
{
    RFS_SORT(keyed, n, by_index);
    for (uint32_t i = 0; i < n; i++)
        keyed[i].lowest =
            i > 0 && keyed[i].index == keyed[i - 1].index ? keyed[i - 1].lowest : keyed[i].rank;
    RFS_SORT(keyed, n, by_lowest);
}

/* Numbers the distinct indexes and sets each rank's number. */
static int number_lists(struct making *making, struct rfs_presence *presence)
{
    RFS_FREE struct keyed *keyed = malloc(presence->devices * sizeof *keyed);
    uint32_t n = 0;

    presence->list_of = malloc(presence->devices * sizeof *presence->list_of);
    presence->members = malloc(presence->devices * sizeof *presence->members);
    presence->member = malloc(((size_t)presence->devices + 1) * sizeof *presence->member);
    making->indexes = malloc(presence->devices * sizeof(struct rfs_index *));
    if (!keyed || !presence->list_of || !presence->members || !presence->member || !making->indexes)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < presence->devices; rank++) {
        const struct rfs_index *index = index_of(making, rank);
        presence->present += rfs_catalog_has(making->catalog, making->base + rank);
        if (index)
            keyed[n++] = (struct keyed){.index = index, .rank = rank};
    }
    sort_keyed(keyed, n);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || keyed[i].index != keyed[i - 1].index) {
            presence->member[presence->n_lists] = i;
            making->indexes[presence->n_lists++] = keyed[i].index;
        }
        presence->members[i] = keyed[i].rank;
    }
    presence->member[presence->n_lists] = n;
    for (uint32_t rank = 0; rank < presence->devices; rank++)
        presence->list_of[rank] = presence->n_lists;
    for (uint32_t list = 0; list < presence->n_lists; list++)
        for (size_t i = presence->member[list]; i < presence->member[list + 1]; i++)
            presence->list_of[presence->members[i]] = list;
    return 0;
}

/* Counts the ranks that have each name, and lists their indexes. */
static int list_names(const struct making *making, struct rfs_presence *presence)
{
    size_t total = 0;

    presence->n_names = rfs_intern_count(rfs_catalog_tables(making->catalog)->names);
    presence->of = calloc((size_t)presence->n_names + 1, sizeof *presence->of);
    if (!presence->of)
        return -ENOMEM;
    for (uint32_t list = 0; list < presence->n_lists; list++) {
        const struct rfs_index *index = making->indexes[list];
        for (size_t i = 0; i < index->n; i++)
            presence->of[index->entries[i].name].lists++;
        total += index->n;
    }
    presence->lists = malloc(total * sizeof *presence->lists + 1);
    if (!presence->lists)
        return -ENOMEM;
    size_t next = 0;
    for (uint32_t name = 0; name < presence->n_names; name++) {
        presence->of[name].first = next;
        next += presence->of[name].lists;
        presence->of[name].lists = 0;
    }
    for (uint32_t list = 0; list < presence->n_lists; list++) {
        const struct rfs_index *index = making->indexes[list];
        for (size_t i = 0; i < index->n; i++) {
            struct rfs_presence_view *of = &presence->of[index->entries[i].name];
            presence->lists[of->first + of->lists++] = list;
            of->ranks += (uint32_t)(presence->member[list + 1] - presence->member[list]);
        }
    }
    return 0;
}

/* Takes the types from the lowest rank up: each distinct index once, at its lowest rank. */
static void take_types(const struct making *making, struct rfs_presence *presence)
{
    for (uint32_t rank = 0; rank < presence->devices; rank++) {
        const uint32_t list = presence->list_of[rank];
        if (list == presence->n_lists || presence->members[presence->member[list]] != rank)
            continue;
        const struct rfs_index *index = making->indexes[list];
        for (size_t i = 0; i < index->n; i++) {
            struct rfs_presence_view *of = &presence->of[index->entries[i].name];
            if (of->type == RFS_NO_ID)
                of->type = index->entries[i].type;
            of->mixed |= of->type != index->entries[i].type;
        }
    }
}

/*
 * Puts the names in the order of the files. A distinct index adds something only when it comes
 * first.
 */
static int put_in_order(const struct making *making, struct rfs_presence *presence, bool ascending)
{
    size_t most = 0;

    for (uint32_t name = 0; name < presence->n_names; name++)
        most += presence->of[name].ranks > 0;
    presence->order = malloc(most * sizeof *presence->order + 1);
    RFS_FREE unsigned char *taken = calloc((size_t)presence->n_names + 1, 1);
    RFS_FREE unsigned char *seen = calloc((size_t)presence->n_lists + 1, 1);
    if (!presence->order || !taken || !seen)
        return -ENOMEM;
    for (uint32_t k = 0; k < presence->devices; k++) {
        const uint32_t list = presence->list_of[ascending ? k : presence->devices - 1 - k];
        if (list == presence->n_lists || seen[list])
            continue;
        seen[list] = 1;
        const struct rfs_index *index = making->indexes[list];
        for (size_t i = 0; i < index->n; i++) {
            const uint32_t name = index->entries[i].name;
            if (!taken[name])
                presence->order[presence->n++] = name;
            taken[name] = 1;
        }
    }
    return 0;
}

static int make(struct making *making, struct rfs_presence *presence, bool ascending)
{
    int rc = number_lists(making, presence) ?: list_names(making, presence);

    if (rc)
        return rc;
    for (uint32_t name = 0; name < presence->n_names; name++)
        presence->of[name].type = RFS_NO_ID;
    take_types(making, presence);
    return put_in_order(making, presence, ascending);
}

int rfs_presence_make(struct rfs_catalog *catalog, uint32_t base, uint32_t devices, bool ascending,
                      struct rfs_presence **out)
{
    RFS_CLEANUP(presence_cleanup) struct rfs_presence *presence = calloc(1, sizeof *presence);
    struct making making = {catalog, base, NULL};

    *out = NULL;
    if (!presence)
        return -ENOMEM;
    presence->devices = devices;
    const int rc = make(&making, presence, ascending);
    free(making.indexes);
    if (!rc)
        *out = RFS_STEAL(presence);
    return rc;
}

/* Says whether a rank has a name. O(log indexes that list it). */
static bool has_name(const struct rfs_presence *presence, uint32_t name, uint32_t rank)
{
    const struct rfs_presence_view *of = rfs_presence_of(presence, name);
    const uint32_t list = presence->list_of[rank];

    if (!of || list == presence->n_lists)
        return false;
    const uint32_t *lists = &presence->lists[of->first];
    return RFS_BISECT_KEY(i, of->lists, lists[i], list) < of->lists;
}

uint32_t rfs_presence_lowest(const struct rfs_presence *presence, uint32_t name,
                             bool (*fits)(const void *ctx, uint32_t rank), const void *ctx)
{
    const struct rfs_presence_view *of = rfs_presence_of(presence, name);
    uint32_t lowest = RFS_NO_RANK;

    for (uint32_t k = 0; of && k < of->lists; k++) {
        const uint32_t list = presence->lists[of->first + k];
        for (size_t i = presence->member[list];
             i < presence->member[list + 1] && presence->members[i] < lowest; i++)
            if (fits(ctx, presence->members[i])) {
                lowest = presence->members[i];
                break;
            }
    }
    return lowest;
}

/* ---- who gives a piece ----------------------------------------------------------------------- */

/*
 * Without a presence map every rank that has a file counts as having the parameter: planning proves
 * that of the ranks it takes. So a presence map that is made later, for another destination rank,
 * changes no answer.
 */

struct rfs_provider_query rfs_plan_query_of(const struct rfs_planner *planner, uint32_t local,
                                            const struct rfs_target *target)
{
    return (struct rfs_provider_query){
        planner, RFS_PUBLISHED(&planner->stages[target->stage].presence),
        rfs_plan_base(planner, target->stage), target->name, local % planner->scale.src_devices};
}

struct rfs_provider_query rfs_plan_query(const struct rfs_planning *planning,
                                         const struct rfs_stage_use *use, uint32_t name)
{
    return (struct rfs_provider_query){planning->planner, use->presence, use->base, name,
                                       planning->template};
}

uint32_t rfs_plan_base(const struct rfs_planner *planner, uint32_t src_stage)
{
    return planner->scale.src_base + src_stage * planner->scale.src_devices;
}

bool rfs_plan_has(const struct rfs_provider_query *query, uint32_t rank)
{
    if (query->presence)
        return has_name(query->presence, query->name, rank);
    return rfs_catalog_has(query->planner->config.catalog, query->base + rank);
}

bool rfs_plan_holds(const void *ctx, uint32_t rank)
{
    const struct rfs_plan_piece *piece = ctx;

    if (piece->grid)
        return rfs_grid_holder(piece->grid, piece->cell, rank) == rank;
    return !piece->layout || rfs_layout_slice(piece->layout, rank) == piece->slice;
}

uint32_t rfs_plan_first(const struct rfs_provider_query *query, const struct rfs_plan_piece *piece)
{
    return piece->grid ? rfs_grid_holder(piece->grid, piece->cell, query->template)
                       : query->template;
}

/*
 * Returns the lowest rank that holds a piece and has a file. Only its replicas are asked, which are
 * few, where a grid says which they are.
 */
static uint32_t lowest_file(const struct rfs_provider_query *query,
                            const struct rfs_plan_piece *piece)
{
    const uint32_t first = rfs_plan_first(query, piece);
    const uint32_t devices = query->planner->scale.src_devices;

    for (uint32_t k = 0; piece->grid && k < piece->grid->replicas; k++) {
        const uint32_t rank = rfs_grid_replica(piece->grid, first, k);
        if (rfs_plan_has(query, rank))
            return rank;
    }
    for (uint32_t rank = 0; !piece->grid && rank < devices; rank++)
        if (rfs_plan_has(query, rank) && rfs_plan_holds(piece, rank))
            return rank;
    return RFS_NO_RANK;
}

uint32_t rfs_plan_provider(const struct rfs_provider_query *query,
                           const struct rfs_plan_piece *piece)
{
    uint32_t rank = rfs_plan_first(query, piece);

    if (!rfs_plan_has(query, rank))
        rank = query->presence
                   ? rfs_presence_lowest(query->presence, query->name, rfs_plan_holds, piece)
                   : lowest_file(query, piece);
    return rank == RFS_NO_RANK ? RFS_NO_RANK : query->base + rank;
}
