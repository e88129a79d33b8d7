/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/stock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

void rfs_stock_free(struct rfs_stock *stock)
{
    free(stock->ranges.data);
    free(stock->items.data);
    free(stock->strided.data);
    *stock = (struct rfs_stock){0};
}

bool rfs_stock_begin(struct rfs_stock *stock)
{
    return RFS_PUSH(&stock->items, (struct rfs_stock_item){stock->ranges.n, 0, 0, 0, true, 0});
}

bool rfs_stock_add(struct rfs_stock *stock, uint32_t file, const struct rfs_range *range)
{
    struct rfs_stock_item *item = &stock->items.data[stock->items.n - 1];
    const struct rfs_zip_entry *record = range->record;
    const struct rfs_stock_range added = {
        file, range->bytes, {.offset = record->offset + range->offset}};

    if (range->bytes == 0)
        return true;
    if (!RFS_PUSH(&stock->ranges, added))
        return false;
    /* A checksum of 0 may be one that nobody computed. */
    if (!item->crc_known || range->bytes != record->bytes || record->crc == 0)
        item->crc_known = false;
    else
        item->crc = (uint32_t)crc32_combine(item->crc, record->crc, (z_off_t)range->bytes);
    item->n++;
    item->bytes += range->bytes;
    return true;
}

bool rfs_stock_set_strided(struct rfs_stock *stock, const struct rfs_type *type,
                           const uint64_t *strides)
{
    struct rfs_stock_item *item = &stock->items.data[stock->items.n - 1];
    struct rfs_stock_strided strided = {.type = *type};

    memcpy(strided.stride, strides, type->ndim * sizeof *strides);
    if (!RFS_PUSH(&stock->strided, strided))
        return false;
    item->strided = (uint32_t)stock->strided.n;
    item->bytes = type->bytes;
    item->crc_known = false;
    return true;
}

int rfs_stock_slice(const struct rfs_stock *stock, uint32_t number, struct rfs_slice *slice)
{
    const struct rfs_stock_item *item = &stock->items.data[number];
    uint64_t at = 0;

    slice->n = 0;
    slice->bytes = item->bytes;
    for (size_t i = 0; i < item->n; i++) {
        const struct rfs_stock_range *range = &stock->ranges.data[item->first + i];
        if (slice->n == slice->cap &&
            !rfs_vec_grow((void **)&slice->blocks, &slice->cap, slice->n, sizeof *slice->blocks))
            return -ENOMEM;
        struct rfs_block *block = &slice->blocks[slice->n++];
        block->file = range->file;
        block->content = (struct rfs_content){.offset = range->entry.offset};
        block->dst = at;
        block->src = 0;
        block->run = range->bytes;
        block->dst_end = at + range->bytes;
        block->n_loops = 0;
        block->strided = false;
        if (item->strided > 0) {
            const struct rfs_stock_strided *strided = &stock->strided.data[item->strided - 1];
            rfs_block_whole(block, &strided->type, strided->stride);
        }
        at += range->bytes;
    }
    rfs_slice_name(slice);
    return 0;
}
