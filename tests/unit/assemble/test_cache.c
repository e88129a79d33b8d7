/* SPDX-License-Identifier: Apache-2.0 */
/* What stays in the cache of pieces and what goes. */
#include "assemble/cache.h"
#include "base/checked.h"
#include "tests/support/smaps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define ONCE (RFS_CACHE_READ_BYTES / MIB) /* pieces, or one less: each is charged a little more */

static struct rfs_cache_key key_of(uint64_t number)
{
    return (struct rfs_cache_key){{7, 9}, number};
}

/* Makes or finds the piece and reads it to its end. Whether it was there. */
static bool read_piece(struct rfs_cache *cache, uint64_t number)
{
    const struct rfs_cache_key key = key_of(number);
    struct rfs_cache_piece *piece;
    const int got = rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_MADE, NULL, &piece);
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
    const int got = rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_PASSED, NULL, &piece);
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
    for (uint64_t i = 0; i < 4 * ONCE; i++)
        assert_false(read_piece(cache, i));
    assert_true(bytes_of(cache) <= RFS_CACHE_READ_BYTES + MIB);
    assert_false(is_there(cache, 0));
    assert_true(is_there(cache, 4 * ONCE - 1));
    rfs_cache_free(cache);
}

/* A second reader that comes a little too late makes what was read stay longer. */
static void test_a_reader_that_lags(void **state)
{
    const uint64_t lag = 2 * ONCE;
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    struct rfs_cache_counters counters;
    uint64_t hits = 0;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 10 * ONCE; i++) {
        read_piece(cache, i);
        hits += i >= lag && read_piece(cache, i - lag);
    }
    assert_true(hits >= 6 * ONCE - 4); /* of eight times; the first that lag behind are lost */
    rfs_cache_count(cache, &counters);
    assert_int_equal(counters.regrets, 8 * ONCE - hits);
    for (uint64_t i = 1000; i < 1000 + 64 * ONCE; i++)
        read_piece(cache, i);
    assert_true(bytes_of(cache) <= RFS_CACHE_READ_BYTES + 2 * counters.regrets * (MIB + 4096));
    rfs_cache_free(cache);
}

/* What is larger than the budget fills it, and the least recently used goes. */
static void test_the_budget_is_filled_and_no_more(void **state)
{
    const uint64_t budget = 100 * MIB + MIB / 2;
    struct rfs_cache *cache = rfs_cache_new(budget);
    uint64_t left = 0;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 3 * 150; i++) {
        read_piece(cache, i % 150);
        assert_true(bytes_of(cache) <= budget);
    }
    assert_true(read_piece(cache, 60));
    for (uint64_t i = 1000; i < 1090; i++)
        read_piece(cache, i);
    assert_true(is_there(cache, 60)); /* used more recently than others that were made later */
    assert_false(is_there(cache, 61));
    for (uint64_t i = 0; i < 2000; i++)
        left += is_there(cache, i);
    assert_in_range(left, 99, 100);
    rfs_cache_free(cache);
}

/* A smaller budget drops what is beyond it, and a larger one comes back up to the first. */
static void test_another_budget(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(100 * MIB);
    const struct rfs_cache_key key = key_of(7);
    struct rfs_cache_piece *held;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 300; i++)
        read_piece(cache, i % 60);
    assert_true(bytes_of(cache) > 50 * MIB);
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_MADE, NULL, &held), RFS_GOT_PIECE);
    rfs_cache_limit(cache, 10 * MIB);
    assert_true(bytes_of(cache) <= 10 * MIB);
    rfs_cache_limit(cache, MIB / 2);
    assert_true(bytes_of(cache) <= 2 * MIB);
    assert_int_equal(held->data[MIB - 1], 7);
    rfs_cache_unpin(cache, held);
    rfs_cache_limit(cache, 1000 * MIB);
    for (uint64_t i = 0; i < 1000; i++) {
        read_piece(cache, i % 120);
        assert_true(bytes_of(cache) <= 100 * MIB);
    }
    assert_true(bytes_of(cache) > 50 * MIB);
    rfs_cache_free(cache);
}

static void test_what_is_read_over_and_over_stays(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    (void)state;
    assert_non_null(cache);
    for (uint64_t round = 0; round < 3; round++) {
        uint64_t there = 0;
        for (uint64_t i = 0; i < 4 * ONCE; i++)
            there += read_piece(cache, i);
        const uint64_t most[] = {0, ONCE, 4 * ONCE};
        assert_true(there <= most[round]); /* first none, then the last few at most, then all */
        assert_true(round < 2 || there == 4 * ONCE);
    }
    rfs_cache_free(cache);
}

/* Pieces that nobody has read yet do not count as read: many readers can be read ahead of. */
static void test_what_waits_for_its_reader_stays(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    struct rfs_cache_piece *piece;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 4 * ONCE; i++) {
        const struct rfs_cache_key key = key_of(i);
        assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, NULL, &piece),
                         RFS_GOT_CLAIM);
        piece->passing = i % 2;
        rfs_cache_publish(cache, piece, 0);
        rfs_cache_unpin(cache, piece);
    }
    for (uint64_t i = 1000; i < 1000 + 4 * ONCE; i++)
        read_piece(cache, i);
    for (uint64_t i = 0; i < 4 * ONCE; i++)
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
        for (uint64_t i = 0; i < 8 * ONCE; i++) {
            const struct rfs_cache_key key = key_of(i + 4); /* four ahead of the reader */
            if (rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, NULL, &piece) ==
                RFS_GOT_CLAIM) {
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
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, NULL, &piece),
                     RFS_GOT_CLAIM);
    piece->passing = true;
    rfs_cache_publish(cache, piece, 0);
    rfs_cache_unpin(cache, piece);
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_PASSED, NULL, &piece),
                     RFS_GOT_PIECE);
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_PASSED, NULL, &same),
                     RFS_GOT_PIECE);
    assert_ptr_equal(piece, same);
    atomic_store(&piece->read_through, true);
    rfs_cache_unpin(cache, piece);
    memset(same->data, 1, MIB); /* another reader still holds it */
    rfs_cache_unpin(cache, same);
    assert_false(is_there(cache, 1));
    rfs_cache_free(cache);
}

/* Of a piece; many are short. */
static size_t size_of(uint64_t number)
{
    const uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    return (size_t)(1 + mixed % (number % 2 ? 64 << 10 : MIB));
}

static uint64_t resident(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    assert_non_null(file);
    while (kib == 0 && fgets(line, sizeof line, file))
        (void)sscanf(line, "VmRSS: %lu kB", &kib);
    fclose(file);
    assert_true(kib > 0);
    return (uint64_t)kib * 1024;
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

static void test_a_piece_that_its_reader_passed_is_not_made_ahead(void **state)
{
    const struct rfs_cache_key key = key_of(1);
    struct rfs_cache *cache = rfs_cache_new(1024 * MIB);
    struct rfs_cache_piece *piece;
    atomic_bool passed = true;
    (void)state;
    assert_non_null(cache);
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, &passed, &piece),
                     RFS_GOT_NOTHING);
    assert_null(piece);
    assert_false(is_there(cache, 1));
    passed = false;
    assert_int_equal(rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, &passed, &piece),
                     RFS_GOT_CLAIM);
    rfs_cache_publish(cache, piece, 0);
    rfs_cache_unpin(cache, piece);
    assert_true(is_there(cache, 1));
    rfs_cache_free(cache);
}

/*
 * However pieces of all sizes come and go, some of them in use: they have their bytes, and no more
 * than the budget.
 */
static void test_pieces_of_all_sizes(void **state)
{
    const uint64_t budget = 24 * MIB + MIB / 2;
    struct rfs_cache_piece *held[4] = {0};
    /*
     * The system may fill a huge page when a part of it is used, long after the rest was released.
     */
    const int huge = prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
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
        const int got = rfs_cache_get(cache, &key, size_of(number), 1, RFS_WANT_MADE, NULL, &piece);
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
    assert_int_equal(huge, 0);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
}

/* When readers that never come have left a quarter of the budget, what waits for them goes. */
static void test_what_waits_in_vain_goes(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(16 * MIB + MIB / 2);
    struct rfs_cache_counters counters;
    struct rfs_cache_piece *piece;
    unsigned claims = 0;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 160; i++) {
        const struct rfs_cache_key key = key_of(i);
        if (rfs_cache_get(cache, &key, MIB, 1, RFS_WANT_ABSENT, NULL, &piece) == RFS_GOT_CLAIM) {
            rfs_cache_publish(cache, piece, 0);
            rfs_cache_unpin(cache, piece);
            claims++;
        }
    }
    assert_in_range(claims, 16 + 8, 16 + 9); /* one in sixteen that find no room */
    for (uint64_t i = 1000; i < 1040; i++)
        assert_false(read_piece(cache, i));
    rfs_cache_count(cache, &counters);
    assert_int_equal(counters.unread, claims - 4); /* a quarter of the budget */
    assert_true(counters.bytes <= 16 * MIB + MIB / 2);
    rfs_cache_free(cache);
}

/* Memory for others is counted, makes pieces go, and serves pieces again. */
static void test_rooms(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(4 * MIB + MIB / 2);
    unsigned char *rooms[4];
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 4; i++)
        assert_false(read_piece(cache, i));
    for (unsigned i = 0; i < 4; i++) {
        rooms[i] = rfs_cache_take_room(cache);
        assert_non_null(rooms[i]);
        memset(rooms[i], 1, MIB);
        assert_false(is_there(cache, i));
    }
    assert_null(rfs_cache_take_room(cache));
    assert_int_equal(bytes_of(cache), 4 * MIB);
    for (unsigned i = 0; i < 4; i++)
        rfs_cache_give_room(cache, rooms[i]);
    assert_int_equal(bytes_of(cache), 4 * MIB); /* it is spare */
    for (uint64_t round = 0; round < 2; round++)
        for (uint64_t i = 0; i < 4; i++)
            assert_int_equal(read_piece(cache, i), round == 1);
    rfs_cache_free(cache);
}

/* Content is for no core file, whatever its size. */
static void test_core_files(void **state)
{
    struct rfs_cache *cache = rfs_cache_new(8 * MIB);
    struct rfs_cache_piece *piece;
    (void)state;
    assert_non_null(cache);
    for (uint64_t i = 0; i < 4; i++) {
        const struct rfs_cache_key key = key_of(i);
        const size_t size = i % 2 ? MIB : 5000;
        assert_int_equal(rfs_cache_get(cache, &key, size, 1, RFS_WANT_MADE, NULL, &piece),
                         RFS_GOT_CLAIM);
        memset(piece->data, 1, size);
        assert_true(smaps_has(piece->data, "dd"));
        rfs_cache_publish(cache, piece, 0);
        rfs_cache_unpin(cache, piece);
    }
    rfs_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading_through_stays_small),
        cmocka_unit_test(test_a_reader_that_lags),
        cmocka_unit_test(test_the_budget_is_filled_and_no_more),
        cmocka_unit_test(test_another_budget),
        cmocka_unit_test(test_what_is_read_over_and_over_stays),
        cmocka_unit_test(test_what_waits_for_its_reader_stays),
        cmocka_unit_test(test_what_waits_in_vain_goes),
        cmocka_unit_test(test_reading_ahead_survives_a_full_cache),
        cmocka_unit_test(test_a_passing_piece_goes_when_it_was_read),
        cmocka_unit_test(test_a_piece_that_its_reader_passed_is_not_made_ahead),
        cmocka_unit_test(test_pieces_of_all_sizes),
        cmocka_unit_test(test_rooms),
        cmocka_unit_test(test_core_files),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
