/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of files=, from rank to file, as checkpoint_files_map of transform_checkpoint_by_rank:
 *
 *   {"0": "job_a/net-3_1000.ckpt", "1": "/mnt/b/net-3_1000.ckpt"}
 *
 * Paths that are not absolute begin in the folder of the map. base/origin.h says where a map leads.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/origin.h"
#include "base/text.h"
#include "catalog/scan/internal.h"
#include "store/mapfile.h"

RFS_COMPARE(compare_ranks, struct rfs_scanned, x, y, RFS_ORDER(x->rank, y->rank))

/*
 * Resolves links in a path's folders, so that the map's entries hold as of now. Paths that cannot
 * be reached stay as they are.
 */
static int resolve(char **path, struct rfs_error *err)
{
    RFS_FREE char *folder = NULL;
    RFS_FREE char *name = NULL;
    struct rfs_error unreached;
    const int rc = rfs_path_parent(*path, &folder, &name, &unreached);
    if (rc < 0)
        return rc == -ENOMEM ? rfs_fail_memory(err) : 0;
    free(*path);
    *path = rfs_path_join(folder, name);
    return *path ? 0 : rfs_fail_memory(err);
}

/* Pins a URL, so that all files of a hub are of one commit, whenever they are opened. */
static int pin(struct rfs_store *store, char **url, struct rfs_error *err)
{
    char *pinned = rfs_store_realpath(store, *url);

    if (!pinned)
        return rfs_path_fail(*url, errno, err);
    free(*url);
    *url = pinned;
    return 0;
}

static int check_file(const struct rfs_source_spec *spec, const char *key, const char *path,
                      struct rfs_error *err)
{
    const char *map = spec->options->files;
    struct stat st;
    const int failed = rfs_beneath_stat(spec->beneath, spec->store, path, &st);
    if (failed == -EXDEV)
        return rfs_beneath_fail(err, path);
    if (failed)
        return rfs_fail(err, failed, RFS_IN(map),
                        "paths in it begin in its own folder, unless they are absolute",
                        "the file of rank %s, %s, cannot be found: %s", key, path,
                        rfs_store_why(path, failed));
    if (!S_ISREG(st.st_mode))
        return rfs_fail(err, -EINVAL, RFS_IN(map), "name a checkpoint",
                        "the file of rank %s, %s, is not a regular file", key, path);
    return 0;
}

/* Reports a file that the map may not name. */
static int fail_elsewhere(const struct rfs_source_spec *spec, const struct rfs_mapfile_pair *pair,
                          const char *path, struct rfs_error *err)
{
    RFS_FREE char *origin = rfs_store_folder(path);
    const bool whole = pair->value[0] == '/' || rfs_store_is_url(pair->value);
    RFS_FREE char *remedy =
        origin && whole ? rfs_text_printf("origins=%s, if the map may lead there", origin) : NULL;

    return rfs_fail(err, -EXDEV, RFS_IN(spec->options->files),
                    whole ? remedy : "names in it, or whole URLs with origins=",
                    "the file of rank %s, '%s', is not below the folder of the map", pair->key,
                    pair->value);
}

/* Gives the path of a rank's file, where the map may lead to it. *PATH is owned by the caller. */
static int find_path(const struct rfs_source_spec *spec, const char *folder,
                     const struct rfs_mapfile_pair *pair, char **path, struct rfs_error *err)
{
    const struct rfs_origins origins = {.source = spec->path,
                                        .named = spec->options->origins,
                                        .here = !rfs_store_is_url(spec->options->files)};
    const int rc = rfs_origin_lead(folder, pair->value, &origins, path);

    if (rc)
        return rc == -EXDEV ? fail_elsewhere(spec, pair, *path, err) : rfs_fail_memory(err);
    return rfs_store_is_url(*path) ? pin(spec->store, path, err)
           : spec->beneath         ? resolve(path, err)
                                   : 0;
}

static int fail_name(const char *map, const struct rfs_mapfile_pair *pair, struct rfs_error *err)
{
    char endings[RFS_FORMAT_ENDINGS_TEXT];
    char remedy[RFS_FORMAT_ENDINGS_TEXT + 32];

    snprintf(remedy, sizeof remedy, "files that end in %s", rfs_format_endings(false, endings));
    return rfs_fail(err, -EINVAL, RFS_IN(map), remedy,
                    "the file of rank %s, '%s', is not a checkpoint by its name", pair->key,
                    pair->value);
}

static int fail_kinds(const char *map, enum rfs_format a, enum rfs_format b, struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_IN(map), "files of one kind", "it names both %s and %s files",
                    rfs_formats[a < b ? a : b].endings[0], rfs_formats[a < b ? b : a].endings[0]);
}

static int add_entry(const struct rfs_source_spec *spec, const char *folder,
                     const struct rfs_mapfile_pair *pair, struct rfs_scan *out,
                     struct rfs_error *err)
{
    const char *map = spec->options->files;
    enum rfs_format format;
    uint32_t rank;
    if (!rfs_numbered_decimal(pair->key, &rank))
        return rfs_fail(err, -EINVAL, RFS_IN(map), "numbers such as \"0\" and \"12\"",
                        "'%s' is not a rank", pair->key);
    if (!rfs_format_of_name(pair->value, &format))
        return fail_name(map, pair, err);
    if (out->n > 0 && format != out->format)
        return fail_kinds(map, format, out->format, err);
    out->format = format;
    RFS_FREE char *path = NULL;
    const int rc =
        find_path(spec, folder, pair, &path, err) ?: check_file(spec, pair->key, path, err);
    if (rc < 0)
        return rc;
    rfs_scan_add_file(out, rfs_scan_add(out, rank, NULL), RFS_STEAL(path));
    return out->failed ? rfs_fail_memory(err) : 0;
}

/* Refuses a map with some of the parts of a checkpoint: each would be a rank's whole one. */
static int check_parts(const struct rfs_source_spec *spec, const struct rfs_scan *scan,
                       struct rfs_error *err)
{
    RFS_FREE const char **names = calloc(scan->n + 1, sizeof *names);

    if (!names)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < scan->n; i++)
        names[i] = scan->data[i].files[0];
    const int rc = rfs_scan_divided(spec->options->files, names, scan->n, true, err);
    return rc < 0 ? rc : 0;
}

int rfs_scan_map(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_mapfile_free) struct rfs_mapfile map = {0};
    RFS_FREE char *folder = NULL;
    int rc = rfs_mapfile_read(NULL, spec->store, spec->options->files, (struct rfs_mapfile_form){0},
                              &map, err);
    if (rc == 0 && map.n == 0)
        rc = rfs_fail(err, -EINVAL, RFS_IN(spec->options->files),
                      "{\"0\": \"FILE\", \"1\": \"FILE\"}", "the map names no file");
    if (rc == 0)
        rc = rfs_path_parent(spec->options->files, &folder, NULL, err);
    for (size_t i = 0; rc == 0 && i < map.n; i++)
        rc = add_entry(spec, folder, &map.data[i], out, err);
    if (rc == 0)
        rc = check_parts(spec, out, err);
    if (rc < 0)
        return rc;
    out->present = out->n;
    RFS_SORT_ALL(out, compare_ranks);
    return 0;
}
