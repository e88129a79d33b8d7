/* SPDX-License-Identifier: Apache-2.0 */
/* What the process gives up before it reads a key. */
#ifndef RFS_BASE_HARDEN_H
#define RFS_BASE_HARDEN_H

#include "base/error.h"

/*
 * No core file, and nobody of the same user who reads its memory or attaches a debugger: the process is not
 * dumpable, nor is what it forks. 0, or -errno with *err filled.
 */
int rfs_harden(struct rfs_error *err);

#endif
