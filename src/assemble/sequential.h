/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a reader through its file, and how far ahead of it is worth reading.
 *
 * A sequential run is the reads close to each other since the reader last jumped. Bytes read in
 * sequence count for it, holes against it. Ahead of it may be read
 *   - of data that has to be gathered, which stays cached for later readers: as many bytes as it
 *     has read;
 *   - of contiguous data, which is read for this reader alone: a tenth of them. So a reader that
 *     stops, or jumps, has cost at most 1.1 times the bytes that it was given, whatever it read;
 * in both cases less the holes, and at most RFS_AHEAD_BYTES.
 *
 * Where sources are slow, a request that comes too late costs much more than some bytes in vain: of
 * those, as many bytes as it has read are read ahead (sixteen times as many of object storage), of
 * either kind, less the holes, and at most the given limit.
 *
 * No lock, no I/O.
 */
#pragma once

#include "assemble/assembler.h"

#define RFS_AHEAD_BYTES (UINT64_C(4) << 20)
#define RFS_AHEAD_SHARE 10 /* the part, of the bytes read in sequence, that may be read in vain */

#define RFS_REMOTE_TIMES 16 /* so many times what was read is read ahead of object storage */

/* The reads of a reader; all 0 before its first. */
struct rfs_sequential {
    uint64_t begin, end; /* range of the file that has the bytes read */
    uint64_t bytes;      /* bytes that were read */
    /* Ends of what was requested to be read ahead: */
    uint64_t kept_to;   /* gathered bytes, which stay in the cache */
    uint64_t lent_to;   /* contiguous ones, which are passed on and forgotten */
    uint64_t staged_to; /* bytes of slow sources */
    bool staging;       /* the last window of those is not staged yet */
};

/*
 * Notes that [offset, end) is being read, end > offset. Returns whether the reader goes on from
 * where it was. If so, *ahead gets the windows to read ahead that were not given before; else they
 * are 0.
 */
bool rfs_sequential_note(struct rfs_sequential *sequential, uint64_t offset, uint64_t end,
                         struct rfs_windows *ahead);

/*
 * Returns the next window to read ahead in slow sources, after a note of a reader that goes on with
 * a read at OFFSET; 0 if there is none: up to REACH bytes ahead, and TIMES as many as it has read.
 * The first window has that read, too: its bytes are requested first, and not when all others are.
 * Windows are steps of the TIMESth part of REACH, and so large that each of SOURCES files may have
 * a large request of a step, but at most a quarter of REACH: requests of one step end together, and
 * leave the storage idle. While one window is being staged, there is none for other threads, and
 * none for a read of the reader before it jumped.
 */
struct rfs_window rfs_sequential_prefetch(struct rfs_sequential *sequential, uint64_t offset,
                                          uint64_t reach, uint32_t sources, unsigned times);
/*
 * Notes that the window was staged. ROOM is false if there was no room for it: a later call returns
 * its bytes again.
 */
void rfs_sequential_staged(struct rfs_sequential *sequential, const struct rfs_window *window,
                           bool room);
