/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors file of torch.distributed.checkpoint, beside a good one. */
#include "formats/shards/shards.h"
#include "tests/fuzz/chunks.h"
#include "tests/fuzz/folder.h"

#include <stdio.h>
#include <string.h>

FUZZ_GOALS("tensors");

#define OTHER                                                                                      \
    "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[2,0]}}\"},"     \
    "\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}"

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
    struct rfs_chunks *chunks = NULL;
    struct rfs_error err = {0};

    REQUIRE(tables.names && tables.types && files);
    REQUIRE(rfs_files_add(files, fuzz_file("a", data, size)) == 0);
    REQUIRE(rfs_files_add(files, other) == 1);
    const struct rfs_chunks_source source = {
        .folder = fuzz_folder(), .files = files, .tables = &tables};
    if (require_result(rfs_shards_open(&source, &chunks, &err), &err) &&
        require_chunks(chunks, sizes, 2))
        fuzz_reached(0);
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
