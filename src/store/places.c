/* SPDX-License-Identifier: Apache-2.0 */
#include "store/places.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"

#include <unistd.h>

static bool is_link(const char *path)
{
    char first;

    return readlink(path, &first, 1) >= 0;
}

/* Whether no part of PATH behind its first N bytes is a link; PATH is changed and restored. */
static bool is_plain(char *path, size_t n)
{
    for (char *slash = strchr(path + n + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const bool link = is_link(path);
        *slash = '/';
        if (link)
            return false;
    }
    return !is_link(path);
}

/* The folder that a file really is in, malloc'ed; NULL with errno where it can't be found. */
static char *real_folder(const char *path)
{
    char *real = realpath(path, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;

    if (slash)
        slash[slash == real] = '\0'; /* "/" stays */
    return real;
}

int rfs_places_outside(const struct rfs_files *files, const char *root, rfs_place_fn *fn, void *ctx)
{
    RFS_FREE char *last = NULL;
    const size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    int rc = 0;

    for (uint32_t id = 0; rc == 0 && id < rfs_files_count_paths(files); id++) {
        if (rfs_is_url(rfs_files_path(files, id)))
            continue;
        RFS_FREE char *path = strdup(rfs_files_path(files, id));
        if (!path)
            return -ENOMEM;
        if (rfs_path_within(path, root) && is_plain(path, n))
            continue;
        RFS_FREE char *folder = real_folder(path);
        if (!folder && errno == ENOMEM)
            return -ENOMEM;
        if (!folder || (last && strcmp(folder, last) == 0))
            continue;
        rc = fn(ctx, folder);
        free(last);
        last = RFS_STEAL(folder);
    }
    return rc;
}
