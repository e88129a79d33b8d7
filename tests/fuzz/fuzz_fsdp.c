/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the only file of FSDP's, or as the pickle in it. */
#include "source/boxes/fsdp.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wrap.h"

#include <stdlib.h>

/* Its chunks have as many bytes as it, and lie in the file. */
static void check_tensor(struct rfs_boxes *boxes, const struct rfs_boxed_tensor *tensor,
                         uint64_t size)
{
    const struct rfs_type *whole = rfs_boxes_type(boxes, tensor->type);
    uint64_t bytes = 0;

    for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
        const struct rfs_chunk *chunk = &boxes->chunks.data[i];
        const uint64_t n = rfs_boxes_type(boxes, chunk->type)->bytes;
        REQUIRE(n <= whole->bytes - bytes);
        bytes += n;
        REQUIRE(chunk->file == 0 && chunk->at <= size && n <= size - chunk->at);
        REQUIRE(rfs_boxes_locate(boxes, i, NULL) == 0);
    }
    REQUIRE(bytes == whole->bytes);
}

void fuzz_prepare(void)
{
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct wrapped input = wrap_torch(data, size);
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_boxes *boxes = NULL;
    struct rfs_error err = {0};

    REQUIRE(tables.names && tables.types && files);
    REQUIRE(rfs_files_add(files, fuzz_file("a.pt", input.data, input.size)) == 0);
    if (require_result(rfs_fsdp_open(fuzz_folder(), files, &tables, NULL, &boxes, &err), &err))
        for (size_t i = 0; i < boxes->tensors.n; i++)
            check_tensor(boxes, &boxes->tensors.data[i], input.size);
    rfs_boxes_free(boxes);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    free(input.data);
}
