/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What planning costs by the number of ranks and parameters, counted: files opened, reads, pieces,
 * bytes of memory, names looked up. Nothing here is timed.
 */
#include "base/intern.h"
#include "base/options.h"
#include "plan/planner.h"
#include "tests/support/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Names are looked up in the strategies by this function alone; -Wl,--wrap leads its calls here. */
static atomic_uint look_ups;

uint32_t __real_rfs_intern_find(struct rfs_intern *table, const void *bytes, size_t length);
uint32_t __wrap_rfs_intern_find(struct rfs_intern *table, const void *bytes, size_t length);

uint32_t __wrap_rfs_intern_find(struct rfs_intern *table, const void *bytes, size_t length)
{
    atomic_fetch_add(&look_ups, 1);
    return __real_rfs_intern_find(table, bytes, length);
}

struct world {
    char *root;
    struct rfs_strategy *src, *dst;
    struct rfs_pool *pool;
    struct rfs_catalog *catalog;
    struct rfs_planner *planner;
};

/* PARAMS matrices of 3072 rows of one byte, cut over RANKS in a line. */
static struct rfs_strategy *cut_over(unsigned ranks, unsigned params)
{
    struct bytes text = {0};
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};
    char item[512];

    for (unsigned i = 0; i < params; i++) {
        const int n = snprintf(item, sizeof item,
                               "%s\"p%u\": {\"dev_matrix\": [%u], \"tensor_map\": [0, -1], "
                               "\"tensor_shape\": [3072, 1], \"field\": 0, "
                               "\"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}",
                               i ? ", "
                                 : "{\"current_stage\": 1, \"parallel_strategy_item\": {\"op\": "
                                   "{\"stage\": 0, \"parallel_strategy\": [[1]]}}, "
                                   "\"parallel_layout_item\": {",
                               i, ranks);
        bytes_add(&text, item, (size_t)n);
    }
    bytes_add(&text, "}}", 2);
    if (rfs_strategy_parse("x.json", text.data, text.n, &strategy, &err))
        fail_msg("%s", err.text);
    bytes_free(&text);
    return strategy;
}

/* Ranks that differ in nothing that headers say share a file. MORE: each has another header. */
static void write_ranks(const char *root, unsigned ranks, unsigned params, bool differing)
{
    const uint64_t dims[] = {3072 / ranks, 1};
    unsigned char content[3072] = {0};
    char path[64];
    char first[512];

    for (unsigned r = 0; r < ranks; r++) {
        struct bytes file = {0};
        snprintf(path, sizeof path, "src/rank_%u/a.ckpt", r);
        for (unsigned i = 0; (differing || r == 0) && i < params; i++) {
            char name[32];
            snprintf(name, sizeof name, "p%u", (i + r) % params);
            ckpt_tensor(&file, name, "Int8", 2, dims, content, dims[0]);
        }
        if (differing || r == 0) {
            tree_write(root, path, file.data, file.n);
            snprintf(first, sizeof first, "%s", tree_path(root, path));
        } else {
            char folder[64];
            snprintf(folder, sizeof folder, "src/rank_%u/x", r);
            tree_write(root, folder, "", 0);
            assert_int_equal(unlink(tree_path(root, folder)), 0);
            assert_int_equal(link(first, tree_path(root, path)), 0);
        }
        bytes_free(&file);
    }
}

static void open_world(struct world *w, unsigned src, unsigned dst, unsigned params, bool differing,
                       uint64_t most)
{
    struct rfs_error err = {0};

    *w = (struct world){.root = tree_new(), .pool = rfs_pool_new(2)};
    write_ranks(w->root, src, params, differing);
    w->src = cut_over(src, params);
    w->dst = cut_over(dst, params);
    const struct rfs_source_spec spec = {
        .path = tree_path(w->root, "src"), .options = &rfs_options_defaults, .index_most = most};
    if (rfs_catalog_open(&spec, NULL, w->pool, &w->catalog, &err))
        fail_msg("%s", err.text);
    const struct rfs_planner_config config = {
        .catalog = w->catalog, .src = w->src, .dst = w->dst, .pool = w->pool};
    if (rfs_planner_new(&config, &w->planner, &err))
        fail_msg("%s", err.text);
}

static void close_world(struct world *w)
{
    rfs_pool_free(w->pool);
    rfs_planner_free(w->planner);
    rfs_catalog_close(w->catalog);
    rfs_strategy_free(w->src);
    rfs_strategy_free(w->dst);
    tree_remove(w->root);
}

static const struct rfs_rank_plan *plan(struct world *w, unsigned rank)
{
    const struct rfs_rank_plan *out;
    struct rfs_error err = {0};

    if (rfs_planner_rank(w->planner, rank, &out, &err))
        fail_msg("%s", err.text);
    return out;
}

static struct rfs_files_counters files_of(struct world *w)
{
    struct rfs_files_counters count;
    rfs_files_count(rfs_catalog_files(w->catalog), &count);
    return count;
}

/* How many sources a rank opens and how many pieces its file is of, by the ranks of both sides. */
static void count_one(unsigned src, unsigned dst, unsigned rank, uint64_t *opens, size_t *pieces)
{
    struct world w;
    struct rfs_slice slice = {0};

    open_world(&w, src, dst, 6, false, 0);
    assert_int_equal(files_of(&w).opens, 0);
    const struct rfs_rank_plan *one = plan(&w, rank);
    *opens = files_of(&w).opens;
    *pieces = 0;
    for (size_t i = 0; i < one->params->n; i++) {
        assert_int_equal(rfs_planner_slice(w.planner, rank, &one->params->targets[i], &slice), 0);
        *pieces += slice.n;
    }
    assert_int_equal(files_of(&w).opens, *opens); /* whatever was made for it was made already */
    rfs_slice_free(&slice);
    close_world(&w);
}

static void test_as_many_ranks_as_give_something(void **state)
{
    uint64_t few_opens;
    uint64_t many_opens;
    size_t few;
    size_t many;
    (void)state;

    count_one(8, 6, 4, &few_opens, &few);
    count_one(1024, 768, 4, &many_opens, &many);
    assert_int_equal(few, 6 * 2);   /* rows 2048 to 2559, of ranks 5 and 6 */
    assert_int_equal(many, 6 * 2);  /* rows 16 to 19, likewise */
    assert_int_equal(few_opens, 3); /* and the lead, rank 4 */
    assert_int_equal(many_opens, 3);
}

static void test_all_ranks_are_opened_once(void **state)
{
    struct world w;
    (void)state;

    open_world(&w, 256, 192, 6, false, 0);
    for (unsigned r = 0; r < 192; r++)
        assert_true(plan(&w, r)->n_sources <= 3);
    assert_int_equal(files_of(&w).opens, 256);
    close_world(&w);
}

/* In each of the two strategies, whatever the number of ranks, and wherever a file has a name. */
static void test_names_are_looked_up_once(void **state)
{
    const unsigned params = 40;
    (void)state;

    for (int differing = 0; differing < 2; differing++) {
        struct world w;
        atomic_store(&look_ups, 0);
        open_world(&w, 16, 12, params, differing, 0);
        assert_int_equal(look_ups, 2 * params); /* those of the source strategy */
        plan(&w, 0);
        assert_int_equal(look_ups, 4 * params); /* those of the files */
        for (unsigned r = 1; r < 12; r++)
            plan(&w, r);
        assert_int_equal(look_ups, 4 * params);
        close_world(&w);
    }
}

/* A rank whose headers were predicted: one read for what fits into one, and a look at the end. */
static void test_reads_of_a_rank(void **state)
{
    const unsigned params = 12000; /* 40 bytes and more of each */
    struct rfs_files_counters before;
    struct rfs_files_counters after;
    struct rfs_catalog_counters catalog;
    const struct rfs_index *index;
    struct world w;
    (void)state;

    open_world(&w, 4, 4, params, false, 0);
    assert_int_equal(rfs_catalog_index(w.catalog, 0, RFS_NO_RANK, &index, NULL), 0);
    before = files_of(&w);
    assert_int_equal(rfs_catalog_index(w.catalog, 1, 0, &index, NULL), 0);
    after = files_of(&w);
    rfs_catalog_count(w.catalog, &catalog);
    assert_int_equal(catalog.predicted, 1);
    assert_int_equal(after.opens - before.opens, 1);
    const uint64_t bytes = index->file_bytes;
    assert_true(bytes > params * 40);
    assert_true(after.reads - before.reads <= bytes / (256 << 10) + 2 + 1);
    assert_true(after.bytes - before.bytes <= bytes + 64);
    close_world(&w);
}

static void test_memory_of_indexes(void **state)
{
    const unsigned ranks = 48;
    const unsigned params = 300;
    struct rfs_catalog_counters count;
    const struct rfs_index *index;
    struct world w;
    (void)state;

    open_world(&w, ranks, ranks, params, true, 0);
    for (unsigned r = 0; r < ranks; r++)
        assert_int_equal(rfs_catalog_index(w.catalog, r, 0, &index, NULL), 0);
    rfs_catalog_count(w.catalog, &count);
    assert_int_equal(count.indexed, ranks);
    assert_int_equal(count.predicted, 0); /* none is like another: the most that there can be */
    assert_true(count.index_bytes > 20 * ranks * params);
    assert_true(count.index_bytes <= 32 * ranks * params);
    close_world(&w);
    open_world(&w, ranks, ranks, params, false, 0);
    for (unsigned r = 0; r < ranks; r++)
        assert_int_equal(rfs_catalog_index(w.catalog, r, r ? 0 : RFS_NO_RANK, &index, NULL), 0);
    rfs_catalog_count(w.catalog, &count);
    assert_true(count.index_bytes <= 32 * params); /* all are one */
    close_world(&w);
}

static void test_room_for_indexes(void **state)
{
    const unsigned ranks = 48;
    const unsigned params = 300;
    const uint64_t most = 5 * 32 * params;
    struct rfs_catalog_counters count;
    struct rfs_slice slice = {0};
    struct world w;
    (void)state;

    open_world(&w, ranks, ranks, params, true, most);
    for (unsigned r = 0; r < ranks; r++) {
        plan(&w, r);
        rfs_catalog_count(w.catalog, &count);
        assert_true(count.index_bytes <= most);
    }
    assert_true(count.dropped >= ranks - 5);
    assert_null(rfs_catalog_ready(w.catalog, 1));             /* rank 0 is looked at by all */
    assert_non_null(rfs_catalog_ready(w.catalog, ranks - 1)); /* the last that was asked for */
    /* Those that went are made again as they were, unless the file was changed since. */
    const struct rfs_rank_plan *first = plan(&w, 1);
    assert_int_equal(rfs_planner_slice(w.planner, 1, &first->params->targets[7], &slice), 0);
    assert_int_equal(slice.n, 1);
    const struct rfs_rank_plan *second = plan(&w, 2);
    tree_write(w.root, "src/rank_2/a.ckpt", "changed", 7);
    assert_int_equal(rfs_planner_slice(w.planner, 2, &second->params->targets[7], &slice), -ESTALE);
    rfs_slice_free(&slice);
    close_world(&w);
}

/* What is in use stays, however little room there is. */
static void test_in_use(void **state)
{
    const struct rfs_index *index[4];
    struct rfs_catalog_counters count;
    struct rfs_use outer;
    struct rfs_use inner;
    struct world w;
    (void)state;

    open_world(&w, 4, 4, 10, true, 1);
    rfs_catalog_begin(w.catalog, &outer);
    for (unsigned r = 0; r < 4; r++) {
        rfs_catalog_begin(w.catalog, &inner);
        assert_int_equal(rfs_catalog_index(w.catalog, r, RFS_NO_RANK, &index[r], NULL), 0);
        rfs_catalog_end(w.catalog, &inner);
    }
    for (unsigned r = 0; r < 4; r++)
        assert_ptr_equal(rfs_catalog_ready(w.catalog, r), index[r]);
    rfs_catalog_begin(w.catalog, &inner);
    rfs_catalog_end(w.catalog, &outer); /* which began first: inner has asked for nothing */
    rfs_catalog_count(w.catalog, &count);
    assert_int_equal(count.dropped, 4);
    assert_int_equal(count.index_bytes, 0);
    rfs_catalog_end(w.catalog, &inner);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_ranks_as_give_something),
        cmocka_unit_test(test_all_ranks_are_opened_once),
        cmocka_unit_test(test_names_are_looked_up_once),
        cmocka_unit_test(test_reads_of_a_rank),
        cmocka_unit_test(test_memory_of_indexes),
        cmocka_unit_test(test_room_for_indexes),
        cmocka_unit_test(test_in_use),
    };
    return cmocka_run_group_tests_name("plan: scale", tests, NULL, NULL);
}
