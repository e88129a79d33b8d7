/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HyperParallel's folders: metadata by hand, of both packages and of single ranks, beside files of
 * both kinds; and a save by HyperParallel of March 2026, in four processes (tests/fixtures/hyper).
 */
#include "base/path.h"
#include "formats/dcp/dcp.h"
#include "formats/hyper_parallel/hyper_parallel.h"
#include "tests/support/dcp_file.h"
#include "tests/support/torch_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct world {
    char *root;
    struct rfs_files *files;
    struct rfs_tables tables;
    struct rfs_chunks *chunks;
    struct rfs_error err;
};

static void close_all(struct world *w)
{
    rfs_chunks_free(w->chunks);
    rfs_files_free(w->files);
    rfs_intern_free(w->tables.names);
    rfs_intern_free(w->tables.types);
    *w = (struct world){.root = w->root};
}

static int world_setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);

    if (!w)
        return -1;
    w->root = tree_new();
    *state = w;
    return 0;
}

static int world_teardown(void **state)
{
    struct world *w = *state;

    close_all(w);
    tree_remove(w->root);
    free(w);
    return 0;
}

static const int64_t zero[RFS_MAX_DIMS + 1];
#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

/* ---- files of a folder ---- */

/* A safetensors file: float32 tensors, "`a`: [2, 3]" and so on by a header whose ` stand for ". */
static void put_tensors(struct world *w, const char *name, const char *header, size_t bytes)
{
    const size_t n = strlen(header);
    char *file = calloc(1, 8 + n + bytes);

    assert_non_null(file);
    file[0] = (char)(unsigned char)n;
    file[1] = (char)(unsigned char)(n >> 8);
    for (size_t i = 0; i < n; i++)
        file[8 + i] = (char)(header[i] == '`' ? '"' : header[i]);
    tree_write(w->root, name, file, 8 + n + bytes);
    free(file);
}

#define F32(name, shape, begin, end)                                                               \
    "`" name "`: {`dtype`: `F32`, `shape`: [" shape "], `data_offsets`: [" begin ", " end "]}"

static void put_metadata(struct world *w, const char *name, struct bytes *bytes)
{
    tree_write(w->root, name, bytes->data, bytes->n);
    bytes_free(bytes);
}

static int open_of(struct world *w, const char *const *names, unsigned n, const char *lost)
{
    close_all(w);
    w->files = rfs_files_new(NULL);
    w->tables = (struct rfs_tables){rfs_intern_new(), rfs_intern_new()};
    assert_non_null(w->files);
    for (unsigned i = 0; i < n; i++)
        rfs_files_add(w->files, tree_path(w->root, names[i]));
    const struct rfs_chunks_source source = {
        .folder = w->root, .files = w->files, .tables = &w->tables, .lost = lost};
    return rfs_hyper_parallel_open(&source, &w->chunks, &w->err);
}

#define OPEN(w, lost, ...)                                                                         \
    open_of(w, (const char *const[]){__VA_ARGS__},                                                 \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), lost)

static void refused(const struct world *w, int rc, int code, const char *part)
{
    if (rc != code || !strstr(w->err.text, part))
        fail_msg("%d, '%s' instead of %d, '%s'", rc, w->err.text, code, part);
    assert_null(w->chunks);
}

static void opened(const struct world *w, int rc)
{
    if (rc)
        fail_msg("%s", w->err.text);
}

/* Where the elements of chunk C of a tensor begin in a file, which is FILE. */
static uint64_t place_of(struct world *w, const char *tensor, uint32_t c, const char *file)
{
    const struct rfs_chunked_tensor *of = rfs_chunks_find(w->chunks, tensor, strlen(tensor));
    struct rfs_error err = {0};

    assert_non_null(of);
    if (rfs_chunks_locate(w->chunks, of->first + c, &err))
        fail_msg("%s", err.text);
    const uint32_t id = rfs_chunks_file_of(w->chunks, of->first + c);
    assert_string_equal(rfs_path_name(rfs_files_path(w->files, id)), file);
    return w->chunks->chunks.data[of->first + c].at;
}

/* ---- metadata ---- */

/* Rows FIRST to FIRST + N of w, [4, 2]. */
static void put_rows(struct bytes *out, int64_t first, int64_t n)
{
    dcp_tensor(out, "w", "torch.float32", 2, DIMS(4, 2));
    dcp_chunk(out, 2, DIMS(first, 0), DIMS(n, 2));
    dcp_tensor_end(out);
}

static void begin(struct bytes *out, const char *package)
{
    *out = (struct bytes){0};
    dcp_package = package;
    dcp_begin(out);
}

static void end(struct bytes *out, const char *version)
{
    dcp_end(out, version);
    dcp_package = NULL;
}

/* The metadata of a rank that has rows FIRST to FIRST + N of w, and all of b. */
static void put_rank(struct world *w, const char *name, unsigned rank, int64_t first, int64_t n)
{
    struct bytes b;
    char file[64];

    snprintf(file, sizeof file, "_rank%u_.safetensors", rank);
    begin(&b, "distributed_checkpoint");
    dcp_left_out(&b, "step");
    put_rows(&b, first, n);
    dcp_tensor(&b, "b", "torch.float32", 1, DIMS(2));
    dcp_chunk(&b, 1, zero, DIMS(2));
    dcp_tensor_end(&b);
    dcp_storage(&b);
    dcp_place_key(&b, "w", 2, DIMS(first, 0), file, "w");
    dcp_place_key(&b, "b", 1, zero, file, NULL);
    snprintf(file, sizeof file, "_rank%u_.bytes", rank);
    dcp_place(&b, "step", 0, zero, file, 3, 5);
    end(&b, "1.0");
    put_metadata(w, name, &b);
}

/* A file with two rows of w, and b. */
#define RANK_HEADER "{" F32("b", "2", "0", "8") ", " F32("w", "2, 2", "8", "24") "}"

static void put_rank_tensors(struct world *w, unsigned rank)
{
    char file[64];

    snprintf(file, sizeof file, "_rank%u_.safetensors", rank);
    put_tensors(w, file, RANK_HEADER, 24);
}

/* ---- tests ---- */

/* Chunks of one file are found by their keys, which another tensor may be named like. */
static void test_keys(void **state)
{
    static const char header[] = "{" F32("w.__dcp_chunk_0", "2, 2", "0", "16") ", " F32(
        "w", "1", "16", "20") ", " F32("w.__dcp_chunk_1", "2, 2", "20", "36") "}";
    struct world *w = *state;
    struct bytes b;

    begin(&b, "distributed_checkpoint");
    dcp_tensor(&b, "w", "torch.float32", 2, DIMS(4, 2));
    dcp_chunk(&b, 2, DIMS(2, 0), DIMS(2, 2));
    dcp_chunk(&b, 2, zero, DIMS(2, 2));
    dcp_tensor_end(&b);
    dcp_tensor(&b, "w.__dcp_chunk_1", "Float32", 1, DIMS(1));
    dcp_chunk(&b, 1, zero, DIMS(1));
    dcp_tensor_end(&b);
    dcp_storage(&b);
    dcp_place_key(&b, "w", 2, DIMS(2, 0), "a", "w.__dcp_chunk_0");
    dcp_place_key(&b, "w", 2, zero, "a", "w.__dcp_chunk_1");
    dcp_place_key(&b, "w.__dcp_chunk_1", 1, zero, "a", "w");
    end(&b, NULL);
    put_metadata(w, ".metadata", &b);
    put_tensors(w, "a", header, 36);
    opened(w, OPEN(w, NULL, ".metadata"));
    const uint64_t data = 8 + strlen(header);
    assert_int_equal(place_of(w, "w", 0, "a"), data + 20);
    assert_int_equal(place_of(w, "w", 1, "a"), data);
    assert_int_equal(place_of(w, "w.__dcp_chunk_1", 0, "a"), data + 16);
    assert_true(rfs_hyper_parallel_owns(w->chunks) && !rfs_dcp_owns(w->chunks));
}

/*
 * A file of torch.save, whose tensor is a column of a larger one; without the key, so by the name.
 */
static void test_archive(void **state)
{
    struct world *w = *state;
    struct torch_file file = {.pickle = {0}};
    struct bytes b;
    struct rfs_chunk_place box;

    begin(&b, "checkpoint");
    dcp_tensor(&b, "w", "torch.float32", 2, DIMS(2, 1));
    dcp_chunk(&b, 2, zero, DIMS(2, 1));
    dcp_tensor_end(&b);
    dcp_storage(&b);
    dcp_place_key(&b, "w", 2, zero, "_rank0_.safetensors", NULL);
    end(&b, "1.0");
    put_metadata(w, ".metadata", &b);
    torch_ops(&file, "}");
    torch_text(&file, "w");
    torch_tensor(&file, &(struct torch_tensor){.class = "FloatStorage",
                                               .key = "0",
                                               .elements = 6,
                                               .offset = 1,
                                               .ndim = 2,
                                               .dims = DIMS(2, 1),
                                               .strides = DIMS(3, 1)});
    torch_ops(&file, "s");
    torch_storage(&file, "0", "aaaabbbbccccddddeeeeffff", 24);
    const struct bytes *bytes = torch_end(&file);
    tree_write(w->root, "_rank0_.safetensors", bytes->data, bytes->n);
    const unsigned char *found = memmem(bytes->data, bytes->n, "aaaabbbb", 8);
    assert_non_null(found);
    const uint64_t data = (uint64_t)(found - bytes->data);
    opened(w, OPEN(w, NULL, ".metadata"));
    place_of(w, "w", 0, "_rank0_.safetensors");
    const struct rfs_chunk_box whole = {.chunk = 0, .size = {2, 1}, .step = {1, 1}};
    assert_int_equal(rfs_chunks_locate_box(w->chunks, &whole, &box, NULL), 0);
    assert_true(box.strided);
    assert_int_equal(box.at, data + 4);
    assert_int_equal(box.stride[0], 12);
    torch_free(&file);
}

/* Equal boxes are copies, under a key each; a damaged file is replaced by another. */
static void test_copies(void **state)
{
    static const char first[] = "{" F32("w", "4, 2", "0", "32") "}";
    static const char second[] = "{" F32("x", "1", "0", "4") ", " F32("v", "4, 2", "4", "36") "}";
    struct world *w = *state;
    struct rfs_chunked_copy copy;
    struct bytes b;

    begin(&b, "distributed_checkpoint");
    dcp_tensor(&b, "w", "torch.float32", 2, DIMS(4, 2));
    for (int i = 0; i < 3; i++)
        dcp_chunk(&b, 2, zero, DIMS(4, 2));
    dcp_tensor_end(&b);
    dcp_storage(&b);
    dcp_place_key(&b, "w", 2, zero, "a", "w");
    dcp_place_key(&b, "w", 2, zero, "b", "v");
    dcp_place_key(&b, "w", 2, zero, "c", "gone");
    dcp_place_key(&b, "w", 2, zero, "b", "v"); /* once more */
    end(&b, "2.0");
    put_metadata(w, ".metadata", &b);
    put_tensors(w, "a", first, 32);
    put_tensors(w, "b", second, 36);
    put_tensors(w, "c", first, 32);
    opened(w, OPEN(w, NULL, ".metadata"));
    assert_int_equal(w->chunks->chunks.n, 1);
    assert_false(w->chunks->tensors.data[0].on_trust); /* the metadata says so */
    assert_int_equal(rfs_chunks_count_copies(w->chunks, 0), 2);
    assert_int_equal(place_of(w, "w", 0, "a"), 8 + strlen(first));
    assert_int_equal(rfs_chunks_locate_copy(w->chunks, 0, 0, &copy, NULL), 0);
    assert_int_equal(copy.at, 8 + strlen(second) + 4);
    assert_int_equal(copy.type, w->chunks->chunks.data[0].type);
    assert_int_equal(rfs_chunks_locate_copy(w->chunks, 0, 1, &copy, NULL), 0);
    assert_int_equal(copy.type, RFS_NO_ID); /* nothing of that key */
    tree_write(w->root, "a", "short", 5);
    opened(w, OPEN(w, NULL, ".metadata"));
    assert_int_equal(place_of(w, "w", 0, "b"), 8 + strlen(second) + 4);
    /* In the place of that copy, verify compares the damaged file. */
    assert_int_equal(rfs_chunks_locate_copy(w->chunks, 0, 0, &copy, NULL), -EINVAL);
    assert_string_equal(rfs_path_name(rfs_files_path(w->files, copy.file)), "a");
}

/* The union of what ranks describe: the first one's counts, and nothing proves the others. */
static void test_ranks(void **state)
{
    struct world *w = *state;

    for (unsigned rank = 0; rank < 4; rank++) {
        char name[32];
        snprintf(name, sizeof name, "%u.metadata", rank);
        put_rank(w, name, rank, rank / 2 * 2, 2);
        put_rank_tensors(w, rank);
    }
    opened(w, OPEN(w, NULL, "0.metadata", "1.metadata", "2.metadata", "3.metadata"));
    const struct rfs_chunked_tensor *b = rfs_chunks_find(w->chunks, "b", 1);
    const struct rfs_chunked_tensor *rows = rfs_chunks_find(w->chunks, "w", 1);
    assert_true(b->on_trust && rows->on_trust);
    assert_int_equal(rfs_chunks_count_copies(w->chunks, b->first), 3);
    assert_int_equal(rfs_chunks_count_copies(w->chunks, rows->first + 1), 1);
    assert_int_equal(place_of(w, "b", 0, "_rank0_.safetensors"), 8 + strlen(RANK_HEADER));
    place_of(w, "w", 0, "_rank0_.safetensors");
    place_of(w, "w", 1, "_rank2_.safetensors");
    assert_int_equal(w->chunks->objects.n, 1);
    assert_int_equal(w->chunks->objects.data[0].item, 3);
    assert_string_equal(rfs_path_name(rfs_files_path(w->files, w->chunks->objects.data[0].file)),
                        "_rank0_.bytes");
    refused(
        w, OPEN(w, NULL, "0.metadata", "1.metadata"), -EINVAL,
        "0.metadata: parameter 'w': the metadata has no chunk for [2:4, 0:2]; try: the metadata "
        "of all ranks; that of 2 is here, '0.metadata' to '1.metadata'");
    opened(w, OPEN(w, "'1.metadata' is", "0.metadata"));
    assert_true(rfs_chunks_find(w->chunks, "w", 1)->incomplete);
    assert_false(rfs_chunks_find(w->chunks, "b", 1)->incomplete);
}

/* Ranks that contradict each other. */
static void test_ranks_that_differ(void **state)
{
    struct world *w = *state;
    struct bytes b;

    put_rank(w, "0.metadata", 0, 0, 2);
    put_rank(w, "1.metadata", 1, 1, 3);
    refused(w, OPEN(w, NULL, "0.metadata", "1.metadata"), -EINVAL, "overlap in [1:2, 0:2]");
    put_rank(w, "1.metadata", 1, 0, 4);
    refused(w, OPEN(w, NULL, "0.metadata", "1.metadata"), -EINVAL,
            "two chunks of different shapes begin at the same element");
    begin(&b, "distributed_checkpoint");
    dcp_tensor(&b, "w", "torch.float32", 2, DIMS(5, 2));
    dcp_tensor_end(&b);
    dcp_storage(&b);
    end(&b, NULL);
    put_metadata(w, "1.metadata", &b);
    refused(
        w, OPEN(w, NULL, "0.metadata", "1.metadata"), -EINVAL,
        "1.metadata: parameter 'w': its type or its size differs between the files; try: files");
    begin(&b, "checkpoint");
    dcp_tensor(&b, "w", "torch.bfloat16", 2, DIMS(4, 2));
    dcp_tensor_end(&b);
    dcp_storage(&b);
    end(&b, NULL);
    put_metadata(w, "1.metadata", &b);
    refused(w, OPEN(w, NULL, "0.metadata", "1.metadata"), -EINVAL, "its type or its size differs");
    begin(&b, "checkpoint");
    dcp_left_out(&b, "w");
    dcp_storage(&b);
    end(&b, NULL);
    put_metadata(w, "1.metadata", &b);
    refused(
        w, OPEN(w, NULL, "0.metadata", "1.metadata"), -EINVAL,
        "1.metadata: parameter 'w': the metadata is damaged: it is a tensor in some files only");
    begin(&b, "checkpoint");
    dcp_left_out(&b, "v");
    dcp_left_out(&b, "v");
    dcp_storage(&b);
    end(&b, NULL);
    put_metadata(w, "1.metadata", &b);
    refused(w, OPEN(w, NULL, "0.metadata", "1.metadata"), -EINVAL,
            "1.metadata: parameter 'v': the metadata is damaged: it is there twice");
    refused(w, OPEN(w, NULL, "1.metadata"), -EINVAL, "'v': the metadata describes it twice");
}

/* One tensor of a type. */
static int open_type(struct world *w, const char *dtype, const char *version)
{
    struct bytes b;

    begin(&b, "distributed_checkpoint");
    dcp_tensor(&b, "w", dtype, 1, DIMS(2));
    dcp_chunk(&b, 1, zero, DIMS(2));
    dcp_tensor_end(&b);
    dcp_storage(&b);
    dcp_place_key(&b, "w", 1, zero, "a", NULL);
    end(&b, version);
    put_metadata(w, ".metadata", &b);
    return OPEN(w, NULL, ".metadata");
}

static void test_types(void **state)
{
    static const struct {
        const char *name;
        enum rfs_dtype dtype;
    } types[] = {{"torch.float32", RFS_FLOAT32},
                 {"torch.bfloat16", RFS_BFLOAT16},
                 {"torch.float8_e4m3fn", RFS_FLOAT8_E4M3FN},
                 {"Float16", RFS_FLOAT16},
                 {"BFloat16", RFS_BFLOAT16},
                 {"UInt8", RFS_UINT8},
                 {"Bool", RFS_BOOL}};
    static const char *const unread[] = {
        "unknown", "torch.float3", "torch.float32 ", "float32", "torch.qint8", "str", "", "torch."};
    struct world *w = *state;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        opened(w, open_type(w, types[i].name, "1.0"));
        assert_int_equal(rfs_chunks_type(w->chunks, w->chunks->tensors.data[0].type)->dtype,
                         types[i].dtype);
    }
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++) {
        opened(w, open_type(w, unread[i], "1.0"));
        assert_int_equal(w->chunks->tensors.n, 0);
        assert_int_equal(w->chunks->unread.n, 1);
    }
    refused(w, open_type(w, "Float32", "1.1"), -ENOTSUP,
            "the metadata is of version 1.1; version 1.0 or 2.0 is read");
}

/* Metadata of the other program, and of both. */
static void test_programs(void **state)
{
    struct world *w = *state;
    struct bytes b;

    begin(&b, NULL);
    dcp_storage(&b);
    end(&b, NULL);
    put_metadata(w, ".metadata", &b);
    refused(
        w, OPEN(w, NULL, ".metadata"), -EINVAL,
        ".metadata: it is metadata of torch.distributed.checkpoint, and the names of the files");
    begin(&b, "checkpoint");
    dcp_package = NULL;
    dcp_left_out(&b, "step");
    dcp_storage(&b);
    end(&b, NULL);
    put_metadata(w, ".metadata", &b);
    refused(w, OPEN(w, NULL, ".metadata"), -EINVAL,
            "it is metadata of torch.distributed.checkpoint");
    const struct rfs_chunks_source source = {
        .folder = w->root, .files = w->files, .tables = &w->tables};
    assert_int_equal(rfs_dcp_open(&source, &w->chunks, &w->err), -EINVAL);
    assert_non_null(strstr(w->err.text, "it is metadata of HyperParallel, and the names of the"));
}

static void test_objects(void **state)
{
    struct world *w = *state;
    struct rfs_error err = {0};

    put_rank(w, ".metadata", 0, 0, 4);
    opened(w, OPEN(w, NULL, ".metadata"));
    const struct rfs_chunked_object *object = &w->chunks->objects.data[0];
    tree_write(w->root, "_rank0_.bytes", "12345678", 8);
    assert_int_equal(w->chunks->format->prove(w->chunks, object, false, &err), 0);
    opened(w, OPEN(w, NULL, ".metadata"));
    tree_write(w->root, "_rank0_.bytes", "1234567", 7);
    object = &w->chunks->objects.data[0];
    assert_int_equal(w->chunks->format->prove(w->chunks, object, false, &err), -EINVAL);
    assert_non_null(strstr(err.text, "_rank0_.bytes: parameter 'step': lies at offset 3 with 5 "
                                     "bytes, and the file has only 7"));
    struct bytes b;
    begin(&b, "checkpoint");
    dcp_left_out(&b, "step");
    dcp_storage(&b);
    dcp_place(&b, "step", 0, zero, "a", 0, -1);
    end(&b, NULL);
    put_metadata(w, ".metadata", &b);
    refused(w, OPEN(w, NULL, ".metadata"), -EINVAL, "stored without a file, an offset or a length");
}

/* What HyperParallel itself has written: model.w [8, 6] cut in four, and what is whole. */
static void test_program(void **state)
{
    static const char *const files[] = {".metadata", "_rank0_.safetensors", "_rank1_.safetensors",
                                        "_rank2_.safetensors", "_rank3_.safetensors"};
    struct world *w = *state;
    const char *top = getenv("top_srcdir");
    char path[4096];

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        static char data[1 << 16];
        snprintf(path, sizeof path, "%s/tests/fixtures/hyper/%s", top ? top : ".", files[i]);
        FILE *file = fopen(path, "rb");
        if (!file)
            fail_msg("%s cannot be opened", path);
        tree_write(w->root, files[i], data, fread(data, 1, sizeof data, file));
        fclose(file);
    }
    opened(w, OPEN(w, NULL, ".metadata"));
    assert_int_equal(w->chunks->tensors.n, 4);
    assert_int_equal(w->chunks->objects.n, 1);
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(w->chunks, "model.w", 7);
    assert_true(tensor && tensor->n == 4);
    for (uint32_t c = 0; c < 4; c++) {
        float have[12];
        snprintf(path, sizeof path, "_rank%u_.safetensors", c);
        const uint64_t at = place_of(w, "model.w", c, path);
        FILE *file = fopen(tree_path(w->root, path), "rb");
        assert_non_null(file);
        assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
        assert_int_equal(fread(have, sizeof *have, 12, file), 12);
        fclose(file);
        for (unsigned i = 0; i < 12; i++)
            assert_true(have[i] == (float)((c / 2 * 4 + i / 3) * 6 + c % 2 * 3 + i % 3));
    }
    place_of(w, "scalar", 0, "_rank2_.safetensors");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_keys),    TEST(test_archive),           TEST(test_copies),
        TEST(test_ranks),   TEST(test_ranks_that_differ), TEST(test_types),
        TEST(test_objects), TEST(test_programs),          TEST(test_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
