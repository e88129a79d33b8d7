/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of files with the numbers of a save in them: how many files there are, and which one it is.
 * The folders of the formats have the forms of their names.
 *
 * A name counts if it is exactly what the writer would write. Other names that are like these, such
 * as those of copies, are left out with a warning.
 */
#pragma once

#include "base/std.h"

/* The highest rank number that is accepted. */
#define RFS_MAX_RANK (1u << 20)

/* The meaning of a number in a name. */
enum rfs_numbered_role {
    RFS_NUMBERED_RANK,
    RFS_NUMBERED_PART,
    RFS_NUMBERED_COUNT,
    RFS_NUMBERED_ROLES,
};

/* A form of names; a constant. */
struct rfs_numbered_form {
    const struct rfs_numbered_form *next; /* another form of names of this kind, or NULL */
    const char *similar; /* a pattern of names like these; only of the first form */
    const char *words[RFS_NUMBERED_ROLES + 1]; /* text before, between and behind the numbers */
    enum rfs_numbered_role
        roles[RFS_NUMBERED_ROLES]; /* roles of the numbers, one fewer than words */
    unsigned digits;               /* fewest digits of a number */
    uint32_t first;                /* the lowest rank and part */
    bool prefixed;                 /* a text of the user's and "-" may come before it */
    uint32_t part;                 /* the part, where no number is */
    bool counts_parts;             /* the count is that of parts; nothing counts ranks */
    bool opens_less;               /* the reader tells which tensors missing files have */
    /* A pattern for the files of one save: before and behind the count, or behind the prefix. */
    const char *choice[2];
};

/* A name as its form reads it. */
struct rfs_numbered_name {
    const struct rfs_numbered_form *form;
    char *name;    /* whole name, set and owned by the user; NULL from rfs_numbered_read */
    size_t prefix; /* bytes of the name before the form's first word */
    bool exact;    /* as the writer would write it; else the numbers have other digits */
    uint32_t of[RFS_NUMBERED_ROLES]; /* the numbers, by role */
};

/* Reads the numbers of a NAME of one of the forms. False: it is no such name. */
bool rfs_numbered_read(const struct rfs_numbered_form *forms, const char *name,
                       struct rfs_numbered_name *out);
/* Says whether NAME resembles those of these forms, as the name of a copy may. */
bool rfs_numbered_like(const struct rfs_numbered_form *forms, const char *name);
/* Reads a rank in decimal, without leading zeros, up to RFS_MAX_RANK. */
bool rfs_numbered_decimal(const char *text, uint32_t *rank);
/* Returns the number of files or ranks that NAME states; 0: it is no name of these forms. */
uint32_t rfs_numbered_count(const struct rfs_numbered_form *forms, const char *name);
