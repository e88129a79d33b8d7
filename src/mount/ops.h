/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers to the kernel's requests. Any of them runs on any of the session's threads; they
 * share the view, which needs no lock, and struct rfs_mount.
 */
#pragma once

#include "base/std.h"
#include "mount/fuse.h"

/* The operations that are answered, and those that would write and are refused. */
void rfs_ops_fill(struct fuse_lowlevel_ops *ops);
void rfs_ops_refuse_writes(struct fuse_lowlevel_ops *ops);
