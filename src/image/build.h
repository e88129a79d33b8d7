/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: encoders put images together with these. */
#pragma once

#include "base/bytes.h"
#include "base/vec.h"
#include "image/image.h"

/*
 * Bytes are put into the literals, and regions of targets between them are added, in the order of
 * the file. rfs_image_finish returns failures. Zero-initialise; rfs_image_builder_end frees data
 * that was not taken over.
 */
struct rfs_image_builder {
    struct rfs_bytes literals;
    size_t covered;  /* of the literals: those that are in a region */
    uint64_t offset; /* in the file, of the literals that are in none */
    RFS_VEC(struct rfs_region) regions;
    bool failed;    /* out of memory */
    bool too_large; /* the file would be larger than a file can be */
};

/* The offset in the file of the next data put or added. */
static inline uint64_t rfs_image_here(const struct rfs_image_builder *builder)
{
    return builder->offset + (builder->literals.n - builder->covered);
}

/* Adds a region of a target's bytes, or RFS_CRC…, and returns its number; none when BYTES is 0. */
size_t rfs_image_add(struct rfs_image_builder *builder, uint32_t target, uint64_t at,
                     uint64_t bytes);
/*
 * The image, which takes the builder's arrays over. 0, -ENOMEM, or -EFBIG when it is larger than a
 * file can be.
 */
int rfs_image_finish(struct rfs_image_builder *builder, const struct rfs_params *params,
                     struct rfs_image **out);
void rfs_image_builder_end(struct rfs_image_builder *builder);
