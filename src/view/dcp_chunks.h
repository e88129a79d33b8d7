/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: the chunks of each file of a view=dcp. A destination strategy gives each rank
 * its boxes, and a box of several ranks is the lowest one's. Without a strategy the rows of each
 * tensor are divided over dst_ranks=N files, as torch.chunk divides them. Chunks that are larger
 * than chunk_size are cut by rows.
 */
#pragma once

#include "image/dcp.h"
#include "view/internal.h"

struct rfs_dcp_chunks {
    const struct rfs_rank_plan *plan;
    struct rfs_dcp_chunk *data; /* owned; by target */
    size_t n, cap;
};

/*
 * Plans a rank, and lists its chunks; *out is zero-initialised or one to use again. STAGES comes
 * from rfs_dcp_stages. 0 or -errno with *err filled.
 */
int rfs_dcp_chunks(struct rfs_view *view, const uint32_t *stages, uint32_t rank,
                   struct rfs_dcp_chunks *out, struct rfs_error *err);
/*
 * The stage of the destination that shows each name, by its id, for a destination of several; the
 * first rank of each is planned. NULL in *out where there is one stage. Owned by the caller.
 */
int rfs_dcp_stages(struct rfs_view *view, uint32_t **out, struct rfs_error *err);
