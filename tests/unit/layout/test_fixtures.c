/* SPDX-License-Identifier: Apache-2.0 */
/* The strategy files that MindSpore's own compiler wrote. */
#include "support.h"

#include <stdio.h>
#include <string.h>

static void assert_same_names(const struct rfs_strategy *a, const struct rfs_strategy *b)
{
    assert_int_equal(rfs_strategy_count(a), rfs_strategy_count(b));
    for (size_t i = 0; i < rfs_strategy_count(a); i++)
        assert_true(rfs_strategy_find(b, rfs_strategy_param(a, i)) >= 0);
}

static const struct rfs_layout *named(const struct rfs_strategy *strategy, const char *param,
                                      uint32_t stage)
{
    const ptrdiff_t i = rfs_strategy_find(strategy, param);

    assert_true(i >= 0);
    assert_string_equal(rfs_strategy_param(strategy, (size_t)i), param);
    return rfs_strategy_layout(strategy, (size_t)i, stage);
}

static void both_formats_agree(void **unused)
{
    static const struct {
        const char *name;
        uint32_t devices, stages;
        size_t params;
    } files[] = {{"src8", 8, 1, 12}, {"dst4opt", 4, 1, 12}, {"opt8", 8, 1, 12},
                 {"d16", 16, 1, 12}, {"tb8", 8, 1, 12},     {"pipe8", 4, 2, 18}};

    (void)unused;
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        char name[64];
        snprintf(name, sizeof name, "strategies/%s.ckpt", files[f].name);
        struct rfs_strategy *pb = parse_fixture(name);
        assert_string_equal(rfs_strategy_name(pb), name);
        snprintf(name, sizeof name, "strategies/%s.json", files[f].name);
        struct rfs_strategy *json = parse_fixture(name);
        assert_int_equal(rfs_strategy_devices(pb), files[f].devices);
        assert_int_equal(rfs_strategy_devices(json), files[f].devices);
        assert_int_equal(rfs_strategy_stages(pb), files[f].stages);
        assert_int_equal(rfs_strategy_stages(json), files[f].stages);
        assert_int_equal(rfs_strategy_count(pb), files[f].params);
        assert_same_names(pb, json);
        for (size_t i = 0; i < rfs_strategy_count(pb); i++)
            for (uint32_t s = 0; s < files[f].stages; s++) {
                const struct rfs_layout *a = rfs_strategy_layout(pb, i, s);
                const struct rfs_layout *b = named(json, rfs_strategy_param(pb, i), s);
                assert_int_equal(a == NULL, b == NULL);
                if (a == NULL)
                    continue;
                assert_same_layout(a, b);
                assert_int_equal(a->n_expanded, 0);
                assert_int_equal(b->n_expanded, b->n_axes);
            }
        rfs_strategy_free(pb);
        rfs_strategy_free(json);
    }
}

static void layouts_are_shared(void **unused)
{
    struct rfs_strategy *strategy = parse_fixture("strategies/src8.ckpt");

    (void)unused;
    assert_true(rfs_strategy_layouts(strategy) < rfs_strategy_count(strategy));
    assert_ptr_equal(named(strategy, "layer1.weight", 0),
                     named(strategy, "moments.layer1.weight", 0));
    for (size_t i = 0; i < rfs_strategy_count(strategy); i++)
        assert_in_range(rfs_strategy_layout(strategy, i, 0)->id, 0,
                        rfs_strategy_layouts(strategy) - 1);
    assert_int_equal(rfs_strategy_find(strategy, "layer1"), -1);
    assert_int_equal(rfs_strategy_find(strategy, ""), -1);
    assert_null(rfs_strategy_layout(strategy, 0, 1));
    rfs_strategy_free(strategy);
}

static void optimizer_shard_is_resolved(void **unused)
{
    struct rfs_strategy *strategy = parse_fixture("strategies/opt8.ckpt");
    const struct rfs_layout *weight = named(strategy, "layer3.weight", 0);

    (void)unused;
    assert_int_equal(weight->opt_size, 2);
    assert_int_equal(weight->opt_step, 4);
    assert_int_equal(named(strategy, "layer2.weight", 0)->opt_size, 8);
    assert_int_equal(named(strategy, "layer2.bias", 0)->opt_size, 0);
    rfs_strategy_free(strategy);
}

/* dev [2,2,2], w1 64×32 cut [[1,0],[-1]], w2 32×48 cut [[-1],[0,1]], b1 32 cut [[0,1]]. */
static void nesting_is_found_again(void **unused)
{
    static const struct {
        const char *name;
        uint32_t ndim;
        uint64_t whole[2], slice[2];
        uint32_t pieces[2];
    } params[] = {{"w1", 2, {64, 32}, {16, 32}, {4, 1}},
                  {"moments.w1", 2, {64, 32}, {16, 32}, {4, 1}},
                  {"w2", 2, {32, 48}, {32, 12}, {1, 4}},
                  {"moments.w2", 2, {32, 48}, {32, 12}, {1, 4}},
                  {"b1", 1, {32}, {8}, {4}},
                  {"moments.b1", 1, {32}, {8}, {4}},
                  {"b2", 1, {48}, {24}, {2}},
                  {"moments.b2", 1, {48}, {24}, {2}}};
    struct rfs_strategy *of[2] = {parse_fixture("strategies/layout8.ckpt"),
                                  parse_fixture("strategies/layout8.json")};

    (void)unused;
    assert_same_names(of[0], of[1]);
    assert_int_equal(named(of[0], "w1", 0)->n_axes, 2);
    assert_int_equal(named(of[1], "w1", 0)->n_axes, 3);
    for (size_t k = 0; k < sizeof params / sizeof *params; k++) {
        struct rfs_grid grids[4];
        for (int g = 0; g < 4; g++) {
            const struct rfs_layout *layout = named(of[g / 2], params[k].name, 0);
            uint64_t whole[2] = {0}, slice[2] = {0};
            struct rfs_error err = {0};
            if (rfs_grid_resolve(layout, params[k].ndim, g % 2 ? params[k].slice : params[k].whole,
                                 g % 2 ? RFS_DIMS_OF_SLICE : RFS_DIMS_OF_WHOLE, &grids[g], whole,
                                 slice, RFS_OF("layout8", params[k].name), &err) != 0)
                fail_msg("%s", err.text);
            assert_memory_equal(whole, params[k].whole, sizeof whole);
            assert_memory_equal(slice, params[k].slice, sizeof slice);
            assert_memory_equal(&grids[g], &grids[0], sizeof grids[0]);
        }
        for (uint32_t i = 0; i < params[k].ndim; i++)
            assert_int_equal(grids[0].pieces[i], params[k].pieces[i]);
    }
    rfs_strategy_free(of[0]);
    rfs_strategy_free(of[1]);
}

static void merged_equals_its_stages(void **unused)
{
    (void)unused;
    for (int json = 0; json < 2; json++) {
        const char *ending = json ? "json" : "ckpt";
        size_t params = 0;
        char name[64];
        snprintf(name, sizeof name, "strategies/pipe8.%s", ending);
        struct rfs_strategy *merged = parse_fixture(name);
        /* The file lists stage 1 first, and so its names. */
        assert_int_equal(rfs_strategy_facts(merged)->first_item_stage, 1);
        assert_non_null(rfs_strategy_layout(merged, 0, 1));
        for (size_t i = 0; i < rfs_strategy_count(merged); i++) {
            const bool first = rfs_strategy_layout(merged, i, 0),
                       last = rfs_strategy_layout(merged, i, 1);
            assert_int_equal(rfs_strategy_next_stage(merged, i, 0), first ? 0 : 1);
            assert_int_equal(rfs_strategy_next_stage(merged, i, 1), last ? 1 : RFS_NO_STAGE);
            assert_int_equal(rfs_strategy_next_stage(merged, i, 2), RFS_NO_STAGE);
        }
        for (uint32_t stage = 0; stage < 2; stage++) {
            snprintf(name, sizeof name, "strategies/pipe8_%s/s_%u.%s", ending, stage, ending);
            struct rfs_strategy *one = parse_fixture(name);
            assert_int_equal(rfs_strategy_stages(one), 1);
            assert_int_equal(rfs_strategy_devices(one), 4);
            assert_int_equal(rfs_strategy_facts(one)->first_item_stage, stage);
            for (size_t i = 0; i < rfs_strategy_count(one); i++) {
                const char *param = rfs_strategy_param(one, i);
                const struct rfs_layout *there = named(merged, param, stage);
                assert_non_null(there);
                assert_same_layout(rfs_strategy_layout(one, i, 0), there);
                assert_null(named(merged, param, 1 - stage));
            }
            params += rfs_strategy_count(one);
            rfs_strategy_free(one);
        }
        assert_int_equal(rfs_strategy_count(merged), params);
        rfs_strategy_free(merged);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_formats_agree),          cmocka_unit_test(layouts_are_shared),
        cmocka_unit_test(optimizer_shard_is_resolved), cmocka_unit_test(nesting_is_found_again),
        cmocka_unit_test(merged_equals_its_stages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
