/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RFS_ASSEMBLE_AHEAD_H
#define RFS_ASSEMBLE_AHEAD_H

#include <stdint.h>

struct rfs_assembler;
struct rfs_slice;

/* The reader is there already: the piece need not be made ahead any more if nobody has begun. */
void rfs_ahead_cancel(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                      uint64_t number);

/* Drops what is queued. */
void rfs_ahead_drop(struct rfs_assembler *assembler);
/* The same, and waits until nothing is being made. */
void rfs_ahead_stop(struct rfs_assembler *assembler);

#endif
