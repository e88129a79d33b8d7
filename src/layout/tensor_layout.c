/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of one parameter: as written, its properties without a tensor, and its checks. */
#include "layout/tensor_layout.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/text.h"

/* ---- filling it in --------------------------------------------------------------------------- */

int rfs_layout_fail(const struct rfs_layout_builder *item, const char *remedy, const char *fmt, ...)
{
    char text[1024];
    char name[256];
    const size_t shown = item->name_bytes < sizeof name - 1 ? item->name_bytes : sizeof name - 1;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (shown > 0)
        memcpy(name, item->name, shown);
    name[shown] = '\0';
    return rfs_fail(item->err, -EINVAL, RFS_OF(item->file, name), remedy, "%s", text);
}

void rfs_layout_begin(struct rfs_layout_builder *item, const char *name, size_t bytes)
{
    item->name = name;
    item->name_bytes = bytes;
    item->opt_step = 0;
    item->opt_size = 0;
    item->field = 0;
    item->rows.n = 0;
    item->offsets.n = 0;
    memset(&item->layout, 0, sizeof item->layout);
}

void rfs_layout_end(struct rfs_layout_builder *item)
{
    free(item->rows.data);
    free(item->offsets.data);
}

int rfs_layout_add_dev(struct rfs_layout_builder *item, int64_t extent)
{
    struct rfs_layout *layout = &item->layout;

    if (layout->n_dev == RFS_MAX_DEVICE_AXES)
        return rfs_layout_fail(item, NULL, "the device matrix has more than %d axes",
                               RFS_MAX_DEVICE_AXES);
    if (extent < 1 || extent > (int64_t)RFS_MAX_DEVICES)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "the device matrix has an axis of %lld devices", (long long)extent);
    layout->dev[layout->n_dev++] = (uint32_t)extent;
    return 0;
}

int rfs_layout_add_axis(struct rfs_layout_builder *item)
{
    struct rfs_layout *layout = &item->layout;

    if (layout->n_axes == RFS_MAX_CUTS)
        return rfs_layout_fail(item, NULL, "the tensor map has more than %d axes", RFS_MAX_CUTS);
    layout->n_axes++;
    layout->start[layout->n_axes] = layout->start[layout->n_axes - 1];
    return 0;
}

int rfs_layout_add_cut(struct rfs_layout_builder *item, int64_t device_axis)
{
    struct rfs_layout *layout = &item->layout;
    uint32_t *end = &layout->start[layout->n_axes];

    if (*end == RFS_MAX_CUTS)
        return rfs_layout_fail(item, NULL, "the tensor map has more than %d entries", RFS_MAX_CUTS);
    /* Here only the range of an int32_t is checked; that of the device matrix is checked later. */
    if (device_axis < -1 || device_axis >= RFS_MAX_DEVICE_AXES)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "the tensor map names device axis %lld, which does not exist",
                               (long long)device_axis);
    layout->map[(*end)++] = (int32_t)device_axis;
    return 0;
}

/* ---- properties ------------------------------------------------------------------------------ */

uint32_t rfs_layout_used(const struct rfs_layout *layout)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < rfs_layout_cuts(layout); i++)
        if (layout->map[i] >= 0)
            used |= UINT32_C(1) << rfs_layout_position(layout, layout->map[i]);
    return used;
}

bool rfs_layout_opt_parts(const struct rfs_layout *layout, uint64_t size, uint32_t *part)
{
    const uint32_t used = rfs_layout_used(layout);

    for (uint32_t p = 0; p < layout->n_dev; p++)
        part[p] = 1;
    for (uint32_t p = layout->n_dev; p-- > 0 && size > 1;) {
        const uint32_t extent = layout->dev[p];
        if (extent == 1 || (used >> p & 1))
            continue;
        part[p] = size < extent ? (uint32_t)size : extent;
        if (extent % part[p] != 0 || size % part[p] != 0)
            return false;
        size /= part[p];
    }
    return size <= 1;
}

uint32_t rfs_layout_slice(const struct rfs_layout *layout, uint32_t rank)
{
    const uint32_t used = rfs_layout_used(layout);
    uint32_t part[RFS_MAX_DEVICE_AXES];
    uint32_t number = 0;
    uint32_t weight = 1;

    rfs_layout_opt_parts(layout, layout->opt_size, part);
    for (uint32_t p = layout->n_dev; p-- > 0;) {
        const uint32_t coordinate = rank % layout->dev[p];
        const uint32_t cuts = used >> p & 1 ? layout->dev[p] : part[p];
        number += coordinate % cuts * weight;
        weight *= cuts;
        rank /= layout->dev[p];
    }
    return number;
}

const char *rfs_layout_unclear(const struct rfs_layout *layout)
{
    switch (layout->unclear) {
    case RFS_UNCLEAR_OFFSETS:
        return "indices_offset without param_split_shape";
    case RFS_UNCLEAR_SPLIT:
        return "a manual split (param_split_shape) of a nested tensor map, with an optimizer "
               "shard, "
               "or with field slicing";
    case RFS_UNCLEAR_FIELD:
        return "field slicing (field) of something else than the rows of a matrix over all devices";
    case RFS_CLEAR:
        break;
    }
    return NULL;
}

uint64_t rfs_layout_rows(const struct rfs_layout *layout, uint32_t rank)
{
    uint32_t piece = 0;

    if (layout->edge == NULL)
        return 0;
    if (layout->map[0] >= 0) { /* plain: axis 0 has this entry alone */
        const uint32_t p = rfs_layout_position(layout, layout->map[0]);
        for (uint32_t i = layout->n_dev - 1; i > p; i--)
            rank /= layout->dev[i];
        piece = rank % layout->dev[p];
    }
    return layout->edge[piece + 1] - layout->edge[piece];
}

/* ---- manual splits and fields ---------------------------------------------------------------- */

/*
 * Cuts of axis 0 that are not equal parts in a row: manual splits (param_split_shape) and field
 * slicing.
 *
 * A manual split is made by Gather with the attribute manual_split for an embedding table: piece k
 * of axis 0 has param_split_shape[k] rows. The compiler writes one number for each piece of axis 0;
 * merge_sliced_parameter expects one for each slice, in the order of cells. Both are taken: they
 * are the same unless other axes are cut, too, and then slices side by side must have the same
 * rows. indices_offset (the numbers subtracted from an index before the look-up) does not affect
 * rows, and MindSpore does not read it back. tensor_shape of the compiler's JSON is wrong here: the
 * rows of the first slice times the pieces.
 *
 * Field slicing is made by MatMul with the attribute field_size for its weight: the rows are those
 * of field 0, then of field 1 and so on, and each device holds an equal part of every field. So a
 * slice is n parts, one of each field, and the whole is all devices' parts of field 0, then of
 * field 1, … MindSpore takes all devices in the order of their ranks then, whatever the tensor map
 * says.
 *
 * Source: _merge_param_with_strategy and _reshape_param_data_with_weight of MindSpore 2.10, and
 * files of its compiler. Layouts that these do not prove are marked as unclear, and refused when
 * used.
 */

/*
 * Multiplies the extents of the tensor map's entries; a 0 would be a tensor without axes, which has
 * none.
 */
static uint64_t pieces_of(const struct rfs_layout *layout, uint32_t first, uint32_t end)
{
    uint64_t pieces = 1;

    for (uint32_t e = first; e < end; e++)
        if (layout->map[e] >= 0)
            pieces *= layout->dev[rfs_layout_position(layout, layout->map[e])];
    return pieces;
}

/* Leaves one number for each piece of axis 0. */
static int one_for_each_piece(struct rfs_layout_builder *item, uint64_t pieces,
                              uint64_t side_by_side)
{
    for (uint64_t k = 0; k < pieces; k++) {
        const uint64_t rows = item->rows.data[k * side_by_side];
        for (uint64_t i = 1; i < side_by_side; i++)
            if (item->rows.data[k * side_by_side + i] != rows)
                return rfs_layout_fail(
                    item, RFS_LAYOUT_REMEDY,
                    "param_split_shape has slices of %llu and %llu rows side by side",
                    (unsigned long long)rows,
                    (unsigned long long)item->rows.data[k * side_by_side + i]);
        item->rows.data[k] = rows;
    }
    item->rows.n = pieces;
    return 0;
}

/* Turns the rows of the pieces into where they begin, and where the last ends. */
static int make_edges(struct rfs_layout_builder *item)
{
    uint64_t at = 0;

    for (size_t k = 0; k < item->rows.n; k++) {
        const uint64_t rows = item->rows.data[k];
        item->rows.data[k] = at;
        if (!rfs_add_u64(at, rows, &at) || at > INT64_MAX)
            return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                                   "param_split_shape has more than 2^63 rows in all");
    }
    if (!RFS_PUSH(&item->rows, at))
        return rfs_fail_memory(item->err);
    item->layout.edge = item->rows.data;
    item->layout.n_edges = (uint32_t)item->rows.n;
    return 0;
}

static bool is_nested(const struct rfs_layout *layout)
{
    return rfs_layout_cuts(layout) != layout->n_axes;
}

static int check_split(struct rfs_layout_builder *item)
{
    struct rfs_layout *layout = &item->layout;
    const size_t n = item->rows.n;

    if (n == 0) {
        layout->unclear = RFS_UNCLEAR_OFFSETS;
        return 0;
    }
    if (item->offsets.n > 0 && item->offsets.n != n)
        return rfs_layout_fail(
            item, RFS_LAYOUT_REMEDY,
            "param_split_shape has %zu entries and indices_offset %zu; they must "
            "agree",
            n, item->offsets.n);
    if (layout->n_axes == 0)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "a scalar cannot be cut by param_split_shape");
    if (is_nested(layout) || layout->opt_size > 1 || item->field > 0) {
        layout->unclear = RFS_UNCLEAR_SPLIT;
        return 0;
    }
    const uint64_t pieces = pieces_of(layout, 0, layout->start[1]);
    const uint64_t slices = pieces_of(layout, 0, rfs_layout_cuts(layout));
    if (n != pieces && n != slices)
        return rfs_layout_fail(
            item, RFS_LAYOUT_REMEDY,
            "param_split_shape has %zu entries, but the strategy cuts axis 0 into "
            "%llu pieces",
            n, (unsigned long long)pieces);
    const int rc = n == pieces ? 0 : one_for_each_piece(item, pieces, slices / pieces);
    return rc == 0 ? make_edges(item) : rc;
}

static int check_field(struct rfs_layout_builder *item)
{
    struct rfs_layout *layout = &item->layout;

    if (item->field < 0)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY, "field is %lld", (long long)item->field);
    if (item->field == 0 || layout->unclear != RFS_CLEAR)
        return 0;
    if (layout->n_axes != 2 || is_nested(layout) || layout->opt_size > 1 ||
        pieces_of(layout, 0, layout->start[1]) != layout->devices) {
        layout->unclear = RFS_UNCLEAR_FIELD;
        return 0;
    }
    if (item->field > RFS_MAX_PARTS / (int64_t)layout->devices)
        return rfs_layout_fail(item, NULL,
                               "%lld fields over %u devices are more than %d parts of a tensor",
                               (long long)item->field, layout->devices, RFS_MAX_PARTS);
    layout->field = layout->devices > 1 ? (uint32_t)item->field : 0;
    return 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_devices(struct rfs_layout_builder *item)
{
    struct rfs_layout *layout = &item->layout;
    uint64_t devices = 1;

    if (layout->n_dev == 0)
        return rfs_layout_fail(item, "a strategy with tensor or data parallelism",
                               "it has no device matrix; a strategy of pipeline parallelism alone "
                               "says nothing about how tensors are cut");
    for (uint32_t p = 0; p < layout->n_dev; p++) {
        devices *= layout->dev[p]; /* at most 2^20 * 2^20 */
        if (devices > RFS_MAX_DEVICES)
            return rfs_layout_fail(item, NULL, "the device matrix has more than %u devices",
                                   RFS_MAX_DEVICES);
    }
    layout->devices = (uint32_t)devices;
    return 0;
}

static int check_map(struct rfs_layout_builder *item)
{
    const struct rfs_layout *layout = &item->layout;
    uint32_t used = 0;

    for (uint32_t i = 0; i < rfs_layout_cuts(layout); i++) {
        const int32_t axis = layout->map[i];
        if (axis < 0)
            continue;
        if ((uint32_t)axis >= layout->n_dev)
            return rfs_layout_fail(
                item, RFS_LAYOUT_REMEDY,
                "the tensor map names device axis %d, but the device matrix has %u axes", axis,
                layout->n_dev);
        if (used >> axis & 1)
            return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                                   "the tensor map uses device axis %d twice", axis);
        used |= UINT32_C(1) << axis;
    }
    return 0;
}

static int check_expanded(struct rfs_layout_builder *item)
{
    const struct rfs_layout *layout = &item->layout;

    if (layout->n_expanded == 0)
        return 0;
    if (layout->n_expanded != layout->n_axes)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "tensor_shape has %u entries and tensor_map %u; they must agree",
                               layout->n_expanded, layout->n_axes);
    for (uint32_t i = 0; i < layout->n_axes; i++) {
        const int32_t axis = layout->map[i];
        if (axis < 0 || (i == 0 && item->rows.n > 0))
            continue; /* tensor_layout.c explains why the rows are not compared */
        const uint32_t extent = layout->dev[rfs_layout_position(layout, axis)];
        if (layout->expanded[i] % extent != 0)
            return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                                   "%llu in tensor_shape is not divisible by the %u devices "
                                   "that cut it",
                                   (unsigned long long)layout->expanded[i], extent);
    }
    return 0;
}

/*
 * Checks the step of the optimizer shard. With one repeated axis MindSpore refuses any other step
 * than the stride of that axis; with several it does not look at the step.
 */
static int check_step(const struct rfs_layout_builder *item)
{
    const struct rfs_layout *layout = &item->layout;
    const uint32_t used = rfs_layout_used(layout);
    uint32_t stride = 1, repeated = 0, expected = 0;

    for (uint32_t p = layout->n_dev; p-- > 0; stride *= layout->dev[p])
        if (layout->dev[p] > 1 && !(used >> p & 1)) {
            expected = stride;
            repeated++;
        }
    if (repeated == 1 && item->opt_step != expected)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "the optimizer shard has step %lld, but the device axis that is "
                               "left for it has stride %u",
                               (long long)item->opt_step, expected);
    return 0;
}

static int check_optimizer(struct rfs_layout_builder *item)
{
    struct rfs_layout *layout = &item->layout;
    uint32_t repeats = layout->devices, part[RFS_MAX_DEVICE_AXES];
    int64_t size = item->opt_size;

    if (item->opt_step < 0 || size < -1)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "the optimizer shard has step %lld and size %lld",
                               (long long)item->opt_step, (long long)size);
    for (uint32_t i = 0; i < rfs_layout_cuts(layout); i++)
        if (layout->map[i] >= 0)
            repeats /= layout->dev[rfs_layout_position(layout, layout->map[i])];
    if (size == -1)
        size = repeats;
    if (item->opt_step == 0 || size <= 1)
        return 0;
    if (layout->n_axes == 0)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "a scalar cannot be cut by an optimizer shard of %lld",
                               (long long)size);
    if (size > repeats || !rfs_layout_opt_parts(layout, (uint64_t)size, part))
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "an optimizer shard of %lld does not fit the repeated device axes, "
                               "%u devices in all",
                               (long long)size, repeats);
    layout->opt_size = (uint32_t)size;
    layout->opt_step = (uint32_t)item->opt_step;
    return check_step(item);
}

int rfs_layout_check(struct rfs_layout_builder *item)
{
    int rc = check_devices(item)
            ?: check_map(item)
            ?: check_expanded(item)
            ?: check_optimizer(item);

    if (rc == 0 && (item->rows.n > 0 || item->offsets.n > 0))
        rc = check_split(item);
    return rc == 0 ? check_field(item) : rc;
}

/* ---- layouts of rules ------------------------------------------------------------------------ */

/*
 * Rules say "axis 0" and "the last axis" of tensors that they have not seen: their layouts are open
 * until the number of axes is known.
 */

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
        RFS_FREE char *scalar =
            c->ndim > 0 ? NULL
                        : rfs_text_printf("'%s: whole' before that rule", c->where.param ?: "NAME");
        return rfs_fail(c->err, -EINVAL, c->where, scalar ?: "rules that fit this tensor",
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

/* Takes the cuts of axis I of the tensor from the axes of the layout that mean it. */
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
