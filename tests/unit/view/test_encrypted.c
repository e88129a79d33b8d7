/* SPDX-License-Identifier: Apache-2.0 */
/* Views of encrypted sources. */
#include "base/options.h"
#include "reshard.h"
#include "tests/support/sealer.h"
#include "tests/unit/view/support.h"
#include "view/view_options.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static const struct seal GCM = {RFS_AES_GCM, NULL, 16, RFS_CIPHER_BLOCK, false};

static unsigned char *slurp(const char *path, size_t *n)
{
    struct stat st;
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    unsigned char *data = malloc((size_t)st.st_size + 1);
    *n = (size_t)st.st_size;
    assert_int_equal(read(fd, data, *n), *n);
    close(fd);
    return data;
}

static void seal_ranks(struct fixture *f, const struct seal *how)
{
    for (unsigned rank = 0; rank < 4; rank++) {
        char name[64];
        snprintf(name, sizeof name, "src/rank_%u/net-1_2.ckpt", rank);
        seal_file(tree_path(f->root, name), how, rank);
    }
    tree_write(f->root, "key", seal_key(how->key_bytes), how->key_bytes);
}

static int open_by_file(struct fixture *f, const char *more)
{
    char options[1024];
    snprintf(options, sizeof options, "key_file=%s%s%s", tree_path(f->root, "key"),
             *more ? "," : "", more);
    return open_with(f, options);
}

static void must_open(struct fixture *f, const char *more)
{
    if (open_by_file(f, more))
        fail_msg("%s", f->err.message);
}

static void expect_all(struct fixture *f)
{
    for (unsigned rank = 0; rank < 2; rank++) {
        struct bytes expected = {0};
        expected_rank(&expected, rank, 42);
        expect_file(f, rank, &expected);
        bytes_free(&expected);
    }
}

static void assert_says(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("no '%s' in: %s", what, text);
}

static void test_modes(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum rfs_cipher_mode mode;
        size_t key_bytes;
    } kinds[] = {{RFS_AES_GCM, 16}, {RFS_AES_GCM, 32}, {RFS_AES_CBC, 24}, {RFS_SM4_CBC, 16}};
    for (unsigned i = 0; i < 4; i++) {
        const struct seal how = {kinds[i].mode, NULL, kinds[i].key_bytes, RFS_CIPHER_BLOCK, false};
        for (unsigned rank = 0; rank < 4; rank++)
            write_source_rank(f->root, rank, 42);
        seal_ranks(f, &how);
        f->lines.text[0] = 0;
        must_open(f, "");
        /* The warning comes before anybody has read anything, and once. */
        if (kinds[i].mode == RFS_AES_GCM)
            assert_string_equal(f->lines.text, "");
        else
            assert_says(f->lines.text, "which does not detect changes");
        const size_t said = strlen(f->lines.text);
        expect_all(f);
        assert_int_equal(strlen(f->lines.text), said);
        reshard_close(f->view);
        f->view = NULL;
    }
}

static void test_only_the_owner_reads(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;
    for (unsigned rank = 0; rank < 4; rank++) {
        char name[64];
        snprintf(name, sizeof name, "src/rank_%u/net-1_2.ckpt", rank);
        assert_int_equal(chmod(tree_path(f->root, name), 0644), 0);
    }
    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), 0);
    assert_int_equal(st.mode, S_IFREG | 0444);
    reshard_close(f->view);
    seal_ranks(f, &GCM);
    must_open(f, "");
    assert_int_equal(stat_rank(f, 0, &st), 0);
    assert_int_equal(st.mode, S_IFREG | 0400);
    assert_int_equal(st.uid, geteuid());
}

static void refuse_usage(struct fixture *f, const char *options, const char *what)
{
    assert_int_equal(open_with(f, options), -EINVAL);
    assert_null(f->view);
    assert_int_equal(f->err.usage, 1);
    assert_says(f->err.message, what);
}

static void test_options(void **state)
{
    struct fixture *f = *state;
    char options[1024];
    seal_ranks(f, &GCM);
    refuse_usage(f, "key=0123456789abcdef", "a key cannot be given on a command line");
    assert_null(strstr(f->err.message, "0123"));
    refuse_usage(f, "key_mode=AES-GCM", "there is a key_mode, but no key");
    refuse_usage(f, "key_fd=secret", "option key_fd");
    snprintf(options, sizeof options, "key_file=%s,key_env=HOME", tree_path(f->root, "key"));
    refuse_usage(f, options, "more than one place for the key");
    snprintf(options, sizeof options, "key_file=%s,key_mode=AES", tree_path(f->root, "key"));
    refuse_usage(f, options, "option key_mode=AES: not one that is known");
    snprintf(options, sizeof options, "key_file=%s,cache=79M", tree_path(f->root, "key"));
    refuse_usage(f, options, "the cache is too small for encrypted sources");
    assert_int_equal(open_by_file(f, "key_mode=AES-CBC"), -EINVAL);
    assert_int_equal(f->err.usage, 0);
    assert_says(f->err.message, "the file is encrypted by AES-GCM, but key_mode is AES-CBC");
    must_open(f, "key_mode=AES-GCM,cache=80M");
    expect_all(f);
}

static rlim_t addresses; /* of this process, as the library is told; 0: as many as there are */

int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    const int rc = prlimit(0, resource, NULL, limit);

    if (rc == 0 && resource == RLIMIT_AS && addresses > 0)
        limit->rlim_cur = addresses;
    return rc;
}

/*
 * In little memory. Who asks for as much as is the default there is refused like others, and only
 * the default raised.
 */
static void test_small_default(void **state)
{
    struct fixture *f = *state;
    char options[1024];
    struct rfs_options parsed;
    struct rfs_error err = {0};

    seal_ranks(f, &GCM);
    addresses = 512 * MIB;
    assert_int_equal(rfs_view_options_take(&(struct rfs_settings){0}, &parsed, &err), 0);
    snprintf(options, sizeof options, "key_file=%s,cache=%llu", tree_path(f->root, "key"),
             (unsigned long long)parsed.cache);
    rfs_options_free(&parsed);
    assert_true(parsed.cache <= 64 * MIB);
    refuse_usage(f, options, "the cache is too small for encrypted sources");
    must_open(f, "");
    expect_all(f);
    addresses = 0;
}

static void test_environment(void **state)
{
    struct fixture *f = *state;
    seal_ranks(f, &GCM);
    assert_int_equal(setenv("RFS_TEST_KEY", "not the right key", 1), 0);
    assert_int_equal(open_with(f, "key_env=RFS_TEST_KEY"), -EINVAL);
    assert_null(strstr(f->err.message, "not the right"));
    assert_null(getenv("RFS_TEST_KEY"));
    char key[17] = "";
    memcpy(key, seal_key(16), 16);
    assert_int_equal(setenv("RFS_TEST_KEY", key, 1), 0);
    if (open_with(f, "key_env=RFS_TEST_KEY"))
        fail_msg("%s", f->err.message);
    assert_null(getenv("RFS_TEST_KEY"));
    expect_all(f);
}

static void test_wrong_key(void **state)
{
    struct fixture *f = *state;
    const struct seal sm4 = {RFS_SM4_CBC, NULL, 16, RFS_CIPHER_BLOCK, false};
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned rank = 0; rank < 4; rank++)
            write_source_rank(f->root, rank, 42);
        seal_ranks(f, i == 0 ? &GCM : &sm4);
        tree_write(f->root, "key", "0123456789abcdef\n", 17);
        f->lines.text[0] = 0;
        assert_int_equal(open_by_file(f, ""), -EBADMSG);
        assert_int_equal(f->err.usage, 0);
        assert_says(f->err.message, "src/rank_0/net-1_2.ckpt: offset 0: block 0 ");
        assert_says(f->err.message,
                    ": the key is wrong, or the file was changed; try: check the key");
        assert_string_equal(f->lines.text, ""); /* it is told once */
    }
}

static void test_no_key(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;
    seal_ranks(f, &GCM);
    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_says(f->err.message,
                "the file is encrypted (AES-GCM), and there is no key; try: -o key_file=FILE");
}

static void test_plain_sources(void **state)
{
    struct fixture *f = *state;
    tree_write(f->root, "key", seal_key(16), 16);
    assert_int_equal(open_by_file(f, ""), -EINVAL);
    assert_says(f->err.message,
                "src/rank_0/net-1_2.ckpt: the file is not encrypted, but a key is given");
}

/*
 * One that is damaged fails the files that are made from it, and those alone; also if it is the
 * first.
 */
static void test_one_damaged(void **state)
{
    struct fixture *f = *state;
    for (unsigned bad = 0; bad < 4; bad += 3) {
        char name[64];
        reshard_stat st;
        size_t n;
        /* files of their own: file R is made of rank R alone */
        write_strategy(f->root, "dst.json", SRC_ITEMS);
        for (unsigned rank = 0; rank < 4; rank++)
            write_source_rank(f->root, rank, 42);
        seal_ranks(f, &GCM);
        snprintf(name, sizeof name, "src/rank_%u/net-1_2.ckpt", bad);
        unsigned char *data = slurp(tree_path(f->root, name), &n);
        data[n / 2] ^= 4;
        tree_write(f->root, name, data, n);
        free(data);
        must_open(f, "");
        for (unsigned rank = 0; rank < 4; rank++) {
            const int rc = stat_rank(f, rank, &st);
            assert_int_equal(rc, rank == bad ? -EBADMSG : 0);
            unsigned char buf[256];
            const ssize_t got = reshard_pread(f->view, file_id(f, rank), buf, sizeof buf, 0);
            assert_true(rank == bad ? got == -EBADMSG : got == (ssize_t)st.size);
            if (rank == bad)
                assert_says(f->err.message, "offset 0: block 0 fails its AES-GCM check");
        }
        reshard_close(f->view);
        f->view = NULL;
    }
}

/*
 * What MindSpore writes, with a key or without, for a rank that keeps nothing: no key is tried on
 * that.
 */
static void test_an_empty_file(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;
    write_strategy(f->root, "dst.json", SRC_ITEMS);
    seal_ranks(f, &GCM);
    tree_write(f->root, "src/rank_0/net-1_2.ckpt", "", 0);
    must_open(f, "");
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_says(f->err.message, "the file is empty");
    assert_int_equal(stat_rank(f, 1, &st), 0);
}

static void test_statistics(void **state)
{
    struct fixture *f = *state;
    reshard_statistics s = {.struct_size = sizeof s};
    seal_ranks(f, &GCM);
    must_open(f, "cache=300M");
    reshard_get_statistics(f->view, &s);
    assert_int_equal(s.cache_budget, 300 * MIB);
    assert_int_equal(s.cache_bytes, 0);
    const uint64_t before = s.source_bytes;
    expect_all(f);
    reshard_get_statistics(f->view, &s);
    assert_true(s.source_bytes > before);
    assert_true(s.cache_bytes >= 4 * 4096); /* a page and more of each source */
    assert_true(s.cache_bytes <= s.cache_budget);
}

/* Saves side by side share the key, which was there once only, and the store. */
static void test_saves_side_by_side(void **state)
{
    struct fixture *f = *state;
    reshard_statistics s = {.struct_size = sizeof s};
    char key[17] = "";
    memcpy(key, seal_key(16), 16);
    for (unsigned rank = 0; rank < 4; rank++) {
        for (unsigned i = 0; i < 2; i++) {
            char name[64];
            struct bytes file = {0};
            unsigned char w[8];
            fill(w, "w", rank * 8, 8);
            ckpt_tensor(&file, "steps", "Int8", 0, NULL, &(unsigned char){(unsigned char)(66 + i)},
                        1);
            ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){2, 4}, w, 8);
            snprintf(name, sizeof name, "src/rank_%u/net-%u_2.ckpt", rank, i + 1);
            tree_write(f->root, name, file.data, file.n);
            bytes_free(&file);
            seal_file(tree_path(f->root, name), &GCM, rank * 2 + i);
        }
    }
    assert_int_equal(setenv("RFS_TEST_KEY", key, 1), 0);
    if (open_with(f, "step=all,key_env=RFS_TEST_KEY,cache=100M"))
        fail_msg("%s", f->err.message);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t id;
        unsigned char buf[256];
        reshard_stat st = {.struct_size = sizeof st};
        assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, i == 0 ? "1_2" : "2_2", &id), 0);
        assert_int_equal(reshard_lookup(f->view, id, "rank_1", &id), 0);
        assert_int_equal(reshard_lookup(f->view, id, "checkpoint_1.ckpt", &id), 0);
        assert_int_equal(reshard_getattr(f->view, id, &st, NULL), 0);
        assert_int_equal(st.mode & 07777, 0400);
        assert_int_equal(reshard_pread(f->view, id, buf, sizeof buf, 0), st.size);
        assert_int_equal(buf[st.size - 1], 66 + i);
    }
    reshard_get_statistics(f->view, &s);
    assert_int_equal(s.cache_budget, 100 * MIB);
}

/* Two views of the same content, one of plain files and one of encrypted ones. */
struct twins {
    reshard_view *plain, *encrypted;
    uint64_t id;
    uint64_t bytes;
    uint64_t seed;
    const char *wrong;
};

static void *compare(void *arg)
{
    struct twins *twins = arg;
    enum { MOST = 300000 };
    unsigned char *a = malloc(MOST), *b = malloc(MOST + RESHARD_SCRATCH_EXTRA);
    reshard_reader *readers[2];
    if (reshard_reader_open(twins->plain, twins->id, &readers[0]) != 0 ||
        reshard_reader_open(twins->encrypted, twins->id, &readers[1]) != 0)
        abort();
    for (unsigned i = 0; i < 60 && !twins->wrong; i++) {
        const size_t size = 1 + test_below(&twins->seed, MOST);
        const uint64_t at =
            i % 3 ? test_below(&twins->seed, (uint32_t)twins->bytes) : (uint64_t)i * 100000;
        const ssize_t want = reshard_reader_pread(readers[0], a, size, at);
        struct iovec iov[8];
        reshard_loan *loan;
        int count;
        const ssize_t got = reshard_reader_borrow(readers[1], b, size, at, iov, 8, &count, &loan);
        if (want < 0 || got != want)
            twins->wrong = "length";
        for (int k = 0, done = 0; k < count; done += (int)iov[k].iov_len, k++)
            if (memcmp(iov[k].iov_base, a + done, iov[k].iov_len) != 0)
                twins->wrong = "bytes";
        reshard_return(loan);
    }
    reshard_reader_close(readers[0]);
    reshard_reader_close(readers[1]);
    free(a);
    free(b);
    return NULL;
}

/* Writes a tensor in the folder "plain", and encrypted in "src". */
static void write_twins(struct fixture *f, enum rfs_cipher_mode mode, uint64_t *seed)
{
    enum { ROWS = 256, COLUMNS = 1024 };
    const struct seal how = {mode, NULL, 16, RFS_CIPHER_BLOCK, false};
    float *w = malloc(sizeof *w * ROWS * COLUMNS);
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        char name[64];
        for (size_t k = 0; k < ROWS * COLUMNS; k++)
            w[k] = (float)test_below(seed, 1u << 30);
        ckpt_tensor(&file, "w", "Float32", 2, (uint64_t[]){ROWS, COLUMNS}, w,
                    sizeof *w * ROWS * COLUMNS);
        snprintf(name, sizeof name, "plain/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, name, file.data, file.n);
        snprintf(name, sizeof name, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, name, file.data, file.n);
        bytes_free(&file);
    }
    free(w);
    seal_ranks(f, &how);
}

/* Pieces that are put together, kept, lent and evicted, as of plain sources. */
static void test_large(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *options;
        enum rfs_cipher_mode mode;
    } cases[] = {{"cache=80M", RFS_AES_GCM},
                 {"cache=80M,format=safetensors", RFS_AES_CBC},
                 {"cache=80M,crc", RFS_AES_GCM},
                 {"cache=80M,dtype=float16", RFS_SM4_CBC}};
    uint64_t seed = test_seed();
    write_strategy(f->root, "src.json", LAYOUT("w", "[4]", "[0, -1]", "[1024, 1024]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[-1, 0]", "[1024, 1024]"));
    for (unsigned i = 0; i < 4; i++) {
        char options[1024];
        reshard_view *plain;
        uint64_t id;
        reshard_stat st = {.struct_size = sizeof st};
        reshard_dirent entry = {.struct_size = sizeof entry};
        write_twins(f, cases[i].mode, &seed);
        must_open(f, cases[i].options);
        snprintf(options, sizeof options, "src_strategy=%s,dst_strategy=%s,%s",
                 tree_path(f->root, "src.json"), tree_path(f->root, "dst.json"), cases[i].options);
        const reshard_config config = {.struct_size = sizeof config, .options = options};
        assert_int_equal(reshard_open(tree_path(f->root, "plain"), &config, &plain, NULL), 0);
        assert_int_equal(reshard_lookup(plain, RESHARD_ROOT, "rank_1", &id), 0);
        assert_int_equal(reshard_list(plain, id, 0, &entry), 1);
        assert_int_equal(reshard_getattr(plain, entry.id, &st, NULL), 0);
        pthread_t threads[3];
        struct twins twins[3];
        for (unsigned t = 0; t < 3; t++) {
            twins[t] = (struct twins){plain, f->view, entry.id, st.size, seed + t, NULL};
            pthread_create(&threads[t], NULL, compare, &twins[t]);
        }
        for (unsigned t = 0; t < 3; t++) {
            pthread_join(threads[t], NULL);
            if (twins[t].wrong)
                fail_msg("%s: %s", cases[i].options, twins[t].wrong);
        }
        reshard_close(plain);
        reshard_close(f->view);
        f->view = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_modes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_the_owner_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_small_default, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_environment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_plain_sources, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_damaged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_empty_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_statistics, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_saves_side_by_side, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
