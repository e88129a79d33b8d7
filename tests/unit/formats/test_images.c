/* SPDX-License-Identifier: Apache-2.0 */
/* The other images: .ckpt files with a trailer, and the JSON files of where parameters are. */
#include "formats/ckpt/ckpt.h"
#include "formats/dcp/dcp_encode.h"
#include "formats/mindformers/mindformers_encode.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch/torch_encode.h"
#include "tests/support/tree.h"
#include "tests/unit/formats/encoded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_ckpt(void **state)
{
    struct world *w = *state;
    const uint64_t dims[] = {4, 8};
    struct bytes want = {0};
    struct rfs_image *image;

    add_tensor(w, "w", RFS_FLOAT32, 2, dims);
    assert_int_equal(rfs_ckpt_encode(w->tensors, w->n, false, &image), 0);
    expect_covered(image);
    ckpt_header(&want, "w", "Float32", 2, dims, 128);
    expect_literals(image, want.data, want.n);
    assert_int_equal(image->n, 2);
    assert_int_equal(image->bytes, want.n + 128);
    bytes_free(&want);
    rfs_image_free(image);
}

/* Two messages of a map tensor, of 3 and of 200 bytes, and one without any. */
static void test_map(void **state)
{
    static const char first[] = "\x0a\x08\x0a\x01m\x1a\x03";
    static const char second[] = "\x0a\xce\x01\x0a\x01m\x1a\xc8\x01";
    static const char third[] = "\x0a\x05\x0a\x01m\x1a\x00";
    static const uint64_t lengths[] = {3, 200, 0};
    struct world *w = *state;
    struct rfs_image *image;

    add_target(w, "m", RFS_MAP, RFS_UINT8, 0, NULL, 203);
    w->tensors[0].lengths = lengths;
    w->tensors[0].n_lengths = 3;
    assert_int_equal(rfs_ckpt_encode(w->tensors, w->n, false, &image), 0);
    expect_covered(image);
    expect_literals(image, first, sizeof first - 1);
    assert_int_equal(image->n, 5);
    assert_memory_equal(image->literals + 7, second, sizeof second - 1);
    assert_memory_equal(image->literals + 16, third, sizeof third - 1);
    assert_int_equal(image->regions[1].at, 0);
    assert_int_equal(image->regions[3].at, 3);
    assert_int_equal(image->bytes, 7 + 3 + 9 + 200 + 7);
    rfs_image_free(image);
}

/* Writes what a reader sees of an image, however its literals are kept. */
static struct bytes seen(const struct rfs_image *image)
{
    struct bytes out = {0};

    for (size_t i = 0; i < image->n; i++) {
        const struct rfs_region *region = &image->regions[i];
        const uint64_t bytes = rfs_image_end(image, i) - region->start;
        if (region->target == RFS_LITERAL) {
            bytes_add(&out, image->literals + region->at, (size_t)bytes);
            continue;
        }
        const size_t of = (size_t)(region->at >> 3); /* of a checksum: region with the bytes */
        const bool is_crc = region->target == RFS_STORAGE_CRC;
        const uint64_t words[] = {region->target, bytes,
                                  is_crc ? image->regions[of].start : region->at};
        bytes_add(&out, words, sizeof words);
    }
    return out;
}

/* Items of a few types, in any order: as each alone would be. */
static void test_items(void **state)
{
    struct world *w = *state;
    const uint64_t dims[][2] = {{4, 8}, {1, 8}, {0, 8}, {300, 70}};

    for (size_t i = 0; i < 9; i++) {
        add_tensor(w, "w", i % 5 == 1 ? RFS_FLOAT16 : RFS_FLOAT32, 2, dims[i % 4]);
        w->tensors[i].at = 1000 * i;
    }
    for (int crc = 0; crc < 2; crc++) {
        struct rfs_image_builder builder = {0};
        struct rfs_image *image;
        struct rfs_image *want;
        uint64_t bytes = 0;
        for (size_t i = 0; i < w->n; i++) {
            const struct rfs_torch_item item = {.target = w->tensors[i].target,
                                                .at = w->tensors[i].at,
                                                .type = w->tensors[i].type,
                                                .crc = crc};
            uint64_t each;
            assert_int_equal(rfs_torch_encode_item(&builder, &item, NULL), 0);
            assert_int_equal(rfs_dcp_item_bytes(item.type, &each, NULL), 0);
            bytes += each;
            assert_int_equal(rfs_image_here(&builder), bytes);
        }
        assert_int_equal(rfs_image_finish(&builder, &want), 0);
        assert_int_equal(rfs_dcp_encode_items(w->tensors, w->n, crc, "", &image, NULL), 0);
        assert_int_equal(image->bytes, want->bytes);
        assert_true(image->literal_bytes < want->literal_bytes);
        struct bytes have = seen(image);
        struct bytes wanted = seen(want);
        assert_int_equal(have.n, wanted.n);
        assert_memory_equal(have.data, wanted.data, have.n);
        bytes_free(&have);
        bytes_free(&wanted);
        rfs_image_free(image);
        rfs_image_free(want);
    }
}

static void test_trailer(void **state)
{
    static const char trailer[] = "crc_num\0\0\0\0\0";
    struct world *w = *state;
    struct rfs_image *plain;
    struct rfs_image *image;

    /* With literals before the trailer (an empty string), and with a tensor's bytes. */
    for (unsigned i = 0; i < 2; i++) {
        w->n = 0;
        if (i == 0)
            add_target(w, "s", RFS_STRING, RFS_STR, 0, NULL, 0);
        else
            add_tensor(w, "w", RFS_INT8, 1, (uint64_t[]){3});
        assert_int_equal(rfs_ckpt_encode(w->tensors, w->n, false, &plain), 0);
        assert_int_equal(rfs_ckpt_encode(w->tensors, w->n, true, &image), 0);
        expect_covered(image);
        assert_int_equal(image->bytes, plain->bytes + RFS_CRC_TRAILER);
        const struct rfs_region *last = &image->regions[image->n - 1];
        assert_int_equal(last->target, RFS_CRC);
        assert_int_equal(last->start, image->bytes - 4);
        assert_int_equal(image->regions[image->n - 2].target, RFS_LITERAL);
        assert_memory_equal(image->literals + image->literal_bytes - 13, trailer, 13);
        rfs_image_free(plain);
        rfs_image_free(image);
    }
}

static void expect_map(struct world *w, enum rfs_weight_map_style style, size_t n, const char *want)
{
    static const char *const names[] = {"b", "a\"\\\n\x7f", "\xc3\xa9\xf0\x9f\x98\x80", "a"};
    static const char *const files[] = {"part1.safetensors", "part1.safetensors",
                                        "part0.safetensors", "\xc3\xa9"};
    struct rfs_image *image;
    uint32_t ids[4];

    for (size_t i = 0; i < n; i++)
        ids[i] = rfs_intern_add(w->tables.names, names[i], strlen(names[i]));
    const struct rfs_weight_map map = {
        .style = style, .total_size = UINT64_C(12345678901), .n = n, .names = ids, .files = files};
    assert_int_equal(rfs_safetensors_encode_map(&w->tables, &map, &image), 0);
    expect_covered(image);
    expect_literals(image, want, strlen(want));
    rfs_image_free(image);
}

static void test_weight_map_of_mindspore(void **state)
{
    expect_map(*state, RFS_WEIGHT_MAP_MINDSPORE, 3,
               "{\n"
               "    \"metadata\": {\n"
               "        \"total_size\": 12345678901\n"
               "    },\n"
               "    \"weight_map\": {\n"
               "        \"b\": \"part1.safetensors\",\n"
               "        \"a\\\"\\\\\\n\\u007f\": \"part1.safetensors\",\n"
               "        \"\\u00e9\\ud83d\\ude00\": \"part0.safetensors\"\n"
               "    }\n"
               "}");
    expect_map(*state, RFS_WEIGHT_MAP_MINDSPORE, 0,
               "{\n"
               "    \"metadata\": {\n"
               "        \"total_size\": 12345678901\n"
               "    },\n"
               "    \"weight_map\": {}\n"
               "}");
}

static void test_weight_map_of_huggingface(void **state)
{
    expect_map(*state, RFS_WEIGHT_MAP_HUGGINGFACE, 4,
               "{\n"
               "  \"metadata\": {\n"
               "    \"total_size\": 12345678901\n"
               "  },\n"
               "  \"weight_map\": {\n"
               "    \"a\": \"\\u00e9\",\n"
               "    \"a\\\"\\\\\\n\\u007f\": \"part1.safetensors\",\n"
               "    \"b\": \"part1.safetensors\",\n"
               "    \"\\u00e9\\ud83d\\ude00\": \"part0.safetensors\"\n"
               "  }\n"
               "}\n");
}

/* Returns the text of an image, whose written regions are asked for from the last to the first. */
static struct bytes written(const struct rfs_image *image)
{
    struct rfs_bytes part = {0};
    struct bytes out = {0};

    for (uint64_t at = 0; at < image->bytes; at++)
        bytes_add(&out, "", 1);
    for (size_t i = image->n; i-- > 0;) {
        const struct rfs_region *region = &image->regions[i];
        const unsigned char *from = image->literals + region->at;
        if (region->target == RFS_WRITTEN) {
            assert_int_equal(rfs_image_write(image, i, &part), 0);
            from = part.data;
        }
        memcpy(out.data + region->start, from, (size_t)(rfs_image_end(image, i) - region->start));
    }
    rfs_bytes_free(&part);
    return out;
}

static void put_text(struct bytes *bytes, const char *text)
{
    bytes_add(bytes, text, strlen(text));
}

/* Puts what metadata.json says of a tensor of 2 * 3 numbers that each of N ranks has. */
static void put_held(struct bytes *metadata, struct bytes *storage, const char *name, unsigned n)
{
    char text[1024];
    char ranks[512] = "0";

    for (unsigned r = 1; r < n; r++)
        snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), ",%u", r);
    snprintf(text, sizeof text,
             "\"%s\":{\"properties\":{\"dtype\":\"Float32\",\"replica_id\":0,"
             "\"allow_shape_mismatch\":false,\"allow_to_save\":true},\"global_shape\":[2,3],"
             "\"axis_fragmentations\":[1,1],\"layout\":null,\"chunk\":[{\"global_offset\":[0],"
             "\"local_shape\":[2,3]}]},",
             name);
    put_text(metadata, text);
    snprintf(text, sizeof text,
             "\"('%s', (0,))\":[{\"file_name\":\"model-0.safetensors\",\"storage_rank\":0,"
             "\"rank_group\":[%s]}],",
             name, ranks);
    put_text(storage, text);
}

/* Names of other lengths, some with escapes, in several parts; and no tensor at all. */
static void test_metadata_of_mindformers(void **state)
{
    enum { N = 5000, RANKS = 40 };
    static const uint64_t dims[] = {2, 3};
    static const char *const files[RANKS] = {"model-0.safetensors"};
    struct rfs_mindformers_tensor *tensors = calloc(N, sizeof *tensors);
    struct world *w = *state;
    struct bytes want = {0};
    struct bytes storage = {0};
    struct rfs_image *image;
    char name[64];

    put_text(&want, "{\"state_dict_metadata\":{");
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%.*s%u%s.weight", (int)(i % 7), "layers.", i,
                 i % 11 ? "" : "\n\xc3\xa9");
        add_tensor(w, name, RFS_FLOAT32, 2, dims);
        tensors[i] = (struct rfs_mindformers_tensor){
            .name = rfs_intern_add(w->tables.names, name, strlen(name)),
            .type = rfs_intern_add(w->tables.types, w->tensors[i].type, sizeof(struct rfs_type)),
            .whole = dims,
            .ranks = i % 3 ? RANKS : 1,
            .files = files};
        snprintf(name, sizeof name, "%.*s%u%s.weight", (int)(i % 7), "layers.", i,
                 i % 11 ? "" : "\\n\xc3\xa9");
        put_held(&want, &storage, name, tensors[i].ranks);
    }
    want.n--; /* the last comma */
    put_text(&want, "},\"storage_data\":{");
    bytes_add(&want, storage.data, storage.n - 1);
    put_text(&want, "}}");
    assert_int_equal(rfs_mindformers_encode_metadata(&w->tables, tensors, N, &image), 0);
    expect_covered(image);
    assert_true(image->n > 8);
    assert_int_equal(image->bytes, want.n);
    assert_true(rfs_image_memory(image) < want.n / 100);
    struct bytes have = written(image);
    assert_memory_equal(have.data, want.data, want.n);
    bytes_free(&have);
    rfs_image_free(image);

    assert_int_equal(rfs_mindformers_encode_metadata(&w->tables, NULL, 0, &image), 0);
    have = written(image);
    bytes_free(&want);
    put_text(&want, "{\"state_dict_metadata\":{},\"storage_data\":{}}");
    assert_int_equal(have.n, want.n);
    assert_memory_equal(have.data, want.data, want.n);
    bytes_free(&have);
    bytes_free(&want);
    bytes_free(&storage);
    rfs_image_free(image);
    free(tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ckpt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_map, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_items, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trailer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_weight_map_of_mindspore, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_weight_map_of_huggingface, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_metadata_of_mindformers, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
