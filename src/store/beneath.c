/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel opens files beneath a folder, by openat2(2) with RESOLVE_BENEATH. Where it has no such
 * call (before Linux 5.6, or in a sandbox that does not know it), and for absolute links, which it
 * refuses wherever they lead, the path is resolved here, has to be beneath the folder, and is then
 * walked without following a link: if a link is put there meanwhile, nothing is opened.
 */
#include "store/beneath.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#ifdef SYS_openat2
#include <linux/openat2.h>
#endif

#define TRIES 16      /* while folders of the path are renamed */
#define MOST_LINKS 40 /* as the kernel has it */

struct rfs_beneath {
    int fd;
    char *path; /* absolute, without links; ends in a slash */
    size_t length;
};

/* Returns PATH with a slash at its end, as paths beneath it begin. */
static char *with_slash(const char *path)
{
    return rfs_path_join(path, "");
}

int rfs_beneath_open(const char *source, struct rfs_beneath **out, struct rfs_error *err)
{
    RFS_FREE char *path = NULL;
    struct stat st;

    *out = NULL;
    if (rfs_store_is_url(source))
        return 0;
    int rc = rfs_path_resolve(NULL, source, &path, err);
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

/* Opens NAME beneath DIR, or gives -ENOSYS when the kernel does not do it. */
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

/* Opens one name of a path in which there was no link a moment ago. */
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

/* Opens PATH, which is changed, from DIR on; there is no link in it, or nothing is opened. */
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

/* Opens PATH, beneath the folder FOLDER (with a slash at its end), which is open as DIR. */
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

/* Opens a path of a map, beneath the folder that it names. */
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

int rfs_beneath_stat(const struct rfs_beneath *beneath, struct rfs_store *store, const char *path,
                     struct stat *st)
{
    int failed;

    if (rfs_store_is_url(path))
        return rfs_store_stat(store, path, st);
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

int rfs_beneath_dir(const struct rfs_beneath *beneath, struct rfs_store *store, const char *path,
                    struct rfs_dir *out)
{
    if (rfs_store_is_url(path))
        return rfs_dir_open(store, path, out);
    const int fd = rfs_beneath_file(beneath, path, O_RDONLY | O_DIRECTORY);
    return fd < 0 ? fd : rfs_dir_of(fd, out);
}

int rfs_beneath_read(const struct rfs_beneath *beneath, struct rfs_store *store, const char *path,
                     size_t limit, char **data, size_t *size, struct rfs_error *err)
{
    if (rfs_store_is_url(path))
        return rfs_store_read_whole(store, path, limit, data, size, err);
    RFS_CLOSE const int fd = rfs_beneath_file(beneath, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);

    return fd == -EXDEV ? rfs_beneath_fail(err, path)
                        : rfs_store_read_fd(fd, path, limit, data, size, err);
}

int rfs_beneath_fail(struct rfs_error *err, const char *path)
{
    return rfs_fail(err, -EXDEV, RFS_IN(path),
                    "move it there, or follow_links, if every user with write permission there may "
                    "read your files",
                    "a symbolic link leads out of the source");
}

/* ---- paths that lead into a file system ------------------------------------------------------ */

/*
 * The path is walked as the kernel does it, one name after the other, with O_PATH: that crosses
 * into a file system without asking it for anything, and the walk ends there.
 */

enum where { ELSEWHERE, LINK, HOME };

static int open_path(int dir, const char *name)
{
    int fd;

    do
        fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Says what a descriptor is, by attributes alone that the kernel has itself. */
static enum where where_of(int fd, dev_t device)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) < 0)
        return ELSEWHERE;
    if (makedev(st.stx_dev_major, st.stx_dev_minor) == device)
        return HOME;
    return S_ISLNK(st.stx_mode) ? LINK : ELSEWHERE;
}

/* Returns the target of a link, and REST behind it; NULL when there is none, or it is too long. */
static char *follow(int link, const char *rest)
{
    char target[PATH_MAX];
    const ssize_t n = readlinkat(link, "", target, sizeof target);

    if (n <= 0 || (size_t)n == sizeof target || (size_t)n + strlen(rest) > PATH_MAX)
        return NULL;
    return rfs_text_printf("%.*s/%s", (int)n, target, rest);
}

/* A walk: FROM is the folder that is reached, REST the rest of the path. */
struct walk {
    int from;
    char *path; /* owned */
    char *rest;
    unsigned links;
};

/* Goes to another path; false when that ends the walk. */
static bool turn(struct walk *walk, char *path)
{
    if (!path)
        return false;
    free(walk->path);
    walk->path = walk->rest = path;
    if (*path != '/')
        return true;
    if (walk->from >= 0)
        close(walk->from);
    walk->from = open_path(AT_FDCWD, "/");
    return walk->from >= 0;
}

/* Goes one name on. False when the walk ends, in *WHERE. */
static bool go_on(struct walk *walk, dev_t device, enum where *where)
{
    char *name = walk->rest + strspn(walk->rest, "/");
    char *end = name + strcspn(name, "/");

    if (name == end)
        return false;
    walk->rest = *end ? end + 1 : end;
    *end = '\0';
    const int fd = open_path(walk->from, name);
    if (fd < 0)
        return false;
    *where = where_of(fd, device);
    if (*where != LINK) {
        close(walk->from);
        walk->from = fd;
        return *where == ELSEWHERE;
    }
    char *path = walk->links++ < MOST_LINKS ? follow(fd, walk->rest) : NULL;
    close(fd);
    return turn(walk, path);
}

bool rfs_beneath_leads_to(const char *path, dev_t device)
{
    struct walk walk = {.from = -1};
    enum where where = ELSEWHERE;

    if (!rfs_store_is_url(path) && turn(&walk, strdup(path)))
        while (go_on(&walk, device, &where))
            continue;
    if (walk.from >= 0)
        close(walk.from);
    free(walk.path);
    return where == HOME;
}
