/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files.h"

#include "base/aged.h"
#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/once.h"
#include "base/path.h"
#include "base/store.h"
#include "base/vec.h"
#include "store/beneath.h"
#include "store/encrypted.h"
#include "store/packed.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/* ---- descriptors ----------------------------------------------------------------------------- */

/* A descriptor of one path, in the owner's memory; all members under the set's lock. */
struct rfs_fd {
    int fd; /* -1: closed */
    bool opening;
    uint32_t pins;
    struct rfs_fd *older, *newer; /* in the list of idle ones: open, and not pinned */
};
#define RFS_FD_CLOSED ((struct rfs_fd){.fd = -1})

int rfs_fds_init(struct rfs_fds *fds, unsigned limit)
{
    *fds = (struct rfs_fds){.limit = limit};
    int rc = pthread_mutex_init(&fds->lock, NULL);
    if (rc != 0)
        return -rc;
    rc = rfs_cancel_init_cond(&fds->changed);
    if (rc != 0)
        pthread_mutex_destroy(&fds->lock);
    return rc;
}

/*
 * Takes the descriptor of the least recently used idle entry, now closed as far as others see; or
 * returns -1.
 */
static int idle_steal(struct rfs_fds *fds)
{
    struct rfs_fd *victim = fds->oldest;
    if (!victim)
        return -1;
    RFS_AGED_REMOVE(fds, victim);
    const int fd = victim->fd;
    victim->fd = -1;
    return fd;
}

static void wake(struct rfs_fds *fds)
{
    if (fds->waiters > 0)
        pthread_cond_broadcast(&fds->changed);
}

void rfs_fds_destroy(struct rfs_fds *fds)
{
    for (int fd = idle_steal(fds); fd >= 0; fd = idle_steal(fds))
        close(fd);
    pthread_cond_destroy(&fds->changed);
    pthread_mutex_destroy(&fds->lock);
}

/* Ends the closing of an entry: its descriptor is out of everybody's sight already. */
static void close_counted(struct rfs_fds *fds, int fd)
{
    if (fd < 0)
        return;
    close(fd);
    RFS_LOCKED(&fds->lock);
    fds->used--;
    wake(fds);
}

/* Opens without the lock; when the process has no descriptor left, gives up idle ones for it. */
static int open_path(struct rfs_fds *fds, const struct rfs_beneath *beneath, const char *path)
{
    for (;;) {
        const int fd = rfs_beneath_file(beneath, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd != -EMFILE && fd != -ENFILE)
            return fd;
        pthread_mutex_lock(&fds->lock);
        const int victim = idle_steal(fds);
        pthread_mutex_unlock(&fds->lock);
        if (victim < 0)
            return fd;
        close_counted(fds, victim);
    }
}

static int take_open(struct rfs_fds *fds, struct rfs_fd *entry, const struct rfs_beneath *beneath,
                     const char *path, int *fd, bool *fresh)
{
    int victim = -1;
    pthread_mutex_lock(&fds->lock);
    while (entry->fd < 0) {
        if (!entry->opening && fds->used < fds->limit) {
            fds->used++;
            break;
        }
        if (!entry->opening && (victim = idle_steal(fds)) >= 0)
            break; /* its room is ours */
        fds->waiters++;
        const int rc = rfs_cancel_wait(&fds->changed, &fds->lock);
        fds->waiters--;
        if (rc < 0) {
            pthread_mutex_unlock(&fds->lock);
            return rc;
        }
    }
    *fresh = entry->fd < 0;
    if (!*fresh) {
        if (entry->pins++ == 0)
            RFS_AGED_REMOVE(fds, entry);
        *fd = entry->fd;
        pthread_mutex_unlock(&fds->lock);
        return 0;
    }
    entry->opening = true;
    pthread_mutex_unlock(&fds->lock);

    if (victim >= 0)
        close(victim);
    const int opened = open_path(fds, beneath, path);

    RFS_LOCKED(&fds->lock);
    entry->opening = false;
    if (opened >= 0) {
        entry->fd = *fd = opened;
        entry->pins = 1;
    } else {
        fds->used--;
    }
    wake(fds);
    return opened >= 0 ? 0 : opened;
}

static bool is_fd_open(struct rfs_fds *fds, const struct rfs_fd *entry)
{
    RFS_LOCKED(&fds->lock);
    return entry->fd >= 0;
}

static void give_open(struct rfs_fds *fds, struct rfs_fd *entry, bool drop)
{
    int dropped = -1;
    pthread_mutex_lock(&fds->lock);
    if (--entry->pins == 0) {
        if (drop) {
            dropped = entry->fd;
            entry->fd = -1;
        } else {
            RFS_AGED_ADD(fds, entry);
        }
        wake(fds);
    }
    pthread_mutex_unlock(&fds->lock);
    close_counted(fds, dropped);
}

static void drop_open(struct rfs_fds *fds, struct rfs_fd *entry)
{
    int dropped = -1;
    pthread_mutex_lock(&fds->lock);
    if (entry->fd >= 0 && entry->pins == 0) {
        RFS_AGED_REMOVE(fds, entry);
        dropped = entry->fd;
        entry->fd = -1;
    }
    pthread_mutex_unlock(&fds->lock);
    close_counted(fds, dropped);
}

/* ---- files ----------------------------------------------------------------------------------- */

struct identity {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

struct file {
    char *path;
    struct rfs_fd fd;
    bool is_object;                      /* the path is a URL: it has no descriptor */
    _Atomic(struct rfs_object *) object; /* the version that is read, from its first use on */
    _Atomic int failed;                  /* the -errno that stuck, or 0 */
    _Atomic(char *) why;  /* the line that was logged of that; owned; set before it, or NULL */
    atomic_bool walked;   /* its path leads not home */
    atomic_bool recorded; /* set, with release, after id; id never changes then */
    struct identity id;
    _Atomic(struct rfs_cipher *) cipher; /* of an encrypted file, from its first use on; owned */
    struct rfs_packed *packed;           /* its compressed items; owned; NULL: it has none */
};

struct rfs_files {
    struct rfs_log *log;
    RFS_VEC(struct file *) list; /* by id; each owned */
    struct rfs_fds *fds;         /* own_fds, or lent */
    struct rfs_fds own_fds;
    const struct rfs_beneath *beneath; /* where they are opened; lent; NULL: links are followed */
    struct rfs_encrypted *encrypted;   /* opens encrypted files; lent; NULL: files are plain */
    struct rfs_store *store;           /* reads those that are objects; lent; or NULL */
    struct rfs_blocks *unpacked;       /* decompressed items; NULL: none is compressed */
    pthread_mutex_t lock; /* of recording an identity; a leaf lock, no system call under it */
    bool for_others;
    struct rfs_access_above above;
    atomic_uint_fast64_t home; /* the device that no path may lead to, plus 1; 0: none */
    atomic_uint_fast64_t opens, reads, bytes, checks, errors;
};

struct rfs_files *rfs_files_new(struct rfs_log *log)
{
    return rfs_files_sharing(log, NULL);
}

struct rfs_files *rfs_files_sharing(struct rfs_log *log, struct rfs_fds *fds)
{
    struct rfs_files *files = calloc(1, sizeof *files);
    if (!files)
        return NULL;
    files->log = log;
    files->fds = fds ? fds : &files->own_fds;
    if (!fds && rfs_fds_init(&files->own_fds, rfs_limits_files(RFS_MAX_OPEN)) != 0) {
        free(files);
        return NULL;
    }
    pthread_mutex_init(&files->above.lock, NULL);
    if (pthread_mutex_init(&files->lock, NULL) != 0) {
        if (!fds)
            rfs_fds_destroy(&files->own_fds);
        free(files);
        return NULL;
    }
    return files;
}

void rfs_files_free(struct rfs_files *files)
{
    if (!files)
        return;
    for (size_t i = 0; i < files->list.n; i++) {
        drop_open(files->fds, &files->list.data[i]->fd);
        free(files->list.data[i]->path);
        free(atomic_load(&files->list.data[i]->why));
        free(atomic_load(&files->list.data[i]->cipher));
        if (files->list.data[i]->object)
            files->store->objects->let_go(files->list.data[i]->object);
        if (files->list.data[i]->packed)
            free(files->list.data[i]->packed->items.data);
        free(files->list.data[i]->packed);
        free(files->list.data[i]);
    }
    rfs_blocks_free(files->unpacked);
    if (files->fds == &files->own_fds)
        rfs_fds_destroy(&files->own_fds);
    pthread_mutex_destroy(&files->lock);
    pthread_mutex_destroy(&files->above.lock);
    free(files->above.path);
    free(files->list.data);
    free(files);
}

void rfs_files_set_encrypted(struct rfs_files *files, struct rfs_encrypted *encrypted)
{
    files->encrypted = encrypted;
}

void rfs_files_set_beneath(struct rfs_files *files, const struct rfs_beneath *beneath)
{
    files->beneath = beneath;
}

const struct rfs_beneath *rfs_files_beneath(const struct rfs_files *files)
{
    return files->beneath;
}

void rfs_files_set_store(struct rfs_files *files, struct rfs_store *store)
{
    files->store = store;
}

struct rfs_store *rfs_files_store(const struct rfs_files *files)
{
    return files->store;
}

void rfs_files_set_for_others(struct rfs_files *files)
{
    files->for_others = true;
}

struct rfs_access rfs_files_access(struct rfs_files *files, uint32_t id, const struct stat *st)
{
    const char *path = files->list.data[id]->path;
    const struct rfs_access access = rfs_access_of(path, st, RFS_MAY_READ);
    struct stat now;
    if (!files->for_others || rfs_store_is_url(path))
        return access;
    RFS_FREE char *real = realpath(path, NULL);
    if (!real)
        return rfs_access_own();
    const struct rfs_access above = rfs_access_above(&files->above, real);
    return rfs_beneath_stat(files->beneath, files->store, path, &now) == 0 &&
                   rfs_access_is_of(st, &now)
               ? rfs_access_below(above, access)
               : rfs_access_own();
}

bool rfs_files_are_encrypted(const struct rfs_files *files)
{
    return files->encrypted;
}

bool rfs_files_are_raw(const struct rfs_files *files)
{
    return !files->encrypted && !files->unpacked;
}

int rfs_files_add_packed(struct rfs_files *files, uint32_t id, uint64_t stored, uint64_t bytes,
                         uint64_t most, uint64_t *begin)
{
    struct file *file = files->list.data[id];

    if (!files->unpacked)
        files->unpacked = rfs_blocks_new(RFS_PACKED_BUDGET);
    if (!file->packed)
        file->packed = calloc(1, sizeof *file->packed);
    return files->unpacked && file->packed
               ? rfs_packed_add(file->packed, stored, bytes, most, begin)
               : -ENOMEM;
}

struct rfs_blocks *rfs_files_packed(const struct rfs_files *files)
{
    return files->unpacked;
}

bool rfs_files_is_packed(const struct rfs_files *files, uint32_t id)
{
    return files->list.data[id]->packed;
}

uint64_t rfs_files_offset(const struct rfs_files *files, uint32_t id, uint64_t at)
{
    const struct rfs_packed *packed = files->list.data[id]->packed;

    return packed && at < packed->end ? packed->items.data[rfs_packed_number(packed, at)].stored
                                      : at;
}

uint32_t rfs_files_add(struct rfs_files *files, const char *path)
{
    struct file *file = calloc(1, sizeof *file);
    char *copy = strdup(path);
    if (!file || !copy || files->list.n >= UINT32_MAX || !RFS_PUSH(&files->list, file)) {
        free(file);
        free(copy);
        return UINT32_MAX;
    }
    file->path = copy;
    file->is_object = rfs_store_is_url(copy);
    file->fd = RFS_FD_CLOSED;
    // cppcheck-suppress memleak; the list has it
    return (uint32_t)files->list.n - 1;
}

uint32_t rfs_files_count_paths(const struct rfs_files *files)
{
    return (uint32_t)files->list.n;
}

const char *rfs_files_path(const struct rfs_files *files, uint32_t id)
{
    return files->list.data[id]->path;
}

int rfs_files_state(const struct rfs_files *files, uint32_t id)
{
    return atomic_load_explicit(&files->list.data[id]->failed, memory_order_acquire);
}

bool rfs_files_reason(const struct rfs_files *files, uint32_t id, int code, struct rfs_error *err)
{
    const struct file *file = files->list.data[id];
    const char *why = rfs_files_state(files, id) == code ? RFS_PUBLISHED(&file->why) : NULL;
    if (why && err) {
        *err = (struct rfs_error){.code = code};
        snprintf(err->text, sizeof err->text, "%s", why);
    }
    return why != NULL;
}

void rfs_files_set_home(struct rfs_files *files, dev_t device)
{
    atomic_store(&files->home, (uint64_t)device + 1);
}

void rfs_files_count(struct rfs_files *files, struct rfs_files_counters *out)
{
    out->opens = atomic_load_explicit(&files->opens, memory_order_relaxed);
    out->reads = atomic_load_explicit(&files->reads, memory_order_relaxed);
    out->checks = atomic_load_explicit(&files->checks, memory_order_relaxed);
    out->bytes = atomic_load_explicit(&files->bytes, memory_order_relaxed);
    out->errors = atomic_load_explicit(&files->errors, memory_order_relaxed);
}

int rfs_files_fail(struct rfs_error *err, const char *path, int code)
{
    if (code == -ESTALE)
        return rfs_fail(err, code, RFS_IN(path), "mount again once nobody writes it",
                        "the file was changed or removed while in use");
    if (code == -EXDEV)
        return rfs_beneath_fail(err, path);
    return rfs_fail(err, code, RFS_IN(path),
                    code == -EACCES || code == -EPERM || code == -EIO ? rfs_store_remedy(path, code)
                                                                      : NULL,
                    "the file cannot be read: %s", rfs_store_why(path, code));
}

#define CIRCLE "its path leads in circles, or into the mount that is made from it"

/* ---- failures -------------------------------------------------------------------------------- */

static int set_failed(struct rfs_files *files, struct file *file, int code, const char *line,
                      bool quiet)
{
    int before = 0;
    /* rfs_files_state acquires it, and with it the reason. */
    if (!atomic_compare_exchange_strong(&file->failed, &before, code))
        return before;
    atomic_fetch_add_explicit(&files->errors, 1, memory_order_relaxed);
    if (!quiet)
        rfs_log_limited(files->log, RFS_ERROR, "%s", line);
    return code;
}

static int stick(struct rfs_files *files, struct file *file, int code, const char *what)
{
    char line[2048];
    snprintf(line, sizeof line, "%s: %s; try: %s", file->path, what,
             code == -ESTALE  ? "mount again"
             : code == -ELOOP ? "a source outside of the mount, and mount again"
                              : rfs_store_remedy(file->path, code));
    return set_failed(files, file, code, line, false);
}

static int stick_line(struct rfs_files *files, struct file *file, int code, const char *line,
                      bool quiet)
{
    /*
     * The text comes before it sticks: of two threads that are here at once, both have found one
     * failure.
     */
    char *why = strdup(line);
    const bool kept = RFS_PUBLISH(&file->why, why, free);
    // cppcheck-suppress memleak; it is published or freed
    return set_failed(files, file, code, line, quiet && kept);
}

/* Counts a call that failed for a reason that does not concern the content of the file. */
static int passing_failure(struct rfs_files *files, int code)
{
    atomic_fetch_add_explicit(&files->errors, 1, memory_order_relaxed);
    return -code;
}

/*
 * Logs that access to the file was denied. This does not mean a change: changed permissions of the
 * file itself show in its times, and those of folders may be restored.
 */
static void tell_denied(struct rfs_files *files, const struct file *file, const char *what)
{
    rfs_log_limited(files->log, RFS_ERROR, "%s: %s; try: %s", file->path, what,
                    rfs_store_remedy(file->path, EACCES));
}

/* Reports that the store of objects gave no answer that can be used; it may give one later. */
static int store_failed(struct rfs_files *files, const struct file *file, const char *what)
{
    rfs_log_limited(files->log, RFS_ERROR, "%s: %s; try: %s", file->path, what,
                    rfs_store_remedy(file->path, EIO));
    return passing_failure(files, EIO);
}

static bool passes(int code)
{
    return code == -ENOMEM || code == -EMFILE || code == -ENFILE || code == -EINTR ||
           code == -EAGAIN || code == -EACCES || code == -EPERM;
}

/* A service that gave no credentials may give some later. */
static bool passes_in_store(int code)
{
    return code == -EIO || code == -ENOKEY;
}

bool rfs_files_may_pass(const struct rfs_files *files, int code)
{
    return passes(code) || (files->store && passes_in_store(code));
}

/* Reports a link that leads out of the folder that files are opened beneath. */
static int led_out(struct rfs_files *files, struct file *file)
{
    struct rfs_error err;
    rfs_beneath_fail(&err, file->path);
    return stick_line(files, file, -EXDEV, err.text, false);
}

static int call_failed(struct rfs_files *files, struct file *file, const char *call, int code)
{
    char what[1024];
    if (code == EINTR && rfs_cancelled())
        return -EINTR;
    snprintf(what, sizeof what, "%s: %s", call, rfs_store_why(file->path, code));
    if (file->is_object && passes_in_store(-code))
        return store_failed(files, file, what);
    if (code == EACCES || code == EPERM)
        tell_denied(files, file, what);
    if (passes(-code))
        return passing_failure(files, code);
    switch (code) {
    case EXDEV:
        return led_out(files, file);
    case ENOENT:
    case ENOTDIR:
        return stick(files, file, -ESTALE,
                     atomic_load_explicit(&file->recorded, memory_order_relaxed)
                         ? "the file was removed"
                         : "the file is not there");
    case ELOOP:
        return stick(files, file, -ELOOP, CIRCLE);
    case ESTALE:
        return stick(files, file, -ESTALE, what);
    default:
        return stick(files, file, -EIO, what);
    }
}

/* ---- identities ------------------------------------------------------------------------------ */

static struct identity identity_of(const struct stat *st)
{
    return (struct identity){st->st_dev, st->st_ino, st->st_size, st->st_mtim, st->st_ctim};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Notes that there is a folder, a FIFO and so on where a file should be: the caller reports it. */
static int never_regular(struct rfs_files *files, struct file *file)
{
    struct rfs_error err;

    rfs_fail(&err, -EINVAL, RFS_IN(file->path), "the file of the checkpoint in its place",
             "not a regular file");
    return stick_line(files, file, -EINVAL, err.text, true);
}

/*
 * Compares with the recorded identity, or records it at the first time. 0 or the failure that
 * stuck.
 */
static int compare(struct rfs_files *files, struct file *file, const struct stat *st)
{
    const struct identity now = identity_of(st);
    if (!S_ISREG(st->st_mode))
        return atomic_load_explicit(&file->recorded, memory_order_acquire)
                   ? stick(files, file, -ESTALE, "the file is no longer a regular file")
                   : never_regular(files, file);
    if (!atomic_load_explicit(&file->recorded, memory_order_acquire)) {
        RFS_LOCKED(&files->lock);
        if (!atomic_load_explicit(&file->recorded, memory_order_relaxed)) {
            file->id = now; /* a thread that acquires "recorded" may read it */
            atomic_store_explicit(&file->recorded, true, memory_order_release);
        }
    }
    const struct identity *id = &file->id;
    if (now.dev != id->dev || now.ino != id->ino)
        return stick(files, file, -ESTALE, "the file was replaced by another");
    if (now.size != id->size) {
        char what[128];
        snprintf(what, sizeof what, "the file's size changed from %lld to %lld bytes",
                 (long long)id->size, (long long)now.size);
        return stick(files, file, -ESTALE, what);
    }
    if (!same_time(now.mtime, id->mtime))
        return stick(files, file, -ESTALE, "the file was modified");
    if (!same_time(now.ctime, id->ctime))
        return stick(files, file, -ESTALE, "the file's attributes were changed");
    return 0;
}

bool rfs_files_leads_home(struct rfs_files *files, uint32_t id)
{
    struct file *file = files->list.data[id];
    const uint64_t home = atomic_load_explicit(&files->home, memory_order_relaxed);
    if (home == 0 || atomic_load_explicit(&file->walked, memory_order_relaxed))
        return false;
    if (rfs_beneath_leads_to(file->path, (dev_t)(home - 1)))
        return true;
    atomic_store_explicit(&file->walked, true, memory_order_relaxed);
    return false;
}

int rfs_files_stat(struct rfs_files *files, uint32_t id, struct stat *st)
{
    struct file *file = files->list.data[id];
    const int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    if (rfs_cancelled())
        return -EINTR;
    if (rfs_files_leads_home(files, id))
        return stick(files, file, -ELOOP, CIRCLE);
    atomic_fetch_add_explicit(&files->checks, 1, memory_order_relaxed);
    /* A recorded identity is compared wherever the path leads now. */
    const bool recorded = atomic_load_explicit(&file->recorded, memory_order_acquire);
    const int failed =
        rfs_beneath_stat(recorded ? NULL : files->beneath, files->store, file->path, st);
    return failed ? call_failed(files, file, "stat", -failed) : compare(files, file, st);
}

int rfs_files_look(struct rfs_files *files, uint32_t id, struct stat *st)
{
    const struct file *file = files->list.data[id];
    if (atomic_load_explicit(&file->recorded, memory_order_acquire) ||
        rfs_files_state(files, id) != 0)
        return rfs_files_stat(files, id, st);
    if (rfs_files_leads_home(files, id))
        return -ELOOP;
    return rfs_beneath_stat(files->beneath, files->store, file->path, st);
}

int rfs_files_check(struct rfs_files *files, uint32_t id)
{
    struct stat st;
    const int rc = rfs_files_stat(files, id, &st);
    if (rc < 0) /* so that a file that was removed does not keep its room on the disk */
        drop_open(files->fds, &files->list.data[id]->fd);
    return rc;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* A file as its bytes are on disk. */
struct raw {
    struct rfs_files *files;
    uint32_t id;
    int fd;     /* -1: of an object */
    bool ahead; /* no request depends on it: failures do not stick */
};

/* Takes N bytes off the front of the spans; how many spans are used up. */
static int advance(struct iovec *spans, int count, size_t n)
{
    int used = 0;
    while (used < count && n >= spans[used].iov_len)
        n -= spans[used++].iov_len;
    if (used < count) {
        spans[used].iov_base = (unsigned char *)spans[used].iov_base + n;
        spans[used].iov_len -= n;
    }
    return used;
}

static int read_failed(const struct raw *raw, ssize_t n)
{
    struct rfs_files *files = raw->files;
    if (raw->ahead)
        return n < 0 ? -errno : -ESTALE;
    if (n < 0)
        return call_failed(files, files->list.data[raw->id], "read", errno);
    const int changed = rfs_files_check(files, raw->id);
    return changed < 0 ? changed
                       : stick(files, files->list.data[raw->id], -ESTALE, "the file was truncated");
}

/* Fills all spans with bytes of an object: the store repeats requests that may succeed. */
static int read_object(const struct raw *raw, struct iovec *spans, int count, uint64_t offset)
{
    struct rfs_files *files = raw->files;
    struct file *file = files->list.data[raw->id];
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += spans[i].iov_len;
    atomic_fetch_add_explicit(&files->reads, 1, memory_order_relaxed);
    const int rc = files->store->objects->read(RFS_PUBLISHED(&file->object), spans, count, offset);
    if (rc < 0)
        return raw->ahead ? rc : call_failed(files, file, "read", -rc);
    atomic_fetch_add_explicit(&files->bytes, bytes, memory_order_relaxed);
    return 0;
}

/* Fills all spans with the file's bytes from OFFSET on. EINTR and short reads are retried. */
static int read_spans(void *ctx, struct iovec *spans, int count, uint64_t offset)
{
    const struct raw *raw = ctx;
    struct rfs_files *files = raw->files;
    if (raw->fd < 0 && count > 0)
        return rfs_cancelled() ? -EINTR : read_object(raw, spans, count, offset);
    while (count > 0) {
        if (rfs_cancelled())
            return -EINTR;
        atomic_fetch_add_explicit(&files->reads, 1, memory_order_relaxed);
        const ssize_t n = count == 1
                              ? pread(raw->fd, spans->iov_base, spans->iov_len, (off_t)offset)
                              : preadv(raw->fd, spans, count, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return read_failed(raw, n);
        atomic_fetch_add_explicit(&files->bytes, (uint64_t)n, memory_order_relaxed);
        const int used = advance(spans, count, (size_t)n);
        spans += used;
        count -= used;
        offset += (uint64_t)n;
    }
    return 0;
}

/* ---- encrypted files ------------------------------------------------------------------------- */

static struct rfs_cipher_input input_of(struct raw *raw)
{
    const struct file *file = raw->files->list.data[raw->id];
    return (struct rfs_cipher_input){read_spans, raw, (uint64_t)file->id.size, file->path};
}

/*
 * Makes an error in an encrypted block, or a compressed item, stick, unless the file was changed
 * meanwhile or the process lacks resources.
 */
static int content_failed(struct rfs_files *files, uint32_t id, int code, bool quiet,
                          const struct rfs_error *err)
{
    struct file *file = files->list.data[id];

    if (err->code == 0 || code == -ENOMEM || code == -EINTR || code == -EFBIG)
        return code;
    const int changed = rfs_files_check(files, id);
    if (changed < 0)
        return changed;
    return stick_line(files, file, code, err->text, quiet);
}

int rfs_files_refuse(struct rfs_files *files, uint32_t id, int code, const struct rfs_error *err)
{
    return content_failed(files, id, code, false, err);
}

/* Opens an encrypted file at its first use; several threads may be here at once. */
static int open_encrypted(struct rfs_files *files, uint32_t id, int fd, bool quiet, uint64_t *size)
{
    struct file *file = files->list.data[id];
    struct rfs_cipher *cipher = RFS_PUBLISHED(&file->cipher);
    if (*size == 0) /* nothing was encrypted: a rank that keeps no parameter has such a file */
        return 0;
    if (!cipher) {
        struct rfs_error err = {0};
        struct raw raw = {files, id, fd, false};
        const struct rfs_cipher_input input = input_of(&raw);
        const int rc = rfs_encrypted_open(files->encrypted, &input, &cipher, &err);
        if (rc < 0)
            return content_failed(files, id, rc, quiet, &err);
        cipher = RFS_PUBLISH(&file->cipher, cipher, free);
    }
    *size = cipher->plain_bytes;
    return 0;
}

static int pread_encrypted(struct rfs_reading *reading, void *buf, size_t size, uint64_t offset)
{
    struct rfs_files *files = reading->files;
    struct file *file = files->list.data[reading->id];
    struct raw raw = {files, reading->id, reading->fd, false};
    const struct rfs_cipher_input input = input_of(&raw);
    struct rfs_error err = {0};
    const int failed = rfs_files_state(files, reading->id);
    if (failed < 0)
        return failed; /* a block is not tried again and again */
    const int rc = rfs_encrypted_pread(files->encrypted, RFS_PUBLISHED(&file->cipher), &input, buf,
                                       size, offset, &err);
    return rc < 0 ? content_failed(files, reading->id, rc, reading->quiet, &err) : 0;
}

/* ---- compressed items ------------------------------------------------------------------------ */

static int read_stored(void *ctx, void *buf, size_t size, uint64_t offset)
{
    return read_spans(ctx, &(struct iovec){buf, size}, size > 0, offset);
}

/* Reads plain bytes of items; with BUF NULL, measures one, as rfs_packed_read. */
static int pread_packed(struct rfs_reading *reading, void *buf, size_t size, uint64_t offset,
                        uint64_t *bytes, struct rfs_error *err)
{
    struct rfs_files *files = reading->files;
    const struct file *file = files->list.data[reading->id];
    struct raw raw = {files, reading->id, reading->fd, false};
    const struct rfs_packed_input input = {.read = read_stored,
                                           .ctx = &raw,
                                           .file_bytes = (uint64_t)file->id.size,
                                           .path = file->path,
                                           .file = reading->id,
                                           .blocks = files->unpacked};
    const int failed = rfs_files_state(files, reading->id);
    if (failed < 0)
        return failed; /* an item is not tried again and again */
    const int rc = rfs_packed_read(file->packed, &input, buf, size, offset, bytes, err);
    if (rc == -EFBIG && !reading->quiet)
        rfs_log_limited(files->log, RFS_ERROR, "%s", err->text);
    return rc < 0 ? content_failed(files, reading->id, rc, reading->quiet, err) : 0;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

/* Holds the version of the object that is recorded, or records it: the first time alone. */
static int take_object(struct rfs_files *files, struct file *file, bool ahead)
{
    struct rfs_object *object = NULL;
    struct stat st;
    if (RFS_PUBLISHED(&file->object))
        return 0;
    int rc = rfs_store_hold(files->store, file->path, &object, &st);
    if (rc < 0)
        return ahead ? rc : call_failed(files, file, "open", -rc);
    atomic_fetch_add_explicit(&files->opens, 1, memory_order_relaxed);
    rc = compare(files, file, &st);
    if (rc < 0)
        files->store->objects->let_go(object);
    else
        RFS_PUBLISH(&file->object, object, files->store->objects->let_go);
    return rc;
}

static bool is_open(struct rfs_files *files, struct file *file)
{
    return file->is_object ? RFS_PUBLISHED(&file->object) != NULL
                           : is_fd_open(files->fds, &file->fd);
}

static void give_fd(struct rfs_files *files, struct file *file, bool drop)
{
    if (!file->is_object)
        give_open(files->fds, &file->fd, drop);
}

/*
 * Pins the file's descriptor. A fresh one is compared, since the path may have been given to
 * another file meanwhile, and so is a file that was not KNOWN.
 */
static int take_fd(struct rfs_files *files, struct file *file, bool known, bool ahead, int *fd)
{
    struct stat st;
    bool fresh = false;
    int failed;
    *fd = -1;
    if (file->is_object)
        return take_object(files, file, ahead);
    int rc = take_open(files->fds, &file->fd, files->beneath, file->path, fd, &fresh);
    if (fresh)
        atomic_fetch_add_explicit(&files->opens, 1, memory_order_relaxed);
    if (rc < 0)
        return ahead ? rc : call_failed(files, file, "open", -rc);
    if (!fresh && known)
        return 0;
    while ((failed = fstat(*fd, &st)) != 0 && errno == EINTR)
        continue;
    rc = failed == 0 ? compare(files, file, &st)
         : ahead     ? -errno
                     : call_failed(files, file, "fstat", errno);
    if (rc < 0)
        give_open(files->fds, &file->fd, true);
    return rc;
}

/* Ways to begin a reading. */
enum beginning {
    COMPARED,       /* the file is compared with what is recorded of it */
    COMPARED_QUIET, /* so, and what fails is not logged */
    TRUSTED,        /* unless it is open */
};

static int reading_begin(struct rfs_files *files, uint32_t id, enum beginning how,
                         struct rfs_reading *reading)
{
    const bool quiet = how == COMPARED_QUIET;
    struct file *file = files->list.data[id];
    int fd;
    int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    /* A file opened beneath a folder need not be examined before. */
    const bool known =
        !files->beneath || atomic_load_explicit(&file->recorded, memory_order_acquire);
    if (known && (how != TRUSTED || !is_open(files, file)))
        rc = rfs_files_check(files, id);
    if (rc == 0)
        rc = take_fd(files, file, known, false, &fd);
    if (rc < 0)
        return rc;
    uint64_t size = (uint64_t)file->id.size;
    rc = files->encrypted ? open_encrypted(files, id, fd, quiet, &size) : 0;
    if (file->packed)
        size = file->packed->end;
    if (rc < 0) {
        give_fd(files, file, true);
        return rc;
    }
    *reading =
        (struct rfs_reading){.files = files, .id = id, .fd = fd, .size = size, .quiet = quiet};
    return 0;
}

int rfs_reading_begin(struct rfs_files *files, uint32_t id, struct rfs_reading *reading)
{
    return reading_begin(files, id, COMPARED, reading);
}

int rfs_reading_begin_quiet(struct rfs_files *files, uint32_t id, struct rfs_reading *reading)
{
    return reading_begin(files, id, COMPARED_QUIET, reading);
}

int rfs_reading_take(struct rfs_files *files, uint32_t id, struct rfs_reading *reading)
{
    return reading_begin(files, id, TRUSTED, reading);
}

int rfs_reading_begin_ahead(struct rfs_files *files, uint32_t id, struct rfs_reading *reading)
{
    struct file *file = files->list.data[id];
    int fd;
    int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    /* A file that is not known yet, or whose bytes are made of others, is not read ahead. */
    if (!rfs_files_are_raw(files) || !atomic_load_explicit(&file->recorded, memory_order_acquire))
        return -EAGAIN;
    rc = take_fd(files, file, true, true, &fd);
    if (rc == 0)
        *reading = (struct rfs_reading){
            .files = files, .id = id, .fd = fd, .size = (uint64_t)file->id.size, .ahead = true};
    return rc;
}

int rfs_reading_end(struct rfs_reading *reading)
{
    struct rfs_files *files = reading->files;
    const int rc = rfs_files_check(files, reading->id);
    give_fd(files, files->list.data[reading->id], rc < 0);
    reading->fd = -1;
    return rc;
}

void rfs_reading_leave(struct rfs_reading *reading)
{
    struct rfs_files *files = reading->files;
    give_fd(files, files->list.data[reading->id], rfs_files_state(files, reading->id) < 0);
    reading->fd = -1;
}

/* ---- bytes that are read, or held already ---------------------------------------------------- */

const unsigned char *rfs_reading_find(const struct rfs_reading *reading, size_t size,
                                      uint64_t offset)
{
    for (size_t i = 0; i < reading->n_held; i++) {
        const struct rfs_held *held = &reading->held[i];
        if (held->file == reading->id && held->from <= offset && offset < held->to)
            return size <= held->to - offset ? held->data + (offset - held->from) : NULL;
    }
    return NULL;
}

/*
 * Returns how many bytes from OFFSET on, of SIZE, are to be read before the next held one; 0: the
 * first is held, at *held.
 */
static size_t not_held(const struct rfs_reading *reading, size_t size, uint64_t offset,
                       const struct rfs_held **held)
{
    for (size_t i = 0; i < reading->n_held; i++) {
        const struct rfs_held *next = &reading->held[i];
        if (next->file != reading->id || next->to <= offset)
            continue;
        if (next->from <= offset) {
            *held = next;
            return 0;
        }
        size = (size_t)rfs_min_u64(size, next->from - offset);
    }
    return size;
}

static int pread_held(struct rfs_reading *reading, unsigned char *buf, size_t size, uint64_t offset)
{
    struct rfs_reading plain = *reading;
    plain.n_held = 0;
    while (size > 0) {
        const struct rfs_held *held = NULL;
        size_t n = not_held(reading, size, offset, &held);
        if (n == 0) {
            n = (size_t)rfs_min_u64(size, held->to - offset);
            memcpy(buf, held->data + (offset - held->from), n);
        } else {
            const int rc = rfs_reading_pread(&plain, buf, n, offset);
            if (rc < 0)
                return rc;
        }
        buf += n;
        size -= n;
        offset += n;
    }
    return 0;
}

int rfs_reading_pread(struct rfs_reading *reading, void *buf, size_t size, uint64_t offset)
{
    struct raw raw = {reading->files, reading->id, reading->fd, reading->ahead};
    if (offset > reading->size || size > reading->size - offset)
        return -ESTALE;
    if (reading->files->encrypted)
        return pread_encrypted(reading, buf, size, offset);
    if (reading->files->list.data[reading->id]->packed) {
        struct rfs_error err = {0};
        return size > 0 ? pread_packed(reading, buf, size, offset, NULL, &err) : 0;
    }
    if (reading->n_held > 0)
        return pread_held(reading, buf, size, offset);
    return read_spans(&raw, &(struct iovec){buf, size}, size > 0, offset);
}

int rfs_reading_read(void *reading, void *buf, size_t size, uint64_t offset)
{
    return rfs_reading_pread(reading, buf, size, offset);
}

int rfs_reading_measure(struct rfs_reading *reading, uint64_t at, uint64_t *bytes,
                        struct rfs_error *err)
{
    struct rfs_error why = {0};
    const char *path = rfs_files_path(reading->files, reading->id);

    if (!reading->files->list.data[reading->id]->packed)
        return 0;
    const int rc = pread_packed(reading, NULL, 0, at, bytes, &why);
    if (rc < 0 && why.code == rc && err)
        *err = why;
    else if (rc < 0)
        rfs_files_fail(err, path, rc);
    return rc;
}

int rfs_reading_preadv(struct rfs_reading *reading, struct iovec *spans, int count, uint64_t offset)
{
    struct raw raw = {reading->files, reading->id, reading->fd, reading->ahead};
    uint64_t size = 0;
    for (int i = 0; i < count; i++)
        size += spans[i].iov_len;
    if (offset > reading->size || size > reading->size - offset)
        return -ESTALE;
    return read_spans(&raw, spans, count, offset);
}

/* ---- folders --------------------------------------------------------------------------------- */

static bool is_link(const char *path)
{
    char first;

    return readlink(path, &first, 1) >= 0;
}

/* Says whether no part of PATH behind its first N bytes is a link; PATH is changed and restored. */
static bool is_plain(char *path, size_t n)
{
    for (char *slash = strchr(path + n + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const bool link = is_link(path);
        *slash = '/';
        if (link)
            return false;
    }
    return !is_link(path);
}

/*
 * Returns the folder that a file really is in, malloc'ed; NULL with errno where it can't be found.
 */
static char *real_folder(const char *path)
{
    char *real = realpath(path, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;

    if (slash)
        slash[slash == real] = '\0'; /* "/" stays */
    return real;
}

int rfs_files_outside(const struct rfs_files *files, const char *root, rfs_files_outside_fn *fn,
                      void *ctx)
{
    RFS_FREE char *last = NULL;
    const size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    int rc = 0;

    for (uint32_t id = 0; rc == 0 && id < rfs_files_count_paths(files); id++) {
        if (rfs_store_is_url(rfs_files_path(files, id)))
            continue;
        RFS_FREE char *path = strdup(rfs_files_path(files, id));
        if (!path)
            return -ENOMEM;
        if (rfs_path_within(path, root) && is_plain(path, n))
            continue;
        RFS_FREE char *folder = real_folder(path);
        if (!folder && errno == ENOMEM)
            return -ENOMEM;
        if (!folder || (last && strcmp(folder, last) == 0))
            continue;
        rc = fn(ctx, folder);
        free(last);
        last = RFS_STEAL(folder);
    }
    return rc;
}
