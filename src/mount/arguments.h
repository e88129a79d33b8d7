/* SPDX-License-Identifier: Apache-2.0 */
/* A session of libfuse, with the options of a mount. */
#pragma once

#include "base/error.h"
#include "mount/fuse.h"
#include "mount/options.h"

/*
 * Always read-only, without devices and set-uid bits. NULL with *err filled; MOUNTPOINT is for the
 * message.
 */
struct fuse_session *rfs_arguments_session(const struct rfs_mount_options *options,
                                           const struct fuse_lowlevel_ops *ops, void *userdata,
                                           const char *mountpoint, struct rfs_error *err);
