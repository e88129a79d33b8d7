/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the files that are there already. A file that the manifest has, of the same sources by
 * its entry, is read and kept if it has the entry's hash. Of any other file the bytes are compared
 * with those that would be written. A file that differs is refused, before anything is written,
 * unless --force says to replace it.
 */
#include "base/fd.h"
#include "base/text.h"
#include "tool/export/export.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/pool.h"
#include "base/read_whole.h"
#include "base/secret.h"
#include "tool/common/stop.h"
#include "tool/common/tool.h"
#include "view/ranges.h"

#include <dirent.h>
#include <fcntl.h>

#define BUFFER ((size_t)1 << 20)

void *rfs_export_buffer(const struct rfs_export *export, size_t bytes)
{
    struct rfs_secret *secret = export->view ? rfs_view_secret(export->view) : NULL;
    void *out = NULL;

    if (secret)
        return rfs_secret_map(secret, bytes);
    return posix_memalign(&out, 4096, bytes) == 0 ? out : NULL;
}

void rfs_export_buffer_free(const struct rfs_export *export, void *buffer, size_t bytes)
{
    if (export->view && rfs_view_secret(export->view))
        rfs_secret_unmap(buffer, bytes);
    else
        free(buffer);
}

/* ---- reading the files that are there -------------------------------------------------------- */

/* Does something with each piece of a file that is there, or fails. */
typedef int piece_fn(void *ctx, const unsigned char *bytes, size_t size, uint64_t offset);

static int for_each_piece(struct rfs_export *export, const char *path, uint64_t size, piece_fn *fn,
                          void *ctx)
{
    struct stat st;
    RFS_CLOSE int fd = rfs_dest_open(&export->dest, path);
    unsigned char *buffer = fd < 0 ? NULL : rfs_export_buffer(export, BUFFER);
    int rc = fd < 0 ? fd : buffer ? 0 : -ENOMEM;

    if (rc == 0 && fstat(fd, &st) != 0)
        rc = -errno;
    else if (rc == 0 && (uint64_t)st.st_size != size)
        rc = -EINVAL;
    for (uint64_t at = 0; rc == 0 && at < size; at += BUFFER) {
        const size_t n = (size_t)rfs_min_u64(BUFFER, size - at);
        rc = rfs_stopped() ? -EINTR : rfs_pread_all(fd, buffer, n, at);
        if (rc == -ENODATA) /* it was cut off meanwhile */
            rc = -EINVAL;
        if (rc == 0)
            rc = fn(ctx, buffer, n, at);
        rfs_progress_add(&export->progress, n);
        rfs_progress_tick(&export->progress);
    }
    if (buffer)
        rfs_export_buffer_free(export, buffer, BUFFER);
    return rc;
}

static int add_to_hash(void *ctx, const unsigned char *bytes, size_t size, uint64_t offset)
{
    (void)offset;
    XXH3_128bits_update(ctx, bytes, size);
    return 0;
}

int rfs_export_hash(struct rfs_export *export, const char *path, uint64_t size,
                    struct rfs_hash *out)
{
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    const int rc = for_each_piece(export, path, size, add_to_hash, &state);
    *out = rfs_hash_of(&state);
    return rc;
}

/* ---- comparing it with the view -------------------------------------------------------------- */

struct comparison {
    reshard_reader *reader;
    unsigned char *buffer;
    XXH3_state_t state;
    int source_failed; /* the -errno of the view, if it is at fault */
};

static int compare_piece(void *ctx, const unsigned char *bytes, size_t size, uint64_t offset)
{
    struct comparison *c = ctx;
    const ssize_t n = reshard_reader_pread(c->reader, c->buffer, size, offset);

    if (n < 0) {
        c->source_failed = (int)n;
        return (int)n;
    }
    XXH3_128bits_update(&c->state, bytes, size);
    return (size_t)n == size && memcmp(bytes, c->buffer, size) == 0 ? 0 : -EINVAL;
}

/* 0 when it is the same, -EINVAL when it differs; another -errno with *err filled. */
static int compare(struct rfs_export *export, const struct rfs_export_file *file,
                   struct rfs_hash *hash, struct rfs_error *err)
{
    struct comparison c = {.buffer = rfs_export_buffer(export, BUFFER)};
    int rc = c.buffer ? reshard_reader_open(export->view, file->id, &c.reader) : -ENOMEM;

    XXH3_128bits_reset(&c.state);
    if (rc)
        c.source_failed = rc;
    else
        rc = for_each_piece(export, file->path, file->size, compare_piece, &c);
    reshard_reader_close(c.reader);
    if (c.buffer)
        rfs_export_buffer_free(export, c.buffer, BUFFER);
    *hash = rfs_hash_of(&c.state);
    if (c.source_failed)
        return rfs_export_source_failed(export, file, c.source_failed, err);
    if (rc && rc != -EINVAL)
        rfs_dest_failed(&export->dest, file->path, "cannot be read", -rc, err);
    return rc;
}

/* ---- one file -------------------------------------------------------------------------------- */

struct checking {
    struct rfs_export *export;
    struct rfs_first_error first;
};

static int refuse(struct rfs_export *export, struct rfs_export_file *file, const char *what,
                  struct rfs_error *err)
{
    if (export->options->force) {
        file->todo = RFS_EXPORT_REPLACE;
        return 0;
    }
    return rfs_fail(err, -EEXIST, RFS_IN(file->path), "--force to replace it, or another DST",
                    "it is in %s already, and %s", export->dest.path, what);
}

/* It is there and right. */
static int keep(struct rfs_export *export, struct rfs_export_file *file,
                const struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    file->todo = RFS_EXPORT_KEEP;
    rfs_dest_sweep(&export->dest, file->path);
    rfs_progress_file(&export->progress);
    pthread_mutex_lock(&export->record.lock);
    const int rc = rfs_manifest_put(&export->record.manifest, file->path, entry);
    pthread_mutex_unlock(&export->record.lock);
    return rc ? rfs_fail_memory(err) : 0;
}

static int check_known(struct rfs_export *export, struct rfs_export_file *file,
                       const struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    struct rfs_hash hash;

    if (export->options->trust)
        return keep(export, file, entry, err);
    const int rc = rfs_export_hash(export, file->path, file->size, &hash);
    if (rc && rc != -EINVAL)
        return rfs_dest_failed(&export->dest, file->path, "cannot be read", -rc, err);
    return rc == 0 && rfs_hash_equal(hash, entry->hash)
               ? keep(export, file, entry, err)
               : refuse(export, file, "has other bytes than its manifest says", err);
}

static int check_unknown(struct rfs_export *export, struct rfs_export_file *file,
                         struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    if (export->options->force)
        return refuse(export, file, "", err);
    const int rc = compare(export, file, &entry->hash, err);
    if (rc == -EINVAL)
        return refuse(export, file, "differs from the new content", err);
    entry->written_ms = rfs_record_now();
    return rc ? rc : keep(export, file, entry, err);
}

static int check_file(struct rfs_export *export, struct rfs_export_file *file,
                      struct rfs_error *err)
{
    struct rfs_manifest_entry entry = {.size = file->size};
    struct stat st;
    int rc = rfs_dest_stat(&export->dest, file->path, &st);

    file->todo = RFS_EXPORT_WRITE;
    if (rc == -ENOENT)
        return 0;
    if (rc)
        return rfs_dest_failed(&export->dest, file->path, "cannot be looked at", -rc, err);
    if (!S_ISREG(st.st_mode))
        return refuse(export, file, "is not a regular file", err);
    rc = rfs_export_made_of(export, file, &entry.made_of);
    if (rc)
        return rfs_export_source_failed(export, file, rc, err);
    const struct rfs_manifest_entry *known = rfs_manifest_find(&export->known, file->path);
    if ((uint64_t)st.st_size != file->size)
        return refuse(export, file, "has another size than the new content", err);
    return known && known->size == file->size && rfs_hash_equal(known->made_of, entry.made_of)
               ? check_known(export, file, known, err)
               : check_unknown(export, file, &entry, err);
}

static int check_one(void *ctx, size_t i)
{
    struct checking *checking = ctx;
    struct rfs_export *export = checking->export;
    struct rfs_export_file *file = &export->files.data[i];
    struct rfs_error err = {0};
    const int rc = rfs_export_is_mine(export, file) ? check_file(export, file, &err) : 0;

    return rfs_first_error_note(&checking->first, rc, &err);
}

/* The most bytes that will be read, for the progress: this task's files that are there already. */
static void bytes_there(const struct rfs_export *export, uint64_t *bytes, uint64_t *files)
{
    *bytes = *files = 0;
    for (size_t i = 0; i < export->files.n; i++) {
        const struct rfs_export_file *file = &export->files.data[i];
        struct stat st;
        if (!rfs_export_is_mine(export, file) ||
            rfs_dest_stat(&export->dest, file->path, &st) != 0 ||
            (uint64_t)st.st_size != file->size)
            continue;
        *bytes += file->size;
        ++*files;
    }
}

int rfs_export_check(struct rfs_export *export, struct rfs_error *err)
{
    struct checking checking = {.export = export, .first = RFS_FIRST_ERROR};
    uint64_t bytes;
    uint64_t files;

    if (export->dest.fd < 0)
        return 0;
    struct rfs_pool *pool = rfs_pool_new(export->threads - 1); /* and this one */
    if (!pool)
        return rfs_fail_memory(err);
    bytes_there(export, &bytes, &files);
    rfs_progress_begin(&export->progress, "checking", export->options->trust ? 0 : bytes, files);
    const int rc = rfs_pool_for(pool, export->files.n, check_one, &checking);
    rfs_pool_free(pool);
    rfs_progress_end(&export->progress);
    return rfs_first_error_take(&checking.first, rc, err);
}

/* ---- the folder as a whole ------------------------------------------------------------------- */

static int read_manifest(struct rfs_export *export, const char *name, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t size = 0;

    RFS_FREE char *path = rfs_text_printf("%s/%s", export->dest.path, name);
    if (!path)
        return rfs_fail_memory(err);
    int rc = rfs_read_whole(path, RFS_MANIFEST_BYTES, &text, &size, err);
    if (rc == -ENOENT) /* another task has just merged it */
        return 0;
    return rc ? rc : rfs_manifest_parse(path, text, size, &export->known, err);
}

/* Reads all manifests; *others: whether there is anything else. */
static int read_manifests(struct rfs_export *export, bool *others, unsigned *manifests,
                          struct rfs_error *err)
{
    const int fd = openat(export->dest.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int rc = 0;

    *others = false;
    *manifests = 0;
    if (!dir) {
        rc = rfs_dest_failed(&export->dest, "", "the folder cannot be listed", errno, err);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (rfs_manifest_is_name(name)) {
            ++*manifests;
            rc = read_manifest(export, name, err);
        } else if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
                   strncmp(name, ".reshard-manifest.", 18) != 0 &&
                   strcmp(name, "lost+found") != 0) {
            *others = true;
        }
    }
    closedir(dir);
    return rc;
}

int rfs_export_look(struct rfs_export *export, struct rfs_error *err)
{
    bool others;
    unsigned manifests;

    if (export->dest.fd < 0)
        return 0;
    int rc = read_manifests(export, &others, &manifests, err);
    /* Another task may have begun meanwhile: its manifest comes before its first folder. */
    if (rc == 0 && others && manifests == 0)
        rc = read_manifests(export, &others, &manifests, err);
    if (rc == 0 && others && manifests == 0 && !export->options->force && !export->options->verify)
        return rfs_fail(err, -ENOTEMPTY, RFS_IN(export->dest.path),
                        "an empty folder, or --force to write into this one",
                        "the folder to write to is not empty, and no export is in it");
    if (rc && export->options->force && rc != -ENOMEM) {
        rfs_tool_warn("files of an earlier export are not removed, as its manifest is damaged",
                      NULL);
        *err = (struct rfs_error){0};
        return 0;
    }
    if (rc == 0 && export->view)
        rc = rfs_export_sort_out(export, err);
    if (rc == 0 && !export->options->verify)
        rc = rfs_export_refuse_stale(export, err);
    return rc;
}
