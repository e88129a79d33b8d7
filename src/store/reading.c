/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of files, encrypted ones too: each reading between two looks at the file's identity. */
#include "store/files_internal.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/publish.h"

#include <unistd.h>

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
        return rfs_file_call_failed(files, files->list.data[raw->id], "read", errno);
    const int changed = rfs_files_check(files, raw->id);
    return changed < 0 ? changed
                       : rfs_file_stick(files, files->list.data[raw->id], -ESTALE,
                                        "the file was truncated");
}

/* The same of an object: the store repeats requests that may succeed. */
static int read_object(const struct raw *raw, struct iovec *spans, int count, uint64_t offset)
{
    struct rfs_files *files = raw->files;
    struct rfs_file *file = files->list.data[raw->id];
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += spans[i].iov_len;
    atomic_fetch_add_explicit(&files->reads, 1, memory_order_relaxed);
    const int rc = rfs_store_objects()->read(
        atomic_load_explicit(&file->object, memory_order_acquire), spans, count, offset);
    if (rc < 0)
        return raw->ahead ? rc : rfs_file_call_failed(files, file, "read", -rc);
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
    const struct rfs_file *file = raw->files->list.data[raw->id];
    return (struct rfs_cipher_input){read_spans, raw, (uint64_t)file->id.size, file->path};
}

/*
 * Errors in an encrypted file stick, unless it was changed meanwhile or the process lacks
 * resources.
 */
static int encrypted_failed(struct rfs_files *files, uint32_t id, int code, bool quiet,
                            const struct rfs_error *err)
{
    struct rfs_file *file = files->list.data[id];

    if (err->code == 0 || code == -ENOMEM || code == -EINTR)
        return code;
    const int changed = rfs_files_check(files, id);
    if (changed < 0)
        return changed;
    return rfs_file_stick_line(files, file, code, err->text, quiet);
}

/* At the first use of an encrypted file; several threads may be here at once. */
static int open_encrypted(struct rfs_files *files, uint32_t id, int fd, bool quiet, uint64_t *size)
{
    struct rfs_file *file = files->list.data[id];
    struct rfs_cipher *cipher = atomic_load_explicit(&file->cipher, memory_order_acquire);
    if (*size == 0) /* nothing was encrypted: a rank that keeps no parameter has such a file */
        return 0;
    if (!cipher) {
        struct rfs_error err = {0};
        struct raw raw = {files, id, fd, false};
        const struct rfs_cipher_input input = input_of(&raw);
        const int rc = rfs_encrypted_open(files->encrypted, &input, &cipher, &err);
        if (rc < 0)
            return encrypted_failed(files, id, rc, quiet, &err);
        cipher = RFS_PUBLISH(&file->cipher, cipher, free);
    }
    *size = cipher->plain_bytes;
    return 0;
}

static int pread_encrypted(struct rfs_reading *reading, void *buf, size_t size, uint64_t offset)
{
    struct rfs_files *files = reading->files;
    struct rfs_file *file = files->list.data[reading->id];
    struct raw raw = {files, reading->id, reading->fd, false};
    const struct rfs_cipher_input input = input_of(&raw);
    struct rfs_error err = {0};
    const int failed = rfs_files_state(files, reading->id);
    if (failed < 0)
        return failed; /* a block is not tried again and again */
    const int rc = rfs_encrypted_pread(files->encrypted,
                                       atomic_load_explicit(&file->cipher, memory_order_acquire),
                                       &input, buf, size, offset, &err);
    return rc < 0 ? encrypted_failed(files, reading->id, rc, reading->quiet, &err) : 0;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

/* Holds the version of the object that is recorded, or records it: the first time alone. */
static int take_object(struct rfs_files *files, struct rfs_file *file, bool ahead)
{
    struct rfs_object *object = NULL;
    struct stat st;
    if (atomic_load_explicit(&file->object, memory_order_acquire))
        return 0;
    int rc = rfs_store_objects()->hold(file->path, &object, &st);
    if (rc < 0)
        return ahead ? rc : rfs_file_call_failed(files, file, "open", -rc);
    atomic_fetch_add_explicit(&files->opens, 1, memory_order_relaxed);
    rc = rfs_file_compare(files, file, &st);
    if (rc < 0)
        rfs_file_let_go(object);
    else
        RFS_PUBLISH(&file->object, object, rfs_file_let_go);
    return rc;
}

static bool is_open(struct rfs_files *files, struct rfs_file *file)
{
    return file->is_object ? atomic_load_explicit(&file->object, memory_order_acquire) != NULL
                           : rfs_fds_is_open(files->fds, &file->fd);
}

static void give_fd(struct rfs_files *files, struct rfs_file *file, bool drop)
{
    if (!file->is_object)
        rfs_fds_give(files->fds, &file->fd, drop);
}

/*
 * Pins the file's descriptor. A fresh one is compared, since the path may have been given to
 * another file meanwhile, and so is a file that was not KNOWN.
 */
static int take_fd(struct rfs_files *files, struct rfs_file *file, bool known, bool ahead, int *fd)
{
    struct stat st;
    bool fresh;
    int failed;
    *fd = -1;
    if (file->is_object)
        return take_object(files, file, ahead);
    int rc = rfs_fds_take(files->fds, &file->fd, files->beneath, file->path, fd, &fresh);
    if (fresh)
        atomic_fetch_add_explicit(&files->opens, 1, memory_order_relaxed);
    if (rc < 0)
        return ahead ? rc : rfs_file_call_failed(files, file, "open", -rc);
    if (!fresh && known)
        return 0;
    while ((failed = fstat(*fd, &st)) != 0 && errno == EINTR)
        continue;
    rc = failed == 0 ? rfs_file_compare(files, file, &st)
         : ahead     ? -errno
                     : rfs_file_call_failed(files, file, "fstat", errno);
    if (rc < 0)
        rfs_fds_give(files->fds, &file->fd, true);
    return rc;
}

/* TRUSTED: a file that is open need not be compared now. */
static int reading_begin(struct rfs_files *files, uint32_t id, bool quiet, bool trusted,
                         struct rfs_reading *reading)
{
    struct rfs_file *file = files->list.data[id];
    int fd;
    int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    /* A file opened beneath a folder need not be examined before. */
    const bool known =
        !files->beneath || atomic_load_explicit(&file->recorded, memory_order_acquire);
    if (known && (!trusted || !is_open(files, file)))
        rc = rfs_files_check(files, id);
    if (rc == 0)
        rc = take_fd(files, file, known, false, &fd);
    if (rc < 0)
        return rc;
    uint64_t size = (uint64_t)file->id.size;
    rc = files->encrypted ? open_encrypted(files, id, fd, quiet, &size) : 0;
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
    struct rfs_file *file = files->list.data[id];
    int fd;
    int rc = rfs_files_state(files, id);
    if (rc != 0)
        return rc;
    /* A file that is not known yet, or is encrypted, is not read ahead. */
    if (files->encrypted || !atomic_load_explicit(&file->recorded, memory_order_acquire))
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
 * How many bytes from OFFSET on, of SIZE, are to be read, before the next held one; 0: the first is
 * held, at *held.
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
    struct raw raw = {reading->files, reading->id, reading->fd, reading->ahead};
    if (offset > reading->size || size > reading->size - offset)
        return -ESTALE;
    if (reading->files->encrypted)
        return pread_encrypted(reading, buf, size, offset);
    if (reading->n_held > 0)
        return pread_held(reading, buf, size, offset);
    return read_spans(&raw, &(struct iovec){buf, size}, size > 0, offset);
}

int rfs_reading_read(void *reading, void *buf, size_t size, uint64_t offset)
{
    return rfs_reading_pread(reading, buf, size, offset);
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
