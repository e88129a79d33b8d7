/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random layouts against a slow model: every rank's box is found by cutting the tensor one device
 * axis after the other; then the ranks that ended with the same box are listed, and the optimizer
 * shard cuts that box by each rank's place in the list.
 */
#include "support.h"

#include <stdio.h>
#include <string.h>

#define CASES 4000
#define MAX_RANKS 72

struct box {
    uint64_t at[4], size[4];
};

/* The rank's coordinate on the device axis that is AXIS from the right. */
static uint32_t coordinate(const struct spec *spec, int32_t axis, uint32_t rank)
{
    for (int32_t a = 0; a < axis; a++)
        rank /= spec->dev[spec->n_dev - 1 - (uint32_t)a];
    return rank % spec->dev[spec->n_dev - 1 - (uint32_t)axis];
}

static void cut(const struct spec *spec, uint32_t i, uint32_t k, uint32_t rank, struct box *box)
{
    if (k == spec->axis[i].n)
        return;
    const int32_t axis = spec->axis[i].by[k];
    box->size[i] /= spec->dev[spec->n_dev - 1 - (uint32_t)axis];
    box->at[i] += coordinate(spec, axis, rank) * box->size[i];
    cut(spec, i, k + 1, rank, box);
}

static bool same_box(const struct spec *spec, const struct box *a, const struct box *b)
{
    for (uint32_t i = 0; i < spec->ndim; i++)
        if (a->at[i] != b->at[i] || a->size[i] != b->size[i])
            return false;
    return true;
}

static void model(const struct spec *spec, uint32_t ranks, uint32_t opt, struct box *boxes)
{
    struct box whole[MAX_RANKS];

    for (uint32_t r = 0; r < ranks; r++) {
        memset(&whole[r], 0, sizeof whole[r]);
        for (uint32_t i = 0; i < spec->ndim; i++) {
            whole[r].size[i] = spec->shape[i];
            cut(spec, i, 0, r, &whole[r]);
        }
        boxes[r] = whole[r];
    }
    if (opt < 2)
        return;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t place = 0;
        for (uint32_t s = 0; s < r; s++)
            place += same_box(spec, &whole[r], &whole[s]);
        boxes[r].size[0] /= opt;
        boxes[r].at[0] += place % opt * boxes[r].size[0];
    }
}

/* A random layout; *opt is the optimizer shard's true size. False: too many ranks, try again. */
static bool random_spec(struct spec *spec, uint32_t *ranks, uint32_t *opt)
{
    static const uint32_t extents[] = {1, 2, 2, 2, 3, 4, 6};
    bool used[6] = {false};
    uint32_t stride = 1, n_sizes = 0, sizes[64], size = 1, step = 0;

    *spec = (struct spec){.name = "w", .n_dev = 1 + below(5), .ndim = 1 + below(4)};
    *ranks = 1;
    for (uint32_t p = 0; p < spec->n_dev; p++)
        *ranks *= spec->dev[p] = extents[below(sizeof extents / sizeof *extents)];
    if (*ranks > MAX_RANKS)
        return false;
    for (uint32_t tries = below(8); tries > 0; tries--) {
        const uint32_t axis = below(spec->n_dev), i = below(spec->ndim);
        if (!used[axis])
            spec->axis[i].by[spec->axis[i].n++] = (int32_t)axis;
        used[axis] = true;
    }
    /* Sizes that whole axes from the right, or those and a part of the next, can make. */
    for (uint32_t a = 0; a < spec->n_dev; a++) {
        const uint32_t extent = spec->dev[spec->n_dev - 1 - a];
        for (uint32_t part = 2; !used[a] && part <= extent; part++)
            if (extent % part == 0)
                sizes[n_sizes++] = size * part;
        if (!used[a] && extent > 1) {
            step = step == 0 ? stride : step;
            size *= extent;
        }
        stride *= extent;
    }
    *opt = n_sizes > 0 && below(3) > 0 ? sizes[below(n_sizes)] : 0;
    spec->step = *opt > 0 ? (int32_t)step : 0;
    spec->size = *opt == size && below(2) ? -1 : (int32_t)*opt;
    for (uint32_t i = 0; i < spec->ndim; i++) {
        spec->shape[i] = 1 + below(3);
        for (uint32_t k = 0; k < spec->axis[i].n; k++)
            spec->shape[i] *= spec->dev[spec->n_dev - 1 - (uint32_t)spec->axis[i].by[k]];
    }
    if (*opt > 1)
        spec->shape[0] *= *opt;
    return true;
}

static void check_replicas(const struct spec *spec, const struct rfs_grid *grid,
                           const struct box *boxes, uint32_t rank)
{
    uint32_t cell[RFS_GRID_DIMS], found = 0;

    for (uint32_t r = 0; r < grid->ranks; r++) {
        if (!same_box(spec, &boxes[r], &boxes[rank]))
            continue;
        assert_true(found < grid->replicas);
        assert_int_equal(rfs_grid_replica(grid, rank, found), r);
        found++;
    }
    assert_int_equal(found, grid->replicas);
    /* A holder has the cell, and what is free in it is as in LIKE. */
    rfs_grid_cell(grid, rank, cell);
    for (uint32_t like = 0; like < grid->ranks; like++) {
        const uint32_t holder = rfs_grid_holder(grid, cell, like);
        assert_true(holder < grid->ranks);
        assert_true(same_box(spec, &boxes[holder], &boxes[rank]));
        for (uint32_t k = 0; k < grid->n_digits; k++) {
            const struct rfs_digit *digit = &grid->digits[k];
            if (digit->axis < 0)
                assert_int_equal(holder / digit->stride % digit->extent,
                                 like / digit->stride % digit->extent);
        }
    }
    assert_int_equal(rfs_grid_holder(grid, cell, rank), rank);
}

static void check_grid(const struct spec *spec, const struct rfs_grid *grid, uint32_t ranks,
                       const struct box *boxes, const uint64_t *slice)
{
    uint64_t digits = 1;

    assert_int_equal(grid->ndim, spec->ndim);
    assert_int_equal(grid->ranks, ranks);
    for (uint32_t k = 0; k < grid->n_digits; k++)
        digits *= grid->digits[k].extent;
    assert_int_equal(digits, ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t cell[RFS_GRID_DIMS], rank = 0;
        rfs_grid_cell(grid, r, cell);
        for (uint32_t i = 0; i < spec->ndim; i++) {
            assert_true(cell[i] < grid->pieces[i]);
            assert_int_equal(slice[i], boxes[r].size[i]);
            assert_int_equal(slice[i] * grid->pieces[i], spec->shape[i]);
            assert_int_equal(cell[i] * slice[i], boxes[r].at[i]);
        }
        for (uint32_t k = 0; k < grid->n_digits; k++)
            rank += r / grid->digits[k].stride % grid->digits[k].extent * grid->digits[k].stride;
        assert_int_equal(rank, r);
    }
    for (int k = 0; k < 4; k++)
        check_replicas(spec, grid, boxes, below(ranks));
}

/* Numbers of slices are equal exactly where boxes are. */
static void check_slices(const struct spec *spec, const struct rfs_layout *layout,
                         const struct box *boxes)
{
    for (int k = 0; k < 16; k++) {
        const uint32_t a = below(layout->devices), b = below(layout->devices);
        assert_true(rfs_layout_slice(layout, a) < layout->devices);
        assert_int_equal(rfs_layout_slice(layout, a) == rfs_layout_slice(layout, b),
                         same_box(spec, &boxes[a], &boxes[b]));
    }
}

static void check_protobuf(const struct spec *spec, struct rfs_grid *grid, uint64_t *slice,
                           const struct box *boxes)
{
    struct text text = {0};
    struct rfs_grid again;
    uint64_t whole[4];

    write_protobuf(&text, spec, 1);
    struct rfs_strategy *strategy = parse_text("random", &text);
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, 0, 0);
    check_slices(spec, layout, boxes);
    assert_int_equal(rfs_grid_resolve(layout, spec->ndim, spec->shape, RFS_DIMS_OF_WHOLE, grid,
                                      NULL, slice, RFS_NOWHERE, NULL),
                     0);
    assert_int_equal(rfs_grid_resolve(layout, spec->ndim, slice, RFS_DIMS_OF_SLICE, &again, whole,
                                      NULL, RFS_NOWHERE, NULL),
                     0);
    assert_memory_equal(&again, grid, sizeof again);
    assert_memory_equal(whole, spec->shape, spec->ndim * sizeof *whole);
    rfs_strategy_free(strategy);
    text_free(&text);
}

/* Returns whether the slices alone left it open what the nesting is. */
static bool check_json(const struct spec *spec, const struct rfs_grid *grid, const uint64_t *slice)
{
    struct text text = {0};
    struct rfs_grid again;
    struct rfs_error err = {0};
    uint64_t whole[4];
    bool one_long = false;

    write_json(&text, spec, 1);
    struct rfs_strategy *strategy = parse_text("random.json", &text);
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, 0, 0);
    assert_int_equal(rfs_grid_resolve(layout, spec->ndim, spec->shape, RFS_DIMS_OF_WHOLE, &again,
                                      whole, NULL, RFS_NOWHERE, NULL),
                     0);
    assert_memory_equal(&again, grid, sizeof again);
    assert_memory_equal(whole, spec->shape, spec->ndim * sizeof *whole);
    const int rc = rfs_grid_resolve(layout, spec->ndim, slice, RFS_DIMS_OF_SLICE, &again, whole,
                                    NULL, RFS_NOWHERE, &err);
    if (rc == 0) {
        assert_memory_equal(&again, grid, sizeof again);
        assert_memory_equal(whole, spec->shape, spec->ndim * sizeof *whole);
    } else {
        assert_non_null(strstr(err.text, "leaves it open"));
        for (uint32_t i = 0; i < spec->ndim; i++)
            one_long |= slice[i] == 1;
        assert_true(one_long && is_nested(spec));
    }
    rfs_strategy_free(strategy);
    text_free(&text);
    return rc != 0;
}

static void grids_are_those_of_the_model(void **unused)
{
    uint32_t made = 0, nested = 0, sharded = 0, open = 0;

    (void)unused;
    seed_random();
    while (made < CASES) {
        struct spec spec;
        struct box boxes[MAX_RANKS];
        struct rfs_grid grid;
        uint64_t slice[4];
        uint32_t ranks, opt;
        if (!random_spec(&spec, &ranks, &opt))
            continue;
        model(&spec, ranks, opt, boxes);
        check_protobuf(&spec, &grid, slice, boxes);
        check_grid(&spec, &grid, ranks, boxes, slice);
        open += check_json(&spec, &grid, slice);
        nested += is_nested(&spec);
        sharded += opt > 1;
        made++;
    }
    printf("%u layouts: %u nested, %u with an optimizer shard, %u open in JSON\n", made, nested,
           sharded, open);
    /* The generator makes what it is for. */
    assert_true(nested > CASES / 10);
    assert_true(sharded > CASES / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(grids_are_those_of_the_model)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
