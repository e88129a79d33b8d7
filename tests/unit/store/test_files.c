/* SPDX-License-Identifier: Apache-2.0 */
#include "base/store.h"
#include "store/files.h"
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY 600
#define THREADS 8

struct fixture {
    struct tree tree;
    struct lines lines;
    struct rfs_files *files;
    uint32_t id;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    tree_new(&f->tree);
    lines_init(&f->lines);
    f->files = rfs_files_new(&f->lines.log);
    tree_file(&f->tree, "a", "0123456789", 10);
    tree_touch(&f->tree, "a", 1000, 5);
    f->id = rfs_files_add(f->files, tree_path(&f->tree, "a"));
    *state = f;
    return f->files && f->id == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rfs_files_free(f->files);
    tree_remove(&f->tree);
    free(f);
    return 0;
}

static struct rfs_files_counters counted(struct fixture *f)
{
    struct rfs_files_counters c;
    rfs_files_count(f->files, &c);
    return c;
}

/* Everything says so, now and later; one line was logged. */
static void assert_stuck(struct fixture *f, int code, const char *what)
{
    struct rfs_reading r;
    struct stat st;
    assert_int_equal(rfs_files_check(f->files, f->id), code);
    assert_int_equal(rfs_files_state(f->files, f->id), code);
    assert_int_equal(rfs_files_stat(f->files, f->id, &st), code);
    assert_int_equal(rfs_reading_begin(f->files, f->id, &r), code);
    assert_int_equal(f->lines.n, 1);
    assert_non_null(strstr(f->lines.last, tree_path(&f->tree, "a")));
    if (!strstr(f->lines.last, what))
        fail_msg("no '%s' in: %s", what, f->lines.last);
}

static void test_read(void **state)
{
    struct fixture *f = *state;
    struct rfs_reading r;
    struct stat st;
    char buf[11] = "";
    assert_string_equal(rfs_files_path(f->files, 0), tree_path(&f->tree, "a"));
    assert_int_equal(rfs_files_stat(f->files, 0, &st), 0);
    assert_int_equal(st.st_size, 10);
    assert_int_equal(counted(f).opens, 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(rfs_reading_begin(f->files, 0, &r), 0);
        assert_int_equal(r.size, 10);
        assert_int_equal(rfs_reading_pread(&r, buf, 10, 0), 0);
        assert_string_equal(buf, "0123456789");
        assert_int_equal(rfs_reading_pread(&r, buf, 3, 7), 0);
        assert_memory_equal(buf, "789", 3);
        assert_int_equal(rfs_reading_pread(&r, buf, 0, 10), 0);
        assert_int_equal(rfs_reading_pread(&r, buf, 4, 7), -ESTALE);
        assert_int_equal(rfs_reading_pread(&r, buf, 1, UINT64_MAX), -ESTALE);
        assert_int_equal(rfs_reading_end(&r), 0);
    }
    assert_int_equal(counted(f).opens, 1);
    assert_int_equal(counted(f).reads, 6);
    assert_int_equal(counted(f).bytes, 39);
    assert_int_equal(rfs_files_state(f->files, 0), 0);
    assert_int_equal(f->lines.n, 0);
}

static void test_modified(void **state)
{
    struct fixture *f = *state;
    struct rfs_reading r;
    assert_int_equal(rfs_reading_begin(f->files, 0, &r), 0);
    assert_int_equal(rfs_reading_end(&r), 0);
    tree_touch(&f->tree, "a", 1000, 6); /* a nanosecond later */
    assert_int_equal(rfs_reading_begin(f->files, 0, &r), -ESTALE);
    tree_touch(&f->tree, "a", 1000, 5);
    assert_stuck(f, -ESTALE, "modified");
}

static void test_attributes(void **state)
{
    struct fixture *f = *state;
    struct stat before;
    struct stat st;
    assert_int_equal(rfs_files_stat(f->files, 0, &before), 0);
    do { /* until the clock of file times has moved on */
        assert_int_equal(chmod(tree_path(&f->tree, "a"), 0600), 0);
        assert_int_equal(stat(tree_path(&f->tree, "a"), &st), 0);
    } while (memcmp(&st.st_ctim, &before.st_ctim, sizeof st.st_ctim) == 0);
    assert_stuck(f, -ESTALE, "attributes were changed");
}

static void test_truncated(void **state)
{
    struct fixture *f = *state;
    struct rfs_reading r;
    char buf[10];
    assert_int_equal(rfs_reading_begin(f->files, 0, &r), 0);
    assert_int_equal(truncate(tree_path(&f->tree, "a"), 4), 0);
    assert_int_equal(rfs_reading_pread(&r, buf, 10, 0), -ESTALE);
    assert_int_equal(rfs_reading_end(&r), -ESTALE);
    assert_stuck(f, -ESTALE, "changed from 10 to 4 bytes");
}

static void test_size(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(rfs_files_check(f->files, 0), 0);
    assert_int_equal(truncate(tree_path(&f->tree, "a"), 14), 0);
    assert_stuck(f, -ESTALE, "changed from 10 to 14 bytes");
}

/* Bytes that were read are only good once the end says so. */
static void test_changed_between(void **state)
{
    struct fixture *f = *state;
    struct rfs_reading r;
    char buf[10];
    assert_int_equal(rfs_reading_begin(f->files, 0, &r), 0);
    assert_int_equal(rfs_reading_pread(&r, buf, 10, 0), 0);
    tree_file(&f->tree, "a", "abcdefghij", 10);
    assert_int_equal(rfs_reading_end(&r), -ESTALE);
    assert_stuck(f, -ESTALE, "modified");
}

/* Who reads often compares once, after all of it. */
static void test_taken(void **state)
{
    struct fixture *f = *state;
    struct rfs_reading r;
    char buf[10];
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(rfs_reading_take(f->files, 0, &r), 0);
        assert_int_equal(rfs_reading_pread(&r, buf, 10, 0), 0);
        rfs_reading_leave(&r);
    }
    assert_int_equal(counted(f).checks, 1); /* before it was opened */
    assert_int_equal(rfs_files_check(f->files, 0), 0);
    tree_file(&f->tree, "b", "abcdefghij", 10);
    assert_int_equal(rename(tree_path(&f->tree, "b"), tree_path(&f->tree, "a")), 0);
    assert_int_equal(rfs_reading_take(f->files, 0, &r), 0);
    assert_int_equal(rfs_reading_pread(&r, buf, 10, 0), 0);
    rfs_reading_leave(&r);
    assert_memory_equal(buf, "0123456789", 10); /* of the one that was open */
    assert_int_equal(rfs_files_check(f->files, 0), -ESTALE);
    assert_int_equal(rfs_reading_take(f->files, 0, &r), -ESTALE);
    assert_int_equal(counted(f).checks, 3);
    assert_stuck(f, -ESTALE, "replaced by another");
}

static void test_replaced(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(rfs_files_check(f->files, 0), 0);
    tree_file(&f->tree, "b", "0123456789", 10);
    tree_touch(&f->tree, "b", 1000, 5);
    assert_int_equal(rename(tree_path(&f->tree, "b"), tree_path(&f->tree, "a")), 0);
    assert_stuck(f, -ESTALE, "replaced by another");
}

/*
 * Who has seen one file's attributes is told of nobody but itself when the name has another's by
 * now.
 */
static void test_access_of_another(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    rfs_files_set_for_others(f->files);
    tree_file(&f->tree, "b", "0123456789", 10);
    assert_int_equal(chmod(f->tree.root, 0755), 0);
    assert_int_equal(chmod(tree_path(&f->tree, "a"), 0644), 0);
    assert_int_equal(rfs_files_look(f->files, f->id, &st), 0);
    /* As far as folders above that one let others in. */
    const struct rfs_access above = rfs_access_above(NULL, tree_path(&f->tree, "a"));
    assert_int_equal(rfs_files_access(f->files, f->id, &st).others, above.others);
    assert_int_equal(rename(tree_path(&f->tree, "b"), tree_path(&f->tree, "a")), 0);
    const struct rfs_access other = rfs_files_access(f->files, f->id, &st);
    assert_true(other.user);
    assert_int_equal(other.uid, geteuid());
    assert_false(other.group || other.others);
}

static void test_removed(void **state)
{
    struct fixture *f = *state;
    struct rfs_reading r;
    assert_int_equal(rfs_reading_begin(f->files, 0, &r), 0);
    assert_int_equal(unlink(tree_path(&f->tree, "a")), 0);
    assert_int_equal(rfs_reading_end(&r), -ESTALE);
    assert_stuck(f, -ESTALE, "removed");
}

static void test_fifo(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(unlink(tree_path(&f->tree, "a")), 0);
    assert_int_equal(mkfifo(tree_path(&f->tree, "a"), 0644), 0);
    struct rfs_error err = {0};
    struct rfs_reading r;
    assert_int_equal(rfs_reading_begin(f->files, 0, &r), -EINVAL); /* and nothing blocked */
    assert_int_equal(rfs_files_state(f->files, 0), -EINVAL);
    assert_true(rfs_files_reason(f->files, 0, -EINVAL, &err));
    assert_non_null(strstr(err.text, "/a: not a regular file; try: "));
    assert_int_equal(counted(f).opens, 0);
}

static void test_a_file_that_becomes_a_fifo(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    assert_int_equal(rfs_files_stat(f->files, 0, &st), 0);
    assert_int_equal(unlink(tree_path(&f->tree, "a")), 0);
    assert_int_equal(mkfifo(tree_path(&f->tree, "a"), 0644), 0);
    assert_stuck(f, -ESTALE, "no longer a regular file");
    assert_int_equal(counted(f).opens, 0);
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

struct work {
    struct fixture *f;
    uint64_t seed;
    atomic_uint *bad;
    atomic_uint *most;
};

/* Reads files at random, some held while others are taken. */
static void *worker(void *arg)
{
    struct work *work = arg;
    struct random random = {work->seed};
    for (unsigned i = 0; i < 1500; i++) {
        const uint32_t id = 1 + (uint32_t)random_below(&random, MANY);
        struct rfs_reading r;
        uint32_t value = 0;
        if (rfs_reading_begin(work->f->files, id, &r) != 0) {
            atomic_fetch_add(work->bad, 1);
            continue;
        }
        if (rfs_reading_pread(&r, &value, sizeof value, 0) != 0 || value != id)
            atomic_fetch_add(work->bad, 1);
        if (rfs_reading_end(&r) != 0)
            atomic_fetch_add(work->bad, 1);
        if (i % 100 == 0) {
            const unsigned now = open_descriptors();
            unsigned most = atomic_load(work->most);
            while (now > most && !atomic_compare_exchange_weak(work->most, &most, now))
                continue;
        }
    }
    return NULL;
}

static void add_many(struct fixture *f)
{
    for (uint32_t i = 1; i <= MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%u", i);
        tree_file(&f->tree, name, &i, sizeof i);
        assert_int_equal(rfs_files_add(f->files, tree_path(&f->tree, name)), i);
    }
}

static void test_limit(void **state)
{
    struct fixture *f = *state;
    const uint64_t seed = random_seed();
    add_many(f);
    const unsigned before = open_descriptors();
    atomic_uint bad = 0;
    atomic_uint most = 0;
    pthread_t threads[THREADS];
    struct work work[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        work[i] = (struct work){f, seed + i, &bad, &most};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &work[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(bad, 0);
    assert_int_equal(open_descriptors(), before + RFS_MAX_OPEN);
    assert_true(most <= before + RFS_MAX_OPEN + THREADS); /* and the listings of the threads */
    assert_true(counted(f).opens >= MANY);
}

static void *late_reader(void *arg)
{
    struct fixture *f = arg;
    struct rfs_reading r;
    uintptr_t ok = rfs_reading_begin(f->files, MANY, &r) == 0 && rfs_reading_end(&r) == 0;
    return (void *)ok;
}

/*
 * All are pinned: the next one waits for one to be given back, and one that is open needs no room.
 */
static void test_all_pinned(void **state)
{
    struct fixture *f = *state;
    static struct rfs_reading held[RFS_MAX_OPEN];
    struct rfs_reading again;
    add_many(f);
    for (uint32_t i = 0; i < RFS_MAX_OPEN; i++)
        assert_int_equal(rfs_reading_begin(f->files, i + 1, &held[i]), 0);
    assert_int_equal(counted(f).opens, RFS_MAX_OPEN);
    assert_int_equal(rfs_reading_begin(f->files, 7, &again), 0);
    pthread_t thread;
    void *ok = NULL;
    assert_int_equal(pthread_create(&thread, NULL, late_reader, f), 0);
    usleep(20000);
    assert_int_equal(counted(f).opens, RFS_MAX_OPEN); /* it has not opened anything yet */
    assert_int_equal(rfs_reading_end(&again), 0);
    assert_int_equal(rfs_reading_end(&held[9]), 0);
    pthread_join(thread, &ok);
    assert_non_null(ok);
    assert_int_equal(counted(f).opens, RFS_MAX_OPEN + 1);
    for (uint32_t i = 0; i < RFS_MAX_OPEN; i++)
        if (i != 9)
            assert_int_equal(rfs_reading_end(&held[i]), 0);
}

/* The process itself has too few: idle ones are given up first, and the failure does not stick. */
static void test_process_limit(void **state)
{
    struct fixture *f = *state;
    struct rlimit old;
    struct rfs_reading held[64];
    struct rfs_reading r;
    add_many(f);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    const struct rlimit tight = {32, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (uint32_t i = 1; i <= MANY; i++) {
        assert_int_equal(rfs_reading_begin(f->files, i, &r), 0);
        assert_int_equal(rfs_reading_end(&r), 0);
    }
    unsigned n = 0;
    int rc = 0;
    while (n < 64 && (rc = rfs_reading_begin(f->files, n + 1, &held[n])) == 0)
        n++;
    assert_int_equal(rc, -EMFILE);
    assert_int_equal(rfs_files_state(f->files, n + 1), 0);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(rfs_reading_end(&held[i]), 0);
    assert_int_equal(rfs_reading_begin(f->files, n + 1, &r), 0);
    assert_int_equal(rfs_reading_end(&r), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(f->lines.n, 0);
}

static void whole_fails(struct fixture *f, const char *name, int code, const char *what)
{
    char *data = NULL;
    size_t size;
    struct rfs_error err = {0};
    assert_int_equal(rfs_store_read_whole(NULL, tree_path(&f->tree, name), 10, &data, &size, &err),
                     code);
    assert_null(data);
    assert_non_null(strstr(err.text, tree_path(&f->tree, name)));
    if (!strstr(err.text, what))
        fail_msg("no '%s' in: %s", what, err.text);
}

static void test_whole(void **state)
{
    struct fixture *f = *state;
    char *data = NULL;
    size_t size = 0;
    assert_int_equal(rfs_store_read_whole(NULL, tree_path(&f->tree, "a"), 10, &data, &size, NULL),
                     0);
    assert_int_equal(size, 10);
    assert_string_equal(data, "0123456789");
    free(data);
    tree_file(&f->tree, "empty", "", 0);
    assert_int_equal(
        rfs_store_read_whole(NULL, tree_path(&f->tree, "empty"), 10, &data, &size, NULL), 0);
    assert_int_equal(size, 0);
    assert_string_equal(data, "");
    free(data);
    tree_file(&f->tree, "long", "0123456789a", 11);
    tree_folder(&f->tree, "folder");
    assert_int_equal(mkfifo(tree_path(&f->tree, "fifo"), 0644), 0);
    whole_fails(f, "long", -EFBIG, "larger than 10 bytes");
    whole_fails(f, "folder", -EISDIR, "is a folder");
    whole_fails(f, "fifo", -EINVAL, "not a regular file");
    whole_fails(f, "none", -ENOENT, "No such file");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_read),
        TEST(test_modified),
        TEST(test_attributes),
        TEST(test_truncated),
        TEST(test_size),
        TEST(test_changed_between),
        TEST(test_taken),
        TEST(test_replaced),
        TEST(test_removed),
        TEST(test_fifo),
        TEST(test_a_file_that_becomes_a_fifo),
        TEST(test_limit),
        TEST(test_all_pinned),
        TEST(test_process_limit),
        TEST(test_whole),
        TEST(test_access_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
