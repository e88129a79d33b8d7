/* SPDX-License-Identifier: Apache-2.0 */
/* What follows -o, and how a caller is told of a mistake in it. */
#include "base/options.h"
#include "reshard.h"
#include "tests/unit/view/support.h"
#include "view/view_options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_strict_takes_single_elements(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    assert_int_equal(open_with(f, "strict"), 0);
    if (stat_rank(f, 0, &st))
        fail_msg("%s", f->err.message);
}

static void test_only_in_one_strategy(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[-1, 0]", "[8, 4]"));
    open_view(f);
    assert_int_equal(stat_rank(f, 0, &st), 0);
    assert_non_null(
        strstr(f->lines.text, "1 parameter in only one strategy, copied unsliced: b [4]\n"));
    reshard_close(f->view);
    assert_int_equal(open_with(f, "strict"), 0);
    assert_true(stat_rank(f, 0, &st) < 0);
    assert_non_null(strstr(f->err.message, "parameter 'b'"));
    assert_non_null(strstr(f->err.message, "only one of the strategies"));
}

static void test_no_strategy_on_one_side(void **state)
{
    struct fixture *f = *state;
    char options[4200];
    struct bytes expected = {0};
    unsigned char w[32];
    unsigned char b[4];

    snprintf(options, sizeof options, "src_strategy=%s,prefix=whole-",
             tree_path(f->root, "src.json"));
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    uint64_t id;
    assert_int_equal(reshard_open(tree_path(f->root, "src"), &config, &f->view, NULL), 0);
    assert_int_equal(reshard_lookup(f->view, 2, "whole-0.ckpt", &id), 0);
    fill(w, "w", 0, 32);
    fill(b, "b", 0, 4);
    ckpt_tensor(&expected, "w", "Int8", 2, (uint64_t[]){8, 4}, w, 32);
    ckpt_tensor(&expected, "b", "UInt8", 1, (uint64_t[]){4}, b, 4);
    ckpt_tensor(&expected, "steps", "Int8", 0, NULL, "*", 1);
    unsigned char got[256];
    assert_int_equal(reshard_pread(f->view, id, got, sizeof got, 0), expected.n);
    assert_memory_equal(got, expected.data, expected.n);
    bytes_free(&expected);
}

static void expect_usage(struct fixture *f, const char *options, const char *fragment)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};

    f->err = (reshard_error){.struct_size = sizeof f->err};
    assert_int_equal(reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err), -EINVAL);
    assert_null(f->view);
    assert_int_equal(f->err.usage, 1);
    assert_non_null(strstr(f->err.message, fragment));
}

static void test_mistakes_in_options(void **state)
{
    struct fixture *f = *state;

    expect_usage(f, NULL, "src_strategy");
    expect_usage(f, "src_stratgy=x", "unknown option 'src_stratgy'");
    expect_usage(f, "src_strategy=", "needs a value");
    expect_usage(f, "src_strategy=x,cache=2Q", "cache=2Q");
    expect_usage(f, "src_strategy=x,cache=9223372036854775808", "not a size");
    expect_usage(f, "src_strategy=x,prefix=a/b", "prefix=a/b");
    expect_usage(f, "src_strategy=x,prefix=.a", "prefix=.a");
    expect_usage(f, "src_strategy=x,prefix=a\nb", "not the beginning of a file name");
    expect_usage(f, "src_strategy=x,prefix=a\x7f", "not the beginning of a file name");
    expect_usage(f, "src_strategy=x,prefix=a\x1b[2J", "not the beginning of a file name");
}

static void test_no_config_is_no_strategy(void **state)
{
    struct fixture *f = *state;

    f->err = (reshard_error){.struct_size = sizeof f->err};
    assert_int_equal(reshard_open(f->root, NULL, &f->view, &f->err), -EINVAL);
    assert_null(f->view);
    assert_int_equal(f->err.usage, 1);
    assert_non_null(strstr(f->err.message, "neither src_strategy nor dst_strategy"));
    assert_int_equal(reshard_open(f->root, NULL, &f->view, NULL), -EINVAL);
}

static void test_the_last_of_a_key_counts(void **state)
{
    struct rfs_settings settings = {0};
    struct rfs_options options;
    struct rfs_error err = {0};

    (void)state;
    assert_int_equal(rfs_settings_add_text(&settings, "src_strategy=a,cache=1K,prefix=x,strict,"
                                                      "src_strategy=b\\,c,strict,cache=2K,prefix="),
                     0);
    assert_int_equal(rfs_view_options_take(&settings, &options, &err), 0);
    rfs_settings_free(&settings);
    assert_string_equal(options.src_strategy, "b,c");
    assert_null(options.dst_strategy);
    assert_string_equal(options.prefix, "");
    assert_int_equal(options.cache, 2048);
    assert_true(options.strict);
    rfs_options_free(&options);
}

/* A value that an option of each kind takes, as it is written. */
static const char *any_value(const struct rfs_option *option)
{
    return option->words                      ? option->words[0]
           : option->kind == RFS_OPTION_SIZE  ? "4096"
           : option->kind >= RFS_OPTION_COUNT ? "7"
           : option->kind == RFS_OPTION_STEP  ? "all"
           : rfs_option_is_text(option)       ? "a,b"
                                              : NULL;
}

/* Each is kept apart from all others, and comes back as it was. */
static void test_each_option_goes_its_way(void **state)
{
    const struct rfs_option *option;
    const struct rfs_option *other;

    (void)state;
    for (size_t i = 0; (option = rfs_option_at(i)); i++) {
        struct rfs_options options;
        char text[RFS_OPTION_BYTES];
        char other_text[RFS_OPTION_BYTES];
        if (option->kind == RFS_OPTION_IGNORED)
            continue;
        assert_int_equal(rfs_options_init(&options), 0);
        assert_int_equal(rfs_options_set(&options, 0, option->name, any_value(option), NULL), 0);
        assert_string_equal(rfs_options_value(&options, option, text),
                            any_value(option) ? any_value(option) : "");
        for (size_t k = 0; (other = rfs_option_at(k)); k++)
            if (k != i && rfs_options_differs(&options, other))
                fail_msg("%s changes %s: %s", option->name, other->name,
                         rfs_options_value(&options, other, other_text));
        if (!option->words)
            assert_true(rfs_options_differs(&options, option));
        if (option->help && option->flags & RFS_OPTION_OF_VIEW)
            assert_true(option->flags & (RFS_OPTION_OF_RANKS | RFS_OPTION_OF_PARTS));
        rfs_options_free(&options);
    }
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"64", 64},
        {"1.9", 1},
        {"512K", 512 << 10},
        {"3m", 3 << 20},
        {"1.5G", UINT64_C(3) << 29},
        {"1.50000000000000000000000000000000GiB", UINT64_C(3) << 29},
        {"0.1T", UINT64_C(109951162777)},
        {"2GB", UINT64_C(2) << 30},
        {"0.9999999T", UINT64_C(1099511517824)},
        {"8388607T", UINT64_C(8388607) << 40},
        {"9223372036854775807", INT64_MAX},
    };
    static const char *const bad[] = {
        "",
        "G",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1,5G",
        "1.",
        "1.G",
        ".5G",
        "1e3",
        "0x10",
        "1.5.",
        "2Q",
        "2GG",
        "2Gb",
        "2i",
        "2B",
        "inf",
        "nan",
        "8388608T",
        "9223372036854775808",
        "18446744073709551616",
        "99999999999999999999999999T",
        "18446744073709551615K",
    };
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!rfs_option_size(good[i].text, &bytes))
            fail_msg("'%s' is refused", good[i].text);
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (rfs_option_size(bad[i], &bytes))
            fail_msg("'%s' is taken as %llu", bad[i], (unsigned long long)bytes);
}

/* Beside the text, and with nothing escaped. */
static void test_pairs(void **state)
{
    const reshard_option pairs[] = {{"prefix", "a,b\\"}, {"strict", NULL}, {"io", "direct"}};
    reshard_config config = {.struct_size = sizeof config,
                             .options = "src_strategy=x,prefix=a/b",
                             .pairs = pairs,
                             .pair_count = 3};
    reshard_error err = {.struct_size = sizeof err};
    reshard_view *view;

    (void)state;
    assert_int_equal(reshard_open("/", &config, &view, &err), -EINVAL);
    assert_non_null(strstr(err.message, "option prefix=a/b: not the beginning"));
    config.options = "src_strategy=x";
    assert_int_equal(reshard_open("/", &config, &view, &err), -EINVAL);
    assert_non_null(strstr(err.message, "unknown option 'io'"));
    config.struct_size = offsetof(reshard_config, pairs); /* a caller that does not know them */
    assert_true(reshard_open("/", &config, &view, &err) < 0);
    assert_null(strstr(err.message, "unknown option"));
    assert_null(view);
}

static void test_errors_fit_an_older_caller(void **state)
{
    struct fixture *f = *state;
    reshard_error small = {.struct_size = offsetof(reshard_error, message)};
    const reshard_config config = {.struct_size = sizeof config, .options = "nonsense"};

    memset(small.message, 'x', sizeof small.message);
    assert_int_equal(reshard_open(f->root, &config, &f->view, &small), -EINVAL);
    assert_int_equal(small.code, -EINVAL);
    assert_int_equal(small.message[0], 'x'); /* beyond the caller's struct */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_strict_takes_single_elements, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_in_one_strategy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_strategy_on_one_side, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mistakes_in_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_config_is_no_strategy, set_up, tear_down),
        cmocka_unit_test(test_the_last_of_a_key_counts),
        cmocka_unit_test(test_each_option_goes_its_way),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test_setup_teardown(test_errors_fit_an_older_caller, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: options", tests, NULL, NULL);
}
