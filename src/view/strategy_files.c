/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In a folder the strategies are the files that merge_pipeline_strategys of MindSpore takes, *.ckpt
 * and *.json; where there are none, all files are, as protobuf may have any name. Names that begin
 * with a dot never count, nor do folders.
 */
#include "view/strategy_files.h"

#include "base/cleanup.h"
#include "base/read_whole.h"
#include "base/store.h"
#include "base/text.h"
#include "layout/merge.h"

#include <sys/stat.h>

#define REMEDY_FOLDER "the folder that the runs of all stages saved their strategies in"

RFS_CLEANUP_OF(merge_cleanup, struct rfs_merge *, rfs_merge_free)

static bool is_folder(const char *path)
{
    struct stat st;

    return rfs_store_stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int fail_folder(const char *folder, int code, struct rfs_error *err)
{
    return rfs_fail(err, -code, RFS_IN(folder), NULL, "the folder cannot be listed: %s",
                    rfs_store_why(folder, code));
}

/* The folder's files with the names that MindSpore takes, or with any. */
static int list_folder(const char *folder, bool any, struct rfs_pathlist *out,
                       struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    const int failed = rfs_dir_open(folder, &dir);

    if (failed)
        return fail_folder(folder, -failed, err);
    while ((entry = rfs_dir_next(&dir)) != NULL) {
        struct stat st;
        const bool named =
            rfs_text_ends(entry->d_name, ".ckpt") || rfs_text_ends(entry->d_name, ".json");
        if (entry->d_name[0] == '.' || (!any && !named))
            continue;
        RFS_FREE char *path = rfs_text_printf("%s/%s", folder, entry->d_name);
        if (!path)
            return rfs_fail_memory(err);
        if (rfs_store_stat(path, &st) == 0 && !S_ISREG(st.st_mode))
            /* entries that cannot be examined are read, so that the failure is reported */
            continue;
        if (!rfs_pathlist_add(out, RFS_STEAL(path)))
            return rfs_fail_memory(err);
    }
    return errno ? fail_folder(folder, errno, err) : 0;
}

/* Sorted, so that messages about two files do not depend on the file system. */
int rfs_view_list_strategies(const char *folder, struct rfs_pathlist *out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_pathlist_free) struct rfs_pathlist found = {0};
    int rc = list_folder(folder, false, &found, err);

    if (rc == 0 && found.n == 0)
        rc = list_folder(folder, true, &found, err);
    if (rc)
        return rc;
    if (found.n == 0)
        return rfs_fail(err, -ENOENT, RFS_IN(folder), REMEDY_FOLDER,
                        "the folder holds no strategy files");
    rfs_pathlist_sort(&found);
    for (size_t i = 0; i < found.n; i++)
        if (!rfs_pathlist_add(out, RFS_STEAL(found.data[i])))
            return rfs_fail_memory(err);
    return 0;
}

static int read_file(const char *path, char **data, size_t *size, struct rfs_error *err)
{
    return rfs_read_whole(path, RFS_STRATEGY_BYTES, data, size, err);
}

static int merge_file(struct rfs_merge *merge, const char *path, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    const int rc = read_file(path, &data, &size, err);

    return rc ? rc : rfs_merge_add(merge, path, data, size, err);
}

static int merge_files(const char *name, const struct rfs_pathlist *files,
                       struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(merge_cleanup) struct rfs_merge *merge = NULL;
    int rc = rfs_merge_new(name, &merge, err);

    for (size_t i = 0; rc == 0 && i < files->n; i++)
        rc = merge_file(merge, files->data[i], err);
    return rc ? rc : rfs_merge_finish(merge, out, err);
}

static int read_single(const char *path, struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    const int rc = read_file(path, &data, &size, err);

    return rc ? rc : rfs_strategy_parse(path, data, size, out, err);
}

int rfs_view_read_strategy(const char *text, struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_pathlist_free) struct rfs_pathlist named = {0};
    RFS_CLEANUP(rfs_pathlist_free) struct rfs_pathlist files = {0};

    *out = NULL;
    if (rfs_pathlist_split(text, &named))
        return rfs_fail_memory(err);
    if (named.n == 1 && !is_folder(text))
        return read_single(text, out, err);
    for (size_t i = 0; i < named.n; i++) {
        if (named.data[i][0] == '\0')
            return rfs_fail(err, -EINVAL, RFS_IN(text), "FILE:FILE",
                            "a path in the list of strategy files is empty");
        if (is_folder(named.data[i])) {
            const int rc = rfs_view_list_strategies(named.data[i], &files, err);
            if (rc)
                return rc;
        } else if (!rfs_pathlist_add(&files, RFS_STEAL(named.data[i]))) {
            return rfs_fail_memory(err);
        }
    }
    return merge_files(text, &files, out, err);
}
