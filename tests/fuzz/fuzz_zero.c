/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as both files of a save by DeepSpeed in one process, the model's and the optimizer's,
 * or as all files of a universal checkpoint, or as the pickles in them. A pickle may have the keys
 * of all.
 */
#include "formats/zero/zero.h"
#include "tests/fuzz/chunks.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/wrap.h"

#include <stdlib.h>

FUZZ_GOALS("tensors of a save", "tensors of a universal checkpoint");

void fuzz_one(const uint8_t *data, size_t size)
{
    struct wrapped input = wrap_torch(data, size);
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *chunks = NULL;
    struct rfs_error err = {0};
    const char *names[] = {
        size % 2 ? "mp_rank_00_model_states.pt" : "zero_pp_rank_0_mp_rank_00_model_states.pt",
        size % 4 < 2 ? "zero_pp_rank_0_mp_rank_00_optim_states.pt" : "zero/a/fp32.pt",
        "zero/a/exp_avg.pt"};
    const uint32_t n = size % 4 < 2 ? 2 : 3;

    REQUIRE(tables.names && tables.types && files);
    fuzz_folder_clear("");
    for (uint32_t i = 0; i < n; i++)
        REQUIRE(rfs_files_add(files, fuzz_file(names[i], input.data, input.size)) == i);
    const struct rfs_chunks_source source = {
        .folder = fuzz_folder(), .files = files, .tables = &tables};
    if (require_result(rfs_zero_open(&source, &chunks, &err), &err) &&
        require_chunks(chunks, (const uint64_t[]){input.size, input.size, input.size}, n))
        fuzz_reached(n == 3);
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    free(input.data);
}
