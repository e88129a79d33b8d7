/* SPDX-License-Identifier: Apache-2.0 */
/* The other images: .ckpt files with a trailer, and the JSON files of where parameters are. */
#include "formats/ckpt/ckpt.h"
#include "formats/dcp/dcp_encode.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ckpt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_map, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_items, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trailer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_weight_map_of_mindspore, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_weight_map_of_huggingface, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
