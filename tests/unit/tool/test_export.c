/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `reshard export` is made of and needs no view for: ranks, tasks, the order of work, the
 * command line.
 */
#include "tests/support/tree.h"
#include "tool/common/show.h"
#include "tool/export/export.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- ranks ----------------------------------------------------------------------------------- */

static void ranks_are_numbers_and_ranges(void **state)
{
    struct rfs_ranks ranks = {0};
    (void)state;
    assert_true(rfs_ranks_has(&ranks, 7)); /* none given: all */
    assert_int_equal(rfs_ranks_parse("0-3,70", &ranks), 0);
    assert_int_equal(rfs_ranks_parse("9", &ranks), 0);
    for (uint32_t r = 0; r < 100; r++)
        assert_int_equal(rfs_ranks_has(&ranks, r), r <= 3 || r == 9 || r == 70);
    rfs_ranks_free(&ranks);
}

static void what_is_no_list_of_ranks_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      ",",
                                      "1,",
                                      ",1",
                                      "1-",
                                      "-1",
                                      "3-2",
                                      "1-2-3",
                                      "a",
                                      "1 ",
                                      " 1",
                                      "0x1",
                                      "1,,2",
                                      "1-a",
                                      "+1",
                                      "4294967295",
                                      "1;2",
                                      "99999999999999999999",
                                      "0-4294967295"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rfs_ranks ranks = {0};
        if (rfs_ranks_parse(bad[i], &ranks) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
        rfs_ranks_free(&ranks);
    }
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "TORCHELASTIC_RUN_ID",
                                        "JOB_COMPLETION_INDEX",
                                        "SLURM_ARRAY_TASK_ID",
                                        "SLURM_ARRAY_TASK_COUNT",
                                        "SLURM_ARRAY_TASK_MIN",
                                        "SLURM_ARRAY_TASK_MAX",
                                        "SLURM_ARRAY_TASK_STEP",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEPID"};

/* "A=1 B=2": nothing else is set. */
static int detect(const char *environment, struct rfs_task *task, struct rfs_error *err)
{
    char text[400];

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    snprintf(text, sizeof text, "%s", environment);
    for (char *rest, *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        setenv(word, value, 1);
    }
    *err = (struct rfs_error){0};
    return rfs_task_detect(task, err);
}

static void tasks_are_what_the_engine_says(void **state)
{
    static const struct {
        const char *environment;
        uint32_t number, count;
        const char *engine;
        bool is_warned;
    } cases[] = {
        {"", 0, 1, NULL, false},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", 3, 4, "Open MPI", false},
        {"PMI_RANK=0 PMI_SIZE=12", 0, 12, "MPICH", false},
        {"SLURM_PROCID=1 SLURM_NTASKS=2", 1, 2, "Slurm", false},
        {"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2", 1, 2, "Slurm", false},
        {"SLURM_JOB_ID=7 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_NTASKS=8", 5, 6, "Slurm",
         false},
        /* sbatch's script runs once, whatever it says */
        {"SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8", 0, 1, NULL, true},
        {"SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=1", 0, 1, NULL, false},
        /* mpirun in a job of Slurm: Slurm's numbers are those of the daemons */
        {"SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_NTASKS=2 OMPI_COMM_WORLD_RANK=9 "
         "OMPI_COMM_WORLD_SIZE=16",
         9, 16, "Open MPI", false},
        {"PMI_RANK=3", 0, 1, NULL, false},
        /* torchrun on the nodes of a job; RANK alone may be anything */
        {"RANK=5 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=none", 5, 8, "torchrun", false},
        {"RANK=5 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=7 SLURM_STEP_ID=0 "
         "SLURM_PROCID=1 SLURM_NTASKS=2",
         5, 8, "torchrun", false},
        {"RANK=5 WORLD_SIZE=8", 0, 1, NULL, false},
        /* sbatch --array=2-8:2, each a script, and each with two tasks of srun */
        {"SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_ARRAY_TASK_ID=6 "
         "SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=2 SLURM_ARRAY_TASK_MAX=8 "
         "SLURM_ARRAY_TASK_STEP=2",
         2, 4, "Slurm", false},
        {"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_ARRAY_TASK_ID=6 "
         "SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=2 SLURM_ARRAY_TASK_MAX=8 "
         "SLURM_ARRAY_TASK_STEP=2",
         5, 8, "Slurm", false},
        {"SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=0 "
         "SLURM_ARRAY_TASK_MAX=3 SLURM_ARRAY_TASK_STEP=1",
         3, 4, "Slurm", false},
        /* a pod does not know how many there are */
        {"JOB_COMPLETION_INDEX=2", 0, 1, NULL, true},
        {"JOB_COMPLETION_INDEX=0 RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x", 1, 2, "torchrun",
         false},
    };
    struct rfs_task task;
    struct rfs_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(detect(cases[i].environment, &task, &err), 0);
        assert_int_equal(task.number, cases[i].number);
        assert_int_equal(task.count, cases[i].count);
        assert_int_equal(task.warning != NULL, cases[i].is_warned);
        assert_int_equal(task.remedy != NULL, cases[i].is_warned);
        assert_int_equal(task.engine != NULL, cases[i].engine != NULL);
        if (task.engine)
            assert_string_equal(task.engine, cases[i].engine);
    }
}

static void an_environment_that_contradicts_itself_is_refused(void **state)
{
    static const char *const bad[] = {"OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4",
                                      "PMI_RANK=-1 PMI_SIZE=4", "SLURM_PROCID=0 SLURM_NTASKS=0",
                                      "PMI_RANK=0 PMI_SIZE=four",
                                      "RANK=2 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x",
                                      /* --array=1,5,7 has no step */
                                      "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=3 "
                                      "SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=7 "
                                      "SLURM_ARRAY_TASK_STEP=1",
                                      "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=1 "
                                      "SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=1 "
                                      "SLURM_ARRAY_TASK_STEP=0",
                                      "SLURM_ARRAY_TASK_ID=4 SLURM_ARRAY_TASK_COUNT=3 "
                                      "SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=3 "
                                      "SLURM_ARRAY_TASK_STEP=1",
                                      "SLURM_ARRAY_TASK_ID=x SLURM_ARRAY_TASK_COUNT=3 "
                                      "SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=3 "
                                      "SLURM_ARRAY_TASK_STEP=1",
                                      "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=4294967295 "
                                      "SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=4294967294 "
                                      "SLURM_ARRAY_TASK_STEP=1 SLURM_STEP_ID=0 SLURM_PROCID=0 "
                                      "SLURM_NTASKS=2"};
    struct rfs_task task;
    struct rfs_error err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (detect(bad[i], &task, &err) != -EINVAL || !err.usage)
            fail_msg("'%s' was taken", bad[i]);
    detect("", &task, &err);
}

static void division_is_complete_and_even(void **state)
{
    uint64_t random = test_seed();
    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        const size_t n = test_below(&random, 300);
        const uint32_t tasks = 1 + test_below(&random, 40);
        uint64_t sizes[300];
        uint32_t task_of[300], again[300];
        uint64_t load[40] = {0};
        uint64_t total = 0;
        uint64_t largest = 0;

        for (size_t i = 0; i < n; i++) {
            sizes[i] = test_below(&random, 3) == 0 ? 0 : test_below(&random, 1000000);
            total += sizes[i];
            largest = sizes[i] > largest ? sizes[i] : largest;
        }
        memset(task_of, 0xff, sizeof task_of);
        assert_int_equal(rfs_task_divide(sizes, n, tasks, task_of), 0);
        for (size_t i = 0; i < n; i++) {
            assert_true(task_of[i] < tasks);
            load[task_of[i]] += sizes[i];
        }
        /* Greedy: when the last file came to the fullest task, no other had less than it. */
        for (uint32_t t = 0; t < tasks; t++)
            assert_true(load[t] <= total / tasks + largest + n);
        assert_int_equal(rfs_task_divide(sizes, n, tasks, again), 0);
        assert_memory_equal(task_of, again, n * sizeof *again);
    }
}

static void equal_files_go_around(void **state)
{
    uint64_t sizes[56];
    uint32_t task_of[56];
    (void)state;
    for (size_t i = 0; i < 56; i++)
        sizes[i] = 1 << 20;
    assert_int_equal(rfs_task_divide(sizes, 56, 7, task_of), 0);
    for (size_t i = 0; i < 56; i++)
        assert_int_equal(task_of[i], i % 7);
}

/* ---- the order of work ----------------------------------------------------------------------- */

/*
 * Every byte of every file is in one item; items of a file come in order; members have the same
 * key.
 */
static void expect_plan(const struct rfs_wave_file *files, size_t n, uint64_t piece,
                        struct rfs_wave_key *const *keys, const struct rfs_wave_plan *plan)
{
    uint64_t done[RFS_WAVE_MOST] = {0};
    uint64_t pieces[RFS_WAVE_MOST] = {0};

    for (size_t i = 0; i < plan->items.n; i++) {
        const struct rfs_wave_item *item = &plan->items.data[i];
        assert_true(item->n > 0 && item->size > 0 && item->size <= piece);
        assert_true(keys || item->n == 1);
        for (uint32_t m = 0; m < item->n; m++) {
            const uint32_t f = plan->members.data[item->first + m];
            const uint32_t first = plan->members.data[item->first];
            assert_true(f < n);
            assert_int_equal(done[f], item->offset);
            if (keys)
                assert_memory_equal(&keys[f][pieces[f]], &keys[first][pieces[first]],
                                    sizeof(struct rfs_wave_key));
            if (m > 0)
                pieces[f]++;
            done[f] += item->size;
            assert_true(done[f] <= files[f].size);
            /* A piece ends at the cut. */
            if (files[f].cut > 0)
                assert_true(item->offset >= files[f].cut || done[f] <= files[f].cut);
        }
        pieces[plan->members.data[item->first]]++;
    }
    for (size_t f = 0; f < n; f++) {
        assert_int_equal(done[f], files[f].size);
        assert_int_equal(pieces[f], rfs_wave_pieces(&files[f], piece));
    }
}

static void waves_write_each_byte_once_and_in_order(void **state)
{
    uint64_t random = test_seed();
    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        struct rfs_wave_file files[RFS_WAVE_MOST] = {{0}};
        struct rfs_wave_key *keys[RFS_WAVE_MOST];
        struct rfs_wave_plan plan;
        const size_t n = 1 + test_below(&random, RFS_WAVE_MOST);
        const uint64_t piece = 1 + test_below(&random, 50);
        const bool keyed = test_below(&random, 2) == 0;

        for (size_t f = 0; f < n; f++) {
            files[f].file = f;
            files[f].size = test_below(&random, 400);
            files[f].cut = test_below(&random, 3) == 0 ? test_below(&random, 500) : 0;
            const uint64_t pieces = rfs_wave_pieces(&files[f], piece);
            keys[f] = calloc(pieces + 1, sizeof **keys);
            assert_non_null(keys[f]);
            for (uint64_t i = 0; i < pieces; i++)
                keys[f][i].word[0] = test_below(&random, 3);
        }
        assert_int_equal(rfs_wave_plan(files, n, piece, keyed ? keys : NULL, &plan), 0);
        expect_plan(files, n, piece, keyed ? keys : NULL, &plan);
        rfs_wave_plan_free(&plan);
        for (size_t f = 0; f < n; f++)
            free(keys[f]);
    }
}

static void replicas_are_one_item(void **state)
{
    static struct rfs_wave_key same[3] = {{{1, 1}}, {{2, 2}}, {{3, 3}}};
    static struct rfs_wave_key other[3] = {{{1, 1}}, {{9, 9}}, {{3, 3}}};
    struct rfs_wave_key *keys[] = {same, other, same};
    const struct rfs_wave_file files[] = {{.size = 300}, {.size = 300}, {.size = 300}};
    struct rfs_wave_plan plan;
    (void)state;
    assert_int_equal(rfs_wave_plan(files, 3, 100, keys, &plan), 0);
    assert_int_equal(plan.items.n, 4); /* all, two and one, all */
    assert_int_equal(plan.items.data[0].n, 3);
    assert_int_equal(plan.items.data[1].n, 2);
    assert_int_equal(plan.items.data[2].n, 1);
    assert_int_equal(plan.items.data[3].n, 3);
    rfs_wave_plan_free(&plan);
}

static size_t next_wave(const struct rfs_wave_file *files, size_t n, unsigned threads, bool flat,
                        bool *share)
{
    size_t count;
    assert_int_equal(rfs_wave_next(files, n, threads, flat, &count, share), 0);
    return count;
}

static void files_of_the_same_sources_are_a_wave(void **state)
{
    static const uint32_t one[] = {0, 1}, two[] = {2, 3}, lead[] = {0, 2, 3};
    struct rfs_wave_file files[] = {
        {.file = 0, .sources = two, .n_sources = 2},  {.file = 1, .sources = one, .n_sources = 2},
        {.file = 2, .sources = two, .n_sources = 2},  {.file = 3, .sources = one, .n_sources = 2},
        {.file = 4, .sources = lead, .n_sources = 3}, {.file = 5, .sources = NULL, .n_sources = 0}};
    bool share;
    (void)state;
    rfs_wave_sort(files, 6, false);
    static const size_t order[] = {5, 1, 3, 4, 0, 2};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(files[i].file, order[i]);
    assert_int_equal(next_wave(files, 0, 1, false, &share), 0);
    assert_int_equal(next_wave(files, 6, 1, false, &share), 1);
    assert_false(share);
    /*
     * Not all that names the lead shares with it: half of what the one with fewer sources has must
     * be common.
     */
    assert_int_equal(next_wave(files + 1, 5, 1, false, &share), 3);
    assert_true(share);
    assert_int_equal(next_wave(files + 4, 2, 1, false, &share), 2);
    assert_true(share);
    /* As many as there are threads, in any case. */
    assert_int_equal(next_wave(files, 6, 4, false, &share), 4);
    assert_int_equal(next_wave(files + 1, 5, 1, true, &share), 1);
    assert_false(share);
}

static void waves_are_not_larger_than_they_may(void **state)
{
    static const uint32_t source = 5;
    struct rfs_wave_file files[RFS_WAVE_MOST * 2];
    bool share;
    (void)state;
    for (size_t i = 0; i < RFS_WAVE_MOST * 2; i++)
        files[i] = (struct rfs_wave_file){.file = i, .sources = &source, .n_sources = 1};
    assert_int_equal(next_wave(files, RFS_WAVE_MOST * 2, 1, false, &share), RFS_WAVE_MOST);
    assert_int_equal(next_wave(files, RFS_WAVE_MOST * 2, 200, true, &share), RFS_WAVE_MOST);
}

/* ---- the command line ------------------------------------------------------------------------ */

enum { MOST = 16 };

static int parse(struct rfs_export_options *out, struct rfs_error *err, ...)
{
    char *argv[MOST + 2] = {(char *)(uintptr_t) "export"};
    int argc = 1;
    va_list words;

    va_start(words, err);
    for (const char *word; argc <= MOST && (word = va_arg(words, const char *));)
        argv[argc++] = (char *)(uintptr_t)word;
    va_end(words);
    *err = (struct rfs_error){0};
    *out = (struct rfs_export_options){0};
    const int rc = rfs_args_parse(rfs_export_arguments, argc, argv, out, err);
    return rc ? rc : rfs_export_options_check(out, err);
}

static void the_command_line_is_understood(void **state)
{
    struct rfs_export_options o;
    struct rfs_error err;
    (void)state;
    assert_int_equal(parse(&o, &err, "src", "-s", "a,b", "-j4", "dst", "-o", "dtype=float16,crc",
                           "-d", "c\\d", "--format", "ckpt", "--ranks", "0-1", "--no-fsync",
                           "--json", NULL),
                     0);
    assert_string_equal(o.source, "src");
    assert_string_equal(o.target, "dst");
    /* In the order in which they were given, as the last counts; only -o is a list. */
    static const char *const view[][2] = {{"src_strategy", "a,b"},
                                          {"dtype", "float16"},
                                          {"crc", NULL},
                                          {"dst_strategy", "c\\d"},
                                          {"format", "ckpt"}};
    assert_int_equal(o.view.list.n, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(o.view.list.data[i].name, view[i][0]);
        if (view[i][1])
            assert_string_equal(o.view.list.data[i].value, view[i][1]);
        else
            assert_null(o.view.list.data[i].value);
    }
    assert_int_equal(o.threads, 4);
    assert_true(o.no_fsync && o.json && !o.force && !o.verify && !o.trust);
    assert_int_equal(o.ranks.n, 1);
    assert_int_equal(o.task.count, 0);
    rfs_args_free(rfs_export_arguments, &o);

    assert_int_equal(parse(&o, &err, "--verify", "dst", NULL), 0);
    assert_null(o.source);
    assert_string_equal(o.target, "dst");
    rfs_args_free(rfs_export_arguments, &o);

    assert_int_equal(parse(&o, &err, "--task", "2/3", "--", "-src", "-dst", NULL), 0);
    assert_string_equal(o.source, "-src");
    assert_int_equal(o.task.number, 2);
    assert_int_equal(o.task.count, 3);
    rfs_args_free(rfs_export_arguments, &o);
}

static void what_is_no_command_line_is_refused(void **state)
{
    static const char *const bad[][6] = {
        {NULL},
        {"src"},
        {"src", "dst", "more"},
        {"src", ""},
        {"src", "dst", "--frob"},
        {"src", "dst", "-j"},
        {"src", "dst", "-j", "0"},
        {"src", "dst", "-j", "257"},
        {"src", "dst", "--task", "2/2"},
        {"src", "dst", "--task", "2"},
        {"src", "dst", "--task", "/2"},
        {"src", "dst", "--ranks", "a"},
        {"--verify"},
        {"--verify", "dst", "-s", "a"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rfs_export_options o;
        struct rfs_error err;
        const int rc = parse(&o, &err, bad[i][0], bad[i][1], bad[i][2], bad[i][3], bad[i][4], NULL);
        if (rc != -EINVAL || !err.usage || !err.text[0])
            fail_msg("command line %zu was taken", i);
        rfs_args_free(rfs_export_arguments, &o);
    }
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void sizes_and_times_are_readable(void **state)
{
    char out[RFS_TEXT_AMOUNT];
    (void)state;
    assert_string_equal(rfs_text_amount(0, out), "0 bytes");
    assert_string_equal(rfs_text_amount(1023, out), "1023 bytes");
    assert_string_equal(rfs_text_amount(1024, out), "1.0 KiB");
    assert_string_equal(rfs_text_amount(1536 * 1024, out), "1.5 MiB");
    assert_string_equal(rfs_text_amount(1048575, out), "1.0 MiB");
    assert_string_equal(rfs_text_amount(UINT64_MAX, out), "16.0 EiB");
    assert_string_equal(rfs_text_duration(0, out), "0:00");
    assert_string_equal(rfs_text_duration(59.6, out), "1:00");
    assert_string_equal(rfs_text_duration(3725, out), "1:02:05");
    assert_string_equal(rfs_text_duration(1e12, out), "99:59:59");
    assert_string_equal(rfs_text_duration(-1, out), "0:00");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_numbers_and_ranges),
        cmocka_unit_test(what_is_no_list_of_ranks_is_refused),
        cmocka_unit_test(tasks_are_what_the_engine_says),
        cmocka_unit_test(an_environment_that_contradicts_itself_is_refused),
        cmocka_unit_test(division_is_complete_and_even),
        cmocka_unit_test(equal_files_go_around),
        cmocka_unit_test(waves_write_each_byte_once_and_in_order),
        cmocka_unit_test(replicas_are_one_item),
        cmocka_unit_test(files_of_the_same_sources_are_a_wave),
        cmocka_unit_test(waves_are_not_larger_than_they_may),
        cmocka_unit_test(the_command_line_is_understood),
        cmocka_unit_test(what_is_no_command_line_is_refused),
        cmocka_unit_test(sizes_and_times_are_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
