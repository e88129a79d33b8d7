/* SPDX-License-Identifier: Apache-2.0 */
/* Rank folders: which file of each counts. */
#include "catalog/scan/internal.h"
#include "scanning.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- names ---- */

static void test_names_of_saves(void **state)
{
    static const struct {
        const char *name;
        int64_t epoch, step; /* -1: it is none */
    } names[] = {
        {"net-3_1000.ckpt", 3, 1000},
        {"CKP_1-4_32.ckpt", 4, 32},
        {"a-b-10_2.safetensors", 10, 2},
        {"-1_2.ckpt", 1, 2},
        {"net-3_7_breakpoint.ckpt", 3, 7},
        {"net-03_007.ckpt", 3, 7},
        {"net-999999999999999999_1.ckpt", 999999999999999999, 1},
        {"net-9999999999999999999_1.ckpt", -1, -1},
        {"net-3_1000.ckpt.tmp", -1, -1},
        {"net-3_1000", -1, -1},
        {"net_3-1000.ckpt", -1, -1},
        {"net-3_.ckpt", -1, -1},
        {"net-_3.ckpt", -1, -1},
        {"3_1000.ckpt", -1, -1},
        {"net-3_1000_part0.ckpt", -1, -1},
        {".ckpt", -1, -1},
        {"net-3_1000x.ckpt", -1, -1},
        {"net3_1000.ckpt", -1, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct rfs_save save = {-1, -1};
        const bool is = rfs_scan_name_save(names[i].name, &save);
        if (is != (names[i].step >= 0) ||
            (is && (save.epoch != names[i].epoch || save.step != names[i].step)))
            fail_msg("%s: %d, %lld %lld", names[i].name, is, (long long)save.epoch,
                     (long long)save.step);
    }
}

static void test_names_of_ranks(void **state)
{
    uint32_t rank = 7;
    (void)state;
    assert_true(rfs_scan_name_rank("rank_%d", "rank_12", &rank));
    assert_int_equal(rank, 12);
    assert_true(rfs_scan_name_rank("rank_%d", "rank_0012", &rank));
    assert_int_equal(rank, 12);
    assert_true(rfs_scan_name_rank("%d", "3", &rank));
    assert_int_equal(rank, 3);
    assert_true(rfs_scan_name_rank("a%d1", "a21", &rank));
    assert_int_equal(rank, 2);
    assert_true(rfs_scan_name_rank("node%d.d", "node5.d", &rank));
    assert_int_equal(rank, 5);
    assert_true(rfs_scan_name_rank("r%d", "r99999999999999999999999999", &rank));
    assert_int_equal(rank, UINT32_MAX);
    assert_false(rfs_scan_name_rank("rank_%d", "rank_", &rank));
    assert_false(rfs_scan_name_rank("rank_%d", "rank_1x", &rank));
    assert_false(rfs_scan_name_rank("rank_%d", "rank_-1", &rank));
    assert_false(rfs_scan_name_rank("rank_%d", "ran", &rank));
    assert_false(rfs_scan_name_rank("a%d1", "a1", &rank));
    assert_false(rfs_scan_name_rank("a%dbc", "abc", &rank));
    assert_true(rfs_numbered_decimal("1048576", &rank));
    assert_int_equal(rank, RFS_MAX_RANK);
    for (const char *const *bad =
             (const char *const[]){"", "01", "1048577", "-1", "+1", "1 ", " 1", "1x", "4294967296",
                                   "18446744073709551617", "\xd9\xa3", NULL};
         *bad; bad++)
        assert_false(rfs_numbered_decimal(*bad, &rank));
}

/* The last two runs of digits as numbers, by way of another algorithm. */
static size_t slow_numbers(const char *text, unsigned long long out[2])
{
    unsigned long long all[64];
    size_t n = 0;
    for (const char *p = text; *p;)
        if (*p >= '0' && *p <= '9' && n < 64)
            all[n++] = strtoull(p, (char **)(uintptr_t)&p, 10);
        else
            p++;
    const size_t k = n < 2 ? n : 2;
    memcpy(out, all + n - k, k * sizeof *out);
    return k;
}

static void test_compare(void **state)
{
    struct random random = {random_seed()};
    (void)state;
    assert_true(rfs_scan_name_compare("/r_0/net-10_2", "/r_0/net-9_2") > 0);
    assert_true(rfs_scan_name_compare("/r_0/net-10_1", "/r_0/net-2_9") > 0);
    assert_int_equal(rfs_scan_name_compare("/r_0/net_1-10_2", "/r_0/net_5-10_2"), 0);
    assert_true(rfs_scan_name_compare("/rank_0/a1", "/rank_0/a0_1") == 0); /* [0, 1] both */
    assert_true(rfs_scan_name_compare("a", "b1") < 0);
    assert_int_equal(rfs_scan_name_compare("a", "b"), 0);
    assert_true(rfs_scan_name_compare("1_00000000000000000000000000000000000000002", "1_1") > 0);
    assert_true(rfs_scan_name_compare("1_100000000000000000000000000000000000000000",
                                      "1_99999999999999999999999999999999999999999") > 0);
    for (unsigned i = 0; i < 20000; i++) {
        static const char letters[] = "0012a_";
        char text[2][12];
        unsigned long long numbers[2][2];
        size_t n[2];
        for (int k = 0; k < 2; k++) {
            const size_t length = (size_t)random_below(&random, 11);
            for (size_t c = 0; c < length; c++)
                text[k][c] = letters[random_below(&random, 6)];
            text[k][length] = '\0';
            n[k] = slow_numbers(text[k], numbers[k]);
        }
        int want = 0;
        for (size_t c = 0; c < n[0] && c < n[1] && want == 0; c++)
            want = (numbers[0][c] > numbers[1][c]) - (numbers[0][c] < numbers[1][c]);
        if (want == 0)
            want = (n[0] > n[1]) - (n[0] < n[1]);
        const int got = rfs_scan_name_compare(text[0], text[1]);
        if ((got > 0) - (got < 0) != want)
            fail_msg("'%s' and '%s': %d instead of %d", text[0], text[1], got, want);
    }
}

/* ---- trees ---- */

static void test_safetensors(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/net-9_2.safetensors");
    put(s, "rank_0/net-10_2.safetensors");
    put(s, "rank_0/.net-11_2.safetensors");
    put(s, "rank_0/net-12_2.safetensors.tmp");
    put(s, "rank_0/net-20_1.safetensors/x");
    put(s, "rank_1/net-10_1.safetensors");
    put(s, "rank_1/net-10_2.safetensors");
    scanned(s);
    assert_int_equal(s->scan.format, RFS_FORMAT_SAFETENSORS);
    assert_false(s->scan.whole);
    assert_string_equal(files_of(s, 0), "rank_0/net-10_2.safetensors");
    assert_string_equal(files_of(s, 1), "rank_1/net-10_2.safetensors");
    assert_string_equal(s->scan.data[1].folder, "rank_1");
    put(s, "rank_0/net_1-10_2.safetensors");
    REFUSED(s, -EINVAL,
            "rank_0: the numbers in 'net-10_2.safetensors' and "
            "'net_1-10_2.safetensors' don't say",
            "file=GLOB");
    s->options.file = (char *)"net-*";
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net-10_2.safetensors");
    plain(s);
    put(s, "rank_0/net-11_1.safetensors"); /* beats the tie */
    put(s, "rank_1/net-11_1.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net-11_1.safetensors");
}

/* Fewer than two numbers in a name: those of its folder count, 0 here. */
static void test_safetensors_without_numbers(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/a1.safetensors");
    put(s, "rank_0/a0_0.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/a1.safetensors"); /* [0, 1] beats [0, 0] */
    put(s, "rank_0/a0_1.safetensors");
    REFUSED(s, -EINVAL, "'a0_1.safetensors' and 'a1.safetensors'");
}

static void test_patterns(void **state)
{
    struct scanning *s = *state;
    put(s, "node0/CKP_1-4_32.ckpt");
    put(s, "node0/CKP_2-4_32.ckpt");
    put(s, "node1/CKP_1-4_32.ckpt");
    put(s, "node1/x.safetensors");
    put(s, "node/CKP_1-4_32.ckpt");
    put(s, "nodes1/CKP_1-4_32.ckpt");
    put(s, "rank_0/CKP_1-4_32.ckpt");
    s->options.rank_dir = (char *)"node%d";
    s->options.file = (char *)"CKP_1-*.ckpt";
    scanned(s);
    assert_int_equal(s->scan.n, 2);
    assert_int_equal(s->scan.format, RFS_FORMAT_CKPT);
    assert_string_equal(files_of(s, 0), "node0/CKP_1-4_32.ckpt");
    assert_string_equal(files_of(s, 1), "node1/CKP_1-4_32.ckpt");
    s->options.file = (char *)"CKP_*"; /* the second run was killed */
    REFUSED(s, -EINVAL, "different saves: node0/CKP_2-4_32.ckpt and node1/CKP_1-4_32.ckpt",
            "try: file='CKP_1-4_32.ckpt', which all ranks have, if these are of one run");
    put(s, "node1/CKP_2-4_32.ckpt");
    scanned(s);
    assert_string_equal(files_of(s, 0), "node0/CKP_2-4_32.ckpt");
    assert_string_equal(files_of(s, 1), "node1/CKP_2-4_32.ckpt");
    s->options.file = (char *)"[!C]*";
    scanned(s);
    assert_string_equal(files_of(s, 0), "-");
    assert_string_equal(files_of(s, 1), "node1/x.safetensors");
    s->options.file = NULL;
    REFUSED(s, -EINVAL,
            "both .ckpt files (node0/CKP_2-4_32.ckpt) and .safetensors files "
            "(node1/x.safetensors)",
            "file=*.ckpt");
    s->options.file = (char *)"none*";
    REFUSED(
        s, -ENOENT,
        "no nodeN folder in it has a .ckpt, .safetensors, .pt or .gguf file that matches 'none*'");
    s->options.file = NULL;
    s->options.rank_dir = (char *)"device%d";
    REFUSED(s, -ENOENT, "no deviceN folder in it");
    for (const char *const *bad = (const char *const[]){"node", "%d%d", "a%s", "%", "node%d/x",
                                                        "%%d", "node%%d", "%d%", NULL};
         *bad; bad++) {
        s->options.rank_dir = (char *)*bad;
        MISUSED(s, "rank_dir=", *bad, "node%d");
    }
    s->options.rank_dir = NULL;
    s->options.file = (char *)"a/*.ckpt";
    MISUSED(s, "file=a/*.ckpt");
}

static void test_hidden_names(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/.a.ckpt");
    put(s, "rank_0/a.ckpt");
    s->options.file = (char *)"*.ckpt";
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/a.ckpt");
    s->options.file = (char *)".a*";
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/.a.ckpt");
}

/* ---- steps ---- */

static void test_steps(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/net-1_500.ckpt");
    put(s, "rank_0/net-2_500.ckpt");
    put(s, "rank_0/net-2_1000.ckpt");
    put(s, "rank_1/net_1-2_500.ckpt");
    put(s, "rank_1/net-2_500.ckpt");
    put(s, "rank_2/net-2_1000.ckpt");
    put(s, "rank_3/final.ckpt");
    s->options.step = 1000;
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net-2_1000.ckpt");
    assert_string_equal(files_of(s, 1), "-");
    assert_string_equal(files_of(s, 2), "rank_2/net-2_1000.ckpt");
    assert_string_equal(files_of(s, 3), "-");
    assert_int_equal(s->scan.present, 2);
    s->options.step = 500;
    REFUSED(s, -EINVAL, "several checkpoints are of step 500 (epoch_step): 1_500, 2_500",
            "both step= and epoch=");
    s->options.epoch = 2;
    REFUSED(s, -EINVAL,
            "checkpoints of epoch 2, step 500 are of different saves: rank_0/net-2_500.ckpt and "
            "rank_1/net_1-2_500.ckpt",
            "file='net-2_500.ckpt', which all ranks have, if these are of one run");
    s->options.file = (char *)"net-2_500.ckpt";
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net-2_500.ckpt");
    assert_string_equal(files_of(s, 1), "rank_1/net-2_500.ckpt");
    assert_string_equal(files_of(s, 2), "-");
    s->options.file = NULL;
    put(s, "rank_0/net_1-2_500.ckpt");
    s->lines.n = 0;
    scanned(s); /* the last by its name */
    assert_string_equal(files_of(s, 0), "rank_0/net_1-2_500.ckpt");
    assert_string_equal(files_of(s, 1), "rank_1/net_1-2_500.ckpt");
    assert_string_equal(files_of(s, 2), "-");
    assert_int_equal(s->lines.n, 2);
    assert_non_null(strstr(s->lines.last, "rank_2 has no checkpoint of epoch 2, step 500, though "
                                          "it has others: it counts as lost"));
    s->options.strict = true;
    REFUSED(s, -ENOENT, "rank_2 has no checkpoint of epoch 2, step 500", "without -o strict");
    s->options.strict = false;
    s->options.step = RFS_ANY_NUMBER;
    REFUSED(s, -EINVAL, "are of epoch 2 (epoch_step): 2_500, 2_1000");
    s->options.epoch = 1;
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net-1_500.ckpt");
    s->options.epoch = 9;
    s->options.step = 1000;
    REFUSED(s, -ENOENT,
            "no checkpoint of epoch 9, step 1000; the saves here (epoch_step) are 1_500, 2_500, "
            "2_1000",
            "one of those");
    s->options.file = (char *)"final*";
    REFUSED(s, -ENOENT, "named PREFIX-EPOCH_STEP");
}

static void test_many_steps_are_cut(void **state)
{
    struct scanning *s = *state;
    for (int i = 1; i <= 12; i++) {
        char name[64];
        snprintf(name, sizeof name, "rank_0/net-%d_1.ckpt", i);
        put(s, name);
    }
    s->options.step = 7;
    REFUSED(s, -ENOENT, "1_1, 2_1, 3_1, 4_1, 5_1, 6_1, 7_1, 8_1 and 4 more");
}

static void test_two_saves_are_not_mixed(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/net-3_100.ckpt");
    put(s, "rank_0/net-4_100.ckpt");
    put(s, "rank_1/net-3_100.ckpt");
    put(s, "rank_3/net-3_100.ckpt");
    tree_folder(&s->tree, "rank_2");
    REFUSED(s, -EINVAL, "of different saves: rank_0/net-4_100.ckpt and rank_1/net-3_100.ckpt",
            "try: epoch=3,step=100, the last that all ranks have");
    s->options.epoch = 3;
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net-3_100.ckpt");
    s->options.epoch = 4;
    scanned(s);
    assert_string_equal(files_of(s, 1), "-");
    plain(s);
    s->options.segmented = true;
    REFUSED(s, -EINVAL, "of different saves: rank_0/net-4_100.ckpt and rank_1/net-3_100.ckpt");
    put(s, "rank_1/net-4_100.ckpt");
    put(s, "rank_3/net-4_100.ckpt");
    scanned(s); /* all files, so none is preferred */
    assert_string_equal(files_of(s, 0), "rank_0/net-3_100.ckpt rank_0/net-4_100.ckpt");
    assert_int_equal(unlink(tree_path(&s->tree, "rank_1/net-4_100.ckpt")), 0);
    assert_int_equal(unlink(tree_path(&s->tree, "rank_3/net-4_100.ckpt")), 0);
    plain(s);
    put(s, "rank_2/net-1_7.ckpt");
    REFUSED(s, -EINVAL, "of different saves", "try: step= and epoch= of one save");
    put(s, "rank_2/net-4_100.ckpt"); /* a save, and one that is none */
    put(s, "rank_1/zzz.ckpt");
    put(s, "rank_3/net-4_100.ckpt");
    REFUSED(s, -EINVAL, "different saves: rank_0/net-4_100.ckpt and rank_1/zzz.ckpt");
}

/* part-0_3 and so on count the ranks, as long as all do. */
static void test_ranks_in_names(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/part-0_3.ckpt");
    put(s, "rank_1/part-1_3.ckpt");
    put(s, "rank_2/part-2_3.ckpt");
    scanned(s);
    assert_string_equal(files_of(s, 2), "rank_2/part-2_3.ckpt");
    put(s, "rank_3/part-5_3.ckpt");
    REFUSED(s, -EINVAL, "different saves");
    put(s, "rank_3/part-6_3.ckpt");
    assert_int_equal(unlink(tree_path(&s->tree, "rank_3/part-5_3.ckpt")), 0);
    REFUSED(s, -EINVAL, "different saves");
    assert_int_equal(unlink(tree_path(&s->tree, "rank_3/part-6_3.ckpt")), 0);
    /* Without rank 0 they may be epochs: rank 1 saved one, rank 2 another. */
    assert_int_equal(unlink(tree_path(&s->tree, "rank_0/part-0_3.ckpt")), 0);
    REFUSED(s, -EINVAL, "different saves: rank_1/part-1_3.ckpt and rank_2/part-2_3.ckpt",
            "files=MAP");
}

/* The same with the number behind. */
static void test_ranks_as_steps(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/net-3_0.ckpt");
    put(s, "rank_1/net-3_1.ckpt");
    scanned(s);
    put(s, "rank_1/net-3_2.ckpt");
    REFUSED(s, -EINVAL, "different saves");
}

/* Parts of one save, and files of two ranks, in one folder: none of them is the last save. */
static void test_what_a_save_is_divided_into(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/net_0_part0.ckpt");
    scanned(s);
    put(s, "rank_0/net_0_part1.ckpt");
    REFUSED(s, -EINVAL,
            "rank_0: by their names, 'net_0_part0.ckpt' and 'net_0_part1.ckpt' are parts of one "
            "checkpoint; try: segmented to take all files as one");
    s->options.segmented = true;
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net_0_part0.ckpt rank_0/net_0_part1.ckpt");
    plain(s);
    s->options.file = (char *)"*part1*";
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net_0_part1.ckpt");
    plain(s);
    put(s, "rank_0/net_0_rank3.ckpt");
    put(s, "rank_0/net_0_rank12.ckpt");
    REFUSED(s, -EINVAL,
            "by their names, 'net_0_rank12.ckpt' and 'net_0_rank3.ckpt' are of two ranks",
            "files=MAP, which names the file of each rank");
    put(s, "rank_0/part-1_3.ckpt"); /* epochs 1 and 2 of a net called "part" */
    put(s, "rank_0/part-2_3.ckpt");
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/part-2_3.ckpt");
}

/* Where no rank has a folder, step= chooses files by it, and not one rank's of all. */
static void test_files_of_ranks_in_one_folder(void **state)
{
    struct scanning *s = *state;
    put(s, "llama_rank_0-2_4.ckpt");
    put(s, "llama_rank_1-2_4.ckpt");
    put(s, "llama_rank_1-1_4.ckpt");
    s->options.epoch = 2;
    REFUSED(s, -EINVAL, "'llama_rank_0-2_4.ckpt' and 'llama_rank_1-2_4.ckpt' are of two ranks");
    s->options.epoch = 1;
    scanned(s);
    assert_string_equal(files_of(s, 0), "llama_rank_1-1_4.ckpt");
}

static void saves_are(struct scanning *s, const char *want)
{
    struct rfs_saves saves;
    struct rfs_error err = {0};
    char text[256] = "";
    size_t n = 0;
    if (rfs_scan_saves(&s->spec, &saves, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < saves.n; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%lld_%lld ",
                              (long long)saves.data[i].epoch, (long long)saves.data[i].step);
    rfs_scan_saves_free(&saves);
    assert_string_equal(text, want);
}

static void no_saves(struct scanning *s, int code, const char *part)
{
    struct rfs_saves saves;
    struct rfs_error err = {0};
    assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), code);
    rfs_scan_saves_free(&saves);
    if (!strstr(err.text, part))
        fail_msg("no '%s' in: %s", part, err.text);
}

static void test_saves(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/net-10_5.ckpt");
    put(s, "rank_0/net-9_5.ckpt");
    put(s, "rank_1/net-9_15.ckpt");
    put(s, "rank_1/net-9_5.ckpt");
    put(s, "rank_1/other.ckpt");
    saves_are(s, "9_5 9_15 10_5 ");
    s->options.epoch = 9;
    saves_are(s, "9_5 9_15 ");
    s->options.epoch = 8;
    no_saves(s, -ENOENT, "no checkpoint of epoch 8");
    s->options.epoch = RFS_ANY_NUMBER;
    s->options.file = (char *)"other*";
    no_saves(s, -ENOENT, "PREFIX-EPOCH_STEP");
    s->options.file = NULL;
    s->spec.path = tree_path(&s->tree, "rank_1");
    saves_are(s, "9_5 9_15 ");
    s->spec.path = tree_path(&s->tree, "rank_1/other.ckpt");
    no_saves(s, -EINVAL, "the source is one checkpoint");
}

static void test_segmented_ranks(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/c_0_part1.ckpt");
    put(s, "rank_0/c_0_part0.ckpt");
    put(s, "rank_1/c_1_part0.ckpt");
    tree_folder(&s->tree, "rank_2");
    s->options.segmented = true;
    scanned(s);
    assert_false(s->scan.whole);
    assert_string_equal(files_of(s, 0), "rank_0/c_0_part0.ckpt rank_0/c_0_part1.ckpt");
    assert_string_equal(files_of(s, 1), "rank_1/c_1_part0.ckpt");
    assert_string_equal(files_of(s, 2), "-");
    put(s, "rank_0/c_0_part2.pt"); /* nothing to MindSpore */
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/c_0_part0.ckpt rank_0/c_0_part1.ckpt");
    put(s, "rank_1/x.safetensors");
    REFUSED(s, -EINVAL, "both");
}

/* torch.distributed.checkpoint. */
static void test_distributed(void **state)
{
    struct scanning *s = *state;
    put(s, "__0_0.distcp");
    REFUSED(s, -EINVAL, "the folder has .distcp files and no '.metadata'");
    assert_true(rfs_scan_is_described(NULL, s->spec.path));
    put(s, "__0.metadata");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_DCP]);
    assert_string_equal(files_of(s, 0), "__0.metadata");
    assert_true(rfs_scan_is_described(NULL, s->spec.path));
    put(s, ".metadata");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_DCP]);
    assert_string_equal(files_of(s, 0), ".metadata");
    assert_non_null(strstr(s->scan.doubt, "metadata of single ranks is beside '.metadata'"));
    s->options.segmented = true;
    MISUSED(s, "describes itself by '.metadata'");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_saves),
        cmocka_unit_test(test_names_of_ranks),
        cmocka_unit_test(test_compare),
        TEST(test_safetensors),
        TEST(test_safetensors_without_numbers),
        TEST(test_patterns),
        TEST(test_hidden_names),
        TEST(test_steps),
        TEST(test_many_steps_are_cut),
        TEST(test_two_saves_are_not_mixed),
        TEST(test_ranks_in_names),
        TEST(test_ranks_as_steps),
        TEST(test_what_a_save_is_divided_into),
        TEST(test_files_of_ranks_in_one_folder),
        TEST(test_saves),
        TEST(test_segmented_ranks),
        TEST(test_distributed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
