/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room only: the indexes of a source's ranks, kept on disk for the next view. folder.h
 * describes the place and which files are trusted. Ranks that share an index in memory share one
 * there.
 *
 * A rank's index is used only if each of its files has the path, inode, size, mtime and ctime that
 * are saved with it. An index that does not fit the files' sizes or its own tables is ignored.
 *
 * Cost in memory: the table (the text of the names, 144 bytes a type, about 150 a rank). Indexes
 * are read when they are asked for.
 */
#pragma once

#include "catalog/saved/built.h"
#include "catalog/saved/folder.h"
#include "formats/walker.h"
#include "store/files.h"

#include <sys/stat.h>

/* By which a file is known again. No padding. */
struct rfs_mark {
    uint64_t ino;
    int64_t size;
    int64_t mtime, mtime_ns;
    int64_t ctime, ctime_ns;
};
struct rfs_mark rfs_mark_of(const struct stat *st);
/*
 * Whether a file with that mark, which is still the same, cannot have been changed after OPENED, in
 * the same tick of its file system's clock as before: it was changed RFS_TICK_SECONDS or more
 * before.
 */
#define RFS_TICK_SECONDS 2
bool rfs_mark_is_settled(const struct rfs_mark *mark, struct timespec opened);
/*
 * Whether the file system that holds PATH, with attributes ST, gives different files different
 * marks: an image may repeat the times and inodes of another, and FAT has no change time. *LAST,
 * {0} at first, caches the last result.
 */
struct rfs_mark_place {
    dev_t dev;
    bool known, trusted;
};
bool rfs_mark_tells(const char *path, const struct stat *st, struct rfs_mark_place *last);
void rfs_mark_put(struct rfs_bytes *out, const char *path, const struct rfs_mark *mark);
/* The next in the table; *path is in the table. */
bool rfs_mark_take(struct rfs_saved_in *in, const char **path, size_t *length,
                   struct rfs_mark *mark);

#define RFS_SAVED_NONE UINT32_MAX
#define RFS_SAVED_INDEX_BYTES 24 /* in the table */

struct rfs_saved_rank {
    uint32_t rank, number;
    size_t first; /* of its files */
    uint32_t parts;
};

struct rfs_saved_part {
    const char *path; /* in the table */
    size_t length;
    struct rfs_mark mark;
};

/* The entry of a rank; its pieces begin at first. */
struct rfs_saved_built {
    size_t first;
    uint32_t n_pieces;
    uint32_t merged;
};

/* The saved file, opened. */
struct rfs_saved_index {
    struct rfs_saved_file file;
    RFS_VEC(uint32_t) names; /* ids by number */
    RFS_VEC(uint32_t) types;
    const unsigned char *indexes; /* in the table */
    uint32_t n_indexes;
    RFS_VEC(struct rfs_saved_built) builts;
    RFS_VEC(uint32_t) pieces;
    RFS_VEC(struct rfs_saved_rank) ranks;
    RFS_VEC(struct rfs_saved_part) parts;
};

/* NULL when there is none. Adds its names and types to TABLES. */
struct rfs_saved_index *rfs_saved_index_load(struct rfs_saved *saved, const char *key,
                                             const struct rfs_tables *tables);
/* The same of a file that was read; takes it over. For tests, too. */
struct rfs_saved_index *rfs_saved_index_take(struct rfs_saved_file *file,
                                             const struct rfs_tables *tables);
void rfs_saved_index_free(struct rfs_saved_index *index);

/*
 * The number of the saved index of a rank whose PARTS files are those in FILES from FIRST on, if
 * their marks are unchanged; else RFS_NO_ID. Ranks with the same number have the same indexes.
 */
uint32_t rfs_saved_index_find(const struct rfs_saved_index *index, uint32_t rank,
                              struct rfs_files *files, uint32_t first, uint32_t parts);
/* The saved bytes of one index; the caller owns them. NULL when they have changed. */
void *rfs_saved_index_body(const struct rfs_saved_index *index, uint32_t number, size_t *n);
/* Room for numbers: they are below this. */
uint32_t rfs_saved_index_count(const struct rfs_saved_index *index);
/*
 * The index of that number, checked against the sizes of the files of a rank that
 * rfs_saved_index_find gave it for. The caller's (rfs_built_free), or NULL.
 */
struct rfs_built *rfs_saved_index_read(const struct rfs_saved_index *index, uint32_t number,
                                       const struct rfs_tables *tables, struct rfs_files *files,
                                       uint32_t first);

/* One rank to be saved. */
struct rfs_saving {
    uint32_t rank;
    uint32_t first, parts;   /* its files */
    struct rfs_built *built; /* or NULL: the index of the number BEFORE */
    uint32_t before;
};
/*
 * Saves those of N ranks whose files were settled before OPENED. Replaces the data saved under that
 * key before: BEFORE, or NULL. False when nothing was written. One call at a time for the same
 * BUILTs.
 */
bool rfs_saved_index_store(struct rfs_saved *saved, const char *key,
                           const struct rfs_tables *tables, struct rfs_files *files,
                           struct timespec opened, const struct rfs_saved_index *before,
                           const struct rfs_saving *ranks, size_t n);

/* The body of one index: of names and types by their numbers in the table. body.c draws it. */
struct rfs_numbers {
    uint32_t n_names, n_types;
    const uint32_t *names, *types; /* to ids when reading, and from ids when writing */
};
void rfs_saved_body_put(struct rfs_bytes *out, const struct rfs_index *index,
                        const struct rfs_numbers *numbers);
/* NULL for an index that is invalid for files with those sizes. */
struct rfs_index *rfs_saved_body_take(const void *bytes, size_t n,
                                      const struct rfs_numbers *numbers, struct rfs_intern *types,
                                      const uint64_t *file_bytes, uint32_t parts);
/* Whether a type is one that a walker could have made. */
bool rfs_saved_type_is_sound(const struct rfs_type *type);
