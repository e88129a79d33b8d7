/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's plan does not depend on which ranks were planned before: random checkpoints, in which
 * ranks are lost, order their parameters in their own way, have other types or bytes, alone have a
 * parameter, or have slices of differing rows, planned by one planner, and each rank by one of its
 * own. Nor does what planners note of lost data, if they go on without.
 */
#include "base/options.h"
#include "plan/planner.h"
#include "tests/support/tree.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES 8
#define STAGES 2
#define RANKS (STAGES * DEVICES)
#define PARAMS 9
#define CUT 6 /* the others are in no strategy */
#define ROWS 8
#define SPLIT_ROWS 24 /* of p0, where it is split by hand */
#define WORLDS 500

/* Rows of p0 in each rank, where it is split by hand: slices of one size give files of one size. */
static const unsigned split_rows[2][DEVICES] = {{1, 2, 3, 4, 5, 1, 2, 6}, {3, 3, 3, 3, 3, 3, 3, 3}};
static const char *const split_shapes[] = {"1, 2, 3, 4, 5, 1, 2, 6", "3, 3, 3, 3, 3, 3, 3, 3"};

/* How a side cuts a parameter of ROWS bytes: by device axis MAP, or not at all (-1). */
struct side {
    uint32_t stages;
    int map[PARAMS];
    bool split; /* p0 is split by hand, into slices of one size if EVEN */
    bool even;
    uint64_t p0_rows;
};

struct opened {
    struct rfs_lacking lacking;
    struct rfs_strategy *src, *dst;
    struct rfs_catalog *catalog;
    struct rfs_planner *planner;
};

static struct rfs_strategy *parse(const char *name, const struct side *side)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};
    char text[8192];
    size_t n = (size_t)snprintf(text, sizeof text,
                                "{\"current_stage\": 1, \"parallel_strategy_item\": {\"op\": "
                                "{\"stage\": 0, \"parallel_strategy\": [[1]]}}, "
                                "\"parallel_layout_item\": {");

    for (unsigned p = 0; p < CUT; p++) {
        char prefix[16] = "";
        if (side->stages > 1)
            snprintf(prefix, sizeof prefix, "%u-", p % side->stages);
        const bool split = side->split && p == 0;
        char shape[64] = "";
        if (split)
            snprintf(shape, sizeof shape, "\"param_split_shape\": [%s], ",
                     split_shapes[side->even]);
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%s\"%sp%u\": {\"dev_matrix\": [%s], \"tensor_map\": [%d], %s"
                              "\"field\": 0, \"opt_weight_shard_step\": 0, "
                              "\"opt_weight_shard_size\": 0}",
                              p > 0 ? ", " : "", prefix, p, split ? "8" : "2, 4",
                              split ? 0 : side->map[p], shape);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "}}");
    if (rfs_strategy_parse(name, text, n, &strategy, &err))
        fail_msg("%s", err.text);
    return strategy;
}

/* Returns the bytes of a rank's slice. */
static uint64_t slice_of(const struct side *side, unsigned param, uint32_t rank)
{
    const uint64_t rows = param == 0 ? side->p0_rows : ROWS;
    const int map = side->map[param];

    if (side->split && param == 0)
        return split_rows[side->even][rank % DEVICES];
    return map < 0 ? rows : map == 0 ? rows / 4 : rows / 2;
}

/* Writes a rank's file. ODDITY: in which way some ranks differ, or 0. */
static void write_rank(const char *root, uint32_t rank, const struct side *src, uint32_t oddity,
                       uint64_t *random)
{
    const bool odd = oddity > 0 && test_below(random, 4) == 0;
    const uint32_t first = odd && oddity == 1 ? test_below(random, PARAMS) : 0;
    struct bytes file = {0};
    char path[64];

    for (unsigned i = 0; i < PARAMS; i++) {
        unsigned p = (first + i) % PARAMS;
        if (oddity == 4 && p == 0)
            continue; /* a few have it in place of the last one, so that all are of one size */
        const bool replaced = oddity == 4 && p == PARAMS - 1;
        if (replaced && odd && rank < DEVICES)
            p = 0;
        const bool cut = p < CUT;
        if (cut && p % src->stages != rank / DEVICES)
            continue;
        const uint64_t dims = cut || replaced ? slice_of(src, cut ? p : 0, rank) : ROWS;
        const bool other = odd && test_below(random, 4) == 0;
        char name[8];
        snprintf(name, sizeof name, "p%u", p);
        ckpt_tensor(&file, name, other && oddity == 2 ? "UInt8" : "Int8", 1, &dims,
                    other && oddity == 3 ? "abcdabcXabcdabcdabcdabcd" : "abcdabcdabcdabcdabcdabcd",
                    dims);
    }
    snprintf(path, sizeof path, "rank_%u/net-1_1.ckpt", rank);
    tree_write(root, path, file.data, file.n);
    bytes_free(&file);
}

static void close_all(struct opened *opened)
{
    rfs_planner_free(opened->planner);
    rfs_catalog_close(opened->catalog);
    rfs_strategy_free(opened->src);
    rfs_strategy_free(opened->dst);
    free(opened->lacking.damaged.data);
    free(opened->lacking.from.data);
}

/* Returns the parameters that plans lack, a bit each. */
static unsigned lacks(const struct opened *opened)
{
    struct rfs_intern *names = rfs_catalog_tables(opened->catalog)->names;
    unsigned bits = 0;

    for (unsigned p = 0; p < PARAMS; p++) {
        const uint32_t id = rfs_intern_find(names, (const char[]){'p', (char)('0' + p)}, 2);
        if (id < opened->lacking.from.n && opened->lacking.from.data[id] > 0)
            bits |= 1u << p;
    }
    return bits;
}

struct how {
    bool strict;
    bool go_on; /* without what is lost */
};

/* False when the world cannot be planned at all. */
static bool open_all(const char *root, const struct side *src, const struct side *dst,
                     const struct how *how, struct rfs_pool *pool, struct opened *opened)
{
    struct rfs_error err = {0};

    *opened = (struct opened){.src = parse("src.json", src), .dst = parse("dst.json", dst)};
    if (rfs_catalog_open(&(struct rfs_source_spec){.path = root, .options = &rfs_options_defaults},
                         NULL, pool, &opened->catalog, &err))
        fail_msg("%s", err.text);
    const struct rfs_planner_config config = {.catalog = opened->catalog,
                                              .src = opened->src,
                                              .dst = opened->dst,
                                              .pool = pool,
                                              .strict = how->strict,
                                              .lost =
                                                  how->go_on ? RFS_LOST_LEFT_OUT : RFS_LOST_REFUSED,
                                              .lacking = how->go_on ? &opened->lacking : NULL};
    return rfs_planner_new(&config, &opened->planner, &err) == 0;
}

/* Writes a plan, or its error, as text: names, as ids differ between two catalogues. */
static void describe(struct opened *opened, uint32_t rank, char *text, size_t size)
{
    const struct rfs_rank_plan *plan;
    struct rfs_error err = {0};
    size_t n = 0;

    if (rfs_planner_rank(opened->planner, rank, &plan, &err)) {
        snprintf(text, size, "%d %s", err.code, err.text);
        return;
    }
    for (uint32_t i = 0; i < plan->n_sources; i++)
        n += (size_t)snprintf(text + n, size - n, "file %u ", plan->sources[i]);
    for (size_t i = 0; i < plan->params->n; i++) {
        const struct rfs_target *target = &plan->params->targets[i];
        const struct rfs_type *type = rfs_catalog_type(opened->catalog, target->type);
        n += (size_t)snprintf(text + n, size - n, "%s stage %u %s[%" PRIu64 "]%s ",
                              rfs_catalog_name(opened->catalog, target->name), target->stage,
                              rfs_dtype_name((enum rfs_dtype)type->dtype), type->dims[0],
                              target->geometry == RFS_NO_ID ? " copied" : "");
    }
}

static void compare(uint64_t seed, struct rfs_pool *pool)
{
    uint64_t random = seed;
    struct side src = {.stages = 1 + test_below(&random, STAGES)};
    struct side dst = {.stages = 1 + test_below(&random, STAGES)};
    const uint32_t oddity = test_below(&random, 5);
    const bool strict = test_below(&random, 4) == 0;
    const bool lose = test_below(&random, 3) == 0;
    const struct how how = {strict, lose && test_below(&random, 2) == 0};
    unsigned lacked = 0;
    char *root = tree_new();
    struct opened all;

    for (unsigned p = 0; p < CUT; p++) {
        src.map[p] = (int)test_below(&random, 3) - 1;
        dst.map[p] = (int)test_below(&random, 3) - 1;
    }
    src.split = oddity == 0 && test_below(&random, 3) == 0;
    dst.split = oddity == 0 && test_below(&random, 3) == 0;
    src.even = test_below(&random, 2);
    dst.even = test_below(&random, 2);
    src.p0_rows = dst.p0_rows = src.split || dst.split ? SPLIT_ROWS : ROWS;
    for (uint32_t rank = 0; rank < src.stages * DEVICES; rank++)
        if (rank == 0 || !lose || test_below(&random, 4) > 0)
            write_rank(root, rank, &src, oddity, &random);
    const bool open = open_all(root, &src, &dst, &how, pool, &all);
    const uint32_t ranks = dst.stages * DEVICES;
    const uint32_t begin = test_below(&random, ranks);
    for (uint32_t i = 0; open && i < ranks; i++) {
        struct opened one;
        char here[4096];
        char alone[4096];
        assert_true(open_all(root, &src, &dst, &how, pool, &one));
        describe(&all, (begin + i) % ranks, here, sizeof here);
        describe(&one, (begin + i) % ranks, alone, sizeof alone);
        /* What an earlier rank lacks is left out of all. */
        if (!how.go_on && strcmp(here, alone) != 0)
            fail_msg("seed %" PRIu64 ", rank %u after %u others: %s\nalone: %s", seed,
                     (begin + i) % ranks, i, here, alone);
        lacked |= lacks(&one);
        close_all(&one);
    }
    if (open && lacks(&all) != lacked)
        fail_msg("seed %" PRIu64 ": parameters %x are lacking, and of the ranks alone %x", seed,
                 lacks(&all), lacked);
    close_all(&all);
    tree_remove(root);
}

static void test_any_order(void **state)
{
    uint64_t seed = test_seed();
    struct rfs_pool *pool = rfs_pool_new(1);

    (void)state;
    assert_non_null(pool);
    for (unsigned i = 0; i < WORLDS; i++)
        compare(seed + i, pool);
    rfs_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_order)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
