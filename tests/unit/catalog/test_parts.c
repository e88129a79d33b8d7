/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of several files, and trees of safetensors files, as the catalogue gives them. */
#include "base/options.h"
#include "catalog/catalog.h"
#include "tests/unit/store/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct tree tree;
    struct lines lines;
    struct rfs_pool *pool;
    struct rfs_catalog *catalog;
    struct rfs_options options;
    struct rfs_source_spec spec;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    tree_new(&f->tree);
    lines_init(&f->lines);
    f->pool = rfs_pool_new(2);
    f->options = rfs_options_defaults;
    f->spec = (struct rfs_source_spec){.path = f->tree.root, .options = &f->options};
    *state = f;
    return f->pool ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rfs_catalog_close(f->catalog);
    rfs_pool_free(f->pool);
    tree_remove(&f->tree);
    free(f);
    return 0;
}

static void open_source(struct fixture *f)
{
    struct rfs_error err = {0};
    rfs_catalog_close(f->catalog);
    if (rfs_catalog_open(&f->spec, &f->lines.log, f->pool, &f->catalog, &err) < 0)
        fail_msg("%s", err.text);
}

/* "name:dtype:bytes" a tensor, between spaces; METADATA is what is between its braces, or NULL. */
static void put_file(struct fixture *f, const char *path, const char *tensors, const char *metadata)
{
    struct bytes header = {0};
    struct bytes file = {0};
    char copy[512];
    char text[256];
    char *rest = copy;
    unsigned at = 0;
    snprintf(copy, sizeof copy, "%s", tensors);
    bytes_text(&header, "{");
    if (metadata) {
        bytes_text(&header, "\"__metadata__\":{");
        bytes_text(&header, metadata);
        bytes_text(&header, "},");
    }
    for (char *one = strtok_r(rest, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char name[64];
        char dtype[8];
        unsigned n;
        assert_int_equal(sscanf(one, "%63[^:]:%7[^:]:%u", name, dtype, &n), 3);
        snprintf(text, sizeof text,
                 "\"%s\":{\"dtype\":\"%s\",\"shape\":[%u],\"data_offsets\":[%u,%u]},", name, dtype,
                 n, at, at + n);
        bytes_text(&header, text);
        at += n;
    }
    header.p[header.n - 1] = '}';
    bytes_add(&file, (unsigned char[8]){(unsigned char)header.n, (unsigned char)(header.n >> 8)},
              8);
    bytes_add(&file, header.p, header.n);
    bytes_add(&file, filler(at), at);
    tree_file(&f->tree, path, file.p, file.n);
    bytes_free(&header);
    bytes_free(&file);
}

static void put_text(struct fixture *f, const char *path, const char *text)
{
    tree_file(&f->tree, path, text, strlen(text));
}

static const struct rfs_index *index_of(struct fixture *f, uint32_t rank, uint32_t like)
{
    const struct rfs_index *index = NULL;
    struct rfs_error err = {0};
    if (rfs_catalog_index(f->catalog, rank, like, &index, &err) < 0)
        fail_msg("%s", err.text);
    return index;
}

/* The index must have these "name@part", in this order. */
static void index_is(struct fixture *f, const struct rfs_index *index, const char *names)
{
    char text[512] = "";
    for (size_t i = 0; i < index->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s@%u", i ? " " : "",
                 rfs_catalog_name(f->catalog, index->entries[i].name),
                 index->file_of ? index->file_of[i] : 0);
    assert_string_equal(text, names);
    for (size_t i = 0; i < index->n; i++)
        assert_ptr_equal(rfs_index_find(index, index->entries[i].name), &index->entries[i]);
}

static void refused(struct fixture *f, int code, const char *const *parts)
{
    const struct rfs_index *index = NULL;
    struct rfs_error err = {0};
    open_source(f);
    assert_int_equal(rfs_catalog_index(f->catalog, 0, RFS_NO_RANK, &index, &err), code);
    assert_null(index);
    for (; *parts; parts++)
        if (!strstr(err.text, *parts))
            fail_msg("no '%s' in: %s", *parts, err.text);
}
#define REFUSED(f, code, ...) refused(f, code, (const char *const[]){__VA_ARGS__, NULL})

/* MindSpore gets what is in a rank's file by name, not as the header has it. */
static void test_tree(void **state)
{
    struct fixture *f = *state;
    static const char *const ranks[] = {"rank_0", "rank_1", "rank_2", "rank_3"};
    for (unsigned i = 0; i < 4; i++)
        tree_folder(&f->tree, ranks[i]);
    put_file(f, "rank_0/a.safetensors", "z:U8:4 a:I8:2 B:I8:1", NULL);
    put_file(f, "rank_1/a.safetensors", "z:U8:4 a:I8:2 B:I8:1", NULL);
    put_file(f, "rank_2/a.safetensors", "z:U8:4 a:I8:2 B:I8:2", NULL);
    put_file(f, "rank_3/a.safetensors", "z:U8:4 a:I8:2 B:I8:1", "\"remove_redundancy\":\"True\"");
    open_source(f);
    assert_int_equal(rfs_catalog_format(f->catalog), RFS_FORMAT_SAFETENSORS);
    const struct rfs_index *first = index_of(f, 0, RFS_NO_RANK);
    index_is(f, first, "B@0 a@0 z@0");
    assert_ptr_equal(index_of(f, 1, 0), first);
    assert_ptr_not_equal(index_of(f, 2, 0), first);
    assert_ptr_not_equal(index_of(f, 3, 0), first);
    assert_true(rfs_catalog_ready(f->catalog, 3)->redundancy_removed);
    struct rfs_catalog_counters c;
    rfs_catalog_count(f->catalog, &c);
    assert_int_equal(c.indexed, 4);
    assert_int_equal(c.predicted, 1);
}

/* Checksums make the headers differ, but nothing else: the index is shared all the same. */
static void test_headers_that_differ_in_checksums(void **state)
{
    struct fixture *f = *state;
    tree_folder(&f->tree, "rank_0");
    tree_folder(&f->tree, "rank_1");
    put_file(f, "rank_0/a.safetensors", "z:U8:4 a:I8:2", "\"crc_num\":\"1234567890\"");
    put_file(f, "rank_1/a.safetensors", "z:U8:4 a:I8:2", "\"crc_num\":\"9876543210\"");
    open_source(f);
    const struct rfs_index *first = index_of(f, 0, RFS_NO_RANK);
    assert_true(first->has_crc);
    assert_ptr_equal(index_of(f, 1, 0), first);
    f->options.check = 0;
    REFUSED(f, -EINVAL, "rank_0/a.safetensors: ", "crc_num is 1234567890");
    struct rfs_error err = {0};
    const struct rfs_index *index;
    assert_int_equal(rfs_catalog_index(f->catalog, 1, RFS_NO_RANK, &index, &err), -EINVAL);
    assert_non_null(strstr(err.text, "crc_num is 9876543210"));
}

static void put_huggingface(struct fixture *f)
{
    put_file(f, "model-00001-of-00002.safetensors", "d:I8:1 b:I8:2", NULL);
    put_file(f, "model-00002-of-00002.safetensors", "c:I8:3 a:I8:4", NULL);
    put_text(
        f, "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":10},\"weight_map\":{"
        "\"a\":\"model-00002-of-00002.safetensors\",\"b\":\"model-00001-of-00002.safetensors\","
        "\"c\":\"model-00002-of-00002.safetensors\",\"d\":\"model-00001-of-00002.safetensors\"}}");
}

static void test_weight_map(void **state)
{
    struct fixture *f = *state;
    put_huggingface(f);
    open_source(f);
    const struct rfs_index *index = index_of(f, 0, RFS_NO_RANK);
    index_is(f, index, "a@1 b@0 c@1 d@0");
    assert_int_equal(rfs_catalog_file_count(f->catalog, 0), 2);
    assert_int_equal(rfs_catalog_entry_file(f->catalog, 0, index, &index->entries[0]), 1);
    assert_int_equal(rfs_catalog_entry_file(f->catalog, 0, index, &index->entries[1]), 0);

    /* What the map does not list is there all the same, as it is for transformers. */
    put_file(f, "model-00001-of-00002.safetensors", "e:I8:1 d:I8:1 b:I8:2", NULL);
    open_source(f);
    index_is(f, index_of(f, 0, RFS_NO_RANK), "a@1 b@0 c@1 d@0 e@0");

    put_file(f, "model-00001-of-00002.safetensors", "d:I8:1", NULL);
    REFUSED(f, -EINVAL, "model.safetensors.index.json: parameter 'b': ", "should be in ",
            "model-00001-of-00002.safetensors, but is not");
    put_file(f, "model-00001-of-00002.safetensors", "d:I8:1 b:I8:2 c:I8:3", NULL);
    REFUSED(f, -EINVAL, "model-00002-of-00002.safetensors: parameter 'c': ",
            "model-00001-of-00002.safetensors, too");
    put_huggingface(f);
    tree_folder(&f->tree, "x");
    tree_folder(&f->tree, "y");
    put_file(f, "x/a.safetensors", "d:I8:1 b:I8:2", NULL); /* files of one name in two folders */
    put_file(f, "y/a.safetensors", "c:I8:3", NULL);
    put_text(f, "model.safetensors.index.json",
             "{\"weight_map\":{\"b\":\"./x/a.safetensors\",\"c\":\"y//a.safetensors\","
             "\"d\":\"x/./a.safetensors\"}}");
    open_source(f);
    index = index_of(f, 0, RFS_NO_RANK);
    index_is(f, index, "b@0 c@1 d@0");

    put_huggingface(f);
    tree_file(&f->tree, "model-00002-of-00002.safetensors", "\x02\0\0\0\0\0\0\0{}", 10);
    REFUSED(f, -EINVAL, "model-00002-of-00002.safetensors: ", "holds no parameters");
}

/* A map is parsed once, for the list of the files and for the order of the tensors. */
static void test_a_map_is_read_once(void **state)
{
    struct fixture *f = *state;
    put_huggingface(f);
    open_source(f);
    assert_int_equal(unlink(tree_path(&f->tree, "model.safetensors.index.json")), 0);
    index_is(f, index_of(f, 0, RFS_NO_RANK), "a@1 b@0 c@1 d@0");
}

static void put_unified(struct fixture *f, const char *map)
{
    put_file(f, "part0.safetensors", "d:I8:1 b:I8:2", NULL);
    put_file(f, "part1.safetensors", "c:I8:3 a:I8:4", NULL);
    put_file(f, "hyper_param.safetensors", "step:I8:1 rate:I8:1", NULL);
    put_text(f, "param_name_map.json", map);
}

static void test_unified(void **state)
{
    struct fixture *f = *state;
    put_unified(f,
                "{\"metadata\":{},\"weight_map\":{\"c\":\"part1.safetensors\",\"d\":"
                "\"part0.safetensors\",\"a\":\"part1.safetensors\",\"b\":\"part0.safetensors\"}}");
    open_source(f);
    index_is(f, index_of(f, 0, RFS_NO_RANK), "c@1 d@0 a@1 b@0 step@2 rate@2");
    assert_int_equal(f->lines.n, 0);

    /* MindSpore does not read what its map does not list, but in hyper_param.safetensors. */
    put_unified(f, "{\"c\":\"part1.safetensors\",\"b\":\"part0.safetensors\"}");
    open_source(f);
    index_is(f, index_of(f, 0, RFS_NO_RANK), "c@1 b@0 step@2 rate@2");
    assert_int_equal(f->lines.n, 1);
    assert_non_null(strstr(f->lines.last, "param_name_map.json: lists 2 "));
}

static void add_ckpt(struct fixture *f, const char *path, const char *names, int byte)
{
    struct bytes file = {0};
    for (; *names; names++)
        put_tensor(&file, (const char[]){*names, '.', 'w', '\0'}, (const int64_t[]){3}, 1, "Int8",
                   (const char[]){(char)byte, (char)byte, (char)byte}, 3);
    tree_file(&f->tree, path, file.p, file.n);
    bytes_free(&file);
}

static void test_segments(void **state)
{
    struct fixture *f = *state;
    char path[64];
    for (unsigned rank = 0; rank < 3; rank++) {
        snprintf(path, sizeof path, "rank_%u", rank);
        tree_folder(&f->tree, path);
        snprintf(path, sizeof path, "rank_%u/net_part0.ckpt", rank);
        add_ckpt(f, path, "ba", 1);
        snprintf(path, sizeof path, "rank_%u/net_part1.ckpt", rank);
        add_ckpt(f, path, rank < 2 ? "cad" : "cade", 2);
    }
    f->options.segmented = true;
    open_source(f);
    const struct rfs_index *index = index_of(f, 0, RFS_NO_RANK);
    index_is(f, index, "b.w@0 a.w@1 c.w@1 d.w@1"); /* the last value of a.w, in the first place */
    struct rfs_reading reading;
    char bytes[3];
    const uint32_t file = rfs_catalog_entry_file(f->catalog, 0, index, &index->entries[1]);
    assert_int_equal(rfs_reading_begin(rfs_catalog_files(f->catalog), file, &reading), 0);
    const struct rfs_content content = rfs_catalog_content_of(index, &index->entries[1]);
    assert_int_equal(rfs_catalog_content_pread(&reading, &content, NULL, bytes, 3, 0), 0);
    assert_int_equal(rfs_reading_end(&reading), 0);
    assert_memory_equal(bytes, "\2\2\2", 3);
    assert_ptr_equal(index_of(f, 1, 0), index);
    assert_ptr_not_equal(index_of(f, 2, 0), index);
    struct rfs_catalog_counters c;
    rfs_catalog_count(f->catalog, &c);
    assert_int_equal(c.predicted, 1);

    f->options.segmented_skip = (char *)"a.:d";
    open_source(f);
    index_is(f, index_of(f, 0, RFS_NO_RANK), "b.w@0 c.w@1");
    f->options.segmented_skip = (char *)"::b.w:";
    open_source(f);
    index_is(f, index_of(f, 0, RFS_NO_RANK), "a.w@1 c.w@1 d.w@1");
    assert_int_equal(f->lines.n, 0);
    f->options.segmented_skip = (char *)"a:w";
    open_source(f);
    index_is(f, index_of(f, 0, RFS_NO_RANK), "b.w@0 c.w@1 d.w@1");
    assert_int_equal(f->lines.n, 1);
    assert_non_null(
        strstr(f->lines.last, "option segmented_skip: no name in its folder begins with 'w'"));
    f->options.segmented_skip = (char *)"a:b:c:d";
    REFUSED(f, -EINVAL, "no parameter is left", "fewer prefixes in segmented_skip");
}

/* Tensors of several values in several files keep their pieces. */
static void test_segments_with_pieces(void **state)
{
    struct fixture *f = *state;
    const int64_t dims[] = {100};
    tree_folder(&f->tree, "rank_0");
    for (unsigned k = 0; k < 2; k++) {
        struct bytes file = {0};
        const char *name = k == 0 ? "one" : "two";
        put_tensor(&file, name, dims, 1, "Int8", filler(100), 30);
        put_tensor(&file, name, dims, 1, "Int8", filler(100) + 30, 70);
        tree_file(&f->tree, k == 0 ? "rank_0/a.ckpt" : "rank_0/b.ckpt", file.p, file.n);
        bytes_free(&file);
    }
    f->options.segmented = true;
    open_source(f);
    const struct rfs_index *index = index_of(f, 0, RFS_NO_RANK);
    index_is(f, index, "one@0 two@1");
    assert_int_equal(index->n_extents, 4);
    for (uint32_t i = 0; i < 2; i++) {
        struct rfs_reading reading;
        unsigned char bytes[100];
        assert_int_equal(rfs_reading_begin(rfs_catalog_files(f->catalog), i, &reading), 0);
        const struct rfs_content content = rfs_catalog_content_of(index, &index->entries[i]);
        assert_int_equal(rfs_catalog_content_pread(&reading, &content, NULL, bytes, 100, 0), 0);
        assert_int_equal(rfs_reading_end(&reading), 0);
        assert_memory_equal(bytes, filler(100), 100);
    }
}

static void test_no_checksum(void **state)
{
    struct fixture *f = *state;
    tree_folder(&f->tree, "rank_0");
    tree_folder(&f->tree, "rank_1");
    put_file(f, "rank_0/a.safetensors", "a:I8:2", NULL);
    put_file(f, "rank_1/a.safetensors", "a:I8:2", NULL);
    f->options.check = 0;
    open_source(f);
    index_of(f, 0, RFS_NO_RANK);
    index_of(f, 1, 0);
    assert_int_equal(f->lines.n, 1);
    assert_non_null(strstr(f->lines.last, "rank_0/a.safetensors: has no checksum"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tree),
        TEST(test_headers_that_differ_in_checksums),
        TEST(test_weight_map),
        TEST(test_a_map_is_read_once),
        TEST(test_unified),
        TEST(test_segments),
        TEST(test_segments_with_pieces),
        TEST(test_no_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
