/* SPDX-License-Identifier: Apache-2.0 */
/* The names of files of saves that describe themselves: exact, similar, missing, of two saves. */
#include "scanning.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void put_shard(const struct scanning *s, unsigned shard, unsigned part, unsigned parts)
{
    char name[80];

    snprintf(name, sizeof name, "shard-%05u-model-%05u-of-%05u.safetensors", shard, part, parts);
    put(s, name);
}

static void put_rank(const struct scanning *s, unsigned rank, unsigned ranks)
{
    char name[80];

    snprintf(name, sizeof name, "model_world_size_%u_rank_%u.pt", ranks, rank);
    put(s, name);
}

static void removed(const struct scanning *s, const char *name)
{
    assert_int_equal(unlink(tree_path(&s->tree, name)), 0);
}

static void has_told(const struct scanning *s, const char *part)
{
    if (!strstr(s->lines.last, part))
        fail_msg("no '%s' in: %s", part, s->lines.last);
}

static void test_shards(void **state)
{
    struct scanning *s = *state;

    put_shard(s, 2, 2, 2);
    put_shard(s, 1, 2, 2);
    put_shard(s, 2, 1, 2);
    put_shard(s, 1, 1, 2);
    put_shard(s, 123456, 1, 1); /* as wide as its number: of another save */
    REFUSED(s, -EINVAL, "files of two saves, 'shard-123456-model-00001-of-00001.safetensors' and '",
            "try: file='*-of-00001.safetensors' or file='*-of-00002.safetensors'");
    s->options.file = (char *)"*-of-00002.safetensors";
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_SHARDS]);
    assert_string_equal(files_of(s, 0), "shard-00001-model-00001-of-00002.safetensors "
                                        "shard-00001-model-00002-of-00002.safetensors "
                                        "shard-00002-model-00001-of-00002.safetensors "
                                        "shard-00002-model-00002-of-00002.safetensors");
    assert_int_equal(s->lines.n, 0);
    s->options.file = (char *)"*.pt";
    REFUSED(s, -ENOENT, "no file of a save in it matches '*.pt'");
}

/* Those that sort before the file and behind it; none of them is taken. */
static void test_similar_names(void **state)
{
    static const char *const shards[] = {
        "shard-00001-model-00001-of-00001 (1).safetensors",
        "shard-00001-model-00001-of-00001-old.safetensors",
        "shard-00001-model-00001-of-00001..safetensors",
        "shard-0000a-model-00001-of-00001.safetensors",
        "shard-00000-model-00001-of-00001.safetensors", /* they count from 1 */
        "shard-00001-model-00002-of-00001.safetensors", /* more than all */
        "shard-9999999999-model-00001-of-00001.safetensors",
        "shard--1-model-00001-of-00001.safetensors",
    };
    static const char *const ranks[] = {
        "model_world_size_1_rank_0 (copy).pt", "model_world_size_1_rank_0.bak.pt",
        "model_world_size_1_rank_1.pt",        "model_world_size_0_rank_0.pt",
        "model_world_size_1_rank_.pt",         "model_world_size_1_rank_ 0.pt",
        "model_world_size_1_rank_+0.pt",       "model_world_size_99999999_rank_0.pt",
    };
    struct scanning *s = *state;

    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
        put(s, shards[i]);
        REFUSED(s, -EINVAL, "no file has the name of a file of a save; '", shards[i], "' is like");
        assert_true(rfs_scan_is_described(NULL, s->tree.root));
        put_shard(s, 1, 1, 1);
        scanned(s);
        assert_string_equal(files_of(s, 0), "shard-00001-model-00001-of-00001.safetensors");
        has_told(s, shards[i]);
        removed(s, shards[i]);
        removed(s, "shard-00001-model-00001-of-00001.safetensors");
    }
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        put(s, ranks[i]);
        REFUSED(s, -EINVAL, ranks[i], "' is like");
        put_rank(s, 0, 1);
        scanned(s);
        assert_string_equal(files_of(s, 0), "model_world_size_1_rank_0.pt");
        has_told(s, ranks[i]);
        removed(s, ranks[i]);
        removed(s, "model_world_size_1_rank_0.pt");
    }
    assert_int_equal(s->lines.n, 16);
}

static void test_many_similar_names(void **state)
{
    struct scanning *s = *state;

    put_rank(s, 0, 1);
    for (char c = 'a'; c < 'h'; c++) {
        char name[64];
        snprintf(name, sizeof name, "model_world_size_1_rank_0%c.pt", c);
        put(s, name);
    }
    scanned(s);
    has_told(s, "'model_world_size_1_rank_0a.pt', 'model_world_size_1_rank_0b.pt', "
                "'model_world_size_1_rank_0c.pt' and 4 more are left out");
}

static void test_one_piece_twice(void **state)
{
    struct scanning *s = *state;

    put_rank(s, 0, 4);
    put(s, "model_world_size_4_rank_00.pt");
    REFUSED(s, -EINVAL, "'model_world_size_4_rank_0.pt' and 'model_world_size_4_rank_00.pt' have",
            "the numbers of one piece; try: move one of them away");
    removed(s, "model_world_size_4_rank_0.pt");
    removed(s, "model_world_size_4_rank_00.pt");
    put_shard(s, 1, 1, 1);
    put(s, "shard-1-model-1-of-1.safetensors");
    REFUSED(s, -EINVAL, "'shard-1-model-1-of-1.safetensors' have the numbers of one piece");
}

static void test_lost_shards(void **state)
{
    struct scanning *s = *state;

    put_shard(s, 1, 1, 1);
    put_shard(s, 3, 1, 1);
    put_shard(s, 4, 1, 1);
    REFUSED(s, -EINVAL, "'shard-00002-model-00001-of-00001.safetensors' is missing, by the numbers",
            "segmented, if the ranks saved no others");
    s->options.segmented = true; /* a rank that has nothing of its own writes no file */
    scanned(s);
    has_told(s, "'shard-00002-model-00001-of-00001.safetensors' is not there; as segmented says");
    assert_int_equal(s->scan.data[0].n_files, 3);
    s->options.segmented = false;
    put_shard(s, 2, 1, 1);
    scanned(s);
    s->options.file = (char *)"*-of-00003.safetensors";
    put_shard(s, 1, 1, 3);
    put_shard(s, 1, 3, 3);
    REFUSED(s, -EINVAL, "'shard-00001-model-00002-of-00003.safetensors' is missing");
    put_shard(s, 1, 2, 3);
    scanned(s);
    put_shard(s, 2, 2, 3);
    REFUSED(s, -EINVAL,
            "'shard-00002-model-00001-of-00003.safetensors', "
            "'shard-00002-model-00003-of-00003.safetensors' are missing");
    s->options.rank_dir = (char *)"node%d";
    MISUSED(s, "describes itself by 'the names of its files'");
}

static void test_lost_ranks(void **state)
{
    struct scanning *s = *state;

    put_rank(s, 0, 4);
    put_rank(s, 1, 4);
    put_rank(s, 3, 4);
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_FSDP]);
    assert_string_equal(s->scan.lost, "'model_world_size_4_rank_2.pt' is");
    put_rank(s, 2, 4);
    put(s, "optim_world_size_4_rank_0.pt");
    put(s, "extra_state_world_size_4_rank_0.pt");
    scanned(s);
    assert_null(s->scan.lost);
    assert_int_equal(s->scan.data[0].n_files, 4);
    s->options.file = (char *)"model_world_size_1048576_*";
    put_rank(s, 5, 1048576);
    scanned(s);
    assert_string_equal(s->scan.lost,
                        "'model_world_size_1048576_rank_0.pt', 'model_world_size_1048576_rank_1.pt'"
                        ", 'model_world_size_1048576_rank_2.pt' and 1048572 more are");
}

static void test_two_saves(void **state)
{
    struct scanning *s = *state;

    for (unsigned rank = 0; rank < 2; rank++)
        put_rank(s, rank, 2);
    for (unsigned rank = 0; rank < 4; rank++)
        put_rank(s, rank, 4);
    REFUSED(s, -EINVAL,
            "files of two saves, 'model_world_size_2_rank_0.pt' and "
            "'model_world_size_4_rank_3.pt'; try: file='model_world_size_2_*' or "
            "file='model_world_size_4_*'");
    assert_true(rfs_scan_is_described(NULL, s->tree.root));
    s->options.file = (char *)"model_world_size_2_*";
    scanned(s);
    assert_string_equal(files_of(s, 0),
                        "model_world_size_2_rank_0.pt model_world_size_2_rank_1.pt");
    assert_null(s->scan.lost);
}

/* Of MindSpore Transformers, which writes no metadata for one rank. */
static void test_one_rank(void **state)
{
    struct scanning *s = *state;

    put(s, "CKP-opt-0000000-0000001.safetensors");
    REFUSED(s, -EINVAL, "'CKP-model-0000000-0000001.safetensors' is missing, by the numbers");
    put(s, "CKP-model-0000000-0000001.safetensors");
    put(s, "CKP-model-0000000-0000001 (1).safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "CKP-model-0000000-0000001.safetensors "
                                        "CKP-opt-0000000-0000001.safetensors");
    has_told(s, "'CKP-model-0000000-0000001 (1).safetensors' is left out");
    put(s, "model-0000000-0000001.safetensors");
    REFUSED(s, -EINVAL, "files of two saves, 'model-0000000-0000001.safetensors' and 'CKP-opt-0");
    s->options.file = (char *)"CKP-[mo]*-*";
    scanned(s);
    assert_int_equal(s->scan.data[0].n_files, 2);
    s->options.step = 1;
    MISUSED(s, "step, epoch");
}

/* Each of them is one checkpoint. */
static void test_step_and_epoch(void **state)
{
    static const char *const names[] = {".metadata", "model_world_size_1_rank_0.pt",
                                        "shard-00001-model-00001-of-00001.safetensors"};
    struct scanning *s = *state;
    struct rfs_saves saves;
    struct rfs_error err = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put(s, names[i]);
        scanned(s);
        s->options.step = 1;
        MISUSED(s, "the source describes itself by '", "step, epoch and keys have no");
        s->options.step = RFS_ANY_NUMBER;
        s->options.epoch = 0;
        MISUSED(s, "step, epoch");
        s->options.epoch = RFS_ANY_NUMBER;
        assert_int_equal(rfs_scan_saves(&s->spec, &saves, &err), -EINVAL);
        assert_non_null(strstr(err.text, "option step=all: the source is one checkpoint"));
        rfs_scan_saves_free(&saves);
        removed(s, names[i]);
    }
}

static void set_time(const struct scanning *s, const char *name, time_t at)
{
    const struct timespec times[2] = {{.tv_sec = at}, {.tv_sec = at}};

    assert_int_equal(utimensat(AT_FDCWD, tree_path(&s->tree, name), times, 0), 0);
}

static void test_a_save_that_broke_off(void **state)
{
    struct scanning *s = *state;

    put(s, ".metadata");
    put(s, "__0_0.distcp");
    scanned(s);
    assert_null(s->scan.doubt);
    put(s, ".metadata.tmp");
    set_time(s, ".metadata", 1000000000);
    set_time(s, ".metadata.tmp", 1000000060);
    scanned(s);
    assert_string_equal(
        s->scan.doubt, "'.metadata.tmp' of 2001-09-09 01:47:40.000 UTC is beside '.metadata' of "
                       "2001-09-09 01:46:40.000 UTC: a later save into the folder did not end, and "
                       "may have replaced files");
    removed(s, ".metadata");
    REFUSED(s, -EINVAL, "the folder has .distcp files and no '.metadata'");
}

/* The files of a rank look like a whole checkpoint. */
static void test_hyper_parallel(void **state)
{
    struct scanning *s = *state;

    put(s, "_rank0_.safetensors");
    put(s, "a.safetensors");
    REFUSED(s, -EINVAL, "the folder has files of HyperParallel, '_rankN_.safetensors', and no ",
            "metadata; try: a save that has ended");
    assert_true(rfs_scan_is_described(NULL, s->tree.root));
    put(s, ".metadata");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_HYPER_PARALLEL]);
    assert_string_equal(files_of(s, 0), ".metadata");
    assert_null(s->scan.doubt);
    s->options.segmented = true;
    MISUSED(s, "the source describes itself by '.metadata': rank_dir, file");
    s->options.segmented = false;
    put(s, "0.metadata"); /* another save, which may have replaced the tensors */
    scanned(s);
    assert_string_equal(files_of(s, 0), ".metadata");
    assert_non_null(strstr(s->scan.doubt, "metadata of single ranks is beside '.metadata'"));
    removed(s, "_rank0_.safetensors");
    scanned(s); /* says nothing beside torch's */
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_DCP]);
    put(s, "_rank0_.safetensors");
    put(s, "__0_0.distcp");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_DCP]);
}

/* Each rank's metadata by itself: no name says how many there are. */
static void test_hyper_parallel_by_rank(void **state)
{
    struct scanning *s = *state;

    put(s, "10.metadata");
    put(s, "2.metadata");
    put(s, "1.metadata");
    put(s, "0.metadata");
    put(s, "00.metadata"); /* no name that is written */
    put(s, "x3.metadata");
    put(s, "99999999999.metadata");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_HYPER_PARALLEL]);
    assert_string_equal(files_of(s, 0), "0.metadata 1.metadata 2.metadata 10.metadata");
    assert_string_equal(s->scan.lost, "'3.metadata' and 6 more are");
    s->options.segmented = true;
    MISUSED(s, "the source describes itself by 'the metadata of each rank': rank_dir");
    s->options.segmented = false;
    removed(s, "10.metadata");
    scanned(s);
    assert_null(s->scan.lost);
    put(s, "_rank3_.safetensors"); /* the rank saved tensors */
    scanned(s);
    assert_string_equal(s->scan.lost, "'3.metadata' is");
    put(s, ".rank3_metadata");
    REFUSED(s, -EINVAL, "the folder has metadata of two saves, 'N.metadata' and '.rankN_metadata'");
    removed(s, "0.metadata");
    removed(s, "1.metadata");
    removed(s, "2.metadata");
    scanned(s);
    assert_string_equal(files_of(s, 0), ".rank3_metadata");
    assert_string_equal(s->scan.lost, "'.rank0_metadata' and 2 more are");
    assert_int_equal(s->lines.n, 0);
}

/* The same of torch, whose files with tensors have two numbers. */
static void test_torch_by_rank(void **state)
{
    struct scanning *s = *state;

    put(s, "__10.metadata");
    put(s, "__2.metadata");
    put(s, "__0.metadata");
    put(s, "__00.metadata"); /* no name that is written */
    put(s, "__x3.metadata");
    put(s, "__12.metadata.old");
    put(s, "__99999999999.metadata");
    put(s, "__11_.distcp");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_DCP]);
    assert_string_equal(files_of(s, 0), "__0.metadata __2.metadata __10.metadata");
    assert_string_equal(s->scan.lost, "'__1.metadata' and 7 more are");
    s->options.segmented = true;
    MISUSED(s, "the source describes itself by 'the metadata of each rank': rank_dir");
    s->options.segmented = false;
    removed(s, "__10.metadata");
    put(s, "__1.metadata");
    scanned(s);
    assert_string_equal(files_of(s, 0), "__0.metadata __1.metadata __2.metadata");
    assert_null(s->scan.lost);
    assert_null(s->scan.doubt);
    put(s, "__3_12.distcp"); /* the rank saved tensors */
    scanned(s);
    assert_string_equal(s->scan.lost, "'__3.metadata' is");
    put(s, "__4.metadata.tmp"); /* and this one was about to */
    scanned(s);
    assert_string_equal(s->scan.lost, "'__3.metadata' and 1 more are");
    assert_non_null(strstr(s->scan.doubt, "'__N.metadata.tmp' is beside the metadata of single"));
    put(s, "0.metadata"); /* HyperParallel's, which has its own */
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_HYPER_PARALLEL]);
    assert_string_equal(files_of(s, 0), "0.metadata");
    assert_null(s->scan.lost);
    assert_int_equal(s->lines.n, 0);
}

/* Nothing of it is HyperParallel's. */
static void test_hyper_parallel_like(void **state)
{
    struct scanning *s = *state;

    put(s, "x0.metadata");
    put(s, "_rank_.safetensors");
    s->options.segmented = true;
    scanned(s);
    assert_null(s->scan.described);
}

/* The folders that programs save to; those inside them are checkpoints. */
static void test_roots(void **state)
{
    static const struct {
        const char *files[5], *root, *try;
    } roots[] = {
        {{"tt/step-9/.metadata", "tt/step-100/.metadata", "tt/step-20/.metadata",
          "tt/step-200/__0_0.distcp"},
         "tt",
         "/tt/step-100"},
        {{"acc/optimizer_0/.metadata", "acc/pytorch_model_fsdp_0/.metadata"},
         "acc",
         "/acc/pytorch_model_fsdp_0"},
        {{"verl/global_step_20/actor/model_world_size_1_rank_0.pt",
          "verl/global_step_20/critic/model_world_size_1_rank_0.pt",
          "verl/latest_checkpointed_iteration.txt"},
         "verl",
         "/verl/global_step_20/actor or "},
        {{"nemo/m-step=1-last/weights/.metadata", "nemo/m-step=1-last/context/model.yaml"},
         "nemo",
         "/nemo/m-step=1-last/weights"},
    };
    struct scanning *s = *state;

    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        for (size_t k = 0; k < 5 && roots[i].files[k]; k++)
            put(s, roots[i].files[k]);
        s->spec.path = tree_path(&s->tree, roots[i].root);
        REFUSED(s, -ENOENT, "the folder has no rank_N folder in it; try: ", roots[i].try);
    }
    put(s, "acc/scheduler.bin");
    s->spec.path = tree_path(&s->tree, "acc");
    REFUSED(s, -EINVAL, "the folder has 'scheduler.bin', and checkpoints in folders below",
            "/acc/pytorch_model_fsdp_0");
    put(s, "verl/global_step_20/data.pt");
    s->spec.path = tree_path(&s->tree, "verl/global_step_20");
    REFUSED(s, -EINVAL, "the folder has 'data.pt', and checkpoints in folders below",
            "/critic; or ");
}

#define MODEL_OF_ALL "/mp_rank_00_model_states.pt"
#define OPTIMIZER_OF(rank) "/zero_pp_rank_" rank "_mp_rank_00_optim_states.pt"

/* The file that SCANNED has at a place ends with a path. */
static void expect_end(const struct scanning *s, size_t i, const char *end)
{
    const char *path = s->scan.data[0].files[i];

    assert_true(strlen(path) > strlen(end));
    assert_string_equal(path + strlen(path) - strlen(end), end);
}

static void test_deepspeed(void **state)
{
    struct scanning *s = *state;

    put(s, "global_step9" MODEL_OF_ALL);
    for (unsigned rank = 0; rank < 11; rank++) {
        char name[96];
        snprintf(name, sizeof name, "global_step9/zero_pp_rank_%u_mp_rank_00_optim_states.pt",
                 rank);
        put(s, name);
    }
    put(s, "global_step9/notes.pt");
    put(s, "rng_state_0.pth");
    scanned(s);
    assert_ptr_equal(s->scan.described, &rfs_formats[RFS_ROW_ZERO]);
    assert_int_equal(s->scan.data[0].n_files, 12);
    expect_end(s, 0, "/global_step9" MODEL_OF_ALL);
    expect_end(s, 10, OPTIMIZER_OF("9"));
    expect_end(s, 11, OPTIMIZER_OF("10"));

    put(s, "global_step10" MODEL_OF_ALL);
    put(s, "global_step10" OPTIMIZER_OF("0"));
    REFUSED(s, -EINVAL, "it has 2 saves of DeepSpeed and no file 'latest'", "try: step=N");
    s->options.step = 9;
    scanned(s);
    expect_end(s, 0, "/global_step9" MODEL_OF_ALL);
    s->options.step = 8;
    REFUSED(s, -ENOENT, "no save global_step8 in it; there are 2, and the last is global_step10");
    s->options.step = 9;
    s->options.epoch = 2;
    MISUSED(s, "option epoch: iterations have none");
    s->options.epoch = RFS_ANY_NUMBER;
    s->options.step = RFS_ANY_NUMBER;
    put_text(s, "latest", "global_step10");
    scanned(s);
    expect_end(s, 0, "/global_step10" MODEL_OF_ALL);
    put_text(s, "latest", "");
    REFUSED(s, -EINVAL, "/latest: it is empty: the save of DeepSpeed has not ended");
    put_text(s, "latest", "../x");
    REFUSED(s, -EINVAL, "/latest: it names '../x', which is no folder with a save of DeepSpeed");
    static const char *const elsewhere[] = {
        "..", ".", "/tmp", "//host/x", "s3://bucket/x", "https://host/x", "%2e%2e"};
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        put_text(s, "latest", elsewhere[i]);
        REFUSED(s, -EINVAL, elsewhere[i], "which is no folder with a save of DeepSpeed");
    }
    put(s, "best" MODEL_OF_ALL);
    put(s, "best" OPTIMIZER_OF("0"));
    put_text(s, "latest", "best\n");
    scanned(s);
    expect_end(s, 0, "/best" MODEL_OF_ALL);

    s->options.entry = (char *)"module";
    MISUSED(s, "option entry: a save of DeepSpeed is no single state dict");
}

/* Folders that are no whole save of a kind that is read. */
static void test_other_deepspeeds(void **state)
{
    static const struct {
        const char *folder, *files[4];
        int code;
        const char *text;
    } folders[] = {
        {"gap",
         {MODEL_OF_ALL, OPTIMIZER_OF("0"), OPTIMIZER_OF("2")},
         -EINVAL,
         "the file of rank 1 is missing: 'zero_pp_rank_2_mp_rank_00_optim_states.pt' is there"},
        {"two",
         {MODEL_OF_ALL, OPTIMIZER_OF("0"), "/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"},
         -EINVAL,
         "are not of one save of DeepSpeed"},
        {"stages",
         {MODEL_OF_ALL, "/zero_pp_rank_0_mp_rank_00_model_states.pt", OPTIMIZER_OF("0")},
         -EINVAL,
         "are not of one save of DeepSpeed"},
        {"states", {OPTIMIZER_OF("0")}, -EINVAL, "has no file of the model's states"},
        {"model", {MODEL_OF_ALL}, -ENOTSUP, "has no files of the optimizer's states"},
        {"tensor",
         {MODEL_OF_ALL, "/mp_rank_01_model_states.pt", OPTIMIZER_OF("0")},
         -ENOTSUP,
         "tensor parallelism, as 'mp_rank_01_model_states.pt' shows"},
        {"layers",
         {MODEL_OF_ALL, "/mp_rank_01_model_states.pt", OPTIMIZER_OF("0"),
          "/layer_00-model_states.pt"},
         -ENOTSUP,
         "DeepSpeed's pipeline, as 'layer_00-model_states.pt' shows"},
        {"experts",
         {MODEL_OF_ALL, OPTIMIZER_OF("0"), "/layer_0_expert_1_mp_rank_00_model_states.pt"},
         -ENOTSUP,
         "with experts, as 'layer_0_expert_1_mp_rank_00_model_states.pt' shows"},
        {"offloaded",
         {MODEL_OF_ALL, OPTIMIZER_OF("0"), "/offloaded_tensors/rank00/x"},
         -ENOTSUP,
         "has its optimizer in 'offloaded_tensors'"},
    };
    struct scanning *s = *state;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        for (size_t k = 0; k < 4 && folders[i].files[k]; k++) {
            char path[128];
            snprintf(path, sizeof path, "%s%s", folders[i].folder, folders[i].files[k]);
            put(s, path);
        }
        s->spec.path = tree_path(&s->tree, folders[i].folder);
        REFUSED(s, folders[i].code, folders[i].text);
    }
}

static void test_megatrons_other_formats(void **state)
{
    struct scanning *s = *state;

    put_text(s, "a/iter_0000020/metadata.json", "{\"sharded_backend\": \"zarr\"}");
    put(s, "a/iter_0000020/common.pt");
    put(s, "a/iter_0000020/w/.zarray");
    put(s, "b/iter_0000020/mp_rank_00_001/model_optim_rng.pt");
    put(s, "c/release/mp_rank_00/model_optim_rng.pt");
    put_text(s, "c/latest_checkpointed_iteration.txt", "release");
    put_text(s, "d/iter_0000020/metadata.json", "{\"sharded_backend\": \"torch_dist\"}");
    s->spec.path = tree_path(&s->tree, "a");
    REFUSED(s, -ENOTSUP, "/a/iter_0000020: this is a checkpoint of Megatron's format zarr, as");
    s->spec.path = tree_path(&s->tree, "a/iter_0000020");
    REFUSED(s, -ENOTSUP, "Megatron's format zarr");
    s->spec.path = tree_path(&s->tree, "b");
    REFUSED(s, -ENOTSUP, "Megatron's format torch, as 'mp_rank_00_001'",
            "--ckpt-format torch_dist");
    s->spec.path = tree_path(&s->tree, "b/iter_0000020");
    REFUSED(s, -ENOTSUP, "Megatron's format torch, as 'mp_rank_00_001'");
    s->spec.path = tree_path(&s->tree, "c");
    REFUSED(s, -ENOTSUP, "/c/release: this is a checkpoint of Megatron's format torch, as");
    s->spec.path = tree_path(&s->tree, "d");
    REFUSED(s, -EINVAL, "iter_0000020 has no '.metadata' of the format torch_dist: its save has");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_shards),
        TEST(test_similar_names),
        TEST(test_many_similar_names),
        TEST(test_one_piece_twice),
        TEST(test_lost_shards),
        TEST(test_lost_ranks),
        TEST(test_two_saves),
        TEST(test_one_rank),
        TEST(test_step_and_epoch),
        TEST(test_a_save_that_broke_off),
        TEST(test_hyper_parallel),
        TEST(test_hyper_parallel_by_rank),
        TEST(test_torch_by_rank),
        TEST(test_hyper_parallel_like),
        TEST(test_roots),
        TEST(test_deepspeed),
        TEST(test_other_deepspeeds),
        TEST(test_megatrons_other_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
