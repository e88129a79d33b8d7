/* SPDX-License-Identifier: Apache-2.0 */
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
#include "base/checked.h"
#include "layout/builder.h"
#include "layout/grid.h"

#define REMEDY_FILE "the strategy file that MindSpore saved for this checkpoint"

int rfs_layout_add_rows(struct rfs_layout_builder *item, int64_t rows)
{
    if (rows < 1)
        return rfs_layout_fail(item, REMEDY_FILE, "param_split_shape has a slice of %lld rows",
                               (long long)rows);
    if (item->rows.n >= RFS_MAX_DEVICES)
        return rfs_layout_fail(item, NULL, "param_split_shape has more than %u entries",
                               RFS_MAX_DEVICES);
    return RFS_PUSH(&item->rows, (uint64_t)rows) ? 0 : rfs_fail_memory(item->err);
}

int rfs_layout_add_offset(struct rfs_layout_builder *item, int64_t offset)
{
    if (item->offsets.n >= RFS_MAX_DEVICES)
        return rfs_layout_fail(item, NULL, "indices_offset has more than %u entries",
                               RFS_MAX_DEVICES);
    return RFS_PUSH(&item->offsets, offset) ? 0 : rfs_fail_memory(item->err);
}

/* Of the tensor map's entries; a 0 would be a tensor without axes, which has none. */
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
                    item, REMEDY_FILE,
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
            return rfs_layout_fail(item, REMEDY_FILE,
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
            item, REMEDY_FILE,
            "param_split_shape has %zu entries and indices_offset %zu; they must "
            "agree",
            n, item->offsets.n);
    if (layout->n_axes == 0)
        return rfs_layout_fail(item, REMEDY_FILE, "a scalar cannot be cut by param_split_shape");
    if (is_nested(layout) || layout->opt_size > 1 || item->field > 0) {
        layout->unclear = RFS_UNCLEAR_SPLIT;
        return 0;
    }
    const uint64_t pieces = pieces_of(layout, 0, layout->start[1]);
    const uint64_t slices = pieces_of(layout, 0, rfs_layout_cuts(layout));
    if (n != pieces && n != slices)
        return rfs_layout_fail(
            item, REMEDY_FILE,
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
        return rfs_layout_fail(item, REMEDY_FILE, "field is %lld", (long long)item->field);
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

int rfs_layout_check_manual(struct rfs_layout_builder *item)
{
    int rc = 0;

    if (item->rows.n > 0 || item->offsets.n > 0)
        rc = check_split(item);
    return rc == 0 ? check_field(item) : rc;
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
