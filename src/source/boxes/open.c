/* SPDX-License-Identifier: Apache-2.0 */
#include "source/boxes/open.h"

#include "base/path.h"
#include "source/boxes/dcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Each reader declares what the metadata says. */
static int read_metadata(enum rfs_described described, const char *folder, struct rfs_files *files,
                         struct rfs_tables *tables, struct rfs_log *log, struct rfs_boxes **out,
                         struct rfs_error *err)
{
    if (described == RFS_DCP)
        return rfs_dcp_open(folder, files, tables, log, out, err);
    *out = NULL;
    return rfs_fail(err, -ENOTSUP, RFS_IN(rfs_files_path(files, 0)), NULL,
                    "checkpoints of this format (%d) in %s are not read yet", (int)described,
                    folder);
}

int rfs_boxes_open(const struct rfs_scan *scan, struct rfs_files *files, struct rfs_tables *tables,
                   struct rfs_log *log, struct rfs_boxes **out, struct rfs_error *err)
{
    const char *metadata = rfs_files_path(files, 0);
    const char *slash = strrchr(metadata, '/');
    char *folder = strndup(metadata, slash ? (size_t)(slash - metadata) : 0);

    *out = NULL;
    if (!folder)
        return rfs_fail_memory_of(err, metadata);
    const int rc = read_metadata(scan->described, folder, files, tables, log, out, err);
    free(folder);
    return rc;
}
