/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that are kept for the next view: which are written, and what becomes of wrong ones. */
#include "catalog/kept.h"
#include "tests/unit/view/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define KEPT "kept"

/* Long enough for files to be of the past (RFS_KEPT_TICK_SECONDS). */
static void settle(void)
{
    nanosleep(&(struct timespec){2, 200000000}, NULL);
}

static void open_keeping(struct fixture *f, const char *more)
{
    char options[512];

    snprintf(options, sizeof options, "index_cache=%s%s", tree_path(f->root, KEPT), more);
    if (open_with(f, options))
        fail_msg("%s", f->err.message);
}

static void close_view(struct fixture *f)
{
    reshard_close(f->view);
    f->view = NULL;
}

static uint64_t safetensors_id(struct fixture *f)
{
    uint64_t id;

    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_0", &id), 0);
    assert_int_equal(reshard_lookup(f->view, id, "checkpoint_0.safetensors", &id), 0);
    return id;
}

static uint64_t size_of(struct fixture *f, uint64_t id)
{
    reshard_stat st = {.struct_size = sizeof st};

    f->err = (reshard_error){.struct_size = sizeof f->err};
    if (reshard_getattr(f->view, id, &st, &f->err))
        fail_msg("%s", f->err.message);
    return st.size;
}

/* A source like the other, in which one parameter more is. */
static void write_larger(struct fixture *f, const char *folder, unsigned rank)
{
    static const char name[] = "a parameter that the other source does not have";
    struct bytes file = {0};
    unsigned char w[8];
    unsigned char b[4] = {0};
    char path[64];

    fill(w, "w", rank * 8, 8);
    ckpt_tensor(&file, name, "Int8", 1, (uint64_t[]){4}, b, 4);
    ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){2, 4}, w, 8);
    ckpt_tensor(&file, "b", "UInt8", 1, (uint64_t[]){4}, b, 4);
    snprintf(path, sizeof path, "%s/rank_%u/net-1_2.ckpt", folder, rank);
    tree_write(f->root, path, file.data, file.n);
    bytes_free(&file);
}

static void move(struct fixture *f, const char *from, const char *to)
{
    assert_int_equal(rename(tree_path(f->root, from), tree_path(f->root, to)), 0);
}

/*
 * Another source takes the place of the one that was planned, in files as old as those; nobody
 * looks until the end.
 */
static void test_source_in_place_of_another(void **state)
{
    struct fixture *f = *state;
    const char *const safetensors = ",format=safetensors";

    for (unsigned rank = 0; rank < 4; rank++)
        write_larger(f, "other", rank);
    settle();
    open_keeping(f, ""); /* keeps the indexes, so that the next view has nothing to say of them */
    size_of(f, file_id(f, 0));
    size_of(f, file_id(f, 1));
    close_view(f);

    open_keeping(f, safetensors);
    const uint64_t before = size_of(f, safetensors_id(f));
    move(f, "src", "before");
    move(f, "other", "src");
    close_view(f);

    assert_int_equal(open_with(f, "index_cache=no,format=safetensors"), 0);
    const uint64_t now = size_of(f, safetensors_id(f));
    close_view(f);
    assert_int_not_equal(now, before);
    open_keeping(f, safetensors);
    assert_int_equal(size_of(f, safetensors_id(f)), now);
    close_view(f);
}

/* The file with the sizes. */
static const char *find_sizes(struct fixture *f)
{
    static char path[512];
    DIR *dir = opendir(tree_path(f->root, KEPT));
    bool found = false;

    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (strstr(e->d_name, ".sizes")) {
            assert_false(found);
            found = true;
            snprintf(path, sizeof path, "%s/%.100s", tree_path(f->root, KEPT), e->d_name);
        }
    closedir(dir);
    assert_true(found);
    return path;
}

/* Writes it anew with a byte more for each file of SIZE bytes, as sound as it was. */
static void falsify(struct fixture *f, uint64_t size)
{
    struct rfs_kept_draft draft;
    struct rfs_bytes table = {0};
    unsigned char data[8192];
    uint64_t begin;
    unsigned wrong = 0;
    uint32_t key_bytes;

    const int fd = open(find_sizes(f), O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, data, sizeof data);
    close(fd);
    assert_in_range(n, RFS_KEPT_START, sizeof data - 1);
    memcpy(&begin, data + 16, sizeof begin);
    memcpy(&key_bytes, data + begin, sizeof key_bytes);
    const size_t behind = (size_t)begin + sizeof key_bytes + key_bytes;
    char *key = strndup((char *)data + begin + sizeof key_bytes, key_bytes);
    for (size_t at = behind; at + sizeof size + sizeof key_bytes <= (size_t)n; at++) {
        const uint64_t more = size + 1;
        uint32_t sources;
        memcpy(&sources, data + at + sizeof size, sizeof sources);
        if (memcmp(data + at, &size, sizeof size) != 0 || sources != 4)
            continue;
        memcpy(data + at, &more, sizeof more);
        wrong++;
    }
    assert_int_equal(wrong, 2);
    rfs_bytes_put(&table, data + behind, (size_t)n - behind);
    struct rfs_kept *kept = rfs_kept_open(tree_path(f->root, KEPT), NULL);
    assert_true(rfs_kept_begin(kept, RFS_KEPT_SIZES, key, &draft));
    assert_true(rfs_kept_finish(&draft, &table));
    rfs_kept_close(kept);
    free(table.data);
    free(key);
}

/* The open fails of what getattr does not tell: its attributes are known. So the log says why. */
static void test_wrong_size_is_told_once(void **state)
{
    struct fixture *f = *state;
    reshard_reader *reader;

    settle();
    open_keeping(f, "");
    const uint64_t size = size_of(f, file_id(f, 0));
    assert_int_equal(size_of(f, file_id(f, 1)), size);
    close_view(f);
    falsify(f, size);

    open_keeping(f, "");
    assert_int_equal(size_of(f, file_id(f, 0)), size + 1);
    assert_int_equal(reshard_reader_open(f->view, file_id(f, 0), &reader), -ESTALE);
    assert_non_null(strstr(f->lines.text, "its sources were changed after its size was read"));
    close_view(f);
    open_keeping(f, ""); /* as the message says */
    for (unsigned rank = 0; rank < 2; rank++) {
        struct bytes expected = {0};
        assert_int_equal(size_of(f, file_id(f, rank)), size);
        expected_rank(&expected, rank, 42);
        expect_file(f, rank, &expected);
        bytes_free(&expected);
    }
    close_view(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_source_in_place_of_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_size_is_told_once, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: kept sizes", tests, NULL, NULL);
}
