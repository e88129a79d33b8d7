/* SPDX-License-Identifier: Apache-2.0 */
#include "hfai/storages.h"

#include <zlib.h>

void rfs_storages_free(struct rfs_storages *storages)
{
    free(storages->ranges.data);
    free(storages->items.data);
    free(storages->strided.data);
    *storages = (struct rfs_storages){0};
}

bool rfs_storages_begin(struct rfs_storages *storages)
{
    return RFS_PUSH(&storages->items,
                    (struct rfs_storage_item){storages->ranges.n, 0, 0, 0, true, 0});
}

bool rfs_storages_add(struct rfs_storages *storages, uint32_t file, const struct rfs_range *range)
{
    struct rfs_storage_item *item = &storages->items.data[storages->items.n - 1];
    const struct rfs_zip_entry *record = range->record;
    const struct rfs_storage_range added = {
        file, range->bytes, {.offset = record->offset + range->offset}};

    if (range->bytes == 0)
        return true;
    if (!RFS_PUSH(&storages->ranges, added))
        return false;
    /* A checksum of 0 may mean that it was not computed. */
    if (!item->crc_known || range->bytes != record->bytes || record->crc == 0)
        item->crc_known = false;
    else
        item->crc = (uint32_t)crc32_combine(item->crc, record->crc, (z_off_t)range->bytes);
    item->n++;
    item->bytes += range->bytes;
    return true;
}

bool rfs_storages_set_strided(struct rfs_storages *storages, const struct rfs_type *type,
                              const uint64_t *strides)
{
    struct rfs_storage_item *item = &storages->items.data[storages->items.n - 1];
    struct rfs_storages_strided strided = {.type = *type};

    memcpy(strided.stride, strides, type->ndim * sizeof *strides);
    if (!RFS_PUSH(&storages->strided, strided))
        return false;
    item->strided = (uint32_t)storages->strided.n;
    item->bytes = type->bytes;
    item->crc_known = false;
    return true;
}

int rfs_storages_slice(const struct rfs_storages *storages, uint32_t number,
                       struct rfs_slice *slice)
{
    const struct rfs_storage_item *item = &storages->items.data[number];
    uint64_t at = 0;

    slice->n = 0;
    slice->bytes = item->bytes;
    for (size_t i = 0; i < item->n; i++) {
        const struct rfs_storage_range *range = &storages->ranges.data[item->first + i];
        struct rfs_block *block = rfs_slice_add(slice);
        if (!block)
            return -ENOMEM;
        *block = (struct rfs_block){.file = range->file,
                                    .content = {.offset = range->entry.offset},
                                    .dst = at,
                                    .run = range->bytes,
                                    .dst_end = at + range->bytes};
        if (item->strided > 0) {
            const struct rfs_storages_strided *strided = &storages->strided.data[item->strided - 1];
            rfs_slice_block_whole(block, &strided->type, strided->stride);
        }
        at += range->bytes;
    }
    rfs_slice_name(slice);
    return 0;
}
