/* SPDX-License-Identifier: Apache-2.0 */
/* Names, ids and attributes of what is shown. */
#include "source/crypt/key.h"
#include "view/bundle.h"
#include "view/hidden.h"
#include "view/internal.h"
#include "view/outputs.h"
#include "view/saved_sizes.h"
#include "view/side.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DIR_ID(view, file) ((view)->base + 2 + 2 * (uint64_t)(file))
#define FILE_ID(view, file) ((view)->base + 3 + 2 * (uint64_t)(file))
#define FLAT_ID(view, file) ((view)->base + 2 + (uint64_t)(file))

enum entry_kind rfs_view_entry(const struct reshard_view *view, uint64_t id, size_t *file)
{
    id -= view->base; /* below it: a number that no file has */
    if (id == RESHARD_ROOT)
        return ENTRY_ROOT;
    if (id < 2)
        return ENTRY_NONE;
    const uint64_t number = view->flat ? id - 2 : (id - 2) / 2;
    *file = (size_t)number;
    if (view->folder && number == view->n_files)
        return ENTRY_DIR;
    if (number >= view->n_files)
        return ENTRY_NONE;
    return view->flat || id % 2 != 0 ? ENTRY_FILE : ENTRY_DIR;
}

/* The rank of "rank_R" as it is shown: digits without a leading zero. */
static bool parse_dir(const struct reshard_view *view, const char *name, size_t *file)
{
    char *end;

    if (strncmp(name, "rank_", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    errno = 0;
    const unsigned long long number = strtoull(name + 5, &end, 10);
    if (errno || *end || number >= view->n_files)
        return false;
    *file = (size_t)number;
    return strcmp(view->files[*file].dir, name) == 0;
}

/* The files of the root, or of the folder, of a flat view: [*begin, *end). */
static void flat_range(const struct reshard_view *view, bool folder, size_t *begin, size_t *end)
{
    const size_t middle = view->folder ? view->first_in_folder : view->n_files;

    *begin = folder ? middle : 0;
    *end = folder ? view->n_files : middle;
}

static int lookup_flat(const struct reshard_view *view, bool folder, const char *name, uint64_t *id)
{
    size_t file;
    size_t end;

    flat_range(view, folder, &file, &end);
    while (file < end && strcmp(view->files[file].name, name) != 0)
        file++;
    if (file == end && (folder || !view->folder || strcmp(name, view->folder) != 0))
        return -ENOENT;
    *id = FLAT_ID(view, file < end ? file : view->n_files);
    return 0;
}

static int lookup_in_root(const struct reshard_view *view, const char *name, uint64_t *id)
{
    size_t file = 0;

    if (view->flat)
        return lookup_flat(view, false, name, id);
    if (!parse_dir(view, name, &file))
        return -ENOENT;
    *id = DIR_ID(view, file);
    return 0;
}

int reshard_lookup(reshard_view *view, uint64_t parent, const char *name, uint64_t *id)
{
    size_t file;

    view = rfs_side_pick(view, parent);
    if (rfs_view_hidden_owns(view, parent))
        return rfs_view_hidden_lookup(view, parent, name, id);
    switch (rfs_view_entry(view, parent, &file)) {
    case ENTRY_ROOT:
        if (strcmp(name, "..") == 0) {
            *id = RESHARD_ROOT;
            return 0;
        }
        if (!view->above && strcmp(name, RESHARD_CONTROL) == 0) {
            *id = rfs_view_hidden_top(view);
            return 0;
        }
        return view->side ? rfs_side_lookup(view, name, id) : lookup_in_root(view, name, id);
    case ENTRY_DIR:
        if (strcmp(name, "..") == 0)
            *id = view->base + RESHARD_ROOT;
        else if (view->flat)
            return lookup_flat(view, true, name, id);
        else if (strcmp(name, view->files[file].name) == 0)
            *id = FILE_ID(view, file);
        else
            return -ENOENT;
        return 0;
    case ENTRY_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

/* As reshard_list, in a flat view. */
static bool list_flat(const struct reshard_view *view, bool folder, uint64_t position,
                      reshard_dirent *out)
{
    size_t begin;
    size_t end;

    flat_range(view, folder, &begin, &end);
    out->is_dir = !folder && view->folder && position == end;
    if (position >= end - begin && !out->is_dir)
        return false;
    out->id = FLAT_ID(view, out->is_dir ? view->n_files : begin + position);
    out->name = out->is_dir ? view->folder : view->files[begin + position].name;
    return true;
}

int reshard_list(reshard_view *view, uint64_t dir, uint64_t position, reshard_dirent *out)
{
    reshard_dirent full = {0};
    size_t file;

    view = rfs_side_pick(view, dir);
    if (rfs_view_hidden_owns(view, dir)) {
        const int rc = rfs_view_hidden_list(view, dir, position, &full);
        if (rc == 1)
            rfs_view_give(out, &full, sizeof full);
        return rc;
    }
    switch (rfs_view_entry(view, dir, &file)) {
    case ENTRY_ROOT:
        if (view->side && rfs_side_list(view, position, &full))
            break;
        if (view->flat && !list_flat(view, false, position, &full))
            return 0;
        if (view->flat)
            break;
        if (position >= view->n_files)
            return 0;
        full.id = DIR_ID(view, position);
        full.is_dir = true;
        full.name = view->files[position].dir;
        break;
    case ENTRY_DIR:
        if (view->flat && !list_flat(view, true, position, &full))
            return 0;
        if (view->flat)
            break;
        if (position > 0)
            return 0;
        full.id = FILE_ID(view, file);
        full.name = view->files[file].name;
        break;
    case ENTRY_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
    rfs_view_give(out, &full, sizeof full);
    return 1;
}

void rfs_view_fill_dir(const struct reshard_view *view, reshard_stat *st)
{
    st->mode = S_IFDIR | view->dir_mode;
    st->nlink = 2;
    st->uid = view->dir_uid;
    st->gid = view->dir_gid;
    st->mtime = view->dir_mtime;
}

/* A folder's links are those of what is listed. */
static void fill_root(const struct reshard_view *view, reshard_stat *st)
{
    rfs_view_fill_dir(view, st);
    st->nlink += view->side   ? (uint32_t)view->side->n
                 : view->flat ? view->folder != NULL
                              : view->n_ranks;
}

void rfs_view_fill_stat(const struct reshard_view *view, const struct rfs_rank_plan *plan,
                        uint64_t bytes, reshard_stat *st)
{
    st->mode = S_IFREG | (view->sealed ? plan->mode & S_IRUSR : plan->mode);
    st->nlink = 1;
    st->uid = plan->uid;
    st->gid = plan->gid;
    st->size = bytes;
    st->mtime = plan->mtime;
}

static void fill_planned(const struct reshard_view *view, size_t file, uint64_t size,
                         const struct rfs_rank_plan *plan, reshard_stat *st)
{
    rfs_view_fill_stat(view, plan, size, st);
    st->mapped = rfs_view_is_mapped(view, file);
}

static bool is_planned(const struct reshard_view *view, size_t file)
{
    return atomic_load_explicit(&view->files[file].image, memory_order_acquire) != NULL;
}

static int fill_file(struct reshard_view *view, size_t file, reshard_stat *st,
                     struct rfs_error *err)
{
    const struct rfs_image *image;
    struct rfs_rank_plan saved;
    uint64_t size;

    if (!is_planned(view, file) && rfs_view_saved_size(view, file, &saved, &size)) {
        fill_planned(view, file, size, &saved, st);
        rfs_view_sizes_end(&saved);
        atomic_store_explicit(&view->files[file].told, size + 1, memory_order_release);
        return 0;
    }
    const int rc = rfs_view_image(view, file, &image, err);
    if (rc == 0)
        fill_planned(view, file, image->bytes, rfs_view_plan(view, file), st);
    return rc;
}

int reshard_getattr(reshard_view *view, uint64_t id, reshard_stat *out, reshard_error *err)
{
    reshard_stat full = {.id = id};
    struct rfs_error failure = {0};
    size_t file;
    int rc = 0;

    if (view->key) /* the caller may have forked since */
        rfs_key_hold(view->key);
    view = rfs_side_pick(view, id);
    switch (rfs_view_entry(view, id, &file)) {
    case ENTRY_ROOT:
        fill_root(view, &full);
        break;
    case ENTRY_DIR:
        rfs_view_fill_dir(view, &full);
        break;
    case ENTRY_FILE:
        rc = fill_file(view, file, &full, &failure);
        break;
    default: /* of the hidden folder, or of nothing */
        rc = rfs_view_hidden_stat(view, id, &full, &failure);
    }
    if (rc)
        return rfs_view_report(err, &failure, rc);
    rfs_view_give(out, &full, sizeof full);
    return 0;
}

bool rfs_view_is_mapped(const struct reshard_view *view, size_t file)
{
    return view->bundle ? rfs_view_bundle_is_mapped(view, file)
                        : rfs_view_format(&view->options) == RFS_FORMAT_SAFETENSORS;
}

bool reshard_is_ready(reshard_view *view, uint64_t id)
{
    size_t file;

    view = rfs_side_pick(view, id);
    if (rfs_view_hidden_owns(view, id))
        return rfs_view_hidden_is_known(view, id);
    const enum entry_kind kind = rfs_view_entry(view, id, &file);
    return kind != ENTRY_FILE || is_planned(view, file) || rfs_view_sizes_known(view, file);
}

/* The image of a parameter list, encoded once and shared by the ranks that have that parameter list. */
static int share_image(struct reshard_view *view, const struct rfs_params *params,
                       const struct rfs_image **out, struct rfs_error *err)
{
    struct rfs_image *fresh = NULL;
    const struct rfs_image *shared = NULL;
    int rc = 0;

    pthread_mutex_lock(&view->lock);
    if (params->id < view->images.n)
        shared = view->images.data[params->id];
    pthread_mutex_unlock(&view->lock);
    if (!shared)
        rc = rfs_view_encode(view, params, &fresh, err);
    *out = shared;
    if (shared || rc)
        return rc;

    bool room = true;
    pthread_mutex_lock(&view->lock);
    while (room && view->images.n <= params->id)
        room = RFS_PUSH(&view->images, NULL);
    if (room && !view->images.data[params->id]) {
        view->images.data[params->id] = fresh;
        fresh = NULL;
    }
    *out = room ? view->images.data[params->id] : NULL;
    pthread_mutex_unlock(&view->lock);
    rfs_image_free(fresh);
    return *out ? 0 : rfs_fail_memory(err);
}

/* Publishes an image that is one file's own, unless another thread was faster: the one that counts then. */
static const struct rfs_image *keep_image(struct reshard_view *view, struct shown_file *shown,
                                          struct rfs_image *fresh)
{
    pthread_mutex_lock(&view->lock);
    const struct rfs_image *kept = atomic_load_explicit(&shown->image, memory_order_relaxed);
    if (!kept && RFS_PUSH(&view->images, fresh)) {
        kept = fresh;
        fresh = NULL;
        atomic_store_explicit(&shown->image, kept, memory_order_release);
    }
    pthread_mutex_unlock(&view->lock);
    rfs_image_free(fresh);
    return kept;
}

static int plan_image(struct reshard_view *view, size_t file, const struct rfs_image **out,
                      struct rfs_error *err)
{
    struct shown_file *shown = &view->files[file];
    const struct rfs_rank_plan *plan;
    struct rfs_image *fresh;

    if (!view->bundle) {
        const int rc = rfs_planner_rank(view->planner, shown->rank, &plan, err);
        return rc ? rc : share_image(view, plan->params, out, err);
    }
    const int rc = rfs_view_bundle_image(view, file, &fresh, err);
    if (rc)
        return rc;
    *out = keep_image(view, shown, fresh);
    return *out ? 0 : rfs_fail_memory(err);
}

int rfs_view_image(struct reshard_view *view, size_t file, const struct rfs_image **out,
                   struct rfs_error *err)
{
    struct shown_file *shown = &view->files[file];

    *out = atomic_load_explicit(&shown->image, memory_order_acquire);
    if (*out)
        return 0;
    const int rc = plan_image(view, file, out, err);
    if (rc)
        return rc;
    const uint64_t told = atomic_load_explicit(&shown->told, memory_order_acquire);
    if (told > 0 && told - 1 != (*out)->bytes) {
        rfs_view_sizes_refute(view);
        return rfs_fail(err, -ESTALE, RFS_IN(shown->name), "mount again",
                        "its sources were changed since its size was looked at");
    }
    if (!atomic_exchange_explicit(&shown->image, *out, memory_order_acq_rel))
        rfs_view_sizes_planned(view);
    return 0;
}

const struct rfs_rank_plan *rfs_view_plan(const struct reshard_view *view, size_t file)
{
    return view->bundle ? rfs_view_bundle_plan(view->bundle)
                        : rfs_planner_ready(view->planner, view->files[file].rank);
}

int rfs_view_slice(struct reshard_view *view, size_t file, const struct rfs_image *image,
                   uint32_t target, struct rfs_slice *slice)
{
    return image->storages ? rfs_storages_slice(image->storages, target, slice)
                           : rfs_planner_slice(view->planner, view->files[file].rank,
                                               &image->params->targets[target], slice);
}
