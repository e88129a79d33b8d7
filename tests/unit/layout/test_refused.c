/* SPDX-License-Identifier: Apache-2.0 */
/* What is not a strategy, or does not fit a tensor, and what is said about it. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refused_spec(const struct spec *specs, size_t n, const char *what)
{
    struct text text = {0};

    write_protobuf(&text, specs, n);
    expect_refused("s.ckpt", text.data, text.n, what);
    text_free(&text);
    write_json(&text, specs, n);
    expect_refused("s.json", text.data, text.n, what);
    text_free(&text);
}

static void not_a_file_of_its_kind(void **unused)
{
    /* A checkpoint: its first field is a message, where a strategy has a number. */
    static const char checkpoint[] = "\x0a\x0d\x0a\x01w\x12\x08\x12\x04"
                                     "Bool\x1a\x00";
    struct text text = read_fixture("strategies/src8.ckpt");

    (void)unused;
    expect_refused("s.ckpt", "", 0, "the strategy file is empty");
    expect_refused("s.json", "", 0, "the strategy file is empty");
    expect_refused("s.ckpt", checkpoint, sizeof checkpoint - 1, "not a strategy in protobuf");
    expect_refused("s", "{\"current_stage\":2}", 19, "not a strategy in protobuf; try: ");
    expect_refused("s.json", text.data, text.n, "not valid JSON");
    expect_refused("s.ckpt", text.data, text.n - 1, "not a strategy in protobuf");
    text_free(&text);
    text = read_fixture("strategies/src8.json");
    expect_refused("s.json", text.data, text.n / 2, "not valid JSON");
    text_free(&text);
}

static void cut_short_anywhere(void **unused)
{
    struct text text = read_fixture("strategies/layout8.ckpt");

    (void)unused;
    for (size_t n = 0; n < text.n; n++) {
        /* Its own block, so that a read past the end is seen. */
        char *data = malloc(n > 0 ? n : 1);
        struct rfs_strategy *strategy = NULL;
        assert_non_null(data);
        memcpy(data, text.data, n);
        const int rc = rfs_strategy_parse("s", data, n, &strategy, NULL);
        assert_true(rc == -EINVAL ? strategy == NULL : rc == 0 && strategy != NULL);
        rfs_strategy_free(strategy);
        free(data);
    }
    text_free(&text);
}

static void json_that_is_wrong(void **unused)
{
#define ITEM(members) "{\"parallel_layout_item\":{\"w\":{" members "}}}"
#define REST ",\"opt_weight_shard_size\":0,\"opt_weight_shard_step\":0"
    static const struct {
        const char *json, *what;
    } cases[] = {
        {"{} x", "offset 3: not valid JSON"},
        {"[1]", "not an object"},
        {"[1", "not valid JSON"},
        {"{", "offset 1: not valid JSON"},
        {"{\"a\":1,}", "offset 7: not valid JSON"},
        {"{\"a\":1 \"b\":2}", "offset 7: not valid JSON"},
        {"{\"a\" 1}", "offset 5: not valid JSON"},
        {"{\"a\":}", "offset 5: not valid JSON"},
        {"{\"a\":[1}}", "not valid JSON"},
        {"{\"a\":\"b}", "not valid JSON"},
        {"{\"a\\", "not valid JSON"},
        {"{\"a\":1]", "not valid JSON"},
        {"{\"parallel_strategy_item\":{\"n\":{\"stage\":0},\"m\":{x}}}", "not valid JSON"},
        {"{\"parallel_layout_item\":{x},\"parallel_layout_item\":{}}", "not valid JSON"},
        {"{\"parallel_strategy_item\":{\"n\":{\"stage\":0} x}}", "not valid JSON"},
        {"{}", "the strategy is empty"},
        {"{\"parallel_layout_item\":{}}", "the strategy is empty"},
        {"{\"Parallel_layout_item\":{\"w\":1}}", "the strategy is empty"},
        {"{\"parallel_layout_item\":[]}", "parallel_layout_item is not an object"},
        {"{\"parallel_layout_item\":{\"w\":7}}", "parameter 'w': its layout is not an object"},
        {"{\"parallel_strategy_item\":[]}", "parallel_strategy_item is not an object"},
        {"{\"parallel_strategy_item\":{\"n\":{}}}", "the first strategy item has no stage"},
        {"{\"parallel_strategy_item\":{\"n\":{\"stage\":-1}}}", "item has no stage"},
        {"{\"a\":NaN}", "not valid JSON"},
        {"{\"a\":Infinity}", "not valid JSON"},
        {"{\"a\\u0000b\":1}", "not valid JSON: a string with a NUL"},
        {ITEM("\"tensor_map\":[0]"), "it has no dev_matrix"},
        {ITEM("\"dev_matrix\":4"), "dev_matrix is not a list of integers"},
        {ITEM("\"dev_matrix\":[4]"), "it has no tensor_map"},
        {ITEM("\"dev_matrix\":[4],\"tensor_map\":[[0]]"), "tensor_map is not a list of integers"},
        {ITEM("\"dev_matrix\":[4.5],\"tensor_map\":[0]"), "dev_matrix is not a list"},
        {ITEM("\"dev_matrix\":[1e300],\"tensor_map\":[0]"), "dev_matrix is not a list"},
        {ITEM("\"dev_matrix\":[1e999],\"tensor_map\":[0]"), "dev_matrix is not a list"},
        {ITEM("\"dev_matrix\":[-4],\"tensor_map\":[0]"), "an axis of -4 devices"},
        {ITEM("\"dev_matrix\":[4],\"tensor_map\":[0]" REST), "it has no field"},
        {ITEM("\"dev_matrix\":[4],\"tensor_map\":[0],\"field\":0"),
         "it has no opt_weight_shard_step"},
        {ITEM("\"dev_matrix\":[4],\"tensor_map\":[0],\"field\":\"0\"" REST),
         "field is not an integer"},
        {ITEM("\"dev_matrix\":[4],\"tensor_map\":[0],\"tensor_shape\":[8,8],\"field\":0" REST),
         "tensor_shape has 2 entries and tensor_map 1"},
        {ITEM("\"dev_matrix\":[4],\"tensor_map\":[0],\"tensor_shape\":[-8],\"field\":0" REST),
         "a negative entry, -8"},
        {ITEM("\"dev_matrix\":[4],\"tensor_map\":[0],\"tensor_shape\":[9],\"field\":0" REST),
         "9 in tensor_shape is not divisible by the 4 devices"},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused("dir/s.json", cases[i].json, strlen(cases[i].json), cases[i].what);
    expect_refused("s.json", "{\"a\":\0 1}", 9,
                   "offset 5: not valid JSON: a value is expected here");
}

static void json_nested_too_deep(void **unused)
{
    struct text text = {0};

    (void)unused;
    for (int i = 0; i < 100000; i++)
        put(&text, "[", 1);
    expect_refused("s.json", text.data, text.n, "not valid JSON");
    text_free(&text);
}

static void layouts_that_are_wrong(void **unused)
{
    static const struct {
        struct spec spec;
        const char *what;
    } cases[] = {
        {{.name = "w", .ndim = 1}, "parameter 'w': it has no device matrix"},
        {{.name = "w", .n_dev = 2, .dev = {2, 0}, .ndim = 1}, "an axis of 0 devices"},
        {{.name = "w", .n_dev = 1, .dev = {1048577}, .ndim = 1}, "an axis of 1048577 devices"},
        {{.name = "w", .n_dev = 2, .dev = {1048576, 2}, .ndim = 1},
         "the device matrix has more than 1048576 devices"},
        {{.name = "w", .n_dev = 2, .dev = {2, 2}, .ndim = 1, .axis = {{1, {2}}}, .shape = {8}},
         "the tensor map names device axis 2, but the device matrix has 2 axes"},
        {{.name = "w", .n_dev = 2, .dev = {2, 2}, .ndim = 1, .axis = {{1, {-2}}}},
         "the tensor map names device axis -2, which does not exist"},
        {{.name = "w", .n_dev = 2, .dev = {2, 2}, .ndim = 1, .axis = {{1, {1000000}}}},
         "the tensor map names device axis 1000000, which does not exist"},
        {{.name = "w", .n_dev = 2, .dev = {2, 2}, .ndim = 2, .axis = {{1, {1}}, {1, {1}}}},
         "the tensor map uses device axis 1 twice"},
        {{.name = "w", .n_dev = 1, .dev = {8}, .ndim = 0, .step = 1, .size = -1},
         "a scalar cannot be cut by an optimizer shard of 8"},
        {{.name = "w", .n_dev = 1, .dev = {8}, .ndim = 1, .step = 1, .size = 3},
         "an optimizer shard of 3 does not fit the repeated device axes, 8 devices in all"},
        {{.name = "w",
          .n_dev = 2,
          .dev = {2, 4},
          .ndim = 1,
          .axis = {{1, {0}}},
          .step = 4,
          .size = 4},
         "an optimizer shard of 4 does not fit the repeated device axes, 2 devices in all"},
        {{.name = "w", .n_dev = 2, .dev = {3, 4}, .ndim = 1, .step = 1, .size = 6},
         "an optimizer shard of 6 does not fit"},
        {{.name = "w", .n_dev = 1, .dev = {8}, .ndim = 1, .step = 1, .size = -2},
         "the optimizer shard has step 1 and size -2"},
        {{.name = "w", .n_dev = 1, .dev = {8}, .ndim = 1, .step = -1, .size = 2},
         "the optimizer shard has step -1 and size 2"},
        {{.name = "w",
          .n_dev = 2,
          .dev = {2, 4},
          .ndim = 1,
          .axis = {{1, {0}}},
          .step = 1,
          .size = 2},
         "the optimizer shard has step 1, but the device axis that is left for it has stride 4"},
        {{.name = "a-b-c", .n_dev = 1, .dev = {8}, .ndim = 1}, "more than one \"-\""},
        {{.name = "0-a-c", .n_dev = 1, .dev = {8}, .ndim = 1}, "parameter '0-a-c': the name has"},
        {{.name = "a-b", .n_dev = 1, .dev = {8}, .ndim = 1}, "is not a stage number"},
        {{.name = "+1-b", .n_dev = 1, .dev = {8}, .ndim = 1}, "is not a stage number"},
        {{.name = "-b", .n_dev = 1, .dev = {8}, .ndim = 1}, "no stage number stands before"},
        {{.name = "99999999999999999999-b", .n_dev = 1, .dev = {8}, .ndim = 1},
         "the stage in the name is too large"},
        {{.name = "0-", .n_dev = 1, .dev = {8}, .ndim = 1}, "a parameter without a name"},
        {{.name = "", .n_dev = 1, .dev = {8}, .ndim = 1}, "a parameter without a name"},
        {{.name = "1-w", .n_dev = 1, .dev = {8}, .ndim = 1}, "it has a stage 1 but no stage 0"},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused_spec(&cases[i].spec, 1, cases[i].what);
}

static void items_that_disagree(void **unused)
{
    const struct spec devices[] = {{.name = "a", .n_dev = 1, .dev = {8}, .ndim = 1},
                                   {.name = "b", .n_dev = 1, .dev = {4}, .ndim = 1}};
    const struct spec stages[] = {{.name = "0-a", .n_dev = 1, .dev = {8}, .ndim = 1},
                                  {.name = "1-a", .n_dev = 1, .dev = {4}, .ndim = 1}};
    const struct spec missing[] = {{.name = "0-a", .n_dev = 1, .dev = {8}, .ndim = 1},
                                   {.name = "2-a", .n_dev = 1, .dev = {8}, .ndim = 1}};
    const struct spec many[] = {{.name = "0-a", .n_dev = 1, .dev = {1048576}, .ndim = 1},
                                {.name = "1-a", .n_dev = 1, .dev = {1048576}, .ndim = 1}};

    (void)unused;
    refused_spec(
        devices, 2,
        "parameter 'b': its device matrix has 4 devices in stage 0, but that of 'a' has 8");
    refused_spec(stages, 2, "parameter 'a': its device matrix has 4 devices in stage 1");
    refused_spec(missing, 2, "it has a stage 2 but no stage 1");
    refused_spec(many, 2, "2 stages of 1048576 devices are more than 1048576 devices");
}

/* One parameter with LAYOUTS as its ParallelLayouts, and 5, 6, 7 after it. */
static void refused_layouts(const char *name, size_t name_bytes, struct text *layouts,
                            const char *what)
{
    struct text item = {0}, file = {0}, param = {0};

    for (unsigned number = 5; number <= 7; number++)
        put_number(layouts, number, 0);
    put(&param, name, name_bytes);
    put_field(&item, 1, &param);
    put_field(&item, 2, layouts);
    put_number(&file, 1, 2);
    put_field(&file, 3, &item);
    expect_refused("s", file.data, file.n, what);
    text_free(&file);
    text_free(&item);
    text_free(&param);
    text_free(layouts);
}

static void protobuf_that_is_wrong(void **unused)
{
    struct text layouts = {0}, dev = {0}, map = {0}, one = {0}, empty = {0};

    (void)unused;
    put_number(&dev, 1, 2);
    put_field(&layouts, 1, &dev);
    refused_layouts("w", 1, &layouts, "it has no tensor map");
    put_field(&layouts, 1, &dev);
    put_field(&layouts, 1, &dev);
    refused_layouts("w", 1, &layouts, "it has 2 device matrices");
    put_field(&layouts, 1, &dev);
    put_field(&layouts, 2, &empty);
    refused_layouts("w\0x", 3, &layouts, "the parameter's name has a NUL in it");
    for (int i = 0; i < 17; i++)
        put_number(&dev, 1, 1);
    put_field(&layouts, 1, &dev);
    refused_layouts("w", 1, &layouts, "the device matrix has more than 16 axes");
    for (int i = 0; i < 33; i++)
        put_number(&map, 1, -1);
    dev.n = 0;
    put_number(&dev, 1, 2);
    put_field(&layouts, 1, &dev);
    put_field(&layouts, 2, &map);
    refused_layouts("w", 1, &layouts, "the tensor map has more than 32 axes");
    put_field(&layouts, 2, &map);
    put_field(&layouts, 2, &map);
    refused_layouts("w", 1, &layouts, "the tensor map has more than 32 entries");
    put_number(&one, 1, -1);
    for (int i = 0; i < 33; i++)
        put_field(&layouts, 2, &one);
    refused_layouts("w", 1, &layouts, "the tensor map has more than 32 axes");
    text_free(&one);
    text_free(&map);
    text_free(&dev);
}

static void expect_misfit(const struct rfs_layout *layout, uint32_t ndim, const uint64_t *dims,
                          enum rfs_dims_of meaning, const char *what)
{
    struct rfs_grid grid;
    struct rfs_error err = {0};

    assert_true(rfs_grid_resolve(layout, ndim, dims, meaning, &grid, NULL, NULL,
                                 RFS_OF("s.ckpt", "w"), &err) < 0);
    if (strstr(err.text, what) == NULL || strncmp(err.text, "s.ckpt: parameter 'w': ", 23) != 0)
        fail_msg("wanted \"%s\", got \"%s\"", what, err.text);
}

static struct rfs_strategy *strategy_of(const struct spec *spec, bool json)
{
    struct text text = {0};

    if (json)
        write_json(&text, spec, 1);
    else
        write_protobuf(&text, spec, 1);
    struct rfs_strategy *strategy = parse_text(json ? "s.json" : "s", &text);
    text_free(&text);
    return strategy;
}

static void tensors_that_do_not_fit(void **unused)
{
    const struct spec spec = {.name = "w",
                              .n_dev = 2,
                              .dev = {2, 4},
                              .ndim = 2,
                              .axis = {{1, {1}}, {1, {0}}},
                              .shape = {4, 8}};
    struct rfs_strategy *pb = strategy_of(&spec, false), *json = strategy_of(&spec, true);
    const struct rfs_layout *layout = rfs_strategy_layout(pb, 0, 0);
    const uint64_t odd[] = {4, 6}, good[] = {4, 8}, large[] = {UINT64_MAX / 2 + 1, 1},
                   many[17] = {0};

    (void)unused;
    expect_misfit(layout, 1, good, RFS_DIMS_OF_SLICE,
                  "a tensor with 2 axes, but the checkpoint holds slices of [4]");
    expect_misfit(layout, 0, NULL, RFS_DIMS_OF_WHOLE, "but the checkpoint holds a tensor of []");
    expect_misfit(layout, 3, many, RFS_DIMS_OF_WHOLE, "a tensor with 2 axes");
    expect_misfit(layout, 17, many, RFS_DIMS_OF_WHOLE, "a tensor with 17 axes");
    expect_misfit(layout, 2, odd, RFS_DIMS_OF_WHOLE,
                  "a tensor of [4, 6], and the strategy cuts axis 1 into 4 pieces: 6 is not");
    expect_misfit(layout, 2, large, RFS_DIMS_OF_SLICE,
                  "cuts axis 0 into 2 pieces: the whole is too large");
    layout = rfs_strategy_layout(json, 0, 0);
    expect_misfit(layout, 2, good, RFS_DIMS_OF_SLICE,
                  "says a tensor of [4, 8], but the checkpoint holds slices of one of [8, 32]");
    expect_misfit(layout, 3, many, RFS_DIMS_OF_WHOLE, "a tensor with 2 axes");
    expect_misfit(
        layout, 1, good, RFS_DIMS_OF_WHOLE,
        "a tensor expanded to [4, 8], but the checkpoint holds a tensor of [4], which no");
    expect_misfit(layout, 0, NULL, RFS_DIMS_OF_WHOLE, "but the checkpoint holds a tensor of []");
    rfs_strategy_free(pb);
    rfs_strategy_free(json);
}

/* [2, 4] and [4, 2] are cut into the same slices, and expand to the same shape. */
static void open_nesting_is_refused_or_settled_by_the_other_side(void **unused)
{
    const struct spec spec = {.name = "w",
                              .n_dev = 3,
                              .dev = {2, 2, 2},
                              .ndim = 2,
                              .axis = {{2, {2, 1}}, {1, {0}}},
                              .shape = {4, 2}};
    const struct spec other = {.name = "w", .n_dev = 1, .dev = {4}, .ndim = 2, .axis = {{1, {0}}}};
    struct rfs_strategy *json = strategy_of(&spec, true), *dst = strategy_of(&other, false);
    const struct rfs_layout *layout = rfs_strategy_layout(json, 0, 0);
    const uint64_t slice[] = {1, 1}, four_two[] = {4, 2};
    struct rfs_grid grid, wanted;
    uint64_t whole[2];

    (void)unused;
    expect_misfit(layout, 2, slice, RFS_DIMS_OF_SLICE,
                  "leaves it open whether the whole tensor is [2, 4] or [4, 2]; try: ");
    assert_int_equal(rfs_grid_resolve_for(layout, rfs_strategy_layout(dst, 0, 0), 2, slice,
                                          RFS_DIMS_OF_SLICE, &grid, whole, NULL, RFS_NOWHERE, NULL),
                     0);
    assert_memory_equal(whole, four_two, sizeof whole);
    assert_int_equal(rfs_grid_resolve(layout, 2, four_two, RFS_DIMS_OF_WHOLE, &wanted, NULL, NULL,
                                      RFS_NOWHERE, NULL),
                     0);
    assert_memory_equal(&grid, &wanted, sizeof grid);
    /* A layout that fits both settles nothing. */
    assert_int_equal(rfs_grid_resolve_for(layout, layout, 2, slice, RFS_DIMS_OF_SLICE, &grid, whole,
                                          NULL, RFS_NOWHERE, NULL),
                     -EINVAL);
    rfs_strategy_free(json);
    rfs_strategy_free(dst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_a_file_of_its_kind),
        cmocka_unit_test(cut_short_anywhere),
        cmocka_unit_test(json_that_is_wrong),
        cmocka_unit_test(json_nested_too_deep),
        cmocka_unit_test(layouts_that_are_wrong),
        cmocka_unit_test(items_that_disagree),
        cmocka_unit_test(protobuf_that_is_wrong),
        cmocka_unit_test(tensors_that_do_not_fit),
        cmocka_unit_test(open_nesting_is_refused_or_settled_by_the_other_side),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
