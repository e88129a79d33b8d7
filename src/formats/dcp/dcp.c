/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/dcp/dcp.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/store.h"
#include "base/text.h"
#include "formats/chunks/chunk_reader.h"
#include "formats/torch/arguments.h"

#define REMEDY_COPY "compare the file with its original, or save the checkpoint again"

/* ---- an item of a file ----------------------------------------------------------------------- */

/* The ends of an archive: torch writes less than 1 KiB before a tensor's bytes and behind them. */
enum { END_BYTES = 4096, LABEL_BYTES = 4200, NAME_SHOWN = 320 };

struct end {
    uint64_t offset;
    size_t n; /* bytes; 0: nothing was read yet */
    unsigned char data[END_BYTES];
};

/* An item as a file of its own. */
struct window {
    const struct rfs_dcp_file_item *item;
    const struct rfs_bytes_source *from; /* the item's file */
    struct end head, tail;
};

static int fill(const struct window *window, struct end *end, uint64_t offset)
{
    const uint64_t left = window->item->bytes - offset;
    const size_t n = left < END_BYTES ? (size_t)left : END_BYTES;
    const int rc = rfs_bytes_source_read(window->from, end->data, n, window->item->offset + offset);

    end->offset = offset;
    end->n = rc ? 0 : n;
    return rc;
}

static int read_window(void *ctx, void *buf, size_t n, uint64_t offset)
{
    struct window *window = ctx;
    const uint64_t bytes = window->item->bytes;
    const uint64_t tail = bytes > END_BYTES ? bytes - END_BYTES : 0;
    struct end *end = offset < END_BYTES ? &window->head : &window->tail;

    if (offset > bytes || n > bytes - offset)
        return -EINVAL;
    int rc = end->n > 0 ? 0 : fill(window, end, end == &window->head ? 0 : tail);
    if (rc)
        return rc;
    if (offset < end->offset || n > end->n || offset - end->offset > end->n - n)
        return rfs_bytes_source_read(window->from, buf, n, window->item->offset + offset);
    memcpy(buf, end->data + (offset - end->offset), n);
    return 0;
}

/* Refuses an item of torch's other format. */
static int check_format(struct window *window, struct rfs_error *err)
{
    const struct rfs_dcp_file_item *item = window->item;
    unsigned char head[9] = {0};
    const int rc = item->bytes < sizeof head ? 0 : read_window(window, head, sizeof head, 0);

    if (rc)
        return rfs_store_fail_read(err, RFS_AT(item->file, item->shown), rc);
    if (memcmp(head + 3, "\0\0\0\0\0{", 6) != 0)
        return 0;
    return rfs_fail(err, -ENOTSUP, RFS_OF(item->file, item->param),
                    "save it with SerializationFormat.TORCH_SAVE, which is the default",
                    "is stored as safetensors in the checkpoint's file (SerializationFormat."
                    "SAFETENSORS)");
}

static bool is_tensor_of(const struct rfs_torch_tensor *tensor,
                         const struct rfs_dcp_file_item *item)
{
    return tensor->dtype == item->dtype && tensor->ndim == item->ndim &&
           (item->ndim == 0 ||
            memcmp(tensor->dims, item->sizes, item->ndim * sizeof *item->sizes) == 0);
}

static int check_tensor(const struct rfs_torch_tensor *tensor, const struct rfs_dcp_file_item *item,
                        const char *label, struct rfs_error *err)
{
    char have[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
    char want[RFS_DIMS_TEXT(RFS_MAX_DIMS)];

    if (!is_tensor_of(tensor, item))
        return rfs_fail(err, -EINVAL, RFS_OF(label, item->param), REMEDY_COPY,
                        "is %s %s here, and %s %s in the metadata", rfs_dtype_name(tensor->dtype),
                        rfs_text_dims(have, sizeof have, tensor->ndim, tensor->dims),
                        rfs_dtype_name(item->dtype),
                        rfs_text_dims(want, sizeof want, item->ndim, item->sizes));
    if (tensor->elements > tensor->record->bytes / rfs_dtype_bytes(tensor->dtype))
        return rfs_fail(err, -ENOTSUP, RFS_OF(label, item->param),
                        "save the tensor after contiguous()",
                        "the tensor has more elements than are stored");
    return 0;
}

static void place_of(const struct rfs_torch_tensor *tensor, const struct rfs_dcp_file_item *item,
                     struct rfs_chunk_place *out)
{
    const uint64_t bytes = rfs_dtype_bytes(tensor->dtype);

    *out = (struct rfs_chunk_place){.at = item->offset + tensor->record->offset +
                                          tensor->offset * bytes,
                                    .strided = !tensor->contiguous};
    for (uint32_t i = 0; i < tensor->ndim; i++)
        out->stride[i] = tensor->strides[i] * bytes;
}

/* Checks that the item is in the file, and an archive. */
static int check_item(struct window *window, struct rfs_error *err)
{
    const uint64_t file_bytes = window->from->size;
    const struct rfs_dcp_file_item *item = window->item;

    if (item->offset > file_bytes || item->bytes > file_bytes - item->offset)
        return rfs_fail(err, -EINVAL, RFS_OF(item->file, item->param), REMEDY_COPY,
                        "lies at offset %llu with %llu bytes, and the file has only %llu",
                        (unsigned long long)item->shown, (unsigned long long)item->bytes,
                        (unsigned long long)file_bytes);
    return check_format(window, err);
}

static const char *name_item(const struct rfs_dcp_file_item *item, char label[LABEL_BYTES])
{
    snprintf(label, LABEL_BYTES, "%s (item at %llu)", item->file, (unsigned long long)item->shown);
    return label;
}

/* Opens an item that holds anything, and keeps it. BUDGET pays for its memory. */
static int open_item(const struct rfs_dcp_file_item *item, const struct rfs_bytes_source *from,
                     struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err)
{
    struct window window = {.item = item, .from = from};
    char label[LABEL_BYTES];
    const int rc = check_item(&window, err);

    return rc ? rc
              : rfs_torch_keep(
                    RFS_BYTES_SOURCE(read_window, &window, item->bytes, name_item(item, label)), 0,
                    budget, out, err);
}

int rfs_dcp_item_prove(const struct rfs_dcp_file_item *item, const struct rfs_bytes_source *from,
                       bool all, struct rfs_error *err)
{
    struct window window = {.item = item, .from = from};
    char label[LABEL_BYTES];
    const int rc = check_item(&window, err);

    snprintf(label, sizeof label, "%s (item at %llu, '%.*s')", item->file,
             (unsigned long long)item->shown, NAME_SHOWN, item->param);
    return rc ? rc
              : rfs_torch_prove(RFS_BYTES_SOURCE(read_window, &window, item->bytes, label), all,
                                err);
}

int rfs_dcp_item_find(const struct rfs_dcp_file_item *item, const struct rfs_bytes_source *from,
                      struct rfs_chunk_place *out, struct rfs_error *err)
{
    struct window window = {.item = item, .from = from};
    struct rfs_torch torch;
    struct rfs_torch_tensor tensor;
    char label[LABEL_BYTES];

    int rc = check_item(&window, err);
    if (rc)
        return rc;
    name_item(item, label);
    rc = rfs_torch_open(RFS_BYTES_SOURCE(read_window, &window, item->bytes, label), 0, &torch, err);
    if (rc)
        return rc;
    rc = rfs_torch_tensor(&torch, torch.pickle.root, label, item->param, &tensor, err);
    if (rc == 0)
        rc = rfs_fail(err, -EINVAL, RFS_OF(label, item->param), REMEDY_COPY,
                      "there is no tensor here");
    else if (rc == 1)
        rc = check_tensor(&tensor, item, label, err);
    if (rc == 0)
        place_of(&tensor, item, out);
    rfs_torch_free(&torch);
    return rc;
}

/* Compares the CRC-32 of each record of an item. Returns and cost are those of rfs_zip_verify. */
static int verify_item(const struct rfs_dcp_file_item *item, const struct rfs_bytes_source *from,
                       struct rfs_error *err)
{
    struct window window = {.item = item, .from = from};
    char label[LABEL_BYTES];

    return rfs_zip_verify(
        RFS_BYTES_SOURCE(read_window, &window, item->bytes, name_item(item, label)), err);
}

/* ---- chunks and objects ---------------------------------------------------------------------- */

/* Ends a reading that gave RC: a change of the file meanwhile is the better explanation. */
static int end_reading(struct rfs_files *files, uint32_t file, struct rfs_reading *reading, int rc,
                       struct rfs_error *err)
{
    const int ended = rfs_reading_end(reading);

    if (ended < 0)
        rc = rfs_files_fail(err, rfs_files_path(files, file), ended);
    if (rc < 0)
        rfs_files_reason(files, file, rc, err);
    return rc;
}

static int set_place(struct rfs_chunks *chunks, uint32_t ndim, const struct rfs_chunk_place *place,
                     atomic_uint_least64_t *out, struct rfs_error *err)
{
    const uint64_t at =
        place->strided ? rfs_chunks_add_strided(chunks, place->at, ndim, place->stride) : place->at;

    if (at == RFS_NOT_LOCATED)
        return rfs_fail_memory(err);
    atomic_store(out, at);
    return 0;
}

/* Compares the checksums of an item. 0 or -errno. */
static int check_sums(struct rfs_chunks *chunks, const struct rfs_dcp_file_item *item,
                      uint32_t file, struct rfs_reading *reading, struct rfs_error *err)
{
    const int rc = verify_item(item, RFS_READING_SOURCE(reading, NULL), err);

    if (rc == 1)
        rfs_chunks_tell_none(chunks, true, file);
    return rc < 0 ? rc : 0;
}

/* Finds how long an item is that is compressed, and where it is. 0 or -errno. */
static int measure(struct rfs_reading *reading, struct rfs_dcp_file_item *item,
                   struct rfs_error *err)
{
    item->shown = rfs_files_offset(reading->files, reading->id, item->offset);
    return rfs_reading_measure(reading, item->offset, &item->bytes, err);
}

/* Finds where the elements of chunk NUMBER begin in BYTES of FILE from OFFSET on, for *OUT. */
static int find_at(struct rfs_chunks *chunks, uint32_t number, uint32_t file, uint64_t offset,
                   uint64_t bytes, atomic_uint_least64_t *out, struct rfs_error *err)
{
    const struct rfs_type *type = rfs_chunks_type_of(chunks, number);
    struct rfs_dcp_file_item item = {.file = rfs_files_path(chunks->files, file),
                                     .param = rfs_chunks_name_of(chunks, number),
                                     .offset = offset,
                                     .bytes = bytes,
                                     .dtype = (enum rfs_dtype)type->dtype,
                                     .ndim = type->ndim,
                                     .sizes = type->dims};
    struct rfs_reading reading;
    struct rfs_chunk_place place;
    int rc = rfs_reading_begin_quiet(chunks->files, file, &reading);

    if (rc < 0)
        return rfs_chunks_fail_file(chunks, file, rc, err);
    rc = measure(&reading, &item, err)
             ?: rfs_dcp_item_find(&item, RFS_READING_SOURCE(&reading, NULL), &place, err);
    if (rc == 0 && chunks->checks)
        rc = check_sums(chunks, &item, file, &reading, err);
    rc = end_reading(chunks->files, file, &reading, rc, err);
    return rc ? rc : set_place(chunks, type->ndim, &place, out, err);
}

static int locate(struct rfs_chunks *chunks, uint32_t number, struct rfs_error *err)
{
    struct rfs_chunk *chunk = &chunks->chunks.data[number];

    return find_at(chunks, number, chunk->file, chunk->item, chunk->item_bytes, &chunk->at, err);
}

static int locate_copy(struct rfs_chunks *chunks, uint32_t number, struct rfs_chunked_copy *out,
                       struct rfs_error *err)
{
    struct rfs_copy_item *item = &chunks->copy_items.data[out->at];
    int rc = 0;

    if (atomic_load(&item->at) == RFS_NOT_LOCATED)
        rc = find_at(chunks, number, out->file, item->item, item->item_bytes, &item->at, err);
    out->at = atomic_load(&item->at);
    return rc;
}

static struct rfs_dcp_file_item item_of(const struct rfs_chunks *chunks,
                                        const struct rfs_chunked_object *object)
{
    return (struct rfs_dcp_file_item){.file = rfs_files_path(chunks->files, object->file),
                                      .param = rfs_intern_text(chunks->tables->names, object->name),
                                      .offset = object->item,
                                      .bytes = object->item_bytes};
}

RFS_COMPARE(by_place, struct rfs_chunked_object, x, y,
            RFS_ORDER(x->file, y->file) ?: RFS_ORDER(x->item, y->item))

int rfs_dcp_objects_apart(const struct rfs_chunks *chunks, struct rfs_error *err)
{
    const size_t n = chunks->objects.n;
    RFS_FREE struct rfs_chunked_object *objects = calloc(n + 1, sizeof *objects);

    if (!objects)
        return rfs_fail_memory(err);
    if (n > 0)
        memcpy(objects, chunks->objects.data, n * sizeof *objects);
    RFS_SORT(objects, n, by_place);
    for (size_t i = 1; i < n; i++) {
        const struct rfs_chunked_object *before = &objects[i - 1];
        if (objects[i].file == before->file && objects[i].item - before->item < before->item_bytes)
            return rfs_fail(err, -EINVAL, RFS_CHUNKS_NAMED(chunks, objects[i].name), NULL,
                            "the metadata stores it in the bytes of another value, '%s'",
                            rfs_intern_text(chunks->tables->names, before->name));
    }
    return 0;
}

static int prove_object(struct rfs_chunks *chunks, const struct rfs_chunked_object *object,
                        bool all, struct rfs_error *err)
{
    struct rfs_dcp_file_item item = item_of(chunks, object);
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(chunks->files, object->file, &reading);

    if (rc < 0)
        return rfs_chunks_fail_file(chunks, object->file, rc, err);
    rc = measure(&reading, &item, err)
             ?: rfs_dcp_item_prove(&item, RFS_READING_SOURCE(&reading, NULL), all || chunks->checks,
                                   err);
    if (rc == 1 && chunks->checks)
        rfs_chunks_tell_none(chunks, true, object->file);
    return end_reading(chunks->files, object->file, &reading, rc < 0 ? rc : 0, err);
}

int rfs_dcp_open_object(struct rfs_chunks *chunks, const struct rfs_chunked_object *object,
                        struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err)
{
    struct rfs_dcp_file_item item = item_of(chunks, object);
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(chunks->files, object->file, &reading);

    if (rc < 0)
        return rfs_chunks_fail_file(chunks, object->file, rc, err);
    rc = measure(&reading, &item, err)
             ?: open_item(&item, RFS_READING_SOURCE(&reading, NULL), budget, out, err);
    if (rc == 0 && chunks->checks) {
        rc = check_sums(chunks, &item, object->file, &reading, err);
        if (rc)
            rfs_torch_free(out);
    }
    const int ended = end_reading(chunks->files, object->file, &reading, rc, err);
    if (rc == 0 && ended)
        rfs_torch_free(out);
    return ended;
}

/*
 * Source: megatron/core/dist_checkpointing/serialization.py of Megatron-Core, from the version on
 * that writes no common.pt: ShardedObject("common_state", None, (1,), (0,)).unique_key.
 */
static const struct rfs_chunked_object *find_common(const struct rfs_chunks *chunks)
{
    static const char name[] = "common_state/shard_0_1";
    const uint32_t id = rfs_intern_find(chunks->tables->names, name, sizeof name - 1);

    for (size_t i = 0; id != RFS_NO_ID && i < chunks->objects.n; i++)
        if (chunks->objects.data[i].name == id)
            return &chunks->objects.data[i];
    return NULL;
}

int rfs_dcp_arguments(struct rfs_chunks *chunks, struct rfs_bytes *out, struct rfs_error *err)
{
    const struct rfs_chunked_object *object = find_common(chunks);
    struct rfs_reading reading;
    char label[LABEL_BYTES];

    if (!object || !rfs_dcp_owns(chunks))
        return 0;
    struct rfs_dcp_file_item item = item_of(chunks, object);
    int rc = rfs_reading_begin_quiet(chunks->files, object->file, &reading);
    if (rc < 0)
        return rfs_chunks_fail_file(chunks, object->file, rc, err);
    struct window window = {.item = &item, .from = RFS_READING_SOURCE(&reading, NULL)};
    rc = measure(&reading, &item, err) ?: check_item(&window, err);
    if (rc == 0)
        rc = rfs_torch_arguments(
            RFS_BYTES_SOURCE(read_window, &window, item.bytes, name_item(&item, label)), out, err);
    return end_reading(chunks->files, object->file, &reading, rc, err);
}

static const struct rfs_chunks_format format = {
    .name = "torch.distributed.checkpoint", .locate = locate, .prove = prove_object};
/* The metadata of each rank: several have what is not cut. */
static const struct rfs_chunks_format format_by_rank = {.name = "torch.distributed.checkpoint",
                                                        .again = true,
                                                        .locate = locate,
                                                        .locate_copy = locate_copy,
                                                        .prove = prove_object};

bool rfs_dcp_owns(const struct rfs_chunks *chunks)
{
    return chunks->format == &format || chunks->format == &format_by_rank;
}

int rfs_dcp_open(const struct rfs_chunks_source *source, struct rfs_chunks **out,
                 struct rfs_error *err)
{
    const bool by_rank = rfs_files_count_paths(source->files) > 1;
    struct rfs_chunks *chunks = rfs_chunks_new(by_rank ? &format_by_rank : &format, source);
    const int rc = chunks ? rfs_dcp_describe_files(chunks, source, err) : rfs_fail_memory(err);

    if (rc < 0) {
        rfs_chunks_free(chunks);
        chunks = NULL;
    }
    *out = chunks;
    return rc;
}
