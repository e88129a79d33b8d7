/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of an earlier export, of other ranks or another format, which this one does not have: with
 * them in it, the folder would be neither. They are those that a manifest lists and the view does
 * not show, of any task and whatever --ranks says. A file that no manifest lists, and a link or no
 * file by now, is left alone.
 */
#include "tool/export/export.h"

#include "base/cleanup.h"
#include "base/order.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define NAMED 3 /* of them in a message */

int rfs_export_sort_out(struct rfs_export *export, struct rfs_error *err)
{
    struct rfs_manifest *known = &export->known;
    struct rfs_manifest kept;
    int rc = rfs_manifest_init(&kept);

    for (uint32_t i = 0; rc == 0 && i < known->entries.n; i++) {
        const char *path = rfs_intern_text(known->paths, i);
        const bool shown = rfs_intern_find(export->shown_paths, path, strlen(path)) != RFS_NO_ID;
        rc = rfs_manifest_put(shown ? &kept : &export->stale, path, &known->entries.data[i]);
    }
    if (rc) {
        rfs_manifest_free(&kept);
        return rfs_fail_memory(err);
    }
    kept.source = RFS_STEAL(known->source);
    kept.options = RFS_STEAL(known->options);
    kept.task = known->task;
    kept.tasks = known->tasks;
    kept.total_files = known->total_files;
    rfs_manifest_free(known);
    *known = kept;
    return 0;
}

bool rfs_export_is_stale(const struct rfs_export *export, uint32_t i)
{
    struct stat st;

    return rfs_dest_stat(&export->dest, rfs_intern_text(export->stale.paths, i), &st) == 0 &&
           S_ISREG(st.st_mode);
}

RFS_COMPARE(by_text, char *, x, y, strcmp(*x, *y))

int rfs_export_refuse_stale(const struct rfs_export *export, struct rfs_error *err)
{
    RFS_FREE const char **paths = calloc(export->stale.entries.n + 1, sizeof *paths);
    char names[512];
    size_t used = 0;
    size_t n = 0;

    if (!paths)
        return rfs_fail_memory(err);
    for (uint32_t i = 0; i < export->stale.entries.n; i++)
        if (rfs_export_is_stale(export, i))
            paths[n++] = rfs_intern_text(export->stale.paths, i);
    if (n == 0 || export->options->force)
        return 0;
    RFS_SORT(paths, n, by_text);
    for (size_t i = 0; i < n && i < NAMED && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 paths[i]);
    return rfs_fail(err, -EEXIST, RFS_IN(export->dest.path),
                    "another DST, or --force to remove them",
                    "%zu file%s of another export %s in it, which this one does not have: %s%s", n,
                    n == 1 ? "" : "s", n == 1 ? "is" : "are", names, n > NAMED ? ", …" : "");
}

int rfs_export_remove_stale(struct rfs_export *export, struct rfs_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < export->stale.entries.n; i++) {
        const char *path = rfs_intern_text(export->stale.paths, i);
        if (!rfs_export_is_stale(export, i))
            continue;
        const int gone = rfs_dest_remove(&export->dest, path);
        export->files_removed += gone == 0;
        if (gone && gone != -ENOENT) /* another task was first */
            rc = rfs_dest_failed(&export->dest, path, "cannot remove", -gone, err);
    }
    return rc;
}

/* Whether it is the manifest of one of TASKS tasks. */
static bool is_of(const char *name, uint32_t tasks)
{
    const char *number = name + strcspn(name, ".") + 1;

    return strcmp(name, RFS_MANIFEST_NAME) == 0 ? tasks < 2
                                                : tasks > 1 && strtoul(number, NULL, 10) < tasks;
}

unsigned rfs_export_other_manifests(const struct rfs_export *export, uint32_t tasks, bool remove)
{
    const int fd = openat(export->dest.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    unsigned n = 0;

    if (!dir && fd >= 0)
        close(fd);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!rfs_manifest_is_name(entry->d_name) || is_of(entry->d_name, tasks))
            continue;
        n++;
        if (remove)
            unlinkat(export->dest.fd, entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
    return n;
}
