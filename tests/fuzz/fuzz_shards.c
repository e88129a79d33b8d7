/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors file of torch.distributed.checkpoint, beside a good one. */
#include "source/boxes/shards.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

#define OTHER                                                                                      \
    "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[2,0]}}\"},"     \
    "\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}"

/* Its chunks have as many bytes as it, and lie in their files. */
static void check_tensor(struct rfs_boxes *boxes, const struct rfs_boxed_tensor *tensor,
                         const uint64_t *sizes)
{
    const struct rfs_type *whole = rfs_boxes_type(boxes, tensor->type);
    uint64_t bytes = 0;

    for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
        const struct rfs_chunk *chunk = &boxes->chunks.data[i];
        const uint64_t n = rfs_boxes_type(boxes, chunk->type)->bytes;
        REQUIRE(n <= whole->bytes - bytes);
        bytes += n;
        REQUIRE(chunk->file < 2 && chunk->at <= sizes[chunk->file] &&
                n <= sizes[chunk->file] - chunk->at);
        REQUIRE(rfs_boxes_locate(boxes, i, NULL) == 0);
    }
    REQUIRE(bytes == whole->bytes);
}

static char other[4096]; /* the path of the good one */

void fuzz_prepare(void)
{
    char file[8 + sizeof OTHER - 1 + 16] = {(char)(sizeof OTHER - 1)};

    memcpy(file + 8, OTHER, sizeof OTHER - 1);
    snprintf(other, sizeof other, "%s", fuzz_file("b", file, sizeof file));
}

void fuzz_one(const uint8_t *data, size_t size)
{
    const uint64_t sizes[2] = {size, 8 + sizeof OTHER - 1 + 16};
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_boxes *boxes = NULL;
    struct rfs_error err = {0};

    REQUIRE(tables.names && tables.types && files);
    REQUIRE(rfs_files_add(files, fuzz_file("a", data, size)) == 0);
    REQUIRE(rfs_files_add(files, other) == 1);
    if (require_result(rfs_shards_open(fuzz_folder(), files, &tables, NULL, &boxes, &err), &err))
        for (size_t i = 0; i < boxes->tensors.n; i++)
            check_tensor(boxes, &boxes->tensors.data[i], sizes);
    rfs_boxes_free(boxes);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
