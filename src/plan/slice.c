/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/slice.h"

#include <stdlib.h>
#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

void rfs_slice_free(struct rfs_slice *slice)
{
    free(slice->blocks);
    *slice = (struct rfs_slice){0};
}

void rfs_slice_name(struct rfs_slice *slice)
{
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < slice->n; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        const uint64_t words[] = {slice->bytes, block->file, block->entry->offset, block->dst,
                                  block->src,   block->run,  block->n_loops};
        XXH3_128bits_update(&state, words, sizeof words);
        XXH3_128bits_update(&state, block->loop, block->n_loops * sizeof *block->loop);
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    slice->id[0] = hash.low64;
    slice->id[1] = hash.high64;
}
