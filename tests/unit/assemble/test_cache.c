/* SPDX-License-Identifier: Apache-2.0 */
/* What stays in the cache of pieces and what goes. */
#include "assemble/cache.h"
#include "base/checked.h"
#include "tests/support/smaps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define PROBATION                                                                                  \
    (RFS_PROBATION_BYTES / MIB) /* pieces, or one less: each is charged a little more */

static struct rfs_cache_key key_of(uint64_t number)
{
    return (struct rfs_cache_key){{7, 9}, number};
}

/* Makes or finds the piece and reads it to its end. Whether it was there. */
static bool read_piece(struct rfs_cache *cache, uint64_t number)
{
    const struct rfs_cache_key key = key_of(number);
    struct rfs_cache_piece *piece;
    const int got = rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_MADE, &piece);
    assert_true(got == RFS_GOT_CLAIM || got == RFS_GOT_PIECE);
    if (got == RFS_GOT_CLAIM) {
        memset(piece->data, (int)number, MIB);
        rfs_cache_publish(cache, piece, 0);
    }
    assert_int_equal(piece->data[MIB - 1], number & 0xff);
    atomic_store(&piece->read_through, true);
    rfs_cache_unpin(cache, piece);
    return got == RFS_GOT_PIECE;
}

static bool is_there(struct rfs_cache *cache, uint64_t number)
{
    const struct rfs_cache_key key = key_of(number);
    struct rfs_cache_piece *piece;
    const int got = rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_PASSED, &piece);
    if (got == RFS_GOT_PIECE)
        rfs_cache_unpin(cache, piece);
    return got == RFS_GOT_PIECE;
}

static uint64_t bytes_of(struct rfs_cache *cache)
{
    struct rfs_cache_counters counters;
    rfs_cache_count(cache, &counters);
    return counters.bytes;
}

static void test_reading_through_stays_small(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 4 * PROBATION; i++)
        assert_false(read_piece(cache, i));
    assert_true(bytes_of(cache) <= RFS_PROBATION_BYTES + MIB);
    assert_false(is_there(cache, 0));
    assert_true(is_there(cache, 4 * PROBATION - 1));
    rfs_cache_free(cache);
}

static void test_what_is_shared_outlives_a_scan(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    (void)state;
    assert_non_null(cache);
    for (uint64_t round = 0; round < 2; round++)
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(read_piece(cache, i), round == 1);
    for (uint64_t i = 1000; i < 1000 + 4 * PROBATION; i++)
        read_piece(cache, i);
    for (uint64_t i = 0; i < 10; i++)
        assert_true(is_there(cache, i));
    rfs_cache_free(cache);
}

/*
 * Three ranks share ten pieces, and each reads twenty of its own: more than the budget in all, and
 * each rank's more than what LRU would leave for the shared ones. Then somebody reads ten times the
 * budget once.
 */
static void test_a_scan_larger_than_the_budget(void **state)
{
    const uint64_t budget = 24 * MIB + MIB / 2;
    struct rfs_cache *cache = rfs_cache_new(budget);
    struct rfs_cache_counters counters;
    uint64_t hits = 0;
    (void)state;
    assert_non_null(cache);
    for (uint64_t rank = 0; rank < 3; rank++) {
        for (uint64_t i = 0; i < 10; i++)
            hits += read_piece(cache, i);
        for (uint64_t i = 0; i < 20; i++)
            hits += read_piece(cache, 100 * (rank + 1) + i);
        assert_true(bytes_of(cache) <= budget);
    }
    assert_int_equal(hits, 10); /* the third rank's; LRU: none */
    for (uint64_t i = 1000; i < 1000 + 240; i++)
        assert_false(read_piece(cache, i));
    rfs_cache_count(cache, &counters);
    assert_int_equal(counters.misses, 80 + 240);
    assert_int_equal(counters.inserts, counters.misses);
    assert_int_equal(counters.regrets, 10); /* the second rank's */
    assert_in_range(counters.evictions, counters.inserts - 24, counters.inserts - 10);
    for (uint64_t i = 0; i < 10; i++)
        assert_true(is_there(cache, i));
    rfs_cache_free(cache);
}

/*
 * Of what is read over and over, and is larger than the budget, a part is there each time; by LRU
 * nothing is.
 */
static void test_a_loop_larger_than_the_budget(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(64 * MIB);
    (void)state;
    assert_non_null(cache);
    for (uint64_t round = 0; round < 6; round++) {
        uint64_t hits = 0;
        for (uint64_t i = 0; i < 100; i++)
            hits += read_piece(cache, i);
        assert_true(hits <= 64);
        assert_true(round < 2 ? hits == 0 : hits >= 30);
    }
    rfs_cache_free(cache);
}

/* What is not asked for any more makes room for what is. */
static void test_protected_pieces_are_not_for_ever(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(64 * MIB);
    uint64_t hits = 0;
    (void)state;
    assert_non_null(cache);
    for (uint64_t round = 0; round < 2; round++)
        for (uint64_t i = 0; i < 60; i++)
            read_piece(cache, i);
    for (uint64_t round = 0; round < 4; round++)
        for (uint64_t i = 1000; i < 1040; i++)
            hits += read_piece(cache, i);
    assert_true(hits >= 60); /* of the last two rounds, three quarters at least */
    rfs_cache_free(cache);
}

/*
 * A second reader that comes a little too late makes pieces on probation stay longer; without one
 * they go soon again.
 */
static void test_a_reader_that_lags(void **state)
{
    const uint64_t lag = 2 * PROBATION;
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    uint64_t hits = 0;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 10 * PROBATION; i++) {
        read_piece(cache, i);
        hits += i >= lag && read_piece(cache, i - lag);
    }
    assert_true(hits >= 6 * PROBATION - 4); /* of eight times; the first that lag behind are lost */
    const uint64_t before = bytes_of(cache);
    for (uint64_t i = 1000; i < 1000 + 64 * PROBATION; i++)
        read_piece(cache, i);
    assert_true(bytes_of(cache) <= before);
    for (uint64_t i = 1000; i < 1000 + 63 * PROBATION; i++)
        assert_false(is_there(cache, i));
    rfs_cache_free(cache);
}

static void test_protected_pieces_fill_the_budget_and_no_more(void **state)
{
    const uint64_t budget = 100 * MIB + MIB / 2;
    struct rfs_cache *cache = rfs_cache_new(budget);
    uint64_t left = 0;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 150; i++) {
        read_piece(cache, i);
        read_piece(cache, i);
        assert_true(bytes_of(cache) <= budget);
    }
    for (uint64_t i = 0; i < 150; i++)
        left += is_there(cache, i);
    assert_in_range(left, 99, 100);
    assert_false(is_there(cache, 0)); /* the least recently used went */
    assert_true(is_there(cache, 149));
    rfs_cache_free(cache);
}

static void test_what_is_read_over_and_over_stays(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    (void)state;
    assert_non_null(cache);
    for (uint64_t round = 0; round < 3; round++) {
        uint64_t there = 0;
        for (uint64_t i = 0; i < 4 * PROBATION; i++)
            there += read_piece(cache, i);
        const uint64_t most[] = {0, PROBATION, 4 * PROBATION};
        assert_true(there <= most[round]); /* first none, then the last few at most, then all */
        assert_true(round < 2 || there == 4 * PROBATION);
    }
    rfs_cache_free(cache);
}

/* Pieces that nobody has read yet are not on probation: many readers can be read ahead of. */
static void test_what_waits_for_its_reader_stays(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    struct rfs_cache_piece *piece;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 4 * PROBATION; i++) {
        const struct rfs_cache_key key = key_of(i);
        assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, &piece),
                         RFS_GOT_CLAIM);
        piece->passing = i % 2;
        rfs_cache_publish(cache, piece, 0);
        rfs_cache_unpin(cache, piece);
    }
    for (uint64_t i = 1000; i < 1000 + 4 * PROBATION; i++)
        read_piece(cache, i);
    for (uint64_t i = 0; i < 4 * PROBATION; i++)
        assert_true(is_there(cache, i));
    rfs_cache_free(cache);
}

static void test_reading_ahead_survives_a_full_cache(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(64 * MIB);
    struct rfs_cache_piece *piece;
    (void)state;
    assert_non_null(cache);
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 8 * PROBATION; i++) {
            const struct rfs_cache_key key = key_of(i + 4); /* four ahead of the reader */
            if (rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, &piece) == RFS_GOT_CLAIM) {
                memset(piece->data, (int)key.number, MIB);
                rfs_cache_publish(cache, piece, 0);
                rfs_cache_unpin(cache, piece);
            }
            const bool there = read_piece(cache, i);
            assert_true(there || i < 4);
        }
    }
    rfs_cache_free(cache);
}

static void test_a_passing_piece_goes_when_it_was_read(void **state)
{
    const struct rfs_cache_key key = key_of(1);
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    struct rfs_cache_piece *piece;
    struct rfs_cache_piece *same;
    (void)state;
    assert_non_null(cache);
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, &piece), RFS_GOT_CLAIM);
    piece->passing = true;
    rfs_cache_publish(cache, piece, 0);
    rfs_cache_unpin(cache, piece);
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_PASSED, &piece), RFS_GOT_PIECE);
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_PASSED, &same), RFS_GOT_PIECE);
    assert_ptr_equal(piece, same);
    atomic_store(&piece->read_through, true);
    rfs_cache_unpin(cache, piece);
    memset(same->data, 1, MIB); /* another reader still holds it */
    rfs_cache_unpin(cache, same);
    assert_false(is_there(cache, 1));
    rfs_cache_free(cache);
}

/* Of a piece; many are short, few need a slot. */
static size_t size_of(uint64_t number)
{
    const uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    return (size_t)(1 + mixed % (number % 2 ? 64 << 10 : MIB));
}

static uint64_t resident(void)
{
    unsigned long all = 0;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &all, &pages), 2);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Marks all pages of the piece, or finds the marks of who made it. */
static void use_piece(struct rfs_cache_piece *piece, uint64_t number, bool made)
{
    for (size_t at = 0; at < piece->size; at += 4096) {
        if (made)
            memcpy(piece->data + at, &number, rfs_min_u64(sizeof number, piece->size - at));
        else
            assert_memory_equal(piece->data + at, &number,
                                rfs_min_u64(sizeof number, piece->size - at));
    }
}

/*
 * However pieces of all sizes come and go, some of them in use: they have their bytes, and no more
 * than the budget.
 */
static void test_pieces_of_all_sizes(void **state)
{
    const uint64_t budget = 24 * MIB + MIB / 2;
    struct rfs_cache_piece *held[4] = {0};
    const uint64_t before = resident();
    struct rfs_cache *cache = rfs_cache_new(budget);
    uint64_t most = 0;
    uint64_t hits = 0;
    uint64_t dice = 1;
    (void)state;
    assert_non_null(cache);
    for (unsigned i = 0; i < 40000; i++) {
        struct rfs_cache_piece *piece;
        dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint64_t number = (dice >> 33) % 300 + (i / 20000 ? 150 : 0);
        const struct rfs_cache_key key = key_of(number);
        struct rfs_cache_piece **place = &held[dice >> 62];
        if (*place)
            rfs_cache_unpin(cache, *place);
        *place = NULL;
        const int got = rfs_cache_get(cache, &key, size_of(number), 1, RFS_WANT_MADE, &piece);
        assert_true(got == RFS_GOT_CLAIM || got == RFS_GOT_PIECE);
        use_piece(piece, number, got == RFS_GOT_CLAIM);
        if (got == RFS_GOT_CLAIM)
            rfs_cache_publish(cache, piece, 0);
        hits += got == RFS_GOT_PIECE;
        atomic_store(&piece->read_through, true);
        *place = piece;
        assert_true(bytes_of(cache) <= budget);
        if (i % 500 == 0)
            most = rfs_max_u64(most, resident());
    }
    assert_true(hits > 5000); /* of half of the pieces there is room */
    assert_true(SMAPS_NO_LOCKS || most - before <= budget + MIB);
    for (size_t i = 0; i < 4; i++)
        if (held[i])
            rfs_cache_unpin(cache, held[i]);
    rfs_cache_free(cache);
}

/* A piece of an eighth of a slot that is made ahead for somebody, or read to its end. */
static void make_eighth(struct rfs_cache *cache, uint64_t number, bool ahead)
{
    const struct rfs_cache_key key = key_of(number);
    struct rfs_cache_piece *piece;
    assert_int_equal(
        rfs_cache_get(cache, &key, MIB / 8, 1, ahead ? RFS_WANT_ABSENT : RFS_WANT_MADE, &piece),
        RFS_GOT_CLAIM);
    rfs_cache_publish(cache, piece, 0);
    atomic_store(&piece->read_through, !ahead);
    rfs_cache_unpin(cache, piece);
}

/*
 * Room for a whole slot is not made of the one in which pieces wait for their readers, while there
 * are others.
 */
static void test_what_waits_in_a_cut_slot_stays(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(8 * MIB + MIB / 2);
    struct rfs_cache_counters counters;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 8; i++)
        make_eighth(cache, i, i % 2);
    for (uint64_t i = 100; i < 110; i++)
        assert_false(read_piece(cache, i));
    rfs_cache_count(cache, &counters);
    assert_int_equal(counters.unread, 0);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(is_there(cache, i), i % 2);
    assert_true(bytes_of(cache) <= 8 * MIB + MIB / 2);
    rfs_cache_free(cache);
}

/* But when readers that never come have left a quarter of the budget, it is. */
static void test_what_waits_in_vain_goes_with_its_slot(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(4 * MIB + MIB / 2);
    struct rfs_cache_counters counters;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 16; i++)
        make_eighth(cache, i, true);
    for (uint64_t i = 100; i < 105; i++)
        assert_false(read_piece(cache, i));
    rfs_cache_count(cache, &counters);
    assert_in_range(counters.unread, 1, 8);
    rfs_cache_free(cache);
}

/*
 * Short pieces that wait, one in each slot: neither does all beside them go for one slot, nor are
 * slots lost by them.
 */
static void test_what_waits_in_every_slot(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(64 * MIB + MIB / 2);
    unsigned stayed = 0;
    unsigned hits = 0;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 504; i++) {
        make_eighth(cache, i, i % 8 == 7);
        if (i % 8 != 7)
            assert_true(is_there(cache, i)); /* and is protected now */
    }
    for (uint64_t i = 1000; i < 1004; i++)
        assert_false(read_piece(cache, i));
    for (uint64_t i = 0; i < 504; i++)
        stayed += is_there(cache, i);
    assert_in_range(stayed, 440, 504);
    for (unsigned round = 0; round < 4; round++)
        for (uint64_t i = 1000; i < 1032; i++)
            hits += read_piece(cache, i) && round == 3;
    assert_int_equal(hits, 32);
    rfs_cache_free(cache);
}

/* What is secret is guarded as long as it has memory; what is too short for a slot is not kept. */
static void test_secret_pieces(void **state)
{
    struct rfs_secret secret = {0};
    struct rfs_cache *cache = rfs_cache_new(8 * MIB);
    struct rfs_cache_piece *piece;
    (void)state;
    assert_non_null(cache);
    rfs_cache_keep_secret(cache, &secret);
    for (uint64_t i = 0; i < 20; i++) {
        const struct rfs_cache_key key = key_of(i);
        const size_t size = i % 2 ? MIB : RFS_SECRET_LEAST;
        assert_int_equal(rfs_cache_get(cache, &key, size, 1, RFS_WANT_MADE, &piece), RFS_GOT_CLAIM);
        assert_true(smaps_has(piece->data, "dd"));
        assert_true(smaps_has(piece->data, "lo") || atomic_load(&secret.logged));
        memset(piece->data, 1, size);
        rfs_cache_publish(cache, piece, 0);
        rfs_cache_unpin(cache, piece);
        assert_true(bytes_of(cache) <= 8 * MIB);
    }
    const struct rfs_cache_key key = key_of(99);
    assert_int_equal(rfs_cache_get(cache, &key, RFS_SECRET_LEAST - 1, 1, RFS_WANT_MADE, &piece),
                     RFS_GOT_NOTHING);
    rfs_cache_free(cache);
}

/* Room for two slots and no piece: making one gives a warm slot back to the system. */
static void test_secret_slots_are_wiped(void **state)
{
    struct rfs_secret secret = {0};
    struct rfs_cache *cache = rfs_cache_new(2 * MIB + 16);
    struct rfs_cache_piece *piece;
    const struct rfs_cache_key key = key_of(0);
    (void)state;
    assert_non_null(cache);
    rfs_cache_keep_secret(cache, &secret);
    unsigned char *other = rfs_cache_take_room(cache);
    unsigned char *data = rfs_cache_take_room(cache);
    assert_true(other && data);
    memset(data, 1, MIB);
    assert_true(smaps_has(data, "lo") || atomic_load(&secret.logged));
    rfs_cache_give_room(cache, other);
    rfs_cache_give_room(cache, data);
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_MADE, &piece), RFS_GOT_CLAIM);
    assert_ptr_equal(piece->data, other);
    assert_true(SMAPS_NO_LOCKS || !smaps_has(data, "lo"));
    for (size_t i = 0; i < MIB; i++)
        assert_int_equal(data[i], 0);
    rfs_cache_publish(cache, piece, RFS_PUBLISH_NOTHING);
    rfs_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading_through_stays_small),
        cmocka_unit_test(test_what_is_shared_outlives_a_scan),
        cmocka_unit_test(test_a_scan_larger_than_the_budget),
        cmocka_unit_test(test_a_loop_larger_than_the_budget),
        cmocka_unit_test(test_protected_pieces_are_not_for_ever),
        cmocka_unit_test(test_a_reader_that_lags),
        cmocka_unit_test(test_protected_pieces_fill_the_budget_and_no_more),
        cmocka_unit_test(test_what_is_read_over_and_over_stays),
        cmocka_unit_test(test_what_waits_for_its_reader_stays),
        cmocka_unit_test(test_reading_ahead_survives_a_full_cache),
        cmocka_unit_test(test_a_passing_piece_goes_when_it_was_read),
        cmocka_unit_test(test_pieces_of_all_sizes),
        cmocka_unit_test(test_what_waits_in_a_cut_slot_stays),
        cmocka_unit_test(test_what_waits_in_vain_goes_with_its_slot),
        cmocka_unit_test(test_what_waits_in_every_slot),
        cmocka_unit_test(test_secret_pieces),
        cmocka_unit_test(test_secret_slots_are_wiped),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
