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

static int open_folder(struct rfs_dest *dest, struct rfs_error *err)
{
    dest->fd = open(dest->path, FOLDER_FLAGS);
    dest->there = dest->fd >= 0;
    return dest->fd < 0 && errno != ENOENT
               ? rfs_dest_failed(dest, "", "the folder cannot be opened", errno, err)
               : 0;
}

static int find(const char *given, struct rfs_dest *out, struct rfs_error *err)
{
    out->path = resolve(given);
    if (out->path)
        return open_folder(out, err);
    const int code = errno;
    RFS_FREE char *remedy = rfs_store_is_foreign(given) ? strdup(rfs_store_remedy(given, code))
                            : code == ENOENT            ? rfs_text_printf("mkdir -p %s", given)
                                                        : NULL;
    return rfs_fail(err, -code, RFS_IN(given), remedy, "cannot be written to: %s",
                    rfs_store_why(given, code));
}

static int make(struct rfs_dest *dest, struct rfs_error *err)
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

static int room(const struct rfs_dest *dest, uint64_t bytes, struct rfs_error *err)
{
    struct statvfs fs;
    uint64_t left;
    char wanted[RFS_TEXT_AMOUNT], free_bytes[RFS_TEXT_AMOUNT];
    RFS_FREE char *parent = strdup(dest->path);

    if (!parent)
        return rfs_fail_memory(err);
    char *slash = strrchr(parent, '/');
    slash[slash == parent] = '\0';
    /* File systems without quotas report f_blocks == 0; skip the check. */
    if ((dest->fd >= 0 ? fstatvfs(dest->fd, &fs) : statvfs(parent, &fs)) != 0 || fs.f_blocks == 0 ||
        !rfs_mul_u64(fs.f_bavail, fs.f_frsize, &left) || bytes <= left)
        return 0;
    rfs_text_amount(bytes, wanted);
    rfs_text_amount(left, free_bytes);
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

static int list(struct rfs_dest *dest, struct rfs_dir *out)
{
    const int fd = openat(dest->fd, ".", FOLDER_FLAGS);

    return fd < 0 ? -errno : rfs_dir_of(fd, out);
}

static int look(const struct rfs_dest *dest, const char *path, struct stat *st)
{
    const char *name;
    RFS_CLOSE int folder = folder_of(dest, path, false, NULL, &name);

    if (folder < 0)
        return folder;
    return fstatat(folder, name, st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

static int open_file(const struct rfs_dest *dest, const char *path, struct rfs_dest_file *out)
{
    const char *name;
    struct stat st;
    RFS_CLOSE int folder = folder_of(dest, path, false, NULL, &name);

    if (folder < 0)
        return folder;
    out->fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (out->fd < 0)
        return -errno;
    if (fstat(out->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        out->size = (uint64_t)st.st_size;
        return 0;
    }
    close(out->fd);
    return -EINVAL;
}

static int read_file(struct rfs_dest_file *file, void *data, size_t size, uint64_t offset)
{
    return rfs_io_pread_all(file->fd, data, size, offset);
}

static void close_file(struct rfs_dest_file *file)
{
    close(file->fd);
}

/*
 * Returns ".NAME.part", malloc'ed, or NULL: hidden, and with no ending that a reader of checkpoints
 * looks for.
 */
static char *temporary_of(const char *name)
{
    return rfs_text_printf(".%s.part", name);
}

static uint64_t partial_bytes(const struct rfs_dest *dest, const char *path)
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
 * Removes a temporary that nobody has locked. Where a file system has no locks, the later export
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

static int sweep(const struct rfs_dest *dest, const char *const *paths, size_t n,
                 struct rfs_error *err)
{
    (void)err;
    for (size_t i = 0; i < n; i++) {
        const char *name;
        RFS_CLOSE int folder = folder_of(dest, paths[i], false, NULL, &name);
        RFS_FREE char *temporary = temporary_of(name);

        if (folder >= 0 && temporary)
            remove_stale(folder, temporary);
    }
    return 0;
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

static int remove_file(const struct rfs_dest *dest, const char *path)
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

static int begin(struct rfs_dest_partial *partial, struct rfs_error *err)
{
    const struct rfs_dest *dest = partial->dest;
    const char *name;

    partial->folder = folder_of(dest, partial->path, true, &partial->made_folder, &name);
    if (partial->folder < 0)
        return rfs_dest_failed(dest, partial->path, "cannot make its folder", -partial->folder,
                               err);
    partial->temporary = temporary_of(name);
    int rc = partial->temporary ? remove_stale(partial->folder, partial->temporary) : -ENOMEM;
    if (rc == 0) {
        partial->fd = openat(partial->folder, partial->temporary,
                             O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, partial->mode);
        rc = partial->fd < 0 ? -errno : 0;
    }
    if (rc == 0)
        rc = lock_temporary(partial->fd);
    if (rc == 0)
        return 0;
    forget_name(partial); /* not ours to remove */
    return rc == -EBUSY || rc == -EEXIST
               ? rfs_dest_busy(dest, partial->path, err)
               : rfs_dest_failed(dest, partial->path, "cannot create", -rc, err);
}

/*
 * Bytes of one write, which ends at a multiple of this in the file. Larger ones make the kernel
 * keep them in pages of 2 MiB, which on virtual machines are just those that are given back to the
 * host when they are free: the next write waits for the host then, and took up to five times as
 * long.
 */
#define WRITE_BYTES (UINT64_C(1) << 20)

static int write_spans(struct rfs_dest_partial *partial, const struct iovec *spans, int count,
                       uint64_t from, uint64_t to, uint64_t offset)
{
    const uint64_t begun = from;

    while (from < to) {
        struct iovec left[RFS_DEST_SPANS];
        const uint64_t stop = from + WRITE_BYTES - (offset + from) % WRITE_BYTES;
        const int n_left = rfs_dest_cut(spans, count, from, rfs_min_u64(to, stop), left);
        const ssize_t n = pwritev(partial->fd, left, n_left, (off_t)(offset + from));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        from += (uint64_t)n;
    }
    if (partial->sync) /* so that fsync has little left to wait for */
        sync_file_range(partial->fd, (off_t)(offset + begun), (off_t)(to - begun),
                        SYNC_FILE_RANGE_WRITE);
    return 0;
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
static int give_name(struct rfs_dest_partial *partial, const char **what)
{
    const char *name = rfs_path_name(partial->path);

    *what = "cannot write";
    if (partial->sync && fsync(partial->fd) != 0)
        return -errno;
    if (close(rfs_steal_fd(&partial->fd)) != 0)
        return -errno;
    *what = "cannot rename";
    const int rc = rfs_io_rename(partial->folder, partial->temporary, name, partial->replace);
    if (rc)
        return rc;
    forget_name(partial);
    *what = "cannot write its folder";
    return partial->sync ? sync_folders(partial) : 0;
}

static int finish(struct rfs_dest_partial *partial, struct rfs_error *err)
{
    const char *what;
    const int rc = give_name(partial, &what);

    return rc ? rfs_dest_failed(partial->dest, partial->path, what, -rc, err) : 0;
}

static void drop(struct rfs_dest_partial *partial)
{
    if (partial->temporary && unlinkat(partial->folder, partial->temporary, 0) == 0 &&
        partial->made_folder)
        remove_folder(partial->dest, partial->path); /* not left behind without it */
    if (partial->fd >= 0)
        close(partial->fd);
    if (partial->folder >= 0)
        close(partial->folder);
    free(partial->temporary);
}

static int save(struct rfs_dest *dest, const char *name, const void *data, size_t size, bool sync,
                struct rfs_error *err)
{
    struct rfs_dest_partial partial = {
        .dest = dest, .path = name, .mode = 0666, .replace = true, .sync = sync};
    int rc = rfs_dest_begin(&partial, err);

    if (rc)
        return rc;
    rc = rfs_io_write_all(partial.fd, data, size);
    if (rc == 0)
        return rfs_dest_finish(&partial, err);
    rc = rfs_dest_failed(dest, name, "cannot write", -rc, err);
    rfs_dest_drop(&partial);
    return rc;
}

/* The most and the least bytes of a piece. */
#define PIECE_MOST (UINT64_C(4) << 20)
#define PIECE_LEAST (UINT64_C(256) << 10)

static uint64_t piece(unsigned threads, uint64_t largest)
{
    (void)largest;
    return rfs_max_u64(PIECE_LEAST,
                       rfs_min_u64(PIECE_MOST, RFS_DEST_PIECES / threads) & ~UINT64_C(0xffff));
}

const struct rfs_dest_kind rfs_dest_folder = {
    .find = find,
    .make = make,
    .room = room,
    .list = list,
    .stat = look,
    .open = open_file,
    .read = read_file,
    .close = close_file,
    .read_bytes = (size_t)1 << 20,
    .partial_bytes = partial_bytes,
    .sweep = sweep,
    .remove = remove_file,
    .piece = piece,
    .begin = begin,
    .write = write_spans,
    .finish = finish,
    .drop = drop,
    .save = save,
};

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
static bool clone_range(struct rfs_dest_copier *copier, int from,
                        const struct rfs_origins_run *plain, int fd, uint64_t *begin, uint64_t *end)
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
static bool copy_range(int from, const struct rfs_origins_run *plain, int fd, uint64_t *begin,
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
                          const struct rfs_origins_run *plain, int fd, uint64_t *begin,
                          uint64_t *end)
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
