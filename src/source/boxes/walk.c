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
    rfs_type_place(rfs_boxes_type(boxes, tensor->stored), boxes->chunks.data[chunk].corner, offset);
}

int rfs_boxes_fail_file(const struct rfs_boxes *boxes, uint32_t file, int rc, struct rfs_error *err)
{
    const char *path = rfs_files_path(boxes->files, file);

    if (rc == -ESTALE && !rfs_store_there(path))
        return rfs_fail(err, rc, RFS_IN(path), "copy it there, and mount again",
                        "the metadata of the checkpoint names this file, but it is missing");
    rfs_files_fail(err, path, rc);
    rfs_files_reason(boxes->files, file, rc, err);
    return rc;
}

int rfs_boxes_locate(struct rfs_boxes *boxes, uint32_t chunk, struct rfs_error *err)
{
    struct rfs_chunk *of = &boxes->chunks.data[chunk];

    if (atomic_load_explicit(&of->at, memory_order_relaxed) != RFS_NOT_LOCATED)
        return 0;
    return boxes->format->locate(boxes, chunk, err);
}

/* Marks a chunk's at that is a position in the strided ones. */
#define STRIDED (UINT64_C(1) << 63)

uint64_t rfs_boxes_strided(struct rfs_boxes *boxes, uint64_t at, uint32_t ndim,
                           const uint64_t *stride)
{
    struct rfs_strided_chunk chunk = {.at = at};
    uint64_t value = RFS_NOT_LOCATED;

    memcpy(chunk.stride, stride, ndim * sizeof *stride);
    pthread_mutex_lock(&boxes->lock);
    if (RFS_PUSH(&boxes->strided, chunk))
        value = STRIDED | (boxes->strided.n - 1);
    pthread_mutex_unlock(&boxes->lock);
    return value;
}

/* Where a chunk that was located is; false: its elements lie row by row. */
static bool find_strided(struct rfs_boxes *boxes, uint32_t number, struct rfs_strided_chunk *out)
{
    out->at = atomic_load_explicit(&boxes->chunks.data[number].at, memory_order_acquire);
    if (!(out->at & STRIDED))
        return false;
    pthread_mutex_lock(&boxes->lock);
    *out = boxes->strided.data[out->at & ~STRIDED];
    pthread_mutex_unlock(&boxes->lock);
    return true;
}

int rfs_boxes_locate_part(struct rfs_boxes *boxes, const struct rfs_chunk_part *part,
                          struct rfs_stored_part *out, struct rfs_error *err)
{
    const struct rfs_chunk *chunk = &boxes->chunks.data[part->chunk];
    const int rc = rfs_boxes_locate(boxes, part->chunk, err);

    if (rc)
        return rc;
    const struct rfs_type *type = rfs_boxes_type(boxes, chunk->type);
    uint64_t step = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    struct rfs_strided_chunk place;

    *out = (struct rfs_stored_part){.file = chunk->file};
    out->strided = find_strided(boxes, part->chunk, &place);
    if (out->strided && !part->flat)
        memcpy(out->stride, place.stride, sizeof place.stride);
    else if (out->strided) /* a row of elements */
        step = place.stride[type->ndim - 1];
    for (uint32_t i = 0; i < RFS_MAX_DIMS && !(out->strided && !part->flat); i++)
        out->stride[i] = part->step[i] * step;
    out->at = place.at + part->first * step; /* of a whole chunk, 0 is the first */
    return 0;
}

/* The last piece of an axis that begins at or before AT. */
static uint32_t piece_of(const struct rfs_chunk_grid *grid, uint32_t axis, uint64_t at)
{
    return (uint32_t)RFS_BISECT(i, grid->pieces[axis], grid->edge[axis][i] > at) - 1;
}

void rfs_grid_walk_begin(const struct rfs_boxes *boxes, const struct rfs_boxed_tensor *tensor,
                         const uint64_t *lo, const uint64_t *hi, struct rfs_grid_walk *walk)
{
    walk->ndim = tensor->grid ? rfs_boxes_type(boxes, tensor->stored)->ndim : 0;
    walk->ended = false;
    for (uint32_t i = 0; i < walk->ndim; i++) {
        walk->first[i] = walk->cell[i] = piece_of(tensor->grid, i, lo[i]);
        walk->last[i] = piece_of(tensor->grid, i, hi[i] - 1);
    }
}

/* Steps to the next cell, row by row. */
static void step(struct rfs_grid_walk *walk)
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

bool rfs_grid_walk_next(const struct rfs_boxes *boxes, const struct rfs_boxed_tensor *tensor,
                        struct rfs_grid_walk *walk, uint32_t *chunk, uint64_t *at)
{
    const struct rfs_chunk_grid *grid = tensor->grid;

    while (!walk->ended) {
        uint64_t number = 0;
        bool first = true;
        for (uint32_t i = 0; i < walk->ndim; i++)
            number = number * grid->pieces[i] + walk->cell[i];
        *chunk = tensor->first + (grid ? grid->cells[number] : 0);
        rfs_boxes_corner(boxes, tensor, *chunk, at);
        /* A chunk of several cells counts in the first of them that the box touches. */
        for (uint32_t i = 0; i < walk->ndim; i++)
            first &= walk->cell[i] == walk->first[i] || grid->edge[i][walk->cell[i]] == at[i];
        step(walk);
        if (first)
            return true;
    }
    return false;
}

void rfs_chunk_walk_begin(const struct rfs_boxes *boxes, const struct rfs_boxed_tensor *tensor,
                          const uint64_t *lo, const uint64_t *hi, struct rfs_chunk_walk *walk)
{
    walk->boxes = boxes;
    walk->tensor = tensor;
    if (rfs_boxed_is_flat(tensor))
        rfs_flat_walk_begin(walk, lo, hi);
    else
        rfs_grid_walk_begin(boxes, tensor, lo, hi, &walk->cells);
}

bool rfs_chunk_walk_next(struct rfs_chunk_walk *walk, struct rfs_chunk_part *part)
{
    const struct rfs_boxes *boxes = walk->boxes;

    *part = (struct rfs_chunk_part){.chunk = 0};
    if (rfs_boxed_is_flat(walk->tensor))
        return rfs_flat_walk_next(walk, part);
    if (!rfs_grid_walk_next(boxes, walk->tensor, &walk->cells, &part->chunk, part->at))
        return false;
    const struct rfs_type *type = rfs_boxes_type(boxes, boxes->chunks.data[part->chunk].type);
    memcpy(part->size, type->dims, sizeof part->size);
    for (uint32_t i = type->ndim; i-- > 0;)
        part->step[i] = i + 1 < type->ndim ? part->step[i + 1] * type->dims[i + 1] : 1;
    return true;
}
