/* SPDX-License-Identifier: Apache-2.0 */
#include "view/hidden.h"

#include "base/cleanup.h"
#include "base/filename.h"
#include "base/once.h"
#include "formats/npy/npy.h"
#include "plan/geometry.h"
#include "view/view_options.h"

/*
 * Below RFS_HIDDEN_BIT: group << ITEM_BITS | item. Group 0 has the folders above: item 0 is
 * .reshardfs, item 1 is tensors. Group G + 1 is the G-th folder below tensors: item 0 is itself,
 * items 2 + 2T and 3 + 2T are the files of target T.
 */
#define ITEM_BITS 25
#define ITEMS (UINT64_C(1) << ITEM_BITS)
#define TARGETS ((ITEMS - 2) / 2)

_Static_assert(RFS_HIDDEN_GROUPS == (RFS_HIDDEN_BIT >> ITEM_BITS) - 2, "as many as have numbers");
/* The last of those numbers are for what the base of a save has below its number. */
_Static_assert((RFS_VIEW_SAVE_STEP << (62 - RFS_VIEW_SAVE_SHIFT)) <= ITEMS, "as many as have room");

static const char *const endings[] = {".npy", ".json"};

static uint64_t make_id(const struct rfs_view *view, uint64_t group, uint64_t item)
{
    return view->save.base + (RFS_HIDDEN_BIT | group << ITEM_BITS | item);
}

/* Returns the number of groups: the whole checkpoint, and each rank's where there are some. */
static uint32_t count_groups(const struct rfs_view *view)
{
    const size_t n = view->kind->count_groups           ? view->kind->count_groups(view)
                     : view->kind->by_rank || view->dst ? (size_t)rfs_view_ranks(view) + 1
                                                        : 1;

    return n < RFS_HIDDEN_GROUPS ? (uint32_t)n : RFS_HIDDEN_GROUPS;
}

struct rfs_view_hidden_object rfs_view_hidden_find(const struct rfs_view *view, uint64_t id)
{
    const uint64_t number = (id - view->save.base) ^ RFS_HIDDEN_BIT;
    const uint64_t group = number >> ITEM_BITS;
    const uint64_t item = number & (ITEMS - 1);
    struct rfs_view_hidden_object object = {.kind = RFS_VIEW_HIDDEN_NONE};

    if (group == 0 && item == 1)
        object.kind = RFS_VIEW_HIDDEN_TENSORS;
    if (group == 0 || group > count_groups(view) || item == 1)
        return object;
    object.kind = item == 0 ? RFS_VIEW_HIDDEN_GROUP : RFS_VIEW_HIDDEN_FILE;
    object.group = (uint32_t)(group - 1);
    object.target = item == 0 ? 0 : (uint32_t)((item - 2) / 2);
    object.about = item % 2 != 0;
    return object;
}

/* ---- the tensors of a planner ---------------------------------------------------------------- */

/* Returns the planner of one whole checkpoint, the view's own where that shows one, or NULL. */
static struct rfs_planner *ready_whole(const struct rfs_view *view)
{
    return view->dst ? RFS_PUBLISHED(&view->hidden.whole) : view->planner;
}

static int whole_planner(struct rfs_view *view, struct rfs_planner **out, struct rfs_error *err)
{
    const struct rfs_planner_change whole = {0};
    struct rfs_planner *fresh = NULL;

    *out = ready_whole(view);
    const int rc = *out ? 0 : rfs_planner_derive(view->planner, &whole, &fresh, err);
    if (*out || rc)
        return rc;
    *out = RFS_PUBLISH(&view->hidden.whole, fresh, rfs_planner_free);
    return 0;
}

static int plan_tensors(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                        struct rfs_error *err)
{
    struct rfs_planner *planner = view->planner;

    return (group == 0 ? whole_planner(view, &planner, err) : 0)
               ?: rfs_tensors_of_rank(view, planner, group > 0 ? group - 1 : 0, out, err);
}

int rfs_view_hidden_tensors(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                            struct rfs_error *err)
{
    return view->kind->tensors ? view->kind->tensors(view, group, out, err)
                               : plan_tensors(view, group, out, err);
}

/* Returns whether the tensors of a group are planned; those of a kind of its own always are. */
static bool tensors_are_ready(struct rfs_view *view, uint32_t group)
{
    const struct rfs_planner *planner = group == 0 ? ready_whole(view) : view->planner;

    return view->kind->tensors ||
           (planner && rfs_planner_ready(planner, group == 0 ? 0 : group - 1));
}

static void name_group(const struct rfs_view *view, uint32_t group, char out[32])
{
    if (view->kind->name_group)
        view->kind->name_group(view, group, out);
    else if (group == 0)
        snprintf(out, 32, "full");
    else
        snprintf(out, 32, "rank_%u", group - 1);
}

/* ---- the description of a tensor ------------------------------------------------------------- */

/* Makes the boxes of a rank, one for each round; owned by the caller. NULL when out of memory. */
static uint64_t *make_boxes(const struct rfs_geometry *geometry, uint32_t local)
{
    const uint32_t rounds = geometry->dst.rounds;
    uint64_t *boxes = calloc((size_t)rounds * geometry->ndim, 2 * sizeof *boxes);
    struct rfs_box box;
    uint64_t *at = boxes;

    for (uint32_t round = 0; boxes && round < rounds; round++) {
        rfs_grid_box(&geometry->dst, geometry->whole, local, round, &box);
        for (uint32_t i = 0; i < geometry->ndim; i++) {
            *at++ = box.at[i];
            *at++ = box.at[i] + box.len[i];
        }
    }
    return boxes;
}

/* Describes how a target that has bytes is cut. 0 or -ENOMEM; *boxes is owned by the caller. */
static int describe_cut(const struct rfs_tensors *tensors, const struct rfs_target *target,
                        struct rfs_about *about, uint64_t **boxes)
{
    const struct rfs_geometry *geometry = rfs_planner_geometry(tensors->planner, target);
    struct rfs_scale scale;

    if (!geometry || geometry->ndim == 0 || about->type->bytes == 0)
        return 0;
    rfs_planner_scale(tensors->planner, &scale);
    *boxes = make_boxes(geometry, tensors->rank % scale.dst_devices);
    about->ndim = geometry->ndim;
    about->whole = geometry->whole;
    about->source_pieces = geometry->src.pieces;
    about->pieces = geometry->dst.pieces;
    about->boxes = *boxes;
    about->n_boxes = geometry->dst.rounds;
    return *boxes ? 0 : -ENOMEM;
}

/*
 * Lists the paths of files, which are borrowed, in an array for the caller. NULL when out of
 * memory.
 */
static const char **make_paths(struct rfs_view *view, const struct rfs_view_origins *origins)
{
    const struct rfs_files *files = rfs_catalog_files(view->catalog);
    const char **paths = calloc(origins->n_files + 1, sizeof *paths);

    for (size_t i = 0; paths && i < origins->n_files; i++)
        paths[i] = rfs_files_path(files, origins->files[i]);
    return paths;
}

static int make_about(struct rfs_view *view, const struct rfs_view_hidden_object *object,
                      const struct rfs_tensors *tensors, const struct rfs_view_origins *origins,
                      struct rfs_image **out)
{
    const struct rfs_target *target = rfs_tensors_target(tensors, object->target);
    RFS_FREE const char **paths = make_paths(view, origins);
    RFS_FREE uint64_t *boxes = NULL;
    struct rfs_about about = {
        .name = rfs_tensors_name(tensors, object->target),
        .source_name = rfs_catalog_name(view->catalog, target->name),
        .type = rfs_tensors_type(tensors, object->target),
        .source_type = rfs_catalog_type(view->catalog, target->type),
        .rank = object->group > 0 && !view->kind->tensors ? (int64_t)object->group - 1 : -1,
        .n_ranks = origins->n_ranks,
        .ranks = origins->ranks,
        .n_files = origins->n_files,
        .files = paths,
    };

    const int rc = paths ? describe_cut(tensors, target, &about, &boxes) : -ENOMEM;
    return rc ? rc : rfs_npy_encode_about(&about, out);
}

/* Makes the JSON file of a tensor. Returns 0 or -errno with *err filled. */
static int describe(struct rfs_view *view, const struct rfs_view_hidden_object *object,
                    const struct rfs_tensors *tensors, struct rfs_image **out,
                    struct rfs_error *err)
{
    RFS_CLEANUP(rfs_view_origins_free) struct rfs_view_origins origins = {0};

    int rc = rfs_view_origins_of_target(tensors, object->target, &origins)
                 ?: make_about(view, object, tensors, &origins, out);
    return rc == -ENOMEM ? rfs_fail_memory(err)
           : rc          ? rfs_fail(err, rc, RFS_IN(rfs_catalog_path(view->catalog)), NULL, "%s",
                                    strerror(-rc))
                         : 0;
}

/* ---- images ---------------------------------------------------------------------------------- */

int rfs_view_hidden_image(struct rfs_view *view, const struct rfs_view_hidden_object *object,
                          struct rfs_tensors *tensors, struct rfs_image **out,
                          struct rfs_error *err)
{
    int rc = rfs_view_hidden_tensors(view, object->group, tensors, err);

    *out = NULL;
    if (rc)
        return rc;
    if (object->target >= rfs_tensors_count(tensors))
        return rfs_fail(err, -ENOENT, RFS_NOWHERE, NULL, "there is no parameter with that number");
    if (object->about)
        return describe(view, object, tensors, out, err);
    rc = rfs_npy_encode(rfs_tensors_type(tensors, object->target), object->target, out);
    return rc == -ENOMEM ? rfs_fail_memory(err)
           : rc          ? rfs_fail(err, rc, RFS_NOWHERE, NULL, "the file would be too large")
                         : 0;
}

bool rfs_view_hidden_is_known(struct rfs_view *view, uint64_t id)
{
    const struct rfs_view_hidden_object object = rfs_view_hidden_find(view, id);

    return object.kind != RFS_VIEW_HIDDEN_FILE ||
           (!object.about && tensors_are_ready(view, object.group));
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Finds a group by the number in its name, or the one after it. */
static int lookup_group(const struct rfs_view *view, const char *name, uint64_t *id)
{
    const char *digits = strchr(name, '_');
    const unsigned long number = digits ? strtoul(digits + 1, NULL, 10) : 0;
    char again[32];

    for (uint64_t group = number; group < count_groups(view) && group <= number + 1; group++) {
        name_group(view, (uint32_t)group, again);
        if (strcmp(name, again) != 0)
            continue;
        *id = make_id(view, group + 1, 0);
        return 0;
    }
    return -ENOENT;
}

static size_t count_targets(const struct rfs_tensors *tensors)
{
    return rfs_tensors_count(tensors) < TARGETS ? rfs_tensors_count(tensors) : TARGETS;
}

/*
 * Finds the position of a parameter by its name; returns the number of targets when there is none.
 * Names are mostly looked up in their order, so the one after the last is tried first.
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
        if (rfs_tensors_target(tensors, i)->shown_name == id)
            at = i;
    while (at < n && rfs_tensors_target(tensors, at)->shown_name != id)
        at++;
    if (at < n)
        atomic_store_explicit(&view->hidden.last, at, memory_order_relaxed);
    return at;
}

/* Finds a parameter by its shortened name, which is compared with all names. */
static size_t find_short(const struct rfs_tensors *tensors, const char *stem, size_t length)
{
    const size_t n = count_targets(tensors);
    char made[RFS_FILENAME_STEM + 1];
    size_t at = 0;

    while (at < n && (rfs_filename_make(rfs_tensors_name(tensors, at), made) != length ||
                      memcmp(made, stem, length) != 0))
        at++;
    return at;
}

/* Logs a failure that only the log can report; it must not look like a missing entry. */
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
    const int rc = rfs_view_hidden_tensors(view, group, &tensors, &err);
    if (rc)
        return failed(view, rc, &err);
    const size_t target =
        is_short ? find_short(&tensors, name, stem) : find_name(view, &tensors, parameter);
    if (target >= count_targets(&tensors))
        return -ENOENT;
    *id = make_id(view, (uint64_t)group + 1, 2 + 2 * target + which);
    return 0;
}

int rfs_view_hidden_lookup(struct rfs_view *view, uint64_t parent, const char *name, uint64_t *id)
{
    const struct rfs_view_hidden_object object = rfs_view_hidden_find(view, parent);
    const bool above = strcmp(name, "..") == 0;

    switch (object.kind) {
    case RFS_VIEW_HIDDEN_TENSORS:
        *id = view->save.base ? RFS_HIDDEN_TENSORS : RFS_HIDDEN_TOP;
        return above ? 0 : lookup_group(view, name, id);
    case RFS_VIEW_HIDDEN_GROUP:
        *id = make_id(view, 0, 1);
        return above ? 0 : lookup_file(view, object.group, name, id);
    case RFS_VIEW_HIDDEN_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

/* Interns a text until the view is closed; NULL when out of memory. */
static const char *intern_name(struct rfs_view *view, const char *name)
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

    const int rc = rfs_view_hidden_tensors(view, group, &tensors, &err);
    if (rc)
        return failed(view, rc, &err);
    if (position / 2 >= count_targets(&tensors))
        return 0;
    const size_t n = rfs_filename_make(rfs_tensors_name(&tensors, position / 2), name);
    strcpy(name + n, endings[position % 2]);
    full->id = make_id(view, (uint64_t)group + 1, 2 + position);
    full->name = intern_name(view, name);
    return full->name ? 1 : -ENOMEM;
}

static int list_group(struct rfs_view *view, uint64_t position, reshard_dirent *full)
{
    char name[32];

    if (position >= count_groups(view))
        return 0;
    name_group(view, (uint32_t)position, name);
    full->is_dir = true;
    full->id = make_id(view, position + 1, 0);
    full->name = intern_name(view, name);
    return full->name ? 1 : -ENOMEM;
}

int rfs_view_hidden_list(struct rfs_view *view, uint64_t dir, uint64_t position,
                         reshard_dirent *full)
{
    const struct rfs_view_hidden_object object = rfs_view_hidden_find(view, dir);

    switch (object.kind) {
    case RFS_VIEW_HIDDEN_TENSORS:
        return list_group(view, position, full);
    case RFS_VIEW_HIDDEN_GROUP:
        return list_file(view, object.group, position, full);
    case RFS_VIEW_HIDDEN_FILE:
        return -ENOTDIR;
    default:
        return -ENOENT;
    }
}

static int stat_file(struct rfs_view *view, const struct rfs_view_hidden_object *object,
                     reshard_stat *full, struct rfs_error *err)
{
    struct rfs_tensors tensors;
    struct rfs_image *image;

    const int rc = rfs_view_hidden_image(view, object, &tensors, &image, err);
    if (rc)
        return rc;
    rfs_view_fill_stat(view, tensors.plan, image->bytes, full);
    full->mapped = !object->about;
    rfs_image_free(image);
    return 0;
}

int rfs_view_hidden_stat(struct rfs_view *view, uint64_t id, reshard_stat *full,
                         struct rfs_error *err)
{
    const struct rfs_view_hidden_object object = rfs_view_hidden_find(view, id);

    full->hidden = true;
    if (object.kind == RFS_VIEW_HIDDEN_NONE)
        return rfs_view_no_entry(id, err);
    if (object.kind == RFS_VIEW_HIDDEN_FILE)
        return stat_file(view, &object, full, err);
    rfs_view_fill_dir(view->set, full);
    full->nlink += object.kind == RFS_VIEW_HIDDEN_TENSORS ? count_groups(view) : 0;
    return 0;
}

void rfs_view_hidden_end(struct rfs_view *view)
{
    rfs_planner_free(atomic_load_explicit(&view->hidden.whole, memory_order_relaxed));
    rfs_intern_free(view->hidden.names);
}
