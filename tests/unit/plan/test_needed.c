/* SPDX-License-Identifier: Apache-2.0 */
/* Needed ranks by strategies alone. Interop compares random strategies with MindSpore's. */
#include "plan/needed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct rfs_strategy *parse(const char *text)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};

    if (rfs_strategy_parse("s.json", text, strlen(text), &strategy, &err))
        fail_msg("%s", err.text);
    return strategy;
}

#define ONE(dev, map, shape)                                                                       \
    "{\"parallel_strategy_item\":{},\"parallel_layout_item\":{\"w\":{\"dev_matrix\":" dev          \
    ",\"tensor_map\":" map ",\"tensor_shape\":" shape                                              \
    ",\"opt_weight_shard_step\":0,\"opt_weight_shard_size\":0,\"field\":0}}}"

static void needs(struct rfs_needed *needed, uint32_t rank, const char *want)
{
    unsigned char wanted[16];
    struct rfs_error err = {0};
    char got[64] = "";

    if (rfs_needed_by(needed, rank, wanted, &err))
        fail_msg("%s", err.text);
    for (uint32_t s = 0; s < rfs_needed_sources(needed); s++)
        if (wanted[s])
            snprintf(got + strlen(got), sizeof got - strlen(got), "%u ", s);
    assert_string_equal(got, want);
}

static void test_needed(void **state)
{
    struct rfs_strategy *three = parse(ONE("[3]", "[0]", "[12]"));
    struct rfs_strategy *four = parse(ONE("[4]", "[0]", "[12]"));
    struct rfs_needed *needed = NULL;

    (void)state;
    assert_int_equal(rfs_needed_open(three, four, &needed, NULL),
                     0); /* numbers that do not divide */
    needs(needed, 0, "0 ");
    needs(needed, 1, "0 1 ");
    needs(needed, 2, "1 2 ");
    needs(needed, 3, "0 2 "); /* 3 % 3 is at its place, and gives what is copied */
    rfs_needed_free(needed);
    assert_int_equal(rfs_needed_open(four, NULL, &needed, NULL), 0);
    needs(needed, 0, "0 1 2 3 ");
    rfs_needed_free(needed);
    assert_int_equal(rfs_needed_open(NULL, four, &needed, NULL), 0);
    needs(needed, 3, "0 ");
    rfs_needed_free(needed);
    rfs_strategy_free(three);
    rfs_strategy_free(four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_needed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
