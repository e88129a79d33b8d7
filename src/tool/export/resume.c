/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the folder already. An export that was stopped resumes: a file that the manifest has,
 * of the same sources by its entry, is read and stays if it has the entry's hash. The bytes of any
 * other file are compared with those that would be written. A file that differs is refused, before
 * anything is written, unless --force says to replace it.
 *
 * Files of an earlier export, of other ranks or another format, which this one does not have, are
 * refused or removed: with them in it, the folder would be neither. They are those that a manifest
 * lists and the view does not show, of any task and whatever --ranks says. A file that no manifest
 * lists, and a link or no file by now, is left alone.
 */
#include "tool/export/export.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/order.h"
#include "base/pages.h"
#include "base/pool.h"
#include "base/store.h"
#include "base/text.h"
#include "reshard.h"
#include "tool/common/tool.h"

/* ---- files of another export ----------------------------------------------------------------- */

/* The least bytes that are read at once, and the most of all threads together. */
#define BUFFER_LEAST ((size_t)1 << 20)
#define BUFFERS_BYTES ((size_t)32 << 20)
#define NAMED 3           /* stale files in a message */
#define MANIFEST_TRIES 10 /* of one that changes while it is read */

/*
 * Moves entries that the view does not show from the known to the stale. 0, or -ENOMEM with *err
 * filled.
 */
static int sort_out(struct rfs_export *export, struct rfs_error *err)
{
    struct rfs_manifest *known = &export->known;
    struct rfs_manifest all = *known;
    int rc = rfs_manifest_init(known, RFS_MANIFEST_FILES);

    known->source = RFS_STEAL(all.source);
    known->options = RFS_STEAL(all.options);
    known->task = all.task;
    known->tasks = all.tasks;
    known->total_files = all.total_files;
    for (uint32_t i = 0; rc == 0 && i < all.entries.n; i++) {
        const char *path = rfs_intern_text(all.names, i);
        const bool is_shown = rfs_intern_find(export->shown_paths, path, strlen(path)) != RFS_NO_ID;
        rc = rfs_manifest_put(is_shown ? known : &export->stale, path, &all.entries.data[i]);
    }
    rfs_manifest_free(&all);
    return rc ? rfs_fail_memory(err) : 0;
}

bool rfs_export_is_stale(const struct rfs_export *export, uint32_t i)
{
    struct stat st;

    return export->dest.kind->stat(&export->dest, rfs_intern_text(export->stale.names, i), &st) ==
               0 &&
           S_ISREG(st.st_mode);
}

RFS_COMPARE(by_text, char *, x, y, strcmp(*x, *y))

/* Refuses stale files unless they are to be removed. 0, or -errno with *err filled. */
static int refuse_stale(const struct rfs_export *export, struct rfs_error *err)
{
    RFS_FREE const char **paths = calloc(export->stale.entries.n + 1, sizeof *paths);
    char names[512];
    size_t used = 0;
    size_t n = 0;

    if (!paths)
        return rfs_fail_memory(err);
    for (uint32_t i = 0; i < export->stale.entries.n; i++)
        if (rfs_export_is_stale(export, i))
            paths[n++] = rfs_intern_text(export->stale.names, i);
    if (n == 0 || export->options->force)
        return 0;
    RFS_SORT(paths, n, by_text);
    for (size_t i = 0; i < n && i < NAMED && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 paths[i]);
    return rfs_fail(err, -EEXIST, RFS_IN(export->dest.path),
                    "another DST, or --force to remove them",
                    "%zu file%s of another export %s in it, which this one does not have: %s%s", n,
                    n == 1 ? "" : "s", n == 1 ? "is" : "are", names, n > NAMED ? ", …" : "");
}

/* Returns whether a name is that of the manifest of one of TASKS tasks. */
static bool is_of(const char *name, uint32_t tasks)
{
    const char *number = name + strcspn(name, ".") + 1;

    return strcmp(name, RFS_MANIFEST_NAME) == 0 ? tasks < 2
                                                : tasks > 1 && strtoul(number, NULL, 10) < tasks;
}

unsigned rfs_export_other_manifests(struct rfs_export *export, uint32_t tasks, bool remove)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    unsigned n = 0;

    if (export->dest.kind->list(&export->dest, &dir))
        return 0;
    for (const struct dirent *entry; (entry = rfs_dir_next(&dir));) {
        if (!rfs_manifest_is_name(entry->d_name) || is_of(entry->d_name, tasks))
            continue;
        n++;
        if (remove)
            export->dest.kind->remove(&export->dest, entry->d_name);
    }
    return n;
}

/* ---- reading the files that are there -------------------------------------------------------- */

/* A file that is read, and what it is compared with. */
struct reading {
    struct rfs_export *export;
    unsigned char *bytes, *want; /* [n] */
    size_t n;                    /* bytes that are read at once */
    reshard_reader *reader;      /* the view's file; NULL: none */
    int source_failed;           /* the -errno of the view, if it is at fault */
};

/* Returns 0, or -EINVAL when the view's file has other bytes, or another -errno. */
static int compare(struct reading *reading, size_t size, uint64_t offset)
{
    const ssize_t n = reshard_reader_pread(reading->reader, reading->want, size, offset);

    if (n < 0)
        return reading->source_failed = (int)n;
    return (size_t)n == size && memcmp(reading->bytes, reading->want, size) == 0 ? 0 : -EINVAL;
}

/* Reads a file of SIZE bytes. 0, -errno, or -EINVAL for another size or other bytes. */
static int read_all(struct reading *reading, const char *path, uint64_t size, struct rfs_hash *out)
{
    struct rfs_progress *progress = &reading->export->progress;
    const struct rfs_dest *dest = &reading->export->dest;
    struct rfs_dest_file file = {.fd = -1};
    XXH3_state_t state;
    int rc = dest->kind->open(dest, path, &file);

    if (rc)
        return rc;
    rc = file.size == size ? 0 : -EINVAL;
    XXH3_128bits_reset(&state);
    for (uint64_t at = 0; rc == 0 && at < size; at += reading->n) {
        const size_t n = (size_t)rfs_min_u64(reading->n, size - at);
        rc = rfs_tool_stopped() ? -EINTR : dest->kind->read(&file, reading->bytes, n, at);
        if (rc == -ENODATA) /* it was cut off meanwhile */
            rc = -EINVAL;
        if (rc == 0 && reading->reader)
            rc = compare(reading, n, at);
        if (rc == 0)
            XXH3_128bits_update(&state, reading->bytes, n);
        rfs_progress_add(progress, n);
        rfs_progress_tick(progress);
    }
    dest->kind->close(&file);
    *out = rfs_hash_of(&state);
    return rc;
}

int rfs_export_sum(struct rfs_export *export, const char *path, uint64_t size,
                   const struct rfs_export_file *as, struct rfs_hash *out, struct rfs_error *err)
{
    const size_t share = BUFFERS_BYTES / export->threads;
    const size_t most = export->dest.kind->read_bytes;
    const size_t n = share < BUFFER_LEAST ? BUFFER_LEAST : share < most ? share : most;
    struct reading reading = {.export = export, .bytes = rfs_pages_alloc(2 * n), .n = n};
    int rc = 0;

    if (!reading.bytes)
        return rfs_fail_memory(err);
    reading.want = reading.bytes + n;
    if (as)
        rc = reading.source_failed = reshard_reader_open(export->view, as->id, &reading.reader);
    rc = rc ?: read_all(&reading, path, size, out);
    reshard_reader_close(reading.reader);
    rfs_pages_free(reading.bytes, 2 * n);
    if (reading.source_failed)
        return rfs_origins_source_failed(export->view, as->id, as->path, rc, err);
    return rc == 0 || rc == -EINVAL
               ? rc
               : rfs_dest_failed(&export->dest, path, "cannot be read", -rc, err);
}

/* ---- one file -------------------------------------------------------------------------------- */

struct checking {
    struct rfs_export *export;
    struct rfs_first_error first;
};

/* Refuses a file that is there, or notes that it is to be replaced. */
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

/* Notes that a file is there and right. */
static int keep(struct rfs_export *export, struct rfs_export_file *file,
                const struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    file->todo = RFS_EXPORT_KEEP;
    rfs_progress_file(&export->progress);
    pthread_mutex_lock(&export->saver.lock);
    export->files_kept++;
    export->bytes_kept += file->size;
    const int rc = rfs_manifest_put(&export->saver.manifest, file->path, entry);
    pthread_mutex_unlock(&export->saver.lock);
    return rc ? rfs_fail_memory(err) : 0;
}

static int check_known(struct rfs_export *export, struct rfs_export_file *file,
                       const struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    struct rfs_hash hash;

    if (export->options->trust)
        return keep(export, file, entry, err);
    const int rc = rfs_export_sum(export, file->path, file->size, NULL, &hash, err);
    if (rc && rc != -EINVAL)
        return rc;
    return rc == 0 && rfs_hash_equal(hash, entry->hash)
               ? keep(export, file, entry, err)
               : refuse(export, file, "has other bytes than its manifest says", err);
}

static int check_unknown(struct rfs_export *export, struct rfs_export_file *file,
                         struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    if (export->options->force)
        return refuse(export, file, "", err);
    const int rc = rfs_export_sum(export, file->path, file->size, file, &entry->hash, err);
    if (rc == -EINVAL)
        return refuse(export, file, "differs from the new content", err);
    entry->written_ms = rfs_manifest_now();
    return rc ? rc : keep(export, file, entry, err);
}

static int check_file(struct rfs_export *export, struct rfs_export_file *file,
                      struct rfs_error *err)
{
    struct rfs_manifest_entry entry = {.size = file->size};
    struct stat st;
    int rc = export->dest.kind->stat(&export->dest, file->path, &st);

    file->todo = RFS_EXPORT_WRITE;
    if (rc == -ENOENT)
        return 0;
    if (rc)
        return rfs_dest_failed(&export->dest, file->path, "cannot be looked at", -rc, err);
    if (!S_ISREG(st.st_mode))
        return refuse(export, file, "is not a regular file", err);
    rc = rfs_export_made_of(export, file, &entry.made_of);
    if (rc)
        return rfs_origins_source_failed(export->view, file->id, file->path, rc, err);
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

    return rfs_first_error_note(&checking->first, i, rc, &err);
}

/* Counts this task's files that are there already: at most their bytes are read. */
static void bytes_there(const struct rfs_export *export, uint64_t *bytes, uint64_t *files)
{
    *bytes = *files = 0;
    for (size_t i = 0; i < export->files.n; i++) {
        const struct rfs_export_file *file = &export->files.data[i];
        struct stat st;
        if (!rfs_export_is_mine(export, file) ||
            export->dest.kind->stat(&export->dest, file->path, &st) != 0 ||
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

    if (!export->dest.there)
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
    RFS_FREE char *path = rfs_text_printf("%s/%s", export->dest.path, name);
    int rc = path ? rfs_manifest_read(export->dest.store, path, &export->known, err)
                  : rfs_fail_memory(err);

    /* An object is read as one version, and another task may save the next meanwhile. */
    for (int tries = 0; rc == -ESTALE && tries < MANIFEST_TRIES; tries++)
        rc = rfs_manifest_read(export->dest.store, path, &export->known, err);
    if (rc == -ENOENT) /* another task has just merged it */
        *err = (struct rfs_error){0};
    return rc == -ENOENT ? 0 : rc;
}

/* Reads all manifests; *others: whether there is anything else. */
static int read_manifests(struct rfs_export *export, bool *others, unsigned *manifests,
                          struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    int rc = export->dest.kind->list(&export->dest, &dir);

    *others = false;
    *manifests = 0;
    if (rc)
        return rfs_dest_failed(&export->dest, "", "the folder cannot be listed", -rc, err);
    for (const struct dirent *entry; rc == 0 && (entry = rfs_dir_next(&dir));) {
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
    return rc;
}

int rfs_export_read_manifests(struct rfs_export *export, struct rfs_error *err)
{
    bool others;
    unsigned manifests;

    if (!export->dest.there)
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
        rc = sort_out(export, err);
    if (rc == 0 && !export->options->verify)
        rc = refuse_stale(export, err);
    return rc;
}
