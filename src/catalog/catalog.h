/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source tree: the file of each rank, and its index once it is needed.
 *
 * Opening lists the source (scan.h) and opens no checkpoint. A rank has one file, or several
 * (parts) whose values are taken together; its index says in which part each value is.
 *
 * Saved indexes (saved/index.h) are used as long as the files are unchanged; others are made from
 * the files' headers.
 *
 * Threads: rfs_catalog_index from any thread; two threads never index the same rank twice (the
 * second waits). An index lives at least as long as a use (rfs_catalog_begin) that requested it.
 * When a use ends while all indexes together take more than spec->index_most, the least recently
 * requested ones are dropped, and made again when requested. A thread that begins no use while
 * others do has no such guarantee.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"
#include "catalog/scan/spec.h"
#include "formats/index.h"
#include "formats/walker.h"
#include "store/files.h"

#include <time.h>

struct rfs_chunks;
struct rfs_catalog;

/*
 * spec->path is resolved here; log (may be NULL) and pool are borrowed: the log outlives the
 * catalogue, the pool the last rfs_catalog_index. Returns 0 with *out owned by the caller, else
 * *out is NULL and *err filled (err may be NULL): -ENOENT for no source, no rank_N folder or no
 * checkpoint in any, -EINVAL for a tree that is ambiguous or of another kind, -ENOMEM, or the
 * system's error for a folder (-ENOTDIR, -EACCES, -EIO, ...).
 */
int rfs_catalog_open(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_pool *pool,
                     struct rfs_catalog **out, struct rfs_error *err);
/*
 * A catalogue of one rank, whose file has these values, with the files, names and types of FROM,
 * which it shares and which outlive it. Nothing can be read by the index. 0 with *out owned by the
 * caller, or -ENOMEM with *err filled.
 */
int rfs_catalog_derive(struct rfs_catalog *from, const struct rfs_entry *entries, size_t n,
                       struct rfs_catalog **out, struct rfs_error *err);
bool rfs_catalog_is_derived(const struct rfs_catalog *catalog);
/* Frees it with its indexes, files and tables. No other call may be running. NULL is fine. */
void rfs_catalog_close(struct rfs_catalog *catalog);

/* The absolute, resolved path of the source. */
const char *rfs_catalog_path(const struct rfs_catalog *catalog);
/* One more than the highest rank that has a file; 0 never happens (opening fails). */
uint32_t rfs_catalog_ranks(const struct rfs_catalog *catalog);
/* How many ranks have a file. */
uint32_t rfs_catalog_present(const struct rfs_catalog *catalog);
bool rfs_catalog_has(const struct rfs_catalog *catalog, uint32_t rank);
/* The lowest rank that has a file. */
uint32_t rfs_catalog_lowest(const struct rfs_catalog *catalog);
/* Whether its files are those of another rank, by group info: its own files are lost. */
bool rfs_catalog_stands_in(const struct rfs_catalog *catalog, uint32_t rank);
/*
 * The id of the rank's first file in rfs_catalog_files; UINT32_MAX when it has none. Its other
 * parts have the ids after it, parts in all.
 */
uint32_t rfs_catalog_file(const struct rfs_catalog *catalog, uint32_t rank);
uint32_t rfs_catalog_parts(const struct rfs_catalog *catalog, uint32_t rank);
/* The id of the file that holds an entry of the rank's index. */
static inline uint32_t rfs_catalog_entry_file(const struct rfs_catalog *catalog, uint32_t rank,
                                              const struct rfs_index *index,
                                              const struct rfs_entry *entry)
{
    const uint32_t part = index->part_of ? index->part_of[entry - index->entries] : 0;
    return rfs_catalog_file(catalog, rank) + part;
}
/* Whether the ranks are the parts of hfai's dist_ckpt, which have no index. */
bool rfs_catalog_has_parts(const struct rfs_catalog *catalog);
/*
 * The boxes of a checkpoint that describes itself, or NULL. Its rank 0 is an index of whole
 * tensors, whose file is the metadata and whose entries have no place in it.
 */
struct rfs_chunks *rfs_catalog_chunks(const struct rfs_catalog *catalog);
enum rfs_format rfs_catalog_format(const struct rfs_catalog *catalog);
struct rfs_files *rfs_catalog_files(struct rfs_catalog *catalog);
struct rfs_tables *rfs_catalog_tables(struct rfs_catalog *catalog);
static inline const struct rfs_type *rfs_catalog_type(struct rfs_catalog *catalog, uint32_t type)
{
    return (const struct rfs_type *)rfs_intern_bytes(rfs_catalog_tables(catalog)->types, type,
                                                     NULL);
}
static inline const char *rfs_catalog_name(struct rfs_catalog *catalog, uint32_t name)
{
    return rfs_intern_text(rfs_catalog_tables(catalog)->names, name);
}

#define RFS_NO_RANK UINT32_MAX
/*
 * The rank's index, built at the first call. TEMPLATE (or RFS_NO_RANK) is a rank of the same stage
 * that is indexed already: its index is tried as a prediction before walking. -ENOENT when the rank
 * has no file. A failure is remembered and given again.
 */
int rfs_catalog_index(struct rfs_catalog *catalog, uint32_t rank, uint32_t template,
                      const struct rfs_index **out, struct rfs_error *err);
/*
 * Whether rfs_catalog_index failed because the rank's one file holds no parameters: a full disk
 * leaves such files, and so does remove_redundancy with a rank that keeps nothing.
 */
bool rfs_catalog_is_empty(struct rfs_catalog *catalog, uint32_t rank);
/*
 * Whether a rank that has a file seems to list the same parameters as TEMPLATE, which is indexed: 1
 * when SAMPLES (two or more) of its headers say so, of two blocks if it is encrypted, and its index
 * was not built for that; else 0, or -errno.
 */
int rfs_catalog_resembles(struct rfs_catalog *catalog, uint32_t rank, uint32_t template,
                          size_t samples);
/* The rank's index if it is built, else NULL. Lock-free. */
const struct rfs_index *rfs_catalog_ready(const struct rfs_catalog *catalog, uint32_t rank);

/* A span of time in which its owner uses indexes. The catalogue's, from begin to end. */
struct rfs_use {
    uint64_t since;
    struct rfs_use *before, *after;
};
void rfs_catalog_begin(struct rfs_catalog *catalog, struct rfs_use *use);
void rfs_catalog_end(struct rfs_catalog *catalog, struct rfs_use *use);

/* Bytes of memory that indexes may take. */
uint64_t rfs_catalog_index_most(const struct rfs_catalog *catalog);

/*
 * Saves the indexes that are there, if some are not saved yet. Not for sources with a key or a map
 * of their files, and not for ranks whose files cause log messages.
 */
void rfs_catalog_save(struct rfs_catalog *catalog);
/*
 * The store of saved data for the next view, or NULL; its key, or NULL; and a time before the first
 * file was examined.
 */
struct rfs_saved *rfs_catalog_saved(const struct rfs_catalog *catalog);
const char *rfs_catalog_key(const struct rfs_catalog *catalog);
struct timespec rfs_catalog_opened(const struct rfs_catalog *catalog);

struct rfs_catalog_counters {
    uint64_t indexed, predicted;
    uint64_t saved;       /* of those indexed, how many had been saved by an earlier view */
    uint64_t index_bytes; /* of memory, now */
    uint64_t dropped;     /* indexes, for room */
};
void rfs_catalog_count(struct rfs_catalog *catalog, struct rfs_catalog_counters *out);

/* Where the content of an entry is, as long as the index lives. */
static inline struct rfs_content rfs_content_of(const struct rfs_index *index,
                                                const struct rfs_entry *entry)
{
    return (struct rfs_content){entry->offset, entry->extent_count,
                                entry->extent_count ? &index->extents[entry->extent] : NULL};
}
/* The same, as long as the catalogue lives. 0 or -ENOMEM. */
int rfs_catalog_content(struct rfs_catalog *catalog, const struct rfs_index *index,
                        const struct rfs_entry *entry, struct rfs_content *out);

/*
 * The lengths of the messages of a map tensor's entry, as one id: equal lengths have the same. 0 or
 * -ENOMEM. They live as long as the catalogue.
 */
int rfs_catalog_lengths(struct rfs_catalog *catalog, const struct rfs_index *index,
                        const struct rfs_entry *entry, uint32_t *id);
const uint64_t *rfs_catalog_lengths_of(const struct rfs_catalog *catalog, uint32_t id, size_t *n);

/* Where in the file byte OFFSET of a value's content is. */
uint64_t rfs_content_offset(const struct rfs_content *content, uint64_t offset);

/*
 * SIZE bytes of a value's content from OFFSET in it, over its extents. 0 or -errno.
 */
int rfs_content_pread(struct rfs_reading *reading, const struct rfs_content *content, void *buf,
                      size_t size, uint64_t offset);
