/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of values: all of a small one, and parts of a large one from its beginning, middle and
 * end. Slices of trained weights differ nearly everywhere, so samples tell slices apart.
 */
#pragma once

#include "plan/internal.h"

#define RFS_SAMPLE_PARTS 3u
#define RFS_SAMPLE_PART 1024
#define RFS_SAMPLE_BYTES (RFS_SAMPLE_PARTS * RFS_SAMPLE_PART)

/*
 * Sets *FROM to where part P of a sample of BYTES is in the value; in the sample it is at P *
 * RFS_SAMPLE_PART. Returns its bytes: a small value is all in its first part.
 */
static inline size_t rfs_sample_part(uint64_t bytes, unsigned p, uint64_t *from)
{
    const bool all = bytes <= RFS_SAMPLE_BYTES;

    *from = all ? 0 : (bytes - RFS_SAMPLE_PART) / (RFS_SAMPLE_PARTS - 1) * p;
    return !all ? RFS_SAMPLE_PART : p == 0 ? (size_t)bytes : 0;
}

/*
 * Reads parts FIRST to END - 1 of an entry of a rank's index to their places in DATA, which has
 * RFS_SAMPLE_BYTES. The bytes of the entry lie in a row. Returns 0 or -errno.
 */
int rfs_sample_read(const struct rfs_planning *planning, uint32_t rank,
                    const struct rfs_index *index, const struct rfs_entry *entry, unsigned first,
                    unsigned end, unsigned char *data);
