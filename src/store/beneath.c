/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel does it, by openat2(2) with RESOLVE_BENEATH. Where it has no such call (before Linux
 * 5.6, or in a sandbox that does not know it), and for absolute links, which it refuses wherever
 * they lead, the path is resolved here, has to be beneath the folder, and is then walked without
 * following a link: if a link is put there meanwhile, nothing is opened.
 */
#include "store/beneath.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/read_whole.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef SYS_openat2
#include <linux/openat2.h>
#endif

#define TRIES 16 /* while folders of the path are renamed */

struct rfs_beneath {
    int fd;
    char *path; /* absolute, without links; ends in a slash */
    size_t length;
};

/* PATH as it begins what lies beneath it. */
static char *with_slash(const char *path)
{
    return rfs_path_join(path, "");
}

int rfs_beneath_open(const char *source, struct rfs_beneath **out, struct rfs_error *err)
{
    RFS_FREE char *path = NULL;
    struct stat st;

    *out = NULL;
    if (rfs_is_url(source))
        return 0;
    int rc = rfs_path_resolve(source, &path, err);
    if (rc < 0)
        return rc;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) /* its folder, which is resolved as well */
        strrchr(path, '/')[strrchr(path, '/') == path] = '\0';
    struct rfs_beneath *beneath = calloc(1, sizeof *beneath);
    if (!beneath)
        return rfs_fail_memory(err);
    beneath->path = with_slash(path);
    beneath->length = beneath->path ? strlen(beneath->path) : 0;
    beneath->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    rc = beneath->fd < 0 ? -errno : 0;
    if (beneath->path && rc == 0) {
        *out = beneath;
        return 0;
    }
    rfs_beneath_free(beneath);
    return rc < 0 ? rfs_fail(err, rc, RFS_IN(path), NULL, "the source cannot be reached: %s",
                             strerror(-rc))
                  : rfs_fail_memory(err);
}

void rfs_beneath_free(struct rfs_beneath *beneath)
{
    if (!beneath)
        return;
    if (beneath->fd >= 0)
        close(beneath->fd);
    free(beneath->path);
    free(beneath);
}

/* NAME beneath DIR, or -ENOSYS when that has to be found out otherwise. */
static int by_kernel(int dir, const char *name, int flags)
{
#ifdef SYS_openat2
    const struct open_how how = {.flags = (uint64_t)(unsigned)flags,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    for (unsigned i = 0; i < TRIES;) {
        const long fd = syscall(SYS_openat2, dir, name, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno == EINTR && !rfs_cancelled())
            continue;
        if (errno != EAGAIN)
            return errno == EXDEV || errno == EPERM || errno == EINVAL ? -ENOSYS : -errno;
        i++;
    }
#else
    (void)dir;
    (void)name;
    (void)flags;
#endif
    return -ENOSYS;
}

/* One name of a path in which there was no link a moment ago. */
static int step(int dir, const char *name, int flags)
{
    int fd;
    struct stat st;

    do
        fd = openat(dir, name, flags | O_NOFOLLOW);
    while (fd < 0 && errno == EINTR && !rfs_cancelled());
    if (fd < 0)
        return errno == ELOOP ? -EXDEV : -errno;
    if ((flags & O_PATH) && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
        close(fd);
        return -EXDEV;
    }
    return fd;
}

/* PATH, which is changed, from DIR on; there is no link in it, or nothing is opened. */
static int walk(int dir, char *path, int flags)
{
    RFS_CLOSE int here = -1;

    for (char *name = path, *slash; (slash = strchr(name, '/')); name = slash + 1) {
        *slash = '\0';
        const int next = step(here >= 0 ? here : dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (here >= 0)
            close(here);
        here = next;
        if (here < 0)
            return here;
        path = slash + 1;
    }
    return step(here >= 0 ? here : dir, *path ? path : ".", flags);
}

/* PATH, beneath the folder FOLDER (with a slash at its end), which is open as DIR. */
static int open_in(int dir, const char *folder, size_t length, const char *path, int flags)
{
    const int fd = by_kernel(dir, path + length, flags);

    if (fd != -ENOSYS)
        return fd;
    RFS_FREE char *real = realpath(path, NULL);
    if (!real)
        return -errno;
    return strncmp(real, folder, length) == 0 ? walk(dir, real + length, flags) : -EXDEV;
}

/* A path of a map: beneath the folder that it names. */
static int open_named(const char *path, int flags)
{
    const char *slash = strrchr(path, '/');
    RFS_FREE char *folder = strndup(path, (size_t)(slash - path) + 1);

    if (!folder)
        return -ENOMEM;
    const size_t length = strlen(folder);
    RFS_CLOSE const int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    RFS_FREE char *below = strndup(folder + 1, length > 1 ? length - 2 : 0);
    if (root < 0 || !below)
        return root < 0 ? -errno : -ENOMEM;
    RFS_CLOSE const int dir = walk(root, below, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? dir : open_in(dir, folder, length, path, flags);
}

int rfs_beneath_file(const struct rfs_beneath *beneath, const char *path, int flags)
{
    flags |= O_CLOEXEC;
    if (beneath)
        return strncmp(path, beneath->path, beneath->length) == 0
                   ? open_in(beneath->fd, beneath->path, beneath->length, path, flags)
                   : open_named(path, flags);
    int fd;
    do
        fd = open(path, flags);
    while (fd < 0 && errno == EINTR && !rfs_cancelled());
    return fd < 0 ? -errno : fd;
}

int rfs_beneath_stat(const struct rfs_beneath *beneath, const char *path, struct stat *st)
{
    int failed;

    if (rfs_is_url(path))
        return rfs_store_stat(path, st);
    if (!beneath) {
        do /* as network file systems may */
            failed = stat(path, st);
        while (failed != 0 && errno == EINTR && !rfs_cancelled());
        return failed ? -errno : 0;
    }
    RFS_CLOSE const int fd = rfs_beneath_file(beneath, path, O_PATH);
    if (fd < 0)
        return fd;
    while ((failed = fstat(fd, st)) != 0 && errno == EINTR)
        continue;
    return failed ? -errno : 0;
}

int rfs_beneath_dir(const struct rfs_beneath *beneath, const char *path, struct rfs_dir *out)
{
    if (rfs_is_url(path))
        return rfs_dir_open(path, out);
    const int fd = rfs_beneath_file(beneath, path, O_RDONLY | O_DIRECTORY);
    return fd < 0 ? fd : rfs_dir_of(fd, out);
}

int rfs_read_beneath(const struct rfs_beneath *beneath, const char *path, size_t limit, char **data,
                     size_t *size, struct rfs_error *err)
{
    if (rfs_is_url(path))
        return rfs_read_whole(path, limit, data, size, err);
    RFS_CLOSE const int fd = rfs_beneath_file(beneath, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);

    return fd == -EXDEV ? rfs_beneath_fail(err, path)
                        : rfs_read_whole_fd(fd, path, limit, data, size, err);
}

int rfs_beneath_fail(struct rfs_error *err, const char *path)
{
    return rfs_fail(err, -EXDEV, RFS_IN(path),
                    "move it there, or follow_links, if every user with write permission there may "
                    "read your files",
                    "a symbolic link leads out of the source");
}
