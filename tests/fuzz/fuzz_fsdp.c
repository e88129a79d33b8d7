/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the only file of FSDP's, or as the pickle in it. */
#include "formats/fsdp/fsdp.h"
#include "tests/fuzz/chunks.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/wrap.h"

#include <stdlib.h>

FUZZ_GOALS("tensors of a whole save", "tensors beside a lost file");

void fuzz_one(const uint8_t *data, size_t size)
{
    struct wrapped input = wrap_torch(data, size);
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *chunks = NULL;
    struct rfs_error err = {0};

    REQUIRE(tables.names && tables.types && files);
    REQUIRE(rfs_files_add(files,
                          fuzz_file("model_world_size_1_rank_0.pt", input.data, input.size)) == 0);
    const char *lost = size % 2 ? "'b.pt' is" : NULL;
    const struct rfs_chunks_source source = {
        .folder = fuzz_folder(), .files = files, .tables = &tables, .lost = lost};
    if (require_result(rfs_fsdp_open(&source, &chunks, &err), &err) &&
        require_chunks(chunks, &(const uint64_t){input.size}, 1))
        fuzz_reached(lost != NULL);
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    free(input.data);
}
