/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of the files of a view. Those of files of tensors are made from a listing when they are
 * needed, and kept while there is room: files with equal listings share one. Some files have one of
 * their own for good, such as those that describe the others.
 *
 * A size needs no image where another file has equal tensors, wherever in the targets they begin.
 */
#include "base/cleanup.h"
#include "formats/formats.h"
#include "view/internal.h"
#include "view/sizes.h"

#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

#define IDLE_MOST ((size_t)24 << 20) /* bytes of images that nobody reads */

/* What is known of files with a key. */
struct rfs_view_image {
    const struct rfs_image *image; /* owned; NULL: it is not there */
    uint64_t size;                 /* 1 + bytes of a file; 0: unknown */
    uint64_t used;                 /* when it was used last */
};

void rfs_view_images_end(struct rfs_view_images *images)
{
    for (size_t i = 0; i < images->by_key.n; i++)
        rfs_image_free(images->by_key.data[i].image);
    free(images->by_key.data);
    rfs_intern_free(images->keys);
}

void rfs_view_give_image(struct rfs_view_file *file, const struct rfs_image *image)
{
    atomic_init(&file->own, image);
    atomic_init(&file->size, 1 + image->bytes);
}

/* ---- files with equal listings --------------------------------------------------------------- */

/* Keys of a listing: of equal images, and of images that differ only in where tensors begin. */
struct keys {
    uint32_t same, like; /* ids in the view's keys */
};

/* Returns the table of keys; NULL when out of memory. */
static struct rfs_intern *table_of(struct rfs_view *view)
{
    RFS_LOCKED(&view->lock);
    if (!view->images.keys)
        view->images.keys = rfs_intern_new();
    return view->images.keys;
}

static int set_keys(struct rfs_view *view, const struct rfs_view_listing *listing,
                    struct keys *keys, struct rfs_error *err)
{
    const uint64_t list[] = {listing->params->id, listing->kind};
    struct rfs_intern *table = table_of(view);
    XXH3_state_t like;
    XXH3_state_t at;

    XXH3_128bits_reset(&like);
    XXH3_128bits_reset(&at);
    XXH3_128bits_update(&like, list, sizeof list);
    for (size_t i = 0; i < listing->pieces.n; i++) {
        const struct rfs_view_piece *piece = &listing->pieces.data[i];
        const uint32_t words[] = {piece->target, piece->type};
        XXH3_128bits_update(&like, words, sizeof words);
        XXH3_128bits_update(&at, &piece->at, sizeof piece->at);
    }
    XXH128_hash_t key[2] = {XXH3_128bits_digest(&like)};
    key[1] = XXH3_128bits_digest(&at);
    keys->like = table ? rfs_intern_add(table, key, sizeof *key) : RFS_NO_ID;
    keys->same = table ? rfs_intern_add(table, key, sizeof key) : RFS_NO_ID;
    return keys->like == RFS_NO_ID || keys->same == RFS_NO_ID ? rfs_fail_memory(err) : 0;
}

/* Returns what is known of a key; NULL when out of memory. The caller has the view's lock. */
static struct rfs_view_image *known(struct rfs_view *view, uint32_t key)
{
    static const struct rfs_view_image nothing;

    return RFS_VEC_AT(&view->images.by_key, key, nothing);
}

/* Takes the image of a key, or returns NULL. */
static const struct rfs_image *take(struct rfs_view *view, uint32_t key)
{
    RFS_LOCKED(&view->lock);
    struct rfs_view_image *found = known(view, key);
    if (!found || !found->image)
        return NULL;
    found->used = ++view->images.clock;
    return rfs_image_hold(found->image);
}

static uint64_t known_size(struct rfs_view *view, uint32_t key)
{
    RFS_LOCKED(&view->lock);
    const struct rfs_view_image *found = known(view, key);

    return found ? found->size : 0;
}

/* Drops the images that nobody reads and that were used longest ago, while there are too many. */
static void drop_idle(struct rfs_view_images *images)
{
    size_t idle = 0;
    struct rfs_view_image *oldest;

    do {
        idle = 0;
        oldest = NULL;
        for (size_t i = 0; i < images->by_key.n; i++) {
            struct rfs_view_image *each = &images->by_key.data[i];
            if (!each->image || atomic_load(&each->image->holders) > 0)
                continue;
            idle += rfs_image_memory(each->image);
            oldest = !oldest || each->used < oldest->used ? each : oldest;
        }
        if (idle > IDLE_MOST) {
            rfs_image_free(oldest->image);
            oldest->image = NULL;
        }
    } while (idle > IDLE_MOST);
}

/* Puts an image, which it takes over, among those of the view. Returns one that is held or NULL. */
static const struct rfs_image *put(struct rfs_view *view, const struct keys *keys,
                                   struct rfs_image *fresh)
{
    RFS_LOCKED(&view->lock);
    struct rfs_view_image *like = known(view, keys->like);

    if (like)
        like->size = 1 + fresh->bytes;
    struct rfs_view_image *same = known(view, keys->same);
    if (!same || same->image) { /* another thread was faster */
        rfs_image_free(fresh);
        return same ? rfs_image_hold(same->image) : NULL;
    }
    same->image = fresh;
    same->used = ++view->images.clock;
    rfs_image_hold(fresh);
    drop_idle(&view->images);
    return fresh;
}

/* ---- encoding -------------------------------------------------------------------------------- */

struct rfs_image_tensor *rfs_view_list_tensors(struct rfs_catalog *catalog,
                                               const struct rfs_params *params,
                                               const uint32_t *positions, size_t n)
{
    const struct rfs_intern *names = rfs_catalog_tables(catalog)->names;
    struct rfs_image_tensor *tensors = calloc(n + 1, sizeof *tensors);

    for (size_t i = 0; tensors && i < n; i++) {
        struct rfs_image_tensor *tensor = &tensors[i];
        tensor->target = positions ? positions[i] : (uint32_t)i;
        const struct rfs_target *target = &params->targets[tensor->target];
        tensor->name = rfs_intern_bytes(names, target->shown_name, &tensor->name_bytes);
        tensor->source_name = rfs_intern_text(names, target->name);
        tensor->type = rfs_catalog_type(catalog, target->shown_type);
        if (tensor->type->kind == RFS_MAP)
            tensor->lengths = rfs_catalog_lengths_of(catalog, target->lengths, &tensor->n_lengths);
    }
    return tensors;
}

int rfs_view_encode_safetensors(struct rfs_catalog *catalog, const struct rfs_params *params,
                                const uint32_t *positions, struct rfs_safetensors_content content,
                                struct rfs_image **out, struct rfs_error *err)
{
    RFS_FREE struct rfs_image_tensor *tensors =
        rfs_view_list_tensors(catalog, params, positions, content.n);

    content.tensors = tensors;
    content.path = rfs_catalog_path(catalog);
    return tensors ? rfs_safetensors_encode(&content, out, err) : rfs_fail_memory(err);
}

/* Lists the pieces for an encoder. NULL when out of memory. */
static struct rfs_image_tensor *list_pieces(struct rfs_view *view,
                                            const struct rfs_view_listing *listing)
{
    const struct rfs_intern *names = rfs_catalog_tables(view->catalog)->names;
    struct rfs_image_tensor *tensors = calloc(listing->pieces.n + 1, sizeof *tensors);

    for (size_t i = 0; tensors && i < listing->pieces.n; i++) {
        const struct rfs_view_piece *piece = &listing->pieces.data[i];
        const struct rfs_target *target = &listing->params->targets[piece->target];
        tensors[i] = (struct rfs_image_tensor){.source_name = rfs_intern_text(names, target->name),
                                               .type = rfs_catalog_type(view->catalog, piece->type),
                                               .target = piece->target,
                                               .at = piece->at};
        tensors[i].name = rfs_intern_bytes(names, piece->name, &tensors[i].name_bytes);
    }
    return tensors;
}

static int encode(struct rfs_view *view, const struct rfs_view_listing *listing,
                  struct rfs_image **out, struct rfs_error *err)
{
    const size_t n = listing->whole ? listing->params->n : listing->pieces.n;
    RFS_FREE struct rfs_image_tensor *tensors =
        listing->whole ? rfs_view_list_tensors(view->catalog, listing->params, NULL, n)
                       : list_pieces(view, listing);
    struct rfs_format_content content = {.tensors = tensors,
                                         .n = n,
                                         .path = rfs_catalog_path(view->catalog),
                                         .metadata = listing->metadata,
                                         .divide = listing->divide,
                                         .options = &view->options,
                                         .store = view->set->store};

    if (!tensors)
        return rfs_fail_memory(err);
    return view->kind->encode ? view->kind->encode(view, listing, &content, out, err)
                              : listing->row->encode(&content, out, err);
}

static void listing_end(struct rfs_view_listing *listing)
{
    free(listing->pieces.data);
}

/*
 * Makes the image of a file that has none of its own, or with OUT NULL gives its bytes. Returns 0,
 * with *out held, or -errno with *err filled.
 */
static int make(struct rfs_view *view, size_t file, const struct rfs_image **out, uint64_t *bytes,
                struct rfs_error *err)
{
    RFS_CLEANUP(listing_end) struct rfs_view_listing listing = {.params = NULL};
    struct rfs_image *fresh = NULL;
    struct keys keys;

    int rc = view->kind->list(view, file, &listing, err) ?: set_keys(view, &listing, &keys, err);
    if (rc)
        return rc;
    atomic_store(&view->files[file].key, keys.same + 1);
    const uint64_t size = out ? 0 : known_size(view, keys.like);
    RFS_IMAGE_HELD *image = size > 0 ? NULL : take(view, keys.same);
    if (size == 0 && !image) {
        rc = encode(view, &listing, &fresh, err);
        if (rc)
            return rc;
        image = put(view, &keys, fresh);
        if (!image)
            return rfs_fail_memory(err);
    }
    *bytes = size > 0 ? size - 1 : image->bytes;
    if (out)
        *out = RFS_STEAL(image);
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Notes the size of a file that is planned now. 0, or -ESTALE if another was given before. */
static int settle(struct rfs_view *view, size_t file, uint64_t bytes, struct rfs_error *err)
{
    struct rfs_view_file *shown = &view->files[file];
    const uint64_t reported = atomic_load_explicit(&shown->reported, memory_order_acquire);

    if (reported > 0 && reported - 1 != bytes) {
        rfs_view_sizes_refute(view);
        return rfs_fail(err, -ESTALE, RFS_IN(shown->name), "mount again",
                        "its sources were changed after its size was read");
    }
    /* rfs_view_is_planned acquires what this releases. */
    if (atomic_exchange_explicit(&shown->size, 1 + bytes, memory_order_acq_rel) == 0)
        rfs_view_sizes_planned(view);
    return 0;
}

/* Gives what MAKE does, also of a file with an image of its own. */
static int find(struct rfs_view *view, size_t file, const struct rfs_image **out, uint64_t *bytes,
                struct rfs_error *err)
{
    const struct rfs_image *own = RFS_PUBLISHED(&view->files[file].own);
    const uint32_t key = atomic_load(&view->files[file].key);
    int rc = own || !view->files[file].make ? 0 : rfs_view_describe(view, file, &own, err);

    if (rc == 0 && !own && key > 0 && out && (*out = take(view, key - 1)))
        *bytes = (*out)->bytes;
    else if (rc == 0 && !own)
        rc = make(view, file, out, bytes, err);
    else if (rc == 0)
        *bytes = own->bytes;
    if (rc == 0 && own && out)
        *out = rfs_image_hold(own);
    return rc;
}

int rfs_view_image(struct rfs_view *view, size_t file, const struct rfs_image **out,
                   struct rfs_error *err)
{
    RFS_IMAGE_HELD *image = NULL;
    struct rfs_error unused = {0};
    uint64_t bytes;

    *out = NULL;
    err = err ? err : &unused; /* kinds copy failures to it */
    const int rc = find(view, file, &image, &bytes, err) ?: settle(view, file, bytes, err);
    if (rc == 0)
        *out = RFS_STEAL(image);
    return rc;
}

bool rfs_view_is_planned(const struct rfs_view *view, size_t file, uint64_t *bytes)
{
    const uint64_t size = atomic_load_explicit(&view->files[file].size, memory_order_acquire);

    *bytes = size - 1;
    return size > 0;
}

int rfs_view_plan_file(struct rfs_view *view, size_t file, uint64_t *bytes, struct rfs_error *err)
{
    return rfs_view_is_planned(view, file, bytes)
               ? 0
               : find(view, file, NULL, bytes, err) ?: settle(view, file, *bytes, err);
}
