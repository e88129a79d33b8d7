/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/pages.h"

#include "base/vec.h"

bool rfs_pages_can_go(const struct rfs_mount *mount)
{
    return mount->options->set.max_threads >= 2;
}

/* Adds it to the list of inodes whose pages go. Under the lock of handles. False: no memory. */
static bool note(struct rfs_mount *mount, fuse_ino_t ino)
{
    for (size_t i = 0; i < mount->drops.n; i++)
        if (mount->drops.data[i] == ino)
            return true;
    return RFS_PUSH(&mount->drops, ino);
}

void rfs_pages_drop(struct rfs_mount *mount, fuse_ino_t ino)
{
    pthread_mutex_lock(&mount->handles_lock);
    const bool mine = note(mount, ino) && !mount->dropping;
    mount->dropping |= mine;
    while (mine && mount->drops.n > 0) {
        const fuse_ino_t next = mount->drops.data[--mount->drops.n];
        pthread_mutex_unlock(&mount->handles_lock);
        fuse_lowlevel_notify_inval_inode(mount->session, next, 0, 0);
        pthread_mutex_lock(&mount->handles_lock);
    }
    if (mine)
        mount->dropping = false;
    pthread_mutex_unlock(&mount->handles_lock);
}
