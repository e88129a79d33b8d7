/* SPDX-License-Identifier: Apache-2.0 */
#include "image/build.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

void rfs_image_free(struct rfs_image *image)
{
    if (!image)
        return;
    free(image->regions);
    free(image->literals);
    free(image);
}

size_t rfs_image_find(const struct rfs_image *image, uint64_t offset)
{
    size_t low = 0;
    size_t high = image->n;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (image->regions[middle].start <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int rfs_image_text(const char *text, size_t n, struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};

    *out = NULL;
    if (!rfs_bytes_put(&builder.literals, text, n) || !rfs_image_add_literals(&builder, 0))
        return -ENOMEM;
    return rfs_image_finish(&builder, NULL, out);
}
