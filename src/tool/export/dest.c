/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/dest.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"

#include <unistd.h>

int rfs_dest_failed(const struct rfs_dest *dest, const char *path, const char *what, int code,
                    struct rfs_error *err)
{
    char shown[PATH_MAX + 256];
    const char *remedy = NULL;

    snprintf(shown, sizeof shown, "%s%s%s", dest->path, *path ? "/" : "", path);
    if (rfs_store_is_url(shown))
        remedy = rfs_store_remedy(shown, code);
    else if (code == ENOSPC || code == EDQUOT)
        remedy = "free some room, then the same command again";
    else if (code == EIO)
        remedy = "check the disk, then the same command again";
    else if (code == EACCES || code == EPERM || code == EROFS)
        remedy = "a folder that you may write to";
    return rfs_fail(err, -code, RFS_IN(shown), remedy, "%s: %s", what, rfs_store_why(shown, code));
}

int rfs_dest_busy(const struct rfs_dest *dest, const char *path, struct rfs_error *err)
{
    return rfs_fail(err, -EBUSY, RFS_IN(path), "once that has ended",
                    "another export to %s is writing it", dest->path);
}

/* ---- the destination ------------------------------------------------------------------------- */

int rfs_dest_find(const char *given, const char *source, struct rfs_dest *out,
                  struct rfs_error *err)
{
    *out = RFS_DEST_NONE;
    out->kind = rfs_store_is_url(given) ? &rfs_dest_bucket : &rfs_dest_folder;
    const int rc = out->kind->find(given, out, err);
    if (rc || !source || rfs_store_is_url(source) != rfs_store_is_url(given))
        return rc;
    /* A path that is no source is reported when it is opened. URLs are compared as they are. */
    RFS_FREE char *from = rfs_store_realpath(NULL, source);
    return from ? rfs_path_refuse_overlap(out->path, from, "the folder to write to",
                                          "a folder elsewhere", err)
                : 0;
}

void rfs_dest_close(struct rfs_dest *dest)
{
    if (dest->fd >= 0)
        close(dest->fd);
    free(dest->path);
    *dest = RFS_DEST_NONE;
}

/* ---- files that are being written ------------------------------------------------------------ */

int rfs_dest_begin(struct rfs_dest_partial *partial, struct rfs_error *err)
{
    partial->folder = partial->fd = -1;
    partial->begun = true;
    const int rc = partial->dest->kind->begin(partial, err);
    if (rc)
        rfs_dest_drop(partial);
    return rc;
}

int rfs_dest_finish(struct rfs_dest_partial *partial, struct rfs_error *err)
{
    const int rc = partial->dest->kind->finish(partial, err);

    rfs_dest_drop(partial);
    return rc;
}

void rfs_dest_drop(struct rfs_dest_partial *partial)
{
    if (partial->begun)
        partial->dest->kind->drop(partial);
    *partial = (struct rfs_dest_partial){.folder = -1, .fd = -1};
}

int rfs_dest_cut(const struct iovec *spans, int count, uint64_t from, uint64_t to,
                 struct iovec out[RFS_DEST_SPANS])
{
    uint64_t at = 0;
    int n = 0;

    for (int i = 0; i < count && at < to; i++) {
        const uint64_t size = spans[i].iov_len;
        const uint64_t first = from > at ? from - at : 0;
        const uint64_t last = rfs_min_u64(size, to - at);
        if (first < last)
            out[n++] =
                (struct iovec){(unsigned char *)spans[i].iov_base + first, (size_t)(last - first)};
        at += size;
    }
    return n;
}
