/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"
#include "catalog/catalog.h"
#include "tests/unit/store/tree.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct tree tree;
    struct lines lines;
    struct rfs_pool *pool;
    struct rfs_catalog *catalog;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    tree_new(&f->tree);
    lines_init(&f->lines);
    f->pool = rfs_pool_new(2);
    *state = f;
    return f->pool ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rfs_catalog_close(f->catalog);
    rfs_pool_free(f->pool);
    tree_remove(&f->tree);
    free(f);
    return 0;
}

/* Opens the source; its indexes may take MOST bytes, or any with 0. */
static void open_within(struct fixture *f, uint64_t most)
{
    struct rfs_error err = {0};
    rfs_catalog_close(f->catalog);
    if (rfs_catalog_open(&(struct rfs_source_spec){.path = f->tree.root,
                                                   .options = &rfs_options_defaults,
                                                   .index_most = most},
                         &f->lines.log, f->pool, &f->catalog, &err) < 0)
        fail_msg("%s", err.text);
}

static void open_source(struct fixture *f)
{
    open_within(f, 0);
}

static void refused(struct fixture *f, const char *source, int code, const char *const *parts)
{
    struct rfs_error err = {0};
    struct rfs_catalog *catalog = NULL;
    assert_int_equal(rfs_catalog_open(&(struct rfs_source_spec){.path = source,
                                                                .options = &rfs_options_defaults},
                                      &f->lines.log, f->pool, &catalog, &err),
                     code);
    assert_null(catalog);
    assert_int_equal(err.code, code);
    for (; *parts; parts++)
        if (!strstr(err.text, *parts))
            fail_msg("no '%s' in: %s", *parts, err.text);
}
#define REFUSED(f, code, ...)                                                                      \
    refused(f, (f)->tree.root, code, (const char *const[]){__VA_ARGS__, NULL})

static uint64_t opens(struct fixture *f)
{
    struct rfs_files_counters c;
    rfs_files_count(rfs_catalog_files(f->catalog), &c);
    return c.opens;
}

static const char *path_of(struct fixture *f, uint32_t rank)
{
    const uint32_t id = rfs_catalog_file(f->catalog, rank);
    return id == UINT32_MAX ? "" : rfs_files_path(rfs_catalog_files(f->catalog), id);
}

static void add_rank(struct fixture *f, unsigned rank, size_t n, int byte)
{
    char name[64];
    snprintf(name, sizeof name, "rank_%u", rank);
    tree_folder(&f->tree, name);
    snprintf(name, sizeof name, "rank_%u/net-1_1.ckpt", rank);
    tree_ckpt(&f->tree, name, "w", n, byte);
}

static void test_choice(void **state)
{
    struct fixture *f = *state;
    tree_folder(&f->tree, "rank_0");
    tree_ckpt(&f->tree, "rank_0/net-9_2.ckpt", "w", 4, 1);
    tree_ckpt(&f->tree, "rank_0/net-10_2.ckpt", "w", 4, 1);
    tree_ckpt(&f->tree, "rank_0/.zzz.ckpt", "w", 4, 1);
    tree_file(&f->tree, "rank_0/zzz.txt", "x", 1);
    tree_file(&f->tree, "rank_0/zzz.ckpt.tmp", "x", 1);
    tree_folder(&f->tree, "rank_0/zz.ckpt");
    assert_int_equal(symlink("nowhere", tree_path(&f->tree, "rank_0/zy.ckpt")), 0);
    assert_int_equal(mkfifo(tree_path(&f->tree, "rank_0/zx.ckpt"), 0644), 0);
    tree_folder(&f->tree, "rank_003");
    tree_ckpt(&f->tree, "elsewhere", "w", 4, 1);
    assert_int_equal(symlink("../elsewhere", tree_path(&f->tree, "rank_003/net-9_2.ckpt")), 0);
    tree_folder(&f->tree, "real");
    tree_ckpt(&f->tree, "real/net-9_2.ckpt", "w", 4, 1);
    assert_int_equal(symlink("real", tree_path(&f->tree, "rank_5")), 0);
    tree_folder(&f->tree, "rank_4"); /* nothing in it */
    tree_folder(&f->tree, "rank_7"); /* nor here; above all others */
    tree_folder(&f->tree, "rank_1x");
    tree_folder(&f->tree, "rank_");
    tree_folder(&f->tree, "Rank_8");
    tree_file(&f->tree, "rank_9", "a file", 6);
    open_source(f);
    assert_string_equal(path_of(f, 0), tree_path(&f->tree, "rank_0/net-9_2.ckpt"));
    assert_string_equal(path_of(f, 3), tree_path(&f->tree, "rank_003/net-9_2.ckpt"));
    assert_string_equal(path_of(f, 5), tree_path(&f->tree, "rank_5/net-9_2.ckpt"));
    assert_int_equal(rfs_catalog_ranks(f->catalog), 6);
    assert_int_equal(rfs_catalog_present(f->catalog), 3);
    for (uint32_t rank = 0; rank < 10; rank++)
        assert_int_equal(rfs_catalog_has(f->catalog, rank), rank == 0 || rank == 3 || rank == 5);
    assert_string_equal(rfs_catalog_path(f->catalog), f->tree.root);
    assert_int_equal(opens(f), 0);
}

static void test_refused(void **state)
{
    struct fixture *f = *state;
    refused(f, tree_path(&f->tree, "none"), -ENOENT,
            (const char *const[]){"none: ", "does not exist", NULL});
    REFUSED(f, -ENOENT, f->tree.root, "no rank_N folder", "try: ", "rank_0");
    tree_file(&f->tree, "file", "x", 1);
    refused(f, tree_path(&f->tree, "file"), -EINVAL,
            (const char *const[]){"file: ", "not a checkpoint by its name", NULL});
    tree_folder(&f->tree, "rank_0");
    REFUSED(f, -ENOENT, "no rank_N folder in it has a .ckpt, .safetensors, .pt or .gguf file");
    tree_file(&f->tree, "rank_0/a.safetensors", "x", 1);
    tree_folder(&f->tree, "rank_1");
    tree_ckpt(&f->tree, "rank_1/a.ckpt", "w", 4, 1);
    REFUSED(f, -EINVAL, "both .ckpt files (rank_1/a.ckpt)", "(rank_0/a.safetensors)");
    assert_int_equal(unlink(tree_path(&f->tree, "rank_0/a.safetensors")), 0);
    open_source(f);
    tree_folder(&f->tree, "rank_01");
    REFUSED(f, -EINVAL, "'rank_01' and 'rank_1' are both of rank 1");
    assert_int_equal(rmdir(tree_path(&f->tree, "rank_01")), 0);
    tree_folder(&f->tree, "rank_1048577");
    REFUSED(f, -EINVAL, "'rank_1048577'", "above 1048576");
    assert_int_equal(rmdir(tree_path(&f->tree, "rank_1048577")), 0);
    tree_folder(&f->tree, "rank_99999999999999999999999999999999");
    REFUSED(f, -EINVAL, "above 1048576");
}

/* As nobody, if this is root, whom permissions don't stop. */
static void refused_as_user(struct fixture *f, const char *const *parts)
{
    const bool root = geteuid() == 0;
    if (root)
        assert_int_equal(seteuid(65534), 0);
    refused(f, f->tree.root, -EACCES, parts);
    if (root)
        assert_int_equal(seteuid(0), 0);
}

static void test_no_permission(void **state)
{
    struct fixture *f = *state;
    tree_folder(&f->tree, "rank_0");
    assert_int_equal(chmod(f->tree.root, 0755), 0);
    assert_int_equal(chmod(tree_path(&f->tree, "rank_0"), 0), 0);
    refused_as_user(f, (const char *const[]){"rank_0: ", "cannot be listed", "permissions", NULL});
    assert_int_equal(chmod(tree_path(&f->tree, "rank_0"), 0755), 0);
    assert_int_equal(chmod(f->tree.root, 0), 0);
    refused_as_user(f, (const char *const[]){f->tree.root, "permissions", NULL});
    assert_int_equal(chmod(f->tree.root, 0755), 0);
}

static void test_index(void **state)
{
    struct fixture *f = *state;
    const struct rfs_index *index[4];
    struct rfs_error err = {0};
    struct rfs_catalog_counters c;
    add_rank(f, 0, 100, 1);
    add_rank(f, 1, 100, 2);
    add_rank(f, 2, 200, 3); /* of another shape */
    add_rank(f, 4, 100, 4);
    open_source(f);
    assert_null(rfs_catalog_ready(f->catalog, 0));
    assert_int_equal(rfs_catalog_index(f->catalog, 3, 0, &index[3], &err), -ENOENT);
    assert_non_null(strstr(err.text, "rank 3 has no checkpoint"));
    assert_int_equal(rfs_catalog_index(f->catalog, 77, 0, &index[3], NULL), -ENOENT);
    /* Not indexed yet: no prediction, just a walk. */
    assert_int_equal(rfs_catalog_index(f->catalog, 0, 1, &index[0], &err), 0);
    assert_int_equal(rfs_catalog_index(f->catalog, 1, 0, &index[1], &err), 0);
    assert_int_equal(rfs_catalog_index(f->catalog, 2, 0, &index[2], &err), 0);
    assert_int_equal(rfs_catalog_index(f->catalog, 4, RFS_NO_RANK, &index[3], &err), 0);
    assert_ptr_equal(index[0], index[1]);
    assert_ptr_not_equal(index[0], index[2]);
    assert_ptr_not_equal(index[0], index[3]);
    assert_ptr_equal(rfs_catalog_ready(f->catalog, 1), index[0]);
    rfs_catalog_count(f->catalog, &c);
    assert_int_equal(c.indexed, 4);
    assert_int_equal(c.predicted, 1);
    assert_int_equal(c.index_bytes, 3 * rfs_index_memory(index[0]));
    assert_int_equal(opens(f), 4);
    assert_int_equal(rfs_catalog_index(f->catalog, 1, RFS_NO_RANK, &index[1], &err), 0);
    assert_int_equal(opens(f), 4);
    assert_string_equal(rfs_catalog_name(f->catalog, index[0]->entries[0].name), "w");
    assert_int_equal(rfs_catalog_type(f->catalog, index[2]->entries[0].type)->bytes, 200);
}

/* A use that begins, and asks for rank 0, while another is held up as it marks that. */
struct late {
    struct rfs_catalog *catalog;
    struct rfs_use use;
    const struct rfs_index *index;
};

static void begin_late(void *ctx)
{
    struct late *late = ctx;
    rfs_catalog_watch_marks(late->catalog, NULL, NULL);
    rfs_catalog_begin(late->catalog, &late->use);
    late->index = rfs_catalog_ready(late->catalog, 0);
}

static void test_marks_never_fall(void **state)
{
    struct fixture *f = *state;
    const struct rfs_index *index;
    struct rfs_catalog_counters c;
    struct rfs_use early;
    add_rank(f, 0, 100, 1);
    open_within(f, 1); /* byte: what may go goes */
    struct late late = {.catalog = f->catalog};
    assert_int_equal(rfs_catalog_index(f->catalog, 0, RFS_NO_RANK, &index, NULL), 0);
    rfs_catalog_begin(f->catalog, &early);
    rfs_catalog_watch_marks(f->catalog, begin_late, &late);
    assert_ptr_equal(rfs_catalog_ready(f->catalog, 0), index);
    assert_ptr_equal(late.index, index);
    rfs_catalog_end(f->catalog, &early);
    rfs_catalog_count(f->catalog, &c);
    assert_int_equal(c.dropped, 0);
    assert_int_equal(late.index->n, 1); /* read after it is freed, if it was */
    rfs_catalog_end(f->catalog, &late.use);
    rfs_catalog_count(f->catalog, &c);
    assert_int_equal(c.dropped, 1);
}

static void test_failures(void **state)
{
    struct fixture *f = *state;
    const struct rfs_index *index = NULL;
    struct rfs_error first = {0};
    struct rfs_error again = {0};
    add_rank(f, 0, 100, 1);
    add_rank(f, 1, 100, 1);
    tree_file(&f->tree, "rank_0/net-1_1.ckpt", "", 0);
    open_source(f);
    assert_int_equal(rfs_catalog_index(f->catalog, 0, RFS_NO_RANK, &index, &first), -EINVAL);
    assert_non_null(strstr(first.text, tree_path(&f->tree, "rank_0/net-1_1.ckpt")));
    assert_non_null(strstr(first.text, "empty"));
    assert_null(index);
    assert_int_equal(rfs_catalog_index(f->catalog, 0, RFS_NO_RANK, &index, &again), -EINVAL);
    assert_string_equal(first.text, again.text);
    assert_int_equal(again.code, -EINVAL);
    assert_int_equal(opens(f), 1);
    assert_int_equal(rfs_catalog_index(f->catalog, 0, RFS_NO_RANK, &index, NULL), -EINVAL);

    assert_int_equal(unlink(tree_path(&f->tree, "rank_1/net-1_1.ckpt")), 0);
    assert_int_equal(rfs_catalog_index(f->catalog, 1, RFS_NO_RANK, &index, &first), -ESTALE);
    assert_non_null(strstr(first.text, "changed or removed"));
    add_rank(f, 2, 100, 1); /* not there when the tree was opened */
    assert_int_equal(rfs_catalog_index(f->catalog, 2, RFS_NO_RANK, &index, NULL), -ENOENT);
}

struct work {
    struct fixture *f;
    const struct rfs_index *seen[64];
    unsigned bad;
};

static void *worker(void *arg)
{
    struct work *work = arg;
    for (uint32_t rank = 0; rank < 64; rank++) {
        const uint32_t like = rank == 0 ? RFS_NO_RANK : 0;
        work->bad += rfs_catalog_index(work->f->catalog, rank, like, &work->seen[rank], NULL) != 0;
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct fixture *f = *state;
    static struct work work[8];
    pthread_t threads[8];
    struct rfs_catalog_counters c;
    for (unsigned rank = 0; rank < 64; rank++)
        add_rank(f, rank, rank % 16 == 5 ? 77 : 100, (int)rank);
    open_source(f);
    for (unsigned i = 0; i < 8; i++) {
        work[i] = (struct work){.f = f};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &work[i]), 0);
    }
    for (unsigned i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(work[i].bad, 0);
        assert_memory_equal(work[i].seen, work[0].seen, sizeof work[0].seen);
    }
    rfs_catalog_count(f->catalog, &c);
    assert_int_equal(c.indexed, 64);
    assert_int_equal(c.predicted, 59); /* all but the first and the four of another shape */
    assert_int_equal(opens(f), 64);
}

static void test_content(void **state)
{
    struct fixture *f = *state;
    struct bytes file = {0};
    const int64_t dims[] = {1000};
    put_tensor(&file, "one", dims, 1, "Int8", filler(1000), 1000);
    put_tensor(&file, "cut", dims, 1, "Int8", filler(1000), 300);
    put_tensor(&file, "cut", dims, 1, "Int8", filler(1000) + 300, 500);
    put_tensor(&file, "cut", dims, 1, "Int8", filler(1000) + 800, 200);
    tree_folder(&f->tree, "rank_0");
    tree_file(&f->tree, "rank_0/a.ckpt", file.p, file.n);
    bytes_free(&file);
    open_source(f);
    const struct rfs_index *index;
    assert_int_equal(rfs_catalog_index(f->catalog, 0, RFS_NO_RANK, &index, NULL), 0);
    assert_int_equal(index->n, 2);
    struct rfs_reading r;
    assert_int_equal(rfs_reading_begin(rfs_catalog_files(f->catalog), 0, &r), 0);
    struct random random = {random_seed()};
    for (unsigned i = 0; i < 2000; i++) {
        unsigned char buf[1000];
        const struct rfs_content content = rfs_catalog_content_of(index, &index->entries[i % 2]);
        const size_t at = (size_t)random_below(&random, 1000);
        const size_t n = (size_t)random_below(&random, 1001 - at);
        assert_int_equal(rfs_catalog_content_pread(&r, &content, NULL, buf, n, at), 0);
        assert_memory_equal(buf, filler(1000) + at, n);
    }
    char byte;
    const struct rfs_content cut = rfs_catalog_content_of(index, &index->entries[1]);
    const struct rfs_content first = rfs_catalog_content_of(index, &index->entries[0]);
    assert_int_equal(rfs_catalog_content_pread(&r, &cut, NULL, &byte, 1, 1000), -EINVAL);
    assert_int_equal(rfs_catalog_content_pread(&r, &first, NULL, &byte, 1, UINT64_MAX), -EINVAL);
    assert_int_equal(rfs_reading_end(&r), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_choice),  TEST(test_refused),          TEST(test_no_permission),
        TEST(test_index),   TEST(test_failures),         TEST(test_threads),
        TEST(test_content), TEST(test_marks_never_fall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
