/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of tensors in the folders of a checkpoint that are not read, each with the reason. One
 * function finds them for all commands: the scan keeps them, and the catalogue tells them.
 */
#pragma once

#include "base/error.h"
#include "base/vec.h"
#include "catalog/scan/spec.h"

struct dirent;
struct rfs_scan;

/* A file that is not read. */
struct rfs_aside_file {
    char *path;      /* owned */
    const char *why; /* the reason, behind "not read: "; constant */
    bool state;      /* it is no file of the model, but what a training needs to go on */
    bool again;      /* it has the model once more, by other names */
    /* What its headers tell, once rfs_catalog_weigh_aside has read them: */
    bool weighed;
    size_t news; /* tensors that no file has which is read */
    char *first; /* the first of these; owned; NULL: there is none */
    char *fault; /* why its headers cannot be read; owned; NULL: they were */
};

/* The files, by path. Begins as {0}. */
struct rfs_aside {
    RFS_VEC(struct rfs_aside_file) files;
};

void rfs_aside_free(struct rfs_aside *aside);

/*
 * Finds the files of tensors beside those that SCAN takes, in the folders of those; none where
 * options choose files by name, and none in rank folders, where each save has a file. Lists each
 * folder once more, and opens no file. 0, or -errno with *err filled.
 */
int rfs_aside_find(const struct rfs_source_spec *spec, const struct rfs_scan *scan,
                   struct rfs_aside *out, struct rfs_error *err);

/*
 * Adds an entry beside rank folders, if it is a file of tensors and says nothing of their cuts. It
 * is compared with none of the ranks. False: out of memory.
 */
bool rfs_aside_note(const struct rfs_source_spec *spec, const struct dirent *entry,
                    struct rfs_aside *out);
/* Puts the files in the order of their paths. */
void rfs_aside_sort(struct rfs_aside *aside);

struct rfs_scan_listing;
/*
 * Drops the states of a training from the files of a folder, unless there is nothing else. Formats
 * whose last file counts keep theirs. Returns how many went; *first is one, malloc'ed, if FIRST is
 * not NULL, and *first is.
 */
size_t rfs_aside_drop_states(struct rfs_scan_listing *listing, char **first);

/* Returns a line for the log, malloc'ed: which files are not read, and why. NULL: no memory. */
char *rfs_aside_text(const struct rfs_aside *aside);
