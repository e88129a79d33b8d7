/* SPDX-License-Identifier: Apache-2.0 */
#include "store/beneath.h"
#include "store/files.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* in/a, in/d/a: the source. out/a, out/d/a: elsewhere. */
struct fixture {
    struct tree tree;
    struct lines lines;
    struct rfs_beneath *beneath;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct rfs_error err;
    tree_new(&f->tree);
    lines_init(&f->lines);
    tree_folder(&f->tree, "in");
    tree_folder(&f->tree, "in/d");
    tree_folder(&f->tree, "out");
    tree_folder(&f->tree, "out/d");
    tree_file(&f->tree, "in/a", "in", 2);
    tree_file(&f->tree, "in/d/a", "in/d", 4);
    tree_file(&f->tree, "out/a", "secret", 6);
    tree_file(&f->tree, "out/d/a", "secrets", 7);
    *state = f;
    return rfs_beneath_open(tree_path(&f->tree, "in"), &f->beneath, &err);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rfs_beneath_free(f->beneath);
    tree_remove(&f->tree);
    free(f);
    return 0;
}

/* The size of what NAME is, -errno when it is not opened; the same is found without opening. */
static int size_of(const struct fixture *f, const char *name)
{
    struct stat st;
    struct stat looked;
    const int fd = rfs_beneath_file(f->beneath, tree_path(&f->tree, name), O_RDONLY);
    const int rc = rfs_beneath_stat(f->beneath, NULL, tree_path(&f->tree, name), &looked);
    if (fd < 0) {
        assert_int_equal(rc, fd);
        return fd;
    }
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    assert_int_equal(rc, 0);
    assert_int_equal(looked.st_ino, st.st_ino);
    return (int)st.st_size;
}

static void link_to(const struct fixture *f, const char *target, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", tree_path(&f->tree, name));
    unlink(path);
    assert_int_equal(symlink(target, path), 0);
}

static void link_to_whole(const struct fixture *f, const char *target, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", tree_path(&f->tree, target));
    link_to(f, path, name);
}

static void test_links(void **state)
{
    const struct fixture *f = *state;
    assert_int_equal(size_of(f, "in/a"), 2);
    assert_int_equal(size_of(f, "in/d/a"), 4);
    assert_int_equal(size_of(f, "in/none"), -ENOENT);
    assert_int_equal(size_of(f, "in/a/none"), -ENOTDIR);
    link_to(f, "d/a", "in/file");
    link_to(f, "d", "in/folder");
    link_to(f, "../d/../a", "in/d/up");
    link_to_whole(f, "in/d/a", "in/whole");
    link_to_whole(f, "in/d", "in/whole-folder");
    link_to(f, "../out/../in/d/a", "in/out-and-back");
    assert_int_equal(size_of(f, "in/file"), 4);
    assert_int_equal(size_of(f, "in/folder/a"), 4);
    assert_int_equal(size_of(f, "in/d/up"), 2);
    assert_int_equal(size_of(f, "in/whole"), 4);
    assert_int_equal(size_of(f, "in/whole-folder/a"), 4);
    assert_int_equal(size_of(f, "in/out-and-back"), 4);
    link_to(f, "../out/a", "in/file");
    link_to(f, "../out", "in/folder");
    link_to_whole(f, "out/a", "in/whole");
    link_to(f, "/proc/self/cwd", "in/magic");
    link_to(f, "loop", "in/loop");
    link_to(f, "../out/none", "in/dangling");
    assert_int_equal(size_of(f, "in/file"), -EXDEV);
    assert_int_equal(size_of(f, "in/folder/d/a"), -EXDEV);
    assert_int_equal(size_of(f, "in/whole"), -EXDEV);
    assert_int_equal(size_of(f, "in/magic"), -EXDEV);
    assert_int_equal(size_of(f, "in/loop"), -ELOOP);
    assert_int_equal(size_of(f, "in/dangling"), -ENOENT);
}

/* Of a file that the user names: beneath its folder, in which there is no link. */
static void test_named(void **state)
{
    const struct fixture *f = *state;
    assert_int_equal(size_of(f, "out/a"), 6);
    assert_int_equal(size_of(f, "out/d/a"), 7);
    link_to(f, "a", "out/same-folder");
    link_to(f, "d", "out/folder");
    link_to(f, "../in/a", "out/other-folder");
    assert_int_equal(size_of(f, "out/same-folder"), 6);
    assert_int_equal(size_of(f, "out/folder/a"), -ENOTDIR); /* it was put there */
    assert_int_equal(size_of(f, "out/other-folder"), -EXDEV);
}

/* A folder that only begins with the source's name is another one. */
static void test_names_that_begin_alike(void **state)
{
    const struct fixture *f = *state;
    tree_folder(&f->tree, "input");
    tree_file(&f->tree, "input/a", "abc", 3);
    link_to(f, "../input/a", "in/file");
    link_to_whole(f, "input/a", "in/whole");
    assert_int_equal(size_of(f, "in/file"), -EXDEV);
    assert_int_equal(size_of(f, "in/whole"), -EXDEV);
    assert_int_equal(size_of(f, "input/a"), 3);
}

static void test_one_file_as_the_source(void **state)
{
    struct fixture *f = *state;
    struct rfs_error err;
    rfs_beneath_free(f->beneath);
    assert_int_equal(rfs_beneath_open(tree_path(&f->tree, "in/d/a"), &f->beneath, &err), 0);
    assert_int_equal(size_of(f, "in/d/a"), 4);
    link_to(f, "../a", "in/d/a");
    assert_int_equal(size_of(f, "in/d/a"), -EXDEV);
    rfs_beneath_free(f->beneath);
    assert_int_equal(rfs_beneath_open(tree_path(&f->tree, "none"), &f->beneath, &err), -ENOENT);
    assert_null(f->beneath);
}

static int read_one(struct rfs_files *files, uint32_t id)
{
    struct rfs_reading r;
    const int rc = rfs_reading_begin(files, id, &r);
    return rc < 0 ? rc : rfs_reading_end(&r);
}

/*
 * The very same file, which the folder's link leads to elsewhere now, after another one needed the
 * descriptor.
 */
static void test_opened_again(void **state)
{
    struct fixture *f = *state;
    struct rfs_fds fds;
    struct rfs_error err;
    assert_int_equal(rfs_fds_init(&fds, 1), 0);
    struct rfs_files *files = rfs_files_sharing(&f->lines.log, &fds);
    rfs_files_set_beneath(files, f->beneath);
    assert_int_equal(rfs_files_add(files, tree_path(&f->tree, "in/a")), 0);
    assert_int_equal(rfs_files_add(files, tree_path(&f->tree, "in/d/a")), 1);
    assert_int_equal(read_one(files, 1), 0);
    assert_int_equal(read_one(files, 0), 0);
    char from[PATH_MAX];
    snprintf(from, sizeof from, "%s", tree_path(&f->tree, "in/d"));
    assert_int_equal(rename(from, tree_path(&f->tree, "out/moved")), 0);
    link_to(f, "../out/moved", "in/d");
    assert_int_equal(rfs_files_check(files, 1), 0);
    assert_int_equal(read_one(files, 1), -EXDEV);
    assert_true(rfs_files_reason(files, 1, -EXDEV, &err));
    assert_non_null(strstr(err.text, "leads out of the source"));
    assert_int_equal(read_one(files, 0), 0);
    rfs_files_free(files);
    rfs_fds_destroy(&fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_that_begin_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_file_as_the_source, setup, teardown),
        cmocka_unit_test_setup_teardown(test_opened_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
