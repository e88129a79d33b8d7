/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of a pickle of torch.save: a builder of formats/torch/unpickler.h.
 *
 * Nothing is called here. But a pickle that is shown again will be loaded: it must neither run
 * foreign code then, nor allocate more than the file holds. bytes(10**12), a codec that inflates, a
 * numpy dtype whose flags make numbers pointers are not what pickling writes. So a name is called
 * only with the arguments, and given only the state, with which Python itself pickles such an
 * object (protocol 2).
 */
#include "formats/torch/pickle.h"

#include "base/checked.h"
#include "formats/torch/unpickler.h"

#include <pthread.h>

#define REMEDY_PLAIN "save plain values and tensors only"
#define REMEDY_DCP                                                                                 \
    "FSDP's SHARDED_STATE_DICT in a folder of torch.distributed.checkpoint, or FULL_STATE_DICT"
#define NAME_MOST 256 /* bytes of a module's or a callable's name */

/* ---- nodes ----------------------------------------------------------------------------------- */

/*
 * None, booleans and small numbers are most of the nodes of a state (the dimensions of tensors, the
 * numbers of parameters, which each of a thousand parts lists): they are one node each for all
 * pickles, made at the first use.
 */
#define CONSTANT_INTS (UINT16_MAX + 1)

static struct rfs_node ints[CONSTANT_INTS];
static struct rfs_node booleans[2];
static struct rfs_node none;

static void make_constants(void)
{
    none.kind = RFS_NODE_NONE;
    for (unsigned i = 0; i < 2; i++) {
        booleans[i].kind = RFS_NODE_BOOL;
        booleans[i].of.truth = i == 1;
    }
    for (unsigned i = 0; i < CONSTANT_INTS; i++) {
        ints[i].kind = RFS_NODE_INT;
        ints[i].of.integer = i;
    }
}

/* Returns the node that stands for None, a boolean or a number up to 65,535 in all pickles. */
static struct rfs_node *constant(enum rfs_node_kind kind, uint16_t value)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_constants);
    return kind == RFS_NODE_INT    ? &ints[value]
           : kind == RFS_NODE_BOOL ? &booleans[value != 0]
                                   : &none;
}

bool rfs_pickle_add_items(struct rfs_arena *arena, struct rfs_items *items,
                          struct rfs_node *const *nodes, size_t n)
{
    if (n > items->cap - items->n) {
        const uint64_t least = (uint64_t)items->n + n;
        const uint64_t more = items->n > 2 ? items->n + (uint64_t)items->n / 2 : 2 * items->n;
        const uint64_t cap = least > more ? least : more;
        if (cap > UINT32_MAX)
            return false;
        struct rfs_node **data = rfs_arena_grow(arena, items->data, items->cap * sizeof *data,
                                                (size_t)cap * sizeof *data);
        if (!data)
            return false;
        items->data = data;
        items->cap = (uint32_t)cap;
    }
    if (n > 0)
        memcpy(items->data + items->n, nodes, n * sizeof *nodes);
    items->n += (uint32_t)n;
    return true;
}

bool rfs_pickle_same_name(const struct rfs_node *a, const struct rfs_node *b)
{
    const size_t n = (size_t)a->of.global.module_bytes + 1 + a->of.global.name_bytes;

    return a->of.global.module_bytes == b->of.global.module_bytes &&
           a->of.global.name_bytes == b->of.global.name_bytes &&
           memcmp(a->of.global.module, b->of.global.module, n) == 0;
}

bool rfs_pickle_is_text(const struct rfs_node *node, const char *text)
{
    return node && node->kind == RFS_NODE_TEXT && node->of.text.n == strlen(text) &&
           memcmp(node->of.text.data, text, node->of.text.n) == 0;
}

const struct rfs_items *rfs_pickle_pairs(const struct rfs_node *node)
{
    static const struct rfs_items nothing;

    if (node->kind == RFS_NODE_DICT)
        return &node->of.items;
    if (rfs_pickle_is_call(node, RFS_CALL_ORDERED_DICT))
        return node->of.call.after && node->of.call.after->dict
                   ? &node->of.call.after->dict->of.items
                   : &nothing;
    return NULL;
}

const struct rfs_node *rfs_pickle_get(const struct rfs_node *node, const char *key)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(node);
    const struct rfs_node *found = NULL;

    for (uint32_t i = 0; pairs && i + 1 < pairs->n; i += 2)
        if (rfs_pickle_is_text(pairs->data[i], key))
            found = pairs->data[i + 1];
    return found;
}

/* ---- names that may stand in a pickle, and how they may be called ---------------------------- */

struct name {
    const char *text; /* "module\nname"; Python 2's module names, as protocol 2 has them */
    size_t bytes;
    enum rfs_callable callable;
    bool (*called)(const struct rfs_items *args); /* says whether it may be; NULL: it may not */
    bool (*given)(const struct rfs_node *state);  /* says whether it may be; NULL: no state */
    enum {
        NOTHING,
        LIST_ITEMS,
        DICT_ITEMS,
        BY_NEW
    } takes; /* afterwards; BY_NEW: made by __new__ */
};

/* Says whether a GLOBAL is "module\nname". */
static bool is_named(const struct rfs_node *global, const char *text)
{
    const size_t n = (size_t)global->of.global.module_bytes + 1 + global->of.global.name_bytes;

    return strlen(text) == n && memcmp(global->of.global.module, text, n) == 0;
}

static bool is_kind(const struct rfs_items *args, uint32_t i, enum rfs_node_kind kind)
{
    return args->data[i]->kind == kind;
}

static bool is_call_of(const struct rfs_node *node, const char *text)
{
    return (node->kind == RFS_NODE_CALL || node->kind == RFS_NODE_NEW) &&
           is_named(node->of.call.callee, text);
}

static bool is_number(const struct rfs_node *node, int64_t number)
{
    return node->kind == RFS_NODE_INT && node->of.integer == number;
}

static bool has_only_counts(const struct rfs_node *tuple)
{
    return tuple->kind == RFS_NODE_TUPLE && tuple->callable;
}

/*
 * Says whether a node is bytes, as protocol 2 has them: _codecs.encode(text, "latin1"), or bytes().
 */
static bool are_bytes(const struct rfs_node *node)
{
    return is_call_of(node, "_codecs\nencode") || is_call_of(node, "__builtin__\nbytes");
}

static bool no_args(const struct rfs_items *args)
{
    return args->n == 0;
}

static bool a_dict(const struct rfs_node *state)
{
    return state->kind == RFS_NODE_DICT;
}

static bool a_size(const struct rfs_items *args)
{
    return args->n == 1 && has_only_counts(args->data[0]);
}

static bool an_ordered_dict(const struct rfs_node *node)
{
    return is_call_of(node, "collections\nOrderedDict");
}

/* (storage, offset, size, strides, requires_grad, hooks …) */
static bool begins_as_tensor(const struct rfs_items *args)
{
    return is_kind(args, 0, RFS_NODE_STORAGE) && is_kind(args, 1, RFS_NODE_INT) &&
           (has_only_counts(args->data[2]) || is_call_of(args->data[2], "torch\nSize")) &&
           has_only_counts(args->data[3]) && is_kind(args, 4, RFS_NODE_BOOL) &&
           an_ordered_dict(args->data[5]);
}

static bool a_tensor(const struct rfs_items *args)
{
    return (args->n == 6 || (args->n == 7 && is_kind(args, 6, RFS_NODE_DICT))) &&
           begins_as_tensor(args);
}

static bool a_tensor_v3(const struct rfs_items *args)
{
    return (args->n == 7 || (args->n == 8 && is_kind(args, 7, RFS_NODE_DICT))) &&
           begins_as_tensor(args) && is_kind(args, 6, RFS_NODE_GLOBAL) &&
           args->data[6]->callable == RFS_CALL_DTYPE;
}

static bool a_parameter(const struct rfs_items *args)
{
    return args->n == 3 &&
           (is_call_of(args->data[0], "torch._utils\n_rebuild_tensor_v2") ||
            is_call_of(args->data[0], "torch._tensor\n_rebuild_from_type_v2") ||
            is_call_of(args->data[0], "torch._utils\n_rebuild_tensor_v3")) &&
           is_kind(args, 1, RFS_NODE_BOOL) && an_ordered_dict(args->data[2]);
}

#define SHARDED "torch.distributed._shard.sharded_tensor"
#define SHARDED_TENSOR SHARDED ".api\nShardedTensor"
#define GROUP_STATE "ProcessGroupState" /* a class within that one */
#define MEMORY_FORMAT SHARDED ".metadata\nMEM_FORMAT_ENCODING"

/* (None, {"_local_tensor": …, …}); a parameter has {"_is_param": True} in place of None */
static bool is_dtensor_state(const struct rfs_node *state)
{
    const struct rfs_items *items = &state->of.items;

    return state->kind == RFS_NODE_TUPLE && items->n == 2 &&
           (is_kind(items, 0, RFS_NODE_NONE) || is_kind(items, 0, RFS_NODE_DICT)) &&
           is_kind(items, 1, RFS_NODE_DICT);
}

/* ([Shard, …], ShardedTensorMetadata, ProcessGroupState, sharding spec, init_rrefs) */
static bool is_sharded_state(const struct rfs_node *state)
{
    const struct rfs_items *items = &state->of.items;

    return state->kind == RFS_NODE_TUPLE && items->n == 5 && is_kind(items, 0, RFS_NODE_LIST) &&
           is_kind(items, 1, RFS_NODE_NEW) && is_kind(items, 2, RFS_NODE_NEW) &&
           is_kind(items, 4, RFS_NODE_BOOL);
}

/* (_rebuild_wrapper_subclass, DTensor or ShardedTensor, (its class, dtype, size, …), state) */
static bool a_wrapped(const struct rfs_items *args)
{
    return args->n == 4 && is_kind(args, 0, RFS_NODE_GLOBAL) && is_kind(args, 1, RFS_NODE_GLOBAL) &&
           is_kind(args, 2, RFS_NODE_TUPLE) &&
           (is_named(args->data[1], SHARDED_TENSOR) ? is_sharded_state(args->data[3])
                                                    : is_dtensor_state(args->data[3])) &&
           is_named(args->data[0], "torch._utils\n_rebuild_wrapper_subclass");
}

/* The state of an object with __slots__. */
static bool are_slots(const struct rfs_node *state)
{
    return state->kind == RFS_NODE_TUPLE && state->of.items.n == 2 &&
           is_kind(&state->of.items, 0, RFS_NODE_NONE) &&
           is_kind(&state->of.items, 1, RFS_NODE_DICT);
}

/* (dtype, layout, requires_grad, memory format, pin_memory); torch 2.15 has strides behind them */
static bool are_properties(const struct rfs_node *state)
{
    return state->kind == RFS_NODE_TUPLE && (state->of.items.n == 5 || state->of.items.n == 6);
}

/* (ShardedTensor, "ProcessGroupState"), or a memory format, as some versions of Python have it */
static bool an_attribute(const struct rfs_items *args)
{
    return args->n == 2 && is_kind(args, 0, RFS_NODE_GLOBAL) &&
           ((is_named(args->data[0], SHARDED_TENSOR) &&
             rfs_pickle_is_text(args->data[1], GROUP_STATE)) ||
            (is_named(args->data[0], MEMORY_FORMAT) && is_kind(args, 1, RFS_NODE_TEXT)));
}

/* (shape, strides, dtype) */
static bool a_meta(const struct rfs_items *args)
{
    return args->n == 3;
}

/* (axis, the mesh axes that cut it) */
static bool an_order(const struct rfs_items *args)
{
    return args->n == 2 && has_only_counts(args->data[1]);
}

static bool an_enum(const struct rfs_items *args)
{
    return args->n == 1 && is_kind(args, 0, RFS_NODE_INT);
}

static bool a_layout(const struct rfs_items *args)
{
    return args->n == 1 && is_kind(args, 0, RFS_NODE_TEXT);
}

static bool a_device(const struct rfs_items *args)
{
    return (args->n == 1 || (args->n == 2 && is_kind(args, 1, RFS_NODE_INT))) &&
           is_kind(args, 0, RFS_NODE_TEXT);
}

static bool a_default_dict(const struct rfs_items *args)
{
    return args->n == 0 ||
           (args->n == 1 && (is_kind(args, 0, RFS_NODE_GLOBAL) || is_kind(args, 0, RFS_NODE_NONE)));
}

static bool a_deque(const struct rfs_items *args)
{
    return args->n == 0 || (args->n == 2 && is_kind(args, 0, RFS_NODE_TUPLE) &&
                            args->data[0]->of.items.n == 0 && is_kind(args, 1, RFS_NODE_INT));
}

static bool a_counter(const struct rfs_items *args)
{
    return args->n == 1 && is_kind(args, 0, RFS_NODE_DICT);
}

static bool an_encoding(const struct rfs_items *args)
{
    return args->n == 2 && is_kind(args, 0, RFS_NODE_TEXT) &&
           rfs_pickle_is_text(args->data[1], "latin1");
}

static bool a_byte_array(const struct rfs_items *args)
{
    return args->n == 0 || (args->n == 1 && are_bytes(args->data[0])) ||
           (args->n == 2 && is_kind(args, 0, RFS_NODE_TEXT) &&
            rfs_pickle_is_text(args->data[1], "latin-1"));
}

static bool a_set(const struct rfs_items *args)
{
    return args->n == 1 && is_kind(args, 0, RFS_NODE_LIST);
}

static bool a_complex(const struct rfs_items *args)
{
    return args->n == 2 && is_kind(args, 0, RFS_NODE_FLOAT) && is_kind(args, 1, RFS_NODE_FLOAT);
}

static bool a_slice(const struct rfs_items *args)
{
    return args->n == 3;
}

/*
 * Returns the bytes of an element of "f8", "S3" and so on; -1 for dtypes that are not read, such as
 * objects.
 */
static int64_t dtype_bytes(const struct rfs_node *name, bool *text)
{
    int64_t count = 0;

    if (name->kind != RFS_NODE_TEXT || name->of.text.n < 2 || name->of.text.n > 8 ||
        !memchr("biufcSU", name->of.text.data[0], 7))
        return -1;
    for (uint32_t i = 1; i < name->of.text.n; i++) {
        const char digit = name->of.text.data[i];
        if (digit < '0' || digit > '9')
            return -1;
        count = count * 10 + (digit - '0');
    }
    const bool wide = name->of.text.data[0] == 'U';
    *text = wide || name->of.text.data[0] == 'S';
    return wide ? 4 * count : count;
}

/* dtype("f8", False, True) */
static bool a_numpy_dtype(const struct rfs_items *args)
{
    bool text;

    return args->n == 3 && dtype_bytes(args->data[0], &text) >= 0 &&
           (is_kind(args, 1, RFS_NODE_BOOL) || is_kind(args, 1, RFS_NODE_INT)) &&
           (is_kind(args, 2, RFS_NODE_BOOL) || is_kind(args, 2, RFS_NODE_INT));
}

/* (3, "<", None, None, None, -1, -1, 0); texts have their size, their alignment, and a flag. */
static bool is_dtype_state(const struct rfs_node *state)
{
    const struct rfs_items *items = &state->of.items;

    return state->kind == RFS_NODE_TUPLE && items->n == 8 && is_number(items->data[0], 3) &&
           (rfs_pickle_is_text(items->data[1], "<") || rfs_pickle_is_text(items->data[1], "|") ||
            rfs_pickle_is_text(items->data[1], "=") || rfs_pickle_is_text(items->data[1], ">")) &&
           is_kind(items, 2, RFS_NODE_NONE) && is_kind(items, 3, RFS_NODE_NONE) &&
           is_kind(items, 4, RFS_NODE_NONE);
}

static bool fits_dtype(const struct rfs_node *call, const struct rfs_node *state)
{
    bool text = false;
    const int64_t bytes = dtype_bytes(call->of.call.args->of.items.data[0], &text);
    struct rfs_node *const *item = state->of.items.data;

    if (!text)
        return is_number(item[5], -1) && is_number(item[6], -1) && is_number(item[7], 0);
    return is_number(item[5], bytes) && (is_number(item[6], 1) || is_number(item[6], 4)) &&
           (is_number(item[7], 0) || is_number(item[7], 8));
}

static bool a_numpy_scalar(const struct rfs_items *args)
{
    return args->n == 2 && is_call_of(args->data[0], "numpy\ndtype") && are_bytes(args->data[1]);
}

/* _reconstruct(ndarray, (0,), b"b") */
static bool a_numpy_array(const struct rfs_items *args)
{
    return args->n == 3 && is_kind(args, 0, RFS_NODE_GLOBAL) &&
           is_named(args->data[0], "numpy\nndarray") && is_kind(args, 1, RFS_NODE_TUPLE) &&
           args->data[1]->of.items.n == 1 && is_number(args->data[1]->of.items.data[0], 0) &&
           are_bytes(args->data[2]);
}

/* (1, shape, dtype, in Fortran's order, content) */
static bool is_array_state(const struct rfs_node *state)
{
    const struct rfs_items *items = &state->of.items;

    return state->kind == RFS_NODE_TUPLE && items->n == 5 && is_number(items->data[0], 1) &&
           has_only_counts(items->data[1]) && is_call_of(items->data[2], "numpy\ndtype") &&
           is_kind(items, 3, RFS_NODE_BOOL) && are_bytes(items->data[4]);
}

#define NAME(module, name, callable, ...)                                                          \
    {                                                                                              \
        module "\n" name, sizeof(module "\n" name) - 1, RFS_CALL_##callable, __VA_ARGS__           \
    }
#define STORAGE(module, name) NAME(module, name, STORAGE_CLASS, NULL, NULL, NOTHING)
#define DTYPE(name) NAME("torch", name, DTYPE, NULL, NULL, NOTHING)
/* A class that is a value itself, and is not called. */
#define TYPE(module, name) NAME(module, name, PLAIN, NULL, NULL, NOTHING)

static const struct name names[] = {
    NAME("collections", "OrderedDict", ORDERED_DICT, no_args, a_dict, DICT_ITEMS),
    NAME("torch", "Size", SIZE, a_size, NULL, NOTHING),
    NAME("torch._utils", "_rebuild_tensor_v2", TENSOR, a_tensor, NULL, NOTHING),
    NAME("torch._utils", "_rebuild_tensor_v3", TENSOR_V3, a_tensor_v3, NULL, NOTHING),
    NAME("torch._utils", "_rebuild_parameter", PARAMETER, a_parameter, NULL, NOTHING),
    STORAGE("torch", "DoubleStorage"),
    STORAGE("torch", "FloatStorage"),
    STORAGE("torch", "HalfStorage"),
    STORAGE("torch", "BFloat16Storage"),
    STORAGE("torch", "LongStorage"),
    STORAGE("torch", "IntStorage"),
    STORAGE("torch", "ShortStorage"),
    STORAGE("torch", "CharStorage"),
    STORAGE("torch", "ByteStorage"),
    STORAGE("torch", "BoolStorage"),
    STORAGE("torch", "ComplexFloatStorage"),
    STORAGE("torch", "ComplexDoubleStorage"),
    STORAGE("torch.storage", "UntypedStorage"),
    DTYPE("float64"),
    DTYPE("float32"),
    DTYPE("float16"),
    DTYPE("bfloat16"),
    DTYPE("int64"),
    DTYPE("int32"),
    DTYPE("int16"),
    DTYPE("int8"),
    DTYPE("uint64"),
    DTYPE("uint32"),
    DTYPE("uint16"),
    DTYPE("uint8"),
    DTYPE("bool"),
    DTYPE("complex64"),
    DTYPE("complex128"),
    DTYPE("float8_e4m3fn"),
    DTYPE("float8_e5m2"),
    DTYPE("float8_e8m0fnu"),
    DTYPE("float8_e4m3fnuz"),
    DTYPE("float8_e5m2fnuz"),
    DTYPE("float4_e2m1fn_x2"),
    NAME("torch", "device", PLAIN, a_device, NULL, NOTHING),
    NAME("collections", "defaultdict", PLAIN, a_default_dict, NULL, DICT_ITEMS),
    NAME("collections", "deque", PLAIN, a_deque, NULL, LIST_ITEMS),
    NAME("collections", "Counter", PLAIN, a_counter, NULL, NOTHING),
    NAME("argparse", "Namespace", PLAIN, no_args, a_dict, BY_NEW),
    NAME("_codecs", "encode", PLAIN, an_encoding, NULL, NOTHING),
    NAME("__builtin__", "bytes", PLAIN, no_args, NULL, NOTHING),
    NAME("__builtin__", "bytearray", PLAIN, a_byte_array, NULL, NOTHING),
    NAME("__builtin__", "set", PLAIN, a_set, NULL, NOTHING),
    NAME("__builtin__", "frozenset", PLAIN, a_set, NULL, NOTHING),
    NAME("__builtin__", "complex", PLAIN, a_complex, NULL, NOTHING),
    NAME("__builtin__", "slice", PLAIN, a_slice, NULL, NOTHING),
    TYPE("__builtin__", "dict"),
    TYPE("__builtin__", "list"),
    TYPE("__builtin__", "tuple"),
    TYPE("__builtin__", "int"),
    TYPE("__builtin__", "long"),
    TYPE("__builtin__", "float"),
    TYPE("__builtin__", "bool"),
    TYPE("__builtin__", "unicode"),
    TYPE("numpy", "ndarray"),
    NAME("numpy", "dtype", PLAIN, a_numpy_dtype, is_dtype_state, NOTHING),
    NAME("numpy.core.multiarray", "scalar", PLAIN, a_numpy_scalar, NULL, NOTHING),
    NAME("numpy.core.multiarray", "_reconstruct", PLAIN, a_numpy_array, is_array_state, NOTHING),
    NAME("numpy._core.multiarray", "scalar", PLAIN, a_numpy_scalar, NULL, NOTHING),
    NAME("numpy._core.multiarray", "_reconstruct", PLAIN, a_numpy_array, is_array_state, NOTHING),
};

/* Names of the parts of a DTensor or a ShardedTensor. */
#define PART(module, name) NAME(module, name, PLAIN, no_args, a_dict, BY_NEW)
#define SPEC "torch.distributed.tensor._dtensor_spec"
#define PLACEMENTS "torch.distributed.tensor.placement_types"
#define OLD_PLACEMENTS "torch.distributed._tensor.placement_types"

static const struct name sharded_names[] = {
    NAME("torch._tensor", "_rebuild_from_type_v2", WRAPPED, a_wrapped, NULL, NOTHING),
    TYPE("torch._utils", "_rebuild_wrapper_subclass"),
    TYPE("torch.distributed.tensor", "DTensor"),
    TYPE("torch.distributed._tensor.api", "DTensor"),
    NAME("torch.serialization", "_get_layout", PLAIN, a_layout, NULL, NOTHING),
    PART(SPEC, "DTensorSpec"),
    PART(OLD_PLACEMENTS, "DTensorSpec"),
    PART(PLACEMENTS, "Shard"),
    PART(PLACEMENTS, "_StridedShard"),
    PART(OLD_PLACEMENTS, "Shard"),
    PART(PLACEMENTS, "Replicate"),
    PART(OLD_PLACEMENTS, "Replicate"),
    PART("torch.distributed.device_mesh", "DeviceMesh"),
    PART("torch.distributed._mesh_layout", "_MeshLayout"),
    PART("torch.distributed._mesh_layout", "_FlatLayout"),
    NAME(SPEC, "ShardOrderEntry", PLAIN, an_order, NULL, BY_NEW),
    NAME(SPEC, "TensorMeta", PLAIN, a_meta, NULL, BY_NEW),
    NAME(OLD_PLACEMENTS, "TensorMeta", PLAIN, a_meta, NULL, BY_NEW),
    TYPE(SHARDED ".api", "ShardedTensor"),
    NAME(SHARDED ".shard", "Shard", PLAIN, no_args, are_slots, BY_NEW),
    NAME("torch.distributed._shard.metadata", "ShardMetadata", PLAIN, no_args, are_slots, BY_NEW),
    PART("torch.distributed.remote_device", "_remote_device"),
    PART(SHARDED ".metadata", "ShardedTensorMetadata"),
    NAME(SHARDED ".metadata", "TensorProperties", PLAIN, no_args, are_properties, BY_NEW),
    NAME(SHARDED ".metadata", "MEM_FORMAT_ENCODING", PLAIN, an_enum, NULL, NOTHING),
    NAME("__builtin__", "getattr", PLAIN, an_attribute, NULL, NOTHING),
    PART(SHARDED ".api", "ShardedTensor." GROUP_STATE),
    PART("torch.distributed._shard.sharding_spec.chunk_sharding_spec", "ChunkShardingSpec"),
    PART("torch.distributed._shard.sharding_spec.api", "EnumerableShardingSpec"),
};

/* Names of numbers, where any others are, too. */
static const struct name enum_names[] = {
    NAME("deepspeed.runtime.zero.config", "ZeroStageEnum", PLAIN, an_enum, NULL, NOTHING),
};

enum {
    N_NAMES = sizeof names / sizeof *names,
    N_SHARDED_NAMES = sizeof sharded_names / sizeof *sharded_names,
    N_ENUM_NAMES = sizeof enum_names / sizeof *enum_names
};

static const struct name *name_at(uint16_t place)
{
    return place < N_NAMES                     ? &names[place]
           : place < N_NAMES + N_SHARDED_NAMES ? &sharded_names[place - N_NAMES]
                                               : &enum_names[place - N_NAMES - N_SHARDED_NAMES];
}

#define NO_PLACE UINT16_MAX /* of a name that is not allowed */

static uint16_t find_among(const char *both, size_t n, uint16_t from, uint16_t count)
{
    for (uint16_t place = from; place < from + count; place++)
        if (name_at(place)->bytes == n && memcmp(name_at(place)->text, both, n) == 0)
            return place;
    return NO_PLACE;
}

/* Returns the position of "MODULE\nNAME", N bytes, among the allowed names, or NO_PLACE. */
static uint16_t find_name(const char *both, size_t n, enum rfs_pickle_names which)
{
    const uint16_t plain = find_among(both, n, 0, N_NAMES);

    return plain != NO_PLACE || which == RFS_PICKLE_PLAIN ? plain
           : which == RFS_PICKLE_SHARDED
               ? find_among(both, n, N_NAMES, N_SHARDED_NAMES)
               : find_among(both, n, N_NAMES + N_SHARDED_NAMES, N_ENUM_NAMES);
}

/* Says whether Python makes a CALL (or a NEW) like this when it pickles an object of that name. */
static bool may_call(const struct rfs_node *call)
{
    if (call->of.call.callee->callable == RFS_CALL_UNKNOWN)
        return false;
    const struct name *name = name_at(call->of.call.callee->of.global.allowed);

    return name->called && (name->takes == BY_NEW) == (call->kind == RFS_NODE_NEW) &&
           name->called(&call->of.call.args->of.items);
}

/* Says whether a call that may be made gets the class of a process group's state. */
static bool gets_group_state(const struct rfs_node *call)
{
    return is_call_of(call, "__builtin__\ngetattr") &&
           is_named(call->of.call.args->of.items.data[0], SHARDED_TENSOR);
}

/* Says whether items may be appended to a call's object or, DICT, set on it. */
static bool may_add(const struct rfs_node *call, bool dict)
{
    return name_at(call->of.call.callee->of.global.allowed)->takes ==
           (dict ? DICT_ITEMS : LIST_ITEMS);
}

/* Says whether a call's object may be given that state. */
static bool may_build(const struct rfs_node *call, const struct rfs_node *state)
{
    const struct name *name = name_at(call->of.call.callee->of.global.allowed);

    return name->given && name->given(state) &&
           (name->given != is_dtype_state || fits_dtype(call, state));
}

/* ---- the builder ----------------------------------------------------------------------------- */

struct building {
    struct rfs_pickle *pickle;
    uint16_t origin;
    enum rfs_pickle_names names;
};

static bool takes_any(const struct rfs_unpickler *machine)
{
    const struct building *building = machine->ctx;

    return building->names == RFS_PICKLE_ANY;
}

static struct rfs_node *node_of(uint64_t value)
{
    return (struct rfs_node *)(uintptr_t)value;
}

static uint64_t value_of(const struct rfs_node *node)
{
    return (uintptr_t)node;
}

/* Makes a node of the pickle; NULL after a failure. */
static struct rfs_node *new_node(struct rfs_unpickler *machine, enum rfs_node_kind kind)
{
    const struct building *building = machine->ctx;
    struct rfs_pickle *pickle = building->pickle;
    /* Numbers take no more room than they need: there may be millions. */
    const bool is_number = kind == RFS_NODE_INT || kind == RFS_NODE_FLOAT;
    const size_t bytes =
        is_number ? offsetof(struct rfs_node, of) + sizeof(int64_t) : sizeof(struct rfs_node);

    if (pickle->n_nodes >= RFS_PICKLE_NODES) {
        rfs_unpickler_fail_count(machine);
        return NULL;
    }
    struct rfs_node *node = rfs_arena_alloc(&pickle->arena, bytes);
    if (!node) {
        rfs_unpickler_fail_memory(machine);
        return NULL;
    }
    memset(node, 0, bytes);
    node->kind = (uint8_t)kind;
    node->origin = building->origin;
    node->number = pickle->n_nodes++;
    return node;
}

static uint64_t make_constant(struct rfs_unpickler *machine, unsigned char op)
{
    (void)machine;
    return value_of(op == 'N' ? constant(RFS_NODE_NONE, 0) : constant(RFS_NODE_BOOL, op == 0x88));
}

static uint64_t make_int(struct rfs_unpickler *machine, int64_t value)
{
    if (value >= 0 && value <= UINT16_MAX)
        return value_of(constant(RFS_NODE_INT, (uint16_t)value));
    struct rfs_node *node = new_node(machine, RFS_NODE_INT);
    if (node)
        node->of.integer = value;
    return value_of(node);
}

static uint64_t make_float(struct rfs_unpickler *machine, uint64_t bits)
{
    struct rfs_node *node = new_node(machine, RFS_NODE_FLOAT);

    if (node)
        node->of.bits = bits;
    return value_of(node);
}

static uint64_t make_text(struct rfs_unpickler *machine, const unsigned char *bytes, size_t n)
{
    struct rfs_node *node = new_node(machine, RFS_NODE_TEXT);

    if (node) {
        node->of.text.data = (const char *)bytes;
        node->of.text.n = (uint32_t)n;
    }
    return value_of(node);
}

static uint64_t make_long(struct rfs_unpickler *machine, const unsigned char *bytes, size_t n)
{
    const uint64_t value = make_text(machine, bytes, n);

    if (value)
        node_of(value)->kind = RFS_NODE_LONG;
    return value;
}

/* Adds the nodes of the stack from HEIGHT on to ITEMS. */
static void add_items(struct rfs_unpickler *machine, size_t height, struct rfs_items *items)
{
    const struct building *building = machine->ctx;
    const size_t n = machine->stack.n - height;

    /* A stack that was never used has no memory. */
    if (n > 0 && !rfs_pickle_add_items(&building->pickle->arena, items,
                                       (struct rfs_node *const *)machine->stack.data + height, n))
        rfs_unpickler_fail_memory(machine);
}

/* Called once, when a tuple is made: a memo may hand the tuple to any number of calls. */
static bool check_counts(const struct rfs_items *items)
{
    for (uint32_t i = 0; i < items->n; i++)
        if (items->data[i]->kind != RFS_NODE_INT || items->data[i]->of.integer < 0)
            return false;
    return true;
}

static uint64_t make_container(struct rfs_unpickler *machine, unsigned char kind, size_t height)
{
    struct rfs_node *node = new_node(machine, kind == 't'   ? RFS_NODE_TUPLE
                                              : kind == 'l' ? RFS_NODE_LIST
                                                            : RFS_NODE_DICT);

    if (!node)
        return 0;
    if (kind == 'd' && (machine->stack.n - height) % 2 != 0)
        return rfs_unpickler_fail(machine, "a key without a value");
    add_items(machine, height, &node->of.items);
    node->callable = kind == 't' && check_counts(&node->of.items);
    return value_of(node);
}

/* Returns the additions to a call; NULL after a failure. */
static struct rfs_after *after_of(struct rfs_unpickler *machine, struct rfs_node *node)
{
    const struct building *building = machine->ctx;

    if (!node->of.call.after) {
        node->of.call.after = rfs_arena_alloc(&building->pickle->arena, sizeof(struct rfs_after));
        if (node->of.call.after)
            *node->of.call.after = (struct rfs_after){NULL, NULL, NULL};
        else
            rfs_unpickler_fail_memory(machine);
    }
    return node->of.call.after;
}

static bool is_call(const struct rfs_node *node)
{
    return node->kind == RFS_NODE_CALL || node->kind == RFS_NODE_NEW;
}

/* Returns the node of what is appended to the object of a call or, DICT, set on it; or NULL. */
static struct rfs_node *items_after(struct rfs_unpickler *machine, struct rfs_node *call, bool dict)
{
    struct rfs_after *after = after_of(machine, call);
    struct rfs_node **slot = !after ? NULL : dict ? &after->dict : &after->list;

    if (slot && !*slot)
        *slot = new_node(machine, dict ? RFS_NODE_DICT : RFS_NODE_LIST);
    return slot ? *slot : NULL;
}

/* Turns a call whose object gets more than is known into an opaque value. False: it may not be. */
static bool become_opaque(const struct rfs_unpickler *machine, struct rfs_node *node)
{
    if (!takes_any(machine) || !(is_call(node) || node->kind == RFS_NODE_OPAQUE))
        return false;
    node->kind = RFS_NODE_OPAQUE;
    return true;
}

static void add(struct rfs_unpickler *machine, uint64_t container, size_t height, bool dict)
{
    struct rfs_node *node = node_of(container);

    if (dict && (machine->stack.n - height) % 2 != 0)
        rfs_unpickler_fail(machine, "a key without a value");
    else if (is_call(node) && may_add(node, dict))
        node = items_after(machine, node, dict);
    else if (become_opaque(machine, node))
        return;
    else if (node->kind != (dict ? RFS_NODE_DICT : RFS_NODE_LIST))
        rfs_unpickler_fail(machine, dict ? "items are set on something that is not a dict"
                                         : "items are added to something that is not a list");
    if (machine->rc == 0)
        add_items(machine, height, &node->of.items);
}

/*
 * Makes a name of a MODULE, behind whose end one byte is before the name; PLACE as find_name has
 * it.
 */
static struct rfs_node *new_global(struct rfs_unpickler *machine, const char *module,
                                   size_t module_bytes, size_t name_bytes, uint16_t place)
{
    struct rfs_node *node = new_node(machine, RFS_NODE_GLOBAL);

    if (node) {
        node->callable = (uint8_t)(place == NO_PLACE ? RFS_CALL_UNKNOWN : name_at(place)->callable);
        node->of.global.module = module;
        node->of.global.module_bytes = (uint16_t)module_bytes;
        node->of.global.name_bytes = (uint16_t)name_bytes;
        node->of.global.allowed = place;
    }
    return node;
}

static uint64_t make_global(struct rfs_unpickler *machine)
{
    const struct building *building = machine->ctx;
    const char *module = (const char *)machine->bytes + machine->p;
    const char *end = (const char *)machine->bytes + machine->n;
    const char *first = memchr(module, '\n', (size_t)(end - module));
    const char *name = first ? first + 1 : NULL;
    const char *last = name ? memchr(name, '\n', (size_t)(end - name)) : NULL;

    if (!last || first - module > NAME_MOST || last - name > NAME_MOST)
        return rfs_unpickler_fail(machine, "a name without an end");
    machine->p += (size_t)(last + 1 - module);
    const uint16_t place = find_name(module, (size_t)(last - module), building->names);
    if (place == NO_PLACE && !takes_any(machine))
        return rfs_unpickler_fail_name(machine, module, (size_t)(first - module), name,
                                       (size_t)(last - name));
    return value_of(
        new_global(machine, module, (size_t)(first - module), (size_t)(last - name), place));
}

/* Makes the name of the class that a call of getattr gets: protocol 2 has none for it. */
static struct rfs_node *new_group_state(struct rfs_unpickler *machine)
{
    static const char text[] = SHARDED_TENSOR "." GROUP_STATE;
    const size_t module_bytes = strcspn(text, "\n");

    return new_global(machine, text, module_bytes, sizeof text - 1 - module_bytes - 1,
                      find_name(text, sizeof text - 1, RFS_PICKLE_SHARDED));
}

static uint64_t fail_call(struct rfs_unpickler *machine, const struct rfs_node *callee)
{
    machine->rc =
        rfs_fail(machine->err, -ENOTSUP, rfs_unpickler_here(machine), REMEDY_PLAIN,
                 "the pickle in it uses %.*s.%.*s in a way that is not read; nothing was executed",
                 (int)callee->of.global.module_bytes, callee->of.global.module,
                 (int)callee->of.global.name_bytes, rfs_pickle_global_name(callee));
    return 0;
}

/*
 * Takes the call that makes a tensor out of one that gives it attributes as well:
 * _rebuild_from_type_v2(_rebuild_tensor_v2, torch.Tensor, (…), {"ds_id": …})
 */
static void leave_attributes(uint64_t *callee, uint64_t *args)
{
    const struct rfs_items *items = &node_of(*args)->of.items;

    if (!is_named(node_of(*callee), "torch._tensor\n_rebuild_from_type_v2") || items->n != 4 ||
        !is_kind(items, 0, RFS_NODE_GLOBAL) || !is_kind(items, 1, RFS_NODE_GLOBAL) ||
        !is_kind(items, 2, RFS_NODE_TUPLE) || !is_named(items->data[1], "torch\nTensor"))
        return;
    *callee = value_of(items->data[0]);
    *args = value_of(items->data[2]);
}

static uint64_t make_call(struct rfs_unpickler *machine, uint64_t callee, uint64_t args,
                          bool is_new)
{
    const bool any = takes_any(machine);

    if (any && node_of(callee)->kind == RFS_NODE_OPAQUE)
        return value_of(new_node(machine, RFS_NODE_OPAQUE));
    if (node_of(args)->kind != RFS_NODE_TUPLE || node_of(callee)->kind != RFS_NODE_GLOBAL)
        return rfs_unpickler_fail(machine, "a call of something that is not callable");
    if (any && !is_new)
        leave_attributes(&callee, &args);
    struct rfs_node *node = new_node(machine, is_new ? RFS_NODE_NEW : RFS_NODE_CALL);
    if (!node)
        return 0;
    node->of.call.callee = node_of(callee);
    node->of.call.args = node_of(args);
    if (!may_call(node) && !any)
        return fail_call(machine, node_of(callee));
    if (!may_call(node))
        node->kind = RFS_NODE_OPAQUE;
    else if (gets_group_state(node))
        node = new_group_state(machine);
    return value_of(node);
}

static void give_state(struct rfs_unpickler *machine, uint64_t object, uint64_t state)
{
    struct rfs_node *node = node_of(object);

    const bool may = is_call(node) && may_build(node, node_of(state));

    if (!may && become_opaque(machine, node))
        return;
    if (!is_call(node)) {
        rfs_unpickler_fail(machine, "a state without an object");
    } else if (!may) {
        fail_call(machine, node->of.call.callee);
    } else {
        struct rfs_after *after = after_of(machine, node);
        if (after && after->state)
            rfs_unpickler_fail(machine, "an object with two states");
        else if (after)
            after->state = node_of(state);
    }
}

/* Makes a storage of a persistent id: there are no others. */
static uint64_t make_storage(struct rfs_unpickler *machine, uint64_t id)
{
    const struct rfs_items *items = &node_of(id)->of.items;
    struct rfs_node *const *item = items->data;

    if (node_of(id)->kind != RFS_NODE_TUPLE || items->n != 5 ||
        !rfs_pickle_is_text(item[0], "storage") || item[1]->kind != RFS_NODE_GLOBAL ||
        (item[1]->callable != RFS_CALL_STORAGE_CLASS && !takes_any(machine)) ||
        item[2]->kind != RFS_NODE_TEXT || item[3]->kind != RFS_NODE_TEXT ||
        item[4]->kind != RFS_NODE_INT || item[4]->of.integer < 0)
        return rfs_unpickler_fail(machine, "a persistent id that is not a storage");
    const bool known = item[1]->callable == RFS_CALL_STORAGE_CLASS;
    struct rfs_node *node = new_node(machine, known ? RFS_NODE_STORAGE : RFS_NODE_OPAQUE);
    if (node && known)
        node->of.items = *items;
    return value_of(node);
}

static size_t memory_of(const struct rfs_unpickler *machine)
{
    const struct building *building = machine->ctx;

    return building->pickle->arena.bytes +
           (machine->stack.cap + machine->memo.cap) * sizeof(struct rfs_node *) +
           machine->marks.cap * sizeof *machine->marks.data;
}

static const struct rfs_unpickler_builder builder = {
    .wide = true,
    .text_most = UINT32_MAX,
    .constant = make_constant,
    .integer = make_int,
    .big = make_long,
    .real = make_float,
    .text = make_text,
    .make = make_container,
    .add = add,
    .name = make_global,
    .call = make_call,
    .state = give_state,
    .storage = make_storage,
    .memory = memory_of,
    .damaged = "compare the file with its original, or save it again",
    .protocol = "save it again without pickle_protocol=",
    .opcode = "save plain values and tensors only, or save it with torch's default protocol",
    .named = REMEDY_PLAIN,
    .size = "save numbers in tensors rather than in lists",
};

int rfs_pickle_read(unsigned char *bytes, size_t n, const struct rfs_pickle_from *from,
                    struct rfs_pickle *out, struct rfs_error *err)
{
    struct building building = {out, from->origin, from->names};
    struct rfs_unpickler_builder ours = builder;
    struct rfs_unpickler machine = {.builder = &ours,
                                    .ctx = &building,
                                    .file = from->file,
                                    .err = err,
                                    .budget = from->budget,
                                    .most = rfs_pickle_memory(n),
                                    .values_most = RFS_PICKLE_NODES,
                                    .begin = from->offset,
                                    .size = n,
                                    .bytes = bytes};
    uint64_t root = 0;
    int rc = 0;

    *out = (struct rfs_pickle){.bytes = bytes, .n_bytes = n};
    if (from->names == RFS_PICKLE_SHARDED)
        ours.named = REMEDY_DCP;
    if (from->budget) {
        rc = rfs_budget_take(from->budget, n, from->file, err);
        machine.most = (size_t)rfs_min_u64(machine.most, rfs_budget_rest(from->budget));
    }
    if (rc == 0)
        rc = rfs_unpickler_run(&machine, &root);
    out->root = node_of(root);
    if (rc == 0 && from->budget)
        rc = rfs_budget_take(from->budget, out->arena.bytes, from->file, err);
    if (rc < 0)
        rfs_pickle_free(out);
    return rc;
}

void rfs_pickle_free(struct rfs_pickle *pickle)
{
    rfs_arena_free(&pickle->arena);
    free(pickle->bytes);
    *pickle = (struct rfs_pickle){0};
}
