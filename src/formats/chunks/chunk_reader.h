/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for the readers of formats only. */
#pragma once

#include "formats/chunks/chunks.h"

/*
 * Refuses FSDP's flat parameter, by its NAME of LENGTH bytes: the pieces of others lie in it one
 * after the other, and tensors beside it have what a rank has of one. 0, or -ENOTSUP with *err
 * filled.
 */
int rfs_chunks_check_flat(const char *file, const char *name, size_t length, struct rfs_error *err);

/* The place of a message about a name of the metadata, and about a tensor. */
#define RFS_CHUNKS_NAMED(chunks, name)                                                             \
    RFS_OF(rfs_files_path((chunks)->files, (chunks)->metadata),                                    \
           rfs_intern_text((chunks)->tables->names, name))
#define RFS_CHUNKS_OF(chunks, tensor) RFS_CHUNKS_NAMED(chunks, (tensor)->name)

/* Fails because a file of the checkpoint could not be taken into use. Returns RC. */
int rfs_chunks_fail_file(const struct rfs_chunks *chunks, uint32_t file, int rc,
                         struct rfs_error *err);

/*
 * Compares the checksums of a file at its first use, if the checkpoint is checked; threads that
 * need one file wait. 0 or -errno, which is remembered if the file is damaged.
 */
int rfs_chunks_check_file(struct rfs_chunks *chunks, uint32_t file, struct rfs_error *err);
/* Logs once that a file, or with RECORDS some records of it, have no checksum. */
void rfs_chunks_tell_none(struct rfs_chunks *chunks, bool records, uint32_t file);

/*
 * Gives further copy COPY of a chunk as the metadata has it: its file, and as its at the place, or
 * the key, if the metadata has one.
 */
void rfs_chunks_copy_at(const struct rfs_chunks *chunks, uint32_t chunk, uint32_t copy,
                        struct rfs_chunked_copy *out);

/* ---- checkpoints without a file of metadata -------------------------------------------------- */

/*
 * Each file names its tensors, and the chunk of each that it holds. All files together are the
 * checkpoint. They are those that were registered before, from 0 on; file 0 stands for the
 * metadata. Cost: 40 bytes a chunk and 8 for each of its axes while it is built, and O(n log n)
 * time.
 */
struct rfs_local_chunk {
    uint32_t name, type; /* name of the tensor, type of the chunk; ids in the tables */
    uint32_t whole;      /* type of the tensor; RFS_NO_ID: it ends where its chunks end */
    uint32_t file;
    uint32_t promised; /* number of files that have this chunk, as the file itself says; else 1 */
    uint64_t at;       /* where it is in the file: a value for rfs_chunk.at */
    size_t corner;     /* position in corners of where it begins in the tensor */
};

/* Chunks of the files so far. */
struct rfs_local_chunks {
    struct rfs_chunks *chunks;
    RFS_VEC(struct rfs_local_chunk) list;
    RFS_VEC(uint64_t) corners;
};

/*
 * Adds a chunk that begins at CORNER, a number for each axis; LOCAL's own corner is ignored. False
 * when out of memory.
 */
bool rfs_chunks_add_local(struct rfs_local_chunks *locals, const struct rfs_local_chunk *local,
                          const uint64_t *corner);
/* Adds the chunks of a file. 0, or -errno with *err filled. */
typedef int rfs_read_local_fn(void *ctx, struct rfs_local_chunks *locals, uint32_t file,
                              struct rfs_error *err);
/*
 * Opens the files of a folder. Of equal chunks the one in the first file counts,
 * and the others are its further copies; where these are more than promised, the tensor is taken on
 * trust. 0 with *out owned by the caller, or -errno with
 * *err filled: chunks that do not make one tensor, with its name.
 */
int rfs_chunks_open_local(const struct rfs_chunks_format *format,
                          const struct rfs_chunks_source *source, rfs_read_local_fn *read,
                          void *ctx, struct rfs_chunks **out, struct rfs_error *err);
