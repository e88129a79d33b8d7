/* SPDX-License-Identifier: Apache-2.0 */
#include "source/io/files.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/publish.h"
#include "source/io/beneath.h"
#include "source/io/encrypted.h"
#include "source/io/fds.h"
#include "source/io/home.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct identity {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

struct file {
    char *path;
    struct rfs_fd fd;
    _Atomic int failed; /* 0, or the -errno that stuck */
    _Atomic(char *)
        why; /* the line that was logged of that failure; owned; set before it, or NULL */
    atomic_bool walked;   /* its path leads not home */
    atomic_bool recorded; /* set, with release, after id; id never changes then */
    struct identity id;
    _Atomic(struct rfs_cipher *) cipher; /* of an encrypted file, from its first use on; owned */
};

struct rfs_files {
    struct rfs_log *log;
    struct file **list; /* by id; each owned */
    uint32_t n, cap;
    struct rfs_fds *fds; /* own_fds, or lent */
    struct rfs_fds own_fds;
    const struct rfs_beneath *beneath; /* where they are opened; lent; NULL: links are followed */
    struct rfs_encrypted *sealed;      /* what opens encrypted files; lent; NULL: files are plain */
    pthread_mutex_t lock; /* of recording an identity; a leaf lock, no system call under it */
    bool for_others;
    struct rfs_access_above above;
    atomic_uint_fast64_t home; /* 1 + the device that no path may lead to; 0: none */
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
    for (uint32_t i = 0; i < files->n; i++) {
        rfs_fds_drop(files->fds, &files->list[i]->fd);
        free(files->list[i]->path);
        free(atomic_load(&files->list[i]->why));
        free(atomic_load(&files->list[i]->cipher));
        free(files->list[i]);
    }
    if (files->fds == &files->own_fds)
        rfs_fds_destroy(&files->own_fds);
    pthread_mutex_destroy(&files->lock);
    pthread_mutex_destroy(&files->above.lock);
    free(files->above.path);
    free(files->list);
    free(files);
}

void rfs_files_set_encrypted(struct rfs_files *files, struct rfs_encrypted *sealed)
{
    files->sealed = sealed;
}

void rfs_files_set_beneath(struct rfs_files *files, const struct rfs_beneath *beneath)
{
    files->beneath = beneath;
}

const struct rfs_beneath *rfs_files_beneath(const struct rfs_files *files)
{
    return files->beneath;
}

void rfs_files_set_for_others(struct rfs_files *files)
{
    files->for_others = true;
}

struct rfs_access rfs_files_access(struct rfs_files *files, uint32_t id, const struct stat *st)
{
    const char *path = files->list[id]->path;
    const struct rfs_access access = rfs_access_of(path, st, RFS_MAY_READ);
    struct stat now;
    if (!files->for_others)
        return access;
    RFS_FREE char *real = realpath(path, NULL);
    if (!real)
        return rfs_access_own();
    const struct rfs_access above = rfs_access_above(&files->above, real);
    return rfs_beneath_stat(files->beneath, path, &now) == 0 && rfs_access_is_of(st, &now)
               ? rfs_access_below(above, access)
               : rfs_access_own();
}

struct rfs_secret *rfs_files_secret(const struct rfs_files *files)
{
    return files->sealed ? rfs_encrypted_secret(files->sealed) : NULL;
}

uint32_t rfs_files_add(struct rfs_files *files, const char *path)
{
    if (files->n == files->cap) {
        const uint32_t cap = files->cap ? files->cap * 2 : 64;
        if (cap <= files->cap)
            return UINT32_MAX;
        struct file **list = realloc(files->list, cap * sizeof *list);
        if (!list)
            return UINT32_MAX;
        files->list = list;
        files->cap = cap;
    }
    struct file *file = calloc(1, sizeof *file);
    char *copy = strdup(path);
    if (!file || !copy) {
        free(file);
        free(copy);
        return UINT32_MAX;
    }
    file->path = copy;
    file->fd = RFS_FD_CLOSED;
    files->list[files->n] = file;
    return files->n++;
}

uint32_t rfs_files_count_paths(const struct rfs_files *files)
{
    return files->n;
}

const char *rfs_files_path(const struct rfs_files *files, uint32_t id)
{
    return files->list[id]->path;
}

int rfs_files_state(const struct rfs_files *files, uint32_t id)
{
    return atomic_load_explicit(&files->list[id]->failed, memory_order_acquire);
}

bool rfs_files_reason(const struct rfs_files *files, uint32_t id, int code, struct rfs_error *err)
{
    const struct file *file = files->list[id];
    const char *why = rfs_files_state(files, id) == code
                          ? atomic_load_explicit(&file->why, memory_order_acquire)
                          : NULL;
    if (why && err) {
        *err = (struct rfs_error){.code = code};
        snprintf(err->text, sizeof err->text, "%s", why);
    }
    return why != NULL;
}

/* Makes CODE stick, unless another failure did before; logs LINE then. Returns the one that stuck. */
static int stick_line(struct rfs_files *files, struct file *file, int code, const char *line,
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

#define CIRCLE "its path leads in circles, or into the mount that is made from it"

static int stick(struct rfs_files *files, struct file *file, int code, const char *what)
{
    char line[2048];
    snprintf(line, sizeof line, "%s: %s; try: %s", file->path, what,
             code == -ESTALE  ? "mount again"
             : code == -ELOOP ? "a source outside of the mount, and mount again"
                              : "check the disk, then mount again");
    return stick_line(files, file, code, line, false);
}

/* A call failed for a reason that says nothing about the content of the file. */
static int passing_failure(struct rfs_files *files, int code)
{
    atomic_fetch_add_explicit(&files->errors, 1, memory_order_relaxed);
    return -code;
}

/*
 * The file may not be read or looked at. That says nothing of a change: a file whose own permissions were changed is
 * found changed by its times, and folders may let us in again.
 */
static void tell_denied(struct rfs_files *files, const struct file *file, const char *what)
{
    rfs_log_limited(files->log, RFS_ERROR,
                    "%s: %s; try: check the permissions of the file and of its folders", file->path,
                    what);
}

bool rfs_files_may_pass(int code)
{
    return code == -ENOMEM || code == -EMFILE || code == -ENFILE || code == -EINTR ||
           code == -EAGAIN || code == -EACCES || code == -EPERM;
}

/* A system call on the file failed with ERRNO. */
static int call_failed(struct rfs_files *files, struct file *file, const char *call, int code)
{
    char what[128];
    if (code == EINTR && rfs_cancelled())
        return -EINTR;
    snprintf(what, sizeof what, "%s: %s", call, strerror(code));
    if (code == EACCES || code == EPERM)
        tell_denied(files, file, what);
    if (rfs_files_may_pass(-code))
        return passing_failure(files, code);
    switch (code) {
    case ENOENT:
    case ENOTDIR:
        return stick(files, file, -ESTALE, "the file was removed");
    case ELOOP:
        return stick(files, file, -ELOOP, CIRCLE);
    case ESTALE:
        return stick(files, file, -ESTALE, what);
    default:
        return stick(files, file, -EIO, what);
    }
}

/* Keeps LINE for who asks why, before it sticks: of two threads that are here at once, both have found the same. */
static void keep_why(struct file *file, const char *line)
{
    char *why = strdup(line);
    (void)RFS_PUBLISH(&file->why, why, free);
}

/* A link leads out of the folder that files are opened beneath. */
static int led_out(struct rfs_files *files, struct file *file)
{
    struct rfs_error err;
    rfs_beneath_fail(&err, file->path);
    keep_why(file, err.text);
    return stick_line(files, file, -EXDEV, err.text, false);
}

static int open_failed(struct rfs_files *files, struct file *file, int code)
{
    return code == EXDEV ? led_out(files, file) : call_failed(files, file, "open", code);
}

static struct identity identity_of(const struct stat *st)
{
    return (struct identity){st->st_dev, st->st_ino, st->st_size, st->st_mtim, st->st_ctim};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Compares with what was recorded, or records it at the first time. 0 or what stuck. */
static int compare(struct rfs_files *files, struct file *file, const struct stat *st)
{
    const struct identity now = identity_of(st);
    if (!S_ISREG(st->st_mode))
        return stick(files, file, -ESTALE, "the file is no longer a regular file");
    if (!atomic_load_explicit(&file->recorded, memory_order_acquire)) {
        pthread_mutex_lock(&files->lock);
        if (!atomic_load_explicit(&file->recorded, memory_order_relaxed)) {
            file->id = now;
            atomic_store_explicit(&file->recorded, true, memory_order_release);
        }
        pthread_mutex_unlock(&files->lock);
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

void rfs_files_set_home(struct rfs_files *files, dev_t device)
{
    atomic_store(&files->home, (uint64_t)device + 1);
}

bool rfs_files_leads_home(struct rfs_files *files, uint32_t id)
{
    struct file *file = files->list[id];
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
    struct file *file = files->list[id];
    const int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    if (rfs_cancelled())
        return -EINTR;
    if (rfs_files_leads_home(files, id))
        return stick(files, file, -ELOOP, CIRCLE);
    atomic_fetch_add_explicit(&files->checks, 1, memory_order_relaxed);
    /* What is recorded is compared wherever the path leads by now. */
    const bool recorded = atomic_load_explicit(&file->recorded, memory_order_acquire);
    const int failed = rfs_beneath_stat(recorded ? NULL : files->beneath, file->path, st);
    if (failed == -EXDEV && !recorded)
        return led_out(files, file);
    return failed ? call_failed(files, file, "stat", -failed) : compare(files, file, st);
}

int rfs_files_look(struct rfs_files *files, uint32_t id, struct stat *st)
{
    const struct file *file = files->list[id];
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
        rfs_fds_drop(files->fds, &files->list[id]->fd);
    return rc;
}

/* An encrypted file, as its blocks are read. */
struct raw {
    struct rfs_files *files;
    struct file *file;
    int fd;
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

static int read_spans(void *ctx, struct iovec *spans, int count, uint64_t offset)
{
    const struct raw *raw = ctx;
    struct rfs_files *files = raw->files;
    while (count > 0) {
        if (rfs_cancelled())
            return -EINTR;
        atomic_fetch_add_explicit(&files->reads, 1, memory_order_relaxed);
        const ssize_t n = count == 1
                              ? pread(raw->fd, spans->iov_base, spans->iov_len, (off_t)offset)
                              : preadv(raw->fd, spans, count, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return call_failed(files, raw->file, "read", errno);
        if (n == 0)
            return stick(files, raw->file, -ESTALE, "the file was truncated");
        atomic_fetch_add_explicit(&files->bytes, (uint64_t)n, memory_order_relaxed);
        const int used = advance(spans, count, (size_t)n);
        spans += used;
        count -= used;
        offset += (uint64_t)n;
    }
    return 0;
}

static struct rfs_cipher_input input_of(struct raw *raw)
{
    return (struct rfs_cipher_input){read_spans, raw, (uint64_t)raw->file->id.size,
                                     raw->file->path};
}

/* What is wrong with an encrypted file sticks, unless it was changed meanwhile or the process is short of
 * something. */
static int sealed_failed(struct rfs_files *files, uint32_t id, int code, bool quiet,
                         const struct rfs_error *err)
{
    struct file *file = files->list[id];

    if (err->code == 0 || code == -ENOMEM || code == -EINTR)
        return code;
    const int changed = rfs_files_check(files, id);
    if (changed < 0)
        return changed;
    keep_why(file, err->text);
    return stick_line(files, file, code, err->text, quiet && atomic_load(&file->why));
}

/* At the first use of an encrypted file; several threads may be here at once. */
static int open_sealed(struct rfs_files *files, uint32_t id, int fd, bool quiet, uint64_t *size)
{
    struct file *file = files->list[id];
    struct rfs_cipher *cipher = atomic_load_explicit(&file->cipher, memory_order_acquire);
    if (*size ==
        0) /* nothing was there to encrypt: a rank that keeps no parameter has such a file */
        return 0;
    if (!cipher) {
        struct rfs_error err = {0};
        struct raw raw = {files, file, fd};
        const struct rfs_cipher_input input = input_of(&raw);
        const int rc = rfs_encrypted_open(files->sealed, &input, &cipher, &err);
        if (rc < 0)
            return sealed_failed(files, id, rc, quiet, &err);
        cipher = RFS_PUBLISH(&file->cipher, cipher, free);
    }
    *size = cipher->plain_bytes;
    return 0;
}

static int pread_sealed(struct rfs_reading *reading, void *buf, size_t size, uint64_t offset)
{
    struct rfs_files *files = reading->files;
    struct file *file = files->list[reading->id];
    struct raw raw = {files, file, reading->fd};
    const struct rfs_cipher_input input = input_of(&raw);
    struct rfs_error err = {0};
    const int failed = rfs_files_state(files, reading->id);
    if (failed < 0)
        return failed; /* a block is not tried again and again */
    const int rc = rfs_encrypted_pread(files->sealed,
                                       atomic_load_explicit(&file->cipher, memory_order_acquire),
                                       &input, buf, size, offset, &err);
    return rc < 0 ? sealed_failed(files, reading->id, rc, reading->quiet, &err) : 0;
}

/* TRUSTED: a file that is open need not be compared now. */
static int reading_begin(struct rfs_files *files, uint32_t id, bool quiet, bool trusted,
                         struct rfs_reading *reading)
{
    struct file *file = files->list[id];
    struct stat st;
    bool fresh;
    int fd;
    int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    /* What is opened beneath a folder need not be looked at before it is known. */
    const bool known =
        !files->beneath || atomic_load_explicit(&file->recorded, memory_order_acquire);
    if (known && (!trusted || !rfs_fds_is_open(files->fds, &file->fd)))
        rc = rfs_files_check(files, id);
    if (rc < 0)
        return rc;
    rc = rfs_fds_take(files->fds, &file->fd, files->beneath, file->path, &fd, &fresh);
    if (fresh)
        atomic_fetch_add_explicit(&files->opens, 1, memory_order_relaxed);
    if (rc < 0)
        return open_failed(files, file, -rc);
    if (fresh || !known) { /* the path may have been given to another file since the check */
        int failed;
        while ((failed = fstat(fd, &st)) != 0 && errno == EINTR)
            continue;
        rc = failed == 0 ? compare(files, file, &st) : call_failed(files, file, "fstat", errno);
    }
    uint64_t size = (uint64_t)file->id.size;
    if (rc == 0 && files->sealed)
        rc = open_sealed(files, id, fd, quiet, &size);
    if (rc < 0) {
        rfs_fds_give(files->fds, &file->fd, true);
        return rc;
    }
    *reading =
        (struct rfs_reading){.files = files, .id = id, .fd = fd, .size = size, .quiet = quiet};
    return 0;
}

int rfs_reading_begin(struct rfs_files *files, uint32_t id, struct rfs_reading *reading)
{
    return reading_begin(files, id, false, false, reading);
}

int rfs_reading_begin_quiet(struct rfs_files *files, uint32_t id, struct rfs_reading *reading)
{
    return reading_begin(files, id, true, false, reading);
}

int rfs_reading_take(struct rfs_files *files, uint32_t id, struct rfs_reading *reading)
{
    return reading_begin(files, id, false, true, reading);
}

int rfs_reading_begin_ahead(struct rfs_files *files, uint32_t id, struct rfs_reading *reading)
{
    struct file *file = files->list[id];
    struct stat st;
    bool fresh;
    int fd;
    int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    /* Who is not known yet, or is encrypted, is not read ahead. */
    if (files->sealed || !atomic_load_explicit(&file->recorded, memory_order_acquire))
        return -EAGAIN;
    rc = rfs_fds_take(files->fds, &file->fd, files->beneath, file->path, &fd, &fresh);
    if (fresh)
        atomic_fetch_add_explicit(&files->opens, 1, memory_order_relaxed);
    if (rc < 0)
        return rc;
    if (fresh)
        rc = fstat(fd, &st) == 0 ? compare(files, file, &st) : -errno;
    if (rc < 0) {
        rfs_fds_give(files->fds, &file->fd, true);
        return rc;
    }
    *reading = (struct rfs_reading){
        .files = files, .id = id, .fd = fd, .size = (uint64_t)file->id.size, .ahead = true};
    return 0;
}

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
 * How many bytes from OFFSET on, of SIZE, are to be read, before the next held one; 0: the first is held, and *held
 * says where.
 */
static size_t not_held(const struct rfs_reading *reading, size_t size, uint64_t offset,
                       const struct rfs_held **held)
{
    for (size_t i = 0; i < reading->n_held; i++) {
        const struct rfs_held *part = &reading->held[i];
        if (part->file != reading->id || part->to <= offset)
            continue;
        if (part->from <= offset) {
            *held = part;
            return 0;
        }
        size = (size_t)rfs_min_u64(size, part->from - offset);
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
    struct rfs_files *files = reading->files;
    struct file *file = files->list[reading->id];
    if (offset > reading->size || size > reading->size - offset)
        return -ESTALE;
    if (files->sealed)
        return pread_sealed(reading, buf, size, offset);
    if (reading->n_held > 0)
        return pread_held(reading, buf, size, offset);
    unsigned char *p = buf;
    while (size > 0) {
        if (rfs_cancelled())
            return -EINTR;
        atomic_fetch_add_explicit(&files->reads, 1, memory_order_relaxed);
        const ssize_t n = pread(reading->fd, p, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 && reading->ahead)
            return n < 0 ? -errno : -ESTALE;
        if (n < 0)
            return call_failed(files, file, "read", errno);
        if (n == 0) {
            const int changed = rfs_files_check(files, reading->id);
            return changed < 0 ? changed : stick(files, file, -ESTALE, "the file was truncated");
        }
        atomic_fetch_add_explicit(&files->bytes, (uint64_t)n, memory_order_relaxed);
        p += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

int rfs_reading_end(struct rfs_reading *reading)
{
    struct rfs_files *files = reading->files;
    const int rc = rfs_files_check(files, reading->id);
    rfs_fds_give(files->fds, &files->list[reading->id]->fd, rc < 0);
    reading->fd = -1;
    return rc;
}

void rfs_reading_leave(struct rfs_reading *reading)
{
    struct rfs_files *files = reading->files;
    rfs_fds_give(files->fds, &files->list[reading->id]->fd,
                 rfs_files_state(files, reading->id) < 0);
    reading->fd = -1;
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
                    code == -EACCES || code == -EPERM
                        ? "check the permissions of the file and of its folders"
                    : code == -EIO ? "check the disk, then mount again"
                                   : NULL,
                    "the file cannot be read: %s", strerror(-code));
}
