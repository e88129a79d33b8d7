/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of files with the numbers of a save in them: how many files there are, and which one it is.
 *
 *   shard-00001-model-00001-of-00003.safetensors   HuggingFaceStorageWriter of torch: 1 + the rank,
 *                                                  the part of the model, the number of parts
 *   model_world_size_8_rank_0.pt                   FSDP: the number of ranks, the rank
 *   [PREFIX-]model-0000000-0000008.safetensors     MindSpore Transformers: the rank, the number of
 *   [PREFIX-]opt-0000000-0000008.safetensors       ranks
 *
 * A name counts if it is exactly what the writer would write. Other names that are like these, such
 * as those of copies, are left out with a warning.
 */
#pragma once

#include "base/std.h"

/* The highest rank number that is accepted. */
#define RFS_MAX_RANK (1u << 20)

/* The saves whose files are named so. */
enum rfs_numbered { RFS_NUMBERED_SHARDS, RFS_NUMBERED_FSDP, RFS_NUMBERED_MINDFORMERS };

/* The meaning of a number in a name. */
enum rfs_numbered_role {
    RFS_NUMBERED_RANK,
    RFS_NUMBERED_PART,
    RFS_NUMBERED_COUNT,
    RFS_NUMBERED_ROLES,
};

/* A form of names; a constant. */
struct rfs_numbered_form {
    enum rfs_numbered kind;
    const char *similar;                       /* a pattern; NULL: nothing is like it */
    const char *words[RFS_NUMBERED_ROLES + 1]; /* text before, between and behind the numbers */
    enum rfs_numbered_role
        roles[RFS_NUMBERED_ROLES]; /* roles of the numbers, one fewer than words */
    unsigned digits;               /* fewest digits of a number */
    uint32_t first;                /* the lowest rank and part */
    bool prefixed;                 /* a text of the user's and "-" may come before it */
    uint32_t part;                 /* the part, where no number is */
};

/* A name as its form reads it. */
struct rfs_numbered_name {
    const struct rfs_numbered_form *form;
    char *name;    /* whole name, set and owned by the user; NULL from rfs_numbered_read */
    size_t prefix; /* bytes of the name before the form's first word */
    bool exact;    /* as the writer would write it; else the numbers have other digits */
    uint32_t of[RFS_NUMBERED_ROLES]; /* the numbers, by role */
};

/* Reads the numbers of a NAME of this kind. False: it is no such name. */
bool rfs_numbered_read(enum rfs_numbered kind, const char *name, struct rfs_numbered_name *out);
/* Says whether NAME resembles those of this kind, as the name of a copy may. */
bool rfs_numbered_like(enum rfs_numbered kind, const char *name);
/* Returns the number of files or ranks that NAME states; 0: it is no name of this kind. */
uint32_t rfs_numbered_count(enum rfs_numbered kind, const char *name);
/* Returns the form of the files of MindSpore Transformers that have the model. */
const struct rfs_numbered_form *rfs_numbered_model_form(void);
