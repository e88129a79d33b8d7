/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the .metadata of a distributed checkpoint: the tensors that it describes are tiled
 * by chunks, each of which is stored in a file of the folder. And as that of two ranks, whose
 * files have the same.
 */
#include "formats/dcp/dcp.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("chunks of one save", "chunks of two ranks");

#define FOLDER "/checkpoint/"

static const struct rfs_chunks_format format = {.name = "test"};

static uint64_t check_chunk(const struct rfs_chunks *chunks,
                            const struct rfs_chunked_tensor *tensor, uint32_t number)
{
    const struct rfs_chunk *chunk = &chunks->chunks.data[number];
    const struct rfs_type *whole = rfs_chunks_type(chunks, tensor->stored);
    const struct rfs_type *type = rfs_chunks_type(chunks, chunk->type);
    uint64_t at[RFS_MAX_DIMS];

    REQUIRE(chunk->file >= chunks->first_file &&
            chunk->file < rfs_files_count_paths(chunks->files));
    REQUIRE(strncmp(rfs_files_path(chunks->files, chunk->file), FOLDER, strlen(FOLDER)) == 0);
    REQUIRE(chunk->item <= INT64_MAX && chunk->item_bytes <= INT64_MAX - chunk->item);
    REQUIRE(rfs_chunks_tensor_of(chunks, number) == tensor);
    REQUIRE(type->ndim == whole->ndim && type->dtype == whole->dtype);
    rfs_chunks_corner(chunks, tensor, number, at);
    for (uint32_t i = 0; i < whole->ndim; i++)
        REQUIRE(type->dims[i] <= whole->dims[i] && at[i] <= whole->dims[i] - type->dims[i]);
    return type->bytes;
}

static void check(const struct rfs_chunks *chunks)
{
    for (size_t i = 0; i < chunks->tensors.n; i++) {
        const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[i];
        uint64_t bytes = 0;
        for (uint32_t c = tensor->first; c < tensor->first + tensor->n; c++)
            bytes += check_chunk(chunks, tensor, c);
        REQUIRE(bytes == rfs_chunks_type(chunks, tensor->type)->bytes);
    }
}

static int describe(struct fuzz_input *input, struct rfs_error *err)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);

    REQUIRE(files && tables.names && tables.types);
    REQUIRE(rfs_files_add(files, FOLDER ".metadata") == 0);
    struct rfs_chunks *chunks = rfs_chunks_new(
        &format,
        &(struct rfs_chunks_source){.folder = "/checkpoint", .files = files, .tables = &tables});
    REQUIRE(chunks);
    const int rc = rfs_dcp_describe(RFS_BYTES_SOURCE(fuzz_read, input, input->size, "/c/.metadata"),
                                    chunks, err);
    if (rc == 0) {
        check(chunks);
        if (chunks->chunks.n > 0)
            fuzz_reached(0);
    }
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    return rc;
}

/* Writes the metadata of a second rank: the bytes, with another name of rank 0's files. */
static const char *put_second(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1);

    REQUIRE(copy);
    memcpy(copy, data, size);
    for (char *at = copy; (at = memmem(at, size - (size_t)(at - copy), "__0_", 4)) != NULL;)
        at[2] = '9';
    const char *path = fuzz_file("__1.metadata", copy, size);
    free(copy);
    return path;
}

/* Opens the bytes as the metadata of two ranks. */
static int describe_ranks(const uint8_t *data, size_t size, struct rfs_error *err)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *chunks = NULL;
    struct rfs_chunked_copy copy;

    REQUIRE(files && tables.names && tables.types);
    REQUIRE(rfs_files_add(files, fuzz_file("__0.metadata", data, size)) == 0);
    REQUIRE(rfs_files_add(files, put_second(data, size)) == 1);
    const struct rfs_chunks_source source = {
        .folder = fuzz_folder(), .files = files, .tables = &tables};
    const int rc = rfs_dcp_open(&source, &chunks, err);
    for (uint32_t i = 0; rc == 0 && i < chunks->chunks.n && i < 8; i++)
        for (uint32_t c = 0; c < rfs_chunks_count_copies(chunks, i); c++)
            REQUIRE(rfs_chunks_locate_copy(chunks, i, c, &copy, NULL) < 0); /* no file is there */
    if (rc == 0 && chunks->chunks.n > 0)
        fuzz_reached(1);
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    return rc;
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rfs_error err = {0};
    const int rc = describe(&input, &err);

    require_result(rc, &err);
    REQUIRE(rc == 0 || rc == -EINVAL || rc == -ENOTSUP || rc == -EFBIG);
    REQUIRE((describe(&input, NULL) == 0) == (rc == 0));
    err = (struct rfs_error){0};
    require_result(describe_ranks(data, size, &err), &err);
}
