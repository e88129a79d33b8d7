/* SPDX-License-Identifier: Apache-2.0 */
#include "base/write_whole.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int rfs_write_all(int fd, const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        const ssize_t n = write(fd, at, size);
        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int rfs_rename(int folder, const char *from, const char *to, bool replace)
{
    if (!replace) {
        if (renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EINVAL && errno != ENOSYS)
            return -errno;
        /* A link, too, is never made over what is there; file systems without links have the look alone. */
        if (linkat(folder, from, folder, to, 0) == 0)
            return unlinkat(folder, from, 0) == 0 ? 0 : -errno;
        if (errno == EEXIST || faccessat(folder, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return -EEXIST;
    }
    return renameat(folder, from, folder, to) == 0 ? 0 : -errno;
}

/* What mkostemp makes is for its owner alone. */
static int complete(int fd, const void *data, size_t size)
{
    const mode_t mask = umask(0);
    umask(mask);
    int rc = fchmod(fd, 0666 & ~mask) == 0 ? 0 : -errno;
    if (rc == 0)
        rc = rfs_write_all(fd, data, size);
    if (rc == 0 && fsync(fd) != 0)
        rc = -errno;
    return rc;
}

int rfs_write_whole(const char *path, const void *data, size_t size, bool replace,
                    const char **what)
{
    RFS_FREE char *temporary = NULL;

    *what = "cannot create";
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
        temporary = NULL;
        return -ENOMEM;
    }
    RFS_CLOSE int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *what = "cannot write";
    int rc = complete(fd, data, size);
    if (close(rfs_steal_fd(&fd)) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0)
        rc = rfs_rename(AT_FDCWD, temporary, path, replace);
    if (rc)
        unlink(temporary);
    return rc;
}
