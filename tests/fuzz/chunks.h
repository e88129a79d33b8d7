/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that a parser of any bytes has found. */
#ifndef FUZZ_CHUNKS_H
#define FUZZ_CHUNKS_H

#include "formats/chunks/chunks.h"
#include "tests/fuzz/fuzz.h"

/* Each tensor's chunks have as many bytes as it, and lie in the files of these N sizes. */
static inline void require_chunks(struct rfs_chunks *chunks, const uint64_t *sizes, size_t n)
{
    for (size_t t = 0; t < chunks->tensors.n; t++) {
        const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[t];
        uint64_t left = rfs_chunks_type(chunks, tensor->type)->bytes;
        for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
            const struct rfs_chunk *chunk = &chunks->chunks.data[i];
            const uint64_t bytes = rfs_chunks_type(chunks, chunk->type)->bytes;
            REQUIRE(bytes <= left);
            left -= bytes;
            REQUIRE(chunk->file < n && chunk->at <= sizes[chunk->file] &&
                    bytes <= sizes[chunk->file] - chunk->at);
            REQUIRE(rfs_chunks_locate(chunks, i, NULL) == 0);
        }
        REQUIRE(tensor->incomplete == (left > 0));
    }
}

#endif
