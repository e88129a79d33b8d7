/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that torch.distributed.checkpoint writes: __0_0.distcp and so on, a file for each rank,
 * and .metadata, which describes their contents. Each is made when it is looked at first; .metadata
 * depends on all ranks. Of such a folder the objects are passed on, in a second file of rank 0, and
 * the files that Megatron keeps beside the metadata.
 *
 * HyperParallel's files are similar: _rank0_.safetensors and so on, and _rank0_.bytes for the
 * objects of such a folder. A box is not cut there, and no tensor is flattened.
 *
 * A destination strategy gives each rank its boxes, and a box of several ranks is the lowest one's.
 * Without a strategy the rows of each tensor are divided over dst_ranks=N files, as torch.chunk
 * divides them. Chunks that are larger than chunk_size are cut by rows.
 *
 * A file does not say where in the tensors its chunks lie. Only .metadata does.
 */
#include "formats/dcp/dcp.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/order.h"
#include "base/pool.h"
#include "base/text.h"
#include "formats/chunks/chunks.h"
#include "formats/dcp/dcp_encode.h"
#include "formats/formats.h"
#include "plan/trace.h"
#include "view/kinds.h"

#define OBJECTS_NAME "__0_1.distcp"
#define HYPER_OBJECTS_NAME "_rank0_.bytes"
/* The files of Megatron with everything that is not sharded, and with the format's name. */
static const char *const passed_on[] = {"common.pt", "metadata.json"};
enum { N_PASSED_ON = sizeof passed_on / sizeof *passed_on };

#define MOST_PLACES (UINT64_C(1) << 16)   /* of a tensor's fields on an axis behind the first */
#define CHUNK_BYTES (UINT64_C(256) << 20) /* the default of chunk_size */

/* What a chunk is of the whole tensor. */
struct chunk {
    uint32_t whole;  /* type of the whole tensor as shown; types are ids in the catalogue's */
    uint32_t shape;  /* own type of a tensor that is stored flattened; else RFS_NO_ID */
    uint64_t corner; /* number of its first element, row by row */
};

/* The chunks of a rank's file; zero-initialise. */
struct rank_chunks {
    const struct rfs_rank_plan *plan;
    RFS_VEC(struct rfs_view_piece) pieces; /* owned; by target */
    RFS_VEC(struct chunk) chunks;          /* owned; by piece */
    struct rfs_last_type whole, piece;
};

static void chunks_end(struct rank_chunks *chunks)
{
    free(chunks->pieces.data);
    free(chunks->chunks.data);
}

/* The state of the view. */
struct dcp {
    bool hyper;               /* of HyperParallel, not of torch */
    bool mcore_data;          /* .metadata has the shapes of tensors that are flattened */
    RFS_VEC(uint32_t) stages; /* by name id; empty where there is one */
    /*
     * The shown names of objects, and their numbers in the source; constant once the view is open.
     */
    RFS_VEC(uint32_t) objects;
    RFS_VEC(uint32_t) numbers;
    size_t objects_file; /* the file that has them; 0: there are none */
};

static struct dcp *dcp_of(const struct rfs_view *view)
{
    return view->state;
}

/* ---- the chunks of a rank -------------------------------------------------------------------- */

/*
 * Finds the stage of the destination that shows each name, for a destination of several stages;
 * plans the first rank of each. Returns 0 or -errno with *err filled.
 */
static int find_stages(struct rfs_view *view, struct rfs_error *err)
{
    struct dcp *dcp = view->state;

    if (!view->dst || view->scale.dst_stages == 1)
        return 0;
    for (uint32_t s = view->scale.dst_stages; s-- > 0;) { /* the lowest counts */
        const struct rfs_rank_plan *plan;
        const int rc = rfs_planner_rank(view->planner, s * view->scale.dst_devices, &plan, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < plan->params->n; i++) {
            const uint32_t name = plan->params->targets[i].shown_name;
            uint32_t *stage = RFS_ADD_AT(&view->memory, &dcp->stages, name, RFS_NO_STAGE);
            if (!stage)
                return rfs_fail_memory(err);
            *stage = s;
        }
    }
    return 0;
}

struct listing {
    struct rfs_view *view;
    struct rank_chunks *out;
    uint32_t target;             /* position in the parameter list */
    const struct rfs_type *type; /* shown type of the target */
    uint32_t whole;              /* id of the type of the whole tensor, and */
    uint32_t shape;              /* its shape in struct chunk */
    uint32_t apart;              /* axes at the front of a flattened one whose steps are pieces */
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

    return dcp_of(listing->view)->hyper ? UINT64_MAX : given ? given : CHUNK_BYTES;
}

/* Adds a chunk of TYPE at CORNER, which begins AT bytes into the target. */
static int add_chunk(struct listing *listing, const struct rfs_type *type, const uint64_t *corner,
                     uint64_t at)
{
    struct rank_chunks *out = listing->out;
    struct rfs_catalog *catalog = listing->view->catalog;
    const struct rfs_view_piece piece = {
        .target = listing->target,
        .type = rfs_type_id(rfs_catalog_tables(catalog)->types, &out->piece, type),
        .name = out->plan->params->targets[listing->target].shown_name,
        .at = at};
    const struct chunk chunk = {listing->whole, listing->shape,
                                rfs_type_number(rfs_catalog_type(catalog, listing->whole), corner)};

    return piece.type != RFS_NO_ID && RFS_PUSH(&out->pieces, piece) && RFS_PUSH(&out->chunks, chunk)
               ? 0
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

/* ---- flattened tensors, which formats/chunks/boxes.c draws ---- */

/*
 * Returns whether the tensor of a target is written flattened, because the source has it so and the
 * view has Megatron-Core's dict with its shape. Other formats are flat in their own files alone. A
 * piece of it is a single step of each axis at the front that the source has in pieces of one, such
 * as the layers: Megatron-Core wants it so of axes that it has put in front.
 */
static bool is_flat(struct listing *listing, const struct rfs_target *target)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(listing->view->catalog);

    if (!dcp_of(listing->view)->mcore_data)
        return false;
    size_t length;
    const char *name = (const char *)rfs_intern_bytes(
        rfs_catalog_tables(listing->view->catalog)->names, target->name, &length);
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(chunked, name, length);

    if (!tensor || !rfs_chunks_is_flat(tensor) ||
        rfs_chunks_type(chunked, tensor->type)->bytes == 0)
        return false;
    const struct rfs_type *type = rfs_chunks_type(chunked, tensor->type);
    const struct rfs_type *stored = rfs_chunks_type(chunked, tensor->stored);
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

    stored.ndim = (uint8_t)(ndim + 1); /* the source's types have it, too */
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
    uint64_t elements = 1; /* in a piece */
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

/* Adds what rank R of N has of a whole flattened tensor: steps of axis 0, or elements. */
static int add_flat_divided(struct listing *listing, uint32_t r, uint32_t n)
{
    const struct rfs_type *type = listing->type;
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    const uint64_t all = listing->apart > 0 ? type->dims[0] : type->bytes / item;
    const uint64_t each = rfs_ceil_u64(all, n);
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

/*
 * Adds the rows of a whole tensor that rank R of N has: as torch.chunk divides, the first have
 * more.
 */
static int add_divided(struct listing *listing, uint32_t r, uint32_t n)
{
    const struct rfs_type *type = listing->type;
    struct rfs_box box = {.at = {0}};
    uint64_t row = 1;

    memcpy(box.len, type->dims, sizeof box.len);
    if (type->ndim == 0 || type->bytes == 0)
        return r == 0 ? add_box(listing, &box, 0) : 0;
    const uint64_t each = rfs_ceil_u64(type->dims[0], n);
    const uint64_t begin = rfs_min_u64(each * r, type->dims[0]);
    box.at[0] = begin;
    box.len[0] = rfs_min_u64(each, type->dims[0] - begin);
    row = type->bytes / type->dims[0];
    return box.len[0] > 0 ? add_box(listing, &box, begin * row) : 0;
}

/* Returns the number of the places before an axis of a box. */
static uint64_t places_before(const struct rfs_box *box, uint32_t axis)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < axis; i++)
        n *= box->len[i]; /* of a tensor, whose bytes are known to fit */
    return n;
}

/* Narrows a box to one of the places before an axis, in their order. */
static void narrow(struct rfs_box *box, uint32_t axis, uint64_t place)
{
    while (axis-- > 0) {
        box->at[axis] += place % box->len[axis];
        place /= box->len[axis];
        box->len[axis] = 1;
    }
}

/*
 * Adds the boxes of a slice whose fields are of an axis behind the first: in each place before that
 * axis, pieces of all fields lie one behind the other.
 */
static int add_inner_fields(struct listing *listing, const struct rfs_grid *grid,
                            const struct rfs_type *whole, uint32_t local, bool flat)
{
    struct rfs_box box = {.at = {0}};
    uint64_t at = 0;
    int rc = 0;

    rfs_grid_box(grid, whole->dims, local, 0, &box);
    const uint64_t places = places_before(&box, grid->round_axis);
    if (places > MOST_PLACES)
        return rfs_fail(listing->err, -ENOTSUP, where(listing), "dst_ranks= instead of cuts",
                        "is cut by fields of axis %" PRIu32 ", in %" PRIu64 " places",
                        grid->round_axis, places);
    for (uint64_t place = 0; place < places; place++)
        for (uint32_t k = 0; rc == 0 && k < grid->rounds; k++) {
            struct rfs_type piece = *whole;
            box = (struct rfs_box){.at = {0}};
            rfs_grid_box(grid, whole->dims, local, k, &box);
            narrow(&box, grid->round_axis, place);
            memcpy(piece.dims, box.len, piece.ndim * sizeof *piece.dims);
            rfs_type_bytes(&piece, &piece.bytes); /* no more than the whole's */
            rc = flat ? add_flat_box(listing, whole->dims, &box, at) : add_box(listing, &box, at);
            at += piece.bytes;
        }
    return rc;
}

/* Adds the boxes of a rank of a strategy, unless a lower rank holds them. */
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
    if (rfs_grid_replica(&geometry->dst, local, 0) != local)
        return 0;
    listing->whole = rfs_type_id(rfs_catalog_tables(listing->view->catalog)->types,
                                 &listing->out->whole, &whole);
    if (listing->whole == RFS_NO_ID)
        return rfs_fail_memory(listing->err);
    if (geometry->dst.round_axis > 0)
        return add_inner_fields(listing, &geometry->dst, &whole, local, flat);
    for (uint32_t k = 0; rc == 0 && k < geometry->dst.rounds; k++) {
        struct rfs_type piece = whole;
        box = (struct rfs_box){.at = {0}};
        rfs_grid_box(&geometry->dst, geometry->whole, local, k, &box);
        memcpy(piece.dims, box.len, piece.ndim * sizeof *piece.dims);
        rfs_type_bytes(&piece, &piece.bytes); /* no more than the whole's */
        rc = flat ? add_flat_box(listing, geometry->whole, &box, at) : add_box(listing, &box, at);
        at += piece.bytes;
    }
    return rc;
}

static int check_type(const struct listing *listing)
{
    const enum rfs_dtype dtype = (enum rfs_dtype)listing->type->dtype;
    const bool hyper = dcp_of(listing->view)->hyper;

    if (listing->type->kind == RFS_TENSOR && rfs_torch_dtype_name(dtype) &&
        (!hyper || rfs_dtype_safetensors(dtype)))
        return 0;
    return rfs_fail(listing->err, -EINVAL, where(listing),
                    rfs_dtype_is_block(dtype) ? RFS_DTYPE_DEQUANTIZE
                                              : "names= mapping it to null to leave it out",
                    "%s no tensors of its type, and view=%s has only those",
                    hyper ? "torch, or a safetensors file, has" : "torch has",
                    rfs_option_word("view", listing->view->options.shown));
}

/* Says whether a rank's file has what it is given of a target: the lowest stage has it. */
static bool is_stored(const struct rfs_view *view, uint32_t rank, const struct rfs_target *target)
{
    const uint32_t *stages = dcp_of(view)->stages.data;

    return !stages || stages[target->shown_name] == rank / view->scale.dst_devices;
}

static int plan_rank(struct rfs_view *view, uint32_t rank, const struct rfs_rank_plan **out,
                     struct rfs_error *err)
{
    return rfs_planner_rank(view->planner, view->dst ? rank : 0, out, err);
}

/* Adds the chunks that a rank has of one target, which is stored, of its plan. */
static int list_target(struct rfs_view *view, uint32_t rank, uint32_t i, struct rank_chunks *out,
                       struct rfs_error *err)
{
    const struct rfs_target *target = &out->plan->params->targets[i];
    const uint32_t local = rank % view->scale.dst_devices;
    struct listing listing = {.view = view,
                              .out = out,
                              .target = i,
                              .type = rfs_catalog_type(view->catalog, target->shown_type),
                              .whole = target->shown_type,
                              .shape = RFS_NO_ID,
                              .err = err};
    const int rc = check_type(&listing);

    if (rc)
        return rc;
    const bool flat = is_flat(&listing, target);
    return view->dst ? add_held(&listing, target, flat, local)
           : flat    ? add_flat_divided(&listing, rank, rfs_view_ranks(view))
                     : add_divided(&listing, rank, rfs_view_ranks(view));
}

/* ---- the names of tensors -------------------------------------------------------------------- */

/* The targets of a parameter list by the places of their names; 0: it does not have the name. */
struct places {
    RFS_VEC(uint32_t) targets; /* 1 + number of the target */
    bool mixed;                /* their order is another than that of the places */
};

/* Names have places in the order in which the ranks list them. */
struct names {
    RFS_VEC(uint32_t) ids;        /* by place */
    RFS_VEC(uint32_t) places;     /* by name id: 1 + the place, or 0 */
    RFS_VEC(struct places) lists; /* by id of a parameter list; without targets: not added yet */
};

static void names_end(struct names *names)
{
    for (size_t i = 0; i < names->lists.n; i++)
        free(names->lists.data[i].targets.data);
    free(names->lists.data);
    free(names->places.data);
    free(names->ids.data);
}

/* Gives the place of a name, which is the last one if it is new. False when out of memory. */
static bool place_of(struct names *names, uint32_t id, uint32_t *out)
{
    uint32_t *place = RFS_VEC_AT(&names->places, id, 0);

    if (!place || (*place == 0 && !RFS_PUSH(&names->ids, id)))
        return false;
    if (*place == 0)
        *place = (uint32_t)names->ids.n;
    *out = *place - 1;
    return true;
}

/* Adds the names that a rank stores, unless an earlier one has its list. False: out of memory. */
static bool add_names(const struct rfs_view *view, uint32_t rank, const struct rfs_params *params,
                      struct names *names)
{
    struct places *list = RFS_VEC_AT(&names->lists, params->id, (struct places){.mixed = false});
    uint32_t last = 0;

    if (!list || list->targets.n > 0)
        return list != NULL;
    for (size_t i = 0; i < params->n; i++) {
        uint32_t place = 0;
        if (!is_stored(view, rank, &params->targets[i]))
            continue;
        if (!place_of(names, params->targets[i].shown_name, &place))
            return false;
        uint32_t *target = RFS_VEC_AT(&list->targets, place, 0);
        if (!target)
            return false;
        *target = (uint32_t)i + 1;
        list->mixed |= place < last;
        last = place;
    }
    return true;
}

/* Returns 1 + the target with the name of a place in a list that was added, or 0. */
static uint32_t target_at(const struct names *names, const struct rfs_params *params, size_t place)
{
    const struct places *list = &names->lists.data[params->id];

    return place < list->targets.n ? list->targets.data[place] : 0;
}

/* Says whether a list that was added has a name. */
static bool has_name(const struct names *names, const struct rfs_params *params, uint32_t id)
{
    const uint32_t place = id < names->places.n ? names->places.data[id] : 0;

    return place > 0 && target_at(names, params, place - 1) > 0;
}

/*
 * Returns the name of a chunk in HyperParallel's file, which no tensor of the list has. Chunks have
 * different ones, because all but the underscores at the end says which chunk it is.
 */
static uint32_t key_for(struct rfs_intern *table, const char *name, size_t number,
                        const struct names *names, const struct rfs_params *params)
{
    RFS_FREE char *key = rfs_text_printf("%s.__dcp_chunk_%zu", name, number);

    while (key && has_name(names, params, rfs_intern_find(table, key, strlen(key)))) {
        char *longer = rfs_text_printf("%s_", key);
        free(key);
        key = longer;
    }
    return key ? rfs_intern_add(table, key, strlen(key)) : RFS_NO_ID;
}

/* Numbers the N chunks of a tensor in HyperParallel's file, if there are several. */
static int number_chunks(struct rfs_view *view, const struct rfs_params *params,
                         const struct names *names, struct rfs_view_piece *pieces, size_t n,
                         struct rfs_error *err)
{
    struct rfs_intern *table = rfs_catalog_tables(view->catalog)->names;
    const char *name = n > 1 ? rfs_intern_text(table, pieces[0].name) : NULL;

    for (size_t k = 0; name && k < n; k++) {
        pieces[k].name = key_for(table, name, k, names, params);
        if (pieces[k].name == RFS_NO_ID)
            return rfs_fail_memory(err);
    }
    return 0;
}

/* ---- the chunks of a file -------------------------------------------------------------------- */

/* Returns where the pieces of the target of piece I end. */
static size_t end_of(const struct rank_chunks *chunks, size_t i)
{
    const uint32_t target = chunks->pieces.data[i].target;

    while (i < chunks->pieces.n && chunks->pieces.data[i].target == target)
        i++;
    return i;
}

/* Names the chunks in a file of HyperParallel. */
static int name_chunks(struct rfs_view *view, uint32_t rank, struct rank_chunks *chunks,
                       struct rfs_error *err)
{
    RFS_CLEANUP(names_end) struct names names = {.ids = {0}};
    const struct rfs_params *params = chunks->plan->params;
    int rc = 0;

    for (size_t i = 0, end; rc == 0 && i < chunks->pieces.n; i = end) {
        end = end_of(chunks, i);
        if (end - i > 1 && !add_names(view, rank, params, &names))
            return rfs_fail_memory(err);
        rc = number_chunks(view, params, &names, chunks->pieces.data + i, end - i, err);
    }
    return rc;
}

static int list(struct rfs_view *view, size_t file, struct rfs_view_listing *out,
                struct rfs_error *err)
{
    RFS_CLEANUP(chunks_end) struct rank_chunks chunks = {.plan = NULL};
    const bool hyper = dcp_of(view)->hyper;
    const uint32_t rank = (uint32_t)file - 1;

    int rc = plan_rank(view, rank, &chunks.plan, err);
    for (size_t i = 0; rc == 0 && i < chunks.plan->params->n; i++)
        if (is_stored(view, rank, &chunks.plan->params->targets[i]))
            rc = list_target(view, rank, (uint32_t)i, &chunks, err);
    if (rc == 0 && hyper)
        rc = name_chunks(view, rank, &chunks, err);
    if (rc)
        return rc;
    out->params = chunks.plan->params;
    out->row = &rfs_formats[hyper ? RFS_ROW_HYPER_PARALLEL : RFS_ROW_DCP];
    out->metadata = "pt";
    out->divide = "dst_ranks=N with a larger N";
    out->pieces.n = chunks.pieces.n;
    out->pieces.data = RFS_STEAL(chunks.pieces.data);
    return 0;
}

static const char *objects_name(const struct rfs_view *view)
{
    return dcp_of(view)->hyper ? HYPER_OBJECTS_NAME : OBJECTS_NAME;
}

/* ---- .metadata ------------------------------------------------------------------------------- */

/* A rank, whose file has items end to end. */
struct rank {
    const struct rfs_rank_plan *plan;
    uint64_t end;     /* where the items end that were listed, by place */
    uint64_t *begins; /* owned; [targets] where their items begin, if the list is mixed; or NULL */
};

/*
 * All that .metadata describes. There may be millions of items, so they are listed for one tensor
 * at a time.
 */
struct described {
    struct rfs_view *view;
    struct names names;
    RFS_VEC(struct rank) ranks;
    RFS_VEC(uint64_t) bytes;                   /* by type id: of an item of torch; 0: unknown */
    struct rank_chunks chunks;                 /* those of one tensor that one rank has */
    RFS_VEC(struct rfs_dcp_listed_item) items; /* those of one tensor */
};

static void described_end(struct described *all)
{
    for (size_t i = 0; i < all->ranks.n; i++)
        free(all->ranks.data[i].begins);
    free(all->ranks.data);
    free(all->bytes.data);
    free(all->items.data);
    chunks_end(&all->chunks);
    names_end(&all->names);
}

/* Gives the bytes of an item of torch, by its type. */
static int item_bytes(struct described *all, uint32_t type, uint64_t *out, struct rfs_error *err)
{
    uint64_t *known = RFS_VEC_AT(&all->bytes, type, 0);
    const int rc = !known ? rfs_fail_memory(err)
                   : *known > 0
                       ? 0
                       : rfs_dcp_item_bytes(rfs_catalog_type(all->view->catalog, type), known, err);
    *out = rc == 0 ? *known : 0;
    return rc;
}

/* Adds the items that a rank has of a target, and moves *AT behind them. */
static int add_items(struct described *all, uint32_t rank, uint32_t target, uint64_t *at,
                     struct rfs_error *err)
{
    const bool hyper = dcp_of(all->view)->hyper;
    struct rank_chunks *chunks = &all->chunks;

    chunks->plan = all->ranks.data[rank].plan;
    chunks->pieces.n = 0;
    chunks->chunks.n = 0;
    int rc = list_target(all->view, rank, target, chunks, err);
    if (rc == 0 && hyper)
        rc = number_chunks(all->view, chunks->plan->params, &all->names, chunks->pieces.data,
                           chunks->pieces.n, err);
    for (size_t i = 0; rc == 0 && i < chunks->pieces.n; i++) {
        const struct rfs_view_piece *piece = &chunks->pieces.data[i];
        struct rfs_dcp_listed_item item = {
            .type = piece->type, .file = rank, .corner = chunks->chunks.data[i].corner};
        if (hyper) {
            item.at.key = piece->name;
        } else {
            item.at.begin = *at;
            rc = item_bytes(all, item.type, &item.at.bytes, err);
            *at += item.at.bytes;
        }
        if (rc == 0 && !RFS_PUSH(&all->items, item))
            rc = rfs_fail_memory(err);
    }
    return rc;
}

/* Sets where the items of a rank begin, whose targets have another order than the names. */
static int set_begins(struct described *all, uint32_t r, struct rfs_error *err)
{
    struct rank *rank = &all->ranks.data[r];
    const struct rfs_params *params = rank->plan->params;
    uint64_t end = 0;
    int rc = 0;

    rank->begins = calloc(params->n, sizeof *rank->begins);
    if (!rank->begins)
        return rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < params->n; i++) {
        all->items.n = 0;
        rank->begins[i] = end;
        if (is_stored(all->view, r, &params->targets[i]))
            rc = add_items(all, r, (uint32_t)i, &end, err);
    }
    return rc;
}

/* Plans all ranks, and finds the names. */
static int describe(struct described *all, struct rfs_error *err)
{
    const uint32_t n = rfs_view_ranks(all->view);
    int rc = 0;

    for (uint32_t r = 0; rc == 0 && r < n; r++) {
        struct rank rank = {.plan = NULL};
        rc = plan_rank(all->view, r, &rank.plan, err);
        if (rc == 0 && (!RFS_PUSH(&all->ranks, rank) ||
                        !add_names(all->view, r, rank.plan->params, &all->names)))
            rc = rfs_fail_memory(err);
    }
    for (uint32_t r = 0; rc == 0 && r < n; r++)
        if (all->names.lists.data[all->ranks.data[r].plan->params->id].mixed)
            rc = set_begins(all, r, err);
    return rc;
}

RFS_COMPARE(by_corner, struct rfs_dcp_listed_item, x, y,
            RFS_ORDER(x->corner, y->corner) ?: RFS_ORDER(x->file, y->file))

/* Says whether the items are sorted, as those of ranks that divide a tensor by rows are. */
static bool is_sorted(const struct described *all)
{
    for (size_t i = 1; i < all->items.n; i++)
        if (by_corner(&all->items.data[i - 1], &all->items.data[i]) > 0)
            return false;
    return true;
}

/* Lists the items of the tensor at a place; places come in their order, from 0 on. */
static int list_items(void *ctx, size_t place, struct rfs_dcp_listed_tensor *out,
                      struct rfs_error *err)
{
    struct described *all = ctx;
    int rc = 0;

    all->items.n = 0;
    *out = (struct rfs_dcp_listed_tensor){.name = all->names.ids.data[place]};
    for (uint32_t r = 0; rc == 0 && r < all->ranks.n; r++) {
        struct rank *rank = &all->ranks.data[r];
        const uint32_t target = target_at(&all->names, rank->plan->params, place);
        rank->end = place == 0 ? 0 : rank->end;
        if (target == 0)
            continue;
        uint64_t at = rank->begins ? rank->begins[target - 1] : rank->end;
        rc = add_items(all, r, target - 1, &at, err);
        rank->end = at;
        if (rc == 0 && all->chunks.chunks.n > 0) {
            out->whole = all->chunks.chunks.data[0].whole;
            out->shape = all->chunks.chunks.data[0].shape;
        }
    }
    if (!is_sorted(all))
        RFS_SORT_ALL(&all->items, by_corner);
    out->items = all->items.data;
    out->n = all->items.n;
    return rc;
}

/* Checks that no object has the name of a tensor, as names= could have it. */
static int check_names(struct rfs_view *view, const struct names *names, struct rfs_error *err)
{
    for (size_t i = 0; i < dcp_of(view)->objects.n; i++) {
        const uint32_t name = dcp_of(view)->objects.data[i];
        if (name < names->places.n && names->places.data[name] > 0)
            return rfs_view_objects_same_name(rfs_catalog_path(view->catalog),
                                              rfs_catalog_name(view->catalog, name), err);
    }
    return 0;
}

/*
 * Gives the objects their places in the file that has them. *OUT is malloc'ed and the caller's,
 * also when it fails. Reads only compressed ones.
 */
static int place_objects(struct rfs_view *view, struct rfs_dcp_listed_object **out,
                         struct rfs_error *err)
{
    struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    const size_t n = dcp_of(view)->objects.n;
    uint64_t end = 0;
    int rc = 0;

    *out = calloc(n + 1, sizeof **out);
    if (!*out)
        return rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct rfs_dcp_listed_object *object = &(*out)[i];
        object->name = dcp_of(view)->objects.data[i];
        object->begin = end;
        rc = rfs_chunks_object_bytes(chunked, &chunked->objects.data[dcp_of(view)->numbers.data[i]],
                                     &object->bytes, err);
        if (rc == 0 && !rfs_add_u64(end, object->bytes, &end))
            rc = rfs_fail(err, -EFBIG, RFS_IN(rfs_catalog_path(view->catalog)), NULL,
                          "its objects would be larger than a file can be");
    }
    return rc;
}

static int make_metadata(struct rfs_view *view, struct rfs_rank_plan *plan, struct rfs_image **out,
                         struct rfs_error *err)
{
    RFS_CLEANUP(described_end) struct described all = {.view = view};
    RFS_FREE struct rfs_dcp_listed_object *objects = NULL;
    const int rc = rfs_view_take_sources(view, plan, err)
                       ?: describe(&all, err)
                       ?: check_names(view, &all.names, err)
                       ?: place_objects(view, &objects, err);

    if (rc)
        return rc;
    const struct rfs_dcp_listing listing = {.list = list_items,
                                            .ctx = &all,
                                            .n = all.names.ids.n,
                                            .objects = objects,
                                            .n_objects = dcp_of(view)->objects.n,
                                            .objects_file = objects_name(view),
                                            .mcore_data = dcp_of(view)->mcore_data,
                                            .program = dcp_of(view)->hyper ? RFS_DCP_HYPER
                                                                           : RFS_DCP_TORCH};
    return rfs_dcp_encode_metadata(rfs_catalog_tables(view->catalog), &listing, out, err);
}

/* ---- files that are passed on ---------------------------------------------------------------- */

/* Lists the objects of the source that are shown. No file is read. */
static int list_objects(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    struct rfs_intern *names = rfs_catalog_tables(view->catalog)->names;

    for (size_t i = 0; i < chunked->objects.n; i++) {
        const struct rfs_chunked_object *object = &chunked->objects.data[i];
        const char *shown = rfs_names_shown(view->names, rfs_intern_text(names, object->name));
        if (!shown)
            continue;
        const uint32_t name = rfs_intern_add(names, shown, strlen(shown));
        if (name == RFS_NO_ID)
            return rfs_fail_memory(err);
        RFS_ADD(&view->memory, &dcp_of(view)->objects, name);
        RFS_ADD(&view->memory, &dcp_of(view)->numbers, (uint32_t)i);
    }
    return 0;
}

size_t rfs_view_dcp_objects_file(const struct rfs_view *view)
{
    return view->kind == &rfs_kind_dcp ? dcp_of(view)->objects_file : 0;
}

struct proving {
    struct rfs_view *view;
    struct rfs_first_error first;
};

static int prove(void *ctx, size_t i)
{
    struct proving *proving = ctx;
    struct rfs_chunks *chunked = rfs_catalog_chunks(proving->view->catalog);
    const struct rfs_chunked_object *object =
        &chunked->objects.data[dcp_of(proving->view)->numbers.data[i]];
    struct rfs_error err = {0};
    const int rc = chunked->format->prove(chunked, object, false, &err);

    return rfs_first_error_note(&proving->first, i, rc, &err);
}

/*
 * Proves that torch finds an object in each item: nothing but the pickle says what an object is.
 * HyperParallel's are pickles, which are not looked at.
 */
static int prove_objects(struct rfs_view *view, struct rfs_error *err)
{
    struct proving proving = {.view = view, .first = RFS_FIRST_ERROR};
    const int rc = rfs_dcp_objects_apart(rfs_catalog_chunks(view->catalog), err);

    return rc ? rc
              : rfs_first_error_take(
                    &proving.first,
                    rfs_pool_for(view->set->pool, dcp_of(view)->numbers.n, prove, &proving), err);
}

/* Makes the file of the objects, which depends on all files that have one. */
static int make_objects(struct rfs_view *view, struct rfs_rank_plan *plan, struct rfs_image **out,
                        struct rfs_error *err)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    const size_t n = dcp_of(view)->numbers.n;
    RFS_FREE struct rfs_dcp_listed_object *objects = NULL;
    RFS_FREE struct rfs_copied *copied = calloc(n + 1, sizeof *copied);
    RFS_FREE unsigned char *taken = calloc((size_t)chunked->n_files + 1, 1);
    int rc = copied && taken ? prove_objects(view, err) ?: place_objects(view, &objects, err)
                             : rfs_fail_memory(err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct rfs_chunked_object *object =
            &chunked->objects.data[dcp_of(view)->numbers.data[i]];
        copied[i] = (struct rfs_copied){object->file, object->item, objects[i].bytes};
        if (!taken[object->file - chunked->first_file]++)
            rc = rfs_plan_add_file(chunked->files, object->file, plan, err);
    }
    if (rc)
        return rc;
    return rfs_image_copied(copied, n, out) ? rfs_fail_memory(err) : 0;
}

static int show_objects(struct rfs_view *view, struct rfs_error *err)
{
    const int rc = rfs_view_objects_check_names(view, err) ?: list_objects(view, err);

    if (rc || dcp_of(view)->objects.n == 0)
        return rc;
    dcp_of(view)->objects_file = view->n_files;
    rfs_view_show(view, "%s", objects_name(view))->make = make_objects;
    return 0;
}

/* Shows the files behind those of the ranks. */
static int show_more(struct rfs_view *view, struct rfs_error *err)
{
    if (!rfs_view_objects_passed(view))
        return 0;
    int rc = show_objects(view, err);
    for (size_t i = 0; rc == 0 && !dcp_of(view)->hyper && i < N_PASSED_ON; i++)
        rc = rfs_view_pass_on_own(view, passed_on[i], err);
    return rc;
}

/* ---- the kind of view ------------------------------------------------------------------------ */

static int open_dcp(struct rfs_view *view, struct rfs_error *err)
{
    struct dcp *dcp = rfs_arena_zeros(&view->memory, 1, sizeof *dcp);

    if (!view->dst)
        view->scale.dst_devices = view->options.dst_ranks ? view->options.dst_ranks : 1;
    view->state = dcp;
    int rc = rfs_view_make_room(view, (size_t)rfs_view_ranks(view) + 1 + N_PASSED_ON + 1, err);
    if (rc)
        return rc;
    dcp->hyper = view->options.shown == RFS_SHOW_HYPER_PARALLEL;
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    dcp->mcore_data = !dcp->hyper && chunked && chunked->mcore_data;
    rfs_view_show(view, "%s", rfs_formats[RFS_ROW_DCP].metadata)->make = make_metadata;
    for (uint32_t rank = 0; rank < rfs_view_ranks(view); rank++) {
        struct rfs_view_file *file =
            rfs_view_show(view, dcp->hyper ? "_rank%u_.safetensors" : "__%u_0.distcp", rank);
        file->rank = view->dst ? rank : 0;
        file->parameters = RFS_IN_PLAN;
    }
    return show_more(view, err) ?: find_stages(view, err);
}

const struct rfs_view_kind rfs_kind_dcp = {.open = open_dcp, .list = list};
