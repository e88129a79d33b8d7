/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that were flattened before they were stored, as Megatron-Core does before 0.14 with the
 * state of its optimizer. A tensor of [X, Y] is cut in a grid of equal pieces of [x, y]; each piece
 * is flattened, and cut anywhere:
 *
 *     stored as  [X / x, Y / y, x * y], in chunks of [1, 1, n]
 *
 * A chunk is a range of the elements of one piece, row by row. Such a range is a few boxes: the
 * rest of a row, whole rows, the beginning of a row, and so on along each axis.
 *
 *     ....####    the rest of a row
 *     ########    whole rows
 *     ########
 *     ###.....    the beginning of a row
 *
 * Source: dist_checkpointing/strategies/resharding.py of Megatron-Core 0.13.
 */
#include "base/checked.h"
#include "base/text.h"
#include "formats/chunks/internal.h"

/* Whether a tensor that is stored as one of type STORED can be of type WHOLE. */
static bool may_be(const struct rfs_type *stored, const struct rfs_type *whole)
{
    uint64_t elements = 1;

    if (stored->ndim != whole->ndim + 1)
        return false;
    for (uint32_t i = 0; i < whole->ndim; i++) {
        if (stored->dims[i] == 0 || whole->dims[i] % stored->dims[i] != 0 ||
            !rfs_mul_u64(elements, whole->dims[i] / stored->dims[i], &elements))
            return false;
    }
    return elements == stored->dims[whole->ndim];
}

/* Whether all its chunks lie in one piece each. */
static bool are_ranges(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor)
{
    for (uint32_t c = tensor->first; c < tensor->first + tensor->n; c++) {
        const struct rfs_type *type = rfs_chunks_type(boxes, boxes->chunks.data[c].type);
        for (uint32_t i = 0; i + 1 < type->ndim; i++)
            if (type->dims[i] != 1)
                return false;
    }
    return true;
}

bool rfs_chunks_may_be_flat(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                            const struct rfs_chunked_tensor *whole)
{
    return may_be(rfs_chunks_type(boxes, tensor->stored), rfs_chunks_type(boxes, whole->type)) &&
           are_ranges(boxes, tensor);
}

int rfs_chunks_unflatten(struct rfs_chunks *boxes, const char *name, size_t length, uint32_t ndim,
                         const uint64_t *dims, struct rfs_error *err)
{
    const struct rfs_chunked_tensor *found = rfs_chunks_find(boxes, name, length);
    const char *path = rfs_files_path(boxes->files, boxes->metadata);

    if (!found || rfs_chunked_is_flat(found))
        return rfs_fail(err, -EINVAL, RFS_OF(path, name), NULL,
                        found ? "the metadata gives it two shapes"
                              : "the metadata gives a shape to a tensor that it does not describe");
    struct rfs_chunked_tensor *tensor = &boxes->tensors.data[found - boxes->tensors.data];
    const struct rfs_type *stored = rfs_chunks_type(boxes, tensor->stored);
    struct rfs_type whole = {.ndim = (uint8_t)ndim, .dtype = stored->dtype, .kind = stored->kind};
    char has[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
    char is[RFS_DIMS_TEXT(RFS_MAX_DIMS)];

    memcpy(whole.dims, dims, ndim * sizeof *dims);
    if (!rfs_type_bytes(&whole, &whole.bytes) || !may_be(stored, &whole) ||
        !are_ranges(boxes, tensor))
        return rfs_fail(err, -EINVAL, RFS_OF(path, name), NULL,
                        "it is stored as %s, which is not %s flattened piece by piece",
                        rfs_text_dims(has, sizeof has, stored->ndim, stored->dims),
                        rfs_text_dims(is, sizeof is, whole.ndim, whole.dims));
    tensor->type = rfs_intern_add(boxes->tables->types, &whole, sizeof whole);
    return tensor->type != RFS_NO_ID ? 0 : rfs_fail_memory_of(err, path);
}

/* ---- the boxes of ranges --------------------------------------------------------------------- */

static const struct rfs_type *type_of(const struct rfs_chunk_walk *walk)
{
    return rfs_chunks_type(walk->boxes, walk->tensor->type);
}

/* Walks over the chunks of the present piece that the box touches. */
static void enter(struct rfs_chunk_walk *walk)
{
    const uint32_t ndim = type_of(walk)->ndim;
    uint64_t lo[RFS_MAX_DIMS];
    uint64_t hi[RFS_MAX_DIMS];
    uint64_t first = 0; /* numbers in the piece */
    uint64_t last = 0;

    for (uint32_t i = 0; i < ndim; i++) {
        const uint64_t at = walk->piece[i] * walk->side[i];
        const uint64_t from = rfs_max_u64(walk->lo[i], at);
        const uint64_t end = rfs_min_u64(walk->hi[i], at + walk->side[i]);
        first = first * walk->side[i] + (from - at);
        last = last * walk->side[i] + (end - 1 - at);
        lo[i] = walk->piece[i];
        hi[i] = walk->piece[i] + 1;
    }
    lo[ndim] = first;
    hi[ndim] = last + 1;
    rfs_grid_walk_begin(walk->boxes, walk->tensor, lo, hi, &walk->cells);
}

void rfs_flat_walk_begin(struct rfs_chunk_walk *walk, const uint64_t *lo, const uint64_t *hi)
{
    const struct rfs_type *type = type_of(walk);
    const struct rfs_type *stored = rfs_chunks_type(walk->boxes, walk->tensor->stored);

    for (uint32_t i = 0; i < type->ndim; i++) {
        walk->lo[i] = lo[i];
        walk->hi[i] = hi[i];
        walk->side[i] = type->dims[i] / stored->dims[i];
        walk->piece[i] = lo[i] / walk->side[i];
    }
    walk->next = walk->end = 0;
    enter(walk);
}

/* Goes on to the next piece that the box touches; false behind the last one. */
static bool next_piece(struct rfs_chunk_walk *walk)
{
    for (uint32_t i = type_of(walk)->ndim; i-- > 0;) {
        if (walk->piece[i] < (walk->hi[i] - 1) / walk->side[i]) {
            walk->piece[i]++;
            enter(walk);
            return true;
        }
        walk->piece[i] = walk->lo[i] / walk->side[i];
    }
    return false;
}

/* Takes the largest box off the range that is left of a chunk. */
static void take_box(struct rfs_chunk_walk *walk, struct rfs_chunk_part *part)
{
    const uint32_t ndim = type_of(walk)->ndim;
    uint64_t place[RFS_MAX_DIMS]; /* in the piece */
    uint64_t rest = walk->next;
    uint64_t step = 1;
    uint32_t axis = 0;

    for (uint32_t i = ndim; i-- > 0; rest /= walk->side[i], step *= walk->side[i]) {
        place[i] = rest % walk->side[i];
        part->step[i] = step;
        part->at[i] = walk->piece[i] * walk->side[i] + place[i];
        part->size[i] = 1;
    }
    part->chunk = walk->chunk;
    part->flat = true;
    part->first = walk->next - walk->begin;
    /* The first axis along which whole steps follow. */
    while (axis + 1 < ndim &&
           (walk->next % part->step[axis] != 0 || walk->end - walk->next < part->step[axis]))
        axis++;
    if (ndim == 0) {
        walk->next++;
        return;
    }
    part->size[axis] =
        rfs_min_u64(walk->side[axis] - place[axis], (walk->end - walk->next) / part->step[axis]);
    for (uint32_t i = axis + 1; i < ndim; i++)
        part->size[i] = walk->side[i];
    walk->next += part->size[axis] * part->step[axis];
}

static bool touches(const struct rfs_chunk_walk *walk, const struct rfs_chunk_part *part)
{
    for (uint32_t i = 0; i < type_of(walk)->ndim; i++)
        if (part->at[i] >= walk->hi[i] || part->at[i] + part->size[i] <= walk->lo[i])
            return false;
    return true;
}

bool rfs_flat_walk_next(struct rfs_chunk_walk *walk, struct rfs_chunk_part *part)
{
    const uint32_t ndim = type_of(walk)->ndim;
    uint64_t at[RFS_MAX_DIMS];

    for (;;) {
        while (walk->next < walk->end) {
            take_box(walk, part);
            if (touches(walk, part))
                return true;
        }
        while (!rfs_grid_walk_next(walk->boxes, walk->tensor, &walk->cells, &walk->chunk, at))
            if (!next_piece(walk))
                return false;
        const struct rfs_chunk *chunk = &walk->boxes->chunks.data[walk->chunk];
        walk->begin = walk->next = at[ndim];
        walk->end = walk->next + rfs_chunks_type(walk->boxes, chunk->type)->dims[ndim];
    }
}
