/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/output.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int fail_write(const char *path, const char *what, int code, struct rfs_error *err)
{
    const char *remedy = code == ENOSPC || code == EDQUOT ? "free some room, then the same again"
                         : code == EACCES || code == EROFS || code == ENOENT || code == ENOTDIR
                             ? "a folder that is there and that you may write to"
                             : NULL;
    return rfs_fail(err, -code, RFS_IN(path), remedy, "%s: %s", what, strerror(code));
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        const ssize_t n = write(fd, data, size);
        if (n < 0 && errno != EINTR)
            return -errno;
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Not over what is there, where the file system can see to that. */
static int give_name(const char *temporary, const char *path, bool force)
{
    if (force)
        return rename(temporary, path) == 0 ? 0 : -errno;
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (link(temporary, path) != 0)
        return -errno;
    unlink(temporary);
    return 0;
}

/* What mkostemp makes is for its owner alone. */
static int complete(int fd, const void *data, size_t size)
{
    const mode_t mask = umask(0);
    umask(mask);
    int rc = fchmod(fd, 0666 & ~mask) == 0 ? 0 : -errno;
    if (rc == 0)
        rc = write_all(fd, data, size);
    if (rc == 0 && fsync(fd) != 0)
        rc = -errno;
    return rc;
}

int rfs_output_write(const char *path, const void *data, size_t size, bool force,
                     struct rfs_error *err)
{
    RFS_FREE char *temporary = NULL;
    struct stat st;

    if (strcmp(path, "-") == 0) {
        if (fwrite(data, 1, size, stdout) == size)
            return 0;
        return rfs_fail(err, -EIO, RFS_NOWHERE, NULL, "cannot write to the standard output");
    }
    if (!force && lstat(path, &st) == 0)
        return rfs_fail(err, -EEXIST, RFS_IN(path), "another name, or --force to replace it",
                        "is there already");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return rfs_fail(err, -EEXIST, RFS_IN(path), "another name", "is there, and is no file");
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
        temporary = NULL;
        return rfs_fail_memory(err);
    }
    RFS_CLOSE int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return fail_write(path, "cannot create", errno, err);
    int rc = complete(fd, data, size);
    if (rc == 0)
        rc = give_name(temporary, path, force);
    if (rc == 0)
        return 0;
    unlink(temporary);
    return fail_write(path, "cannot write", -rc, err);
}
