/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source stages: which of them gives a parameter, and, where a checkpoint is one stage of several,
 * that its local rank 0 is not rank_0. Small trees, written here.
 */
#include "base/options.h"
#include "plan/planner.h"
#include "tests/support/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LAYOUT(name, dev)                                                                          \
    "\"" name "\": {\"dev_matrix\": " dev ", \"tensor_map\": [-1], \"tensor_shape\": [4], "        \
    "\"field\": 0, \"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}"

struct fixture {
    char *root;
    struct rfs_strategy *src, *dst;
    struct rfs_pool *pool;
    struct rfs_catalog *catalog;
    struct rfs_planner *planner;
    struct rfs_error err;
};

static struct rfs_strategy *parse(const char *name, const char *stage, const char *items)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};
    char text[4096];
    const int n = snprintf(text, sizeof text,
                           "{\"current_stage\": 1, \"parallel_strategy_item\": {\"op\": "
                           "{\"stage\": %s, \"parallel_strategy\": [[1]]}}, "
                           "\"parallel_layout_item\": {%s}}",
                           stage, items);

    if (rfs_strategy_parse(name, text, (size_t)n, &strategy, &err))
        fail_msg("%s", err.text);
    return strategy;
}

/*
 * "w", the same in both ranks of a stage that the strategy's first item names; the other stage has
 * "v".
 */
static void begin(struct fixture *f, const char *stage)
{
    f->src = parse("src.json", stage, LAYOUT("w", "[2]"));
    f->dst = parse("dst.json", "0", LAYOUT("w", "[2]") ", " LAYOUT("v", "[2]"));
    f->pool = rfs_pool_new(1);
    assert_non_null(f->pool);
}

static int plan(struct fixture *f)
{
    if (rfs_catalog_open(
            &(struct rfs_source_spec){.path = f->root, .options = &rfs_options_defaults}, NULL,
            f->pool, &f->catalog, &f->err))
        fail_msg("%s", f->err.text);
    const struct rfs_planner_config config = {
        .catalog = f->catalog, .src = f->src, .dst = f->dst, .pool = f->pool};
    return rfs_planner_new(&config, &f->planner, &f->err);
}

/* A checkpoint of these parameters, one letter each. */
static void write_names(const struct fixture *f, unsigned rank, const char *names)
{
    struct bytes file = {0};
    char path[64];

    snprintf(path, sizeof path, "rank_%u/net-1_1.ckpt", rank);
    for (; *names; names++)
        ckpt_tensor(&file, (const char[]){*names, '\0'}, "Int8", 1, (const uint64_t[]){4}, "abcd",
                    4);
    tree_write(f->root, path, file.data, file.n);
    bytes_free(&file);
}

static void write_rank(const struct fixture *f, unsigned rank)
{
    write_names(f, rank, "w");
}

static void expect_source(struct fixture *f, uint32_t rank, uint32_t source)
{
    const struct rfs_rank_plan *made;

    if (rfs_planner_rank(f->planner, rank, &made, &f->err))
        fail_msg("%s", f->err.text);
    assert_int_equal(made->n_sources, 1);
    assert_int_equal(made->sources[0], rfs_catalog_file(f->catalog, source));
}

static void test_ranks_of_the_stage(void **state)
{
    struct fixture *f = *state;

    begin(f, "3");
    write_rank(f, 6);
    write_rank(f, 7);
    assert_int_equal(plan(f), 0);
    assert_int_equal(rfs_planner_single_stage(f->planner), 3);
    expect_source(f, 0, 6);
    expect_source(f, 1, 7);
}

static void test_replica_of_a_lost_rank(void **state)
{
    struct fixture *f = *state;

    begin(f, "400");
    write_rank(f, 801);
    assert_int_equal(plan(f), 0);
    expect_source(f, 0, 801);
    expect_source(f, 1, 801);
}

/* 2^31 stages of two ranks: the first rank's number does not fit, and must not become 0. */
static void test_stage_too_high(void **state)
{
    struct fixture *f = *state;

    begin(f, "2147483648");
    write_rank(f, 0);
    write_rank(f, 1);
    assert_int_equal(plan(f), -EINVAL);
    assert_non_null(strstr(f->err.text, "2147483648"));
}

static void expect_target(const struct fixture *f, const struct rfs_target *target,
                          const char *name, uint32_t stage)
{
    assert_string_equal(rfs_catalog_name(f->catalog, target->name), name);
    assert_int_equal(target->stage, stage);
}

/* The parameters of the last stage come first, but what several stages have is the lowest one's. */
static void test_lowest_stage_gives(void **state)
{
    struct fixture *f = *state;
    const struct rfs_rank_plan *made;

    f->src = parse("src.json", "0",
                   LAYOUT("0-w", "[1]") ", " LAYOUT("1-v", "[1]") ", " LAYOUT(
                       "2-w", "[1]") ", " LAYOUT("2-u", "[1]"));
    f->dst = parse("dst.json", "0", LAYOUT("w", "[1]") ", " LAYOUT("v", "[1]"));
    f->pool = rfs_pool_new(1);
    write_names(f, 0, "ws");
    write_names(f, 1, "vs");
    write_names(f, 2, "uwsx");
    assert_int_equal(plan(f), 0);
    if (rfs_planner_rank(f->planner, 0, &made, &f->err))
        fail_msg("%s", f->err.text);
    assert_int_equal(made->n_sources, 3);
    assert_int_equal(made->params->n, 5);
    expect_target(f, &made->params->targets[0], "w", 0);
    expect_target(f, &made->params->targets[1], "v", 1);
    expect_target(f, &made->params->targets[2], "u", 2);
    expect_target(f, &made->params->targets[3], "s", 0);
    expect_target(f, &made->params->targets[4], "x", 2);
}

/* Each destination rank needs another source rank alone; their headers are still one index. */
static void test_leads_share_an_index(void **state)
{
    struct fixture *f = *state;
    struct rfs_catalog_counters counters;

    f->src = parse("src.json", "0", LAYOUT("w", "[2]"));
    f->dst = parse("dst.json", "0", LAYOUT("w", "[2]"));
    f->pool = rfs_pool_new(1);
    write_rank(f, 0);
    write_rank(f, 1);
    assert_int_equal(plan(f), 0);
    expect_source(f, 0, 0);
    expect_source(f, 1, 1);
    assert_ptr_equal(rfs_catalog_ready(f->catalog, 0), rfs_catalog_ready(f->catalog, 1));
    rfs_catalog_count(f->catalog, &counters);
    assert_int_equal(counters.predicted, 1);
}

/* 256 sparse files of 8 TiB each: no image is made of what would take gigabytes of regions. */
static void test_file_too_large(void **state)
{
    struct fixture *f = *state;
    const struct rfs_rank_plan *made;
    const uint64_t bytes = UINT64_C(1) << 43;
    struct bytes file = {0};

    f->src = parse("src.json", "0",
                   "\"w\": {\"dev_matrix\": [256], \"tensor_map\": [0], \"field\": 0, "
                   "\"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}");
    f->pool = rfs_pool_new(1);
    ckpt_header(&file, "w", "Int8", 1, &bytes, bytes);
    for (unsigned rank = 0; rank < 256; rank++) {
        char path[64];
        snprintf(path, sizeof path, "rank_%u/net-1_1.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        if (truncate(tree_path(f->root, path), (off_t)(file.n + bytes)) != 0) {
            bytes_free(&file);
            skip(); /* a file system without such files */
        }
    }
    bytes_free(&file);
    assert_int_equal(plan(f), 0);
    assert_int_equal(rfs_planner_rank(f->planner, 0, &made, &f->err), -EFBIG);
    assert_non_null(strstr(f->err.text, "'w'"));
    assert_non_null(strstr(f->err.text, "1024 TiB"));
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->root = tree_new();
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    rfs_pool_free(f->pool);
    rfs_planner_free(f->planner);
    rfs_catalog_close(f->catalog);
    rfs_strategy_free(f->src);
    rfs_strategy_free(f->dst);
    tree_remove(f->root);
    free(f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lowest_stage_gives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ranks_of_the_stage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replica_of_a_lost_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stage_too_high, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leads_share_an_index, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_file_too_large, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
