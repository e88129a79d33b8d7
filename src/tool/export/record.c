/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/record.h"

#include "base/cleanup.h"
#include "tool/common/progress.h"

#include <time.h>

#define SAVE_EVERY 1.0 /* seconds, at most */
#define SAVE_SHARE 20  /* and not more than a part of the time */

int rfs_record_init(struct rfs_record *record, const struct rfs_dest *dest, bool sync)
{
    *record = (struct rfs_record){.dest = dest, .sync = sync};
    pthread_mutex_init(&record->lock, NULL);
    return rfs_manifest_init(&record->manifest);
}

void rfs_record_destroy(struct rfs_record *record)
{
    rfs_manifest_free(&record->manifest);
    pthread_mutex_destroy(&record->lock);
}

uint64_t rfs_record_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The caller has the lock, and set saving; it is released meanwhile. */
static int save_locked(struct rfs_record *record, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t size = 0;
    int rc = rfs_manifest_text(&record->manifest, &text, &size);
    RFS_FREE char *name = rfs_manifest_name(record->manifest.task, record->manifest.tasks);

    pthread_mutex_unlock(&record->lock);
    const double begun = rfs_progress_now();
    rc = rc || !name ? rfs_fail_memory(err)
                     : rfs_dest_save(record->dest, name, text, size, record->sync, err);
    const double took = rfs_progress_now() - begun;
    pthread_mutex_lock(&record->lock);
    record->due = begun + took + (took * SAVE_SHARE > SAVE_EVERY ? took * SAVE_SHARE : SAVE_EVERY);
    record->saving = false;
    return rc;
}

int rfs_record_add(struct rfs_record *record, const char *path,
                   const struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    pthread_mutex_lock(&record->lock);
    int rc = rfs_manifest_put(&record->manifest, path, entry);
    const bool save = rc == 0 && !record->saving && rfs_progress_now() >= record->due;
    if (save) {
        record->saving = true;
        rc = save_locked(record, err);
    } else if (rc) {
        rfs_fail_memory(err);
    }
    pthread_mutex_unlock(&record->lock);
    return rc;
}

int rfs_record_save(struct rfs_record *record, struct rfs_error *err)
{
    pthread_mutex_lock(&record->lock);
    record->saving = true;
    const int rc = save_locked(record, err);
    pthread_mutex_unlock(&record->lock);
    return rc;
}
