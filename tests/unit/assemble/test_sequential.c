/* SPDX-License-Identifier: Apache-2.0 */
/* How much is read ahead of which reader. */
#include "assemble/sequential.h"

#include "tests/support/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

/*
 * Reads [from, to) in requests of STEP; where reading ahead has got to. *in_order: at the last one.
 */
static struct rfs_windows go(struct rfs_sequential *sequential, uint64_t from, uint64_t to,
                             uint64_t step, bool *in_order)
{
    struct rfs_windows sum = {0};
    for (uint64_t at = from; at < to; at += step) {
        struct rfs_windows ahead;
        *in_order = rfs_sequential_note(sequential, at, at + step, &ahead);
        if (ahead.kept.end > 0)
            sum.kept = ahead.kept;
        if (ahead.lent.end > 0)
            sum.lent = ahead.lent;
    }
    return sum;
}

static void test_as_much_as_was_read(void **state)
{
    struct rfs_sequential sequential = {0};
    bool in_order;

    (void)state;
    struct rfs_windows ahead = go(&sequential, 0, MIB, MIB, &in_order);
    assert_true(in_order);
    assert_int_equal(ahead.kept.begin, MIB);
    assert_int_equal(ahead.kept.end, 2 * MIB);
    assert_int_equal(ahead.lent.end, 0);
    ahead = go(&sequential, MIB, 16 * MIB, MIB, &in_order);
    assert_int_equal(ahead.kept.end, 16 * MIB + RFS_AHEAD_BYTES);
    assert_int_equal(ahead.lent.end, 16 * MIB + 16 * MIB / 10);
    ahead = go(&sequential, 16 * MIB, 64 * MIB, MIB, &in_order);
    assert_int_equal(ahead.kept.end, 64 * MIB + RFS_AHEAD_BYTES);
    assert_int_equal(ahead.lent.end, 64 * MIB + RFS_AHEAD_BYTES);
}

/*
 * Windows follow each other; a contiguous one begins a piece earlier, as that may not have fitted
 * before.
 */
static void test_windows_leave_nothing_out(void **state)
{
    struct rfs_sequential sequential = {0};
    uint64_t kept = 0;
    uint64_t lent = 0;

    (void)state;
    for (uint64_t at = 0; at < 100 * MIB; at += 4 * KIB) {
        struct rfs_windows ahead;
        rfs_sequential_note(&sequential, at, at + 4 * KIB, &ahead);
        if (ahead.kept.end > 0) {
            assert_int_equal(ahead.kept.begin, kept > at + 4 * KIB ? kept : at + 4 * KIB);
            kept = ahead.kept.end;
        }
        if (ahead.lent.end > 0) {
            assert_true(ahead.lent.begin <= lent - lent % MIB + 1 ||
                        ahead.lent.begin == at + 4 * KIB);
            lent = ahead.lent.end;
        }
    }
    assert_true(kept > 103 * MIB && lent > 103 * MIB);
}

static void test_a_jump_ends_it(void **state)
{
    struct rfs_sequential sequential = {0};
    bool in_order;

    (void)state;
    go(&sequential, 0, 64 * MIB, MIB, &in_order);
    struct rfs_windows ahead = go(&sequential, 100 * MIB, 101 * MIB, MIB, &in_order);
    assert_false(in_order);
    assert_int_equal(ahead.kept.end + ahead.lent.end, 0);
    ahead = go(&sequential, 101 * MIB, 102 * MIB, MIB, &in_order);
    assert_true(in_order);
    assert_int_equal(ahead.kept.end, 104 * MIB); /* as after 2 MiB */
    assert_int_equal(ahead.lent.end, 0);
}

/* A header, and then a tensor not far behind it. */
static void test_a_jump_over_more_than_was_read(void **state)
{
    struct rfs_sequential sequential = {0};
    bool in_order;

    (void)state;
    go(&sequential, 0, 16 * KIB, 8 * KIB, &in_order);
    go(&sequential, MIB, 2 * MIB, MIB, &in_order);
    assert_false(in_order);
    assert_int_equal(sequential.begin, MIB);
}

static void test_requests_out_of_order(void **state)
{
    struct rfs_sequential sequential = {0};
    struct rfs_windows ahead;
    uint64_t lent = 0;

    (void)state;
    for (uint64_t at = 0; at < 64 * MIB; at += 4 * MIB) {
        static const uint64_t order[] = {1, 0, 3, 2};
        for (unsigned i = 0; i < 4; i++) {
            const uint64_t from = at + order[i] * MIB;
            assert_int_equal(rfs_sequential_note(&sequential, from, from + MIB, &ahead),
                             from != MIB);
            lent = ahead.lent.end > 0 ? ahead.lent.end : lent;
        }
    }
    assert_int_equal(sequential.bytes, 64 * MIB);
    assert_int_equal(lent, 64 * MIB + RFS_AHEAD_BYTES);
}

/*
 * What is left out counts against a reader, so that one that picks here and there is not read ahead
 * of.
 */
static void test_holes(void **state)
{
    struct rfs_sequential sequential = {0};
    struct rfs_windows ahead;

    (void)state;
    for (uint64_t at = 0; at < 512 * MIB; at += 64 * KIB) {
        rfs_sequential_note(&sequential, at, at + 32 * KIB, &ahead);
        assert_int_equal(ahead.lent.end, 0);
    }
}

/* Whatever a reader does: a tenth of what it read bounds what was asked for beyond what it read. */
static void test_random_readers(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
    for (int reader = 0; reader < 200; reader++) {
        static unsigned char asked[256]; /* by MiB: pieces that were made */
        static unsigned char read[256];
        struct rfs_sequential sequential = {0};
        uint64_t bytes = 0;
        uint64_t at = 0;
        const uint32_t jumps = 1 + test_below(&seed, 100);
        for (unsigned i = 0; i < 256; i++)
            asked[i] = read[i] = 0;
        for (int k = 0; k < 400; k++) {
            struct rfs_windows ahead;
            if (test_below(&seed, jumps) == 0)
                at = test_below(&seed, 2) ? test_below(&seed, 240 * MIB)
                                          : at + test_below(&seed, 3 * MIB);
            const uint64_t size = 1 + test_below(&seed, MIB);
            if (at + size > 250 * MIB)
                at = 0;
            rfs_sequential_note(&sequential, at, at + size, &ahead);
            for (uint64_t p = (ahead.lent.begin + MIB - 1) / MIB; (p + 1) * MIB <= ahead.lent.end;
                 p++)
                asked[p] = 1;
            for (uint64_t p = at / MIB; p * MIB < at + size; p++)
                read[p] = 1;
            bytes += size;
            at += size;
        }
        uint64_t in_vain = 0;
        for (unsigned i = 0; i < 256; i++)
            in_vain += asked[i] && !read[i] ? MIB : 0;
        assert_true(in_vain <= bytes / RFS_AHEAD_SHARE);
    }
}

/* Returns the window of a read at OFFSET, which is staged. */
static struct rfs_window stage(struct rfs_sequential *sequential, uint64_t offset, uint64_t reach,
                               uint32_t sources, unsigned times)
{
    const struct rfs_window window =
        rfs_sequential_prefetch(sequential, offset, reach, sources, times);
    if (window.end > 0)
        rfs_sequential_staged(sequential, &window, true);
    return window;
}

/*
 * Of slow sources: as much as was read, up to what is worth it, in a few steps that leave nothing
 * out.
 */
static void test_slow_sources(void **state)
{
    const uint64_t reach = 16 * MIB;
    struct rfs_sequential sequential = {0};
    uint64_t asked = 0, steps = 0;

    (void)state;
    for (uint64_t at = 0; at < 256 * MIB; at += MIB) {
        struct rfs_windows ahead;
        if (!rfs_sequential_note(&sequential, at, at + MIB, &ahead))
            continue;
        const struct rfs_window window = stage(&sequential, at, reach, 1, 1);
        if (window.end > 0) {
            /* The first one has the read itself, so that its bytes do not come last. */
            assert_int_equal(window.begin, asked > at + MIB ? asked : at == 0 ? 0 : at + MIB);
            assert_true(window.end - (at + MIB) <= (at + MIB < reach ? at + MIB : reach));
            asked = window.end;
            steps++;
        }
        assert_true(asked > at + MIB);
        assert_true(at < 2 * reach || asked >= at + MIB + reach / 2);
    }
    assert_in_range(steps, 256 / 4 - 4, 256 / 4 + 16);
    struct rfs_windows ahead;
    assert_false(rfs_sequential_note(&sequential, 1000 * MIB, 1001 * MIB, &ahead)); /* it jumps */
    assert_true(rfs_sequential_note(&sequential, 1001 * MIB, 1002 * MIB, &ahead));
    const struct rfs_window window = stage(&sequential, 1001 * MIB, reach, 1, 1);
    assert_int_equal(window.begin, 1001 * MIB);
    assert_int_equal(window.end, 1004 * MIB);
}

/*
 * Asks for the windows of a read at OFFSET, which follow each other in steps of STEP from BEGIN on;
 * the last one may be shorter. Returns their end, or 0.
 */
static uint64_t ask(struct rfs_sequential *sequential, uint64_t offset, uint64_t reach,
                    uint32_t sources, uint64_t begin, uint64_t step)
{
    uint64_t end = 0;
    for (;;) {
        const struct rfs_window window =
            stage(sequential, offset, reach, sources, RFS_REMOTE_TIMES);
        if (window.end == 0)
            return end;
        assert_int_equal(window.begin, end > 0 ? end : begin);
        assert_true(window.end - window.begin <= step);
        assert_true(begin == offset || window.end - window.begin == step);
        end = window.end;
    }
}

/* The way to object storage is long: so much is read ahead that a few round trips are enough. */
static void test_object_storage(void **state)
{
    const uint64_t reach = 256 * MIB;
    struct rfs_sequential sequential = {0};
    uint64_t end = 0;
    unsigned trips = 0;

    (void)state;
    while (end < reach) {
        struct rfs_windows ahead;
        const uint64_t begin = end;
        /* What was read ahead has come, and is read. */
        const uint64_t to = end > 0 ? end : MIB;
        for (uint64_t at = sequential.end; at < to; at += MIB)
            rfs_sequential_note(&sequential, at, at + MIB, &ahead);
        end = ask(&sequential, to - MIB, reach, 4, begin, reach / RFS_REMOTE_TIMES);
        assert_true(end <= sequential.end + RFS_REMOTE_TIMES * sequential.bytes);
        assert_true(end > begin);
        trips++;
    }
    assert_int_equal(trips, 2);
    /* From then on in small steps, so that requests do not all end at the same time. */
    unsigned steps = 0;
    for (uint64_t at = sequential.end; at < 3 * reach; at += MIB) {
        struct rfs_windows ahead;
        rfs_sequential_note(&sequential, at, at + MIB, &ahead);
        steps += stage(&sequential, at, reach, 4, RFS_REMOTE_TIMES).end > 0;
    }
    assert_in_range(steps, 2 * RFS_REMOTE_TIMES, 3 * RFS_REMOTE_TIMES);
}

/* A step has a MiB of each source, as long as several steps are under way. */
static void test_many_sources(void **state)
{
    const uint64_t reach = 256 * MIB;
    const uint32_t sources[] = {4, 32, 1000};
    const uint64_t steps[] = {16 * MIB, 32 * MIB, 64 * MIB};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rfs_sequential sequential = {0};
        struct rfs_windows ahead;
        const uint64_t read = steps[i];
        rfs_sequential_note(&sequential, 0, read, &ahead);
        assert_int_equal(ask(&sequential, 0, reach, sources[i], 0, steps[i]), read + reach);
        rfs_sequential_note(&sequential, read, 2 * read - 1, &ahead);
        assert_int_equal(ask(&sequential, read, reach, sources[i], 0, steps[i]), 0);
        rfs_sequential_note(&sequential, 2 * read - 1, 2 * read, &ahead);
        const struct rfs_window window =
            stage(&sequential, 2 * read - 1, reach, sources[i], RFS_REMOTE_TIMES);
        assert_int_equal(window.begin, read + reach);
        assert_int_equal(window.end, read + reach + steps[i]);
    }
}

/* A window without room comes again, whatever other threads of the reader ask meanwhile. */
static void test_windows_without_room(void **state)
{
    const uint64_t reach = 256 * MIB;
    struct rfs_sequential sequential = {0};
    struct rfs_windows ahead;

    (void)state;
    rfs_sequential_note(&sequential, 0, 16 * MIB, &ahead);
    const struct rfs_window window =
        rfs_sequential_prefetch(&sequential, 0, reach, 4, RFS_REMOTE_TIMES);
    assert_int_equal(window.end, 16 * MIB);
    rfs_sequential_note(&sequential, 16 * MIB, 17 * MIB, &ahead);
    assert_int_equal(stage(&sequential, 16 * MIB, reach, 4, RFS_REMOTE_TIMES).end, 0);
    rfs_sequential_staged(&sequential, &window, false);
    const struct rfs_window again = stage(&sequential, 16 * MIB, reach, 4, RFS_REMOTE_TIMES);
    assert_int_equal(again.begin, 16 * MIB); /* what was read meanwhile is not wanted any more */
    assert_int_equal(again.end, 32 * MIB);
    assert_int_equal(stage(&sequential, 16 * MIB, reach, 4, RFS_REMOTE_TIMES).begin, 32 * MIB);
}

/* A thread asks, or has staged a window, when another one has already let the reader jump. */
static void test_jump_while_staging(void **state)
{
    const uint64_t reach = 64 * MIB;
    struct rfs_sequential sequential = {0};
    struct rfs_windows ahead;

    (void)state;
    rfs_sequential_note(&sequential, 0, MIB, &ahead);
    assert_true(rfs_sequential_note(&sequential, MIB, 2 * MIB, &ahead));
    const struct rfs_window window = rfs_sequential_prefetch(&sequential, MIB, reach, 4, 1);
    assert_true(window.end > 0);
    assert_false(rfs_sequential_note(&sequential, 900 * MIB, 901 * MIB, &ahead));
    assert_int_equal(stage(&sequential, MIB, reach, 4, 1).end, 0);
    const struct rfs_window next = rfs_sequential_prefetch(&sequential, 900 * MIB, reach, 4, 1);
    assert_int_equal(next.begin, 900 * MIB);
    rfs_sequential_staged(&sequential, &window, false);
    assert_int_equal(sequential.staged_to, next.end);
    assert_true(sequential.staging);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_much_as_was_read),
        cmocka_unit_test(test_windows_leave_nothing_out),
        cmocka_unit_test(test_a_jump_ends_it),
        cmocka_unit_test(test_a_jump_over_more_than_was_read),
        cmocka_unit_test(test_requests_out_of_order),
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_random_readers),
        cmocka_unit_test(test_slow_sources),
        cmocka_unit_test(test_object_storage),
        cmocka_unit_test(test_many_sources),
        cmocka_unit_test(test_windows_without_room),
        cmocka_unit_test(test_jump_while_staging),
    };
    return cmocka_run_group_tests_name("sequential", tests, NULL, NULL);
}
