/* SPDX-License-Identifier: Apache-2.0 */
/* Finished boxes: where chunks are, and the chunks that a box touches. */
#include "base/order.h"
#include "base/store.h"
#include "source/boxes/internal.h"

const struct rfs_boxed_tensor *rfs_boxes_tensor_of(const struct rfs_boxes *boxes, uint32_t chunk)
{
    const struct rfs_boxed_tensor *tensors = boxes->tensors.data;

    /* The last that begins at or before it: tensors without chunks begin where the next does. */
    return &tensors[RFS_BISECT(i, boxes->tensors.n, tensors[i].first > chunk) - 1];
}

const char *rfs_boxes_name_of(const struct rfs_boxes *boxes, uint32_t chunk)
{
    return rfs_intern_text(boxes->tables->names, rfs_boxes_tensor_of(boxes, chunk)->name);
}

void rfs_boxes_corner(const struct rfs_boxes *boxes, const struct rfs_boxed_tensor *tensor,
                      uint32_t chunk, uint64_t *offset)
{
    rfs_type_place(rfs_boxes_type(boxes, tensor->type), boxes->chunks.data[chunk].corner, offset);
}

int rfs_boxes_fail_file(const struct rfs_boxes *boxes, uint32_t file, int rc, struct rfs_error *err)
{
    const char *path = rfs_files_path(boxes->files, file);

    if (rc == -ESTALE && !rfs_store_there(path))
        return rfs_fail(err, rc, RFS_IN(path), "copy it there, and mount again",
                        "the metadata of the checkpoint names this file, but it is missing");
    return rfs_files_fail(err, path, rc);
}

int rfs_boxes_locate(struct rfs_boxes *boxes, uint32_t chunk, struct rfs_error *err)
{
    struct rfs_chunk *of = &boxes->chunks.data[chunk];

    if (atomic_load_explicit(&of->at, memory_order_relaxed) != RFS_NOT_LOCATED)
        return 0;
    return boxes->format->locate(boxes, chunk, err);
}

/* The last piece of an axis that begins at or before AT. */
static uint32_t piece_of(const struct rfs_chunk_grid *grid, uint32_t axis, uint64_t at)
{
    return (uint32_t)RFS_BISECT(i, grid->pieces[axis], grid->edge[axis][i] > at) - 1;
}

void rfs_chunk_walk_begin(const struct rfs_boxes *boxes, const struct rfs_boxed_tensor *tensor,
                          const uint64_t *lo, const uint64_t *hi, struct rfs_chunk_walk *walk)
{
    walk->boxes = boxes;
    walk->tensor = tensor;
    walk->ndim = tensor->grid ? rfs_boxes_type(boxes, tensor->type)->ndim : 0;
    walk->ended = false;
    for (uint32_t i = 0; i < walk->ndim; i++) {
        walk->first[i] = walk->cell[i] = piece_of(tensor->grid, i, lo[i]);
        walk->last[i] = piece_of(tensor->grid, i, hi[i] - 1);
    }
}

/* Steps to the next cell, row by row. */
static void step(struct rfs_chunk_walk *walk)
{
    for (uint32_t i = walk->ndim; i-- > 0;) {
        if (walk->cell[i] < walk->last[i]) {
            walk->cell[i]++;
            return;
        }
        walk->cell[i] = walk->first[i];
    }
    walk->ended = true;
}

bool rfs_chunk_walk_next(struct rfs_chunk_walk *walk, uint32_t *chunk, uint64_t *at)
{
    const struct rfs_chunk_grid *grid = walk->tensor->grid;

    while (!walk->ended) {
        uint64_t number = 0;
        bool first = true;
        for (uint32_t i = 0; i < walk->ndim; i++)
            number = number * grid->pieces[i] + walk->cell[i];
        *chunk = walk->tensor->first + (grid ? grid->cells[number] : 0);
        rfs_boxes_corner(walk->boxes, walk->tensor, *chunk, at);
        /* A chunk of several cells counts in the first of them that the box touches. */
        for (uint32_t i = 0; i < walk->ndim; i++)
            first &= walk->cell[i] == walk->first[i] || grid->edge[i][walk->cell[i]] == at[i];
        step(walk);
        if (first)
            return true;
    }
    return false;
}
