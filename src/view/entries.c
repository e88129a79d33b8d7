/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, ids and attributes of all entries: the root, the shown files and their folders, the
 * folders of several saves, and the top of the hidden folder (hidden.h has what is below it).
 */
#include "base/cleanup.h"
#include "store/access.h"
#include "store/crypt/key.h"
#include "view/follow.h"
#include "view/hidden.h"
#include "view/sizes.h"

#include <sys/stat.h>

_Static_assert(RFS_HIDDEN_BIT < UINT64_C(1) << RFS_VIEW_SAVE_SHIFT,
               "a save's ids begin above those of the hidden folder");

static uint64_t file_id(const struct rfs_view *view, size_t file)
{
    return view->save.base + (view->kind->by_rank ? 3 + 2 * (uint64_t)file : 2 + (uint64_t)file);
}

static uint64_t folder_id(const struct rfs_view *view, size_t folder)
{
    return view->save.base + 2 +
           (view->kind->by_rank ? 2 * (uint64_t)folder : view->n_files + (uint64_t)folder);
}

/* ---- the folders of saves -------------------------------------------------------------------- */

/* Takes the next plain view, as rfs_view_next does, that has a folder. */
static struct rfs_view *next_shown(struct reshard_view *set, size_t *at)
{
    struct rfs_view *view;

    while ((view = rfs_view_next(set, at)) && atomic_load(&view->save.gone))
        rfs_view_leave(view);
    return view;
}

/*
 * Returns whether a folder has one for each save: the root, and the hidden folder of tensors. Sets
 * *id, which the base of a save is added to.
 */
static bool has_saves(uint64_t folder, uint64_t *id)
{
    *id = folder;
    return folder == RESHARD_ROOT || folder == RFS_HIDDEN_TENSORS;
}

/* Returns why there is no plain view for the id of a save. */
static int no_save(const struct reshard_view *set)
{
    return set->follow ? -ESTALE : -ENOENT;
}

static int lookup_save(struct reshard_view *set, uint64_t parent, const char *name, uint64_t *id)
{
    char latest[48];
    struct rfs_view *view;

    if (!has_saves(parent, id))
        return no_save(set);
    if (strcmp(name, "..") == 0) {
        *id = parent == RESHARD_ROOT ? RESHARD_ROOT : RFS_HIDDEN_TOP;
        return 0;
    }
    if (parent == RESHARD_ROOT && strcmp(name, RESHARD_LATEST) == 0 &&
        rfs_follow_latest(set, latest)) {
        *id = RFS_FOLLOW_LATEST;
        return 0;
    }
    for (size_t at = 0; (view = next_shown(set, &at)); rfs_view_leave(view))
        if (strcmp(view->save.text, name) == 0) {
            *id += view->save.base;
            rfs_view_leave(view);
            return 0;
        }
    return -ENOENT;
}

/* The link comes before the folders. */
static int list_save(struct reshard_view *set, uint64_t dir, uint64_t position,
                     reshard_dirent *full)
{
    char latest[48];
    const bool links = set->follow && dir == RESHARD_ROOT;

    if (!has_saves(dir, &full->id))
        return no_save(set);
    full->next = 1;
    full->name = RESHARD_LATEST;
    full->is_link = links && position == 0 && rfs_follow_latest(set, latest);
    if (full->is_link) {
        full->id = RFS_FOLLOW_LATEST;
        return 1;
    }
    size_t at = (size_t)position - (links && position > 0);
    struct rfs_view *view = next_shown(set, &at);
    if (!view)
        return 0;
    full->id += view->save.base;
    full->is_dir = true;
    full->name = view->save.name;
    full->next = at + links;
    rfs_view_leave(view);
    return 1;
}

static int fill_link(struct reshard_view *set, reshard_stat *full)
{
    char latest[48];

    if (!rfs_follow_latest(set, latest))
        return -ESTALE;
    rfs_view_fill_dir(set, full);
    full->mode = S_IFLNK | 0777;
    full->nlink = 1;
    full->size = strlen(latest);
    full->passing = true;
    return 0;
}

static int fill_saves(struct reshard_view *set, uint64_t id, reshard_stat *full,
                      struct rfs_error *err)
{
    struct rfs_view *view;
    uint64_t unused;

    if (set->follow && id == RFS_FOLLOW_LATEST)
        return fill_link(set, full);
    if (!has_saves(id, &unused))
        return set->follow ? -ESTALE : rfs_view_no_entry(id, err);
    rfs_view_fill_dir(set, full);
    full->hidden = id != RESHARD_ROOT;
    full->passing = set->follow != NULL;
    for (size_t at = 0; (view = next_shown(set, &at)); rfs_view_leave(view))
        full->nlink++;
    return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

static size_t files_of_root(const struct rfs_view *view)
{
    return view->folders.n > 0 ? view->folders.data[0].first : view->n_files;
}

/* Finds a file by its name among N. */
static int lookup_file(const struct rfs_view *view, size_t first, size_t n, const char *name,
                       uint64_t *id)
{
    for (size_t file = first; file < first + n; file++)
        if (strcmp(view->files[file].name, name) == 0) {
            *id = file_id(view, file);
            return 0;
        }
    return -ENOENT;
}

/*
 * Finds a folder by the number in its name, which is that of the folder: there may be many ranks.
 */
static int lookup_folder(const struct rfs_view *view, const char *name, uint64_t *id)
{
    const char *digits = strchr(name, '_');
    const unsigned long number = digits ? strtoul(digits + 1, NULL, 10) : 0;

    if (number >= view->folders.n || strcmp(view->folders.data[number].name, name) != 0)
        return -ENOENT;
    *id = folder_id(view, number);
    return 0;
}

static int lookup_shown(const struct rfs_view *view, uint64_t parent, const char *name,
                        uint64_t *id)
{
    const bool above = strcmp(name, "..") == 0;
    size_t number;

    switch (rfs_view_entry(view, parent, &number)) {
    case RFS_ENTRY_ROOT:
        *id = RESHARD_ROOT;
        return above || lookup_folder(view, name, id) == 0
                   ? 0
                   : lookup_file(view, 0, files_of_root(view), name, id);
    case RFS_ENTRY_DIR:
        *id = view->save.base + RESHARD_ROOT;
        return above ? 0
                     : lookup_file(view, view->folders.data[number].first,
                                   view->folders.data[number].n, name, id);
    case RFS_ENTRY_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

int reshard_lookup(reshard_view *set, uint64_t parent, const char *name, uint64_t *id)
{
    RFS_VIEW_TAKEN *view = rfs_view_take(set, parent);
    uint64_t found = RESHARD_ROOT;
    int rc = 0;

    if (parent == RESHARD_ROOT && strcmp(name, RESHARD_CONTROL) == 0)
        found = RFS_HIDDEN_TOP;
    else if (parent == RFS_HIDDEN_TOP && strcmp(name, RFS_HIDDEN_TENSORS_NAME) == 0)
        found = RFS_HIDDEN_TENSORS;
    else if (parent == RFS_HIDDEN_TOP)
        rc = strcmp(name, "..") == 0 ? 0 : -ENOENT;
    else if (!view)
        rc = lookup_save(set, parent, name, &found);
    else if (rfs_view_hidden_owns(view, parent))
        rc = rfs_view_hidden_lookup(view, parent, name, &found);
    else
        rc = lookup_shown(view, parent, name, &found);
    if (rc == 0)
        *id = found;
    return rc;
}

/* Gives the file at POSITION of N. */
static int list_file(const struct rfs_view *view, size_t first, size_t n, uint64_t position,
                     reshard_dirent *out)
{
    if (position >= n)
        return 0;
    out->id = file_id(view, first + (size_t)position);
    out->name = view->files[first + (size_t)position].name;
    return 1;
}

/* Files come before folders. */
static int list_root(const struct rfs_view *view, uint64_t position, reshard_dirent *out)
{
    const size_t files = files_of_root(view);

    if (position < files)
        return list_file(view, 0, files, position, out);
    if (position - files >= view->folders.n)
        return 0;
    out->id = folder_id(view, (size_t)position - files);
    out->is_dir = true;
    out->name = view->folders.data[position - files].name;
    return 1;
}

static int list_shown(const struct rfs_view *view, uint64_t dir, uint64_t position,
                      reshard_dirent *out)
{
    size_t number;

    switch (rfs_view_entry(view, dir, &number)) {
    case RFS_ENTRY_ROOT:
        return list_root(view, position, out);
    case RFS_ENTRY_DIR:
        return list_file(view, view->folders.data[number].first, view->folders.data[number].n,
                         position, out);
    case RFS_ENTRY_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

int reshard_list(reshard_view *set, uint64_t dir, uint64_t position, reshard_dirent *out)
{
    RFS_VIEW_TAKEN *view = rfs_view_take(set, dir);
    reshard_dirent full = {.next = position + 1};
    int rc;

    if (dir == RFS_HIDDEN_TOP) {
        full.id = RFS_HIDDEN_TENSORS;
        full.is_dir = true;
        full.name = RFS_HIDDEN_TENSORS_NAME;
        rc = position == 0;
    } else {
        rc = !view                             ? list_save(set, dir, position, &full)
             : rfs_view_hidden_owns(view, dir) ? rfs_view_hidden_list(view, dir, position, &full)
                                               : list_shown(view, dir, position, &full);
    }
    if (rc == 1)
        rfs_view_give(out, &full, sizeof full);
    return rc;
}

/* ---- the hidden folder ----------------------------------------------------------------------- */

/* Adds the access to sources of a plain view to *ACCESS; *FIRST: it has none yet. */
static void take_sources(const struct rfs_view *view, bool *first, struct rfs_access *access)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);

    for (uint32_t id = 0; id < rfs_files_count_paths(files); id++) {
        struct stat st;
        const struct rfs_access one = rfs_files_look(files, id, &st) == 0
                                          ? rfs_files_access(files, id, &st)
                                          : rfs_access_own();
        *access = *first ? one : rfs_access_both(*access, one);
        *first = false;
    }
}

/*
 * Finds the access to the hidden folder, which has names and counters of everything: a user
 * who may see it may read all sources. Of threads that do so at once, the first result counts.
 */
static void find_access(struct reshard_view *set)
{
    struct rfs_access access = rfs_access_own();
    struct rfs_view *view;
    bool first = true;
    size_t at = 0;

    while ((view = rfs_view_next(set, &at))) {
        take_sources(view, &first, &access);
        rfs_view_leave(view);
    }
    if (set->encrypted) /* as for decrypted data */
        access.group = access.others = false;
    if (!access.user)
        access = rfs_access_own();
    RFS_LOCKED(&set->lock);
    if (set->hidden_mode == 0 && at >= set->n) { /* else another save came meanwhile */
        set->hidden_uid = access.uid;
        set->hidden_gid = access.gid;
        set->hidden_mode = S_IWUSR | rfs_access_mode(access, 0555);
    }
}

static void fill_hidden(struct reshard_view *set, reshard_stat *st)
{
    if (!set->config.for_others)
        return;
    pthread_mutex_lock(&set->lock);
    const bool known = set->hidden_mode != 0;
    pthread_mutex_unlock(&set->lock);
    if (!known)
        find_access(set);
    RFS_LOCKED(&set->lock);
    st->mode = S_IFDIR | set->hidden_mode;
    st->uid = set->hidden_uid;
    st->gid = set->hidden_gid;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static int fill_file(struct rfs_view *view, size_t file, reshard_stat *st, struct rfs_error *err)
{
    struct rfs_view_file *shown = &view->files[file];
    struct rfs_rank_plan kept;
    uint64_t size;

    st->mapped = shown->mapped;
    if (!rfs_view_is_planned(view, file, &size) && rfs_view_sizes_find(view, file, &kept, &size)) {
        rfs_view_fill_stat(view, &kept, size, st);
        free(kept.sources);
        /* For the acquire of a later plan of the file (images.c), which compares. */
        atomic_store_explicit(&shown->reported, size + 1, memory_order_release);
        return 0;
    }
    const int rc = rfs_view_plan_file(view, file, &size, err);
    if (rc == 0)
        rfs_view_fill_stat(view, rfs_view_plan(view, file), size, st);
    return rc;
}

/* Fills the attributes of an entry that is listed; a folder has a link for each listed folder. */
static int fill_shown(struct rfs_view *view, uint64_t id, reshard_stat *st, struct rfs_error *err)
{
    size_t number;

    switch (rfs_view_entry(view, id, &number)) {
    case RFS_ENTRY_ROOT:
        rfs_view_fill_dir(view->set, st);
        st->nlink += (uint32_t)view->folders.n;
        return 0;
    case RFS_ENTRY_DIR:
        rfs_view_fill_dir(view->set, st);
        return 0;
    case RFS_ENTRY_FILE:
        return fill_file(view, number, st, err);
    default:
        return rfs_view_no_entry(id, err);
    }
}

static void fill_top(reshard_view *set, reshard_stat *st)
{
    rfs_view_fill_dir(set, st);
    fill_hidden(set, st);
    st->hidden = true;
    st->passing = set->follow != NULL;
    st->nlink++;
}

int reshard_getattr(reshard_view *set, uint64_t id, reshard_stat *out, reshard_error *err)
{
    RFS_VIEW_TAKEN *view = rfs_view_take(set, id);
    reshard_stat full = {.id = id};
    struct rfs_error failure = {0};
    int rc = 0;

    if (set->key) /* the caller may have forked since */
        rfs_key_hold(set->key);
    if (id == RFS_HIDDEN_TOP)
        fill_top(set, &full);
    else
        rc = !view                            ? fill_saves(set, id, &full, &failure)
             : rfs_view_hidden_owns(view, id) ? rfs_view_hidden_stat(view, id, &full, &failure)
                                              : fill_shown(view, id, &full, &failure);
    if (rc)
        return rfs_view_report(err, &failure, rc);
    full.passing |=
        set->follow && view && /* a save, and its folder of tensors */
        (id - view->save.base == RESHARD_ROOT || id - view->save.base == RFS_HIDDEN_TENSORS);
    rfs_view_give(out, &full, sizeof full);
    return 0;
}

bool reshard_is_ready(reshard_view *set, uint64_t id)
{
    RFS_VIEW_TAKEN *view = rfs_view_take(set, id);
    uint64_t bytes;
    size_t file;

    if (!view || rfs_view_hidden_owns(view, id))
        return !view || rfs_view_hidden_is_known(view, id);
    return rfs_view_entry(view, id, &file) != RFS_ENTRY_FILE ||
           rfs_view_is_planned(view, file, &bytes) || rfs_view_sizes_known(view, file);
}
