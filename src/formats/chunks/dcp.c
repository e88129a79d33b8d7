/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/chunks/dcp.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "formats/chunks/dcp_item.h"
#include "formats/chunks/internal.h"

/* Ends a reading that gave RC: a change of the file meanwhile is the better explanation. */
static int end(struct rfs_files *files, uint32_t file, struct rfs_reading *reading, int rc,
               struct rfs_error *err)
{
    const int ended = rfs_reading_end(reading);

    if (ended < 0)
        rc = rfs_files_fail(err, rfs_files_path(files, file), ended);
    if (rc < 0)
        rfs_files_reason(files, file, rc, err);
    return rc;
}

static int set_place(struct rfs_chunks *boxes, struct rfs_chunk *chunk, uint32_t ndim,
                     const struct rfs_dcp_place *place, struct rfs_error *err)
{
    const uint64_t at =
        place->strided ? rfs_chunks_strided(boxes, place->at, ndim, place->stride) : place->at;

    if (at == RFS_NOT_LOCATED)
        return rfs_fail_memory(err);
    atomic_store(&chunk->at, at);
    return 0;
}

/* Compares the checksums of an item. 0 or -errno. */
static int check_item(struct rfs_chunks *boxes, const struct rfs_dcp_item *item, uint32_t file,
                      struct rfs_reading *reading, struct rfs_error *err)
{
    const int rc = rfs_dcp_item_verify(item, rfs_reading_read, reading, err);

    if (rc == 1)
        rfs_chunks_tell_none(boxes, RFS_FORMAT_TORCH, file);
    return rc < 0 ? rc : 0;
}

static int locate(struct rfs_chunks *boxes, uint32_t number, struct rfs_error *err)
{
    struct rfs_chunk *chunk = &boxes->chunks.data[number];
    const struct rfs_type *type = rfs_chunks_type(boxes, chunk->type);
    const struct rfs_dcp_item item = {.file = rfs_files_path(boxes->files, chunk->file),
                                      .param = rfs_chunks_name_of(boxes, number),
                                      .offset = chunk->item,
                                      .bytes = chunk->item_bytes,
                                      .dtype = (enum rfs_dtype)type->dtype,
                                      .ndim = type->ndim,
                                      .sizes = type->dims};
    struct rfs_reading reading;
    struct rfs_dcp_place place;
    int rc = rfs_reading_begin_quiet(boxes->files, chunk->file, &reading);

    if (rc < 0)
        return rfs_chunks_fail_file(boxes, chunk->file, rc, err);
    rc = rfs_dcp_item_find(&item, rfs_reading_read, &reading, reading.size, &place, err);
    if (rc == 0 && boxes->checks)
        rc = check_item(boxes, &item, chunk->file, &reading, err);
    rc = end(boxes->files, chunk->file, &reading, rc, err);
    return rc ? rc : set_place(boxes, chunk, type->ndim, &place, err);
}

static struct rfs_dcp_item item_of(const struct rfs_chunks *boxes,
                                   const struct rfs_chunked_object *object)
{
    return (struct rfs_dcp_item){.file = rfs_files_path(boxes->files, object->file),
                                 .param = rfs_intern_text(boxes->tables->names, object->name),
                                 .offset = object->item,
                                 .bytes = object->item_bytes};
}

RFS_COMPARE(by_place, struct rfs_chunked_object, x, y,
            RFS_ORDER(x->file, y->file) ?: RFS_ORDER(x->item, y->item))

int rfs_dcp_objects_apart(const struct rfs_chunks *boxes, struct rfs_error *err)
{
    const size_t n = boxes->objects.n;
    RFS_FREE struct rfs_chunked_object *objects = calloc(n + 1, sizeof *objects);

    if (!objects)
        return rfs_fail_memory(err);
    if (n > 0)
        memcpy(objects, boxes->objects.data, n * sizeof *objects);
    RFS_SORT(objects, n, by_place);
    for (size_t i = 1; i < n; i++) {
        const struct rfs_chunked_object *before = &objects[i - 1];
        if (objects[i].file == before->file && objects[i].item - before->item < before->item_bytes)
            return rfs_fail(err, -EINVAL, RFS_CHUNKS_NAMED(boxes, objects[i].name), NULL,
                            "the metadata stores it in the bytes of another value, '%s'",
                            rfs_intern_text(boxes->tables->names, before->name));
    }
    return 0;
}

int rfs_dcp_prove_object(struct rfs_chunks *boxes, const struct rfs_chunked_object *object,
                         bool all, struct rfs_error *err)
{
    const struct rfs_dcp_item item = item_of(boxes, object);
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(boxes->files, object->file, &reading);

    if (rc < 0)
        return rfs_chunks_fail_file(boxes, object->file, rc, err);
    rc = rfs_dcp_item_prove(&item, rfs_reading_read, &reading, reading.size, all || boxes->checks,
                            err);
    if (rc == 1 && boxes->checks)
        rfs_chunks_tell_none(boxes, RFS_FORMAT_TORCH, object->file);
    return end(boxes->files, object->file, &reading, rc < 0 ? rc : 0, err);
}

int rfs_dcp_open_object(struct rfs_chunks *boxes, const struct rfs_chunked_object *object,
                        struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err)
{
    const struct rfs_dcp_item item = item_of(boxes, object);
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(boxes->files, object->file, &reading);

    if (rc < 0)
        return rfs_chunks_fail_file(boxes, object->file, rc, err);
    rc = rfs_dcp_item_open(&item, rfs_reading_read, &reading, reading.size, budget, out, err);
    if (rc == 0 && boxes->checks) {
        rc = check_item(boxes, &item, object->file, &reading, err);
        if (rc)
            rfs_torch_free(out);
    }
    const int ended = end(boxes->files, object->file, &reading, rc, err);
    if (rc == 0 && ended)
        rfs_torch_free(out);
    return ended;
}

static const struct rfs_chunks_format format = {.name = "torch.distributed.checkpoint",
                                                .locate = locate};

bool rfs_chunks_are_dcp(const struct rfs_chunks *boxes)
{
    return boxes->format == &format;
}

static int read_metadata(struct rfs_chunks *boxes, struct rfs_error *err)
{
    const char *path = rfs_files_path(boxes->files, boxes->metadata);
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(boxes->files, boxes->metadata, &reading);

    if (rc < 0) {
        rfs_files_fail(err, path, rc);
        rfs_files_reason(boxes->files, boxes->metadata, rc, err);
        return rc;
    }
    rc = rfs_dcp_describe(rfs_reading_read, &reading, reading.size, boxes, err);
    return end(boxes->files, boxes->metadata, &reading, rc, err);
}

int rfs_dcp_open(const char *folder, struct rfs_files *files, struct rfs_tables *tables,
                 struct rfs_log *log, struct rfs_chunks **out, struct rfs_error *err)
{
    struct rfs_chunks *boxes = rfs_chunks_new(&format, folder, 0, files, tables, log);
    const int rc = boxes ? read_metadata(boxes, err) : rfs_fail_memory(err);

    if (rc < 0) {
        rfs_chunks_free(boxes);
        boxes = NULL;
    }
    *out = boxes;
    return rc;
}
