/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that torch.distributed.checkpoint writes: __0_0.distcp and so on, a file for each rank,
 * and .metadata, which says what is in them. Each is made when it is looked at first; .metadata
 * depends on all ranks.
 *
 * Ranks whose chunks have the same shapes share an image: an item says nothing of the place of its
 * chunk in the tensor. Only .metadata does.
 */
#include "view/dcp.h"

#include "base/cleanup.h"
#include "base/publish.h"
#include "view/dcp_chunks.h"
#include "view/groups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

/* The image of some ranks, and where its items begin and end. */
struct shared {
    XXH128_hash_t key;
    struct rfs_image *image; /* owned */
    uint64_t *ends;          /* owned; one more than there are chunks */
};

struct rfs_dcp_view {
    uint32_t *stages;            /* owned; of rfs_dcp_stages; or NULL */
    RFS_VEC(struct shared) list; /* under the view's lock */
    struct rfs_rank_plan plan;   /* of .metadata: all files; set before its image is published */
};

void rfs_dcp_view_free(struct rfs_dcp_view *dcp)
{
    if (!dcp)
        return;
    for (size_t i = 0; i < dcp->list.n; i++) {
        rfs_image_free(dcp->list.data[i].image);
        free(dcp->list.data[i].ends);
    }
    free(dcp->list.data);
    free(dcp->stages);
    free(dcp->plan.sources);
    free(dcp);
}

/* ---- the file of a rank ---------------------------------------------------------------------- */

/* What the image of chunks depends on. */
static XXH128_hash_t key_of(const struct rfs_dcp_chunks *chunks)
{
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &chunks->plan->params->id, sizeof chunks->plan->params->id);
    for (size_t i = 0; i < chunks->n; i++) {
        const struct rfs_dcp_chunk *chunk = &chunks->data[i];
        const uint64_t words[] = {chunk->target, chunk->type, chunk->at};
        XXH3_128bits_update(&state, words, sizeof words);
    }
    return XXH3_128bits_digest(&state);
}

static const struct shared *find(const struct rfs_dcp_view *dcp, XXH128_hash_t key)
{
    for (size_t i = 0; i < dcp->list.n; i++)
        if (XXH128_isEqual(dcp->list.data[i].key, key))
            return &dcp->list.data[i];
    return NULL;
}

static void shared_end(struct shared *shared)
{
    rfs_image_free(shared->image);
    free(shared->ends);
}

/* The image of chunks, encoded once; a copy of what is shared. 0 or -errno with *err filled. */
static int share(struct rfs_view *view, const struct rfs_dcp_chunks *chunks, struct shared *out,
                 struct rfs_error *err)
{
    struct rfs_dcp_view *dcp = view->dcp;
    RFS_CLEANUP(shared_end) struct shared fresh = {.key = key_of(chunks)};

    pthread_mutex_lock(&view->lock);
    const struct shared *found = find(dcp, fresh.key);
    *out = found ? *found : (struct shared){.image = NULL};
    pthread_mutex_unlock(&view->lock);
    if (out->image)
        return 0;
    fresh.ends = calloc(chunks->n + 1, sizeof *fresh.ends);
    if (!fresh.ends)
        return rfs_fail_memory(err);
    const int rc = rfs_image_dcp(view->catalog, chunks->plan->params, chunks->data, chunks->n,
                                 view->options.zip_crc, &fresh.image, fresh.ends, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&view->lock);
    found = find(dcp, fresh.key);
    if (!found && RFS_PUSH(&dcp->list, fresh)) {
        fresh = (struct shared){.image = NULL};
        found = &dcp->list.data[dcp->list.n - 1];
    }
    if (found)
        *out = *found;
    pthread_mutex_unlock(&view->lock);
    return found ? 0 : rfs_fail_memory(err);
}

static void chunks_end(struct rfs_dcp_chunks *chunks)
{
    free(chunks->data);
}

/* ---- .metadata ------------------------------------------------------------------------------- */

struct items {
    RFS_VEC(struct rfs_dcp_item) list;
    unsigned char *sources; /* by file of the catalogue: it is depended on */
    uint32_t n_files;
    uint32_t n_sources;
};

static void items_end(struct items *items)
{
    free(items->list.data);
    free(items->sources);
}

static uint64_t number_of(const struct rfs_type *whole, const uint64_t *corner)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < whole->ndim; i++)
        number = number * whole->dims[i] + corner[i];
    return number;
}

static void note_sources(struct items *items, const struct rfs_rank_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_sources; i++) {
        items->n_sources += !items->sources[plan->sources[i]];
        items->sources[plan->sources[i]] = 1;
    }
}

static int add_rank(struct rfs_view *view, uint32_t rank, struct rfs_dcp_chunks *chunks,
                    struct items *items, struct rfs_error *err)
{
    struct shared shared;

    int rc = rfs_dcp_chunks(view, view->dcp->stages, rank, chunks, err);
    if (rc == 0)
        rc = share(view, chunks, &shared, err);
    if (rc)
        return rc;
    note_sources(items, chunks->plan);
    for (size_t i = 0; i < chunks->n; i++) {
        const struct rfs_dcp_chunk *chunk = &chunks->data[i];
        const struct rfs_dcp_item item = {
            .name = chunks->plan->params->targets[chunk->target].shown_name,
            .whole = chunk->whole,
            .type = chunk->type,
            .file = rank,
            .begin = shared.ends[i],
            .bytes = shared.ends[i + 1] - shared.ends[i],
            .corner = number_of(rfs_catalog_type(view->catalog, chunk->whole), chunk->corner)};
        if (!RFS_PUSH(&items->list, item))
            return rfs_fail_memory(err);
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct rfs_dcp_item *x = a;
    const struct rfs_dcp_item *y = b;

    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    if (x->corner != y->corner)
        return x->corner < y->corner ? -1 : 1;
    return (x->file > y->file) - (x->file < y->file);
}

/* Access and times of .metadata: those of all sources. */
static int take_sources(struct rfs_view *view, const struct items *items,
                        struct rfs_rank_plan *plan, struct rfs_error *err)
{
    int rc = 0;

    plan->mode = 0444;
    plan->sources = calloc((size_t)items->n_sources + 1, sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(err);
    for (uint32_t i = 0; rc == 0 && i < items->n_files; i++)
        if (items->sources[i])
            rc = rfs_plan_add_file(rfs_catalog_files(view->catalog), i, plan, err);
    return rc;
}

static int metadata_image(struct rfs_view *view, struct rfs_image **out, struct rfs_rank_plan *plan,
                          struct rfs_error *err)
{
    RFS_CLEANUP(chunks_end) struct rfs_dcp_chunks chunks = {.n = 0};
    RFS_CLEANUP(items_end) struct items items = {.n_sources = 0};
    int rc = 0;

    items.n_files = rfs_files_count_paths(rfs_catalog_files(view->catalog));
    items.sources = calloc((size_t)items.n_files + 1, 1);
    if (!items.sources)
        return rfs_fail_memory(err);
    for (uint32_t rank = 0; rc == 0 && rank < view->n_ranks; rank++)
        rc = add_rank(view, rank, &chunks, &items, err);
    if (rc == 0)
        rc = take_sources(view, &items, plan, err);
    if (rc)
        return rc;
    if (items.list.n > 1)
        qsort(items.list.data, items.list.n, sizeof *items.list.data, by_name);
    rc = rfs_image_dcp_metadata(view->catalog, items.list.data, items.list.n, out);
    return rc == -ENOMEM ? rfs_fail_memory(err) : rc;
}

/* ---- the kind of view ------------------------------------------------------------------------ */

static int show_metadata(struct rfs_view *view, const struct rfs_image **out, struct rfs_error *err)
{
    struct rfs_rank_plan plan = {.mode = 0};
    struct rfs_image *image = NULL;
    const int rc = metadata_image(view, &image, &plan, err);

    if (rc) {
        free(plan.sources);
        return rc;
    }
    pthread_mutex_lock(&view->lock);
    if (!view->dcp->plan.sources) {
        view->dcp->plan = plan;
        plan.sources = NULL;
    }
    pthread_mutex_unlock(&view->lock);
    free(plan.sources);
    *out = rfs_view_publish(&view->files[0], image);
    return 0;
}

/* File 0 is .metadata; file 1 + R is rank R's. */
static int image_of(struct rfs_view *view, size_t file, const struct rfs_image **out,
                    struct rfs_error *err)
{
    RFS_CLEANUP(chunks_end) struct rfs_dcp_chunks chunks = {.n = 0};
    struct shared shared;

    if (file == 0)
        return show_metadata(view, out, err);
    int rc = rfs_dcp_chunks(view, view->dcp->stages, (uint32_t)file - 1, &chunks, err);
    if (rc == 0)
        rc = share(view, &chunks, &shared, err);
    if (rc == 0)
        *out = shared.image;
    return rc;
}

static const struct rfs_rank_plan *plan_of(const struct rfs_view *view, size_t file)
{
    return file == 0 ? &view->dcp->plan : rfs_planner_ready(view->planner, view->files[file].rank);
}

static const struct rfs_view_kind kind = {.image = image_of,
                                          .plan = plan_of,
                                          .tensors = rfs_groups_tensors,
                                          .tensors_are_ready = rfs_groups_tensors_are_ready,
                                          .name_group = rfs_groups_name_group};

int rfs_view_dcp(struct rfs_view *view, struct rfs_error *err)
{
    view->kind = &kind;
    view->n_groups = view->dst ? rfs_groups_count(view) : 1;
    if (!view->dst)
        view->n_ranks = view->options.dst_ranks ? view->options.dst_ranks : 1;
    view->dcp = calloc(1, sizeof *view->dcp);
    view->files = calloc((size_t)view->n_ranks + 1, sizeof *view->files);
    if (!view->dcp || !view->files)
        return rfs_fail_memory(err);
    view->n_files = (size_t)view->n_ranks + 1;
    for (uint32_t rank = 0; rank <= view->n_ranks; rank++) {
        struct shown_file *file = &view->files[rank];
        const int n = rank == 0 ? asprintf(&file->name, ".metadata")
                                : asprintf(&file->name, "__%u_0.distcp", rank - 1);
        if (n < 0) {
            file->name = NULL;
            return rfs_fail_memory(err);
        }
        file->rank = rank == 0 || !view->dst ? 0 : rank - 1;
        file->parameters = rank == 0 ? 0 : RFS_IN_PLAN;
    }
    return rfs_dcp_stages(view, &view->dcp->stages, err);
}
