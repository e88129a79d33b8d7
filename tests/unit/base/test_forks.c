/* SPDX-License-Identifier: Apache-2.0 */
/* What belongs to the whole process, in children of a process whose other threads have taken it. */
#include "base/budget.h"
#include "base/secret.h"

#include <setjmp.h>
#include <stdarg.h>

#include "tests/support/forking.h"

/* Two shares at once have no room: threads wait, a child without handlers for one that it lacks. */
static bool take_a_share(void *ctx)
{
    const size_t most = RFS_BUDGET_SHARE_BYTES;
    size_t share = 0;

    (void)ctx;
    if (rfs_budget_share_take(&share, most) || share != most)
        return false;
    rfs_budget_share_give(&share);
    return share == 0;
}

static void test_shares(void **state)
{
    (void)state;
    forking_test(take_a_share, NULL);
}

/* A share that the forking thread has is given back in both processes. */
static void test_a_share_of_before(void **state)
{
    size_t share = 0;
    int status;

    (void)state;
    assert_int_equal(rfs_budget_share_take(&share, 1000), 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(FORKING_SECONDS);
        rfs_budget_share_give(&share);
        _exit(take_a_share(NULL) && take_a_share(NULL) ? 0 : 1);
    }
    rfs_budget_share_give(&share);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(take_a_share(NULL));
}

static bool take_slots(void *ctx)
{
    void *slots[8];
    bool right = true;

    (void)ctx;
    for (size_t i = 0; i < 8; i++) {
        slots[i] = rfs_secret_slots_take(RFS_SECRET_SLOT_BYTES);
        right &= rfs_secret_slots_has(slots[i]);
    }
    for (size_t i = 0; i < 8; i++)
        if (slots[i])
            rfs_secret_slots_give(slots[i]);
    return right;
}

static void test_slots(void **state)
{
    (void)state;
    assert_true(rfs_secret_slots_open());
    forking_test(take_slots, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_a_share_of_before),
        cmocka_unit_test(test_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
