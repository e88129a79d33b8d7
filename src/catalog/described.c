/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/described.h"

#include "base/store.h"
#include "formats/chunks/dcp.h"
#include "formats/chunks/fsdp.h"
#include "formats/chunks/mindformers.h"
#include "formats/chunks/shards.h"

/* Each reader declares the tensors and chunks of the metadata. */
static int (*const readers[])(const char *folder, struct rfs_files *files,
                              struct rfs_tables *tables, struct rfs_log *log,
                              struct rfs_chunks **out, struct rfs_error *err) = {
    [RFS_DCP] = rfs_dcp_open,
    [RFS_MINDFORMERS] = rfs_mindformers_open,
    [RFS_SHARDS] = rfs_shards_open,
};

/* Takes what the folder tells of the save as a whole. */
static int take_doubt(const struct rfs_scan *scan, const char *folder, struct rfs_chunks *boxes,
                      struct rfs_error *err)
{
    boxes->times_tell = scan->described == RFS_DCP && !scan->exported && !rfs_is_url(folder);
    if (!scan->doubt)
        return 0;
    rfs_log(boxes->log, RFS_WARNING, "%s: %s", folder, scan->doubt);
    boxes->doubt = strdup(scan->doubt);
    return boxes->doubt ? 0 : rfs_fail_memory_of(err, folder);
}

int rfs_chunks_open(const struct rfs_scan *scan, const char *entry, struct rfs_files *files,
                    struct rfs_tables *tables, struct rfs_log *log, struct rfs_chunks **out,
                    struct rfs_error *err)
{
    const char *metadata = rfs_files_path(files, 0);
    const char *slash = strrchr(metadata, '/');
    char *folder = strndup(metadata, slash ? (size_t)(slash - metadata) : 0);

    *out = NULL;
    if (!folder)
        return rfs_fail_memory_of(err, metadata);
    int rc = scan->described == RFS_FSDP
                 ? rfs_fsdp_open(folder, entry, scan->lost, files, tables, log, out, err)
                 : readers[scan->described](folder, files, tables, log, out, err);
    if (rc == 0 && (rc = take_doubt(scan, folder, *out, err)) != 0) {
        rfs_chunks_free(*out);
        *out = NULL;
    }
    free(folder);
    return rc;
}
