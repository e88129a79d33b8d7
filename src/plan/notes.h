/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes: what the owner of planners should know of plans, even if they succeed. The planners of one
 * source share its notes, so that each is made once.
 *
 * Threads: all functions but init and free.
 */
#pragma once

#include "base/intern.h"
#include "base/log.h"

#include <stdatomic.h>

struct rfs_planner;

/* Subjects of notes; in brackets what they are about: one note is made about each. */
enum rfs_note_kind {
    RFS_NOTE_ONE_STAGE,       /* the source is a stage by itself, in a tree of more */
    RFS_NOTE_LOST_FILES,      /* of a checkpoint that describes itself */
    RFS_NOTE_FEW_MATCH,       /* the strategy has few of the tensors */
    RFS_NOTE_UNUSED_NAMES,    /* names= has names that no parameter has */
    RFS_NOTE_UNDROPPED,       /* drop= has patterns that no name is like */
    RFS_NOTE_UNTYPED,         /* dtype= has patterns that no name is left for */
    RFS_NOTE_NEWER_FILE,      /* than the metadata */
    RFS_NOTE_REPLICA,         /* read instead of a lost rank [global rank] */
    RFS_NOTE_DAMAGED,         /* a checkpoint of a stage [stage] */
    RFS_NOTE_PRESENCE,        /* files that list different parameters, or too few [stage] */
    RFS_NOTE_SAMPLED,         /* parameters that samples of headers do not show [stage] */
    RFS_NOTE_UNREADABLE,      /* the headers that a quick look begins with */
    RFS_NOTE_UNPROVED,        /* a parameter is copied without a proof [name] */
    RFS_NOTE_UNPROVED_DIFFER, /* a parameter like that has differing bytes [name] */
    RFS_NOTE_ALIKE,           /* ranks contradict the strategy [stage] */
    /* made each time: */
    RFS_NOTE_REPEATED,
    RFS_NOTE_ONE_VALUE = RFS_NOTE_REPEATED, /* of all ranks stands for that of a lost one */
    RFS_NOTE_FAILURE,                       /* a slice cannot be found */
};

#define RFS_NOTE_BYTES 2304 /* of the longest text */

struct rfs_note {
    enum rfs_note_kind kind;
    enum rfs_level level;
    const char *text;
};
typedef void rfs_note_fn(void *ctx, const struct rfs_note *note);

/*
 * Forms of the notes on parameters that are copied without a proof that they are whole: several in
 * a note that names the first few; each in a note of its own; or only those that one of two
 * strategies has, because the owner looks for the others itself.
 */
enum rfs_telling { RFS_TELL_SOME, RFS_TELL_EACH, RFS_TELL_ONE_SIDED };

struct rfs_notes {
    rfs_note_fn *take; /* takes each note, in the thread that plans */
    void *ctx;
    atomic_int telling;      /* enum rfs_telling */
    struct rfs_intern *made; /* owned; what was noted */
};

/* 0 or -ENOMEM. */
int rfs_notes_init(struct rfs_notes *notes, rfs_note_fn *take, void *ctx);
void rfs_notes_free(struct rfs_notes *notes);

/* Says whether a planner's owner wants a note that was not made, and remembers it as made. */
bool rfs_notes_are_new(const struct rfs_planner *planner, enum rfs_note_kind kind, uint32_t about);
/* Makes a note for a planner's owner. */
void rfs_notes_add(const struct rfs_planner *planner, enum rfs_note_kind kind, enum rfs_level level,
                   const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Returns the form of the notes on parameters that nothing proves. Without an owner: the least. */
enum rfs_telling rfs_notes_form(const struct rfs_planner *planner);
