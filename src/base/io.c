/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int rfs_io_pread_all(int fd, void *buf, size_t n, uint64_t offset)
{
    for (char *to = buf; n > 0;) {
        const ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        to += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

ssize_t rfs_io_read_most(int fd, void *buf, size_t n)
{
    size_t done = 0;

    while (done < n) {
        const ssize_t got = read(fd, (char *)buf + done, n - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int rfs_io_write_all(int fd, const void *data, size_t size)
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

/* ---- files that are written whole ------------------------------------------------------------ */

int rfs_io_rename(int folder, const char *from, const char *to, bool replace)
{
    if (!replace) {
        if (renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EINVAL && errno != ENOSYS)
            return -errno;
        /*
         * A link never replaces a file either. On file systems without links only the check below
         * protects it.
         */
        if (linkat(folder, from, folder, to, 0) == 0)
            return unlinkat(folder, from, 0) == 0 ? 0 : -errno;
        if (errno == EEXIST || faccessat(folder, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return -EEXIST;
    }
    return renameat(folder, from, folder, to) == 0 ? 0 : -errno;
}

int rfs_io_temporary_open(const char *path, char **name, int *fd)
{
    *fd = -1;
    *name = rfs_text_printf("%s.XXXXXX", path);
    if (!*name)
        return -ENOMEM;
    *fd = mkostemp(*name, O_CLOEXEC);
    const int rc = *fd < 0 ? -errno : 0;
    if (rc) {
        free(*name); /* none was made */
        *name = NULL;
        return rc;
    }
    /* The file of mkostemp is for its owner alone. */
    const mode_t mask = umask(0);
    umask(mask);
    return fchmod(*fd, 0666 & ~mask) == 0 ? 0 : -errno;
}

int rfs_io_temporary_finish(char **name, int *fd, const char *path, bool replace)
{
    int rc = fsync(*fd) == 0 ? 0 : -errno;

    if (close(rfs_steal_fd(fd)) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0)
        rc = rfs_io_rename(AT_FDCWD, *name, path, replace);
    if (rc)
        return rc;
    free(*name);
    *name = NULL;
    return 0;
}

void rfs_io_temporary_drop(char **name, int *fd)
{
    if (*fd >= 0)
        close(rfs_steal_fd(fd));
    if (*name)
        unlink(*name);
    free(*name);
    *name = NULL;
}

int rfs_io_write_whole(const char *path, const void *data, size_t size, bool replace,
                       const char **what)
{
    char *name;
    int fd;
    int rc = rfs_io_temporary_open(path, &name, &fd);

    *what = fd < 0 ? "cannot create" : "cannot write";
    if (rc == 0)
        rc = rfs_io_write_all(fd, data, size);
    if (rc == 0)
        rc = rfs_io_temporary_finish(&name, &fd, path, replace);
    rfs_io_temporary_drop(&name, &fd);
    return rc;
}
