/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the process may have, by control groups made of plain files. */
#include "base/memory_limit.h"
#include "tests/support/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MACHINE (UINT64_C(64) << 30)

static int set_up(void **state)
{
    *state = tree_new();
    return 0;
}

static int tear_down(void **state)
{
    tree_remove(*state);
    return 0;
}

static void put(const char *root, const char *path, const char *text)
{
    tree_write(root, path, text, strlen(text));
}

static uint64_t memory(const char *root)
{
    const struct rfs_memory_limits limits = {
        .machine = MACHINE,
        .cgroups = tree_path(root, "cgroup"),
        .self = tree_path(root, "self"),
    };
    return rfs_memory_limit(&limits);
}

static void test_nothing_is_there(void **state)
{
    assert_int_equal(memory(*state), MACHINE);
    put(*state, "self", "0::/none\n");
    assert_int_equal(memory(*state), MACHINE);
}

static void test_version_2(void **state)
{
    put(*state, "self", "0::/a/b\n");
    put(*state, "cgroup/a/b/memory.max", "1048576\n");
    assert_int_equal(memory(*state), 1048576);
}

static void test_no_limit(void **state)
{
    put(*state, "self", "0::/a\n");
    put(*state, "cgroup/a/memory.max", "max\n");
    assert_int_equal(memory(*state), MACHINE);
    put(*state, "cgroup/a/memory.max", "");
    assert_int_equal(memory(*state), MACHINE);
}

static void test_more_than_the_machine(void **state)
{
    put(*state, "self", "0::/a\n");
    put(*state, "cgroup/a/memory.max", "9223372036854771712\n");
    assert_int_equal(memory(*state), MACHINE);
}

static void test_the_least_of_the_groups_above(void **state)
{
    put(*state, "self", "0::/a/b/c\n");
    put(*state, "cgroup/a/b/c/memory.max", "max\n");
    put(*state, "cgroup/a/b/memory.max", "3000000\n");
    put(*state, "cgroup/a/memory.max", "2000000\n");
    put(*state, "cgroup/memory.max", "4000000\n");
    put(*state, "memory.max", "1\n"); /* above the mount: not a group */
    assert_int_equal(memory(*state), 2000000);
    put(*state, "cgroup/memory.max", "1000000\n");
    assert_int_equal(memory(*state), 1000000);
}

/* A container sees its own group as the root. */
static void test_the_root_group(void **state)
{
    put(*state, "self", "0::/\n");
    put(*state, "cgroup/memory.max", "5000000\n");
    assert_int_equal(memory(*state), 5000000);
}

static void test_version_1(void **state)
{
    put(*state, "self", "12:pids:/x\n4:memory:/a/b\n1:name=systemd:/y\n");
    put(*state, "cgroup/memory/a/memory.limit_in_bytes", "7000000\n");
    put(*state, "cgroup/memory/x/memory.limit_in_bytes", "1\n"); /* of another controller's group */
    put(*state, "cgroup/a/b/memory.max", "1\n");                 /* of the other version */
    assert_int_equal(memory(*state), 7000000);
}

static void test_both_versions(void **state)
{
    put(*state, "self", "4:memory:/a\n0::/b\n");
    put(*state, "cgroup/memory/a/memory.limit_in_bytes", "7000000\n");
    put(*state, "cgroup/b/memory.max", "6000000\n");
    assert_int_equal(memory(*state), 6000000);
}

static void test_lines_that_say_nothing(void **state)
{
    put(*state, "self", "\nnonsense\n4:memory\n0::/a");
    put(*state, "cgroup/a/memory.max", "8000000");
    assert_int_equal(memory(*state), 8000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_version_2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_more_than_the_machine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_least_of_the_groups_above, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_root_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_version_1, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_both_versions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lines_that_say_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("memory limit", tests, NULL, NULL);
}
