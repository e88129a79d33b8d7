/* SPDX-License-Identifier: Apache-2.0 */
/* The folders that a view uses, for a program that gives up the right to all others. */
#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "catalog/kept.h"
#include "store/files.h"
#include "store/remote/remote.h"
#include "view/follow.h"

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
static int tell_token(struct rfs_store *store, struct teller *teller)
{
    const char *token = rfs_remote_token_file(store);
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

/* Tells the file or folder at PATH, or the folder that it is in. */
static int tell_path(struct teller *teller, const char *path, bool folder)
{
    RFS_FREE char *real = rfs_store_is_url(path) ? NULL : realpath(path, NULL);
    char *slash = real && folder ? strrchr(real, '/') : NULL;

    if (slash)
        slash[slash == real] = '\0';
    return real ? tell_read(teller, real) : 0;
}

/*
 * Tells the files that options name: views of new saves read them again, with what lies beside
 * rules and the config of a model.
 */
static int tell_options(const struct reshard_view *set, struct teller *teller)
{
    const struct rfs_option *option;
    int rc = 0;

    for (size_t i = 0; rc == 0 && (option = rfs_option_at(i)); i++) {
        char unused[RFS_OPTION_BYTES];
        const bool rules = option->kind == RFS_OPTION_RULES;
        const bool beside = rules || strcmp(option->name, "hf_config") == 0;
        if ((!rules && option->kind != RFS_OPTION_PATH && option->kind != RFS_OPTION_PATHS) ||
            !(option->flags & RFS_OPTION_OF_VIEW))
            continue;
        const char *value = rfs_options_value(&set->options, option, unused);
        RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list paths = {0};
        if (value && (rules || rfs_option_is_path(option, value)))
            rc = tell_path(teller, value, beside);
        else if (value && option->kind == RFS_OPTION_PATHS)
            rc = rfs_path_list_split(value, &paths);
        for (size_t k = 0; rc == 0 && k < paths.n; k++)
            rc = tell_path(teller, paths.data[k], false);
    }
    return rc;
}

int reshard_folders(reshard_view *set, reshard_folder_fn *fn, void *ctx)
{
    struct teller teller = {fn, ctx};
    struct rfs_view *view;
    const char *kept = set->kept ? rfs_kept_make(set->kept) : NULL;
    int rc = kept ? fn(ctx, kept, true) : 0;

    for (size_t at = 0; rc == 0 && (view = rfs_view_next(set, &at)); rfs_view_leave(view))
        rc = tell_sources(view, &teller);
    if (rc == 0 && set->follow)
        rc =
            tell_path(&teller, rfs_follow_source(set->follow), false) ?: tell_options(set, &teller);
    return rc ?: tell_token(set->store, &teller);
}
