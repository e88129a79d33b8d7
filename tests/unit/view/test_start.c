/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is opened when, as the kernel tells it: by a view that starts, and by the first look at a
 * file.
 */
#include "tests/unit/view/support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cmocka.h>

enum { STRATEGIES = 2, SOURCES = 4, WATCHED = STRATEGIES + SOURCES };

struct watch {
    int fd;
    int of[WATCHED];
    unsigned opened[WATCHED], read[WATCHED];
};

static void begin(struct watch *watch, const struct fixture *f)
{
    static const char *const names[WATCHED] = {"src.json",
                                               "dst.json",
                                               "src/rank_0/net-1_2.ckpt",
                                               "src/rank_1/net-1_2.ckpt",
                                               "src/rank_2/net-1_2.ckpt",
                                               "src/rank_3/net-1_2.ckpt"};

    *watch = (struct watch){.fd = inotify_init1(IN_NONBLOCK)};
    assert_true(watch->fd >= 0);
    for (int i = 0; i < WATCHED; i++) {
        watch->of[i] =
            inotify_add_watch(watch->fd, tree_path(f->root, names[i]), IN_OPEN | IN_ACCESS);
        assert_true(watch->of[i] >= 0);
    }
}

/*
 * Counts what has happened since it was asked last. Equal events that follow each other may be told
 * as one.
 */
static void look(struct watch *watch)
{
    _Alignas(struct inotify_event) char buf[4096];

    memset(watch->opened, 0, sizeof watch->opened);
    memset(watch->read, 0, sizeof watch->read);
    for (ssize_t n; (n = read(watch->fd, buf, sizeof buf)) > 0;)
        for (char *p = buf; p < buf + n;) {
            const struct inotify_event *event = (const void *)p;
            for (int i = 0; i < WATCHED; i++) {
                watch->opened[i] += watch->of[i] == event->wd && (event->mask & IN_OPEN);
                watch->read[i] += watch->of[i] == event->wd && (event->mask & IN_ACCESS);
            }
            p += sizeof *event + event->len;
        }
}

static void test_start_reads_the_strategies(void **state)
{
    struct fixture *f = *state;
    struct watch watch;

    begin(&watch, f);
    open_view(f);
    look(&watch);
    for (int i = 0; i < WATCHED; i++) {
        assert_int_equal(watch.opened[i], i < STRATEGIES ? 1 : 0);
        assert_true(i < STRATEGIES ? watch.read[i] >= 1 && watch.read[i] <= 2 : watch.read[i] == 0);
    }
    close(watch.fd);
}

static void test_stat_opens_each_source_once(void **state)
{
    struct fixture *f = *state;
    reshard_stat st = {.struct_size = sizeof st};
    struct watch watch;

    begin(&watch, f);
    open_view(f);
    look(&watch);
    assert_int_equal(stat_rank(f, 1, &st), 0); /* it has a column of each rank's rows */
    look(&watch);
    for (int i = STRATEGIES; i < WATCHED; i++)
        assert_int_equal(watch.opened[i], 1);
    assert_int_equal(stat_rank(f, 0, &st), 0);
    look(&watch);
    for (int i = 0; i < WATCHED; i++)
        assert_int_equal(watch.opened[i] + watch.read[i], 0);
    close(watch.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_start_reads_the_strategies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stat_opens_each_source_once, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: start", tests, NULL, NULL);
}
