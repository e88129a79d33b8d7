/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares an export with its manifests, and with a source also with the files that the view would
 * show now. Prints a line for each file that differs. When all is right and this is the only task,
 * manifests of tasks become one.
 */
#include "tool/export/export.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/pool.h"
#include "base/text.h"

struct verifying {
    struct rfs_export *export;
    pthread_mutex_t lock; /* guards the next members; held while printing, else a leaf lock */
    uint64_t good, bad, bytes;
};

/* Prints a line for a file. The caller has the lock. */
static void say(struct verifying *verifying, const char *path, const char *what)
{
    rfs_progress_end(&verifying->export->progress);
    if (verifying->export->options->json) {
        struct rfs_json_write json = {.file = stdout};
        flockfile(stdout); /* whose lines of progress other threads print */
        rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(&json, "event", "difference");
        rfs_json_put_text(&json, "path", path);
        rfs_json_put_text(&json, "what", what);
        rfs_json_finish(&json);
        funlockfile(stdout);
        return;
    }
    rfs_text_put(stdout, path);
    printf(": %s\n", what);
}

/* Counts a verified file; WHAT is its fault, or NULL. */
static void report(struct verifying *verifying, const char *path, uint64_t bytes, const char *what)
{
    pthread_mutex_lock(&verifying->lock);
    if (what) {
        say(verifying, path, what);
        verifying->bad++;
    } else {
        verifying->good++;
        verifying->bytes += bytes;
    }
    pthread_mutex_unlock(&verifying->lock);
    rfs_progress_file(&verifying->export->progress);
}

/* Returns the fault of a file whose entry is ENTRY, or NULL. */
static const char *read_file(struct rfs_export *export, const char *path,
                             const struct rfs_manifest_entry *entry)
{
    struct rfs_hash hash;
    const int rc = rfs_export_sum(export, path, entry->size, NULL, &hash, NULL);

    switch (rc) {
    case 0:
        return rfs_hash_equal(hash, entry->hash) ? NULL : "its bytes differ from the manifest";
    case -ENOENT:
    case -ENOTDIR:
        return "it is missing";
    case -EINVAL:
        return "its size differs from the manifest";
    case -ELOOP:
        return "it is a link";
    default:
        return rfs_store_why(export->dest.path, rc);
    }
}

static int verify_file(void *ctx, size_t i)
{
    struct verifying *verifying = ctx;
    struct rfs_export *export = verifying->export;
    const struct rfs_export_file *file = &export->files.data[i];
    const struct rfs_manifest_entry *entry = rfs_manifest_find(&export->known, file->path);
    struct rfs_hash made_of;
    const char *wrong = NULL;

    if (!rfs_export_is_mine(export, file))
        return 0;
    if (!entry)
        wrong = "it is not in the manifest";
    else if (export->view && rfs_export_made_of(export, file, &made_of))
        return -ENOMEM;
    else if (export->view &&
             (entry->size != file->size || !rfs_hash_equal(entry->made_of, made_of)))
        wrong = "it was made from other sources, or with other options";
    else
        wrong = read_file(export, file->path, entry);
    report(verifying, file->path, file->size, wrong);
    return 0;
}

/* Takes the files of the manifests for those of a view. 0 or -ENOMEM. */
static int take_entries(struct rfs_export *export)
{
    for (uint32_t i = 0; i < export->known.entries.n; i++) {
        char *path = strdup(rfs_intern_text(export->known.names, i));
        const struct rfs_export_file file = {.path = path,
                                             .size = export->known.entries.data[i].size,
                                             .task = i % export->task.count};
        if (!path || !RFS_PUSH(&export->files, file)) {
            free(path);
            return -ENOMEM;
        }
    }
    return 0;
}

/* ---- several manifests become one ------------------------------------------------------------ */

/* Joins the manifests of tasks. Where nothing may be written they stay as they are. */
static void merge(struct rfs_export *export)
{
    RFS_FREE char *text = NULL;
    size_t size;

    if (export->task.count > 1 || rfs_export_other_manifests(export, 1, false) == 0)
        return;
    export->known.task = 0;
    export->known.tasks = 1;
    if (rfs_manifest_text(&export->known, NULL, &text, &size) == 0 &&
        export->dest.kind->save(&export->dest, RFS_MANIFEST_NAME, text, size,
                                !export->options->no_fsync, NULL) == 0)
        rfs_export_other_manifests(export, 1, true);
}

/* ---- the step -------------------------------------------------------------------------------- */

int rfs_export_verify(struct rfs_export *export, struct rfs_error *err)
{
    struct verifying verifying = {.export = export, .lock = PTHREAD_MUTEX_INITIALIZER};
    const struct rfs_manifest *known = &export->known;
    uint64_t bytes = 0;

    if (!export->dest.there)
        return rfs_dest_failed(&export->dest, "", "cannot be verified", ENOENT, err);
    if (known->total_files == 0 && known->entries.n == 0 && export->files.n == 0)
        return rfs_fail(err, -ENOENT, RFS_IN(export->dest.path), "the folder of an export",
                        "there is no manifest to verify it by");
    if (!export->view && take_entries(export))
        return rfs_fail_memory(err);
    struct rfs_pool *pool = rfs_pool_new(export->threads - 1);
    if (!pool)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < export->files.n; i++)
        bytes +=
            rfs_export_is_mine(export, &export->files.data[i]) ? export->files.data[i].size : 0;
    rfs_progress_begin(&export->progress, "verifying", bytes, export->files.n);
    const int rc = rfs_pool_for(pool, export->files.n, verify_file, &verifying);
    rfs_pool_free(pool);
    rfs_progress_end(&export->progress);
    for (uint32_t i = 0; i < export->stale.entries.n; i++)
        if (i % export->task.count == export->task.number && rfs_export_is_stale(export, i))
            report(&verifying, rfs_intern_text(export->stale.names, i), 0,
                   "it is of another export");
    export->files_kept = verifying.good;
    export->bytes_kept = verifying.bytes;
    if (rc)
        return rfs_fail_memory(err);
    if (verifying.bad > 0)
        return rfs_fail(err, -EBADMSG, RFS_IN(export->dest.path),
                        "the export again, with --force where a file is there and differs",
                        "%llu of %llu files are missing or wrong",
                        (unsigned long long)verifying.bad,
                        (unsigned long long)(verifying.good + verifying.bad));
    if (!export->view && known->entries.n < known->total_files)
        return rfs_fail(err, -EBADMSG, RFS_IN(export->dest.path), "the export again",
                        "the export is not complete: %zu of %llu files are in the manifest",
                        known->entries.n, (unsigned long long)known->total_files);
    merge(export);
    return 0;
}
