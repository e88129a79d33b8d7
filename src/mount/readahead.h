/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's read-ahead for one mount. */
#pragma once

#include "base/std.h"
#include <sys/types.h>

/*
 * Raises the read-ahead of the mount with device DEV to 1 MiB, which the kernel otherwise holds at
 * 128 KiB. Only after the mount answers: until then the kernel would set it back. 0, or -errno
 * where this process may not.
 */
int rfs_readahead_raise(dev_t dev);
/* If RC, of rfs_readahead_raise, is not 0, logs a line that explains how root can raise it. */
void rfs_readahead_report(dev_t dev, int rc);
