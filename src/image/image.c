/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image.h"

#include "base/order.h"

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
    const size_t behind = RFS_BISECT(i, image->n, image->regions[i].start > offset);

    return behind > 0 ? behind - 1 : 0;
}
