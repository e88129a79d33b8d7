/* SPDX-License-Identifier: Apache-2.0 */
#include "view/hidden.h"

#include "base/cleanup.h"
#include "image/npy.h"
#include "view/bundle.h"
#include "view/filename.h"
#include "view/outputs.h"
#include "view/side.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * Below RFS_CONTROL_BIT: group << ITEM_BITS | item. Group 0 are the folders above: item 0 is .reshardfs, item 1
 * is tensors. Group G + 1 is the G-th folder below tensors: item 0 is itself, items 2 + 2T and 3 + 2T are the
 * files of target T.
 */
#define ITEM_BITS 25
#define ITEMS (UINT64_C(1) << ITEM_BITS)
#define GROUPS (RFS_CONTROL_BIT >> ITEM_BITS)
#define TARGETS ((ITEMS - 2) / 2)

_Static_assert(RFS_CONTROL_BIT < UINT64_C(1) << RFS_SIDE_SHIFT,
               "a save's ids begin above those of the hidden folder");

#define TENSORS "tensors"
#define FULL "full"

static const char *const endings[] = {".npy", ".json"};

static uint64_t make_id(const struct reshard_view *view, uint64_t group, uint64_t item)
{
    return rfs_view_hidden_top(view) | group << ITEM_BITS | item;
}

static bool has_ranks(const struct reshard_view *view)
{
    return !view->flat;
}

/* Folders below tensors, but those of saves. */
static uint64_t count_groups(const struct reshard_view *view)
{
    const uint64_t n = view->side     ? 0
                       : view->bundle ? rfs_view_bundle_models(view->bundle)
                                      : 1 + (has_ranks(view) ? (uint64_t)view->n_ranks : 0);

    return n < GROUPS - 1 ? n : GROUPS - 1;
}

struct rfs_view_hidden_place rfs_view_hidden_find(const struct reshard_view *view, uint64_t id)
{
    const uint64_t number = (id - view->base) ^ RFS_CONTROL_BIT;
    const uint64_t group = number >> ITEM_BITS;
    const uint64_t item = number & (ITEMS - 1);
    struct rfs_view_hidden_place place = {.kind = RFS_CONTROL_NONE};

    if (group == 0 && item <= 1)
        place.kind = item == 1     ? RFS_CONTROL_TENSORS
                     : view->above ? RFS_CONTROL_NONE
                                   : RFS_CONTROL_TOP;
    if (group == 0 || group > count_groups(view) || item == 1)
        return place;
    place.kind = item == 0 ? RFS_CONTROL_GROUP : RFS_CONTROL_FILE;
    place.group = (uint32_t)(group - 1);
    place.target = item == 0 ? 0 : (uint32_t)((item - 2) / 2);
    place.about = item % 2 != 0;
    return place;
}

/* The planner of one whole checkpoint: the view's own, where that shows one. */
static int whole_planner(struct reshard_view *view, struct rfs_planner **out, struct rfs_error *err)
{
    struct rfs_planner_config config = {
        .catalog = view->catalog,
        .src = view->src,
        .pool = view->pool,
        .keep_empty = rfs_view_format(&view->options) != RFS_FORMAT_CKPT,
        .output_map = view->output_map,
        .template = view->planner,
    };
    struct rfs_planner *fresh = NULL;

    *out = view->dst ? atomic_load_explicit(&view->control.whole, memory_order_acquire)
                     : view->planner;
    if (*out)
        return 0;
    const int rc = rfs_planner_new(&config, &fresh, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&view->lock);
    *out = atomic_load_explicit(&view->control.whole, memory_order_relaxed);
    if (!*out) {
        *out = RFS_STEAL(fresh);
        atomic_store_explicit(&view->control.whole, *out, memory_order_release);
    }
    pthread_mutex_unlock(&view->lock);
    rfs_planner_free(fresh);
    return 0;
}

int rfs_view_hidden_tensors(struct reshard_view *view, uint32_t group, struct rfs_tensors *out,
                            struct rfs_error *err)
{
    *out = (struct rfs_tensors){.rank = group > 0 ? group - 1 : 0, .planner = view->planner};
    if (view->bundle) {
        out->plan = rfs_view_bundle_plan(view->bundle);
        return rfs_view_bundle_tensors(view, group, &out->params, &out->storages, err);
    }
    int rc = group == 0 ? whole_planner(view, &out->planner, err) : 0;
    if (rc == 0)
        rc = rfs_planner_rank(out->planner, out->rank, &out->plan, err);
    if (rc == 0)
        out->params = out->plan->params;
    return rc;
}

bool rfs_view_hidden_is_known(struct reshard_view *view, uint64_t id)
{
    const struct rfs_view_hidden_place place = rfs_view_hidden_find(view, id);
    const bool whole = place.group == 0;
    struct rfs_planner *planner = view->planner;

    if (place.kind != RFS_CONTROL_FILE || view->bundle)
        return !place.about;
    if (whole && view->dst)
        planner = atomic_load_explicit(&view->control.whole, memory_order_acquire);
    return !place.about && planner && rfs_planner_ready(planner, whole ? 0 : place.group - 1);
}

int rfs_tensors_slice(const struct rfs_tensors *tensors, uint32_t target, struct rfs_slice *slice)
{
    return tensors->storages ? rfs_storages_slice(tensors->storages, target, slice)
                             : rfs_planner_slice(tensors->planner, tensors->rank,
                                                 &tensors->params->targets[target], slice);
}

int rfs_view_hidden_image(struct reshard_view *view, const struct rfs_view_hidden_place *place,
                          struct rfs_tensors *tensors, struct rfs_image **out,
                          struct rfs_error *err)
{
    int rc = rfs_view_hidden_tensors(view, place->group, tensors, err);

    *out = NULL;
    if (rc)
        return rc;
    if (place->target >= tensors->params->n)
        return rfs_fail(err, -ENOENT, RFS_NOWHERE, NULL, "there is no parameter of that number");
    if (place->about)
        return rfs_view_hidden_about(view, place, tensors, out, err);
    rc = rfs_image_npy(view->catalog, tensors->params, place->target, out);
    return rc == -ENOMEM ? rfs_fail_memory(err)
           : rc          ? rfs_fail(err, rc, RFS_NOWHERE, NULL, "the file would be too large")
                         : 0;
}

/* "full", "rank_3", or "model_1". */
static void name_group(const struct reshard_view *view, uint32_t group, char out[32])
{
    if (view->bundle && rfs_view_bundle_models(view->bundle) > 1)
        snprintf(out, 32, "model_%u", group);
    else if (group == 0)
        snprintf(out, 32, FULL);
    else
        snprintf(out, 32, "rank_%u", group - 1);
}

static int lookup_group(const struct reshard_view *view, const char *name, uint64_t *id)
{
    const char *digits = strchr(name, '_');
    unsigned long number = 0;
    char again[32];

    if (digits) {
        if (digits[1] < '0' || digits[1] > '9' || strlen(digits) > 8)
            return -ENOENT;
        number = strtoul(digits + 1, NULL, 10) + !view->bundle;
    }
    if (number >= count_groups(view))
        return -ENOENT;
    name_group(view, (uint32_t)number, again);
    if (strcmp(name, again) != 0)
        return -ENOENT;
    *id = make_id(view, number + 1, 0);
    return 0;
}

static const char *shown_name(const struct reshard_view *view, const struct rfs_tensors *tensors,
                              size_t target)
{
    return rfs_catalog_name(view->catalog, tensors->params->targets[target].shown_name);
}

static size_t count_targets(const struct rfs_tensors *tensors)
{
    return tensors->params->n < TARGETS ? tensors->params->n : TARGETS;
}

/*
 * The position of a parameter by its name, the number of targets when there is none. Names are looked up one after
 * the other in their order mostly, so the one after the last is tried first.
 */
static size_t find_name(struct reshard_view *view, const struct rfs_tensors *tensors,
                        const char *name)
{
    const uint32_t id =
        rfs_intern_find(rfs_catalog_tables(view->catalog)->names, name, strlen(name));
    const size_t n = count_targets(tensors);
    const size_t hint = atomic_load_explicit(&view->control.last, memory_order_relaxed);
    size_t at = 0;

    if (id == RFS_NO_ID)
        return n;
    for (size_t i = hint; i < n && i < hint + 2; i++)
        if (tensors->params->targets[i].shown_name == id)
            at = i;
    while (at < n && tensors->params->targets[at].shown_name != id)
        at++;
    if (at < n)
        atomic_store_explicit(&view->control.last, at, memory_order_relaxed);
    return at;
}

/* Of a shortened name: whose it is, only the names tell. */
static size_t find_short(const struct reshard_view *view, const struct rfs_tensors *tensors,
                         const char *stem, size_t length)
{
    const size_t n = count_targets(tensors);
    char made[RFS_FILENAME_STEM + 1];
    size_t at = 0;

    while (at < n && (rfs_filename_make(shown_name(view, tensors, at), made) != length ||
                      memcmp(made, stem, length) != 0))
        at++;
    return at;
}

/* A failure that only the log can tell of; that an entry is missing it must not say. */
static int failed(struct reshard_view *view, int rc, const struct rfs_error *err)
{
    rfs_view_log_failure(view, rc, err);
    return rc == -ENOENT ? -EIO : rc;
}

static int lookup_file(struct reshard_view *view, uint32_t group, const char *name, uint64_t *id)
{
    struct rfs_tensors tensors;
    struct rfs_error err = {0};
    char parameter[RFS_FILENAME_STEM + 1];
    const char *ending = strrchr(name, '.');
    unsigned which = 0;

    while (ending && which < 2 && strcmp(ending, endings[which]) != 0)
        which++;
    if (!ending || which == 2)
        return -ENOENT;
    const size_t stem = (size_t)(ending - name);
    const bool is_short = rfs_filename_is_short(name, stem);
    if (!is_short && !rfs_filename_read(name, stem, parameter))
        return -ENOENT;
    const int rc = rfs_view_hidden_tensors(view, group, &tensors, &err);
    if (rc)
        return failed(view, rc, &err);
    const size_t target =
        is_short ? find_short(view, &tensors, name, stem) : find_name(view, &tensors, parameter);
    if (target >= count_targets(&tensors))
        return -ENOENT;
    *id = make_id(view, (uint64_t)group + 1, 2 + 2 * target + which);
    return 0;
}

static int lookup_above(const struct reshard_view *view, enum rfs_view_hidden_kind kind,
                        uint64_t *id)
{
    *id = kind == RFS_CONTROL_TOP     ? RESHARD_ROOT
          : kind == RFS_CONTROL_GROUP ? make_id(view, 0, 1)
          : view->above               ? make_id(view->above, 0, 1)
                                      : rfs_view_hidden_top(view);
    return 0;
}

int rfs_view_hidden_lookup(struct reshard_view *view, uint64_t parent, const char *name,
                           uint64_t *id)
{
    const struct rfs_view_hidden_place place = rfs_view_hidden_find(view, parent);

    if (strcmp(name, "..") == 0 && place.kind != RFS_CONTROL_NONE && place.kind != RFS_CONTROL_FILE)
        return lookup_above(view, place.kind, id);
    switch (place.kind) {
    case RFS_CONTROL_TOP:
        if (strcmp(name, TENSORS) != 0)
            return -ENOENT;
        *id = make_id(view, 0, 1);
        return 0;
    case RFS_CONTROL_TENSORS:
        if (!view->side)
            return lookup_group(view, name, id);
        if (rfs_side_lookup(view, name, id))
            return -ENOENT;
        *id = make_id(rfs_side_pick(view, *id), 0, 1);
        return 0;
    case RFS_CONTROL_GROUP:
        return lookup_file(view, place.group, name, id);
    case RFS_CONTROL_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

/* A text that stays until the view is closed; NULL when out of memory. */
static const char *keep_name(struct reshard_view *view, const char *name)
{
    pthread_mutex_lock(&view->lock);
    if (!view->control.names)
        view->control.names = rfs_intern_new();
    struct rfs_intern *names = view->control.names;
    pthread_mutex_unlock(&view->lock);
    const uint32_t id = names ? rfs_intern_add(names, name, strlen(name)) : RFS_NO_ID;
    return id == RFS_NO_ID ? NULL : rfs_intern_text(names, id);
}

static int list_file(struct reshard_view *view, uint32_t group, uint64_t position,
                     reshard_dirent *full)
{
    struct rfs_tensors tensors;
    struct rfs_error err = {0};
    char name[RFS_FILENAME_STEM + 6];

    const int rc = rfs_view_hidden_tensors(view, group, &tensors, &err);
    if (rc)
        return failed(view, rc, &err);
    if (position / 2 >= count_targets(&tensors))
        return 0;
    const size_t n = rfs_filename_make(shown_name(view, &tensors, position / 2), name);
    strcpy(name + n, endings[position % 2]);
    full->id = make_id(view, (uint64_t)group + 1, 2 + position);
    full->name = keep_name(view, name);
    return full->name ? 1 : -ENOMEM;
}

static int list_tensors(struct reshard_view *view, uint64_t position, reshard_dirent *full)
{
    char name[32];

    full->is_dir = true;
    if (view->side) {
        if (!rfs_side_list(view, position, full))
            return 0;
        full->id = make_id(rfs_side_pick(view, full->id), 0, 1);
        return 1;
    }
    if (position >= count_groups(view))
        return 0;
    name_group(view, (uint32_t)position, name);
    full->id = make_id(view, position + 1, 0);
    full->name = keep_name(view, name);
    return full->name ? 1 : -ENOMEM;
}

int rfs_view_hidden_list(struct reshard_view *view, uint64_t dir, uint64_t position,
                         reshard_dirent *full)
{
    const struct rfs_view_hidden_place place = rfs_view_hidden_find(view, dir);

    switch (place.kind) {
    case RFS_CONTROL_TOP:
        full->id = make_id(view, 0, 1);
        full->is_dir = true;
        full->name = TENSORS;
        return position == 0;
    case RFS_CONTROL_TENSORS:
        return list_tensors(view, position, full);
    case RFS_CONTROL_GROUP:
        return list_file(view, place.group, position, full);
    case RFS_CONTROL_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

static int stat_file(struct reshard_view *view, const struct rfs_view_hidden_place *place,
                     reshard_stat *full, struct rfs_error *err)
{
    struct rfs_tensors tensors;
    struct rfs_image *image;

    const int rc = rfs_view_hidden_image(view, place, &tensors, &image, err);
    if (rc)
        return rc;
    rfs_view_fill_stat(view, tensors.plan, image->bytes, full);
    full->mapped = !place->about;
    rfs_image_free(image);
    return 0;
}

int rfs_view_hidden_stat(struct reshard_view *view, uint64_t id, reshard_stat *full,
                         struct rfs_error *err)
{
    const struct rfs_view_hidden_place place = rfs_view_hidden_find(view, id);

    full->hidden = true;
    if (place.kind == RFS_CONTROL_NONE)
        return rfs_fail(err, -ENOENT, RFS_NOWHERE, NULL, "no entry has the id %llu",
                        (unsigned long long)id);
    if (place.kind == RFS_CONTROL_FILE)
        return stat_file(view, &place, full, err);
    rfs_view_fill_dir(view, full);
    if (place.kind == RFS_CONTROL_TOP) {
        rfs_view_fill_hidden(view, full);
        full->nlink++;
    }
    if (place.kind == RFS_CONTROL_TENSORS)
        full->nlink += view->side ? (uint32_t)view->side->n : (uint32_t)count_groups(view);
    return 0;
}

void rfs_view_hidden_end(struct reshard_view *view)
{
    rfs_planner_free(atomic_load_explicit(&view->control.whole, memory_order_relaxed));
    if (view->control.names)
        rfs_intern_free(view->control.names);
    view->control.names = NULL;
}
