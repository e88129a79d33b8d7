/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors, arenas, checked arithmetic and scoped clean-up. */
#include "base/arena.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/vec.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_checked(void **state)
{
    uint64_t u = 7;
    size_t s = 7;

    (void)state;
    assert_true(rfs_add_u64(UINT64_MAX - 1, 1, &u));
    assert_true(u == UINT64_MAX);
    assert_false(rfs_add_u64(UINT64_MAX, 1, &u));
    assert_true(rfs_mul_u64(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &u));
    assert_true(u == UINT64_MAX - UINT32_MAX);
    assert_false(rfs_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &u));
    assert_true(rfs_mul_size(SIZE_MAX, 1, &s) && s == SIZE_MAX);
    assert_false(rfs_mul_size(SIZE_MAX / 2 + 1, 2, &s));
    assert_false(rfs_add_size(SIZE_MAX, 1, &s));
    assert_true(rfs_min_u64(2, 3) == 2 && rfs_max_u64(2, 3) == 3);
}

static void test_vec(void **state)
{
    RFS_VEC(uint32_t) v = {0};

    (void)state;
    for (uint32_t i = 0; i < 10000; i++)
        assert_true(RFS_PUSH(&v, i * 3));
    assert_int_equal(v.n, 10000);
    assert_true(v.cap >= v.n);
    for (uint32_t i = 0; i < 10000; i++)
        assert_int_equal(v.data[i], i * 3);
    free(v.data);
}

static void test_vec_of_structs(void **state)
{
    struct pair {
        int a, b;
    };
    RFS_VEC(struct pair) v = {0};

    (void)state;
    assert_true(RFS_PUSH(&v, (struct pair){1, 2}));
    assert_int_equal(v.data[0].b, 2);
    free(v.data);
}

static void test_vec_refuses_what_can_not_be(void **state)
{
    int value = 5;
    void *data = &value;
    size_t cap = 1;

    (void)state;
    assert_false(rfs_vec_grow(&data, &cap, SIZE_MAX / 4, sizeof(uint64_t)));
    assert_false(rfs_vec_grow(&data, &cap, SIZE_MAX, 1));
    assert_ptr_equal(data, &value);
    assert_int_equal(cap, 1);
}

static void test_arena(void **state)
{
    struct rfs_arena arena = {0};
    unsigned char *objects[2000];
    size_t total = 0;

    (void)state;
    for (size_t i = 0; i < 2000; i++) {
        const size_t size = i % 100 == 99 ? 40000 : i % 97;
        objects[i] = rfs_arena_alloc(&arena, size);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % _Alignof(max_align_t), 0);
        memset(objects[i], (int)(i % 251), size);
        total += size;
    }
    for (size_t i = 0; i < 2000; i++) {
        const size_t size = i % 100 == 99 ? 40000 : i % 97;
        for (size_t k = 0; k < size; k++)
            assert_int_equal(objects[i][k], i % 251);
    }
    assert_true(arena.bytes >= total);
    assert_true(arena.bytes <= total + 2000 * 16 + (128 << 10));
    rfs_arena_free(&arena);
    assert_int_equal(arena.bytes, 0);
    assert_non_null(rfs_arena_alloc(&arena, 1)); /* it can be used again */
    rfs_arena_free(&arena);
}

static void test_arena_large_first_keeps_the_small_together(void **state)
{
    struct rfs_arena arena = {0};
    const char *a, *b;

    (void)state;
    assert_non_null(rfs_arena_alloc(&arena, 1 << 20));
    a = rfs_arena_alloc(&arena, 16);
    assert_non_null(rfs_arena_alloc(&arena, 1 << 20));
    b = rfs_arena_alloc(&arena, 16);
    assert_ptr_equal(a + 16, b);
    rfs_arena_free(&arena);
}

static void test_arena_impossible_sizes(void **state)
{
    struct rfs_arena arena = {0};

    (void)state;
    assert_null(rfs_arena_alloc(&arena, SIZE_MAX));
    assert_null(rfs_arena_alloc(&arena, SIZE_MAX - 64));
    assert_null(rfs_arena_text(&arena, "", SIZE_MAX));
    rfs_arena_free(&arena);
}

static void test_arena_text(void **state)
{
    struct rfs_arena arena = {0};

    (void)state;
    assert_string_equal(rfs_arena_text(&arena, "abcdef", 3), "abc");
    assert_string_equal(rfs_arena_text(&arena, NULL, 0), "");
    rfs_arena_free(&arena);
}

static int steal_all(char **out, int *out_fd)
{
    RFS_FREE char *text = strdup("kept");
    RFS_CLOSE int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    *out = RFS_STEAL(text);
    *out_fd = rfs_steal_fd(&fd);
    return text == NULL && fd == -1;
}

static int close_one(void)
{
    RFS_CLOSE int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    return fd;
}

static void test_arena_lists(void **state)
{
    struct rfs_arena arena = {0};
    RFS_VEC(uint32_t) list = {0};
    RFS_VEC(uint32_t) by_id = {0};

    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        RFS_ADD(&arena, &list, i);
        *RFS_ADD_AT(&arena, &by_id, i * 2, UINT32_MAX) = i;
    }
    assert_int_equal(list.n, 100000);
    assert_int_equal(by_id.n, 199999);
    for (uint32_t i = 0; i < 100000; i++) {
        assert_int_equal(list.data[i], i);
        assert_int_equal(by_id.data[i * 2], i);
        assert_true(i == 0 || by_id.data[i * 2 - 1] == UINT32_MAX);
    }
    assert_string_equal(rfs_arena_printf(&arena, "%s_%u", "rank", 7), "rank_7");
    const unsigned char *zeros = rfs_arena_zeros(&arena, 3, 1000);
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(zeros[i], 0);
    assert_false(arena.failed);
    rfs_arena_free(&arena);
}

static void test_arena_remembers_a_failure(void **state)
{
    struct rfs_arena arena = {0};
    RFS_VEC(uint32_t) list = {0};

    (void)state;
    assert_null(rfs_arena_zeros(&arena, SIZE_MAX / 2, 3));
    assert_true(arena.failed);
    assert_non_null(rfs_arena_text(&arena, "abc", 3)); /* what there is room for is still made */
    RFS_ADD(&arena, &list, 1);
    assert_int_equal(list.n, 1);
    assert_true(arena.failed);
    rfs_arena_free(&arena);
    assert_false(arena.failed);
}

static void test_cleanup(void **state)
{
    char *text = NULL;
    int fd = -1;

    (void)state;
    assert_true(steal_all(&text, &fd));
    assert_string_equal(text, "kept");
    assert_int_not_equal(fcntl(fd, F_GETFD), -1);
    free(text);
    close(fd);
    assert_int_equal(fcntl(close_one(), F_GETFD), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_vec),
        cmocka_unit_test(test_vec_of_structs),
        cmocka_unit_test(test_vec_refuses_what_can_not_be),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_large_first_keeps_the_small_together),
        cmocka_unit_test(test_arena_impossible_sizes),
        cmocka_unit_test(test_arena_text),
        cmocka_unit_test(test_arena_lists),
        cmocka_unit_test(test_arena_remembers_a_failure),
        cmocka_unit_test(test_cleanup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
