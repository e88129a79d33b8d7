/* SPDX-License-Identifier: Apache-2.0 */
#include "view/dcp_chunks.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "formats/chunks/chunks.h"
#include "formats/torch/archive.h"
#include "plan/trace.h"

#define CHUNK_BYTES (UINT64_C(256) << 20)

int rfs_dcp_stages(struct rfs_view *view, uint32_t **out, struct rfs_error *err)
{
    const struct rfs_scale *scale = &view->scale;
    RFS_FREE uint32_t *stages = NULL;
    size_t n = 0;

    *out = NULL;
    if (!view->dst || scale->dst_stages == 1)
        return 0;
    for (uint32_t s = scale->dst_stages; s-- > 0;) { /* the lowest counts */
        const struct rfs_rank_plan *plan;
        const int rc = rfs_planner_rank(view->planner, s * scale->dst_devices, &plan, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < plan->params->n; i++) {
            const uint32_t name = plan->params->targets[i].shown_name;
            if (name >= n) {
                uint32_t *more = reallocarray(stages, (size_t)name + 1, sizeof *more);
                if (!more)
                    return rfs_fail_memory(err);
                memset(more + n, 0xff, (name + 1 - n) * sizeof *more);
                n = (size_t)name + 1;
                stages = more;
            }
            stages[name] = s;
        }
    }
    *out = RFS_STEAL(stages);
    return 0;
}

struct listing {
    struct rfs_view *view;
    struct rfs_dcp_chunks *out;
    uint32_t target;             /* of the parameter list */
    const struct rfs_type *type; /* as shown: of the whole tensor */
    uint32_t whole;              /* its id */
    uint32_t shape;              /* as in its chunks */
    uint32_t apart;              /* of a flattened one: axes at the front whose steps are pieces */
    struct rfs_error *err;
};

static struct rfs_where where(const struct listing *listing)
{
    struct rfs_catalog *catalog = listing->view->catalog;
    const struct rfs_target *target = &listing->out->plan->params->targets[listing->target];

    return RFS_OF(rfs_catalog_path(catalog), rfs_catalog_name(catalog, target->name));
}

static uint64_t chunk_bytes(const struct listing *listing)
{
    const uint64_t given = listing->view->options.chunk_size;
    return given ? given : CHUNK_BYTES;
}

/* Adds a chunk of a type. */
static int add_chunk(struct listing *listing, const struct rfs_type *type, const uint64_t *corner,
                     uint64_t at)
{
    struct rfs_dcp_chunk chunk = {
        .target = listing->target, .whole = listing->whole, .at = at, .shape = listing->shape};

    memcpy(chunk.corner, corner, type->ndim * sizeof *corner);
    chunk.type =
        rfs_intern_add(rfs_catalog_tables(listing->view->catalog)->types, type, sizeof *type);
    return chunk.type != RFS_NO_ID && RFS_PUSH(listing->out, chunk) ? 0
                                                                    : rfs_fail_memory(listing->err);
}

/* Adds rows of a box, which begin AT bytes into the target. */
static int add_rows(struct listing *listing, const struct rfs_box *box, uint64_t at)
{
    struct rfs_type type = *listing->type;

    memcpy(type.dims, box->len, type.ndim * sizeof *type.dims);
    if (!rfs_type_bytes(&type, &type.bytes))
        return -EFBIG; /* no more than the target's */
    return add_chunk(listing, &type, box->at, at);
}

/* Adds a box, whose bytes begin AT bytes into the target, in pieces of at most chunk_size. */
static int add_box(struct listing *listing, const struct rfs_box *box, uint64_t at)
{
    const uint64_t most = chunk_bytes(listing);
    const uint32_t ndim = listing->type->ndim;
    uint64_t row = rfs_dtype_bytes((enum rfs_dtype)listing->type->dtype);
    uint64_t rows;
    int rc = 0;

    for (uint32_t i = 1; i < ndim; i++)
        row *= box->len[i];
    if (ndim == 0 || row == 0 || box->len[0] == 0)
        return add_rows(listing, box, at);
    rows = rfs_max_u64(most / row, 1);
    for (uint64_t done = 0; rc == 0 && done < box->len[0]; done += rows) {
        struct rfs_box piece = *box;
        piece.at[0] += done;
        piece.len[0] = rfs_min_u64(rows, box->len[0] - done);
        rc = add_rows(listing, &piece, at + done * row);
    }
    return rc;
}

/* ---- flattened tensors, which boxes/flat.c draws ---- */

/*
 * Whether the source has the tensor of a target flattened: then so has the view. A piece of it is a
 * single step of each axis at the front that the source has in pieces of one, such as the layers:
 * Megatron-Core wants it so of axes that it has put in front.
 */
static bool is_flat(struct listing *listing, const struct rfs_target *target)
{
    const struct rfs_chunks *boxes = rfs_catalog_chunks(listing->view->catalog);
    size_t length;
    const char *name = (const char *)rfs_intern_bytes(
        rfs_catalog_tables(listing->view->catalog)->names, target->name, &length);
    const struct rfs_chunked_tensor *tensor = boxes ? rfs_chunks_find(boxes, name, length) : NULL;

    if (!tensor || !rfs_chunked_is_flat(tensor) || rfs_chunks_type(boxes, tensor->type)->bytes == 0)
        return false;
    const struct rfs_type *type = rfs_chunks_type(boxes, tensor->type);
    const struct rfs_type *stored = rfs_chunks_type(boxes, tensor->stored);
    listing->apart = 0;
    while (listing->apart < type->ndim &&
           stored->dims[listing->apart] == type->dims[listing->apart])
        listing->apart++;
    return true;
}

/* Sets the type that a tensor of WHOLE dims is stored as, in pieces of SIDE. */
static int set_flat_whole(struct listing *listing, const uint64_t *whole, const uint64_t *side)
{
    struct rfs_intern *types = rfs_catalog_tables(listing->view->catalog)->types;
    const uint32_t ndim = listing->type->ndim;
    struct rfs_type shape = *listing->type;
    struct rfs_type stored = *listing->type;

    stored.ndim = (uint8_t)(ndim + 1); /* as the source's */
    stored.dims[ndim] = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        shape.dims[i] = whole[i];
        stored.dims[i] = whole[i] / side[i];
        stored.dims[ndim] *= side[i];
    }
    if (!rfs_type_bytes(&shape, &shape.bytes))
        return -EFBIG; /* refused when the geometry was resolved */
    stored.bytes = shape.bytes;
    listing->shape = rfs_intern_add(types, &shape, sizeof shape);
    listing->whole = rfs_intern_add(types, &stored, sizeof stored);
    return listing->shape != RFS_NO_ID && listing->whole != RFS_NO_ID
               ? 0
               : rfs_fail_memory(listing->err);
}

/* Adds elements FIRST to END of the piece at CORNER, which begins AT bytes into the target. */
static int add_range(struct listing *listing, uint64_t *corner, uint64_t at, uint64_t first,
                     uint64_t end)
{
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)listing->type->dtype);
    const uint64_t most = rfs_max_u64(chunk_bytes(listing) / item, 1);
    const uint32_t ndim = listing->type->ndim;
    struct rfs_type type = *listing->type;
    int rc = 0;

    type.ndim = (uint8_t)(ndim + 1);
    for (uint32_t i = 0; i < ndim; i++)
        type.dims[i] = 1;
    for (uint64_t n; rc == 0 && first < end; first += n) {
        n = rfs_min_u64(most, end - first);
        corner[ndim] = first;
        type.dims[ndim] = n;
        type.bytes = n * item;
        rc = add_chunk(listing, &type, corner, at + first * item);
    }
    return rc;
}

/* Adds a box of a tensor of WHOLE dims, whose bytes begin AT bytes into the target. */
static int add_flat_box(struct listing *listing, const uint64_t *whole, const struct rfs_box *box,
                        uint64_t at)
{
    const uint32_t ndim = listing->type->ndim;
    uint64_t side[RFS_MAX_DIMS];
    uint64_t corner[RFS_MAX_DIMS];
    uint64_t elements = 1; /* of a piece */
    uint64_t pieces = 1;

    for (uint32_t i = 0; i < ndim; i++) {
        side[i] = i < listing->apart ? 1 : box->len[i];
        if (box->at[i] % side[i] != 0 || whole[i] % side[i] != 0)
            return rfs_fail(listing->err, -ENOTSUP, where(listing),
                            "dst_ranks=N without a strategy",
                            "is stored flattened in equal pieces, and the destination has others");
        corner[i] = box->at[i] / side[i];
        elements *= side[i];
        pieces *= box->len[i] / side[i];
    }
    int rc = set_flat_whole(listing, whole, side);
    for (uint64_t k = 0; rc == 0 && k < pieces; k++) {
        uint64_t rest = k;
        for (uint32_t i = listing->apart; i-- > 0; rest /= box->len[i])
            corner[i] = box->at[i] + rest % box->len[i];
        const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)listing->type->dtype);
        rc = add_range(listing, corner, at + k * elements * item, 0, elements);
    }
    return rc;
}

/* The part of a whole flattened tensor that rank R of N has: steps of axis 0, or elements. */
static int add_flat_divided(struct listing *listing, uint32_t r, uint32_t n)
{
    const struct rfs_type *type = listing->type;
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    const uint64_t all = listing->apart > 0 ? type->dims[0] : type->bytes / item;
    const uint64_t each = all / n + (all % n != 0);
    const uint64_t begin = rfs_min_u64(each * r, all);
    const uint64_t end = rfs_min_u64(begin + each, all);
    uint64_t corner[RFS_MAX_DIMS] = {0};
    struct rfs_box box = {.at = {begin}};

    if (begin == end)
        return 0;
    if (listing->apart == 0)
        return set_flat_whole(listing, type->dims, type->dims)
                   ?: add_range(listing, corner, 0, begin, end);
    memcpy(box.len, type->dims, sizeof box.len);
    box.len[0] = end - begin;
    return add_flat_box(listing, type->dims, &box, type->bytes / type->dims[0] * begin);
}

/* ---- whole tensors, and those of a strategy ---- */

/* The rows of a whole tensor that rank R of N has: as torch.chunk divides, the first have more. */
static int add_divided(struct listing *listing, uint32_t r, uint32_t n)
{
    const struct rfs_type *type = listing->type;
    struct rfs_box box = {.at = {0}};
    uint64_t row = 1;

    memcpy(box.len, type->dims, sizeof box.len);
    if (type->ndim == 0 || type->bytes == 0)
        return r == 0 ? add_box(listing, &box, 0) : 0;
    const uint64_t each = type->dims[0] / n + (type->dims[0] % n != 0);
    const uint64_t begin = rfs_min_u64(each * r, type->dims[0]);
    box.at[0] = begin;
    box.len[0] = rfs_min_u64(each, type->dims[0] - begin);
    row = type->bytes / type->dims[0];
    return box.len[0] > 0 ? add_box(listing, &box, begin * row) : 0;
}

/* The boxes of a rank of a strategy, unless a lower rank holds the same. */
static int add_held(struct listing *listing, const struct rfs_target *target, bool flat,
                    uint32_t local)
{
    const struct rfs_geometry *geometry = rfs_planner_geometry(listing->view->planner, target);
    struct rfs_box box = {.at = {0}};
    uint64_t at = 0;
    int rc = 0;

    memcpy(box.len, listing->type->dims, sizeof box.len);
    if (!geometry && flat)
        return local == 0 ? add_flat_divided(listing, 0, 1) : 0;
    if (!geometry)
        return local == 0 ? add_box(listing, &box, 0) : 0;
    struct rfs_type whole = *listing->type;
    memcpy(whole.dims, geometry->whole, sizeof whole.dims);
    if (!rfs_type_bytes(&whole, &whole.bytes))
        return -EFBIG; /* refused when the geometry was resolved */
    listing->whole =
        rfs_intern_add(rfs_catalog_tables(listing->view->catalog)->types, &whole, sizeof whole);
    if (listing->whole == RFS_NO_ID)
        return rfs_fail_memory(listing->err);
    if (rfs_grid_replica(&geometry->dst, local, 0) != local)
        return 0;
    for (uint32_t k = 0; rc == 0 && k < geometry->dst.rounds; k++) {
        struct rfs_type piece = whole;
        box = (struct rfs_box){.at = {0}};
        rfs_trace_box(&geometry->dst, geometry->whole, local, k, &box);
        memcpy(piece.dims, box.len, piece.ndim * sizeof *piece.dims);
        rfs_type_bytes(&piece, &piece.bytes); /* no more than the whole's */
        rc = flat ? add_flat_box(listing, geometry->whole, &box, at) : add_box(listing, &box, at);
        at += piece.bytes;
    }
    return rc;
}

static int check_type(const struct listing *listing)
{
    if (listing->type->kind == RFS_TENSOR &&
        rfs_torch_dtype_name((enum rfs_dtype)listing->type->dtype))
        return 0;
    return rfs_fail(listing->err, -EINVAL, where(listing),
                    "names= mapping it to null to leave it out",
                    "torch has no tensors of its type, and view=dcp has only those of torch");
}

int rfs_dcp_chunks(struct rfs_view *view, const uint32_t *stages, uint32_t rank,
                   struct rfs_dcp_chunks *out, struct rfs_error *err)
{
    const uint32_t devices = view->scale.dst_devices;
    struct listing listing = {.view = view, .out = out, .err = err};

    out->n = 0;
    int rc = rfs_planner_rank(view->planner, view->dst ? rank : 0, &out->plan, err);
    for (size_t i = 0; rc == 0 && i < out->plan->params->n; i++) {
        const struct rfs_target *target = &out->plan->params->targets[i];
        if (stages && stages[target->shown_name] != rank / devices)
            continue;
        listing.target = (uint32_t)i;
        listing.whole = target->shown_type;
        listing.type = rfs_catalog_type(view->catalog, target->shown_type);
        listing.shape = RFS_NO_ID;
        rc = check_type(&listing);
        const bool flat = is_flat(&listing, target);
        if (rc == 0 && view->dst)
            rc = add_held(&listing, target, flat, rank % devices);
        else if (rc == 0)
            rc = flat ? add_flat_divided(&listing, rank, view->n_ranks)
                      : add_divided(&listing, rank, view->n_ranks);
    }
    return rc;
}
