/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/union.h"

#include "base/cleanup.h"
#include "base/order.h"

/* Row-major by place, so that equal ones are neighbours. */
static int by_place(const void *a, const void *b)
{
    const struct rfs_box *x = a, *y = b;

    for (uint32_t i = 0; i < RFS_MAX_DIMS; i++)
        if (x->at[i] != y->at[i])
            return RFS_ORDER(x->at[i], y->at[i]);
    return memcmp(x->len, y->len, sizeof x->len);
}

RFS_COMPARE(by_value, uint64_t, x, y, RFS_ORDER(*x, *y))

static uint64_t elements(const struct rfs_box *box, uint32_t axis, uint32_t ndim)
{
    uint64_t n = 1;

    for (; axis < ndim; axis++)
        n *= box->len[axis];
    return n;
}

/* The places where some box begins or ends along an axis, ascending; 2n of them. */
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
 * The cells of the boxes, ascending along AXIS, in the axes from there on. Between two neighbouring
 * edges the same boxes count everywhere. Recurses once an axis.
 */
static bool volume_from(const struct rfs_box *const *boxes, size_t n, uint32_t axis, uint32_t ndim,
                        uint64_t *volume)
{
    *volume = n > 0 ? elements(boxes[0], axis, ndim) : 0;
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
        size_t kept = 0;
        uint64_t inner = 0;

        if (length == 0)
            continue;
        for (size_t k = 0; k < n_here; k++)
            if (here[k]->at[axis] + here[k]->len[axis] > edges[i])
                here[kept++] = here[k];
        n_here = kept;
        for (; next < n && boxes[next]->at[axis] <= edges[i]; next++)
            here[n_here++] = boxes[next];
        if (n_here > 0 && axis + 1 < ndim) {
            RFS_FREE const struct rfs_box **copy = malloc(n_here * sizeof *copy);
            if (!copy)
                return false;
            memcpy(copy, here, n_here * sizeof *copy);
            /* Ascending along the next axis: by insertion, as they mostly are. */
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

bool rfs_chunks_volume(struct rfs_box_list *boxes, uint32_t ndim, uint64_t *volume)
{
    size_t n = 0;

    RFS_SORT_ALL(boxes, by_place);
    RFS_FREE const struct rfs_box **list = calloc(boxes->n + 1, sizeof *list);
    if (!list)
        return false;
    for (size_t i = 0; i < boxes->n; i++)
        if (elements(&boxes->data[i], 0, ndim) > 0 &&
            (n == 0 || by_place(list[n - 1], &boxes->data[i]) != 0))
            list[n++] = &boxes->data[i];
    return volume_from(list, n, 0, ndim, volume);
}
