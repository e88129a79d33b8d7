/* SPDX-License-Identifier: Apache-2.0 */
/* How the source cuts the tensor of a picture: by a grid, or in chunks that it describes itself. */
#include "base/checked.h"
#include "base/order.h"
#include "tool/explain/picture.h"

uint32_t rfs_picture_pieces(const struct picture *picture, uint32_t axis)
{
    if (picture->boxed)
        return picture->boxed->grid ? picture->boxed->grid->pieces[axis] : 1;
    return picture->src.pieces[axis];
}

/* The piece of an axis that a place is in. */
static uint32_t piece_at(const struct picture *picture, uint32_t axis, uint64_t at)
{
    const struct rfs_chunk_grid *grid = picture->boxed->grid;

    return grid ? (uint32_t)RFS_BISECT(k, grid->pieces[axis], grid->edge[axis][k + 1] > at) : 0;
}

/* How long the pieces of an axis are whose elements were flattened; 0: they were not. */
static uint64_t flattened_side(const struct picture *picture, uint32_t axis)
{
    const struct rfs_chunked_tensor *tensor = picture->boxed;

    return rfs_chunked_is_flat(tensor)
               ? picture->whole[axis] / rfs_chunks_type(picture->boxes, tensor->stored)->dims[axis]
               : 0;
}

uint64_t rfs_picture_source_end(const struct picture *picture, uint32_t axis, uint64_t at)
{
    const uint64_t side = picture->boxed ? flattened_side(picture, axis) : 0;

    if (side > 0)
        return (at / side + 1) * side;
    if (picture->boxed)
        return picture->boxed->grid
                   ? picture->boxed->grid->edge[axis][piece_at(picture, axis, at) + 1]
                   : picture->whole[axis];
    const uint32_t piece = rfs_grid_piece(&picture->src, picture->whole, axis, at);
    return rfs_grid_begin(&picture->src, picture->whole, axis, piece) +
           rfs_grid_length(&picture->src, picture->whole, axis, piece);
}

static int add_part(struct picture *picture, const struct rfs_chunk_part *part)
{
    const struct rfs_chunked_tensor *tensor = picture->boxed;
    const uint32_t k = part->chunk - tensor->first;
    struct drawn drawn = {.holders = 1};
    uint32_t step = 1;

    memcpy(drawn.box.at, part->at, picture->ndim * sizeof *drawn.box.at);
    memcpy(drawn.box.len, part->size, picture->ndim * sizeof *drawn.box.len);
    for (uint32_t i = picture->ndim; i-- > 0 && !part->flat;) {
        drawn.colour += piece_at(picture, i, drawn.box.at[i]) * step;
        step = rfs_picture_pieces(picture, i) > 1 ? (step + 4) % RFS_SVG_COLOURS : step;
    }
    if (part->flat || tensor->n <= RFS_SVG_COLOURS)
        drawn.colour = k;
    if (!rfs_drawn_add_rank(&drawn, rfs_chunks_file_of(picture->boxes, part->chunk) -
                                        picture->boxes->first_file))
        return -1;
    if (RFS_PUSH(&picture->cells, drawn))
        return 0;
    free(drawn.ranks.data);
    return -1;
}

int rfs_picture_add_chunks(struct picture *picture)
{
    static const uint64_t zeros[RFS_MAX_DIMS];
    struct rfs_chunk_walk walk;
    struct rfs_chunk_part part;
    int rc = 0;

    if (rfs_chunks_type(picture->boxes, picture->boxed->type)->bytes == 0)
        return 0;
    rfs_chunk_walk_begin(picture->boxes, picture->boxed, zeros, picture->whole, &walk);
    while (rc == 0 && rfs_chunk_walk_next(&walk, &part))
        rc = add_part(picture, &part);
    return rc;
}

static bool has(const struct picture *picture, const struct rfs_box *box, const uint64_t *at)
{
    for (uint32_t i = 0; i < picture->ndim; i++)
        if (at[i] < box->at[i] || at[i] - box->at[i] >= box->len[i])
            return false;
    return true;
}

size_t rfs_picture_chunk_at(const struct picture *picture, const uint64_t *at)
{
    struct rfs_chunk_walk walk;
    struct rfs_chunk_part part;
    uint64_t end[RFS_MAX_DIMS];

    for (uint32_t i = 0; i < picture->ndim; i++)
        end[i] = at[i] + 1;
    rfs_chunk_walk_begin(picture->boxes, picture->boxed, at, end, &walk);
    if (!rfs_chunk_walk_next(&walk, &part))
        return SIZE_MAX;
    if (!part.flat)
        return part.chunk - picture->boxed->first;
    for (size_t k = 0; k < picture->cells.n; k++)
        if (has(picture, &picture->cells.data[k].box, at))
            return k;
    return SIZE_MAX;
}
