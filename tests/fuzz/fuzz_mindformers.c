/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as metadata.json of a Checkpoint 2.0, beside two files that it may name. */
#include "formats/chunks/mindformers.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

/* Its chunks have as many bytes as it. */
static void check_tensor(struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor)
{
    const struct rfs_type *whole = rfs_chunks_type(boxes, tensor->type);
    uint64_t bytes = 0;

    REQUIRE(rfs_chunks_find(boxes, rfs_intern_text(boxes->tables->names, tensor->name),
                            strlen(rfs_intern_text(boxes->tables->names, tensor->name))) == tensor);
    for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
        const struct rfs_chunk *chunk = &boxes->chunks.data[i];
        REQUIRE(rfs_chunks_type(boxes, chunk->type)->bytes <= whole->bytes - bytes);
        bytes += rfs_chunks_type(boxes, chunk->type)->bytes;
        REQUIRE(chunk->file >= boxes->first_file &&
                chunk->file < boxes->first_file + boxes->n_files);
        REQUIRE(rfs_chunks_tensor_of(boxes, i) == tensor);
    }
    REQUIRE(bytes == whole->bytes);
}

static void check_boxes(struct rfs_chunks *boxes)
{
    struct rfs_error err = {0};

    REQUIRE(boxes->n_files <= 2);
    for (size_t i = 0; i < boxes->tensors.n; i++)
        check_tensor(boxes, &boxes->tensors.data[i]);
    if (boxes->chunks.n > 0)
        require_result(rfs_chunks_locate(boxes, (uint32_t)boxes->chunks.n - 1, &err), &err);
}

static void check_layouts(struct rfs_chunks *boxes)
{
    struct rfs_mf_layouts layouts;
    struct rfs_error err = {0};

    if (require_result(rfs_mindformers_layouts(boxes, &layouts, &err), &err))
        for (size_t i = 0; i < layouts.held.n; i++)
            REQUIRE(layouts.held.data[i].ranks == layouts.devices &&
                    layouts.held.data[i].tensor < layouts.of.n);
    rfs_mf_layouts_free(&layouts);
}

void fuzz_prepare(void)
{
    static const char file[] = "9\0\0\0\0\0\0\0"
                               "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   "
                               "12345678";

    fuzz_file("a", file, sizeof file - 1);
    fuzz_file("b", "", 0);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *boxes = NULL;
    struct rfs_error err = {0};

    REQUIRE(tables.names && tables.types && files);
    REQUIRE(rfs_files_add(files, fuzz_file("metadata.json", data, size)) == 0);
    if (require_result(rfs_mindformers_open(fuzz_folder(), files, &tables, NULL, &boxes, &err),
                       &err)) {
        check_boxes(boxes);
        check_layouts(boxes);
    }
    rfs_chunks_free(boxes);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
