/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks that are tensors of safetensors files, under their tensors' names; in keyed formats under
 * their keys, and in files of torch.save, too.
 */
#pragma once

#include "formats/chunks/chunks.h"

/*
 * Sorts the chunks of a finished checkpoint by file, which becomes what its format owns; the next
 * functions are the format's. 0 or -ENOMEM. 4 bytes a chunk and 8 a file; the headers of files
 * whose copies were located take 32 bytes for each tensor, and equal headers share them. Any thread
 * may use it.
 */
int rfs_chunks_own_headers(struct rfs_chunks *chunks);
void rfs_chunks_free_headers(void *own);

/*
 * Locates CHUNK, and with it all chunks of its file: reads the header and compares dtype and shape
 * of each with the chunk's. If that file is damaged, CHUNK alone is located in the first sound copy
 * of its list. 0, or -errno with *err filled, which is of the chunk's own file.
 */
int rfs_chunks_locate_in_header(struct rfs_chunks *chunks, uint32_t chunk, struct rfs_error *err);
/*
 * Finds what OUT's file has under the name of CHUNK's tensor, or in keyed formats under the key
 * that is OUT's at, and sets its type and place. 0, or -errno with *err filled: the file cannot be
 * read; this is remembered unless the failure may pass (rfs_files_may_pass).
 */
int rfs_chunks_copy_in_header(struct rfs_chunks *chunks, uint32_t chunk,
                              struct rfs_chunked_copy *out, struct rfs_error *err);
/*
 * Compares crc_num in a file's header with its tensors, as the check of a format does; of a file of
 * torch.save in a keyed format, what rfs_chunks_check_zip does.
 */
int rfs_chunks_check_header(struct rfs_chunks *chunks, uint32_t file, struct rfs_error *err);
/* Compares the CRC-32 of each entry of a file of torch.save, as the check of a format does. */
int rfs_chunks_check_zip(struct rfs_chunks *chunks, uint32_t file, struct rfs_error *err);
