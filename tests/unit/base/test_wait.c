/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

/* What took long is waiting only if the thread gave the processor up, and did not compute. */
static void test_is_one(void **state)
{
    (void)state;
    assert_true(rfs_wait_is_one(4000, 0, 1));
    assert_true(rfs_wait_is_one(4000, 2999, 7));
    assert_false(rfs_wait_is_one(4000, 3000, 7));
    assert_false(rfs_wait_is_one(4000, 0, 0));
    /* The system counts what a thread computes in larger units. */
    assert_false(rfs_wait_is_one(4000, 9000, 1));
    assert_false(rfs_wait_is_one(0, 0, 1));
    assert_true(rfs_wait_is_one(UINT64_MAX, UINT64_MAX / 2, 1));
}

/* A thread that sleeps waits, for at least as long. */
static void test_sleep(void **state)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    struct rfs_wait wait = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        rfs_wait_begin(&wait);
        nanosleep(&ms, NULL);
        assert_true(rfs_wait_end(&wait, RFS_WAIT_LEAST) >= 1000000);
    }
    rfs_wait_begin(&wait);
    nanosleep(&ms, NULL);
    assert_int_equal(rfs_wait_end(&wait, UINT64_MAX), 0);
}

/* A thread that computes does not wait, however long it takes. */
static void test_compute(void **state)
{
    struct rfs_wait wait = {0};
    const uint64_t begin = rfs_wait_now();

    (void)state;
    rfs_wait_begin(&wait);
    while (rfs_wait_now() - begin < 2 * RFS_WAIT_LEAST)
        ;
    assert_int_equal(rfs_wait_end(&wait, RFS_WAIT_LEAST), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_one),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
