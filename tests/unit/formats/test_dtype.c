/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    for (unsigned i = 0; i < RFS_DTYPE_COUNT; i++) {
        const char *name = rfs_dtype_name((enum rfs_dtype)i);
        enum rfs_dtype back;
        assert_non_null(name);
        assert_true(rfs_dtype_parse(name, strlen(name), &back));
        assert_int_equal(back, i);
        assert_true(rfs_dtype_bytes((enum rfs_dtype)i) >= 1);
        assert_false(rfs_dtype_parse(name, strlen(name) - 1, &back) &&
                     strcmp(name, rfs_dtype_name(back)) == 0);
    }
    assert_null(rfs_dtype_name(RFS_DTYPE_COUNT));
    assert_int_equal(rfs_dtype_bytes(RFS_DTYPE_COUNT), 0);
}

static void test_sizes(void **state)
{
    (void)state;
    enum rfs_dtype dtype;
    static const struct {
        const char *name;
        uint32_t bytes;
    } known[] = {{"Int4", 1},        {"Bool", 1},    {"BFloat16", 2},
                 {"Float32", 4},     {"Float64", 8}, {"Complex64", 8},
                 {"Complex128", 16}, {"str", 4},     {"HiFloat8", 1}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        assert_true(rfs_dtype_parse(known[i].name, strlen(known[i].name), &dtype));
        assert_int_equal(rfs_dtype_bytes(dtype), known[i].bytes);
    }
    assert_false(rfs_dtype_parse("float32", 7, &dtype));
    assert_false(rfs_dtype_parse("", 0, &dtype));
    assert_false(rfs_dtype_parse("Float32\0", 8, &dtype));
}

static void test_safetensors(void **state)
{
    (void)state;
    enum rfs_dtype dtype;
    /* The library's Dtype, and MindSpore's np_dtype_size and dtype_size, which lack the last. */
    static const struct {
        const char *name;
        const char *mindspore;
        uint32_t bytes;
    } known[] = {{"BOOL", "Bool", 1},
                 {"U8", "UInt8", 1},
                 {"I8", "Int8", 1},
                 {"F8_E5M2", "Float8E5M2", 1},
                 {"I16", "Int16", 2},
                 {"F8_E4M3", "Float8E4M3FN", 1},
                 {"U16", "UInt16", 2},
                 {"F16", "Float16", 2},
                 {"I32", "Int32", 4},
                 {"BF16", "BFloat16", 2},
                 {"U32", "UInt32", 4},
                 {"F32", "Float32", 4},
                 {"F64", "Float64", 8},
                 {"I64", "Int64", 8},
                 {"U64", "UInt64", 8},
                 {"C64", "Complex64", 8},
                 {"F8_E8M0", "Float8E8M0FNU", 1},
                 {"F8_E4M3FNUZ", "Float8E4M3FNUZ", 1},
                 {"F8_E5M2FNUZ", "Float8E5M2FNUZ", 1},
                 {"F4", "Float4E2M1FNx2", 1},
                 {"F6_E2M3", "Float6E2M3FNx4", 3},
                 {"F6_E3M2", "Float6E3M2FNx4", 3}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        assert_true(rfs_dtype_parse_safetensors(known[i].name, strlen(known[i].name), &dtype));
        assert_string_equal(rfs_dtype_name(dtype), known[i].mindspore);
        assert_string_equal(rfs_dtype_safetensors(dtype), known[i].name);
        assert_int_equal(rfs_dtype_bytes(dtype), known[i].bytes);
    }
    assert_string_equal(rfs_dtype_safetensors(RFS_INT4), "I8");
    assert_null(rfs_dtype_safetensors(RFS_STR));
    assert_null(rfs_dtype_safetensors(RFS_HIFLOAT8));
    assert_null(rfs_dtype_safetensors(RFS_COMPLEX128));
    assert_null(rfs_dtype_safetensors(RFS_DTYPE_COUNT));
    assert_false(rfs_dtype_parse_safetensors("f32", 3, &dtype));
    assert_false(rfs_dtype_parse_safetensors("F6", 2, &dtype));
    assert_false(rfs_dtype_parse_safetensors("", 0, &dtype));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
