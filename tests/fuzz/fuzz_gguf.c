/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a GGUF file: the walk, and a file that is encoded of what it finds, which the walk
 * finds again.
 */
#include "formats/gguf/gguf.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A part of a split file has its numbers in the name. */
#define NAME "f-00001-of-00002.gguf"

FUZZ_GOALS("an index", "blocks", "a part without tensors", "a file that is encoded");

static const struct rfs_type *type_of(const struct rfs_tables *tables,
                                      const struct rfs_entry *entry)
{
    return rfs_intern_bytes(tables->types, entry->type, NULL);
}

static void check_index(const struct rfs_index *index, const struct rfs_tables *tables)
{
    uint64_t end = 0;

    REQUIRE(index->n_extents == 0 && !index->file_of && !index->has_crc);
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const struct rfs_type *type = type_of(tables, entry);
        size_t n;
        const char *name = rfs_intern_bytes(tables->names, entry->name, &n);
        REQUIRE(strlen(name) == n);
        REQUIRE(type->ndim <= RFS_MAX_DIMS && type->dtype < RFS_DTYPE_COUNT);
        REQUIRE(type->kind == RFS_TENSOR && entry->extent_count == 0);
        REQUIRE(entry->offset >= end && entry->offset <= index->file_bytes);
        REQUIRE(type->bytes <= index->file_bytes - entry->offset);
        REQUIRE(rfs_index_find(index, entry->name) == entry);
        end = entry->offset + type->bytes;
        if (rfs_dtype_is_block((enum rfs_dtype)type->dtype))
            fuzz_reached(1);
    }
    fuzz_reached(index->n > 0 ? 0 : 2);
}

/* Encodes a file of the tensors of an index; NULL: the format cannot hold one of them. */
static struct rfs_image *encode(const struct rfs_index *index, const struct rfs_tables *tables)
{
    struct rfs_image_tensor *tensors = calloc(index->n + 1, sizeof *tensors);
    struct rfs_image *image = NULL;
    struct rfs_error err = {0};

    REQUIRE(tensors != NULL);
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        tensors[i].name = rfs_intern_bytes(tables->names, entry->name, &tensors[i].name_bytes);
        tensors[i].source_name = tensors[i].name;
        tensors[i].type = type_of(tables, entry);
        tensors[i].target = (uint32_t)i;
    }
    const struct rfs_gguf_content content = {.tensors = tensors, .n = index->n, .path = NAME};
    REQUIRE(require_result(rfs_gguf_encode(&content, &image, &err), &err) == (image != NULL));
    free(tensors);
    return image;
}

/* Walks the headers of an image, whose tensors are read as zeros. */
static int read_image(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct rfs_image *image = ctx;
    unsigned char *to = buf;

    for (size_t take; n > 0; n -= take, offset += take, to += take) {
        const size_t i = rfs_image_find(image, offset);
        const struct rfs_region *region = &image->regions[i];
        const uint64_t left = rfs_image_end(image, i) - offset;
        take = n < left ? n : (size_t)left;
        if (region->target == RFS_LITERAL)
            memcpy(to, image->literals + region->at + (offset - region->start), take);
        else
            memset(to, 0, take);
    }
    return 0;
}

static void check_encoded(const struct rfs_index *index, struct rfs_tables *tables)
{
    struct rfs_image *image = encode(index, tables);
    struct rfs_index *again = NULL;
    size_t values;

    if (!image)
        return;
    REQUIRE(rfs_gguf_walk(RFS_BYTES_SOURCE(read_image, image, image->bytes, "g.gguf"), tables,
                          &again, &values, NULL) == 0);
    REQUIRE(again->n == index->n && values == 0);
    for (size_t i = 0; i < index->n; i++)
        REQUIRE(again->entries[i].name == index->entries[i].name &&
                again->entries[i].type == index->entries[i].type);
    fuzz_reached(3);
    rfs_index_free(again);
    rfs_image_free(image);
}

static bool count_value(void *ctx, const struct rfs_format_value *value)
{
    REQUIRE(value->name && value->type);
    ++*(size_t *)ctx;
    return true;
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_index *index = NULL;
    size_t values;
    struct rfs_error err = {0};

    REQUIRE(tables.names && tables.types);
    const int rc = rfs_gguf_walk(RFS_BYTES_SOURCE(fuzz_read, &input, size, NAME), &tables, &index,
                                 &values, &err);
    REQUIRE(require_result(rc, &err) == (index != NULL));
    size_t listed = 0;
    struct rfs_error why = {0};
    const int values_rc = rfs_gguf_values(RFS_BYTES_SOURCE(fuzz_read, &input, size, NAME),
                                          count_value, &listed, &why);
    REQUIRE(!index || (values_rc == 0 && listed == values));
    if (index) {
        REQUIRE(index->file_bytes == size);
        check_index(index, &tables);
        if (index->n > 0)
            check_encoded(index, &tables);
    }
    rfs_index_free(index);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
