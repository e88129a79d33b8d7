/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/saver.h"

#include "base/cleanup.h"
#include "base/progress.h"

#define SAVE_EVERY 1.0 /* seconds between two saves, at least */
#define SAVE_SHARE 20  /* times as long as a save took, at least */

int rfs_saver_init(struct rfs_saver *saver, struct rfs_dest *dest, bool sync)
{
    *saver = (struct rfs_saver){.dest = dest, .sync = sync};
    pthread_mutex_init(&saver->lock, NULL);
    return rfs_manifest_init(&saver->manifest, RFS_MANIFEST_FILES);
}

void rfs_saver_destroy(struct rfs_saver *saver)
{
    rfs_manifest_free(&saver->manifest);
    pthread_mutex_destroy(&saver->lock);
}

/* Saves the manifest. The caller has the lock and set saving; the lock is released meanwhile. */
static int save_locked(struct rfs_saver *saver, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t size = 0;
    int rc = rfs_manifest_text(&saver->manifest, &text, &size);
    RFS_FREE char *name = rfs_manifest_name(saver->manifest.task, saver->manifest.tasks);

    pthread_mutex_unlock(&saver->lock);
    const double begun = rfs_progress_now();
    rc = rc || !name ? rfs_fail_memory(err)
                     : saver->dest->kind->save(saver->dest, name, text, size, saver->sync, err);
    const double took = rfs_progress_now() - begun;
    pthread_mutex_lock(&saver->lock);
    saver->due = begun + took + (took * SAVE_SHARE > SAVE_EVERY ? took * SAVE_SHARE : SAVE_EVERY);
    saver->saving = false;
    return rc;
}

int rfs_saver_add(struct rfs_saver *saver, const char *path, const struct rfs_manifest_entry *entry,
                  struct rfs_error *err)
{
    pthread_mutex_lock(&saver->lock);
    int rc = rfs_manifest_put(&saver->manifest, path, entry);
    const bool save = rc == 0 && !saver->saving && rfs_progress_now() >= saver->due;
    if (save) {
        saver->saving = true;
        rc = save_locked(saver, err);
    } else if (rc) {
        rfs_fail_memory(err);
    }
    pthread_mutex_unlock(&saver->lock);
    return rc;
}

int rfs_saver_save(struct rfs_saver *saver, struct rfs_error *err)
{
    pthread_mutex_lock(&saver->lock);
    saver->saving = true;
    const int rc = save_locked(saver, err);
    pthread_mutex_unlock(&saver->lock);
    return rc;
}
