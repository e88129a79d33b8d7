/* SPDX-License-Identifier: Apache-2.0 */
#include "source/boxes/open.h"

#include "source/boxes/dcp.h"
#include "source/boxes/fsdp.h"
#include "source/boxes/mindformers.h"
#include "source/boxes/shards.h"

/* Each reader declares the tensors and chunks of the metadata. */
static int (*const readers[])(const char *folder, struct rfs_files *files,
                              struct rfs_tables *tables, struct rfs_log *log,
                              struct rfs_boxes **out, struct rfs_error *err) = {
    [RFS_DCP] = rfs_dcp_open,
    [RFS_MINDFORMERS] = rfs_mindformers_open,
    [RFS_SHARDS] = rfs_shards_open,
    [RFS_FSDP] = rfs_fsdp_open,
};

int rfs_boxes_open(const struct rfs_scan *scan, struct rfs_files *files, struct rfs_tables *tables,
                   struct rfs_log *log, struct rfs_boxes **out, struct rfs_error *err)
{
    const char *metadata = rfs_files_path(files, 0);
    const char *slash = strrchr(metadata, '/');
    char *folder = strndup(metadata, slash ? (size_t)(slash - metadata) : 0);

    *out = NULL;
    if (!folder)
        return rfs_fail_memory_of(err, metadata);
    const int rc = readers[scan->described](folder, files, tables, log, out, err);
    free(folder);
    return rc;
}
