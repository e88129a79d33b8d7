/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct lines {
    size_t n;
    enum rfs_level level;
    char last[4096];
    unsigned long told; /* dropped lines that the limiter told of */
};

static void keep(void *ctx, enum rfs_level level, const char *line)
{
    struct lines *lines = ctx;
    char *end = NULL;
    const unsigned long dropped = strtoul(line, &end, 10);

    lines->n++;
    lines->level = level;
    snprintf(lines->last, sizeof lines->last, "%s", line);
    if (end != line && strstr(end, "left out"))
        lines->told += dropped;
}

static void test_lines(void **state)
{
    struct lines lines = {0};
    struct rfs_log log;

    (void)state;
    rfs_log_init(&log, keep, &lines);
    rfs_log(&log, RFS_WARNING, "rank %d", 3);
    assert_int_equal(lines.n, 1);
    assert_int_equal(lines.level, RFS_WARNING);
    assert_string_equal(lines.last, "rank 3");
    rfs_log(&log, RFS_DEBUG, "two\nlines");
    assert_string_equal(lines.last, "two\\x0alines");
    rfs_log_destroy(&log);
}

static void test_silent(void **state)
{
    struct rfs_log log;

    (void)state;
    rfs_log_init(&log, NULL, NULL);
    rfs_log(&log, RFS_ERROR, "nobody hears");
    rfs_log_limited(&log, RFS_ERROR, "nobody hears");
    rfs_log(NULL, RFS_ERROR, "nobody hears");
    rfs_log_limited(NULL, RFS_ERROR, "nobody hears");
    assert_int_equal(log.dropped, 0);
    rfs_log_destroy(&log);
}

static void test_long_line_is_cut(void **state)
{
    static char name[10000];
    struct lines lines = {0};
    struct rfs_log log;

    (void)state;
    memset(name, 'n', sizeof name - 1);
    rfs_log_init(&log, keep, &lines);
    rfs_log(&log, RFS_INFO, "%s", name);
    assert_int_equal(lines.n, 1);
    assert_true(strlen(lines.last) > 2000 && strlen(lines.last) < 2400);
    rfs_log_destroy(&log);
}

/*
 * The clock may begin a new second at any time here, so the window is held still instead of timed.
 */
static void test_limiter(void **state)
{
    struct lines lines = {0};
    struct rfs_log log;
    size_t sent = 0, shown;

    (void)state;
    rfs_log_init(&log, keep, &lines);
    while (log.dropped < 50) {
        rfs_log_limited(&log, RFS_ERROR, "again");
        sent++;
    }
    assert_int_equal(lines.last[0], 'a');
    log.window--; /* as if a second had passed */
    rfs_log_limited(&log, RFS_ERROR, "after");
    sent++;
    assert_string_equal(lines.last, "after");
    assert_true(lines.told >= 50);
    assert_int_equal(log.dropped, 0);
    shown = lines.n - 1;
    for (size_t i = 0; i < 3; i++)
        rfs_log_limited(&log, RFS_ERROR, "more");
    assert_int_equal(lines.n, shown + 1 + 3); /* without another word on what was left out */
    assert_true(sent > 60);
    rfs_log_destroy(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_long_line_is_cut),
        cmocka_unit_test(test_limiter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
