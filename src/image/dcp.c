/* SPDX-License-Identifier: Apache-2.0 */
/*
 * __R_0.distcp: items end to end, each a complete zip archive as torch.save writes it for a bare
 * tensor. An archive may begin anywhere; its offsets and its padding count from its own beginning.
 */
#include "image/dcp.h"

#include "base/cleanup.h"
#include "image/build.h"
#include "image/pt.h"

int rfs_image_dcp(struct rfs_catalog *catalog, const struct rfs_params *params,
                  const struct rfs_dcp_chunk *chunks, size_t n, bool crc, struct rfs_image **out,
                  uint64_t *ends, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    int rc = 0;

    *out = NULL;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct rfs_pt_tensor tensor = {.params = params,
                                             .target = chunks[i].target,
                                             .at = chunks[i].at,
                                             .type = rfs_catalog_type(catalog, chunks[i].type),
                                             .crc = crc};
        ends[i] = rfs_image_here(&builder);
        rc = rfs_image_pt_tensor(&builder, &tensor, err);
    }
    if (rc)
        return rc;
    ends[n] = rfs_image_here(&builder);
    rc = rfs_image_finish(&builder, params, out);
    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(rfs_catalog_path(catalog)), NULL,
                        "a .distcp file would be larger than a file can be");
    return rc ? rfs_fail_memory(err) : 0;
}
