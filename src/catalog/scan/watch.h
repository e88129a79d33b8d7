/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hears from the kernel (inotify) that a save may have ended in the folder of a run, so that the
 * next look is made at once. It watches that folder, and those of the saves in it: the last
 * RFS_WATCH_MOST. What may end a save is known in catalog/scan.h.
 *
 * Events wait in the kernel until somebody asks: no thread waits for them. Where the kernel reports
 * none (changes by other machines, object storage, its limits), looks are made when they are due.
 *
 * Threads: rfs_watch_rings, any; of the others one at a time.
 */
#pragma once

#include "base/log.h"

#define RFS_WATCH_MOST 64 /* folders of saves */

struct rfs_watch {
    int fd;             /* of inotify; -1: it hears nothing */
    const char *source; /* borrowed */
    struct rfs_log *log;
    int root;                  /* the watch on SOURCE; -1: none */
    int saves[RFS_WATCH_MOST]; /* those on folders of saves; 0: none */
    size_t next;               /* the place of the oldest */
    bool told;                 /* the log has a failure */
};

/* Begins to watch SOURCE, a path; a URL is not watched. */
void rfs_watch_begin(struct rfs_watch *watch, const char *source, struct rfs_log *log);
void rfs_watch_end(struct rfs_watch *watch);
/* Says whether something happened that was not taken yet. One system call, which never waits. */
bool rfs_watch_rings(const struct rfs_watch *watch);
/*
 * Takes all that happened, and watches folders that are new. Says whether a save may have come,
 * ended or gone. Call it before the source is listed, so that what comes later rings again.
 */
bool rfs_watch_take(struct rfs_watch *watch);
