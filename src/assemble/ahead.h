/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RFS_ASSEMBLE_AHEAD_H
#define RFS_ASSEMBLE_AHEAD_H

#include "assemble/assembler.h"

/* Waits until no read-ahead job is queued or running. */
void rfs_ahead_wait(struct rfs_assembler *assembler);

#endif
