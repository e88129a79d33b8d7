/* SPDX-License-Identifier: Apache-2.0 */
/* Where sources really are, for a sandbox that forbids all other places. */
#pragma once

#include "store/files.h"

/*
 * PATH is absolute and has no links in it. A nonzero result ends the enumeration and is returned.
 */
typedef int rfs_place_fn(void *ctx, const char *path);

/*
 * The folders that all files are in as far as they are not beneath ROOT (absolute, without links):
 * those that links lead to, and those of a map. A folder may be reported several times; files that
 * do not exist are skipped. Opens no file: two system calls for each that is in a folder of ROOT.
 * 0, -ENOMEM, or the result of FN.
 */
int rfs_places_outside(const struct rfs_files *files, const char *root, rfs_place_fn *fn,
                       void *ctx);
