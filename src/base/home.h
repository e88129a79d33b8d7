/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of data that is kept on disk between views. A program with a sandbox makes it before
 * it gives up that right.
 *
 * Threads: all functions, while none changes the environment.
 */
#pragma once

#include "base/std.h"

struct rfs_home {
    char *above; /* the folder above, made if it is missing; or NULL; owned */
    char *path;  /* the folder, absolute; owned */
};

/*
 * Finds the folder GIVEN, or reshardfs in $XDG_CACHE_HOME or ~/.cache if GIVEN is NULL. False when
 * there is no such place, or no memory, or if the process has more rights than its user; *out needs
 * no end then.
 */
bool rfs_home_find(const char *given, struct rfs_home *out);
void rfs_home_free(struct rfs_home *kept);

/*
 * Returns whether the folder above may be used; with MAKE, makes it if it is missing. Root uses no
 * folder of another user.
 */
bool rfs_home_reach(const struct rfs_home *kept, bool make);
/* Makes the folder, if it is missing. 0 or -errno; -EPERM where the one above may not be used. */
int rfs_home_make(const struct rfs_home *kept);
