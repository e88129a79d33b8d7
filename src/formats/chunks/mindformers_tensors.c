/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_dict_metadata: the tensors, and their slices. A slice has a number, which metadata.json
 * calls its global_offset: the tensor is cut into axis_fragmentations pieces along its axes, and
 * these are numbered row by row. The layout says the same in another way: axis i is cut by the
 * device axes of entry i of tensor_map, where k is the k-th axis of device_matrix from the right
 * and -1 none. So the numbers are those of MindSpore Transformers, which goes through tensor_map,
 * only if both agree.
 */
#include "formats/chunks/mindformers_internal.h"

#include "base/checked.h"
#include "base/text.h"

#define REMEDY "the file as MindSpore Transformers wrote it"

struct list {
    uint32_t n;
    uint64_t data[RFS_MF_AXES];
};

struct map {
    uint32_t n; /* axes of the tensor */
    uint32_t n_entries;
    uint32_t end[RFS_MF_AXES]; /* of the axis' entries */
    int64_t entry[RFS_MF_AXES];
};

/* The members of a tensor, which come in any order. */
struct tensor {
    bool has_dtype, has_shape, has_fragments, has_layout, has_matrix, has_map, interleaved;
    enum rfs_dtype dtype;
    struct list shape, fragments, matrix;
    struct map map;
    uint64_t first_rank, n_ranks; /* of rank_list; 0 ranks: it has gaps */
    struct list slice;            /* shape of the slices */
    bool has_slice;
};

static int fail(const struct rfs_mf *mf, const char *what)
{
    return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY, "%s", what);
}

/* Whole numbers. */
static int read_list(struct rfs_mf *mf, struct list *list, const char *what)
{
    bool first = true;

    list->n = 0;
    while (rfs_json_read_element(&mf->json, &first)) {
        if (list->n == RFS_MF_AXES)
            return rfs_fail(mf->err, -ENOTSUP, RFS_MF_HERE(mf), NULL, "%s has more than %d numbers",
                            what, RFS_MF_AXES);
        if (!rfs_json_read_u64(&mf->json, &list->data[list->n++]))
            break;
    }
    return rfs_mf_ended(mf);
}

static int add_entry(struct rfs_mf *mf, struct map *map)
{
    if (map->n_entries == RFS_MF_AXES)
        return rfs_fail(mf->err, -ENOTSUP, RFS_MF_HERE(mf), NULL,
                        "tensor_map has more than %d entries", RFS_MF_AXES);
    if (!rfs_json_read_i64(&mf->json, &map->entry[map->n_entries++]))
        return rfs_mf_ended(mf);
    return 0;
}

/* [2, [1, 0], -1] */
static int read_map(struct rfs_mf *mf, struct map *map)
{
    bool first = true;
    int rc = 0;

    map->n = map->n_entries = 0;
    while (rc == 0 && rfs_json_read_element(&mf->json, &first)) {
        bool first_entry = true;
        if (map->n == RFS_MF_AXES)
            return fail(mf, "tensor_map has more entries than a tensor can have axes");
        if (!rfs_json_read_peek(&mf->json, '['))
            rc = add_entry(mf, map);
        else
            while (rc == 0 && rfs_json_read_element(&mf->json, &first_entry))
                rc = add_entry(mf, map);
        map->end[map->n++] = map->n_entries;
    }
    return rc ? rc : rfs_mf_ended(mf);
}

/* [4, 5, 6, 7] */
static int read_ranks(struct rfs_mf *mf, struct tensor *tensor)
{
    uint64_t rank, n = 0;
    bool first = true, gaps = false;

    while (rfs_json_read_element(&mf->json, &first) && rfs_json_read_u64(&mf->json, &rank)) {
        if (n == 0)
            tensor->first_rank = rank;
        gaps |= rank - tensor->first_rank != n++;
    }
    tensor->n_ranks = gaps ? 0 : n;
    return rfs_mf_ended(mf);
}

static int read_layout(struct rfs_mf *mf, struct tensor *tensor)
{
    struct rfs_json_read *json = &mf->json;
    bool first = true;
    int rc = 0;

    tensor->has_layout = !rfs_json_read_null(json);
    while (rc == 0 && tensor->has_layout && rfs_json_read_member(json, &first)) {
        if (rfs_json_read_is(json, "device_matrix")) {
            rc = read_list(mf, &tensor->matrix, "device_matrix");
            tensor->has_matrix = true;
        } else if (rfs_json_read_is(json, "tensor_map")) {
            rc = read_map(mf, &tensor->map);
            tensor->has_map = true;
        } else if (rfs_json_read_is(json, "interleaved_parallel")) {
            tensor->interleaved = rfs_json_read_peek(json, 't');
            rfs_json_read_skip(json);
        } else if (mf->layouts && rfs_json_read_is(json, "rank_list")) {
            rc = read_ranks(mf, tensor);
        } else {
            rfs_json_read_skip(json);
        }
    }
    return rc ? rc : rfs_mf_ended(mf);
}

static int read_properties(struct rfs_mf *mf, struct tensor *tensor)
{
    struct rfs_json_read *json = &mf->json;
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        if (!rfs_json_read_is(json, "dtype")) {
            rfs_json_read_skip(json);
            continue;
        }
        if (!rfs_json_read_string(json))
            break;
        if (!rfs_dtype_parse(json->text, json->text_n, &tensor->dtype) || tensor->dtype == RFS_STR)
            return rfs_fail(mf->err, -ENOTSUP, RFS_MF_HERE(mf), NULL,
                            "its dtype '%.40s' is not known", json->text);
        tensor->has_dtype = true;
    }
    return rfs_mf_ended(mf);
}

/* {"global_offset": [3], "local_shape": [8, 4]} */
static int read_slice(struct rfs_mf *mf, struct tensor *tensor)
{
    struct rfs_json_read *json = &mf->json;
    struct list number = {.n = 0};
    struct list shape = {.n = 0};
    bool first = true, has_shape = false;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(json, &first)) {
        if (rfs_json_read_is(json, "global_offset")) {
            rc = read_list(mf, &number, "global_offset");
        } else if (rfs_json_read_is(json, "local_shape")) {
            rc = read_list(mf, &shape, "local_shape");
            has_shape = true;
        } else {
            rfs_json_read_skip(json);
        }
    }
    if (rc == 0)
        rc = rfs_mf_ended(mf);
    if (rc)
        return rc;
    if (number.n != 1)
        return fail(mf, "the global_offset of a slice is not the number of that slice");
    if (!has_shape)
        return fail(mf, "a slice has no local_shape");
    if (tensor->has_slice &&
        (shape.n != tensor->slice.n ||
         memcmp(shape.data, tensor->slice.data, shape.n * sizeof *shape.data) != 0))
        return fail(mf, "its slices differ in local_shape: pipeline stages hold it in different "
                        "layouts, and metadata.json has only one");
    tensor->slice = shape;
    tensor->has_slice = true;
    return RFS_PUSH(&mf->slices, number.data[0]) ? 0 : rfs_fail_memory_of(mf->err, mf->path);
}

static int read_slices(struct rfs_mf *mf, struct tensor *tensor)
{
    bool first = true;
    int rc = 0;

    mf->slices.n = 0;
    tensor->has_slice = false;
    while (rc == 0 && rfs_json_read_element(&mf->json, &first))
        rc = read_slice(mf, tensor);
    return rc ? rc : rfs_mf_ended(mf);
}

static int read_member(struct rfs_mf *mf, struct tensor *tensor)
{
    struct rfs_json_read *json = &mf->json;

    if (rfs_json_read_is(json, "properties"))
        return read_properties(mf, tensor);
    if (rfs_json_read_is(json, "global_shape")) {
        tensor->has_shape = true;
        return read_list(mf, &tensor->shape, "global_shape");
    }
    if (rfs_json_read_is(json, "axis_fragmentations")) {
        tensor->has_fragments = true;
        return read_list(mf, &tensor->fragments, "axis_fragmentations");
    }
    if (rfs_json_read_is(json, "layout"))
        return read_layout(mf, tensor);
    if (rfs_json_read_is(json, "chunk"))
        return read_slices(mf, tensor);
    rfs_json_read_skip(json);
    return 0;
}

/* ---- from members to a tensor with slices ---- */

/* Into how many pieces tensor_map cuts an axis; 0: it is no map of this device_matrix. */
static uint64_t pieces_of(const struct tensor *tensor, uint32_t axis)
{
    const struct map *map = &tensor->map;
    const struct list *matrix = &tensor->matrix;
    uint64_t pieces = 1;

    for (uint32_t i = axis ? map->end[axis - 1] : 0; i < map->end[axis]; i++) {
        const int64_t entry = map->entry[i];
        if (entry == -1)
            continue;
        if (entry < 0 || entry >= (int64_t)matrix->n ||
            !rfs_mul_u64(pieces, matrix->data[matrix->n - 1 - (uint32_t)entry], &pieces))
            return 0;
    }
    return pieces;
}

/* Only then do the numbers of slices mean the slices drawn at the top of this file. */
static int check_layout(struct rfs_mf *mf, const struct tensor *tensor)
{
    const struct list *fragments = &tensor->fragments;

    if (!tensor->has_layout) {
        for (uint32_t i = 0; i < fragments->n; i++)
            if (fragments->data[i] != 1)
                return fail(mf, "it is cut into slices, and has no layout");
        return 0;
    }
    if (tensor->interleaved)
        return rfs_fail(mf->err, -ENOTSUP, RFS_MF_HERE(mf), NULL,
                        "its layout is interleaved_parallel, which is not read");
    if (!tensor->has_matrix || !tensor->has_map)
        return fail(mf, "its layout has no device_matrix or no tensor_map");
    if (tensor->map.n != fragments->n)
        return fail(mf, "tensor_map and axis_fragmentations differ in their number of entries");
    for (uint32_t i = 0; i < fragments->n; i++)
        if (pieces_of(tensor, i) != fragments->data[i])
            return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY,
                            "tensor_map cuts axis %u into %" PRIu64
                            " slices, and axis_fragmentations into %" PRIu64,
                            i, pieces_of(tensor, i), fragments->data[i]);
    return 0;
}

/* Fills SIZE with the shape of a slice. */
static int check_shapes(struct rfs_mf *mf, const struct tensor *tensor, uint64_t *size)
{
    const struct list *shape = &tensor->shape;

    if (!tensor->has_dtype || !tensor->has_shape || !tensor->has_fragments)
        return fail(mf, "it has no dtype, no global_shape or no axis_fragmentations");
    if (shape->n > RFS_MAX_DIMS)
        return rfs_fail(mf->err, -ENOTSUP, RFS_MF_HERE(mf), NULL, "it has more than %d axes",
                        RFS_MAX_DIMS);
    if (tensor->fragments.n != shape->n)
        return fail(mf, "global_shape and axis_fragmentations differ in their number of entries");
    for (uint32_t i = 0; i < shape->n; i++) {
        const uint64_t pieces = tensor->fragments.data[i];
        if (pieces == 0 || shape->data[i] % pieces != 0)
            return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY,
                            "axis %u of %" PRIu64 " cannot be cut into %" PRIu64 " slices", i,
                            shape->data[i], pieces);
        size[i] = shape->data[i] / pieces;
    }
    if (tensor->has_slice && (tensor->slice.n != shape->n ||
                              memcmp(tensor->slice.data, size, shape->n * sizeof *size) != 0)) {
        char text[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
        return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY,
                        "local_shape differs from the shape of its slices, %s",
                        rfs_text_dims(text, sizeof text, shape->n, size));
    }
    return check_layout(mf, tensor);
}

static int declare_slice(struct rfs_mf *mf, const struct tensor *tensor, const uint64_t *size,
                         uint64_t number)
{
    uint64_t offset[RFS_MAX_DIMS];
    uint64_t rest = number;

    for (uint32_t i = tensor->shape.n; i-- > 0; rest /= tensor->fragments.data[i])
        offset[i] = rest % tensor->fragments.data[i] * size[i];
    if (rest > 0)
        return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY,
                        "it has a slice %" PRIu64 ", which axis_fragmentations does not", number);
    return rfs_chunks_chunk(mf->boxes, offset, size, mf->err);
}

static int note_layout(struct rfs_mf *mf, const struct tensor *tensor)
{
    struct rfs_mf_described described = {.first_rank = tensor->first_rank,
                                         .n_ranks = tensor->n_ranks};
    struct rfs_mf_layout *layout = &described.layout;

    layout->n_axes = tensor->shape.n;
    if (!tensor->has_layout)
        return rfs_mf_note_layout(mf, &described);
    layout->n_dev = tensor->matrix.n;
    memcpy(layout->dev, tensor->matrix.data, tensor->matrix.n * sizeof *layout->dev);
    memcpy(layout->map, tensor->map.entry, tensor->map.n_entries * sizeof *layout->map);
    for (uint32_t i = 0; i < tensor->map.n; i++)
        layout->end[i] = tensor->map.end[i];
    return rfs_mf_note_layout(mf, &described);
}

static int declare(struct rfs_mf *mf, const struct tensor *tensor)
{
    struct rfs_type type = {.ndim = (uint8_t)tensor->shape.n, .dtype = (uint8_t)tensor->dtype};
    uint64_t size[RFS_MAX_DIMS];
    int rc = check_shapes(mf, tensor, size);

    if (rc)
        return rc;
    if (mf->layouts)
        return note_layout(mf, tensor);
    memcpy(type.dims, tensor->shape.data, tensor->shape.n * sizeof *type.dims);
    rc = rfs_chunks_tensor(mf->boxes, mf->name.data, mf->name.n, &type, mf->err);
    for (size_t i = 0; rc == 0 && i < mf->slices.n; i++)
        rc = declare_slice(mf, tensor, size, mf->slices.data[i]);
    return rc;
}

static int read_tensor(struct rfs_mf *mf)
{
    struct tensor tensor = {.has_dtype = false};
    bool first = true;
    int rc = 0;

    mf->slices.n = 0;
    while (rc == 0 && rfs_json_read_member(&mf->json, &first))
        rc = read_member(mf, &tensor);
    if (rc == 0)
        rc = rfs_mf_ended(mf);
    return rc ? rc : declare(mf, &tensor);
}

int rfs_mf_read_tensors(struct rfs_mf *mf)
{
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&mf->json, &first))
        rc = rfs_mf_keep(&mf->name, mf->json.text, mf->json.text_n)
                 ? read_tensor(mf)
                 : rfs_fail_memory_of(mf->err, mf->path);
    return rc ? rc : rfs_mf_ended(mf);
}
