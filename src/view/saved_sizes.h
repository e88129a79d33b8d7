/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of the files of a view of ranks, kept on disk for the next view of the same source by the
 * same strategies and options (catalog/saved/folder.h describes the place), so that listing them
 * plans nothing.
 *
 * They are used only while all files of the source have the path, inode, size, mtime and ctime that
 * were saved with them. This is checked again after a second; the sources of a file's bytes are
 * compared each time. So a size is equal to the one that planning would give. They are saved when
 * all files of the source were settled (catalog/saved/index.h) before the view was opened.
 *
 * Cost: 8 bytes a file shown, 4 for each of its sources, about 150 a source file, once one is
 * stat'ed.
 */
#pragma once

#include "view/internal.h"

/*
 * The saved size and attributes of a file that is not planned. False when nothing is known of it,
 * or not for certain; *plan is empty then, else to be freed by rfs_view_sizes_end. Any thread.
 */
bool rfs_view_saved_size(struct rfs_view *view, size_t file, struct rfs_rank_plan *plan,
                         uint64_t *size);
void rfs_view_sizes_end(struct rfs_rank_plan *plan);
/*
 * Called when planning a file gave another size than was reported: drops all sizes, also for the
 * next view.
 */
void rfs_view_sizes_refute(struct rfs_view *view);
/* Whether sizes are loaded, with that of the file. Lock-free. */
bool rfs_view_sizes_known(const struct rfs_view *view, size_t file);

/* Saves indexes and sizes, if there are any that are not. Not while the view is opened. */
void rfs_view_save(struct rfs_view *view);
/* To be called when a file was planned: saves in the background once all are. */
void rfs_view_sizes_planned(struct rfs_view *view);

void rfs_view_sizes_free(struct rfs_sizes *sizes);
