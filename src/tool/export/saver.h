/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of this task while it is written: saved when a file is complete, but not so often
 * that saving takes most of the time, and at the end.
 */
#pragma once

#include "tool/common/manifest.h"
#include "tool/export/dest.h"

#include <pthread.h>

struct rfs_saver {
    struct rfs_dest *dest;
    bool sync;
    pthread_mutex_t lock; /* guards the rest; a leaf lock, not held while saving */
    struct rfs_manifest manifest;
    bool saving;
    double due; /* time of the next save, on the clock of rfs_progress_now */
};

/* Begins with an empty manifest. 0 or -ENOMEM; to be destroyed in any case. */
int rfs_saver_init(struct rfs_saver *saver, struct rfs_dest *dest, bool sync);
/* Frees the manifest. */
void rfs_saver_destroy(struct rfs_saver *saver);

/*
 * Adds a complete file, and saves the manifest if it is due. 0, or -errno with *err filled when it
 * could not be saved. From any thread.
 */
int rfs_saver_add(struct rfs_saver *saver, const char *path, const struct rfs_manifest_entry *entry,
                  struct rfs_error *err);
/* Saves the manifest now. 0, or -errno with *err filled. */
int rfs_saver_save(struct rfs_saver *saver, struct rfs_error *err);
