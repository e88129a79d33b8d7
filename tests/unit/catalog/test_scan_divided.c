/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of one checkpoint, by the numbers in the names of files: never saves, never ranks. */
#include "catalog/scan/internal.h"
#include "scanning.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_names(void **state)
{
    static const struct {
        const char *name;
        uint32_t number, count; /* 0: it is no part */
        const char *pattern;
    } names[] = {
        {"model-00001-of-00002.safetensors", 1, 2, "model-*-of-00002.safetensors"},
        {"pytorch_model-00002-of-00010.bin", 2, 10, "pytorch_model-*-of-00010.bin"},
        {"tf_model-00003-of-00003.h5", 3, 3, "tf_model-*-of-00003.h5"},
        {"diffusion_pytorch_model.fp16-00001-of-00002.safetensors", 1, 2,
         "diffusion_pytorch_model.fp16-*-of-00002.safetensors"},
        {"model-00001-of-00002.fp16.safetensors", 1, 2, "model-*-of-00002.fp16.safetensors"},
        {"model-00000-of-00002.safetensors", 0, 2, "model-*-of-00002.safetensors"},
        {"model_1_of_4.pt", 1, 4, "model_*_of_4.pt"},
        {"3-of-4.ckpt", 3, 4, "*-of-4.ckpt"},
        {"part-of-1-of-2.ckpt", 1, 2, "part-of-*-of-2.ckpt"},
        {"1-of-2-of-3.ckpt", 2, 3, "1-of-*-of-3.ckpt"},
        {"net-3_1000.ckpt", 0, 0, NULL},
        {"model-00001-of-00000.safetensors", 0, 0, NULL},
        {"model-mtp-of-00001.safetensors", 0, 0, NULL},
        {"model-00001-of-.safetensors", 0, 0, NULL},
        {"-of-.ckpt", 0, 0, NULL},
        {"of", 0, 0, NULL},
        {"1-of-2", 0, 0, NULL},
        {"1-of-2x.ckpt", 0, 0, NULL},
        {"1_of-2.ckpt", 0, 0, NULL},
        {"1-of-1234567890.ckpt", 0, 0, NULL},
        {"1234567890-of-2.ckpt", 0, 0, NULL},
    };
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct rfs_scan_part part = {0};
        assert_int_equal(rfs_scan_name_part(names[i].name, &part), names[i].count > 0);
        if (names[i].count == 0)
            continue;
        assert_int_equal(part.number, names[i].number);
        assert_int_equal(part.count, names[i].count);
        char *pattern = rfs_scan_part_pattern(names[i].name, &part);
        assert_string_equal(pattern, names[i].pattern);
        free(pattern);
    }
}

/* Each rank may have as many parts as its tensors need. */
static void test_ranks(void **state)
{
    static const char *const forms[] = {
        "rank_%d/model-%05d-of-%05d.safetensors", "rank_%d/pytorch_model-%05d-of-%05d.pt",
        "rank_%d/tf_model-%05d-of-%05d.ckpt", "rank_%d/x.fp16-%d-of-%d.safetensors"};
    struct scanning *s = *state;

    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        char paths[5][96];
        size_t n = 0;
        for (int rank = 0; rank < 2; rank++)
            for (int i = 0; i < 2 + rank; i++) {
                snprintf(paths[n], sizeof *paths, forms[f], rank, i + 1, 2 + rank);
                put(s, paths[n++]);
            }
        char all[300];
        for (int segmented = 0; segmented < 2; segmented++) {
            s->options.segmented = segmented;
            scanned(s);
            snprintf(all, sizeof all, "%s %s", paths[0], paths[1]);
            assert_string_equal(files_of(s, 0), all);
            snprintf(all, sizeof all, "%s %s %s", paths[2], paths[3], paths[4]);
            assert_string_equal(files_of(s, 1), all);
        }
        plain(s);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(unlink(tree_path(&s->tree, paths[i])), 0);
    }
}

static void test_missing(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/model-00001-of-00003.safetensors");
    put(s, "rank_0/model-00003-of-00003.safetensors");
    REFUSED(s, -ENOENT, "rank_0: 'model-00002-of-00003.safetensors' is missing, of 3 parts of one");
    s->options.segmented = true;
    REFUSED(s, -ENOENT, "rank_0: 'model-00002-of-00003.safetensors' is missing, of 3 parts of one");
    plain(s);
    s->options.file = (char *)"model-00003-*";
    REFUSED(s, -ENOENT,
            "'model-00001-of-00003.safetensors', 'model-00002-of-00003.safetensors' are");
    s->spec.path = tree_path(&s->tree, "rank_0");
    s->options.file = (char *)"model-*";
    REFUSED(s, -ENOENT, "'model-00002-of-00003.safetensors' is missing");
    put(s, "rank_0/model-00002-of-00003.safetensors");
    scanned(s);
    assert_true(s->scan.whole);
    assert_string_equal(files_of(s, 0), "rank_0/model-00001-of-00003.safetensors "
                                        "rank_0/model-00002-of-00003.safetensors "
                                        "rank_0/model-00003-of-00003.safetensors");
    plain(s);
    put(s, "alone/model-00001-of-00012.safetensors");
    s->spec.path = tree_path(&s->tree, "alone");
    REFUSED(s, -ENOENT,
            "'model-00002-of-00012.safetensors', 'model-00003-of-00012.safetensors', "
            "'model-00004-of-00012.safetensors' and 8 more are missing, of 12 parts");
    put(s, "one/model-00001-of-00001.safetensors");
    s->spec.path = tree_path(&s->tree, "one");
    scanned(s);
    assert_string_equal(files_of(s, 0), "one/model-00001-of-00001.safetensors");
    put(s, "large/a-1-of-999999999.ckpt");
    s->spec.path = tree_path(&s->tree, "large");
    s->options.file = (char *)"*";
    REFUSED(s, -ENOENT, "'a-4-of-999999999.ckpt' and 999999995 more are missing, of 999999999");
}

static void test_from_zero(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/m-00000-of-00002.safetensors");
    REFUSED(s, -ENOENT, "'m-00001-of-00002.safetensors' is missing, of 2 parts");
    put(s, "rank_0/m-00001-of-00002.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0),
                        "rank_0/m-00000-of-00002.safetensors rank_0/m-00001-of-00002.safetensors");
    put(s, "rank_0/m-00002-of-00002.safetensors");
    REFUSED(s, -EINVAL, "'m-00002-of-00002.safetensors' has a number beyond the last of 2 parts");
}

static void test_others_beside(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/model-00001-of-00002.safetensors");
    put(s, "rank_0/model-00002-of-00002.safetensors");
    put(s, "rank_0/optimizer.pt"); /* of another format, which MindSpore passes over */
    scanned(s);
    assert_int_equal(s->scan.data[0].n_files, 2);
    put(s, "rank_0/model-00001-of-00003.safetensors");
    REFUSED(s, -EINVAL,
            "'model-00001-of-00002.safetensors', a part of 2, and "
            "'model-00001-of-00003.safetensors' are not files of one checkpoint",
            "file='model-*-of-00002.safetensors'");
    s->options.segmented = true;
    REFUSED(s, -EINVAL, "'model-00001-of-00003.safetensors' are not files of one checkpoint");
    plain(s);
    s->options.file = (char *)"model-*-of-00002.safetensors";
    scanned(s);
    assert_int_equal(s->scan.data[0].n_files, 2);
    plain(s);
    assert_int_equal(unlink(tree_path(&s->tree, "rank_0/model-00001-of-00003.safetensors")), 0);
    put(s, "rank_0/ema-9_9.safetensors");
    REFUSED(s, -EINVAL,
            "'model-00001-of-00002.safetensors', a part of 2, and "
            "'ema-9_9.safetensors' are not files of one checkpoint");
    s->options.segmented = true;
    scanned(s);
    assert_int_equal(s->scan.data[0].n_files, 3);
    s->options.segmented = false;
    s->options.step = 9; /* names a save, and parts are none */
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/ema-9_9.safetensors");
    plain(s);
    assert_int_equal(unlink(tree_path(&s->tree, "rank_0/ema-9_9.safetensors")), 0);
    put(s, "rank_0/ema-00001-of-00001.safetensors");
    REFUSED(s, -EINVAL,
            "'ema-00001-of-00001.safetensors', a part of 1, and "
            "'model-00001-of-00002.safetensors'");
    assert_int_equal(unlink(tree_path(&s->tree, "rank_0/ema-00001-of-00001.safetensors")), 0);
    put(s, "rank_0/model-2-of-2.safetensors");
    REFUSED(s, -EINVAL,
            "'model-00002-of-00002.safetensors' and 'model-2-of-2.safetensors' have the "
            "number of one part");
}

/* A part of each rank is no rank's checkpoint, and names around the numbers tell saves apart. */
static void test_other_saves(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/model-00001-of-00002.safetensors");
    put(s, "rank_1/model-00002-of-00002.safetensors");
    REFUSED(s, -ENOENT, "rank_0: 'model-00002-of-00002.safetensors' is missing");
    put(s, "rank_0/model-00002-of-00002.safetensors");
    assert_int_equal(unlink(tree_path(&s->tree, "rank_1/model-00002-of-00002.safetensors")), 0);
    put(s, "rank_1/other-00001-of-00001.safetensors");
    REFUSED(s, -EINVAL,
            "are of different saves: rank_0/model-00001-of-00002.safetensors and "
            "rank_1/other-00001-of-00001.safetensors");
}

static void test_map_of_parts(void **state)
{
    struct scanning *s = *state;
    put(s, "m-1-of-2.safetensors");
    put(s, "m-2-of-2.safetensors");
    put_text(s, "map.json", "{\"0\": \"m-1-of-2.safetensors\", \"1\": \"m-1-of-2.safetensors\"}");
    s->options.files = (char *)tree_path(&s->tree, "map.json");
    REFUSED(s, -ENOENT, "map.json: '", "m-2-of-2.safetensors' is missing, of 2 parts");
    put_text(s, "map.json", "{\"0\": \"m-1-of-2.safetensors\", \"1\": \"m-2-of-2.safetensors\"}");
    scanned(s); /* the user says that each is the whole of a rank */
    assert_string_equal(files_of(s, 1), "m-2-of-2.safetensors");
}

static void test_one_part_itself(void **state)
{
    struct scanning *s = *state;
    put(s, "m-1-of-2.safetensors");
    put(s, "n-1-of-1.safetensors");
    s->spec.path = tree_path(&s->tree, "n-1-of-1.safetensors");
    s->options.strict = true;
    scanned(s);
    s->spec.path = tree_path(&s->tree, "m-1-of-2.safetensors");
    REFUSED(s, -EINVAL, "m-1-of-2.safetensors: the source is one of 2 parts of a checkpoint");
    s->options.strict = false;
    scanned(s);
    assert_non_null(strstr(s->lines.last, "the tensors of the others are not there"));
}

static void test_folder_of_a_rank(void **state)
{
    struct scanning *s = *state;
    struct rfs_error err = {0};
    char *name = NULL;
    put(s, "m-1-of-2.safetensors");
    assert_int_equal(rfs_scan_folder(NULL, s->tree.root, &name, &err), -ENOENT);
    assert_non_null(strstr(err.text, "'m-2-of-2.safetensors' is missing"));
    put(s, "m-2-of-2.safetensors");
    assert_int_equal(rfs_scan_folder(NULL, s->tree.root, &name, &err), 0);
    assert_null(name); /* no file of them is the checkpoint */
    assert_true(rfs_scan_is_divided(NULL, s->tree.root));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), TEST(test_ranks),           TEST(test_missing),
        TEST(test_from_zero),         TEST(test_others_beside),   TEST(test_other_saves),
        TEST(test_map_of_parts),      TEST(test_one_part_itself), TEST(test_folder_of_a_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
