/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is looked at before a parameter is believed to be nowhere, what removed redundancy is
 * refused for, and parameters under other names or without bytes. Small trees, written here.
 */
#include "base/options.h"
#include "plan/planner.h"
#include "tests/support/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A parameter of four elements, or of one a piece. */
#define LAYOUT(name, dev, map)                                                                     \
    "\"" name "\": {\"dev_matrix\": " dev ", \"tensor_map\": [" map "], \"field\": 0, "            \
    "\"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}"

struct fixture {
    char *root;
    struct rfs_strategy *src, *dst;
    struct rfs_pool *pool;
    struct rfs_catalog *catalog;
    struct rfs_planner *planner;
    struct rfs_names *names;
    bool strict, keep_empty;
    struct rfs_notes notes;
    char lines[2048];
    struct rfs_error err;
    const struct rfs_rank_plan *plan; /* of the last rank */
};

static struct rfs_strategy *parse(const char *name, const char *items)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};
    char text[4096];
    const int n = snprintf(text, sizeof text,
                           "{\"current_stage\": 1, \"parallel_strategy_item\": {\"op\": "
                           "{\"stage\": 0, \"parallel_strategy\": [[1]]}}, "
                           "\"parallel_layout_item\": {%s}}",
                           items);

    if (rfs_strategy_parse(name, text, (size_t)n, &strategy, &err))
        fail_msg("%s", err.text);
    return strategy;
}

static void keep_note(void *ctx, const struct rfs_note *note)
{
    struct fixture *f = ctx;
    const size_t used = strlen(f->lines);

    snprintf(f->lines + used, sizeof f->lines - used, "%s\n", note->text);
}

/* DST may be NULL. */
static void open_tree(struct fixture *f, const char *src, const char *dst)
{
    const struct rfs_source_spec spec = {.path = f->root, .options = &rfs_options_defaults};

    f->src = parse("src.json", src);
    f->dst = dst ? parse("dst.json", dst) : NULL;
    f->pool = rfs_pool_new(1);
    assert_non_null(f->pool);
    assert_int_equal(rfs_notes_init(&f->notes, keep_note, f), 0);
    if (rfs_catalog_open(&spec, NULL, f->pool, &f->catalog, &f->err))
        fail_msg("%s", f->err.text);
    const struct rfs_planner_config config = {.catalog = f->catalog,
                                              .src = f->src,
                                              .dst = f->dst,
                                              .pool = f->pool,
                                              .notes = &f->notes,
                                              .strict = f->strict,
                                              .keep_empty = f->keep_empty,
                                              .names = f->names};
    if (rfs_planner_new(&config, &f->planner, &f->err))
        fail_msg("%s", f->err.text);
}

/* A checkpoint of these parameters, one letter each: four elements, or one of an "s". */
static void write_rank(const struct fixture *f, unsigned rank, const char *names)
{
    struct bytes file = {0};
    char path[64];

    snprintf(path, sizeof path, "rank_%u/net-1_1.ckpt", rank);
    for (; *names; names++)
        ckpt_tensor(&file, (const char[]){*names, '\0'}, "Int8", *names != 's',
                    (const uint64_t[]){4}, (char[]){'a', 'b', (char)('0' + rank), 'd'},
                    *names == 's' ? 1 : 4);
    tree_write(f->root, path, file.data, file.n);
    bytes_free(&file);
}

/* A safetensors file of these, "e" without elements; METADATA is inserted as it is. */
static void write_safetensors(const struct fixture *f, unsigned rank, const char *names,
                              const char *metadata)
{
    char text[2048];
    char path[64];
    struct bytes file = {0};
    size_t n =
        (size_t)snprintf(text, sizeof text, "{\"__metadata__\":{\"format\":\"ms\"%s}", metadata);
    unsigned at = 0;

    for (const char *name = names; *name; name++) {
        const unsigned bytes = *name == 'e' ? 0 : 4;
        n += (size_t)snprintf(text + n, sizeof text - n,
                              ",\"%c\":{\"dtype\":\"I8\",\"shape\":[%u],\"data_offsets\":[%u,%u]}",
                              *name, bytes, at, at + bytes);
        at += bytes;
    }
    text[n++] = '}';
    while (n % 8)
        text[n++] = ' ';
    bytes_add(&file, (const unsigned char[8]){(unsigned char)n, (unsigned char)(n >> 8)}, 8);
    bytes_add(&file, text, n);
    for (; at > 0; at -= 4)
        bytes_add(&file, "wxyz", 4);
    snprintf(path, sizeof path, "rank_%u/net-1_1.safetensors", rank);
    tree_write(f->root, path, file.data, file.n);
    bytes_free(&file);
}

static int plan_rank(struct fixture *f, uint32_t rank)
{
    f->err = (struct rfs_error){0};
    return rfs_planner_rank(f->planner, rank, &f->plan, &f->err);
}

/* The names of the file, each with the source ranks of its bytes: "w0,1 s0". */
static void expect_file(struct fixture *f, uint32_t rank, const char *expected)
{
    char text[512] = "";
    size_t n = 0;

    if (plan_rank(f, rank))
        fail_msg("%s", f->err.text);
    for (size_t i = 0; i < f->plan->params->n; i++) {
        const struct rfs_target *target = &f->plan->params->targets[i];
        struct rfs_slice slice = {0};
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "",
                              rfs_catalog_name(f->catalog, target->shown_name));
        assert_int_equal(rfs_planner_slice(f->planner, rank, target, &slice), 0);
        for (size_t b = 0; b < slice.n; b++) {
            const char *path = rfs_files_path(rfs_catalog_files(f->catalog), slice.blocks[b].file);
            const char *number = strstr(path, "rank_") + 5;
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", b ? "," : "",
                                  (int)strcspn(number, "/"), number);
        }
        rfs_slice_free(&slice);
    }
    assert_string_equal(text, expected);
}

static void expect_refusal(struct fixture *f, uint32_t rank, int code, const char *fragment)
{
    const int rc = plan_rank(f, rank);

    if (rc != code || !strstr(f->err.text, fragment))
        fail_msg("%d: %s", rc, f->err.text);
}

static void expect_indexed(struct fixture *f, uint64_t n)
{
    struct rfs_catalog_counters counters;

    rfs_catalog_count(f->catalog, &counters);
    assert_int_equal(counters.indexed, n);
}

#define OVER(name, dev) LAYOUT(name, dev, "-1")

/* The lead has all that the strategy knows: no other header is read. */
static void test_a_complete_lead_is_enough(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 4; rank++)
        write_rank(f, rank, "wms");
    open_tree(f, OVER("w", "[4]") ", " OVER("m", "[4]"), OVER("w", "[4]") ", " OVER("m", "[4]"));
    expect_file(f, 2, "w2 m2 s2");
    expect_indexed(f, 1);
    assert_string_equal(f->lines, "");
}

/*
 * "m" is in the strategy and in no file: its replicas are looked at, once for all destination
 * ranks.
 */
static void test_what_nobody_has_is_left_out(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 4; rank++)
        write_rank(f, rank, "ws");
    open_tree(f, OVER("w", "[4]") ", " OVER("m", "[2, 2]") ", " LAYOUT("n", "[2, 2]", "0"),
              OVER("w", "[4]") ", " OVER("m", "[4]") ", " OVER("n", "[4]"));
    expect_file(f, 1, "w1 s1");
    expect_indexed(f, 4);
    expect_file(f, 0, "w0 s0");
    assert_int_equal(f->plan->n_sources, 1);
    assert_string_equal(f->lines, "");
}

/* What has no replicas needs no other look. */
static void test_what_has_no_replicas(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 4; rank++)
        write_rank(f, rank, "ws");
    open_tree(f, OVER("w", "[4]") ", " LAYOUT("m", "[4]", "0"),
              OVER("w", "[4]") ", " LAYOUT("m", "[4]", "0"));
    expect_file(f, 1, "w1 s1");
    expect_indexed(f, 1);
}

/* Neither sizes nor the lead's list tell that another rank has what the lead lacks. */
static void test_files_of_one_size(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "as");
    write_rank(f, 1, "bs");
    write_rank(f, 2, "cs");
    open_tree(f, OVER("a", "[3]") ", " OVER("b", "[3]") ", " OVER("c", "[3]"), NULL);
    expect_file(f, 0, "c2 b1 a0 s0");
    expect_indexed(f, 3);
    assert_non_null(strstr(f->lines, "the checkpoints of pipeline stage 0 do not list the same "
                                     "parameters, as after remove_redundancy"));
}

/* Of a parameter that the destination lacks the slice of the template's replicas counts. */
static void test_copies_by_the_source_layout(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "ws");
    write_rank(f, 1, "wms");
    write_rank(f, 2, "wms");
    write_rank(f, 3, "ws");
    open_tree(f, OVER("w", "[4]") ", " LAYOUT("m", "[2, 2]", "0"), OVER("w", "[4]"));
    expect_file(f, 0, "w0 s0 m2");
    expect_file(f, 3, "w3 s3 m1");
}

/* The same when the rank is lost: its layout proves that the replica has the same, of any size. */
static void test_copies_of_a_lost_rank(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 1; rank < 4; rank++)
        write_rank(f, rank, "wm");
    open_tree(f, OVER("w", "[4]") ", " LAYOUT("m", "[2, 2]", "0"), OVER("w", "[4]"));
    expect_file(f, 0, "w1 m2");
    assert_non_null(strstr(f->lines, "rank_0 is missing; its slices are read from a replica"));
}

static void test_copies_that_nobody_has(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 1, "wm");
    write_rank(f, 3, "wm");
    open_tree(f, OVER("w", "[4]") ", " LAYOUT("m", "[2, 2]", "0"), OVER("w", "[4]"));
    expect_refusal(f, 0, -ENOENT,
                   "rank_0 holds a slice that rank_0 of the destination needs, but "
                   "its checkpoint is missing and so are those of its replicas");
    expect_file(f, 1, "w1 m1");
}

static void test_a_hole(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 4; rank++)
        write_rank(f, rank, rank == 3 ? "wvs" : "vs");
    open_tree(f, LAYOUT("w", "[2, 2]", "0") ", " OVER("v", "[4]"), OVER("w", "[1]"));
    expect_refusal(
        f, 0, -EINVAL,
        "parameter 'w': rank_0 of the destination needs the slice of rank_0, rank_2, "
        "which do not have it, though other ranks have theirs: a hole that no replica fills");
}

static void test_a_hole_beside_a_lost_rank(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 1; rank < 4; rank++)
        write_rank(f, rank, rank == 2 ? "vs" : "wvs");
    open_tree(f, LAYOUT("w", "[2, 2]", "0") ", " OVER("v", "[4]"), OVER("w", "[1]"));
    expect_refusal(f, 0, -ENOENT,
                   "needs the slice of rank_0, rank_2, which have no checkpoint or none with it");
}

/*
 * The files are of one size, and those that are needed list the same: what the lost rank kept is
 * missed all the same.
 */
static void test_a_hole_among_files_of_one_size(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "v");
    write_rank(f, 1, "v");
    write_rank(f, 3, "w");
    open_tree(f, LAYOUT("w", "[2, 2]", "0") ", " LAYOUT("v", "[2, 2]", "0"), OVER("w", "[1]"));
    expect_refusal(f, 0, -ENOENT,
                   "needs the slice of rank_0, rank_2, which have no checkpoint or none with it");
}

/* Nothing proves that it was saved, so that it is left out, but not without a word. */
static void test_what_a_lost_rank_may_have_kept(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 3; rank++)
        write_rank(f, rank, "v");
    open_tree(f, LAYOUT("n", "[4]", "-1") ", " LAYOUT("v", "[2, 2]", "0"), OVER("v", "[1]"));
    expect_file(f, 0, "v0,1");
    assert_non_null(strstr(f->lines, "1 parameter of the source strategy in no checkpoint of "
                                     "pipeline stage 0: n"));
}

/* The same if the lost rank's file was replaced by a copy of its replica's. */
static void test_a_hole_behind_a_copy(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 4; rank++)
        write_rank(f, rank, rank == 3 ? "w" : "v");
    open_tree(f, LAYOUT("w", "[2, 2]", "0") ", " LAYOUT("v", "[2, 2]", "0"), OVER("w", "[1]"));
    expect_refusal(f, 0, -EINVAL, "needs the slice of rank_0, rank_2, which do not have it");
}

/* What no strategy knows: one keeper is believed, several must agree, on one element. */
static void test_values_without_layout(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "w");
    write_rank(f, 1, "wk");
    write_rank(f, 2, "w");
    open_tree(f, OVER("w", "[3]"), OVER("w", "[3]"));
    expect_file(f, 0, "w0 k1");
    expect_file(f, 1, "w1 k1");
}

static void test_values_without_layout_of_several(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "w");
    write_rank(f, 1, "ws");
    write_rank(f, 2, "ws");
    write_rank(f, 3, "wk");
    open_tree(f, OVER("w", "[4]"), OVER("w", "[4]"));
    expect_file(f, 0, "w0 k3 s1"); /* the same byte in both */
    expect_file(f, 2, "w2 k3 s2");
}

static void test_values_that_several_do_not_prove(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "w");
    write_rank(f, 1, "wk");
    write_rank(f, 2, "wk");
    open_tree(f, OVER("w", "[3]"), OVER("w", "[3]"));
    expect_refusal(f, 0, -EINVAL,
                   "parameter 'k': has no layout and is copied from rank_0, whose checkpoint does "
                   "not have it; the ranks that have it do not prove its value; try: the "
                   "checkpoints as they were saved, or drop=k");
    expect_file(f, 2, "w2 k2");
}

/* A file that says so is believed: what no strategy knows may be in any of the others. */
static void test_declared(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 3; rank++)
        write_safetensors(f, rank, (const char *[]){"wx", "wy", "wz"}[rank],
                          ",\"remove_redundancy\":\"True\"");
    open_tree(f, OVER("w", "[3]"), OVER("w", "[3]"));
    expect_file(f, 0, "w0 z2 y1 x0");
    assert_non_null(
        strstr(f->lines, "3 parameters in no strategy, copied unsliced: z [4], y [4], x [4]"));
    assert_null(strstr(f->lines, "remove_redundancy"));
}

static void test_not_declared(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 3; rank++)
        write_safetensors(f, rank, (const char *[]){"wx", "wy", "wz"}[rank],
                          ",\"remove_redundancy\":\"False\"");
    open_tree(f, OVER("w", "[3]"), OVER("w", "[3]"));
    expect_file(f, 0, "w0 x0"); /* as MindSpore, which loads one file */
}

#define MANY 66000 /* more headers than are read of a file for what may be nowhere */

/* MANY parameters of one byte, and FIRST and LAST around them. */
static void write_many(const struct fixture *f, unsigned rank, const char *first, const char *last)
{
    const uint64_t one = 1;
    struct bytes file = {0};
    char name[32];

    ckpt_tensor(&file, first, "Int8", 1, &one, "x", 1);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "p%05u", i);
        ckpt_tensor(&file, name, "Int8", 1, &one, "y", 1);
    }
    ckpt_tensor(&file, last, "Int8", 1, &one, "z", 1);
    snprintf(name, sizeof name, "rank_%u/net-1_1.ckpt", rank);
    tree_write(f->root, name, file.data, file.n);
    bytes_free(&file);
}

static void many(struct fixture *f, const char *first, const char *last)
{
    write_many(f, 0, "w", "v");
    write_many(f, 1, first, last);
    open_tree(f, OVER("w", "[2]") ", " OVER("m", "[2]") ", " OVER("accu_grads.w", "[2]"),
              OVER("w", "[1]"));
    if (plan_rank(f, 0))
        fail_msg("%s", f->err.text);
}

static void test_samples_of_large_files(void **state)
{
    struct fixture *f = *state;

    many(f, "w", "v");
    expect_indexed(f, 1);
    assert_int_equal(f->plan->params->n, MANY + 2);
    assert_non_null(strstr(f->lines, "1 parameter of the source strategy in none of the "
                                     "checkpoints of pipeline stage 0, by samples of their "
                                     "headers: m"));
}

static void test_samples_that_differ(void **state)
{
    struct fixture *f = *state;

    many(f, "m", "v");
    expect_indexed(f, 2);
    assert_int_equal(f->plan->params->n, MANY + 3);
}

static void test_the_last_sample_differs(void **state)
{
    struct fixture *f = *state;

    many(f, "w", "m");
    assert_int_equal(f->plan->params->n, MANY + 3);
}

static void test_strict_looks_at_all(void **state)
{
    struct fixture *f = *state;

    f->strict = true;
    many(f, "w", "v");
    expect_indexed(f, 2);
    assert_string_equal(f->lines, "");
}

/* What is damaged is neither needed nor able to say whether it has what the others lack. */
static void test_a_damaged_file_that_is_asked(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 3; rank++)
        write_rank(f, rank, "ws");
    tree_write(f->root, "rank_2/net-1_1.ckpt", "\x0a\x7fxxx", 5);
    open_tree(f, OVER("w", "[3]") ", " OVER("m", "[3]"), OVER("w", "[3]") ", " OVER("m", "[3]"));
    expect_file(f, 0, "w0 s0");
    expect_refusal(f, 2, -EINVAL, "rank_2/net-1_1.ckpt: offset");
    expect_file(f, 1, "w1 s1");
    assert_non_null(strstr(
        f->lines,
        "pipeline stage 0 has a damaged checkpoint: parameters in that one alone are left out: "));
}

/* MindSpore writes a file of no bytes for a rank that keeps nothing. */
static void test_ranks_that_keep_nothing(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "");
    write_rank(f, 1, "ab");
    write_rank(f, 2, "");
    open_tree(f, OVER("a", "[3]") ", " OVER("b", "[3]"), OVER("a", "[3]") ", " OVER("b", "[3]"));
    expect_file(f, 0, "a1 b1");
    expect_file(f, 1, "a1 b1");
    expect_file(f, 2, "a1 b1");
}

static void test_files_that_should_not_be_empty(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "a");
    write_rank(f, 1, "");
    open_tree(f, LAYOUT("a", "[2]", "0"), OVER("a", "[1]"));
    expect_refusal(f, 0, -EINVAL, "rank_1/net-1_1.ckpt: the file is empty; try: copy or save");
}

static void test_empty_files_are_told(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "");
    write_rank(f, 1, "w");
    write_rank(f, 2, "");
    open_tree(f, OVER("w", "[3]"), NULL);
    expect_file(f, 0, "w1");
    assert_non_null(
        strstr(f->lines, "the checkpoints of rank_0, rank_2 in pipeline stage 0 are empty"));
}

static void test_a_stage_that_keeps_nothing(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "");
    write_rank(f, 1, "");
    open_tree(f, OVER("a", "[2]"), NULL);
    expect_refusal(f, 0, -EINVAL, "rank_0/net-1_1.ckpt: the file is empty");
}

static void test_a_lone_file_without_parameters(void **state)
{
    struct fixture *f = *state;

    write_safetensors(f, 0, "", "");
    open_tree(f, OVER("a", "[1]"), NULL);
    expect_refusal(f, 0, -EINVAL, "the file holds no parameters");
}

/* A dropped weight is worth a line, gradients are not. */
static void test_lacking_everywhere(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "a");
    write_rank(f, 1, "b");
    open_tree(f,
              OVER("a", "[2]") ", " OVER("b", "[2]") ", " OVER("lost", "[2]") ", " OVER(
                  "accu_grads.a", "[2]"),
              NULL);
    expect_file(f, 0, "b1 a0");
    assert_non_null(strstr(
        f->lines, "1 parameter of the source strategy in no checkpoint of pipeline stage 0: lost"));
}

static void test_slices_of_other_types(void **state)
{
    struct fixture *f = *state;
    struct bytes file = {0};

    write_rank(f, 0, "w");
    ckpt_tensor(&file, "w", "UInt8", 1, (const uint64_t[]){4}, "abcd", 4);
    ckpt_tensor(&file, "v", "Int8", 1, (const uint64_t[]){4}, "abcd", 4);
    tree_write(f->root, "rank_1/net-1_1.ckpt", file.data, file.n);
    bytes_free(&file);
    open_tree(f, LAYOUT("w", "[2]", "0"), NULL);
    expect_refusal(f, 0, -EINVAL, "parameter 'w': has another shape or dtype than its slice in");
}

/*
 * The destination's spelling finds its layout, and so does the source's where that is the
 * strategy's.
 */
static void test_layouts_by_either_name(void **state)
{
    struct fixture *f = *state;
    const struct rfs_names_config config = {.names = tree_path(f->root, "map.json")};
    static const char map[] = "{\"a\": \"x\", \"b\": \"y\"}";

    for (unsigned rank = 0; rank < 2; rank++)
        write_rank(f, rank, "abw");
    tree_write(f->root, "map.json", map, sizeof map - 1);
    assert_int_equal(rfs_names_open(&config, &f->names, &f->err), 0);
    open_tree(f, LAYOUT("a", "[2]", "0") ", " LAYOUT("b", "[2]", "0") ", " OVER("w", "[2]"),
              OVER("x", "[1]") ", " OVER("b", "[1]") ", " OVER("w", "[1]"));
    expect_file(f, 0, "x0,1 y0,1 w0");
}

static void test_two_of_one_name(void **state)
{
    struct fixture *f = *state;
    const struct rfs_names_config config = {.names = tree_path(f->root, "map.json")};
    static const char map[] = "{\"a\": \"w\"}";

    write_rank(f, 0, "abw");
    write_rank(f, 1, "abw");
    tree_write(f->root, "map.json", map, sizeof map - 1);
    assert_int_equal(rfs_names_open(&config, &f->names, &f->err), 0);
    open_tree(f, OVER("w", "[2]"), NULL);
    expect_refusal(f, 0, -EINVAL, "both be shown as 'w'");
}

/* Empty tensors: cut, copied, and where the format does not keep them. */
static void empties(struct fixture *f, bool keep, const char *expected)
{
    f->keep_empty = keep;
    write_safetensors(f, 0, "we", "");
    write_safetensors(f, 1, "we", "");
    open_tree(f, OVER("w", "[2]") ", " LAYOUT("e", "[2]", "0"),
              OVER("w", "[2]") ", " LAYOUT("e", "[2]", "0"));
    expect_file(f, 1, expected);
}

static void test_empties_are_kept(void **state)
{
    struct fixture *f = *state;

    empties(f, true, "e w1"); /* by name, as MindSpore reads safetensors */
    const struct rfs_target *target = &f->plan->params->targets[0];
    assert_int_not_equal(target->geometry, RFS_NO_ID);
    assert_int_equal(rfs_catalog_type(f->catalog, target->type)->ndim, 1);
    assert_int_equal(rfs_catalog_type(f->catalog, target->type)->bytes, 0);
}

static void test_empties_are_dropped(void **state)
{
    empties(*state, false, "w1");
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->root = tree_new();
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    rfs_pool_free(f->pool);
    rfs_planner_free(f->planner);
    rfs_names_free(f->names);
    rfs_catalog_close(f->catalog);
    rfs_strategy_free(f->src);
    rfs_strategy_free(f->dst);
    rfs_notes_free(&f->notes);
    tree_remove(f->root);
    free(f);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void expect_ahead(struct fixture *f, int code, const char *fragment)
{
    f->err = (struct rfs_error){0};
    const int rc = rfs_planner_check_shapes(f->planner, &f->err);
    if (rc != code || !strstr(f->err.text, fragment))
        fail_msg("%d: %s", rc, f->err.text);
}

static void test_shapes_are_found_ahead(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 4; rank++)
        write_rank(f, rank, "wms");
    open_tree(f, OVER("w", "[4]") ", " OVER("m", "[4]"),
              OVER("w", "[3]") ", " LAYOUT("m", "[3]", "0"));
    expect_ahead(f, -EINVAL, "parameter 'm'");
    assert_non_null(strstr(f->err.text, "4 is not divisible by 3"));
    expect_indexed(f, 1);
    expect_refusal(f, 1, -EINVAL, "4 is not divisible by 3");
}

static void test_right_shapes_take_one_header(void **state)
{
    struct fixture *f = *state;

    for (unsigned rank = 0; rank < 4; rank++)
        write_rank(f, rank, "wms");
    open_tree(f, LAYOUT("w", "[4]", "0") ", " OVER("m", "[4]"), OVER("w", "[1]"));
    expect_ahead(f, 0, "");
    expect_indexed(f, 1);
    assert_string_equal(f->lines, "");
    expect_file(f, 0, "w0,1,2,3 m0 s0");
}

/* The first rank keeps nothing that the strategy knows, the second does. */
static void test_one_rank_is_no_proof(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "xy");
    write_rank(f, 1, "xyw");
    open_tree(f, OVER("w", "[2]"), OVER("w", "[1]"));
    expect_ahead(f, 0, "");
    expect_file(f, 0, "w1 x0 y0");
}

static void test_names_of_another_network(void **state)
{
    struct fixture *f = *state;

    write_rank(f, 0, "xy");
    write_rank(f, 1, "xy");
    open_tree(f, OVER("w", "[2]"), OVER("w", "[1]"));
    expect_ahead(f, -EINVAL, "none of its parameters is in the checkpoint");
}

/* Ranks that do not need it can be read. */
static void test_a_damaged_lead_is_no_answer(void **state)
{
    struct fixture *f = *state;

    tree_write(f->root, "rank_0/net-1_1.ckpt", "x", 1);
    write_rank(f, 1, "w");
    open_tree(f, LAYOUT("w", "[2]", "0"), LAYOUT("w", "[8]", "0"));
    expect_ahead(f, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_complete_lead_is_enough),
        TEST(test_what_nobody_has_is_left_out),
        TEST(test_what_has_no_replicas),
        TEST(test_files_of_one_size),
        TEST(test_copies_by_the_source_layout),
        TEST(test_copies_of_a_lost_rank),
        TEST(test_copies_that_nobody_has),
        TEST(test_a_hole),
        TEST(test_a_hole_beside_a_lost_rank),
        TEST(test_a_hole_among_files_of_one_size),
        TEST(test_a_hole_behind_a_copy),
        TEST(test_what_a_lost_rank_may_have_kept),
        TEST(test_values_without_layout),
        TEST(test_values_without_layout_of_several),
        TEST(test_values_that_several_do_not_prove),
        TEST(test_declared),
        TEST(test_not_declared),
        TEST(test_samples_of_large_files),
        TEST(test_samples_that_differ),
        TEST(test_the_last_sample_differs),
        TEST(test_strict_looks_at_all),
        TEST(test_a_damaged_file_that_is_asked),
        TEST(test_ranks_that_keep_nothing),
        TEST(test_files_that_should_not_be_empty),
        TEST(test_empty_files_are_told),
        TEST(test_a_stage_that_keeps_nothing),
        TEST(test_a_lone_file_without_parameters),
        TEST(test_lacking_everywhere),
        TEST(test_slices_of_other_types),
        TEST(test_layouts_by_either_name),
        TEST(test_two_of_one_name),
        TEST(test_empties_are_kept),
        TEST(test_empties_are_dropped),
        TEST(test_shapes_are_found_ahead),
        TEST(test_right_shapes_take_one_header),
        TEST(test_one_rank_is_no_proof),
        TEST(test_names_of_another_network),
        TEST(test_a_damaged_lead_is_no_answer),
    };
    return cmocka_run_group_tests_name("plan: removed redundancy", tests, NULL, NULL);
}
