/* SPDX-License-Identifier: Apache-2.0 */
/* A range of a slice, read from its sources into memory. No cache, no lock of its own. */
#pragma once

#include "assemble/place.h"
#include "base/vec.h"
#include "catalog/catalog.h"
#include "plan/slice.h"

/* Bytes of memory for source windows that a gathering thread brings; they stay in the L2 cache. */
#define RFS_SCRATCH (UINT64_C(256) << 10)
/* The sum of those that the padding adds: windows begin where copying is fast. */
#define RFS_SCRATCH_ROOM (RFS_SCRATCH + 2 * RFS_PLACE_STEP)

/*
 * When the sources are checked for changes: before rfs_gather returns, or by its caller, which then
 * calls rfs_files_check for each file.
 */
enum rfs_gather_proof { RFS_GATHER_PROVEN, RFS_GATHER_UNPROVEN };

/*
 * Bytes [begin, end) of the slice into dst. SCRATCH has RFS_SCRATCH_ROOM bytes. Reads no source
 * byte but those wanted and short gaps between them. Has one file in use at a time, so that readers
 * can't block each other over descriptors. 0 or -errno; the bytes are good only when 0.
 */
int rfs_gather(struct rfs_files *files, const struct rfs_slice *slice, uint64_t begin, uint64_t end,
               unsigned char *scratch, unsigned char *dst, enum rfs_gather_proof proof);

/* For one that has some of the bytes already, or reads ahead. */
struct rfs_gather_held {
    const struct rfs_held *parts;
    size_t n;
    bool ahead; /* as in struct rfs_reading */
};
int rfs_gather_with(struct rfs_files *files, const struct rfs_slice *slice, uint64_t begin,
                    uint64_t end, unsigned char *scratch, unsigned char *dst,
                    enum rfs_gather_proof proof, const struct rfs_gather_held *held);

/*
 * The ranges that rfs_gather would read, in its order: each is a request, or several that follow
 * each other.
 */
struct rfs_gather_range {
    uint32_t file;
    uint64_t from, to; /* in the file */
};
struct rfs_gather_ranges {
    struct rfs_gather_range *data;
    size_t n, cap;
    size_t requests; /* how many reads it would make */
};
/*
 * Appends them, up to RFS_GATHER_MOST in all; those behind are left out. 0 or -ENOMEM. Reads
 * nothing.
 */
int rfs_gather_note(const struct rfs_slice *slice, uint64_t begin, uint64_t end,
                    struct rfs_gather_ranges *ranges);
#define RFS_GATHER_MOST 65536

/*
 * Whether [begin, end) is made of so short runs that it is worth assembling once and keeping; if
 * not, it is as well read from the sources each time.
 */
bool rfs_gather_needed(const struct rfs_slice *slice, uint64_t begin, uint64_t end);

/*
 * Where in a source file byte BEGIN of the slice is, if it is in a contiguous block; else
 * RFS_NO_SOURCE, which no address is near to.
 */
#define RFS_NO_SOURCE UINT64_MAX
uint64_t rfs_gather_source(const struct rfs_slice *slice, uint64_t begin);

/* Whether the block gives a byte of [begin, end). */
bool rfs_gather_touches(const struct rfs_block *block, uint64_t begin, uint64_t end);
