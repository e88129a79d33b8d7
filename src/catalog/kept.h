/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data on disk that one view keeps for the next: a folder of files that may be deleted at any time,
 * also while they are in use. All of it is optional, so nothing here fails: files that cannot be
 * read or are not trusted are ignored, as if they did not exist; files that cannot be written are
 * skipped (the reason is logged once).
 *
 * A folder, or a file in it, is trusted if it belongs to the effective user and only that user may
 * write it; both are checked through their descriptors, and are never symbolic links. A process
 * whose real and effective users differ has no such folder.
 *
 * A file is written under another name and renamed, so that readers see either the complete new
 * file or the old one. After each writing the files that were used least recently go, until
 * RFS_KEPT_FILES and RFS_KEPT_BYTES hold.
 *
 * A file has this form, in the byte order of the machine (the mark tells another's):
 *
 *   0   "rfsindex" or "rfssizes"
 *   8   u32 version of the format, u32 0x01020304
 *   16  u64 where the table begins, u64 its bytes, u64 its XXH3-64
 *   40  the body: data whose places, lengths and checksums are in the table
 *   …   the table, up to the end: the key (u32 length, text), then the kind's own fields
 *
 * kept_index.c and kept_sizes.c draw the tables.
 *
 * Threads: any thread may call all functions but open and close; a file or a draft belongs to one
 * thread at a time, except for rfs_kept_read_body.
 */
#pragma once

#include "base/log.h"
#include "base/vec.h"

#include <sys/stat.h>

#define RFS_KEPT_VERSION 3
#define RFS_KEPT_START 40
#define RFS_KEPT_MARK UINT32_C(0x01020304)
#define RFS_KEPT_TABLE (UINT64_C(256) << 20) /* no larger table is read or written */
#define RFS_KEPT_FILES 512
#define RFS_KEPT_BYTES (UINT64_C(1) << 30)

enum rfs_kept_kind { RFS_KEPT_INDEX, RFS_KEPT_SIZES };
/* Returns the first bytes of such a file. Other files than kept.c call it for tests alone. */
const char *rfs_kept_magic(enum rfs_kept_kind kind);

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Append to bytes being written; out->failed is looked at in the end. */
void rfs_kept_put_u32(struct rfs_bytes *out, uint32_t value);
void rfs_kept_put_u64(struct rfs_bytes *out, uint64_t value);
/* Appends the length of the text (u32) and the text. */
void rfs_kept_put_text(struct rfs_bytes *out, const char *text, size_t n);

/* Bytes being read. Once something is missing, everything is 0 and bad is set. */
struct rfs_kept_in {
    const unsigned char *p;
    size_t left;
    bool bad;
};
/* Returns the next N bytes, or NULL. */
const void *rfs_kept_take(struct rfs_kept_in *in, size_t n);
uint32_t rfs_kept_take_u32(struct rfs_kept_in *in);
uint64_t rfs_kept_take_u64(struct rfs_kept_in *in);
const char *rfs_kept_take_text(struct rfs_kept_in *in, size_t *n);
/*
 * Reads a count of items of at least LEAST bytes. More than the rest has room for is bad, and read
 * as 0.
 */
uint32_t rfs_kept_take_count(struct rfs_kept_in *in, size_t least);

/* A file whose table matches its checksum and has the requested key. */
struct rfs_kept_file {
    int fd; /* -1: it is in memory */
    const unsigned char *memory;
    uint64_t size;
    unsigned char *table;  /* owned */
    struct rfs_kept_in in; /* the table, after the key */
};
/*
 * Takes FD, or with -1 the SIZE bytes of MEMORY, which last as long as *file. False when it is no
 * such file: the descriptor is closed then. Other files than kept.c call it for tests alone.
 */
bool rfs_kept_parse(enum rfs_kept_kind kind, const char *key, int fd, const void *memory,
                    uint64_t size, struct rfs_kept_file *file);
/*
 * Returns N bytes at OFFSET whose XXH3-64 is HASH, in memory that the caller owns; NULL when they
 * are missing or do not match.
 */
void *rfs_kept_read_body(const struct rfs_kept_file *file, uint64_t offset, uint64_t n,
                         uint64_t hash);
void rfs_kept_end(struct rfs_kept_file *file);

/* ---- marks of source files ------------------------------------------------------------------- */

/* What a source file is known by. No padding. */
struct rfs_kept_mark {
    uint64_t ino;
    int64_t size;
    int64_t mtime, mtime_ns;
    int64_t ctime, ctime_ns;
};
struct rfs_kept_mark rfs_kept_mark_of(const struct stat *st);
/*
 * Says whether a file with that mark, if it still has it, cannot have been changed after OPENED in
 * the tick of its file system's clock that the mark is of: it was changed RFS_KEPT_TICK_SECONDS or
 * more before.
 */
#define RFS_KEPT_TICK_SECONDS 2
bool rfs_kept_mark_is_settled(const struct rfs_kept_mark *mark, struct timespec opened);
/*
 * Says whether the file system that holds PATH, with attributes ST, gives different files different
 * marks: an image may repeat the times and inodes of another, and FAT has no change time. *LAST,
 * {0} at first, caches the last result.
 */
struct rfs_kept_device {
    dev_t dev;
    bool known, trusted;
};
bool rfs_kept_mark_tells(const char *path, const struct stat *st, struct rfs_kept_device *last);
void rfs_kept_mark_put(struct rfs_bytes *out, const char *path, const struct rfs_kept_mark *mark);

/* A source file in a table. */
struct rfs_kept_source {
    const char *path; /* text in the table */
    size_t length;
    struct rfs_kept_mark mark;
};
/* Reads the next path and mark of a table. */
bool rfs_kept_source_take(struct rfs_kept_in *in, struct rfs_kept_source *source);
/* Return whether it has that path, and the mark of a file with attributes ST. */
bool rfs_kept_source_has_path(const struct rfs_kept_source *source, const char *path);
bool rfs_kept_source_has_mark(const struct rfs_kept_source *source, const struct stat *st);

/* ---- the folder ------------------------------------------------------------------------------ */

struct rfs_kept;

/*
 * Returns the folder at PATH, or reshardfs in $XDG_CACHE_HOME or ~/.cache if PATH is NULL. The
 * environment is looked at now, the folder at each use; it is made when something is to be written.
 * NULL when there is no such folder, or no memory. LOG (may be NULL) is borrowed.
 */
struct rfs_kept *rfs_kept_open(const char *path, struct rfs_log *log);
void rfs_kept_close(struct rfs_kept *kept);

/*
 * Makes the folder now, before a sandbox forbids it. Returns its path, owned by SAVED; NULL without
 * a trusted folder.
 */
const char *rfs_kept_make(struct rfs_kept *kept);

/*
 * Opens the file of that key for reading. False when there is none to be trusted; *file needs no
 * end then. SAVED may be NULL.
 */
bool rfs_kept_read(struct rfs_kept *kept, enum rfs_kept_kind kind, const char *key,
                   struct rfs_kept_file *file);

/* A file in the making. */
struct rfs_kept_draft {
    struct rfs_kept *kept;
    enum rfs_kept_kind kind;
    const char *key; /* borrowed */
    int dir, fd;
    int failed; /* -errno of the first failure, after which nothing is written; or 0 */
    uint64_t end;
    char name[64]; /* until it has its own */
};
/*
 * Begins a file. False when nothing can be written; *draft needs nothing then. SAVED may be NULL.
 */
bool rfs_kept_begin(struct rfs_kept *kept, enum rfs_kept_kind kind, const char *key,
                    struct rfs_kept_draft *draft);
/* Adds to the body, and returns where in the file that is. */
uint64_t rfs_kept_add(struct rfs_kept_draft *draft, const void *bytes, size_t n);
/*
 * Adds the table and gives the file its name; with TABLE NULL removes the draft. Follows begin in
 * any case. False when it was not written.
 */
bool rfs_kept_finish(struct rfs_kept_draft *draft, const struct rfs_bytes *table);
