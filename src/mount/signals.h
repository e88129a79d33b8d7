/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signals that end a mount: SIGINT and SIGTERM, unless they are ignored, and SIGHUP, which ends
 * a mount in the foreground alone, unless that follows its source. The guard (request.h) takes them
 * from a descriptor.
 */
#pragma once

#include "mount/mount_options.h"

/*
 * Blocks these signals in the calling thread and the threads that it starts. To be called once
 * there is a mount: until then they end the process, even if it hangs.
 */
void rfs_signals_block(const struct rfs_mount_options *options);

/* Opens the descriptor that tells of these signals. It, or -1 with errno. */
int rfs_signals_open(const struct rfs_mount_options *options);

/* What signals ask for. */
enum { RFS_SIGNALS_END = 1, RFS_SIGNALS_LOOK = 2 };
/* Takes the signals that have come. Returns what they ask for: that the mount ends, or looks. */
unsigned rfs_signals_take(int fd, const struct rfs_mount_options *options);
