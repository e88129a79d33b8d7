/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encrypted files, sound ones: what is read of them is what was encrypted, whatever is read of it.
 */
#include "store/crypt/key.h"
#include "store/encrypted.h"
#include "store/files.h"
#include "tests/support/sealer.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static const struct {
    enum rfs_cipher_mode mode;
    size_t key_bytes;
    bool old;
} kinds[] = {
    {RFS_AES_GCM, 16, false},         {RFS_AES_GCM, 24, false}, {RFS_AES_GCM, 32, false},
    {RFS_AES_CBC, 16, false},         {RFS_AES_CBC, 24, false}, {RFS_AES_CBC, 32, false},
    {RFS_SM4_CBC, 16, false},         {RFS_AES_CBC, 32, true},  {RFS_AES_GCM_UNTAGGED, 16, true},
    {RFS_AES_GCM_UNTAGGED, 24, true},
};
#define KINDS (sizeof kinds / sizeof *kinds)

struct fixture {
    struct tree tree;
    struct lines lines;
    struct rfs_files *files;
    struct rfs_encrypted *encrypted;
    struct rfs_key *key;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    tree_new(&f->tree);
    lines_init(&f->lines);
    *state = f;
    return 0;
}

static void close_files(struct fixture *f)
{
    rfs_files_free(f->files);
    rfs_encrypted_free(f->encrypted);
    rfs_key_free(f->key);
    f->files = NULL;
    f->encrypted = NULL;
    f->key = NULL;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    close_files(f);
    tree_remove(&f->tree);
    free(f);
    return 0;
}

/* Files that the key of KEY_BYTES opens, with blocks of BLOCK_BYTES. */
static void open_files(struct fixture *f, size_t key_bytes, enum rfs_cipher_mode mode,
                       uint32_t block_bytes)
{
    struct rfs_error err;
    tree_file(&f->tree, "key", seal_key(key_bytes), key_bytes);
    const struct rfs_key_config config = {tree_path(&f->tree, "key"), NULL, -1, mode};
    close_files(f);
    assert_int_equal(rfs_key_load(&config, NULL, &f->key, &err), 0);
    f->files = rfs_files_new(&f->lines.log);
    assert_non_null(f->files);
    f->encrypted = rfs_encrypted_new(f->key, 4 * MIB, &f->lines.log);
    assert_non_null(f->encrypted);
    rfs_encrypted_set_block(f->encrypted, block_bytes);
    rfs_files_set_encrypted(f->files, f->encrypted);
}

/* N bytes that begin as a checkpoint does. */
static unsigned char *plain_of(struct random *random, size_t n)
{
    unsigned char *plain = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        plain[i] = (unsigned char)random_next(random);
    plain[0] = 0x0a;
    return plain;
}

static uint32_t add_encrypted(struct fixture *f, const char *name, const struct seal *how,
                              const unsigned char *plain, size_t n, unsigned salt)
{
    unsigned char *encrypted = malloc(seal_room(how, n));
    tree_file(&f->tree, name, encrypted, seal(how, plain, n, salt, encrypted));
    free(encrypted);
    return rfs_files_add(f->files, tree_path(&f->tree, name));
}

static void read_everywhere(struct fixture *f, uint32_t id, const unsigned char *plain, size_t n,
                            struct random *random)
{
    struct rfs_reading r;
    unsigned char *buf = malloc(n + 2);
    if (rfs_reading_begin(f->files, id, &r) != 0)
        fail_msg("%s", f->lines.last);
    assert_int_equal(r.size, n);
    assert_int_equal(rfs_reading_pread(&r, buf, n, 0), 0);
    assert_memory_equal(buf, plain, n);
    for (unsigned i = 0; i < 200; i++) {
        const size_t from = random_below(random, n);
        const size_t most = n - from < 64 && i % 2 ? n - from : i % 2 ? 64 : n - from;
        const size_t size = random_below(random, most + 1);
        memset(buf, 0xee, size + 2);
        assert_int_equal(rfs_reading_pread(&r, buf + 1, size, from), 0);
        assert_memory_equal(buf + 1, plain + from, size);
        assert_int_equal(buf[0], 0xee);
        assert_int_equal(buf[size + 1], 0xee);
    }
    assert_int_equal(rfs_reading_pread(&r, buf, 1, n), -ESTALE);
    assert_int_equal(rfs_reading_end(&r), 0);
    free(buf);
}

static void test_modes(void **state)
{
    struct fixture *f = *state;
    struct random random = {random_seed()};
    static const size_t blocks[] = {16, 64, 4096};
    for (size_t i = 0; i < KINDS * 12; i++) {
        const size_t kind = i % KINDS;
        const size_t block = blocks[i / KINDS % 3];
        const struct seal how = {kinds[kind].mode, seal_key(kinds[kind].key_bytes),
                                 kinds[kind].key_bytes, block, kinds[kind].old};
        /* sizes around multiples of a block, and any */
        const size_t n = i / KINDS % 4 == 0 ? block * (1 + random_below(&random, 5))
                                            : 1 + random_below(&random, block * 5);
        open_files(f, how.key_bytes, how.old ? how.mode : RFS_NOT_ENCRYPTED, (uint32_t)block);
        unsigned char *plain = plain_of(&random, n);
        const uint32_t id = add_encrypted(f, "a", &how, plain, n, (unsigned)i);
        read_everywhere(f, id, plain, n, &random);
        free(plain);
    }
}

/* The real MindSpore wrote these; without its trailer, crc.ckpt is their plain text. */
static void test_fixtures(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"encrypted_gcm.ckpt", "encrypted_cbc.ckpt"};
    const char *top = getenv("top_srcdir");
    char path[512];
    unsigned char plain[4096];
    snprintf(path, sizeof path, "%s/tests/fixtures/ckpt/crc.ckpt", top ? top : ".");
    const int fd = open(path, O_RDONLY);
    const ssize_t n = read(fd, plain, sizeof plain) - 17;
    assert_true(n > 100);
    close(fd);
    struct random random = {7};
    open_files(f, 16, RFS_NOT_ENCRYPTED, RFS_CIPHER_BLOCK);
    close_files(f);
    tree_file(&f->tree, "key", "0123456789abcdef", 16);
    const struct rfs_key_config config = {tree_path(&f->tree, "key"), NULL, -1, RFS_NOT_ENCRYPTED};
    assert_int_equal(rfs_key_load(&config, NULL, &f->key, NULL), 0);
    f->files = rfs_files_new(NULL);
    f->encrypted = rfs_encrypted_new(f->key, 64 * MIB, NULL);
    rfs_files_set_encrypted(f->files, f->encrypted);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/tests/fixtures/ckpt/%s", top ? top : ".", names[i]);
        read_everywhere(f, rfs_files_add(f->files, path), plain, (size_t)n, &random);
    }
}

/*
 * What save_checkpoint(enc_key=…, crc_check=True) leaves: MindSpore's own loader takes it for
 * damage.
 */
static void test_trailer(void **state)
{
    struct fixture *f = *state;
    struct random random = {3};
    const struct seal how = {RFS_AES_GCM, seal_key(16), 16, 64, false};
    unsigned char *plain = plain_of(&random, 150);
    unsigned char encrypted[1024];
    size_t n = seal(&how, plain, 150, 1, encrypted);
    memcpy(encrypted + n, "crc_num\0\0\0\0\0\0\0\0\0\0", 17);
    open_files(f, 16, RFS_NOT_ENCRYPTED, 64);
    tree_file(&f->tree, "a", encrypted, n + 17);
    read_everywhere(f, rfs_files_add(f->files, tree_path(&f->tree, "a")), plain, 150, &random);
    free(plain);
}

/*
 * CBC reads the units that it needs and the one before; GCM whole blocks, each once while there is
 * room.
 */
static void test_what_is_read(void **state)
{
    struct fixture *f = *state;
    struct random random = {5};
    struct rfs_files_counters before, after;
    struct rfs_reading r;
    unsigned char buf[4096];
    unsigned char *plain = plain_of(&random, 10000);
    open_files(f, 32, RFS_NOT_ENCRYPTED, 4096);
    const struct seal cbc = {RFS_AES_CBC, seal_key(32), 32, 4096, false};
    const struct seal gcm = {RFS_AES_GCM, seal_key(32), 32, 4096, false};
    const uint32_t a = add_encrypted(f, "a", &cbc, plain, 10000, 1);
    const uint32_t b = add_encrypted(f, "b", &gcm, plain, 10000, 2);

    assert_int_equal(rfs_reading_begin(f->files, a, &r), 0);
    rfs_files_count(f->files, &before);
    assert_int_equal(before.bytes,
                     48 + 2 * 32 + 2 * 16 + 20 + 16); /* headers, the last units, the first */
    assert_int_equal(rfs_reading_pread(&r, buf, 100, 5000), 0);
    assert_memory_equal(buf, plain + 5000, 100);
    rfs_files_count(f->files, &after);
    assert_int_equal(after.reads - before.reads, 1);
    assert_in_range(after.bytes - before.bytes, 100, 100 + 3 * 16);
    assert_int_equal(rfs_reading_end(&r), 0);

    assert_int_equal(rfs_reading_begin(f->files, b, &r), 0);
    rfs_files_count(f->files, &before);
    assert_int_equal(before.bytes - after.bytes, 3 * 48);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(rfs_reading_pread(&r, buf, 100, 4096 + 300 * i), 0);
        assert_memory_equal(buf, plain + 4096 + 300 * i, 100);
    }
    rfs_files_count(f->files, &after);
    assert_int_equal(after.bytes - before.bytes, 48 + 4096);
    assert_int_equal(rfs_reading_end(&r), 0);
    free(plain);
}

/* Modes that cannot tell a changed byte are told to the log, once. */
static void test_warning(void **state)
{
    struct fixture *f = *state;
    struct random random = {6};
    struct rfs_reading r;
    unsigned char *plain = plain_of(&random, 40);
    open_files(f, 16, RFS_NOT_ENCRYPTED, 64);
    static const enum rfs_cipher_mode modes[] = {RFS_AES_GCM, RFS_AES_CBC, RFS_SM4_CBC};
    for (unsigned i = 0; i < 3; i++) {
        const struct seal how = {modes[i], seal_key(16), 16, 64, false};
        const uint32_t id = add_encrypted(f, i == 0 ? "g" : i == 1 ? "c" : "s", &how, plain, 40, i);
        assert_int_equal(rfs_reading_begin(f->files, id, &r), 0);
        assert_int_equal(rfs_reading_end(&r), 0);
        assert_int_equal(f->lines.n, i > 0);
    }
    assert_non_null(
        strstr(f->lines.last, "/c: the file is encrypted by AES-CBC, which does not detect"));
    free(plain);
}

/* Many threads, files of all modes, and room for few blocks. */
struct work {
    struct fixture *f;
    unsigned char *plain;
    uint64_t seed;
    const char *wrong;
};

static void *read_at_random(void *arg)
{
    struct work *work = arg;
    struct random random = {work->seed};
    unsigned char buf[3000];
    for (unsigned i = 0; i < 400 && !work->wrong; i++) {
        struct rfs_reading r;
        const size_t from = random_below(&random, 60000);
        const size_t size = random_below(&random, sizeof buf);
        if (rfs_reading_begin(work->f->files, (uint32_t)random_below(&random, 6), &r) != 0) {
            work->wrong = "begin";
            break;
        }
        if (rfs_reading_pread(&r, buf, size, from) != 0)
            work->wrong = "pread";
        if (memcmp(buf, work->plain + from, size) != 0)
            work->wrong = "bytes";
        if (rfs_reading_end(&r) != 0)
            work->wrong = "end";
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct fixture *f = *state;
    struct random random = {random_seed()};
    pthread_t threads[6];
    struct work work[6];
    unsigned char *plain = plain_of(&random, 64000);
    open_files(f, 16, RFS_NOT_ENCRYPTED, 8192);
    for (unsigned i = 0; i < 6; i++) {
        char name[2] = {(char)('a' + i), 0};
        const struct seal how = {i % 3 == 2 ? RFS_SM4_CBC : RFS_AES_GCM, seal_key(16), 16, 8192,
                                 false};
        add_encrypted(f, name, &how, plain, 64000, i);
    }
    for (unsigned i = 0; i < 6; i++) {
        work[i] = (struct work){f, plain, random_next(&random), NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, read_at_random, &work[i]), 0);
    }
    for (unsigned i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
        if (work[i].wrong)
            fail_msg("%s", work[i].wrong);
    }
    free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_modes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fixtures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trailer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_warning, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
