/* SPDX-License-Identifier: Apache-2.0 */
/* The command line, the list after -o, and how paths are compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/path.h"
#include "base/suggest.h"
#include "base/text.h"
#include "mount/mount_options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 16 };

/* Parses a command line of up to MOST words, the program's name not among them. */
static int parse(struct rfs_mount_options *out, struct rfs_error *err, ...)
{
    char *argv[MOST + 2] = {(char *)(uintptr_t) "reshardfs"};
    int argc = 1;
    va_list words;

    va_start(words, err);
    for (const char *word; argc <= MOST && (word = va_arg(words, const char *));)
        argv[argc++] = (char *)(uintptr_t)word;
    va_end(words);
    optind = 0; /* getopt begins anew */
    return rfs_mount_options_parse(argc, argv, out, err);
}

/* The options of the view, as a text. */
static void expect_view(const struct rfs_mount_options *o, const char *text)
{
    char *written = NULL;
    size_t n;
    FILE *out = open_memstream(&written, &n);

    assert_non_null(out);
    for (size_t i = 0; i < o->view.list.n; i++) {
        fputs(i > 0 ? "," : "", out);
        rfs_settings_write(out, o->view.list.data[i].name, o->view.list.data[i].value);
    }
    assert_int_equal(fclose(out), 0);
    assert_string_equal(written, text);
    free(written);
}

static void expect_usage(int rc, const struct rfs_error *err, const char *text)
{
    assert_int_equal(rc, -EINVAL);
    assert_true(err->usage);
    assert_string_equal(err->text, text);
}

static void defaults(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;

    (void)state;
    assert_int_equal(parse(&o, &err, "/", "mnt", NULL), 0);
    assert_int_equal(o.action, RFS_ACTION_MOUNT);
    assert_string_equal(o.source, "/");
    assert_string_equal(o.mountpoint, "mnt");
    assert_int_equal(o.view.list.n, 0);
    assert_int_equal(o.set.io, RFS_IO_AUTO);
    assert_int_equal(o.set.max_threads, 16);
    assert_false(o.foreground || o.set.debug || o.single || o.set.nonempty || o.set.allow_other);
    rfs_mount_options_free(&o);
    assert_null(o.source);
}

static void kinds_are_told_apart(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;

    (void)state;
    assert_int_equal(parse(&o, &err, "-o", "cache=2G,rw,io=cached,dev,suid,strict", "/", "mnt",
                           "--debug", "-o",
                           "prefix=a\\,b\\\\c,,x-z=1,allow_other,fsname=d\\,e,nonempty,",
                           "-omax_threads=3", NULL),
                     0);
    expect_view(&o, "cache=2G,strict,prefix=a\\,b\\\\c");
    assert_int_equal(o.set.io, RFS_IO_CACHED);
    assert_int_equal(o.set.max_threads, 3);
    assert_string_equal(o.set.fsname, "d,e");
    assert_true(o.set.allow_other && o.set.nonempty && o.set.debug && o.foreground);
    rfs_mount_options_free(&o);
}

/* Commas between the words of ready cuts, whatever files there are, and no others. */
static void words_of_ready_cuts(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;

    (void)state;
    assert_int_equal(mkdir("tp4", 0700), 0);
    assert_int_equal(mkdir("qwen3", 0700), 0);
    assert_int_equal(parse(&o, &err, "/", "mnt", "-o",
                           "dst_rules=tp2,pp2,ep4,strict,src_rules=tp4,convert=qwen3", NULL),
                     0);
    expect_view(&o, "dst_rules=tp2\\,pp2\\,ep4,strict,src_rules=tp4,convert=qwen3");
    rfs_mount_options_free(&o);
    assert_int_equal(rmdir("tp4"), 0);
    assert_int_equal(rmdir("qwen3"), 0);
    expect_usage(parse(&o, &err, "/", "mnt", "-o", "dst_rules=rules,tp2", NULL), &err,
                 "unknown option 'tp2'; try: reshardfs --help");
    rfs_mount_options_free(&o);
    expect_usage(parse(&o, &err, "/", "mnt", "-o", "prefix=tp4,tp2", NULL), &err,
                 "unknown option 'tp2'; try: reshardfs --help");
    rfs_mount_options_free(&o);
}

static void strategy_paths_become_absolute(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;
    char *cwd = getcwd(NULL, 0), *escaped, *want;

    (void)state;
    assert_non_null(cwd);
    escaped = rfs_text_option_value(cwd);
    assert_non_null(escaped);
    assert_true(asprintf(&want, "src_strategy=/,dst_strategy=%s/no\\,ne\\\\x\\\\y", escaped) > 0);
    assert_int_equal(
        parse(&o, &err, "/", "mnt", "-o", "src_strategy=/../,dst_strategy=no\\,ne\\x\\\\y", NULL),
        0);
    expect_view(&o, want);
    rfs_mount_options_free(&o);
    free(want);
    free(escaped);
    free(cwd);
}

static void each_path_of_a_list_becomes_absolute(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;
    char *cwd = getcwd(NULL, 0), *want;

    (void)state;
    assert_non_null(cwd);
    assert_true(asprintf(&want, "src_strategy=/:%s/none:/:", cwd) > 0);
    assert_int_equal(parse(&o, &err, "/", "mnt", "-o", "src_strategy=/../:none:/.:", NULL), 0);
    expect_view(&o, want);
    rfs_mount_options_free(&o);
    free(want);
    free(cwd);
}

/* A flag of its own, in which a comma stands for itself. */
static void strategies_have_flags(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;

    (void)state;
    assert_int_equal(
        parse(&o, &err, "/", "mnt", "-s", "/a,b", "--dst-strategy", "/c d", "-o", "strict", NULL),
        0);
    expect_view(&o, "src_strategy=/a\\,b,dst_strategy=/c d,strict");
    assert_false(o.single || o.set.debug || o.foreground);
    rfs_mount_options_free(&o);
    assert_int_equal(parse(&o, &err, "/", "mnt", "--src-strategy=/a", "--single-thread", NULL), 0);
    expect_view(&o, "src_strategy=/a");
    assert_true(o.single && o.set.max_threads == 1);
    rfs_mount_options_free(&o);
    expect_usage(parse(&o, &err, "/", "mnt", "-s", "-o", "strict", NULL), &err,
                 "'-s' needs a value; try: reshardfs --help");
    rfs_mount_options_free(&o);
    expect_usage(parse(&o, &err, "/", "mnt", "-d", NULL), &err,
                 "'-d' needs a value; try: reshardfs --help");
    rfs_mount_options_free(&o);
}

/* Whatever form both have; the same value twice is no contradiction. */
static void values_contradict(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;

    (void)state;
    expect_usage(
        parse(&o, &err, "/", "mnt", "-s", "/a", "-o", "src_strategy=/b", NULL), &err,
        "option src_strategy is given twice, as '/a' and as '/b'; try: one of them; -s and "
        "-d are strategies, too");
    rfs_mount_options_free(&o);
    expect_usage(parse(&o, &err, "/", "mnt", "-o", "step=5,crc", "-o", "step=7", NULL), &err,
                 "option step is given twice, as '5' and as '7'; try: one of them");
    rfs_mount_options_free(&o);
    expect_usage(parse(&o, &err, "/", "mnt", "-o", "step=5,step", NULL), &err,
                 "option step needs a value; try: reshardfs --help");
    rfs_mount_options_free(&o);
    assert_int_equal(
        parse(&o, &err, "/", "mnt", "-s", "/a", "-o", "crc,crc,src_strategy=/a,ro,ro", NULL), 0);
    expect_view(&o, "src_strategy=/a,crc,crc,src_strategy=/a");
    rfs_mount_options_free(&o);
}

/* A backslash that ends one value does not swallow the comma before the next option. */
static void values_stay_apart(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;

    (void)state;
    assert_int_equal(
        parse(&o, &err, "/", "mnt", "-o", "prefix=a\\", "-o", "cache=1K,file=\\b\\", NULL), 0);
    expect_view(&o, "prefix=a\\\\,cache=1K,file=\\\\b\\\\");
    rfs_mount_options_free(&o);
}

static void actions(void **state)
{
    struct rfs_mount_options o;
    struct rfs_error err;

    (void)state;
    assert_int_equal(parse(&o, &err, "--check", "/", NULL), 0);
    assert_int_equal(o.action, RFS_ACTION_CHECK);
    assert_null(o.mountpoint);
    rfs_mount_options_free(&o);
    assert_int_equal(parse(&o, &err, "-h", NULL), 0);
    assert_int_equal(o.action, RFS_ACTION_HELP);
    rfs_mount_options_free(&o);
    assert_int_equal(parse(&o, &err, "--help-all", NULL), 0);
    assert_int_equal(o.action, RFS_ACTION_HELP_ALL);
    rfs_mount_options_free(&o);
    assert_int_equal(parse(&o, &err, "--version", "-x", NULL), 0);
    assert_int_equal(o.action, RFS_ACTION_VERSION);
    rfs_mount_options_free(&o);
}

static void refusals(void **state)
{
    static const struct {
        const char *list, *text;
    } cases[] = {
        {"cahce=1", "unknown option 'cahce'; try: cache=VALUE"},
        {"nonempt", "unknown option 'nonempt'; try: nonempty"},
        {"qqqqqqqqq", "unknown option 'qqqqqqqqq'; try: reshardfs --help"},
        {"uid=1000", "unknown option 'uid'; try: reshardfs --help"},
        {"src_strategy=/a,b.ckpt",
         "unknown option 'b.ckpt'; try: src_strategy='/a\\,b.ckpt', if it is part of that value"},
        {"=1", "unknown option ''; try: reshardfs --help"},
        {"a\nb", "unknown option 'a\\x0ab'; try: reshardfs --help"},
        {"io=", "option io needs a value; try: reshardfs --help"},
        {"io=Direct", "option io=Direct: not one that is known; try: io=auto, direct or cached"},
        {"nonempty=1", "option nonempty takes no value; try: nonempty"},
        {"max_threads=257",
         "option max_threads=257: not a number from 1 to 256; try: max_threads=16"},
        {"max_threads=-1",
         "option max_threads=-1: not a number from 1 to 256; try: max_threads=16"},
        {"max_threads=9x",
         "option max_threads=9x: not a number from 1 to 256; try: max_threads=16"},
    };
    struct rfs_mount_options o;
    struct rfs_error err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_usage(parse(&o, &err, "/", "mnt", "-o", cases[i].list, NULL), &err, cases[i].text);
        rfs_mount_options_free(&o);
    }
    expect_usage(parse(&o, &err, NULL), &err,
                 "the source folder is missing; try: reshardfs --help");
    rfs_mount_options_free(&o);
    expect_usage(parse(&o, &err, "a", "b", "c", NULL), &err,
                 "unexpected argument 'c'; try: reshardfs --help; quotes around paths with blanks");
    rfs_mount_options_free(&o);
}

static void distances(void **state)
{
    (void)state;
    assert_int_equal(rfs_suggest_distance("prefix", "prefix"), 0);
    assert_int_equal(rfs_suggest_distance("prefxi", "prefix"), 1);
    assert_int_equal(rfs_suggest_distance("prfix", "prefix"), 1);
    assert_int_equal(rfs_suggest_distance("", "io"), 2);
    assert_int_equal(rfs_suggest_distance("abc", "xyz"), 3);
    char far[80];
    memset(far, 'a', sizeof far - 1);
    far[sizeof far - 1] = '\0';
    assert_int_equal(rfs_suggest_distance(far, "a"), UINT_MAX);
}

static void within(void **state)
{
    (void)state;
    assert_true(rfs_path_within("/a/b", "/a/b"));
    assert_true(rfs_path_within("/a/b/c", "/a/b"));
    assert_true(rfs_path_within("/a", "/"));
    assert_false(rfs_path_within("/a/bc", "/a/b"));
    assert_false(rfs_path_within("/a", "/a/b"));
    assert_false(rfs_path_within("/", "/a"));
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* A folder that may not be there yet; its links are for who uses it to refuse. */
static void the_folder_of_indexes_is_looked_for_from_the_file(void **state)
{
    char folder[] = "/tmp/reshardfs-options-XXXXXX";
    struct rfs_mount_options o;
    struct rfs_error err;
    char *config, *link, *want;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_true(asprintf(&config, "config=%s/conf", folder) > 0);
    assert_true(asprintf(&link, "%s/link", folder) > 0);
    assert_int_equal(symlink("/", link), 0);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "none" : "link";
        char text[64];
        snprintf(text, sizeof text, "index_cache = %s\n", name);
        put(config + strlen("config="), text);
        assert_true(asprintf(&want, "index_cache=%s/%s", folder, name) > 0);
        assert_int_equal(parse(&o, &err, "/", "mnt", "-o", config, NULL), 0);
        expect_view(&o, want);
        rfs_mount_options_free(&o);
        free(want);
    }
    put(config + strlen("config="), "index_cache = no\n");
    assert_int_equal(parse(&o, &err, "/", "mnt", "-o", config, NULL), 0);
    expect_view(&o, "index_cache=no");
    rfs_mount_options_free(&o);
    unlink(config + strlen("config="));
    unlink(link);
    rmdir(folder);
    free(config);
    free(link);
}

/* Nothing to wait for, and nothing that is cut off. */
static void files_that_are_no_texts(void **state)
{
    char folder[] = "/tmp/reshardfs-options-XXXXXX";
    struct rfs_mount_options o;
    struct rfs_error err;
    char *config;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_true(asprintf(&config, "config=%s/conf", folder) > 0);
    assert_int_equal(mkfifo(config + strlen("config="), 0600), 0);
    alarm(30);
    assert_int_equal(parse(&o, &err, "/", "mnt", "-o", config, NULL), -EINVAL);
    alarm(0);
    assert_non_null(strstr(err.text, "is not a regular file"));
    rfs_mount_options_free(&o);
    unlink(config + strlen("config="));
    put(config + strlen("config="), "{\"prefix\": \"a\\u0000b\"}");
    assert_int_equal(parse(&o, &err, "/", "mnt", "-o", config, NULL), -EINVAL);
    assert_non_null(strstr(err.text, "offset 19: not JSON"));
    rfs_mount_options_free(&o);
    unlink(config + strlen("config="));
    rmdir(folder);
    free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(kinds_are_told_apart),
        cmocka_unit_test(words_of_ready_cuts),
        cmocka_unit_test(strategy_paths_become_absolute),
        cmocka_unit_test(each_path_of_a_list_becomes_absolute),
        cmocka_unit_test(strategies_have_flags),
        cmocka_unit_test(values_contradict),
        cmocka_unit_test(values_stay_apart),
        cmocka_unit_test(actions),
        cmocka_unit_test(refusals),
        cmocka_unit_test(distances),
        cmocka_unit_test(within),
        cmocka_unit_test(the_folder_of_indexes_is_looked_for_from_the_file),
        cmocka_unit_test(files_that_are_no_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
