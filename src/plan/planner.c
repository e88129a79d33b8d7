/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/internal.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/store.h"
#include "base/suggest.h"
#include "formats/chunks/chunks.h"

#include <assert.h>

/* ---- options that nothing meets -------------------------------------------------------------- */

/*
 * Options that name parameters which the source does not have are typing errors, and would lose
 * tensors without a word. By the time a file is planned, the names of its sources and of the source
 * strategy were looked up. If something is unmet by then, the names of all other stages are looked
 * up, too, before it is refused.
 */

#define NEAREST_BYTES 256

/* A pattern, and the shown name that is most like it. */
struct nearest {
    const char *pattern;
    unsigned edits;
    char name[NEAREST_BYTES]; /* "" while there is none */
};

/* Offers a name of the source. Without NEAREST, it is looked up, which marks what it is like. */
static void take_name(const struct rfs_planner *planner, const char *name, struct nearest *nearest)
{
    const struct rfs_names *names = planner->config.names;

    if (!nearest) {
        rfs_names_look(names, name);
        return;
    }
    const char *renamed = rfs_names_renamed(names, name);
    const unsigned edits =
        renamed ? rfs_suggest_pattern_distance(nearest->pattern, renamed) : UINT_MAX;
    if (!renamed || strlen(renamed) >= NEAREST_BYTES || (*nearest->name && edits >= nearest->edits))
        return;
    nearest->edits = edits;
    memcpy(nearest->name, renamed, strlen(renamed) + 1);
}

static void take_index(const struct rfs_planning *planning, const struct rfs_index *index,
                       struct nearest *nearest)
{
    for (size_t i = 0; i < index->n; i++)
        take_name(planning->planner, rfs_catalog_name(planning->catalog, index->entries[i].name),
                  nearest);
}

/* Takes the names of a stage: one rank has all of them, unless redundancy was removed. */
static void take_stage(const struct rfs_planning *planning, uint32_t base, struct nearest *nearest)
{
    uint32_t lead = RFS_NO_RANK;
    bool all = false;

    for (uint32_t rank = base; rank < base + planning->devices && !all; rank++) {
        const struct rfs_index *index;
        if (!rfs_catalog_has(planning->catalog, rank) ||
            rfs_catalog_index(planning->catalog, rank, lead, &index, NULL))
            continue;
        take_index(planning, index, nearest);
        lead = lead == RFS_NO_RANK ? rank : lead;
        all = !index->redundancy_removed;
    }
}

/* Takes all names that the source has, as far as its files can be read. */
static void take_all(const struct rfs_planning *planning, struct nearest *nearest)
{
    const struct rfs_planner *planner = planning->planner;
    const struct rfs_strategy *src = planner->config.src;
    const struct rfs_chunks *chunks = rfs_catalog_chunks(planning->catalog);

    for (size_t i = 0; src && i < rfs_strategy_count(src); i++)
        take_name(planner, rfs_strategy_param(src, i), nearest);
    for (uint32_t s = 0; s < planning->n_stages; s++)
        take_stage(planning, rfs_plan_base(planner, s), nearest);
    for (size_t i = 0; chunks && i < chunks->objects.n; i++)
        take_name(planner, rfs_catalog_name(planning->catalog, chunks->objects.data[i].name),
                  nearest);
    for (size_t i = 0; chunks && i < chunks->unread.n; i++)
        take_name(planner, rfs_catalog_name(planning->catalog, chunks->unread.data[i].name),
                  nearest);
}

/*
 * Refuses options that name no parameter of the source. After rfs_plan_sources. 0, or -EINVAL with
 * *err filled.
 */
static int check_unmet(struct rfs_planning *planning)
{
    const struct rfs_planner_config *config = &planning->planner->config;
    const char *option;
    const char *pattern =
        config->lost == RFS_LOST_LEFT_OUT ? NULL : rfs_names_unmet(config->names, &option);

    if (!pattern)
        return rfs_names_check(config->names, planning->err);
    take_all(planning, NULL);
    pattern = rfs_names_unmet(config->names, &option);
    if (!pattern)
        return rfs_names_check(config->names, planning->err);
    if (strcmp(option, "names") == 0)
        return rfs_names_fail_unmet(config->names, planning->err);
    struct nearest nearest = {.pattern = pattern};
    take_all(planning, &nearest);
    char remedy[NEAREST_BYTES + 16];
    snprintf(remedy, sizeof remedy, "%s='%s%s'", option, nearest.name,
             strcmp(option, "dtype") == 0 ? "=TYPE" : "");
    return rfs_fail_usage(planning->err, *nearest.name ? remedy : "a checkpoint with tensors",
                          "option %s: no name is like '%s'", option, pattern);
}

/* Makes a note on the parts of an option that no parameter of the source met. */
static void note_part(const struct rfs_planning *planning, enum rfs_names_part part,
                      enum rfs_note_kind kind)
{
    const struct rfs_names *names = planning->planner->config.names;
    char unused[RFS_NOTE_BYTES];

    /* Once is enough, as more names are met and never fewer; each plan would ask again. */
    if (!rfs_notes_are_new(planning->planner, kind, 0) ||
        !rfs_names_unused(names, part, unused, sizeof unused))
        return;
    take_all(planning, NULL);
    if (rfs_names_unused(names, part, unused, sizeof unused))
        rfs_notes_add(planning->planner, kind, RFS_WARNING, "%s", unused);
}

/* Makes notes on the parts of options that no parameter met, once a file is planned. */
static void note_unused(const struct rfs_planning *planning)
{
    note_part(planning, RFS_NAMES_MAP, RFS_NOTE_UNUSED_NAMES);
    note_part(planning, RFS_NAMES_DROP, RFS_NOTE_UNDROPPED);
    note_part(planning, RFS_NAMES_DTYPE, RFS_NOTE_UNTYPED);
}

static void plan_free(struct rfs_rank_plan **plan)
{
    if (*plan)
        free((*plan)->sources);
    free(*plan);
}

void rfs_planner_free(struct rfs_planner *planner)
{
    if (!planner)
        return;
    for (uint32_t i = 0; planner->ranks && i < planner->n_ranks; i++) {
        struct rfs_rank_plan *plan = atomic_load_explicit(&planner->ranks[i], memory_order_relaxed);
        plan_free(&plan);
    }
    free(planner->ranks);
    for (uint32_t d = 0; planner->siblings && d < planner->scale.dst_stages; d++)
        rfs_sibling_free(atomic_load_explicit(&planner->siblings[d], memory_order_relaxed));
    free(planner->siblings);
    free(planner->params);
    rfs_plan_names_free(planner->names);
    for (uint32_t s = 0; planner->stages && s < planner->scale.src_stages; s++) {
        rfs_presence_free(atomic_load_explicit(&planner->stages[s].presence, memory_order_relaxed));
        free(atomic_load_explicit(&planner->stages[s].refused, memory_order_relaxed));
    }
    free(planner->stages);
    free(planner->resembled);
    for (size_t i = 0; i < planner->geometries.n; i++)
        free(planner->geometries.data[i]);
    free(planner->geometries.data);
    free(planner->compared.data);
    rfs_intern_free(planner->geometry_ids);
    for (size_t i = 0; i < planner->param_lists.n; i++)
        free(planner->param_lists.data[i]);
    free(planner->param_lists.data);
    pthread_mutex_destroy(&planner->lock);
    free(planner);
}

RFS_CLEANUP_OF(planner_cleanup, struct rfs_planner *, rfs_planner_free)

static int make_tables(struct rfs_planner *planner, struct rfs_error *err)
{
    const size_t stages = planner->scale.src_stages;
    const size_t ranks = stages * planner->scale.src_devices;

    planner->names = rfs_plan_names_new();
    planner->geometry_ids = rfs_intern_new();
    planner->ranks = calloc(planner->n_ranks, sizeof *planner->ranks);
    planner->siblings = calloc(planner->scale.dst_stages, sizeof *planner->siblings);
    planner->stages = calloc(stages, sizeof *planner->stages);
    planner->resembled = calloc(ranks, sizeof *planner->resembled);
    if (!planner->names || !planner->geometry_ids || !planner->ranks || !planner->siblings ||
        !planner->stages || !planner->resembled)
        return rfs_fail_memory(err);
    for (size_t s = 0; s < stages; s++)
        atomic_init(&planner->stages[s].lead, RFS_NO_RANK);
    return 0;
}

static int make(const struct rfs_planner_config *config, const struct rfs_planner *from,
                struct rfs_planner **out, struct rfs_error *err)
{
    RFS_CLEANUP(planner_cleanup) struct rfs_planner *planner = calloc(1, sizeof *planner);

    *out = NULL;
    if (!planner)
        return rfs_fail_memory(err);
    assert((rfs_catalog_is_derived(config->catalog) && !rfs_catalog_chunks(config->catalog)) ==
           (config->by_rules != NULL));
    assert((config->lost >= RFS_LOST_LEFT_OUT) == (config->lacking != NULL));
    planner->config = *config;
    planner->from = from;
    pthread_mutex_init(&planner->lock, NULL);
    if (config->src && rfs_catalog_chunks(config->catalog))
        return rfs_fail_usage(err, "leave src_strategy and src_rules out", RFS_STRATEGY_UNWANTED);
    const int rc = rfs_plan_check(planner, err) ?: make_tables(planner, err);
    if (rc)
        return rc;
    *out = RFS_STEAL(planner);
    return 0;
}

int rfs_planner_new(const struct rfs_planner_config *config, struct rfs_planner **out,
                    struct rfs_error *err)
{
    return make(config, NULL, out, err);
}

int rfs_planner_derive(const struct rfs_planner *from, const struct rfs_planner_change *change,
                       struct rfs_planner **out, struct rfs_error *err)
{
    struct rfs_planner_config config = from->config;

    config.dst = change->dst;
    config.notes = change->notes;
    config.strict = false;
    config.keep_empty |= change->keep_empty;
    config.lost = change->lacking ? RFS_LOST_LEFT_OUT : RFS_LOST_REFUSED;
    config.lacking = change->lacking;
    return make(&config, from, out, err);
}

void rfs_planner_scale(const struct rfs_planner *planner, struct rfs_scale *out)
{
    *out = planner->scale;
}

int64_t rfs_planner_single_stage(const struct rfs_planner *planner)
{
    return planner->by_stage ? (int64_t)planner->first_stage : -1;
}

const struct rfs_rank_plan *rfs_planner_ready(const struct rfs_planner *planner, uint32_t rank)
{
    return RFS_PUBLISHED(&planner->ranks[rank]);
}

const struct rfs_geometry *rfs_planner_geometry(struct rfs_planner *planner,
                                                const struct rfs_target *target)
{
    return target->geometry == RFS_NO_ID ? NULL : rfs_plan_geometry_at(planner, target->geometry);
}

/* ---- the attributes of a file ---------------------------------------------------------------- */

static struct rfs_access access_of(const struct rfs_rank_plan *plan)
{
    return (struct rfs_access){plan->uid, plan->gid, plan->mode & S_IRUSR, plan->mode & S_IRGRP,
                               plan->mode & S_IROTH};
}

int rfs_plan_add_file(struct rfs_files *files, uint32_t file, struct rfs_rank_plan *plan,
                      struct rfs_error *err)
{
    const bool first = plan->n_sources == 0;
    struct stat st;

    const int rc = rfs_files_stat(files, file, &st);
    if (rc) {
        rfs_fail(err, rc, RFS_IN(rfs_files_path(files, file)), NULL, "cannot be examined: %s",
                 strerror(-rc));
        rfs_files_reason(files, file, rc, err);
        return rc;
    }
    struct rfs_access access = rfs_files_access(files, file, &st);
    if (!first)
        access = rfs_access_both(access, access_of(plan));
    plan->mode = rfs_access_mode(access, 0444);
    plan->uid = access.uid;
    plan->gid = access.gid;
    if (first || rfs_plan_is_later(st.st_mtim, plan->mtime))
        plan->mtime = st.st_mtim;
    plan->sources[plan->n_sources++] = file;
    return 0;
}

static int add_source(struct rfs_planning *planning, uint32_t rank, struct rfs_rank_plan *plan)
{
    struct rfs_catalog *catalog = planning->catalog;
    int rc = 0;

    for (uint32_t part = 0; rc == 0 && part < rfs_catalog_file_count(catalog, rank); part++)
        rc = rfs_plan_add_file(rfs_catalog_files(catalog), rfs_catalog_file(catalog, rank) + part,
                               plan, planning->err);
    return rc;
}

/* Gives a plan the attributes of the source files that give it something. */
static int take_attributes(struct rfs_planning *planning, struct rfs_rank_plan *plan)
{
    size_t n = 0;
    int rc = 0;

    for (uint32_t s = 0; s < planning->n_stages; s++)
        for (uint32_t local = 0; planning->stages[s].needed && local < planning->devices; local++)
            if (planning->stages[s].wanted[local] & RFS_PROVIDES)
                n += rfs_catalog_file_count(planning->catalog, planning->stages[s].base + local);
    plan->mode = 0444;
    plan->sources = malloc(n * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(planning->err);
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        const struct rfs_stage_use *use = &planning->stages[s];
        for (uint32_t local = 0; rc == 0 && use->needed && local < planning->devices; local++)
            if (use->wanted[local] & RFS_PROVIDES)
                rc = add_source(planning, use->base + local, plan);
    }
    return rc;
}

/* ---- whether the strategies are those of the files ------------------------------------------- */

#define NAMES_MOST 32 /* of each side, to be compared with each other */
#define NAME_SHOWN 200

/*
 * Names of the files that a strategy has. One of another network has no name in common with them:
 * everything would be copied as one rank has it. What was indexed for a plan is looked at, and the
 * headers of one rank of each stage that it does not need, but only if nothing matches before.
 */
struct matching {
    const struct rfs_planner *planner;
    const struct rfs_strategy *strategy; /* the source's, or without one the destination's */
    size_t known;                        /* number of names that the strategy has */
    size_t tensors; /* number of those that a strategy may cut: more than one element, or a map */
    size_t known_tensors;
    const char *names[NAMES_MOST]; /* of tensors that it does not have */
    size_t n_names;
};

static bool is_known(const struct matching *matching, uint32_t name)
{
    const struct rfs_role_name known = rfs_plan_name(matching->planner, name);

    return (matching->planner->config.src ? known.src : known.dst) != RFS_NO_ID;
}

static void add(struct matching *matching, uint32_t name, uint32_t type)
{
    struct rfs_catalog *catalog = matching->planner->config.catalog;
    const struct rfs_type *of = rfs_catalog_type(catalog, type);
    const bool known = is_known(matching, name);
    const bool tensor = of->kind != RFS_STRING && !rfs_plan_one_element(of) && of->bytes > 0;

    matching->known += known;
    matching->tensors += tensor;
    matching->known_tensors += known && tensor;
    if (tensor && !known && matching->n_names < NAMES_MOST)
        matching->names[matching->n_names++] = rfs_catalog_name(catalog, name);
}

static void add_needed(struct rfs_planning *planning, struct matching *matching)
{
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        const struct rfs_stage_use *use = &planning->stages[s];
        for (size_t i = 0; use->needed && i < rfs_stage_use_count(use); i++) {
            const uint32_t name = rfs_stage_use_name(use, i);
            if (planning->origins[name].stage == s)
                add(matching, name, planning->origins[name].type);
        }
    }
}

/* Says whether a rank of a stage that is not needed has a name of the strategy. */
static bool others_match(struct rfs_planning *planning, struct matching *matching)
{
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        const uint32_t base = rfs_plan_base(planning->planner, s);
        const struct rfs_index *index;
        uint32_t local = 0;
        while (local < planning->devices && !rfs_catalog_has(planning->catalog, base + local))
            local++;
        if (planning->stages[s].needed || local == planning->devices ||
            rfs_catalog_index(planning->catalog, base + local, RFS_NO_RANK, &index, NULL) != 0)
            continue;
        for (size_t i = 0; i < index->n; i++)
            if (is_known(matching, index->entries[i].name))
                return true;
    }
    return false;
}

/*
 * Finds the two names that are closest to each other: one that the files have, and one of the
 * strategy.
 */
static void find_closest(const struct matching *matching, const char **there, const char **here)
{
    const size_t count = rfs_strategy_count(matching->strategy);
    const size_t n = count < NAMES_MOST ? count : NAMES_MOST;
    unsigned least = UINT32_MAX;

    *there = matching->names[0];
    *here = rfs_strategy_param(matching->strategy, 0);
    for (size_t i = 0; i < matching->n_names && least > 0; i++)
        for (size_t k = 0; k < n; k++) {
            const char *param = rfs_strategy_param(matching->strategy, count * k / n);
            const unsigned edits = rfs_suggest_distance(matching->names[i], param);
            if (edits < least) {
                least = edits;
                *there = matching->names[i];
                *here = param;
            }
        }
}

/* Says whether most of the tensors have names that the strategy does not have. */
static bool matches_little(struct rfs_planning *planning, struct matching *matching)
{
    const struct rfs_planner_config *config = &planning->planner->config;

    *matching = (struct matching){.planner = planning->planner,
                                  .strategy = config->src ? config->src : config->dst};
    if (!matching->strategy || rfs_strategy_count(matching->strategy) == 0 ||
        rfs_strategy_facts(matching->strategy)->by_rules ||
        rfs_strategy_facts(matching->strategy)->exported)
        return false;
    add_needed(planning, matching);
    return matching->known_tensors * 2 < matching->tensors && matching->n_names > 0;
}

/*
 * Refuses a strategy without any parameter of the files, and warns of one with few. After
 * rfs_plan_sources. 0 or -EINVAL.
 */
static int check_match(struct rfs_planning *planning)
{
    struct rfs_planner *planner = planning->planner;
    const struct rfs_planner_config *config = &planner->config;
    struct matching matching;
    const char *there;
    const char *here;

    if (planning->sibling || !matches_little(planning, &matching))
        return 0;
    const bool none = matching.known == 0 && !others_match(planning, &matching);
    if (!none && !rfs_notes_are_new(planner, RFS_NOTE_FEW_MATCH, 0))
        return 0;
    find_closest(&matching, &there, &here);
    if (none)
        return rfs_fail(planning->err, -EINVAL, RFS_IN(rfs_strategy_name(matching.strategy)),
                        "the strategy file of the network that was saved",
                        "none of its parameters is in the checkpoint %s; the closest names are "
                        "'%.*s' there and '%.*s' here",
                        rfs_catalog_path(config->catalog), NAME_SHOWN, there, NAME_SHOWN, here);
    rfs_notes_add(planner, RFS_NOTE_FEW_MATCH, RFS_WARNING,
                  "%s: has only %zu of %zu tensors of the checkpoint, and may be of another "
                  "network; the closest names are '%.*s' there and '%.*s' here",
                  rfs_strategy_name(matching.strategy), matching.known_tensors, matching.tensors,
                  NAME_SHOWN, there, NAME_SHOWN, here);
    return 0;
}

/* ---- the plan of a rank ---------------------------------------------------------------------- */

static int planning_begin(struct rfs_planner *planner, uint32_t rank, struct rfs_planning *planning,
                          struct rfs_error *err)
{
    const struct rfs_scale *scale = &planner->scale;

    *planning = (struct rfs_planning){
        .planner = planner,
        .catalog = planner->config.catalog,
        .devices = scale->src_devices,
        .rank = rank,
        .stage = rank / scale->dst_devices,
        .local = rank % scale->dst_devices,
        .template = rank % scale->dst_devices % scale->src_devices,
        .err = err ? err : &planning->unheard,
        .n_stages = scale->src_stages,
    };
    planning->stages = calloc(planning->n_stages, sizeof *planning->stages);
    return planning->stages ? 0 : rfs_fail_memory(err);
}

static void planning_end(struct rfs_planning *planning)
{
    for (uint32_t s = 0; planning->stages && s < planning->n_stages; s++) {
        free(planning->stages[s].wanted);
        free(planning->stages[s].damage);
        free(planning->stages[s].wants.data);
    }
    free(planning->stages);
    free(planning->unproved.data);
    free(planning->copied.data);
    free(planning->seen.data);
    free(planning->origins);
}

static int make_plan(struct rfs_planning *planning, struct rfs_rank_plan *plan)
{
    int rc = rfs_plan_sources(planning)
                 ?: check_match(planning)
                 ?: check_unmet(planning)
                 ?: rfs_plan_check_alike(planning, false)
                 ?: rfs_plan_params(planning, &plan->params);
    if (!rc)
        rc = planning->planner->config.by_rules      ? rfs_by_rules_attributes(planning, plan)
             : rfs_catalog_chunks(planning->catalog) ? rfs_plan_chunked_attributes(planning, plan)
                                                     : take_attributes(planning, plan);
    if (!rc)
        rfs_sibling_keep(planning, plan->params);
    return !rc && rfs_cancelled() ? -EINTR : rc;
}

int rfs_planner_rank(struct rfs_planner *planner, uint32_t rank, const struct rfs_rank_plan **out,
                     struct rfs_error *err)
{
    RFS_CLEANUP(planning_end) struct rfs_planning planning = {.planner = planner};

    *out = rfs_planner_ready(planner, rank);
    if (*out)
        return 0;
    if (planning_begin(planner, rank, &planning, err))
        return -ENOMEM;
    RFS_CLEANUP(plan_free) struct rfs_rank_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return rfs_fail_memory(err);
    struct rfs_use use;
    rfs_catalog_begin(planner->config.catalog, &use);
    const int rc = make_plan(&planning, plan);
    if (!rc)
        note_unused(&planning);
    rfs_catalog_end(planner->config.catalog, &use);
    if (rc)
        return rc;

    struct rfs_rank_plan *expected = NULL; /* rfs_planner_ready acquires what this releases */
    if (atomic_compare_exchange_strong(&planner->ranks[rank], &expected, plan))
        expected = RFS_STEAL(plan);
    *out = expected; /* ours, or the equal one of a thread that was faster */
    return 0;
}

/* ---- a quick look ---------------------------------------------------------------------------- */

/*
 * A quick look at whether the strategies are those of the source's network, by the headers of one
 * rank of each stage: their tensors have names that a strategy knows, and shapes that both
 * strategies divide. So a mount is refused before it answers. One rank may keep less than the
 * others (remove_redundancy). So a suspicion is proved by planning a rank, and the error is that of
 * the plan. Files that are missing or damaged concern the ranks that need them.
 */
#define STAGES_MOST 64 /* of the destination, so that strategies of very many cost no more */

/* Says whether the tensors that stage S gives can be cut. */
static bool is_divided(struct rfs_planning *planning, uint32_t s)
{
    struct rfs_planner *planner = planning->planner;
    const struct rfs_index *lead = planning->stages[s].lead_index;

    for (size_t i = 0; i < lead->n; i++) {
        const uint32_t name = lead->entries[i].name;
        struct rfs_plan_origin *origin = &planning->origins[name];
        const struct rfs_type *type = rfs_catalog_type(planning->catalog, lead->entries[i].type);
        const struct rfs_role role = rfs_plan_role(planner, name, s, planning->stage);

        if (origin->stage == s && role.shown && type->kind == RFS_TENSOR && type->bytes > 0 &&
            rfs_plan_is_cut(&role, type) &&
            rfs_plan_geometry(planner, &role, origin->type, name, &origin->geometry, NULL))
            return false;
    }
    return true;
}

/*
 * Says whether check_match would refuse the strategy, by the indexes that are there. After
 * rfs_plan_leads, which may not have all names.
 */
static bool matches_nothing(struct rfs_planning *planning)
{
    struct matching matching;

    return matches_little(planning, &matching) && matching.known == 0 &&
           !others_match(planning, &matching);
}

/*
 * Takes the failure of reading headers; *err is its text. 0: a damaged file concerns those
 * who need it; -EIO of a store of objects concerns all.
 */
static int take_unreadable(struct rfs_planner *planner, int rc, const struct rfs_error *err)
{
    if (rc == -EIO && rfs_store_is_url(rfs_catalog_path(planner->config.catalog)))
        return rc;
    if (rc != -ENOMEM && rc != -EINTR && rc != -ENOENT &&
        rfs_notes_are_new(planner, RFS_NOTE_UNREADABLE, 0))
        rfs_notes_add(planner, RFS_NOTE_UNREADABLE, RFS_ERROR, "%s", err->text);
    return 0;
}

/*
 * Looks whether the first rank of a destination stage can be planned, as it seems. Sets *right. 0,
 * or with *err filled the failure of a store of objects, or of a strategy that ranks contradict.
 */
static int look(struct rfs_planner *planner, uint32_t rank, bool *right, struct rfs_error *err)
{
    RFS_CLEANUP(planning_end) struct rfs_planning planning = {.planner = planner};
    const int rc = planning_begin(planner, rank, &planning, err) ?: rfs_plan_leads(&planning);

    *right = true;
    if (rc) /* the rest is not known */
        return take_unreadable(planner, rc, planning.err);
    for (uint32_t s = 0; *right && s < planning.n_stages; s++)
        *right = !planning.stages[s].needed || is_divided(&planning, s);
    *right = *right && !matches_nothing(&planning);
    return *right ? rfs_plan_check_alike(&planning, true) : 0;
}

int rfs_planner_check_shapes(struct rfs_planner *planner, struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;
    const char *option;
    struct rfs_use use;
    int rc = 0;

    rfs_catalog_begin(planner->config.catalog, &use);
    for (uint32_t d = 0; rc == 0 && d < planner->scale.dst_stages && d < STAGES_MOST; d++) {
        const uint32_t rank = d * planner->scale.dst_devices;
        bool right;
        rc = look(planner, rank, &right, err);
        if (rc == 0 && !right)
            rc = rfs_planner_rank(planner, rank, &plan, err);
    }
    if (rc == 0 && rfs_names_unmet(planner->config.names, &option))
        rc = rfs_planner_rank(planner, 0, &plan, err);
    rfs_catalog_end(planner->config.catalog, &use);
    return rc;
}
