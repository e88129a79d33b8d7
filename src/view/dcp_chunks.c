/* SPDX-License-Identifier: Apache-2.0 */
#include "view/dcp_chunks.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "plan/trace.h"
#include "source/torch/archive.h"

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
    struct rfs_error *err;
};

/* Adds rows of a box, which begin AT bytes into the target. */
static int add_rows(struct listing *listing, const struct rfs_box *box, uint64_t at)
{
    struct rfs_type type = *listing->type;
    struct rfs_dcp_chunk chunk = {.target = listing->target, .whole = listing->whole, .at = at};

    memcpy(type.dims, box->len, type.ndim * sizeof *type.dims);
    memcpy(chunk.corner, box->at, sizeof chunk.corner);
    if (!rfs_type_bytes(&type, &type.bytes))
        return -EFBIG; /* no more than the target's */
    chunk.type =
        rfs_intern_add(rfs_catalog_tables(listing->view->catalog)->types, &type, sizeof type);
    return chunk.type != RFS_NO_ID && RFS_PUSH(listing->out, chunk) ? 0
                                                                    : rfs_fail_memory(listing->err);
}

/* Adds a box, whose bytes begin AT bytes into the target, in pieces of at most chunk_size. */
static int add_box(struct listing *listing, const struct rfs_box *box, uint64_t at)
{
    const uint64_t most =
        listing->view->options.chunk_size ? listing->view->options.chunk_size : CHUNK_BYTES;
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
static int add_held(struct listing *listing, const struct rfs_target *target, uint32_t local)
{
    const struct rfs_geometry *geometry = rfs_planner_geometry(listing->view->planner, target);
    struct rfs_box box = {.at = {0}};
    uint64_t at = 0;
    int rc = 0;

    memcpy(box.len, listing->type->dims, sizeof box.len);
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
        rc = add_box(listing, &box, at);
        at += piece.bytes;
    }
    return rc;
}

static int check_type(const struct listing *listing, const struct rfs_target *target)
{
    struct rfs_catalog *catalog = listing->view->catalog;

    if (listing->type->kind == RFS_TENSOR &&
        rfs_torch_dtype_name((enum rfs_dtype)listing->type->dtype))
        return 0;
    return rfs_fail(listing->err, -EINVAL,
                    RFS_OF(rfs_catalog_path(catalog), rfs_catalog_name(catalog, target->name)),
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
        rc = check_type(&listing, target);
        if (rc == 0)
            rc = view->dst ? add_held(&listing, target, rank % devices)
                           : add_divided(&listing, rank, view->n_ranks);
    }
    return rc;
}
