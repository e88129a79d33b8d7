/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the boxes only. */
#pragma once

#include "base/options.h"
#include "formats/chunks/chunks.h"

/*
 * Proves that the chunks of a tensor, which are sorted, tile it, and makes their grid. 0, or -errno
 * with *err filled.
 */
int rfs_chunks_make_grid(const struct rfs_chunks *boxes, struct rfs_chunked_tensor *tensor,
                         struct rfs_error *err);
void rfs_chunks_free_grid(struct rfs_chunk_grid *grid);

/*
 * Compares the checksums of a file at its first use, if boxes are checked; threads that need the
 * same file wait. 0 or -errno, which is remembered if the file is damaged.
 */
int rfs_chunks_check_file(struct rfs_chunks *boxes, uint32_t file, struct rfs_error *err);
/* Logs once that a file has no checksum, or not for all of it. */
void rfs_chunks_tell_none(struct rfs_chunks *boxes, enum rfs_format format, uint32_t file);
void rfs_chunks_free_checks(struct rfs_chunks_checks *checks);

/* The file of further copy COPY of a chunk, as the metadata has it. */
uint32_t rfs_chunks_copy_at(const struct rfs_chunks *boxes, uint32_t chunk, uint32_t copy);

/* The message about a file of the boxes that could not be taken into use. Returns RC. */
int rfs_chunks_fail_file(const struct rfs_chunks *boxes, uint32_t file, int rc,
                         struct rfs_error *err);

/* The cells that a box of the tensor as it is stored touches; the chunks of the next ones. */
void rfs_grid_walk_begin(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                         const uint64_t *lo, const uint64_t *hi, struct rfs_grid_walk *walk);
bool rfs_grid_walk_next(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                        struct rfs_grid_walk *walk, uint32_t *chunk, uint64_t *at);

/* Do what rfs_chunk_walk_begin and rfs_chunk_walk_next do, for a tensor that was flattened. */
void rfs_flat_walk_begin(struct rfs_chunk_walk *walk, const uint64_t *lo, const uint64_t *hi);
bool rfs_flat_walk_next(struct rfs_chunk_walk *walk, struct rfs_chunk_part *part);

/* "[0:4, 8:16]", for messages. */
struct rfs_box_text {
    char text[RFS_MAX_DIMS * 44 + 8];
};
const char *rfs_chunks_print(uint32_t ndim, const uint64_t *lo, const uint64_t *hi,
                             struct rfs_box_text *out);

/* A message about a name of the metadata, and about a tensor. */
#define RFS_CHUNKS_NAMED(boxes, name)                                                              \
    RFS_OF(rfs_files_path((boxes)->files, (boxes)->metadata),                                      \
           rfs_intern_text((boxes)->tables->names, name))
#define RFS_CHUNKS_OF(boxes, tensor) RFS_CHUNKS_NAMED(boxes, (tensor)->name)
