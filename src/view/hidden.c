/* SPDX-License-Identifier: Apache-2.0 */
#include "view/hidden.h"

#include "image/npy.h"
#include "view/filename.h"

/*
 * Below RFS_HIDDEN_BIT: group << ITEM_BITS | item. Group 0 are the folders above: item 0 is
 * .reshardfs, item 1 is tensors. Group G + 1 is the G-th folder below tensors: item 0 is itself,
 * items 2 + 2T and 3 + 2T are the files of target T.
 */
#define ITEM_BITS 25
#define ITEMS (UINT64_C(1) << ITEM_BITS)
#define TARGETS ((ITEMS - 2) / 2)

_Static_assert(RFS_HIDDEN_GROUPS == (RFS_HIDDEN_BIT >> ITEM_BITS) - 1, "as many as have numbers");

static const char *const endings[] = {".npy", ".json"};

static uint64_t make_id(const struct rfs_view *view, uint64_t group, uint64_t item)
{
    return view->base | RFS_HIDDEN_BIT | group << ITEM_BITS | item;
}

struct rfs_view_hidden_place rfs_view_hidden_find(const struct rfs_view *view, uint64_t id)
{
    const uint64_t number = (id - view->base) ^ RFS_HIDDEN_BIT;
    const uint64_t group = number >> ITEM_BITS;
    const uint64_t item = number & (ITEMS - 1);
    struct rfs_view_hidden_place place = {.kind = RFS_PLACE_NONE};

    if (group == 0 && item == 1)
        place.kind = RFS_PLACE_TENSORS;
    if (group == 0 || group > view->n_groups || item == 1)
        return place;
    place.kind = item == 0 ? RFS_PLACE_GROUP : RFS_PLACE_FILE;
    place.group = (uint32_t)(group - 1);
    place.target = item == 0 ? 0 : (uint32_t)((item - 2) / 2);
    place.about = item % 2 != 0;
    return place;
}

bool rfs_view_hidden_is_known(struct rfs_view *view, uint64_t id)
{
    const struct rfs_view_hidden_place place = rfs_view_hidden_find(view, id);

    return place.kind != RFS_PLACE_FILE ||
           (!place.about && view->kind->tensors_are_ready(view, place.group));
}

int rfs_view_hidden_image(struct rfs_view *view, const struct rfs_view_hidden_place *place,
                          struct rfs_tensors *tensors, struct rfs_image **out,
                          struct rfs_error *err)
{
    int rc = view->kind->tensors(view, place->group, tensors, err);

    *out = NULL;
    if (rc)
        return rc;
    if (place->target >= tensors->params->n)
        return rfs_fail(err, -ENOENT, RFS_NOWHERE, NULL, "there is no parameter with that number");
    if (place->about)
        return rfs_view_hidden_about(view, place, tensors, out, err);
    rc = rfs_image_npy(view->catalog, tensors->params, place->target, out);
    return rc == -ENOMEM ? rfs_fail_memory(err)
           : rc          ? rfs_fail(err, rc, RFS_NOWHERE, NULL, "the file would be too large")
                         : 0;
}

/* The number in a name is that of its group, or the one before it. */
static int lookup_group(const struct rfs_view *view, const char *name, uint64_t *id)
{
    const char *digits = strchr(name, '_');
    const unsigned long number = digits ? strtoul(digits + 1, NULL, 10) : 0;
    char again[32];

    for (uint64_t group = number; group < view->n_groups && group <= number + 1; group++) {
        view->kind->name_group(view, (uint32_t)group, again);
        if (strcmp(name, again) != 0)
            continue;
        *id = make_id(view, group + 1, 0);
        return 0;
    }
    return -ENOENT;
}

static const char *shown_name(const struct rfs_view *view, const struct rfs_tensors *tensors,
                              size_t target)
{
    return rfs_catalog_name(view->catalog, tensors->params->targets[target].shown_name);
}

static size_t count_targets(const struct rfs_tensors *tensors)
{
    return tensors->params->n < TARGETS ? tensors->params->n : TARGETS;
}

/*
 * The position of a parameter by its name, the number of targets when there is none. Names are
 * looked up one after the other in their order mostly, so the one after the last is tried first.
 */
static size_t find_name(struct rfs_view *view, const struct rfs_tensors *tensors, const char *name)
{
    const uint32_t id =
        rfs_intern_find(rfs_catalog_tables(view->catalog)->names, name, strlen(name));
    const size_t n = count_targets(tensors);
    const size_t hint = atomic_load_explicit(&view->hidden.last, memory_order_relaxed);
    size_t at = 0;

    if (id == RFS_NO_ID)
        return n;
    for (size_t i = hint; i < n && i < hint + 2; i++)
        if (tensors->params->targets[i].shown_name == id)
            at = i;
    while (at < n && tensors->params->targets[at].shown_name != id)
        at++;
    if (at < n)
        atomic_store_explicit(&view->hidden.last, at, memory_order_relaxed);
    return at;
}

/* A shortened name is resolved by comparing all names. */
static size_t find_short(const struct rfs_view *view, const struct rfs_tensors *tensors,
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

/* A failure that only the log can report; it must not look like a missing entry. */
static int failed(struct rfs_view *view, int rc, const struct rfs_error *err)
{
    rfs_view_log_failure(view, rc, err);
    return rc == -ENOENT ? -EIO : rc;
}

static int lookup_file(struct rfs_view *view, uint32_t group, const char *name, uint64_t *id)
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
    const int rc = view->kind->tensors(view, group, &tensors, &err);
    if (rc)
        return failed(view, rc, &err);
    const size_t target =
        is_short ? find_short(view, &tensors, name, stem) : find_name(view, &tensors, parameter);
    if (target >= count_targets(&tensors))
        return -ENOENT;
    *id = make_id(view, (uint64_t)group + 1, 2 + 2 * target + which);
    return 0;
}

int rfs_view_hidden_lookup(struct rfs_view *view, uint64_t parent, const char *name, uint64_t *id)
{
    const struct rfs_view_hidden_place place = rfs_view_hidden_find(view, parent);
    const bool above = strcmp(name, "..") == 0;

    switch (place.kind) {
    case RFS_PLACE_TENSORS:
        *id = view->base ? RFS_HIDDEN_TENSORS : RFS_HIDDEN_TOP;
        return above ? 0 : lookup_group(view, name, id);
    case RFS_PLACE_GROUP:
        *id = make_id(view, 0, 1);
        return above ? 0 : lookup_file(view, place.group, name, id);
    case RFS_PLACE_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

/* A text that stays until the view is closed; NULL when out of memory. */
static const char *keep_name(struct rfs_view *view, const char *name)
{
    pthread_mutex_lock(&view->lock);
    if (!view->hidden.names)
        view->hidden.names = rfs_intern_new();
    struct rfs_intern *names = view->hidden.names;
    pthread_mutex_unlock(&view->lock);
    const uint32_t id = names ? rfs_intern_add(names, name, strlen(name)) : RFS_NO_ID;
    return id == RFS_NO_ID ? NULL : rfs_intern_text(names, id);
}

static int list_file(struct rfs_view *view, uint32_t group, uint64_t position, reshard_dirent *full)
{
    struct rfs_tensors tensors;
    struct rfs_error err = {0};
    char name[RFS_FILENAME_STEM + 6];

    const int rc = view->kind->tensors(view, group, &tensors, &err);
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

static int list_group(struct rfs_view *view, uint64_t position, reshard_dirent *full)
{
    char name[32];

    if (position >= view->n_groups)
        return 0;
    view->kind->name_group(view, (uint32_t)position, name);
    full->is_dir = true;
    full->id = make_id(view, position + 1, 0);
    full->name = keep_name(view, name);
    return full->name ? 1 : -ENOMEM;
}

int rfs_view_hidden_list(struct rfs_view *view, uint64_t dir, uint64_t position,
                         reshard_dirent *full)
{
    const struct rfs_view_hidden_place place = rfs_view_hidden_find(view, dir);

    switch (place.kind) {
    case RFS_PLACE_TENSORS:
        return list_group(view, position, full);
    case RFS_PLACE_GROUP:
        return list_file(view, place.group, position, full);
    case RFS_PLACE_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

static int stat_file(struct rfs_view *view, const struct rfs_view_hidden_place *place,
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

int rfs_view_hidden_stat(struct rfs_view *view, uint64_t id, reshard_stat *full,
                         struct rfs_error *err)
{
    const struct rfs_view_hidden_place place = rfs_view_hidden_find(view, id);

    full->hidden = true;
    if (place.kind == RFS_PLACE_NONE)
        return rfs_view_no_entry(id, err);
    if (place.kind == RFS_PLACE_FILE)
        return stat_file(view, &place, full, err);
    rfs_view_fill_dir(view->set, full);
    full->nlink += place.kind == RFS_PLACE_TENSORS ? view->n_groups : 0;
    return 0;
}

void rfs_view_hidden_end(struct rfs_view *view)
{
    rfs_planner_free(atomic_load_explicit(&view->hidden.whole, memory_order_relaxed));
    if (view->hidden.names)
        rfs_intern_free(view->hidden.names);
}
