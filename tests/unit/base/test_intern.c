/* SPDX-License-Identifier: Apache-2.0 */
#include "base/intern.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_ids_in_order_of_appearance(void **state)
{
    struct rfs_intern *table = rfs_intern_new();

    (void)state;
    assert_non_null(table);
    assert_int_equal(rfs_intern_count(table), 0);
    assert_int_equal(rfs_intern_find(table, "a", 1), RFS_NO_ID);
    assert_int_equal(rfs_intern_add(table, "a", 1), 0);
    assert_int_equal(rfs_intern_add(table, "b", 1), 1);
    assert_int_equal(rfs_intern_add(table, "a", 1), 0);
    assert_int_equal(rfs_intern_add(table, "ab", 2), 2);
    assert_int_equal(rfs_intern_add(table, "", 0), 3);
    assert_int_equal(rfs_intern_find(table, "b", 1), 1);
    assert_int_equal(rfs_intern_find(table, "", 0), 3);
    assert_int_equal(rfs_intern_find(table, "c", 1), RFS_NO_ID);
    assert_int_equal(rfs_intern_count(table), 4);
    rfs_intern_free(table);
}

static void test_bytes_with_zeros(void **state)
{
    struct rfs_intern *table = rfs_intern_new();
    size_t length = 0;

    (void)state;
    assert_int_equal(rfs_intern_add(table, "a\0b", 3), 0);
    assert_int_equal(rfs_intern_add(table, "a\0c", 3), 1);
    assert_int_equal(rfs_intern_add(table, "a", 1), 2);
    assert_memory_equal(rfs_intern_bytes(table, 1, &length), "a\0c", 4);
    assert_int_equal(length, 3);
    assert_string_equal(rfs_intern_text(table, 2), "a");
    rfs_intern_free(table);
}

static void test_no_such_id(void **state)
{
    struct rfs_intern *table = rfs_intern_new();
    size_t length = 9;

    (void)state;
    assert_null(rfs_intern_bytes(table, 0, &length));
    assert_int_equal(length, 0);
    assert_null(rfs_intern_bytes(table, RFS_NO_ID, NULL));
    rfs_intern_free(table);
}

static int name_of(char *name, size_t cap, uint32_t i)
{
    return snprintf(name, cap, "decoder.blocks.%u.attention.weight", i);
}

static void test_many_at_their_cost(void **state)
{
    enum { MANY = 100000 };
    struct rfs_intern *table = rfs_intern_new();
    const void *first;
    size_t bytes = 0;
    char name[80];

    (void)state;
    assert_int_equal(rfs_intern_add(table, "first", 5), 0);
    first = rfs_intern_bytes(table, 0, NULL);
    for (uint32_t i = 1; i < MANY; i++) {
        const size_t length = (size_t)name_of(name, sizeof name, i);
        assert_int_equal(rfs_intern_add(table, name, length), i);
        bytes += length;
    }
    assert_ptr_equal(first, rfs_intern_bytes(table, 0, NULL)); /* nothing moved */
    for (uint32_t i = 1; i < MANY; i++) {
        const size_t length = (size_t)name_of(name, sizeof name, i);
        size_t got = 0;
        assert_int_equal(rfs_intern_find(table, name, length), i);
        assert_string_equal(rfs_intern_bytes(table, i, &got), name);
        assert_int_equal(got, length);
        assert_int_equal((uintptr_t)rfs_intern_text(table, i) % 8, 0);
    }
    /* items, slots, the rounding of the bytes, and what doubling leaves unused */
    assert_true(rfs_intern_memory(table) <= bytes + (size_t)MANY * (16 + 22 + 8 + 16));
    rfs_intern_free(table);
}

enum { THREADS = 4, NAMES = 5000 };

struct crowd {
    struct rfs_intern *table;
    uint32_t ids[THREADS][NAMES];
};

struct member {
    struct crowd *crowd;
    unsigned number;
    unsigned wrong;
};

/* All intern the same names, each from another start, and read each other's as they go. */
static void *intern_all(void *arg)
{
    struct member *m = arg;
    char name[80];

    for (uint32_t k = 0; k < NAMES; k++) {
        const uint32_t i = (k + m->number * (NAMES / THREADS)) % NAMES;
        const size_t length = (size_t)name_of(name, sizeof name, i);
        const uint32_t id = rfs_intern_add(m->crowd->table, name, length);

        m->crowd->ids[m->number][i] = id;
        if (id == RFS_NO_ID || strcmp(rfs_intern_text(m->crowd->table, id), name) != 0)
            m->wrong++;
        if (!rfs_intern_text(m->crowd->table, rfs_intern_count(m->crowd->table) - 1))
            m->wrong++;
    }
    return NULL;
}

static void test_from_many_threads(void **state)
{
    static struct crowd crowd;
    struct member members[THREADS];
    pthread_t threads[THREADS];

    (void)state;
    crowd.table = rfs_intern_new();
    for (unsigned t = 0; t < THREADS; t++) {
        members[t] = (struct member){&crowd, t, 0};
        assert_int_equal(pthread_create(&threads[t], NULL, intern_all, &members[t]), 0);
    }
    for (unsigned t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(rfs_intern_count(crowd.table), NAMES);
    for (unsigned t = 0; t < THREADS; t++) {
        assert_int_equal(members[t].wrong, 0);
        assert_memory_equal(crowd.ids[t], crowd.ids[0], sizeof crowd.ids[0]);
    }
    rfs_intern_free(crowd.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_in_order_of_appearance),
        cmocka_unit_test(test_bytes_with_zeros),
        cmocka_unit_test(test_no_such_id),
        cmocka_unit_test(test_many_at_their_cost),
        cmocka_unit_test(test_from_many_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
