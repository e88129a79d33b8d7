/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a .ckpt file: the walk, and the prediction from whatever index it gives. */
#include "formats/ckpt/ckpt.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("an index", "a prediction that holds");

static void check_entry(const struct rfs_index *index, const struct rfs_entry *entry,
                        const struct rfs_tables *tables)
{
    const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, NULL);
    uint64_t sum = entry->extent_count == 0 ? type->bytes : 0;
    REQUIRE(type->ndim <= RFS_MAX_DIMS && type->dtype < RFS_DTYPE_COUNT && type->kind <= RFS_MAP);
    REQUIRE(entry->offset <= index->file_bytes);
    REQUIRE(entry->extent_count > 0 || type->bytes <= index->file_bytes - entry->offset);
    REQUIRE(entry->extent_count == 0 || (entry->extent < index->n_extents &&
                                         entry->extent_count <= index->n_extents - entry->extent));
    for (uint32_t i = 0; i < entry->extent_count; i++) {
        const struct rfs_extent *extent = &index->extents[entry->extent + i];
        REQUIRE(extent->offset <= index->file_bytes &&
                extent->bytes <= index->file_bytes - extent->offset);
        sum += extent->bytes;
    }
    REQUIRE(sum == type->bytes);
    REQUIRE(rfs_index_find(index, entry->name) == entry);
}

/*
 * One bit of the file changed: where the prediction holds, so does the walk, and it gives the same.
 */
static void check_change(const struct fuzz_input *input, const struct rfs_index *index,
                         struct rfs_tables *tables)
{
    uint8_t *copy = malloc(input->size);
    struct fuzz_input changed = {copy, input->size};
    if (!copy)
        return;
    memcpy(copy, input->data, input->size);
    copy[(input->size * 31 + index->n) % input->size] ^= (uint8_t)(1u << (input->size % 8));
    struct rfs_index *other = NULL;
    if (rfs_ckpt_matches(RFS_BYTES_SOURCE(fuzz_read, &changed, changed.size, NULL), index, tables,
                         NULL) == 1) {
        REQUIRE(rfs_ckpt_walk(RFS_BYTES_SOURCE(fuzz_read, &changed, changed.size, "f"), tables,
                              &other, NULL) == 0);
        REQUIRE(other->n == index->n && other->n_extents == index->n_extents &&
                memcmp(other->entries, index->entries, index->n * sizeof *index->entries) == 0);
        for (size_t i = 0; i < index->n_extents; i++)
            REQUIRE(other->extents[i].offset == index->extents[i].offset &&
                    other->extents[i].bytes == index->extents[i].bytes);
    }
    rfs_index_free(other);
    free(copy);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_index *index = NULL;
    struct rfs_error err = {0};
    REQUIRE(tables.names && tables.types);
    const int rc =
        rfs_ckpt_walk(RFS_BYTES_SOURCE(fuzz_read, &input, size, "f.ckpt"), &tables, &index, &err);
    REQUIRE(require_result(rc, &err) == (index != NULL));
    if (index) {
        REQUIRE(index->file_bytes == size && index->n > 0);
        REQUIRE(rfs_index_memory(index) <= sizeof *index + 32 * index->n + 16 * index->n_extents);
        for (size_t i = 0; i < index->n; i++)
            check_entry(index, &index->entries[i], &tables);
        const int same =
            rfs_ckpt_matches(RFS_BYTES_SOURCE(fuzz_read, &input, size, NULL), index, &tables, NULL);
        REQUIRE(same == 0 || same == 1);
        fuzz_reached(0);
        if (same == 1)
            fuzz_reached(1);
        check_change(&input, index, &tables);
    }
    rfs_index_free(index);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
