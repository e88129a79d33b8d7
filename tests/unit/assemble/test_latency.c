/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When sources are slow, and how many reads at once storage of different kinds is found to reward.
 * No clock runs.
 */
#include "assemble/prefetch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)

static void test_fast_at_first_and_while_nothing_waits(void **state)
{
    struct rfs_latency latency = {0};
    (void)state;
    for (int i = 0; i < 1000; i++) {
        assert_false(rfs_latency_note(&latency, 0));
        assert_false(rfs_latency_is_slow(&latency));
    }
}

static void test_slow_after_two_long_waits_and_fast_after_some_reads(void **state)
{
    struct rfs_latency latency = {0};
    int fast = 0;
    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        assert_false(rfs_latency_note(
            &latency, 5000 * MS)); /* a hanging server counts no more than a slow one */
        assert_false(rfs_latency_is_slow(&latency)); /* once is nothing yet */
        assert_false(rfs_latency_note(&latency, 5000 * MS));
        assert_true(rfs_latency_is_slow(&latency));
        for (fast = 0; !rfs_latency_note(&latency, 0); fast++)
            assert_in_range(fast, 0, 12);
        assert_false(rfs_latency_is_slow(&latency));
        for (int i = 0; i < 20; i++)
            assert_false(rfs_latency_note(&latency, 0)); /* told once */
    }
    /* After many slow reads it takes hardly longer. */
    for (int i = 0; i < 1000; i++)
        rfs_latency_note(&latency, 2 * MS);
    for (fast = 0; !rfs_latency_note(&latency, 0); fast++)
        assert_in_range(fast, 0, 16);
}

static void test_short_waits_are_not_slow(void **state)
{
    struct rfs_latency latency = {0};
    (void)state;
    for (int i = 0; i < 1000; i++) {
        rfs_latency_note(&latency, i % 20 == 0 ? MS / 2 : 0);
        assert_false(rfs_latency_is_slow(&latency));
    }
}

/* Storage that answers after LATENCY, and gives at most RATE bytes a ms. */
struct storage {
    uint64_t latency;
    uint64_t rate; /* 0: as wide as one likes */
};

static void end_one(struct rfs_concurrency *concurrency, uint64_t now, uint64_t took,
                    uint64_t round_trip, bool starved)
{
    rfs_concurrency_note(concurrency, &(struct rfs_concurrency_end){.reads = 1,
                                                                    .bytes = MIB,
                                                                    .now = now,
                                                                    .took = took,
                                                                    .round_trip = round_trip,
                                                                    .starved = starved});
}

/* Reads as many at once as it says, in turn; the depth after N reads. */
static unsigned run(const struct storage *storage, struct rfs_concurrency *concurrency,
                    uint64_t *now, int n)
{
    for (int i = 0; i < n; i++) {
        /* The time between two answers with so many under way. */
        const uint64_t by_latency = storage->latency / concurrency->now;
        const uint64_t by_rate = storage->rate > 0 ? MIB * MS / storage->rate : 0;
        const uint64_t between = by_latency > by_rate ? by_latency : by_rate;
        *now += between;
        end_one(concurrency, *now, between * concurrency->now,
                concurrency->remote ? storage->latency : 0, false);
    }
    return concurrency->now;
}

static void test_concurrency_grows_where_it_is_rewarded(void **state)
{
    const struct storage wide = {.latency = 2 * MS};
    struct rfs_concurrency concurrency;
    uint64_t now = 1;
    (void)state;
    rfs_concurrency_init(&concurrency, false, 1000);
    assert_int_equal(concurrency.now, RFS_CONCURRENCY_LEAST);
    assert_int_equal(run(&wide, &concurrency, &now, 200), RFS_CONCURRENCY_MOST);
    for (int i = 0; i < 100; i++) /* and stays */
        assert_int_equal(run(&wide, &concurrency, &now, 50), RFS_CONCURRENCY_MOST);
}

static void test_concurrency_stays_where_it_is_not(void **state)
{
    /* 8 at once are all that it gives; then one that gives no more than 16. */
    for (unsigned best = RFS_CONCURRENCY_LEAST; best < RFS_CONCURRENCY_MOST; best *= 2) {
        const struct storage narrow = {.latency = 2 * MS, .rate = best * MIB / 2};
        struct rfs_concurrency concurrency;
        uint64_t now = 1;
        unsigned at_best = 0;
        (void)state;
        rfs_concurrency_init(&concurrency, false, 1000);
        run(&narrow, &concurrency, &now, 300);
        for (int i = 0; i < 1000; i++) {
            const unsigned d = run(&narrow, &concurrency, &now, 10);
            assert_true(d <= 2 * best); /* more is tried now and then */
            at_best += d == best;
        }
        assert_true(at_best > 700);
    }
}

/* Of object storage requests grow, as there are never more than so many. */
static void test_more_objects_at_once_where_all_of_them_wait(void **state)
{
    const struct storage wide = {.latency = 10 * MS};
    struct rfs_concurrency concurrency;
    uint64_t now = 1;
    (void)state;
    rfs_concurrency_init(&concurrency, true, 1000);
    assert_int_equal(concurrency.now, RFS_CONCURRENCY_REMOTE);
    assert_int_equal(rfs_concurrency_together(&concurrency), 1);
    /* After as many as were under way, and one more time as many, there are twice as many. */
    assert_int_equal(run(&wide, &concurrency, &now, 65), 2 * RFS_CONCURRENCY_REMOTE);
    assert_int_equal(run(&wide, &concurrency, &now, 256), 4 * RFS_CONCURRENCY_REMOTE);
    assert_int_equal(run(&wide, &concurrency, &now, 2000), RFS_CONCURRENCY_MOST_REMOTE);
    assert_int_equal(concurrency.requests, RFS_CONCURRENCY_REQUESTS);
    assert_int_equal(rfs_concurrency_together(&concurrency), 4);
}

static void test_the_first_answer_of_an_object_tells_how_many(void **state)
{
    const struct {
        uint64_t round_trip;
        unsigned at_once;
    } cases[] = {{1, 64}, {25 * MS, 64}, {50 * MS, 128}, {80 * MS, 256}, {1000 * MS, 256}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rfs_concurrency concurrency;
        rfs_concurrency_init(&concurrency, true, 1000);
        end_one(&concurrency, 1, cases[i].round_trip, cases[i].round_trip, true);
        assert_int_equal(concurrency.now, cases[i].at_once);
        assert_int_equal(concurrency.requests, RFS_CONCURRENCY_REQUESTS);
    }
}

/* Requests are as many as they may be, however little room there is. */
static void test_little_room_makes_small_requests(void **state)
{
    const struct storage wide = {.latency = 100 * MS};
    struct rfs_concurrency concurrency;
    uint64_t now = 1;
    (void)state;
    rfs_concurrency_init(&concurrency, true, 48);
    assert_int_equal(run(&wide, &concurrency, &now, 2000), 48);
    assert_int_equal(rfs_concurrency_together(&concurrency), 1);
    rfs_concurrency_init(&concurrency, true, 100);
    assert_int_equal(run(&wide, &concurrency, &now, 2000), 100);
    assert_int_equal(rfs_concurrency_together(&concurrency), 2);
}

/* A network that is full gets larger requests, and is not asked for more. */
static void test_fewer_and_larger_requests_to_a_busy_network(void **state)
{
    const struct storage full = {.latency = 2 * MS, .rate = MIB};
    const struct storage wide = {.latency = 50 * MS, .rate = 2 * MIB};
    struct rfs_concurrency concurrency;
    uint64_t now = 1;
    (void)state;
    rfs_concurrency_init(&concurrency, true, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(run(&full, &concurrency, &now, 50), RFS_CONCURRENCY_REMOTE);
    assert_int_equal(concurrency.requests, RFS_CONCURRENCY_FEWEST);
    assert_int_equal(rfs_concurrency_together(&concurrency), 4);
    /* Once answers take long to begin, there are many again. */
    run(&wide, &concurrency, &now, 200);
    assert_int_equal(concurrency.requests, RFS_CONCURRENCY_REQUESTS);
}

static void test_a_slow_reader_makes_no_more_requests(void **state)
{
    struct rfs_concurrency concurrency;
    (void)state;
    rfs_concurrency_init(&concurrency, true, 1000);
    for (uint64_t i = 1; i < 10000; i++) {
        end_one(&concurrency, i * MS, 10 * MS, 10 * MS, true);
        assert_int_equal(concurrency.now, RFS_CONCURRENCY_REMOTE);
    }
}

static void test_starved_rounds_say_nothing(void **state)
{
    struct rfs_concurrency concurrency;
    (void)state;
    rfs_concurrency_init(&concurrency, false, 1000);
    for (uint64_t i = 1; i < 1000; i++) {
        end_one(&concurrency, i * MS, MS, 0, i % 5 == 0);
        assert_int_equal(concurrency.now, RFS_CONCURRENCY_LEAST);
    }
}

static void test_a_clock_that_stands_still(void **state)
{
    struct rfs_concurrency concurrency;
    (void)state;
    rfs_concurrency_init(&concurrency, false, 1000);
    for (int i = 0; i < 1000; i++)
        end_one(&concurrency, 7, 0, 0, false);
    assert_int_equal(concurrency.now, RFS_CONCURRENCY_LEAST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_at_first_and_while_nothing_waits),
        cmocka_unit_test(test_slow_after_two_long_waits_and_fast_after_some_reads),
        cmocka_unit_test(test_short_waits_are_not_slow),
        cmocka_unit_test(test_concurrency_grows_where_it_is_rewarded),
        cmocka_unit_test(test_concurrency_stays_where_it_is_not),
        cmocka_unit_test(test_more_objects_at_once_where_all_of_them_wait),
        cmocka_unit_test(test_the_first_answer_of_an_object_tells_how_many),
        cmocka_unit_test(test_little_room_makes_small_requests),
        cmocka_unit_test(test_fewer_and_larger_requests_to_a_busy_network),
        cmocka_unit_test(test_a_slow_reader_makes_no_more_requests),
        cmocka_unit_test(test_starved_rounds_say_nothing),
        cmocka_unit_test(test_a_clock_that_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
