/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   {"state_dict_metadata": {
 *      "w": {"properties": {"dtype": "BFloat16", "replica_id": 0, "allow_shape_mismatch": false,
 *                           "allow_to_save": true},
 *            "global_shape": [8, 6], "axis_fragmentations": [2, 2],
 *            "layout": {"device_matrix": [2, 2, 2], "tensor_map": [0, 2],
 *                       "interleaved_parallel": false, "alias_name": ["d0", "d1", "d2"],
 *                       "rank_list": [0, 1, …]} or null,
 *            "chunk": [{"global_offset": [0], "local_shape": [4, 3]}, …]}, …},
 *    "storage_data": {"('w', (0,))": [{"file_name": …, "storage_rank": 0, "rank_group": […]}, …],
 *                     …}}
 *
 * Source: save_metadata of MindSpore Transformers 2.0 and 2.1, which write the two in this order.
 *
 * The text may be gigabytes, mostly lists of ranks, which are passed over. Each slice is taken from
 * the lowest rank whose file is in the folder; all other files that storage_data names for it, also
 * those that are missing, have further copies.
 *
 * A slice has a number, which metadata.json calls its global_offset: the tensor is cut into
 * axis_fragmentations pieces along its axes, and these are numbered row by row. The layout says
 * that in another way: axis i is cut by the device axes of entry i of tensor_map, where k is the
 * k-th axis of device_matrix from the right and -1 none. So the numbers are those of MindSpore
 * Transformers, which goes through tensor_map, only if both agree.
 *
 * A key of storage_data is Python's text of a name and a slice's number. rank_group is the list of
 * the ranks that have the slice in memory, in each entry again; only a strategy needs it. The text
 * has one layout of a tensor, also where several stages hold it; which do is known from the lists
 * of ranks alone.
 */
#include "formats/mindformers/mindformers.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/order.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "formats/chunks/chunk_reader.h"
#include "formats/chunks/headers.h"
#include "formats/numbered.h"

static const struct rfs_numbered_form optimizer_names = {
    .words = {"opt-", "-", ".safetensors"},
    .roles = {RFS_NUMBERED_RANK, RFS_NUMBERED_COUNT},
    .digits = 7,
    .prefixed = true,
    .part = 1,
    .choice = {"[mo]*-*"}};
const struct rfs_numbered_form rfs_mindformers_names = {
    .next = &optimizer_names,
    .similar = "*.safetensors",
    .words = {"model-", "-", ".safetensors"},
    .roles = {RFS_NUMBERED_RANK, RFS_NUMBERED_COUNT},
    .digits = 7,
    .prefixed = true,
    .choice = {"[mo]*-*"}};

#include <dirent.h>

#define TENSORS "state_dict_metadata"
#define STORAGE "storage_data"
#define RANKS_MOST (UINT64_C(1) << 20)
#define REMEDY_SAVE "an iteration whose save has ended, such as the one before"
#define REMEDY_FILE "the file as MindSpore Transformers wrote it"
#define REMEDY_RANKS "--rules with --ranks"

/* A text that outlives the next string that is read; a NUL follows it. */
struct text {
    char *data;
    size_t n, cap;
};

/* metadata.json being read. */
struct reading {
    struct rfs_chunks *chunks;
    const char *path; /* path of metadata.json, for messages */
    struct rfs_json_read json;
    struct text name;             /* name of the tensor at hand */
    RFS_VEC(uint64_t) slices;     /* numbers of the slices of that tensor */
    struct rfs_intern *listing;   /* names in the folder */
    RFS_VEC(unsigned char) named; /* by id in listing: whether the metadata names that file */
    RFS_VEC(uint32_t) copies;     /* numbers of the files that have the slice at hand */
    /*
     * Files of copies of the slice at hand: the last, the one that is taken, the one to be taken.
     */
    struct text file, best, first;
    struct rfs_intern *missing; /* files that were to be taken; NULL: all are there */
    uint64_t stand_ins;         /* number of slices that are taken from other files instead */
    /* The strategy that is read, when the chunks are finished; NULL: they are not. */
    struct rfs_mindformers_strategy *strategy;
    RFS_VEC(uint32_t) seen; /* by rank: n_seen of the last slice that it was found to hold */
    uint32_t n_seen;        /* number of slices so far */
    struct rfs_error *err;
};

/* The place of a message about the tensor at hand. */
#define HERE(r)                                                                                    \
    ((struct rfs_where){(r)->path, (int64_t)rfs_json_read_place(&(r)->json), (r)->name.data})

/* Copies N bytes to TEXT. False when out of memory. */
static bool keep(struct text *text, const char *data, size_t n)
{
    if (!rfs_vec_reserve((void **)&text->data, &text->cap, 0, n + 1, 1))
        return false;
    memcpy(text->data, data, n);
    text->data[n] = '\0';
    text->n = n;
    return true;
}

/* Returns 0, or -errno with the reason why reading ended early. */
static int ended(const struct reading *r)
{
    const struct rfs_json_read *json = &r->json;

    if (!json->wrong)
        return 0;
    if (json->no_memory)
        return rfs_fail_memory_of(r->err, r->path);
    if (json->failed)
        return rfs_files_fail(r->err, r->path, json->failed);
    return rfs_fail(r->err, -EINVAL, RFS_AT(r->path, rfs_json_read_place(json)), REMEDY_SAVE,
                    "not valid JSON of a Checkpoint 2.0: %s", json->wrong);
}

static int fail(const struct reading *r, const char *remedy, const char *what)
{
    return rfs_fail(r->err, -EINVAL, HERE(r), remedy, "%s", what);
}

static void reading_end(struct reading *r)
{
    rfs_json_read_free(&r->json);
    free(r->name.data);
    free(r->slices.data);
    free(r->copies.data);
    free(r->seen.data);
    free(r->file.data);
    free(r->best.data);
    free(r->first.data);
    rfs_intern_free(r->listing);
    free(r->named.data);
    rfs_intern_free(r->missing);
}

/* ---- a strategy: layouts of tensors, and the ranks that hold them ---------------------------- */

/* The layout of a tensor as metadata.json has it. */
struct described {
    struct rfs_mindformers_layout layout;
    uint64_t first_rank, n_ranks; /* rank_list; no ranks: there is no list, or it has gaps */
};

static uint64_t devices_of(const struct rfs_mindformers_layout *layout)
{
    uint64_t devices = 1;

    for (uint32_t i = 0; i < layout->n_dev; i++)
        if (!rfs_mul_u64(devices, layout->dev[i], &devices))
            return 0;
    return devices;
}

static int check_ranks(struct reading *r, const struct described *described)
{
    const uint64_t devices = devices_of(&described->layout);

    if (described->layout.n_dev == 0)
        return 0;
    if (devices == 0 || devices > RANKS_MOST)
        return fail(r, REMEDY_RANKS, "its device_matrix has no devices, or more than a million");
    if (described->n_ranks != devices || described->first_rank % devices != 0)
        return fail(r, REMEDY_RANKS,
                    "its rank_list is not the ranks of a pipeline stage, one after the other");
    if (r->strategy->devices == 0)
        r->strategy->devices = devices;
    if (r->strategy->devices != devices)
        return rfs_fail(r->err, -EINVAL, HERE(r), REMEDY_RANKS,
                        "its layout is one of %" PRIu64 " ranks, and that of others of %" PRIu64,
                        devices, r->strategy->devices);
    return 0;
}

/* Notes the layout of the tensor at hand. */
static int note_layout(struct reading *r, const struct described *described)
{
    const int rc = check_ranks(r, described);
    const uint32_t id =
        rfs_intern_add(r->strategy->distinct, &described->layout, sizeof described->layout);

    if (rc)
        return rc;
    return id != RFS_NO_ID && RFS_PUSH(&r->strategy->of, id) ? 0
                                                             : rfs_fail_memory_of(r->err, r->path);
}

/* Returns the number of the slice that a rank holds: the device axes of tensor_map, as digits. */
static uint64_t slice_of(const struct rfs_mindformers_layout *layout, uint64_t rank)
{
    uint64_t at[RFS_MINDFORMERS_AXES];
    uint64_t number = 0;

    for (uint32_t i = layout->n_dev; i-- > 0; rank /= layout->dev[i])
        at[i] = rank % layout->dev[i];
    const uint64_t n =
        layout->n_dev > 0 && layout->n_axes > 0 ? layout->end[layout->n_axes - 1] : 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t by = layout->n_dev - 1 - (uint32_t)layout->map[i];
        if (layout->map[i] >= 0)
            number = number * layout->dev[by] + at[by];
    }
    return number;
}

/* Returns 1 if the rank was not yet found to hold the slice at hand, 0 if it was, or -ENOMEM. */
static int is_new(struct reading *r, uint64_t rank)
{
    uint32_t *seen = RFS_VEC_AT(&r->seen, rank, 0);

    if (!seen)
        return rfs_fail_memory_of(r->err, r->path);
    if (*seen == r->n_seen)
        return 0;
    *seen = r->n_seen;
    return 1;
}

/* Notes that a rank holds slice NUMBER of the tensor at hand. */
static int note_rank(struct reading *r, uint64_t number, uint64_t rank)
{
    const struct rfs_chunked_tensor *found = rfs_chunks_find(r->chunks, r->name.data, r->name.n);
    const size_t n = r->strategy->held.n;
    struct rfs_mindformers_held *last = n > 0 ? &r->strategy->held.data[n - 1] : NULL;

    if (!found || (size_t)(found - r->chunks->tensors.data) >= r->strategy->of.n)
        return fail(r, REMEDY_RANKS,
                    "storage_data has slices of a tensor that is not in state_dict_metadata");
    if (rank >= RANKS_MOST)
        return fail(r, REMEDY_RANKS, "its ranks are more than a million");
    const int new = is_new(r, rank);
    if (new != 1)
        return new;
    const uint32_t tensor = (uint32_t)(found - r->chunks->tensors.data);
    const uint64_t devices = r->strategy->devices;
    const struct rfs_mindformers_held held = {tensor, devices ? (uint32_t)(rank / devices) : 0, 1};
    if (slice_of(rfs_mindformers_layout_of(r->strategy, tensor), rank) != number)
        return rfs_fail(r->err, -EINVAL, HERE(r), REMEDY_RANKS,
                        "rank %" PRIu64 " holds slice %" PRIu64
                        " of it, and its layout gives that rank another",
                        rank, number);
    if (last && last->tensor == held.tensor && last->stage == held.stage) {
        last->ranks++;
        return 0;
    }
    return RFS_PUSH(&r->strategy->held, held) ? 0 : rfs_fail_memory_of(r->err, r->path);
}

/* ---- state_dict_metadata --------------------------------------------------------------------- */

struct list {
    uint32_t n;
    uint64_t data[RFS_MINDFORMERS_AXES];
};

struct map {
    uint32_t n; /* number of axes of the tensor */
    uint32_t n_entries;
    uint32_t end[RFS_MINDFORMERS_AXES]; /* by axis: end of its entries */
    int64_t entry[RFS_MINDFORMERS_AXES];
};

/* The members of a tensor, which come in any order. */
struct description {
    bool has_dtype, has_shape, has_fragments, has_layout, has_matrix, has_map, interleaved;
    enum rfs_dtype dtype;
    struct list shape, fragments, matrix;
    struct map map;
    uint64_t first_rank, n_ranks; /* rank_list; no ranks: it has gaps */
    struct list slice;            /* shape of the slices */
    bool has_slice;
};

/* Reads a list of whole numbers. */
static int read_list(struct reading *r, struct list *list, const char *what)
{
    bool first = true;

    list->n = 0;
    while (rfs_json_read_element(&r->json, &first)) {
        if (list->n == RFS_MINDFORMERS_AXES)
            return rfs_fail(r->err, -ENOTSUP, HERE(r), NULL, "%s has more than %d numbers", what,
                            RFS_MINDFORMERS_AXES);
        if (!rfs_json_read_u64(&r->json, &list->data[list->n++]))
            break;
    }
    return ended(r);
}

static int add_entry(struct reading *r, struct map *map)
{
    if (map->n_entries == RFS_MINDFORMERS_AXES)
        return rfs_fail(r->err, -ENOTSUP, HERE(r), NULL, "tensor_map has more than %d entries",
                        RFS_MINDFORMERS_AXES);
    if (!rfs_json_read_i64(&r->json, &map->entry[map->n_entries++]))
        return ended(r);
    return 0;
}

/* Reads a tensor_map, such as [2, [1, 0], -1]. */
static int read_map(struct reading *r, struct map *map)
{
    bool first = true;
    int rc = 0;

    map->n = map->n_entries = 0;
    while (rc == 0 && rfs_json_read_element(&r->json, &first)) {
        bool first_entry = true;
        if (map->n == RFS_MINDFORMERS_AXES)
            return fail(r, REMEDY_FILE, "tensor_map has more entries than a tensor can have axes");
        if (!rfs_json_read_peek(&r->json, '['))
            rc = add_entry(r, map);
        else
            while (rc == 0 && rfs_json_read_element(&r->json, &first_entry))
                rc = add_entry(r, map);
        map->end[map->n++] = map->n_entries;
    }
    return rc ? rc : ended(r);
}

/* Reads a rank_list, such as [4, 5, 6, 7]. */
static int read_ranks(struct reading *r, struct description *tensor)
{
    uint64_t rank, n = 0;
    bool first = true, gaps = false;

    while (rfs_json_read_element(&r->json, &first) && rfs_json_read_u64(&r->json, &rank)) {
        if (n == 0)
            tensor->first_rank = rank;
        gaps |= rank - tensor->first_rank != n++;
    }
    tensor->n_ranks = gaps ? 0 : n;
    return ended(r);
}

static int read_layout(struct reading *r, struct description *tensor)
{
    struct rfs_json_read *json = &r->json;
    bool first = true;
    int rc = 0;

    tensor->has_layout = !rfs_json_read_null(json);
    while (rc == 0 && tensor->has_layout && rfs_json_read_member(json, &first)) {
        if (rfs_json_read_is(json, "device_matrix")) {
            rc = read_list(r, &tensor->matrix, "device_matrix");
            tensor->has_matrix = true;
        } else if (rfs_json_read_is(json, "tensor_map")) {
            rc = read_map(r, &tensor->map);
            tensor->has_map = true;
        } else if (rfs_json_read_is(json, "interleaved_parallel")) {
            tensor->interleaved = rfs_json_read_peek(json, 't');
            rfs_json_read_skip(json);
        } else if (r->strategy && rfs_json_read_is(json, "rank_list")) {
            rc = read_ranks(r, tensor);
        } else {
            rfs_json_read_skip(json);
        }
    }
    return rc ? rc : ended(r);
}

static int read_properties(struct reading *r, struct description *tensor)
{
    struct rfs_json_read *json = &r->json;
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        if (!rfs_json_read_is(json, "dtype")) {
            rfs_json_read_skip(json);
            continue;
        }
        if (!rfs_json_read_string(json))
            break;
        if (!rfs_dtype_parse(json->text, json->text_n, &tensor->dtype) || tensor->dtype == RFS_STR)
            return rfs_fail(r->err, -ENOTSUP, HERE(r), NULL, "its dtype '%.40s' is not known",
                            json->text);
        tensor->has_dtype = true;
    }
    return ended(r);
}

/* Reads {"global_offset": [3], "local_shape": [8, 4]}. */
static int read_slice(struct reading *r, struct description *tensor)
{
    struct rfs_json_read *json = &r->json;
    struct list number = {.n = 0};
    struct list shape = {.n = 0};
    bool first = true, has_shape = false;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(json, &first)) {
        if (rfs_json_read_is(json, "global_offset")) {
            rc = read_list(r, &number, "global_offset");
        } else if (rfs_json_read_is(json, "local_shape")) {
            rc = read_list(r, &shape, "local_shape");
            has_shape = true;
        } else {
            rfs_json_read_skip(json);
        }
    }
    if (rc == 0)
        rc = ended(r);
    if (rc)
        return rc;
    if (number.n != 1)
        return fail(r, REMEDY_FILE, "the global_offset of a slice is not the number of that slice");
    if (!has_shape)
        return fail(r, REMEDY_FILE, "a slice has no local_shape");
    if (tensor->has_slice &&
        (shape.n != tensor->slice.n ||
         memcmp(shape.data, tensor->slice.data, shape.n * sizeof *shape.data) != 0))
        return fail(r, REMEDY_FILE,
                    "its slices differ in local_shape: pipeline stages hold it in different "
                    "layouts, and metadata.json has only one");
    tensor->slice = shape;
    tensor->has_slice = true;
    return RFS_PUSH(&r->slices, number.data[0]) ? 0 : rfs_fail_memory_of(r->err, r->path);
}

static int read_slices(struct reading *r, struct description *tensor)
{
    bool first = true;
    int rc = 0;

    r->slices.n = 0;
    tensor->has_slice = false;
    while (rc == 0 && rfs_json_read_element(&r->json, &first))
        rc = read_slice(r, tensor);
    return rc ? rc : ended(r);
}

static int read_member(struct reading *r, struct description *tensor)
{
    struct rfs_json_read *json = &r->json;

    if (rfs_json_read_is(json, "properties"))
        return read_properties(r, tensor);
    if (rfs_json_read_is(json, "global_shape")) {
        tensor->has_shape = true;
        return read_list(r, &tensor->shape, "global_shape");
    }
    if (rfs_json_read_is(json, "axis_fragmentations")) {
        tensor->has_fragments = true;
        return read_list(r, &tensor->fragments, "axis_fragmentations");
    }
    if (rfs_json_read_is(json, "layout"))
        return read_layout(r, tensor);
    if (rfs_json_read_is(json, "chunk"))
        return read_slices(r, tensor);
    rfs_json_read_skip(json);
    return 0;
}

/* Counts the pieces into which tensor_map cuts an axis; 0: it is no map of this device_matrix. */
static uint64_t pieces_of(const struct description *tensor, uint32_t axis)
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

/* Checks that the numbers of slices mean the slices that the top of this file describes. */
static int check_layout(struct reading *r, const struct description *tensor)
{
    const struct list *fragments = &tensor->fragments;

    if (!tensor->has_layout) {
        for (uint32_t i = 0; i < fragments->n; i++)
            if (fragments->data[i] != 1)
                return fail(r, REMEDY_FILE, "it is cut into slices, and has no layout");
        return 0;
    }
    if (tensor->interleaved)
        return rfs_fail(r->err, -ENOTSUP, HERE(r), NULL,
                        "its layout is interleaved_parallel, which is not read");
    if (!tensor->has_matrix || !tensor->has_map)
        return fail(r, REMEDY_FILE, "its layout has no device_matrix or no tensor_map");
    if (tensor->map.n != fragments->n)
        return fail(r, REMEDY_FILE,
                    "tensor_map and axis_fragmentations differ in their number of entries");
    for (uint32_t i = 0; i < fragments->n; i++)
        if (pieces_of(tensor, i) != fragments->data[i])
            return rfs_fail(r->err, -EINVAL, HERE(r), REMEDY_FILE,
                            "tensor_map cuts axis %u into %" PRIu64
                            " slices, and axis_fragmentations into %" PRIu64,
                            i, pieces_of(tensor, i), fragments->data[i]);
    return 0;
}

/* Fills SIZE with the shape of a slice. */
static int check_shapes(struct reading *r, const struct description *tensor, uint64_t *size)
{
    const struct list *shape = &tensor->shape;

    if (!tensor->has_dtype || !tensor->has_shape || !tensor->has_fragments)
        return fail(r, REMEDY_FILE, "it has no dtype, no global_shape or no axis_fragmentations");
    if (shape->n > RFS_MAX_DIMS)
        return rfs_fail(r->err, -ENOTSUP, HERE(r), NULL, "it has more than %d axes", RFS_MAX_DIMS);
    if (tensor->fragments.n != shape->n)
        return fail(r, REMEDY_FILE,
                    "global_shape and axis_fragmentations differ in their number of entries");
    for (uint32_t i = 0; i < shape->n; i++) {
        const uint64_t pieces = tensor->fragments.data[i];
        if (pieces == 0 || shape->data[i] % pieces != 0)
            return rfs_fail(r->err, -EINVAL, HERE(r), REMEDY_FILE,
                            "axis %u of %" PRIu64 " cannot be cut into %" PRIu64 " slices", i,
                            shape->data[i], pieces);
        size[i] = shape->data[i] / pieces;
    }
    if (tensor->has_slice && (tensor->slice.n != shape->n ||
                              memcmp(tensor->slice.data, size, shape->n * sizeof *size) != 0)) {
        char text[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
        return rfs_fail(r->err, -EINVAL, HERE(r), REMEDY_FILE,
                        "local_shape differs from the shape of its slices, %s",
                        rfs_text_dims(text, sizeof text, shape->n, size));
    }
    return check_layout(r, tensor);
}

static int declare_slice(struct reading *r, const struct description *tensor, const uint64_t *size,
                         uint64_t number)
{
    uint64_t offset[RFS_MAX_DIMS];
    uint64_t rest = number;

    for (uint32_t i = tensor->shape.n; i-- > 0; rest /= tensor->fragments.data[i])
        offset[i] = rest % tensor->fragments.data[i] * size[i];
    if (rest > 0)
        return rfs_fail(r->err, -EINVAL, HERE(r), REMEDY_FILE,
                        "it has a slice %" PRIu64 ", which axis_fragmentations does not", number);
    return rfs_chunks_add_chunk(r->chunks, offset, size, r->err);
}

static int describe_layout(struct reading *r, const struct description *tensor)
{
    struct described described = {.first_rank = tensor->first_rank, .n_ranks = tensor->n_ranks};
    struct rfs_mindformers_layout *layout = &described.layout;

    layout->n_axes = tensor->shape.n;
    if (!tensor->has_layout)
        return note_layout(r, &described);
    layout->n_dev = tensor->matrix.n;
    memcpy(layout->dev, tensor->matrix.data, tensor->matrix.n * sizeof *layout->dev);
    memcpy(layout->map, tensor->map.entry, tensor->map.n_entries * sizeof *layout->map);
    for (uint32_t i = 0; i < tensor->map.n; i++)
        layout->end[i] = tensor->map.end[i];
    return note_layout(r, &described);
}

static int declare(struct reading *r, const struct description *tensor)
{
    struct rfs_type type = {.ndim = (uint8_t)tensor->shape.n, .dtype = (uint8_t)tensor->dtype};
    uint64_t size[RFS_MAX_DIMS];
    int rc = check_shapes(r, tensor, size);

    if (rc)
        return rc;
    if (r->strategy)
        return describe_layout(r, tensor);
    memcpy(type.dims, tensor->shape.data, tensor->shape.n * sizeof *type.dims);
    rc = rfs_chunks_add_tensor(r->chunks, r->name.data, r->name.n, &type, r->err);
    for (size_t i = 0; rc == 0 && i < r->slices.n; i++)
        rc = declare_slice(r, tensor, size, r->slices.data[i]);
    return rc;
}

static int read_tensor(struct reading *r)
{
    struct description tensor = {.has_dtype = false};
    bool first = true;
    int rc = 0;

    r->slices.n = 0;
    while (rc == 0 && rfs_json_read_member(&r->json, &first))
        rc = read_member(r, &tensor);
    if (rc == 0)
        rc = ended(r);
    return rc ? rc : declare(r, &tensor);
}

/* Reads the value of state_dict_metadata: declares all tensors and their slices. */
static int read_tensors(struct reading *r)
{
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&r->json, &first))
        rc = keep(&r->name, r->json.text, r->json.text_n) ? read_tensor(r)
                                                          : rfs_fail_memory_of(r->err, r->path);
    return rc ? rc : ended(r);
}

/* ---- storage_data ---------------------------------------------------------------------------- */

/* Reads N hexadecimal digits as a character; 0: they are none. */
static uint32_t read_code(const char *at, const char *end, unsigned n)
{
    uint32_t code = 0;

    if ((size_t)(end - at) < n)
        return 0;
    for (unsigned i = 0; i < n; i++) {
        const char c = at[i];
        const uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                               : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                                                      : 16;
        if (digit == 16)
            return 0;
        code = code << 4 | digit;
    }
    return code;
}

/*
 * Appends a character as UTF-8, which takes up to 4 bytes. False for a number that is no character.
 */
static bool put_code(char *out, size_t *n, uint32_t code)
{
    if (code == 0 || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
        return false;
    if (code < 0x80) {
        out[(*n)++] = (char)code;
        return true;
    }
    const unsigned more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[(*n)++] = (char)(lead[more] | code >> 6 * more);
    for (unsigned i = more; i-- > 0;)
        out[(*n)++] = (char)(0x80 | (code >> 6 * i & 0x3f));
    return true;
}

/* Reads an escape in a text that Python printed, behind its backslash. Moves *AT behind it. */
static bool read_escape(const char **at, const char *end, char *out, size_t *n)
{
    static const char from[] = "\\'\"nrt";
    static const char to[] = "\\'\"\n\r\t";
    const char c = *at < end ? *(*at)++ : 0;
    const char *found = c ? strchr(from, c) : NULL;
    const unsigned digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;

    if (found) {
        out[(*n)++] = to[found - from];
        return true;
    }
    if (digits == 0 || !put_code(out, n, read_code(*at, end, digits)))
        return false;
    *at += digits;
    return true;
}

/*
 * Reads the name of a tensor, a text that Python printed: it ends with the quote that it began
 * with.
 */
static bool read_name(struct reading *r, const char **at, const char *end)
{
    const char quote = *at < end ? *(*at)++ : 0;
    size_t n = 0;

    if (quote != '\'' && quote != '"')
        return false;
    while (*at < end && **at != quote) {
        const char c = *(*at)++;
        if (c != '\\')
            r->name.data[n++] = c;
        else if (!read_escape(at, end, r->name.data,
                              &n)) /* an escape is longer than its character */
            return false;
    }
    r->name.data[n] = '\0';
    r->name.n = n;
    return *at < end && *(*at)++ == quote;
}

/* Reads the number in ", (3,))". */
static bool read_number(const char *at, const char *end, uint64_t *number)
{
    const char *digits;

    *number = 0;
    if (end - at < 7 || memcmp(at, ", (", 3) != 0)
        return false;
    for (digits = at += 3; at < end && *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*at - '0'), number))
            return false;
    return at > digits && (*digits != '0' || at == digits + 1) && end - at == 3 &&
           memcmp(at, ",))", 3) == 0;
}

static int read_key(struct reading *r, uint64_t *number)
{
    const char *at = r->json.text;
    const char *end = at + r->json.text_n;

    if (!keep(&r->name, at, r->json.text_n))
        return rfs_fail_memory_of(r->err, r->path);
    r->name.n = 0;
    if (end - at > 1 && *at++ == '(' && read_name(r, &at, end) && read_number(at, end, number))
        return 0;
    return rfs_fail(r->err, -EINVAL, RFS_AT(r->path, rfs_json_read_place(&r->json)), REMEDY_FILE,
                    "the key %.200s is not ('NAME', (NUMBER,))", r->json.text);
}

/* The lowest rank with a copy of a slice, and the lowest whose file is there; or UINT64_MAX. */
struct copies {
    uint64_t lowest, best;
};

/* Reads a rank_group, such as [3, 7]. */
static int read_group(struct reading *r, uint64_t number)
{
    uint64_t rank;
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_element(&r->json, &first) && rfs_json_read_u64(&r->json, &rank))
        rc = note_rank(r, number, rank);
    return rc ? rc : ended(r);
}

/* Reads {"file_name": …, "storage_rank": …, "rank_group": …}. */
static int read_copy(struct reading *r, uint64_t number, uint64_t *rank)
{
    struct rfs_json_read *json = &r->json;
    bool first = true, has_file = false, has_rank = false;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(json, &first)) {
        if (rfs_json_read_is(json, "file_name")) {
            if (!rfs_json_read_string(json))
                break;
            if (!keep(&r->file, json->text, json->text_n))
                return rfs_fail_memory_of(r->err, r->path);
            has_file = true;
        } else if (rfs_json_read_is(json, "storage_rank")) {
            has_rank = rfs_json_read_u64(json, rank);
        } else if (r->strategy && rfs_json_read_is(json, "rank_group")) {
            rc = read_group(r, number);
        } else {
            rfs_json_read_skip(json);
        }
    }
    if (rc == 0)
        rc = ended(r);
    if (rc)
        return rc;
    if (!has_file || !has_rank)
        return fail(r, REMEDY_FILE, "a copy of its slice has no file_name or no storage_rank");
    if (r->file.n == 0 || memchr(r->file.data, '/', r->file.n))
        return rfs_fail(r->err, -EINVAL, HERE(r), REMEDY_FILE,
                        "its file_name '%.200s' is not the name of a file in this folder",
                        r->file.data);
    return 0;
}

static void swap(struct text *a, struct text *b)
{
    const struct text was = *a;
    *a = *b;
    *b = was;
}

/* Notes the copy that was read, and takes it if it is the best so far. */
static int take_copy(struct reading *r, struct copies *copies, uint64_t rank)
{
    const uint32_t number = rfs_chunks_add_copy_file(r->chunks, r->file.data, r->file.n, r->err);
    const bool lower = rank < copies->lowest;
    const uint32_t listed = rfs_intern_find(r->listing, r->file.data, r->file.n);
    const bool there = rank < copies->best && listed != RFS_NO_ID;

    if (listed != RFS_NO_ID)
        r->named.data[listed] = 1;

    if (number == RFS_NO_ID || !RFS_PUSH(&r->copies, number))
        return rfs_fail_memory_of(r->err, r->path);
    if (lower) {
        copies->lowest = rank;
        if (!there && !keep(&r->first, r->file.data, r->file.n))
            return rfs_fail_memory_of(r->err, r->path);
    }
    if (there) {
        copies->best = rank;
        swap(&r->best, &r->file);
    }
    return 0;
}

static int note_missing(struct reading *r)
{
    r->stand_ins++;
    if (!r->missing && (r->missing = rfs_intern_new()) == NULL)
        return rfs_fail_memory_of(r->err, r->path);
    return rfs_intern_add(r->missing, r->first.data, r->first.n) == RFS_NO_ID
               ? rfs_fail_memory_of(r->err, r->path)
               : 0;
}

RFS_COMPARE(by_number, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Stores the files of the slice at hand but the one that is taken, each once. */
static int store_others(struct reading *r, const struct rfs_chunked_tensor *tensor,
                        const uint64_t *offset)
{
    const uint32_t taken = rfs_chunks_add_copy_file(r->chunks, r->best.data, r->best.n, r->err);
    uint32_t *files = r->copies.data;
    size_t n = 0;

    RFS_SORT(files, r->copies.n, by_number);
    for (size_t i = 0; i < r->copies.n; i++)
        if (files[i] != taken && (n == 0 || files[i] != files[n - 1]))
            files[n++] = files[i];
    return taken == RFS_NO_ID
               ? r->err->code
               : rfs_chunks_store_copies(r->chunks, tensor, offset, files, NULL, n, r->err);
}

static int store_file(struct reading *r, uint64_t number)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(r->chunks, r->name.data, r->name.n);
    uint64_t offset[RFS_MAX_DIMS];

    if (!tensor)
        return fail(r, REMEDY_FILE,
                    "storage_data has slices of it, but state_dict_metadata lacks the tensor");
    const struct rfs_type *whole = rfs_chunks_type(r->chunks, tensor->type);
    if (tensor->n == 0)
        return 0; /* the tensor has no elements, or the proof that it is whole will fail */
    const struct rfs_type *slice = rfs_chunks_type_of(r->chunks, tensor->first);
    uint64_t rest = number;
    for (uint32_t i = whole->ndim; i-- > 0;) {
        const uint64_t pieces = whole->dims[i] / slice->dims[i];
        offset[i] = rest % pieces * slice->dims[i];
        rest /= pieces;
    }
    if (rest > 0)
        return rfs_fail(
            r->err, -EINVAL, HERE(r), REMEDY_FILE,
            "storage_data has a slice %" PRIu64 " of it, but axis_fragmentations does not", number);
    const uint32_t file = rfs_chunks_add_file(r->chunks, r->best.data, r->best.n, r->err);
    if (file == RFS_NO_ID)
        return r->err->code;
    return rfs_chunks_store(r->chunks, tensor, offset, file, 0, 0, r->err)
               ?: store_others(r, tensor, offset);
}

static int store_slice(struct reading *r, uint64_t number)
{
    struct copies copies = {.lowest = UINT64_MAX, .best = UINT64_MAX};
    uint64_t rank = 0;
    bool first = true;
    int rc = 0;

    r->n_seen++;
    r->copies.n = 0;
    while (rc == 0 && rfs_json_read_element(&r->json, &first)) {
        rc = read_copy(r, number, &rank);
        if (rc == 0 && r->strategy)
            rc = note_rank(r, number, rank);
        else if (rc == 0)
            rc = take_copy(r, &copies, rank);
    }
    if (rc == 0)
        rc = ended(r);
    if (rc || r->strategy)
        return rc;
    if (copies.lowest == UINT64_MAX)
        return fail(r, REMEDY_FILE, "storage_data names no file for a slice of it");
    if (copies.best == UINT64_MAX)
        return rfs_fail(r->err, -ENOENT, HERE(r),
                        "an iteration with all its files, or the files from the place of the save",
                        "its slice %" PRIu64
                        " is in '%.200s', which is missing, and in no other file",
                        number, r->first.data);
    if (copies.best != copies.lowest && (rc = note_missing(r)) != 0)
        return rc;
    return store_file(r, number);
}

/* Reads the value of storage_data: stores each slice in one file. */
static int read_storage(struct reading *r)
{
    uint64_t number = 0;
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&r->json, &first))
        rc = read_key(r, &number) ?: store_slice(r, number);
    return rc ? rc : ended(r);
}

/* ---- the text -------------------------------------------------------------------------------- */

static int fill(void *ctx, void *buf, size_t n, uint64_t offset, size_t *got)
{
    struct rfs_reading *reading = ctx;
    const uint64_t rest = offset < reading->size ? reading->size - offset : 0;

    *got = rest < n ? (size_t)rest : n;
    return *got ? rfs_reading_pread(reading, buf, *got, offset) : 0;
}

/* Offsets of the sections of the text; UINT64_MAX: it has none. */
struct sections {
    uint64_t tensors, storage;
};

static int read_section(struct reading *r, struct sections *sections)
{
    struct rfs_json_read *json = &r->json;
    const bool tensors = rfs_json_read_is(json, TENSORS);
    const bool storage = rfs_json_read_is(json, STORAGE);
    uint64_t *place = tensors ? &sections->tensors : &sections->storage;

    if (!tensors && !storage) {
        rfs_json_read_skip(json);
        return 0;
    }
    if (*place != UINT64_MAX)
        return rfs_fail(r->err, -EINVAL, RFS_AT(r->path, rfs_json_read_place(json)), REMEDY_SAVE,
                        "'%s' comes twice", json->text);
    *place = rfs_json_read_place(json);
    if (tensors) {
        const int rc = read_tensors(r);
        return rc || r->strategy ? rc : rfs_chunks_sort(r->chunks, r->err);
    }
    if (sections->tensors != UINT64_MAX)
        return read_storage(r);
    rfs_json_read_skip(json); /* for later, when the tensors are known */
    return 0;
}

static int read_text(struct reading *r, struct rfs_reading *reading)
{
    struct sections sections = {UINT64_MAX, UINT64_MAX};
    bool first = true;
    int rc = 0;

    r->json = rfs_json_read_begin_blocks(fill, reading, 0);
    while (rc == 0 && rfs_json_read_member(&r->json, &first))
        rc = read_section(r, &sections);
    if (rc == 0) {
        rfs_json_read_end(&r->json);
        rc = ended(r);
    }
    if (rc)
        return rc;
    if (sections.tensors == UINT64_MAX || sections.storage == UINT64_MAX)
        return rfs_fail(r->err, -EINVAL, RFS_IN(r->path),
                        "the folder of an iteration of MindSpore Transformers",
                        "it has no '%s'; that of a Checkpoint 2.0 has one",
                        sections.tensors == UINT64_MAX ? TENSORS : STORAGE);
    if (sections.storage > sections.tensors)
        return 0;
    rfs_json_read_free(&r->json);
    r->json = rfs_json_read_begin_blocks(fill, reading, sections.storage);
    return read_storage(r);
}

/* Reads the whole text. */
static int read_metadata(struct reading *r)
{
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(r->chunks->files, r->chunks->metadata, &reading);

    if (rc < 0) {
        rfs_files_fail(r->err, r->path, rc);
        rfs_files_reason(r->chunks->files, r->chunks->metadata, rc, r->err);
        return rc;
    }
    rc = read_text(r, &reading);
    const int end = rfs_reading_end(&reading);
    return end < 0 ? rfs_files_fail(r->err, r->path, end) : rc;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Says whether an entry of the folder is there; links may lead nowhere. */
static bool is_there(const struct reading *r, const struct dirent *entry)
{
    RFS_FREE char *path =
        entry->d_type == DT_LNK ? rfs_path_join(r->chunks->folder, entry->d_name) : NULL;

    return !path || rfs_store_there(rfs_files_store(r->chunks->files), path);
}

/* Lists the names in the folder. */
static int list_folder(struct reading *r)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    const int failed = rfs_dir_open(rfs_files_store(r->chunks->files), r->chunks->folder, &dir);

    if (failed)
        return rfs_store_fail_read(r->err, RFS_IN(r->chunks->folder), failed);
    r->listing = rfs_intern_new();
    while (r->listing && (entry = rfs_dir_next(&dir)) != NULL) {
        if (!is_there(r, entry) ||
            (rfs_intern_add(r->listing, entry->d_name, strlen(entry->d_name)) != RFS_NO_ID &&
             RFS_PUSH(&r->named, 0)))
            continue;
        rfs_intern_free(r->listing);
        r->listing = NULL;
    }
    const int code = errno;
    if (!r->listing)
        return rfs_fail_memory(r->err);
    return code ? rfs_store_fail_read(r->err, RFS_IN(r->chunks->folder), -code) : 0;
}

static void log_missing(const struct reading *r)
{
    const uint32_t others = r->missing ? rfs_intern_count(r->missing) - 1 : 0;

    if (r->missing)
        rfs_log(r->chunks->log, RFS_WARNING,
                "%s: %" PRIu64 " %s from copies in other files: '%s'%s missing", r->path,
                r->stand_ins, r->stand_ins == 1 ? "slice comes" : "slices come",
                rfs_intern_text(r->missing, 0),
                others == 0   ? " is"
                : others == 1 ? " and another file are"
                              : " and other files are");
}

/*
 * Logs which files of the save the metadata does not name: MindSpore Transformers writes it twice.
 */
static void log_others(const struct reading *r)
{
    const char *first = NULL;
    size_t n = 0;

    for (uint32_t i = 0; i < r->named.n; i++) {
        const char *name = rfs_intern_text(r->listing, i);
        if (r->named.data[i] || rfs_numbered_count(&rfs_mindformers_names, name) == 0)
            continue;
        n++;
        first = !first || strcmp(name, first) < 0 ? name : first;
    }
    if (n > 0)
        rfs_log(r->chunks->log, RFS_WARNING,
                n == 1 ? "%s: %zu file of the save is not named in it, '%s': what only that file "
                         "has is not shown"
                       : "%s: %zu files of the save are not named in it, such as '%s': what only "
                         "they have is not shown",
                r->path, n, first);
}

static const struct rfs_chunks_format format = {.name = "MindSpore Transformers, Checkpoint 2.0",
                                                .locate = rfs_chunks_locate_in_header,
                                                .locate_copy = rfs_chunks_copy_in_header,
                                                .check = rfs_chunks_check_header,
                                                .free = rfs_chunks_free_headers};

bool rfs_mindformers_owns(const struct rfs_chunks *chunks)
{
    return chunks->format == &format;
}

static int build(struct rfs_chunks *chunks, struct rfs_error *err)
{
    RFS_CLEANUP(reading_end)
    struct reading r = {
        .chunks = chunks, .path = rfs_files_path(chunks->files, chunks->metadata), .err = err};

    int rc = list_folder(&r) ?: read_metadata(&r) ?: rfs_chunks_finish(chunks, err);
    if (rc)
        return rc;
    log_missing(&r);
    log_others(&r);
    return rfs_chunks_own_headers(chunks) ? rfs_fail_memory_of(err, r.path) : 0;
}

int rfs_mindformers_open(const struct rfs_chunks_source *source, struct rfs_chunks **out,
                         struct rfs_error *err)
{
    struct rfs_chunks *chunks = rfs_chunks_new(&format, source);
    struct rfs_error own = {0};

    *out = NULL;
    if (!chunks)
        return rfs_fail_memory(err);
    const int rc = build(chunks, err ? err : &own);
    if (rc) {
        rfs_chunks_free(chunks);
        return rc;
    }
    *out = chunks;
    return 0;
}
RFS_COMPARE(by_stage, struct rfs_mindformers_held, x, y,
            RFS_ORDER(x->stage, y->stage) ?: RFS_ORDER(x->tensor, y->tensor))

/*
 * Joins what is noted, one for each tensor and stage, and checks that all ranks of a stage hold it.
 */
static int join(struct reading *r)
{
    struct rfs_mindformers_strategy *strategy = r->strategy;
    struct rfs_mindformers_held *held = strategy->held.data;
    size_t n = 0;

    if (strategy->devices == 0)
        strategy->devices = r->seen.n; /* no tensor has a layout: one stage */
    RFS_SORT(held, strategy->held.n, by_stage);
    for (size_t i = 0; i < strategy->held.n; i++)
        if (n > 0 && by_stage(&held[n - 1], &held[i]) == 0)
            held[n - 1].ranks += held[i].ranks;
        else
            held[n++] = held[i];
    strategy->held.n = n;
    for (size_t i = 0; i < n; i++)
        if (held[i].ranks != strategy->devices)
            return rfs_fail(
                r->err, -EINVAL, RFS_CHUNKS_OF(r->chunks, &r->chunks->tensors.data[held[i].tensor]),
                REMEDY_RANKS, "only %" PRIu64 " of the %" PRIu64 " ranks of stage %u hold it",
                held[i].ranks, strategy->devices, held[i].stage);
    return 0;
}

int rfs_mindformers_read_strategy(struct rfs_chunks *chunks, struct rfs_mindformers_strategy *out,
                                  struct rfs_error *err)
{
    RFS_CLEANUP(reading_end)
    struct reading r = {.chunks = chunks,
                        .path = rfs_files_path(chunks->files, chunks->metadata),
                        .strategy = out,
                        .err = err};

    *out = (struct rfs_mindformers_strategy){.distinct = rfs_intern_new()};
    if (!out->distinct)
        return rfs_fail_memory(err);
    return read_metadata(&r) ?: join(&r);
}

void rfs_mindformers_strategy_free(struct rfs_mindformers_strategy *strategy)
{
    rfs_intern_free(strategy->distinct);
    free(strategy->of.data);
    free(strategy->held.data);
}
