/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image.h"

#include <stdlib.h>

void rfs_image_free(struct rfs_image *image)
{
    if (!image)
        return;
    if (image->storages)
        rfs_storages_free(image->storages);
    free(image->storages);
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
