/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes in the making: tensors, chunks, and where they are stored. */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/path.h"
#include "formats/chunks/internal.h"

#define CHUNKS_MOST UINT32_C(0x7ffffffe)
/*
 * by_name has 1 + the number of a tensor, or this and the number of an object; 0: nothing. UNREAD
 * is none of these.
 */
#define OBJECT UINT32_C(0x80000000)
#define UNREAD UINT32_C(0xffffffff)

struct rfs_chunks *rfs_chunks_new(const struct rfs_chunks_format *format, const char *folder,
                                  uint32_t metadata, struct rfs_files *files,
                                  struct rfs_tables *tables, struct rfs_log *log)
{
    struct rfs_chunks *boxes = calloc(1, sizeof *boxes);

    if (!boxes)
        return NULL;
    *boxes = (struct rfs_chunks){.format = format,
                                 .folder = strdup(folder),
                                 .files = files,
                                 .tables = tables,
                                 .log = log,
                                 .metadata = metadata,
                                 .paths = rfs_intern_new(),
                                 .first_file = rfs_files_count_paths(files)};
    pthread_mutex_init(&boxes->lock, NULL);
    if (boxes->folder && boxes->paths)
        return boxes;
    rfs_chunks_free(boxes);
    return NULL;
}

void rfs_chunks_free(struct rfs_chunks *boxes)
{
    if (!boxes)
        return;
    if (boxes->own)
        boxes->format->free(boxes->own);
    for (size_t i = 0; i < boxes->tensors.n; i++)
        rfs_chunks_free_grid(boxes->tensors.data[i].grid);
    free(boxes->tensors.data);
    free(boxes->chunks.data);
    free(boxes->objects.data);
    free(boxes->unread.data);
    free(boxes->by_name.data);
    free(boxes->strided.data);
    pthread_mutex_destroy(&boxes->lock);
    rfs_intern_free(boxes->paths);
    rfs_intern_free(boxes->copy_names);
    rfs_intern_free(boxes->copy_lists);
    free(boxes->copies);
    free(boxes->copy_places.data);
    free(boxes->copy_files.data);
    rfs_chunks_free_checks(boxes->checks);
    free(boxes->folder);
    free(boxes->lost);
    free(boxes->doubt);
    free(boxes);
}

/* Notes the number by a name. False when out of memory. */
static bool note_name(struct rfs_chunks *boxes, uint32_t name, uint32_t what)
{
    while (boxes->by_name.n <= name)
        if (!RFS_PUSH(&boxes->by_name, 0))
            return false;
    boxes->by_name.data[name] = what;
    return true;
}

/* The number by a name; 0: none. */
static uint32_t noted(const struct rfs_chunks *boxes, const char *name, size_t length)
{
    const uint32_t id = rfs_intern_find(boxes->tables->names, name, length);

    return id < boxes->by_name.n ? boxes->by_name.data[id] : 0;
}

const struct rfs_chunked_tensor *rfs_chunks_find(const struct rfs_chunks *boxes, const char *name,
                                                 size_t length)
{
    const uint32_t what = noted(boxes, name, length);

    return what == 0 || (what & OBJECT) ? NULL : &boxes->tensors.data[what - 1];
}

static int fail_twice(const struct rfs_chunks *boxes, uint32_t name, struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_CHUNKS_NAMED(boxes, name), NULL,
                    "the metadata describes it twice");
}

int rfs_chunks_object(struct rfs_chunks *boxes, const char *name, size_t length,
                      struct rfs_error *err)
{
    const struct rfs_chunked_object object = {
        .name = rfs_intern_add(boxes->tables->names, name, length), .file = RFS_NO_ID};

    if (object.name != RFS_NO_ID && noted(boxes, name, length))
        return fail_twice(boxes, object.name, err);
    return object.name != RFS_NO_ID && boxes->objects.n < CHUNKS_MOST &&
                   note_name(boxes, object.name, OBJECT | (uint32_t)boxes->objects.n) &&
                   RFS_PUSH(&boxes->objects, object)
               ? 0
               : rfs_fail_memory_of(err, rfs_files_path(boxes->files, boxes->metadata));
}

int rfs_chunks_unread(struct rfs_chunks *boxes, const char *name, size_t length, const char *why,
                      struct rfs_error *err)
{
    struct rfs_intern *names = boxes->tables->names;
    const struct rfs_chunked_unread unread = {.name = rfs_intern_add(names, name, length),
                                              .why = rfs_intern_add(names, why, strlen(why))};
    const uint32_t what = noted(boxes, name, length);

    if (what & OBJECT)
        return fail_twice(boxes, unread.name, err);
    return unread.name != RFS_NO_ID && unread.why != RFS_NO_ID &&
                   (what || note_name(boxes, unread.name, UNREAD)) &&
                   RFS_PUSH(&boxes->unread, unread)
               ? 0
               : rfs_fail_memory_of(err, rfs_files_path(boxes->files, boxes->metadata));
}

bool rfs_chunks_is_unread(const struct rfs_chunks *boxes, const char *name, size_t length)
{
    return noted(boxes, name, length) == UNREAD;
}

int rfs_chunks_tensor(struct rfs_chunks *boxes, const char *name, size_t length,
                      struct rfs_type *type, struct rfs_error *err)
{
    const char *path = rfs_files_path(boxes->files, boxes->metadata);
    struct rfs_chunked_tensor tensor = {.first = (uint32_t)boxes->chunks.n};

    tensor.name = rfs_intern_add(boxes->tables->names, name, length);
    if (tensor.name == RFS_NO_ID)
        return rfs_fail_memory_of(err, path);
    if (noted(boxes, name, length))
        return fail_twice(boxes, tensor.name, err);
    if (!rfs_type_bytes(type, &type->bytes))
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(boxes, &tensor), NULL,
                        "the tensor would have more than 2^63 bytes");
    tensor.type = tensor.stored = rfs_intern_add(boxes->tables->types, type, sizeof *type);
    if (tensor.type == RFS_NO_ID || !RFS_PUSH(&boxes->tensors, tensor) ||
        !note_name(boxes, tensor.name, (uint32_t)boxes->tensors.n))
        return rfs_fail_memory_of(err, path);
    return 0;
}

int rfs_chunks_chunk(struct rfs_chunks *boxes, const uint64_t *offset, const uint64_t *size,
                     struct rfs_error *err)
{
    struct rfs_chunked_tensor *tensor = &boxes->tensors.data[boxes->tensors.n - 1];
    const struct rfs_type *whole = rfs_chunks_type(boxes, tensor->type);
    struct rfs_type type = *whole;
    bool outside = false;

    type.bytes = rfs_dtype_bytes((enum rfs_dtype)type.dtype);
    for (uint32_t i = 0; i < type.ndim; i++) {
        outside |= offset[i] > whole->dims[i] || size[i] > whole->dims[i] - offset[i];
        type.dims[i] = size[i];
    }
    if (outside) {
        struct rfs_box_text text;
        uint64_t end[RFS_MAX_DIMS];
        for (uint32_t i = 0; i < type.ndim; i++)
            if (!rfs_add_u64(offset[i], size[i], &end[i]))
                end[i] = UINT64_MAX;
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(boxes, tensor), NULL,
                        "the chunk %s lies outside of the tensor",
                        rfs_chunks_print(type.ndim, offset, end, &text));
    }
    rfs_type_bytes(&type, &type.bytes); /* no more than the whole's */
    if (type.bytes == 0)
        return 0;
    struct rfs_chunk chunk = {.corner = rfs_type_number(whole, offset), .file = RFS_NO_ID};
    atomic_init(&chunk.at, RFS_NOT_LOCATED);
    chunk.type = rfs_intern_add(boxes->tables->types, &type, sizeof type);
    if (chunk.type == RFS_NO_ID || boxes->chunks.n >= CHUNKS_MOST ||
        !RFS_PUSH(&boxes->chunks, chunk))
        return rfs_fail_memory_of(err, rfs_files_path(boxes->files, boxes->metadata));
    tensor->n++;
    return 0;
}

RFS_COMPARE(by_corner, struct rfs_chunk, x, y,
            RFS_ORDER(x->corner, y->corner) ?: RFS_ORDER(x->type, y->type))

/* Sorts the chunks of a tensor, which go to position TO, each once. Their new number, or -1. */
static int64_t sort_chunks(struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                           uint32_t to)
{
    struct rfs_chunk *chunks = boxes->chunks.data;
    const uint32_t first = to;

    if (tensor->n == 0) /* there may be no chunks at all */
        return 0;
    RFS_SORT(&chunks[tensor->first], tensor->n, by_corner);
    for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
        const struct rfs_chunk *last = to > first ? &chunks[to - 1] : NULL;
        if (last && last->corner == chunks[i].corner && last->type != chunks[i].type)
            return -1;
        if (!last || last->corner != chunks[i].corner)
            chunks[to++] = chunks[i];
    }
    return to - first;
}

int rfs_chunks_declared(struct rfs_chunks *boxes, struct rfs_error *err)
{
    uint32_t n = 0;

    for (size_t i = 0; i < boxes->tensors.n; i++) {
        struct rfs_chunked_tensor *tensor = &boxes->tensors.data[i];
        const int64_t kept = sort_chunks(boxes, tensor, n);
        if (kept < 0)
            return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(boxes, tensor), NULL,
                            "two chunks of different shapes begin at the same element");
        tensor->first = n;
        tensor->n = (uint32_t)kept;
        n += tensor->n;
    }
    boxes->chunks.n = n;
    return 0;
}

/* Whether a path stays in its folder. */
static bool stays(const char *path)
{
    bool begins = true;

    if (path[0] == '/' || path[0] == '\0')
        return false;
    for (const char *c = path; *c; c++) {
        if (begins && strncmp(c, "..", 2) == 0 && (c[2] == '/' || c[2] == '\0'))
            return false;
        begins = *c == '/';
    }
    return true;
}

uint32_t rfs_chunks_file(struct rfs_chunks *boxes, const char *path, size_t length,
                         struct rfs_error *err)
{
    const char *metadata = rfs_files_path(boxes->files, boxes->metadata);
    const uint32_t known = rfs_intern_count(boxes->paths);
    RFS_FREE char *name = strndup(path, length);

    if (!name) {
        rfs_fail_memory_of(err, metadata);
        return RFS_NO_ID;
    }
    if (strlen(name) != length || !stays(name)) {
        rfs_fail(err, -EINVAL, RFS_IN(metadata), NULL,
                 "the file '%s' is not in the folder of the checkpoint", name);
        return RFS_NO_ID;
    }
    const uint32_t id = rfs_intern_add(boxes->paths, path, length);
    RFS_FREE char *whole = id == known ? rfs_path_join(boxes->folder, name) : NULL;
    if (id == RFS_NO_ID ||
        (id == known && (!whole || rfs_files_add(boxes->files, whole) == UINT32_MAX))) {
        rfs_fail_memory_of(err, metadata);
        return RFS_NO_ID;
    }
    return boxes->first_file + id;
}

/* The chunk of a tensor with that corner, or NULL. */
static struct rfs_chunk *find_corner(const struct rfs_chunks *boxes,
                                     const struct rfs_chunked_tensor *tensor, uint64_t corner)
{
    struct rfs_chunk *chunks = boxes->chunks.data;
    const size_t first = tensor->first;
    const size_t at = first + RFS_BISECT(i, tensor->n, chunks[first + i].corner >= corner);

    return at < first + tensor->n && chunks[at].corner == corner ? &chunks[at] : NULL;
}

uint32_t rfs_chunks_copy_file(struct rfs_chunks *boxes, const char *path, size_t length,
                              struct rfs_error *err)
{
    if (!boxes->copy_names)
        boxes->copy_names = rfs_intern_new();
    const uint32_t number =
        boxes->copy_names ? rfs_intern_add(boxes->copy_names, path, length) : RFS_NO_ID;
    if (number == RFS_NO_ID)
        rfs_fail_memory_of(err, rfs_files_path(boxes->files, boxes->metadata));
    return number;
}

/* Makes room for the copies of all chunks. False when out of memory. */
static bool begin_copies(struct rfs_chunks *boxes)
{
    if (boxes->copies)
        return true;
    boxes->copy_lists = rfs_intern_new();
    boxes->copies = malloc((boxes->chunks.n + 1) * sizeof *boxes->copies);
    for (size_t i = 0; boxes->copies && i < boxes->chunks.n; i++)
        boxes->copies[i] = (struct rfs_chunk_copies){.list = RFS_NO_ID, .instead = RFS_NO_ID};
    return boxes->copies && boxes->copy_lists;
}

int rfs_chunks_store_copies(struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                            const uint64_t *offset, const uint32_t *files, const uint64_t *places,
                            size_t n, struct rfs_error *err)
{
    const struct rfs_type *whole = rfs_chunks_type(boxes, tensor->type);
    const struct rfs_chunk *chunk =
        n > 0 ? find_corner(boxes, tensor, rfs_type_number(whole, offset)) : NULL;

    if (!chunk)
        return 0;
    bool room = begin_copies(boxes) && boxes->copy_places.n < CHUNKS_MOST - n;
    const struct rfs_chunk_copies copies = {
        .list = room ? rfs_intern_add(boxes->copy_lists, files, n * sizeof *files) : RFS_NO_ID,
        .first = (uint32_t)boxes->copy_places.n,
        .instead = RFS_NO_ID};
    room = copies.list != RFS_NO_ID;
    for (size_t i = 0; places && room && i < n; i++)
        room = RFS_PUSH(&boxes->copy_places, places[i]);
    if (!room)
        return rfs_fail_memory_of(err, rfs_files_path(boxes->files, boxes->metadata));
    boxes->copies[chunk - boxes->chunks.data] = copies;
    return 0;
}

int rfs_chunks_store(struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                     const uint64_t *offset, uint32_t file, uint64_t item, uint64_t item_bytes,
                     struct rfs_error *err)
{
    const struct rfs_type *whole = rfs_chunks_type(boxes, tensor->type);
    struct rfs_box_text text;
    bool at_end = false;
    bool beyond = false;

    for (uint32_t i = 0; i < whole->ndim; i++) {
        at_end |= offset[i] == whole->dims[i];
        beyond |= offset[i] > whole->dims[i];
    }
    struct rfs_chunk *chunk =
        at_end || beyond ? NULL : find_corner(boxes, tensor, rfs_type_number(whole, offset));
    if (at_end && !beyond)
        return 0; /* nothing can begin there */
    if (!chunk || chunk->file != RFS_NO_ID)
        return rfs_fail(err, -EINVAL, RFS_CHUNKS_OF(boxes, tensor), NULL,
                        chunk ? "the metadata stores the chunk at %s twice"
                              : "the metadata stores a chunk at %s that it does not describe",
                        rfs_chunks_print(whole->ndim, offset, NULL, &text));
    chunk->file = file;
    chunk->item = item;
    chunk->item_bytes = item_bytes;
    return 0;
}

int rfs_chunks_store_object(struct rfs_chunks *boxes, const char *name, size_t length,
                            uint32_t file, uint64_t item, uint64_t item_bytes,
                            struct rfs_error *err)
{
    const uint32_t what = noted(boxes, name, length);
    struct rfs_chunked_object *object =
        what != UNREAD && (what & OBJECT) ? &boxes->objects.data[what & ~OBJECT] : NULL;

    if (!object || object->file != RFS_NO_ID)
        return rfs_fail(err, -EINVAL, RFS_OF(rfs_files_path(boxes->files, boxes->metadata), name),
                        NULL,
                        object ? "the metadata stores it twice"
                               : "the metadata stores it and does not describe it");
    object->file = file;
    object->item = item;
    object->item_bytes = item_bytes;
    return 0;
}

static int check_objects(const struct rfs_chunks *boxes, struct rfs_error *err)
{
    for (size_t i = 0; i < boxes->objects.n; i++)
        if (boxes->objects.data[i].file == RFS_NO_ID)
            return rfs_fail(err, -EINVAL, RFS_CHUNKS_NAMED(boxes, boxes->objects.data[i].name),
                            NULL, "the metadata does not say where it is stored");
    return 0;
}

/* Gives the files of copies their ids. */
static int add_copy_files(struct rfs_chunks *boxes, struct rfs_error *err)
{
    const uint32_t n = boxes->copy_names ? rfs_intern_count(boxes->copy_names) : 0;

    for (uint32_t i = 0; i < n; i++) {
        size_t length;
        const char *path = (const char *)rfs_intern_bytes(boxes->copy_names, i, &length);
        const uint32_t file = rfs_chunks_file(boxes, path, length, err);
        if (file == RFS_NO_ID)
            return err ? err->code : -EINVAL;
        if (!RFS_PUSH(&boxes->copy_files, file))
            return rfs_fail_memory_of(err, rfs_files_path(boxes->files, boxes->metadata));
    }
    return 0;
}

int rfs_chunks_finish(struct rfs_chunks *boxes, struct rfs_error *err)
{
    int rc = check_objects(boxes, err);

    for (size_t i = 0; rc == 0 && i < boxes->tensors.n; i++)
        rc = rfs_chunks_make_grid(boxes, &boxes->tensors.data[i], err);
    boxes->n_files = rfs_intern_count(boxes->paths);
    if (rc == 0 && boxes->copies)
        rc = add_copy_files(boxes, err);
    boxes->n_all_files = rfs_intern_count(boxes->paths);
    rfs_intern_free(boxes->paths);
    rfs_intern_free(boxes->copy_names);
    boxes->paths = boxes->copy_names = NULL;
    return rc;
}
