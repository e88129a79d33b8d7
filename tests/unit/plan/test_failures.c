/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two source files that cannot be read, for different reasons, while many are indexed at once: the
 * plan fails with the code and the text of one of them. The program is linked with a pool whose
 * loop makes both calls, and takes the result of the one that was noted last, as a loop of several
 * threads may.
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

int __wrap_rfs_pool_for(struct rfs_pool *pool, size_t n, int (*fn)(void *ctx, size_t i), void *ctx);
int __wrap_rfs_pool_for(struct rfs_pool *pool, size_t n, int (*fn)(void *ctx, size_t i), void *ctx)
{
    int result = 0;

    (void)pool;
    for (size_t i = 0; i < n; i++) {
        const int rc = fn(ctx, i);
        result = rc ? rc : result;
    }
    return result;
}

static const char strategy_text[] =
    "{\"parallel_layout_item\": {\"w\": {\"dev_matrix\": [4], \"tensor_map\": [0], \"field\": 0, "
    "\"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}}}";

static void write_rank(const char *root, unsigned rank)
{
    struct bytes file = {0};
    char path[64];

    snprintf(path, sizeof path, "rank_%u/net-1_1.ckpt", rank);
    ckpt_tensor(&file, "w", "Int8", 1, (const uint64_t[]){4}, "abcd", 4);
    tree_write(root, path, file.data, rank == 1 ? file.n - 1 : file.n);
    bytes_free(&file);
}

static void test_code_and_text_are_of_one_file(void **state)
{
    char *root = tree_new();
    struct rfs_error err = {0};
    struct rfs_strategy *strategy;
    struct rfs_catalog *catalog;
    struct rfs_planner *planner;
    const struct rfs_rank_plan *plan;
    const struct rfs_source_spec spec = {.path = root, .options = &rfs_options_defaults};

    (void)state;
    for (unsigned rank = 0; rank < 4; rank++)
        write_rank(root, rank);
    assert_int_equal(
        rfs_strategy_parse("s.json", strategy_text, sizeof strategy_text - 1, &strategy, &err), 0);
    assert_int_equal(rfs_catalog_open(&spec, NULL, NULL, &catalog, &err), 0);
    const struct rfs_planner_config config = {.catalog = catalog, .src = strategy};
    assert_int_equal(rfs_planner_new(&config, &planner, &err), 0);
    assert_int_equal(unlink(tree_path(root, "rank_2/net-1_1.ckpt")), 0);

    const int rc = rfs_planner_rank(planner, 0, &plan, &err);
    assert_int_equal(rc, -EINVAL);
    assert_int_equal(err.code, rc);
    assert_non_null(strstr(err.text, "rank_1/"));
    rfs_planner_free(planner);
    rfs_catalog_close(catalog);
    rfs_strategy_free(strategy);
    tree_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_and_text_are_of_one_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
