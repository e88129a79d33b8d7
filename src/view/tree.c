/* SPDX-License-Identifier: Apache-2.0 */
/* Names, ids and attributes of the entries shown. */
#include "store/crypt/key.h"
#include "view/hidden.h"
#include "view/internal.h"
#include "view/saved_sizes.h"
#include "view/saves.h"

#include <sys/stat.h>

/* ---- ids ------------------------------------------------------------------------------------- */

enum entry_kind rfs_view_entry(const struct rfs_view *view, uint64_t id, size_t *number)
{
    const bool by_rank = view->kind->by_rank;

    id -= view->base; /* below it: a number that no file has */
    if (id == RESHARD_ROOT)
        return ENTRY_ROOT;
    if (id < 2)
        return ENTRY_NONE;
    const uint64_t file = by_rank ? (id - 2) / 2 : id - 2;
    const uint64_t folder = by_rank ? file : file - view->n_files;
    const bool is_file = by_rank ? id % 2 != 0 : file < view->n_files;
    *number = (size_t)(is_file ? file : folder);
    return is_file && file < view->n_files        ? ENTRY_FILE
           : !is_file && folder < view->n_folders ? ENTRY_DIR
                                                  : ENTRY_NONE;
}

static uint64_t file_id(const struct rfs_view *view, size_t file)
{
    return view->base + (view->kind->by_rank ? 3 + 2 * (uint64_t)file : 2 + (uint64_t)file);
}

static uint64_t folder_id(const struct rfs_view *view, size_t folder)
{
    return view->base + 2 +
           (view->kind->by_rank ? 2 * (uint64_t)folder : view->n_files + (uint64_t)folder);
}

int rfs_view_no_entry(uint64_t id, struct rfs_error *err)
{
    return rfs_fail(err, -ENOENT, RFS_NOWHERE, NULL, "no entry has the id %llu",
                    (unsigned long long)id);
}

/* ---- names ----------------------------------------------------------------------------------- */

static size_t files_of_root(const struct rfs_view *view)
{
    return view->n_folders > 0 ? view->folders[0].first : view->n_files;
}

/* A file by its name among N. */
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

/* There may be many folders by rank: the number in the name is that of its folder. */
static int lookup_folder(const struct rfs_view *view, const char *name, uint64_t *id)
{
    const char *digits = strchr(name, '_');
    const unsigned long number = digits ? strtoul(digits + 1, NULL, 10) : 0;

    if (number >= view->n_folders || strcmp(view->folders[number].name, name) != 0)
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
    case ENTRY_ROOT:
        *id = RESHARD_ROOT;
        return above || lookup_folder(view, name, id) == 0
                   ? 0
                   : lookup_file(view, 0, files_of_root(view), name, id);
    case ENTRY_DIR:
        *id = view->base + RESHARD_ROOT;
        return above ? 0
                     : lookup_file(view, view->folders[number].first, view->folders[number].n, name,
                                   id);
    case ENTRY_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

int reshard_lookup(reshard_view *set, uint64_t parent, const char *name, uint64_t *id)
{
    struct rfs_view *view = rfs_view_pick(set, parent);
    uint64_t found = RESHARD_ROOT;
    int rc = 0;

    if (parent == RESHARD_ROOT && strcmp(name, RESHARD_CONTROL) == 0)
        found = RFS_HIDDEN_TOP;
    else if (parent == RFS_HIDDEN_TOP && strcmp(name, RFS_HIDDEN_TENSORS_NAME) == 0)
        found = RFS_HIDDEN_TENSORS;
    else if (parent == RFS_HIDDEN_TOP)
        rc = strcmp(name, "..") == 0 ? 0 : -ENOENT;
    else if (!view)
        rc = rfs_saves_lookup(set, parent, name, &found);
    else if (rfs_view_hidden_owns(view, parent))
        rc = rfs_view_hidden_lookup(view, parent, name, &found);
    else
        rc = lookup_shown(view, parent, name, &found);
    if (rc == 0)
        *id = found;
    return rc;
}

/* A file of N at POSITION. */
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
    if (position - files >= view->n_folders)
        return 0;
    out->id = folder_id(view, (size_t)position - files);
    out->is_dir = true;
    out->name = view->folders[position - files].name;
    return 1;
}

static int list_shown(const struct rfs_view *view, uint64_t dir, uint64_t position,
                      reshard_dirent *out)
{
    size_t number;

    switch (rfs_view_entry(view, dir, &number)) {
    case ENTRY_ROOT:
        return list_root(view, position, out);
    case ENTRY_DIR:
        return list_file(view, view->folders[number].first, view->folders[number].n, position, out);
    case ENTRY_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

int reshard_list(reshard_view *set, uint64_t dir, uint64_t position, reshard_dirent *out)
{
    struct rfs_view *view = rfs_view_pick(set, dir);
    reshard_dirent full = {0};
    int rc;

    if (dir == RFS_HIDDEN_TOP) {
        full.id = RFS_HIDDEN_TENSORS;
        full.is_dir = true;
        full.name = RFS_HIDDEN_TENSORS_NAME;
        rc = position == 0;
    } else {
        rc = !view                             ? rfs_saves_list(set, dir, position, &full)
             : rfs_view_hidden_owns(view, dir) ? rfs_view_hidden_list(view, dir, position, &full)
                                               : list_shown(view, dir, position, &full);
    }
    if (rc == 1)
        rfs_view_give(out, &full, sizeof full);
    return rc;
}

/* ---- attributes ------------------------------------------------------------------------------ */

void rfs_view_fill_dir(const struct reshard_view *set, reshard_stat *st)
{
    st->mode = S_IFDIR | set->dir_mode;
    st->nlink = 2;
    st->uid = set->dir_uid;
    st->gid = set->dir_gid;
    st->mtime = set->dir_mtime;
}

void rfs_view_fill_stat(const struct rfs_view *view, const struct rfs_rank_plan *plan,
                        uint64_t bytes, reshard_stat *st)
{
    st->mode = S_IFREG | (view->set->encrypted ? plan->mode & S_IRUSR : plan->mode);
    st->nlink = 1;
    st->uid = plan->uid;
    st->gid = plan->gid;
    st->size = bytes;
    st->mtime = plan->mtime;
}

static bool is_ready(const struct rfs_view *view, size_t file)
{
    return atomic_load_explicit(&view->files[file].image, memory_order_acquire) != NULL;
}

static int fill_file(struct rfs_view *view, size_t file, reshard_stat *st, struct rfs_error *err)
{
    struct shown_file *shown = &view->files[file];
    const struct rfs_image *image;
    struct rfs_rank_plan saved;
    uint64_t size;

    st->mapped = shown->mapped;
    if (!is_ready(view, file) && rfs_view_saved_size(view, file, &saved, &size)) {
        rfs_view_fill_stat(view, &saved, size, st);
        rfs_view_sizes_end(&saved);
        atomic_store_explicit(&shown->reported, size + 1, memory_order_release);
        return 0;
    }
    const int rc = rfs_view_image(view, file, &image, err);
    if (rc == 0)
        rfs_view_fill_stat(view, rfs_view_plan(view, file), image->bytes, st);
    return rc;
}

/* A folder's links are those of its listed entries. */
static int fill_shown(struct rfs_view *view, uint64_t id, reshard_stat *st, struct rfs_error *err)
{
    size_t number;

    switch (rfs_view_entry(view, id, &number)) {
    case ENTRY_ROOT:
        rfs_view_fill_dir(view->set, st);
        st->nlink += (uint32_t)view->n_folders;
        return 0;
    case ENTRY_DIR:
        rfs_view_fill_dir(view->set, st);
        return 0;
    case ENTRY_FILE:
        return fill_file(view, number, st, err);
    default:
        return rfs_view_no_entry(id, err);
    }
}

static void fill_top(reshard_view *set, reshard_stat *st)
{
    rfs_view_fill_dir(set, st);
    rfs_view_fill_hidden(set, st);
    st->hidden = true;
    st->nlink++;
}

int reshard_getattr(reshard_view *set, uint64_t id, reshard_stat *out, reshard_error *err)
{
    struct rfs_view *view = rfs_view_pick(set, id);
    reshard_stat full = {.id = id};
    struct rfs_error failure = {0};
    int rc = 0;

    if (set->key) /* the caller may have forked since */
        rfs_key_hold(set->key);
    if (id == RFS_HIDDEN_TOP)
        fill_top(set, &full);
    else
        rc = !view                            ? rfs_saves_stat(set, id, &full, &failure)
             : rfs_view_hidden_owns(view, id) ? rfs_view_hidden_stat(view, id, &full, &failure)
                                              : fill_shown(view, id, &full, &failure);
    if (rc)
        return rfs_view_report(err, &failure, rc);
    rfs_view_give(out, &full, sizeof full);
    return 0;
}

bool reshard_is_ready(reshard_view *set, uint64_t id)
{
    struct rfs_view *view = rfs_view_pick(set, id);
    size_t file;

    if (!view || rfs_view_hidden_owns(view, id))
        return !view || rfs_view_hidden_is_known(view, id);
    return rfs_view_entry(view, id, &file) != ENTRY_FILE || is_ready(view, file) ||
           rfs_view_sizes_known(view, file);
}

/* ---- images ---------------------------------------------------------------------------------- */

const struct rfs_image *rfs_view_publish(struct shown_file *file, struct rfs_image *fresh)
{
    const struct rfs_image *other = NULL;

    if (atomic_compare_exchange_strong_explicit(&file->image, &other, fresh, memory_order_acq_rel,
                                                memory_order_acquire))
        return file->own = fresh;
    rfs_image_free(fresh);
    return other;
}

int rfs_view_image(struct rfs_view *view, size_t file, const struct rfs_image **out,
                   struct rfs_error *err)
{
    struct shown_file *shown = &view->files[file];

    *out = atomic_load_explicit(&shown->image, memory_order_acquire);
    if (*out)
        return 0;
    const int rc = view->kind->image(view, file, out, err);
    if (rc)
        return rc;
    const uint64_t reported = atomic_load_explicit(&shown->reported, memory_order_acquire);
    if (reported > 0 && reported - 1 != (*out)->bytes) {
        rfs_view_sizes_refute(view);
        return rfs_fail(err, -ESTALE, RFS_IN(shown->name), "mount again",
                        "its sources were changed after its size was read");
    }
    if (!atomic_exchange_explicit(&shown->image, *out, memory_order_acq_rel))
        rfs_view_sizes_planned(view);
    return 0;
}

struct rfs_tensors rfs_view_tensors(const struct rfs_view *view, size_t file,
                                    const struct rfs_image *image)
{
    return (struct rfs_tensors){
        .planner = view->planner,
        .rank = view->files[file].rank,
        .storages = image->storages,
        .params = image->params,
        .plan = rfs_view_plan(view, file),
    };
}
