/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which names may stand in a pickle, and how they may be called: with the arguments, and the state,
 * with which Python itself pickles such an object (protocol 2), and no others.
 *
 * Nothing is called here. But a pickle that is shown again will be loaded: it must neither run
 * foreign code then, nor allocate more than the file holds: bytes(10**12), a codec that inflates, a
 * numpy dtype whose flags make numbers pointers are not what pickling writes.
 */
#include "formats/torch/pickle_internal.h"

struct name {
    const char *text; /* "module\nname"; Python 2's module names, as protocol 2 has them */
    size_t bytes;
    enum rfs_callable callable;
    bool (*called)(const struct rfs_items *args); /* NULL: it is not called */
    bool (*given)(const struct rfs_node *state);  /* NULL: it has no state */
    enum {
        NOTHING,
        LIST_ITEMS,
        DICT_ITEMS,
        BY_NEW
    } takes; /* afterwards; BY_NEW: made by __new__ */
};

/* "module\nname" of a GLOBAL. */
static const char *text_of(const struct rfs_node *global);

static bool is_kind(const struct rfs_items *args, uint32_t i, enum rfs_node_kind kind)
{
    return args->data[i]->kind == kind;
}

static bool is_call_of(const struct rfs_node *node, const char *text)
{
    return (node->kind == RFS_NODE_CALL || node->kind == RFS_NODE_NEW) &&
           strcmp(text_of(node->of.call.callee), text) == 0;
}

static bool is_number(const struct rfs_node *node, int64_t number)
{
    return node->kind == RFS_NODE_INT && node->of.integer == number;
}

static bool are_counts(const struct rfs_node *tuple)
{
    return tuple->kind == RFS_NODE_TUPLE && tuple->callable;
}

/* bytes, as protocol 2 has them: _codecs.encode(text, "latin1"), or bytes(). */
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
    return args->n == 1 && are_counts(args->data[0]);
}

static bool an_ordered_dict(const struct rfs_node *node)
{
    return is_call_of(node, "collections\nOrderedDict");
}

/* (storage, offset, size, strides, requires_grad, hooks …) */
static bool begins_as_tensor(const struct rfs_items *args)
{
    return is_kind(args, 0, RFS_NODE_STORAGE) && is_kind(args, 1, RFS_NODE_INT) &&
           (are_counts(args->data[2]) || is_call_of(args->data[2], "torch\nSize")) &&
           are_counts(args->data[3]) && is_kind(args, 4, RFS_NODE_BOOL) &&
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

/*
 * (_rebuild_wrapper_subclass, DTensor, (DTensor, dtype, size, …), (None, {"_local_tensor": …, …}));
 * a parameter has {"_is_param": True} in place of None
 */
static bool a_wrapped(const struct rfs_items *args)
{
    return args->n == 4 && is_kind(args, 0, RFS_NODE_GLOBAL) && is_kind(args, 1, RFS_NODE_GLOBAL) &&
           is_kind(args, 2, RFS_NODE_TUPLE) && is_kind(args, 3, RFS_NODE_TUPLE) &&
           args->data[3]->of.items.n == 2 &&
           (is_kind(&args->data[3]->of.items, 0, RFS_NODE_NONE) ||
            is_kind(&args->data[3]->of.items, 0, RFS_NODE_DICT)) &&
           is_kind(&args->data[3]->of.items, 1, RFS_NODE_DICT) &&
           strcmp(text_of(args->data[0]), "torch._utils\n_rebuild_wrapper_subclass") == 0;
}

/* Of a shape, strides and a dtype. */
static bool a_meta(const struct rfs_items *args)
{
    return args->n == 3;
}

/* Of an axis, and of the mesh axes that cut it. */
static bool an_order(const struct rfs_items *args)
{
    return args->n == 2 && are_counts(args->data[1]);
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
           rfs_node_is_text(args->data[1], "latin1");
}

static bool a_byte_array(const struct rfs_items *args)
{
    return args->n == 0 || (args->n == 1 && are_bytes(args->data[0])) ||
           (args->n == 2 && is_kind(args, 0, RFS_NODE_TEXT) &&
            rfs_node_is_text(args->data[1], "latin-1"));
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
 * The bytes of an element of "f8", "S3" and so on; -1 for dtypes that are not read, such as
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
           (rfs_node_is_text(items->data[1], "<") || rfs_node_is_text(items->data[1], "|") ||
            rfs_node_is_text(items->data[1], "=") || rfs_node_is_text(items->data[1], ">")) &&
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
           strcmp(text_of(args->data[0]), "numpy\nndarray") == 0 &&
           is_kind(args, 1, RFS_NODE_TUPLE) && args->data[1]->of.items.n == 1 &&
           is_number(args->data[1]->of.items.data[0], 0) && are_bytes(args->data[2]);
}

/* (1, shape, dtype, in Fortran's order, content) */
static bool is_array_state(const struct rfs_node *state)
{
    const struct rfs_items *items = &state->of.items;

    return state->kind == RFS_NODE_TUPLE && items->n == 5 && is_number(items->data[0], 1) &&
           are_counts(items->data[1]) && is_call_of(items->data[2], "numpy\ndtype") &&
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

/* The parts of a DTensor. */
#define PIECE(module, name) NAME(module, name, PLAIN, no_args, a_dict, BY_NEW)
#define SPEC "torch.distributed.tensor._dtensor_spec"
#define PLACES "torch.distributed.tensor.placement_types"
#define OLD_PLACES "torch.distributed._tensor.placement_types"

static const struct name piece_names[] = {
    NAME("torch._tensor", "_rebuild_from_type_v2", WRAPPED, a_wrapped, NULL, NOTHING),
    TYPE("torch._utils", "_rebuild_wrapper_subclass"),
    TYPE("torch.distributed.tensor", "DTensor"),
    TYPE("torch.distributed._tensor.api", "DTensor"),
    NAME("torch.serialization", "_get_layout", PLAIN, a_layout, NULL, NOTHING),
    PIECE(SPEC, "DTensorSpec"),
    PIECE(OLD_PLACES, "DTensorSpec"),
    PIECE(PLACES, "Shard"),
    PIECE(OLD_PLACES, "Shard"),
    PIECE(PLACES, "Replicate"),
    PIECE(OLD_PLACES, "Replicate"),
    PIECE("torch.distributed.device_mesh", "DeviceMesh"),
    PIECE("torch.distributed._mesh_layout", "_MeshLayout"),
    PIECE("torch.distributed._mesh_layout", "_FlatLayout"),
    NAME(SPEC, "ShardOrderEntry", PLAIN, an_order, NULL, BY_NEW),
    NAME(SPEC, "TensorMeta", PLAIN, a_meta, NULL, BY_NEW),
    NAME(OLD_PLACES, "TensorMeta", PLAIN, a_meta, NULL, BY_NEW),
};

enum { N_NAMES = sizeof names / sizeof *names };

static const struct name *at(uint16_t place)
{
    return place < N_NAMES ? &names[place] : &piece_names[place - N_NAMES];
}

static const char *text_of(const struct rfs_node *global)
{
    return at(global->of.global.place)->text;
}

int rfs_pickle_find_name(const unsigned char *both, size_t n, bool pieces)
{
    const size_t all = N_NAMES + (pieces ? sizeof piece_names / sizeof *piece_names : 0);

    for (uint16_t i = 0; i < all; i++)
        if (at(i)->bytes == n && memcmp(at(i)->text, both, n) == 0)
            return (int)i;
    return -1;
}

enum rfs_callable rfs_pickle_callable(uint16_t place)
{
    return at(place)->callable;
}

bool rfs_pickle_may_call(const struct rfs_node *call)
{
    const struct name *name = at(call->of.call.callee->of.global.place);

    return name->called && (name->takes == BY_NEW) == (call->kind == RFS_NODE_NEW) &&
           name->called(&call->of.call.args->of.items);
}

bool rfs_pickle_may_add(const struct rfs_node *call, bool dict)
{
    return at(call->of.call.callee->of.global.place)->takes == (dict ? DICT_ITEMS : LIST_ITEMS);
}

bool rfs_pickle_may_build(const struct rfs_node *call, const struct rfs_node *state)
{
    const struct name *name = at(call->of.call.callee->of.global.place);

    return name->given && name->given(state) &&
           (name->given != is_dtype_state || fits_dtype(call, state));
}
