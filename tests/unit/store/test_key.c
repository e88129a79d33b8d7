/* SPDX-License-Identifier: Apache-2.0 */
/* Where keys come from, and that they go nowhere. */
#include "store/crypt/key.h"
#include "tests/support/smaps.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECRET "Do not show this to anybody, ever!" /* 34 bytes */

struct fixture {
    struct tree tree;
    struct lines lines;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    tree_new(&f->tree);
    lines_init(&f->lines);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tree_remove(&f->tree);
    free(f);
    return 0;
}

static int load_file(struct fixture *f, const void *bytes, size_t n, struct rfs_key **key,
                     struct rfs_error *err)
{
    tree_file(&f->tree, "key", bytes, n);
    chmod(tree_path(&f->tree, "key"), 0600);
    const struct rfs_key_config config = {tree_path(&f->tree, "key"), NULL, -1, RFS_NOT_ENCRYPTED};
    *err = (struct rfs_error){0};
    return rfs_key_load(&config, &f->lines.log, key, err);
}

static void test_lengths(void **state)
{
    struct fixture *f = *state;
    struct rfs_key *key;
    struct rfs_error err;
    for (size_t n = 0; n <= 40; n++) {
        for (unsigned newline = 0; newline < 2; newline++) {
            char bytes[64] = SECRET "xxxxxxxx";
            if (newline)
                bytes[n] = '\n';
            const bool good = n == 16 || n == 24 || n == 32;
            const int rc = load_file(f, bytes, n + newline, &key, &err);
            /* a key whose last byte is a newline */
            const bool whole = newline && (n + 1 == 16 || n + 1 == 24 || n + 1 == 32);
            assert_int_equal(rc, good || whole ? 0 : -EINVAL);
            if (rc < 0) {
                assert_null(key);
                assert_true(err.usage);
                assert_non_null(strstr(err.text, "a key of 16, 24 or 32 bytes"));
                assert_null(strstr(err.text, "show"));
                continue;
            }
            assert_int_equal(key->n, whole ? n + 1 : n);
            assert_memory_equal(key->bytes, bytes, key->n);
            rfs_key_free(key);
        }
    }
    assert_int_equal(f->lines.n, 0);
}

static void test_any_bytes(void **state)
{
    struct fixture *f = *state;
    struct rfs_key *key;
    struct rfs_error err;
    assert_int_equal(load_file(f, "\0\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\n", 16, &key, &err), 0);
    assert_int_equal(key->n, 16);
    assert_memory_equal(key->bytes, "\0\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\n", 16);
    rfs_key_free(key);
    /* One newline is taken off, not two, and no other character. */
    assert_int_equal(load_file(f, "0123456789abcdef\n\n", 18, &key, &err), -EINVAL);
    assert_int_equal(load_file(f, "0123456789abcdef\r\n", 18, &key, &err), -EINVAL);
    assert_int_equal(load_file(f, "0123456789abcdef ", 17, &key, &err), -EINVAL);
}

static void test_files(void **state)
{
    struct fixture *f = *state;
    struct rfs_key *key;
    struct rfs_error err;
    struct rfs_key_config config = {tree_path(&f->tree, "none"), NULL, -1, RFS_NOT_ENCRYPTED};
    assert_int_equal(rfs_key_load(&config, NULL, &key, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/none: the key cannot be read: No such file"));
    config.file = f->tree.root;
    assert_int_equal(rfs_key_load(&config, NULL, &key, &err), -EISDIR);
    config.file = "/dev/zero";
    assert_int_equal(rfs_key_load(&config, NULL, &key, &err), -EINVAL);
    assert_non_null(strstr(err.text, "longer than 32 bytes"));
    assert_int_equal(load_file(f, SECRET, 32, &key, &err), 0);
    rfs_key_free(key);
    assert_int_equal(f->lines.n, 0);
    chmod(tree_path(&f->tree, "key"), 0640);
    config.file = tree_path(&f->tree, "key");
    assert_int_equal(rfs_key_load(&config, &f->lines.log, &key, &err), 0);
    rfs_key_free(key);
    assert_int_equal(f->lines.n, 1);
    assert_non_null(strstr(f->lines.last, "/key: the key may be read by others; try: chmod 600"));
}

static void test_environment(void **state)
{
    (void)state;
    struct rfs_key *key;
    struct rfs_error err;
    const struct rfs_key_config config = {NULL, "RFS_TEST_KEY", -1, RFS_NOT_ENCRYPTED};
    static const char *const values[] = {"0123456789abcdef", "0123456789abcdef\n", "too short",
                                         SECRET SECRET};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(setenv("RFS_TEST_KEY", values[i], 1), 0);
        const char *where = getenv("RFS_TEST_KEY");
        assert_int_equal(rfs_key_load(&config, NULL, &key, &err), i < 2 ? 0 : -EINVAL);
        assert_null(getenv("RFS_TEST_KEY"));
        for (size_t k = 0; k < strlen(values[i]); k++)
            assert_int_equal(where[k], 0); /* glibc keeps the memory of a variable that is gone */
        if (i < 2) {
            assert_int_equal(key->n, 16);
            assert_memory_equal(key->bytes, values[0], 16);
            rfs_key_free(key);
        }
    }
    assert_int_equal(rfs_key_load(&config, NULL, &key, &err), -EINVAL);
    assert_true(err.usage);
    assert_non_null(strstr(err.text, "no variable that key_env names"));
}

static void test_descriptors(void **state)
{
    (void)state;
    struct rfs_key *key;
    struct rfs_error err;
    struct rfs_key_config config = {NULL, NULL, -1, RFS_NOT_ENCRYPTED};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], SECRET, 10), 10);
    assert_int_equal(write(ends[1], &SECRET[10], 14), 14);
    close(ends[1]);
    config.fd = ends[0];
    assert_int_equal(rfs_key_load(&config, NULL, &key, &err), 0);
    assert_int_equal(key->n, 24);
    assert_memory_equal(key->bytes, SECRET, 24);
    rfs_key_free(key);
    assert_int_equal(fcntl(ends[0], F_GETFD), -1);
    assert_int_equal(rfs_key_load(&config, NULL, &key, &err), -EBADF);
    assert_non_null(strstr(err.text, "the key cannot be read: Bad file descriptor"));
    config.fd = open("/dev/null", O_RDONLY);
    assert_int_equal(rfs_key_load(&config, NULL, &key, &err), -EINVAL);
    assert_int_equal(fcntl(config.fd, F_GETFD), -1); /* also when it is no key */
}

/* Descriptor 0 stays taken. In a child, as it is the test's as well. */
static void test_standard_input(void **state)
{
    struct fixture *f = *state;
    int status;
    tree_file(&f->tree, "key", SECRET, 32);
    const pid_t child = fork();
    if (child == 0) {
        struct rfs_key *key = NULL;
        struct stat st;
        const struct rfs_key_config config = {NULL, NULL, 0, RFS_NOT_ENCRYPTED};
        char byte;
        const int fd = open(tree_path(&f->tree, "key"), O_RDONLY);
        if (dup2(fd, 0) != 0)
            _exit(1);
        if (rfs_key_load(&config, NULL, &key, NULL) != 0 || key->n != 32)
            _exit(2);
        if (fstat(0, &st) != 0 || !S_ISCHR(st.st_mode) || read(0, &byte, 1) != 0)
            _exit(3);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_one_place(void **state)
{
    struct fixture *f = *state;
    struct rfs_key *key;
    struct rfs_error err;
    tree_file(&f->tree, "key", SECRET, 32);
    const char *file = tree_path(&f->tree, "key");
    const struct rfs_key_config bad[] = {
        {NULL, NULL, -1, RFS_NOT_ENCRYPTED},  {file, "HOME", -1, RFS_NOT_ENCRYPTED},
        {file, NULL, 0, RFS_NOT_ENCRYPTED},   {NULL, "HOME", 0, RFS_NOT_ENCRYPTED},
        {file, "HOME", 1, RFS_NOT_ENCRYPTED},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(rfs_key_load(&bad[i], NULL, &key, &err), -EINVAL);
        assert_true(err.usage);
        assert_null(key);
    }
    assert_non_null(getenv("HOME")); /* nothing was touched */
}

static void test_memory(void **state)
{
    struct fixture *f = *state;
    struct rfs_key *key;
    struct rfs_error err;
    int status;
    assert_int_equal(load_file(f, SECRET, 32, &key, &err), 0);
    assert_true(smaps_has(key, "dd"));
    assert_true(smaps_has(key, "lo"));
    const pid_t child = fork(); /* a lock ends with a fork */
    if (child == 0) {
        if (!SMAPS_NO_LOCKS && smaps_has(key, "lo"))
            _exit(1);
        rfs_key_hold(key);
        _exit(smaps_has(key, "lo") && smaps_has(key, "dd") ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rfs_key_free(key);
    assert_int_equal(f->lines.n, 0);
}

/* In a child of nobody's that may lock nothing: a key is used all the same, which is said once. */
static void test_memory_limit(void **state)
{
    struct fixture *f = *state;
    const struct rlimit none = {0, 0};
    struct rfs_key *key;
    struct rfs_error err;
    int status;
    if (SMAPS_NO_LOCKS)
        return;
    assert_int_equal(load_file(f, SECRET, 32, &key, &err), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || (geteuid() == 0 && setuid(65534) != 0))
            _exit(10);
        rfs_key_hold(key);
        rfs_key_hold(key);
        _exit(f->lines.n != 1 || !strstr(f->lines.last, "the key cannot be kept from the swap"));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rfs_key_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_any_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test_setup_teardown(test_standard_input, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_limit, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
