/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of the files of a view of ranks, kept on disk for the next view of this source by these
 * strategies and options (catalog/kept_sizes.h), so that listing them plans nothing.
 *
 * They are used only while all files of the source have the path, inode, size, mtime and ctime that
 * were kept with them. This is checked again after a second; the sources of a file's bytes are
 * compared each time. So a size is equal to the one that planning would give. They are kept when
 * all files of the source were settled (catalog/kept.h) before the view was opened.
 *
 * Cost: 8 bytes a file shown, 4 for each of its sources, about 150 a source file, once one is
 * stat'ed.
 */
#pragma once

#include "view/internal.h"

/*
 * Finds the kept size and attributes of a file that is not planned. False when nothing is known of
 * it, or not for certain; *plan is empty then, else its sources are the caller's to free. Any
 * thread.
 */
bool rfs_view_sizes_find(struct rfs_view *view, size_t file, struct rfs_rank_plan *plan,
                         uint64_t *size);
/*
 * Drops all sizes, also for the next view, because planning a file gave another size than was
 * reported.
 */
void rfs_view_sizes_refute(struct rfs_view *view);
/* Returns whether sizes are loaded, with that of the file. Lock-free. */
bool rfs_view_sizes_known(const struct rfs_view *view, size_t file);

/* Notes that a file was planned; keeps them in the background once all are. */
void rfs_view_sizes_planned(struct rfs_view *view);

/* Keeps indexes and sizes, if there are new ones and the view is open, and frees the sizes. */
void rfs_view_sizes_close(struct rfs_view *view);
