/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths that lead into a file system served by this process. Looking up a name there would wait for
 * this process itself, and may deadlock.
 */
#pragma once

#include "base/std.h"

#include <sys/types.h>

/*
 * Whether PATH, which is absolute, comes to the file system DEVICE, through links and mounts,
 * wherever it ends. Makes no request to that file system. False for a path that cannot be walked:
 * opening it gives the reason.
 */
bool rfs_leads_home(const char *path, dev_t device);
