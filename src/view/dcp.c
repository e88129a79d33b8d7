/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that torch.distributed.checkpoint writes: __0_0.distcp and so on, a file for each rank,
 * and .metadata, which describes their contents. Each is made when it is looked at first; .metadata
 * depends on all ranks. Of such a folder the objects are passed on, in a second file of rank 0, and
 * the files that Megatron keeps beside the metadata.
 *
 * Ranks whose chunks have the same shapes share an image: an item says nothing of the place of its
 * chunk in the tensor. Only .metadata does.
 */
#include "view/dcp.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/order.h"
#include "base/pool.h"
#include "base/text.h"
#include "formats/chunks/dcp.h"
#include "view/beside.h"
#include "view/dcp_chunks.h"
#include "view/groups.h"
#include "view/objects.h"

#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

#define OBJECTS_NAME "__0_1.distcp"
/* Megatron's: everything that is not sharded, and the format's name. */
static const char *const passed_on[] = {"common.pt", "metadata.json"};
enum { N_PASSED_ON = sizeof passed_on / sizeof *passed_on };

/* The image of some ranks, and where its items begin and end. */
struct shared {
    XXH128_hash_t key;
    struct rfs_image *image; /* owned */
    uint64_t *ends;          /* owned; one more than there are chunks */
};

struct rfs_dcp_view {
    uint32_t *stages;            /* owned; of rfs_dcp_stages; or NULL */
    RFS_VEC(struct shared) list; /* under the view's lock */
    /*
     * The objects that are shown, and their numbers in the boxes; constant once the view is open.
     */
    RFS_VEC(struct rfs_dcp_object) objects;
    RFS_VEC(uint32_t) numbers;
    size_t objects_file; /* the file that has them; 0: there are none */
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
    free(dcp->objects.data);
    free(dcp->numbers.data);
    free(dcp);
}

/* ---- the file of a rank ---------------------------------------------------------------------- */

/* A name for the image of chunks: equal for equal images. */
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

/* The image of chunks, encoded once; a copy of the shared struct. 0 or -errno with *err filled. */
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
};

static void items_end(struct items *items)
{
    free(items->list.data);
}

static int add_rank(struct rfs_view *view, uint32_t rank, struct rfs_dcp_chunks *chunks,
                    struct items *items, struct rfs_error *err)
{
    struct shared shared;

    int rc = rfs_dcp_chunks(view, view->dcp->stages, rank, chunks, err)
                 ?: share(view, chunks, &shared, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < chunks->n; i++) {
        const struct rfs_dcp_chunk *chunk = &chunks->data[i];
        const struct rfs_dcp_item item = {
            .name = chunks->plan->params->targets[chunk->target].shown_name,
            .whole = chunk->whole,
            .type = chunk->type,
            .file = rank,
            .begin = shared.ends[i],
            .bytes = shared.ends[i + 1] - shared.ends[i],
            .shape = chunk->shape,
            .corner =
                rfs_type_number(rfs_catalog_type(view->catalog, chunk->whole), chunk->corner)};
        if (!RFS_PUSH(&items->list, item))
            return rfs_fail_memory(err);
    }
    return 0;
}

RFS_COMPARE(by_name, struct rfs_dcp_item, x, y,
            RFS_ORDER(x->name, y->name)
                ?: RFS_ORDER(x->corner, y->corner)
                ?: RFS_ORDER(x->file, y->file))

/* A name that an object has is no tensor's, as names= could have it. */
static int check_names(struct rfs_view *view, const struct items *items, struct rfs_error *err)
{
    const struct rfs_dcp_item *list = items->list.data;
    const size_t n = items->list.n;

    for (size_t i = 0; i < view->dcp->objects.n; i++) {
        const uint32_t name = view->dcp->objects.data[i].name;
        const size_t at = RFS_BISECT(k, n, list[k].name >= name);
        if (at < n && list[at].name == name)
            return rfs_objects_same_name(rfs_catalog_path(view->catalog),
                                         rfs_catalog_name(view->catalog, name), err);
    }
    return 0;
}

static int make_metadata(struct rfs_view *view, struct rfs_rank_plan *plan, struct rfs_image **out,
                         struct rfs_error *err)
{
    const struct rfs_chunks *boxes = rfs_catalog_chunks(view->catalog);
    RFS_CLEANUP(chunks_end) struct rfs_dcp_chunks chunks = {.n = 0};
    RFS_CLEANUP(items_end) struct items items = {.list = {0}};
    int rc = rfs_view_take_sources(view, plan, err);

    for (uint32_t rank = 0; rc == 0 && rank < view->n_ranks; rank++)
        rc = add_rank(view, rank, &chunks, &items, err);
    if (rc)
        return rc;
    RFS_SORT_ALL(&items.list, by_name);
    rc = check_names(view, &items, err);
    if (rc)
        return rc;
    const struct rfs_dcp_listing listing = {.items = items.list.data,
                                            .n = items.list.n,
                                            .objects = view->dcp->objects.data,
                                            .n_objects = view->dcp->objects.n,
                                            .objects_file = OBJECTS_NAME,
                                            .mcore_data = boxes && boxes->mcore_data};
    return rfs_image_dcp_metadata(view->catalog, &listing, out) ? rfs_fail_memory(err) : 0;
}

/* ---- files that are passed on ---------------------------------------------------------------- */

/* Lists the objects of the source that are shown. No file is read. */
static int list_objects(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *boxes = rfs_catalog_chunks(view->catalog);
    struct rfs_intern *names = rfs_catalog_tables(view->catalog)->names;
    uint64_t end = 0;

    for (size_t i = 0; i < boxes->objects.n; i++) {
        const struct rfs_chunked_object *object = &boxes->objects.data[i];
        const char *shown =
            rfs_output_map_name(view->output_map, rfs_intern_text(names, object->name));
        if (!shown)
            continue;
        const struct rfs_dcp_object item = {.name = rfs_intern_add(names, shown, strlen(shown)),
                                            .begin = end,
                                            .bytes = object->item_bytes};
        if (item.name == RFS_NO_ID || !RFS_PUSH(&view->dcp->objects, item) ||
            !RFS_PUSH(&view->dcp->numbers, (uint32_t)i))
            return rfs_fail_memory(err);
        if (!rfs_add_u64(end, object->item_bytes, &end))
            return rfs_fail(err, -EFBIG, RFS_IN(rfs_catalog_path(view->catalog)), NULL,
                            "its objects would be larger than a file can be");
    }
    return 0;
}

static int show_objects(struct rfs_view *view, struct rfs_error *err)
{
    const int rc = rfs_objects_check_names(view, err) ?: list_objects(view, err);

    if (rc || view->dcp->objects.n == 0)
        return rc;
    view->dcp->objects_file = view->n_files++;
    view->files[view->dcp->objects_file].name = strdup(OBJECTS_NAME);
    return view->files[view->dcp->objects_file].name ? 0 : rfs_fail_memory(err);
}

size_t rfs_dcp_objects_file(const struct rfs_view *view)
{
    return view->dcp ? view->dcp->objects_file : 0;
}

struct proving {
    struct rfs_view *view;
    struct rfs_first_error first;
};

static int prove(void *ctx, size_t i)
{
    struct proving *proving = ctx;
    struct rfs_view *view = proving->view;
    struct rfs_chunks *boxes = rfs_catalog_chunks(view->catalog);
    struct rfs_error err = {0};
    const int rc =
        rfs_dcp_prove_object(boxes, &boxes->objects.data[view->dcp->numbers.data[i]], false, &err);

    return rfs_first_error_note(&proving->first, rc, &err);
}

/* Nothing but the pickle says what an object is: torch must find one in each item. */
static int prove_objects(struct rfs_view *view, struct rfs_error *err)
{
    struct proving proving = {.view = view, .first = RFS_FIRST_ERROR};
    const int rc = rfs_dcp_objects_apart(rfs_catalog_chunks(view->catalog), err);

    return rc ? rc
              : rfs_first_error_take(
                    &proving.first,
                    rfs_pool_for(view->set->pool, view->dcp->numbers.n, prove, &proving), err);
}

/* The file of the objects: it depends on all files that have one. */
static int make_objects(struct rfs_view *view, struct rfs_rank_plan *plan, struct rfs_image **out,
                        struct rfs_error *err)
{
    const struct rfs_chunks *boxes = rfs_catalog_chunks(view->catalog);
    const size_t n = view->dcp->numbers.n;
    RFS_FREE struct rfs_copied *copied = calloc(n + 1, sizeof *copied);
    RFS_FREE unsigned char *taken = calloc((size_t)boxes->n_files + 1, 1);
    int rc = copied && taken ? prove_objects(view, err) : rfs_fail_memory(err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct rfs_chunked_object *object = &boxes->objects.data[view->dcp->numbers.data[i]];
        copied[i] = (struct rfs_copied){object->file, object->item, object->item_bytes};
        if (!taken[object->file - boxes->first_file]++)
            rc = rfs_plan_add_file(boxes->files, object->file, plan, err);
    }
    if (rc)
        return rc;
    return rfs_image_copied(copied, n, out) ? rfs_fail_memory(err) : 0;
}

/* The files behind those of the ranks. */
static int show_more(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *boxes = rfs_catalog_chunks(view->catalog);

    if (!boxes || !rfs_chunks_are_dcp(boxes))
        return 0;
    int rc = show_objects(view, err);
    for (size_t i = 0; rc == 0 && i < N_PASSED_ON; i++)
        rc = rfs_view_pass_on_own(view, passed_on[i], err);
    return rc;
}

/* ---- the kind of view ------------------------------------------------------------------------ */

/*
 * File 0 is .metadata; file 1 + R is rank R's. Those behind are ready, but for that of the objects.
 */
static int image_of(struct rfs_view *view, size_t file, const struct rfs_image **out,
                    struct rfs_error *err)
{
    RFS_CLEANUP(chunks_end) struct rfs_dcp_chunks chunks = {.n = 0};
    struct shared shared;

    if (file == 0)
        return rfs_view_describe(view, 0, make_metadata, out, err);
    if (file == view->dcp->objects_file)
        return rfs_view_describe(view, file, make_objects, out, err);
    int rc = rfs_dcp_chunks(view, view->dcp->stages, (uint32_t)file - 1, &chunks, err)
                 ?: share(view, &chunks, &shared, err);
    if (rc == 0)
        *out = shared.image;
    return rc;
}

static const struct rfs_view_kind kind = {.image = image_of, RFS_GROUPS};

int rfs_view_dcp(struct rfs_view *view, struct rfs_error *err)
{
    view->kind = &kind;
    view->n_groups = view->dst ? rfs_groups_count(view) : 1;
    if (!view->dst)
        view->n_ranks = view->options.dst_ranks ? view->options.dst_ranks : 1;
    view->dcp = calloc(1, sizeof *view->dcp);
    view->files = calloc((size_t)view->n_ranks + 1 + N_PASSED_ON + 1, sizeof *view->files);
    if (!view->dcp || !view->files)
        return rfs_fail_memory(err);
    view->n_files = (size_t)view->n_ranks + 1;
    for (uint32_t rank = 0; rank <= view->n_ranks; rank++) {
        struct shown_file *file = &view->files[rank];
        file->name = rank == 0 ? strdup(".metadata") : rfs_text_printf("__%u_0.distcp", rank - 1);
        if (!file->name)
            return rfs_fail_memory(err);
        file->rank = rank == 0 || !view->dst ? 0 : rank - 1;
        file->parameters = rank == 0 ? 0 : RFS_IN_PLAN;
    }
    const int rc = show_more(view, err);
    return rc ? rc : rfs_dcp_stages(view, &view->dcp->stages, err);
}
