/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/ops.h"

#include "mount/control.h"
#include "mount/request_buffer.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The tree does not change while it is mounted, so the kernel may keep entries: all but those of
 * the saves that are followed, and of the folders above. Seconds.
 */
#define FOREVER (365 * 86400.0)

enum { SPANS = 64, NAME_BYTES = 255, SECTOR = 512 };

/* ---- attributes ------------------------------------------------------------------------------ */

static struct rfs_mount *mount_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/*
 * Converts attributes. The change time is that of the mount. Another mount at this place may have
 * the same device, inodes, sizes and modification times, and other bytes; a program that keeps
 * indexes must see that.
 */
static void to_stat(const struct rfs_mount *m, const reshard_stat *from, struct stat *st)
{
    *st = (struct stat){
        .st_ino = from->id,
        .st_mode = from->mode,
        .st_nlink = from->nlink,
        .st_uid = from->uid,
        .st_gid = from->gid,
        .st_size = (off_t)from->size,
        .st_blksize = (blksize_t)RFS_REQUEST_BYTES,
        .st_blocks = (blkcnt_t)((from->size + SECTOR - 1) / SECTOR),
        .st_atim = from->mtime,
        .st_mtim = from->mtime,
        .st_ctim = m->made,
    };
}

/*
 * Gets attributes of ID, and how many seconds they hold: the mount's own files have other texts
 * each time. Logs the reason of a failure, as the caller only gets an errno.
 */
static int attributes(struct rfs_mount *m, uint64_t id, struct stat *st, double *lasting)
{
    reshard_stat known = {.struct_size = sizeof known};
    reshard_error err = {.struct_size = sizeof err};
    int rc;

    *lasting = 0;
    if (rfs_control_owns(id))
        return rfs_control_stat(m, id, st);
    rc = reshard_getattr(m->view, id, &known, &err);
    *lasting = known.passing ? 0 : FOREVER;
    if (rc == 0)
        to_stat(m, &known, st);
    else if (err.message[0] && rc != -EINTR)
        rfs_log_limited(&m->log, RFS_ERROR, "%s", err.message);
    if (id == RESHARD_ROOT && m->options->set.control == RFS_CONTROL_LISTED)
        st->st_nlink++;
    /* The entry exists; its sources do not. */
    return rc == -ENOENT ? -EIO : rc;
}

/* ---- requests that may wait for sources ------------------------------------------------------ */

/*
 * All others are answered from memory, at once: the guard does that itself where no other thread is
 * free.
 */

static bool is_folder(const struct rfs_mount *m, uint64_t id)
{
    uint64_t above;

    return reshard_lookup(m->view, id, "..", &above) == 0;
}

/*
 * Returns whether listing folder DIR without attributes may wait: the entries of folders of tensors
 * are known once the rank is planned.
 */
static bool list_waits(const struct rfs_mount *m, uint64_t dir)
{
    reshard_stat st = {.struct_size = sizeof st};

    return dir != RESHARD_ROOT && dir != m->hidden && is_folder(m, dir) &&
           reshard_getattr(m->view, dir, &st, NULL) == 0 && st.hidden;
}

/* Returns whether getting attributes may wait: even a known size may be compared with sources. */
static bool getattr_waits(const struct rfs_mount *m, uint64_t id)
{
    return !rfs_control_owns(id) && !is_folder(m, id);
}

/* Returns whether finding NAME in folder PARENT, with its attributes, may wait. */
static bool lookup_waits(const struct rfs_mount *m, uint64_t parent, const char *name)
{
    uint64_t id;

    return list_waits(m, parent) ||
           (rfs_control_lookup(m, parent, name, &id) == 0 && getattr_waits(m, id));
}

/* Returns whether REQ is left to another thread, since it WAITS and this is the guard's thread. */
static bool defers(fuse_req_t req, bool waits)
{
    if (!waits)
        return false;
    rfs_guard_defer(req);
    return true;
}

/*
 * Looks for saves that came or went, if the mount follows them, when the root is looked at. The
 * guard answers from memory.
 */
static void look(const struct rfs_mount *m, uint64_t dir, enum reshard_looks when)
{
    if (dir == RESHARD_ROOT && !rfs_guard_is_me())
        reshard_look(m->view, when);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    struct rfs_mount *m = userdata;

    /* Replies come from memory: splicing them costs more than the copy that it saves. */
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    /* Nobody but us can make cached pages wrong, and we say so when it happens. */
    conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
    /*
     * Nobody may wait for a request that no caller stands behind: if its source hangs, no signal
     * reaches it, and it holds pages that others wait for. So the kernel reads ahead in the name of
     * the reader, and O_DIRECT reads one request after the other. We read ahead ourselves.
     */
    conn->want &= ~(unsigned)(FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO);
    conn->want |= conn->capable &
                  (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
    conn->max_read = (unsigned)RFS_REQUEST_BYTES; /* the mount option says the same */
    /* Nothing is ever written, but libfuse counts a request's pages by it: 256 without. */
    conn->max_write = conn->max_read;
    m->protocol[0] = conn->proto_major;
    m->protocol[1] = conn->proto_minor;
}

/*
 * Returns whether REQ comes from this process: a source lies in the mount that is made from it. To
 * wait for the answer would be to wait for itself.
 */
static bool is_own(fuse_req_t req)
{
    const pid_t pid = fuse_req_ctx(req)->pid;

    return pid > 0 && syscall(SYS_tgkill, getpid(), pid, 0) == 0;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct rfs_mount *m = mount_of(req);
    struct fuse_entry_param e = {0};
    uint64_t id;

    if (is_own(req)) {
        fuse_reply_err(req, ELOOP);
        return;
    }
    if (defers(req, rfs_guard_is_me() && lookup_waits(m, parent, name)))
        return;
    struct rfs_request *request = rfs_request_begin(req);
    look(m, parent, RESHARD_LOOK_DUE);
    int rc = rfs_control_lookup(m, parent, name, &id);
    const bool absent = rc == -ENOENT;
    if (rc == 0)
        rc = attributes(m, id, &e.attr, &e.attr_timeout);
    if (!rfs_request_end(request, req))
        return;
    /* A folder that may go, or come, is looked up each time. */
    e.entry_timeout = absent                 ? (m->options->set.follow ? 0 : FOREVER)
                      : rfs_control_owns(id) ? FOREVER
                                             : e.attr_timeout;
    if (absent) {
        fuse_reply_entry(req, &e); /* inode 0: remembered as absent */
        return;
    }
    if (rc < 0) {
        fuse_reply_err(req, -rc);
        return;
    }
    e.ino = id;
    fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct rfs_mount *m = mount_of(req);
    struct stat st;
    double lasting;

    (void)fi;
    if (defers(req, rfs_guard_is_me() && getattr_waits(m, ino)))
        return;
    struct rfs_request *request = rfs_request_begin(req);
    const int rc = attributes(m, ino, &st, &lasting);
    if (!rfs_request_end(request, req))
        return;
    if (rc < 0)
        fuse_reply_err(req, -rc);
    else
        fuse_reply_attr(req, &st, lasting);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char target[NAME_BYTES];
    const int rc = reshard_read_link(mount_of(req)->view, ino, target, sizeof target);

    if (rc < 0)
        fuse_reply_err(req, -rc);
    else
        fuse_reply_readlink(req, target);
}

static void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
    (void)ino;
    fuse_reply_err(req, mask & W_OK ? EROFS : 0);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    reshard_summary sum = {.struct_size = sizeof sum};
    struct statvfs vfs = {
        .f_bsize = RFS_REQUEST_BYTES,
        .f_frsize = RFS_REQUEST_BYTES,
        .f_namemax = NAME_BYTES,
        .f_flag = ST_RDONLY,
    };

    (void)ino;
    reshard_summarize(mount_of(req)->view, &sum);
    vfs.f_files = sum.entries;
    fuse_reply_statfs(req, &vfs);
}

/*
 * Lists an entry: position 0 is ".", 1 is "..", N + 2 is the folder's entry N. 1 when there is one,
 * 0 at the end.
 */
static int list(struct rfs_mount *m, uint64_t dir, uint64_t position, reshard_dirent *out)
{
    if (position >= 2) {
        const int rc = rfs_control_list(m, dir, position - 2, out);
        out->next += 2;
        return rc;
    }
    uint64_t above = RESHARD_ROOT;
    if (position == 1)
        (void)reshard_lookup(m->view, dir, "..", &above);
    *out = (reshard_dirent){
        .struct_size = sizeof *out,
        .id = position == 0 ? dir : above,
        .is_dir = true,
        .name = position == 0 ? "." : "..",
        .next = position + 1,
    };
    return 1;
}

/*
 * Describes an entry of a list. One without attributes has inode 0 and says its number and type in
 * attr only. Files that are not indexed yet have none: listing a folder opens no source.
 */
static void describe(struct rfs_mount *m, const reshard_dirent *entry, bool plus,
                     struct fuse_entry_param *e)
{
    *e = (struct fuse_entry_param){0};
    if (plus && !rfs_guard_is_me() && entry->name[0] != '.' && !rfs_control_owns(entry->id) &&
        reshard_is_ready(m->view, entry->id) &&
        attributes(m, entry->id, &e->attr, &e->attr_timeout) == 0) {
        e->ino = entry->id;
        e->entry_timeout = e->attr_timeout;
        return;
    }
    e->attr = (struct stat){
        .st_ino = entry->id,
        .st_mode = entry->is_dir    ? S_IFDIR
                   : entry->is_link ? S_IFLNK
                                    : S_IFREG,
    };
}

static void reply_list(fuse_req_t req, fuse_ino_t dir, size_t size, off_t offset, bool plus)
{
    struct rfs_mount *m = mount_of(req);
    reshard_dirent entry = {.struct_size = sizeof entry};
    struct fuse_entry_param e;
    uint64_t position = (uint64_t)offset;
    size_t used = 0;
    int rc;

    if (defers(req, rfs_guard_is_me() && list_waits(m, dir)))
        return;
    char *buf = rfs_request_buffer_get(size);
    if (!buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    struct rfs_request *request = rfs_request_begin(req);
    if (offset == 0)
        look(m, dir, RESHARD_LOOK_FRESH);
    while ((rc = list(m, dir, position, &entry)) > 0) {
        const off_t next = (off_t)entry.next;
        size_t n;

        describe(m, &entry, plus, &e);
        n = plus ? fuse_add_direntry_plus(req, buf + used, size - used, entry.name, &e, next)
                 : fuse_add_direntry(req, buf + used, size - used, entry.name, &e.attr, next);
        if (n > size - used)
            break;
        used += n;
        position = entry.next;
    }
    if (!rfs_request_end(request, req))
        return;
    if (rc < 0 && used == 0)
        fuse_reply_err(req, -rc);
    else
        fuse_reply_buf(req, buf, used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    (void)fi;
    reply_list(req, ino, size, offset, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                           struct fuse_file_info *fi)
{
    (void)fi;
    reply_list(req, ino, size, offset, true);
}

/* ---- pages that the kernel keeps of files ---------------------------------------------------- */

/*
 * Returns whether pages may be dropped at any time. With a single thread they may not, since only
 * it could answer the reads that dropping waits for: the next open drops them then.
 */
static bool pages_can_go(const struct rfs_mount *mount)
{
    return mount->options->set.max_threads >= 2;
}

/*
 * Adds an inode to the list of those whose pages go. Under the lock of handles. False: no memory.
 */
static bool note_drop(struct rfs_mount *mount, fuse_ino_t ino)
{
    for (size_t i = 0; i < mount->drops.n; i++)
        if (mount->drops.data[i] == ino)
            return true;
    return RFS_PUSH(&mount->drops, ino);
}

/*
 * Drops the pages that the kernel keeps of an inode: after the reply, because it waits for pages
 * that are being read, and not from the guard's thread. While one thread drops pages, the others
 * leave theirs to it.
 */
static void drop_pages(struct rfs_mount *mount, fuse_ino_t ino)
{
    pthread_mutex_lock(&mount->handles_lock);
    const bool mine = note_drop(mount, ino) && !mount->dropping;
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

/* ---- open files ------------------------------------------------------------------------------ */

void rfs_ops_leave_handle(struct rfs_mount *m, struct rfs_handle *handle)
{
    if (atomic_fetch_sub(&handle->users, 1) > 1)
        return;
    pthread_mutex_lock(&m->handles_lock);
    if (handle->previous)
        handle->previous->next = handle->next;
    else
        m->handles = handle->next;
    if (handle->next)
        handle->next->previous = handle->previous;
    pthread_mutex_unlock(&m->handles_lock);
    reshard_reader_close(handle->reader);
    free(handle->text);
    free(handle);
}

static int open_handle(struct rfs_mount *m, uint64_t id, struct rfs_handle **out)
{
    struct rfs_handle *handle = calloc(1, sizeof *handle);
    int rc;

    if (!handle)
        return -ENOMEM;
    rc = rfs_control_owns(id) ? rfs_control_text(m, id, &handle->text, &handle->bytes)
                              : reshard_reader_open(m->view, id, &handle->reader);
    if (rc < 0) {
        free(handle);
        return rc;
    }
    atomic_init(&handle->users, 1);
    pthread_mutex_lock(&m->handles_lock);
    handle->next = m->handles;
    if (handle->next)
        handle->next->previous = handle;
    m->handles = handle;
    pthread_mutex_unlock(&m->handles_lock);
    *out = handle;
    return 0;
}

/* Returns whether the kernel may keep pages of a file after it was closed. */
static bool may_have_pages(const struct rfs_mount *m, uint64_t id)
{
    return !rfs_control_owns(id) && !rfs_options_keyed(&m->options->set);
}

/*
 * Returns whether a file is opened for reading through the page cache. Tensors by themselves are
 * there to be mapped, whatever is said of checkpoints. While pages of a file are being read,
 * because others map it, mapping it with direct_io would wait for these pages, which no signal
 * ends, and drop them.
 */
static bool is_cached(struct rfs_mount *m, uint64_t id)
{
    reshard_stat known = {.struct_size = sizeof known};

    if (!may_have_pages(m, id))
        return false;
    if ((m->cached && !m->by_file) || rfs_requests_lock_pages(&m->requests, id))
        return true;
    return reshard_getattr(m->view, id, &known, NULL) == 0 && known.mapped &&
           (m->cached || known.hidden);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct rfs_mount *m = mount_of(req);
    struct rfs_handle *handle;
    int rc;

    if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC)) {
        fuse_reply_err(req, EROFS);
        return;
    }
    if (is_own(req)) {
        fuse_reply_err(req, ELOOP);
        return;
    }
    if (defers(req, rfs_guard_is_me() && !rfs_control_owns(ino)))
        return;
    struct rfs_request *request = rfs_request_begin(req);
    rc = open_handle(m, ino, &handle);
    const bool cached = rc == 0 && is_cached(m, ino);
    if (!rfs_request_end(request, req)) {
        if (rc == 0)
            rfs_ops_leave_handle(m, handle);
        return;
    }
    if (rc < 0) {
        fuse_reply_err(req, -rc);
        return;
    }
    fi->direct_io = !cached;
    /* Mappings and sendfile have pages with direct_io, too. To drop them is to wait for them. */
    fi->keep_cache = may_have_pages(m, ino) && !atomic_load(&m->stale);
    fi->fh = (uintptr_t)handle;
    if (fuse_reply_open(req, fi) < 0) /* interrupted: no release will come */
        rfs_ops_leave_handle(m, handle);
}

/* Closes a file. With a key, only private mappings have pages: this may have been the last one. */
static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct rfs_mount *m = mount_of(req);
    const bool drops =
        rfs_options_keyed(&m->options->set) && !rfs_control_owns(ino) && pages_can_go(m);

    if (defers(req, rfs_guard_is_me() && drops))
        return;
    rfs_ops_leave_handle(m, (struct rfs_handle *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
    if (drops)
        drop_pages(m, ino);
}

/*
 * Replies from the thread's own memory: once the kernel has the reply, the handle may be closed
 * before sending it returns.
 */
static void reply_text(fuse_req_t req, const struct rfs_handle *handle, char *scratch, size_t size,
                       off_t offset)
{
    const size_t at = (uint64_t)offset < handle->bytes ? (size_t)offset : handle->bytes;
    const size_t n = size < handle->bytes - at ? size : handle->bytes - at;

    if (n > 0)
        memcpy(scratch, handle->text + at, n);
    fuse_reply_buf(req, scratch, n);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    struct rfs_mount *m = mount_of(req);
    struct rfs_handle *handle = (struct rfs_handle *)(uintptr_t)fi->fh;
    struct iovec spans[SPANS];
    reshard_loan *loan = NULL;
    int count = 0;
    ssize_t n;

    if (defers(req, rfs_guard_is_me() && handle->reader))
        return;
    void *scratch = rfs_request_buffer_get(size + RESHARD_SCRATCH_EXTRA);
    if (!scratch) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    if (!handle->reader) {
        reply_text(req, handle, scratch, size, offset);
        return;
    }
    atomic_fetch_add(&handle->users, 1);
    struct rfs_request *request = rfs_request_begin(req);
    /* The kernel names an owner of locks for read(2) with direct_io, and none for pages. */
    if (fi->lock_owner == 0)
        rfs_request_locks_pages(request, ino);
    n = reshard_reader_borrow(handle->reader, scratch, size, (uint64_t)offset, spans, SPANS, &count,
                              &loan);
    const bool ours = rfs_request_end(request, req);
    if (ours && n < 0)
        fuse_reply_err(req, (int)-n);
    else if (ours)
        fuse_reply_iov(req, spans, count);
    if (loan)
        reshard_return(loan);
    rfs_ops_leave_handle(m, handle); /* of a save that has gone, the loan needs it */
    if (ours && n == -ESTALE) {
        atomic_store(&m->stale, true);
        if (pages_can_go(m))
            drop_pages(m, ino);
    }
}

/* ---- requests that would write --------------------------------------------------------------- */

/*
 * EROFS for every request that would change something. The kernel gives it by itself while the
 * mount is "ro"; these answer after a remount with "rw".
 */

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

static void refuse_writes(struct fuse_lowlevel_ops *ops)
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

void rfs_ops_fill(struct fuse_lowlevel_ops *ops)
{
    *ops = (struct fuse_lowlevel_ops){
        .init = op_init,
        .lookup = op_lookup,
        .getattr = op_getattr,
        .readlink = op_readlink,
        .access = op_access,
        .statfs = op_statfs,
        .readdir = op_readdir,
        .readdirplus = op_readdirplus,
        .open = op_open,
        .release = op_release,
        .read = op_read,
        .getxattr = rfs_control_getxattr,
        .listxattr = rfs_control_listxattr,
    };
    refuse_writes(ops);
}
