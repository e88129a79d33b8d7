/* SPDX-License-Identifier: Apache-2.0 */
/* metadata.json of Checkpoint 2.0: what it says, and what is refused. In texts ` stands for ". */
#include "chunks.h"
#include "formats/mindformers/mindformers.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYOUT(matrix, map)                                                                        \
    "{`device_matrix`: " matrix ", `tensor_map`: " map ", `interleaved_parallel`: false, "         \
    "`alias_name`: [`a`, `b`], `rank_list`: [0, 1, 2, 3]}"
#define TENSOR(name, shape, fragments, layout, chunks)                                             \
    "`" name "`: {`properties`: {`dtype`: `Float32`, `replica_id`: [0, 0, 1, 1], "                 \
    "`allow_shape_mismatch`: false}, `global_shape`: " shape ", `axis_fragmentations`: " fragments \
    ", `layout`: " layout ", `chunk`: [" chunks "]}"
#define CHUNK(number, shape) "{`global_offset`: [" number "], `local_shape`: " shape "}"
#define COPY(file, rank)                                                                           \
    "{`file_name`: `" file "`, `storage_rank`: " rank ", `rank_group`: [0, 1, 2, 3]}"
#define STORED(name, number, file) "`('" name "', (" number ",))`: [" COPY(file, "0") "]"
#define WHOLE(tensors, storage)                                                                    \
    "{`state_dict_metadata`: {" tensors "}, `storage_data`: {" storage "}}"

/* w of [4, 6], cut by [2, 3] into slices of [2, 2]: a in ranks 0 and 2, b in 1 and 3. */
#define SLICE(number) CHUNK(number, "[2, 2]")
#define W_CHUNKS                                                                                   \
    SLICE("5") "," SLICE("0") "," SLICE("1") "," SLICE("2") "," SLICE("3") "," SLICE("4")
#define W TENSOR("w", "[4, 6]", "[2, 3]", LAYOUT("[3, 2]", "[0, 1]"), W_CHUNKS)
#define W_GAP TENSOR("w", "[4, 6]", "[2, 3]", LAYOUT("[3, 2]", "[0, 1]"), SLICE("0"))
#define IN_A(n) "`('w', (" n ",))`: [" COPY("a", "0") "," COPY("b", "1") "]"
#define IN_B(n) "`('w', (" n ",))`: [" COPY("b", "3") "]"
#define W_STORAGE IN_A("0") "," IN_B("1") "," IN_A("2") "," IN_B("3") "," IN_A("4") "," IN_B("5")
#define GOOD WHOLE(W, W_STORAGE)

static int setup(void **state)
{
    if (world_setup(state) != 0)
        return -1;
    struct world *w = *state;
    tree_file(&w->tree, "a", "", 0);
    tree_file(&w->tree, "b", "", 0);
    return 0;
}

/* Opens a folder with this metadata.json. */
static int open_text(struct world *w, const char *text, size_t n)
{
    char *json = malloc(n + 1);

    assert_non_null(json);
    for (size_t i = 0; i <= n; i++)
        json[i] = (char)(i == n ? '\0' : text[i] == '`' ? '"' : text[i]);
    world_begin(w);
    tree_file(&w->tree, "metadata.json", json, n);
    free(json);
    assert_int_equal(rfs_files_add(w->files, tree_path(&w->tree, "metadata.json")), 0);
    const struct rfs_chunks_source source = {
        .folder = w->tree.root, .files = w->files, .tables = &w->tables, .log = &w->lines.log};
    return rfs_mindformers_open(&source, &w->chunks, &w->err);
}

static void opens(struct world *w, const char *text)
{
    if (open_text(w, text, strlen(text)) != 0)
        fail_msg("%s", w->err.text);
}

static void refused(struct world *w, const char *text, int code, const char *part)
{
    const int rc = open_text(w, text, strlen(text));

    if (rc != code || !strstr(w->err.text, part))
        fail_msg("%d, '%s' instead of %d, '%s' for %.300s", rc, w->err.text, code, part, text);
    assert_null(w->chunks);
}

/* The good text with the first FROM made TO. */
static const char *with(const char *from, const char *to)
{
    static char text[16384];
    const char *at = strstr(GOOD, from);

    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - GOOD), GOOD, to, at + strlen(from));
    return text;
}

static const struct rfs_chunk *chunk_at(const struct world *w, const char *name, uint64_t corner)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(w->chunks, name, strlen(name));

    assert_non_null(tensor);
    for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++)
        if (w->chunks->chunks.data[i].corner == corner)
            return &w->chunks->chunks.data[i];
    fail_msg("%s has no chunk at %llu", name, (unsigned long long)corner);
    return NULL;
}

static const char *file_at(const struct world *w, const char *name, uint64_t corner)
{
    const char *path = rfs_files_path(w->files, chunk_at(w, name, corner)->file);

    return strrchr(path, '/') + 1;
}

static void w_is_good(const struct world *w)
{
    static const uint64_t corners[] = {0, 2, 4, 12, 14, 16}; /* of slices 0 to 5 */

    for (unsigned i = 0; i < 6; i++) {
        const struct rfs_chunk *chunk = chunk_at(w, "w", corners[i]);
        const struct rfs_type *type = rfs_chunks_type(w->chunks, chunk->type);
        assert_string_equal(file_at(w, "w", corners[i]), i % 2 ? "b" : "a");
        assert_true(type->ndim == 2 && type->dims[0] == 2 && type->dims[1] == 2);
        assert_int_equal(type->dtype, RFS_FLOAT32);
    }
    assert_int_equal(w->chunks->tensors.n, 1);
}

static void test_good(void **state)
{
    struct world *w = *state;

    opens(w, GOOD);
    w_is_good(w);
    assert_int_equal(w->lines.n, 0);
    opens(w, "{`storage_data`: {" W_STORAGE "}, `other`: [{}], `state_dict_metadata`: {" W "}}");
    w_is_good(w);
    opens(w, with("`layout`", "`unknown`: [1, {`x`: null}], `layout`"));
    w_is_good(w);
}

#define SHARED(number, ranks) "`('w', (" number ",))`: [" ranks "]"
#define EVEN COPY("a", "0") "," COPY("c", "2") "," COPY("d", "4")
#define ODD COPY("b", "1") "," COPY("gone", "3") "," COPY("b", "5")

/* Further copies are in all files but the one that is read, also in one that is missing. */
static void test_copies(void **state)
{
    struct world *w = *state;

    tree_file(&w->tree, "c", "", 0);
    opens(w, WHOLE(W, SHARED("0", EVEN) "," SHARED("1", ODD) "," SHARED("2", EVEN) "," SHARED(
                          "3", ODD) "," SHARED("4", EVEN) "," SHARED("5", ODD)));
    w_is_good(w);
    assert_int_equal(w->chunks->n_files,
                     2); /* files with copies alone are behind those of chunks */
    assert_int_equal(w->chunks->n_all_files, 5);
    assert_int_equal(rfs_intern_count(w->chunks->copy_lists), 2); /* of six slices */
    assert_int_equal(w->chunks->copy_places.n, 0);
    for (uint32_t c = 0; c < 6; c++) {
        struct rfs_chunked_copy copy;
        struct rfs_error err = {0};
        const char *path = rfs_files_path(w->files, w->chunks->chunks.data[c].file);
        const bool odd = strcmp(strrchr(path, '/'), "/b") == 0;
        assert_int_equal(rfs_chunks_count_copies(w->chunks, c), odd ? 1 : 2);
        assert_true(rfs_chunks_locate_copy(w->chunks, c, 0, &copy, &err) < 0);
        assert_string_equal(strrchr(rfs_files_path(w->files, copy.file), '/') + 1,
                            odd ? "gone" : "c");
        assert_non_null(strstr(err.text, odd ? "is missing" : "/c: "));
    }
}

#define EMPTY_LAYOUT LAYOUT("[2]", "[0, -1]")
#define NESTED_LAYOUT LAYOUT("[2, 3, 2]", "[[2, 0]]")
#define EMPTY_CHUNKS CHUNK("0", "[0, 4]") "," CHUNK("1", "[0, 4]")
#define NESTED_CHUNKS                                                                              \
    CHUNK("0", "[2]") "," CHUNK("3", "[2]") "," CHUNK("2", "[2]") "," CHUNK("1", "[2]")

static void test_kinds_of_tensors(void **state)
{
    static const char tensors[] =
        TENSOR("s", "[]", "[]", "null", CHUNK("0", "[]")) ",\n" /* a scalar */
        TENSOR("e", "[0, 4]", "[2, 1]", EMPTY_LAYOUT,
               EMPTY_CHUNKS) ",\n" TENSOR("n", "[8]", "[4]", NESTED_LAYOUT, NESTED_CHUNKS);
    static const char storage[] =
        STORED("s", "0", "b") "," STORED("e", "0", "a") "," STORED("e", "1", "a") "," STORED(
            "n", "0", "a") "," STORED("n", "1", "b") "," STORED("n", "2", "a") "," STORED("n", "3",
                                                                                          "b");
    struct world *w = *state;
    char text[4096];

    snprintf(text, sizeof text, WHOLE("%s", "%s"), tensors, storage);
    opens(w, text);
    assert_string_equal(file_at(w, "s", 0), "b");
    assert_int_equal(rfs_chunks_find(w->chunks, "e", 1)->n, 0);
    assert_string_equal(file_at(w, "n", 2), "b");
    assert_string_equal(file_at(w, "n", 4), "a");
}

/* As Python prints them in keys. */
static void test_names(void **state)
{
    static const struct {
        const char *name, *json, *key;
    } names[] = {
        {"it's", "it's", "(\\\"it's\\\", (0,))"},
        {"a \"b\"", "a \\\"b\\\"", "('a \\\"b\\\"', (0,))"},
        {"both ' and \"", "both ' and \\\"", "('both \\\\' and \\\"', (0,))"},
        {"c\\d", "c\\\\d", "('c\\\\\\\\d', (0,))"},
        {"e, (0,)", "e, (0,)", "('e, (0,)', (0,))"},
        {"\xc3\xa9\n\xc2\x85\xe2\x80\xa8\xf0\x9f\xbf\xbe",
         "\xc3\xa9\\n\\u0085\\u2028\\ud83f\\udffe",
         "('\xc3\xa9\\\\n\\\\x85\\\\u2028\\\\U0001fffe', (0,))"},
        {"", "", "('', (0,))"},
    };
    struct world *w = *state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 WHOLE("`%s`: {`properties`: {`dtype`: `Int8`}, `global_shape`: [4], "
                       "`axis_fragmentations`: [1], `chunk`: [" CHUNK("0", "[4]") "]}",
                       "`%s`: [" COPY("a", "0") "]"),
                 names[i].json, names[i].key);
        opens(w, text);
        assert_string_equal(file_at(w, names[i].name, 0), "a");
    }
}

static void test_missing_files(void **state)
{
    struct world *w = *state;
    char path[128];

    snprintf(path, sizeof path, "%s", tree_path(&w->tree, "a"));
    assert_int_equal(remove(path), 0);
    opens(w, GOOD);
    assert_string_equal(file_at(w, "w", 0), "b");
    assert_int_equal(w->lines.n, 1);
    assert_non_null(strstr(w->lines.last,
                           "metadata.json: 3 slices come from copies in other files: "
                           "'a' is missing"));
    snprintf(path, sizeof path, "%s", tree_path(&w->tree, "b"));
    assert_int_equal(remove(path), 0);
    refused(w, GOOD, -ENOENT,
            "parameter 'w': its slice 0 is in 'a', which is missing, and in no other file");
    tree_file(&w->tree, "a", "", 0);
    refused(w, GOOD, -ENOENT, "its slice 1 is in 'b'");
}

static void test_refused_tensors(void **state)
{
    struct world *w = *state;

    refused(w, with("`Float32`", "`Float31`"), -ENOTSUP, "its dtype 'Float31' is not known");
    refused(w, with("`Float32`", "`String`"), -ENOTSUP, "is not known");
    refused(w, with("`dtype`", "`type`"), -EINVAL, "it has no dtype");
    refused(w, with("[2, 3]", "[2, 4]"), -EINVAL, "axis 1 of 6 cannot be cut into 4");
    refused(w, with("[2, 3]", "[2, 0]"), -EINVAL, "cannot be cut into 0");
    refused(w, with("[2, 3]", "[2, 3, 1]"), -EINVAL, "differ in their number of entries");
    refused(w, with("[2, 3]", "[1, 6]"), -EINVAL,
            "local_shape differs from the shape of its slices, [4, 1]");
    refused(w, with("[3, 2]", "[2, 3]"), -EINVAL,
            "tensor_map cuts axis 0 into 3 slices, and axis_fragmentations into 2");
    refused(w, with("[0, 1]", "[0, 2]"), -EINVAL, "tensor_map cuts axis 1 into 0");
    refused(w, with("[0, 1]", "[0, -2]"), -EINVAL, "tensor_map cuts axis 1 into 0");
    refused(w, with("[0, 1]", "[0]"), -EINVAL, "tensor_map and axis_fragmentations");
    refused(w, with("`device_matrix`", "`matrix`"), -EINVAL, "has no device_matrix");
    refused(w, with("_parallel`: false", "_parallel`: true"), -ENOTSUP, "interleaved_parallel");
    refused(w, with(LAYOUT("[3, 2]", "[0, 1]"), "null"), -EINVAL,
            "cut into slices, and has no layout");
    refused(w, with("[5], `local_shape`: [2, 2]", "[5], `local_shape`: [2, 3]"), -EINVAL,
            "its slices differ in local_shape");
    refused(w, with("`global_offset`: [5]", "`global_offset`: [6]"), -EINVAL, "it has a slice 6");
    refused(w, with("`global_offset`: [5]", "`global_offset`: [0, 2]"), -EINVAL,
            "is not the number");
    refused(w, with("`global_offset`: [5]", "`global_offset`: [-1]"), -EINVAL, "a whole number");
    refused(w, with("[4, 6]", "[4, 18446744073709551616]"), -EINVAL, "a number above 2^64 - 1");
    refused(w, with("[4, 6]", "[9223372036854775808, 6]"), -EINVAL, "local_shape differs");
    refused(w, with("[4, 6]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), -ENOTSUP,
            "more than 16 axes");
    refused(w, with("[4, 6]", "{}"), -EINVAL, "an array is expected here");
    refused(w, WHOLE(W "," W, W_STORAGE), -EINVAL, "the metadata describes it twice");
    refused(w, WHOLE(TENSOR("v", "[4]", "[1]", "null", ""), ""), -EINVAL,
            "no chunk for any of its");
    refused(w, WHOLE(TENSOR("v", "[4]", "[1]", "null", ""), STORED("v", "0", "a")), -EINVAL,
            "no chunk for any of its");
}

static void test_refused_storage(void **state)
{
    struct world *w = *state;

    refused(w, with("('w', (0,))", "('w', (6,))"), -EINVAL, "storage_data has a slice 6 of it");
    refused(w, with("('w', (0,))", "('w', (1,))"), -EINVAL, "stores the chunk at [0, 2] twice");
    refused(w, with("('w', (0,))", "('v', (0,))"), -EINVAL, "state_dict_metadata lacks the tensor");
    static const char *const keys[] = {"('w', (0, 0))",
                                       "('w', (,))",
                                       "('w', (00,))",
                                       "('w', 0)",
                                       "('w', ())",
                                       "(w, (0,))",
                                       "('w, (0,))",
                                       "'w', (0,)",
                                       "('w', (0,)) ",
                                       "('w',(0,))",
                                       "",
                                       "(",
                                       "('w', (-1,))",
                                       "('\\\\x', (0,))",
                                       "('\\\\x00', (0,))",
                                       "('\\\\ud800', (0,))",
                                       "('w', (99999999999999999999,))"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        refused(w, with("('w', (0,))", keys[i]), -EINVAL, "is not ('NAME', (NUMBER,))");
    refused(w, with("`file_name`: `a`", "`file_name`: `../a`"), -EINVAL,
            "not the name of a file in this");
    refused(w, with("`file_name`: `a`", "`file_name`: `/a`"), -EINVAL,
            "not the name of a file in this");
    refused(w, with("`file_name`: `a`", "`file_name`: `..`"), -EINVAL, "'..' is not in the folder");
    refused(w, with("`file_name`: `a`", "`file_name`: `s3://b/a`"), -EINVAL,
            "not the name of a file in this");
    refused(w, with("`file_name`: `a`", "`file_name`: `//host/a`"), -EINVAL,
            "not the name of a file in this");
    refused(w, with("`file_name`: `a`", "`name`: `a`"), -EINVAL,
            "has no file_name or no storage_rank");
    refused(w, with("`storage_rank`: 0", "`rank`: 0"), -EINVAL,
            "has no file_name or no storage_rank");
    refused(w, with("`storage_rank`: 0", "`storage_rank`: -1"), -EINVAL, "a whole number");
    refused(w, WHOLE(W, "`('w', (0,))`: []"), -EINVAL, "names no file for a slice");
    refused(w, WHOLE(W, IN_A("0")), -EINVAL, "does not say where the chunk at [0, 2] is stored");
    refused(w, WHOLE(W_GAP, IN_A("0")), -EINVAL, "no chunk for [");
}

static void test_damage(void **state)
{
    struct world *w = *state;
    const size_t n = strlen(GOOD);

    for (size_t i = 0; i < n; i++) { /* torn anywhere */
        const int rc = open_text(w, GOOD, i);
        if (rc != -EINVAL || !strstr(w->err.text, "offset"))
            fail_msg("%zu bytes: %d, %s", i, rc, w->err.text);
    }
    refused(w, GOOD "x", -EINVAL, "something follows after its end");
    refused(w, "{}", -EINVAL, "it has no 'state_dict_metadata'");
    refused(w, "{`state_dict_metadata`: {}}", -EINVAL, "it has no 'storage_data'");
    refused(w, "{`storage_data`: {}, `storage_data`: {}}", -EINVAL, "'storage_data' comes twice");
    refused(w, "[]", -EINVAL, "an object is expected here");
    size_t deep = 1 << 20;
    char *text = malloc(deep + 100);
    assert_non_null(text);
    const int head = snprintf(text, 100, "{`x`: ");
    memset(text + head, '[', deep);
    text[(size_t)head + deep] = '\0';
    refused(w, text, -EINVAL, "it is nested too deep");
    free(text);
}

/* A safetensors file of one tensor of float32. */
static void put_tensor_file(const struct world *w, const char *file, const char *name,
                            const char *shape, uint64_t bytes)
{
    unsigned char data[512] = {0};
    char *header = (char *)data + 8;
    const int n =
        snprintf(header, sizeof data - 8,
                 "{\"__metadata__\":{\"format\":\"ms\"},\"%s\":{\"dtype\":\"F32\",\"shape\":%s,"
                 "\"data_offsets\":[0,%llu]}}",
                 name, shape, (unsigned long long)bytes);

    data[0] = (unsigned char)n;
    assert_true(n < 256);
    tree_file(&w->tree, file, data, 8 + (size_t)n + bytes);
}

static int locate(struct world *w, uint64_t corner, uint64_t *at)
{
    const struct rfs_chunk *chunk = chunk_at(w, "w", corner);
    const int rc =
        rfs_chunks_locate(w->chunks, (uint32_t)(chunk - w->chunks->chunks.data), &w->err);

    *at = atomic_load(&chunk->at);
    return rc;
}

#define HALF_CHUNKS CHUNK("0", "[2]") "," CHUNK("1", "[2]")
#define HALF TENSOR("w", "[4]", "[2]", LAYOUT("[2]", "[0]"), HALF_CHUNKS)
#define HALVES WHOLE(HALF, STORED("w", "0", "a") "," STORED("w", "1", "b"))

static void test_headers(void **state)
{
    struct world *w = *state;
    uint64_t at;

    put_tensor_file(w, "a", "w", "[2]", 8);
    put_tensor_file(w, "b", "w", "[2]", 8);
    opens(w, HALVES);
    assert_int_equal(locate(w, 0, &at), 0);
    assert_int_equal(at,
                     8 + strlen("{'__metadata__':{'format':'ms'},'w':{'dtype':'F32','shape':[2],"
                                "'data_offsets':[0,8]}}"));
    assert_int_equal(locate(w, 2, &at), 0);

    put_tensor_file(w, "b", "w", "[4]", 16); /* of another save */
    opens(w, HALVES);
    assert_int_equal(locate(w, 0, &at), 0);
    assert_int_equal(locate(w, 2, &at), -EINVAL);
    assert_non_null(strstr(w->err.text, "/b: parameter 'w': the metadata describes its slice as "
                                        "Float32[2], the file has Float32[4]"));
    put_tensor_file(w, "b", "v", "[2]", 8);
    opens(w, HALVES);
    assert_int_equal(locate(w, 2, &at), -EINVAL);
    assert_non_null(strstr(w->err.text, "stores a slice of it in this file, which has none"));
    assert_true(at == RFS_NOT_LOCATED);
    tree_file(&w->tree, "b", "", 0);
    opens(w, HALVES);
    assert_true(locate(w, 2, &at) < 0);
}

#define IN_THREE(number) SHARED(number, COPY("a", "0") "," COPY("b", "1") "," COPY("c", "2"))
#define THIRDS WHOLE(HALF, IN_THREE("0") "," IN_THREE("1"))

static const char *read_from(const struct world *w, uint64_t corner)
{
    const uint32_t chunk = (uint32_t)(chunk_at(w, "w", corner) - w->chunks->chunks.data);

    return strrchr(rfs_files_path(w->files, rfs_chunks_file_of(w->chunks, chunk)), '/') + 1;
}

/* A file that is damaged, or of another kind: the next one that is sound is read. */
static void test_damaged_files(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        const char *why;
    } damaged[] = {{"", 0, "as this one is damaged: "},
                   {"\x50\0\0\0\0\0\0\0{", 9, "damaged: the file is truncated in its header"},
                   {"version https://git-lfs", 23, "damaged: the file is a Git LFS pointer"}};
    struct world *w = *state;
    struct rfs_chunked_copy copy;
    uint64_t at, sound;

    put_tensor_file(w, "b", "w", "[2]", 8);
    put_tensor_file(w, "c", "w", "[2]", 8);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        const unsigned lines = w->lines.n;
        tree_file(&w->tree, "a", damaged[i].text, damaged[i].n);
        opens(w, THIRDS);
        assert_string_equal(read_from(w, 0), "a"); /* no header is read before it is needed */
        assert_int_equal(locate(w, 0, &sound), 0);
        assert_int_equal(locate(w, 2, &at), 0);
        assert_true(at == sound && sound != RFS_NOT_LOCATED);
        assert_string_equal(read_from(w, 0), "b");
        assert_string_equal(read_from(w, 2), "b");
        assert_int_equal(w->lines.n, lines + 1);
        assert_non_null(strstr(w->lines.last, "/a: slices come from copies in other files, such "
                                              "as 'b', "));
        assert_non_null(strstr(w->lines.last, damaged[i].why));
        /* The damaged file is a copy now, instead of the one that is read. */
        assert_int_equal(rfs_chunks_count_copies(w->chunks, 0), 2);
        assert_int_equal(rfs_chunks_locate_copy(w->chunks, 0, 0, &copy, &w->err), -EINVAL);
        assert_string_equal(rfs_files_path(w->files, copy.file), tree_path(&w->tree, "a"));
        assert_int_equal(rfs_chunks_locate_copy(w->chunks, 0, 1, &copy, &w->err), 0);
        assert_string_equal(rfs_files_path(w->files, copy.file), tree_path(&w->tree, "c"));
        assert_true(copy.at == sound);
    }

    put_tensor_file(w, "b", "w", "[4]", 16); /* of another save */
    opens(w, THIRDS);
    assert_int_equal(locate(w, 2, &at), 0);
    assert_string_equal(read_from(w, 2), "c");
    tree_file(&w->tree, "c", "", 0);
    opens(w, THIRDS);
    assert_int_equal(locate(w, 2, &at), -EINVAL);
    assert_non_null(strstr(w->err.text, "/a: the file is a Git LFS pointer"));
    assert_true(at == RFS_NOT_LOCATED);
    /* A file that is sound, and of another save, is no damaged one. */
    put_tensor_file(w, "a", "w", "[4]", 16);
    put_tensor_file(w, "b", "w", "[2]", 8);
    opens(w, THIRDS);
    assert_int_equal(locate(w, 2, &at), -EINVAL);
    assert_non_null(strstr(w->err.text, "/a: parameter 'w': the metadata describes its slice as"));
}

#define READERS 4

struct reader {
    struct rfs_chunks *chunks;
    pthread_barrier_t *begin;
    pthread_t thread;
    int failed;
    uint32_t file[2]; /* of both chunks, once they are located */
    uint64_t at[2];
};

static void *locate_both(void *arg)
{
    struct reader *reader = arg;

    pthread_barrier_wait(reader->begin);
    for (uint32_t c = 0; c < 2; c++) {
        const int rc = rfs_chunks_locate(reader->chunks, c, NULL);
        reader->failed = rc ? rc : reader->failed;
        reader->file[c] = rfs_chunks_file_of(reader->chunks, c);
        reader->at[c] = atomic_load(&reader->chunks->chunks.data[c].at);
    }
    return NULL;
}

/* Threads that need the slices of a damaged file at once read them from one place, told once. */
static void test_damaged_file_by_threads(void **state)
{
    struct world *w = *state;

    put_tensor_file(w, "b", "w", "[2]", 8);
    put_tensor_file(w, "c", "w", "[2]", 8);
    for (unsigned turn = 0; turn < 8; turn++) {
        struct reader readers[READERS] = {{.failed = 0}};
        pthread_barrier_t begin;
        opens(w, THIRDS); /* a is empty */
        const uint32_t b = w->chunks->copy_files.data[1];
        assert_int_equal(pthread_barrier_init(&begin, NULL, READERS), 0);
        for (unsigned i = 0; i < READERS; i++) {
            readers[i].chunks = w->chunks;
            readers[i].begin = &begin;
            assert_int_equal(pthread_create(&readers[i].thread, NULL, locate_both, &readers[i]), 0);
        }
        for (unsigned i = 0; i < READERS; i++)
            assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        pthread_barrier_destroy(&begin);
        assert_true(strcmp(rfs_files_path(w->files, b), tree_path(&w->tree, "b")) == 0);
        for (unsigned i = 0; i < READERS; i++) {
            assert_int_equal(readers[i].failed, 0);
            for (unsigned c = 0; c < 2; c++)
                assert_true(readers[i].file[c] == b && readers[i].at[c] == readers[0].at[0] &&
                            readers[i].at[c] != RFS_NOT_LOCATED);
        }
        assert_int_equal(w->lines.n, turn + 1);
    }
}

/* Two stages of four ranks: u is in the first, both is in both, a scalar has no layout. */
#define RANKS(list) "`rank_group`: " list
#define HELD(name, number, first, more)                                                            \
    "`('" name "', (" number ",))`: [{`file_name`: `a`, `storage_rank`: " first                    \
    ", " RANKS("[" first more "]") "}]"
#define OF(name, matrix, map, ranks)                                                               \
    TENSOR(name, "[4]", "[2]",                                                                     \
           "{`device_matrix`: " matrix ", `tensor_map`: " map ", `rank_list`: " ranks "}",         \
           CHUNK("0", "[2]") "," CHUNK("1", "[2]"))
#define U OF("u", "[2, 2]", "[0]", "[0, 1, 2, 3]")
#define BOTH OF("both", "[2, 2]", "[1]", "[4, 5, 6, 7]")
#define SCALAR TENSOR("scalar", "[]", "[]", "null", CHUNK("0", "[]"))
#define U_HELD HELD("u", "0", "0", ", 2") "," HELD("u", "1", "1", ", 3")
#define BOTH_HELD HELD("both", "0", "0", ", 1, 4, 5") ", `('both', (1,))`: " BOTH_SECOND
#define BOTH_SECOND                                                                                \
    "[{`file_name`: `b`, `storage_rank`: 2, " RANKS("[2, 3, 6, 7]") "}, {`file_name`: `a`, "       \
                                                                    "`storage_rank`: 3, " RANKS(   \
                                                                        "[2, 3, 6, 7]") "}]"
#define SCALAR_HELD HELD("scalar", "0", "0", ", 1, 2, 3")
#define STAGES WHOLE(U "," BOTH "," SCALAR, U_HELD "," BOTH_HELD "," SCALAR_HELD)

static void no_layouts(struct world *w, const char *text, const char *part)
{
    struct rfs_mindformers_strategy layouts;

    opens(w, text);
    const int rc = rfs_mindformers_read_strategy(w->chunks, &layouts, &w->err);
    rfs_mindformers_strategy_free(&layouts);
    if (rc != -EINVAL || !strstr(w->err.text, part))
        fail_msg("%d, '%s' instead of '%s' for %.300s", rc, w->err.text, part, text);
}

static void test_layouts(void **state)
{
    struct world *w = *state;
    struct rfs_mindformers_strategy layouts;
    static const struct rfs_mindformers_held held[] = {{0, 0, 4}, {1, 0, 4}, {2, 0, 4}, {1, 1, 4}};

    opens(w, STAGES);
    assert_int_equal(rfs_mindformers_read_strategy(w->chunks, &layouts, &w->err), 0);
    assert_int_equal(layouts.devices, 4);
    assert_int_equal(layouts.held.n, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(layouts.held.data[i].tensor, held[i].tensor);
        assert_int_equal(layouts.held.data[i].stage, held[i].stage);
        assert_int_equal(layouts.held.data[i].ranks, held[i].ranks);
    }
    assert_int_equal(layouts.of.n, 3);
    const struct rfs_mindformers_layout *u =
        (const struct rfs_mindformers_layout *)rfs_intern_bytes(layouts.distinct,
                                                                layouts.of.data[0], NULL);
    assert_int_equal(u->n_dev, 2);
    assert_int_equal(u->n_axes, 1);
    assert_int_equal(u->end[0], 1);
    assert_int_equal(u->map[0], 0);
    rfs_mindformers_strategy_free(&layouts);
}

static void test_no_layouts(void **state)
{
    struct world *w = *state;

    no_layouts(w, WHOLE(OF("u", "[2, 2]", "[0]", "[0, 1, 3, 2]"), U_HELD),
               "its rank_list is not the ranks of a pipeline stage, one after the other");
    no_layouts(w, WHOLE(OF("u", "[2, 2]", "[0]", "[2, 3, 4, 5]"), U_HELD), "its rank_list is not");
    no_layouts(w, WHOLE(OF("u", "[2]", "[0]", "[0, 1, 2, 3]"), U_HELD), "its rank_list is not");
    no_layouts(w,
               WHOLE(U "," OF("v", "[2]", "[0]", "[0, 1]"), U_HELD
                     ",`('v', (0,))`: [" COPY("a", "0") "],`('v', (1,))`: [" COPY("a", "0") "]"),
               "its layout is one of 2 ranks, and that of others of 4");
    no_layouts(w, WHOLE(U, HELD("u", "0", "0", ", 1") "," HELD("u", "1", "2", ", 3")),
               "rank 1 holds slice 0 of it, and its layout gives that rank another");
    no_layouts(w, WHOLE(U, HELD("u", "0", "0", ", 2") "," HELD("u", "1", "1", "")),
               "only 3 of the 4 ranks of stage 0 hold it");
    no_layouts(w, WHOLE(U, HELD("u", "0", "0", ", 2, 1048576") "," HELD("u", "1", "1", ", 3")),
               "its ranks are more than a million");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_good),
        TEST(test_copies),
        TEST(test_kinds_of_tensors),
        TEST(test_names),
        TEST(test_missing_files),
        TEST(test_refused_tensors),
        TEST(test_refused_storage),
        TEST(test_damage),
        TEST(test_headers),
        TEST(test_damaged_files),
        TEST(test_damaged_file_by_threads),
        TEST(test_layouts),
        TEST(test_no_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
