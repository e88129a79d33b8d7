/* SPDX-License-Identifier: Apache-2.0 */
/* The folders that a view uses, for a program that gives up the right to all others. */
#include "base/cleanup.h"
#include "base/store.h"
#include "catalog/saved.h"
#include "store/files.h"
#include "store/remote/remote.h"
#include "view/internal.h"

#include <sys/stat.h>

struct teller {
    reshard_folder_fn *fn;
    void *ctx;
};

static int tell_read(void *ctx, const char *path)
{
    const struct teller *teller = ctx;

    return teller->fn(teller->ctx, path, false);
}

/*
 * Tells the source itself, or the folder of a source that is a file; then files that lie elsewhere.
 */
static int tell_sources(struct rfs_view *view, struct teller *teller)
{
    RFS_FREE char *root = strdup(rfs_catalog_path(view->catalog));
    struct stat st;

    if (!root)
        return -ENOMEM;
    if (rfs_store_is_url(root))
        return rfs_files_outside(rfs_catalog_files(view->catalog), root, tell_read, teller);
    if (stat(root, &st) == 0 && !S_ISDIR(st.st_mode)) {
        char *slash = strrchr(root, '/');
        slash[slash == root] = '\0'; /* "/" stays */
    }
    const int rc = tell_read(teller, root);
    return rc ? rc : rfs_files_outside(rfs_catalog_files(view->catalog), root, tell_read, teller);
}

/*
 * Tells the file of a token that is read again, or the folder of a link to it, which leads to
 * another file from time to time, as Kubernetes has it.
 */
static int tell_token(struct teller *teller)
{
    const char *token = rfs_remote_token_file();
    RFS_FREE char *real = NULL;
    struct stat st;

    if (!token)
        return 0;
    if (lstat(token, &st) == 0 && S_ISLNK(st.st_mode)) {
        RFS_FREE char *folder = rfs_store_folder(token);
        real = folder ? realpath(folder, NULL) : NULL;
    } else {
        real = realpath(token, NULL);
    }
    if (!real)
        return errno == ENOMEM ? -ENOMEM : 0;
    return tell_read(teller, real);
}

int reshard_folders(reshard_view *set, reshard_folder_fn *fn, void *ctx)
{
    struct teller teller = {fn, ctx};
    const char *saved = set->saved ? rfs_saved_make(set->saved) : NULL;
    int rc = saved ? fn(ctx, saved, true) : 0;

    for (size_t i = 0; rc == 0 && i < set->n; i++)
        rc = tell_sources(set->data[i], &teller);
    return rc == 0 && set->objects ? tell_token(&teller) : rc;
}
