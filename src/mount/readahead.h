/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's read-ahead for one mount. */
#ifndef RFS_MOUNT_READAHEAD_H
#define RFS_MOUNT_READAHEAD_H

#include <sys/types.h>

/*
 * Raises the read-ahead of the mount with device DEV to 1 MiB, which the kernel otherwise holds at 128
 * KiB, where this process may; else logs one line saying who could. Only after the mount answers:
 * until then the kernel would set it back.
 */
void rfs_readahead_raise(dev_t dev);

#endif
