/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the pickle in .metadata of torch's distributed checkpoints.
 *
 * Nothing in it is executed: a name is one of a short list, and stands for itself. What is called
 * makes a plain value (torch.Size(x) is x), or nothing that is looked at. Any other name, and any
 * opcode that torch does not write, is refused. It is read in one pass, a window at a time, and
 * without recursion.
 *
 * Cost: linear time. Memory: rfs_dcp_memory at most, about twice the file for those of torch.
 */
#pragma once

#include "base/error.h"
#include "formats/chunks/dcp_value.h"
#include "formats/walker.h"

#define RFS_DCP_MOST ((uint64_t)1 << 30) /* bytes of a file that is read */

/* Bytes of memory that reading a file of N bytes may take. */
static inline size_t rfs_dcp_memory(uint64_t n)
{
    return (size_t)(3 * (n < RFS_DCP_MOST ? n : RFS_DCP_MOST)) + ((size_t)1 << 20);
}

/*
 * READ, SIZE and FILE as of rfs_ckpt_walk. 0; -EINVAL for a damaged pickle, -ENOTSUP for one with
 * other opcodes or names, -EFBIG for one that would take more memory, -ENOMEM, or READ's error,
 * each with *err filled.
 */
int rfs_dcp_pickle_read(rfs_read_fn *read, void *ctx, uint64_t size, const char *file,
                        struct rfs_dcp_pickle *out, struct rfs_error *err);
void rfs_dcp_pickle_free(struct rfs_dcp_pickle *pickle);
