/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A DTensor in a pickle of torch.save, of FSDP2 and of tensor parallelism:
 *
 *     _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor,
 *                           (DTensor, dtype, SIZE of the whole, strides, 0, layout, device, grad),
 *                           (None, {"_local_tensor": TENSOR, "_spec": DTensorSpec}));
 *                           a parameter has {"_is_param": True} in place of None
 *     DTensorSpec   mesh: DeviceMesh, placements: (Replicate(), Shard(dim=0), …), tensor_meta: …
 *     DeviceMesh    mesh: a tensor of ranks, with an axis for each placement; and where this rank
 *                   is, _coordinate_on_dim: [0, 1]; since torch 2.15 its sizes are in _layout
 *                   instead, a _MeshLayout with axes: (_FlatLayout with shape: (2,), …)
 *
 * Each mesh axis with a Shard cuts the box that the axes before it have left, as torch.chunk does.
 * FSDP2 cuts what tensor parallelism has cut before it, though its mesh axis comes first: that axis
 * has _StridedShard(dim=0, split_factor=2). It waits for the next Shard of that dim, and then cuts
 * what this has left. (torch 2.15 can cut in another order: shard_order of the DTensorSpec says so,
 * and such a tensor is refused.)
 *
 * A ShardedTensor, of FSDP1:
 *
 *     _rebuild_from_type_v2(_rebuild_wrapper_subclass, ShardedTensor,
 *                           (ShardedTensor, dtype, SIZE of the whole, …),
 *                           ([Shard, …], ShardedTensorMetadata, ProcessGroupState, sharding spec,
 *                            False))
 *     Shard                  tensor: TENSOR, metadata: ShardMetadata; a rank may have none
 *     ShardMetadata          shard_offsets: [0, 0], shard_sizes: [5, 6], placement: _remote_device,
 *                            with _rank: 0
 *     ShardedTensorMetadata  shards_metadata: [ShardMetadata, …] of all ranks, size: SIZE,
 *                            tensor_properties: (dtype, …)
 *     ProcessGroupState      local_rank: 0, global_rank: 0, local_world_size: 2,
 *                            global_world_size: 2
 *
 * So each file says what all ranks have. With HYBRID_SHARD the group of ranks that share a tensor
 * is smaller than the world: others have the same shards again, and lists with their ranks. No file
 * says that they are the same: groups of pipeline stages or of experts, which have tensors of their
 * own under one name, look so as well, and so copies are on trust. Ranks are numbers in the world,
 * or in the group, depending on the version. A Shard's own placement may have the other one, and is
 * not looked at.
 *
 * A tensor that is neither is whole in every file.
 *
 * Source: torch/distributed/tensor of torch 2.9 and 2.15, and torch/distributed/_tensor of torch
 * 2.3; torch/distributed/_shard and torch/distributed/fsdp of torch 1.13, 2.1, 2.9 and 2.15.
 */
#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */

#include "formats/fsdp/fsdp.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "formats/chunks/chunk_reader.h"
#include "formats/chunks/headers.h"
#include "formats/torch/torch.h"

#include <xxhash.h>

#define REMEDY "files of one save, as torch.save wrote them"
#define REMEDY_DCP "torch.distributed.checkpoint, whose folders are read"
/* Most fields that are looked at, for each byte of the pickle: tensors may share one long list. */
#define WORK_TIMES 4
#define BOX_WORK 16 /* the box of a shard counts as so many fields and its axes: it may be kept */

/* Arguments of opening, and what it found in the files so far. */
struct opening {
    const char *entry;
    size_t left_out;
    /*
     * By name id: UNSEEN, WHOLE_OR_PLACED, or of a ShardedTensor the number of distinct lists of
     * its shards, which is at most that of the groups of ranks.
     */
    RFS_VEC(uint32_t) kinds;
    struct rfs_intern *lists; /* struct list_key of each list of shards */
};

enum { UNSEEN = UINT32_MAX, WHOLE_OR_PLACED = UINT32_MAX - 1 };

struct list_key {
    XXH128_hash_t hash; /* XXH3-128 of the type, the boxes and their ranks */
    uint64_t name;
};

struct rank_file {
    struct rfs_local_chunks *locals;
    struct opening *opening;
    struct rfs_torch torch;
    const char *path;
    uint32_t file;
    struct rfs_torch_shown shown;
    uint64_t work;    /* number of fields that were looked at */
    const char *kind; /* class of the value at hand */
    struct rfs_error *err;
};

static int damaged(const struct rank_file *rank, const char *param, const char *what)
{
    return rfs_fail(rank->err, -EINVAL, RFS_OF(rank->path, param), REMEDY, "the %s is damaged: %s",
                    rank->kind, what);
}

static int check_work(const struct rank_file *rank, const char *param)
{
    return rank->work / WORK_TIMES > rank->torch.pickle.n_bytes
               ? damaged(rank, param, "too many share long lists of fields")
               : 0;
}

/* Returns the value of a dict by NAME, or NULL. */
static const struct rfs_node *value_of(struct rank_file *rank, const struct rfs_node *dict,
                                       const char *name)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(dict);

    rank->work += pairs ? pairs->n : 0;
    return rfs_pickle_get(dict, name);
}

/* Returns the state of an object that was made by __new__; NULL: it has none. */
static const struct rfs_node *state_of(const struct rfs_node *object)
{
    return object && object->kind == RFS_NODE_NEW && object->of.call.after
               ? object->of.call.after->state
               : NULL;
}

/* Returns a field of an object whose state is a dict or slots, (None, dict); or NULL. */
static const struct rfs_node *field(struct rank_file *rank, const struct rfs_node *object,
                                    const char *name)
{
    const struct rfs_node *state = state_of(object);

    if (state && state->kind == RFS_NODE_TUPLE && state->of.items.n == 2)
        state = state->of.items.data[1];
    return state ? value_of(rank, state, name) : NULL;
}

/* Says whether an object is of a class of that name. */
static bool is_of(const struct rfs_node *object, const char *name)
{
    return object->kind == RFS_NODE_NEW && rfs_pickle_is_named(object->of.call.callee, name);
}

/* ---- where a rank's chunk lies --------------------------------------------------------------- */

struct mesh {
    uint32_t replicas; /* ranks that have one chunk */
    uint32_t n;
    uint64_t sizes[RFS_MAX_DIMS];
    uint64_t at[RFS_MAX_DIMS]; /* place of this rank */
    const struct rfs_node *placements;
};

/* Reads how many ranks each axis of a mesh has. False when it does not say so. */
static bool read_sizes(struct rank_file *rank, const struct rfs_node *mesh, struct mesh *out)
{
    const struct rfs_node *ranks = field(rank, mesh, "mesh");
    const struct rfs_node *axes = field(rank, field(rank, mesh, "_layout"), "axes");

    if (ranks)
        return rfs_pickle_is_call(ranks, RFS_CALL_TENSOR) &&
               rfs_torch_numbers(ranks->of.call.args->of.items.data[2], &out->n, out->sizes);
    if (!axes || axes->kind != RFS_NODE_TUPLE || axes->of.items.n > RFS_MAX_DIMS)
        return false;
    out->n = axes->of.items.n;
    for (uint32_t i = 0; i < out->n; i++) {
        uint64_t shape[RFS_MAX_DIMS];
        uint32_t n = 0;
        if (!rfs_torch_numbers(field(rank, axes->of.items.data[i], "shape"), &n, shape))
            return false;
        out->sizes[i] = 1;
        for (uint32_t k = 0; k < n; k++)
            if (!rfs_mul_u64(out->sizes[i], shape[k], &out->sizes[i]))
                return false;
    }
    return true;
}

/* Says whether mesh axes cut in their own order: the axes of each ShardOrderEntry ascend. */
static bool is_in_order(struct rank_file *rank, const struct rfs_node *spec)
{
    const struct rfs_node *order = field(rank, spec, "shard_order");

    if (!order || order->kind != RFS_NODE_TUPLE)
        return !order || order->kind == RFS_NODE_NONE;
    rank->work += order->of.items.n;
    for (uint32_t i = 0; i < order->of.items.n; i++) {
        const struct rfs_node *entry = order->of.items.data[i];
        uint64_t axes[RFS_MAX_DIMS];
        uint32_t n = 0;
        if (!is_of(entry, "ShardOrderEntry") ||
            !rfs_torch_numbers(entry->of.call.args->of.items.data[1], &n, axes))
            return false;
        for (uint32_t k = 1; k < n; k++)
            if (axes[k] <= axes[k - 1])
                return false;
    }
    return true;
}

static int read_mesh(struct rank_file *rank, const char *param, const struct rfs_node *spec,
                     struct mesh *out)
{
    const struct rfs_node *mesh = field(rank, spec, "mesh");
    const struct rfs_node *placements = field(rank, spec, "placements");
    uint32_t n = 0;

    if (!read_sizes(rank, mesh, out) || !placements || placements->kind != RFS_NODE_TUPLE ||
        !rfs_torch_numbers(field(rank, mesh, "_coordinate_on_dim"), &n, out->at) || n != out->n ||
        placements->of.items.n != n)
        return damaged(rank, param, "it has no mesh, no place in it or no placements");
    if (!is_in_order(rank, spec))
        return rfs_fail(rank->err, -ENOTSUP, RFS_OF(rank->path, param), REMEDY_DCP,
                        "its mesh axes cut it in another order than their own");
    out->placements = placements;
    for (uint32_t i = 0; i < n; i++)
        if (out->at[i] >= out->sizes[i])
            return damaged(rank, param, "the rank is not in the mesh");
    return 0;
}

/* Cuts the range of an axis in N as torch.chunk does, and takes number AT. */
static void cut(uint64_t n, uint64_t at, uint64_t *begin, uint64_t *length)
{
    const uint64_t each = rfs_ceil_u64(*length, n);
    uint64_t skip;

    if (!rfs_mul_u64(each, at, &skip) || skip > *length)
        skip = *length;
    *begin += skip;
    *length = rfs_min_u64(each, *length - skip);
}

/* Reads which axis of a tensor of type WHOLE a placement cuts. False: it is no Shard of it. */
static bool read_dim(struct rank_file *rank, const struct rfs_node *placement,
                     const struct rfs_type *whole, uint32_t *out)
{
    const struct rfs_node *dim = field(rank, placement, "dim");

    if ((!is_of(placement, "Shard") && !is_of(placement, "_StridedShard")) || !dim ||
        dim->kind != RFS_NODE_INT || dim->of.integer < 0 || dim->of.integer >= whole->ndim)
        return false;
    *out = (uint32_t)dim->of.integer;
    return true;
}

/*
 * Cuts a range by mesh axis NUMBER, and then by those before it that wait, a bit for each in
 * WAITING: the last of them first. False: they were cut in another order.
 */
static bool cut_all(struct rank_file *rank, const struct mesh *mesh, uint32_t number,
                    uint32_t *waiting, uint64_t *begin, uint64_t *length)
{
    uint64_t factor = mesh->sizes[number];

    cut(mesh->sizes[number], mesh->at[number], begin, length);
    for (uint32_t i = number; *waiting && i-- > 0;) {
        const struct rfs_node *placement = mesh->placements->of.items.data[i];
        if (!(*waiting >> i & 1))
            continue;
        const struct rfs_node *before = field(rank, placement, "split_factor");
        if (!before || before->kind != RFS_NODE_INT || before->of.integer < 0 ||
            (uint64_t)before->of.integer != factor || !rfs_mul_u64(factor, mesh->sizes[i], &factor))
            return false;
        cut(mesh->sizes[i], mesh->at[i], begin, length);
        *waiting &= ~(UINT32_C(1) << i);
    }
    return true;
}

/* Finds the box of a rank, in a tensor of type WHOLE. */
static int find_box(struct rank_file *rank, const char *param, struct mesh *mesh,
                    const struct rfs_type *whole, uint64_t *begin, uint64_t *length)
{
    uint64_t replicas = 1;
    uint32_t waiting[RFS_MAX_DIMS] = {0};
    bool ended[RFS_MAX_DIMS] = {false};
    bool is_box = true;

    memset(begin, 0, RFS_MAX_DIMS * sizeof *begin);
    memcpy(length, whole->dims, RFS_MAX_DIMS * sizeof *length);
    for (uint32_t i = 0; i < mesh->n; i++) {
        const struct rfs_node *placement = mesh->placements->of.items.data[i];
        uint32_t dim;
        if (is_of(placement, "Replicate")) {
            if (!rfs_mul_u64(replicas, mesh->sizes[i], &replicas))
                replicas = UINT32_MAX;
            continue;
        }
        if (!read_dim(rank, placement, whole, &dim))
            return damaged(rank, param, "a placement that is neither Replicate nor a Shard of it");
        is_box &= !ended[dim];
        if (is_of(placement, "_StridedShard")) {
            waiting[dim] |= UINT32_C(1) << i;
            continue;
        }
        ended[dim] = waiting[dim] != 0;
        is_box &= cut_all(rank, mesh, i, &waiting[dim], &begin[dim], &length[dim]);
    }
    for (uint32_t dim = 0; dim < whole->ndim; dim++)
        is_box &= waiting[dim] == 0;
    mesh->replicas = (uint32_t)rfs_min_u64(replicas, UINT32_MAX);
    return is_box ? 0
                  : rfs_fail(rank->err, -ENOTSUP, RFS_OF(rank->path, param), REMEDY_DCP,
                             "its _StridedShards leave each rank rows that do not follow one "
                             "another");
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Returns where the elements of a stored tensor lie; RFS_NOT_LOCATED when out of memory. */
static uint64_t place_of(struct rank_file *rank, const struct rfs_torch_tensor *tensor)
{
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    const uint64_t at = tensor->record ? tensor->record->offset + tensor->offset * item : 0;
    uint64_t stride[RFS_MAX_DIMS];

    for (uint32_t i = 0; i < tensor->ndim; i++)
        stride[i] = tensor->strides[i] * item;
    return tensor->contiguous
               ? at
               : rfs_chunks_add_strided(rank->locals->chunks, at, tensor->ndim, stride);
}

/*
 * Adds a stored tensor that begins at CORNER of one of type WHOLE (NULL: its own). By its
 * placements REPLICAS files have it.
 */
static int add(struct rank_file *rank, const char *param, uint32_t name,
               const struct rfs_torch_tensor *tensor, const struct rfs_type *whole,
               const uint64_t *corner, uint32_t replicas)
{
    struct rfs_intern *types = rank->locals->chunks->tables->types;
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    struct rfs_type type = {.bytes = tensor->elements * item,
                            .ndim = (uint8_t)tensor->ndim,
                            .dtype = (uint8_t)tensor->dtype,
                            .kind = RFS_TENSOR};

    const int rc = rfs_torch_show(&rank->shown, type.bytes, rank->path, param, rank->err);
    if (rc)
        return rc;
    memcpy(type.dims, tensor->dims, tensor->ndim * sizeof *type.dims);
    const struct rfs_local_chunk local = {
        .name = name,
        .type = rfs_intern_add(types, &type, sizeof type),
        .whole = rfs_intern_add(types, whole ? whole : &type, sizeof type),
        .file = rank->file,
        .promised = replicas,
        .at = place_of(rank, tensor)};
    return local.at != RFS_NOT_LOCATED && local.type != RFS_NO_ID && local.whole != RFS_NO_ID &&
                   rfs_chunks_add_local(rank->locals, &local, corner)
               ? 0
               : rfs_fail_memory(rank->err);
}

static bool same_shape(const struct rfs_torch_tensor *tensor, uint32_t ndim, const uint64_t *dims)
{
    return tensor->ndim == ndim && memcmp(tensor->dims, dims, ndim * sizeof *dims) == 0;
}

/* Reads a DTensor, by the arguments of the call that makes it. */
static int read_dtensor(struct rank_file *rank, const char *param, uint32_t name,
                        const struct rfs_items *args)
{
    const struct rfs_items *made = &args->data[2]->of.items;
    const struct rfs_node *slots = args->data[3]->of.items.data[1];
    const struct rfs_node *local = value_of(rank, slots, "_local_tensor");
    struct rfs_type whole = {.kind = RFS_TENSOR};
    struct rfs_torch_tensor tensor;
    struct mesh mesh;
    uint64_t begin[RFS_MAX_DIMS];
    uint64_t length[RFS_MAX_DIMS];
    uint32_t ndim = 0;

    rank->kind = "DTensor";
    if (!local || made->n < 3 || !rfs_torch_numbers(made->data[2], &ndim, whole.dims))
        return damaged(rank, param, "it has no size, or no tensor");
    whole.ndim = (uint8_t)ndim;
    int rc = rfs_torch_tensor(&rank->torch, local, rank->path, param, &tensor, rank->err);
    if (rc == 1)
        rc = read_mesh(rank, param, value_of(rank, slots, "_spec"), &mesh);
    else if (rc == 0)
        rc = damaged(rank, param, "it has no size, or no tensor");
    if (rc == 0)
        rc = find_box(rank, param, &mesh, &whole, begin, length);
    if (rc == 0)
        rc = check_work(rank, param);
    if (rc)
        return rc;
    whole.dtype = (uint8_t)tensor.dtype;
    if (!same_shape(&tensor, ndim, length))
        return damaged(rank, param, "its tensor has another shape than its placements give it");
    return rfs_type_bytes(&whole, &whole.bytes)
               ? add(rank, param, name, &tensor, &whole, begin, mesh.replicas)
               : damaged(rank, param, "it has more than 2^63 bytes");
}

/* ---- ShardedTensors -------------------------------------------------------------------------- */

/* A ShardedTensor of a file: where its rank is, and what the list says that it has. */
struct sharded {
    struct rfs_type whole;
    const struct rfs_items *shards; /* Shards of this rank */
    const struct rfs_items *list;   /* ShardMetadata of all ranks of the group */
    uint64_t world_rank, group_rank;
    uint32_t groups; /* number of groups of ranks */
};

/* The box of a shard. */
struct shard {
    uint64_t at[RFS_MAX_DIMS];
    uint64_t size[RFS_MAX_DIMS];
};

/* Reads a count of an object. False: it has none of that name. */
static bool read_count(struct rank_file *rank, const struct rfs_node *object, const char *name,
                       uint64_t *out)
{
    const struct rfs_node *number = field(rank, object, name);

    if (!number || number->kind != RFS_NODE_INT || number->of.integer < 0)
        return false;
    *out = (uint64_t)number->of.integer;
    return true;
}

/* Compares the ranks that a file states with its name. */
static int read_group(struct rank_file *rank, const char *param, const struct rfs_node *group,
                      struct sharded *out)
{
    const char *slash = strrchr(rank->path, '/');
    struct rfs_numbered_name name;
    uint64_t ranks;
    uint64_t world;

    if (!read_count(rank, group, "global_rank", &out->world_rank) ||
        !read_count(rank, group, "global_world_size", &world) ||
        !read_count(rank, group, "local_rank", &out->group_rank) ||
        !read_count(rank, group, "local_world_size", &ranks) || out->group_rank >= ranks ||
        ranks > world)
        return damaged(rank, param, "it does not say which rank has it");
    if (!rfs_numbered_read(&rfs_fsdp_names, slash ? slash + 1 : rank->path, &name) ||
        name.of[RFS_NUMBERED_RANK] != out->world_rank || name.of[RFS_NUMBERED_COUNT] != world)
        return rfs_fail(rank->err, -EINVAL, RFS_OF(rank->path, param),
                        "the name that the file was saved by",
                        "it is of rank %" PRIu64 " of %" PRIu64 ", which the file's name is not",
                        out->world_rank, world);
    out->groups = (uint32_t)(world / ranks); /* a name has at most RFS_MAX_RANK */
    return 0;
}

/* Reads what a ShardedTensor is, by the arguments of the call that makes it. */
static int read_whole(struct rank_file *rank, const char *param, const struct rfs_items *args,
                      struct sharded *out)
{
    const struct rfs_items *state = &args->data[3]->of.items;
    const struct rfs_node *list = field(rank, state->data[1], "shards_metadata");
    const struct rfs_node *properties = state_of(field(rank, state->data[1], "tensor_properties"));
    const struct rfs_node *dtype =
        properties && properties->kind == RFS_NODE_TUPLE && properties->of.items.n > 0
            ? properties->of.items.data[0]
            : NULL;
    enum rfs_dtype element;
    uint32_t ndim;

    *out = (struct sharded){.whole = {.kind = RFS_TENSOR}, .shards = &state->data[0]->of.items};
    if (!list || list->kind != RFS_NODE_LIST || !dtype || dtype->kind != RFS_NODE_GLOBAL ||
        !rfs_torch_dtype(dtype, &element) ||
        !rfs_torch_numbers(field(rank, state->data[1], "size"), &ndim, out->whole.dims) ||
        ndim == 0)
        return damaged(rank, param, "it has no size, no dtype or no list of shards");
    out->list = &list->of.items;
    out->whole.ndim = (uint8_t)ndim;
    out->whole.dtype = (uint8_t)element;
    return rfs_type_bytes(&out->whole, &out->whole.bytes)
               ? read_group(rank, param, state->data[2], out)
               : damaged(rank, param, "it has more than 2^63 bytes");
}

/* Reads the box of a ShardMetadata. False: it is none that lies in a tensor of type WHOLE. */
static bool read_box(struct rank_file *rank, const struct rfs_node *metadata,
                     const struct rfs_type *whole, struct shard *out)
{
    uint32_t n = 0;
    uint32_t sizes = 0;

    if (!rfs_torch_numbers(field(rank, metadata, "shard_offsets"), &n, out->at) ||
        !rfs_torch_numbers(field(rank, metadata, "shard_sizes"), &sizes, out->size) ||
        n != whole->ndim || sizes != n)
        return false;
    rank->work += BOX_WORK + n;
    for (uint32_t i = 0; i < n; i++)
        if (out->at[i] > whole->dims[i] || out->size[i] > whole->dims[i] - out->at[i])
            return false;
    return true;
}

/* Says whether Shard NUMBER of the file has that box. */
static bool has_box(struct rank_file *rank, const struct sharded *sharded, uint32_t number,
                    const struct shard *box)
{
    const size_t bytes = sharded->whole.ndim * sizeof *box->at;
    struct shard own;

    return number < sharded->shards->n &&
           read_box(rank, field(rank, sharded->shards->data[number], "metadata"), &sharded->whole,
                    &own) &&
           memcmp(own.at, box->at, bytes) == 0 && memcmp(own.size, box->size, bytes) == 0;
}

/* Finds a Shard with that box that was not taken before, from number FROM on, and takes it. */
static bool take(struct rank_file *rank, const struct sharded *sharded, const struct shard *box,
                 uint32_t from, bool *taken)
{
    const uint32_t n = sharded->shards->n;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t number = (uint32_t)(((uint64_t)from + i) % n);
        if (!taken[number] && has_box(rank, sharded, number, box))
            return taken[number] = true;
    }
    return false;
}

/*
 * Says whether the Shards of a file are those that the list gives to rank OWNER, in any order:
 * torch may have sorted the list. 1, 0, or -errno with the error filled.
 */
static int are_given(struct rank_file *rank, const char *param, const struct sharded *sharded,
                     uint64_t owner)
{
    RFS_FREE bool *taken = calloc((size_t)sharded->shards->n + 1, sizeof *taken);
    uint32_t given = 0;
    uint64_t to;
    struct shard box;

    if (!taken)
        return rfs_fail_memory(rank->err);
    for (uint32_t i = 0; i < sharded->list->n; i++) {
        const struct rfs_node *metadata = sharded->list->data[i];
        if (!read_count(rank, field(rank, metadata, "placement"), "_rank", &to) || to != owner)
            continue;
        const int rc = check_work(rank, param);
        if (rc)
            return rc;
        if (!read_box(rank, metadata, &sharded->whole, &box) ||
            !take(rank, sharded, &box, given++, taken))
            return 0;
    }
    return given == sharded->shards->n;
}

/* Reads the list of a ShardedTensor's shards, and gives its hash. */
static int read_list(struct rank_file *rank, const char *param, const struct sharded *sharded,
                     XXH128_hash_t *hash)
{
    const size_t bytes = sharded->whole.ndim * sizeof(uint64_t);
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &sharded->whole, sizeof sharded->whole);
    for (uint32_t i = 0; i < sharded->list->n; i++) {
        const struct rfs_node *metadata = sharded->list->data[i];
        struct shard box;
        uint64_t to;
        if (!read_box(rank, metadata, &sharded->whole, &box) ||
            !read_count(rank, field(rank, metadata, "placement"), "_rank", &to))
            return damaged(rank, param, "its list has a shard without a rank, or outside of it");
        XXH3_128bits_update(&state, box.at, bytes);
        XXH3_128bits_update(&state, box.size, bytes);
        XXH3_128bits_update(&state, &to, sizeof to);
    }
    *hash = XXH3_128bits_digest(&state);
    return check_work(rank, param);
}

/* Proves that a file has the shards that the list gives to its rank, by either of its numbers. */
static int check_given(struct rank_file *rank, const char *param, const struct sharded *sharded)
{
    int rc = are_given(rank, param, sharded, sharded->world_rank);

    if (rc == 0 && sharded->groups > 1)
        rc = are_given(rank, param, sharded, sharded->group_rank);
    return rc ? rc < 0 ? rc : 0
              : damaged(rank, param, "its shards are not those that its list gives to the rank");
}

/* Compares the list of a ShardedTensor's shards with those of the files before. */
static int check_list(struct rank_file *rank, const char *param, uint32_t name,
                      const struct sharded *sharded)
{
    struct opening *opening = rank->opening;
    struct list_key key = {.name = name};
    uint32_t *lists = &opening->kinds.data[name];
    const int rc = read_list(rank, param, sharded, &key.hash) ?: check_given(rank, param, sharded);

    if (rc)
        return rc;
    if (!opening->lists)
        opening->lists = rfs_intern_new();
    if (!opening->lists)
        return rfs_fail_memory(rank->err);
    *lists += rfs_intern_is_new(opening->lists, &key, sizeof key);
    return *lists <= sharded->groups
               ? 0
               : rfs_fail(rank->err, -EINVAL, RFS_OF(rank->path, param),
                          "files of one save that has ended",
                          "its list of shards differs from those of the files before");
}

/* Adds nothing of a ShardedTensor, at its end: a rank may have none of the shards. */
static int add_none(struct rank_file *rank, const char *param, uint32_t name,
                    const struct sharded *sharded)
{
    const struct rfs_type *whole = &sharded->whole;
    const uint64_t corner[RFS_MAX_DIMS] = {whole->dims[0]};
    struct rfs_torch_tensor tensor = {
        .dtype = (enum rfs_dtype)whole->dtype, .ndim = whole->ndim, .contiguous = true};

    memcpy(tensor.dims, whole->dims, sizeof tensor.dims);
    tensor.dims[0] = 0;
    return add(rank, param, name, &tensor, whole, corner, 1);
}

/* Adds Shard NUMBER of a ShardedTensor, whose list has been read. */
static int add_shard(struct rank_file *rank, const char *param, uint32_t name,
                     const struct sharded *sharded, uint32_t number)
{
    const struct rfs_node *node = sharded->shards->data[number];
    const struct rfs_node *stored = field(rank, node, "tensor");
    struct rfs_torch_tensor tensor;
    struct shard box;

    if (!stored || !read_box(rank, field(rank, node, "metadata"), &sharded->whole, &box))
        return damaged(rank, param, "a shard of it has no tensor");
    const int rc = rfs_torch_tensor(&rank->torch, stored, rank->path, param, &tensor, rank->err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return rfs_fail(rank->err, -ENOTSUP, RFS_OF(rank->path, param), REMEDY_DCP,
                        "a shard of it is itself divided among ranks");
    if (tensor.dtype != sharded->whole.dtype || !same_shape(&tensor, sharded->whole.ndim, box.size))
        return damaged(rank, param,
                       "a shard's tensor has another shape or dtype than its metadata");
    return add(rank, param, name, &tensor, &sharded->whole, box.at, 1);
}

/* Reads a ShardedTensor, by the arguments of the call that makes it. */
static int read_sharded(struct rank_file *rank, const char *param, uint32_t name,
                        const struct rfs_items *args)
{
    struct sharded sharded;

    rank->kind = "ShardedTensor";
    int rc = read_whole(rank, param, args, &sharded) ?: check_list(rank, param, name, &sharded);
    if (rc == 0 && sharded.shards->n == 0)
        rc = add_none(rank, param, name, &sharded);
    for (uint32_t i = 0; rc == 0 && i < sharded.shards->n; i++)
        rc = add_shard(rank, param, name, &sharded, i);
    return rc;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Notes the kind of a name's values: a ShardedTensor is one in every file. */
static int note_kind(struct rank_file *rank, const char *param, uint32_t name, bool is_sharded)
{
    struct opening *opening = rank->opening;

    uint32_t *kind = RFS_VEC_AT(&opening->kinds, name, UNSEEN);
    if (!kind)
        return rfs_fail_memory(rank->err);
    if (*kind == UNSEEN)
        *kind = is_sharded ? 0 : WHOLE_OR_PLACED;
    return (*kind != WHOLE_OR_PLACED) == is_sharded
               ? 0
               : rfs_fail(rank->err, -EINVAL, RFS_OF(rank->path, param),
                          "files of one save that has ended",
                          "it is a ShardedTensor in some files only");
}

/* Reads a tensor that is whole in the file. Counts a value that is none. */
static int read_plain(struct rank_file *rank, const char *param, uint32_t name,
                      const struct rfs_node *value)
{
    static const uint64_t zeros[RFS_MAX_DIMS];
    struct rfs_torch_tensor tensor;
    int rc = rfs_torch_tensor(&rank->torch, value, rank->path, param, &tensor, rank->err);

    if (rc == 0) {
        rank->opening->left_out += rank->file == 0;
        return 0;
    }
    if (rc == 1)
        rc = note_kind(rank, param, name, false);
    return rc ? rc : add(rank, param, name, &tensor, NULL, zeros, 1);
}

/* Notes one key that the entry leaves out, for the view to tell. */
static int note_outside(const struct rank_file *rank, const struct rfs_node *key)
{
    struct rfs_path_list *beside = &rank->locals->chunks->beside;

    if (beside->n > 0 || key->kind != RFS_NODE_TEXT)
        return 0;
    return rfs_path_list_add(beside, strndup(key->of.text.data, key->of.text.n))
               ? 0
               : rfs_fail_memory(rank->err);
}

/* Reads a value of the dict, if its key begins with PREFIX (or NULL). */
static int read_value(struct rank_file *rank, const char *prefix, const struct rfs_node *key,
                      const struct rfs_node *value)
{
    struct rfs_tables *tables = rank->locals->chunks->tables;
    size_t n;
    const char *text = rfs_torch_key_behind(key, prefix, &n);

    if (!text && prefix)
        return note_outside(rank, key);

    if (rfs_pickle_is_call(value, RFS_CALL_PARAMETER))
        value = value->of.call.args->of.items.data[0];
    if (!text || !rfs_text_is_utf8(text, n))
        return rfs_fail(rank->err, -EINVAL, RFS_IN(rank->path), REMEDY,
                        "a key of its dict is not a text");
    const uint32_t name = rfs_intern_add(tables->names, text, n);
    if (name == RFS_NO_ID)
        return rfs_fail_memory(rank->err);
    const char *param = rfs_intern_text(tables->names, name);
    const int rc = rfs_chunks_check_flat(rank->path, param, n, rank->err);
    if (rc)
        return rc;
    if (!rfs_pickle_is_call(value, RFS_CALL_WRAPPED))
        return read_plain(rank, param, name, value);
    const struct rfs_items *args = &value->of.call.args->of.items;
    const bool is_sharded = rfs_pickle_is_named(args->data[1], "ShardedTensor");
    return note_kind(rank, param, name, is_sharded)
               ?: (is_sharded ? read_sharded : read_dtensor)(rank, param, name, args);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int read_dict(struct rank_file *rank, const char *entry)
{
    const struct rfs_node *dict = NULL;
    const char *prefix;
    int rc = rfs_torch_find_dict(&rank->torch, rank->path, entry, &dict, &prefix, rank->err);
    const struct rfs_items *pairs = rc ? NULL : rfs_pickle_pairs(dict);

    if (!pairs)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < pairs->n; i += 2)
        rc = read_value(rank, prefix, pairs->data[i], pairs->data[i + 1]);
    return rc;
}

static int read_file(void *ctx, struct rfs_local_chunks *locals, uint32_t file,
                     struct rfs_error *err)
{
    struct opening *opening = ctx;
    struct rfs_files *files = locals->chunks->files;
    struct rank_file rank = {.locals = locals,
                             .path = rfs_files_path(files, file),
                             .file = file,
                             .opening = opening,
                             .err = err};
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(files, file, &reading);

    if (rc < 0)
        return rfs_files_fail(err, rank.path, rc);
    rank.shown.file_bytes = reading.size;
    rc = rfs_torch_open_named(RFS_READING_SOURCE(&reading, rank.path), RFS_PICKLE_SHARDED,
                              &rank.torch, err);
    if (rc == 0) {
        rc = read_dict(&rank, opening->entry);
        rfs_torch_free(&rank.torch);
    }
    const int ended = rfs_reading_end(&reading);
    return ended < 0 ? rfs_files_fail(err, rank.path, ended) : rc;
}

/* All places are known when it is built. */
static const struct rfs_chunks_format format = {.name = "PyTorch's FSDP, rank by rank",
                                                .check = rfs_chunks_check_zip};

const struct rfs_numbered_form rfs_fsdp_names = {.similar = "model_world_size_*_rank_*.pt",
                                                 .words = {"model_world_size_", "_rank_", ".pt"},
                                                 .opens_less = true,
                                                 .choice = {"model_world_size_", "_*"},
                                                 .roles = {RFS_NUMBERED_COUNT, RFS_NUMBERED_RANK},
                                                 .digits = 1};

int rfs_fsdp_open(const struct rfs_chunks_source *source, struct rfs_chunks **out,
                  struct rfs_error *err)
{
    struct opening opening = {.entry = source->entry};
    const int rc = rfs_chunks_open_local(&format, source, read_file, &opening, out, err);

    free(opening.kinds.data);
    rfs_intern_free(opening.lists);
    if (rc == 0 && opening.left_out > 0)
        rfs_log(source->log, RFS_WARNING,
                opening.left_out == 1 ? "%s: %zu value that is not a tensor is left out"
                                      : "%s: %zu values that are not tensors are left out",
                rfs_files_path(source->files, 0), opening.left_out);
    return rc;
}
