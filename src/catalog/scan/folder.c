/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoints of one folder, and which of them counts. Names with a leading dot don't, as glob
 * passes over them. Of .ckpt files it is the last in byte order (_transform_checkpoints of
 * MindSpore 2.10); of .safetensors files the one whose path ends with the greatest two numbers
 * (_find_most_matching_file), which is not settled by the names where two paths end with the same
 * ones: MindSpore then takes whichever the folder lists last.
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/store.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

static int fail_folder(struct rfs_error *err, const char *path, int code)
{
    if (code == EXDEV)
        return rfs_beneath_fail(err, path);
    return rfs_fail(err, -code, RFS_IN(path), code == EACCES ? "check its permissions" : NULL,
                    "the folder cannot be listed: %s", rfs_store_why(path, code));
}

int rfs_entry_next(struct rfs_dir *dir, const char *path, const struct dirent **entry,
                   struct rfs_error *err)
{
    *entry = rfs_dir_next(dir);
    return *entry || errno == 0 ? 0 : fail_folder(err, path, errno);
}

int rfs_entry_each(const char *path, rfs_entry_fn *each, void *ctx, struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry = NULL;
    int rc = rfs_dir_open(path, &dir);

    if (rc < 0)
        return rfs_fail(err, rc, RFS_IN(path),
                        rfs_is_url(path) ? rfs_store_remedy(path, rc)
                                         : "check the folder's permissions",
                        "the source cannot be listed: %s", rfs_store_why(path, rc));
    while (rc == 0 && (rc = rfs_entry_next(&dir, path, &entry, err)) == 0 && entry)
        rc = each(ctx, entry);
    return rc;
}

int rfs_entry_is(const struct rfs_beneath *beneath, const char *path, const struct dirent *entry,
                 mode_t type, struct rfs_error *err)
{
    struct stat st;
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == IFTODT(type);
    RFS_FREE char *whole = rfs_path_join(path, entry->d_name);
    if (!whole)
        return rfs_fail_memory(err);
    const int failed = rfs_beneath_stat(beneath, whole, &st);
    if (failed == 0)
        return (st.st_mode & S_IFMT) == type;
    if (failed == -ENOENT || failed == -ENOTDIR || failed == -ELOOP)
        return 0;
    if (failed == -EXDEV)
        return rfs_beneath_fail(err, whole);
    return rfs_fail(err, failed, RFS_IN(whole), failed == -EACCES ? "check its permissions" : NULL,
                    "cannot be looked at: %s", strerror(-failed));
}

void rfs_listing_free(struct rfs_listing *listing)
{
    for (size_t i = 0; i < listing->n; i++)
        free(listing->data[i].name);
    free(listing->data);
    *listing = (struct rfs_listing){0};
}

RFS_COMPARE(compare_found, struct rfs_found, x, y, strcmp(x->name, y->name))

static bool is_wanted(const char *name, const char *glob)
{
    return glob ? rfs_glob_match_file(glob, name) : name[0] != '.';
}

/* False when out of memory. */
static bool add_found(struct rfs_listing *listing, struct rfs_found *found, const char *name)
{
    found->name = strdup(name);
    if (found->name && RFS_PUSH(listing, *found))
        return true;
    free(found->name);
    return false;
}

int rfs_listing_read(const struct rfs_beneath *beneath, const char *path, const char *glob,
                     struct rfs_listing *out, struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const int failed = rfs_beneath_dir(beneath, path, &dir);
    if (failed < 0)
        return fail_folder(err, path, -failed);
    for (;;) {
        const struct dirent *entry;
        struct rfs_found found = {0};
        int rc = rfs_entry_next(&dir, path, &entry, err);
        if (rc < 0)
            return rc;
        if (!entry)
            break;
        if (!rfs_name_format(entry->d_name, &found.format) || !is_wanted(entry->d_name, glob))
            continue;
        rc = rfs_entry_is(beneath, path, entry, S_IFREG, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        found.saved = rfs_name_save(entry->d_name, &found.save);
        if (!add_found(out, &found, entry->d_name))
            return rfs_fail_memory(err);
    }
    RFS_SORT_ALL(out, compare_found);
    return 0;
}

const char *rfs_listing_has(const struct rfs_listing *listing, enum rfs_format format)
{
    for (size_t i = listing->n; i-- > 0;)
        if (listing->data[i].format == format)
            return listing->data[i].name;
    return NULL;
}

static int fail_tie(struct rfs_error *err, enum rfs_format format, const char *path, const char *a,
                    const char *b)
{
    if (format == RFS_FORMAT_TORCH)
        return rfs_fail(err, -EINVAL, RFS_IN(path), "file=GLOB that only one of them matches",
                        "the folder has several .pt files, '%s' and '%s'", a, b);
    return rfs_fail(err, -EINVAL, RFS_IN(path), "file=GLOB that only one of them matches",
                    "the numbers in '%s' and '%s' don't say which one is the last", a, b);
}

int rfs_listing_choose(const struct rfs_listing *listing, const char *path, enum rfs_format format,
                       const struct rfs_save *save, size_t *out, struct rfs_error *err)
{
    RFS_FREE char *best = NULL; /* path of *out */
    size_t rival = SIZE_MAX;    /* has the same numbers as *out */
    *out = SIZE_MAX;
    for (size_t i = 0; i < listing->n; i++) {
        const struct rfs_found *found = &listing->data[i];
        if (found->format != format ||
            (save && (!found->saved || rfs_scan_saves_compare(&found->save, save) != 0)))
            continue;
        RFS_FREE char *whole = rfs_path_join(path, found->name);
        if (!whole)
            return rfs_fail_memory(err);
        /* They come in byte order. */
        const int order = best && format == RFS_FORMAT_SAFETENSORS ? rfs_name_compare(whole, best)
                          : best && format == RFS_FORMAT_TORCH ? 0 /* there is no rule for them */
                                                               : 1;
        if (order == 0)
            rival = i;
        if (order <= 0)
            continue;
        free(best);
        best = RFS_STEAL(whole);
        *out = i;
        rival = SIZE_MAX;
    }
    if (rival != SIZE_MAX)
        return fail_tie(err, format, path, listing->data[*out].name, listing->data[rival].name);
    return 0;
}
