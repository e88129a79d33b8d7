/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/chunks/pieces.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "formats/chunks/internal.h"

void rfs_pieces_free(struct rfs_pieces *pieces)
{
    free(pieces->list.data);
    free(pieces->corners.data);
}

static const struct rfs_type *type_of(const struct rfs_pieces *pieces, uint32_t type)
{
    return rfs_chunks_type(pieces->boxes, type);
}

static const uint64_t *corner_of(const struct rfs_pieces *pieces, const struct rfs_piece *piece)
{
    return pieces->corners.data + piece->corner;
}

bool rfs_pieces_add(struct rfs_pieces *pieces, const struct rfs_piece *piece,
                    const uint64_t *corner)
{
    struct rfs_piece added = *piece;
    const uint32_t ndim = type_of(pieces, piece->type)->ndim;

    added.corner = pieces->corners.n;
    for (uint32_t i = 0; i < ndim; i++)
        if (!RFS_PUSH(&pieces->corners, corner[i]))
            return false;
    return RFS_PUSH(&pieces->list, added);
}

/* Names are numbered in the order in which they came. */
static int compare(const void *a, const void *b, void *ctx)
{
    const struct rfs_pieces *pieces = ctx;
    const struct rfs_piece *x = a;
    const struct rfs_piece *y = b;
    const uint64_t *at_x = corner_of(pieces, x);
    const uint64_t *at_y = corner_of(pieces, y);

    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    const uint32_t ndim = type_of(pieces, x->type)->ndim;
    if (ndim != type_of(pieces, y->type)->ndim)
        return ndim < type_of(pieces, y->type)->ndim ? -1 : 1;
    for (uint32_t i = 0; i < ndim; i++)
        if (at_x[i] != at_y[i])
            return at_x[i] < at_y[i] ? -1 : 1;
    return (x->file > y->file) - (x->file < y->file);
}

/* Where the pieces of a name that is piece I's end. */
static size_t end_of(const struct rfs_pieces *pieces, size_t i)
{
    size_t end = i;

    while (end < pieces->list.n && pieces->list.data[end].name == pieces->list.data[i].name)
        end++;
    return end;
}

static int fail(const struct rfs_pieces *pieces, const struct rfs_piece *piece,
                struct rfs_error *err, const char *what)
{
    const struct rfs_chunks *boxes = pieces->boxes;

    return rfs_fail(err, -EINVAL,
                    RFS_OF(rfs_files_path(boxes->files, piece->file),
                           rfs_intern_text(boxes->tables->names, piece->name)),
                    "files of one save that has ended", "%s", what);
}

/* Takes a piece's extent into the type of its tensor. */
static int take_piece(const struct rfs_pieces *pieces, const struct rfs_piece *first,
                      const struct rfs_piece *piece, struct rfs_type *whole, struct rfs_error *err)
{
    const struct rfs_type *type = type_of(pieces, piece->type);
    const uint64_t *corner = corner_of(pieces, piece);
    uint64_t end;

    if (type->dtype != whole->dtype || type->ndim != whole->ndim || piece->whole != first->whole)
        return fail(pieces, piece, err,
                    "its dtype, or the shape of the whole tensor, differs between the files");
    for (uint32_t i = 0; i < type->ndim; i++) {
        if (!rfs_add_u64(corner[i], type->dims[i], &end))
            return fail(pieces, piece, err, "its piece ends beyond any tensor");
        if (piece->whole == RFS_NO_ID && end > whole->dims[i])
            whole->dims[i] = end;
    }
    return 0;
}

static int declare(const struct rfs_pieces *pieces, size_t begin, size_t end, struct rfs_error *err)
{
    const struct rfs_piece *first = &pieces->list.data[begin];
    struct rfs_type whole =
        *type_of(pieces, first->whole != RFS_NO_ID ? first->whole : first->type);
    size_t length;
    const char *name =
        (const char *)rfs_intern_bytes(pieces->boxes->tables->names, first->name, &length);
    int rc = 0;

    for (size_t i = begin; rc == 0 && i < end; i++)
        rc = take_piece(pieces, first, &pieces->list.data[i], &whole, err);
    if (rc == 0)
        rc = rfs_chunks_tensor(pieces->boxes, name, length, &whole, err);
    for (size_t i = begin; rc == 0 && i < end; i++) {
        const struct rfs_piece *piece = &pieces->list.data[i];
        rc = rfs_chunks_chunk(pieces->boxes, corner_of(pieces, piece),
                              type_of(pieces, piece->type)->dims, err);
    }
    return rc;
}

/* Whether two pieces of a tensor are the same box. */
static bool is_copy(const struct rfs_pieces *pieces, const struct rfs_piece *a,
                    const struct rfs_piece *b)
{
    return a->name == b->name && a->type == b->type &&
           memcmp(corner_of(pieces, a), corner_of(pieces, b),
                  type_of(pieces, a->type)->ndim * sizeof(uint64_t)) == 0;
}

/* The further copies of one piece: their files, and where they are in these. */
struct others {
    RFS_VEC(uint32_t) files;
    RFS_VEC(uint64_t) places;
};

static void others_end(struct others *others)
{
    free(others->files.data);
    free(others->places.data);
}

/* Stores the piece at I and its copies, which follow it. Moves *I behind them. */
static int store_piece(const struct rfs_pieces *pieces, size_t *i, struct others *others,
                       struct rfs_error *err)
{
    struct rfs_chunks *boxes = pieces->boxes;
    const struct rfs_piece *piece = &pieces->list.data[(*i)++];
    const struct rfs_type *type = type_of(pieces, piece->type);
    size_t length;
    const char *name = (const char *)rfs_intern_bytes(boxes->tables->names, piece->name, &length);
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(boxes, name, length);

    others->files.n = others->places.n = 0;
    for (; *i < pieces->list.n && is_copy(pieces, piece, &pieces->list.data[*i]); ++*i)
        if (!RFS_PUSH(&others->files, pieces->list.data[*i].file) ||
            !RFS_PUSH(&others->places, pieces->list.data[*i].at))
            return rfs_fail_memory(err);
    if (type->bytes == 0)
        return 0;
    if (others->files.n >= piece->promised)
        boxes->tensors.data[tensor - boxes->tensors.data].on_trust = true;
    return rfs_chunks_store(boxes, tensor, corner_of(pieces, piece), piece->file, piece->at,
                            type->bytes, err)
               ?: rfs_chunks_store_copies(boxes, tensor, corner_of(pieces, piece),
                                          others->files.data, others->places.data, others->files.n,
                                          err);
}

static int store(const struct rfs_pieces *pieces, struct rfs_error *err)
{
    RFS_CLEANUP(others_end) struct others others = {.files = {0}};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < pieces->list.n;)
        rc = store_piece(pieces, &i, &others, err);
    return rc;
}

int rfs_pieces_finish(struct rfs_pieces *pieces, struct rfs_error *err)
{
    struct rfs_chunks *boxes = pieces->boxes;
    int rc = 0;

    if (pieces->list.n > 1)
        qsort_r(pieces->list.data, pieces->list.n, sizeof *pieces->list.data, compare, pieces);
    for (size_t i = 0, end; rc == 0 && i < pieces->list.n; i = end) {
        end = end_of(pieces, i);
        rc = declare(pieces, i, end, err);
    }
    if (rc == 0)
        rc = rfs_chunks_declared(boxes, err);
    if (rc == 0)
        rc = store(pieces, err);
    if (rc == 0)
        rc = rfs_chunks_finish(boxes, err);
    for (size_t i = 0; rc == 0 && i < boxes->chunks.n; i++)
        atomic_init(&boxes->chunks.data[i].at, boxes->chunks.data[i].item);
    boxes->n_files = boxes->n_all_files = boxes->first_file;
    boxes->first_file = 0;
    return rc;
}
