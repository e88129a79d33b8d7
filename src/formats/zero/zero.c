/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.save, each a dict. Of the model's states:
 *
 *     module                 {NAME: tensor}; in stage 3 parameters are empty there, buffers whole
 *     buffer_names           [NAME, …]
 *     param_shapes           [{NAME: SIZE, …}, …]: trained parameters in the order of the flat
 *                            data, a dict for each group of the optimizer
 *     frozen_param_shapes    {NAME: SIZE} or None
 *     frozen_param_fragments {NAME: tensor} or None; in stage 3 a piece from each rank's file
 *     shared_params          {NAME: the name that its data has}
 *     global_steps, skipped_steps    steps of the training, and those that changed no weight
 *
 * and of the optimizer's, in its optimizer_state_dict:
 *
 *     zero_stage, partition_count (in stages 1 and 2 a list: a number for each group)
 *     stages 1, 2   single_partition_of_fp32_groups [a row of elements for each group]
 *                   base_optimizer_state, a state_dict() of torch
 *                   param_alignment_paddings [[elements behind each parameter], …], since 0.19.8
 *     stage 3       fp32_flat_groups [a row of elements for each subgroup]
 *                   optimizer_state_dict, a state_dict() of torch
 *
 * In stages 1 and 2 the parameters of a group follow one another, with paddings; the group is cut
 * into equal parts, one for each rank. Padding at the end is left out of the last parts, which may
 * be empty:
 *
 *     aaaaaaaabbbbbbbbbbcc....      a, b, c: parameters
 *     |rank 0|rank 1|rank 2|
 *
 * In stage 3 each parameter is cut into equal parts, the last of them padded, and a rank's flat
 * data has its part of each parameter, in all subgroups together:
 *
 *     aabbbbc  aabbbbc  aabb..c     rank 0, rank 1, rank 2
 *
 * A universal checkpoint has the model's states of all files, and files zero/NAME/KEY.pt. In stage
 * 3 each has one row of all elements of a parameter, without padding. In stages 1 and 2 fp32.pt has
 * the weights of a parameter as {"param": tensor in its shape, …}, exp_avg.pt and so on have the
 * optimizer's states, step.pt a tensor alone. What fp32.pt has of other names is rounded: buffers,
 * frozen and shared parameters are taken from the model's states.
 *
 * The optimizer's states (exp_avg …) are rows that begin as those of the weights do; they may be
 * longer. param_slice_mappings, which also has places, is wrong with round_robin_gradients, and is
 * not used.
 *
 * Source: deepspeed/utils/zero_to_fp32.py of 0.19.8, and saves by 0.14 to 0.19.
 */
#include "formats/zero/zero.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "formats/chunks/chunk_reader.h"
#include "formats/chunks/headers.h"
#include "formats/torch/torch.h"
#include "formats/zero/internal.h"

#define REMEDY_MADE_OF "the save that it was made of"
#define KEYS_MOST 64 /* states of a parameter */
/* Most pairs that are looked at, for each byte of the pickle: groups may share one long dict. */
#define WORK_TIMES 4

/* A file that is being read. */
struct zero_file {
    struct rfs_zero_opening *opening;
    struct rfs_torch torch;
    struct rfs_reading *reading;
    const char *path;
    uint32_t file;
    uint32_t rank;
    uint64_t work;                /* number of pairs that were looked at */
    uint64_t bytes;               /* bytes of its flat tensors */
    struct rfs_torch_shown shown; /* other tensors */
    struct rfs_error *err;
};

static void opening_end(struct rfs_zero_opening *opening)
{
    for (size_t i = 0; i < opening->states.n; i++) {
        free(opening->states.data[i].key);
        free(opening->states.data[i].parts);
    }
    free(opening->states.data);
    free(opening->fragments);
    free(opening->params.data);
    free(opening->groups.data);
    free(opening->aliases.data);
    free(opening->roles.data);
}

static int damaged(const struct zero_file *file, const char *what)
{
    return rfs_fail(file->err, -EINVAL, RFS_IN(file->path), RFS_ZERO_REMEDY, "%s", what);
}

static int refuse(const struct zero_file *file, const char *remedy, const char *what)
{
    return rfs_fail(file->err, -ENOTSUP, RFS_IN(file->path), remedy, "%s", what);
}

/*
 * Counts the pairs of a dict before they are looked at. False: it is none, or there were too many.
 */
static const struct rfs_items *pairs_of(struct zero_file *file, const struct rfs_node *dict)
{
    const struct rfs_items *pairs = dict ? rfs_pickle_pairs(dict) : NULL;

    file->work += pairs ? pairs->n + 1 : 0;
    return pairs && file->work / WORK_TIMES <= file->torch.pickle.n_bytes ? pairs : NULL;
}

/* Returns the value of a dict by NAME, or NULL. None is NULL, too. */
static const struct rfs_node *value_of(struct zero_file *file, const struct rfs_node *dict,
                                       const char *name)
{
    const struct rfs_node *value = pairs_of(file, dict) ? rfs_pickle_get(dict, name) : NULL;

    return value && value->kind == RFS_NODE_NONE ? NULL : value;
}

static const struct rfs_items *list_of(const struct rfs_node *node)
{
    return node && (node->kind == RFS_NODE_LIST || node->kind == RFS_NODE_TUPLE) ? &node->of.items
                                                                                 : NULL;
}

/* Reads a number, or an enumerator that stands for one. */
static bool read_number(const struct rfs_node *node, uint64_t *out)
{
    if (node && rfs_pickle_is_call(node, RFS_CALL_PLAIN) &&
        rfs_pickle_is_named(node->of.call.callee, "ZeroStageEnum"))
        node = node->of.call.args->of.items.data[0];
    if (!node || node->kind != RFS_NODE_INT || node->of.integer < 0)
        return false;
    *out = (uint64_t)node->of.integer;
    return true;
}

/* Gives the id of a name. 0 or -errno. */
static int take_name(struct zero_file *file, const struct rfs_node *node, uint32_t *name)
{
    if (node->kind != RFS_NODE_TEXT || node->of.text.n == 0 ||
        !rfs_text_is_utf8(node->of.text.data, node->of.text.n))
        return damaged(file, "a name of a parameter is not a text");
    *name = rfs_intern_add(file->opening->tables->names, node->of.text.data, node->of.text.n);
    return *name == RFS_NO_ID ? rfs_fail_memory(file->err) : 0;
}

static int set_role(struct zero_file *file, uint32_t name, enum rfs_zero_use role, size_t number)
{
    struct rfs_zero_opening *opening = file->opening;

    uint32_t *known = RFS_VEC_AT(&opening->roles, name, RFS_ZERO_NONE);
    if (!known)
        return rfs_fail_memory(file->err);
    *known = (uint32_t)role | (uint32_t)number << 3;
    return 0;
}

/* ---- the model's states ---------------------------------------------------------------------- */

/* Adds the parameters of a dict of names and sizes. */
static int add_params(struct zero_file *file, const struct rfs_node *dict, enum rfs_zero_use role)
{
    struct rfs_zero_opening *opening = file->opening;
    const struct rfs_items *pairs = pairs_of(file, dict);
    int rc = 0;

    if (!pairs)
        return damaged(file, "the shapes of its parameters are not there, or not a dict");
    for (uint32_t i = 0; i < pairs->n; i += 2) {
        struct rfs_type type = {.kind = RFS_TENSOR, .dtype = RFS_FLOAT64};
        struct rfs_zero_param param = {0};
        uint32_t ndim;
        rc = take_name(file, pairs->data[i], &param.name);
        if (rc)
            return rc;
        if (!rfs_torch_numbers(pairs->data[i + 1], &ndim, type.dims))
            return rfs_fail(file->err, -EINVAL,
                            RFS_OF(file->path, rfs_zero_text(opening, param.name)), RFS_ZERO_REMEDY,
                            "its shape is damaged");
        type.ndim = (uint8_t)ndim;
        param.elems = 1;
        for (uint32_t axis = 0; axis < ndim; axis++)
            param.elems *= type.dims[axis];
        if (!rfs_type_bytes(&type, &type.bytes))
            return rfs_fail(file->err, -EINVAL,
                            RFS_OF(file->path, rfs_zero_text(opening, param.name)), RFS_ZERO_REMEDY,
                            "it would have more than 2^63 bytes");
        if (rfs_zero_use_of(opening, param.name) != RFS_ZERO_NONE)
            return rfs_fail(file->err, -EINVAL,
                            RFS_OF(file->path, rfs_zero_text(opening, param.name)), RFS_ZERO_REMEDY,
                            "the file has its shape twice");
        param.type = rfs_intern_add(opening->tables->types, &type, sizeof type);
        rc = set_role(file, param.name, role, opening->params.n - opening->n_trained);
        if (rc)
            return rc;
        if (param.type == RFS_NO_ID || !RFS_PUSH(&opening->params, param))
            return rfs_fail_memory(file->err);
    }
    return 0;
}

static int read_shapes(struct zero_file *file, const struct rfs_node *root)
{
    struct rfs_zero_opening *opening = file->opening;
    const struct rfs_items *shapes = list_of(value_of(file, root, "param_shapes"));
    const struct rfs_node *frozen = value_of(file, root, "frozen_param_shapes");
    int rc = 0;

    if (!shapes || shapes->n == 0)
        return refuse(file, "DeepSpeed's ZeRO stage 1, 2 or 3, or save_16bit_model",
                      "it has no param_shapes: it was saved without ZeRO, or by DeepSpeed before "
                      "0.6");
    for (uint32_t i = 0; rc == 0 && i < shapes->n; i++) {
        struct rfs_zero_group group = {.first = opening->params.n};
        rc = add_params(file, shapes->data[i], RFS_ZERO_TRAINED);
        group.n = opening->params.n - group.first;
        if (rc == 0 && !RFS_PUSH(&opening->groups, group))
            return rfs_fail_memory(file->err);
    }
    opening->n_trained = opening->params.n;
    if (rc == 0 && frozen && opening->stage3)
        rc = add_params(file, frozen, RFS_ZERO_FROZEN);
    return rc;
}

/* Reads which names stand for the data of others. */
static int read_shared(struct zero_file *file, const struct rfs_node *root)
{
    struct rfs_zero_opening *opening = file->opening;
    const struct rfs_node *shared = value_of(file, root, "shared_params");
    const struct rfs_items *pairs = pairs_of(file, shared);
    struct rfs_zero_alias alias;
    int rc = 0;

    if (shared && !pairs)
        return damaged(file, "shared_params is not a dict");
    for (uint32_t i = 0; pairs && rc == 0 && i < pairs->n; i += 2) {
        rc = take_name(file, pairs->data[i], &alias.name)
                 ?: take_name(file, pairs->data[i + 1], &alias.of);
        if (rc == 0 && rfs_zero_use_of(opening, alias.name) != RFS_ZERO_NONE)
            return rfs_fail(file->err, -EINVAL,
                            RFS_OF(file->path, rfs_zero_text(opening, alias.name)), RFS_ZERO_REMEDY,
                            "it is shared, and has a shape of its own");
        /* zero_to_fp32 leaves out names for what it does not show. */
        if (rc == 0 && (rfs_zero_use_of(opening, alias.of) == RFS_ZERO_TRAINED ||
                        rfs_zero_use_of(opening, alias.of) == RFS_ZERO_FROZEN)) {
            rc = set_role(file, alias.name, RFS_ZERO_SHARED, 0);
            if (rc == 0 && !RFS_PUSH(&opening->aliases, alias))
                return rfs_fail_memory(file->err);
        }
    }
    return rc;
}

static int read_buffer_names(struct zero_file *file, const struct rfs_node *root)
{
    const struct rfs_items *names = list_of(value_of(file, root, "buffer_names"));
    uint32_t name;
    int rc = 0;

    for (uint32_t i = 0; names && rc == 0 && i < names->n; i++) {
        rc = take_name(file, names->data[i], &name);
        if (rc == 0 && rfs_zero_use_of(file->opening, name) == RFS_ZERO_NONE)
            rc = set_role(file, name, RFS_ZERO_BUFFER, 0);
    }
    return rc;
}

/* Adds a tensor that one file has whole. */
static int add_whole(struct zero_file *file, uint32_t name, const struct rfs_torch_tensor *tensor)
{
    static const uint64_t corner[RFS_MAX_DIMS];
    struct rfs_chunks *chunks = file->opening->chunks;
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    struct rfs_type type = {
        .ndim = (uint8_t)tensor->ndim, .dtype = (uint8_t)tensor->dtype, .kind = RFS_TENSOR};
    const char *text = rfs_zero_text(file->opening, name);
    uint64_t stride[RFS_MAX_DIMS];

    memcpy(type.dims, tensor->dims, tensor->ndim * sizeof *type.dims);
    int rc = rfs_torch_show(&file->shown, tensor->elements * item, file->path, text, file->err)
                 ?: rfs_chunks_add_tensor(chunks, text, strlen(text), &type, file->err);
    if (rc || tensor->elements == 0)
        return rc;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        stride[i] = tensor->strides[i] * item;
    uint64_t at = tensor->record->offset + tensor->offset * item;
    if (!tensor->contiguous)
        at = rfs_chunks_add_strided(chunks, at, tensor->ndim, stride);
    if (at == RFS_NOT_LOCATED)
        return rfs_fail_memory(file->err);
    return rfs_chunks_add_chunk(chunks, corner, type.dims, file->err)
               ?: rfs_chunks_store(chunks, &chunks->tensors.data[chunks->tensors.n - 1], corner,
                                   file->file, at, type.bytes, file->err);
}

/* Takes a value of the module: a buffer, or a parameter that no flat tensor has. */
static int read_value(struct zero_file *file, uint32_t name, const struct rfs_node *value)
{
    struct rfs_zero_opening *opening = file->opening;
    const enum rfs_zero_use role = rfs_zero_use_of(opening, name);
    const char *text = rfs_zero_text(opening, name);
    struct rfs_torch_tensor tensor;

    if (role == RFS_ZERO_TRAINED || role == RFS_ZERO_FROZEN || role == RFS_ZERO_SHARED)
        return 0;
    const int rc = rfs_torch_tensor(&file->torch, value, file->path, text, &tensor, file->err);
    if (rc <= 0) {
        opening->left_out += rc == 0;
        return rc;
    }
    if (opening->stage3 && role == RFS_ZERO_NONE)
        return rfs_chunks_add_unread(opening->chunks, text, strlen(text),
                                     "the save has no shape and no data of it", file->err);
    return add_whole(file, name, &tensor);
}

static int read_module(struct zero_file *file, const struct rfs_node *root)
{
    const struct rfs_items *pairs = pairs_of(file, value_of(file, root, "module"));
    uint32_t name;
    int rc = 0;

    if (!pairs)
        return refuse(file, "DeepSpeed's ds_to_universal, or its engine, to save the whole model",
                      "it has no module: pipelines of DeepSpeed are not read");
    for (uint32_t i = 0; rc == 0 && i < pairs->n; i += 2)
        rc = take_name(file, pairs->data[i], &name) ?: read_value(file, name, pairs->data[i + 1]);
    return rc;
}

/* Reads a flat tensor. 1, 0 where the node is none, or -errno. */
static int read_part(struct zero_file *file, const char *what, const struct rfs_node *node,
                     struct rfs_zero_part *out)
{
    struct rfs_torch_tensor tensor;
    const int rc = rfs_torch_tensor(&file->torch, node, file->path, what, &tensor, file->err);

    if (rc <= 0)
        return rc;
    const uint64_t item = rfs_dtype_bytes(tensor.dtype);
    if ((tensor.ndim > 1 && !file->opening->universal) || !tensor.contiguous)
        return rfs_fail(file->err, -EINVAL, RFS_OF(file->path, what), RFS_ZERO_REMEDY,
                        "it is not one row of elements");
    /* Different parts lie in different bytes, so all together have no more than the file. */
    if (!rfs_add_u64(file->bytes, tensor.elements * item, &file->bytes) ||
        file->bytes > file->shown.file_bytes)
        return rfs_fail(file->err, -EINVAL, RFS_OF(file->path, what), RFS_ZERO_REMEDY,
                        "tensors of the optimizer overlap in the file");
    *out = (struct rfs_zero_part){
        .at = tensor.elements > 0 ? tensor.record->offset + tensor.offset * item : 0,
        .elems = tensor.elements,
        .file = file->file,
        .dtype = (uint8_t)tensor.dtype,
        .there = true,
        .is_scalar = tensor.ndim == 0};
    return 1;
}

/* Reads a rank's pieces of the frozen parameters of stage 3. */
static int read_fragments(struct zero_file *file, const struct rfs_node *root)
{
    struct rfs_zero_opening *opening = file->opening;
    const struct rfs_items *pairs = pairs_of(file, value_of(file, root, "frozen_param_fragments"));
    const size_t n = opening->params.n - opening->n_trained;
    struct rfs_zero_part *parts = &opening->fragments[file->rank * n];
    size_t found = 0;

    for (uint32_t i = 0; pairs && i < pairs->n; i += 2) {
        uint32_t name;
        const int rc = take_name(file, pairs->data[i], &name);
        if (rc)
            return rc;
        if (rfs_zero_use_of(opening, name) != RFS_ZERO_FROZEN)
            continue;
        struct rfs_zero_part *part = &parts[opening->roles.data[name] >> 3];
        found += !part->there;
        const int is = read_part(file, rfs_zero_text(opening, name), pairs->data[i + 1], part);
        if (is < 0)
            return is;
    }
    return found == n ? 0 : damaged(file, "it lacks pieces of frozen parameters");
}

/*
 * Refuses what ds_to_universal makes wrongly, and of stage 3 a number of files that is not the
 * save's.
 */
static int check_universal(struct zero_file *file, const struct rfs_node *root)
{
    uint64_t ranks;

    if (file->opening->stage3)
        return read_number(value_of(file, root, "dp_world_size"), &ranks) &&
                       ranks == file->opening->n_models
                   ? 0
                   : damaged(file, "by its dp_world_size there are more or fewer files of the "
                                   "model's states");
    const struct rfs_node *options =
        value_of(file, value_of(file, root, "ds_config"), "zero_optimization");
    const struct rfs_node *robin = value_of(file, options, "round_robin_gradients");

    if (!options || !rfs_pickle_pairs(options))
        return damaged(file, "it has no ds_config with zero_optimization, which tells whether "
                             "ds_to_universal gives right values of the save");
    return robin && (robin->kind != RFS_NODE_BOOL || robin->of.truth)
               ? refuse(file, REMEDY_MADE_OF,
                        "it is of a universal checkpoint, made of a save with "
                        "round_robin_gradients: ds_to_universal takes the elements of other "
                        "parameters then")
               : 0;
}

/* Compares what all files of a save have in common with the first. */
static int check_version(struct zero_file *file, const struct rfs_node *root)
{
    const struct rfs_node *version = value_of(file, root, "ds_version");
    char *first = file->opening->version;
    char text[sizeof file->opening->version] = "";

    if (version && version->kind == RFS_NODE_TEXT)
        snprintf(text, sizeof text, "%.*s", (int)rfs_min_u64(version->of.text.n, sizeof text),
                 version->of.text.data);
    if (file->rank == 0 && !*first)
        memcpy(first, text, sizeof text);
    return strcmp(first, text) == 0
               ? 0
               : damaged(file, "another version of DeepSpeed wrote it than the files before it: "
                               "they are not of one save");
}

/*
 * Compares the number of steps that a file of the model's states counts with that of rank 0. Ranks
 * count together.
 */
static int check_engine(struct zero_file *file, const struct rfs_node *root)
{
    struct rfs_zero_opening *opening = file->opening;
    uint64_t steps = 0, skipped = 0;
    const bool counts = read_number(value_of(file, root, "global_steps"), &steps);

    (void)read_number(value_of(file, root, "skipped_steps"), &skipped);
    if (file->rank == 0) {
        opening->engine_counts = counts;
        opening->global_steps = steps;
        opening->skipped_steps = skipped;
    }
    return counts == opening->engine_counts && steps == opening->global_steps
               ? 0
               : damaged(file, "its training has made another number of steps than that of rank "
                               "0's file: they are not of one save");
}

static int read_model(struct zero_file *file)
{
    struct rfs_zero_opening *opening = file->opening;
    const struct rfs_node *root = file->torch.pickle.root;
    int rc = 0;

    if (!rfs_pickle_pairs(root))
        return damaged(file, "it is not a dict");
    if (value_of(file, root, "ds_autoep_layers"))
        return refuse(file, "DeepSpeed's engine, to save the whole model",
                      "it was saved with AutoEP, which is not read");
    if (opening->universal)
        rc = check_universal(file, root);
    rc = rc ?: check_version(file, root) ?: check_engine(file, root);
    if (rc == 0 && file->rank == 0)
        rc = read_shapes(file, root) ?: read_shared(file, root) ?: read_buffer_names(file, root)
             ?: read_module(file, root);
    const size_t frozen = opening->params.n - opening->n_trained;
    if (rc || frozen == 0)
        return rc;
    if (!opening->fragments)
        opening->fragments = calloc(frozen * opening->n_pieces, sizeof *opening->fragments);
    return opening->fragments ? read_fragments(file, root) : rfs_fail_memory(file->err);
}

/* ---- the optimizer's states ------------------------------------------------------------------ */

/* Finds or adds a state. NULL when out of memory, or there are too many. */
static struct rfs_zero_state *state_of(struct rfs_zero_opening *opening, const char *key, size_t n)
{
    for (size_t i = 0; i < opening->states.n; i++) {
        struct rfs_zero_state *state = &opening->states.data[i];
        if (key ? state->key && strlen(state->key) == n && memcmp(state->key, key, n) == 0
                : !state->key)
            return state;
    }
    struct rfs_zero_state state = {
        .key = key ? strndup(key, n) : NULL,
        .parts = calloc(opening->n_flats * opening->world + 1, sizeof *state.parts)};
    if (opening->states.n >= KEYS_MOST || (key && !state.key) || !state.parts ||
        !RFS_PUSH(&opening->states, state)) {
        free(state.key);
        free(state.parts);
        return NULL;
    }
    return &opening->states.data[opening->states.n - 1];
}

/* Compares how many ranks the file says that there are with how many there are. */
static int check_count(struct zero_file *file, const struct rfs_node *node)
{
    const struct rfs_items *list = list_of(node);
    const uint64_t world = file->opening->world;
    uint64_t first = 0;
    uint64_t n;

    if (list && list->n != file->opening->n_flats)
        return damaged(file, "its partition_count has another number of groups");
    for (uint32_t i = 0; i < (list ? list->n : 1); i++) {
        if (!read_number(list ? list->data[i] : node, &n))
            return damaged(file, "it does not say how many ranks saved it");
        if (i > 0 && n != first)
            return refuse(file, "DeepSpeed's engine, to save the whole model",
                          "its groups are cut over different numbers of ranks: experts are not "
                          "read");
        first = n;
    }
    return first == world || (list && list->n == 0)
               ? 0
               : rfs_fail(file->err, -EINVAL, RFS_IN(file->path), RFS_ZERO_REMEDY,
                          "by this file %" PRIu64
                          " ranks saved it, and there are files of %" PRIu64,
                          first, world);
}

/* Compares the number of steps that the optimizer has made with those of the files before. */
static int check_steps(struct zero_file *file, double steps)
{
    struct rfs_zero_opening *opening = file->opening;

    if (!opening->counts)
        opening->steps = steps;
    opening->counts = true;
    return opening->steps == steps
               ? 0
               : damaged(file, "its optimizer has made another number of steps than those of the "
                               "files before it: the files are not of one save");
}

/* Reads the element of a tensor that counts steps. False: it is of no type that counts them. */
static bool read_element(enum rfs_dtype dtype, const void *bytes, double *out)
{
    union {
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } value;

    memcpy(&value, bytes, sizeof value);
    *out = dtype == RFS_INT32     ? value.i32
           : dtype == RFS_INT64   ? (double)value.i64
           : dtype == RFS_FLOAT32 ? (double)value.f32
                                  : value.f64;
    return dtype == RFS_INT32 || dtype == RFS_INT64 || dtype == RFS_FLOAT32 || dtype == RFS_FLOAT64;
}

/* Reads a number of steps: a tensor's element, or a number. 0 or -errno. */
static int read_steps(struct zero_file *file, const struct rfs_node *node)
{
    struct rfs_torch_tensor tensor;
    uint64_t bits = 0;
    double steps;
    const int rc = rfs_torch_tensor(&file->torch, node, file->path, "step", &tensor, file->err);

    if (rc < 0)
        return rc;
    if (rc == 0 && node->kind == RFS_NODE_INT)
        return check_steps(file, (double)node->of.integer);
    if (rc == 0 &&
        (node->kind != RFS_NODE_FLOAT || !read_element(RFS_FLOAT64, &node->of.bits, &steps)))
        return 0;
    if (rc == 0)
        return check_steps(file, steps);
    const size_t item = rfs_dtype_bytes(tensor.dtype);
    if (tensor.elements != 1 || item > sizeof bits)
        return 0;
    const uint64_t at = tensor.record->offset + tensor.offset * item;
    const int failed = rfs_reading_read(file->reading, &bits, item, at);
    if (failed)
        return rfs_store_fail_read(file->err, RFS_AT(file->path, at), failed);
    return read_element(tensor.dtype, &bits, &steps) ? check_steps(file, steps) : 0;
}

/* Reads the state of a flat tensor: a dict. */
static int read_flat_state(struct zero_file *file, size_t flat, const struct rfs_node *dict,
                           bool *stepped)
{
    struct rfs_zero_opening *opening = file->opening;
    const struct rfs_items *pairs = pairs_of(file, dict);
    int rc = 0;

    if (!pairs)
        return damaged(file, "a state of its optimizer is not a dict, or groups share a long one");
    for (uint32_t i = 0; rc >= 0 && i < pairs->n; i += 2) {
        const struct rfs_node *key = pairs->data[i];
        struct rfs_zero_part part;
        if (key->kind != RFS_NODE_TEXT || key->of.text.n == 0 || key->of.text.n > 255 ||
            !rfs_text_is_utf8(key->of.text.data, key->of.text.n))
            return damaged(file, "a state of its optimizer has no name");
        if (rfs_pickle_is_text(key, "step") && !*stepped) {
            rc = read_steps(file, pairs->data[i + 1]);
            *stepped = true;
        }
        rc = rc < 0 ? rc : read_part(file, key->of.text.data, pairs->data[i + 1], &part);
        if (rc <= 0)
            continue;
        struct rfs_zero_state *state = state_of(opening, key->of.text.data, key->of.text.n);
        if (!state)
            return rfs_fail_memory(file->err);
        state->parts[file->rank * opening->n_flats + flat] = part;
    }
    return rc < 0 ? rc : 0;
}

/*
 * Checks that the optimizer numbers the flat tensors in their order. *steps is what the first group
 * counts, or NULL.
 */
static int check_numbers(struct zero_file *file, const struct rfs_items *groups,
                         const struct rfs_node **steps)
{
    uint64_t next = 0;

    *steps = NULL;
    for (uint32_t g = 0; groups && g < groups->n; g++) {
        const struct rfs_items *numbers = list_of(value_of(file, groups->data[g], "params"));
        uint64_t number;
        if (!*steps)
            *steps = value_of(file, groups->data[g], "step");
        for (uint32_t i = 0; numbers && i < numbers->n; i++)
            if (!read_number(numbers->data[i], &number) || number != next++)
                return damaged(file, "its optimizer numbers the groups in another order");
        file->work += numbers ? numbers->n : 0;
    }
    return 0;
}

static int read_states(struct zero_file *file, const struct rfs_node *optimizer)
{
    const struct rfs_items *pairs = pairs_of(file, value_of(file, optimizer, "state"));
    const struct rfs_node *steps;
    bool stepped = false;
    uint64_t number;

    if (list_of(optimizer))
        return refuse(file, "elastic_checkpoint: false of zero_optimization, and to save it again",
                      "it was saved with elastic_checkpoint, which is not read");
    int rc = check_numbers(file, list_of(value_of(file, optimizer, "param_groups")), &steps);
    for (uint32_t i = 0; pairs && rc == 0 && i < pairs->n; i += 2) {
        if (!read_number(pairs->data[i], &number) || number >= file->opening->n_flats)
            return damaged(file, "its optimizer has a state of no group");
        rc = read_flat_state(file, (size_t)number, pairs->data[i + 1], &stepped);
    }
    /* FusedAdam counts in the states, and leaves the groups at 0. */
    return rc == 0 && steps && !stepped ? read_steps(file, steps) : rc;
}

/* Reads the weights of a rank. */
static int read_flats(struct zero_file *file, const struct rfs_items *flats)
{
    struct rfs_zero_opening *opening = file->opening;
    struct rfs_zero_state *weights = state_of(opening, NULL, 0);
    int rc = 1;

    if (!weights)
        return rfs_fail_memory(file->err);
    struct rfs_zero_part *parts = &weights->parts[file->rank * opening->n_flats];
    for (uint32_t i = 0; rc == 1 && i < flats->n; i++)
        rc = read_part(file, "fp32", flats->data[i], &parts[i]);
    for (uint32_t i = 0; rc == 1 && i < flats->n; i++)
        rc = !parts[i].is_scalar;
    return rc == 0 ? damaged(file, "its weights are not rows of elements") : rc < 0 ? rc : 0;
}

/* Reads how many elements follow each parameter that are of none. */
static int read_gaps(struct zero_file *file, const struct rfs_node *node)
{
    struct rfs_zero_opening *opening = file->opening;
    const struct rfs_items *lists = list_of(node);

    if (!node || file->rank > 0)
        return 0;
    if (!lists || lists->n != opening->groups.n)
        return damaged(file, "its param_alignment_paddings are not those of the groups");
    for (uint32_t g = 0; g < lists->n; g++) {
        const struct rfs_zero_group *group = &opening->groups.data[g];
        const struct rfs_items *gaps = list_of(lists->data[g]);
        if (!gaps || gaps->n != group->n)
            return damaged(file, "its param_alignment_paddings are not those of the parameters");
        for (size_t i = 0; i < group->n; i++)
            if (!read_number(gaps->data[i], &opening->params.data[group->first + i].gap))
                return damaged(file, "its param_alignment_paddings are not numbers");
    }
    return 0;
}

static int read_optimizer(struct zero_file *file)
{
    struct rfs_zero_opening *opening = file->opening;
    const struct rfs_node *root = file->torch.pickle.root;
    const struct rfs_node *dict =
        rfs_pickle_pairs(root) ? value_of(file, root, "optimizer_state_dict") : NULL;
    uint64_t stage;

    if (!dict || !rfs_pickle_pairs(dict))
        return damaged(file, "it has no optimizer_state_dict");
    if (!value_of(file, dict, "zero_stage"))
        return refuse(file,
                      "stage 1 or 2 without grad_accum_dtype and pipelines, and to save it "
                      "again",
                      "it has no zero_stage: saves of DeepSpeed's BF16_Optimizer are not read");
    if (!read_number(value_of(file, dict, "zero_stage"), &stage) || stage < 1 || stage > 3 ||
        (stage == 3) != opening->stage3)
        return damaged(file, "its zero_stage does not fit the names of the files");
    const struct rfs_items *flats = list_of(value_of(
        file, dict, opening->stage3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups"));
    if (!flats)
        return damaged(file, "it has no weights in fp32");
    if (file->rank == 0)
        opening->n_flats = flats->n;
    if (flats->n != opening->n_flats || (!opening->stage3 && flats->n != opening->groups.n))
        return damaged(file, "it has another number of groups than the files before it");
    return check_count(file, value_of(file, dict, "partition_count"))
               ?: check_version(file, root)
               ?: read_gaps(file, opening->stage3
                                      ? NULL
                                      : value_of(file, dict, "param_alignment_paddings"))
               ?: read_flats(file, flats)
               ?: read_states(file, value_of(file, dict,
                                             opening->stage3 ? "optimizer_state_dict"
                                                             : "base_optimizer_state"));
}

/* ---- universal checkpoints ------------------------------------------------------------------- */

/* Makes a group of each trained parameter. 0 or -ENOMEM. */
static int part_params(struct rfs_zero_opening *opening)
{
    opening->groups.n = 0;
    opening->n_flats = opening->n_trained;
    for (size_t i = 0; i < opening->n_trained; i++) {
        const struct rfs_zero_group group = {.first = i, .n = 1};
        if (!RFS_PUSH(&opening->groups, group))
            return rfs_fail_memory(opening->err);
    }
    /* The weights are the first state. */
    return state_of(opening, NULL, 0) ? 0 : rfs_fail_memory(opening->err);
}

/*
 * Finds the trained parameter with elements that a file zero/NAME/KEY.pt is of. Returns KEY, or
 * NULL if there is none.
 */
static const char *find_param(const struct rfs_zero_opening *opening, const char *path,
                              size_t *param)
{
    const char *key = rfs_path_name(path);
    const size_t before = (size_t)(key - path);
    const char *folder = before > 1 ? memrchr(path, '/', before - 1) : NULL;
    const uint32_t name =
        folder ? rfs_intern_find(opening->tables->names, folder + 1, (size_t)(key - folder) - 2)
               : RFS_NO_ID;

    if (name == RFS_NO_ID || rfs_zero_use_of(opening, name) != RFS_ZERO_TRAINED)
        return NULL;
    *param = opening->roles.data[name] >> 3;
    return opening->params.data[*param].elems > 0 ? key : NULL;
}

/* Reads the file of a parameter: its weights, or a state of it. */
static int read_of_param(struct zero_file *file, size_t param, const char *key)
{
    struct rfs_zero_opening *opening = file->opening;
    const size_t n = strcspn(key, ".");
    const struct rfs_node *root = file->torch.pickle.root;
    const struct rfs_node *node = rfs_pickle_pairs(root) ? value_of(file, root, "param") : root;
    const bool is_weights = n == 4 && memcmp(key, "fp32", n) == 0;
    const struct rfs_type *shape =
        rfs_chunks_type(opening->chunks, opening->params.data[param].type);
    struct rfs_torch_tensor tensor;
    struct rfs_zero_part part;

    const int rc = node ? rfs_torch_tensor(&file->torch, node, file->path,
                                           rfs_path_name(file->path), &tensor, file->err)
                        : 0;
    if (rc < 0)
        return rc;
    if (rc == 0 || n == 0 || strcmp(key + n, ".pt") != 0 || !rfs_text_is_utf8(key, n))
        return damaged(file, "it is no tensor of a parameter");
    const bool fits =
        opening->stage3
            ? tensor.ndim == 1 && tensor.dims[0] == opening->params.data[param].elems
            : tensor.ndim == shape->ndim &&
                  memcmp(tensor.dims, shape->dims, tensor.ndim * sizeof *tensor.dims) == 0;
    if (!fits && (is_weights || tensor.ndim > 0))
        return damaged(file, "it has another shape than the file of the model's states says");
    const int is = read_part(file, rfs_path_name(file->path), node, &part);
    struct rfs_zero_state *state = is < 0 ? NULL : state_of(opening, is_weights ? NULL : key, n);
    if (is < 0)
        return is;
    if (!state)
        return rfs_fail_memory(file->err);
    /* Before there is memory for the next: all parameters have a file of each state. */
    if (opening->states.n * opening->n_trained >
        rfs_files_count_paths(opening->files) + (size_t)UINT16_MAX)
        return damaged(file, "other parameters have no file like it");
    state->parts[param] = part;
    return n == 4 && memcmp(key, "step", n) == 0 ? read_steps(file, node) : 0;
}

/* Checks that all parameters have the files that one of them has. */
static int check_all_there(const struct rfs_zero_opening *opening)
{
    for (size_t s = 0; s < opening->states.n; s++)
        for (size_t i = 0; i < opening->n_trained; i++) {
            const struct rfs_zero_state *state = &opening->states.data[s];
            const struct rfs_zero_param *param = &opening->params.data[i];
            if (param->elems > 0 && !state->parts[i].there)
                return rfs_fail(
                    opening->err, -EINVAL,
                    RFS_OF(rfs_files_path(opening->files, 0), rfs_zero_text(opening, param->name)),
                    "all files that ds_to_universal wrote",
                    "the universal checkpoint has no %s.pt of it",
                    state->key ? state->key : "fp32");
        }
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int read_file(struct rfs_zero_opening *opening, uint32_t id)
{
    const bool is_model = id < opening->n_models;
    size_t param = 0;
    const char *key = NULL;
    struct rfs_reading reading;
    struct zero_file file = {.opening = opening,
                             .reading = &reading,
                             .path = rfs_files_path(opening->files, id),
                             .file = id,
                             .rank = is_model ? id : id - opening->n_models,
                             .err = opening->err};

    if (!is_model && opening->universal && !(key = find_param(opening, file.path, &param)))
        return 0;
    int rc = rfs_reading_begin_quiet(opening->files, id, &reading);
    if (rc < 0)
        return rfs_files_fail(opening->err, file.path, rc);
    file.shown.file_bytes = reading.size;
    rc = rfs_torch_open_named(RFS_READING_SOURCE(&reading, file.path), RFS_PICKLE_ANY, &file.torch,
                              opening->err);
    if (rc == 0) {
        rc = is_model ? read_model(&file)
             : key    ? read_of_param(&file, param, key)
                      : read_optimizer(&file);
        rfs_torch_free(&file.torch);
    }
    const int ended = rfs_reading_end(&reading);
    return ended < 0 ? rfs_files_fail(opening->err, file.path, ended) : rc;
}

/* Counts the files by their names. */
static int count_files(struct rfs_zero_opening *opening)
{
    const uint32_t n = rfs_files_count_paths(opening->files);
    struct rfs_zero_name name = {.role = RFS_ZERO_MODEL};

    for (; opening->n_models < n && name.role == RFS_ZERO_MODEL; opening->n_models++) {
        const char *path = rfs_files_path(opening->files, opening->n_models);
        opening->universal = !rfs_zero_read_name(rfs_path_name(path), &name);
        if (opening->universal || name.role != RFS_ZERO_MODEL)
            break;
        opening->stage3 = name.ranked;
    }
    opening->world = opening->universal ? 1 : n - opening->n_models;
    opening->n_pieces = opening->universal ? opening->n_models : opening->world;
    opening->by_rank = opening->stage3 && !opening->universal;
    if (opening->n_models == 0 || opening->world == 0)
        return rfs_fail(opening->err, -EINVAL, RFS_IN(rfs_files_path(opening->files, 0)),
                        RFS_ZERO_REMEDY,
                        "the save has no file of the model's states, or none of the optimizer's");
    if (opening->by_rank && opening->n_models != opening->world)
        return rfs_fail(opening->err, -EINVAL, RFS_IN(opening->chunks->folder), RFS_ZERO_REMEDY,
                        "this save of DeepSpeed has the model's states of %u ranks, and the "
                        "optimizer's of %u",
                        opening->n_models, opening->world);
    return 0;
}

/*
 * Notes that the optimizer has made other steps than the training counts. It may have begun anew,
 * or the count, so that this proves nothing. One more is as it should be: DeepSpeed before 0.13.2
 * makes a step as it begins, and trainings that go on keep it.
 */
static int note_steps(const struct rfs_zero_opening *opening)
{
    struct rfs_chunks *chunks = opening->chunks;
    const double made = (double)opening->global_steps - (double)opening->skipped_steps;

    if (!opening->counts || !opening->engine_counts || made == opening->steps ||
        made + 1 == opening->steps)
        return 0;
    chunks->doubt = rfs_text_printf("by the model's states %.0f steps were made, and by the "
                                    "optimizer's %.0f: they may be of two saves",
                                    made, opening->steps);
    if (!chunks->doubt)
        return rfs_fail_memory(opening->err);
    rfs_log(chunks->log, RFS_WARNING, "%s: %s", chunks->folder, chunks->doubt);
    return 0;
}

static int read_all(struct rfs_zero_opening *opening)
{
    const uint32_t n = rfs_files_count_paths(opening->files);
    int rc = count_files(opening) ?: read_file(opening, 0);
    if (rc == 0 && opening->universal)
        rc = part_params(opening);
    /* The others of stage 3 have pieces of frozen parameters, and no more. */
    const bool frozen = opening->params.n > opening->n_trained;

    for (uint32_t i = 1; rc == 0 && i < n; i++)
        if (i >= opening->n_models || frozen)
            rc = read_file(opening, i);
    return rc || !opening->universal ? rc : check_all_there(opening);
}

/* Ends the chunks, whose places are all known. */
static int finish(struct rfs_zero_opening *opening)
{
    struct rfs_chunks *chunks = opening->chunks;
    const int rc = rfs_chunks_finish(chunks, opening->err);

    for (size_t i = 0; rc == 0 && i < chunks->chunks.n; i++)
        atomic_init(&chunks->chunks.data[i].at, chunks->chunks.data[i].item);
    chunks->n_files = chunks->n_all_files = rfs_files_count_paths(opening->files);
    chunks->first_file = 0;
    if (rc == 0 && opening->left_out > 0)
        rfs_log(chunks->log, RFS_WARNING,
                opening->left_out == 1 ? "%s: %zu value that is not a tensor is left out"
                                       : "%s: %zu values that are not tensors are left out",
                rfs_files_path(opening->files, 0), opening->left_out);
    return rc;
}

static const struct rfs_chunks_format format = {.name = "DeepSpeed's ZeRO",
                                                .check = rfs_chunks_check_zip};

int rfs_zero_open(const struct rfs_chunks_source *source, struct rfs_chunks **out,
                  struct rfs_error *err)
{
    struct rfs_error own = {0};
    RFS_CLEANUP(opening_end)
    struct rfs_zero_opening opening = {.chunks = rfs_chunks_new(&format, source),
                                       .tables = source->tables,
                                       .files = source->files,
                                       .err = err ? err : &own};

    *out = NULL;
    if (!opening.chunks)
        return rfs_fail_memory(err);
    const int rc = read_all(&opening) ?: rfs_zero_declare(&opening) ?: note_steps(&opening)
                   ?: finish(&opening);
    if (rc)
        rfs_chunks_free(opening.chunks);
    else
        *out = opening.chunks;
    return rc;
}
