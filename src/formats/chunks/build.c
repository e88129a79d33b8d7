/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that describe themselves in the making: tensors, their chunks and where they are
 * stored, then the proof that chunks tile a tensor.
 *
 * All borders of the chunks cut a tensor into a grid of cells; every chunk covers whole cells. It
 * claims each of them: a cell that is claimed twice is an overlap, a cell that nobody claims is a
 * gap. Chunks that come from device meshes are such a grid themselves, and then there are as many
 * cells as chunks. A tensor whose chunks are so irregular that the grid has many more cells is
 * refused: this bounds the time and the memory.
 */
#include "formats/chunks/chunks.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/once.h"
#include "base/order.h"
#include "base/origin.h"
#include "base/path.h"
#include "base/text.h"
#include "formats/chunks/chunk_reader.h"
#include "formats/ckpt/crc.h"

#define CHUNKS_MOST UINT32_C(0x7ffffffe)
/* by_name has 1 + the number of a tensor, or this and the number of an object, or UNREAD, or 0. */
#define OBJECT UINT32_C(0x80000000)
#define UNREAD UINT32_C(0xffffffff)

#define CELLS_TIMES 16 /* most cells for each chunk */
#define NO_CHUNK UINT32_MAX

/* ---- checksums ------------------------------------------------------------------------------- */

struct file_check {
    struct rfs_once once; /* under the lock */
    char *damage;         /* the error of a damaged file, once it is made; owned; or NULL */
};

struct rfs_chunks_checks {
    pthread_mutex_t lock; /* a leaf; guards files */
    pthread_cond_t done;
    atomic_bool told_none; /* the log says that a file has no checksum */
    uint32_t n;
    struct file_check files[]; /* [n] all files */
};

int rfs_chunks_set_checked(struct rfs_chunks *chunks)
{
    struct rfs_chunks_checks *checks =
        calloc(1, sizeof *checks + chunks->n_all_files * sizeof *checks->files);

    if (!checks)
        return -ENOMEM;
    pthread_mutex_init(&checks->lock, NULL);
    rfs_cancel_init_cond(&checks->done);
    checks->n = chunks->n_all_files;
    chunks->checks = checks;
    /* Chunks that are located wait for their file's checksum. */
    for (size_t i = 0; !chunks->format->locate && i < chunks->chunks.n; i++)
        atomic_init(&chunks->chunks.data[i].at, RFS_NOT_LOCATED);
    return 0;
}

static void free_checks(struct rfs_chunks_checks *checks)
{
    if (!checks)
        return;
    for (uint32_t i = 0; i < checks->n; i++)
        free(checks->files[i].damage);
    pthread_cond_destroy(&checks->done);
    pthread_mutex_destroy(&checks->lock);
    free(checks);
}

int rfs_chunks_check_file(struct rfs_chunks *chunks, uint32_t file, struct rfs_error *err)
{
    struct rfs_chunks_checks *checks = chunks->checks;
    struct rfs_error own = {0};

    if (!checks || !chunks->format->check)
        return 0;
    struct file_check *one = &checks->files[file - chunks->first_file];
    err = err ? err : &own;
    pthread_mutex_lock(&checks->lock);
    int rc = rfs_once_begin(&one->once, &checks->done, &checks->lock);
    if (rc == 1) {
        pthread_mutex_unlock(&checks->lock);
        rc = chunks->format->check(chunks, file, err);
        pthread_mutex_lock(&checks->lock);
        one->damage = rc == -EINVAL ? strdup(err->text) : NULL;
        rfs_once_end(&one->once, &checks->done, rc >= 0 || one->damage);
    } else if (rc == 0 && one->damage) {
        *err = (struct rfs_error){.code = rc = -EINVAL};
        snprintf(err->text, sizeof err->text, "%s", one->damage);
    }
    pthread_mutex_unlock(&checks->lock);
    return rc < 0 ? rc : 0;
}

void rfs_chunks_tell_none(struct rfs_chunks *chunks, bool records, uint32_t file)
{
    rfs_crc_tell_none(chunks->log, &chunks->checks->told_none, records,
                      rfs_files_path(chunks->files, file));
}

/* ---- tensors, chunks and objects ------------------------------------------------------------- */

/* "[0:4, 8:16]" */
struct box_text {
    char text[RFS_MAX_DIMS * 44 + 8];
};

/* Prints a box, or its first corner if HI is NULL, for messages. */
static const char *print_box(uint32_t ndim, const uint64_t *lo, const uint64_t *hi,
                             struct box_text *out)
{
    size_t used = (size_t)snprintf(out->text, sizeof out->text, "[");

    for (uint32_t i = 0; i < ndim && used < sizeof out->text; i++) {
        used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%" PRIu64,
                                 i ? ", " : "", lo[i]);
        if (hi && used < sizeof out->text)
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, ":%" PRIu64, hi[i]);
    }
    if (used < sizeof out->text)
        snprintf(out->text + used, sizeof out->text - used, "]");
    return out->text;
}

static int fail_memory(const struct rfs_chunks *chunks, struct rfs_error *err)
{
    return rfs_fail_memory_of(err, rfs_files_path(chunks->files, chunks->metadata));
}

struct rfs_chunks *rfs_chunks_new(const struct rfs_chunks_format *format,
                                  const struct rfs_chunks_source *source)
{
    struct rfs_chunks *chunks = calloc(1, sizeof *chunks);

    if (!chunks)
        return NULL;
    *chunks = (struct rfs_chunks){.format = format,
                                  .folder = strdup(source->folder),
                                  .files = source->files,
                                  .tables = source->tables,
                                  .log = source->log,
                                  .entry = source->entry,
                                  .paths = rfs_intern_new(),
                                  .first_file = rfs_files_count_paths(source->files)};
    pthread_mutex_init(&chunks->lock, NULL);
    if (chunks->folder && chunks->paths)
        return chunks;
    rfs_chunks_free(chunks);
    return NULL;
}

void rfs_chunks_free(struct rfs_chunks *chunks)
{
    if (!chunks)
        return;
    if (chunks->own)
        chunks->format->free(chunks->own);
    for (size_t i = 0; i < chunks->tensors.n; i++)
        free(chunks->tensors.data[i].grid);
    free(chunks->tensors.data);
    free(chunks->chunks.data);
    free(chunks->objects.data);
    free(chunks->unread.data);
    free(chunks->by_name.data);
    free(chunks->strided.data);
    pthread_mutex_destroy(&chunks->lock);
    rfs_intern_free(chunks->paths);
    rfs_intern_free(chunks->copy_names);
    rfs_intern_free(chunks->copy_lists);
    free(chunks->copies);
    free(chunks->copy_places.data);
    free(chunks->copy_items.data);
    free(chunks->copy_files.data);
    free(chunks->again.data);
    free(chunks->named_by.data);
    free_checks(chunks->checks);
    free(chunks->folder);
    free(chunks->lost);
    free(chunks->doubt);
    free(chunks->remedy);
    rfs_path_list_free(&chunks->dicts);
    rfs_path_list_free(&chunks->dicts_in_one);
    rfs_path_list_free(&chunks->beside);
    free(chunks);
}

/* Notes a number by a name. False when out of memory. */
static bool note_name(struct rfs_chunks *chunks, uint32_t name, uint32_t what)
{
    uint32_t *at = RFS_VEC_AT(&chunks->by_name, name, 0);

    if (at)
        *at = what;
    return at;
}

/* Returns the number by a name; 0: none. */
static uint32_t noted(const struct rfs_chunks *chunks, const char *name, size_t length)
{
    const uint32_t id = rfs_intern_find(chunks->tables->names, name, length);

    return id < chunks->by_name.n ? chunks->by_name.data[id] : 0;
}

const struct rfs_chunked_tensor *rfs_chunks_find(const struct rfs_chunks *chunks, const char *name,
                                                 size_t length)
{
    const uint32_t what = noted(chunks, name, length);

    return what == 0 || (what & OBJECT) ? NULL : &chunks->tensors.data[what - 1];
}

static int fail_twice(const struct rfs_chunks *chunks, uint32_t name, struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_CHUNKS_NAMED(chunks, name), NULL,
                    "the metadata describes it twice");
}

int rfs_chunks_add_object(struct rfs_chunks *chunks, const char *name, size_t length,
                          struct rfs_error *err)
{
    const struct rfs_chunked_object object = {
        .name = rfs_intern_add(chunks->tables->names, name, length), .file = RFS_NO_ID};

    if (object.name != RFS_NO_ID && noted(chunks, name, length))
        return fail_twice(chunks, object.name, err);
    return object.name != RFS_NO_ID && chunks->objects.n < CHUNKS_MOST &&
                   note_name(chunks, object.name, OBJECT | (uint32_t)chunks->objects.n) &&
                   RFS_PUSH(&chunks->objects, object)
               ? 0
               : fail_memory(chunks, err);
}

int rfs_chunks_add_unread(struct rfs_chunks *chunks, const char *name, size_t length,
                          const char *why, struct rfs_error *err)
{
    struct rfs_intern *names = chunks->tables->names;
    const struct rfs_chunked_unread unread = {.name = rfs_intern_add(names, name, length),
                                              .why = rfs_intern_add(names, why, strlen(why))};
    const uint32_t what = noted(chunks, name, length);

    if (what & OBJECT)
        return fail_twice(chunks, unread.name, err);
    return unread.name != RFS_NO_ID && unread.why != RFS_NO_ID &&
                   (what || note_name(chunks, unread.name, UNREAD)) &&
                   RFS_PUSH(&chunks->unread, unread)
               ? 0
               : fail_memory(chunks, err);
}

bool rfs_chunks_is_unread(const struct rfs_chunks *chunks, const char *name, size_t length)
{
    return noted(chunks, name, length) == UNREAD;
}

int rfs_chunks_add_tensor(struct rfs_chunks *chunks, const char *name, size_t length,
                          struct rfs_type *type, struct rfs_error *err)
{
    struct rfs_chunked_tensor tensor = {.first = (uint32_t)chunks->chunks.n};

    tensor.name = rfs_intern_add(chunks->tables->names, name, length);
    if (tensor.name == RFS_NO_ID)
        return fail_memory(chunks, err);
    if (noted(chunks, name, length))
        return fail_twice(chunks, tensor.name, err);
    if (!rfs_type_bytes(type, &type->bytes))
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(chunks, &tensor), NULL,
                        "the tensor would have more than 2^63 bytes");
    tensor.type = tensor.stored = rfs_intern_add(chunks->tables->types, type, sizeof *type);
    if (tensor.type == RFS_NO_ID || !RFS_PUSH(&chunks->tensors, tensor) ||
        !note_name(chunks, tensor.name, (uint32_t)chunks->tensors.n))
        return fail_memory(chunks, err);
    return 0;
}

int rfs_chunks_add_chunk(struct rfs_chunks *chunks, const uint64_t *offset, const uint64_t *size,
                         struct rfs_error *err)
{
    struct rfs_chunked_tensor *tensor = &chunks->tensors.data[chunks->tensors.n - 1];
    const struct rfs_type *whole = rfs_chunks_type(chunks, tensor->stored);
    struct rfs_type type = *whole;
    bool outside = false;

    type.bytes = rfs_dtype_bytes((enum rfs_dtype)type.dtype);
    for (uint32_t i = 0; i < type.ndim; i++) {
        outside |= offset[i] > whole->dims[i] || size[i] > whole->dims[i] - offset[i];
        type.dims[i] = size[i];
    }
    if (outside) {
        struct box_text text;
        uint64_t end[RFS_MAX_DIMS];
        for (uint32_t i = 0; i < type.ndim; i++)
            if (!rfs_add_u64(offset[i], size[i], &end[i]))
                end[i] = UINT64_MAX;
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(chunks, tensor), NULL,
                        "the chunk %s lies outside of the tensor",
                        print_box(type.ndim, offset, end, &text));
    }
    rfs_type_bytes(&type, &type.bytes); /* no more than those of the tensor */
    if (type.bytes == 0)
        return 0;
    struct rfs_chunk chunk = {.corner = rfs_type_number(whole, offset), .file = RFS_NO_ID};
    atomic_init(&chunk.at, RFS_NOT_LOCATED);
    chunk.type = rfs_intern_add(chunks->tables->types, &type, sizeof type);
    if (chunk.type == RFS_NO_ID || chunks->chunks.n >= CHUNKS_MOST ||
        !RFS_PUSH(&chunks->chunks, chunk))
        return fail_memory(chunks, err);
    tensor->n++;
    return 0;
}

RFS_COMPARE(by_corner, struct rfs_chunk, x, y,
            RFS_ORDER(x->corner, y->corner) ?: RFS_ORDER(x->type, y->type))

/* Sorts the chunks of a tensor, which go to position TO, each once. Returns how many, or -1. */
static int64_t sort_chunks(struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                           uint32_t to)
{
    struct rfs_chunk *all = chunks->chunks.data;
    const uint32_t first = to;

    if (tensor->n == 0) /* there may be no chunks at all */
        return 0;
    RFS_SORT(&all[tensor->first], tensor->n, by_corner);
    for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
        const struct rfs_chunk *last = to > first ? &all[to - 1] : NULL;
        if (last && last->corner == all[i].corner && last->type != all[i].type)
            return -1;
        if (!last || last->corner != all[i].corner)
            all[to++] = all[i];
    }
    return to - first;
}

int rfs_chunks_sort(struct rfs_chunks *chunks, struct rfs_error *err)
{
    uint32_t n = 0;

    for (size_t i = 0; i < chunks->tensors.n; i++) {
        struct rfs_chunked_tensor *tensor = &chunks->tensors.data[i];
        const int64_t left = sort_chunks(chunks, tensor, n);
        if (left < 0)
            return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(chunks, tensor), NULL,
                            "two chunks of different shapes begin at the same element");
        tensor->first = n;
        tensor->n = (uint32_t)left;
        n += tensor->n;
    }
    chunks->chunks.n = n;
    /* Copies may have been most of them. */
    struct rfs_chunk *left = reallocarray(chunks->chunks.data, (size_t)n + 1, sizeof *left);
    if (left) {
        chunks->chunks.data = left;
        chunks->chunks.cap = (size_t)n + 1;
    }
    return 0;
}

uint32_t rfs_chunks_add_file(struct rfs_chunks *chunks, const char *path, size_t length,
                             struct rfs_error *err)
{
    const char *metadata = rfs_files_path(chunks->files, chunks->metadata);
    const uint32_t known = rfs_intern_count(chunks->paths);
    RFS_FREE char *name = strndup(path, length);

    if (!name) {
        fail_memory(chunks, err);
        return RFS_NO_ID;
    }
    if (strlen(name) != length || !rfs_origin_stays(name)) {
        rfs_fail(err, -EINVAL, RFS_IN(metadata), NULL,
                 "the file '%s' is not in the folder of the checkpoint", name);
        return RFS_NO_ID;
    }
    const uint32_t id = rfs_intern_add(chunks->paths, path, length);
    RFS_FREE char *joined = id == known ? rfs_path_join(chunks->folder, name) : NULL;
    if (id == RFS_NO_ID ||
        (id == known && (!joined || rfs_files_add(chunks->files, joined) == UINT32_MAX))) {
        fail_memory(chunks, err);
        return RFS_NO_ID;
    }
    return chunks->first_file + id;
}

/* Returns the chunk of a tensor with that corner, or NULL. */
static struct rfs_chunk *find_corner(const struct rfs_chunks *chunks,
                                     const struct rfs_chunked_tensor *tensor, uint64_t corner)
{
    struct rfs_chunk *all = chunks->chunks.data + tensor->first;
    const size_t at = RFS_BISECT_KEY(i, tensor->n, all[i].corner, corner);

    return at < tensor->n ? &all[at] : NULL;
}

uint32_t rfs_chunks_add_copy_file(struct rfs_chunks *chunks, const char *path, size_t length,
                                  struct rfs_error *err)
{
    if (!chunks->copy_names)
        chunks->copy_names = rfs_intern_new();
    const uint32_t number =
        chunks->copy_names ? rfs_intern_add(chunks->copy_names, path, length) : RFS_NO_ID;
    if (number == RFS_NO_ID)
        fail_memory(chunks, err);
    return number;
}

/* Makes room for the copies of all chunks. False when out of memory. */
static bool begin_copies(struct rfs_chunks *chunks)
{
    if (chunks->copies)
        return true;
    chunks->copy_lists = rfs_intern_new();
    chunks->copies = malloc((chunks->chunks.n + 1) * sizeof *chunks->copies);
    for (size_t i = 0; chunks->copies && i < chunks->chunks.n; i++)
        chunks->copies[i] = (struct rfs_chunk_copies){.list = RFS_NO_ID, .instead = RFS_NO_ID};
    return chunks->copies && chunks->copy_lists;
}

/* Sets the further copies of chunk number CHUNK. */
static int set_copies(struct rfs_chunks *chunks, size_t chunk, const uint32_t *files,
                      const uint64_t *places, size_t n, struct rfs_error *err)
{
    bool room = begin_copies(chunks) && chunks->copy_places.n < CHUNKS_MOST - n;
    const struct rfs_chunk_copies copies = {
        .list = room ? rfs_intern_add(chunks->copy_lists, files, n * sizeof *files) : RFS_NO_ID,
        .first = (uint32_t)chunks->copy_places.n,
        .instead = RFS_NO_ID};
    room = copies.list != RFS_NO_ID;
    for (size_t i = 0; places && room && i < n; i++)
        room = RFS_PUSH(&chunks->copy_places, places[i]);
    if (!room)
        return fail_memory(chunks, err);
    chunks->copies[chunk] = copies;
    return 0;
}

int rfs_chunks_store_copies(struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                            const uint64_t *offset, const uint32_t *files, const uint64_t *places,
                            size_t n, struct rfs_error *err)
{
    const struct rfs_type *whole = rfs_chunks_type(chunks, tensor->stored);
    const struct rfs_chunk *chunk =
        n > 0 ? find_corner(chunks, tensor, rfs_type_number(whole, offset)) : NULL;

    return chunk ? set_copies(chunks, (size_t)(chunk - chunks->chunks.data), files, places, n, err)
                 : 0;
}

RFS_COMPARE(by_chunk, struct rfs_chunk_again, x, y,
            RFS_ORDER(x->chunk, y->chunk) ?: RFS_ORDER(x->file, y->file)
            ?: RFS_ORDER(x->item, y->item))

/* Sorts what is stored again, each place once. */
static void sort_again(struct rfs_chunks *chunks)
{
    struct rfs_chunk_again *again = chunks->again.data;
    size_t n = 0;

    RFS_SORT_ALL(&chunks->again, by_chunk);
    for (size_t i = 0; i < chunks->again.n; i++) {
        if (n == 0 || by_chunk(&again[n - 1], &again[i]) != 0)
            again[n++] = again[i];
    }
    chunks->again.n = n;
}

/* Gives the place of what is stored again. False when out of memory. */
static bool place_again(struct rfs_chunks *chunks, const struct rfs_chunk_again *again,
                        uint64_t *place)
{
    struct rfs_copy_item item = {.item = again->item, .item_bytes = again->item_bytes};

    *place = again->item;
    if (chunks->format->keyed)
        return true;
    *place = chunks->copy_items.n;
    atomic_init(&item.at, RFS_NOT_LOCATED);
    return RFS_PUSH(&chunks->copy_items, item);
}

/* Makes copies of what is stored again. */
static int copy_again(struct rfs_chunks *chunks, struct rfs_error *err)
{
    sort_again(chunks);
    const size_t n = chunks->again.n;
    const struct rfs_chunk_again *again = chunks->again.data;
    RFS_FREE uint32_t *files = calloc(n + 1, sizeof *files);
    RFS_FREE uint64_t *places = calloc(n + 1, sizeof *places);
    int rc = files && places ? 0 : fail_memory(chunks, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        files[i] = again[i].file;
        rc = place_again(chunks, &again[i], &places[i]) ? 0 : fail_memory(chunks, err);
    }
    for (size_t i = 0, end; rc == 0 && i < n; i = end) {
        for (end = i + 1; end < n && again[end].chunk == again[i].chunk; end++)
            ;
        rc = set_copies(chunks, again[i].chunk, files + i, places + i, end - i, err);
    }
    free(chunks->again.data);
    chunks->again.data = NULL;
    chunks->again.n = chunks->again.cap = 0;
    return rc;
}

int rfs_chunks_store(struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                     const uint64_t *offset, uint32_t file, uint64_t item, uint64_t item_bytes,
                     struct rfs_error *err)
{
    const struct rfs_type *whole = rfs_chunks_type(chunks, tensor->stored);
    struct box_text text;
    bool at_end = false;
    bool beyond = false;

    for (uint32_t i = 0; i < whole->ndim; i++) {
        at_end |= offset[i] == whole->dims[i];
        beyond |= offset[i] > whole->dims[i];
    }
    struct rfs_chunk *chunk =
        at_end || beyond ? NULL : find_corner(chunks, tensor, rfs_type_number(whole, offset));
    if (at_end && !beyond)
        return 0; /* nothing can begin there */
    if (chunk && chunk->file != RFS_NO_ID && chunks->format->again) {
        const struct rfs_chunk_again again = {(uint32_t)(chunk - chunks->chunks.data), file, item,
                                              item_bytes};
        if (chunk->file == file && chunk->item == item)
            return 1;
        return RFS_PUSH(&chunks->again, again) ? 1 : fail_memory(chunks, err);
    }
    if (!chunk || chunk->file != RFS_NO_ID)
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(chunks, tensor), NULL,
                        chunk ? "the metadata stores the chunk at %s twice"
                              : "the metadata stores a chunk at %s that it does not describe",
                        print_box(whole->ndim, offset, NULL, &text));
    chunk->file = file;
    chunk->item = item;
    chunk->item_bytes = item_bytes;
    return 0;
}

int rfs_chunks_store_object(struct rfs_chunks *chunks, const char *name, size_t length,
                            uint32_t file, uint64_t item, uint64_t item_bytes,
                            struct rfs_error *err)
{
    const uint32_t what = noted(chunks, name, length);
    struct rfs_chunked_object *object =
        what != UNREAD && (what & OBJECT) ? &chunks->objects.data[what & ~OBJECT] : NULL;

    if (object && object->file != RFS_NO_ID && chunks->format->again)
        return 0; /* each rank may have stored it */
    if (!object || object->file != RFS_NO_ID)
        return rfs_fail(err, -EINVAL, RFS_OF(rfs_files_path(chunks->files, chunks->metadata), name),
                        NULL,
                        object ? "the metadata stores it twice"
                               : "the metadata stores it and does not describe it");
    object->file = file;
    object->item = item;
    object->item_bytes = item_bytes;
    return 0;
}

/* ---- tensors that were flattened; boxes.c draws them ----------------------------------------- */

/*
 * Says whether the axes of a tensor of type STORED can be those of WHOLE in tiles, and of a tile.
 */
static bool has_tiles(const struct rfs_type *stored, const struct rfs_type *whole)
{
    uint64_t elements = 1;

    if (stored->ndim != whole->ndim + 1)
        return false;
    for (uint32_t i = 0; i < whole->ndim; i++)
        if (stored->dims[i] == 0 || whole->dims[i] % stored->dims[i] != 0 ||
            !rfs_mul_u64(elements, whole->dims[i] / stored->dims[i], &elements))
            return false;
    return elements == stored->dims[whole->ndim];
}

/*
 * Says whether a tensor can be one of type WHOLE that was flattened: each chunk lies in one tile.
 */
static bool may_be_flat(const struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                        const struct rfs_type *whole)
{
    if (!has_tiles(rfs_chunks_type(chunks, tensor->stored), whole))
        return false;
    for (uint32_t c = tensor->first; c < tensor->first + tensor->n; c++) {
        const struct rfs_type *type = rfs_chunks_type_of(chunks, c);
        for (uint32_t i = 0; i + 1 < type->ndim; i++)
            if (type->dims[i] != 1)
                return false;
    }
    return true;
}

bool rfs_chunks_may_be_flat(const struct rfs_chunks *chunks,
                            const struct rfs_chunked_tensor *tensor,
                            const struct rfs_chunked_tensor *whole)
{
    return may_be_flat(chunks, tensor, rfs_chunks_type(chunks, whole->type));
}

int rfs_chunks_unflatten(struct rfs_chunks *chunks, const char *name, size_t length, uint32_t ndim,
                         const uint64_t *dims, struct rfs_error *err)
{
    const struct rfs_chunked_tensor *found = rfs_chunks_find(chunks, name, length);
    const char *path = rfs_files_path(chunks->files, chunks->metadata);

    if (!found || rfs_chunks_is_flat(found))
        return rfs_fail(err, -EINVAL, RFS_OF(path, name), NULL,
                        found ? "the metadata gives it two shapes"
                              : "the metadata gives a shape to a tensor that it does not describe");
    struct rfs_chunked_tensor *tensor = &chunks->tensors.data[found - chunks->tensors.data];
    const struct rfs_type *stored = rfs_chunks_type(chunks, tensor->stored);
    struct rfs_type whole = {.ndim = (uint8_t)ndim, .dtype = stored->dtype, .kind = stored->kind};
    char has[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
    char is[RFS_DIMS_TEXT(RFS_MAX_DIMS)];

    memcpy(whole.dims, dims, ndim * sizeof *dims);
    if (!rfs_type_bytes(&whole, &whole.bytes) || !may_be_flat(chunks, tensor, &whole))
        return rfs_fail(err, -EINVAL, RFS_OF(path, name), NULL,
                        "it is stored as %s, which is not %s flattened piece by piece",
                        rfs_text_dims(has, sizeof has, stored->ndim, stored->dims),
                        rfs_text_dims(is, sizeof is, whole.ndim, whole.dims));
    tensor->type = rfs_intern_add(chunks->tables->types, &whole, sizeof whole);
    return tensor->type != RFS_NO_ID ? 0 : fail_memory(chunks, err);
}

/* ---- the grid -------------------------------------------------------------------------------- */

RFS_COMPARE(by_value, uint64_t, x, y, RFS_ORDER(*x, *y))

struct gridding {
    const struct rfs_chunks *chunks;
    const struct rfs_chunked_tensor *tensor;
    const struct rfs_type *whole;
    uint32_t n_edges[RFS_MAX_DIMS];
    uint64_t *edges; /* owned; borders along axis 0, then along axis 1 and so on */
    uint64_t n_cells;
    struct rfs_error *err;
};

/* Gives each axis its borders. 0 or -ENOMEM. */
static int collect_edges(struct gridding *g)
{
    const uint32_t ndim = g->whole->ndim;
    const size_t most = 2 * (size_t)g->tensor->n + 2;
    RFS_FREE uint64_t *all = malloc(most * sizeof *all);
    uint64_t at[RFS_MAX_DIMS];
    size_t used = 0;

    for (uint32_t axis = 0; all && axis < ndim; axis++) {
        size_t n = 0;
        size_t distinct = 0;
        all[n++] = 0;
        all[n++] = g->whole->dims[axis];
        for (uint32_t c = g->tensor->first; c < g->tensor->first + g->tensor->n; c++) {
            rfs_chunks_corner(g->chunks, g->tensor, c, at);
            all[n++] = at[axis];
            all[n++] = at[axis] + rfs_chunks_type_of(g->chunks, c)->dims[axis];
        }
        RFS_SORT(all, n, by_value);
        for (size_t i = 0; i < n; i++)
            if (distinct == 0 || all[i] != all[distinct - 1])
                all[distinct++] = all[i];
        uint64_t *more = reallocarray(g->edges, used + distinct, sizeof *more);
        if (!more)
            return rfs_fail_memory(g->err);
        memcpy(more + used, all, distinct * sizeof *all);
        g->edges = more;
        g->n_edges[axis] = (uint32_t)distinct;
        used += distinct;
    }
    return all ? 0 : rfs_fail_memory(g->err);
}

/* Counts the cells, within bounds. */
static int count_cells(struct gridding *g)
{
    g->n_cells = 1;
    for (uint32_t i = 0; i < g->whole->ndim; i++)
        if (!rfs_mul_u64(g->n_cells, g->n_edges[i] - 1, &g->n_cells) ||
            g->n_cells > (uint64_t)CELLS_TIMES * g->tensor->n)
            return rfs_fail(g->err, -ENOTSUP, RFS_CHUNKS_OF(g->chunks, g->tensor), NULL,
                            "its %u chunks are too irregular: they do not form a grid",
                            g->tensor->n);
    return 0;
}

/* Makes a grid in one block of memory: the struct, the edges, the cells. */
static struct rfs_chunk_grid *new_grid(const struct gridding *g)
{
    size_t n_edges = 0;

    for (uint32_t i = 0; i < g->whole->ndim; i++)
        n_edges += g->n_edges[i];
    struct rfs_chunk_grid *grid =
        malloc(sizeof *grid + n_edges * sizeof *g->edges + g->n_cells * sizeof *grid->cells);
    if (!grid)
        return NULL;
    uint64_t *edges = (uint64_t *)(grid + 1);
    memcpy(edges, g->edges, n_edges * sizeof *edges);
    grid->cells = (uint32_t *)(edges + n_edges);
    for (uint64_t i = 0; i < g->n_cells; i++)
        grid->cells[i] = NO_CHUNK;
    for (uint32_t i = 0; i < g->whole->ndim; i++) {
        grid->pieces[i] = g->n_edges[i] - 1;
        grid->edge[i] = edges;
        edges += g->n_edges[i];
    }
    return grid;
}

/* Returns the piece of an axis that begins at a border. */
static uint32_t piece_at(const struct rfs_chunk_grid *grid, uint32_t axis, uint64_t border)
{
    return (uint32_t)RFS_BISECT(i, grid->pieces[axis], grid->edge[axis][i] >= border);
}

/* Prints the box of a cell. */
static const char *print_cell(const struct gridding *g, const struct rfs_chunk_grid *grid,
                              uint64_t cell, struct box_text *text)
{
    uint64_t lo[RFS_MAX_DIMS];
    uint64_t hi[RFS_MAX_DIMS];

    for (uint32_t i = g->whole->ndim; i-- > 0; cell /= grid->pieces[i]) {
        const uint64_t *edge = &grid->edge[i][cell % grid->pieces[i]];
        lo[i] = edge[0];
        hi[i] = edge[1];
    }
    return print_box(g->whole->ndim, lo, hi, text);
}

/* Claims the cells of a chunk. */
static int claim(const struct gridding *g, struct rfs_chunk_grid *grid, uint32_t chunk)
{
    const uint32_t ndim = g->whole->ndim;
    const struct rfs_type *type = rfs_chunks_type_of(g->chunks, chunk);
    uint64_t at[RFS_MAX_DIMS];
    uint32_t first[RFS_MAX_DIMS];
    uint32_t end[RFS_MAX_DIMS];
    uint32_t cell[RFS_MAX_DIMS];
    struct box_text text;

    rfs_chunks_corner(g->chunks, g->tensor, chunk, at);
    for (uint32_t i = 0; i < ndim; i++) {
        cell[i] = first[i] = piece_at(grid, i, at[i]);
        end[i] = piece_at(grid, i, at[i] + type->dims[i]);
    }
    for (;;) {
        uint64_t number = 0;
        for (uint32_t i = 0; i < ndim; i++)
            number = number * grid->pieces[i] + cell[i];
        if (grid->cells[number] != NO_CHUNK)
            return rfs_fail(g->err, -EINVAL, RFS_CHUNKS_OF(g->chunks, g->tensor), NULL,
                            "two chunks of the metadata overlap in %s",
                            print_cell(g, grid, number, &text));
        grid->cells[number] = chunk - g->tensor->first;
        uint32_t axis = ndim;
        while (axis > 0 && ++cell[axis - 1] == end[axis - 1]) {
            axis--;
            cell[axis] = first[axis];
        }
        if (axis == 0)
            return 0;
    }
}

/* Fills the cells: 0, 1 where a cell is in no chunk because files are lost, or -errno. */
static int fill(const struct gridding *g, struct rfs_chunk_grid *grid)
{
    struct box_text text;
    int rc = 0;

    for (uint32_t c = 0; rc == 0 && c < g->tensor->n; c++)
        rc = claim(g, grid, g->tensor->first + c);
    for (uint64_t i = 0; rc == 0 && i < g->n_cells; i++)
        if (grid->cells[i] == NO_CHUNK)
            rc = g->chunks->lost ? 1
                                 : rfs_fail(g->err, -EINVAL, RFS_CHUNKS_OF(g->chunks, g->tensor),
                                            g->chunks->remedy, "the metadata has no chunk for %s",
                                            print_cell(g, grid, i, &text));
    return rc;
}

static void gridding_end(struct gridding *g)
{
    free(g->edges);
}

/* Checks that each chunk of a tensor is stored. */
static int check_stored(const struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                        struct rfs_error *err)
{
    const struct rfs_type *whole = rfs_chunks_type(chunks, tensor->stored);

    for (uint32_t c = tensor->first; c < tensor->first + tensor->n; c++) {
        struct box_text text;
        uint64_t at[RFS_MAX_DIMS];
        if (chunks->chunks.data[c].file != RFS_NO_ID)
            continue;
        rfs_chunks_corner(chunks, tensor, c, at);
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(chunks, tensor), NULL,
                        "the metadata does not say where the chunk at %s is stored",
                        print_box(whole->ndim, at, NULL, &text));
    }
    return 0;
}

/* Proves that the chunks of a tensor, which are sorted, tile it, and makes their grid. */
static int make_grid(const struct rfs_chunks *chunks, struct rfs_chunked_tensor *tensor,
                     struct rfs_error *err)
{
    RFS_CLEANUP(gridding_end)
    struct gridding g = {.chunks = chunks,
                         .tensor = tensor,
                         .whole = rfs_chunks_type(chunks, tensor->stored),
                         .err = err};

    int rc = check_stored(chunks, tensor, err);
    if (rc || g.whole->bytes == 0)
        return rc;
    if (tensor->n == 1 && chunks->chunks.data[tensor->first].type == tensor->stored)
        return 0;
    if (tensor->n == 0 && chunks->lost) {
        tensor->incomplete = true;
        return 0;
    }
    if (tensor->n == 0)
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(chunks, tensor), chunks->remedy,
                        "the metadata has no chunk for any of its elements");
    rc = collect_edges(&g) ?: count_cells(&g);
    if (rc)
        return rc;
    struct rfs_chunk_grid *grid = new_grid(&g);
    if (!grid)
        return rfs_fail_memory(err);
    rc = fill(&g, grid);
    tensor->incomplete = rc > 0;
    if (rc) {
        free(grid);
        return rc < 0 ? rc : 0;
    }
    tensor->grid = grid;
    return 0;
}

static int check_objects(const struct rfs_chunks *chunks, struct rfs_error *err)
{
    for (size_t i = 0; i < chunks->objects.n; i++)
        if (chunks->objects.data[i].file == RFS_NO_ID)
            return rfs_fail(err, -EINVAL, RFS_CHUNKS_NAMED(chunks, chunks->objects.data[i].name),
                            NULL, "the metadata does not say where it is stored");
    return 0;
}

/* Gives the files of copies their ids. */
static int add_copy_files(struct rfs_chunks *chunks, struct rfs_error *err)
{
    const uint32_t n = chunks->copy_names ? rfs_intern_count(chunks->copy_names) : 0;

    for (uint32_t i = 0; i < n; i++) {
        size_t length;
        const char *path = (const char *)rfs_intern_bytes(chunks->copy_names, i, &length);
        const uint32_t file = rfs_chunks_add_file(chunks, path, length, err);
        if (file == RFS_NO_ID)
            return err ? err->code : -EINVAL;
        if (!RFS_PUSH(&chunks->copy_files, file))
            return fail_memory(chunks, err);
    }
    return 0;
}

int rfs_chunks_finish(struct rfs_chunks *chunks, struct rfs_error *err)
{
    int rc = check_objects(chunks, err);

    if (rc == 0 && chunks->again.n > 0)
        rc = copy_again(chunks, err);
    for (size_t i = 0; rc == 0 && i < chunks->tensors.n; i++)
        rc = make_grid(chunks, &chunks->tensors.data[i], err);
    chunks->n_files = rfs_intern_count(chunks->paths);
    if (rc == 0 && chunks->copies)
        rc = add_copy_files(chunks, err);
    chunks->n_all_files = rfs_intern_count(chunks->paths);
    rfs_intern_free(chunks->paths);
    rfs_intern_free(chunks->copy_names);
    chunks->paths = chunks->copy_names = NULL;
    return rc;
}

int rfs_chunks_check_flat(const char *file, const char *name, size_t length, struct rfs_error *err)
{
    static const char flat[] = "_flat_param";
    const size_t bytes = sizeof flat - 1;

    if (length < bytes || strcmp(name + length - bytes, flat) != 0 ||
        (length > bytes && name[length - bytes - 1] != '.'))
        return 0;
    return rfs_fail(err, -ENOTSUP, RFS_OF(file, name),
                    "FSDP's SHARDED_STATE_DICT or FULL_STATE_DICT, and to save it again",
                    "it is FSDP's LOCAL_STATE_DICT: nothing says which parameters lie in it");
}

/* ---- checkpoints without metadata ------------------------------------------------------------ */

static const struct rfs_type *type_of(const struct rfs_local_chunks *locals, uint32_t type)
{
    return rfs_chunks_type(locals->chunks, type);
}

static const uint64_t *corner_of(const struct rfs_local_chunks *locals,
                                 const struct rfs_local_chunk *local)
{
    return locals->corners.data + local->corner;
}

bool rfs_chunks_add_local(struct rfs_local_chunks *locals, const struct rfs_local_chunk *local,
                          const uint64_t *corner)
{
    struct rfs_local_chunk added = *local;
    const uint32_t ndim = type_of(locals, local->type)->ndim;

    added.corner = locals->corners.n;
    for (uint32_t i = 0; i < ndim; i++)
        if (!RFS_PUSH(&locals->corners, corner[i]))
            return false;
    return RFS_PUSH(&locals->list, added);
}

/* Compares by name, box and file. Names are numbered in the order in which they came. */
static int compare(const void *a, const void *b, void *ctx)
{
    const struct rfs_local_chunks *locals = ctx;
    const struct rfs_local_chunk *x = a;
    const struct rfs_local_chunk *y = b;
    const uint64_t *at_x = corner_of(locals, x);
    const uint64_t *at_y = corner_of(locals, y);

    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    const uint32_t ndim = type_of(locals, x->type)->ndim;
    if (ndim != type_of(locals, y->type)->ndim)
        return ndim < type_of(locals, y->type)->ndim ? -1 : 1;
    for (uint32_t i = 0; i < ndim; i++)
        if (at_x[i] != at_y[i])
            return at_x[i] < at_y[i] ? -1 : 1;
    return (x->file > y->file) - (x->file < y->file);
}

/* Returns where the chunks with the name of chunk I end. */
static size_t end_of(const struct rfs_local_chunks *locals, size_t i)
{
    size_t end = i;

    while (end < locals->list.n && locals->list.data[end].name == locals->list.data[i].name)
        end++;
    return end;
}

static int fail(const struct rfs_local_chunks *locals, const struct rfs_local_chunk *local,
                struct rfs_error *err, const char *what)
{
    const struct rfs_chunks *chunks = locals->chunks;

    return rfs_fail(err, -EINVAL,
                    RFS_OF(rfs_files_path(chunks->files, local->file),
                           rfs_intern_text(chunks->tables->names, local->name)),
                    "files of one save that has ended", "%s", what);
}

/* Takes the box of a chunk into the type of its tensor. */
static int take_local(const struct rfs_local_chunks *locals, const struct rfs_local_chunk *first,
                      const struct rfs_local_chunk *local, struct rfs_type *whole,
                      struct rfs_error *err)
{
    const struct rfs_type *type = type_of(locals, local->type);
    const uint64_t *corner = corner_of(locals, local);
    uint64_t end;

    if (type->dtype != whole->dtype || type->ndim != whole->ndim || local->whole != first->whole)
        return fail(locals, local, err,
                    "its dtype, or the shape of the whole tensor, differs between the files");
    for (uint32_t i = 0; i < type->ndim; i++) {
        if (!rfs_add_u64(corner[i], type->dims[i], &end))
            return fail(locals, local, err, "its piece ends beyond any tensor");
        if (local->whole == RFS_NO_ID && end > whole->dims[i])
            whole->dims[i] = end;
    }
    return 0;
}

static int declare(const struct rfs_local_chunks *locals, size_t begin, size_t end,
                   struct rfs_error *err)
{
    const struct rfs_local_chunk *first = &locals->list.data[begin];
    struct rfs_type whole =
        *type_of(locals, first->whole != RFS_NO_ID ? first->whole : first->type);
    size_t length;
    const char *name =
        (const char *)rfs_intern_bytes(locals->chunks->tables->names, first->name, &length);
    int rc = 0;

    for (size_t i = begin; rc == 0 && i < end; i++)
        rc = take_local(locals, first, &locals->list.data[i], &whole, err);
    if (rc == 0)
        rc = rfs_chunks_add_tensor(locals->chunks, name, length, &whole, err);
    for (size_t i = begin; rc == 0 && i < end; i++) {
        const struct rfs_local_chunk *local = &locals->list.data[i];
        rc = rfs_chunks_add_chunk(locals->chunks, corner_of(locals, local),
                                  type_of(locals, local->type)->dims, err);
    }
    return rc;
}

/* Says whether two chunks are of one box of a tensor. */
static bool is_copy(const struct rfs_local_chunks *locals, const struct rfs_local_chunk *a,
                    const struct rfs_local_chunk *b)
{
    const uint32_t ndim = type_of(locals, a->type)->ndim;

    return a->name == b->name && a->type == b->type &&
           (ndim == 0 ||
            memcmp(corner_of(locals, a), corner_of(locals, b), ndim * sizeof(uint64_t)) == 0);
}

/* The further copies of a chunk: their files, and where they are in these. */
struct others {
    RFS_VEC(uint32_t) files;
    RFS_VEC(uint64_t) places;
};

static void others_end(struct others *others)
{
    free(others->files.data);
    free(others->places.data);
}

/* Stores the chunk at I and its copies, which follow it. Moves *I behind them. */
static int store_local(const struct rfs_local_chunks *locals, size_t *i, struct others *others,
                       struct rfs_error *err)
{
    struct rfs_chunks *chunks = locals->chunks;
    const struct rfs_local_chunk *local = &locals->list.data[(*i)++];
    const struct rfs_type *type = type_of(locals, local->type);
    size_t length;
    const char *name = (const char *)rfs_intern_bytes(chunks->tables->names, local->name, &length);
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(chunks, name, length);

    others->files.n = others->places.n = 0;
    for (; *i < locals->list.n && is_copy(locals, local, &locals->list.data[*i]); ++*i)
        if (!RFS_PUSH(&others->files, locals->list.data[*i].file) ||
            !RFS_PUSH(&others->places, locals->list.data[*i].at))
            return rfs_fail_memory(err);
    if (type->bytes == 0)
        return 0;
    if (others->files.n >= local->promised)
        chunks->tensors.data[tensor - chunks->tensors.data].on_trust = true;
    return rfs_chunks_store(chunks, tensor, corner_of(locals, local), local->file, local->at,
                            type->bytes, err)
               ?: rfs_chunks_store_copies(chunks, tensor, corner_of(locals, local),
                                          others->files.data, others->places.data, others->files.n,
                                          err);
}

static int store(const struct rfs_local_chunks *locals, struct rfs_error *err)
{
    RFS_CLEANUP(others_end) struct others others = {.files = {0}};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < locals->list.n;)
        rc = store_local(locals, &i, &others, err);
    return rc;
}

/*
 * Declares, stores and finishes. Of equal chunks the one in the first file counts, and the others
 * are its further copies; where these are more than promised, the tensor is taken on trust.
 */
static int finish_local(struct rfs_local_chunks *locals, struct rfs_error *err)
{
    struct rfs_chunks *chunks = locals->chunks;
    int rc = 0;

    RFS_SORT_BY(locals->list.data, locals->list.n, compare, locals);
    for (size_t i = 0, end; rc == 0 && i < locals->list.n; i = end) {
        end = end_of(locals, i);
        rc = declare(locals, i, end, err);
    }
    if (rc == 0)
        rc = rfs_chunks_sort(chunks, err);
    if (rc == 0)
        rc = store(locals, err);
    if (rc == 0)
        rc = rfs_chunks_finish(chunks, err);
    for (size_t i = 0; rc == 0 && i < chunks->chunks.n; i++)
        atomic_init(&chunks->chunks.data[i].at, chunks->chunks.data[i].item);
    chunks->n_files = chunks->n_all_files = chunks->first_file;
    chunks->first_file = 0;
    return rc;
}

int rfs_chunks_open_local(const struct rfs_chunks_format *format,
                          const struct rfs_chunks_source *source, rfs_read_local_fn *read,
                          void *ctx, struct rfs_chunks **out, struct rfs_error *err)
{
    struct rfs_local_chunks locals = {.chunks = rfs_chunks_new(format, source)};
    const uint32_t n = rfs_files_count_paths(source->files);
    struct rfs_error own = {0};
    int rc = locals.chunks ? 0 : rfs_fail_memory(err);

    if (rc == 0 && source->lost && (locals.chunks->lost = strdup(source->lost)) == NULL)
        rc = rfs_fail_memory(err);
    for (uint32_t file = 0; rc == 0 && file < n; file++)
        rc = read(ctx, &locals, file, err ? err : &own);
    if (rc == 0)
        rc = finish_local(&locals, err);
    free(locals.list.data);
    free(locals.corners.data);
    if (rc) {
        rfs_chunks_free(locals.chunks);
        locals.chunks = NULL;
    }
    *out = locals.chunks;
    return rc;
}
