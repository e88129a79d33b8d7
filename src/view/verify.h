/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree, compared with its source and with itself. The steps:
 *
 *     ranks     index every rank of the tree; compare their lists with the source's view
 *     lost      which tensors of the tree, or of the source, are incomplete for want of a rank
 *     content   each tensor of the tree, every copy of it that ranks hold, against the source's or
 *               each other; its checksum. Values that no strategy knows have no whole: rank by rank
 *     objects   values of a torch.distributed.checkpoint that are not tensors, against the source's
 *     frames    the rest of the files, against those that the view of the source would show
 *     values    values of hfai's parts that are not tensors, against the source's
 *
 * Memory: 12 MiB a thread, the views' caches, 56 bytes a tensor, and the findings.
 */
#pragma once

#include "view/findings.h"
#include "view/whole_tensors.h"

/* Verifies the tensors: ranks, lost and content. 0, or -errno with *err filled. */
int rfs_verify_tensors(struct rfs_verify *verify, struct rfs_error *err);
/* Returns whether RANK has a file in the tree that could be indexed. */
bool rfs_verify_has_rank(const struct rfs_verify *verify, uint32_t rank);
