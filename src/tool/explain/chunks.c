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

uint64_t rfs_picture_source_end(const struct picture *picture, uint32_t axis, uint64_t at)
{
    if (picture->boxed)
        return picture->boxed->grid
                   ? picture->boxed->grid->edge[axis][piece_at(picture, axis, at) + 1]
                   : picture->whole[axis];
    const uint32_t piece = rfs_grid_piece(&picture->src, picture->whole, axis, at);
    return rfs_grid_begin(&picture->src, picture->whole, axis, piece) +
           rfs_grid_length(&picture->src, picture->whole, axis, piece);
}

int rfs_picture_add_chunks(struct picture *picture)
{
    const struct rfs_boxed_tensor *tensor = picture->boxed;

    for (uint32_t k = 0; k < tensor->n; k++) {
        const struct rfs_chunk *chunk = &picture->boxes->chunks.data[tensor->first + k];
        struct drawn drawn = {.holders = 1};
        uint32_t step = 1;

        rfs_boxes_corner(picture->boxes, tensor, tensor->first + k, drawn.box.at);
        memcpy(drawn.box.len, rfs_boxes_type(picture->boxes, chunk->type)->dims,
               picture->ndim * sizeof *drawn.box.len);
        for (uint32_t i = picture->ndim; i-- > 0;) {
            drawn.colour += piece_at(picture, i, drawn.box.at[i]) * step;
            step = rfs_picture_pieces(picture, i) > 1 ? (step + 4) % RFS_SVG_COLOURS : step;
        }
        if (tensor->n <= RFS_SVG_COLOURS)
            drawn.colour = k;
        if (!rfs_drawn_add_rank(&drawn, chunk->file - picture->boxes->first_file))
            return -1;
        if (!RFS_PUSH(&picture->cells, drawn)) {
            free(drawn.ranks.data);
            return -1;
        }
    }
    return 0;
}

size_t rfs_picture_chunk_at(const struct picture *picture, const uint64_t *at)
{
    struct rfs_chunk_walk walk;
    uint64_t end[RFS_MAX_DIMS], corner[RFS_MAX_DIMS];
    uint32_t chunk = picture->boxed->first;

    for (uint32_t i = 0; i < picture->ndim; i++)
        end[i] = at[i] + 1;
    rfs_chunk_walk_begin(picture->boxes, picture->boxed, at, end, &walk);
    rfs_chunk_walk_next(&walk, &chunk, corner);
    return chunk - picture->boxed->first;
}
