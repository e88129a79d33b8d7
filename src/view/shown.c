/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a view shows: their ids and attributes, the sources that they are made of, and
 * files beside those of tensors, which describe the others or are passed on as they are.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/path.h"
#include "base/store.h"
#include "formats/chunks/chunks.h"
#include "store/beneath.h"
#include "view/internal.h"

#include <sys/stat.h>

enum rfs_view_entry_kind rfs_view_entry(const struct rfs_view *view, uint64_t id, size_t *number)
{
    const bool by_rank = view->kind->by_rank;

    id -= view->save.base; /* below it: a number that no file has */
    if (id == RESHARD_ROOT)
        return RFS_ENTRY_ROOT;
    if (id < 2)
        return RFS_ENTRY_NONE;
    const uint64_t file = by_rank ? (id - 2) / 2 : id - 2;
    const uint64_t folder = by_rank ? file : file - view->n_files;
    const bool is_file = by_rank ? id % 2 != 0 : file < view->n_files;
    *number = (size_t)(is_file ? file : folder);
    return is_file && file < view->n_files        ? RFS_ENTRY_FILE
           : !is_file && folder < view->folders.n ? RFS_ENTRY_DIR
                                                  : RFS_ENTRY_NONE;
}

int rfs_view_no_entry(uint64_t id, struct rfs_error *err)
{
    return rfs_fail(err, -ENOENT, RFS_NOWHERE, NULL, "no entry has the id %llu",
                    (unsigned long long)id);
}

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

int rfs_view_make_room(struct rfs_view *view, size_t n, struct rfs_error *err)
{
    view->files = rfs_arena_zeros(&view->memory, n, sizeof *view->files);
    return view->memory.failed ? rfs_fail_memory(err) : 0;
}

struct rfs_view_file *rfs_view_show(struct rfs_view *view, const char *fmt, ...)
{
    struct rfs_view_file *file = &view->files[view->n_files++];
    va_list args;

    va_start(args, fmt);
    file->name = rfs_arena_vprintf(&view->memory, fmt, args);
    va_end(args);
    return file;
}

/* ---- the sources that something is made of --------------------------------------------------- */

void rfs_view_origins_free(struct rfs_view_origins *origins)
{
    free(origins->files);
    free(origins->ranks);
    *origins = (struct rfs_view_origins){0};
}

RFS_COMPARE(compare, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Returns whether one of the ids [FIRST, FIRST + N) is among the files. */
static bool has_any(const struct rfs_view_origins *origins, uint32_t first, uint32_t n)
{
    const size_t at = RFS_BISECT(i, origins->n_files, origins->files[i] >= first);

    return at < origins->n_files && origins->files[at] - first < n;
}

/* Names the ranks of the files, or of ALL that there are. */
static int name_ranks(const struct rfs_view *view, bool all, struct rfs_view_origins *origins)
{
    const uint32_t n = rfs_catalog_ranks(view->source);

    origins->ranks = malloc(((size_t)n + 1) * sizeof *origins->ranks);
    if (!origins->ranks)
        return -ENOMEM;
    for (uint32_t r = 0; r < n; r++)
        if (rfs_catalog_has(view->source, r) &&
            (all || (!rfs_catalog_stands_in(view->source, r) &&
                     has_any(origins, rfs_catalog_file(view->source, r),
                             rfs_catalog_file_count(view->source, r)))))
            origins->ranks[origins->n_ranks++] = r;
    return 0;
}

int rfs_view_origins_of_files(const struct rfs_view *view, const uint32_t *files, size_t n,
                              struct rfs_view_origins *out)
{
    if (!files)
        return name_ranks(view, true, out);
    out->files = malloc((n + 1) * sizeof *out->files);
    if (!out->files)
        return -ENOMEM;
    if (n > 0)
        memcpy(out->files, files, n * sizeof *files);
    RFS_SORT(out->files, n, compare);
    for (size_t i = 0; i < n; i++)
        if (out->n_files == 0 || out->files[out->n_files - 1] != out->files[i])
            out->files[out->n_files++] = out->files[i];
    return name_ranks(view, false, out);
}

int rfs_view_origins_of_target(const struct rfs_tensors *tensors, uint32_t target,
                               struct rfs_view_origins *out)
{
    RFS_CLEANUP(rfs_slice_free) struct rfs_slice slice = {0};
    RFS_FREE uint32_t *files = NULL;

    const int rc = rfs_tensors_slice(tensors, target, &slice);
    if (rc)
        return rc;
    files = malloc((slice.n + 1) * sizeof *files);
    if (!files)
        return -ENOMEM;
    for (size_t i = 0; i < slice.n; i++)
        files[i] = slice.blocks[i].file;
    return rfs_view_origins_of_files(tensors->view, files, slice.n, out);
}

/* ---- files that describe others -------------------------------------------------------------- */

/* Makes the plan of a file that depends on at most SOURCES of them. NULL when out of memory. */
static struct rfs_rank_plan *new_plan(size_t sources)
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
    const uint32_t ranks =
        view->dst ? rfs_view_ranks(view) : 1; /* without a strategy one is planned */
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

int rfs_view_describe(struct rfs_view *view, size_t file, const struct rfs_image **out,
                      struct rfs_error *err)
{
    RFS_CLEANUP(free_plan)
    struct rfs_rank_plan *plan = new_plan(rfs_files_count_paths(rfs_catalog_files(view->catalog)));
    struct rfs_image *image = NULL;

    const int rc = plan ? view->files[file].make(view, plan, &image, err) : rfs_fail_memory(err);
    if (rc)
        return rc;
    pthread_mutex_lock(&view->lock);
    if (!view->files[file].plan)
        view->files[file].plan = RFS_STEAL(plan);
    pthread_mutex_unlock(&view->lock);
    *out = RFS_PUBLISH(&view->files[file].own, (const struct rfs_image *)image, rfs_image_free);
    return 0;
}

/* ---- files that are passed on ---------------------------------------------------------------- */

static int show_copy(struct rfs_view *view, uint32_t id, const struct rfs_hf_cuts *cuts,
                     struct rfs_view_file *file, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);
    struct rfs_copied parts[RFS_HF_CUTS + 1] = {{.file = id}};
    const size_t n = cuts ? cuts->n : 0;
    uint64_t bytes = 0;
    struct rfs_image *image;
    struct rfs_reading reading;

    int rc = rfs_reading_begin_quiet(files, id, &reading);
    if (rc == 0) {
        bytes = reading.size;
        rc = rfs_reading_end(&reading);
    }
    if (rc)
        return rfs_files_reason(files, id, rc, err)
                   ? rc
                   : rfs_files_fail(err, rfs_files_path(files, id), rc);
    if (cuts && cuts->bytes != bytes)
        return rfs_files_fail(err, rfs_files_path(files, id), -ESTALE);
    for (size_t i = 0; i <= n; i++) {
        parts[i].file = id;
        parts[i].offset = i > 0 ? cuts->cut[i - 1].to : 0;
        parts[i].bytes = (i < n ? cuts->cut[i].from : bytes) - parts[i].offset;
    }
    rc = rfs_plan_add_file(files, id, file->plan, err);
    if (rc == 0 && rfs_image_copied(parts, n + 1, &image))
        rc = rfs_fail_memory(err);
    if (rc == 0)
        rfs_view_give_image(file, image);
    return rc;
}

int rfs_view_pass_on(struct rfs_view *view, const char *path, const char *name,
                     const struct rfs_hf_cuts *cuts, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);
    struct stat st;

    if (!path)
        return rfs_fail_memory(err);
    const int there = rfs_beneath_stat(rfs_files_beneath(files), rfs_files_store(files), path, &st);
    if (there == -ENOENT)
        return 0;
    if (there == -EXDEV)
        return rfs_beneath_fail(err, path);
    const uint32_t id = rfs_files_add(files, path);
    struct rfs_view_file *file = rfs_view_show(view, "%s", name);
    file->plan = new_plan(1);
    if (id == UINT32_MAX || !file->plan)
        return rfs_fail_memory(err);
    return show_copy(view, id, cuts, file, err);
}

int rfs_view_pass_on_own(struct rfs_view *view, const char *name, struct rfs_error *err)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);
    RFS_FREE char *path = chunked ? rfs_path_join(chunked->folder, name) : NULL;

    return chunked ? rfs_view_pass_on(view, path, name, NULL, err) : 0;
}
