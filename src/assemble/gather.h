/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a range of a slice from its sources into memory. No cache, no lock of its own. */
#pragma once

#include "assemble/distance.h"
#include "base/vec.h"
#include "catalog/catalog.h"
#include "plan/slice.h"

/* Bytes of memory for source windows that a gathering thread brings; they stay in the L2 cache. */
#define RFS_SCRATCH (UINT64_C(256) << 10)
/* Bytes of a scratch with its padding, which lets windows begin where copying is fast. */
#define RFS_SCRATCH_ROOM (RFS_SCRATCH + 2 * RFS_DISTANCE_STEP)

/*
 * Says when the sources are checked for changes: before rfs_gather returns, or by its caller,
 * which then calls rfs_files_check for each file.
 */
enum rfs_gather_proof { RFS_GATHER_PROVEN, RFS_GATHER_UNPROVEN };

/* What a caller has of the bytes already, and whether it reads ahead. */
struct rfs_gather_held {
    const struct rfs_held *ranges; /* [n] borrowed */
    size_t n;
    bool ahead; /* no request depends on the bytes yet; see struct rfs_reading */
};
/*
 * Reads bytes [begin, end) of the slice into dst. SCRATCH has RFS_SCRATCH_ROOM bytes. Reads no
 * source byte but those wanted and short gaps between them. Has one file in use at a time, so that
 * readers can't block each other over descriptors. 0 or -errno; the bytes are good only when 0.
 */
int rfs_gather(struct rfs_files *files, const struct rfs_slice *slice, uint64_t begin, uint64_t end,
               unsigned char *scratch, unsigned char *dst, enum rfs_gather_proof proof,
               const struct rfs_gather_held *held);

/* No place in a file: no offset is near to it. */
#define RFS_NO_SOURCE UINT64_MAX

/*
 * Ranges that rfs_gather would read, in its order: each is a request, or several that follow each
 * other.
 */
struct rfs_gather_range {
    uint32_t file;
    uint64_t from, to; /* offsets in the file */
    uint64_t next;     /* where its block goes on in the file; else RFS_NO_SOURCE */
};
struct rfs_gather_ranges {
    struct rfs_gather_range *data;
    size_t n, cap;
    size_t requests; /* number of reads that it would make */
};
/*
 * Appends the ranges that rfs_gather would read, up to RFS_GATHER_MOST in all; those behind are
 * left out. 0 or -ENOMEM. Reads nothing.
 */
int rfs_gather_note(const struct rfs_slice *slice, uint64_t begin, uint64_t end,
                    struct rfs_gather_ranges *ranges);
#define RFS_GATHER_MOST 65536

/*
 * Says whether [begin, end) is made of so short runs that it is worth assembling once and keeping;
 * if not, it is as well read from the sources each time.
 */
bool rfs_gather_needed(const struct rfs_slice *slice, uint64_t begin, uint64_t end);

/*
 * Returns where in a source file byte BEGIN of the slice is, if it is in a contiguous block; else
 * RFS_NO_SOURCE.
 */
uint64_t rfs_gather_source(const struct rfs_slice *slice, uint64_t begin);

/* Says whether the block gives a byte of [begin, end). */
bool rfs_gather_touches(const struct rfs_block *block, uint64_t begin, uint64_t end);
