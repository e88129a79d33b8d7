/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a safetensors file: the walk, the prediction from whatever index it gives, the
 * checksum. Inputs that begin with a brace are headers alone, to which the length and the data are
 * added.
 */
#include "formats/ckpt/crc.h"
#include "formats/safetensors/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("an index", "a checksum that is right");

#define DATA_BYTES 64 /* behind a header alone, unless it ends otherwise */

/* A copy of the file; of a header alone one that has data behind it. */
static uint8_t *file_of(const uint8_t *data, size_t size, size_t *out)
{
    const bool bare = size > 0 && data[0] == '{';
    const size_t whole = bare ? 8 + size + DATA_BYTES : size;
    uint8_t *file = calloc(1, whole + 1);
    REQUIRE(file != NULL);
    for (unsigned i = 0; bare && i < 8; i++)
        file[i] = (uint8_t)((uint64_t)size >> 8 * i);
    memcpy(file + (bare ? 8 : 0), data, size);
    *out = whole;
    return file;
}

static void check_index(const struct rfs_index *index, const struct rfs_tables *tables)
{
    uint64_t end = 8 + index->header_bytes;
    REQUIRE(index->n > 0 && index->n_extents == 0 && !index->file_of);
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, NULL);
        size_t n;
        const char *name = rfs_intern_bytes(tables->names, entry->name, &n);
        REQUIRE(strlen(name) == n);
        REQUIRE(type->ndim <= RFS_MAX_DIMS && type->dtype < RFS_DTYPE_COUNT);
        REQUIRE(type->kind == RFS_TENSOR && entry->extent_count == 0);
        REQUIRE(entry->offset == end && type->bytes <= index->file_bytes - end);
        REQUIRE(rfs_index_find(index, entry->name) == entry);
        end += type->bytes;
    }
    REQUIRE(end == index->file_bytes);
}

/* FILE is that of the input. */
static void check_again(struct fuzz_input *input, uint8_t *file, struct rfs_index *index,
                        struct rfs_tables *tables)
{
    struct rfs_index *other = NULL;
    struct rfs_error err = {0};
    REQUIRE(rfs_safetensors_walk(RFS_BYTES_SOURCE(fuzz_read, input, input->size, "f"), tables,
                                 index, &other, NULL) == 1);
    REQUIRE(!other);
    const int rc =
        rfs_crc_verify(RFS_BYTES_SOURCE(fuzz_read, input, 0, "f"), false, index, tables, &err);
    if (rc == 0)
        fuzz_reached(1);
    REQUIRE(rc == (index->has_crc ? rc : 1) && (rc == 0 || rc == 1 || rc == -EINVAL));
    /* With a bit changed the header may be another, and is then not taken for this one. */
    const size_t at = (size_t)(8 + index->n * 31 % index->header_bytes);
    file[at] ^= (uint8_t)(1u << index->n % 8);
    REQUIRE(rfs_safetensors_walk(RFS_BYTES_SOURCE(fuzz_read, input, input->size, "f"), tables,
                                 index, &other, NULL) != 1);
    rfs_index_free(other);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    size_t whole;
    uint8_t *file = file_of(data, size, &whole);
    struct fuzz_input input = {file, whole};
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_index *index = NULL;
    struct rfs_error err = {0};
    REQUIRE(tables.names && tables.types);
    const int rc =
        rfs_safetensors_walk(RFS_BYTES_SOURCE(fuzz_read, &input, input.size, "f.safetensors"),
                             &tables, NULL, &index, &err);
    REQUIRE(require_result(rc, &err) == (index != NULL));
    if (index) {
        REQUIRE(index->file_bytes == input.size);
        check_index(index, &tables);
        fuzz_reached(0);
        check_again(&input, file, index, &tables);
    }
    rfs_index_free(index);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    free(file);
}
