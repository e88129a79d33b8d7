/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transposed matrices of several pieces, made in bands: which pieces make one, their bytes against
 * copying element by element, and the source bytes and calls that they cost.
 */
#include "assemble/assembler.h"
#include "assemble/band.h"
#include "assemble/internal.h"

#include "support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define FILE_BYTES (24 * MIB)
#define BUDGET (64 * MIB)
#define MOST 16 /* pieces of a band, with that budget */

static struct random rng;
static struct world world; /* one file of random bytes, in which all matrices lie */

static int set_up(void **state)
{
    (void)state;
    world = (struct world){.ndim = 1, .dims = {FILE_BYTES}, .pieces = {1}, .elem = 1};
    world_open(&world, &rng);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

/* Matrices of ROWS rows in the source, each stored in turn; their columns are rows of the slice. */
struct stack {
    uint64_t item, n, rows, cols;
    uint64_t src, src_row, src_next; /* bytes */
    uint64_t dst, dst_row, dst_next;
};

static struct rfs_block block_of(const struct stack *stack)
{
    struct rfs_block block = {.file = rfs_catalog_file(world.catalog, 0),
                              .content = {.offset = world.entry[0].offset,
                                          .n = world.entry[0].extent_count,
                                          .extents = world.extents[0]},
                              .dst = stack->dst,
                              .src = stack->src,
                              .strided = true};
    rfs_slice_block_box(&block, 3, (uint64_t[]){stack->n, stack->cols, stack->rows}, stack->item,
                        (uint64_t[]){stack->dst_next, stack->dst_row, stack->item},
                        (uint64_t[]){stack->src_next, stack->item, stack->src_row});
    return block;
}

static void copy(const struct stack *stack, unsigned char *dst)
{
    for (uint64_t i = 0; i < stack->n; i++)
        for (uint64_t r = 0; r < stack->rows; r++)
            for (uint64_t c = 0; c < stack->cols; c++)
                memcpy(dst + stack->dst + i * stack->dst_next + c * stack->dst_row +
                           r * stack->item,
                       world.tensor + stack->src + i * stack->src_next + r * stack->src_row +
                           c * stack->item,
                       (size_t)stack->item);
}

static struct rfs_slice slice_of(struct rfs_block *blocks, size_t n)
{
    struct rfs_slice slice = {.n = n, .blocks = blocks};

    for (size_t i = 0; i < n; i++)
        slice.bytes = blocks[i].dst_end > slice.bytes ? blocks[i].dst_end : slice.bytes;
    rfs_slice_name(&slice);
    return slice;
}

/* ---- which pieces ---------------------------------------------------------------------------- */

/* One matrix of so many pieces of a mebibyte, or several, far away in a file. */
static struct stack matrices(uint64_t n, uint64_t rows, uint64_t row_bytes)
{
    return (struct stack){.item = 2,
                          .n = n,
                          .rows = rows,
                          .cols = row_bytes / 2,
                          .src_row = row_bytes,
                          .src_next = rows * row_bytes,
                          .dst_row = rows * 2,
                          .dst_next = rows * row_bytes};
}

static void expect_next(const struct stack *stack, uint64_t most, uint64_t number, uint64_t next)
{
    struct rfs_block block = block_of(stack);
    const struct rfs_slice slice = slice_of(&block, 1);
    const uint64_t got = rfs_band_next(&slice, most, number);

    if (got != next)
        fail_msg("behind piece %llu: %llu, not %llu", (unsigned long long)number,
                 (unsigned long long)got, (unsigned long long)next);
}

static void test_next(void **state)
{
    const struct stack one = matrices(1, 4096, 7 * KIB);    /* 28 MiB */
    const struct stack six = matrices(4, 1536, 4 * KIB);    /* 6 MiB each */
    const struct stack small = matrices(400, 256, KIB / 2); /* 128 KiB each, 50 MiB in all */
    struct stack late = one;
    struct stack plain = one;

    (void)state;
    for (uint64_t i = 0; i < 28; i++) {
        expect_next(&one, 16, i, i < 14 ? 14 : UINT64_MAX);
        expect_next(&one, 64, i, UINT64_MAX);
        expect_next(&one, 10, i, i < 10 ? 10 : i < 20 ? 20 : UINT64_MAX);
    }
    for (uint64_t i = 0; i < 24; i++)
        expect_next(&six, 16, i, i < 18 ? i / 6 * 6 + 6 : UINT64_MAX);
    for (uint64_t i = 0; i < 50; i++)
        expect_next(&small, 16, i, i < 39 ? i / 13 * 13 + 13 : UINT64_MAX);
    /* A matrix that begins in the middle of a piece. */
    late.dst = 5 * MIB / 2;
    expect_next(&late, 64, 1, UINT64_MAX);
    expect_next(&late, 16, 2, 17);
    expect_next(&late, 16, 20, UINT64_MAX);
    /* No piece is in a band: of rows that are not columns, of memory for less. */
    plain.src_row = 2;
    plain.cols = 4096;
    expect_next(&plain, 16, 0, UINT64_MAX);
    expect_next(&one, 0, 0, UINT64_MAX);
    assert_int_equal(rfs_band_most(BUDGET), MOST);
    assert_int_equal(rfs_band_most(BUDGET - 1), 0);
    assert_int_equal(rfs_band_most(1000 * MIB), RFS_BAND_PIECES);
}

/* Bands follow each other: all pieces of one lead to the same next one, which lies behind them. */
static void test_next_of_any(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        struct stack stack =
            matrices(random_in(&rng, 1, 5), random_in(&rng, 2, 3000), 2 * random_in(&rng, 2, 9000));
        stack.dst = 2 * random_below(&rng, 3 * MIB);
        stack.dst_row += 2 * random_below(&rng, 2) * stack.rows;
        stack.dst_next = stack.cols * stack.dst_row;
        struct rfs_block block = block_of(&stack);
        const struct rfs_slice slice = slice_of(&block, 1);
        const uint64_t most = random_in(&rng, 1, RFS_BAND_PIECES);
        uint64_t begin = 0;
        for (uint64_t k = 0; k * MIB < slice.bytes; k++) {
            const uint64_t next = rfs_band_next(&slice, most, k);
            const uint64_t before = k > begin ? rfs_band_next(&slice, most, k - 1) : next;
            if (next == UINT64_MAX)
                break; /* the last band, or none */
            if (next <= k || next - begin > most || (before != UINT64_MAX && before != next))
                fail_msg("piece %llu of a band from %llu, then %llu", (unsigned long long)k,
                         (unsigned long long)begin, (unsigned long long)next);
            begin = k + 1 == next ? next : begin;
        }
    }
}

/* ---- bytes and costs ------------------------------------------------------------------------- */

static struct rfs_files_counters counted(void)
{
    struct rfs_files_counters counters;

    rfs_files_count(world.files, &counters);
    return counters;
}

/* Reads the slice in sequence, then here and there; counts what the first pass has cost. */
static struct rfs_files_counters read_slice(const struct rfs_slice *slice,
                                            const unsigned char *want, struct rfs_pool *pool)
{
    struct rfs_assembler *assembler = world_fast_assembler(&world, BUDGET, pool);
    unsigned char *got = malloc((size_t)slice->bytes);
    const struct rfs_files_counters before = counted();
    uint64_t n;

    assert_true(assembler && got);
    for (uint64_t at = 0; at < slice->bytes; at += n) {
        n = slice->bytes - at < 128 * KIB ? slice->bytes - at : 128 * KIB;
        assert_int_equal(rfs_assemble(assembler, slice, at, (size_t)n, true, got + at), 0);
    }
    const struct rfs_files_counters after = counted();
    if (memcmp(got, want, (size_t)slice->bytes) != 0)
        fail_msg("%llu bytes in %zu blocks differ", (unsigned long long)slice->bytes, slice->n);
    for (unsigned i = 0; i < 20; i++) {
        const uint64_t at = random_below(&rng, slice->bytes);
        const size_t size = (size_t)random_in(&rng, 1, slice->bytes - at);
        assert_int_equal(rfs_assemble(assembler, slice, at, size, false, got), 0);
        assert_memory_equal(got, want + at, size);
    }
    rfs_assembler_free(assembler);
    free(got);
    return (struct rfs_files_counters){.reads = after.reads - before.reads,
                                       .bytes = after.bytes - before.bytes};
}

/*
 * Matrices beside each other in the slice, as gate and up are, each of them once or in a stack, in
 * rows of the source that have other bytes, too.
 */
static void check_any(struct rfs_pool *pool)
{
    const uint64_t item = UINT64_C(1) << random_below(&rng, 5);
    const size_t beside = (size_t)random_in(&rng, 1, 2);
    const uint64_t share = random_in(&rng, 1, 2); /* of a source row that is wanted: a half */
    const uint64_t n = random_below(&rng, 2) ? 1 : random_in(&rng, 2, 9);
    const uint64_t elements = FILE_BYTES / item / share / beside / n;
    const uint64_t most = random_below(&rng, 4) ? 3000 : 200;
    const uint64_t rows = random_in(&rng, 2, most);
    const uint64_t cols = random_in(&rng, 2, elements / rows);
    const uint64_t before = random_below(&rng, 2) ? item * random_below(&rng, 300) : 0;
    struct stack stack = {.item = item, .n = n, .rows = rows, .cols = cols};
    struct rfs_block blocks[2];

    stack.src_row = cols * share * item;
    stack.src_next = rows * stack.src_row;
    stack.dst = before;
    stack.dst_row = beside * rows * item;
    stack.dst_next = cols * stack.dst_row;
    unsigned char *want = calloc(1, (size_t)(before + n * stack.dst_next));
    assert_non_null(want);
    for (size_t i = 0; i < beside; i++) {
        copy(&stack, want);
        blocks[i] = block_of(&stack);
        stack.src += n * stack.src_next;
        stack.dst += rows * item;
    }
    struct rfs_slice slice = slice_of(blocks, beside);
    struct rfs_block all[3] = {{.file = blocks[0].file, .content = blocks[0].content}};
    if (before > 0) { /* something else goes first */
        memcpy(want, world.tensor, (size_t)before);
        all[0].run = all[0].dst_end = before;
        memcpy(all + 1, blocks, beside * sizeof *blocks);
        slice = slice_of(all, beside + 1);
    }
    const struct rfs_files_counters cost = read_slice(&slice, want, pool);
    /* Of very many rows a band has few columns; then less than 16 bytes of a row are wanted. */
    const bool few = stack.dst_row > 64 * KIB || cols * item < 16;
    if (!few && (double)cost.bytes > 1.2 * (double)slice.bytes)
        fail_msg("%llu source bytes for %llu: item %llu, %llu of %llu x %llu, %zu beside",
                 (unsigned long long)cost.bytes, (unsigned long long)slice.bytes,
                 (unsigned long long)item, (unsigned long long)n, (unsigned long long)rows,
                 (unsigned long long)cols, beside);
    free(want);
}

static void test_any(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(3);

    (void)state;
    assert_non_null(pool);
    for (unsigned i = 0; i < 40; i++)
        check_any(i % 2 ? pool : NULL);
    rfs_pool_free(pool);
}

static void expect_cost(struct stack stack, uint64_t reads)
{
    struct rfs_block block = block_of(&stack);
    const struct rfs_slice slice = slice_of(&block, 1);
    unsigned char *want = malloc((size_t)slice.bytes);

    assert_non_null(want);
    copy(&stack, want);
    const struct rfs_files_counters cost = read_slice(&slice, want, NULL);
    assert_int_equal(cost.bytes, slice.bytes);
    if (cost.reads > reads)
        fail_msg("%llu reads, not %llu", (unsigned long long)cost.reads, (unsigned long long)reads);
    free(want);
}

/* A call for each row where half of it is wanted; large reads of rows that are wanted whole. */
static void test_costs(void **state)
{
    struct stack stack = matrices(1, 2048, 6 * KIB);
    const uint64_t extents = 2; /* of the file more than one, each of which may divide a read */

    (void)state;
    expect_cost(stack, 12 * MIB / (192 * KIB) + extents);
    stack.cols /= 2;
    stack.dst_next /= 2;
    expect_cost(stack, 2048 + extents);
    stack.src_row /= 2;
    stack.n = 4;
    stack.src_next = stack.dst_next;
    expect_cost(stack, 24 * MIB / (192 * KIB) + extents);
}

/* Rows of a gate that take turns with those of up, not transposed: no gap is read over. */
static void test_rows_in_turn(void **state)
{
    (void)state;
    for (uint64_t run = 2 * KIB; run <= 8 * KIB; run *= 2) {
        const uint64_t rows = 6 * MIB / run;
        struct rfs_block block = {.file = rfs_catalog_file(world.catalog, 0),
                                  .content = {.offset = world.entry[0].offset,
                                              .n = world.entry[0].extent_count,
                                              .extents = world.extents[0]},
                                  .src = run};
        rfs_slice_block_box(&block, 2, (uint64_t[]){rows, run}, 1, (uint64_t[]){run, 1},
                            (uint64_t[]){2 * run, 1});
        const struct rfs_slice slice = slice_of(&block, 1);
        unsigned char *want = malloc((size_t)slice.bytes);
        assert_non_null(want);
        for (uint64_t r = 0; r < rows; r++)
            memcpy(want + r * run, world.tensor + run + r * 2 * run, (size_t)run);
        const struct rfs_files_counters cost = read_slice(&slice, want, NULL);
        assert_int_equal(cost.bytes, slice.bytes);
        assert_true(cost.reads <= rows + 8); /* a few rows lie in two extents, or requests */
        free(want);
    }
}

/* ---- beside each other ----------------------------------------------------------------------- */

static struct rfs_slice copy_of(const struct rfs_slice *slice)
{
    struct rfs_slice copy = *slice;

    copy.blocks = malloc(slice->n * sizeof *slice->blocks);
    assert_non_null(copy.blocks);
    memcpy(copy.blocks, slice->blocks, slice->n * sizeof *slice->blocks);
    return copy;
}

/*
 * Makes the first slice ahead, and with it the other one, if that is joined. Helpers of an earlier
 * loop may still be in the pool's queue, which takes no job then.
 */
static void make_ahead(struct rfs_assembler *assembler, const struct rfs_slice *slices)
{
    struct rfs_assembler_counters counters = {.ahead = 0};

    for (unsigned i = 0; i < 60000 && counters.ahead == 0; i++) {
        struct rfs_slice slice = copy_of(&slices[0]);
        struct rfs_slice beside = copy_of(&slices[1]);
        rfs_assemble_ahead(assembler, &slice, &beside, &(struct rfs_windows){.kept = {0, 1}});
        pthread_mutex_lock(&assembler->lock);
        while (assembler->n_runners > 0)
            pthread_cond_wait(&assembler->idle, &assembler->lock);
        pthread_mutex_unlock(&assembler->lock);
        rfs_assembler_count(assembler, &counters);
        if (counters.ahead == 0)
            usleep(1000);
    }
    assert_int_equal(counters.ahead, 1);
}

static void expect_slice(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                         const struct stack *stacks, size_t n)
{
    unsigned char *want = malloc((size_t)slice->bytes);
    unsigned char *got = malloc((size_t)slice->bytes);

    assert_true(want && got);
    for (size_t i = 0; i < n; i++)
        copy(&stacks[i], want);
    assert_int_equal(rfs_assemble(assembler, slice, 0, (size_t)slice->bytes, true, got), 0);
    assert_memory_equal(got, want, slice->bytes);
    free(want);
    free(got);
}

/*
 * Two slices of N blocks each, of rows of the source that hold a row of either, the second one's
 * GAP bytes further, and AFTER bytes of others. JOINED: what one call has made ahead is all.
 */
static void check_beside(struct rfs_pool *pool, uint64_t item, size_t n, uint64_t rows,
                         const uint64_t *cols, uint64_t gap, uint64_t after, bool joined)
{
    const uint64_t row = (cols[0] + cols[1]) * item + gap + after;
    struct rfs_assembler *assembler = world_fast_assembler(&world, BUDGET, pool);
    struct rfs_slice slices[2];
    struct rfs_block blocks[2][2];
    struct stack stacks[2][2];

    assert_non_null(assembler);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < n; i++) { /* each with a part of the slice's columns */
            stacks[k][i] = (struct stack){.item = item,
                                          .n = 1,
                                          .rows = rows,
                                          .cols = cols[k],
                                          .src = i * rows * row + k * (cols[0] * item + gap),
                                          .src_row = row,
                                          .dst = i * rows * item,
                                          .dst_row = n * rows * item};
            blocks[k][i] = block_of(&stacks[k][i]);
        }
        slices[k] = slice_of(blocks[k], n);
    }
    assert_int_equal(rfs_band_joins(&slices[0], &slices[1]), joined);
    const struct rfs_files_counters before = counted();
    make_ahead(assembler, slices);
    const struct rfs_files_counters made = counted();
    expect_slice(assembler, &slices[0], stacks[0], n);
    assert_int_equal(counted().bytes, made.bytes);
    expect_slice(assembler, &slices[1], stacks[1], n);
    if (joined) {
        assert_int_equal(counted().bytes, made.bytes);
        const uint64_t bytes = made.bytes - before.bytes;
        assert_true(bytes * 7 <= (slices[0].bytes + slices[1].bytes) * 8);
        const uint64_t calls = after > row / 8 ? n * rows : bytes / (128 * KIB) + n;
        assert_true(made.reads - before.reads <= calls + 2 * world.entry[0].extent_count);
    } else {
        assert_true(counted().bytes > made.bytes);
    }
    blocks[1][0].content.plus = 1; /* to the columns of one slice alone */
    assert_false(rfs_band_joins(&slices[0], &slices[1]));
    rfs_assembler_free(assembler);
}

static void test_beside(void **state)
{
    struct rfs_pool *pool = rfs_pool_new(2);

    (void)state;
    assert_non_null(pool);
    for (unsigned i = 0; i < 20; i++) {
        const uint64_t item = UINT64_C(1) << random_below(&rng, 4);
        const uint64_t cols[] = {random_in(&rng, 64, 2000) / item,
                                 random_in(&rng, 64, 2000) / item};
        const uint64_t rows = random_in(&rng, 500, 2500);
        const uint64_t after = random_below(&rng, 2) * random_in(&rng, 1, 300) * item;
        const uint64_t gap = random_below(&rng, 3) ? 0 : random_in(&rng, 1, 9) * item;
        check_beside(pool, item, (size_t)random_in(&rng, 1, 2), rows, cols, gap, after, gap == 0);
    }
    /* Experts' gate and up, as large as a band; wider rows than a tile holds. */
    check_beside(pool, 2, 1, 2048, (uint64_t[]){2048, 2048}, 0, 0, true);
    check_beside(pool, 2, 1, 1000, (uint64_t[]){2049, 2048}, 0, 0, false);
    rfs_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next),         cmocka_unit_test(test_next_of_any),
        cmocka_unit_test(test_any),          cmocka_unit_test(test_costs),
        cmocka_unit_test(test_rows_in_turn), cmocka_unit_test(test_beside),
    };
    rng = random_start();
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
