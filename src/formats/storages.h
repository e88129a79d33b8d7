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
    /* index in strided + 1 of a tensor that is not row-major; else 0 */
    uint32_t strided;
};

/* A tensor of one range, with its elements in any order. */
struct rfs_storages_strided {
    struct rfs_type type;
    uint64_t stride[RFS_MAX_DIMS]; /* bytes */
};

struct rfs_storages {
    RFS_VEC(struct rfs_storage_range) ranges;
    RFS_VEC(struct rfs_storage_item) items;
    RFS_VEC(struct rfs_storages_strided) strided;
    uint64_t shown; /* bytes of the items that are shown as tensors, for rfs_torch_show */
};

void rfs_storages_free(struct rfs_storages *storages);
/* Begins an item, whose ranges follow. False when out of memory. */
bool rfs_storages_begin(struct rfs_storages *storages);
/* Adds a range of FILE, whose CRC-32 is CRC, or 0 if it is not known. False when out of memory. */
bool rfs_storages_add(struct rfs_storages *storages, uint32_t file, uint64_t offset, uint64_t bytes,
                      uint32_t crc);

/*
 * Makes the item that was begun last a tensor of TYPE in its one range. False when out of memory.
 */
bool rfs_storages_set_strided(struct rfs_storages *storages, const struct rfs_type *type,
                              const uint64_t *strides);
