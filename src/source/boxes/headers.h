/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that are tensors of safetensors files, under their tensors' names. */
#pragma once

#include "source/boxes/boxes.h"

/* The chunks of finished boxes, by file. Immutable: any thread may use it. */
struct rfs_boxes_by_file;

/* NULL when out of memory. 4 bytes a chunk and a file. */
struct rfs_boxes_by_file *rfs_boxes_by_file_new(const struct rfs_boxes *boxes);
void rfs_boxes_by_file_free(struct rfs_boxes_by_file *by_file);

/*
 * Locates CHUNK, and with it all chunks of its file: reads the header and compares dtype and shape
 * of each with the chunk's. 0, or -errno with *err filled.
 */
int rfs_boxes_locate_in_header(struct rfs_boxes *boxes, const struct rfs_boxes_by_file *by_file,
                               uint32_t chunk, struct rfs_error *err);
