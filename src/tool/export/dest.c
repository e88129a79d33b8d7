/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/dest.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "tool/common/show.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

int rfs_dest_failed(const struct rfs_dest *dest, const char *path, const char *what, int code,
                    struct rfs_error *err)
{
    char shown[PATH_MAX + 256];
    const char *remedy = NULL;

    if (code == ENOSPC || code == EDQUOT)
        remedy = "free some room, then the same command again";
    else if (code == EIO)
        remedy = "check the disk, then the same command again";
    else if (code == EACCES || code == EPERM || code == EROFS)
        remedy = "a folder that you may write to";
    snprintf(shown, sizeof shown, "%s%s%s", dest->path, *path ? "/" : "", path);
    return rfs_fail(err, -code, RFS_IN(shown), remedy, "%s: %s", what, strerror(code));
}

/* ---- the folder ------------------------------------------------------------------------------ */

/*
 * Returns GIVEN resolved, or its parent resolved with its last component behind, malloc'ed; NULL
 * with errno set.
 */
static char *resolve(const char *given)
{
    char *out = realpath(given, NULL);
    if (out || errno != ENOENT)
        return out;
    RFS_FREE char *copy = strdup(given);
    if (!copy)
        return NULL;
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = '\0';
    char *slash = strrchr(copy, '/');
    const char *name = slash ? slash + 1 : copy;
    if (strcmp(name, "..") == 0 || strcmp(name, ".") == 0) {
        errno = ENOENT;
        return NULL;
    }
    if (slash)
        *slash = '\0';
    RFS_FREE char *parent = realpath(!slash ? "." : slash == copy ? "/" : copy, NULL);
    if (!parent)
        return NULL;
    return rfs_path_join(parent, name);
}

static int refuse_overlap(const char *path, const char *source, struct rfs_error *err)
{
    static const char remedy[] = "a folder elsewhere";

    if (strcmp(path, source) == 0)
        return rfs_fail(err, -ELOOP, RFS_IN(path), remedy, "the folder to write to is the source");
    if (rfs_path_within(path, source))
        return rfs_fail(err, -ELOOP, RFS_IN(path), remedy,
                        "the folder to write to is inside the source %s", source);
    if (rfs_path_within(source, path))
        return rfs_fail(err, -ELOOP, RFS_IN(path), remedy,
                        "the source %s is inside the folder to write to", source);
    return 0;
}

static int open_folder(struct rfs_dest *dest, struct rfs_error *err)
{
    dest->fd = open(dest->path, FOLDER_FLAGS);
    return dest->fd < 0 && errno != ENOENT
               ? rfs_dest_failed(dest, "", "the folder cannot be opened", errno, err)
               : 0;
}

int rfs_dest_find(const char *given, const char *source, struct rfs_dest *out,
                  struct rfs_error *err)
{
    *out = RFS_DEST_NONE;
    out->path = resolve(given);
    if (!out->path)
        return rfs_fail(err, -errno, RFS_IN(given), "a folder in one that is there",
                        "cannot be written to: %s", strerror(errno));
    /* A path that is no source is reported when it is opened; a store holds no folders. */
    RFS_FREE char *from = source && !rfs_store_is_url(source) ? realpath(source, NULL) : NULL;
    const int rc = from ? refuse_overlap(out->path, from, err) : 0;
    return rc ? rc : open_folder(out, err);
}

int rfs_dest_make(struct rfs_dest *dest, struct rfs_error *err)
{
    if (dest->fd >= 0)
        return 0;
    if (mkdir(dest->path, 0777) != 0 && errno != EEXIST)
        return rfs_dest_failed(dest, "", "cannot make the folder", errno, err);
    const int rc = open_folder(dest, err);
    return rc == 0 && dest->fd < 0
               ? rfs_dest_failed(dest, "", "the folder cannot be opened", ENOENT, err)
               : rc;
}

void rfs_dest_close(struct rfs_dest *dest)
{
    if (dest->fd >= 0)
        close(dest->fd);
    free(dest->path);
    *dest = RFS_DEST_NONE;
}

int rfs_dest_room(const struct rfs_dest *dest, uint64_t bytes, struct rfs_error *err)
{
    struct statvfs fs;
    uint64_t room;
    char wanted[RFS_TEXT_AMOUNT], free_bytes[RFS_TEXT_AMOUNT];
    RFS_FREE char *parent = strdup(dest->path);

    if (!parent)
        return rfs_fail_memory(err);
    char *slash = strrchr(parent, '/');
    slash[slash == parent] = '\0';
    /* File systems without quotas report f_blocks == 0; skip the check. */
    if ((dest->fd >= 0 ? fstatvfs(dest->fd, &fs) : statvfs(parent, &fs)) != 0 || fs.f_blocks == 0 ||
        !rfs_mul_u64(fs.f_bavail, fs.f_frsize, &room) || bytes <= room)
        return 0;
    rfs_text_amount(bytes, wanted);
    rfs_text_amount(room, free_bytes);
    return rfs_fail(err, -ENOSPC, RFS_IN(dest->path),
                    "free some room, another DST, or a part of the ranks by --ranks",
                    "%s are to be written, and %s are free there", wanted, free_bytes);
}

/* ---- its contents ---------------------------------------------------------------------------- */

/*
 * Opens the folder that PATH is in, each component by itself so that no link is followed; MAKE:
 * makes missing ones, and sets *made then. Returns its descriptor, or -errno; *name is the last
 * component.
 */
static int folder_of(const struct rfs_dest *dest, const char *path, bool make, bool *made,
                     const char **name)
{
    int folder = fcntl(dest->fd, F_DUPFD_CLOEXEC, 0);

    *name = path;
    if (folder < 0)
        return -errno;
    for (const char *slash; (slash = strchr(*name, '/')); *name = slash + 1) {
        char component[NAME_MAX + 1];
        const size_t n = (size_t)(slash - *name);
        int next = -1;

        errno = ENAMETOOLONG;
        if (n < sizeof component) {
            memcpy(component, *name, n);
            component[n] = '\0';
            if (make && mkdirat(folder, component, 0777) == 0)
                *made = true;
            next = openat(folder, component, FOLDER_FLAGS | O_NOFOLLOW);
        }
        const int code = errno;
        close(folder);
        if (next < 0)
            return -code;
        folder = next;
    }
    return folder;
}

int rfs_dest_list(const struct rfs_dest *dest, struct rfs_dir *out)
{
    const int fd = openat(dest->fd, ".", FOLDER_FLAGS);

    return fd < 0 ? -errno : rfs_dir_of(fd, out);
}

int rfs_dest_stat(const struct rfs_dest *dest, const char *path, struct stat *st)
{
    const char *name;
    RFS_CLOSE int folder = folder_of(dest, path, false, NULL, &name);

    if (folder < 0)
        return folder;
    return fstatat(folder, name, st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

int rfs_dest_open(const struct rfs_dest *dest, const char *path)
{
    const char *name;
    struct stat st;
    RFS_CLOSE int folder = folder_of(dest, path, false, NULL, &name);

    if (folder < 0)
        return folder;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return -EINVAL;
}

/*
 * Returns ".NAME.part", malloc'ed, or NULL: hidden, and with no ending that a reader of checkpoints
 * looks for.
 */
static char *temporary_of(const char *name)
{
    return rfs_text_printf(".%s.part", name);
}

uint64_t rfs_dest_partial_bytes(const struct rfs_dest *dest, const char *path)
{
    const char *name;
    struct stat st;
    RFS_CLOSE int folder = folder_of(dest, path, false, NULL, &name);
    RFS_FREE char *temporary = temporary_of(name);

    if (folder < 0 || !temporary || fstatat(folder, temporary, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    return (uint64_t)st.st_blocks * 512;
}

/*
 * Removes a temporary that nobody has locked. Where a file system has no locks, whoever comes later
 * wins. 0, also when there is none; -EBUSY: it is locked; or another -errno.
 */
static int remove_stale(int folder, const char *temporary)
{
    RFS_CLOSE int fd = openat(folder, temporary, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return -EBUSY;
    return unlinkat(folder, temporary, 0) == 0 || errno == ENOENT ? 0 : -errno;
}

void rfs_dest_sweep(const struct rfs_dest *dest, const char *path)
{
    const char *name;
    RFS_CLOSE int folder = folder_of(dest, path, false, NULL, &name);
    RFS_FREE char *temporary = temporary_of(name);

    if (folder >= 0 && temporary)
        remove_stale(folder, temporary);
}

/* Removes the folder of PATH if it is empty and not that of the export. */
static void remove_folder(const struct rfs_dest *dest, const char *path)
{
    const char *name;
    RFS_FREE char *above = strdup(path);
    char *slash = above ? strrchr(above, '/') : NULL;

    if (slash)
        *slash = '\0';
    RFS_CLOSE int folder = slash ? folder_of(dest, above, false, NULL, &name) : -1;
    if (folder >= 0)
        unlinkat(folder, name, AT_REMOVEDIR);
}

int rfs_dest_remove(const struct rfs_dest *dest, const char *path)
{
    const char *name;
    struct stat st;
    RFS_CLOSE int folder = folder_of(dest, path, false, NULL, &name);

    if (folder < 0)
        return folder;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (unlinkat(folder, name, 0) != 0)
        return -errno;
    remove_folder(dest, path);
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void forget_name(struct rfs_dest_partial *partial)
{
    free(partial->temporary);
    partial->temporary = NULL;
}

/*
 * Locks a new temporary. 0, or -EBUSY if another task found it before it was locked, took it for
 * stale, and removed it.
 */
static int lock_temporary(int fd)
{
    struct stat st;

    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return -EBUSY;
    return fstat(fd, &st) == 0 && st.st_nlink == 0 ? -EBUSY : 0;
}

int rfs_dest_partial_begin(const struct rfs_dest *dest, const char *path, mode_t mode,
                           struct rfs_dest_partial *out, struct rfs_error *err)
{
    const char *name;

    *out = RFS_DEST_PARTIAL_NONE;
    out->dest = dest;
    out->path = path;
    out->folder = folder_of(dest, path, true, &out->made_folder, &name);
    if (out->folder < 0)
        return rfs_dest_failed(dest, path, "cannot make its folder", -out->folder, err);
    out->temporary = temporary_of(name);
    int rc = out->temporary ? remove_stale(out->folder, out->temporary) : -ENOMEM;
    if (rc == 0) {
        out->fd =
            openat(out->folder, out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        rc = out->fd < 0 ? -errno : 0;
    }
    if (rc == 0)
        rc = lock_temporary(out->fd);
    if (rc == 0)
        return 0;
    forget_name(out); /* not ours to remove */
    rfs_dest_partial_drop(out);
    return rc == -EBUSY || rc == -EEXIST
               ? rfs_fail(err, -EBUSY, RFS_IN(path), "once that has ended",
                          "another export to %s is writing it", dest->path)
               : rfs_dest_failed(dest, path, "cannot create", -rc, err);
}

static int sync_folder(int folder)
{
    return folder < 0 || fsync(folder) != 0 ? -errno : 0;
}

/* Makes the names in the folder last, and if it is new, in those above it. */
static int sync_folders(const struct rfs_dest_partial *partial)
{
    int rc = sync_folder(partial->folder);

    if (rc == 0 && partial->made_folder) {
        RFS_CLOSE int above = openat(partial->folder, "..", FOLDER_FLAGS);
        rc = sync_folder(above) ?: sync_folder(partial->dest->fd);
    }
    return rc;
}

/* Gives a complete file its name; *what is the message of a failure. */
static int give_name(struct rfs_dest_partial *partial, bool replace, bool sync, const char **what)
{
    const char *name = rfs_path_name(partial->path);

    *what = "cannot write";
    if (sync && fsync(partial->fd) != 0)
        return -errno;
    if (close(rfs_steal_fd(&partial->fd)) != 0)
        return -errno;
    *what = "cannot rename";
    const int rc = rfs_io_rename(partial->folder, partial->temporary, name, replace);
    if (rc)
        return rc;
    forget_name(partial);
    *what = "cannot write its folder";
    return sync ? sync_folders(partial) : 0;
}

int rfs_dest_partial_finish(struct rfs_dest_partial *partial, bool replace, bool sync,
                            struct rfs_error *err)
{
    const char *what;
    int rc = give_name(partial, replace, sync, &what);

    if (rc)
        rc = rfs_dest_failed(partial->dest, partial->path, what, -rc, err);
    rfs_dest_partial_drop(partial);
    return rc;
}

void rfs_dest_partial_drop(struct rfs_dest_partial *partial)
{
    if (partial->temporary && unlinkat(partial->folder, partial->temporary, 0) == 0 &&
        partial->made_folder)
        remove_folder(partial->dest, partial->path); /* not left behind without it */
    if (partial->fd >= 0)
        close(partial->fd);
    if (partial->folder >= 0)
        close(partial->folder);
    free(partial->temporary);
    *partial = RFS_DEST_PARTIAL_NONE;
}

int rfs_dest_save(const struct rfs_dest *dest, const char *name, const void *data, size_t size,
                  bool sync, struct rfs_error *err)
{
    struct rfs_dest_partial partial;
    int rc = rfs_dest_partial_begin(dest, name, 0666, &partial, err);

    if (rc)
        return rc;
    rc = rfs_io_write_all(partial.fd, data, size);
    if (rc == 0)
        return rfs_dest_partial_finish(&partial, true, sync, err);
    rc = rfs_dest_failed(dest, name, "cannot write", -rc, err);
    rfs_dest_partial_drop(&partial);
    return rc;
}

/* ---- bytes that the file system takes over --------------------------------------------------- */

/* File systems whose servers copy; linux/magic.h does not have all of them. */
#define NFS_MAGIC 0x6969
#define CIFS_MAGIC 0xFF534D42
#define SMB2_MAGIC 0xFE534D42
#define CEPH_MAGIC 0x00C36400

void rfs_dest_copier_init(struct rfs_dest_copier *copier, int fd)
{
    struct statfs fs;
    int way = RFS_DEST_COPY_NOT;

    copier->block = 4096;
    if (fstatfs(fd, &fs) == 0) {
        const uint32_t magic = (uint32_t)fs.f_type;
        copier->block = fs.f_bsize > 0 ? (uint64_t)fs.f_bsize : 4096;
        way =
            magic == NFS_MAGIC || magic == CIFS_MAGIC || magic == SMB2_MAGIC || magic == CEPH_MAGIC
                ? RFS_DEST_COPY_SERVER
                : RFS_DEST_COPY_CLONE;
    }
    atomic_init(&copier->way, way);
    atomic_init(&copier->bytes_taken, 0);
}

/*
 * Shares whole blocks, where both sides begin at one offset in their blocks. Returns false when the
 * file system refuses.
 */
static bool clone_range(struct rfs_dest_copier *copier, int from, const struct rfs_view_run *plain,
                        int fd, uint64_t *begin, uint64_t *end)
{
    const uint64_t block = copier->block;
    const uint64_t first = (plain->begin + block - 1) / block * block;
    const uint64_t last = plain->end / block * block;

    if (plain->begin % block != plain->source % block || last < first + RFS_DEST_COPY_LEAST)
        return true;
    const struct file_clone_range range = {
        .src_fd = from,
        .src_offset = plain->source + (first - plain->begin),
        .src_length = last - first,
        .dest_offset = first,
    };
    if (ioctl(fd, FICLONERANGE, &range) != 0)
        return errno == EINTR;
    *begin = first;
    *end = last;
    return true;
}

/* Has the server copy. Returns false when it refuses. */
static bool copy_range(int from, const struct rfs_view_run *plain, int fd, uint64_t *begin,
                       uint64_t *end)
{
    off_t in = (off_t)plain->source;
    off_t out = (off_t)plain->begin;

    *begin = *end = plain->begin;
    while (*end < plain->end) {
        const ssize_t n = copy_file_range(from, &in, fd, &out, (size_t)(plain->end - *end), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        *end += (uint64_t)n;
    }
    return true;
}

void rfs_dest_copier_take(struct rfs_dest_copier *copier, int source,
                          const struct rfs_view_run *plain, int fd, uint64_t *begin, uint64_t *end)
{
    const int way = atomic_load_explicit(&copier->way, memory_order_relaxed);

    *begin = *end = plain->begin;
    if (way == RFS_DEST_COPY_NOT || plain->end - plain->begin < RFS_DEST_COPY_LEAST)
        return;
    if (!(way == RFS_DEST_COPY_CLONE ? clone_range(copier, source, plain, fd, begin, end)
                                     : copy_range(source, plain, fd, begin, end)))
        atomic_store_explicit(&copier->way, RFS_DEST_COPY_NOT, memory_order_relaxed);
    atomic_fetch_add_explicit(&copier->bytes_taken, *end - *begin, memory_order_relaxed);
}
