/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfuse's low-level interface, at the one version that this room is written for, and sessions of
 * it. What libfuse and fusermount3 print meanwhile is caught, so both functions are only for a
 * process with one thread.
 */
#pragma once

#include "base/error.h"

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

struct rfs_mount_options;

/*
 * Makes a session with the options of a mount: always read-only, without devices and set-uid bits.
 * NULL with *err filled; MOUNTPOINT is for the message.
 */
struct fuse_session *rfs_fuse_session(const struct rfs_mount_options *options,
                                      const struct fuse_lowlevel_ops *ops, void *userdata,
                                      const char *mountpoint, struct rfs_error *err);

/* Mounts a session at PLACE. 0, or -EIO with the reason in SAID, of CAP bytes. */
int rfs_fuse_mount(struct fuse_session *session, const char *place, char *said, size_t cap);
