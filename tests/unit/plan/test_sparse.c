/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source stages whose files list different parameters, as after remove_redundancy: random ones
 * against a slow model (world.h), and those that only headers tell apart. Some are planned with no
 * room for indexes, so that each is dropped as soon as it is not in use, and some again by what a
 * first view has saved of them.
 */
#include "base/options.h"
#include "catalog/kept.h"
#include "plan/planner.h"
#include "plan/trace.h"
#include "tests/unit/plan/world.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORLDS 250

struct open {
    struct rfs_strategy *src, *dst;
    struct rfs_pool *pool;
    struct rfs_catalog *catalog;
    struct rfs_planner *planner;
    struct rfs_kept *kept;
    bool no_room;
    struct rfs_error err;
};

static struct rfs_strategy *parse(const char *name, const char *text)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};

    if (rfs_strategy_parse(name, text, strlen(text), &strategy, &err))
        fail_msg("%s: %s", err.text, text);
    return strategy;
}

static struct rfs_strategy *side_of(const struct world *world, const struct side *side,
                                    const char *name)
{
    if (!side->any)
        return NULL;
    char *text = world_strategy(world, side);
    struct rfs_strategy *strategy = parse(name, text);
    free(text);
    return strategy;
}

static int open_tree(struct open *o, const char *root)
{
    const struct rfs_source_spec spec = {.path = tree_path(root, "src"),
                                         .options = &rfs_options_defaults,
                                         .kept = o->kept,
                                         .opened = {.tv_sec = time(NULL) + 60},
                                         .index_most = o->no_room ? 1 : 0};

    o->pool = rfs_pool_new(2);
    assert_non_null(o->pool);
    if (rfs_catalog_open(&spec, NULL, o->pool, &o->catalog, &o->err))
        fail_msg("%s", o->err.text);
    const struct rfs_planner_config config = {
        .catalog = o->catalog, .src = o->src, .dst = o->dst, .pool = o->pool};
    return rfs_planner_new(&config, &o->planner, &o->err);
}

static void close_tree(struct open *o, int counts[6])
{
    struct rfs_catalog_counters catalog;

    rfs_catalog_count(o->catalog, &catalog);
    counts[4] += (int)catalog.kept;
    counts[5] += (int)catalog.dropped;
    if (o->no_room)
        assert_int_equal(catalog.index_bytes, 0);
    rfs_catalog_keep(o->catalog);
    rfs_pool_free(o->pool);
    rfs_planner_free(o->planner);
    rfs_catalog_close(o->catalog);
    rfs_strategy_free(o->src);
    rfs_strategy_free(o->dst);
    rfs_kept_close(o->kept);
}

/* Copies a block as slice.h says, a byte range at a time. */
static void copy_block(struct open *o, const struct rfs_block *block, unsigned char *out)
{
    uint64_t at[RFS_MAX_DIMS] = {0};
    struct rfs_reading reading;

    assert_int_equal(rfs_reading_begin(rfs_catalog_files(o->catalog), block->file, &reading), 0);
    for (bool more = true; more;) {
        uint64_t dst = block->dst;
        uint64_t src = block->src;
        for (uint32_t k = 0; k < block->n_loops; k++) {
            dst += at[k] * block->loop[k].dst_stride;
            src += at[k] * block->loop[k].src_stride;
        }
        assert_int_equal(
            rfs_catalog_content_pread(&reading, &block->content, NULL, out + dst, block->run, src),
            0);
        more = false;
        for (uint32_t k = block->n_loops; !more && k-- > 0;) {
            more = ++at[k] < block->loop[k].count;
            at[k] = more ? at[k] : 0;
        }
    }
    assert_int_equal(rfs_reading_end(&reading), 0);
}

/* Whoever reads the file must notice when one of its sources changes. */
static void expect_source(const struct rfs_rank_plan *plan, uint32_t file)
{
    for (uint32_t i = 0; i < plan->n_sources; i++)
        if (plan->sources[i] == file)
            return;
    fail_msg("file %u is read, but not among the sources", file);
}

static bool lacks(const struct world *world, uint32_t rank, uint32_t param)
{
    return world->lost[rank] || !world->has[rank][param];
}

/*
 * What is told of a slice is what is read of it, and of replicas only those are passed over that
 * lack it.
 */
static void expect_trace(struct open *o, const struct world *world, uint32_t rank,
                         const struct rfs_target *target, uint32_t param,
                         const struct rfs_slice *slice)
{
    const struct rfs_type *type = rfs_catalog_type(o->catalog, target->type);
    const int64_t part = rfs_planner_single_stage(o->planner);
    const uint32_t shift = part > 0 ? (uint32_t)part * world->src.devices : 0;
    struct rfs_trace trace = {0};
    uint64_t elements = 0;

    assert_int_equal(rfs_planner_trace(o->planner, rank, target, NULL, &trace), 0);
    assert_int_equal(trace.n, slice->n);
    for (size_t i = 0; i < trace.n; i++) {
        const struct rfs_piece_trace *piece = &trace.pieces[i];
        const struct rfs_block *block = &slice->blocks[i];
        uint64_t volume = 1;
        assert_int_equal(piece->block.file, block->file);
        assert_int_equal(piece->block.src, block->src);
        assert_int_equal(piece->block.dst, block->dst);
        assert_int_equal(piece->block.run, block->run);
        assert_int_equal(piece->block.dst_end, block->dst_end);
        assert_memory_equal(piece->block.loop, block->loop, block->n_loops * sizeof *block->loop);
        assert_int_equal(rfs_catalog_file(o->catalog, piece->rank), block->file);
        for (uint32_t k = 0; k < type->ndim; k++) {
            volume *= piece->target.len[k];
            assert_true(piece->target.at[k] + piece->target.len[k] <= type->dims[k]);
        }
        elements += volume;
        for (uint32_t r = trace.base; r < trace.base + trace.devices; r++) {
            const enum rfs_holding has = rfs_trace_holding(o->planner, target, &trace, piece, r);
            assert_true(has == RFS_HOLDS_NOT ||
                        (has == RFS_HOLDS) == !lacks(world, r - shift, param));
        }
        if (piece->first != piece->rank)
            assert_true(lacks(world, piece->first - shift, param));
        assert_false(lacks(world, piece->rank - shift, param));
    }
    assert_int_equal(elements * rfs_dtype_bytes((enum rfs_dtype)type->dtype), type->bytes);
    rfs_trace_free(&trace);
}

static void expect_target(struct open *o, const struct world *world, uint32_t rank,
                          const struct rfs_rank_plan *plan, const struct rfs_target *target,
                          const struct wanted *wanted)
{
    const struct rfs_type *type = rfs_catalog_type(o->catalog, target->type);
    struct rfs_slice slice = {0};
    unsigned char bytes[sizeof wanted->bytes] = {0};

    assert_int_equal(rfs_catalog_name(o->catalog, target->name)[1] - '0', wanted->param);
    assert_int_equal(type->bytes, wanted->n);
    for (uint32_t axis = 0; axis < type->ndim; axis++)
        assert_int_equal(type->dims[axis], wanted->dims[axis]);
    assert_int_equal(rfs_planner_slice(o->planner, rank, target, &slice), 0);
    for (size_t i = 0; i < slice.n; i++) {
        expect_source(plan, slice.blocks[i].file);
        copy_block(o, &slice.blocks[i], bytes);
    }
    assert_memory_equal(bytes, wanted->bytes, wanted->n);
    expect_trace(o, world, rank, target, wanted->param, &slice);
    rfs_slice_free(&slice);
}

static int shared_traces;

/* What is told to be traced as another parameter is, is: from the same ranks, in the same boxes. */
static void expect_shared(struct open *o, uint32_t rank, const struct rfs_target *a,
                          const struct rfs_target *b)
{
    struct rfs_trace left = {0};
    struct rfs_trace right = {0};

    if (a->geometry != b->geometry || a->stage != b->stage || !rfs_trace_is_shared(o->planner, a))
        return;
    shared_traces++;
    assert_int_equal(rfs_planner_trace(o->planner, rank, a, NULL, &left), 0);
    assert_int_equal(rfs_planner_trace(o->planner, rank, b, NULL, &right), 0);
    assert_int_equal(left.n, right.n);
    for (size_t i = 0; i < left.n; i++) {
        const struct rfs_piece_trace *x = &left.pieces[i];
        const struct rfs_piece_trace *y = &right.pieces[i];
        assert_int_equal(x->rank, y->rank);
        assert_int_equal(x->type, y->type);
        assert_int_equal(x->repeated, y->repeated);
        assert_int_equal(x->block.file, y->block.file);
        assert_int_equal(x->block.run, y->block.run);
        assert_int_equal(x->block.n_loops, y->block.n_loops);
        assert_memory_equal(x->block.loop, y->block.loop, x->block.n_loops * sizeof *x->block.loop);
        assert_memory_equal(&x->source, &y->source, sizeof x->source);
    }
    rfs_trace_free(&left);
    rfs_trace_free(&right);
}

/* Whether no file has a parameter of the strategy, which then counts as another network's. */
static bool nothing_matches(const struct world *world)
{
    const struct side *side = world->src.any ? &world->src : &world->dst;

    for (uint32_t p = 0; p < PARAMS; p++)
        for (uint32_t s = 0; s < STAGES; s++)
            for (uint32_t r = 0; side->lay[p][s].has && r < RANKS; r++)
                if (world->has[r][p] && !world->lost[r])
                    return false;
    return true;
}

static void expect_rank(struct open *o, const struct world *world, uint32_t rank, int *refused)
{
    struct wanted wanted[PARAMS];
    const struct rfs_rank_plan *plan;
    const int n = world_file(world, rank, wanted);

    o->err = (struct rfs_error){0};
    const int rc = rfs_planner_rank(o->planner, rank, &plan, &o->err);
    if (rc < 0 && strstr(o->err.text, "none of its parameters is in the checkpoint")) {
        assert_true(nothing_matches(world));
        return;
    }
    if ((n < 0) != (rc < 0))
        fail_msg("rank %u: %d, the model says %d: %s", rank, rc, n, o->err.text);
    *refused += n < 0;
    if (n < 0) {
        assert_true(o->err.text[0]);
        return;
    }
    assert_int_equal(plan->params->n, n);
    for (int i = 0; i < n; i++) {
        const struct rfs_target *targets = plan->params->targets;
        expect_target(o, world, rank, plan, &targets[i], &wanted[i]);
        for (int k = 0; k < i; k++)
            expect_shared(o, rank, &targets[i], &targets[k]);
    }
}

/* Plans all ranks, beginning with one of its own. */
struct walker {
    struct open *o;
    uint32_t first, ranks;
};

static void *plan_all(void *arg)
{
    const struct walker *walker = arg;

    for (uint32_t i = 0; i < walker->ranks; i++) {
        const struct rfs_rank_plan *plan;
        struct rfs_error err = {0};
        (void)rfs_planner_rank(walker->o->planner, (walker->first + i) % walker->ranks, &plan,
                               &err);
    }
    return NULL;
}

static void plan_by_threads(struct open *o, uint32_t ranks)
{
    pthread_t threads[4];
    struct walker walkers[4];

    for (uint32_t i = 0; i < 4; i++) {
        walkers[i] = (struct walker){o, i * 5, ranks};
        assert_int_equal(pthread_create(&threads[i], NULL, plan_all, &walkers[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* What is refused ahead is what the first rank of a stage cannot be planned for. */
static void look_ahead(struct open *o, const struct world *world)
{
    bool right = true;

    o->err = (struct rfs_error){0};
    const int rc = rfs_planner_check_shapes(o->planner, &o->err);
    for (uint32_t stage = 0; stage < world->dst.stages; stage++) {
        struct wanted wanted[PARAMS];
        right = right && world_file(world, stage * world->dst.devices, wanted) >= 0;
    }
    if (rc < 0 && right && !nothing_matches(world))
        fail_msg("refused: %s", o->err.text);
}

static void check_tree(struct world *world, const char *root, unsigned way, int counts[6])
{
    struct open o = {.no_room = way & 1};
    const uint32_t ranks = world->dst.devices * world->dst.stages;

    o.src = side_of(world, &world->src, "src.json");
    o.dst = side_of(world, &world->dst, "dst.json");
    o.kept = way & 2 ? rfs_kept_open(tree_path(root, "saved"), NULL) : NULL;
    const int rc = open_tree(&o, root);
    if ((rc < 0) != world_is_lost(world))
        fail_msg("%d: %s", rc, o.err.text);
    counts[0] += rc < 0;
    if (rc == 0 && way & 8)
        look_ahead(&o, world);
    if (rc == 0 && way & 4)
        plan_by_threads(&o, ranks);
    /* Not from 0 up: no rank sees another's plan. */
    for (uint32_t i = 0; rc == 0 && i < ranks; i++)
        expect_rank(&o, world, (i * 7 + 5) % ranks, &counts[1]);
    counts[2] += rc == 0 ? (int)ranks : 0;
    close_tree(&o, counts);
}

static void check_world(struct world *world, unsigned way, int counts[6])
{
    char *root = tree_new();
    bool all_lost = true;

    for (uint32_t r = 0; r < world->src.devices * world->src.stages; r++)
        all_lost &= world->lost[r];
    if (!all_lost) {
        world_write(world, root);
        check_tree(world, root, way, counts);
        if (way & 2)
            check_tree(world, root, way, counts);
    }
    tree_remove(root);
}

static void test_random_worlds(void **state)
{
    uint64_t seed = test_seed();
    int counts[6] = {0};
    (void)state;

    for (int i = 0; i < WORLDS; i++, seed++) {
        struct world world;
        world_make(&world, seed);
        if (getenv("RFS_VERBOSE"))
            print_message("world %llu\n", (unsigned long long)seed);
        if (world_is_plain(&world))
            check_world(&world, (unsigned)i % 16, counts);
        else
            counts[3]++;
    }
    print_message("%d worlds: %d not mounted, %d of %d files refused, %d left out; %d indexes were "
                  "saved, %d dropped\n",
                  WORLDS, counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]);
    assert_true(counts[4] > 0 && counts[5] > 0);
    assert_true(shared_traces > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_worlds),
    };
    return cmocka_run_group_tests_name("plan: sparse stages", tests, NULL, NULL);
}
