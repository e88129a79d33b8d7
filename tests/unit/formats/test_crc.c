/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums: of files that MindSpore 2.10 wrote, and of the same files with each of their bits
 * changed.
 */
#include "formats/ckpt/crc.h"
#include "formats/safetensors/safetensors.h"
#include "tests/unit/store/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

/*
 * save_checkpoint(…, format="safetensors", crc_check=True) of MindSpore 2.10.0 and safetensors
 * 0.5.3.
 */
static const char real_header[] =
    "{\"__metadata__\":{\"crc_num\":\"3489579644\",\"format\":\"ms\"},\"one\":{\"dtype\":\"I64\","
    "\"shape\":[1],\"data_offsets\":[0,8]},\"rate\":{\"dtype\":\"F32\",\"shape\":[],\"data_"
    "offsets\":"
    "[8,12]},\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]},\"global_step\":{"
    "\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[36,40]},\"B\":{\"dtype\":\"U8\",\"shape\":[],"
    "\"data_offsets\":[40,41]},\"on\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[41,42]}}  "
    "  ";
static const char real_data[] =
    "03000000000000000000003f000000000000803f0000004000004040000080400000a040"
    "e80300000701";
/* The same without format. */
static const char real_ckpt[] =
    "0a2c0a01771227080208031207466c6f617433321a18000000000000803f0000004000004040000080400000a0400a"
    "1c"
    "0a0b676c6f62616c5f73746570120d1205496e7433321a04e80300000a0f0a0142120a120555496e74381a01070a1a"
    "0a"
    "036f6e65121308011205496e7436341a0803000000000000000a170a0472617465120f1207466c6f617433321a0400"
    "00"
    "003f0a0f0a026f6e12091204426f6f6c1a01016372635f6e756d00000000000048263cb6";

static void bytes_hex(struct bytes *b, const char *hex)
{
    for (; *hex; hex += 2) {
        unsigned byte;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        bytes_add(b, &(unsigned char){(unsigned char)byte}, 1);
    }
}

static struct bytes real_safetensors(void)
{
    struct bytes file = {0};
    const size_t n = strlen(real_header);
    bytes_add(&file, (unsigned char[8]){(unsigned char)n, (unsigned char)(n >> 8)}, 8);
    bytes_text(&file, real_header);
    bytes_hex(&file, real_data);
    return file;
}

/* What verifying gives: also of a file that has no index, whose walk fails. */
static int verify(const struct bytes *file, bool trailer, struct rfs_error *err)
{
    struct rfs_tables tables = tables_new();
    struct memory memory = {.p = file->p, .n = file->n};
    struct rfs_index *index = NULL;
    *err = (struct rfs_error){0};
    int rc = trailer ? rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, file->n, "x"), &tables,
                                     &index, err)
                     : rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &memory, file->n, "x"),
                                            &tables, NULL, &index, err);
    if (rc == 0)
        rc = rfs_crc_verify(RFS_BYTES_SOURCE(memory_read, &memory, 0, "x"), trailer, index, &tables,
                            err);
    rfs_index_free(index);
    tables_free(&tables);
    return rc;
}

static void check_bits(struct bytes *file, bool trailer, size_t from, size_t to, const char *says)
{
    struct rfs_error err;
    assert_int_equal(verify(file, trailer, &err), 0);
    for (size_t bit = 8 * from; bit < 8 * to; bit++) {
        file->p[bit / 8] ^= (unsigned char)(1 << bit % 8);
        const int rc = verify(file, trailer, &err);
        assert_int_equal(rc, -EINVAL);
        assert_int_equal(err.code, -EINVAL);
        if (says && !strstr(err.text, says))
            fail_msg("bit %zu: %s", bit, err.text);
        file->p[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void test_safetensors(void **state)
{
    (void)state;
    struct bytes file = real_safetensors();
    struct rfs_error err;
    /* Where global_step is negative or large its bytes count, which no longer add up. */
    check_bits(&file, false, 8 + strlen(real_header), file.n,
               "x: the file is damaged: it says that its crc_num is 3489579644, but its content");
    char *number = strstr((char *)file.p + 8, "3489579644");
    memcpy(number, "3489579645", 10);
    assert_int_equal(verify(&file, false, &err), -EINVAL);
    assert_non_null(strstr(err.text, "is 3489579645, but its content makes it 3489579644"));
    memcpy(number, "34895796x4", 10);
    assert_int_equal(verify(&file, false, &err), -EINVAL);
    number = strstr((char *)file.p + 8, "crc_num");
    memcpy(number, "crc_Num", 7);
    assert_int_equal(verify(&file, false, &err), 1);
    bytes_free(&file);
}

static void test_ckpt(void **state)
{
    (void)state;
    struct bytes file = {0};
    struct rfs_error err;
    bytes_hex(&file, real_ckpt);
    check_bits(&file, true, 0, file.n - 17, NULL);
    check_bits(&file, true, file.n - 10, file.n,
               "but its content makes it 1210465462"); /* 0x48263cb6 */
    file.n -= 17;
    assert_int_equal(verify(&file, true, &err), 1);
    bytes_free(&file);
}

/* Longer than what is read at once. */
static void test_long(void **state)
{
    (void)state;
    const size_t n = (3 << 20) + 17;
    struct bytes file = {0};
    struct rfs_error err;
    unsigned char *content = malloc(n);
    assert_non_null(content);
    for (size_t i = 0; i < n; i++)
        content[i] = (unsigned char)(i * 2654435761u >> 13);
    put_tensor(&file, "w", (const int64_t[]){(int64_t)n}, 1, "Int8", content, n);
    free(content);
    bytes_text(&file, "crc_num");
    bytes_add(&file, "\0\0\0\0\0\0\0\0\0\0", 10);
    assert_int_equal(verify(&file, true, &err), -EINVAL);
    const unsigned long crc = crc32(0, file.p, (uInt)file.n - 17);
    for (unsigned i = 0; i < 4; i++)
        file.p[file.n - 1 - i] = (unsigned char)(crc >> 8 * i);
    assert_int_equal(verify(&file, true, &err), 0);
    file.p[file.n / 2] ^= 1;
    assert_int_equal(verify(&file, true, &err), -EINVAL);
    bytes_free(&file);
}

static void test_failing_read(void **state)
{
    (void)state;
    struct bytes file = real_safetensors();
    struct rfs_tables tables = tables_new();
    struct memory memory = {.p = file.p, .n = file.n};
    struct rfs_index *index;
    struct rfs_error err = {0};
    assert_int_equal(rfs_safetensors_walk(RFS_BYTES_SOURCE(memory_read, &memory, file.n, "x"),
                                          &tables, NULL, &index, &err),
                     0);
    memory.fail = -EIO;
    assert_int_equal(
        rfs_crc_verify(RFS_BYTES_SOURCE(memory_read, &memory, 0, "x"), false, index, &tables, &err),
        -EIO);
    assert_non_null(strstr(err.text, "x: offset "));
    rfs_index_free(index);
    tables_free(&tables);
    bytes_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_ckpt),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_failing_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
