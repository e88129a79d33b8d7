/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of rules, which say "axis 0" and "the last axis" of tensors that they have not seen. */
#include "layout/builder.h"

/* The layout being closed; its axis a counts from the beginning (a < head), or from the end. */
struct closing {
    const struct rfs_layout *open;
    struct rfs_layout *closed;
    uint32_t ndim, head;
    struct rfs_where where;
    struct rfs_error *err;
};

static uint32_t cuts_of(const struct rfs_layout *open, uint32_t a)
{
    return open->start[a + 1] - open->start[a];
}

static int check_within(const struct closing *c)
{
    const struct rfs_layout *open = c->open;

    for (uint32_t a = 0; a < open->n_axes; a++) {
        const bool tail = a >= c->head;
        const uint32_t needs = tail ? open->n_axes - a : a + 1;
        if (needs <= c->ndim || cuts_of(open, a) == 0)
            continue;
        return rfs_fail(c->err, -EINVAL, c->where, "rules that fit this tensor",
                        "the rule cuts axis %d of a tensor that has %u ax%s",
                        tail ? -(int)needs : (int)a, c->ndim, c->ndim == 1 ? "is" : "es");
    }
    if (open->opt_size > 1 && c->ndim == 0)
        return rfs_fail(c->err, -EINVAL, c->where, "rules that fit this tensor",
                        "a scalar cannot be cut by an optimizer shard of %u", open->opt_size);
    return 0;
}

static void take_cuts(const struct closing *c, uint32_t a, uint32_t *end)
{
    for (uint32_t e = c->open->start[a]; e < c->open->start[a + 1]; e++)
        c->closed->map[(*end)++] = c->open->map[e];
}

/* The cuts of axis I of the tensor, from the axes of the layout that mean it. */
static int close_axis(const struct closing *c, uint32_t i, uint32_t *end)
{
    const struct rfs_layout *open = c->open;
    const bool in_head = i < c->head, in_tail = i + open->n_tail >= c->ndim;
    const uint32_t from_end = in_tail ? open->n_axes - (c->ndim - i) : 0;

    if (in_head && in_tail && cuts_of(open, i) > 0 && cuts_of(open, from_end) > 0)
        return rfs_fail(
            c->err, -EINVAL, c->where, "rules that fit this tensor",
            "the rule cuts axis %u and axis -%u, and these are the same axis of a tensor with "
            "%u ax%s",
            i, c->ndim - i, c->ndim, c->ndim == 1 ? "is" : "es");
    if (in_head)
        take_cuts(c, i, end);
    if (in_tail)
        take_cuts(c, from_end, end);
    return 0;
}

int rfs_layout_close(const struct rfs_layout *open, uint32_t ndim, struct rfs_layout *closed,
                     struct rfs_where where, struct rfs_error *err)
{
    const struct closing c = {open, closed, ndim, open->n_axes - open->n_tail, where, err};
    uint32_t end = 0;
    int rc = check_within(&c);

    *closed = *open;
    closed->open = false;
    closed->n_axes = ndim;
    closed->n_tail = 0;
    memset(closed->start, 0, sizeof closed->start);
    memset(closed->map, 0, sizeof closed->map);
    for (uint32_t i = 0; rc == 0 && i < ndim; i++) {
        rc = close_axis(&c, i, &end);
        closed->start[i + 1] = end;
    }
    return rc;
}
