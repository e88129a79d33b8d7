/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the process (getrlimit(2)). Threads: all functions but those that raise. */
#pragma once

#include "base/error.h"

/* The number of descriptors for other things than source files. */
#define RFS_LIMITS_FILES_KEPT 16u

/* Allows as many descriptors as the hard limit does. For programs, as they start. */
void rfs_limits_raise_files(void);
/*
 * Gives this thread the stack of RFS_THREAD_STACK, and those that libraries start: ulimit -s may be
 * less. 0, or -ENOMEM with *err filled where the hard limit is. For programs, as they start.
 */
int rfs_limits_raise_stack(struct rfs_error *err);
/* Returns how many source files may be open at a time: at most MOST, at least 1. */
unsigned rfs_limits_files(unsigned most);
/* Returns the limit of addresses (RLIMIT_AS) in bytes; UINT64_MAX: any. */
uint64_t rfs_limits_addresses(void);
