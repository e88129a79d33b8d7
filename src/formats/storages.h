/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of source files that an image has, and where they are: rows of ranges. Made once with
 * the image; immutable then.
 *
 * Cost: 40 bytes a storage and 24 a range.
 */
#pragma once

#include "base/vec.h"
#include "formats/index.h"

struct rfs_storage_range {
    uint32_t file;   /* number in struct rfs_files */
    uint64_t offset; /* where it begins in the file */
    uint64_t bytes;
};

struct rfs_storage_item {
    size_t first; /* its first range */
    size_t n;     /* number of its ranges */
    uint64_t bytes;
    uint32_t crc;   /* CRC-32 of its bytes, if crc_known */
    bool crc_known; /* it consists of ranges with checksums */
};

struct rfs_storages {
    RFS_VEC(struct rfs_storage_range) ranges;
    RFS_VEC(struct rfs_storage_item) items;
};

void rfs_storages_free(struct rfs_storages *storages);
/* Begins an item, whose ranges follow. False when out of memory. */
bool rfs_storages_begin(struct rfs_storages *storages);
/* Adds a range of FILE, whose CRC-32 is CRC, or 0 if it is not known. False when out of memory. */
bool rfs_storages_add(struct rfs_storages *storages, uint32_t file, uint64_t offset, uint64_t bytes,
                      uint32_t crc);
