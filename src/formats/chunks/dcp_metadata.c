/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of .metadata:
 *
 *     Metadata               state_dict_metadata {name: TensorStorageMetadata | BytesStorageMetadata},
 *                            storage_data {MetadataIndex: _StorageInfo}, version "1.0.0" or none;
 *                            planner_data, storage_meta: not looked at; mcore_data of Megatron-Core:
 *                            {name: {"nd_reformulated_orig_global_shape": shape} or an empty dict},
 *                            and all_local_plans, not looked at
 *     TensorStorageMetadata  properties, size, chunks [ChunkStorageMetadata]
 *     TensorProperties       (dtype, layout, …) or, by name, dtype, layout, …
 *     ChunkStorageMetadata   offsets, sizes
 *     MetadataIndex          fqn, offset of a chunk or none, index: a hint that is not needed
 *     _StorageInfo           relative_path, offset, length, transform_descriptors or none
 *
 * Source: torch/distributed/checkpoint/metadata.py and filesystem.py of torch 2.1 to 2.15.
 */
#include "base/share.h"
#include "base/text.h"
#include "formats/chunks/dcp.h"
#include "formats/chunks/dcp_names.h"
#include "formats/chunks/dcp_pickle.h"

#define REMEDY_COPY "compare the file with its original, or save the checkpoint again"

#define CHUNKS_BEYOND 1000 /* that are described, and may be stored nowhere */

struct reading {
    struct rfs_dcp_pickle pickle;
    const char *file; /* of the metadata */
    struct rfs_chunks *boxes;
    struct rfs_error *err;
    size_t places; /* entries of storage_data */
    size_t chunks; /* that were declared */
};

static int damaged(const struct reading *reading, const char *param, const char *what)
{
    return rfs_fail(reading->err, -EINVAL, RFS_OF(reading->file, param), REMEDY_COPY,
                    "the metadata is damaged: %s", what);
}

static bool is_none(uint32_t value)
{
    return value == rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

/* The numbers of an offset or a size. False when it is none. */
static bool take_shape(const struct rfs_dcp_pickle *pickle, uint32_t value, uint32_t *n,
                       uint64_t *out)
{
    const uint32_t *items = rfs_dcp_tuple(pickle, value, n);

    if (!items || *n > RFS_MAX_DIMS)
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        int64_t number;
        if (!rfs_dcp_integer(pickle, items[i], &number) || number < 0)
            return false;
        out[i] = (uint64_t)number;
    }
    return true;
}

/* ---- tensors ---- */

/*
 * The state of TensorProperties is a tuple, or the fields by name. *WHY is set for a tensor that is
 * not read, and else NULL.
 */
static int read_properties(const struct reading *reading, const char *name, uint32_t properties,
                           struct rfs_type *type, const char **why)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    uint32_t n = 0;
    const uint32_t *items = rfs_dcp_tuple(pickle, rfs_dcp_state(pickle, properties), &n);
    const uint32_t named = n >= 2 ? items[0] : rfs_dcp_field(pickle, properties, RFS_DCP_DTYPE);
    const uint32_t layout = n >= 2 ? items[1] : rfs_dcp_field(pickle, properties, RFS_DCP_LAYOUT);
    enum rfs_dtype dtype = RFS_BOOL;

    *why = rfs_dcp_unread_dtype(named);
    if (rfs_dcp_class(pickle, properties) != RFS_DCP_TENSOR_PROPERTIES ||
        (!*why && !rfs_dcp_dtype(named, &dtype)) || rfs_dcp_kind(layout) != RFS_DCP_TEXT)
        return damaged(reading, name, "a tensor without a dtype or a layout");
    type->dtype = (uint8_t)dtype;
    if (!rfs_dcp_is_word(layout, RFS_DCP_STRIDED))
        *why = "its layout is not torch.strided";
    return 0;
}

static int declare_chunk(struct reading *reading, const char *name, const struct rfs_type *type,
                         uint32_t chunk)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    uint64_t corner[RFS_MAX_DIMS];
    uint64_t sizes[RFS_MAX_DIMS];
    uint32_t n[2] = {0, 0};

    if (rfs_dcp_class(pickle, chunk) != RFS_DCP_CHUNK ||
        !take_shape(pickle, rfs_dcp_field(pickle, chunk, RFS_DCP_OFFSETS), &n[0], corner) ||
        !take_shape(pickle, rfs_dcp_field(pickle, chunk, RFS_DCP_SIZES), &n[1], sizes) ||
        n[0] != type->ndim || n[1] != type->ndim)
        return damaged(reading, name, "a chunk without offsets and sizes");
    /*
     * A few bytes can name a long list of chunks again and again. Of a few too many, the one that
     * is described twice is a copy, and one that is stored nowhere is found, with its tensor,
     * later.
     */
    if (++reading->chunks > reading->places + CHUNKS_BEYOND)
        return damaged(reading, NULL, "it stores fewer chunks than it describes");
    return rfs_chunks_chunk(reading->boxes, corner, sizes, reading->err);
}

static int declare_tensor(struct reading *reading, uint32_t key, uint32_t value)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    const uint32_t chunks = rfs_dcp_field(pickle, value, RFS_DCP_CHUNKS);
    struct rfs_dcp_each each = rfs_dcp_each(pickle, chunks);
    struct rfs_type type = {.kind = RFS_TENSOR};
    uint32_t ndim = 0;
    uint32_t chunk;
    size_t n = 0;
    const char *name = rfs_dcp_text(pickle, key, &n);

    if (!take_shape(pickle, rfs_dcp_field(pickle, value, RFS_DCP_SIZE), &ndim, type.dims) ||
        rfs_dcp_kind(chunks) != RFS_DCP_LIST)
        return damaged(reading, name, "a tensor without a size or chunks");
    type.ndim = (uint8_t)ndim;
    const char *why;
    int rc = read_properties(reading, name, rfs_dcp_field(pickle, value, RFS_DCP_PROPERTIES), &type,
                             &why);
    if (rc == 0 && why)
        return rfs_chunks_unread(reading->boxes, name, n, why, reading->err);
    if (rc == 0)
        rc = rfs_chunks_tensor(reading->boxes, name, n, &type, reading->err);
    while (rc == 0 && rfs_dcp_next(&each, &chunk))
        rc = declare_chunk(reading, name, &type, chunk);
    return rc;
}

static int declare_all(struct reading *reading)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    const uint32_t names = rfs_dcp_field(pickle, pickle->root, RFS_DCP_STATE_DICT_METADATA);
    struct rfs_dcp_each each = rfs_dcp_each(pickle, names);
    uint32_t key;
    uint32_t value;
    int rc = 0;

    if (rfs_dcp_kind(names) != RFS_DCP_DICT)
        return damaged(reading, NULL, "it has no state_dict_metadata");
    while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        size_t n = 0;
        const char *name = rfs_dcp_text(pickle, key, &n);
        if (!name || n == 0 || !rfs_text_is_utf8(name, n))
            return damaged(reading, NULL, "a name that is not UTF-8 text without NULs");
        if (rfs_dcp_class(pickle, value) == RFS_DCP_TENSOR)
            rc = declare_tensor(reading, key, value);
        else if (rfs_dcp_class(pickle, value) == RFS_DCP_BYTES)
            rc = rfs_chunks_object(reading->boxes, name, n, reading->err);
        else
            rc = damaged(reading, name, "it is neither a tensor nor an object");
    }
    return rc ? rc : rfs_chunks_declared(reading->boxes, reading->err);
}

/* ---- where chunks are stored ---- */

/* The bytes of an item: the file, and where they lie in it. */
struct place {
    uint32_t file;
    uint64_t offset, bytes;
};

static int read_place(const struct reading *reading, const char *name, uint32_t info,
                      struct place *out)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    const uint32_t transforms = rfs_dcp_field(pickle, info, RFS_DCP_TRANSFORMS);
    int64_t offset = -1;
    int64_t bytes = -1;
    size_t n = 0;
    const char *path = rfs_dcp_text(pickle, rfs_dcp_field(pickle, info, RFS_DCP_RELATIVE_PATH), &n);

    rfs_dcp_integer(pickle, rfs_dcp_field(pickle, info, RFS_DCP_OFFSET), &offset);
    rfs_dcp_integer(pickle, rfs_dcp_field(pickle, info, RFS_DCP_LENGTH), &bytes);
    if (!path || offset < 0 || bytes < 0 || bytes > INT64_MAX - offset)
        return damaged(reading, name, "it is stored without a file, an offset or a length");
    if (!is_none(transforms) && rfs_dcp_count(pickle, transforms) > 0)
        return rfs_fail(reading->err, -ENOTSUP, RFS_OF(reading->file, name),
                        "save it without extensions of the writer",
                        "is stored compressed, or by another extension of torch's writer");
    *out = (struct place){.offset = (uint64_t)offset, .bytes = (uint64_t)bytes};
    out->file = rfs_chunks_file(reading->boxes, path, n, reading->err);
    return out->file != RFS_NO_ID ? 0 : reading->err ? reading->err->code : -EINVAL;
}

static int store_chunk(const struct reading *reading, const char *name, size_t n, uint32_t offset,
                       const struct place *place)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(reading->boxes, name, n);
    uint64_t corner[RFS_MAX_DIMS];
    uint32_t ndim = 0;

    if (!tensor || !take_shape(&reading->pickle, offset, &ndim, corner) ||
        ndim != rfs_chunks_type(reading->boxes, tensor->type)->ndim)
        return damaged(reading, name, "it stores a chunk of a tensor that it does not describe");
    return rfs_chunks_store(reading->boxes, tensor, corner, place->file, place->offset,
                            place->bytes, reading->err);
}

static int store(struct reading *reading, uint32_t index, uint32_t info)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    const uint32_t offset = rfs_dcp_field(pickle, index, RFS_DCP_OFFSET);
    struct place place = {.file = RFS_NO_ID};
    size_t n = 0;
    const char *name = rfs_dcp_text(pickle, rfs_dcp_field(pickle, index, RFS_DCP_FQN), &n);

    if (rfs_dcp_class(pickle, index) != RFS_DCP_INDEX ||
        rfs_dcp_class(pickle, info) != RFS_DCP_STORAGE_INFO || !name)
        return damaged(reading, NULL, "its storage_data has something else than places");
    if (rfs_chunks_is_unread(reading->boxes, name, n))
        return 0;
    const int rc = read_place(reading, name, info, &place);
    if (rc)
        return rc;
    if (!is_none(offset))
        return store_chunk(reading, name, n, offset, &place);
    if (rfs_chunks_find(reading->boxes, name, n))
        return damaged(reading, name, "it stores a chunk without an offset");
    return rfs_chunks_store_object(reading->boxes, name, n, place.file, place.offset, place.bytes,
                                   reading->err);
}

static int store_all(struct reading *reading)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    struct rfs_dcp_each each =
        rfs_dcp_each(pickle, rfs_dcp_field(pickle, pickle->root, RFS_DCP_STORAGE_DATA));
    uint32_t key;
    uint32_t value;
    int rc = 0;

    while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        rc = store(reading, key, value);
    return rc ? rc : rfs_chunks_finish(reading->boxes, reading->err);
}

/* ---- shapes of flattened tensors ---- */

static int unflatten(const struct reading *reading, uint32_t key, uint32_t value)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    const uint32_t shape = rfs_dcp_get(pickle, value, RFS_DCP_ORIGINAL_SHAPE);
    uint64_t dims[RFS_MAX_DIMS];
    uint32_t ndim = 0;
    size_t n = 0;
    const char *name = rfs_dcp_text(pickle, key, &n);

    if (is_none(shape))
        return 0;
    return name && take_shape(pickle, shape, &ndim, dims)
               ? rfs_chunks_unflatten(reading->boxes, name, n, ndim, dims, reading->err)
               : damaged(reading, name, "a shape in mcore_data that is none");
}

/*
 * Some versions of torch lose mcore_data. A tensor that is the state of another one, and may have
 * been flattened, was: its order is not known for certain.
 */
static int check_state(const struct reading *reading, const struct rfs_chunked_tensor *tensor)
{
    static const char state[] = "optimizer.state.";
    struct rfs_chunks *boxes = reading->boxes;
    const char *name = rfs_intern_text(boxes->tables->names, tensor->name);
    const char *kind = strstr(name, state);
    const char *dot = kind ? strchr(kind + strlen(state), '.') : NULL;
    const struct rfs_chunked_tensor *of =
        dot ? rfs_chunks_find(boxes, dot + 1, strlen(dot + 1)) : NULL;

    if (!of || !rfs_chunks_may_be_flat(boxes, tensor, of))
        return 0;
    return rfs_chunks_unread(boxes, name, strlen(name),
                             "Megatron-Core flattened it, and the metadata lacks its shape "
                             "(mcore_data)",
                             reading->err);
}

static int unflatten_all(struct reading *reading)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    const uint32_t data = rfs_dcp_field(pickle, pickle->root, RFS_DCP_MCORE_DATA);
    struct rfs_dcp_each each = rfs_dcp_each(pickle, data);
    uint32_t key;
    uint32_t value;
    int rc = 0;

    reading->boxes->mcore_data = rfs_dcp_kind(data) == RFS_DCP_DICT;
    while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        rc = unflatten(reading, key, value);
    for (size_t i = 0; rc == 0 && !reading->boxes->mcore_data && i < reading->boxes->tensors.n; i++)
        rc = check_state(reading, &reading->boxes->tensors.data[i]);
    return rc;
}

/* ---- all ---- */

static int check_root(struct reading *reading)
{
    const struct rfs_dcp_pickle *pickle = &reading->pickle;
    const uint32_t version = rfs_dcp_field(pickle, pickle->root, RFS_DCP_VERSION);
    const uint32_t data = rfs_dcp_field(pickle, pickle->root, RFS_DCP_STORAGE_DATA);
    const char *text = rfs_dcp_text(pickle, version, NULL);

    if (rfs_dcp_class(pickle, pickle->root) != RFS_DCP_METADATA)
        return damaged(reading, NULL, "it is another object");
    if (!is_none(version) && (!text || strncmp(text, "1.", 2) != 0))
        return rfs_fail(reading->err, -ENOTSUP, RFS_IN(reading->file), NULL,
                        "the metadata is of version %s; version 1 is read",
                        text ? text : "unknown");
    if (rfs_dcp_kind(data) != RFS_DCP_DICT)
        return damaged(reading, NULL, "it has no storage_data");
    reading->places = rfs_dcp_count(pickle, data) / 2;
    return 0;
}

int rfs_dcp_describe(rfs_read_fn *read, void *ctx, uint64_t size, struct rfs_chunks *boxes,
                     struct rfs_error *err)
{
    struct reading reading = {
        .file = rfs_files_path(boxes->files, boxes->metadata), .boxes = boxes, .err = err};
    RFS_SHARED share = 0;

    int rc = rfs_share_take(&share, rfs_dcp_memory(size));
    if (rc < 0)
        return rfs_files_fail(err, reading.file, rc);
    rc = rfs_dcp_pickle_read(read, ctx, size, reading.file, &reading.pickle, err)
            ?: check_root(&reading)
            ?: declare_all(&reading)
            ?: store_all(&reading)
            ?: unflatten_all(&reading);
    rfs_dcp_pickle_free(&reading.pickle);
    return rc;
}
