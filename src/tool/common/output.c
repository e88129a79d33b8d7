/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/output.h"

#include "base/write_whole.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int fail_write(const char *path, const char *what, int code, struct rfs_error *err)
{
    const char *remedy = code == ENOSPC || code == EDQUOT ? "free some room, then the same again"
                         : code == EACCES || code == EROFS || code == ENOENT || code == ENOTDIR
                             ? "a folder that is there and that you may write to"
                             : NULL;
    return rfs_fail(err, -code, RFS_IN(path), remedy, "%s: %s", what, strerror(code));
}

int rfs_output_write(const char *path, const void *data, size_t size, bool force,
                     struct rfs_error *err)
{
    const char *what;
    struct stat st;

    if (strcmp(path, "-") == 0) {
        if (fwrite(data, 1, size, stdout) == size)
            return 0;
        return rfs_fail(err, -EIO, RFS_NOWHERE, NULL, "cannot write to the standard output");
    }
    if (!force && lstat(path, &st) == 0)
        return rfs_fail(err, -EEXIST, RFS_IN(path), "another name, or --force to replace it",
                        "is there already");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return rfs_fail(err, -EEXIST, RFS_IN(path), "another name", "is there, and is no file");
    const int rc = rfs_write_whole(path, data, size, force, &what);
    return rc == -ENOMEM ? rfs_fail_memory(err) : rc ? fail_write(path, what, -rc, err) : 0;
}
