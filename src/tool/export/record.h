/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of this task while it is written: saved when a file is complete, but not so often
 * that saving takes most of the time, and at the end.
 *
 * Threads: rfs_record_add from any; the others from one.
 */
#pragma once

#include "tool/export/dest.h"
#include "tool/export/manifest.h"

#include <pthread.h>

struct rfs_record {
    const struct rfs_dest *dest;
    bool sync;
    pthread_mutex_t lock; /* of the rest; a leaf lock, not held while saving */
    struct rfs_manifest manifest;
    bool saving;
    double due; /* when it may be saved again, as rfs_progress_now */
};

/* 0 or -ENOMEM. */
int rfs_record_init(struct rfs_record *record, const struct rfs_dest *dest, bool sync);
void rfs_record_destroy(struct rfs_record *record);

/* A file is complete. 0, or -errno with *err filled when it could not be saved. */
int rfs_record_add(struct rfs_record *record, const char *path,
                   const struct rfs_manifest_entry *entry, struct rfs_error *err);
/* Saves it now. 0, or -errno with *err filled. */
int rfs_record_save(struct rfs_record *record, struct rfs_error *err);

/* Milliseconds since the epoch. */
uint64_t rfs_record_now(void);
