/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/sample.h"

#include "base/cleanup.h"

int rfs_sample_read(const struct rfs_planning *planning, uint32_t rank,
                    const struct rfs_index *index, const struct rfs_entry *entry, unsigned first,
                    unsigned end, unsigned char *data)
{
    struct rfs_catalog *catalog = planning->catalog;
    const uint64_t bytes = rfs_catalog_type(catalog, entry->type)->bytes;
    const uint32_t file = rfs_catalog_entry_file(catalog, rank, index, entry);
    const struct rfs_content content = rfs_catalog_content_of(index, entry);
    RFS_CLEANUP(rfs_quant_scales_end) struct rfs_quant_scales scales = {0};
    struct rfs_reading reading;
    uint64_t from;

    int rc = rfs_reading_take(rfs_catalog_files(catalog), file, &reading);
    if (rc)
        return rc;
    for (unsigned p = first; rc == 0 && p < end; p++) {
        const size_t n = rfs_sample_part(bytes, p, &from);
        if (n > 0)
            rc = rfs_catalog_content_pread(&reading, &content, &scales, data + p * RFS_SAMPLE_PART,
                                           n, from);
    }
    const int ended = rfs_reading_end(&reading);
    return rc ? rc : ended;
}
