/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that a parser of any bytes has found. */
#ifndef FUZZ_CHUNKS_H
#define FUZZ_CHUNKS_H

#include "formats/chunks/chunks.h"
#include "tests/fuzz/fuzz.h"

#define FUZZ_STRIDED                                                                               \
    (UINT64_C(1) << 63) /* in the place of a chunk: the number of one with strides */

/*
 * Each tensor's chunks have as many bytes as it, and lie in the files of these N sizes: from their
 * first byte on, if they have strides. Returns whether there are tensors.
 */
static inline bool require_chunks(struct rfs_chunks *chunks, const uint64_t *sizes, size_t n)
{
    for (size_t t = 0; t < chunks->tensors.n; t++) {
        const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[t];
        uint64_t left = rfs_chunks_type(chunks, tensor->type)->bytes;
        for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
            const struct rfs_chunk *chunk = &chunks->chunks.data[i];
            const uint64_t bytes = rfs_chunks_type(chunks, chunk->type)->bytes;
            REQUIRE(bytes <= left);
            left -= bytes;
            const bool strided = chunk->at & FUZZ_STRIDED;
            REQUIRE(!strided || (chunk->at ^ FUZZ_STRIDED) < chunks->strided.n);
            const uint64_t at =
                strided ? chunks->strided.data[chunk->at ^ FUZZ_STRIDED].at : chunk->at;
            REQUIRE(chunk->file < n && at <= sizes[chunk->file] &&
                    (strided || bytes <= sizes[chunk->file] - at));
            REQUIRE(rfs_chunks_locate(chunks, i, NULL) == 0);
        }
        REQUIRE(tensor->incomplete == (left > 0));
    }
    return chunks->tensors.n > 0;
}

#endif
