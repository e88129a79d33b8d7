/* SPDX-License-Identifier: Apache-2.0 */
/* The strategy that an option names. */
#pragma once

#include "base/error.h"
#include "base/pathlist.h"
#include "layout/strategy.h"

/*
 * TEXT is the path of a strategy file, of a folder of the files of a pipeline's stages, or several
 * of either with ':' between. Several files are merged in memory. 0 with *out owned by the caller,
 * or -errno with *err filled.
 */
int rfs_view_read_strategy(const char *text, struct rfs_strategy **out, struct rfs_error *err);

/* Appends the paths of the strategy files in a folder, sorted. 0, or -errno with *err filled. */
int rfs_view_list_strategies(const char *folder, struct rfs_pathlist *out, struct rfs_error *err);
