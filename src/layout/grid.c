/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/grid.h"

#include "base/checked.h"
#include "base/order.h"
#include "base/text.h"

/* ---- ranks and cells ------------------------------------------------------------------------- */

/* Mixed-radix arithmetic on digits, which go from the outermost in. */

static uint32_t digit_of(const struct rfs_digit *digit, uint32_t rank)
{
    return rank / digit->stride % digit->extent;
}

void rfs_grid_single(uint32_t ndim, struct rfs_grid *grid)
{
    memset(grid, 0, sizeof *grid);
    grid->ndim = ndim;
    grid->ranks = 1;
    grid->replicas = 1;
    grid->rounds = 1;
    for (uint32_t i = 0; i < ndim && i < RFS_GRID_DIMS; i++)
        grid->pieces[i] = 1;
}

uint64_t rfs_grid_begin(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                        uint32_t piece)
{
    return axis == 0 && grid->edge != NULL ? grid->edge[piece]
                                           : piece * (whole[axis] / grid->pieces[axis]);
}

uint64_t rfs_grid_length(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                         uint32_t piece)
{
    return axis == 0 && grid->edge != NULL ? grid->edge[piece + 1] - grid->edge[piece]
                                           : whole[axis] / grid->pieces[axis];
}

uint32_t rfs_grid_piece(const struct rfs_grid *grid, const uint64_t *whole, uint32_t axis,
                        uint64_t at)
{
    if (axis != 0 || grid->edge == NULL)
        return (uint32_t)(at / (whole[axis] / grid->pieces[axis]));
    return (uint32_t)RFS_BISECT(i, grid->pieces[axis] - 1, grid->edge[i + 1] > at);
}

void rfs_grid_slice(const struct rfs_grid *grid, const uint64_t *whole, uint32_t rank,
                    uint64_t *dims)
{
    uint32_t cell[RFS_GRID_DIMS];

    rfs_grid_cell(grid, rank, cell);
    for (uint32_t i = 0; i < grid->ndim; i++)
        dims[i] =
            rfs_grid_length(grid, whole, i, cell[i]) * (i == grid->round_axis ? grid->rounds : 1);
}

void rfs_grid_cell(const struct rfs_grid *grid, uint32_t rank, uint32_t *cell)
{
    for (uint32_t i = 0; i < grid->ndim; i++)
        cell[i] = 0;
    for (uint32_t k = 0; k < grid->n_digits; k++) {
        const struct rfs_digit *digit = &grid->digits[k];
        if (digit->axis >= 0)
            cell[digit->axis] += digit_of(digit, rank) * digit->weight;
    }
}

void rfs_grid_box(const struct rfs_grid *grid, const uint64_t *whole, uint32_t rank, uint32_t round,
                  struct rfs_box *box)
{
    uint32_t cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(grid, rank, cell);
    if (round > 0)
        cell[grid->round_axis] += grid->pieces[grid->round_axis] / grid->rounds * round;
    for (uint32_t i = 0; i < grid->ndim; i++) {
        box->at[i] = rfs_grid_begin(grid, whole, i, cell[i]);
        box->len[i] = rfs_grid_length(grid, whole, i, cell[i]);
    }
}

uint32_t rfs_grid_holder(const struct rfs_grid *grid, const uint32_t *cell, uint32_t template)
{
    uint32_t rank = 0;

    for (uint32_t k = 0; k < grid->n_digits; k++) {
        const struct rfs_digit *digit = &grid->digits[k];
        const uint32_t value = digit->axis >= 0 ? cell[digit->axis] / digit->weight % digit->extent
                                                : digit_of(digit, template);
        rank += value * digit->stride;
    }
    return rank;
}

uint32_t rfs_grid_replica(const struct rfs_grid *grid, uint32_t rank, uint32_t k)
{
    uint32_t found = 0;

    /* The innermost free digit counts fastest, so that k ascends with the rank. */
    for (uint32_t i = grid->n_digits; i-- > 0;) {
        const struct rfs_digit *digit = &grid->digits[i];
        uint32_t value = digit_of(digit, rank);
        if (digit->axis < 0) {
            value = k % digit->extent;
            k /= digit->extent;
        }
        found += value * digit->stride;
    }
    return found;
}

/* ---- from a layout to a grid ----------------------------------------------------------------- */

/*
 * A grid is made from a layout and the dims of a slice or of the whole tensor.
 *
 * Each device axis longer than 1 becomes a digit of the rank: it cuts a tensor axis, or is free.
 * The optimizer shard takes free axes from the right, of the last one only the inner part if need
 * be (that axis becomes two digits), and cuts axis 0 inside the tensor map's cuts; the rightmost of
 * its digits counts fastest. So among the ranks that hold one slice of the tensor map, in ascending
 * order, consecutive ones hold consecutive pieces. (_construct_tensor_layout_helper of MindSpore
 * 2.10 agrees; its other branch, for one free axis on the left, does not where tensor axes are
 * mapped out of device order.)
 *
 * Nested maps from JSON come flattened, with the expanded shape. Their entries are grouped by
 * tensor axis again: entries of an axis are consecutive, a -1 stands alone, every entry but the
 * axis's last has the extent of its device axis, and their product is the whole axis. All groupings
 * are tried. Against a whole tensor, those that fit differ in entries of extent 1 only and give
 * equal grids. Against a slice they can differ in the whole shape, though only where the slice is 1
 * long; then bytes are in one order, but where the other side cuts them, and the dims in a header,
 * differ. So several possible shapes are an error, unless only one fits the layout of the other
 * side.
 *
 * Manual splits and field slicing (tensor_layout.c) are of plain maps only.
 */

#define REMEDY_MATCH "the strategy that this checkpoint was saved under"
#define REMEDY_RULE "rules that fit this tensor"
#define REMEDY_PROTOBUF "the strategy saved in protobuf, which keeps the nesting"

/* The layout being resolved; all borrowed. */
struct job {
    const struct rfs_layout *layout;
    const struct rfs_layout *peer;
    uint32_t ndim;
    const uint64_t *dims;
    enum rfs_dims_of meaning;
    struct rfs_where where;
    struct rfs_error *err;
};

/* Tensor axis i has the map entries start[i] … start[i+1]-1. */
struct grouping {
    uint32_t start[RFS_GRID_DIMS + 1];
    uint64_t whole[RFS_GRID_DIMS];
};

struct dims_text {
    char text[RFS_DIMS_TEXT(RFS_MAX_CUTS)];
};

static struct dims_text show(uint32_t n, const uint64_t *dims)
{
    struct dims_text out;

    rfs_text_dims(out.text, sizeof out.text, n, dims);
    return out;
}

static const char *holds(const struct job *job)
{
    return job->meaning == RFS_DIMS_OF_SLICE ? "slices" : "a tensor";
}

static const char *remedy(const struct job *job)
{
    return job->layout->line > 0 ? REMEDY_RULE : REMEDY_MATCH;
}

static uint32_t extent_of(const struct rfs_layout *layout, uint32_t entry)
{
    const int32_t axis = layout->map[entry];

    return axis < 0 ? 1 : layout->dev[rfs_layout_position(layout, axis)];
}

static void add_digit(struct rfs_grid *grid, uint32_t stride, uint32_t extent, int32_t axis,
                      uint32_t weight)
{
    if (extent == 1)
        return;
    grid->digits[grid->n_digits++] = (struct rfs_digit){stride, extent, axis, weight};
    if (axis < 0)
        grid->replicas *= extent;
}

/* The tensor axis that the device axis at each position cuts, by the tensor map alone. */
struct cut {
    int32_t axis;
    uint32_t weight;
};

static void map_cuts(const struct rfs_layout *layout, const struct grouping *by,
                     struct rfs_grid *grid, struct cut *cuts)
{
    for (uint32_t p = 0; p < layout->n_dev; p++)
        cuts[p] = (struct cut){-1, 0};
    for (uint32_t i = 0; i < grid->ndim; i++) {
        uint32_t weight = i == 0 && layout->opt_size > 1 ? layout->opt_size : 1;
        for (uint32_t e = by->start[i + 1]; e-- > by->start[i];) {
            if (layout->map[e] < 0)
                continue;
            cuts[rfs_layout_position(layout, layout->map[e])] = (struct cut){(int32_t)i, weight};
            weight *= extent_of(layout, e);
        }
        grid->pieces[i] = weight;
    }
}

static void build(const struct rfs_layout *layout, const struct grouping *by, uint32_t ndim,
                  struct rfs_grid *grid)
{
    struct cut cuts[RFS_MAX_DEVICE_AXES];
    uint32_t part[RFS_MAX_DEVICE_AXES], stride = layout->devices, inner = layout->opt_size;

    rfs_grid_single(ndim, grid);
    grid->ranks = layout->devices;
    grid->edge = layout->edge;
    map_cuts(layout, by, grid, cuts);
    /* Parsing has proved that the parts fit. */
    rfs_layout_opt_parts(layout, layout->opt_size, part);
    for (uint32_t p = 0; p < layout->n_dev; p++) {
        const uint32_t extent = layout->dev[p];
        stride /= extent;
        if (cuts[p].axis >= 0) {
            add_digit(grid, stride, extent, cuts[p].axis, cuts[p].weight);
            continue;
        }
        add_digit(grid, stride * part[p], extent / part[p], -1, 0);
        if (part[p] > 1) {
            inner /= part[p]; /* how many pieces one step of this digit moves */
            add_digit(grid, stride, part[p], 0, inner);
        }
    }
    if (layout->field > 0) {
        grid->rounds = layout->field;
        grid->round_axis = layout->field_axis;
        grid->pieces[layout->field_axis] *= layout->field;
    }
}

/*
 * Gives the extent of axis 0 under a manual split: a slice must be one of it, a whole tensor all of
 * it.
 */
static bool split_extent(const struct job *job, uint64_t *whole)
{
    const struct rfs_layout *layout = job->layout;
    bool found = false;

    *whole = layout->edge[layout->n_edges - 1];
    if (job->meaning == RFS_DIMS_OF_WHOLE)
        return job->dims[0] == *whole;
    for (uint32_t k = 0; !found && k + 1 < layout->n_edges; k++)
        found = layout->edge[k + 1] - layout->edge[k] == job->dims[0];
    return found;
}

/* Reports axis I, which has no whole extent. */
static int refuse_extent(const struct job *job, uint32_t i, uint64_t pieces)
{
    const struct rfs_layout *layout = job->layout;
    const struct dims_text shown = show(job->ndim, job->dims);

    if (i == 0 && layout->edge != NULL && job->meaning == RFS_DIMS_OF_SLICE)
        return rfs_fail(job->err, -EINVAL, job->where, remedy(job),
                        "the checkpoint holds slices of %s, but none of the strategy's "
                        "param_split_shape has %" PRIu64 " rows",
                        shown.text, job->dims[0]);
    if (i == 0 && layout->edge != NULL)
        return rfs_fail(job->err, -EINVAL, job->where, remedy(job),
                        "the checkpoint holds a tensor of %s, but the strategy's param_split_shape "
                        "makes %" PRIu64 " rows in all",
                        shown.text, layout->edge[layout->n_edges - 1]);
    if (layout->field > 0 && i == layout->field_axis)
        return rfs_fail(job->err, -EINVAL, job->where, remedy(job),
                        "the checkpoint holds %s of %s, which %u fields over %" PRIu64
                        " devices do not divide",
                        holds(job), shown.text, layout->field, pieces);
    if (job->meaning == RFS_DIMS_OF_SLICE)
        return rfs_fail(job->err, -EINVAL, job->where, remedy(job),
                        "the checkpoint holds %s of %s, and the strategy cuts axis %u into "
                        "%" PRIu64 " pieces: the whole is too large",
                        holds(job), shown.text, i, pieces);
    return rfs_fail(job->err, -EINVAL, job->where, remedy(job),
                    "the checkpoint holds %s of %s, and the strategy cuts axis %u into "
                    "%" PRIu64 " pieces: %" PRIu64 " is not divisible by %" PRIu64,
                    holds(job), shown.text, i, pieces, job->dims[i], pieces);
}

/* Gives the whole extent of tensor axis I, cut into PIECES; false when there is none. */
static bool whole_extent(const struct job *job, uint32_t i, uint64_t pieces, uint64_t *whole)
{
    if (i == 0 && job->layout->edge != NULL)
        return split_extent(job, whole);
    if (job->layout->field > 0 && i == job->layout->field_axis &&
        (job->meaning == RFS_DIMS_OF_SLICE ? job->dims[i] % job->layout->field
                                           : job->dims[i] / pieces % job->layout->field) != 0)
        return false;
    if (job->meaning == RFS_DIMS_OF_SLICE)
        return rfs_mul_u64(job->dims[i], pieces, whole);
    *whole = job->dims[i];
    return *whole % pieces == 0;
}

static int check_plain(const struct job *job, const struct grouping *by)
{
    const struct rfs_layout *layout = job->layout;
    bool same = true;

    /* the compiler writes wrong rows for a manual split (tensor_layout.c) */
    for (uint32_t i = 0; layout->n_expanded > 0 && i < job->ndim; i++)
        same &= layout->expanded[i] == by->whole[i] || (i == 0 && layout->edge != NULL);
    if (same)
        return 0;
    return rfs_fail(job->err, -EINVAL, job->where, remedy(job),
                    "the strategy says a tensor of %s, but the checkpoint holds %s%s",
                    show(job->ndim, layout->expanded).text,
                    job->meaning == RFS_DIMS_OF_SLICE ? "slices of one of " : "one of ",
                    show(job->ndim, by->whole).text);
}

/* Groups the entries of a map that has its tensor axes: all from protobuf, plain ones from JSON. */
static int group_plain(const struct job *job, struct grouping *by)
{
    const struct rfs_layout *layout = job->layout;

    for (uint32_t i = 0; i < job->ndim; i++) {
        uint64_t pieces = i == 0 && layout->opt_size > 1 ? layout->opt_size : 1;
        by->start[i] = layout->start[i];
        for (uint32_t e = layout->start[i]; e < layout->start[i + 1]; e++)
            pieces *= extent_of(layout, e);
        if (whole_extent(job, i, pieces, &by->whole[i]))
            continue;
        return refuse_extent(job, i, pieces);
    }
    by->start[job->ndim] = rfs_layout_cuts(layout);
    return check_plain(job, by);
}

struct search {
    const struct job *job;
    struct grouping now;
    struct grouping found; /* the first that fits */
    struct grouping other; /* one with another whole shape */
    unsigned shapes;       /* how many of these are set: 0, 1 or 2 */
};

static bool peer_fits(const struct job *job, const struct grouping *by)
{
    struct rfs_grid grid;

    return job->peer == NULL || rfs_grid_resolve(job->peer, job->ndim, by->whole, RFS_DIMS_OF_WHOLE,
                                                 &grid, NULL, NULL, RFS_NOWHERE, NULL) == 0;
}

static void keep(struct search *search)
{
    const size_t bytes = search->job->ndim * sizeof *search->now.whole;

    if (search->shapes > 0 && memcmp(search->found.whole, search->now.whole, bytes) == 0)
        return;
    if (!peer_fits(search->job, &search->now))
        return;
    if (search->shapes == 0)
        search->found = search->now;
    else
        search->other = search->now;
    search->shapes++;
}

/*
 * Gives tensor axis I the entries from FIRST on, one more at a time, and the rest to the axes after
 * it. As deep as the tensor has axes; at most 2^15 ways, since a device axis appears once and a -1
 * is alone.
 */
static void try_axis(struct search *search, uint32_t i, uint32_t first)
{
    const struct job *job = search->job;
    const struct rfs_layout *layout = job->layout;
    const uint32_t n = layout->n_axes, left = job->ndim - i - 1;
    uint64_t pieces = i == 0 && layout->opt_size > 1 ? layout->opt_size : 1;
    uint64_t product = 1, whole;

    search->now.start[i] = first;
    for (uint32_t end = first + 1; end + left <= n && search->shapes < 2; end++) {
        const uint32_t last = end - 1;
        if (layout->map[last] < 0 && last > first)
            return;
        pieces *= extent_of(layout, last);
        if (!rfs_mul_u64(product, layout->expanded[last], &product))
            return;
        if (whole_extent(job, i, pieces, &whole) && whole == product && (left > 0 || end == n)) {
            search->now.whole[i] = whole;
            search->now.start[i + 1] = end;
            if (left == 0)
                keep(search);
            else
                try_axis(search, i + 1, end);
        }
        /* An entry may be a -1, or longer than its device axis, only as the last of an axis. */
        if (layout->map[last] < 0 || layout->expanded[last] != extent_of(layout, last))
            return;
    }
}

static int group_flattened(const struct job *job, struct grouping *by)
{
    struct search search = {.job = job};

    try_axis(&search, 0, 0);
    if (search.shapes == 0)
        return rfs_fail(job->err, -EINVAL, job->where, remedy(job),
                        "the strategy says a tensor expanded to %s, but the checkpoint holds %s "
                        "of %s, which no nesting of its axes gives",
                        show(job->layout->n_expanded, job->layout->expanded).text, holds(job),
                        show(job->ndim, job->dims).text);
    if (search.shapes > 1)
        return rfs_fail(job->err, -EINVAL, job->where, REMEDY_PROTOBUF,
                        "the strategy's flattened tensor map leaves it open whether the whole "
                        "tensor is %s or %s",
                        show(job->ndim, search.found.whole).text,
                        show(job->ndim, search.other.whole).text);
    *by = search.found;
    return 0;
}

static int check_kind(const struct job *job)
{
    const struct rfs_layout *layout = job->layout;

    if (job->ndim > RFS_GRID_DIMS)
        return rfs_fail(job->err, -EINVAL, job->where, NULL, "a tensor with %u axes", job->ndim);
    if (layout->unclear != RFS_CLEAR)
        return rfs_fail(job->err, -ENOTSUP, job->where, "a strategy without it",
                        "it is not defined which rank holds which slice under %s",
                        rfs_layout_unclear(layout));
    if (layout->n_axes == job->ndim ||
        (layout->n_expanded > 0 && job->ndim > 0 && layout->n_axes > job->ndim &&
         layout->edge == NULL && layout->field == 0))
        return 0;
    return rfs_fail(job->err, -EINVAL, job->where, remedy(job),
                    "the strategy says a tensor with %u axes, but the checkpoint holds %s of %s",
                    layout->n_axes, holds(job), show(job->ndim, job->dims).text);
}

static int resolve_closed(const struct job *job, struct rfs_grid *grid, uint64_t *whole,
                          uint64_t *slice)
{
    struct grouping by = {.start = {0}};
    const int rc =
        check_kind(job)
            ?: (job->layout->n_axes == job->ndim ? group_plain : group_flattened)(job, &by);

    if (rc != 0)
        return rc;
    build(job->layout, &by, job->ndim, grid);
    for (uint32_t i = 0; whole != NULL && i < job->ndim; i++)
        whole[i] = by.whole[i];
    if (slice != NULL)
        rfs_grid_slice(grid, by.whole, 0, slice);
    return 0;
}

/* Resolves a layout; messages about a tensor's rule name the rule's line. */
static int resolve(const struct job *given, struct rfs_grid *grid, uint64_t *whole, uint64_t *slice)
{
    const struct rfs_layout *layout = given->layout;
    struct job job = *given;
    struct rfs_layout closed;
    char line[1024];
    int rc = 0;

    if (layout->line > 0 && given->where.file != NULL) {
        snprintf(line, sizeof line, "%s: line %u", given->where.file, layout->line);
        job.where.file = line;
    }
    if (layout->open && job.ndim <= RFS_GRID_DIMS) {
        rc = rfs_layout_close(layout, job.ndim, &closed, job.where, job.err);
        job.layout = &closed;
    }
    return rc == 0 ? resolve_closed(&job, grid, whole, slice) : rc;
}

int rfs_grid_resolve_for(const struct rfs_layout *layout, const struct rfs_layout *peer,
                         uint32_t ndim, const uint64_t *dims, enum rfs_dims_of meaning,
                         struct rfs_grid *grid, uint64_t *whole, uint64_t *slice,
                         struct rfs_where where, struct rfs_error *err)
{
    const struct job job = {layout, peer, ndim, dims, meaning, where, err};

    return resolve(&job, grid, whole, slice);
}

int rfs_grid_resolve(const struct rfs_layout *layout, uint32_t ndim, const uint64_t *dims,
                     enum rfs_dims_of meaning, struct rfs_grid *grid, uint64_t *whole,
                     uint64_t *slice, struct rfs_where where, struct rfs_error *err)
{
    return rfs_grid_resolve_for(layout, NULL, ndim, dims, meaning, grid, whole, slice, where, err);
}
