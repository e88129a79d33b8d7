/* SPDX-License-Identifier: Apache-2.0 */
/* libfuse's low-level interface, at the one version that this room is written for. */
#ifndef RFS_MOUNT_FUSE_H
#define RFS_MOUNT_FUSE_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#endif
