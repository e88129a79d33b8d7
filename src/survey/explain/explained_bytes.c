/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/explain/explained.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"

/* ---- copy runs as ranges of a file ----------------------------------------------------------- */

uint64_t rfs_explained_stored_bytes(const struct rfs_quant *quant, uint64_t bytes)
{
    return quant ? rfs_quant_code_bytes(quant, bytes) : bytes;
}

uint64_t rfs_explained_block_bytes(const struct rfs_block *block)
{
    uint64_t bytes = block->content.zeros ? 0 : block->run;

    for (uint32_t k = 0; k < block->n_loops; k++)
        bytes *= block->loop[k].src_stride > 0 ? block->loop[k].count : 1;
    return rfs_explained_stored_bytes(block->content.quant, bytes);
}

/* Returns the end, in the content, of the extent that holds its byte AT. */
static uint64_t extent_end(const struct rfs_block *block, uint64_t at)
{
    const struct rfs_content *content = &block->content;
    uint64_t end = 0;

    if (content->n == 0)
        return UINT64_MAX;
    for (uint32_t i = 0; i < content->n && end <= at; i++)
        end += content->extents[i].bytes;
    return end;
}

/* Returns the bytes from the first of the loops from LEVEL on to one past their last. */
static uint64_t loops_span(const struct rfs_block *block, uint32_t level)
{
    uint64_t span = block->run;

    for (uint32_t k = level; k < block->n_loops; k++)
        span += (block->loop[k].count - 1) * block->loop[k].src_stride;
    return span;
}

/* Makes loops whose steps leave no gap one run, or one loop. */
static void fold_range(struct rfs_explained_range *range)
{
    while (range->n_loops > 0) {
        const uint64_t count = range->loop[range->n_loops - 1].count;
        if (range->loop[range->n_loops - 1].stride != range->run)
            break;
        range->run *= count;
        range->n_loops--;
    }
    for (uint32_t k = range->n_loops; k-- > 1;) {
        const uint64_t inner = range->loop[k].count * range->loop[k].stride;
        if (inner == 0 || range->loop[k - 1].stride != inner)
            continue;
        range->loop[k - 1].count *= range->loop[k].count;
        range->loop[k - 1].stride = range->loop[k].stride;
        for (uint32_t i = k; i + 1 < range->n_loops; i++)
            range->loop[i] = range->loop[i + 1];
        range->n_loops--;
    }
}

void rfs_explained_range_sort(struct rfs_explained_range *range)
{
    for (uint32_t k = 1; k < range->n_loops; k++)
        for (uint32_t i = k; i > 0 && range->loop[i - 1].stride < range->loop[i].stride; i--) {
            const uint64_t count = range->loop[i].count;
            const uint64_t stride = range->loop[i].stride;
            range->loop[i] = range->loop[i - 1];
            range->loop[i - 1].count = count;
            range->loop[i - 1].stride = stride;
        }
    fold_range(range);
}

/*
 * Appends the range of the loops from LEVEL on, COUNT times the first of them, at byte AT of the
 * content; all of it is in one extent.
 */
static bool push_range(const struct rfs_block *block, uint32_t level, uint64_t count, uint64_t at,
                       uint64_t run, struct rfs_explained_ranges *out)
{
    struct rfs_explained_range range = {.offset = rfs_catalog_content_offset(&block->content, at),
                                        .run =
                                            rfs_explained_stored_bytes(block->content.quant, run)};

    for (uint32_t k = level; k < block->n_loops; k++) {
        const uint64_t times = k == level ? count : block->loop[k].count;
        if (times == 1)
            continue;
        range.loop[range.n_loops].count = times;
        range.loop[range.n_loops++].stride =
            rfs_explained_stored_bytes(block->content.quant, block->loop[k].src_stride);
    }
    fold_range(&range);
    return RFS_PUSH(out, range);
}

/* Appends a run at byte AT of the content, one range for each extent. */
static bool add_run(const struct rfs_block *block, uint64_t at, struct rfs_explained_ranges *out)
{
    for (uint64_t left = block->run, bytes; left > 0; left -= bytes, at += bytes) {
        bytes = rfs_min_u64(left, extent_end(block, at) - at);
        if (!push_range(block, block->n_loops, 1, at, bytes, out))
            return false;
    }
    return true;
}

/* Appends the loops from LEVEL on. Recurses once for each of at most RFS_MAX_DIMS loops. */
static bool add_level(const struct rfs_block *block, uint32_t level, uint64_t at,
                      struct rfs_explained_ranges *out)
{
    if (level == block->n_loops)
        return add_run(block, at, out);
    const struct rfs_loop *loop = &block->loop[level];
    const uint64_t inner = loops_span(block, level + 1);

    for (uint64_t i = 0, times; i < loop->count; i += times, at += times * loop->src_stride) {
        const uint64_t room = extent_end(block, at) - at;
        times = loop->count - i;
        if (room < inner) {
            times = 1;
            if (!add_level(block, level + 1, at, out))
                return false;
            continue;
        }
        if (loop->src_stride > 0)
            times = rfs_min_u64(times, (room - inner) / loop->src_stride + 1);
        if (!push_range(block, level, times, at, block->run, out))
            return false;
    }
    return true;
}

bool rfs_explained_ranges_add(const struct rfs_block *block, struct rfs_explained_ranges *out)
{
    return block->content.zeros || add_level(block, 0, block->src, out);
}

bool rfs_explained_piece_ranges(const struct rfs_explained_view *view,
                                const struct rfs_explained *slice, size_t i,
                                struct rfs_explained_ranges *out)
{
    const struct rfs_piece_trace *piece = &slice->trace->pieces[i];

    *out = (struct rfs_explained_ranges){0};
    if (!rfs_explained_ranges_add(&piece->block, out))
        return false;
    for (size_t k = 0; k < out->n; k++) {
        if (piece->link)
            rfs_explained_range_sort(&out->data[k]);
        if (!piece->block.content.zeros)
            out->data[k].offset = rfs_files_offset(rfs_catalog_files(view->of.catalog),
                                                   piece->block.file, out->data[k].offset);
    }
    return true;
}

/* ---- boxes together -------------------------------------------------------------------------- */

/* Compares by the first corner, row-major, so that equal boxes are neighbours. */
static int by_corner(const void *a, const void *b)
{
    const struct rfs_box *x = a, *y = b;

    for (uint32_t i = 0; i < RFS_MAX_DIMS; i++)
        if (x->at[i] != y->at[i])
            return RFS_ORDER(x->at[i], y->at[i]);
    return memcmp(x->len, y->len, sizeof x->len);
}

RFS_COMPARE(by_value, uint64_t, x, y, RFS_ORDER(*x, *y))

static uint64_t box_elements(const struct rfs_box *box, uint32_t axis, uint32_t ndim)
{
    uint64_t n = 1;

    for (; axis < ndim; axis++)
        n *= box->len[axis];
    return n;
}

/* Returns the 2n positions along an axis where some box begins or ends, ascending. */
static uint64_t *edges_of(const struct rfs_box *const *boxes, size_t n, uint32_t axis)
{
    uint64_t *edges = calloc(2 * n, sizeof *edges);

    for (size_t i = 0; edges && i < n; i++) {
        edges[2 * i] = boxes[i]->at[axis];
        edges[2 * i + 1] = boxes[i]->at[axis] + boxes[i]->len[axis];
    }
    if (edges)
        RFS_SORT(edges, 2 * n, by_value);
    return edges;
}

/*
 * Counts the elements of boxes that ascend along AXIS, in the axes from there on. Between two
 * neighbouring edges the boxes do not change. Recurses once an axis.
 */
static bool volume_from(const struct rfs_box *const *boxes, size_t n, uint32_t axis, uint32_t ndim,
                        uint64_t *volume)
{
    *volume = n > 0 ? box_elements(boxes[0], axis, ndim) : 0;
    if (n < 2 || axis == ndim)
        return true;
    RFS_FREE uint64_t *edges = edges_of(boxes, n, axis);
    RFS_FREE const struct rfs_box **here = calloc(n, sizeof *here);
    size_t n_here = 0;
    size_t next = 0;

    *volume = 0;
    if (!edges || !here)
        return false;
    for (size_t i = 0; i + 1 < 2 * n; i++) {
        const uint64_t length = edges[i + 1] - edges[i];
        size_t still = 0;
        uint64_t inner = 0;

        if (length == 0)
            continue;
        for (size_t k = 0; k < n_here; k++)
            if (here[k]->at[axis] + here[k]->len[axis] > edges[i])
                here[still++] = here[k];
        n_here = still;
        for (; next < n && boxes[next]->at[axis] <= edges[i]; next++)
            here[n_here++] = boxes[next];
        if (n_here > 0 && axis + 1 < ndim) {
            RFS_FREE const struct rfs_box **copy = malloc(n_here * sizeof *copy);
            if (!copy)
                return false;
            memcpy(copy, here, n_here * sizeof *copy);
            /* Sorts along the next axis: by insertion, as they mostly ascend. */
            for (size_t a = 1; a < n_here; a++)
                for (size_t b = a; b > 0 && copy[b - 1]->at[axis + 1] > copy[b]->at[axis + 1];
                     b--) {
                    const struct rfs_box *const other = copy[b];
                    copy[b] = copy[b - 1];
                    copy[b - 1] = other;
                }
            if (!volume_from(copy, n_here, axis + 1, ndim, &inner))
                return false;
        } else {
            inner = n_here > 0;
        }
        *volume += length * inner;
    }
    return true;
}

bool rfs_explained_boxes_volume(struct rfs_explained_boxes *boxes, uint32_t ndim, uint64_t *volume)
{
    size_t n = 0;

    RFS_SORT_ALL(boxes, by_corner);
    RFS_FREE const struct rfs_box **list = calloc(boxes->n + 1, sizeof *list);
    if (!list)
        return false;
    for (size_t i = 0; i < boxes->n; i++)
        if (box_elements(&boxes->data[i], 0, ndim) > 0 &&
            (n == 0 || by_corner(list[n - 1], &boxes->data[i]) != 0))
            list[n++] = &boxes->data[i];
    return volume_from(list, n, 0, ndim, volume);
}
