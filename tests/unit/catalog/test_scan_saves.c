/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files are one save: names in pairs, and trees of trainings that were killed and begun anew,
 * as MindSpore's ModelCheckpoint names their files.
 */
#include "catalog/scan/internal.h"
#include "scanning.h"

#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- names ----------------------------------------------------------------------------------- */

static void test_names(void **state)
{
    static const struct {
        const char *names[3]; /* of ranks[0] and so on, up to a NULL */
        uint32_t ranks[3];
        bool same;
    } cases[] = {
        {{"net-2_4.ckpt", "net-2_4.ckpt"}, {0, 1}, true},
        {{"net_1-2_4.ckpt", "net-2_4.ckpt"}, {0, 1}, false},
        {{"net-2_4.ckpt", "net-2_4_breakpoint.ckpt"}, {0, 1}, false},
        {{"net-2_4.ckpt", "z_final.ckpt"}, {0, 1}, false},
        {{"net-2_4.ckpt", "net-02_4.ckpt"}, {0, 1}, false},
        {{"checkpoint_0.ckpt", "checkpoint_1.ckpt", "checkpoint_12.ckpt"}, {0, 1, 12}, true},
        {{"checkpoint_3.ckpt", "checkpoint_4.ckpt"}, {3, 4}, true},
        {{"checkpoint_3.ckpt", "checkpoint_3.ckpt"}, {3, 4}, true},
        {{"checkpoint_3.ckpt", "checkpoint_5.ckpt"}, {3, 4}, false},
        {{"a_000.ckpt", "a_012.ckpt"}, {0, 12}, true},
        {{"a_000.ckpt", "a_12.ckpt"}, {0, 12}, false},
        {{"a_0.ckpt", "a_00.ckpt"}, {0, 0}, false},
        {{"a_10.ckpt", "a_09.ckpt"}, {10, 9}, true},
        {{"a_10.ckpt", "a_9.ckpt", "a_11.ckpt"}, {10, 9, 11}, true},
        {{"a_10.ckpt", "a_9.ckpt", "a_08.ckpt"}, {10, 9, 8}, false},
        {{"llama_rank_0-2_4.ckpt", "llama_rank_2-2_4.ckpt"}, {0, 2}, true},
        {{"llama_rank_1-2_4.ckpt", "llama_rank_2-2_4.ckpt"}, {1, 2}, true},
        {{"rank_0_1-2_4.ckpt", "rank_3_1-2_4.ckpt"}, {0, 3}, true},
        {{"rank_0_1-2_4.ckpt", "rank_3-2_4.ckpt"}, {0, 3}, false},
        {{"rank_0-2_4.ckpt", "rank_3-3_4.ckpt"}, {0, 3}, false},
        {{"part-0_8.ckpt", "part-1_8.ckpt"}, {0, 1}, true},
        {{"part-1_8.ckpt", "part-2_8.ckpt"}, {1, 2}, false},   /* they may be epochs */
        {{"net_1-2_4.ckpt", "net_2-2_4.ckpt"}, {1, 2}, false}, /* or the second run and the third */
        {{"net_0-2_4.ckpt", "net_1-2_4.ckpt", "net_2-2_4.ckpt"}, {0, 1, 2}, true},
        {{"x_0.ckpt", "x_0.ckpt", "x_2.ckpt"}, {0, 1, 2}, false}, /* no meaning fits all three */
        {{"x_1.ckpt", "x_1.ckpt", "x_2.ckpt"}, {0, 1, 2}, false},
        {{"x_0.ckpt", "x_3.ckpt", "x_7.ckpt"}, {8, 11, 15}, true}, /* of a node */
        {{"x_0.ckpt", "x_3.ckpt", "x_0.ckpt"}, {0, 3, 8}, true},
        {{"x_1.ckpt", "x_2.ckpt"}, {8, 9}, false}, /* they may be epochs */
        {{"x_0.ckpt", "x_2.ckpt"}, {8, 9}, false},
        {{"x_2.ckpt", "x_1.ckpt"}, {2, 3}, false},
        {{"99999999999999999999.ckpt", "99999999999999999999.ckpt"}, {0, 1}, true},
        {{"a1.ckpt", "a.ckpt"}, {1, 1}, false},
        {{"a.ckpt", "a1.ckpt"}, {1, 1}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rfs_scan_same same = {0};
        bool is = true;
        for (size_t k = 0; k < 3 && cases[i].names[k] && is; k++)
            is = rfs_scan_same_add(&same, cases[i].names[k], cases[i].ranks[k]) == 1;
        is = is && rfs_scan_same_counts_ranks(&same);
        if (is != cases[i].same)
            fail_msg("case %zu: %s and %s", i, cases[i].names[0], cases[i].names[1]);
        rfs_scan_same_free(&same);
    }
}

/* A name beside the chosen one that differs in the number of the rank alone. */
static void test_numbers_of_ranks_in_doubt(void **state)
{
    struct scanning *s = *state;

    put(s, "rank_0/net_0.ckpt");
    put(s, "rank_1/net_1.ckpt");
    scanned(s);
    put(s, "rank_1/net_0.ckpt"); /* two saves, of which rank 0 has one */
    REFUSED(s, -EINVAL, "rank_1/net_1.ckpt and rank_1/net_0.ckpt differ in a number",
            "file='net_0.ckpt', which all ranks have, if these are of one run");
    put(s, "rank_0/net_1.ckpt");
    scanned(s);
    assert_string_equal(files_of(s, 0), "rank_0/net_1.ckpt");
    assert_string_equal(files_of(s, 1), "rank_1/net_1.ckpt");
}

static void test_parts(void **state)
{
    struct scanning *s = *state;

    s->options.segmented = true;
    put(s, "rank_0/x_part0.ckpt");
    put(s, "rank_0/x_part1.ckpt");
    put(s, "rank_1/x_part0.ckpt"); /* it may have fewer */
    scanned(s);
    put(s, "rank_2/y_part0.ckpt");
    REFUSED(s, -EINVAL, "different saves: rank_0/x_part0.ckpt and rank_2/y_part0.ckpt");
    put(s, "rank_0/y_part0.ckpt");
    put(s, "rank_1/y_part0.ckpt");
    put(s, "rank_2/x_part0.ckpt");
    scanned(s);
    plain(s);
    s->options.segmented = true;
    s->options.step = 4;
    put(s, "rank_0/net_part0-2_4.ckpt");
    put(s, "rank_0/net_part1-2_4.ckpt");
    scanned(s);
    put(s, "rank_0/net_1_part0-2_4.ckpt");
    REFUSED(s, -EINVAL, "of step 4 are of different saves");
}

/* Of trees and folders, the views of all saves list no folder again. */
static void test_one_look(void **state)
{
    struct scanning *s = *state;
    struct rfs_saves saves;
    struct rfs_error err = {0};

    for (int rank = 0; rank < 3; rank++)
        for (int epoch = 1; epoch < 4; epoch++) {
            char name[96];
            snprintf(name, sizeof name, "rank_%d/net-%d_5.ckpt", rank, epoch);
            if (rank < 2 || epoch < 3)
                put(s, name);
        }
    if (rfs_scan_saves(&s->spec, &saves, &err))
        fail_msg("%s", err.text);
    assert_int_equal(saves.n, 3);
    put(s, "rank_0/net_9-1_5.ckpt"); /* after the look */
    s->spec.saves = &saves;
    s->options.step = 5;
    for (s->options.epoch = 1; s->options.epoch < 4; s->options.epoch++) {
        char want[64];
        scanned(s);
        snprintf(want, sizeof want, "rank_0/net-%d_5.ckpt", (int)s->options.epoch);
        assert_string_equal(files_of(s, 0), want);
        assert_int_equal(s->scan.n, 3);
        assert_int_equal(s->scan.present, s->options.epoch < 3 ? 3 : 2);
    }
    rfs_scan_saves_free(&saves);
    plain(s);
}

/* A save that is removed after the look has no files: no source is without any. */
static void test_a_save_that_went(void **state)
{
    static const char *const files[] = {"mp_rank_00_model_states.pt",
                                        "zero_pp_rank_0_mp_rank_00_optim_states.pt"};
    struct scanning *s = *state;
    struct rfs_saves saves;
    struct rfs_error err = {0};
    char name[96];

    for (int step = 10; step <= 20; step += 10)
        for (size_t i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "global_step%d/%s", step, files[i]);
            put(s, name);
        }
    if (rfs_scan_saves(&s->spec, &saves, &err))
        fail_msg("%s", err.text);
    assert_int_equal(saves.n, 2);
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "global_step10/%s", files[i]);
        assert_int_equal(unlink(tree_path(&s->tree, name)), 0);
    }
    s->spec.saves = &saves;
    s->options.epoch = 0;
    s->options.step = 20;
    scanned(s);
    s->options.step = 10;
    REFUSED(s, -ENOENT, "global_step10 has no checkpoint any more");
    assert_int_equal(rmdir(tree_path(&s->tree, "global_step10")), 0);
    REFUSED(s, -ENOENT, "global_step10");
    rfs_scan_saves_free(&saves);
    plain(s);
}

/* A remedy that is followed must not lead back to its message. */
static void test_remedies(void **state)
{
    struct scanning *s = *state;

    put(s, "rank_0/net_1200.ckpt");
    put(s, "rank_1/net_1201.ckpt");
    REFUSED(s, -EINVAL, "net_1201.ckpt; try: files=MAP, which names the file of each rank");
    put(s, "rank_0/net_12.ckpt");
    REFUSED(s, -EINVAL, "net_1201.ckpt; try: file=GLOB that matches one file of each rank");
    put(s, "rank_1/net_12.ckpt");
    REFUSED(s, -EINVAL, "net_1201.ckpt; try: file='net_12.ckpt', which all ranks have");
    s->options.file = (char *)"net_12.ckpt";
    scanned(s);
    plain(s);
}

/* ---- trainings ------------------------------------------------------------------------------- */

#define RANKS 4
#define FILES_MOST 400

/* A file as the training that wrote it knows it. */
struct made {
    uint32_t rank;
    char name[96];
    int form;   /* of the prefix, or of names without numbers */
    int suffix; /* of the run */
    int epoch, step, broken;
};

struct training {
    struct made files[FILES_MOST];
    size_t n;
    bool safetensors;
};

static const char *const prefixes[] = {"net", "CKP2", "v0"};
#define OF_RANKS 3 /* the form of MindSpore Transformers: the rank is in the prefix */

static void prefix_of(int form, uint32_t rank, char *out, size_t size)
{
    if (form == OF_RANKS)
        snprintf(out, size, "llama_rank_%u", rank);
    else
        snprintf(out, size, "%s", prefixes[form]);
}

/* The number that ModelCheckpoint puts behind a prefix, by the names in the folder. */
static int suffix_of(const struct training *t, uint32_t rank, const char *prefix)
{
    const size_t n = strlen(prefix);
    int suffix = 0;

    for (size_t i = 0; i < t->n; i++) {
        const struct made *file = &t->files[i];
        const char *rest = file->name + n;
        if (file->rank != rank || file->broken || strncmp(file->name, prefix, n) != 0 ||
            isalpha((unsigned char)*rest))
            continue;
        const char *dash = strchr(rest, '-');
        int k;
        if (dash == rest)
            suffix = suffix > 1 ? suffix : 1;
        else if (dash && sscanf(rest + 1, "%d-", &k) == 1 && k + 1 > suffix)
            suffix = k + 1;
    }
    return suffix;
}

static void write_file(struct training *t, const struct made *file)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->files[i].rank == file->rank && strcmp(t->files[i].name, file->name) == 0) {
            t->files[i] = *file;
            return;
        }
    assert_true(t->n < FILES_MOST);
    t->files[t->n++] = *file;
}

/* A run into the folders, killed at some save after some ranks; each rank keeps the last few. */
static void run(struct training *t, struct random *random)
{
    const int form = (int)random_below(random, 5) < 3 ? 0 : (int)random_below(random, 4);
    const int saves = 1 + (int)random_below(random, 4);
    const int first = (int)random_below(random, 3);
    const unsigned last = (unsigned)random_below(random, RANKS + 1); /* ranks that end */
    int suffixes[RANKS];
    char prefix[32];

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        prefix_of(form, rank, prefix, sizeof prefix);
        suffixes[rank] = suffix_of(t, rank, prefix);
    }
    for (int save = 1; save <= saves; save++)
        for (uint32_t rank = 0; rank < (save < saves ? RANKS : last); rank++) {
            struct made file = {.rank = rank,
                                .form = form,
                                .suffix = suffixes[rank],
                                .epoch = first + save,
                                .step = 5,
                                .broken = save == saves && random_below(random, 4) == 0};
            char suffix[16] = "";
            prefix_of(form, rank, prefix, sizeof prefix);
            if (file.suffix > 0)
                snprintf(suffix, sizeof suffix, "_%d", file.suffix);
            snprintf(file.name, sizeof file.name, "%s%s-%d_%d%s.%s", prefix, suffix, file.epoch,
                     file.step, file.broken ? "_breakpoint" : "",
                     t->safetensors ? "safetensors" : "ckpt");
            write_file(t, &file);
        }
}

static void lose(struct training *t, struct random *random)
{
    const unsigned one_of = 3 + (unsigned)random_below(random, 20);
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        if (random_below(random, one_of) > 0)
            t->files[n++] = t->files[i];
    t->n = n;
}

static void train(struct training *t, struct random *random)
{
    const unsigned runs = 1 + (unsigned)random_below(random, 3);

    *t = (struct training){.safetensors = random_below(random, 4) == 0};
    for (unsigned i = 0; i < runs; i++)
        run(t, random);
    for (uint32_t rank = 0; rank < RANKS && random_below(random, 3) == 0; rank++) {
        struct made file = {.rank = rank, .form = 9};
        snprintf(file.name, sizeof file.name, "z_final.%s",
                 t->safetensors ? "safetensors" : "ckpt");
        write_file(t, &file);
    }
    if (random_below(random, 2))
        lose(t, random);
}

static const struct made *find(const struct training *t, uint32_t rank, const char *path)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->files[i].rank == rank && strcmp(t->files[i].name, strrchr(path, '/') + 1) == 0)
            return &t->files[i];
    fail_msg("%s", path);
    return NULL;
}

/* What the trainings themselves say of two files. */
static bool is_one_save(const struct made *a, const struct made *b)
{
    return a->form == b->form && a->suffix == b->suffix && a->epoch == b->epoch &&
           a->step == b->step && a->broken == b->broken;
}

/* Returns the number of ranks that have a file, all of one save. */
static size_t check_scan(const struct training *t, const struct rfs_scan *scan)
{
    const struct made *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < scan->n; i++) {
        if (scan->data[i].n_files == 0)
            continue;
        assert_int_equal(scan->data[i].n_files, 1);
        const struct made *file = find(t, scan->data[i].rank, scan->data[i].files[0]);
        if (first && !is_one_save(first, file))
            fail_msg("mixed: %s of rank %u and %s of rank %u", first->name, first->rank, file->name,
                     file->rank);
        first = first ? first : file;
        n++;
    }
    assert_true(n > 0 && n == scan->present);
    return n;
}

/* Compares what one look at all saves gives with a look for each. */
static void check_saves(struct scanning *s, const struct training *t, unsigned *opened)
{
    struct rfs_saves saves;
    struct rfs_error err = {0};
    const int rc = rfs_scan_saves(&s->spec, &saves, &err);

    for (size_t i = 0; rc == 0 && i < saves.n; i++) {
        struct rfs_scan one = {0};
        struct rfs_scan other = {0};
        s->options.epoch = saves.data[i].epoch;
        s->options.step = saves.data[i].step;
        s->spec.saves = &saves;
        const int got = rfs_scan_open(&s->spec, NULL, &one, &err);
        s->spec.saves = NULL;
        assert_int_equal(rfs_scan_open(&s->spec, NULL, &other, &err), got);
        if (got == 0) {
            check_scan(t, &one);
            assert_int_equal(one.n, other.n);
            for (size_t k = 0; k < one.n; k++) {
                assert_int_equal(one.data[k].n_files, other.data[k].n_files);
                if (one.data[k].n_files > 0)
                    assert_string_equal(one.data[k].files[0], other.data[k].files[0]);
            }
            (*opened)++;
        }
        rfs_scan_free(&one);
        rfs_scan_free(&other);
        plain(s);
    }
    rfs_scan_saves_free(&saves);
}

/* Says whether all files are of one run, and of saves that all ranks have. */
static bool is_sound(const struct training *t)
{
    for (size_t i = 0; i < t->n; i++) {
        unsigned ranks = 0;
        for (size_t k = 0; k < t->n; k++)
            ranks += is_one_save(&t->files[i], &t->files[k]);
        if (ranks != RANKS || t->files[i].form != t->files[0].form ||
            t->files[i].suffix != t->files[0].suffix)
            return false;
    }
    return t->n > 0;
}

static void test_random_trainings(void **state)
{
    struct scanning *s = *state;
    struct random random = {random_seed()};
    static struct training t;
    unsigned opened = 0;
    unsigned refused = 0;
    unsigned of_saves = 0;

    for (unsigned i = 0; i < 600; i++) {
        struct rfs_error err = {0};
        train(&t, &random);
        for (size_t k = 0; k < t.n; k++) {
            char path[96];
            snprintf(path, sizeof path, "rank_%u/%s", t.files[k].rank, t.files[k].name);
            put(s, path);
        }
        rfs_scan_free(&s->scan);
        if (t.n > 0 && rfs_scan_open(&s->spec, NULL, &s->scan, &err) == 0) {
            check_scan(&t, &s->scan);
            opened++;
        } else {
            refused++;
            if (is_sound(&t))
                fail_msg("a sound tree: %s", err.text);
        }
        if (t.n > 0)
            check_saves(s, &t, &of_saves);
        for (size_t k = 0; k < t.n; k++) {
            char path[96];
            snprintf(path, sizeof path, "rank_%u/%s", t.files[k].rank, t.files[k].name);
            assert_int_equal(unlink(tree_path(&s->tree, path)), 0);
        }
    }
    print_message("%u trees opened, %u refused; %u saves opened\n", opened, refused, of_saves);
    assert_true(opened > 50 && refused > 50 && of_saves > 200);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), TEST(test_numbers_of_ranks_in_doubt), TEST(test_parts),
        TEST(test_one_look),          TEST(test_a_save_that_went),          TEST(test_remedies),
        TEST(test_random_trainings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
