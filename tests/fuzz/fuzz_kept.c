/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a kept index. Checksums would keep a fuzzer out, so the input is u32 the place of
 * the table, then the bodies and the table (with its key) behind them. They are put into a file
 * whose checksum of the table is right, and the checksums of bodies are mended. What is believed
 * then refers to nothing outside of the file that it is of.
 */
#include "catalog/catalog.h"
#include "catalog/kept_index.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

FUZZ_GOALS("an index", "an index of parts");

#define FILE_BYTES 4096 /* of each source file that the index is of */
#define PARTS_MOST 4

static void check_index(const struct rfs_index *index, const struct rfs_tables *tables)
{
    REQUIRE(index->n > 0);
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        size_t length;
        REQUIRE(entry->name < rfs_intern_count(tables->names));
        REQUIRE(entry->type < rfs_intern_count(tables->types));
        const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, &length);
        REQUIRE(length == sizeof *type && type->ndim <= RFS_MAX_DIMS);
        REQUIRE(rfs_index_find(index, entry->name) == entry);
        REQUIRE(!index->file_of || index->file_of[i] < PARTS_MOST);
        const struct rfs_content content = rfs_catalog_content_of(index, entry);
        for (uint32_t k = 0; k < content.n; k++)
            REQUIRE(content.extents[k].offset <= FILE_BYTES &&
                    content.extents[k].bytes <= FILE_BYTES - content.extents[k].offset);
        REQUIRE(content.offset <= FILE_BYTES);
        const uint64_t *strides = rfs_index_strides(index, entry);
        if (content.n == 0 && !strides)
            REQUIRE(type->bytes <= FILE_BYTES - content.offset);
        uint64_t last = content.offset;
        for (unsigned d = 0; strides && type->bytes > 0 && d < type->ndim; d++)
            last += (type->dims[d] - 1) * strides[d];
        REQUIRE(last <= FILE_BYTES);
    }
}

/* Every index of the table, with the sizes that a rank's files would have. */
static void check_all(const struct rfs_kept_index *kept, const struct rfs_tables *tables)
{
    const struct rfs_kept_numbers numbers = {(uint32_t)kept->names.n, (uint32_t)kept->types.n,
                                             kept->names.data, kept->types.data};
    static const uint64_t sizes[PARTS_MOST] = {FILE_BYTES, FILE_BYTES, FILE_BYTES, FILE_BYTES};

    for (uint32_t i = 0; i < kept->n_indexes && i < 64; i++) {
        size_t n;
        void *body = rfs_kept_index_read_body(kept, i, &n);
        for (uint32_t parts = 1; body && parts <= PARTS_MOST; parts += PARTS_MOST - 1) {
            struct rfs_index *index =
                rfs_kept_body_take(body, n, &numbers, tables->types, sizes, parts);
            if (index) {
                check_index(index, tables);
                fuzz_reached(parts > 1);
            }
            rfs_index_free(index);
        }
        free(body);
    }
}

/* The file in which the input is; its checksums are right as far as places are. */
static uint8_t *make_file(const uint8_t *data, size_t size, size_t *out)
{
    uint32_t table = 0;

    memcpy(&table, data, sizeof table);
    data += sizeof table;
    size -= sizeof table;
    table = table <= size ? table : (uint32_t)size;
    uint8_t *file = malloc(RFS_KEPT_START + size + 8);
    REQUIRE(file != NULL);
    const uint32_t words[] = {RFS_KEPT_VERSION, RFS_KEPT_MARK};
    const uint64_t places[] = {RFS_KEPT_START + table, size - table,
                               XXH3_64bits(data + table, size - table)};
    memcpy(file, rfs_kept_magic(RFS_KEPT_INDEX), 8);
    memcpy(file + 8, words, sizeof words);
    memcpy(file + 16, places, sizeof places);
    memcpy(file + RFS_KEPT_START, data, size);
    *out = RFS_KEPT_START + size;
    return file;
}

/* Sets the checksum of each body, by the place that the table says. */
static void mend(struct rfs_kept_index *kept, const uint8_t *file, size_t size)
{
    for (uint32_t i = 0; i < kept->n_indexes; i++) {
        unsigned char *row =
            (unsigned char *)(uintptr_t)kept->indexes + (size_t)i * RFS_KEPT_INDEX_BYTES;
        uint64_t words[2];
        memcpy(words, row, sizeof words);
        if (words[0] > size || words[1] > size - words[0])
            continue;
        const uint64_t hash = XXH3_64bits(file + words[0], (size_t)words[1]);
        memcpy(row + 16, &hash, sizeof hash);
    }
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_kept_file parsed;
    size_t n;

    REQUIRE(tables.names && tables.types);
    if (size >= sizeof(uint32_t)) {
        uint8_t *file = make_file(data, size, &n);
        if (rfs_kept_parse(RFS_KEPT_INDEX, "key", -1, file, n, &parsed)) {
            struct rfs_kept_index *kept = rfs_kept_index_take(&parsed, &tables);
            if (kept) {
                mend(kept, file, n);
                check_all(kept, &tables);
            }
            rfs_kept_index_free(kept);
        }
        free(file);
    }
    /* And as it is. */
    if (rfs_kept_parse(RFS_KEPT_INDEX, "key", -1, data, size, &parsed))
        rfs_kept_index_free(rfs_kept_index_take(&parsed, &tables));
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
