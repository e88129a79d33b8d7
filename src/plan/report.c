/* SPDX-License-Identifier: Apache-2.0 */
/* Names of parameters in one line, and the messages about a stage whose files differ. */
#include "plan/internal.h"

#include "base/cleanup.h"

#include <xxhash.h>

#define NAMES_SHOWN 5

void rfs_plan_note(struct note *note, const char *param)
{
    note->hash = XXH3_64bits_withSeed(param, strlen(param), note->hash + 1);
    if (note->n++ < NAMES_SHOWN) {
        const int wrote = snprintf(note->names + note->used, sizeof note->names - note->used,
                                   "%s%s", note->n > 1 ? ", " : "", param);
        if (wrote > 0)
            note->used = (note->used + (size_t)wrote < sizeof note->names)
                             ? note->used + (size_t)wrote
                             : sizeof note->names - 1;
    } else if (note->n == NAMES_SHOWN + 1) {
        snprintf(note->names + note->used, sizeof note->names - note->used, ", …");
    }
}

bool rfs_plan_is_gradient(const char *param)
{
    return strncmp(param, "accu_grads", 10) == 0;
}

/* Whether a parameter of the strategy is of this stage alone, and is saved. */
static bool is_expected(const struct rfs_strategy *src, size_t i, uint32_t s)
{
    return rfs_strategy_next_stage(src, i, 0) == s &&
           rfs_strategy_next_stage(src, i, s + 1) == RFS_NO_STAGE &&
           !rfs_plan_is_gradient(rfs_strategy_param(src, i));
}

/*
 * Parameters that no rank of the stage has were perhaps removed everywhere, as older releases of
 * MindSpore do.
 */
static void report_lacking(const struct rfs_planner *planner, const struct stage_use *use,
                           uint32_t s)
{
    const struct rfs_presence *presence = use->presence;
    const size_t n = presence ? presence->n : use->lead_index->n;
    const struct rfs_strategy *src = planner->config.src;
    RFS_FREE unsigned char *found = calloc(rfs_strategy_count(src) + 1, 1);
    struct note note = {0};

    if (!found)
        return; /* a line of the log less */
    for (size_t i = 0; i < n; i++) {
        const uint32_t name = presence ? presence->order[i] : use->lead_index->entries[i].name;
        const uint32_t at = rfs_plan_name(planner, name).src;
        if (at != RFS_NO_ID)
            found[at] = 1;
    }
    for (size_t i = 0; i < rfs_strategy_count(src); i++)
        if (!found[i] && is_expected(src, i, s))
            rfs_plan_note(&note, rfs_strategy_param(src, i));
    if (note.n > 0)
        rfs_log(planner->config.log, RFS_WARNING,
                "%zu parameter%s of the source strategy in no checkpoint of pipeline stage %u: %s",
                note.n, note.n == 1 ? "" : "s", s, note.names);
}

/* A file that a full disk cut short looks like the file of a rank that keeps nothing. */
static void report_empty(const struct rfs_planner *planner, const struct stage_use *use, uint32_t s)
{
    struct note note = {0};
    char rank[32];

    for (uint32_t i = 0; use->presence && i < use->presence->devices; i++)
        if (rfs_catalog_has(planner->config.catalog, use->base + i) &&
            rfs_catalog_is_empty(planner->config.catalog, use->base + i)) {
            snprintf(rank, sizeof rank, "rank_%u", use->base + i);
            rfs_plan_note(&note, rank);
        }
    if (note.n > 0)
        rfs_log(planner->config.log, RFS_WARNING,
                "the checkpoint%s of %s in pipeline stage %u %s empty: remove_redundancy leaves "
                "such a file of a rank that keeps nothing, and so does a full disk",
                note.n == 1 ? "" : "s", note.names, s, note.n == 1 ? "is" : "are");
}

static bool all_list_the_same(const struct rfs_presence *presence)
{
    for (size_t i = 0; i < presence->n; i++)
        if (presence->of[presence->order[i]].ranks < presence->present)
            return false;
    return true;
}

void rfs_plan_report_presence(struct rfs_planner *planner, const struct stage_use *use, uint32_t s)
{
    const bool same = !use->presence || all_list_the_same(use->presence);

    report_empty(planner, use, s);
    if (same && !use->bereft)
        return; /* files of different sizes, nothing more */
    if (!same && (!use->lead_index || !use->lead_index->redundancy_removed))
        rfs_log(planner->config.log, RFS_WARNING,
                "the checkpoints of pipeline stage %u do not list the same parameters, as after "
                "remove_redundancy: each is read from a rank that has it",
                s);
    report_lacking(planner, use, s);
}
