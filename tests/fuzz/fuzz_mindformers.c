/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as metadata.json of a Checkpoint 2.0, beside two files that it may name. */
#include "formats/mindformers/mindformers.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

FUZZ_GOALS("a tensor", "a layout");

/* Its chunks have as many bytes as it. */
static void check_tensor(struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor)
{
    const struct rfs_type *whole = rfs_chunks_type(chunks, tensor->type);
    uint64_t bytes = 0;

    REQUIRE(rfs_chunks_find(chunks, rfs_intern_text(chunks->tables->names, tensor->name),
                            strlen(rfs_intern_text(chunks->tables->names, tensor->name))) ==
            tensor);
    for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
        const struct rfs_chunk *chunk = &chunks->chunks.data[i];
        REQUIRE(rfs_chunks_type(chunks, chunk->type)->bytes <= whole->bytes - bytes);
        bytes += rfs_chunks_type(chunks, chunk->type)->bytes;
        REQUIRE(chunk->file >= chunks->first_file &&
                chunk->file < chunks->first_file + chunks->n_files);
        REQUIRE(rfs_chunks_tensor_of(chunks, i) == tensor);
    }
    REQUIRE(bytes == whole->bytes);
}

static void check_boxes(struct rfs_chunks *chunks)
{
    struct rfs_error err = {0};

    REQUIRE(chunks->n_files <= 2);
    for (size_t i = 0; i < chunks->tensors.n; i++)
        check_tensor(chunks, &chunks->tensors.data[i]);
    if (chunks->chunks.n > 0)
        require_result(rfs_chunks_locate(chunks, (uint32_t)chunks->chunks.n - 1, &err), &err);
}

static void check_layouts(struct rfs_chunks *chunks)
{
    struct rfs_mindformers_strategy layouts;
    struct rfs_error err = {0};

    if (require_result(rfs_mindformers_read_strategy(chunks, &layouts, &err), &err))
        for (size_t i = 0; i < layouts.held.n; i++) {
            REQUIRE(layouts.held.data[i].ranks == layouts.devices &&
                    layouts.held.data[i].tensor < layouts.of.n);
            fuzz_reached(1);
        }
    rfs_mindformers_strategy_free(&layouts);
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
    struct rfs_chunks *chunks = NULL;
    struct rfs_error err = {0};

    REQUIRE(tables.names && tables.types && files);
    REQUIRE(rfs_files_add(files, fuzz_file("metadata.json", data, size)) == 0);
    const struct rfs_chunks_source source = {
        .folder = fuzz_folder(), .files = files, .tables = &tables};
    if (require_result(rfs_mindformers_open(&source, &chunks, &err), &err)) {
        check_boxes(chunks);
        check_layouts(chunks);
        if (chunks->tensors.n > 0)
            fuzz_reached(0);
    }
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
