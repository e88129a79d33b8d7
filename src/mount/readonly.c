/* SPDX-License-Identifier: Apache-2.0 */
/*
 * EROFS for every request that would change something. The kernel gives it by itself while the
 * mount is "ro"; these answer after a remount with "rw".
 */
#include "mount/ops.h"

static void no_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
{
    (void)ino, (void)attr, (void)to_set, (void)fi;
    fuse_reply_err(req, EROFS);
}

static void no_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    (void)parent, (void)name, (void)mode, (void)rdev;
    fuse_reply_err(req, EROFS);
}

static void no_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    (void)parent, (void)name, (void)mode;
    fuse_reply_err(req, EROFS);
}

static void no_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    (void)parent, (void)name;
    fuse_reply_err(req, EROFS);
}

static void no_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
    (void)link, (void)parent, (void)name;
    fuse_reply_err(req, EROFS);
}

static void no_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                      const char *new_name, unsigned flags)
{
    (void)parent, (void)name, (void)new_parent, (void)new_name, (void)flags;
    fuse_reply_err(req, EROFS);
}

static void no_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
    (void)ino, (void)new_parent, (void)new_name;
    fuse_reply_err(req, EROFS);
}

static void no_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    (void)ino, (void)buf, (void)size, (void)offset, (void)fi;
    fuse_reply_err(req, EROFS);
}

static void no_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    (void)parent, (void)name, (void)mode, (void)fi;
    fuse_reply_err(req, EROFS);
}

static void no_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                        size_t size, int flags)
{
    (void)ino, (void)name, (void)value, (void)size, (void)flags;
    fuse_reply_err(req, EROFS);
}

static void no_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    (void)ino, (void)name;
    fuse_reply_err(req, EROFS);
}

static void no_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                         struct fuse_file_info *fi)
{
    (void)ino, (void)mode, (void)offset, (void)length, (void)fi;
    fuse_reply_err(req, EROFS);
}

void rfs_ops_refuse_writes(struct fuse_lowlevel_ops *ops)
{
    ops->setattr = no_setattr;
    ops->mknod = no_mknod;
    ops->mkdir = no_mkdir;
    ops->unlink = no_remove;
    ops->rmdir = no_remove;
    ops->symlink = no_symlink;
    ops->rename = no_rename;
    ops->link = no_link;
    ops->write = no_write;
    ops->create = no_create;
    ops->setxattr = no_setxattr;
    ops->removexattr = no_removexattr;
    ops->fallocate = no_fallocate;
}
