/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room: a block's share of a gather. */
#pragma once

#include "assemble/shape.h"
#include "store/files.h"

/* From this length on, a system call for each run costs less than copying it twice. */
#define RFS_LONG_RUN (UINT64_C(16) << 10)
/* Reading over a gap of this many bytes costs about as much as a system call. */
#define RFS_LONG_GAP (UINT64_C(8) << 10)

/*
 * A block's share of a range: runs [first, last]; the first may begin late, the last may end early.
 */
struct rfs_gather_job {
    struct rfs_shape shape;
    const struct rfs_block *block;
    struct rfs_reading *reading;
    unsigned char *scratch;
    unsigned char *dst; /* where byte dst_from of the block goes; NULL where ranges are noted */
    uint64_t dst_from;
    uint64_t first, last;
    uint64_t head; /* bytes of the first run to leave out */
    uint64_t tail; /* bytes of the last run to take; head counts in when they are the same run */
    /* NULL to read. Else nothing is copied: the ranges to read are noted here. */
    struct rfs_gather_ranges *ranges;
};

/* The wanted part of run K: its first byte in the run and, in *size, its length. */
uint64_t rfs_gather_wanted(const struct rfs_gather_job *job, uint64_t k, uint64_t *size);
/* Where byte FROM of run K goes: bytes from job->dst on. */
uint64_t rfs_gather_place(const struct rfs_gather_job *job, uint64_t k, uint64_t from);
/*
 * SIZE bytes from OFFSET of the block's source, relative to its first run, to PLACE, which may be
 * one to which reading is slow. 0 or -errno.
 */
int rfs_gather_read_run(const struct rfs_gather_job *job, uint64_t place, uint64_t size,
                        uint64_t offset);
/*
 * SIZE bytes from OFFSET of the block, of at most RFS_SCRATCH, where they can be copied from: in
 * the scratch, or where they are held. *window is NULL when there is nothing to copy. 0 or -errno.
 */
int rfs_gather_window(const struct rfs_gather_job *job, uint64_t size, uint64_t offset,
                      const unsigned char **window);

/* All of the job, of a strided block; gather_strided.c. 0 or -errno. */
int rfs_gather_strided(const struct rfs_gather_job *job);
