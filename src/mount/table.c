/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/table.h"

#include "base/mountinfo.h"
#include "mount/report.h"

struct search {
    const char *path;
    struct rfs_mounted *out;
};

/* The last that fits is on top. */
static bool take(void *ctx, const struct rfs_mountinfo *mount)
{
    const struct search *search = ctx;
    struct rfs_mounted *out = search->out;

    if (strcmp(mount->point, search->path) != 0)
        return true;
    out->id = mount->id;
    out->device = mount->device;
    out->ours = strcmp(mount->type, "fuse." RFS_PROGRAM) == 0;
    snprintf(out->source, sizeof out->source, "%s", out->ours ? mount->source : "");
    return true;
}

int rfs_table_find(const char *path, struct rfs_mounted *out)
{
    struct search search = {path, out};

    *out = (struct rfs_mounted){.ours = false};
    const int rc = rfs_mountinfo_each(take, &search);
    return rc ? rc : out->id ? 0 : -ENOENT;
}
