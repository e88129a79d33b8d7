/* SPDX-License-Identifier: Apache-2.0 */
/* What the watch on a run's folder hears, without a look at it. */
#include "catalog/scan/watch.h"
#include "tests/unit/store/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct run {
    struct tree tree;
    struct lines lines;
    char folder[96];
    struct rfs_watch watch;
};

static void begin(struct run *run)
{
    snprintf(run->folder, sizeof run->folder, "%s", tree_path(&run->tree, "run"));
    rfs_watch_begin(&run->watch, run->folder, &run->lines.log);
    assert_false(rfs_watch_take(&run->watch));
}

static int setup(void **state)
{
    struct run *run = calloc(1, sizeof *run);

    tree_new(&run->tree);
    tree_folder(&run->tree, "run");
    lines_init(&run->lines);
    *state = run;
    return 0;
}

static int teardown(void **state)
{
    struct run *run = *state;

    rfs_watch_end(&run->watch);
    tree_remove(&run->tree);
    free(run);
    return 0;
}

static void write_file(struct run *run, const char *name)
{
    tree_file(&run->tree, name, "x", 1);
}

static void move(struct run *run, const char *from, const char *to)
{
    assert_int_equal(rename(tree_path(&run->tree, from), tree_path(&run->tree, to)), 0);
}

/* Something happened; says whether it is news. Nothing is left to be taken. */
static bool is_news(struct run *run)
{
    assert_true(rfs_watch_rings(&run->watch));
    const bool news = rfs_watch_take(&run->watch);
    assert_false(rfs_watch_rings(&run->watch));
    return news;
}

static void test_metadata(void **state)
{
    struct run *run = *state;

    begin(run);
    assert_false(rfs_watch_rings(&run->watch));
    tree_folder(&run->tree, "run/step-1");
    assert_true(is_news(run));
    write_file(run, "run/step-1/__0_0.distcp");
    assert_false(is_news(run));
    write_file(run, "run/step-1/.metadata.tmp");
    assert_false(is_news(run));
    move(run, "run/step-1/.metadata.tmp", "run/step-1/.metadata");
    assert_true(is_news(run));
    write_file(run, "run/step-1/.metadata");
    assert_true(is_news(run));
    /* Until it is closed it is not complete. */
    FILE *file = fopen(tree_path(&run->tree, "run/step-1/.metadata"), "w");
    assert_non_null(file);
    fputs("x", file);
    fflush(file);
    assert_false(rfs_watch_rings(&run->watch));
    fclose(file);
    assert_true(is_news(run));
}

static void test_folders(void **state)
{
    static const char *const others[] = {"run/rank_0", "run/logs", "run/step-2.tmp"};
    struct run *run = *state;

    begin(run);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        tree_folder(&run->tree, others[i]);
        assert_false(is_news(run));
    }
    write_file(run, "run/step-2.tmp/.metadata"); /* nobody watches it */
    assert_false(rfs_watch_rings(&run->watch));
    move(run, "run/step-2.tmp", "run/step-2");
    assert_true(is_news(run));
    write_file(run, "run/step-2/.metadata");
    assert_true(is_news(run));
    move(run, "run/step-2", "run/old");
    assert_true(is_news(run));
}

static void test_trackers(void **state)
{
    static const char *const names[] = {"run/latest", "run/latest_checkpointed_iteration.txt",
                                        "run/latest_checkpoint_iteration.txt"};
    struct run *run = *state;

    begin(run);
    write_file(run, "run/notes.txt");
    assert_false(is_news(run));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_file(run, names[i]);
        assert_true(is_news(run));
        write_file(run, "run/new");
        assert_false(is_news(run));
        move(run, "run/new", names[i]);
        assert_true(is_news(run));
    }
}

/* Saves that were there are watched as well: the last ones, by number. */
static void test_saves_that_were_there(void **state)
{
    struct run *run = *state;
    char name[64];

    for (unsigned i = 1; i <= RFS_WATCH_MOST + 10; i++) {
        snprintf(name, sizeof name, "run/step-%u", i);
        tree_folder(&run->tree, name);
    }
    begin(run);
    write_file(run, "run/step-10/.metadata");
    assert_false(rfs_watch_rings(&run->watch));
    write_file(run, "run/step-11/.metadata");
    assert_true(is_news(run));
    snprintf(name, sizeof name, "run/step-%u", RFS_WATCH_MOST + 11);
    tree_folder(&run->tree, name);
    assert_true(is_news(run));
    write_file(run, "run/step-12/.metadata");
    assert_true(is_news(run));
    write_file(run, "run/step-11/.metadata"); /* the new one has its place */
    assert_false(rfs_watch_rings(&run->watch));
    snprintf(name, sizeof name, "run/step-%u/.metadata", RFS_WATCH_MOST + 11);
    write_file(run, name);
    assert_true(is_news(run));
}

static void test_another_folder_in_its_place(void **state)
{
    struct run *run = *state;

    begin(run);
    move(run, "run", "old");
    tree_folder(&run->tree, "run");
    assert_true(rfs_watch_take(&run->watch));
    (void)rfs_watch_take(&run->watch);
    tree_folder(&run->tree, "old/step-1");
    assert_false(rfs_watch_rings(&run->watch));
    tree_folder(&run->tree, "run/step-1");
    assert_true(is_news(run));
    assert_int_equal(rmdir(tree_path(&run->tree, "run/step-1")), 0);
    assert_int_equal(rmdir(tree_path(&run->tree, "run")), 0);
    assert_true(rfs_watch_take(&run->watch));
    assert_false(rfs_watch_take(&run->watch));
    tree_folder(&run->tree, "run"); /* the next look finds it */
    assert_false(rfs_watch_take(&run->watch));
    tree_folder(&run->tree, "run/step-2");
    assert_true(is_news(run));
    assert_int_equal(run->lines.n, 0);
}

/* More than the kernel keeps: that is news, and no folder is forgotten. */
static void test_overflow(void **state)
{
    struct run *run = *state;
    unsigned long most = 0;
    FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "r");

    if (!file || fscanf(file, "%lu", &most) != 1 || most > 100000)
        skip();
    fclose(file);
    begin(run);
    for (unsigned long i = 0; i <= most; i++) /* equal ones in a row are one */
        write_file(run, i % 2 ? "run/a" : "run/b");
    tree_folder(&run->tree, "run/step-1");
    bool news = false;
    while (rfs_watch_rings(&run->watch))
        news |= rfs_watch_take(&run->watch);
    assert_true(news);
    write_file(run, "run/step-1/.metadata");
    assert_true(is_news(run));
}

static void test_nothing_to_watch(void **state)
{
    struct run *run = *state;

    rfs_watch_begin(&run->watch, "s3://bucket/run", &run->lines.log);
    assert_int_equal(run->watch.fd, -1);
    assert_false(rfs_watch_rings(&run->watch));
    assert_false(rfs_watch_take(&run->watch));
    assert_int_equal(run->lines.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_metadata, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trackers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_saves_that_were_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_folder_in_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overflow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_to_watch, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
