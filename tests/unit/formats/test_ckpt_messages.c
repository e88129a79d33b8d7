/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of random values as messages of proto/checkpoint.proto: the bytes that protobuf-c
 * packs are those of our encoder, and our walker finds in them what was packed.
 */
#include "formats/ckpt/ckpt.h"
#include "tests/unit/formats/encoded.h"

#include "proto/checkpoint.pb-c.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { VALUES = 12, MAX_BYTES = 700 };

static uint64_t state;

/* splitmix64 */
static uint32_t below(uint32_t limit)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) >> 32) % limit;
}

static void seed(void)
{
    const char *given = getenv("RFS_SEED");
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    state =
        given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
    printf("RFS_SEED=%" PRIu64 "\n", state);
}

/* A value and all that its message points to. */
struct value {
    Checkpoint__Value message;
    TensorProto tensor, *tensors[1];
    MapTensorProto map;
    enum rfs_dtype dtype;
    char name[40];
    int64_t dims[4];
    unsigned char content[MAX_BYTES];
};

static void make_tensor(struct value *value)
{
    static const enum rfs_dtype dtypes[] = {RFS_FLOAT32, RFS_BFLOAT16, RFS_INT64, RFS_BOOL,
                                            RFS_COMPLEX128};

    tensor_proto__init(&value->tensor);
    value->dtype = dtypes[below(5)];
    size_t bytes = rfs_dtype_bytes(value->dtype);
    value->tensor.n_dims = below(4);
    value->tensor.dims = value->dims;
    for (size_t i = 0; i < value->tensor.n_dims; i++) {
        value->dims[i] = 1 + below(3);
        bytes *= (size_t)value->dims[i];
    }
    value->tensor.tensor_type = (char *)(uintptr_t)rfs_dtype_name(value->dtype);
    value->tensor.tensor_content.data = value->content;
    value->tensor.tensor_content.len = bytes;
    for (size_t i = 0; i < bytes; i++)
        value->content[i] = (unsigned char)below(256);
}

static void make_value(struct value *value, unsigned i, bool map)
{
    checkpoint__value__init(&value->message);
    snprintf(value->name, sizeof value->name, "%.*s.%u", (int)below(30),
             "layers.transformer.weight.moments", i);
    value->message.tag = value->name;
    make_tensor(value);
    if (map) {
        map_tensor_proto__init(&value->map);
        value->tensors[0] = &value->tensor;
        value->map.tensor = value->tensors;
        value->map.n_tensor = 1;
        value->message.maptensor = &value->map;
        value->message.value_case = CHECKPOINT__VALUE__VALUE_MAPTENSOR;
    } else {
        value->message.tensor = &value->tensor;
        value->message.value_case = CHECKPOINT__VALUE__VALUE_TENSOR;
    }
}

/* Packs random values; *data is the caller's. */
static void make_checkpoint(struct value *values, bool maps, uint8_t **data, size_t *size)
{
    Checkpoint checkpoint = CHECKPOINT__INIT;
    Checkpoint__Value *list[VALUES];

    for (unsigned i = 0; i < VALUES; i++) {
        make_value(&values[i], i, maps && below(3) == 0);
        list[i] = &values[i].message;
    }
    checkpoint.value = list;
    checkpoint.n_value = VALUES;
    *size = checkpoint__get_packed_size(&checkpoint);
    *data = malloc(*size);
    assert_non_null(*data);
    assert_int_equal(checkpoint__pack(&checkpoint, *data), *size);
}

static void test_the_encoder_writes_what_protobuf_packs(void **given)
{
    struct world *w = *given;
    static struct value values[VALUES];
    struct rfs_image *image;
    uint8_t *want;
    size_t size;

    make_checkpoint(values, false, &want, &size);
    for (unsigned i = 0; i < VALUES; i++) {
        uint64_t dims[4];
        for (size_t k = 0; k < values[i].tensor.n_dims; k++)
            dims[k] = (uint64_t)values[i].dims[k];
        add_tensor(w, values[i].name, values[i].dtype, (unsigned)values[i].tensor.n_dims, dims);
    }
    assert_int_equal(rfs_ckpt_encode(w->tensors, w->n, false, &image), 0);
    assert_int_equal(image->bytes, size);
    for (size_t i = 0; i < image->n; i++) {
        const struct rfs_region *region = &image->regions[i];
        const unsigned char *from =
            region->target == RFS_LITERAL ? image->literals : values[region->target].content;
        assert_memory_equal(from + region->at, want + region->start,
                            rfs_image_end(image, i) - region->start);
    }
    rfs_image_free(image);
    free(want);
}

struct packed {
    const uint8_t *data;
    size_t size;
};

static int read_packed(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct packed *packed = ctx;

    assert_true(offset <= packed->size && n <= packed->size - offset);
    memcpy(buf, packed->data + offset, n);
    return 0;
}

static void expect_entry(const struct packed *packed, const struct rfs_tables *tables,
                         const struct rfs_index *index, const struct rfs_entry *entry,
                         const struct value *value)
{
    const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, NULL);

    assert_string_equal(rfs_intern_text(tables->names, entry->name), value->name);
    if (value->message.value_case == CHECKPOINT__VALUE__VALUE_MAPTENSOR) {
        uint8_t message[MAX_BYTES + 100];
        const size_t n = map_tensor_proto__pack(&value->map, message);
        assert_int_equal(type->kind, RFS_MAP);
        assert_int_equal(type->bytes, n);
        if (entry->extent_count > 0)
            assert_int_equal(index->extents[entry->extent].offset, entry->offset);
        assert_memory_equal(packed->data + entry->offset, message, n);
        return;
    }
    assert_int_equal(type->kind, RFS_TENSOR);
    assert_int_equal(type->dtype, value->dtype);
    assert_int_equal(type->ndim, value->tensor.n_dims);
    for (unsigned i = 0; i < type->ndim; i++)
        assert_int_equal(type->dims[i], value->dims[i]);
    assert_int_equal(type->bytes, value->tensor.tensor_content.len);
    assert_memory_equal(packed->data + entry->offset, value->content, type->bytes);
}

static void test_the_walker_finds_what_protobuf_packed(void **given)
{
    static struct value values[VALUES];
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_error err = {0};
    struct rfs_index *index;
    uint8_t *data;
    size_t size;

    (void)given;
    for (int round = 0; round < 50; round++) {
        make_checkpoint(values, true, &data, &size);
        struct packed packed = {data, size};
        if (rfs_ckpt_walk(RFS_BYTES_SOURCE(read_packed, &packed, size, "x.ckpt"), &tables, &index,
                          &err))
            fail_msg("%s", err.text);
        assert_int_equal(index->n, VALUES);
        for (unsigned i = 0; i < VALUES; i++)
            expect_entry(&packed, &tables, index, &index->entries[i], &values[i]);
        rfs_index_free(index);
        free(data);
    }
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_encoder_writes_what_protobuf_packs, set_up,
                                        tear_down),
        cmocka_unit_test(test_the_walker_finds_what_protobuf_packed),
    };

    seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
