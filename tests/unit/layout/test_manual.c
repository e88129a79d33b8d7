/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manual splits and field slicing: what is read from both formats, the grids, and what is refused.
 */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A parameter "w" of two axes, or of one when MAP names one; MORE is members of its own. */
static struct text json_of(const char *dev, const char *map, const char *more)
{
    struct text text = {0};

    putf(&text,
         "{\"parallel_layout_item\":{\"w\":{\"dev_matrix\":[%s],\"tensor_map\":[%s],%s,"
         "\"opt_weight_shard_step\":1}}}",
         dev, map, more);
    return text;
}

#define PLAIN ",\"field\":0,\"opt_weight_shard_size\":0"

static struct rfs_strategy *parse_json(const char *dev, const char *map, const char *more)
{
    struct text text = json_of(dev, map, more);
    struct rfs_strategy *strategy = parse_text("s.json", &text);

    text_free(&text);
    return strategy;
}

static void refused_json(const char *dev, const char *map, const char *more, const char *what)
{
    struct text text = json_of(dev, map, more);

    expect_refused("s.json", text.data, text.n, what);
    text_free(&text);
}

static void put_dims(struct text *layouts, unsigned number, uint32_t n, const int64_t *dims)
{
    struct text inner = {0};

    for (uint32_t i = 0; i < n; i++)
        put_number(&inner, 1, dims[i]);
    put_field(layouts, number, &inner);
    text_free(&inner);
}

/* The same in protobuf. */
static struct text protobuf_of(uint32_t n_dev, const int64_t *dev, uint32_t n_map,
                               const int64_t *map, uint32_t n, const int64_t *rows,
                               const int64_t *offsets, int64_t field)
{
    struct text layouts = {0}, item = {0}, file = {0}, name = {0};

    put_dims(&layouts, 1, n_dev, dev);
    put_dims(&layouts, 2, n_map, map);
    put_dims(&layouts, 3, n, rows);
    put_dims(&layouts, 4, offsets != NULL ? n : 0, offsets);
    put_number(&layouts, 5, field);
    put_number(&layouts, 6, 0);
    put_number(&layouts, 7, 0);
    put(&name, "w", 1);
    put_field(&item, 1, &name);
    put_field(&item, 2, &layouts);
    put_number(&file, 1, 2);
    put_field(&file, 3, &item);
    text_free(&layouts);
    text_free(&item);
    text_free(&name);
    return file;
}

static const struct rfs_layout *layout_of(const struct rfs_strategy *strategy)
{
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, 0, 0);

    assert_non_null(layout);
    return layout;
}

static void expect_grid(const struct rfs_layout *layout, const uint64_t *dims,
                        enum rfs_dims_of meaning, struct rfs_grid *grid, uint64_t *whole)
{
    struct rfs_error err = {0};

    if (rfs_grid_resolve(layout, 2, dims, meaning, grid, whole, NULL, RFS_NOWHERE, &err) != 0)
        fail_msg("%s", err.text);
}

/* Rows 10, 20 and 4 over three devices, and what each function says of them. */
static void rows_as_given(void **unused)
{
    static const int64_t dev[] = {3}, map[] = {0, -1}, rows[] = {10, 20, 4}, offsets[] = {7, 0, -5};
    struct text text = protobuf_of(1, dev, 2, map, 3, rows, offsets, 0);
    struct rfs_strategy *strategies[] = {
        parse_text("s", &text),
        parse_json("3", "0,-1", "\"param_split_shape\":[10,20,4]" PLAIN),
        /* What the compiler writes as tensor_shape: the first slice's rows by the pieces. */
        parse_json("3", "0,-1",
                   "\"param_split_shape\":[10,20,4],\"indices_offset\":[0,10,30],"
                   "\"tensor_shape\":[30,8]" PLAIN),
    };
    const uint64_t whole_dims[] = {34, 8};

    (void)unused;
    for (unsigned k = 0; k < 3; k++) {
        const struct rfs_layout *layout = layout_of(strategies[k]);
        struct rfs_grid grid;
        uint64_t whole[2], dims[2];
        assert_true(rfs_strategy_has_splits(strategies[k]));
        expect_grid(layout, whole_dims, RFS_DIMS_OF_WHOLE, &grid, whole);
        for (uint32_t rank = 0; rank < 3; rank++) {
            const uint64_t slice[] = {(uint64_t)rows[rank], 8};
            struct rfs_grid again;
            assert_int_equal(rfs_layout_rows(layout, rank), rows[rank]);
            rfs_grid_slice(&grid, whole, rank, dims);
            assert_memory_equal(dims, slice, sizeof slice);
            /* Any slice tells the whole. */
            expect_grid(layout, slice, RFS_DIMS_OF_SLICE, &again, whole);
            assert_memory_equal(whole, whole_dims, sizeof whole);
            assert_memory_equal(&again, &grid, sizeof grid);
        }
        assert_int_equal(rfs_grid_begin(&grid, whole, 0, 2), 30);
        assert_int_equal(rfs_grid_piece(&grid, whole, 0, 9), 0);
        assert_int_equal(rfs_grid_piece(&grid, whole, 0, 10), 1);
        assert_int_equal(rfs_grid_piece(&grid, whole, 0, 33), 2);
        rfs_strategy_free(strategies[k]);
    }
    text_free(&text);
}

/*
 * Columns cut, too, and a repeated device axis; the device axis that cuts the rows is the leftmost,
 * or in the middle. One number for each piece of axis 0, as the compiler writes, or for each slice,
 * as merge_sliced_parameter wants.
 */
static void other_axes_may_be_cut(void **unused)
{
    static const char *const more[] = {"\"param_split_shape\":[3,1]" PLAIN,
                                       "\"param_split_shape\":[3,3,1,1]" PLAIN};
    const uint64_t slice[] = {3, 4}, wanted[] = {4, 8};

    (void)unused;
    for (unsigned k = 0; k < 2; k++) {
        struct rfs_strategy *a = parse_json("2,2", "1,0", more[k]);
        struct rfs_strategy *b = parse_json("2,2,2", "1,2", more[k]);
        struct rfs_grid grid;
        uint64_t whole[2], dims[2];
        expect_grid(layout_of(a), slice, RFS_DIMS_OF_SLICE, &grid, whole);
        assert_memory_equal(whole, wanted, sizeof whole);
        for (uint32_t rank = 0; rank < 4; rank++) {
            assert_int_equal(rfs_layout_rows(layout_of(a), rank), rank < 2 ? 3 : 1);
            rfs_grid_slice(&grid, whole, rank, dims);
            assert_int_equal(dims[0], rank < 2 ? 3 : 1);
            assert_int_equal(dims[1], 4);
        }
        expect_grid(layout_of(b), slice, RFS_DIMS_OF_SLICE, &grid, whole);
        assert_int_equal(grid.replicas, 2);
        for (uint32_t rank = 0; rank < 8; rank++)
            assert_int_equal(rfs_layout_rows(layout_of(b), rank), rank / 2 % 2 == 0 ? 3 : 1);
        rfs_strategy_free(a);
        rfs_strategy_free(b);
    }
    /* Rows of axis 0 that is not cut at all. */
    struct rfs_strategy *one = parse_json("2", "-1,0", "\"param_split_shape\":[5]" PLAIN);
    assert_int_equal(rfs_layout_rows(layout_of(one), 1), 5);
    rfs_strategy_free(one);
}

/* Fields: 3 over 4 devices; cell c of axis 0 is held by rank c % 4. */
static void fields(void **unused)
{
    static const int64_t dev[] = {1, 4}, map[] = {0, -1};
    struct text text = protobuf_of(2, dev, 2, map, 0, NULL, NULL, 3);
    struct rfs_strategy *strategies[] = {
        parse_text("s", &text),
        parse_json("1,4", "0,-1",
                   "\"field\":3,\"tensor_shape\":[24,5],\"opt_weight_shard_size\":0"),
    };
    const uint64_t slice[] = {6, 5}, wanted[] = {24, 5};

    (void)unused;
    for (unsigned k = 0; k < 2; k++) {
        struct rfs_grid grid;
        uint64_t whole[2], dims[2];
        expect_grid(layout_of(strategies[k]), slice, RFS_DIMS_OF_SLICE, &grid, whole);
        assert_memory_equal(whole, wanted, sizeof whole);
        assert_int_equal(grid.rounds, 3);
        assert_int_equal(grid.pieces[0], 12);
        for (uint32_t cell = 0; cell < 12; cell++) {
            const uint32_t at[] = {cell, 0};
            assert_int_equal(rfs_grid_holder(&grid, at, 0), cell % 4);
            assert_int_equal(rfs_grid_begin(&grid, whole, 0, cell), cell * 2);
        }
        rfs_grid_slice(&grid, whole, 3, dims);
        assert_memory_equal(dims, slice, sizeof dims);
        rfs_strategy_free(strategies[k]);
    }
    text_free(&text);
    /* One device has all of every field: nothing is cut. */
    struct rfs_strategy *one = parse_json("1", "0,-1", "\"field\":3,\"opt_weight_shard_size\":0");
    assert_int_equal(layout_of(one)->field, 0);
    rfs_strategy_free(one);
}

static void what_is_wrong_is_refused(void **unused)
{
    static const int64_t dev[] = {2}, map[] = {0}, rows[] = {4, 4}, negative[] = {4, -4};
    struct text text = protobuf_of(1, dev, 1, map, 2, negative, NULL, 0);

    (void)unused;
    expect_refused("s", text.data, text.n, "param_split_shape has a slice of -4 rows");
    text_free(&text);
    text = protobuf_of(1, dev, 1, map, 1, rows, rows, 0);
    expect_refused("s", text.data, text.n, "has 1 entries, but the strategy cuts axis 0 into 2");
    text_free(&text);
    text = protobuf_of(1, dev, 1, map, 0, NULL, NULL, -1);
    expect_refused("s", text.data, text.n, "parameter 'w': field is -1");
    text_free(&text);
    refused_json("2", "0", "\"param_split_shape\":[4,0]" PLAIN, "a slice of 0 rows");
    refused_json("2", "0", "\"param_split_shape\":[4,4,4]" PLAIN,
                 "has 3 entries, but the strategy");
    refused_json("2", "0", "\"param_split_shape\":[8]" PLAIN,
                 "has 1 entries, but the strategy cuts");
    refused_json("2", "0", "\"param_split_shape\":[4,4],\"indices_offset\":[0]" PLAIN,
                 "param_split_shape has 2 entries and indices_offset 1; they must agree");
    refused_json("2,2", "1,0", "\"param_split_shape\":[4,4,3,4]" PLAIN,
                 "slices of 3 and 4 rows side by side");
    refused_json("2", "", "\"param_split_shape\":[4,4]" PLAIN, "a scalar cannot be cut by");
    refused_json("2", "0", "\"param_split_shape\":7" PLAIN, "is not a list of integers");
    refused_json("2048", "0,-1", "\"field\":33,\"opt_weight_shard_size\":0",
                 "33 fields over 2048 devices are more than 65536 parts");
    refused_json("2", "0,-1", "\"field\":2147483647,\"opt_weight_shard_size\":0",
                 "are more than 65536 parts");
    refused_json("2", "0,-1", "\"field\":2147483648,\"opt_weight_shard_size\":0",
                 "field is not an integer of 32 bits");
}

/* 1,025 slices of 2^53 rows: more than 2^63 in all. */
static void too_many_rows(void **unused)
{
    struct text more = {0}, text;

    (void)unused;
    putf(&more, "\"param_split_shape\":[");
    for (int i = 0; i < 1025; i++)
        putf(&more, "%s9007199254740992", i > 0 ? "," : "");
    putf(&more, "]" PLAIN);
    text = (struct text){0};
    putf(&text, "{\"parallel_layout_item\":{\"w\":{\"dev_matrix\":[1025],\"tensor_map\":[0],");
    put(&text, more.data, more.n);
    putf(&text, ",\"opt_weight_shard_step\":1}}}");
    expect_refused("s.json", text.data, text.n, "has more than 2^63 rows in all");
    text_free(&text);
    text_free(&more);
}

static void expect_misfit(const char *dev, const char *map, const char *more, const uint64_t *dims,
                          enum rfs_dims_of meaning, int code, const char *what)
{
    struct rfs_strategy *strategy = parse_json(dev, map, more);
    struct rfs_grid grid;
    struct rfs_error err = {0};

    assert_int_equal(rfs_grid_resolve(layout_of(strategy), 2, dims, meaning, &grid, NULL, NULL,
                                      RFS_OF("s.json", "w"), &err),
                     code);
    if (strstr(err.text, what) == NULL || strncmp(err.text, "s.json: parameter 'w': ", 23) != 0)
        fail_msg("wanted \"%s\", got \"%s\"", what, err.text);
    rfs_strategy_free(strategy);
}

static void what_does_not_fit_is_refused(void **unused)
{
    const uint64_t eight[] = {8, 2}, six[] = {6, 2};

    (void)unused;
    expect_misfit("2", "0,-1", "\"param_split_shape\":[5,4]" PLAIN, eight, RFS_DIMS_OF_WHOLE,
                  -EINVAL, "a tensor of [8, 2], but the strategy's param_split_shape makes 9 rows");
    expect_misfit("2", "0,-1", "\"param_split_shape\":[5,4]" PLAIN, eight, RFS_DIMS_OF_SLICE,
                  -EINVAL, "but none of the strategy's param_split_shape has 8 rows");
    expect_misfit("2", "0,-1", "\"field\":4,\"opt_weight_shard_size\":0", six, RFS_DIMS_OF_SLICE,
                  -EINVAL, "slices of [6, 2], which 4 fields over 2 devices do not divide");
    expect_misfit("2", "0,-1", "\"field\":4,\"opt_weight_shard_size\":0", six, RFS_DIMS_OF_WHOLE,
                  -EINVAL, "a tensor of [6, 2], which 4 fields over 2 devices do not divide");
}

/*
 * What MindSpore's own code does not settle. The strategy is read all the same: other parameters
 * are good.
 */
static void what_is_not_proved_is_refused_by_use(void **unused)
{
    static const struct {
        const char *dev, *map, *more, *what;
    } cases[] = {
        {"2", "0,-1", "\"indices_offset\":[0,4]" PLAIN,
         "it is not defined which rank holds which slice under indices_offset without "
         "param_split_shape"},
        {"2,2", "1,-1", "\"param_split_shape\":[4,4],\"field\":0,\"opt_weight_shard_size\":-1",
         "under a manual split (param_split_shape) of a nested tensor map, with an optimizer"},
        {"2", "0,-1", "\"param_split_shape\":[4,4],\"field\":2,\"opt_weight_shard_size\":0",
         "or with field slicing"},
        {"2,2", "0,-1", "\"field\":2,\"opt_weight_shard_size\":0",
         "under field slicing (field) of something else than the rows of a matrix over all"},
        {"2", "-1,0", "\"field\":2,\"opt_weight_shard_size\":0", "under field slicing (field)"},
        {"2", "-1,-1", "\"field\":2,\"opt_weight_shard_size\":-1", "under field slicing (field)"},
    };
    const uint64_t dims[] = {8, 8};

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_misfit(cases[i].dev, cases[i].map, cases[i].more, dims, RFS_DIMS_OF_WHOLE, -ENOTSUP,
                      cases[i].what);
}

/* What the compiler wrote for Gather with manual_split and MatMul with field_size. */
static void as_the_compiler_writes(void **unused)
{
    static const uint64_t table[] = {0, 10, 34, 36, 40}, deep[] = {0, 7, 16};

    (void)unused;
    for (int json = 0; json < 2; json++) {
        struct rfs_strategy *strategy =
            parse_fixture(json ? "strategies/manual4.json" : "strategies/manual4.ckpt");
        const struct rfs_layout *layout =
            rfs_strategy_layout(strategy, (size_t)rfs_strategy_find(strategy, "table"), 0);
        const uint64_t whole[] = {40, 8}, slice[] = {9, 4}, dense[] = {12, 5};
        struct rfs_grid grid;
        uint64_t got[2];
        assert_int_equal(layout->n_edges, 5);
        assert_memory_equal(layout->edge, table, sizeof table);
        expect_grid(layout, whole, RFS_DIMS_OF_WHOLE, &grid, got);
        layout = rfs_strategy_layout(strategy, (size_t)rfs_strategy_find(strategy, "deep"), 0);
        assert_int_equal(layout->n_edges, 3);
        assert_memory_equal(layout->edge, deep, sizeof deep);
        expect_grid(layout, slice, RFS_DIMS_OF_SLICE, &grid, got);
        assert_int_equal(got[0], 16);
        assert_int_equal(got[1], 8);
        layout = rfs_strategy_layout(strategy, (size_t)rfs_strategy_find(strategy, "dense"), 0);
        assert_int_equal(layout->field, 6);
        expect_grid(layout, dense, RFS_DIMS_OF_SLICE, &grid, got);
        assert_int_equal(got[0], 48);
        rfs_strategy_free(strategy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_as_given),
        cmocka_unit_test(as_the_compiler_writes),
        cmocka_unit_test(other_axes_may_be_cut),
        cmocka_unit_test(fields),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(too_many_rows),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(what_is_not_proved_is_refused_by_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
