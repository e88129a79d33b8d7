/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint 2.0 of MindSpore Transformers: one folder of safetensors files for all ranks, and
 * metadata.json, which says what slices there are and which files hold them.
 */
#ifndef RFS_SOURCE_BOXES_MINDFORMERS_H
#define RFS_SOURCE_BOXES_MINDFORMERS_H

#include "source/boxes/boxes.h"

/*
 * Reads metadata.json, file 0 of FILES, in FOLDER, which is absolute and resolved. Takes linear time,
 * and the memory of a block of the text and of the boxes. 0 with *out owned by the caller, or -errno with
 * *err filled. LOG hears which files are missing where others have the same slices.
 */
int rfs_mindformers_open(const char *folder, struct rfs_files *files, struct rfs_tables *tables,
                         struct rfs_log *log, struct rfs_boxes **out, struct rfs_error *err);

#endif
