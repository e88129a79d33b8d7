/* SPDX-License-Identifier: Apache-2.0 */
/* Folders and files whose names end in a number, of programs that no table knows. */
#include "scanning.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Lists the saves, as "EPOCH_STEP NAME, …"; "" where there is none. */
static const char *saves_of(struct scanning *s)
{
    static char text[512];
    struct rfs_saves saves;
    struct rfs_error err = {0};
    size_t used = 0;

    text[0] = '\0';
    (void)rfs_scan_saves(&s->spec, &saves, &err);
    for (size_t i = 0; i < saves.n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d_%d %s", i > 0 ? ", " : "",
                                 (int)saves.data[i].epoch, (int)saves.data[i].step,
                                 saves.names ? saves.names[i] : "-");
    rfs_scan_saves_free(&saves);
    return text;
}

/* The first file of the save, if each is opened as one of a list. */
static void is_of_list(struct scanning *s, int epoch, int step, const char *file)
{
    struct rfs_saves saves;
    struct rfs_error err = {0};

    assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), 0);
    s->spec.saves = &saves;
    s->options.epoch = epoch;
    s->options.step = step;
    scanned(s);
    assert_string_equal(files_of(s, 0), file);
    rfs_scan_saves_free(&saves);
    plain(s);
}

static void test_trainer(void **state)
{
    struct scanning *s = *state;

    put(s, "checkpoint-500/model.safetensors");
    put(s, "checkpoint-500/optimizer.pt");
    put(s, "checkpoint-1000/model.safetensors");
    put(s, "checkpoint-1500/optimizer.pt"); /* under way */
    put(s, "runs/events.1");
    put(s, "tmp-checkpoint-2000/model.safetensors");
    assert_string_equal(saves_of(s), "0_500 checkpoint-500, 0_1000 checkpoint-1000");
    is_of_list(s, 0, 500, "checkpoint-500/model.safetensors");
    assert_int_equal(s->scan.n, 1);
}

static bool is_known(void *ctx, const char *name, const struct rfs_save *save)
{
    unsigned *asked = ctx;

    *asked += 1;
    assert_int_equal(rfs_scan_step_of(name), save->step);
    return save->step <= 10;
}

/* What was a save at the last look, and is as it was, is not looked into again; new names are. */
static void test_known_saves(void **state)
{
    struct scanning *s = *state;
    struct rfs_saves saves;
    struct rfs_error err = {0};
    unsigned asked = 0;
    struct rfs_known_saves known = {NULL, is_known, &asked};

    put(s, "ckpt_5/.metadata");
    put(s, "ckpt_10/.metadata");
    s->spec.known = &known;
    assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), 0);
    assert_int_equal(asked, 0); /* without a kind, nothing is known */
    known.kind = saves.kind;
    assert_ptr_equal(known.kind, &rfs_formats[RFS_ROW_DCP]);
    rfs_scan_saves_free(&saves);
    put(s, "ckpt_3/out.log"); /* looked into, it would be none */
    put(s, "ckpt_20/.metadata");
    put(s, "ckpt_30/out.log");
    put(s, "ckpt_40/model.safetensors");
    assert_string_equal(saves_of(s), "0_3 ckpt_3, 0_5 ckpt_5, 0_10 ckpt_10, 0_20 ckpt_20");
    assert_int_equal(asked, 6);
    s->spec.known = NULL;
    assert_string_equal(saves_of(s), "0_5 ckpt_5, 0_10 ckpt_10, 0_20 ckpt_20");
}

static void test_one_series(void **state)
{
    struct scanning *s = *state;

    put(s, "ckpt_5/.metadata");
    put(s, "ckpt_10/.metadata");
    put(s, "ckpt_20/__0_0.distcp");      /* has not ended */
    put(s, "ckpt_30/model.safetensors"); /* of another kind */
    put(s, "ckpt_x/.metadata");
    put(s, "ckpt_10.tmp/.metadata");
    put(s, ".ckpt_40/.metadata");
    put(s, "ckpt_50"); /* a file */
    put(s, "events_1/out.log");
    assert_string_equal(saves_of(s), "0_5 ckpt_5, 0_10 ckpt_10");
    is_of_list(s, 0, 10, "ckpt_10/.metadata");
    s->options.step = 5;
    scanned(s);
    assert_string_equal(files_of(s, 0), "ckpt_5/.metadata");
    s->options.step = 20;
    REFUSED(s, -ENOENT, "no save of these numbers in it; there are 2, and the last is ckpt_10");
    s->options.step = RFS_ANY_NUMBER;
    REFUSED(s, -ENOENT, "no rank_N folder", "/ckpt_10");
}

static void test_numbers_alone(void **state)
{
    struct scanning *s = *state;

    put(s, "0/model.safetensors");
    put(s, "0010/model.safetensors");
    put(s, "9/model.safetensors");
    assert_string_equal(saves_of(s), "0_0 0, 0_9 9, 0_10 0010");
    is_of_list(s, 0, 10, "0010/model.safetensors");
}

/* Folders of ranks by other names are no saves, though their numbers count up. */
static void test_folders_of_ranks(void **state)
{
    struct scanning *s = *state;

    put(s, "rank0/model.safetensors");
    put(s, "rank1/model.safetensors");
    assert_string_equal(saves_of(s), "");
    REFUSED(s, -ENOENT, "no rank_N folder", "try: rank_dir=rank%d, as these folders are of ranks");
    put(s, "iter_1/device_0/model.safetensors");
    put(s, "iter_1/device_1/model.safetensors");
    s->spec.path = tree_path(&s->tree, "iter_1");
    assert_string_equal(saves_of(s), "");
    REFUSED(s, -ENOENT, "no rank_N folder", "try: rank_dir=device_%d");
}

static void test_rank_folders_in_each(void **state)
{
    struct scanning *s = *state;

    put(s, "ttp_saved_checkpoints-step_7/rank_0/a.ckpt");
    put(s, "ttp_saved_checkpoints-step_7/rank_1/a.ckpt");
    put(s, "ttp_saved_checkpoints-step_8_tmp/rank_0/a.ckpt");
    assert_string_equal(saves_of(s), "0_7 ttp_saved_checkpoints-step_7");
    is_of_list(s, 0, 7, "ttp_saved_checkpoints-step_7/rank_0/a.ckpt");
    assert_int_equal(s->scan.n, 2);
}

static void test_lightning(void **state)
{
    struct scanning *s = *state;

    put_text(s, "epoch=0-step=100.ckpt", "PK\3\4");
    put_text(s, "epoch=1-step=200.ckpt", "PK\3\4");
    put_text(s, "epoch=1-step=200-v1.ckpt", "PK\3\4");
    put_text(s, "epoch=2-step=200.ckpt", "PK\3\4");
    put_text(s, "epoch=3-step=300.ckpt.tmp", "PK\3\4");
    put_text(s, "last.ckpt", "PK\3\4");
    put_text(s, "net-misstep=4.ckpt", "PK\3\4");
    assert_string_equal(saves_of(s), "0_100 epoch=0-step=100.ckpt, 1_200 epoch=1-step=200-v1.ckpt, "
                                     "2_200 epoch=2-step=200.ckpt");
    is_of_list(s, 1, 200, "epoch=1-step=200-v1.ckpt");
    s->options.step = 200; /* of the last epoch */
    scanned(s);
    assert_string_equal(files_of(s, 0), "epoch=2-step=200.ckpt");
    assert_int_equal(s->scan.aside.files.n, 0);
    s->options.epoch = 1;
    scanned(s);
    assert_string_equal(files_of(s, 0), "epoch=1-step=200-v1.ckpt");
}

/* Folders of other programs are no saves where they are parts, or where others count. */
static void test_no_series(void **state)
{
    struct scanning *s = *state;

    put(s, "pytorch_model_fsdp_0/.metadata");
    put(s, "optimizer_0/.metadata");
    assert_string_equal(saves_of(s), ""); /* two series: parts of one checkpoint */
    put(s, "net-1_10.ckpt");
    assert_string_equal(saves_of(s), "1_10 -");
    put(s, "rank_0/net-2_20.ckpt");
    assert_string_equal(saves_of(s), "2_20 -");
    put(s, "step-5/.metadata"); /* of a known layout */
    assert_string_equal(saves_of(s), "0_5 -");
}

static void test_steps_of_names(void **state)
{
    static const char *const some[] = {"step-5", "5", "checkpoint_0005", "epoch=1-step=5.ckpt"};
    static const char *const none[] = {"rank_0", "logs", "tmp-step-5",           ".step-5",
                                       "",       "a1b",  "x12345678901234567890"};

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        assert_int_equal(rfs_scan_step_of(some[i]), 5);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(rfs_scan_step_of(none[i]), -1);
}

/* A source by itself is never followed: no save comes beside it. */
static void test_may_come(void **state)
{
    struct scanning *s = *state;
    struct rfs_error err = {0};

    assert_int_equal(rfs_scan_saves_may_come(&s->spec, &err), 0);
    put(s, "a/model_world_size_1_rank_0.pt");
    assert_int_equal(rfs_scan_saves_may_come(&s->spec, &err), -ENOENT);
    assert_non_null(strstr(err.text, "other folders of one kind that end in a number, "));
    s->spec.path = tree_path(&s->tree, "b");
    put(s, "b/model.safetensors");
    assert_int_equal(rfs_scan_saves_may_come(&s->spec, &err), -ENOENT);
    assert_non_null(strstr(err.text, "the source is one checkpoint"));
    plain(s);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_trainer),          TEST(test_known_saves),          TEST(test_one_series),
        TEST(test_numbers_alone),    TEST(test_rank_folders_in_each), TEST(test_lightning),
        TEST(test_no_series),        TEST(test_steps_of_names),       TEST(test_may_come),
        TEST(test_folders_of_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
