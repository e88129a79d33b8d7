/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a format that describes itself makes of a folder, by the names in it. No file is opened.
 * What the names show is a set of bits; all but one are the format's own.
 */
#pragma once

#include "base/std.h"

/* A bit: there is a file of the format. */
#define RFS_SEEN_FILE 1U

/* How the files of a folder are taken. */
enum rfs_seen_as {
    RFS_SEEN_NOTHING,    /* the folder is of another kind */
    RFS_SEEN_METADATA,   /* one file, METADATA of the row, describes the checkpoint */
    RFS_SEEN_RANKS,      /* metadata of each rank does, by the names RANKS of the row */
    RFS_SEEN_NAMES,      /* files by NAMES of the row do, each for its tensors */
    RFS_SEEN_WHOLE,      /* files by NAMES of the row are one plain checkpoint */
    RFS_SEEN_STATES,     /* files of states, by DeepSpeed's names */
    RFS_SEEN_UNFINISHED, /* the save has not ended */
};

/* What a format settles of a folder. Texts are constants. */
struct rfs_seen {
    enum rfs_seen_as as;
    const char *what, *remedy; /* of RFS_SEEN_UNFINISHED, for a message */
    const char *doubt;         /* reason why files may be of another save; NULL: there is none */
    const char *temporary;     /* a file beside METADATA from a save that broke off; or NULL */
};

/* Returns the bits that a NAME shows. */
typedef unsigned rfs_seen_name_fn(const char *name);
/* Settles what the BITS of all names mean. */
typedef struct rfs_seen rfs_seen_settle_fn(unsigned bits);

/* A form of names with the number of a rank. A list ends with one without BEFORE. */
struct rfs_seen_form {
    const char *before, *behind; /* of the number; BEHIND is a pattern */
    unsigned bits;               /* that such a name shows */
    bool metadata;               /* it describes what the rank saved; then BEHIND is a text */
};

/* What a format makes of names. */
struct rfs_seen_kind {
    const struct rfs_seen_form *ranks; /* names with a rank's number, or NULL */
    rfs_seen_name_fn *name;
    rfs_seen_settle_fn *settle;
};

/* Returns the form of a NAME, and gives the rank in it; NULL: it has none of them. */
const struct rfs_seen_form *rfs_seen_rank(const struct rfs_seen_form *forms, const char *name,
                                          uint32_t *rank);
