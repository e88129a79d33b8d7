/* SPDX-License-Identifier: Apache-2.0 */
/* Whether files are unchanged, and failures that stick. */
#include "store/files_internal.h"

#include "base/cancel.h"
#include "base/publish.h"
#include "store/home.h"

#define CIRCLE "its path leads in circles, or into the mount that is made from it"

/* ---- failures -------------------------------------------------------------------------------- */

static int stick_line(struct rfs_files *files, struct rfs_file *file, int code, const char *line,
                      bool quiet)
{
    int before = 0;
    if (!atomic_compare_exchange_strong(&file->failed, &before, code))
        return before;
    atomic_fetch_add_explicit(&files->errors, 1, memory_order_relaxed);
    if (!quiet)
        rfs_log_limited(files->log, RFS_ERROR, "%s", line);
    return code;
}

int rfs_file_stick(struct rfs_files *files, struct rfs_file *file, int code, const char *what)
{
    char line[2048];
    snprintf(line, sizeof line, "%s: %s; try: %s", file->path, what,
             code == -ESTALE  ? "mount again"
             : code == -ELOOP ? "a source outside of the mount, and mount again"
                              : rfs_store_remedy(file->path, code));
    return stick_line(files, file, code, line, false);
}

int rfs_file_stick_line(struct rfs_files *files, struct rfs_file *file, int code, const char *line,
                        bool quiet)
{
    /* Before it sticks: of two threads that are here at once, both have found the same. */
    char *why = strdup(line);
    const bool kept = RFS_PUBLISH(&file->why, why, free);
    // cppcheck-suppress memleak; it is published or freed
    return stick_line(files, file, code, line, quiet && kept);
}

/* A call failed for a reason that does not concern the content of the file. */
static int passing_failure(struct rfs_files *files, int code)
{
    atomic_fetch_add_explicit(&files->errors, 1, memory_order_relaxed);
    return -code;
}

/*
 * Access to the file was denied. This does not mean a change: changed permissions of the file
 * itself show in its times, and those of folders may be restored.
 */
static void tell_denied(struct rfs_files *files, const struct rfs_file *file, const char *what)
{
    rfs_log_limited(files->log, RFS_ERROR, "%s: %s; try: %s", file->path, what,
                    rfs_store_remedy(file->path, EACCES));
}

/* The store of objects gave no answer that can be used; it may give one later. */
static int store_failed(struct rfs_files *files, const struct rfs_file *file, const char *what)
{
    rfs_log_limited(files->log, RFS_ERROR, "%s: %s; try: %s", file->path, what,
                    rfs_store_remedy(file->path, EIO));
    return passing_failure(files, EIO);
}

bool rfs_files_may_pass(int code)
{
    return code == -ENOMEM || code == -EMFILE || code == -ENFILE || code == -EINTR ||
           code == -EAGAIN || code == -EACCES || code == -EPERM;
}

/* A link leads out of the folder that files are opened beneath. */
static int led_out(struct rfs_files *files, struct rfs_file *file)
{
    struct rfs_error err;
    rfs_beneath_fail(&err, file->path);
    return rfs_file_stick_line(files, file, -EXDEV, err.text, false);
}

int rfs_file_call_failed(struct rfs_files *files, struct rfs_file *file, const char *call, int code)
{
    char what[1024];
    if (code == EINTR && rfs_cancelled())
        return -EINTR;
    snprintf(what, sizeof what, "%s: %s", call, rfs_store_why(file->path, code));
    if (file->is_object && code == EIO)
        return store_failed(files, file, what);
    if (code == EACCES || code == EPERM)
        tell_denied(files, file, what);
    if (rfs_files_may_pass(-code))
        return passing_failure(files, code);
    switch (code) {
    case EXDEV:
        return led_out(files, file);
    case ENOENT:
    case ENOTDIR:
        return rfs_file_stick(files, file, -ESTALE,
                              atomic_load_explicit(&file->recorded, memory_order_relaxed)
                                  ? "the file was removed"
                                  : "the file is not there");
    case ELOOP:
        return rfs_file_stick(files, file, -ELOOP, CIRCLE);
    case ESTALE:
        return rfs_file_stick(files, file, -ESTALE, what);
    default:
        return rfs_file_stick(files, file, -EIO, what);
    }
}

/* ---- identities ------------------------------------------------------------------------------ */

static struct rfs_identity identity_of(const struct stat *st)
{
    return (struct rfs_identity){st->st_dev, st->st_ino, st->st_size, st->st_mtim, st->st_ctim};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

void rfs_file_let_go(struct rfs_object *object)
{
    if (object)
        rfs_store_objects()->let_go(object);
}

/* A folder, a FIFO and so on where a file should be: the caller reports it. */
static int never_regular(struct rfs_files *files, struct rfs_file *file)
{
    struct rfs_error err;

    rfs_fail(&err, -EINVAL, RFS_IN(file->path), "the file of the checkpoint in its place",
             "not a regular file");
    return rfs_file_stick_line(files, file, -EINVAL, err.text, true);
}

/*
 * Compares with the recorded identity, or records it at the first time. 0 or the failure that
 * stuck.
 */
int rfs_file_compare(struct rfs_files *files, struct rfs_file *file, const struct stat *st)
{
    const struct rfs_identity now = identity_of(st);
    if (!S_ISREG(st->st_mode))
        return atomic_load_explicit(&file->recorded, memory_order_acquire)
                   ? rfs_file_stick(files, file, -ESTALE, "the file is no longer a regular file")
                   : never_regular(files, file);
    if (!atomic_load_explicit(&file->recorded, memory_order_acquire)) {
        pthread_mutex_lock(&files->lock);
        if (!atomic_load_explicit(&file->recorded, memory_order_relaxed)) {
            file->id = now;
            atomic_store_explicit(&file->recorded, true, memory_order_release);
        }
        pthread_mutex_unlock(&files->lock);
    }
    const struct rfs_identity *id = &file->id;
    if (now.dev != id->dev || now.ino != id->ino)
        return rfs_file_stick(files, file, -ESTALE, "the file was replaced by another");
    if (now.size != id->size) {
        char what[128];
        snprintf(what, sizeof what, "the file's size changed from %lld to %lld bytes",
                 (long long)id->size, (long long)now.size);
        return rfs_file_stick(files, file, -ESTALE, what);
    }
    if (!same_time(now.mtime, id->mtime))
        return rfs_file_stick(files, file, -ESTALE, "the file was modified");
    if (!same_time(now.ctime, id->ctime))
        return rfs_file_stick(files, file, -ESTALE, "the file's attributes were changed");
    return 0;
}

bool rfs_files_leads_home(struct rfs_files *files, uint32_t id)
{
    struct rfs_file *file = files->list.data[id];
    const uint64_t home = atomic_load_explicit(&files->home, memory_order_relaxed);
    if (home == 0 || atomic_load_explicit(&file->walked, memory_order_relaxed))
        return false;
    if (rfs_leads_home(file->path, (dev_t)(home - 1)))
        return true;
    atomic_store_explicit(&file->walked, true, memory_order_relaxed);
    return false;
}

int rfs_files_stat(struct rfs_files *files, uint32_t id, struct stat *st)
{
    struct rfs_file *file = files->list.data[id];
    const int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    if (rfs_cancelled())
        return -EINTR;
    if (rfs_files_leads_home(files, id))
        return rfs_file_stick(files, file, -ELOOP, CIRCLE);
    atomic_fetch_add_explicit(&files->checks, 1, memory_order_relaxed);
    /* A recorded identity is compared wherever the path leads now. */
    const bool recorded = atomic_load_explicit(&file->recorded, memory_order_acquire);
    const int failed = rfs_beneath_stat(recorded ? NULL : files->beneath, file->path, st);
    return failed ? rfs_file_call_failed(files, file, "stat", -failed)
                  : rfs_file_compare(files, file, st);
}

int rfs_files_look(struct rfs_files *files, uint32_t id, struct stat *st)
{
    const struct rfs_file *file = files->list.data[id];
    if (atomic_load_explicit(&file->recorded, memory_order_acquire) ||
        rfs_files_state(files, id) != 0)
        return rfs_files_stat(files, id, st);
    if (rfs_files_leads_home(files, id))
        return -ELOOP;
    return rfs_beneath_stat(files->beneath, file->path, st);
}

int rfs_files_check(struct rfs_files *files, uint32_t id)
{
    struct stat st;
    const int rc = rfs_files_stat(files, id, &st);
    if (rc < 0) /* so that a file that was removed does not keep its room on the disk */
        rfs_fds_drop(files->fds, &files->list.data[id]->fd);
    return rc;
}
