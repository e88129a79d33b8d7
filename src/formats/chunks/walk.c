/* SPDX-License-Identifier: Apache-2.0 */
/* Finished boxes: where chunks are, and the chunks that a box touches. */
#include "base/cancel.h"
#include "base/checked.h"
#include "base/once.h"
#include "base/order.h"
#include "base/store.h"
#include "formats/chunks/internal.h"
#include "formats/ckpt/crc.h"

const struct rfs_chunked_tensor *rfs_chunks_tensor_of(const struct rfs_chunks *boxes,
                                                      uint32_t chunk)
{
    const struct rfs_chunked_tensor *tensors = boxes->tensors.data;

    /* The last that begins at or before it: tensors without chunks begin where the next does. */
    return &tensors[RFS_BISECT(i, boxes->tensors.n, tensors[i].first > chunk) - 1];
}

const char *rfs_chunks_name_of(const struct rfs_chunks *boxes, uint32_t chunk)
{
    return rfs_intern_text(boxes->tables->names, rfs_chunks_tensor_of(boxes, chunk)->name);
}

void rfs_chunks_corner(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                       uint32_t chunk, uint64_t *offset)
{
    rfs_type_place(rfs_chunks_type(boxes, tensor->stored), boxes->chunks.data[chunk].corner,
                   offset);
}

int rfs_chunks_fail_file(const struct rfs_chunks *boxes, uint32_t file, int rc,
                         struct rfs_error *err)
{
    const char *path = rfs_files_path(boxes->files, file);

    if (rc == -ESTALE && !rfs_store_there(path))
        return rfs_fail(err, rc, RFS_IN(path), "copy it there, and mount again",
                        "the metadata of the checkpoint names this file, but it is missing");
    rfs_files_fail(err, path, rc);
    rfs_files_reason(boxes->files, file, rc, err);
    return rc;
}

/* ---- checksums ------------------------------------------------------------------------------- */

struct file_check {
    struct rfs_once once; /* under the lock */
    char *damage;         /* the error of a damaged file, once it is made; owned; or NULL */
};

struct rfs_chunks_checks {
    pthread_mutex_t lock; /* a leaf lock */
    pthread_cond_t done;
    atomic_bool told_none; /* the log says that a file has no checksum */
    uint32_t n;
    struct file_check files[]; /* [n] all files */
};

int rfs_chunks_set_checked(struct rfs_chunks *boxes)
{
    struct rfs_chunks_checks *checks =
        calloc(1, sizeof *checks + boxes->n_all_files * sizeof *checks->files);

    if (!checks)
        return -ENOMEM;
    pthread_mutex_init(&checks->lock, NULL);
    rfs_cancel_init_cond(&checks->done);
    checks->n = boxes->n_all_files;
    boxes->checks = checks;
    /* Chunks that are located wait for their file's checksum. */
    for (size_t i = 0; !boxes->format->locate && i < boxes->chunks.n; i++)
        atomic_init(&boxes->chunks.data[i].at, RFS_NOT_LOCATED);
    return 0;
}

void rfs_chunks_free_checks(struct rfs_chunks_checks *checks)
{
    if (!checks)
        return;
    for (uint32_t i = 0; i < checks->n; i++)
        free(checks->files[i].damage);
    pthread_cond_destroy(&checks->done);
    pthread_mutex_destroy(&checks->lock);
    free(checks);
}

int rfs_chunks_check_file(struct rfs_chunks *boxes, uint32_t file, struct rfs_error *err)
{
    struct rfs_chunks_checks *checks = boxes->checks;
    struct rfs_error own = {0};

    if (!checks || !boxes->format->check)
        return 0;
    struct file_check *one = &checks->files[file - boxes->first_file];
    err = err ? err : &own;
    pthread_mutex_lock(&checks->lock);
    int rc = rfs_once_begin(&one->once, &checks->done, &checks->lock);
    if (rc == 1) {
        pthread_mutex_unlock(&checks->lock);
        rc = boxes->format->check(boxes, file, err);
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

void rfs_chunks_tell_none(struct rfs_chunks *boxes, enum rfs_format format, uint32_t file)
{
    rfs_crc_tell_none(boxes->log, &boxes->checks->told_none, format,
                      rfs_files_path(boxes->files, file));
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Takes the place that was known when the boxes were built. */
static int take_place(struct rfs_chunks *boxes, struct rfs_chunk *chunk, struct rfs_error *err)
{
    const int rc = rfs_chunks_check_file(boxes, chunk->file, err);

    if (rc == 0)
        atomic_store(&chunk->at, chunk->item);
    return rc;
}

int rfs_chunks_locate(struct rfs_chunks *boxes, uint32_t chunk, struct rfs_error *err)
{
    struct rfs_chunk *of = &boxes->chunks.data[chunk];

    if (atomic_load_explicit(&of->at, memory_order_acquire) != RFS_NOT_LOCATED)
        return 0;
    return boxes->format->locate ? boxes->format->locate(boxes, chunk, err)
                                 : take_place(boxes, of, err);
}

/* The list of the numbers of files with further copies of a chunk. */
static const uint32_t *list_of(const struct rfs_chunks *boxes, uint32_t chunk, uint32_t *n)
{
    const uint32_t list = boxes->copies ? boxes->copies[chunk].list : RFS_NO_ID;
    size_t bytes = 0;
    const uint32_t *numbers =
        list == RFS_NO_ID ? NULL
                          : (const uint32_t *)rfs_intern_bytes(boxes->copy_lists, list, &bytes);

    *n = (uint32_t)(bytes / sizeof *numbers);
    return numbers;
}

uint32_t rfs_chunks_copies(const struct rfs_chunks *boxes, uint32_t chunk)
{
    uint32_t n;

    list_of(boxes, chunk, &n);
    return n;
}

uint32_t rfs_chunks_copy_at(const struct rfs_chunks *boxes, uint32_t chunk, uint32_t copy)
{
    uint32_t n;
    const uint32_t number = list_of(boxes, chunk, &n)[copy];

    return boxes->copy_files.n > 0 ? boxes->copy_files.data[number] : number;
}

int rfs_chunks_locate_copy(struct rfs_chunks *boxes, uint32_t chunk, uint32_t copy,
                           struct rfs_chunked_copy *out, struct rfs_error *err)
{
    const uint32_t file = rfs_chunks_copy_at(boxes, chunk, copy);
    const struct rfs_chunk *of = &boxes->chunks.data[chunk];

    *out = (struct rfs_chunked_copy){
        .file = file == rfs_chunks_file_of(boxes, chunk) ? of->file : file, .type = of->type};
    const int rc = rfs_chunks_check_file(boxes, out->file, err);
    if (rc)
        return rc;
    if (boxes->format->locate_copy)
        return boxes->format->locate_copy(boxes, chunk, out, err);
    out->at = boxes->copy_places.data[boxes->copies[chunk].first + copy];
    return 0;
}

/* Marks a chunk's at that is a position in the strided ones. */
#define STRIDED (UINT64_C(1) << 63)

uint64_t rfs_chunks_strided(struct rfs_chunks *boxes, uint64_t at, uint32_t ndim,
                            const uint64_t *stride)
{
    struct rfs_strided_chunk chunk = {.at = at};
    uint64_t value = RFS_NOT_LOCATED;

    memcpy(chunk.stride, stride, ndim * sizeof *stride);
    pthread_mutex_lock(&boxes->lock);
    if (RFS_PUSH(&boxes->strided, chunk))
        value = STRIDED | (boxes->strided.n - 1);
    pthread_mutex_unlock(&boxes->lock);
    return value;
}

/* Gives where elements with that value of at are; false: they lie row by row. */
static bool find_strided(struct rfs_chunks *boxes, uint64_t at, struct rfs_strided_chunk *out)
{
    *out = (struct rfs_strided_chunk){.at = at};
    if (!(at & STRIDED))
        return false;
    pthread_mutex_lock(&boxes->lock);
    *out = boxes->strided.data[at & ~STRIDED];
    pthread_mutex_unlock(&boxes->lock);
    return true;
}

void rfs_chunks_place_part(struct rfs_chunks *boxes, const struct rfs_chunk_part *part,
                           uint32_t file, uint64_t at, struct rfs_stored_part *out)
{
    const struct rfs_type *type = rfs_chunks_type(boxes, boxes->chunks.data[part->chunk].type);
    uint64_t step = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    struct rfs_strided_chunk place;

    *out = (struct rfs_stored_part){.file = file, .strided = find_strided(boxes, at, &place)};
    if (out->strided && !part->flat)
        memcpy(out->stride, place.stride, sizeof place.stride);
    else if (out->strided) /* a row of elements */
        step = place.stride[type->ndim - 1];
    for (uint32_t i = 0; i < RFS_MAX_DIMS && !(out->strided && !part->flat); i++)
        out->stride[i] = part->step[i] * step;
    out->at = place.at + part->first * step; /* of a whole chunk, 0 is the first */
}

int rfs_chunks_locate_part(struct rfs_chunks *boxes, const struct rfs_chunk_part *part,
                           struct rfs_stored_part *out, struct rfs_error *err)
{
    const int rc = rfs_chunks_locate(boxes, part->chunk, err);

    if (rc == 0)
        rfs_chunks_place_part(boxes, part, rfs_chunks_file_of(boxes, part->chunk),
                              atomic_load(&boxes->chunks.data[part->chunk].at), out);
    return rc;
}

/* Whether elements lie in one order without gaps, and in that of the other. */
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

bool rfs_chunks_alike(struct rfs_chunks *boxes, const struct rfs_type *type, uint64_t a, uint64_t b,
                      uint64_t begin[2])
{
    struct rfs_strided_chunk places[2];
    const bool strided[] = {find_strided(boxes, a, &places[0]), find_strided(boxes, b, &places[1])};

    begin[0] = places[0].at;
    begin[1] = places[1].at;
    return strided[0] == strided[1] &&
           (!strided[0] || are_alike(type, places[0].stride, places[1].stride));
}

/* The last piece of an axis that begins at or before AT. */
static uint32_t piece_of(const struct rfs_chunk_grid *grid, uint32_t axis, uint64_t at)
{
    return (uint32_t)RFS_BISECT(i, grid->pieces[axis], grid->edge[axis][i] > at) - 1;
}

void rfs_grid_walk_begin(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                         const uint64_t *lo, const uint64_t *hi, struct rfs_grid_walk *walk)
{
    walk->ndim = tensor->grid ? rfs_chunks_type(boxes, tensor->stored)->ndim : 0;
    walk->ended = false;
    for (uint32_t i = 0; i < walk->ndim; i++) {
        walk->first[i] = walk->cell[i] = piece_of(tensor->grid, i, lo[i]);
        walk->last[i] = piece_of(tensor->grid, i, hi[i] - 1);
    }
}

/* Steps to the next cell, row by row. */
static void step(struct rfs_grid_walk *walk)
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

bool rfs_grid_walk_next(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                        struct rfs_grid_walk *walk, uint32_t *chunk, uint64_t *at)
{
    const struct rfs_chunk_grid *grid = tensor->grid;

    while (!walk->ended) {
        uint64_t number = 0;
        bool first = true;
        for (uint32_t i = 0; i < walk->ndim; i++)
            number = number * grid->pieces[i] + walk->cell[i];
        *chunk = tensor->first + (grid ? grid->cells[number] : 0);
        rfs_chunks_corner(boxes, tensor, *chunk, at);
        /* A chunk of several cells counts in the first of them that the box touches. */
        for (uint32_t i = 0; i < walk->ndim; i++)
            first &= walk->cell[i] == walk->first[i] || grid->edge[i][walk->cell[i]] == at[i];
        step(walk);
        if (first)
            return true;
    }
    return false;
}

void rfs_chunk_walk_begin(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                          const uint64_t *lo, const uint64_t *hi, struct rfs_chunk_walk *walk)
{
    walk->boxes = boxes;
    walk->tensor = tensor;
    if (rfs_chunked_is_flat(tensor))
        rfs_flat_walk_begin(walk, lo, hi);
    else
        rfs_grid_walk_begin(boxes, tensor, lo, hi, &walk->cells);
}

bool rfs_chunk_walk_next(struct rfs_chunk_walk *walk, struct rfs_chunk_part *part)
{
    const struct rfs_chunks *boxes = walk->boxes;

    *part = (struct rfs_chunk_part){.chunk = 0};
    if (rfs_chunked_is_flat(walk->tensor))
        return rfs_flat_walk_next(walk, part);
    if (!rfs_grid_walk_next(boxes, walk->tensor, &walk->cells, &part->chunk, part->at))
        return false;
    const struct rfs_type *type = rfs_chunks_type(boxes, boxes->chunks.data[part->chunk].type);
    memcpy(part->size, type->dims, sizeof part->size);
    for (uint32_t i = type->ndim; i-- > 0;)
        part->step[i] = i + 1 < type->ndim ? part->step[i + 1] * type->dims[i + 1] : 1;
    return true;
}
