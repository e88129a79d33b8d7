/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source tree: the files of each rank, and its index once it is needed.
 *
 * Opening lists the source (scan.h) and opens no checkpoint, except for the metadata of one that
 * describes itself. A rank has one file, or several whose values are taken together; its index says
 * in which file each value is.
 *
 * Saved indexes (kept_index.h) are used as long as the files are unchanged; others are made from
 * the files' headers.
 *
 * Threads: any thread may call rfs_catalog_index; two threads never index the same rank twice (the
 * second waits). An index lives at least as long as a use (rfs_catalog_begin) that requested it.
 * When a use ends while all indexes together take more than spec->index_most, the least recently
 * requested ones are dropped, and made again when requested. A thread that begins no use while
 * others do has no such guarantee.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"
#include "catalog/scan/aside.h"
#include "catalog/scan/spec.h"
#include "formats/formats.h"
#include "formats/hfai/hfai.h"
#include "formats/index.h"
#include "formats/walker.h"
#include "layout/strategy.h"
#include "quant/quant.h"
#include "store/files.h"

#include <time.h>

struct rfs_catalog;

/*
 * Opens a source. spec->path is resolved here; log (may be NULL) and pool are borrowed: the log
 * outlives the catalogue, the pool the last rfs_catalog_index. Returns 0 with *out owned by the
 * caller, else *out is NULL and *err filled (err may be NULL): -ENOENT for no source, no rank_N
 * folder or no checkpoint in any, -EINVAL for a tree that is ambiguous or of another kind, -ENOMEM,
 * or the system's error for a folder (-ENOTDIR, -EACCES, -EIO, ...).
 */
int rfs_catalog_open(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_pool *pool,
                     struct rfs_catalog **out, struct rfs_error *err);
/*
 * Makes a catalogue of one rank, whose file has these values. It shares the files, names and types
 * of FROM, which outlives it. Nothing can be read by its index. 0 with *out owned by the caller, or
 * -ENOMEM with *err filled.
 */
int rfs_catalog_derive(struct rfs_catalog *from, const struct rfs_entry *entries, size_t n,
                       struct rfs_catalog **out, struct rfs_error *err);
bool rfs_catalog_is_derived(const struct rfs_catalog *catalog);
/* Frees it with its indexes, files and tables. No other call may be running. NULL is fine. */
void rfs_catalog_close(struct rfs_catalog *catalog);

/* Returns the absolute, resolved path of the source. */
const char *rfs_catalog_path(const struct rfs_catalog *catalog);
/* Returns one more than the highest rank that has a file; it is never 0 (opening fails). */
uint32_t rfs_catalog_ranks(const struct rfs_catalog *catalog);
/* Counts the ranks that have a file. */
uint32_t rfs_catalog_present(const struct rfs_catalog *catalog);
/* Returns the lowest rank that has a folder and no files, or RFS_NO_RANK. */
uint32_t rfs_catalog_lacks(const struct rfs_catalog *catalog);
bool rfs_catalog_has(const struct rfs_catalog *catalog, uint32_t rank);
/* Returns the lowest rank that has a file. */
uint32_t rfs_catalog_lowest(const struct rfs_catalog *catalog);
/* Says whether a rank has the files of another, by group info: its own are lost. */
bool rfs_catalog_stands_in(const struct rfs_catalog *catalog, uint32_t rank);
/*
 * Returns the id of the rank's first file in rfs_catalog_files; UINT32_MAX when it has none. Its
 * other files have the ids after it.
 */
uint32_t rfs_catalog_file(const struct rfs_catalog *catalog, uint32_t rank);
uint32_t rfs_catalog_file_count(const struct rfs_catalog *catalog, uint32_t rank);
/* Returns the id of the file that holds an entry of the rank's index. */
static inline uint32_t rfs_catalog_entry_file(const struct rfs_catalog *catalog, uint32_t rank,
                                              const struct rfs_index *index,
                                              const struct rfs_entry *entry)
{
    const uint32_t part = index->file_of ? index->file_of[entry - index->entries] : 0;
    return rfs_catalog_file(catalog, rank) + part;
}
/* Returns the files of tensors beside the checkpoint that are not read. */
struct rfs_aside *rfs_catalog_aside(struct rfs_catalog *catalog);
/*
 * Reads the headers of those that may be of the model, and rank 0's, to say which tensors no file
 * has that is read (weigh.c). One thread at a time. 0, or -errno with *err filled: of rank 0's
 * headers.
 */
int rfs_catalog_weigh_aside(struct rfs_catalog *catalog, struct rfs_error *err);
/*
 * Tells LOG in one line which files are beside it, with QUIET by the way. STRICT refuses those that
 * have such tensors, or may have: 0, or -errno with *err filled.
 */
int rfs_catalog_tell_aside(struct rfs_catalog *catalog, struct rfs_log *log, bool quiet,
                           bool strict, struct rfs_error *err);
/*
 * Says whether the files are named as Meta names those of tensor-parallel ranks. There may be one
 * rank.
 */
bool rfs_catalog_is_model_parallel(const struct rfs_catalog *catalog);
/* Says whether the ranks are the parts of hfai's dist_ckpt, which have no index. */
bool rfs_catalog_has_parts(const struct rfs_catalog *catalog);
/* Returns what lists of chunks in its files need, which the catalogue owns. */
struct rfs_chunks_source rfs_catalog_chunks_source(struct rfs_catalog *catalog);
/* Returns these parts as files of one state, which the catalogue owns. */
struct rfs_chunks_parts rfs_catalog_parts(const struct rfs_catalog *catalog, bool uneven_steps);
/* Opens the state in these parts (formats/hfai/hfai.h), which the catalogue outlives. */
int rfs_catalog_open_parts(struct rfs_catalog *catalog, bool uneven_steps, struct rfs_hfai **out,
                           struct rfs_error *err);
/*
 * Lists the state in FROM's parts, HFAI, as HOW says; the member TO of HOW is set here. *out is a
 * derived catalogue of the list's tensors, which describes itself, and has the list's chunks. 0, or
 * an error of rfs_hfai_list with *err filled; the caller frees *list and closes *out in any case.
 */
int rfs_catalog_list_parts(struct rfs_catalog *from, const struct rfs_hfai *hfai,
                           struct rfs_hfai_listing how, struct rfs_hfai_list *list,
                           struct rfs_catalog **out, struct rfs_error *err);
/*
 * Returns the chunks of a checkpoint that describes itself, or NULL. Its rank 0 is an index of
 * whole tensors, whose file is the metadata and whose entries have no place in it.
 */
struct rfs_chunks *rfs_catalog_chunks(const struct rfs_catalog *catalog);
/* Tells, before files are indexed, that values beside tensors are kept: they are not reported. */
void rfs_catalog_keep_values(struct rfs_catalog *catalog);
enum rfs_format rfs_catalog_format(const struct rfs_catalog *catalog);
/*
 * Returns the format of the files of ranks that are made of it by default. Reads the first bytes of
 * one whole checkpoint of safetensors, for the name of the program that saved it.
 */
enum rfs_format rfs_catalog_gives(const struct rfs_catalog *catalog);
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

/*
 * Gives the rank's index, which the first call builds. PREDICTOR (or RFS_NO_RANK) is a rank of the
 * same stage that is indexed already: its index is tried as a prediction before walking. -ENOENT
 * when the rank has no file. A failure is remembered and given again.
 */
int rfs_catalog_index(struct rfs_catalog *catalog, uint32_t rank, uint32_t predictor,
                      const struct rfs_index **out, struct rfs_error *err);
/*
 * Says whether rfs_catalog_index failed because the rank's one file holds no parameters: a full
 * disk leaves such files, and so does remove_redundancy with a rank that keeps nothing.
 */
bool rfs_catalog_is_empty(struct rfs_catalog *catalog, uint32_t rank);
/*
 * Compares headers of a rank that has a file with PREDICTOR, which is indexed, and builds no index.
 * Returns 1 when SAMPLES of them (two or more; of two blocks if it is encrypted) say that both list
 * equal parameters; else 0, or -errno.
 */
int rfs_catalog_resembles(struct rfs_catalog *catalog, uint32_t rank, uint32_t predictor,
                          size_t samples);
/* Returns the rank's index if it is built, else NULL. Lock-free. */
const struct rfs_index *rfs_catalog_ready(const struct rfs_catalog *catalog, uint32_t rank);

/* A span of time in which its owner uses indexes. The catalogue links it from begin to end. */
struct rfs_use {
    uint64_t since;
    struct rfs_use *before, *after;
};
void rfs_catalog_begin(struct rfs_catalog *catalog, struct rfs_use *use);
void rfs_catalog_end(struct rfs_catalog *catalog, struct rfs_use *use);

/* For tests: calls FN after a thread read the mark of a use, before it may set it. */
void rfs_catalog_watch_marks(struct rfs_catalog *catalog, void (*fn)(void *ctx), void *ctx);

/*
 * Keeps the indexes in memory, if some are not kept yet; none of sources with a key or a map of
 * their files, nor of ranks whose files cause log messages.
 */
void rfs_catalog_keep(struct rfs_catalog *catalog);
/*
 * Return the folder of kept data for the next view, or NULL; the key of this source's data, or
 * NULL; and a time before the first file was examined.
 */
struct rfs_kept *rfs_catalog_kept(const struct rfs_catalog *catalog);
const char *rfs_catalog_key(const struct rfs_catalog *catalog);
struct timespec rfs_catalog_opened(const struct rfs_catalog *catalog);

struct rfs_catalog_counters {
    uint64_t indexed, predicted;
    uint64_t kept;        /* indexed ranks whose indexes an earlier view had kept */
    uint64_t index_bytes; /* memory of indexes, now */
    uint64_t dropped;     /* indexes that were dropped to make room */
};
void rfs_catalog_count(struct rfs_catalog *catalog, struct rfs_catalog_counters *out);

/* Returns the model's config.json if quantized weights are shown as plain tensors, or NULL. */
const char *rfs_catalog_quant_config(const struct rfs_catalog *catalog);
/*
 * Returns the dtype that a tensor of dtype FROM is shown with if nothing else is asked for:
 * BFloat16 for a quantized one that is read as Float32, so that it can be cast; else FROM. The
 * index of the tensor is in use.
 */
enum rfs_dtype rfs_catalog_plain_dtype(struct rfs_catalog *catalog, uint32_t name,
                                       enum rfs_dtype from);

/* Returns where the content of an entry is. It is valid as long as the index. */
static inline struct rfs_content rfs_catalog_content_of(const struct rfs_index *index,
                                                        const struct rfs_entry *entry)
{
    return (struct rfs_content){.offset = entry->offset,
                                .n = entry->extent_count,
                                .extents =
                                    entry->extent_count ? &index->extents[entry->extent] : NULL,
                                .quant = rfs_index_quant(index, entry)};
}
/* Copies where the content is, for as long as the catalogue lives. 0 or -ENOMEM. */
int rfs_catalog_content(struct rfs_catalog *catalog, const struct rfs_index *index,
                        const struct rfs_entry *entry, struct rfs_content *out);

/*
 * Gives the lengths of the messages of a map tensor's entry an id, one for equal lists. 0 or
 * -ENOMEM. They live as long as the catalogue.
 */
int rfs_catalog_lengths(struct rfs_catalog *catalog, const struct rfs_index *index,
                        const struct rfs_entry *entry, uint32_t *id);
const uint64_t *rfs_catalog_lengths_of(const struct rfs_catalog *catalog, uint32_t id, size_t *n);

/*
 * Returns where in the file byte OFFSET of a value's content is; of a quantized one, where the code
 * of that byte is.
 */
uint64_t rfs_catalog_content_offset(const struct rfs_content *content, uint64_t offset);

/*
 * Reads SIZE bytes of a value's content from OFFSET in it, over its extents. SCALES keeps those of
 * a quantized one for the next read by READING. 0 or -errno.
 */
int rfs_catalog_content_pread(struct rfs_reading *reading, const struct rfs_content *content,
                              struct rfs_quant_scales *scales, void *buf, size_t size,
                              uint64_t offset);
