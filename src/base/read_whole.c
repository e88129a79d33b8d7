/* SPDX-License-Identifier: Apache-2.0 */
#include "base/read_whole.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/store.h"

#include <fcntl.h>
#include <sys/stat.h>

static int fail_errno(struct rfs_error *err, const char *path, int code)
{
    const char *remedy = code == ENOENT || code == ENOTDIR ? "check the path"
                         : rfs_is_url(path)                ? rfs_store_remedy(path, code)
                         : code == EACCES                  ? "check the file's permissions"
                                                           : NULL;
    return rfs_fail(err, -code, RFS_IN(path), remedy, "cannot be read: %s",
                    rfs_store_why(path, code));
}

static int fail_limit(struct rfs_error *err, const char *path, size_t limit)
{
    return rfs_fail(err, -EFBIG, RFS_IN(path), "check that it is the file you meant",
                    "the file is larger than %zu bytes", limit);
}

static int read_object(struct rfs_object *object, const struct stat *st, const char *url,
                       size_t limit, char **data, size_t *size, struct rfs_error *err)
{
    if ((uint64_t)st->st_size > limit || limit >= SIZE_MAX - 1)
        return fail_limit(err, url, limit);
    const size_t n = (size_t)st->st_size;
    RFS_FREE char *buf = malloc(n + 1);
    if (!buf)
        return rfs_fail_memory_of(err, url);
    struct iovec span = {buf, n};
    const int rc = n > 0 ? rfs_store_objects()->read(object, &span, 1, 0) : 0;
    if (rc < 0)
        // cppcheck-suppress memleak; RFS_FREE frees it
        return fail_errno(err, url, -rc);
    buf[n] = '\0';
    *data = RFS_STEAL(buf);
    *size = n;
    return 0;
}

/* An object. */
static int read_url(const char *url, size_t limit, char **data, size_t *size, struct rfs_error *err)
{
    struct rfs_object *object = NULL;
    struct stat st;
    int rc = rfs_store_objects()->hold(url, &object, &st);

    if (rc < 0)
        return fail_errno(err, url, -rc);
    rc = read_object(object, &st, url, limit, data, size, err);
    rfs_store_objects()->let_go(object);
    return rc;
}

int rfs_read_whole(const char *path, size_t limit, char **data, size_t *size, struct rfs_error *err)
{
    int fd;

    if (rfs_is_url(path))
        return read_url(path, limit, data, size, err);
    do
        fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR && !rfs_cancelled());
    RFS_CLOSE const int opened = fd < 0 ? -errno : fd;
    return rfs_read_whole_fd(opened, path, limit, data, size, err);
}

int rfs_read_whole_fd(int fd, const char *path, size_t limit, char **data, size_t *size,
                      struct rfs_error *err)
{
    if (fd < 0)
        return fail_errno(err, path, -fd);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_errno(err, path, errno);
    if (S_ISDIR(st.st_mode))
        return rfs_fail(err, -EISDIR, RFS_IN(path), "name a file in it", "is a folder");
    if (!S_ISREG(st.st_mode))
        return rfs_fail(err, -EINVAL, RFS_IN(path), "copy it to a file first",
                        "is not a regular file");
    if (st.st_size < 0 || (uint64_t)st.st_size > limit || limit >= SIZE_MAX - 1)
        return fail_limit(err, path, limit);

    /* One byte more than it should have, to see it grow. */
    const size_t cap = (size_t)st.st_size + 1;
    RFS_FREE char *buf = malloc(cap + 1);
    if (!buf)
        return rfs_fail_memory_of(err, path);
    const ssize_t n = rfs_read_most(fd, buf, cap);
    if (n < 0)
        return fail_errno(err, path, (int)-n);
    if (n != st.st_size)
        return rfs_fail(err, -ESTALE, RFS_IN(path), "try again once nobody writes it",
                        "the file changed while it was read");
    buf[n] = '\0';
    *data = RFS_STEAL(buf);
    *size = (size_t)n;
    return 0;
}
