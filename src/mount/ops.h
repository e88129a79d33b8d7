/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers to the kernel's requests. Any of them runs on any of the session's threads; they
 * share the view, which needs no lock, and struct rfs_mount.
 */
#pragma once

#include "mount/internal.h"

/* Fills in the operations that are answered, and those that would write and are refused. */
void rfs_ops_fill(struct fuse_lowlevel_ops *ops);

/* Takes one user from an open file; the last one closes it. */
void rfs_ops_leave_handle(struct rfs_mount *mount, struct rfs_handle *handle);
