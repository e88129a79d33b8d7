/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which source ranks a destination rank needs, and their headers.
 *
 * In each needed stage one rank leads: its headers have the types, the types and the strategies
 * give the geometries, and those give the other ranks. Their headers are then read in parallel,
 * predicted from the lead's, and must list the same parameters with the same types as the lead's: a
 * slice of another size or a parameter that is not there would be a hole in the destination.
 *
 * After remove_redundancy the files of a stage list different parameters. So
 *
 * - a parameter of the strategy that the lead lacks is believed to be nowhere in the stage only
 *   when the other ranks that hold the lead's slice lack it, too: these are probed.
 * - a presence map (replicas.h) says which rank has which parameter when not all files that are
 *   looked at list the same (one may list nothing), when one says that redundancy was removed, or
 *   when the files of the stage are not all of one size. It is made from the files of all ranks of
 *   the stage, once for all destination ranks.
 *
 * When the lead has all that the strategy knows and the ranks that give something list the same, no
 * other file has to be looked at: they have each slice that is needed. (A parameter that no
 * strategy knows counts only when a rank has it that is looked at, as with MindSpore, which loads
 * no other.)
 *
 * All this depends on the files and on the destination rank, never on which ranks were planned
 * before.
 */
#include "plan/by_rules.h"
#include "plan/internal.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/store.h"
#include "base/text.h"

#include <sys/stat.h>

static const char *path_of(const struct rfs_planning *planning, uint32_t rank)
{
    struct rfs_catalog *catalog = planning->catalog;
    return rfs_files_path(rfs_catalog_files(catalog), rfs_catalog_file(catalog, rank));
}

/*
 * Refuses a parameter that is cut, and whose slice in RANK is not of the same type as that in
 * OTHER, both global ranks of one stage. -EINVAL.
 */
static int types_differ(const struct rfs_planning *planning, uint32_t name, uint32_t rank,
                        uint32_t other)
{
    return rfs_fail(planning->err, -EINVAL,
                    RFS_OF(path_of(planning, rank), rfs_catalog_name(planning->catalog, name)),
                    "checkpoints of one save",
                    "has another shape or dtype than its slice in %s, a rank of the same stage",
                    path_of(planning, other));
}

/*
 * Sets stages[s].needed for each source stage s whose files a destination stage takes something
 * from.
 */
static void find_needed_stages(const struct rfs_planner *planner, uint32_t dst_stage,
                               struct rfs_stage_use *stages)
{
    const struct rfs_role_rules rules = rfs_plan_rules(planner);

    if (!rules.src || planner->by_stage) {
        stages[0].needed = true;
        return;
    }
    uint32_t left = planner->scale.src_stages;
    for (size_t i = 0; left > 0 && i < rfs_strategy_count(rules.src); i++) {
        if (!rfs_role_is_needed(&rules, &planner->params[i], dst_stage))
            continue;
        for (uint32_t s = rfs_strategy_next_stage(rules.src, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(rules.src, i, s + 1)) {
            left -= !stages[s].needed;
            stages[s].needed = true;
        }
    }
}

/* ---- the sizes of files ---------------------------------------------------------------------- */

enum { SIZES_UNKNOWN, SIZES_SAME, SIZES_DIFFER };

/*
 * Gives the bytes of a rank's files. False when they cannot be examined: reading them reports the
 * reason.
 */
static bool rank_bytes(struct rfs_catalog *catalog, uint32_t rank, uint64_t *bytes)
{
    struct rfs_files *files = rfs_catalog_files(catalog);

    *bytes = 0;
    for (uint32_t part = 0; part < rfs_catalog_file_count(catalog, rank); part++) {
        const uint32_t id = rfs_catalog_file(catalog, rank) + part;
        struct stat st;
        int rc;
        if (rfs_files_leads_home(files, id))
            return false;
        do
            rc = rfs_cancelled()
                     ? -EINTR
                     : rfs_store_stat(rfs_files_store(files), rfs_files_path(files, id), &st);
        while (rc == -EINTR && !rfs_cancelled());
        if (rc != 0)
            return false;
        *bytes += (uint64_t)st.st_size;
    }
    return true;
}

struct looking {
    struct rfs_catalog *catalog;
    uint32_t base;
};

/* Asks for a size ahead: the store keeps the answer for the question that follows. */
static int ask_size(void *ctx, size_t i)
{
    const struct looking *looking = ctx;
    uint64_t bytes;

    if (rfs_catalog_has(looking->catalog, looking->base + (uint32_t)i))
        rank_bytes(looking->catalog, looking->base + (uint32_t)i, &bytes);
    return 0;
}

/*
 * Says whether the ranks of a source stage have files of different sizes. Slices of a tensor are of
 * one size, so files of one save that list the same parameters are too, as a rule; where they are
 * not, they may list different ones. That costs a stat for each rank, once, and finds removed
 * redundancy before anything is read. (It proves nothing by itself: files of one size may list
 * different parameters, and sizes give no more than a hint.)
 */
static bool sizes_differ(struct rfs_planner *planner, uint32_t s)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t base = rfs_plan_base(planner, s);
    const int known = atomic_load(&planner->stages[s].sizes);
    uint64_t first = 0;
    uint64_t bytes;
    bool any = false;
    bool differ = false;

    if (known != SIZES_UNKNOWN)
        return known == SIZES_DIFFER;
    if (rfs_pool_expects_waits(planner->config.pool))
        rfs_pool_for(planner->config.pool, planner->scale.src_devices, ask_size,
                     &(struct looking){catalog, base});
    for (uint32_t rank = base; !differ && rank < base + planner->scale.src_devices; rank++) {
        if (!rfs_catalog_has(catalog, rank) || !rank_bytes(catalog, rank, &bytes))
            continue;
        differ = any && bytes != first;
        first = bytes;
        any = true;
    }
    if (!rfs_cancelled())
        atomic_store(&planner->stages[s].sizes, differ ? SIZES_DIFFER : SIZES_SAME);
    return differ;
}

/* ---- the rank that leads a stage ------------------------------------------------------------- */

/*
 * Returns the rank that leads its stage: the one that MindSpore takes this rank for, or the highest
 * that has a file.
 */
static uint32_t choose_lead(const struct rfs_planning *planning, uint32_t base)
{
    uint32_t local = planning->devices;

    if (rfs_catalog_has(planning->catalog, base + planning->template))
        return base + planning->template;
    while (local-- > 0)
        if (rfs_catalog_has(planning->catalog, base + local))
            return base + local;
    return RFS_NO_RANK;
}

/*
 * Notes a file that cannot be read, where the plan may go without: 0; else the file's error, or
 * -ENOMEM.
 */
static int pass_over(const struct rfs_planner *planner, uint32_t rank, int rc)
{
    struct rfs_lacking *lacking = planner->config.lacking;

    if (rc == 0 || rc == -ENOMEM || rc == -EINTR || planner->config.lost != RFS_LOST_LEFT_OUT)
        return rc;
    return rfs_lacking_file(lacking, rank) || RFS_PUSH(&lacking->damaged, rank) ? 0 : -ENOMEM;
}

/*
 * Notes the parameters of a stage without files, which only the strategy knows: those that no other
 * stage has. 0 or -ENOMEM.
 */
static int lack_stage(const struct rfs_planning *planning, uint32_t s)
{
    const struct rfs_strategy *src = planning->planner->config.src;
    struct rfs_intern *names = rfs_catalog_tables(planning->planner->config.catalog)->names;

    for (size_t i = 0; src && i < rfs_strategy_count(src); i++) {
        const char *param = rfs_strategy_param(src, i);
        const uint32_t first = rfs_strategy_next_stage(src, i, 0);
        if (first != s || rfs_strategy_next_stage(src, i, s + 1) != RFS_NO_STAGE)
            continue;
        const uint32_t name = rfs_intern_add(names, param, strlen(param));
        if (name == RFS_NO_ID || rfs_plan_lack(planning->planner, name, planning->stages[s].base))
            return -ENOMEM;
    }
    return 0;
}

/*
 * Goes without a stage that has no readable file, for the reason WHY, if the plan may, and it is
 * not the last one.
 */
static int lose_stage(struct rfs_planning *planning, uint32_t s, const struct rfs_error *why)
{
    bool last = true;

    for (uint32_t other = 0; other < planning->n_stages; other++)
        last = last && (other == s || !planning->stages[other].needed);
    if (last || planning->planner->config.lost != RFS_LOST_LEFT_OUT) {
        *planning->err = *why;
        return why->code;
    }
    planning->stages[s].needed = false;
    planning->stages[s].differs = false;
    return lack_stage(planning, s) ? rfs_fail_memory(planning->err) : 0;
}

/* Reads the headers of the rank that leads a stage, which is chosen already. */
static int index_lead(struct rfs_planning *planning, uint32_t s, struct rfs_error *err)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_stage_use *use = &planning->stages[s];
    uint32_t first = atomic_load(&planner->stages[s].lead);
    const int rc =
        rfs_catalog_index(planner->config.catalog, use->lead, first, &use->lead_index, err);

    if (!rc && first == RFS_NO_RANK)
        atomic_compare_exchange_strong(&planner->stages[s].lead, &first, use->lead);
    return rc;
}

static int lead_stage(struct rfs_planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_stage_use *use = &planning->stages[s];

    use->base = rfs_plan_base(planner, s);
    use->wanted = calloc(planner->scale.src_devices, 1);
    if (!use->wanted)
        return rfs_fail_memory(planning->err);
    use->lead = choose_lead(planning, use->base);
    struct rfs_error err = {0};
    if (use->lead == RFS_NO_RANK) {
        rfs_fail(&err, -ENOENT, RFS_IN(rfs_catalog_path(planner->config.catalog)),
                 rfs_plan_looks_swapped(planner) ? RFS_PLAN_SWAPPED
                                                 : "the rank folders of this stage",
                 "rank_%u to rank_%u, pipeline stage %u, are all missing", use->base,
                 use->base + planner->scale.src_devices - 1, s);
        return lose_stage(planning, s, &err);
    }
    const int rc = index_lead(planning, s, &err);
    const bool empty = rc && rfs_catalog_is_empty(planner->config.catalog, use->lead);
    const int fatal = empty ? 0 : pass_over(planner, use->lead, rc);
    if (fatal) {
        *planning->err = err;
        return fatal;
    }
    if (planner->scale.src_devices == 1)
        return rc ? lose_stage(planning, s, &err) : 0;
    use->differs = rc || use->lead_index->redundancy_removed;
    use->hinted = !use->differs && sizes_differ(planner, s);
    use->differs |= use->hinted;
    return 0;
}

static int find_origins(struct rfs_planning *planning)
{
    free(planning->origins);
    planning->n_names = rfs_intern_count(rfs_catalog_tables(planning->catalog)->names);
    planning->origins = malloc(planning->n_names * sizeof *planning->origins + 1);
    if (!planning->origins)
        return rfs_fail_memory(planning->err);
    for (uint32_t i = 0; i < planning->n_names; i++)
        planning->origins[i] = (struct rfs_plan_origin){RFS_NO_STAGE, RFS_NO_ID, RFS_NO_ID};
    for (uint32_t s = planning->n_stages; s-- > 0;) {
        const struct rfs_stage_use *use = &planning->stages[s];
        if (!use->needed)
            continue;
        for (size_t i = 0; use->presence && i < use->presence->n; i++) {
            const uint32_t name = use->presence->order[i];
            planning->origins[name] =
                (struct rfs_plan_origin){s, use->presence->of[name].type, RFS_NO_ID};
        }
        for (size_t i = 0; !use->presence && i < use->lead_index->n; i++) {
            const struct rfs_entry *entry = &use->lead_index->entries[i];
            planning->origins[entry->name] = (struct rfs_plan_origin){s, entry->type, RFS_NO_ID};
        }
    }
    return 0;
}

/* ---- the ranks that give something ----------------------------------------------------------- */

#define RANKS_SHOWN 6
#define NAMES_SHOWN 5

static void add_rank(struct rfs_text_names *names, size_t most, uint32_t rank)
{
    char name[16];

    snprintf(name, sizeof name, "rank_%u", rank);
    rfs_text_add_name(names, most, name);
}

/*
 * Fails with the error of an empty file that should have a parameter. It was probably truncated, so
 * its own failure is more precise.
 */
static int fail_empty(const struct rfs_planning *planning, uint32_t rank)
{
    const struct rfs_index *index;
    return rfs_catalog_index(planning->catalog, rank, RFS_NO_RANK, &index, planning->err);
}

/*
 * Refuses a piece that no rank gives: none that holds it has a file, or those that have one lack
 * the parameter.
 */
static int nobody_gives(const struct rfs_planning *planning, const struct rfs_provider_query *query,
                        const struct rfs_plan_piece *piece)
{
    struct rfs_catalog *catalog = planning->catalog;
    const char *param = rfs_catalog_name(catalog, query->name);
    const struct rfs_where where = RFS_OF(rfs_catalog_path(catalog), param);
    struct rfs_text_names names = {.n = 0};
    uint32_t lost = 0;
    uint32_t empty = RFS_NO_RANK;

    for (uint32_t rank = 0; rank < planning->devices; rank++)
        if (rfs_plan_holds(piece, rank)) {
            add_rank(&names, RANKS_SHOWN, query->base + rank);
            lost += !rfs_catalog_has(catalog, query->base + rank);
            empty = rfs_catalog_is_empty(catalog, query->base + rank) ? query->base + rank : empty;
        }
    const int rc = empty == RFS_NO_RANK ? 0 : fail_empty(planning, empty);
    if (rc)
        return rc;
    if (lost == names.n)
        return rfs_fail(planning->err, -ENOENT, where, "the checkpoint of that rank",
                        "rank_%u holds a slice that rank_%u of the destination needs, but its "
                        "checkpoint is missing and %s",
                        query->base + rfs_plan_first(query, piece), planning->rank,
                        names.n > 1 ? "so are those of its replicas"
                                    : "no other rank holds the same slice");
    return rfs_fail(planning->err, lost > 0 ? -ENOENT : -EINVAL, where,
                    "the checkpoints as they were saved",
                    "rank_%u of the destination needs the slice of %s, which %s, though other "
                    "ranks have theirs: a hole that no replica fills",
                    planning->rank, names.text,
                    lost > 0      ? "have no checkpoint or none with it"
                    : names.n > 1 ? "do not have it"
                                  : "does not have it");
}

/* Refuses a parameter with a piece that no rank gives, or notes it and goes on. */
static int lose_param(const struct rfs_planning *planning, const struct rfs_provider_query *query,
                      const struct rfs_plan_piece *piece)
{
    if (!planning->planner->config.lacking)
        return nobody_gives(planning, query, piece);
    return rfs_plan_lack(planning->planner, query->name, query->base + rfs_plan_first(query, piece))
               ? rfs_fail_memory(planning->err)
               : 0;
}

/* Makes a note on a lost rank, once, however many files take its replica. */
static void note_replica(const struct rfs_planning *planning,
                         const struct rfs_provider_query *query, const struct rfs_plan_piece *piece,
                         uint32_t used)
{
    const uint32_t lost = query->base + rfs_plan_first(query, piece);

    if (lost != used && !rfs_catalog_has(planning->planner->config.catalog, lost) &&
        rfs_notes_are_new(planning->planner, RFS_NOTE_REPLICA, lost))
        rfs_notes_add(planning->planner, RFS_NOTE_REPLICA, RFS_WARNING,
                      "rank_%u is missing; its slices are read from a replica, rank_%u", lost,
                      used);
}

/* Compares the type of a parameter in RANK with TYPE, that of the lowest rank that has it. */
static int check_type(const struct rfs_planning *planning, const struct rfs_stage_use *use,
                      const struct rfs_provider_query *query, uint32_t rank, uint32_t type)
{
    static const struct rfs_plan_piece any = {NULL, NULL, NULL, 0};
    /* The presence map outlives the index, which may have been dropped. */
    const struct rfs_index *index;
    const int rc = rfs_catalog_index(planning->catalog, rank, use->lead, &index, planning->err);
    if (rc)
        return rc;
    const struct rfs_entry *entry = rfs_index_find(index, query->name);

    if (entry && entry->type == type)
        return 0;
    return types_differ(
        planning, query->name, rank,
        query->base + rfs_presence_lowest(query->presence, query->name, rfs_plan_holds, &any));
}

/* Returns the bit of ranks that give a parameter with that role. */
static unsigned char use_of(const struct rfs_role *role)
{
    return role->shown ? RFS_PROVIDES : RFS_ORDERS;
}

/* Marks the ranks that give the cells of one geometry, which is that of slices of TYPE. */
static int want_cells(struct rfs_planning *planning, struct rfs_stage_use *use,
                      const struct rfs_provider_query *query, const struct rfs_role *role,
                      const struct rfs_geometry *geometry, uint32_t type)
{
    const struct rfs_presence_view *of =
        use->presence ? rfs_presence_of(use->presence, query->name) : NULL;
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];

    planning->wants = true;
    rfs_geometry_cells(geometry, planning->local, &cells, cell);
    do {
        const struct rfs_plan_piece piece = rfs_plan_piece_cell(geometry, cell);
        const uint32_t rank = rfs_plan_provider(query, &piece);
        if (rank != RFS_NO_RANK)
            use->wanted[rank - use->base] |= RFS_PROBED | use_of(role);
        if (!role->shown)
            continue;
        if (rank == RFS_NO_RANK)
            return lose_param(planning, query, &piece);
        note_replica(planning, query, &piece, rank);
        const bool alike = !of || !of->mixed || geometry->src.edge;
        const int rc = alike ? 0 : check_type(planning, use, query, rank, type);
        if (rc)
            return rc;
    } while (rfs_geometry_cells_next(geometry, &cells, cell));
    return 0;
}

/*
 * Says whether a parameter comes from the same ranks as all others of its geometry: yes where all
 * files of the stage list it with one type. Else it is looked up by itself.
 */
static bool as_its_geometry(const struct rfs_stage_use *use, uint32_t name)
{
    const struct rfs_presence_view *of =
        use->presence ? rfs_presence_of(use->presence, name) : NULL;
    return !of || (of->ranks == use->presence->present && !of->mixed);
}

static int want_sliced(struct rfs_planning *planning, struct rfs_stage_use *use,
                       const struct rfs_provider_query *query, const struct rfs_role *role)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_catalog *catalog = planner->config.catalog;
    const uint32_t name = query->name;
    struct rfs_plan_origin *origin = &planning->origins[name];
    const struct rfs_type *slice = rfs_catalog_type(catalog, origin->type);
    const bool shared = as_its_geometry(use, name);

    if (slice->kind != RFS_TENSOR && !role->shown)
        return 0;
    if (slice->kind != RFS_TENSOR)
        return rfs_fail(planning->err, -EINVAL,
                        RFS_OF(path_of(planning, use->lead), rfs_catalog_name(catalog, name)),
                        "a strategy without this parameter, or -o names= with a map that gives "
                        "it null, which leaves it out",
                        "is a %s, but the strategies cut it as a tensor",
                        slice->kind == RFS_STRING ? "string" : "map tensor");
    if (slice->bytes == 0)
        return 0;
    int rc = rfs_plan_geometry(planner, role, origin->type, name, &origin->geometry, planning->err);
    const uint32_t id = origin->geometry;
    if (rc && !role->shown && rc != -ENOMEM) {
        *planning->err = (struct rfs_error){0}; /* it is left out */
        return 0;
    }
    if (rc)
        return rc;
    unsigned char *seen = RFS_VEC_AT(&planning->seen, id, 0);
    if (!seen)
        return rfs_fail_memory(planning->err);
    if (shared && *seen >= use_of(role))
        return 0;
    rc = want_cells(planning, use, query, role, rfs_plan_geometry_at(planner, id), origin->type);
    const bool whole = !rfs_plan_is_lost(planner, name, planner->config.lost);
    if (!rc && shared && whole) /* each that is not whole is noted by itself */
        *seen |= use_of(role);
    return rc;
}

static int want_copied(struct rfs_planning *planning, struct rfs_stage_use *use,
                       const struct rfs_provider_query *query, const struct rfs_role *role)
{
    const struct rfs_plan_piece piece = rfs_plan_piece_slice(role->src, planning->template);
    const uint32_t from = rfs_plan_provider(query, &piece);

    planning->wants = true;
    if (from == RFS_NO_RANK)
        return role->shown ? lose_param(planning, query, &piece) : 0;
    use->wanted[from - use->base] |= RFS_PROBED | use_of(role);
    if (from == use->base + planning->template)
        return 0;
    if (role->src && role->shown)
        note_replica(planning, query, &piece, from);
    for (uint32_t rank = 0; !role->src && rank < planning->devices; rank++)
        if (rfs_plan_has(query, rank))
            use->wanted[rank] |= RFS_PROBED | use_of(role); /* to be compared */
    return 0;
}

static int want_param(struct rfs_planning *planning, uint32_t s, uint32_t name)
{
    struct rfs_stage_use *use = &planning->stages[s];

    if (planning->origins[name].stage != s)
        return 0;
    const struct rfs_provider_query query = rfs_plan_query(planning, use, name);
    const struct rfs_role role = rfs_plan_role(planning->planner, name, s, planning->stage);
    if (role.kind == RFS_ROLE_DROPPED)
        return 0;
    uint32_t source;
    if (role.shown && rfs_by_rules_needs_lost(planning->planner->config.by_rules, name, &source))
        return rfs_by_rules_lose(planning->planner, name, source, planning->err);
    return rfs_plan_is_cut(&role, rfs_catalog_type(planning->planner->config.catalog,
                                                   planning->origins[name].type))
               ? want_sliced(planning, use, &query, &role)
               : want_copied(planning, use, &query, &role);
}

/*
 * Marks the ranks of a stage that parameters come from. The types and the strategies give the
 * geometries, those give the cells, and each cell has a provider. Ranks that would give parameters
 * left out by the user's map are marked as well, as the order of the rest may be theirs; errors of
 * these parameters are ignored.
 */
static int mark_needed(struct rfs_planning *planning, uint32_t s)
{
    struct rfs_stage_use *use = &planning->stages[s];
    const struct rfs_sibling_stage *like = planning->sibling ? &planning->sibling->stages[s] : NULL;
    const size_t n = like ? like->n : rfs_stage_use_count(use);
    int rc = 0;

    planning->seen.n = 0;
    use->wants.n = 0;
    memset(use->wanted, 0, planning->devices);
    if (!use->presence)
        use->wanted[use->lead - use->base] = RFS_PROBED | RFS_PROVIDES;
    for (size_t i = 0; !rc && i < n; i++) {
        const uint32_t name = like ? like->names[i] : rfs_stage_use_name(use, i);
        planning->wants = false;
        rc = want_param(planning, s, name);
        if (!rc && planning->wants && !like && !RFS_PUSH(&use->wants, name))
            rc = rfs_fail_memory(planning->err);
    }
    return rc;
}

/* ---- parameters that the lead lacks ---------------------------------------------------------- */

/* Says whether a parameter is an accumulated gradient, which is never saved. */
static bool is_gradient(const char *param)
{
    return strncmp(param, "accu_grads", 10) == 0;
}

#define PROBES ((size_t)1 << 16)
#define PROBES_LEAST 32 /* of one file */

/*
 * Probing: parameters of the strategy that the lead of a stage lacks. Gradients and moments often
 * are in strategies and not in files; after remove_redundancy another rank has them. So the other
 * ranks that hold the lead's slice are probed: when all of them list the lead's parameters, no rank
 * has that slice.
 *
 * To prove that it is nowhere, and not lost with a rank that kept it, takes more: ranks that hold
 * another slice are probed too, and where a holder of the lead's slice is lost, or shows another
 * rank's file, all ranks of the stage.
 *
 * A parameter that the network does not cut is held by all ranks of the stage, and to read all
 * headers of 1,024 files of 10,000 parameters takes ten million reads. So no more than PROBES
 * headers are read for this (one in 160 then): files that are of one size, end in the same way and
 * have the same headers in the same places, from the first to the last, are taken to be the same in
 * between. That is no proof: a note names the parameters that are left out because of it. Small
 * stages, those in formats with all headers in one place, and strict ones are looked at in full.
 */
struct asking {
    struct rfs_planning *planning;
    struct rfs_stage_use *use;
    unsigned char *look;           /* [src_devices] ranks to be looked at */
    size_t n;                      /* number of those ranks */
    bool all;                      /* all ranks are to be looked at */
    size_t samples;                /* number of headers that are read of each file */
    struct rfs_text_names lacking; /* parameters */
};

static void look_at(struct asking *asking, uint32_t rank)
{
    const uint32_t base = asking->use->base;

    if (asking->look[rank] || base + rank == asking->use->lead ||
        !rfs_catalog_has(asking->planning->catalog, base + rank))
        return;
    asking->look[rank] = 1;
    asking->n++;
}

/* Says whether parameters that RANK kept may be gone. */
static bool is_lost(const struct asking *asking, uint32_t rank)
{
    const struct rfs_catalog *catalog = asking->planning->catalog;
    const uint32_t global = asking->use->base + rank;

    return !rfs_catalog_has(catalog, global) || rfs_catalog_stands_in(catalog, global);
}

/*
 * Adds the ranks that hold the lead's slice by LAYOUT and, if that is not the lead alone, those of
 * another slice.
 */
static void add_replicas(struct asking *asking, const struct rfs_layout *layout)
{
    const uint32_t lead = asking->use->lead - asking->use->base;
    const uint32_t slice = rfs_layout_slice(layout, lead);
    uint32_t other = slice;
    bool alone = true;

    for (uint32_t rank = 0; rank < layout->devices; rank++) {
        const uint32_t held = rfs_layout_slice(layout, rank);
        if (held != slice) {
            other = other == slice ? held : other;
            continue;
        }
        alone = alone && rank == lead;
        asking->all = asking->all || is_lost(asking, rank);
        look_at(asking, rank);
    }
    for (uint32_t rank = 0; !alone && other != slice && rank < layout->devices; rank++)
        if (rfs_layout_slice(layout, rank) == other)
            look_at(asking, rank);
}

/* Marks the parameters of the source strategy that the files of a stage have. */
static void mark_listed(const struct rfs_planner *planner, const struct rfs_stage_use *use,
                        unsigned char *listed)
{
    for (size_t i = 0; i < rfs_stage_use_count(use); i++) {
        const uint32_t at = rfs_plan_name(planner, rfs_stage_use_name(use, i)).src;
        if (at != RFS_NO_ID)
            listed[at] = 1;
    }
}

static int find_lacking(struct asking *asking, uint32_t s)
{
    const struct rfs_planner *planner = asking->planning->planner;
    const struct rfs_strategy *src = planner->config.src;
    RFS_FREE unsigned char *listed = calloc(rfs_strategy_count(src) + 1, 1);
    RFS_FREE unsigned char *added = calloc(rfs_strategy_layouts(src) + 1, 1);

    if (!listed || !added)
        return rfs_fail_memory(asking->planning->err);
    mark_listed(planner, asking->use, listed);
    for (size_t i = 0; i < rfs_strategy_count(src); i++) {
        const struct rfs_layout *layout = listed[i] ? NULL : rfs_strategy_layout(src, i, s);
        const char *param = rfs_strategy_param(src, i);
        if (!layout)
            continue;
        const struct rfs_role role = rfs_plan_role_of_param(planner, i, s, asking->planning->stage);
        if (role.kind == RFS_ROLE_DROPPED)
            continue;
        asking->use->lacks = true;
        if (role.shown && !is_gradient(param))
            rfs_text_add_name(&asking->lacking, NAMES_SHOWN, param);
        if (!added[layout->id])
            add_replicas(asking, layout);
        added[layout->id] = 1;
    }
    asking->use->bereft = asking->all && asking->lacking.n > 0;
    for (uint32_t rank = 0; asking->all && rank < planner->scale.src_devices; rank++)
        look_at(asking, rank);
    return 0;
}

/* Samples a rank, and has all of its headers read when they do not look like the lead's. */
static int probe(void *ctx, size_t i)
{
    struct asking *asking = ctx;
    struct rfs_planner *planner = asking->planning->planner;
    struct rfs_stage_use *use = asking->use;
    const uint32_t rank = use->base + (uint32_t)i;
    atomic_uint_least64_t *known = &planner->resembled[rank - rfs_plan_base(planner, 0)];

    if (!asking->look[i] || use->wanted[i] ||
        atomic_load_explicit(known, memory_order_relaxed) == use->lead_index->serial)
        return 0;
    if (!rfs_catalog_ready(planner->config.catalog, rank) &&
        rfs_catalog_resembles(planner->config.catalog, rank, use->lead, asking->samples) == 1)
        atomic_store_explicit(known, use->lead_index->serial, memory_order_relaxed);
    else
        use->wanted[i] = RFS_PROBED; /* which also reports a failure */
    return 0;
}

/* Makes a note on the parameters that samples did not find. */
static void note_sampled(const struct rfs_planner *planner, const struct rfs_text_names *lacking,
                         uint32_t s)
{
    if (lacking->n > 0 && rfs_notes_are_new(planner, RFS_NOTE_SAMPLED, s))
        rfs_notes_add(planner, RFS_NOTE_SAMPLED, RFS_INFO,
                      "%zu parameter%s of the source strategy in none of the checkpoints of "
                      "pipeline stage %u, by samples of their headers: %s",
                      lacking->n, lacking->n == 1 ? "" : "s", s, lacking->text);
}

/* Looks in other ranks of a stage for parameters that its lead lacks. 0 or -errno. */
static int probe_others(struct rfs_planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    struct asking asking = {.planning = planning, .use = &planning->stages[s]};

    if (asking.use->presence || !planner->config.src || planning->devices == 1 ||
        (planning->sibling && !planning->sibling->stages[s].lacks))
        return 0;
    RFS_FREE unsigned char *look = calloc(planning->devices, 1);
    if (!look)
        return rfs_fail_memory(planning->err);
    asking.look = look;
    const int rc = find_lacking(&asking, s);
    if (rc || asking.n == 0)
        return rc;
    asking.samples = PROBES / asking.n > PROBES_LEAST ? PROBES / asking.n : PROBES_LEAST;
    if (!planner->config.strict && asking.samples < asking.use->lead_index->n) {
        rfs_pool_for(planner->config.pool, planning->devices, probe, &asking);
        if (rfs_cancelled())
            return -EINTR;
        note_sampled(planner, &asking.lacking, s);
        return 0;
    }
    for (uint32_t rank = 0; rank < planning->devices; rank++)
        asking.use->wanted[rank] |= look[rank] ? RFS_PROBED : 0;
    return 0;
}

/* ---- the headers of many ranks --------------------------------------------------------------- */

/* The job of indexing many ranks at once. */
struct indexing {
    struct rfs_planning *planning;
    struct rfs_stage_use *use;
    bool all; /* none may be damaged; else only those that give something */
    const uint32_t *ranks;
    atomic_bool empty;    /* a rank's file holds nothing */
    pthread_mutex_t lock; /* of the planner's lacking; a leaf lock */
    struct rfs_first_error first;
    struct rfs_first_error passed; /* of files that the plan is made without */
};

/* Remembers a file's error, for a note if the plan is made without it. */
static void note_damage(struct rfs_stage_use *use, const struct rfs_error *err)
{
    if (!use->damage)
        use->damage = strdup(err->text);
}

static int index_one(void *ctx, size_t i)
{
    struct indexing *job = ctx;
    struct rfs_error err = {0};
    const struct rfs_index *index;
    const int rc =
        rfs_catalog_index(job->planning->catalog, job->ranks[i], job->use->lead, &index, &err);
    if (rc == 0)
        return 0;
    if (!rfs_catalog_is_empty(job->planning->catalog, job->ranks[i])) {
        const bool gives = job->use->wanted[job->ranks[i] - job->use->base] & RFS_PROVIDES;
        pthread_mutex_lock(&job->lock);
        const bool passed = pass_over(job->planning->planner, job->ranks[i], rc) == 0;
        pthread_mutex_unlock(&job->lock);
        const bool left_out = !passed && rc == -EINVAL && !job->all && !gives;
        if (left_out)
            rfs_first_error_note(&job->passed, i, rc, &err);
        if (!passed)
            return left_out ? 0 : rfs_first_error_note(&job->first, i, rc, &err);
    }
    atomic_store(&job->empty, true); /* a rank that holds the same provides it */
    return 0;
}

static int index_ranks(struct rfs_planning *planning, uint32_t s, bool all)
{
    struct rfs_stage_use *use = &planning->stages[s];
    RFS_FREE uint32_t *ranks = malloc(planning->devices * sizeof *ranks);
    size_t n = 0;

    if (!ranks)
        return rfs_fail_memory(planning->err);
    for (uint32_t local = 0; local < planning->devices; local++)
        if (use->wanted[local] && !rfs_catalog_ready(planning->catalog, use->base + local))
            ranks[n++] = use->base + local;
    if (n == 0)
        return 0;
    struct indexing job = {.planning = planning,
                           .use = use,
                           .all = all,
                           .ranks = ranks,
                           .lock = PTHREAD_MUTEX_INITIALIZER,
                           .first = RFS_FIRST_ERROR,
                           .passed = RFS_FIRST_ERROR};
    const int rc = rfs_pool_for(planning->planner->config.pool, n, index_one, &job);
    if (job.passed.code)
        note_damage(use, &job.passed.err);
    use->differs |= atomic_load(&job.empty);
    return rc == -EINTR ? rc : rfs_first_error_take(&job.first, rc, planning->err);
}

static int index_stage(struct rfs_planning *planning, uint32_t s)
{
    return index_ranks(planning, s, false);
}

/* Says whether two files list the same parameters, in whatever order. */
static bool same_names(const struct rfs_index *a, const struct rfs_index *b)
{
    bool same = a->n == b->n;

    for (size_t i = 0; same && i < a->n; i++)
        same = a->entries[a->by_name[i]].name == b->entries[b->by_name[i]].name;
    return same;
}

/*
 * Proves that parameters that are cut have the same type in a rank as in the lead, which lists the
 * same.
 */
static int compare_types(const struct rfs_planning *planning, const struct rfs_stage_use *use,
                         uint32_t s, uint32_t rank, const struct rfs_index *index)
{
    for (size_t i = 0; i < use->lead_index->n; i++) {
        const struct rfs_entry *here = &index->entries[index->by_name[i]];
        if (here->type == use->lead_index->entries[use->lead_index->by_name[i]].type)
            continue;
        const struct rfs_role role =
            rfs_plan_role(planning->planner, here->name, s, planning->stage);
        if (role.kind == RFS_ROLE_SLICED && role.shown &&
            !(role.src && role.src->edge)) /* check_rows checks those */
            return types_differ(planning, here->name, rank, use->lead);
    }
    return 0;
}

static int compare_stage(struct rfs_planning *planning, uint32_t s)
{
    const struct rfs_planner *planner = planning->planner;
    struct rfs_stage_use *use = &planning->stages[s];
    const struct rfs_index *proved = use->lead_index;

    use->order = NULL;
    for (uint32_t local = 0; !use->presence && local < planner->scale.src_devices; local++) {
        if (!use->wanted[local])
            continue;
        const struct rfs_index *index =
            rfs_catalog_ready(planner->config.catalog, use->base + local);
        if (!index)
            continue; /* damaged, or it keeps nothing, which differs shows */
        const bool provides = use->wanted[local] & RFS_PROVIDES;
        if (use->wanted[local] & (RFS_PROVIDES | RFS_ORDERS) && (!use->order || !planner->by_stage))
            use->order = index; /* loaded first: the highest rank, or the lowest of a part */
        if (index == proved || index == use->lead_index)
            continue;
        use->differs |= !same_names(use->lead_index, index) || index->redundancy_removed;
        if (use->differs)
            return 0;
        const int rc = provides ? compare_types(planning, use, s, use->base + local, index) : 0;
        if (rc)
            return rc;
        proved = provides ? index : proved;
    }
    return 0;
}

/* ---- rows of manual splits ------------------------------------------------------------------- */

/* Says whether two types differ in their rows only. */
static bool same_but_rows(const struct rfs_type *a, const struct rfs_type *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->ndim == b->ndim && a->ndim > 0 &&
           memcmp(a->dims + 1, b->dims + 1, (a->ndim - 1U) * sizeof *a->dims) == 0;
}

static int check_entry(const struct rfs_planning *planning, uint32_t s, uint32_t local,
                       const struct rfs_entry *entry)
{
    const struct rfs_stage_use *use = &planning->stages[s];
    const char *param = rfs_catalog_name(planning->catalog, entry->name);
    const struct rfs_role role = rfs_plan_role(planning->planner, entry->name, s, planning->stage);

    if (role.kind != RFS_ROLE_SLICED || !role.shown || !role.src || !role.src->edge)
        return 0;
    const struct rfs_type *type = rfs_catalog_type(planning->catalog, entry->type);
    const uint32_t first = planning->origins[entry->name].type;
    const uint64_t rows = rfs_layout_rows(role.src, local);
    if (!same_but_rows(type, rfs_catalog_type(planning->catalog, first)))
        return types_differ(planning, entry->name, use->base + local, use->lead);
    if (type->dims[0] == rows)
        return 0;
    return rfs_fail(planning->err, -EINVAL, RFS_OF(path_of(planning, use->base + local), param),
                    "the strategy that this checkpoint was saved under",
                    "is a slice of %llu rows, but the strategy's param_split_shape gives this rank "
                    "%llu",
                    (unsigned long long)type->dims[0], (unsigned long long)rows);
}

/*
 * Proves that the ranks of a stage that give something have the rows that manual splits of the
 * source strategy give them. Slices of one parameter have differing rows, so the strategy, not the
 * other ranks' slices, determines each. 0, or -EINVAL with *err filled.
 */
static int check_rows(struct rfs_planning *planning, uint32_t s)
{
    const struct rfs_planner *planner = planning->planner;
    const struct rfs_stage_use *use = &planning->stages[s];
    int rc = 0;

    if (!planner->config.src || !rfs_strategy_has_splits(planner->config.src) ||
        (use->differs && !use->presence))
        return 0;
    for (uint32_t local = 0; local < planner->scale.src_devices; local++) {
        if (!(use->wanted[local] & RFS_PROVIDES))
            continue;
        const struct rfs_index *index =
            rfs_catalog_ready(planner->config.catalog, use->base + local);
        for (size_t i = 0; !rc && i < index->n; i++)
            if (planning->origins[index->entries[i].name].stage == s)
                rc = check_entry(planning, s, local, &index->entries[i]);
    }
    return rc;
}

/* ---- presence maps --------------------------------------------------------------------------- */

/*
 * Returns the presence map that belongs to the planner from now on: FRESH, or one that another
 * thread made.
 */
static const struct rfs_presence *share_presence(struct rfs_planner *planner, uint32_t s,
                                                 struct rfs_presence *fresh)
{
    return RFS_PUBLISH(&planner->stages[s].presence, fresh, rfs_presence_free);
}

static int make_presence(struct rfs_planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_stage_use *use = &planning->stages[s];
    struct rfs_presence *fresh;

    for (uint32_t local = 0; local < planner->scale.src_devices; local++)
        use->wanted[local] = rfs_catalog_has(planner->config.catalog, use->base + local);
    const int rc = index_ranks(planning, s, true);
    if (rc)
        return rc;
    if (rfs_presence_make(planner->config.catalog, use->base, planner->scale.src_devices,
                          planner->by_stage, &fresh))
        return rfs_fail_memory(planning->err);
    use->presence = share_presence(planner, s, fresh);
    return 0;
}

/*
 * Goes without a presence map when a file is damaged, which may be why its size differs. Ranks that
 * need nothing of it are not to suffer: they go by the files that they need, which are compared as
 * ever.
 */
static int go_without_presence(struct rfs_planning *planning, uint32_t s, int rc)
{
    struct rfs_stage_use *use = &planning->stages[s];

    if (rc != -EINVAL || !use->hinted)
        return rc;
    note_damage(use, planning->err);
    *planning->err = (struct rfs_error){0};
    use->differs = false;
    use->hinted = false;
    return 0;
}

/* Makes the presence map of a stage whose files differ, or takes the one that was made before. */
static int presence_stage(struct rfs_planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_stage_use *use = &planning->stages[s];

    if (!use->differs || use->presence)
        return 0;
    use->presence = RFS_PUBLISHED(&planner->stages[s].presence);
    const int rc = use->presence ? 0 : make_presence(planning, s);
    if (rc)
        return go_without_presence(planning, s, rc);
    if (use->presence->n > 0)
        return 0;
    struct rfs_error err = {0}; /* all are empty or damaged: the error of one of them */
    rfs_catalog_index(planner->config.catalog, use->lead, RFS_NO_RANK, &use->lead_index, &err);
    return lose_stage(planning, s, &err);
}

static bool any_to_presence(const struct rfs_planning *planning)
{
    for (uint32_t s = 0; s < planning->n_stages; s++)
        if (planning->stages[s].differs && !planning->stages[s].presence)
            return true;
    return false;
}

/* Says whether a parameter of the strategy is of this stage alone, and is saved. */
static bool is_expected(const struct rfs_strategy *src, size_t i, uint32_t s)
{
    return rfs_strategy_next_stage(src, i, 0) == s &&
           rfs_strategy_next_stage(src, i, s + 1) == RFS_NO_STAGE &&
           !is_gradient(rfs_strategy_param(src, i));
}

/*
 * Makes a note on parameters that no rank of the stage has. They were perhaps removed everywhere,
 * as older releases of MindSpore do.
 */
static void note_lacking(const struct rfs_planner *planner, const struct rfs_stage_use *use,
                         uint32_t s)
{
    const struct rfs_strategy *src = planner->config.src;
    RFS_FREE unsigned char *found = calloc(rfs_strategy_count(src) + 1, 1);
    struct rfs_text_names names = {.n = 0};

    if (!found)
        return; /* a note less */
    mark_listed(planner, use, found);
    for (size_t i = 0; i < rfs_strategy_count(src); i++)
        if (!found[i] && is_expected(src, i, s))
            rfs_text_add_name(&names, NAMES_SHOWN, rfs_strategy_param(src, i));
    if (names.n > 0)
        rfs_notes_add(planner, RFS_NOTE_PRESENCE, RFS_WARNING,
                      "%zu parameter%s of the source strategy in no checkpoint of pipeline stage "
                      "%u: %s",
                      names.n, names.n == 1 ? "" : "s", s, names.text);
}

/*
 * Makes a note on empty files: one that a full disk cut short looks like the file of a rank that
 * keeps nothing.
 */
static void note_empty_files(const struct rfs_planner *planner, const struct rfs_stage_use *use,
                             uint32_t s)
{
    struct rfs_text_names names = {.n = 0};

    for (uint32_t i = 0; use->presence && i < use->presence->devices; i++)
        if (rfs_catalog_has(planner->config.catalog, use->base + i) &&
            rfs_catalog_is_empty(planner->config.catalog, use->base + i))
            add_rank(&names, NAMES_SHOWN, use->base + i);
    if (names.n > 0)
        rfs_notes_add(planner, RFS_NOTE_PRESENCE, RFS_WARNING,
                      "the checkpoint%s of %s in pipeline stage %u %s empty: remove_redundancy "
                      "leaves such a file of a rank that keeps nothing, and so does a full disk",
                      names.n == 1 ? "" : "s", names.text, s, names.n == 1 ? "is" : "are");
}

static bool all_list_the_same(const struct rfs_presence *presence)
{
    for (size_t i = 0; i < presence->n; i++)
        if (presence->of[presence->order[i]].ranks < presence->present)
            return false;
    return true;
}

/* Makes notes on a stage's new presence map, as far as it concerns the user. */
static void note_presence(const struct rfs_planner *planner, const struct rfs_stage_use *use,
                          uint32_t s)
{
    const bool same = !use->presence || all_list_the_same(use->presence);

    note_empty_files(planner, use, s);
    if (same && !use->bereft)
        return; /* files of different sizes, nothing more */
    if (!same && (!use->lead_index || !use->lead_index->redundancy_removed))
        rfs_notes_add(planner, RFS_NOTE_PRESENCE, RFS_WARNING,
                      "the checkpoints of pipeline stage %u do not list the same parameters, as "
                      "after remove_redundancy: each is read from a rank that has it",
                      s);
    note_lacking(planner, use, s);
}

/*
 * Makes notes on what a stage went without, once everything is proved: failures report themselves.
 */
static int note_stage(struct rfs_planning *planning, uint32_t s)
{
    const struct rfs_planner *planner = planning->planner;
    const struct rfs_stage_use *use = &planning->stages[s];

    if (use->damage && rfs_notes_are_new(planner, RFS_NOTE_DAMAGED, s))
        rfs_notes_add(
            planner, RFS_NOTE_DAMAGED, RFS_WARNING,
            "pipeline stage %u has a damaged checkpoint: parameters in that one alone are "
            "left out: %s",
            s, use->damage);

    const struct rfs_lacking *lacking = planner->config.lacking; /* its owner reports */
    if ((use->presence || use->bereft) && !(lacking && lacking->damaged.n > 0) &&
        rfs_notes_are_new(planner, RFS_NOTE_PRESENCE, s))
        note_presence(planner, use, s);
    return 0;
}

/* ---- all together ---------------------------------------------------------------------------- */

static int need_stage(struct rfs_planning *planning, uint32_t s)
{
    return mark_needed(planning, s) ?: probe_others(planning, s);
}

/* Takes one step for each needed stage. */
static int each_stage(struct rfs_planning *planning,
                      int (*step)(struct rfs_planning *planning, uint32_t s))
{
    int rc = 0;

    for (uint32_t s = 0; !rc && s < planning->n_stages; s++)
        if (planning->stages[s].needed)
            rc = step(planning, s);
    return rc;
}

int rfs_plan_leads(struct rfs_planning *planning)
{
    find_needed_stages(planning->planner, planning->stage, planning->stages);
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        struct rfs_stage_use *use = &planning->stages[s];
        if (!use->needed)
            continue;
        use->base = rfs_plan_base(planning->planner, s);
        use->lead = choose_lead(planning, use->base);
        const int rc = use->lead == RFS_NO_RANK ? -ENOENT : index_lead(planning, s, planning->err);
        if (rc)
            return rc;
    }
    return find_origins(planning);
}

static int find_sibling(struct rfs_planning *planning)
{
    rfs_sibling_find(planning);
    return 0;
}

int rfs_plan_sources(struct rfs_planning *planning)
{
    find_needed_stages(planning->planner, planning->stage, planning->stages);
    int rc = each_stage(planning, lead_stage);
    do /* at most once for each stage, and once more */
        rc = rc
                 ?: each_stage(planning, presence_stage)
                 ?: find_sibling(planning)
                 ?: find_origins(planning)
                 ?: each_stage(planning, need_stage)
                 ?: each_stage(planning, index_stage)
                 ?: each_stage(planning, compare_stage)
                 ?: each_stage(planning, check_rows);
    while (!rc && any_to_presence(planning));
    return rc ? rc : each_stage(planning, note_stage);
}
