/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that name parameters which the source does not have are typing errors, and would lose
 * tensors without a word. By the time a file is planned, the names of its sources and of the source
 * strategy were looked up. If something is unmet by then, the names of all other stages are looked
 * up, too, before it is refused.
 */
#include "base/suggest.h"
#include "formats/chunks/chunks.h"
#include "plan/internal.h"

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
        rfs_names_shown(names, name);
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

int rfs_plan_check_unmet(struct rfs_planning *planning)
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
    snprintf(remedy, sizeof remedy, "%s='%s'", option, nearest.name);
    return rfs_fail_usage(planning->err, *nearest.name ? remedy : "a checkpoint with tensors",
                          "option %s: no name is like '%s'", option, pattern);
}

void rfs_plan_note_unused(const struct rfs_planner *planner)
{
    char unused[RFS_NOTE_BYTES];

    if (rfs_notes_are_new(planner, RFS_NOTE_UNUSED_NAMES, 0) &&
        rfs_names_unused(planner->config.names, unused, sizeof unused))
        rfs_notes_add(planner, RFS_NOTE_UNUSED_NAMES, RFS_WARNING, "%s", unused);
    if (rfs_notes_are_new(planner, RFS_NOTE_UNDROPPED, 0) &&
        rfs_names_undropped(planner->config.names, unused, sizeof unused))
        rfs_notes_add(planner, RFS_NOTE_UNDROPPED, RFS_WARNING, "%s", unused);
}
