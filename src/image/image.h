/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual file: sorted regions that cover it without a hole, each literal bytes (headers) or a range
 * of a target's bytes. Immutable once encoded, and the same for all ranks that share a roster: which
 * rank's bytes fill the tensor regions is the reader's business.
 *
 * Cost: 24 bytes a region (two for each tensor of up to 512 MiB) and the header bytes.
 */
#ifndef RFS_IMAGE_IMAGE_H
#define RFS_IMAGE_IMAGE_H

#include "plan/planner.h"

#define RFS_LITERAL UINT32_MAX

struct rfs_region {
    uint64_t start;  /* in the file; it ends where the next one starts */
    uint64_t at;     /* in image.literals, or in the target's bytes */
    uint32_t target; /* position in the roster, or RFS_LITERAL */
};

struct rfs_image {
    const struct rfs_roster *roster;
    uint64_t bytes; /* of the file */
    size_t n;
    struct rfs_region *regions;
    unsigned char *literals;
    size_t literal_bytes;
};

/* The .ckpt file that save_checkpoint writes for the roster; ckpt.c draws it. 0 or -ENOMEM. */
int rfs_image_ckpt(struct rfs_catalog *catalog, const struct rfs_roster *roster,
                   struct rfs_image **out);
void rfs_image_free(struct rfs_image *image);

/* The region that holds byte OFFSET, which is below image->bytes. O(log n). */
size_t rfs_image_find(const struct rfs_image *image, uint64_t offset);
static inline uint64_t rfs_image_end(const struct rfs_image *image, size_t region)
{
    return region + 1 < image->n ? image->regions[region + 1].start : image->bytes;
}

#endif
