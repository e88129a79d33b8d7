/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that MindSpore Transformers saves iterations to. */
#include "scanning.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRACKER "latest_checkpointed_iteration.txt"

/* An iteration of 2 ranks. */
static void put_iteration(const struct scanning *s, unsigned number, bool finished)
{
    char name[128];

    snprintf(name, sizeof name, "iteration_%08u/CKP-model-0000001-0000002.safetensors", number);
    put(s, name);
    snprintf(name, sizeof name, "iteration_%08u/metadata.json", number);
    if (finished)
        put(s, name);
}

static void is_iteration(struct scanning *s, unsigned number)
{
    char name[128];

    scanned(s);
    snprintf(name, sizeof name, "iteration_%08u/metadata.json", number);
    assert_true(s->scan.whole && s->scan.described == &rfs_formats[RFS_ROW_MINDFORMERS]);
    assert_string_equal(files_of(s, 0), name);
}

static void test_tracker(void **state)
{
    struct scanning *s = *state;

    put_iteration(s, 9, true);
    put_iteration(s, 10, true);
    put_iteration(s, 123456789, true);
    put(s, "iteration_7/metadata.json"); /* no name that is written */
    put(s, "iteration_00000099");        /* no folder */
    put_text(s, TRACKER, " 10\n");
    is_iteration(s, 10);
    assert_int_equal(s->lines.n, 0);
    assert_true(rfs_scan_is_described(NULL, s->tree.root));
    assert_true(rfs_scan_is_described(NULL, tree_path(&s->tree, "iteration_00000009")));
    s->options.step = 9;
    is_iteration(s, 9);
    s->options.step = 11;
    REFUSED(s, -ENOENT, "no iteration 11 in it; there are 3, and the last is",
            "iteration_123456789");
    s->options.step = RFS_ANY_NUMBER;
    s->options.epoch = 3;
    MISUSED(s, "option epoch");
}

/* The tracker is written last, by open(…, "w"): what it says may be missing or gone. */
static void test_no_tracker(void **state)
{
    static const char *const texts[] = {"", "\n", "30", "x", "1 0", "-1", "99999999999999999999"};
    struct scanning *s = *state;

    put_iteration(s, 9, true);
    put_iteration(s, 10, true);
    is_iteration(s, 10);
    assert_int_equal(s->lines.n, 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put_text(s, TRACKER, texts[i]);
        if (strcmp(texts[i], "1 0") == 0) /* its first word counts */
            put_iteration(s, 1, true);
        is_iteration(s, strcmp(texts[i], "1 0") == 0 ? 1 : 10);
    }
    assert_non_null(
        strstr(s->lines.last, "names no iteration that is there: iteration 10 is read"));
}

static void test_unfinished(void **state)
{
    struct scanning *s = *state;

    put_iteration(s, 9, true);
    put_iteration(s, 10, false);
    put_iteration(s, 11, false);
    is_iteration(s, 9);
    assert_non_null(strstr(s->lines.last, "the last whose save has ended"));
    put_text(s, TRACKER, "11");
    REFUSED(s, -EINVAL, "iteration_00000011 has no 'metadata.json'",
            "try: step=9, the last before");
    s->options.step = 10;
    REFUSED(s, -EINVAL, "iteration_00000010 has no", "step=9");
    s->spec.path = tree_path(&s->tree, "iteration_00000010");
    s->options.step = RFS_ANY_NUMBER;
    REFUSED(s, -EINVAL, "the files of several ranks and no 'metadata.json'");
    plain(s);
    s->options.step = 9;
    s->options.rank_dir = (char *)"node%d";
    MISUSED(s, "have no effect");
}

static void test_one_rank(void **state)
{
    struct scanning *s = *state;

    put(s, "iteration_00000001/opt-0000000-0000001.safetensors");
    put(s, "iteration_00000001/model-0000000-0000001.safetensors");
    put(s, "iteration_00000001/common.json");
    scanned(s);
    assert_true(s->scan.whole && !s->scan.described);
    assert_string_equal(files_of(s, 0), "iteration_00000001/model-0000000-0000001.safetensors "
                                        "iteration_00000001/opt-0000000-0000001.safetensors");
    s->spec.path = tree_path(&s->tree, "iteration_00000001");
    scanned(s);
    assert_int_equal(s->scan.data[0].n_files, 2);
    assert_false(rfs_scan_is_described(NULL, s->spec.path));
    assert_false(rfs_scan_is_described(NULL, s->tree.root));
    assert_true(rfs_scan_is_of_one_rank(NULL, s->tree.root));
    assert_true(rfs_scan_is_of_one_rank(NULL, s->spec.path));
    put_iteration(s, 2, true);
    assert_false(rfs_scan_is_of_one_rank(NULL, s->tree.root));
}

static void put_megatron(const struct scanning *s, unsigned number, bool finished)
{
    char name[128];

    snprintf(name, sizeof name, "iter_%07u/__0_0.distcp", number);
    put(s, name);
    snprintf(name, sizeof name, "iter_%07u/common.pt", number);
    put(s, name);
    snprintf(name, sizeof name, "iter_%07u/metadata.json", number);
    put(s, name);
    snprintf(name, sizeof name, "iter_%07u/.metadata", number);
    if (finished)
        put(s, name);
}

static void test_megatron(void **state)
{
    struct scanning *s = *state;
    struct rfs_saves saves;
    struct rfs_error err = {0};

    put_megatron(s, 9, true);
    put_megatron(s, 10, true);
    put_megatron(s, 11, false);
    put(s, "iter_9/.metadata");          /* no name that is written */
    put(s, "iteration_9/metadata.json"); /* neither is this */
    put_text(s, TRACKER, "9");
    scanned(s);
    assert_true(s->scan.whole && s->scan.described == &rfs_formats[RFS_ROW_DCP]);
    assert_string_equal(files_of(s, 0), "iter_0000009/.metadata");
    assert_true(rfs_scan_is_described(NULL, s->tree.root));
    put_text(s, TRACKER, "release"); /* a folder of that name: not one of these */
    scanned(s);
    assert_string_equal(files_of(s, 0), "iter_0000010/.metadata");
    assert_non_null(strstr(s->lines.last, "iteration 10 is read, the last whose save has ended"));
    put(s, "release/.metadata");
    scanned(s);
    assert_string_equal(files_of(s, 0), "release/.metadata");
    s->options.step = 9;
    scanned(s);
    assert_string_equal(files_of(s, 0), "iter_0000009/.metadata");
    s->options.step = RFS_ANY_NUMBER;
    assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), 0);
    assert_int_equal(saves.n, 2);
    rfs_scan_saves_free(&saves);
    assert_int_equal(unlink(tree_path(&s->tree, "release/.metadata")), 0);
    REFUSED(s, -EINVAL, "'latest_checkpointed_iteration.txt' names the folder 'release', which has",
            "try: step=N, an iteration");
    s->options.step = 11;
    REFUSED(s, -EINVAL,
            "iter_0000011 has no '.metadata' of the format torch_dist: its save has not",
            "step=10");
    s->options.step = 12;
    REFUSED(s, -ENOENT, "no iteration 12 in it; there are 3, and the last is iter_0000011");
}

/* Megatron's tracker and a folder "release" hide no save of DeepSpeed. */
static void test_release_beside_tags(void **state)
{
    struct scanning *s = *state;

    put(s, "release/x");
    put_text(s, TRACKER, "1");
    put_text(s, "latest", "mine");
    put(s, "mine/mp_rank_00_model_states.pt");
    put(s, "mine/zero_pp_rank_0_mp_rank_00_optim_states.pt");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_ZERO]);
}

/* A layout without a save that has ended hides no saves of another one. */
static void test_unfinished_beside_tags(void **state)
{
    struct scanning *s = *state;
    struct rfs_saves saves;
    struct rfs_error err = {0};

    put(s, "step-1/__0_0.distcp");
    put(s, "global_step10/mp_rank_00_model_states.pt");
    assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), 0);
    assert_int_equal(saves.n, 1);
    assert_int_equal(saves.data[0].step, 10);
    rfs_scan_saves_free(&saves);
}

/* Others have names that are like these. */
/* HyperParallel's steps, with a tracker of a name of its own; another program's are none. */
static void test_hyper_parallel(void **state)
{
    struct scanning *s = *state;

    put(s, "global_step_9/.metadata");
    put(s, "global_step_9/_rank0_.safetensors");
    put(s, "global_step_9/extra_state/extra_state_rank_0.pt");
    put(s, "global_step_10/0.metadata");
    put(s, "global_step_10/_rank0_.safetensors");
    put(s, "global_step_11/actor/model_world_size_1_rank_0.pt"); /* verl's */
    put(s, "global_step_012/.metadata");
    put(s, "global_step_13/_rank0_.safetensors");
    put_text(s, TRACKER, "10"); /* Megatron's */
    put_text(s, "latest_checkpoint_iteration.txt", "9");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_HYPER_PARALLEL]);
    assert_string_equal(files_of(s, 0), "global_step_9/.metadata");
    assert_int_equal(s->lines.n, 0);
    s->options.step = 10;
    scanned(s);
    assert_string_equal(files_of(s, 0), "global_step_10/0.metadata");
    s->options.step = 11;
    REFUSED(s, -ENOENT, "no iteration 11 in it; there are 3, and the last is global_step_13");
    s->options.step = 13;
    REFUSED(s, -EINVAL, "global_step_13 has no '.metadata' of HyperParallel: its save has not ",
            "ended; try: step=10, the last before it that is whole");
    s->options.step = RFS_ANY_NUMBER;
    put_text(s, "latest_checkpoint_iteration.txt", "");
    scanned(s);
    assert_string_equal(files_of(s, 0), "global_step_10/0.metadata");
    assert_non_null(strstr(s->lines.last, "'latest_checkpoint_iteration.txt' names no iteration"));
}

static void test_other_names(void **state)
{
    static const char *const names[] = {
        "model-00001-of-00002.safetensors",        "model-0000000-000002.safetensors",
        "model-000000-0000002.safetensors",        "amodel-0000000-0000002.safetensors",
        "model-0000000-0000002.safetensors.index", "model-0000000.0000002.safetensors",
        "x-model-a000000-0000002.safetensors",     "0000002.safetensors",
    };
    struct scanning *s = *state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, "%zu/%s", i, names[i]);
        put(s, path);
        snprintf(path, sizeof path, "%zu/b.safetensors", i);
        put(s, path);
        snprintf(path, sizeof path, "%zu/c.safetensors", i);
        put(s, path);
        s->spec.path = tree_path(&s->tree, (const char[]){(char)('0' + i), '\0'});
        REFUSED(s, -ENOENT, i == 0 ? "is missing, of 2 parts" : "no rank_N folder");
    }
}

static void test_all_steps(void **state)
{
    struct scanning *s = *state;
    struct rfs_saves saves;
    struct rfs_error err = {0};

    put_iteration(s, 20, true);
    put_iteration(s, 9, true);
    put_iteration(s, 30, false);
    assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), 0);
    assert_int_equal(saves.n, 2);
    assert_true(saves.data[0].step == 9 && saves.data[1].step == 20 && saves.data[0].epoch == 0);
    rfs_scan_saves_free(&saves);
    s->options.epoch = 0; /* as a view of one of them asks */
    s->options.step = 9;
    is_iteration(s, 9);
}

/* torchtitan's have no tracker: one is taken only where it is asked for. */
static void test_torchtitan(void **state)
{
    struct scanning *s = *state;
    struct rfs_saves saves;
    struct rfs_error err = {0};

    put(s, "step-9/.metadata");
    put(s, "step-10/.metadata");
    put(s, "step-200/__0_0.distcp");
    put(s, "step-30/notes.txt");
    REFUSED(s, -ENOENT, "no rank_N folder", "/step-10");
    put(s, "step-040/.metadata");
    s->options.step = 9;
    scanned(s);
    assert_string_equal(files_of(s, 0), "step-9/.metadata");
    s->options.step = 11;
    REFUSED(s, -ENOENT, "no iteration 11 in it; there are 3, and the last is step-200");
    s->options.step = 200;
    REFUSED(s, -EINVAL,
            "step-200 has no '.metadata' of torch.distributed.checkpoint: its save has not ended",
            "try: step=10, the last before it that is whole");
    plain(s);
    assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), 0);
    assert_int_equal(saves.n, 2);
    assert_int_equal(saves.tracked, RFS_TRACKED_ALWAYS);
    s->spec.saves = &saves;
    s->options.step = 10;
    s->options.epoch = 0;
    scanned(s);
    assert_string_equal(files_of(s, 0), "step-10/.metadata");
    rfs_scan_saves_free(&saves);
    plain(s);
}

/* Other programs' folders of torch.distributed.checkpoint have no tracker, either. */
static void test_other_layouts(void **state)
{
    static const char *const begins[] = {"step_", "checkpoint-"};
    struct scanning *s = *state;
    struct rfs_error err = {0};

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        struct rfs_saves saves;
        char names[3][64];
        for (int k = 0; k < 3; k++)
            snprintf(names[k], sizeof names[k], "%d/%s%d/%s", (int)i, begins[i], 8 + k,
                     k < 2 ? ".metadata" : "notes.txt");
        for (int k = 0; k < 3; k++)
            put(s, names[k]);
        char folder[8];
        snprintf(folder, sizeof folder, "%d", (int)i);
        s->spec.path = tree_path(&s->tree, folder);
        s->options.step = 9;
        scanned(s);
        assert_non_null(strstr(s->scan.data[0].files[0], names[1]));
        plain(s);
        s->spec.path = tree_path(&s->tree, folder);
        assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), 0);
        assert_int_equal(saves.n, 2);
        assert_int_equal(saves.tracked, RFS_TRACKED_ALWAYS);
        rfs_scan_saves_free(&saves);
        plain(s);
    }
}

/* Nothing can be followed where checkpoints are in folders of names that are not known. */
static void test_followed(void **state)
{
    struct scanning *s = *state;
    struct rfs_error err = {0};

    put(s, "empty/notes.txt");
    s->spec.path = tree_path(&s->tree, "empty");
    assert_int_equal(rfs_scan_saves_may_come(&s->spec, &err), 0);
    put(s, "run/checkpoint/step-2/.metadata");
    s->spec.path = tree_path(&s->tree, "run");
    assert_int_equal(rfs_scan_saves_may_come(&s->spec, &err), -ENOENT);
    assert_non_null(strstr(err.text, "iteration_N, iter_N, global_step_N, step-N, step_N, "
                                     "checkpoint-N, global_stepN"));
    assert_non_null(strstr(err.text, "/run/checkpoint/step-2"));
}

/* step= of folders whose checkpoints are deeper, or not there: the message says what is. */
static void test_steps_of_other_programs(void **state)
{
    struct scanning *s = *state;

    put(s, "verl/global_step_20/actor/model_world_size_1_rank_0.pt");
    put(s, "verl/global_step_40/actor/model_world_size_1_rank_0.pt");
    put(s, "trainer/checkpoint-500/pytorch_model_fsdp_0/.metadata");
    put(s, "trainer/checkpoint-1000/pytorch_model_fsdp_0/.metadata");
    put(s, "ranks/job/rank_0/net-1_2.ckpt");
    s->options.step = 20;
    s->spec.path = tree_path(&s->tree, "verl");
    REFUSED(s, -ENOENT,
            "has no .ckpt, .safetensors, .pt or .gguf file; try: ", "/global_step_20/actor");
    s->options.step = 500;
    s->spec.path = tree_path(&s->tree, "trainer");
    REFUSED(s, -ENOENT, "try: ", "/checkpoint-500/pytorch_model_fsdp_0");
    s->options.step = 7;
    REFUSED(s, -ENOENT, "try: ", "/checkpoint-1000/pytorch_model_fsdp_0");
    s->spec.path = tree_path(&s->tree, "ranks");
    REFUSED(s, -ENOENT, "try: ", "/ranks/job");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tracker),
        TEST(test_no_tracker),
        TEST(test_unfinished),
        TEST(test_one_rank),
        TEST(test_hyper_parallel),
        TEST(test_other_names),
        TEST(test_release_beside_tags),
        TEST(test_other_names),
        TEST(test_unfinished_beside_tags),
        TEST(test_other_names),
        TEST(test_all_steps),
        TEST(test_megatron),
        TEST(test_torchtitan),
        TEST(test_steps_of_other_programs),
        TEST(test_other_layouts),
        TEST(test_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
