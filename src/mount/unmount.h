/* SPDX-License-Identifier: Apache-2.0 */
/* `reshardfs -u MNT`: unmounts for a user, also what is in use. */
#pragma once

#include "base/error.h"

/*
 * Unmounts a mount of reshardfs. One that processes use is taken off the tree, and ends with the
 * last of them; a warning names them. Nothing on the mount is asked, so a server that hangs does
 * not matter. 0, or -errno with *err filled.
 */
int rfs_unmount_path(const char *given, struct rfs_error *err);
