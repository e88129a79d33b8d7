/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finished chunks: where their elements are, and the chunks that a box touches.
 *
 * Megatron-Core before 0.14 flattens the state of its optimizer before it stores it. A tensor of
 * [X, Y] is cut in a grid of equal tiles of [x, y]; each tile is flattened, and cut anywhere:
 *
 *     stored as  [X / x, Y / y, x * y], in chunks of [1, 1, n]
 *
 * hfai flattens a large tensor as one tile, which is stored as [X * Y], in chunks of [n].
 *
 * A chunk is a range of the elements of one tile, row by row. Such a range is a few boxes: the rest
 * of a row, whole rows, the beginning of a row, and so on along each axis.
 *
 *     ....####    the rest of a row
 *     ########    whole rows
 *     ########
 *     ###.....    the beginning of a row
 *
 * Source: dist_checkpointing/strategies/resharding.py of Megatron-Core 0.13.
 */
#include "formats/chunks/boxes.h"

#include "base/checked.h"
#include "base/order.h"
#include "base/store.h"
#include "formats/chunks/chunk_reader.h"

const struct rfs_chunked_tensor *rfs_chunks_tensor_of(const struct rfs_chunks *chunks,
                                                      uint32_t chunk)
{
    const struct rfs_chunked_tensor *tensors = chunks->tensors.data;

    /* The last that begins at or before it: tensors without chunks begin where the next does. */
    return &tensors[RFS_BISECT(i, chunks->tensors.n, tensors[i].first > chunk) - 1];
}

const char *rfs_chunks_name_of(const struct rfs_chunks *chunks, uint32_t chunk)
{
    return rfs_intern_text(chunks->tables->names, rfs_chunks_tensor_of(chunks, chunk)->name);
}

int rfs_chunks_fail_file(const struct rfs_chunks *chunks, uint32_t file, int rc,
                         struct rfs_error *err)
{
    const char *path = rfs_files_path(chunks->files, file);

    if (rc == -ESTALE && !rfs_store_there(rfs_files_store(chunks->files), path))
        return rfs_fail(err, rc, RFS_IN(path), "copy it there, and mount again",
                        "the metadata of the checkpoint names this file, but it is missing");
    rfs_files_fail(err, path, rc);
    rfs_files_reason(chunks->files, file, rc, err);
    return rc;
}

int rfs_chunks_object_bytes(struct rfs_chunks *chunks, const struct rfs_chunked_object *object,
                            uint64_t *bytes, struct rfs_error *err)
{
    struct rfs_reading reading;

    *bytes = object->item_bytes;
    if (!rfs_files_packed(chunks->files))
        return 0;
    int rc = rfs_reading_begin_quiet(chunks->files, object->file, &reading);
    if (rc < 0)
        return rfs_chunks_fail_file(chunks, object->file, rc, err);
    rc = rfs_reading_measure(&reading, object->item, bytes, err);
    const int ended = rfs_reading_end(&reading);
    return rc == 0 && ended < 0 ? rfs_chunks_fail_file(chunks, object->file, ended, err) : rc;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Takes the place that was known when the checkpoint was built. */
static int take_place(struct rfs_chunks *chunks, struct rfs_chunk *chunk, struct rfs_error *err)
{
    const int rc = rfs_chunks_check_file(chunks, chunk->file, err);

    if (rc == 0)
        atomic_store(&chunk->at, chunk->item);
    return rc;
}

int rfs_chunks_locate(struct rfs_chunks *chunks, uint32_t chunk, struct rfs_error *err)
{
    struct rfs_chunk *of = &chunks->chunks.data[chunk];

    if (atomic_load_explicit(&of->at, memory_order_acquire) != RFS_NOT_LOCATED)
        return 0;
    return chunks->format->locate ? chunks->format->locate(chunks, chunk, err)
                                  : take_place(chunks, of, err);
}

/* Returns the numbers of the files with further copies of a chunk. */
static const uint32_t *list_of(const struct rfs_chunks *chunks, uint32_t chunk, uint32_t *n)
{
    const uint32_t list = chunks->copies ? chunks->copies[chunk].list : RFS_NO_ID;
    size_t bytes = 0;
    const uint32_t *numbers =
        list == RFS_NO_ID ? NULL
                          : (const uint32_t *)rfs_intern_bytes(chunks->copy_lists, list, &bytes);

    *n = (uint32_t)(bytes / sizeof *numbers);
    return numbers;
}

uint32_t rfs_chunks_count_copies(const struct rfs_chunks *chunks, uint32_t chunk)
{
    uint32_t n;

    list_of(chunks, chunk, &n);
    return n;
}

void rfs_chunks_copy_at(const struct rfs_chunks *chunks, uint32_t chunk, uint32_t copy,
                        struct rfs_chunked_copy *out)
{
    uint32_t n;
    const uint32_t number = list_of(chunks, chunk, &n)[copy];
    const uint64_t *places = chunks->copy_places.data;

    *out = (struct rfs_chunked_copy){
        .file = chunks->copy_files.n > 0 ? chunks->copy_files.data[number] : number,
        .type = chunks->chunks.data[chunk].type,
        .at = chunks->copy_places.n > 0 ? places[chunks->copies[chunk].first + copy] : 0};
}

int rfs_chunks_locate_copy(struct rfs_chunks *chunks, uint32_t chunk, uint32_t copy,
                           struct rfs_chunked_copy *out, struct rfs_error *err)
{
    const struct rfs_chunk *of = &chunks->chunks.data[chunk];

    rfs_chunks_copy_at(chunks, chunk, copy, out);
    if (out->file != of->file && out->file == rfs_chunks_file_of(chunks, chunk)) {
        out->file = of->file;
        out->at = of->item;
    }
    const int rc = rfs_chunks_check_file(chunks, out->file, err);
    return rc || !chunks->format->locate_copy
               ? rc
               : chunks->format->locate_copy(chunks, chunk, out, err);
}

/* Marks a value of at that is a position in the strided ones. */
#define STRIDED (UINT64_C(1) << 63)

uint64_t rfs_chunks_add_strided(struct rfs_chunks *chunks, uint64_t at, uint32_t ndim,
                                const uint64_t *stride)
{
    struct rfs_strided_chunk chunk = {.at = at};
    uint64_t value = RFS_NOT_LOCATED;

    memcpy(chunk.stride, stride, ndim * sizeof *stride);
    pthread_mutex_lock(&chunks->lock);
    if (RFS_PUSH(&chunks->strided, chunk))
        value = STRIDED | (chunks->strided.n - 1);
    pthread_mutex_unlock(&chunks->lock);
    return value;
}

/* Finds the elements with that value of at; false: they lie row by row. */
static bool find_strided(struct rfs_chunks *chunks, uint64_t at, struct rfs_strided_chunk *out)
{
    *out = (struct rfs_strided_chunk){.at = at};
    if (!(at & STRIDED))
        return false;
    pthread_mutex_lock(&chunks->lock);
    *out = chunks->strided.data[at & ~STRIDED];
    pthread_mutex_unlock(&chunks->lock);
    return true;
}

void rfs_chunks_place_box(struct rfs_chunks *chunks, const struct rfs_chunk_box *box, uint32_t file,
                          uint64_t at, struct rfs_chunk_place *out)
{
    const struct rfs_type *type = rfs_chunks_type_of(chunks, box->chunk);
    uint64_t step = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    struct rfs_strided_chunk place;

    *out = (struct rfs_chunk_place){.file = file, .strided = find_strided(chunks, at, &place)};
    if (out->strided && !box->flat)
        memcpy(out->stride, place.stride, sizeof place.stride);
    else if (out->strided) /* the elements are a row */
        step = place.stride[type->ndim - 1];
    for (uint32_t i = 0; i < RFS_MAX_DIMS && !(out->strided && !box->flat); i++)
        out->stride[i] = box->step[i] * step;
    out->at = place.at + box->first * step; /* first is 0 for a whole chunk */
}

int rfs_chunks_locate_box(struct rfs_chunks *chunks, const struct rfs_chunk_box *box,
                          struct rfs_chunk_place *out, struct rfs_error *err)
{
    const int rc = rfs_chunks_locate(chunks, box->chunk, err);

    if (rc == 0)
        rfs_chunks_place_box(chunks, box, rfs_chunks_file_of(chunks, box->chunk),
                             atomic_load(&chunks->chunks.data[box->chunk].at), out);
    return rc;
}

/* Says whether elements lie without gaps, and both in one order. */
static bool are_alike(const struct rfs_type *type, const uint64_t *a, const uint64_t *b)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < type->ndim; i++) {
        uint64_t bytes;
        if (type->dims[i] < 2)
            continue;
        if (a[i] != b[i] || !rfs_mul_u64(type->dims[i] - 1, a[i], &bytes) ||
            !rfs_add_u64(last, bytes, &last))
            return false;
    }
    return last + rfs_dtype_bytes((enum rfs_dtype)type->dtype) == type->bytes;
}

bool rfs_chunks_are_alike(struct rfs_chunks *chunks, const struct rfs_type *type, uint64_t a,
                          uint64_t b, uint64_t begin[2])
{
    struct rfs_strided_chunk places[2];
    const bool strided[] = {find_strided(chunks, a, &places[0]),
                            find_strided(chunks, b, &places[1])};

    begin[0] = places[0].at;
    begin[1] = places[1].at;
    return strided[0] == strided[1] &&
           (!strided[0] || are_alike(type, places[0].stride, places[1].stride));
}

/* ---- the cells of a grid --------------------------------------------------------------------- */

/* Returns the last piece of an axis that begins at or before AT. */
static uint32_t piece_of(const struct rfs_chunk_grid *grid, uint32_t axis, uint64_t at)
{
    return (uint32_t)RFS_BISECT(i, grid->pieces[axis], grid->edge[axis][i] > at) - 1;
}

/* Begins a walk over the cells that a box of the tensor, as it is stored, touches. */
static void begin_cells(const struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                        const uint64_t *lo, const uint64_t *hi, struct rfs_chunk_cells *walk)
{
    walk->ndim = tensor->grid ? rfs_chunks_type(chunks, tensor->stored)->ndim : 0;
    walk->ended = false;
    for (uint32_t i = 0; i < walk->ndim; i++) {
        walk->first[i] = walk->cell[i] = piece_of(tensor->grid, i, lo[i]);
        walk->last[i] = piece_of(tensor->grid, i, hi[i] - 1);
    }
}

/* Steps to the next cell, row by row. */
static void step(struct rfs_chunk_cells *walk)
{
    for (uint32_t i = walk->ndim; i-- > 0;) {
        if (walk->cell[i] < walk->last[i]) {
            walk->cell[i]++;
            return;
        }
        walk->cell[i] = walk->first[i];
    }
    walk->ended = true;
}

/* Gives the next chunk and where it begins; false at the end. */
static bool next_cell(const struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                      struct rfs_chunk_cells *walk, uint32_t *chunk, uint64_t *at)
{
    const struct rfs_chunk_grid *grid = tensor->grid;

    while (!walk->ended) {
        uint64_t number = 0;
        bool first = true;
        for (uint32_t i = 0; i < walk->ndim; i++)
            number = number * grid->pieces[i] + walk->cell[i];
        *chunk = tensor->first + (grid ? grid->cells[number] : 0);
        rfs_chunks_corner(chunks, tensor, *chunk, at);
        /* A chunk of several cells counts in the first of them that the box touches. */
        for (uint32_t i = 0; i < walk->ndim; i++)
            first &= walk->cell[i] == walk->first[i] || grid->edge[i][walk->cell[i]] == at[i];
        step(walk);
        if (first)
            return true;
    }
    return false;
}

/* ---- boxes of tensors that were flattened ---------------------------------------------------- */

static const struct rfs_type *type_of(const struct rfs_chunks_walk *walk)
{
    return rfs_chunks_type(walk->chunks, walk->tensor->type);
}

/* Walks over the chunks of the present tile that the box touches. */
static void enter(struct rfs_chunks_walk *walk)
{
    const uint32_t ndim = type_of(walk)->ndim;
    uint64_t lo[RFS_MAX_DIMS];
    uint64_t hi[RFS_MAX_DIMS];
    uint64_t first = 0; /* numbers in the tile */
    uint64_t last = 0;

    for (uint32_t i = 0; i < ndim; i++) {
        const uint64_t at = walk->tile[i] * walk->side[i];
        const uint64_t from = rfs_max_u64(walk->lo[i], at);
        const uint64_t end = rfs_min_u64(walk->hi[i], at + walk->side[i]);
        first = first * walk->side[i] + (from - at);
        last = last * walk->side[i] + (end - 1 - at);
        lo[i] = walk->tile[i];
        hi[i] = walk->tile[i] + 1;
    }
    lo[walk->tile_axes] = first;
    hi[walk->tile_axes] = last + 1;
    begin_cells(walk->chunks, walk->tensor, lo, hi, &walk->cells);
}

static void begin_flat(struct rfs_chunks_walk *walk, const uint64_t *lo, const uint64_t *hi)
{
    const struct rfs_type *type = type_of(walk);
    const struct rfs_type *stored = rfs_chunks_type(walk->chunks, walk->tensor->stored);

    walk->tile_axes = stored->ndim - 1;
    for (uint32_t i = 0; i < type->ndim; i++) {
        walk->lo[i] = lo[i];
        walk->hi[i] = hi[i];
        walk->side[i] = walk->tile_axes > 0 ? type->dims[i] / stored->dims[i] : type->dims[i];
        walk->tile[i] = lo[i] / walk->side[i];
    }
    walk->next = walk->end = 0;
    enter(walk);
}

/* Goes on to the next tile that the box touches; false behind the last one. */
static bool next_tile(struct rfs_chunks_walk *walk)
{
    for (uint32_t i = type_of(walk)->ndim; i-- > 0;) {
        if (walk->tile[i] < (walk->hi[i] - 1) / walk->side[i]) {
            walk->tile[i]++;
            enter(walk);
            return true;
        }
        walk->tile[i] = walk->lo[i] / walk->side[i];
    }
    return false;
}

/* Takes the largest box off the range that is left of a chunk. */
static void take_box(struct rfs_chunks_walk *walk, struct rfs_chunk_box *box)
{
    const uint32_t ndim = type_of(walk)->ndim;
    uint64_t place[RFS_MAX_DIMS]; /* place in the tile */
    uint64_t rest = walk->next;
    uint64_t step = 1;
    uint32_t axis = 0;

    for (uint32_t i = ndim; i-- > 0; rest /= walk->side[i], step *= walk->side[i]) {
        place[i] = rest % walk->side[i];
        box->step[i] = step;
        box->at[i] = walk->tile[i] * walk->side[i] + place[i];
        box->size[i] = 1;
    }
    box->chunk = walk->chunk;
    box->flat = true;
    box->first = walk->next - walk->begin;
    /* The first axis along which whole steps follow. */
    while (axis + 1 < ndim &&
           (walk->next % box->step[axis] != 0 || walk->end - walk->next < box->step[axis]))
        axis++;
    if (ndim == 0) {
        walk->next++;
        return;
    }
    box->size[axis] =
        rfs_min_u64(walk->side[axis] - place[axis], (walk->end - walk->next) / box->step[axis]);
    for (uint32_t i = axis + 1; i < ndim; i++)
        box->size[i] = walk->side[i];
    walk->next += box->size[axis] * box->step[axis];
}

static bool touches(const struct rfs_chunks_walk *walk, const struct rfs_chunk_box *box)
{
    for (uint32_t i = 0; i < type_of(walk)->ndim; i++)
        if (box->at[i] >= walk->hi[i] || box->at[i] + box->size[i] <= walk->lo[i])
            return false;
    return true;
}

static bool next_flat(struct rfs_chunks_walk *walk, struct rfs_chunk_box *box)
{
    uint64_t at[RFS_MAX_DIMS];

    for (;;) {
        while (walk->next < walk->end) {
            take_box(walk, box);
            if (touches(walk, box))
                return true;
        }
        while (!next_cell(walk->chunks, walk->tensor, &walk->cells, &walk->chunk, at))
            if (!next_tile(walk))
                return false;
        const struct rfs_chunk *chunk = &walk->chunks->chunks.data[walk->chunk];
        walk->begin = walk->next = at[walk->tile_axes];
        walk->end = walk->next + rfs_chunks_type(walk->chunks, chunk->type)->dims[walk->tile_axes];
    }
}

/* ---- boxes of all tensors -------------------------------------------------------------------- */

void rfs_chunks_walk_begin(const struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                           const uint64_t *lo, const uint64_t *hi, struct rfs_chunks_walk *walk)
{
    walk->chunks = chunks;
    walk->tensor = tensor;
    if (rfs_chunks_is_flat(tensor))
        begin_flat(walk, lo, hi);
    else
        begin_cells(chunks, tensor, lo, hi, &walk->cells);
}

bool rfs_chunks_walk_next(struct rfs_chunks_walk *walk, struct rfs_chunk_box *box)
{
    const struct rfs_chunks *chunks = walk->chunks;

    *box = (struct rfs_chunk_box){.chunk = 0};
    if (rfs_chunks_is_flat(walk->tensor))
        return next_flat(walk, box);
    if (!next_cell(chunks, walk->tensor, &walk->cells, &box->chunk, box->at))
        return false;
    const struct rfs_type *type = rfs_chunks_type_of(chunks, box->chunk);
    memcpy(box->size, type->dims, sizeof box->size);
    for (uint32_t i = type->ndim; i-- > 0;)
        box->step[i] = i + 1 < type->ndim ? box->step[i + 1] * type->dims[i + 1] : 1;
    return true;
}
