/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encrypted files that are damaged, forged, or of another key: nothing wrong is given out, and one
 * line says why.
 */
#include "store/crypt/key.h"
#include "store/encrypted.h"
#include "store/files.h"
#include "tests/support/sealer.h"
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCK 64u
#define PLAIN 150u /* two full blocks and 22 bytes */

struct fixture {
    struct tree tree;
    struct lines lines;
    struct rfs_key *key;
    unsigned char plain[PLAIN];
    unsigned char encrypted[1024];
    size_t n;
    /* Of the last try. */
    char text[2048];
    unsigned char got[PLAIN + 64];
    uint64_t size;
};

static struct rfs_key *load_key(struct fixture *f, const void *bytes, size_t n,
                                enum rfs_cipher_mode mode)
{
    struct rfs_key *key;
    tree_file(&f->tree, "key", bytes, n);
    const struct rfs_key_config config = {tree_path(&f->tree, "key"), NULL, -1, mode};
    assert_int_equal(rfs_key_load(&config, NULL, &key, NULL), 0);
    return key;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct random random = {11};
    tree_new(&f->tree);
    lines_init(&f->lines);
    f->key = load_key(f, seal_key(16), 16, RFS_NOT_ENCRYPTED);
    for (unsigned i = 0; i < PLAIN; i++)
        f->plain[i] = (unsigned char)random_next(&random);
    f->plain[0] = 0x0a;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rfs_key_free(f->key);
    tree_remove(&f->tree);
    free(f);
    return 0;
}

static void make(struct fixture *f, enum rfs_cipher_mode mode)
{
    const struct seal how = {mode, seal_key(16), 16, BLOCK, false};
    f->n = seal(&how, f->plain, PLAIN, 1, f->encrypted);
}

static struct rfs_files *new_files(struct fixture *f, const struct rfs_key *key,
                                   struct rfs_encrypted **encrypted)
{
    struct rfs_files *files = rfs_files_new(&f->lines.log);
    *encrypted = rfs_encrypted_new(key, 1 << 20, &f->lines.log);
    assert_true(files && *encrypted);
    rfs_encrypted_set_block(*encrypted, BLOCK);
    rfs_files_set_encrypted(files, *encrypted);
    return files;
}

/* Reads all of the file by the key: 0 with f->got and f->size, or -errno with f->text. */
static int try_key(struct fixture *f, const struct rfs_key *key)
{
    struct rfs_reading r;
    struct rfs_error err = {0};
    unlink(tree_path(&f->tree, "a")); /* some file systems sync what is written over */
    tree_file(&f->tree, "a", f->encrypted, f->n);
    struct rfs_encrypted *encrypted;
    struct rfs_files *files = new_files(f, key, &encrypted);
    rfs_files_add(files, tree_path(&f->tree, "a"));
    lines_init(&f->lines); /* its limiter begins anew */
    memset(f->got, 0, sizeof f->got);
    int rc = rfs_reading_begin(files, 0, &r);
    if (rc == 0) {
        f->size = r.size;
        rc = r.size > sizeof f->got ? -E2BIG : rfs_reading_pread(&r, f->got, r.size, 0);
        const int end = rfs_reading_end(&r);
        assert_int_equal(end, rc);
    }
    f->text[0] = 0;
    if (rc < 0) {
        assert_int_equal(rfs_files_state(files, 0), rc);
        assert_int_equal(rfs_reading_begin(files, 0, &r), rc);
        assert_true(rfs_files_reason(files, 0, rc, &err));
        assert_int_equal(err.code, rc);
        snprintf(f->text, sizeof f->text, "%s", err.text);
        assert_string_equal(f->lines.last, f->text);
        assert_non_null(strstr(f->text, tree_path(&f->tree, "a")));
    }
    rfs_files_free(files);
    rfs_encrypted_free(encrypted);
    return rc;
}

static int try_all(struct fixture *f)
{
    return try_key(f, f->key);
}

static void assert_says(struct fixture *f, const char *what)
{
    if (!strstr(f->text, what))
        fail_msg("no '%s' in: %s", what, f->text);
}

static void put_number(struct fixture *f, size_t at, uint32_t number)
{
    for (unsigned i = 0; i < 4; i++)
        f->encrypted[at + i] = (unsigned char)(number >> 8 * i);
}

/* Where block NUMBER begins. */
static size_t block_at(enum rfs_cipher_mode mode, unsigned number)
{
    return number * (mode == RFS_AES_GCM ? 48 + BLOCK : 32 + BLOCK + 16);
}

static const enum rfs_cipher_mode modes[] = {RFS_AES_GCM, RFS_AES_CBC, RFS_SM4_CBC};

static void test_wrong_keys(void **state)
{
    struct fixture *f = *state;
    struct random random = {random_seed()};
    for (unsigned i = 0; i < 300; i++) {
        unsigned char bytes[16];
        make(f, modes[i % 3]);
        for (unsigned k = 0; k < 16; k++)
            bytes[k] = (unsigned char)random_next(&random);
        struct rfs_key *key = load_key(f, bytes, 16, RFS_NOT_ENCRYPTED);
        const int rc = try_key(f, key);
        rfs_key_free(key);
        if (i % 3 != 0 && rc == 0)
            continue; /* one in 65,536 of those that are not authenticated */
        assert_int_equal(rc, -EBADMSG);
        assert_says(f, ": the key is wrong, or the file was changed");
    }
}

static void test_key_of_another_length(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < 3; i++) {
        make(f, modes[i]);
        struct rfs_key *key = load_key(f, seal_key(32), 32, RFS_NOT_ENCRYPTED);
        assert_int_equal(try_key(f, key), i < 2 ? -EBADMSG : -EINVAL);
        assert_says(f, i < 2 ? "the key is wrong"
                             : "SM4-CBC, which takes a key of 16 bytes, and the key given has 32");
        rfs_key_free(key);
    }
}

/* Every bit of an authenticated file: nothing is given out that was not encrypted so. */
static void test_changed_bits_gcm(void **state)
{
    struct fixture *f = *state;
    make(f, RFS_AES_GCM);
    for (size_t at = 0; at < f->n; at++) {
        const size_t within = at % block_at(RFS_AES_GCM, 1);
        for (unsigned bit = at % 4; bit < 8; bit += 4) {
            f->encrypted[at] ^= (unsigned char)(1u << bit);
            const int rc = try_all(f);
            f->encrypted[at] ^= (unsigned char)(1u << bit);
            if (within >= 40 && within < 44) { /* the last 4 bytes of an IV are not used */
                assert_int_equal(rc, 0);
                assert_memory_equal(f->got, f->plain, PLAIN);
                continue;
            }
            const bool number =
                within < 4 || (within >= 20 && within < 28) || (within >= 44 && within < 48);
            assert_int_equal(rc, number ? -EINVAL : -EBADMSG);
        }
    }
    assert_int_equal(try_all(f), 0);
}

static void test_names_block_and_offset(void **state)
{
    struct fixture *f = *state;
    make(f, RFS_AES_GCM);
    f->encrypted[block_at(RFS_AES_GCM, 1) + 60] ^= 1;
    assert_int_equal(try_all(f), -EBADMSG);
    assert_says(f, "/a: offset 112: block 1 fails its AES-GCM check: ");
    assert_says(f, "; try: check the key, or compare the file with its original");
}

/*
 * CBC: what is checked is checked; a changed byte in the middle is not seen, which SEMANTICS says.
 */
static void test_changed_bytes_cbc(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 1; i < 3; i++) {
        make(f, modes[i]);
        const size_t last = block_at(modes[i], 2);
        f->encrypted[last + 32 + 20] ^= 0x11; /* the unit of the last block's padding */
        assert_int_equal(try_all(f), -EBADMSG);
        assert_says(f, "block 2 has no padding at its end");
        make(f, modes[i]);
        f->encrypted[last - 5] ^= 0x11; /* a full unit of padding, in the middle of the file */
        assert_int_equal(try_all(f), -EBADMSG);
        assert_says(f, "block 1 has no padding at its end");
        make(f, modes[i]);
        f->encrypted[12] ^= 0x80; /* the IV of the first block: a bit of the first byte */
        assert_int_equal(try_all(f), -EBADMSG);
        assert_says(f, "block 0 does not begin as a .ckpt does");
        make(f, modes[i]);
        f->encrypted[32 + 16] ^= 1;
        assert_int_equal(try_all(f), 0);
        assert_int_equal(f->size, PLAIN);
        assert_memory_not_equal(f->got, f->plain, PLAIN);
        f->encrypted[32 + 16] ^= 1;
        assert_int_equal(try_all(f), 0);
        assert_memory_equal(f->got, f->plain, PLAIN);
    }
}

/* A last block as long as a full one, whose padding says that it holds more than one can. */
static void test_padding_of_a_full_block(void **state)
{
    struct fixture *f = *state;
    const struct seal how = {RFS_AES_CBC, seal_key(16), 16, BLOCK + 16, false};
    for (size_t n = BLOCK; n < BLOCK + 16; n++) {
        f->n = seal(&how, f->plain, n, 1, f->encrypted);
        assert_int_equal(try_all(f), n == BLOCK ? 0 : -EBADMSG);
        assert_int_equal(f->size, BLOCK);
    }
    assert_says(f, "block 0 has no padding at its end");
}

static void test_headers(void **state)
{
    struct fixture *f = *state;
    static const struct {
        int field; /* 0 length, 1 IV's, 2 cipher text's */
        uint32_t value;
        const char *says;
    } bad[] = {
        {0, 0, "the two lengths of block 1 contradict each other"},
        {0, 87, "the two lengths of block 1 contradict each other"},
        {0, UINT32_MAX, "the two lengths of block 1 contradict each other"},
        {1, 12, "block 1 has an IV of 12 bytes rather than 16"},
        {1, UINT32_MAX, "block 1 has an IV of -1 bytes rather than 16"},
        {1, 0, "block 1 has an IV of 0 bytes rather than 16"},
        {2, 0, "block 1 cannot have 0 bytes of cipher text"},
        {2, 81, "block 1 cannot have 81 bytes of cipher text"},
        {2, INT32_MAX, "block 1 cannot have 2147483647 bytes of cipher text"},
        {2, UINT32_MAX, "block 1 cannot have -1 bytes of cipher text"},
    };
    for (unsigned m = 0; m < 3; m++) {
        for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
            char where[64];
            make(f, modes[m]);
            const size_t at = block_at(modes[m], 1);
            const size_t length = at + (modes[m] == RFS_AES_GCM ? 20 : 4);
            put_number(f, length + (bad[i].field == 2 ? 24 : 4u * (unsigned)bad[i].field),
                       bad[i].value);
            assert_int_equal(try_all(f), -EINVAL);
            snprintf(where, sizeof where, "/a: offset %zu: ", at);
            assert_says(f, where);
            assert_says(f, bad[i].says);
        }
        make(f, modes[m]);
        f->encrypted[block_at(modes[m], 2)] ^= 3;
        assert_int_equal(try_all(f), -EINVAL);
        assert_says(f, "block 2 does not begin as one of ");
        assert_says(f, rfs_cipher_name(modes[m]));
    }
}

/* A file that ends anywhere: only what ends with a block cannot be told from a shorter file. */
static void test_truncated(void **state)
{
    struct fixture *f = *state;
    for (unsigned m = 0; m < 3; m++) {
        make(f, modes[m]);
        const size_t n = f->n;
        for (f->n = 0; f->n < n; f->n++) {
            const int rc = try_all(f);
            if (f->n % block_at(modes[m], 1) == 0) {
                assert_int_equal(rc, 0);
                assert_int_equal(f->size, f->n / block_at(modes[m], 1) * BLOCK);
                assert_memory_equal(f->got, f->plain, f->size);
                continue;
            }
            assert_int_equal(rc, -EINVAL);
            assert_says(f, f->n < 4 ? "not encrypted" : "truncated");
        }
    }
}

static void test_garbage_at_the_end(void **state)
{
    struct fixture *f = *state;
    for (unsigned m = 0; m < 3; m++) {
        for (unsigned more = 1; more < 60; more++) {
            make(f, modes[m]);
            memset(f->encrypted + f->n, 0, more);
            f->n += more;
            assert_int_equal(try_all(f), -EINVAL);
            assert_says(f, "block 2 is short, but more follows");
        }
        make(f, modes[m]);
        f->n = block_at(modes[m], 2) + 5;
        assert_int_equal(try_all(f), -EINVAL);
        assert_says(
            f, "5 bytes that are not block 2: the file is truncated, or has garbage at its end");
        memcpy(f->encrypted + f->n - 5, "crc_num\0\0\0\0\0\0\0\0\0\1",
               17); /* not MindSpore's: it is 0 */
        f->n += 12;
        assert_int_equal(try_all(f), -EINVAL);
    }
}

/* Blocks are encrypted one by one: what can be seen of another order is seen. */
static void test_moved_blocks(void **state)
{
    struct fixture *f = *state;
    unsigned char moved[1024];
    for (unsigned m = 0; m < 3; m++) {
        const size_t one = block_at(modes[m], 1);
        make(f, modes[m]);
        memcpy(moved, f->encrypted + 2 * one, f->n - 2 * one); /* the short one first */
        memcpy(moved + f->n - 2 * one, f->encrypted, 2 * one);
        memcpy(f->encrypted, moved, f->n);
        assert_int_equal(try_all(f), -EINVAL);
        assert_says(f,
                    "block 0 is short, but more follows: blocks are missing, or in another order");

        make(f, modes[m]);
        memcpy(f->encrypted + one, f->encrypted, one); /* the first twice */
        assert_int_equal(try_all(f), -EINVAL);
        assert_says(f, "block 1 is a copy of block 0");

        make(f, modes[m]);
        memmove(f->encrypted + one, f->encrypted + 2 * one,
                f->n - 2 * one); /* the second is missing */
        f->n -= one;
        assert_int_equal(try_all(f), 0);
        assert_int_equal(f->size, PLAIN - BLOCK);
    }
}

static void test_plain_file(void **state)
{
    struct fixture *f = *state;
    struct bytes file = {0};
    put_tensor(&file, "w", (const int64_t[]){4}, 1, "Int8", "abcd", 4);
    memcpy(f->encrypted, file.p, f->n = file.n);
    bytes_free(&file);
    assert_int_equal(try_all(f), -EINVAL);
    assert_says(f, "the file is not encrypted, but a key is given");
}

static void test_mode_insisted_on(void **state)
{
    struct fixture *f = *state;
    for (unsigned m = 0; m < 3; m++) {
        for (unsigned wanted = 0; wanted < 3; wanted++) {
            make(f, modes[m]);
            struct rfs_key *key = load_key(f, seal_key(16), 16, modes[wanted]);
            assert_int_equal(try_key(f, key), m == wanted ? 0 : -EINVAL);
            rfs_key_free(key);
            if (m != wanted)
                assert_says(f, ", but key_mode is ");
        }
    }
}

/* Files of MindSpore 1 must be asked for, as a tag that is cut out makes one of any. */
static void test_old_files(void **state)
{
    struct fixture *f = *state;
    const struct seal how = {RFS_AES_GCM, seal_key(16), 16, BLOCK, true};
    f->n = seal(&how, f->plain, PLAIN, 1, f->encrypted);
    assert_int_equal(try_all(f), -EINVAL);
    assert_says(f, "encrypted as by MindSpore 1");
    struct rfs_key *key = load_key(f, seal_key(16), 16, RFS_AES_GCM);
    assert_int_equal(try_key(f, key), -EINVAL);
    assert_says(f, "encrypted as by MindSpore 1");
    rfs_key_free(key);
    key = load_key(f, seal_key(16), 16, RFS_AES_GCM_UNTAGGED);
    assert_int_equal(try_key(f, key), 0);
    assert_memory_equal(f->got, f->plain, PLAIN);
    rfs_key_free(key);
    make(f, RFS_AES_GCM);
    key = load_key(f, seal_key(16), 16, RFS_AES_GCM_UNTAGGED);
    assert_int_equal(try_key(f, key), -EINVAL);
    assert_says(f, "encrypted by AES-GCM, but key_mode is AES-GCM-untagged");
    rfs_key_free(key);
}

/*
 * A block of another key in the middle: the first may be read, and then nothing more of the file.
 */
static void test_wrong_key_in_the_middle(void **state)
{
    struct fixture *f = *state;
    const struct seal how = {RFS_AES_GCM, (const unsigned char *)"another key of 16", 16, BLOCK,
                             false};
    unsigned char other[1024];
    unsigned char buf[BLOCK];
    struct rfs_reading r;
    make(f, RFS_AES_GCM);
    seal(&how, f->plain, PLAIN, 9, other);
    memcpy(f->encrypted + block_at(RFS_AES_GCM, 1), other + block_at(RFS_AES_GCM, 1), 48 + BLOCK);
    tree_file(&f->tree, "a", f->encrypted, f->n);
    struct rfs_encrypted *encrypted;
    struct rfs_files *files = new_files(f, f->key, &encrypted);
    rfs_files_add(files, tree_path(&f->tree, "a"));
    assert_int_equal(rfs_reading_begin(files, 0, &r), 0);
    assert_int_equal(rfs_reading_pread(&r, buf, BLOCK, 0), 0);
    assert_memory_equal(buf, f->plain, BLOCK);
    assert_int_equal(rfs_reading_pread(&r, buf, 1, BLOCK), -EBADMSG);
    assert_non_null(strstr(f->lines.last, "offset 112: block 1 fails its AES-GCM check"));
    struct rfs_files_counters before, after;
    rfs_files_count(files, &before);
    assert_int_equal(rfs_reading_pread(&r, buf, BLOCK, 0), -EBADMSG);
    assert_int_equal(rfs_reading_pread(&r, buf, 1, BLOCK), -EBADMSG);
    rfs_files_count(files, &after);
    assert_int_equal(before.reads, after.reads);
    assert_int_equal(rfs_reading_end(&r), -EBADMSG);
    assert_int_equal(f->lines.n, 1);
    rfs_files_free(files);
    rfs_encrypted_free(encrypted);
}

/* A file that somebody writes is one that changed, not one of a wrong key. */
static void test_changed_while_in_use(void **state)
{
    struct fixture *f = *state;
    struct rfs_reading r;
    unsigned char byte;
    make(f, RFS_AES_GCM);
    tree_file(&f->tree, "a", f->encrypted, f->n);
    tree_touch(&f->tree, "a", 1000, 0);
    struct rfs_encrypted *encrypted;
    struct rfs_files *files = new_files(f, f->key, &encrypted);
    rfs_files_add(files, tree_path(&f->tree, "a"));
    assert_int_equal(rfs_reading_begin(files, 0, &r), 0);
    f->encrypted[60] ^= 1;
    tree_file(&f->tree, "a", f->encrypted, f->n);
    assert_int_equal(rfs_reading_pread(&r, &byte, 1, 0), -ESTALE);
    assert_int_equal(rfs_reading_end(&r), -ESTALE);
    assert_non_null(strstr(f->lines.last, "the file was modified"));
    assert_false(rfs_files_reason(files, 0, -ESTALE, NULL));
    rfs_files_free(files);
    rfs_encrypted_free(encrypted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_wrong_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_key_of_another_length, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_bits_gcm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_block_and_offset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_bytes_cbc, setup, teardown),
        cmocka_unit_test_setup_teardown(test_padding_of_a_full_block, setup, teardown),
        cmocka_unit_test_setup_teardown(test_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_garbage_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_moved_blocks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plain_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mode_insisted_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_old_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_key_in_the_middle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_while_in_use, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
