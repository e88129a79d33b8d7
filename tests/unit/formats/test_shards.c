/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces in safetensors files of torch.distributed.checkpoint. In headers ` stands for ". */
#include "chunks.h"
#include "formats/shards/shards.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The header of a file with a piece of w, float32, that begins at OFFSETS. */
#define INFO(text) "`__metadata__`: {`format`: `pt`, `DCP_SHARDING_INFO`: `" text "`}"
#define AT(name, offsets) "\\`" name "\\`: {\\`saved_offsets\\`: [" offsets "]}"
#define ENTRY(name, shape, begin, end)                                                             \
    "`" name "`: {`dtype`: `F32`, `shape`: [" shape "], `data_offsets`: [" begin ", " end "]}"
#define W(offsets, shape, bytes)                                                                   \
    "{" INFO("{" AT("w", offsets) "}") ", " ENTRY("w", shape, "0", bytes) "}"

/* The next file of the folder: BYTES of data behind a header. */
static void put(struct world *w, const char *header, size_t bytes)
{
    const size_t n = strlen(header);
    char *file = calloc(1, 8 + n + bytes);
    char name[64];

    assert_non_null(file);
    for (unsigned i = 0; i < 8; i++)
        file[i] = (char)(unsigned char)(n >> (8 * i));
    for (size_t i = 0; i < n; i++)
        file[8 + i] = (char)(header[i] == '`' ? '"' : header[i]);
    snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", ++w->n);
    tree_file(&w->tree, name, file, 8 + n + bytes);
    free(file);
}

static int open_all(struct world *w)
{
    char name[64];

    world_begin(w);
    for (unsigned i = 1; i <= w->n; i++) {
        snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", i);
        rfs_files_add(w->files, tree_path(&w->tree, name));
    }
    w->n = 0;
    const struct rfs_chunks_source source = {
        .folder = w->tree.root, .files = w->files, .tables = &w->tables};
    return rfs_shards_open(&source, &w->chunks, &w->err);
}

static void opens(struct world *w)
{
    if (open_all(w) != 0)
        fail_msg("%s", w->err.text);
}

static void refused(struct world *w, int code, const char *part)
{
    const int rc = open_all(w);

    if (rc != code || !strstr(w->err.text, part))
        fail_msg("%d, '%s' instead of %d, '%s'", rc, w->err.text, code, part);
    assert_null(w->chunks);
}

static void refused_one(struct world *w, const char *header, size_t bytes, const char *part)
{
    put(w, header, bytes);
    refused(w, -EINVAL, part);
}

/* [5, 4] as [3, 4] and two halves of [2, 4]; one of them twice. */
static void test_pieces(void **state)
{
    struct world *w = *state;

    put(w, W("3, 2", "2, 2", "16"), 16);
    put(w, W("0, 0", "3, 4", "48"), 48);
    put(w, W("3, 0", "2, 2", "16"), 16);
    put(w, W("3, 2", "2, 2", "16"), 16);
    put(w, "{" INFO("{}") "}", 0); /* a rank without any */
    opens(w);
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(w->chunks, "w", 1);
    assert_true(tensor && tensor->n == 3 && w->chunks->n_files == 5 && w->chunks->first_file == 0);
    const struct rfs_type *type = rfs_chunks_type(w->chunks, tensor->type);
    assert_true(type->ndim == 2 && type->dims[0] == 5 && type->dims[1] == 4);
    assert_int_equal(w->chunks->chunks.data[2].file, 0); /* the first of the copies */
    assert_int_equal(w->chunks->chunks.data[2].at, 8 + strlen(W("3, 2", "2, 2", "16")));
    assert_int_equal(rfs_chunks_locate(w->chunks, 2, NULL), 0);
    struct rfs_chunked_copy copy;
    assert_true(tensor->on_trust); /* nothing says that the two are the same */
    assert_int_equal(rfs_chunks_count_copies(w->chunks, 1), 0);
    assert_int_equal(rfs_chunks_count_copies(w->chunks, 2), 1);
    assert_int_equal(rfs_chunks_locate_copy(w->chunks, 2, 0, &copy, NULL), 0);
    assert_int_equal(copy.file, 3);
    assert_int_equal(copy.at, 8 + strlen(W("3, 2", "2, 2", "16")));
}

static void test_other_shapes(void **state)
{
    struct world *w = *state;

    put(w,
        "{" INFO("{" AT("none", "2") ", " AT("s", "") "}") ", " ENTRY("s", "", "0", "4") ", " ENTRY(
            "none", "0", "4", "4") "}",
        4);
    put(w, "{" INFO("{" AT("none", "0") "}") ", " ENTRY("none", "2", "0", "8") "}", 8);
    opens(w);
    assert_int_equal(w->chunks->tensors.n, 2);
    assert_int_equal(w->chunks->chunks.n, 2);
}

static void test_refused(void **state)
{
    struct world *w = *state;

    refused_one(w, "{" ENTRY("w", "2", "0", "8") "}", 8, "its header has none");
    refused_one(w, "{`__metadata__`: null, " ENTRY("w", "2", "0", "8") "}", 8,
                "its name promises DCP_SH");
    refused_one(w, "{" INFO("[]") ", " ENTRY("w", "2", "0", "8") "}", 8, "is damaged: ");
    refused_one(w, "{" INFO("{} x") ", " ENTRY("w", "2", "0", "8") "}", 8, "is damaged: ");
    refused_one(w, "{" INFO("{}") ", " ENTRY("w", "2", "0", "8") "}", 8,
                "parameter 'w': DCP_SHARDING_INFO in its header is damaged: the beginning of its");
    refused_one(w, W("0, 0", "2", "8"), 8, "numbers of offsets and axes differ");
    refused_one(w, W("0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", "2", "8"), 8, "more than 16 offsets");
    refused_one(w, W("-1", "2", "8"), 8, "is damaged: ");
    refused_one(w,
                "{" INFO("{" AT("w", "0") "," AT("w", "0") "}") ", " ENTRY("w", "2", "0", "8") "}",
                8, "it names it twice");
    refused_one(w, W("18446744073709551615", "2", "8"), 8, "ends beyond any tensor");
    refused_one(w, W("9223372036854775807", "2", "8"), 8, "more than 2^63 bytes");
    refused_one(w, W("2", "2", "8"), 8, "the metadata has no chunk for [0:2]");
    put(w, W("0", "2", "8"), 8);
    refused_one(w, W("1", "2", "8"), 8, "overlap in [1:2]");
    put(w, W("0", "2", "8"), 8);
    refused_one(w, W("0, 2", "1, 2", "8"), 8, "its dtype, or the shape");
    put(w, W("0", "2", "8"), 8);
    refused_one(w, W("0", "1", "4"), 4, "two chunks of different shapes");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_pieces), TEST(test_other_shapes),
                                       TEST(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
