/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks of a source stage a destination rank takes its parameters from. The types and the
 * strategies give the geometries, those give the cells, and each cell has a provider.
 *
 * Where all files of the stage list the same parameters, all parameters of one geometry come from
 * the same ranks. Where they do not, each is looked up by itself.
 *
 * Ranks that would give parameters left out by the user's map are marked as well, as the order of
 * the rest may be theirs; errors of these parameters are ignored.
 */
#include "plan/converted.h"
#include "plan/internal.h"

#define RANKS_SHOWN 6

struct rank_names {
    char text[160];
    size_t used;
    uint32_t n;
};

static void add_rank(struct rank_names *names, uint32_t rank)
{
    if (names->n < RANKS_SHOWN)
        names->used += (size_t)snprintf(names->text + names->used, sizeof names->text - names->used,
                                        "%srank_%u", names->n > 0 ? ", " : "", rank);
    else if (names->n == RANKS_SHOWN)
        snprintf(names->text + names->used, sizeof names->text - names->used, ", …");
    names->n++;
}

/*
 * A file that should have it and is empty was probably truncated: its own failure is more precise.
 */
static int report_empty(const struct planning *planning, uint32_t rank)
{
    const struct rfs_index *index;
    return rfs_catalog_index(planning->planner->config.catalog, rank, RFS_NO_RANK, &index,
                             planning->err);
}

/* No rank gives PIECE: none that holds it has a file, or those that have one lack the parameter. */
static int nobody_gives(const struct planning *planning,
                        const struct provider_query *provider_query, const struct piece *piece)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    const char *param = rfs_catalog_name(catalog, provider_query->name);
    const struct rfs_where where = RFS_OF(rfs_catalog_path(catalog), param);
    struct rank_names names = {.n = 0};
    uint32_t lost = 0;
    uint32_t empty = RFS_NO_RANK;

    for (uint32_t rank = 0; rank < planning->planner->scale.src_devices; rank++)
        if (rfs_plan_holds(piece, rank)) {
            add_rank(&names, provider_query->base + rank);
            lost += !rfs_catalog_has(catalog, provider_query->base + rank);
            empty = rfs_catalog_is_empty(catalog, provider_query->base + rank)
                        ? provider_query->base + rank
                        : empty;
        }
    const int rc = empty == RFS_NO_RANK ? 0 : report_empty(planning, empty);
    if (rc)
        return rc;
    if (lost == names.n)
        return rfs_fail(
            planning->err, -ENOENT, where, "the checkpoint of that rank",
            "rank_%u holds a slice that rank_%u of the destination needs, but its "
            "checkpoint is missing and %s",
            provider_query->base + rfs_plan_first(provider_query, piece), planning->rank,
            names.n > 1 ? "so are those of its replicas" : "no other rank holds the same slice");
    return rfs_fail(planning->err, lost > 0 ? -ENOENT : -EINVAL, where,
                    "the checkpoints as they were saved",
                    "rank_%u of the destination needs the slice of %s, which %s, though other "
                    "ranks have theirs: a hole that no replica fills",
                    planning->rank, names.text,
                    lost > 0      ? "have no checkpoint or none with it"
                    : names.n > 1 ? "do not have it"
                                  : "does not have it");
}

/* Fails, or notes the parameter and goes on. */
static int lose_param(const struct planning *planning, const struct provider_query *provider_query,
                      const struct piece *piece)
{
    const struct rfs_planner *planner = planning->planner;

    if (!planner->config.lacking && !planner->config.incomplete)
        return nobody_gives(planning, provider_query, piece);
    return rfs_plan_lack(planner, provider_query->name,
                         provider_query->base + rfs_plan_first(provider_query, piece))
               ? rfs_fail_memory(planning->err)
               : 0;
}

/* Once for each source rank, however many files take its replica. */
static void report_replica(const struct planning *planning,
                           const struct provider_query *provider_query, const struct piece *piece,
                           uint32_t used)
{
    const struct rfs_planner *planner = planning->planner;
    const uint32_t lost = provider_query->base + rfs_plan_first(provider_query, piece);

    if (lost != used && !rfs_catalog_has(planner->config.catalog, lost) &&
        !atomic_exchange(&planner->lost[lost - rfs_plan_base(planner, 0)], true))
        rfs_log(planner->config.log, RFS_WARNING,
                "rank_%u is missing; its slices are read from a replica, rank_%u", lost, used);
}

int rfs_plan_types_differ(const struct planning *planning, uint32_t name, uint32_t rank,
                          uint32_t other)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    return rfs_fail(planning->err, -EINVAL,
                    RFS_OF(rfs_plan_path(planning, rank), rfs_catalog_name(catalog, name)),
                    "checkpoints of one save",
                    "has another shape or dtype than its slice in %s, a rank of the same stage",
                    rfs_plan_path(planning, other));
}

/* TYPE is that of the lowest rank that has the parameter. */
static int check_type(const struct planning *planning, const struct stage_use *use,
                      const struct provider_query *provider_query, uint32_t rank, uint32_t type)
{
    static const struct piece any = {NULL, NULL, NULL, 0};
    /* of a presence map, which outlives it: it may have been dropped */
    const struct rfs_index *index;
    const int rc = rfs_catalog_index(planning->planner->config.catalog, rank, use->lead, &index,
                                     planning->err);
    if (rc)
        return rc;
    const struct rfs_entry *entry = rfs_index_find(index, provider_query->name);

    if (entry && entry->type == type)
        return 0;
    return rfs_plan_types_differ(
        planning, provider_query->name, rank,
        provider_query->base + rfs_presence_lowest(provider_query->presence, provider_query->name,
                                                   rfs_plan_holds, &any));
}

/* The need of ranks that give a parameter with that role. */
static unsigned char use_of(const struct rfs_role *role)
{
    return role->shown ? PROVIDES : ORDERS;
}

/* Marks the ranks that give the cells of one geometry, which is that of slices of TYPE. */
static int want_cells(struct planning *planning, struct stage_use *use,
                      const struct provider_query *provider_query, const struct rfs_role *role,
                      const struct rfs_geometry *geometry, uint32_t type)
{
    const struct rfs_presence_view *of =
        use->presence ? rfs_presence_of(use->presence, provider_query->name) : NULL;
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];

    rfs_geometry_cells(geometry, planning->local, &cells, cell);
    do {
        const struct piece piece = rfs_piece_cell(geometry, cell);
        const uint32_t rank = rfs_plan_provider(provider_query, &piece);
        if (rank != RFS_NO_RANK)
            use->wanted[rank - use->base] |= PROBED | use_of(role);
        if (!role->shown)
            continue;
        if (rank == RFS_NO_RANK)
            return lose_param(planning, provider_query, &piece);
        report_replica(planning, provider_query, &piece, rank);
        const bool alike = !of || !of->mixed || geometry->src.edge;
        const int rc = alike ? 0 : check_type(planning, use, provider_query, rank, type);
        if (rc)
            return rc;
    } while (rfs_cells_next(geometry, &cells, cell));
    return 0;
}

/* Whether the ranks that give a parameter are those of its geometry, whatever its name. */
static bool as_its_geometry(const struct stage_use *use, uint32_t name)
{
    const struct rfs_presence_view *of =
        use->presence ? rfs_presence_of(use->presence, name) : NULL;
    return !of || (of->ranks == use->presence->present && !of->mixed);
}

/* Errors of a parameter that is left out are ignored. */
static int forgive(const struct planning *planning)
{
    if (planning->err)
        *planning->err = (struct rfs_error){0};
    return 0;
}

static int want_sliced(struct planning *planning, struct stage_use *use,
                       const struct provider_query *provider_query, const struct rfs_role *role)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t name = provider_query->name;
    struct origin *origin = &planning->origins[name];
    const struct rfs_type *slice = rfs_catalog_type(catalog, origin->type);
    const bool shared = as_its_geometry(use, name);

    if (slice->kind != RFS_TENSOR && !role->shown)
        return 0;
    if (slice->kind != RFS_TENSOR)
        return rfs_fail(planning->err, -EINVAL,
                        RFS_OF(rfs_plan_path(planning, use->lead), rfs_catalog_name(catalog, name)),
                        "a strategy without this parameter, or -o names= with a map that gives "
                        "it null, which leaves it out",
                        "is a %s, but the strategies cut it as a tensor",
                        slice->kind == RFS_STRING ? "string" : "map tensor");
    if (slice->bytes == 0)
        return 0;
    int rc = rfs_plan_geometry(planner, role, origin->type, name, &origin->geometry, planning->err);
    const uint32_t id = origin->geometry;
    if (rc)
        return role->shown || rc == -ENOMEM ? rc : forgive(planning);
    while (planning->seen.n <= id)
        if (!RFS_PUSH(&planning->seen, 0))
            return rfs_fail_memory(planning->err);
    if (shared && planning->seen.data[id] >= use_of(role))
        return 0;
    rc = want_cells(planning, use, provider_query, role, rfs_plan_geometry_at(planner, id),
                    origin->type);
    const bool whole =
        !rfs_plan_is_lacking(planner, name) && !rfs_plan_is_incomplete(planner, name);
    if (!rc && shared && whole) /* each that is not is noted */
        planning->seen.data[id] |= use_of(role);
    return rc;
}

static int want_copied(struct planning *planning, struct stage_use *use,
                       const struct provider_query *provider_query, const struct rfs_role *role)
{
    const struct piece piece = rfs_piece_slice(role->src, planning->template);
    const uint32_t from = rfs_plan_provider(provider_query, &piece);

    if (from == RFS_NO_RANK)
        return role->shown ? lose_param(planning, provider_query, &piece) : 0;
    use->wanted[from - use->base] |= PROBED | use_of(role);
    if (from == use->base + planning->template)
        return 0;
    if (role->src && role->shown)
        report_replica(planning, provider_query, &piece, from);
    for (uint32_t rank = 0; !role->src && rank < planning->planner->scale.src_devices; rank++)
        if (rfs_plan_has(provider_query, rank))
            use->wanted[rank] |= PROBED | use_of(role); /* to be compared; replicas.c */
    return 0;
}

/* Fails, or goes without what conversion rules make of SOURCE, a tensor that is not complete. */
static int lose_made(const struct planning *planning, uint32_t name, uint32_t source)
{
    const struct rfs_planner *planner = planning->planner;
    const char *made = rfs_catalog_name(planner->config.catalog, name);

    if (!planner->config.lacking)
        return rfs_plan_fail_made(planner, made, source, planning->err);
    return rfs_plan_lack(planner, name, rfs_by_rules_lost(planner->config.converted, source))
               ? rfs_fail_memory(planning->err)
               : 0;
}

static int want_param(struct planning *planning, uint32_t s, uint32_t name)
{
    struct rfs_planner *planner = planning->planner;
    struct stage_use *use = &planning->stages[s];

    if (planning->origins[name].stage != s)
        return 0;
    const struct provider_query provider_query = rfs_plan_query(planning, use, name);
    const struct rfs_role role = rfs_plan_role(planner, name, s, planning->stage);
    if (role.kind == RFS_ROLE_DROPPED)
        return 0;
    uint32_t source;
    if (role.shown && rfs_by_rules_needs_lost(planner->config.converted, name, &source))
        return lose_made(planning, name, source);
    return rfs_plan_is_cut(&role,
                           rfs_catalog_type(planner->config.catalog, planning->origins[name].type))
               ? want_sliced(planning, use, &provider_query, &role)
               : want_copied(planning, use, &provider_query, &role);
}

int rfs_plan_need(struct planning *planning, uint32_t s)
{
    struct stage_use *use = &planning->stages[s];
    const struct rfs_presence *presence = use->presence;
    int rc = 0;

    planning->seen.n = 0;
    memset(use->wanted, 0, planning->planner->scale.src_devices);
    for (size_t i = 0; presence && !rc && i < presence->n; i++)
        rc = want_param(planning, s, presence->order[i]);
    if (presence)
        return rc;
    use->wanted[use->lead - use->base] = PROBED | PROVIDES;
    for (size_t i = 0; !rc && i < use->lead_index->n; i++)
        rc = want_param(planning, s, use->lead_index->entries[i].name);
    return rc;
}
