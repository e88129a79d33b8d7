/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths that lead into a file system that this process serves itself. To look a name up there is to wait for an answer that
 * this process has to give, and may not be able to.
 */
#ifndef RFS_SOURCE_IO_HOME_H
#define RFS_SOURCE_IO_HOME_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Whether PATH, which is absolute, comes to the file system DEVICE, through links and mounts, wherever it ends. Asks nothing of
 * that file system. What can't be walked leads nowhere: whoever opens it meets the reason.
 */
bool rfs_leads_home(const char *path, dev_t device);

#endif
