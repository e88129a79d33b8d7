/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/storages.h"

#include <zlib.h>

void rfs_storages_free(struct rfs_storages *storages)
{
    free(storages->ranges.data);
    free(storages->items.data);
    *storages = (struct rfs_storages){0};
}

bool rfs_storages_begin(struct rfs_storages *storages)
{
    return RFS_PUSH(&storages->items, (struct rfs_storage_item){storages->ranges.n, 0, 0, 0, true});
}

bool rfs_storages_add(struct rfs_storages *storages, uint32_t file, uint64_t offset, uint64_t bytes,
                      uint32_t crc)
{
    struct rfs_storage_item *item = &storages->items.data[storages->items.n - 1];

    if (bytes == 0)
        return true;
    if (!RFS_PUSH(&storages->ranges, (struct rfs_storage_range){file, offset, bytes}))
        return false;
    if (!item->crc_known || crc == 0)
        item->crc_known = false;
    else
        item->crc = (uint32_t)crc32_combine(item->crc, crc, (z_off_t)bytes);
    item->n++;
    item->bytes += bytes;
    return true;
}
