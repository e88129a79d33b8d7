/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof that chunks tile a tensor. All their borders cut the tensor into a grid of cells; every
 * chunk covers whole cells. It claims each of them: a cell that is claimed twice is an overlap, a
 * cell that nobody claims is a gap. Chunks that come from device meshes are such a grid themselves,
 * and then there are as many cells as chunks. A tensor whose chunks are so irregular that the grid
 * has many more cells is refused: this bounds the time and the memory.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "formats/chunks/internal.h"

#define CELLS_TIMES 16 /* as many cells a chunk, at most */
#define NO_CHUNK UINT32_MAX

void rfs_chunks_free_grid(struct rfs_chunk_grid *grid)
{
    free(grid);
}

const char *rfs_chunks_print(uint32_t ndim, const uint64_t *lo, const uint64_t *hi,
                             struct rfs_box_text *out)
{
    size_t used = (size_t)snprintf(out->text, sizeof out->text, "[");

    for (uint32_t i = 0; i < ndim && used < sizeof out->text; i++) {
        used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%" PRIu64,
                                 i ? ", " : "", lo[i]);
        if (hi && used < sizeof out->text)
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, ":%" PRIu64, hi[i]);
    }
    if (used < sizeof out->text)
        snprintf(out->text + used, sizeof out->text - used, "]");
    return out->text;
}

RFS_COMPARE(by_value, uint64_t, x, y, RFS_ORDER(*x, *y))

struct gridding {
    const struct rfs_chunks *boxes;
    const struct rfs_chunked_tensor *tensor;
    const struct rfs_type *whole;
    uint32_t n_edges[RFS_MAX_DIMS];
    uint64_t *edges; /* owned; those of axis 0, then of axis 1 and so on */
    uint64_t n_cells;
    struct rfs_error *err;
};

/* Gives each axis its borders. 0 or -ENOMEM. */
static int collect_edges(struct gridding *g)
{
    const uint32_t ndim = g->whole->ndim;
    const size_t most = 2 * (size_t)g->tensor->n + 2;
    RFS_FREE uint64_t *all = malloc(most * sizeof *all);
    uint64_t at[RFS_MAX_DIMS];
    size_t used = 0;

    for (uint32_t axis = 0; all && axis < ndim; axis++) {
        size_t n = 0;
        size_t kept = 0;
        all[n++] = 0;
        all[n++] = g->whole->dims[axis];
        for (uint32_t c = g->tensor->first; c < g->tensor->first + g->tensor->n; c++) {
            rfs_chunks_corner(g->boxes, g->tensor, c, at);
            all[n++] = at[axis];
            all[n++] =
                at[axis] + rfs_chunks_type(g->boxes, g->boxes->chunks.data[c].type)->dims[axis];
        }
        RFS_SORT(all, n, by_value);
        for (size_t i = 0; i < n; i++)
            if (kept == 0 || all[i] != all[kept - 1])
                all[kept++] = all[i];
        uint64_t *more = reallocarray(g->edges, used + kept, sizeof *more);
        if (!more)
            return rfs_fail_memory(g->err);
        memcpy(more + used, all, kept * sizeof *all);
        g->edges = more;
        g->n_edges[axis] = (uint32_t)kept;
        used += kept;
    }
    return all ? 0 : rfs_fail_memory(g->err);
}

/* How many cells there are, within bounds. */
static int count_cells(struct gridding *g)
{
    g->n_cells = 1;
    for (uint32_t i = 0; i < g->whole->ndim; i++)
        if (!rfs_mul_u64(g->n_cells, g->n_edges[i] - 1, &g->n_cells) ||
            g->n_cells > (uint64_t)CELLS_TIMES * g->tensor->n)
            return rfs_fail(g->err, -ENOTSUP, RFS_CHUNKS_OF(g->boxes, g->tensor), NULL,
                            "its %u chunks are too irregular: they do not form a grid",
                            g->tensor->n);
    return 0;
}

/* One block of memory: the struct, the edges, the cells. */
static struct rfs_chunk_grid *new_grid(const struct gridding *g)
{
    size_t n_edges = 0;

    for (uint32_t i = 0; i < g->whole->ndim; i++)
        n_edges += g->n_edges[i];
    struct rfs_chunk_grid *grid =
        malloc(sizeof *grid + n_edges * sizeof *g->edges + g->n_cells * sizeof *grid->cells);
    if (!grid)
        return NULL;
    uint64_t *edges = (uint64_t *)(grid + 1);
    memcpy(edges, g->edges, n_edges * sizeof *edges);
    grid->cells = (uint32_t *)(edges + n_edges);
    for (uint64_t i = 0; i < g->n_cells; i++)
        grid->cells[i] = NO_CHUNK;
    for (uint32_t i = 0; i < g->whole->ndim; i++) {
        grid->pieces[i] = g->n_edges[i] - 1;
        grid->edge[i] = edges;
        edges += g->n_edges[i];
    }
    return grid;
}

/* The piece of an axis that begins at a border. */
static uint32_t piece_at(const struct rfs_chunk_grid *grid, uint32_t axis, uint64_t border)
{
    return (uint32_t)RFS_BISECT(i, grid->pieces[axis], grid->edge[axis][i] >= border);
}

static void box_of_cell(const struct rfs_chunk_grid *grid, uint32_t ndim, uint64_t number,
                        uint64_t *lo, uint64_t *hi)
{
    for (uint32_t i = ndim; i-- > 0; number /= grid->pieces[i]) {
        const uint64_t piece = number % grid->pieces[i];
        lo[i] = grid->edge[i][piece];
        hi[i] = grid->edge[i][piece + 1];
    }
}

/* Prints the box of a cell. */
static const char *print_cell(const struct gridding *g, const struct rfs_chunk_grid *grid,
                              uint64_t cell, struct rfs_box_text *text)
{
    uint64_t lo[RFS_MAX_DIMS];
    uint64_t hi[RFS_MAX_DIMS];

    box_of_cell(grid, g->whole->ndim, cell, lo, hi);
    return rfs_chunks_print(g->whole->ndim, lo, hi, text);
}

/* Claims the cells of a chunk. */
static int claim(const struct gridding *g, struct rfs_chunk_grid *grid, uint32_t chunk)
{
    const uint32_t ndim = g->whole->ndim;
    const struct rfs_type *type = rfs_chunks_type(g->boxes, g->boxes->chunks.data[chunk].type);
    uint64_t at[RFS_MAX_DIMS];
    uint32_t first[RFS_MAX_DIMS];
    uint32_t end[RFS_MAX_DIMS];
    uint32_t cell[RFS_MAX_DIMS];
    struct rfs_box_text text;

    rfs_chunks_corner(g->boxes, g->tensor, chunk, at);
    for (uint32_t i = 0; i < ndim; i++) {
        cell[i] = first[i] = piece_at(grid, i, at[i]);
        end[i] = piece_at(grid, i, at[i] + type->dims[i]);
    }
    for (;;) {
        uint64_t number = 0;
        for (uint32_t i = 0; i < ndim; i++)
            number = number * grid->pieces[i] + cell[i];
        if (grid->cells[number] != NO_CHUNK)
            return rfs_fail(g->err, -EINVAL, RFS_CHUNKS_OF(g->boxes, g->tensor), NULL,
                            "two chunks of the metadata overlap in %s",
                            print_cell(g, grid, number, &text));
        grid->cells[number] = chunk - g->tensor->first;
        uint32_t axis = ndim;
        while (axis > 0 && ++cell[axis - 1] == end[axis - 1]) {
            axis--;
            cell[axis] = first[axis];
        }
        if (axis == 0)
            return 0;
    }
}

/* 0, 1 where a cell is in no chunk because files are lost, or -errno. */
static int fill(const struct gridding *g, struct rfs_chunk_grid *grid)
{
    struct rfs_box_text text;
    int rc = 0;

    for (uint32_t c = 0; rc == 0 && c < g->tensor->n; c++)
        rc = claim(g, grid, g->tensor->first + c);
    for (uint64_t i = 0; rc == 0 && i < g->n_cells; i++)
        if (grid->cells[i] == NO_CHUNK)
            rc = g->boxes->lost
                     ? 1
                     : rfs_fail(g->err, -EINVAL, RFS_CHUNKS_OF(g->boxes, g->tensor), NULL,
                                "the metadata has no chunk for %s", print_cell(g, grid, i, &text));
    return rc;
}

static void gridding_end(struct gridding *g)
{
    free(g->edges);
}

/* A chunk that is described, and stored nowhere. */
static int check_stored(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                        struct rfs_error *err)
{
    const struct rfs_type *whole = rfs_chunks_type(boxes, tensor->type);

    for (uint32_t c = tensor->first; c < tensor->first + tensor->n; c++) {
        struct rfs_box_text text;
        uint64_t at[RFS_MAX_DIMS];
        if (boxes->chunks.data[c].file != RFS_NO_ID)
            continue;
        rfs_chunks_corner(boxes, tensor, c, at);
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(boxes, tensor), NULL,
                        "the metadata does not say where the chunk at %s is stored",
                        rfs_chunks_print(whole->ndim, at, NULL, &text));
    }
    return 0;
}

int rfs_chunks_make_grid(const struct rfs_chunks *boxes, struct rfs_chunked_tensor *tensor,
                         struct rfs_error *err)
{
    RFS_CLEANUP(gridding_end)
    struct gridding g = {.boxes = boxes,
                         .tensor = tensor,
                         .whole = rfs_chunks_type(boxes, tensor->type),
                         .err = err};

    int rc = check_stored(boxes, tensor, err);
    if (rc || g.whole->bytes == 0)
        return rc;
    if (tensor->n == 1 && boxes->chunks.data[tensor->first].type == tensor->type)
        return 0;
    if (tensor->n == 0 && boxes->lost) {
        tensor->incomplete = true;
        return 0;
    }
    if (tensor->n == 0)
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(boxes, tensor), NULL,
                        "the metadata has no chunk for any of its elements");
    rc = collect_edges(&g) ?: count_cells(&g);
    if (rc)
        return rc;
    struct rfs_chunk_grid *grid = new_grid(&g);
    if (!grid)
        return rfs_fail_memory(err);
    rc = fill(&g, grid);
    tensor->incomplete = rc > 0;
    if (rc) {
        rfs_chunks_free_grid(grid);
        return rc < 0 ? rc : 0;
    }
    tensor->grid = grid;
    return 0;
}
