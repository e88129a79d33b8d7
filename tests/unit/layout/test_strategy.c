/* SPDX-License-Identifier: Apache-2.0 */
/* Names, stages, keys given twice. */
#include "support.h"

#include "layout/strategy.h"

#include <stdio.h>
#include <string.h>

#define LAYOUT(dev, size)                                                                          \
    "{\"dev_matrix\":[" dev "],\"field\":0,\"opt_weight_shard_size\":" size                        \
    ",\"opt_weight_shard_step\":1,\"tensor_map\":[-1]}"
#define FILE_OF(items) "{\"parallel_layout_item\":{" items "}}"

static struct rfs_strategy *parse_json(const char *json)
{
    struct text text = {0};

    put(&text, json, strlen(json));
    struct rfs_strategy *strategy = parse_text("s.json", &text);
    text_free(&text);
    return strategy;
}

static void json_key_twice_counts_last_in_first_place(void **unused)
{
    struct rfs_strategy *strategy = parse_json(
        FILE_OF("\"a\":" LAYOUT("4", "2") ",\"b\":" LAYOUT("4", "0") ",\"a\":" LAYOUT("2,2", "4")));

    (void)unused;
    assert_int_equal(rfs_strategy_count(strategy), 2);
    assert_int_equal(rfs_strategy_find(strategy, "a"), 0);
    assert_int_equal(rfs_strategy_find(strategy, "b"), 1);
    assert_int_equal(rfs_strategy_layout(strategy, 0, 0)->n_dev, 2);
    assert_int_equal(rfs_strategy_layout(strategy, 0, 0)->opt_size, 4);
    rfs_strategy_free(strategy);
    /* Members too. */
    strategy = parse_json("{\"parallel_layout_item\":7,\"parallel_layout_item\":{\"a\":{"
                          "\"dev_matrix\":[4],\"field\":0,\"opt_weight_shard_size\":0,"
                          "\"opt_weight_shard_step\":0,\"tensor_map\":[],\"tensor_map\":[0]}},"
                          "\"parallel_strategy_item\":{\"n\":{\"stage\":0},\"m\":{\"stage\":1},"
                          "\"n\":{\"stage\":2}}}");
    assert_int_equal(rfs_strategy_layout(strategy, 0, 0)->n_axes, 1);
    assert_int_equal(rfs_strategy_facts(strategy)->first_item_stage, 2);
    rfs_strategy_free(strategy);
}

/* Of members given twice, too: nothing of the first list stays. */
static void json_key_twice_leaves_no_trace(void **unused)
{
#define MEMBERS(lists)                                                                             \
    FILE_OF("\"a\":{" lists ",\"field\":0,\"opt_weight_shard_size\":0,"                            \
            "\"opt_weight_shard_step\":0}")
    struct rfs_strategy *once =
        parse_json(MEMBERS("\"dev_matrix\":[4],\"tensor_map\":[0],\"tensor_shape\":[8]"));
    struct rfs_strategy *twice =
        parse_json(MEMBERS("\"dev_matrix\":[2,4],\"tensor_map\":[-1,1,-1],\"tensor_shape\":[3,5,7],"
                           "\"dev_matrix\":[4],\"tensor_map\":[0],\"tensor_shape\":[8]"));
    uint64_t digests[2][2];

    (void)unused;
    assert_int_equal(rfs_strategy_digest(once, digests[0]), 0);
    assert_int_equal(rfs_strategy_digest(twice, digests[1]), 0);
    assert_memory_equal(digests[0], digests[1], sizeof digests[0]);
    rfs_strategy_free(once);
    rfs_strategy_free(twice);
}

static void json_is_read_however_it_is_written(void **unused)
{
    struct rfs_strategy *strategy = parse_json(
        " {\n\"x\" : [ {\"]\" : \"}\\\"\"} , null ] ,\t\"parallel_strateg\\u0079_item\": { } ,"
        "\"parallel_layout\\u005fitem\" : { \"l\\u00e4y\\\\er\" :\r\n" LAYOUT(
            " 4 ", "4") " , \"b\":" LAYOUT(" 4 ", "4") "} , \"current_stage\":2 } \n");

    (void)unused;
    assert_int_equal(rfs_strategy_count(strategy), 2);
    assert_string_equal(rfs_strategy_param(strategy, 0), "l\xc3\xa4y\\er");
    assert_int_equal(rfs_strategy_find(strategy, "b"), 1);
    assert_int_equal(rfs_strategy_layouts(strategy), 1);
    assert_int_equal(rfs_strategy_layout(strategy, 0, 0)->opt_size, 4);
    assert_int_equal(rfs_strategy_facts(strategy)->first_item_stage, 0);
    rfs_strategy_free(strategy);
}

static void protobuf_name_twice_counts_last_in_first_place(void **unused)
{
    const struct spec specs[] = {
        {.name = "a", .n_dev = 1, .dev = {4}, .ndim = 1},
        {.name = "b", .n_dev = 1, .dev = {4}, .ndim = 1},
        {.name = "a", .n_dev = 2, .dev = {2, 2}, .ndim = 2},
    };
    struct text text = {0};

    (void)unused;
    write_protobuf(&text, specs, 3);
    struct rfs_strategy *strategy = parse_text("s", &text);
    assert_int_equal(rfs_strategy_count(strategy), 2);
    assert_int_equal(rfs_strategy_find(strategy, "a"), 0);
    assert_int_equal(rfs_strategy_layout(strategy, 0, 0)->n_axes, 2);
    assert_int_equal(rfs_strategy_layout(strategy, 1, 0)->n_axes, 1);
    rfs_strategy_free(strategy);
    text_free(&text);
}

static void stages_keep_their_own_layouts(void **unused)
{
    struct rfs_strategy *strategy = parse_json(
        FILE_OF("\"2-a\":" LAYOUT("4", "4") ",\"b\":" LAYOUT("4", "0") ",\"01-a\":" LAYOUT(
            "4", "2") ",\"0-b\":" LAYOUT("4", "2") ",\"2-b\":" LAYOUT("2,2", "2")));

    (void)unused;
    assert_int_equal(rfs_strategy_stages(strategy), 3);
    assert_int_equal(rfs_strategy_devices(strategy), 4);
    assert_int_equal(rfs_strategy_count(strategy), 2);
    assert_int_equal(rfs_strategy_find(strategy, "a"), 0);
    assert_int_equal(rfs_strategy_find(strategy, "2-a"), -1);
    assert_null(rfs_strategy_layout(strategy, 0, 0));
    assert_int_equal(rfs_strategy_layout(strategy, 0, 1)->opt_size, 2);
    assert_int_equal(rfs_strategy_layout(strategy, 0, 2)->opt_size, 4);
    assert_null(rfs_strategy_layout(strategy, 0, 3));
    /* "b" and "0-b" are the same. */
    assert_int_equal(rfs_strategy_layout(strategy, 1, 0)->opt_size, 2);
    assert_null(rfs_strategy_layout(strategy, 1, 1));
    assert_int_equal(rfs_strategy_layout(strategy, 1, 2)->n_dev, 2);
    rfs_strategy_free(strategy);
}

static void many_stages_and_parameters(void **unused)
{
    enum { STAGES = 64, PARAMS = 300 };
    static char names[STAGES * PARAMS][16];
    static struct spec specs[STAGES * PARAMS];
    struct text text = {0};

    (void)unused;
    for (uint32_t k = 0; k < STAGES * PARAMS; k++) {
        snprintf(names[k], sizeof names[k], "%u-p%u", STAGES - 1 - k % STAGES, k / STAGES);
        specs[k] = (struct spec){.name = names[k], .n_dev = 2, .dev = {2, 4}, .ndim = 2};
        specs[k].axis[k % 2].n = 1;
    }
    write_protobuf(&text, specs, STAGES * PARAMS);
    struct rfs_strategy *strategy = parse_text("s", &text);
    assert_int_equal(rfs_strategy_stages(strategy), STAGES);
    assert_int_equal(rfs_strategy_count(strategy), PARAMS);
    assert_int_equal(rfs_strategy_layouts(strategy), 2);
    for (size_t i = 0; i < PARAMS; i++)
        for (uint32_t s = 0; s < STAGES; s++)
            assert_int_equal(rfs_strategy_layout(strategy, i, s)->map[s % 2 == 0], 0);
    rfs_strategy_free(strategy);
    text_free(&text);
}

static void scalar_has_no_axes(void **unused)
{
    const struct spec spec = {.name = "loss_scale", .n_dev = 1, .dev = {8}, .ndim = 0};
    struct rfs_grid grid;
    struct text text = {0};

    (void)unused;
    write_protobuf(&text, &spec, 1);
    struct rfs_strategy *strategy = parse_text("s", &text);
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, 0, 0);
    assert_int_equal(layout->n_axes, 0);
    assert_int_equal(
        rfs_grid_resolve(layout, 0, NULL, RFS_DIMS_OF_SLICE, &grid, NULL, NULL, RFS_NOWHERE, NULL),
        0);
    assert_int_equal(grid.ranks, 8);
    assert_int_equal(grid.replicas, 8);
    assert_int_equal(rfs_grid_replica(&grid, 3, 5), 5);
    rfs_strategy_free(strategy);
    text_free(&text);
}

static void single_device_is_a_grid(void **unused)
{
    struct rfs_grid grid;
    uint32_t cell[RFS_GRID_DIMS] = {7, 7};

    (void)unused;
    rfs_grid_single(2, &grid);
    rfs_grid_cell(&grid, 0, cell);
    assert_int_equal(cell[0], 0);
    assert_int_equal(cell[1], 0);
    assert_int_equal(grid.pieces[1], 1);
    assert_int_equal(rfs_grid_holder(&grid, cell, 0), 0);
    assert_int_equal(rfs_grid_replica(&grid, 0, 0), 0);
}

/* The map {"a": "b", "c": "x", "d": null} of names=. */
static const char *shown_by_map(const void *ctx, const char *name)
{
    (void)ctx;
    return !strcmp(name, "a") ? "b" : !strcmp(name, "c") ? "x" : !strcmp(name, "d") ? NULL : name;
}

static void finds(const struct rfs_strategy *strategy, const char *name, int opt_size)
{
    const ptrdiff_t i = rfs_strategy_find(strategy, name);

    assert_true(i >= 0);
    assert_string_equal(rfs_strategy_param(strategy, (size_t)i), name);
    assert_int_equal(rfs_strategy_layout(strategy, (size_t)i, 0)->opt_size, opt_size);
    assert_null(rfs_strategy_layout(strategy, (size_t)i, 1));
}

static void names_of_an_export(void **unused)
{
    struct rfs_strategy *strategy = parse_json(FILE_OF("\"a\":" LAYOUT("4", "2") ",\"c\":" LAYOUT(
        "4", "4") ",\"d\":" LAYOUT("2,2", "2") ",\"e\":" LAYOUT("2,2", "4")));

    (void)unused;
    assert_int_equal(rfs_strategy_rename(strategy, shown_by_map, NULL), 0);
    finds(strategy, "b", 2);
    finds(strategy, "x", 4);
    finds(strategy, "e", 4);
    finds(strategy, "a", 2);
    rfs_strategy_free(strategy);
    /* One that has the shown names: they count. */
    strategy = parse_json(FILE_OF("\"a\":" LAYOUT("4", "2") ",\"b\":" LAYOUT("4", "4")));
    assert_int_equal(rfs_strategy_rename(strategy, shown_by_map, NULL), 0);
    assert_int_equal(rfs_strategy_count(strategy), 2);
    finds(strategy, "a", 2);
    finds(strategy, "b", 4);
    rfs_strategy_free(strategy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_key_twice_counts_last_in_first_place),
        cmocka_unit_test(json_key_twice_leaves_no_trace),
        cmocka_unit_test(json_is_read_however_it_is_written),
        cmocka_unit_test(protobuf_name_twice_counts_last_in_first_place),
        cmocka_unit_test(stages_keep_their_own_layouts),
        cmocka_unit_test(many_stages_and_parameters),
        cmocka_unit_test(scalar_has_no_axes),
        cmocka_unit_test(single_device_is_a_grid),
        cmocka_unit_test(names_of_an_export),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
