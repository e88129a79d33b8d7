/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/notes.h"

#include "plan/internal.h"

int rfs_notes_init(struct rfs_notes *notes, rfs_note_fn *take, void *ctx)
{
    *notes = (struct rfs_notes){.take = take, .ctx = ctx, .made = rfs_intern_new()};
    return notes->made ? 0 : -ENOMEM;
}

void rfs_notes_free(struct rfs_notes *notes)
{
    rfs_intern_free(notes->made);
}

bool rfs_notes_are_new(const struct rfs_planner *planner, enum rfs_note_kind kind, uint32_t about)
{
    /* What rules make has names, ranks and stages of its own. */
    const uint32_t key[] = {kind, about, planner->config.by_rules != NULL};

    return planner->config.notes && rfs_intern_is_new(planner->config.notes->made, key, sizeof key);
}

void rfs_notes_add(const struct rfs_planner *planner, enum rfs_note_kind kind, enum rfs_level level,
                   const char *fmt, ...)
{
    char text[RFS_NOTE_BYTES];
    va_list args;

    if (!planner->config.notes)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    planner->config.notes->take(planner->config.notes->ctx, &(struct rfs_note){kind, level, text});
}

enum rfs_telling rfs_notes_form(const struct rfs_planner *planner)
{
    const struct rfs_notes *notes = planner->config.notes;

    return notes ? (enum rfs_telling)atomic_load(&notes->telling) : RFS_TELL_ONE_SIDED;
}
