/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/boxed.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"

static void walk_box(struct rfs_chunked_walk *walk)
{
    rfs_chunk_walk_begin(walk->boxes, walk->tensor, walk->cells.lo, walk->cells.hi, &walk->chunks);
}

const struct rfs_chunked_tensor *rfs_plan_chunked_tensor(const struct rfs_planner *planner,
                                                         const struct rfs_target *target)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    size_t length;
    const char *name =
        (const char *)rfs_intern_bytes(rfs_catalog_tables(catalog)->names, target->name, &length);

    return rfs_chunks_find(rfs_catalog_chunks(catalog), name, length);
}

int rfs_chunked_walk_begin(struct rfs_planner *planner, uint32_t local,
                           const struct rfs_target *target, struct rfs_chunked_walk *walk)
{
    struct rfs_catalog *catalog = planner->config.catalog;
    const char *name = rfs_catalog_name(catalog, target->name);

    walk->boxes = rfs_catalog_chunks(catalog);
    walk->tensor = rfs_plan_chunked_tensor(planner, target);
    walk->geometry = &walk->copied;
    if (!walk->tensor || walk->tensor->incomplete)
        return -EIO;
    if (target->geometry != RFS_NO_ID)
        walk->geometry = rfs_plan_geometry_at(planner, target->geometry);
    const int rc = target->geometry != RFS_NO_ID
                       ? 0
                       : rfs_geometry_resolve(rfs_catalog_type(catalog, target->type), NULL, NULL,
                                              NULL, NULL, name, &walk->copied, NULL);
    if (rc)
        return rc;
    rfs_geometry_cells(walk->geometry, target->geometry == RFS_NO_ID ? 0 : local, &walk->cells,
                       walk->cell);
    walk_box(walk);
    return 0;
}

bool rfs_chunked_walk_next(struct rfs_chunked_walk *walk)
{
    while (!rfs_chunk_walk_next(&walk->chunks, &walk->part)) {
        if (!rfs_cells_next(walk->geometry, &walk->cells, walk->cell))
            return false;
        walk_box(walk);
    }
    return true;
}

static void make_block(const struct rfs_chunked_walk *walk, const struct rfs_stored_part *stored,
                       struct rfs_block *block)
{
    *block = (struct rfs_block){.file = stored->file, .content = {.offset = stored->at}};
    rfs_geometry_block_from(walk->geometry, &walk->cells, walk->part.at, walk->part.size,
                            stored->stride, stored->strided, block);
}

int rfs_chunked_walk_block(struct rfs_chunked_walk *walk, struct rfs_block *block,
                           struct rfs_error *err)
{
    struct rfs_stored_part stored;
    const int rc =
        rfs_chunks_locate_part((struct rfs_chunks *)walk->boxes, &walk->part, &stored, err);

    if (rc == 0)
        make_block(walk, &stored, block);
    return rc;
}

/* Logs a failure, whose place is known. */
static int tell(const struct rfs_planner *planner, int rc, const struct rfs_error *err)
{
    if (rc && err->text[0])
        rfs_log_limited(planner->config.log, RFS_ERROR, "%s", err->text);
    return rc;
}

int rfs_chunked_walk_copy(const struct rfs_chunked_walk *walk, uint32_t copy,
                          struct rfs_chunked_copy *out, struct rfs_error *err)
{
    const int rc =
        rfs_chunks_locate_copy((struct rfs_chunks *)walk->boxes, walk->part.chunk, copy, out, err);

    if (rc == -EINTR || rc == -ENOMEM)
        return rc;
    return rc == 0 && out->type == walk->boxes->chunks.data[walk->part.chunk].type;
}

/* Takes the present chunk's block from its copy number COPY, 1 or more, if it has such a one. */
static int take_copy(const struct rfs_chunked_walk *walk, uint32_t copy, struct rfs_block *block,
                     size_t *others)
{
    struct rfs_chunked_copy other;
    struct rfs_stored_part stored;

    if (copy > rfs_chunks_copies(walk->boxes, walk->part.chunk))
        return 0;
    const int there = rfs_chunked_walk_copy(walk, copy - 1, &other, NULL);
    if (there == 1) {
        rfs_chunks_place_part((struct rfs_chunks *)walk->boxes, &walk->part, other.file, other.at,
                              &stored);
        make_block(walk, &stored, block);
        ++*others;
    }
    return there < 0 ? there : 0;
}

int rfs_plan_chunked_slice(struct rfs_planner *planner, uint32_t local,
                           const struct rfs_target *target, uint32_t copy, struct rfs_slice *slice,
                           size_t *others)
{
    struct rfs_chunked_walk walk;
    struct rfs_error err = {0};
    int rc = rfs_chunked_walk_begin(planner, local, target, &walk);

    while (rc == 0 && rfs_chunked_walk_next(&walk)) {
        struct rfs_block *block = rfs_slice_add(slice);
        if (!block)
            return -ENOMEM;
        rc = rfs_chunked_walk_block(&walk, block, &err);
        if (rc == 0 && copy > 0)
            rc = take_copy(&walk, copy, block, others);
    }
    if (rc)
        return tell(planner, rc, &err);
    RFS_SORT(slice->blocks, slice->n, rfs_block_by_destination);
    return 0;
}

/* ---- the files of a plan --------------------------------------------------------------------- */

/* The chunks of a plan that are to be located, by file. */
struct locating {
    struct rfs_chunks *boxes;
    RFS_VEC(uint32_t) chunks;
    RFS_VEC(size_t) files; /* where the chunks of each begin */
    unsigned char *needed; /* [all files of the boxes] */
};

static void locating_end(struct locating *locating)
{
    free(locating->chunks.data);
    free(locating->files.data);
    free(locating->needed);
}

/* Notes the file that a located chunk is read from. */
static void note_file(const struct locating *locating, uint32_t chunk)
{
    const struct rfs_chunks *boxes = locating->boxes;

    locating->needed[rfs_chunks_file_of(boxes, chunk) - boxes->first_file] = 1;
}

static int note_target(struct planning *planning, const struct rfs_target *target,
                       struct locating *locating)
{
    struct rfs_chunked_walk walk;

    if (rfs_catalog_type(planning->planner->config.catalog, target->type)->bytes == 0)
        return 0;
    const int rc = rfs_chunked_walk_begin(planning->planner, planning->local, target, &walk);
    while (rc == 0 && rfs_chunked_walk_next(&walk)) {
        const struct rfs_chunk *chunk = &locating->boxes->chunks.data[walk.part.chunk];
        if (atomic_load_explicit(&chunk->at, memory_order_acquire) != RFS_NOT_LOCATED)
            note_file(locating, walk.part.chunk);
        else if (!RFS_PUSH(&locating->chunks, walk.part.chunk))
            return -ENOMEM;
    }
    return rc;
}

static int by_file(const void *a, const void *b, void *ctx)
{
    const struct rfs_chunks *boxes = ctx;
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    const uint32_t of_x = boxes->chunks.data[x].file;
    const uint32_t of_y = boxes->chunks.data[y].file;

    return of_x != of_y ? (of_x < of_y ? -1 : 1) : (x > y) - (x < y);
}

/* Sorts the chunks by file, in whose order they are read then. */
static bool group(struct locating *locating)
{
    const struct rfs_chunk *chunks = locating->boxes->chunks.data;
    const uint32_t *list = locating->chunks.data;

    if (locating->chunks.n > 1)
        qsort_r(locating->chunks.data, locating->chunks.n, sizeof *list, by_file, locating->boxes);
    for (size_t i = 0; i < locating->chunks.n; i++)
        if ((i == 0 || chunks[list[i]].file != chunks[list[i - 1]].file) &&
            !RFS_PUSH(&locating->files, i))
            return false;
    return RFS_PUSH(&locating->files, locating->chunks.n);
}

static int locate_file(const struct locating *locating, size_t file, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = locating->files.data[file]; rc == 0 && i < locating->files.data[file + 1]; i++)
        rc = rfs_chunks_locate(locating->boxes, locating->chunks.data[i], err);
    return rc;
}

static int locate_job(void *ctx, size_t i)
{
    return locate_file(ctx, i, NULL);
}

static int locate_all(struct planning *planning, struct locating *locating)
{
    if (!group(locating))
        return rfs_fail_memory(planning->err);
    const size_t n = locating->files.n - 1;
    int rc = rfs_pool_for(planning->planner->config.pool, n, locate_job, locating);
    if (rc == 0 || rc == -EINTR)
        return rc;
    rc = 0; /* again, one after the other, for the message of the first that fails */
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = locate_file(locating, i, planning->err);
    return rc;
}

static bool later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/*
 * Files that were written after the metadata, which is written last: when a save into the folder
 * breaks off, the metadata is that of the save before. Copies of a folder may look so, too.
 */
static int check_times(struct planning *planning, struct rfs_chunks *boxes,
                       struct timespec metadata, uint32_t newest, struct timespec time)
{
    const struct rfs_planner_config *config = &planning->planner->config;
    const bool strict = config->strict || (config->template && config->template->config.strict);
    char times[2][RFS_TIME_TEXT];

    if (!boxes->times_tell || !later(time, metadata))
        return 0;
    const char *path = rfs_files_path(boxes->files, newest);
    rfs_text_time(times[0], time);
    rfs_text_time(times[1], metadata);
    if (strict)
        return rfs_fail(planning->err, -EINVAL, RFS_IN(path),
                        "a save that has ended, copied with its times (cp -a)",
                        "the file is of %s, newer than '.metadata' of %s, which torch writes last",
                        times[0], times[1]);
    if (!atomic_exchange(&boxes->told, true))
        rfs_log(config->log, RFS_WARNING,
                "%s: the file is of %s, newer than '.metadata' of %s, which torch writes last: it "
                "may be of another save",
                path, times[0], times[1]);
    return 0;
}

/* Takes the metadata and the needed files into the attributes of a plan, when all is located. */
static int add_files(struct planning *planning, const struct locating *locating,
                     struct rfs_rank_plan *plan)
{
    struct rfs_chunks *boxes = locating->boxes;

    for (size_t i = 0; i < locating->chunks.n; i++)
        note_file(locating, locating->chunks.data[i]);
    int rc = rfs_plan_add_file(boxes->files, boxes->metadata, plan, planning->err);
    const struct timespec metadata = plan->mtime;
    struct timespec last = metadata;
    uint32_t newest = boxes->metadata;

    for (uint32_t i = 0; rc == 0 && i < boxes->n_all_files; i++)
        if (locating->needed[i]) {
            rc = rfs_plan_add_file(boxes->files, boxes->first_file + i, plan, planning->err);
            if (rc == 0 && later(plan->mtime, last)) {
                last = plan->mtime;
                newest = boxes->first_file + i;
            }
        }
    return rc ? rc : check_times(planning, boxes, metadata, newest, last);
}

int rfs_plan_chunked_attributes(struct planning *planning, struct rfs_rank_plan *plan)
{
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    struct rfs_chunks *boxes = rfs_catalog_chunks(catalog);
    RFS_CLEANUP(locating_end) struct locating locating = {.boxes = boxes};
    int rc = 0;

    locating.needed = calloc((size_t)boxes->n_all_files + 1, 1);
    if (!locating.needed)
        return rfs_fail_memory(planning->err);
    for (size_t i = 0; rc == 0 && i < plan->params->n; i++)
        rc = note_target(planning, &plan->params->targets[i], &locating);
    if (rc)
        return rc == -ENOMEM ? rfs_fail_memory(planning->err) : rc;
    rc = locate_all(planning, &locating) ?: rfs_plan_compare_copies(planning, plan->params);
    if (rc)
        return rc;
    plan->mode = 0444;
    plan->sources = malloc(((size_t)boxes->n_all_files + 1) * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(planning->err);
    return add_files(planning, &locating, plan);
}
