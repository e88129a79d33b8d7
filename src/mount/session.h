/* SPDX-License-Identifier: Apache-2.0 */
/* One mount, from mount(2) to unmount. */
#pragma once

#include "base/error.h"
#include "mount/keeper.h"
#include "mount/mount_options.h"
#include "mount/sandbox.h"
#include "reshard.h"

/* Returns whether the mount is not wanted any more; 0: it is. */
typedef int rfs_session_answers_fn(void *ctx);
/*
 * Has KEEPER mount VIEW on MOUNTPOINT (absolute; /dev/fd/N without a keeper) and answers until it
 * is unmounted or a signal (INT, TERM, in the foreground HUP as well) asks for that. answers(ctx)
 * is called once, by the thread that has answered the first request (INIT); if it returns non-zero,
 * the mount is not wanted any more and goes at once. Returns 0, or -errno with *err filled when the
 * mount cannot be made or broke.
 */
int rfs_session_run(const struct rfs_mount_options *options, const char *mountpoint,
                    struct rfs_keeper *keeper, const struct rfs_sandbox *sandbox,
                    reshard_view *view, rfs_session_answers_fn *answers, void *ctx,
                    struct rfs_error *err);
