/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where documents lead: a map, an index, metadata, rules and whatever else names files. A document
 * leads below its own folder. A map of files= also leads to the places that the user names.
 *
 * Threads: all functions.
 */
#pragma once

#include "base/std.h"

/*
 * Says whether NAME, as a document gives it, leads below the document's own folder: it is no URL
 * and no absolute path, and has no "..".
 */
bool rfs_origin_stays(const char *name);
/*
 * Says whether the N bytes of PATH are names of entries, one in the other: none is "", "." or "..".
 */
bool rfs_origin_is_names(const char *path, size_t n);

/*
 * Says whether PATH is ORIGIN, or below it. URLs are compared as texts; the case of a host and the
 * default port of a scheme do not count, and ".." is below nothing. Paths of this machine are
 * compared without links in their folders.
 */
bool rfs_origin_has(const char *origin, const char *path);

/* The places that a document may lead to beside its own folder. */
struct rfs_origins {
    const char *source; /* a URL; or another path, or NULL, which adds nothing */
    const char *named;  /* "A:B": URLs and paths of this machine; or NULL */
    bool here;          /* any file of this machine, for a document that is one itself */
};
/*
 * Finds where NAME leads in a document in FOLDER, a URL or an absolute path: *PATH, malloc'ed, is
 * NULL when out of memory. 0; -ENOMEM; or -EXDEV when it is elsewhere, and nothing of it was asked
 * for.
 */
int rfs_origin_lead(const char *folder, const char *name, const struct rfs_origins *origins,
                    char **path);
