/* SPDX-License-Identifier: Apache-2.0 */
#include "view/beside.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "formats/chunks/chunks.h"
#include "store/beneath.h"

/* ---- the file that describes all others ------------------------------------------------------ */

struct rfs_rank_plan *rfs_view_own_plan(size_t sources)
{
    struct rfs_rank_plan *plan = calloc(1, sizeof *plan);

    if (!plan)
        return NULL;
    plan->mode = 0444;
    plan->sources = calloc(sources + 1, sizeof *plan->sources);
    if (plan->sources)
        return plan;
    free(plan);
    return NULL;
}

int rfs_view_take_sources(struct rfs_view *view, struct rfs_rank_plan *plan, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);
    const uint32_t ranks = view->dst ? view->n_ranks : 1; /* without a strategy one is planned */
    RFS_FREE unsigned char *taken = calloc((size_t)rfs_files_count_paths(files) + 1, 1);
    int rc = 0;

    if (!taken)
        return rfs_fail_memory(err);
    for (uint32_t rank = 0; rc == 0 && rank < ranks; rank++) {
        const struct rfs_rank_plan *of;
        rc = rfs_planner_rank(view->planner, rank, &of, err);
        for (uint32_t i = 0; rc == 0 && i < of->n_sources; i++)
            if (!taken[of->sources[i]]) {
                taken[of->sources[i]] = 1;
                rc = rfs_plan_add_file(files, of->sources[i], plan, err);
            }
    }
    return rc;
}

static void free_plan(struct rfs_rank_plan **plan)
{
    if (*plan)
        free((*plan)->sources);
    free(*plan);
}

int rfs_view_describe(struct rfs_view *view, size_t file, rfs_view_make_fn *make,
                      const struct rfs_image **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_plan)
    struct rfs_rank_plan *plan =
        rfs_view_own_plan(rfs_files_count_paths(rfs_catalog_files(view->catalog)));
    struct rfs_image *image = NULL;

    const int rc = plan ? make(view, plan, &image, err) : rfs_fail_memory(err);
    if (rc)
        return rc;
    pthread_mutex_lock(&view->lock);
    if (!view->files[file].plan)
        view->files[file].plan = RFS_STEAL(plan);
    pthread_mutex_unlock(&view->lock);
    *out = rfs_view_publish(&view->files[file], image);
    return 0;
}

/* ---- files that are passed on ---------------------------------------------------------------- */

static int show_copy(struct rfs_view *view, uint32_t id, const struct rfs_left_out *cut,
                     struct shown_file *file, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);
    struct rfs_copied parts[2] = {{.file = id}, {.file = id}};
    struct rfs_reading reading;

    int rc = rfs_reading_begin_quiet(files, id, &reading);
    if (rc == 0) {
        parts[0].bytes = reading.size;
        rc = rfs_reading_end(&reading);
    }
    if (rc)
        return rfs_files_reason(files, id, rc, err)
                   ? rc
                   : rfs_files_fail(err, rfs_files_path(files, id), rc);
    if (cut && cut->bytes != parts[0].bytes)
        return rfs_files_fail(err, rfs_files_path(files, id), -ESTALE);
    if (cut) {
        parts[0].bytes = cut->from;
        parts[1].offset = cut->to;
        parts[1].bytes = cut->bytes - cut->to;
    }
    rc = rfs_plan_add_file(files, id, file->plan, err);
    if (rc == 0 && rfs_image_copied(parts, cut ? 2 : 1, &file->own))
        rc = rfs_fail_memory(err);
    atomic_init(&file->image, file->own);
    return rc;
}

int rfs_view_pass_on(struct rfs_view *view, const char *path, const char *name,
                     const struct rfs_left_out *cut, struct rfs_error *err)
{
    struct shown_file *file = &view->files[view->n_files];
    struct rfs_files *files = rfs_catalog_files(view->catalog);
    struct stat st;

    const int there = rfs_is_url(path) ? rfs_store_stat(path, &st)
                                       : rfs_beneath_stat(rfs_files_beneath(files), path, &st);
    if (there == -ENOENT)
        return 0;
    if (there == -EXDEV)
        return rfs_beneath_fail(err, path);
    const uint32_t id = rfs_files_add(files, path);
    file->name = strdup(name);
    file->plan = rfs_view_own_plan(1);
    view->n_files++;
    if (id == UINT32_MAX || !file->name || !file->plan)
        return rfs_fail_memory(err);
    return show_copy(view, id, cut, file, err);
}

int rfs_view_pass_on_own(struct rfs_view *view, const char *name, struct rfs_error *err)
{
    const struct rfs_chunks *boxes = rfs_catalog_chunks(view->stored);
    RFS_FREE char *path = boxes ? rfs_path_join(boxes->folder, name) : NULL;

    if (!boxes)
        return 0;
    return path ? rfs_view_pass_on(view, path, name, NULL, err) : rfs_fail_memory(err);
}
