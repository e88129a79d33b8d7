/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"

#include <sys/stat.h>

char *rfs_path_join(const char *folder, const char *name)
{
    const char *slash = strcmp(folder, "/") == 0 ? "" : "/";
    return rfs_text_printf("%s%s%s", folder, slash, name);
}

int rfs_path_parent(const char *path, char **folder, char **name, struct rfs_error *err)
{
    *folder = rfs_store_parent(path);
    if (!*folder)
        return errno == ENOMEM ? rfs_fail_memory(err)
                               : rfs_fail(err, -errno, RFS_IN(path), NULL,
                                          "its folder cannot be reached: %s", strerror(errno));
    if (name && !(*name = strdup(rfs_path_name(path))))
        return rfs_fail_memory(err);
    return 0;
}

static int resolve_file(const char *source, char **path, struct rfs_error *err)
{
    RFS_FREE char *folder = NULL;
    RFS_FREE char *name = NULL;
    *path = NULL;
    const int rc = rfs_path_parent(source, &folder, &name, err);
    if (rc < 0)
        return rc;
    *path = rfs_path_join(folder, name);
    return *path ? 0 : rfs_fail_memory(err);
}

static int fail_source(const char *source, int code, struct rfs_error *err)
{
    if (code == ENOENT)
        return rfs_fail(err, -code, RFS_IN(source), "check the path", "the source does not exist");
    return rfs_fail(err, -code, RFS_IN(source),
                    rfs_is_url(source) ? rfs_store_remedy(source, code)
                    : code == EACCES   ? "check the permissions of the folders above it"
                                       : NULL,
                    "the source cannot be reached: %s", rfs_store_why(source, code));
}

int rfs_path_resolve(const char *source, char **path, struct rfs_error *err)
{
    struct stat st;

    *path = rfs_store_realpath(source);
    if (!*path)
        return fail_source(source, errno, err);
    const int rc = rfs_store_stat(*path, &st);
    if (rc < 0 && rfs_is_url(source)) {
        free(*path);
        *path = NULL;
        return fail_source(source, -rc, err);
    }
    if (rc < 0 || !S_ISREG(st.st_mode) || rfs_is_url(source))
        return 0;
    free(*path);
    return resolve_file(source, path, err);
}
