/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of checksums, written, read back and damaged; findings in groups; and pieces that are
 * folded in order.
 */
#include "survey/sweep.h"
#include "survey/verify/findings.h"
#include "tests/support/tree.h"
#include "tool/common/manifest.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- lists ----------------------------------------------------------------------------------- */

static const struct rfs_type matrix = {
    .bytes = 24, .ndim = 2, .dims = {2, 3}, .dtype = RFS_FLOAT32, .kind = RFS_TENSOR};
static const struct rfs_type scalar = {.bytes = 8, .dtype = RFS_INT64, .kind = RFS_TENSOR};

/* A name with control characters is the same one when the list is read. */
static void test_any_name_is_found_again(void **state)
{
    static const char name[] = "w\n\x7f\t\xc3\xbc\\x0a";
    struct rfs_manifest sums, again;
    struct rfs_error err = {0};
    char *text;
    size_t size;

    (void)state;
    assert_int_equal(rfs_manifest_init(&sums, RFS_MANIFEST_TENSORS), 0);
    assert_int_equal(rfs_manifest_init(&again, RFS_MANIFEST_TENSORS), 0);
    assert_int_equal(rfs_manifest_put_tensor(&sums, name, &scalar, (struct rfs_hash){1, 2}), 0);
    assert_int_equal(rfs_manifest_text(&sums, NULL, &text, &size), 0);
    assert_int_equal(rfs_manifest_parse("m", text, size, &again, &err), 0);
    assert_non_null(rfs_manifest_find(&again, name));
    free(text);
    rfs_manifest_free(&sums);
    rfs_manifest_free(&again);
}

static void test_a_list_as_it_is_written(void **state)
{
    static const char want[] =
        "{\n\"format\": \"reshard-tensors\",\n\"version\": 1,\n\"tensors\": [\n"
        "{\"name\": \"a\\\"b\", \"dtype\": \"Int64\", \"shape\": [], "
        "\"xxh3_128\": \"0000000000000001000000000000000f\"},\n"
        "{\"name\": \"z\", \"dtype\": \"Float32\", \"shape\": [2, 3], "
        "\"xxh3_128\": \"ffffffffffffffff0000000000000000\"}\n]\n}\n";
    struct rfs_manifest sums, again;
    struct rfs_error err = {0};
    char *text;
    size_t size;

    (void)state;
    assert_int_equal(rfs_manifest_init(&sums, RFS_MANIFEST_TENSORS), 0);
    assert_int_equal(rfs_manifest_put_tensor(&sums, "z", &matrix, (struct rfs_hash){UINT64_MAX, 0}),
                     0);
    assert_int_equal(rfs_manifest_put_tensor(&sums, "a\"b", &scalar, (struct rfs_hash){1, 15}), 0);
    assert_int_equal(rfs_manifest_put_tensor(&sums, "z", &scalar, (struct rfs_hash){1, 2}),
                     -EEXIST);
    assert_int_equal(rfs_manifest_text(&sums, NULL, &text, &size), 0);
    assert_string_equal(text, want);

    assert_int_equal(rfs_manifest_init(&again, RFS_MANIFEST_TENSORS), 0);
    assert_int_equal(rfs_manifest_parse("m", text, size, &again, &err), 0);
    const struct rfs_manifest_entry *entry = rfs_manifest_find(&again, "z");
    assert_non_null(entry);
    assert_true(rfs_manifest_fits(&again, entry, &matrix));
    assert_false(rfs_manifest_fits(&again, entry, &scalar));
    assert_true(rfs_hash_equal(entry->hash, (struct rfs_hash){UINT64_MAX, 0}));
    assert_true(rfs_manifest_fits(&again, rfs_manifest_find(&again, "a\"b"), &scalar));
    assert_null(rfs_manifest_find(&again, "b"));
    free(text);
    rfs_manifest_free(&sums);
    rfs_manifest_free(&again);
}

static void refuse(const char *text, const char *why)
{
    struct rfs_manifest sums;
    struct rfs_error err = {0};

    assert_int_equal(rfs_manifest_init(&sums, RFS_MANIFEST_TENSORS), 0);
    assert_int_equal(rfs_manifest_parse("FILE", text, strlen(text), &sums, &err), -EINVAL);
    if (!strstr(err.text, why) || strncmp(err.text, "FILE: offset ", 13) != 0)
        fail_msg("%s: not '%s', but '%s'", text, why, err.text);
    rfs_manifest_free(&sums);
}

#define TENSOR                                                                                     \
    "{\"name\":\"a\",\"dtype\":\"Int8\",\"shape\":[1],\"xxh3_128\":"                               \
    "\"0123456789abcdef0123456789abcdef\"}"

static void test_lists_that_are_refused(void **state)
{
    struct rfs_manifest sums;

    (void)state;
    refuse("", "");
    refuse("{}", "not a manifest of reshard verify");
    refuse("{\"format\":\"reshard-manifest\"}", "not a manifest of reshard verify");
    refuse("{\"format\":\"reshard-tensors\",\"version\":2}", "of another version of reshard");
    refuse("{\"format\":\"reshard-tensors\",\"tensors\":[{\"name\":\"a\"}]}", "has no name, dtype");
    refuse("{\"format\":\"reshard-tensors\",\"tensors\":[" TENSOR "," TENSOR "]}", "comes twice");
    refuse("{\"format\":\"reshard-tensors\",\"tensors\":[{\"xxh3_128\":\"0123\"}]}",
           "32 hexadecimal");
    refuse("{\"format\":\"reshard-tensors\",\"tensors\":[{\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
           "1,1]}]}",
           "more than 16");
    refuse("{\"format\":\"reshard-tensors\",\"tensors\":[" TENSOR "]} x", "");
    /* Every truncation of a good one. */
    static const char good[] =
        "{\"format\":\"reshard-tensors\",\"more\":[1,{}],\"tensors\":[" TENSOR "]}";
    for (size_t n = 0; n < sizeof good - 1; n++) {
        char *cut = strndup(good, n);
        assert_non_null(cut);
        refuse(cut, "");
        free(cut);
    }
    assert_int_equal(rfs_manifest_init(&sums, RFS_MANIFEST_TENSORS), 0);
    assert_int_equal(rfs_manifest_parse("m", good, sizeof good - 1, &sums, NULL), 0);
    rfs_manifest_free(&sums);
}

/* ---- findings -------------------------------------------------------------------------------- */

static void add(struct rfs_findings *findings, const char *name, uint32_t rank, uint64_t at)
{
    rfs_findings_add(findings, &(struct rfs_finding){.kind = RFS_FOUND_REPLICA,
                                                     .name = name,
                                                     .rank = rank,
                                                     .file = "f",
                                                     .offset = at + 1000,
                                                     .at = at});
}

static void test_findings_become_groups(void **state)
{
    static const char a[] = "a", b[] = "b";
    struct rfs_findings findings = {0};

    (void)state;
    assert_int_equal(rfs_findings_init(&findings), 0);
    assert_false(rfs_findings_fault(&findings, NULL));
    add(&findings, b, 3, 5);
    add(&findings, a, 7, 40);
    add(&findings, a, 2, 9);
    add(&findings, a, 7, 30);
    add(&findings, a, 7, 35);
    add(&findings, a, 1, 9);
    add(&findings, a, 0, 9);
    rfs_findings_sort(&findings);
    assert_int_equal(findings.list.n, 5);
    const size_t end = findings.list.data[0].group;
    assert_int_equal(end, 4);
    for (size_t i = 0; i < end; i++)
        assert_int_equal(findings.list.data[i].rank, i < 3 ? i : 7);
    assert_int_equal(findings.list.data[3].at, 30);
    assert_int_equal(findings.list.data[3].offset, 1030);
    assert_int_equal(findings.list.data[4].rank, 3);
    assert_true(rfs_findings_fault(&findings, "a"));
    assert_false(rfs_findings_fault(&findings, "c"));
    rfs_findings_free(&findings);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

#define ITEMS 40

struct pieces {
    uint64_t units[ITEMS], folded[ITEMS];
    unsigned finished[ITEMS];
    uint64_t worked; /* under lock */
    size_t fails;    /* at this item, or none */
    pthread_mutex_t lock;
};

static uint64_t units(void *ctx, size_t item)
{
    return ((struct pieces *)ctx)->units[item];
}

/* So that a piece is of 1 to 7 units. */
static uint64_t unit(void *ctx, size_t item, unsigned side)
{
    (void)ctx;
    (void)side;
    return RFS_SWEEP_PIECE / (1 + item % 7);
}

/* There is no checkpoint to read. */
static struct rfs_tensor no_tensor(void *ctx, size_t item, unsigned side)
{
    (void)ctx;
    (void)item;
    (void)side;
    return (struct rfs_tensor){NULL, 0};
}

static int work(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                struct rfs_error *err)
{
    struct pieces *pieces = ctx;

    *(struct rfs_sweep_piece *)worker->own = *piece;
    pthread_mutex_lock(&pieces->lock);
    pieces->worked += piece->n;
    pthread_mutex_unlock(&pieces->lock);
    if (piece->begin % 3 == 0)
        sched_yield();
    if (piece->item == pieces->fails && piece->last)
        return rfs_fail(err, -EIO, RFS_NOWHERE, NULL, "as it was told to");
    return 0;
}

static int fold(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                struct rfs_error *err)
{
    struct pieces *pieces = ctx;

    (void)err;
    assert_memory_equal(worker->own, piece, sizeof *piece);
    assert_int_equal(pieces->folded[piece->item], piece->begin);
    pieces->folded[piece->item] += piece->n;
    pieces->finished[piece->item] += piece->last;
    return 0;
}

static int sweep(struct pieces *pieces, unsigned threads, struct rfs_error *err)
{
    struct rfs_progress progress;
    const struct rfs_sweep all = {.ctx = pieces,
                                  .n = ITEMS,
                                  .sides = 1,
                                  .own_bytes = sizeof(struct rfs_sweep_piece),
                                  .tensor = no_tensor,
                                  .units = units,
                                  .unit = unit,
                                  .work = work,
                                  .fold = fold,
                                  .progress = &progress,
                                  .phase = "testing"};

    rfs_progress_init(&progress, false);
    const int rc = rfs_sweep_run(&all, threads, err);
    rfs_progress_destroy(&progress);
    return rc;
}

static void test_pieces_are_folded_in_order(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
    for (unsigned threads = 1; threads < 8; threads++) {
        struct pieces pieces = {.fails = ITEMS, .lock = PTHREAD_MUTEX_INITIALIZER};
        uint64_t all = 0;
        for (size_t i = 0; i < ITEMS; i++)
            all += pieces.units[i] = i % 5 ? test_below(&seed, 60) : 0;
        assert_int_equal(sweep(&pieces, threads, NULL), 0);
        assert_int_equal(pieces.worked, all);
        for (size_t i = 0; i < ITEMS; i++) {
            assert_int_equal(pieces.folded[i], pieces.units[i]);
            assert_int_equal(pieces.finished[i], 1);
        }
        struct rfs_error err = {0};
        memset(pieces.folded, 0, sizeof pieces.folded);
        pieces.fails = test_below(&seed, ITEMS);
        assert_int_equal(sweep(&pieces, threads, &err), -EIO);
        assert_string_equal(err.text, "as it was told to");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_list_as_it_is_written),
        cmocka_unit_test(test_any_name_is_found_again),
        cmocka_unit_test(test_lists_that_are_refused),
        cmocka_unit_test(test_findings_become_groups),
        cmocka_unit_test(test_pieces_are_folded_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
