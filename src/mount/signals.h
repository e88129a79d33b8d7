/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signals that end a mount: SIGINT and SIGTERM, unless they are ignored, and SIGHUP, which ends
 * a mount in the foreground alone. The guard (request.h) takes them from a descriptor.
 */
#pragma once

#include "base/std.h"

/*
 * Blocks these signals in the calling thread and the threads that it starts. To be called once
 * there is a mount: until then they end the process, even if it hangs.
 */
void rfs_signals_block(bool foreground);

/* Opens the descriptor that tells of these signals. It, or -1 with errno. */
int rfs_signals_open(bool foreground);

/* Takes the signals that have come. Returns whether one of them ends the mount. */
bool rfs_signals_take(int fd, bool foreground);
