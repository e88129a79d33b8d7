/* SPDX-License-Identifier: Apache-2.0 */
#include "view/saves.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "view/hidden.h"

_Static_assert(RFS_HIDDEN_BIT < UINT64_C(1) << RFS_SAVE_SHIFT,
               "a save's ids begin above those of the hidden folder");

void rfs_save_name(const struct rfs_save *save, char out[48])
{
    snprintf(out, 48, "%" PRId64 "_%" PRId64, save->epoch, save->step);
}

/* Whether another save could be opened all the same. */
static bool is_of_one_save(const struct rfs_error *err)
{
    return !err->usage && err->code != -ENOMEM && err->code != -EMFILE && err->code != -ENFILE;
}

static int open_saves(struct reshard_view *set, const char *source, const struct rfs_saves *saves,
                      struct rfs_error *err)
{
    struct rfs_error first = {0};

    set->data = calloc(saves->n, sizeof *set->data);
    if (!set->data)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < saves->n; i++) {
        struct rfs_error failure = {0};
        char name[48];
        const int rc =
            rfs_view_add(set, source, &saves->data[i], set->options.cache / saves->n, &failure);
        if (rc == 0)
            continue;
        if (!is_of_one_save(&failure) || set->options.strict) {
            *err = failure;
            return rc;
        }
        if (first.code == 0)
            first = failure;
        rfs_save_name(&saves->data[i], name);
        rfs_log(&set->log, RFS_WARNING, "%s: left out: %s", name, failure.text);
    }
    if (set->n > 0)
        return 0;
    *err = first;
    return first.code;
}

int rfs_saves_open(struct reshard_view *set, const char *source, struct rfs_error *err)
{
    RFS_FREE char *path = NULL;
    struct rfs_saves saves = {0};

    if (rfs_fds_init(&set->fds, rfs_limits_files(RFS_MAX_OPEN)))
        return rfs_fail_memory(err);
    set->has_fds = true;
    int rc = rfs_path_resolve(source, &path, err);
    if (rc)
        return rc;
    const struct rfs_source_spec spec = rfs_view_spec(set, &set->options, path);
    rc = rfs_scan_saves(&spec, &saves, err);
    if (rc == 0 && saves.n > RFS_SAVES_MOST)
        rc = rfs_fail(err, -EINVAL, RFS_IN(path), "those of one epoch, by epoch=",
                      "there are %zu saves, and %d can be shown side by side", saves.n,
                      RFS_SAVES_MOST);
    if (rc == 0)
        rc = open_saves(set, path, &saves, err);
    free(saves.data);
    return rc;
}

/*
 * The folders of saves lie in the root, and in the hidden folder of tensors: *id is that of a
 * save's, but for its base.
 */
static bool has_saves(uint64_t folder, uint64_t *id)
{
    *id = folder;
    return folder == RESHARD_ROOT || folder == RFS_HIDDEN_TENSORS;
}

int rfs_saves_lookup(const struct reshard_view *set, uint64_t parent, const char *name,
                     uint64_t *id)
{
    if (!has_saves(parent, id))
        return -ENOENT;
    if (strcmp(name, "..") == 0) {
        *id = parent == RESHARD_ROOT ? RESHARD_ROOT : RFS_HIDDEN_TOP;
        return 0;
    }
    for (size_t i = 0; i < set->n; i++)
        if (strcmp(set->data[i]->save, name) == 0) {
            *id += set->data[i]->base;
            return 0;
        }
    return -ENOENT;
}

int rfs_saves_list(const struct reshard_view *set, uint64_t dir, uint64_t position,
                   reshard_dirent *full)
{
    if (!has_saves(dir, &full->id))
        return -ENOENT;
    if (position >= set->n)
        return 0;
    full->id += set->data[position]->base;
    full->is_dir = true;
    full->name = set->data[position]->save;
    return 1;
}

int rfs_saves_stat(const struct reshard_view *set, uint64_t id, reshard_stat *full,
                   struct rfs_error *err)
{
    uint64_t unused;

    if (!has_saves(id, &unused))
        return rfs_view_no_entry(id, err);
    rfs_view_fill_dir(set, full);
    full->hidden = id != RESHARD_ROOT;
    full->nlink += (uint32_t)set->n;
    return 0;
}
