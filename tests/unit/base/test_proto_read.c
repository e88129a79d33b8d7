/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of protobuf messages in memory: what is taken, and what is no message, or not of the
 * shape.
 */
#include "base/proto_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MESSAGE(text) rfs_proto_begin(text, sizeof(text) - 1)

static void test_fields(void **state)
{
    (void)state;
    struct rfs_proto message = MESSAGE("\x08\x96\x01\x12\2ab\x1d"
                                       "1234\x21"
                                       "12345678");
    struct rfs_proto_field field;
    assert_true(rfs_proto_next(&message, &field));
    assert_int_equal(field.number, 1);
    assert_int_equal(field.value, 150);
    assert_true(rfs_proto_next(&message, &field));
    assert_int_equal(field.number, 2);
    assert_int_equal(field.inside.end - field.inside.at, 2);
    assert_memory_equal(field.inside.at, "ab", 2);
    assert_true(rfs_proto_next(&message, &field));
    assert_int_equal(field.number, 3);
    assert_true(rfs_proto_next(&message, &field));
    assert_int_equal(field.number, 4);
    assert_false(rfs_proto_next(&message, &field));
    assert_false(message.wrong);
}

static void test_numbers(void **state)
{
    (void)state;
    struct rfs_proto message = MESSAGE("\x08\x05\x0a\x03\x01\xac\x02\x0a\x00\x08\xff\xff\xff\xff"
                                       "\xff\xff\xff\xff\xff\x01");
    const uint64_t want[] = {5, 1, 300, UINT64_MAX};
    struct rfs_proto_field field;
    uint64_t number;
    size_t n = 0;
    while (rfs_proto_next(&message, &field))
        while (rfs_proto_number(&field, &number))
            assert_true(n < 4 && number == want[n++]);
    assert_int_equal(n, 4);
    assert_false(message.wrong);
}

static void is_wrong(struct rfs_proto message)
{
    struct rfs_proto_field field;
    while (rfs_proto_next(&message, &field))
        ;
    assert_true(message.wrong);
}

static void test_wrong(void **state)
{
    (void)state;
    is_wrong(MESSAGE("\x08"));
    is_wrong(MESSAGE("\x08\x80"));
    is_wrong(MESSAGE("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    is_wrong(MESSAGE("\x00\x00"));
    is_wrong(MESSAGE("\x0a\2a"));
    is_wrong(MESSAGE("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    is_wrong(MESSAGE("\x0d"
                     "123"));
    is_wrong(MESSAGE("\x09"
                     "1234567"));
    is_wrong(MESSAGE("\x0b\x0c"));
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct rfs_proto_shape inner = {{{1, RFS_PROTO_NUMBERS, false, NULL}}};
    static const struct rfs_proto_shape outer = {{
        {1, RFS_PROTO_NUMBER, true, NULL},
        {2, RFS_PROTO_MESSAGES, true, &inner},
        {3, RFS_PROTO_MESSAGES, false, &inner},
        {4, RFS_PROTO_BYTES, false, NULL},
    }};
#define HAS(text) assert_true(rfs_proto_has_shape(MESSAGE(text), &outer))
#define HAS_NOT(text) assert_false(rfs_proto_has_shape(MESSAGE(text), &outer))
    HAS("\x08\1\x12\0");
    HAS("\x12\2\x08\7\x08\1\x08\2");        /* the last number counts */
    HAS("\x08\1\x12\0\x1a\0\x1a\0\x22\1a"); /* repeated */
    HAS("\x08\1\x12\3\x0a\1\7");            /* packed */
    HAS("\x08\1\x12\0\x78\1");              /* unknown */
    HAS_NOT("");
    HAS_NOT("\x08\1");
    HAS_NOT("\x12\0");
    HAS_NOT("\x08\1\x12\0\x12\0"); /* twice */
    HAS_NOT("\x0a\0\x12\0");       /* of another type */
    HAS_NOT("\x08\1\x10\0");
    HAS_NOT("\x08\1\x12\0\x20\0");
    HAS_NOT("\x08\1\x12\2\x0d\0");     /* what is in it is no message */
    HAS_NOT("\x08\1\x12\3\x0a\1\x80"); /* a packed number without an end */
    assert_true(rfs_proto_has_others(MESSAGE("\x08\1\x78\1"), &outer));
    assert_false(rfs_proto_has_others(MESSAGE("\x08\1\x12\2\x78\1"), &outer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
