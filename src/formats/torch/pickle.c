/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack machine without effects. Each opcode is a byte, most push or fold nodes on the stack:
 *
 *     80 V                 protocol V                2e                   stop: the top is the result
 *     28                   mark                      30 31 32             pop, pop to mark, duplicate
 *     4e 88 89             None, True, False         4b u1 4d u2 4a s4    integers
 *     8a n … 8b nnnn …     integers of n bytes       47 8 bytes           a float, big-endian
 *     58 nnnn … 54 55      texts                     63 module\n name\n   a global name
 *     29 74 85 86 87       tuples: empty, to mark, of one, two, three
 *     5d 6c 61 65          lists: empty, to mark; append one, append to mark
 *     7d 64 73 75          dicts: empty, to mark; set one, set to mark
 *     71 u1 72 u4          memo: keep the top        68 u1 6a u4          push the kept value
 *     52 81 62             call, new object, build: give the object below a state
 *     51                   persistent id
 *
 * Source: pickletools of CPython; which of these torch.save writes: the pickles of torch 1.6 to
 * 2.9.
 *
 * Nothing is called here. But a pickle that is shown again will be loaded: it must neither run
 * foreign code then, nor allocate more than the file holds. bytes(10**12), a codec that inflates, a
 * numpy dtype whose flags make numbers pointers are not what pickling writes. So a name is called
 * only with the arguments, and given only the state, with which Python itself pickles such an
 * object (protocol 2).
 */
#include "formats/torch/pickle.h"

#include "base/checked.h"
#include "base/text.h"
#include "base/vec.h"

#include <pthread.h>

#define REMEDY_SAVE "save plain values and tensors only, or save it with torch's default protocol"
#define REMEDY_PLAIN "save plain values and tensors only"
#define REMEDY_LISTS "save numbers in tensors rather than in lists"
#define REMEDY_COPY "compare the file with its original, or save it again"

/* A value can be had again for two bytes: so many are the items of all containers together. */
#define PUSHES_MOST (4 * RFS_PICKLE_NODES)
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

/* Says whether a node is bytes, as protocol 2 has them: _codecs.encode(text, "latin1"), or bytes(). */
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
           is_named(args->data[0], "torch._utils\n_rebuild_wrapper_subclass");
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

/* Names of the parts of a DTensor. */
#define DTENSOR_PART(module, name) NAME(module, name, PLAIN, no_args, a_dict, BY_NEW)
#define SPEC "torch.distributed.tensor._dtensor_spec"
#define PLACEMENTS "torch.distributed.tensor.placement_types"
#define OLD_PLACEMENTS "torch.distributed._tensor.placement_types"

static const struct name dtensor_names[] = {
    NAME("torch._tensor", "_rebuild_from_type_v2", WRAPPED, a_wrapped, NULL, NOTHING),
    TYPE("torch._utils", "_rebuild_wrapper_subclass"),
    TYPE("torch.distributed.tensor", "DTensor"),
    TYPE("torch.distributed._tensor.api", "DTensor"),
    NAME("torch.serialization", "_get_layout", PLAIN, a_layout, NULL, NOTHING),
    DTENSOR_PART(SPEC, "DTensorSpec"),
    DTENSOR_PART(OLD_PLACEMENTS, "DTensorSpec"),
    DTENSOR_PART(PLACEMENTS, "Shard"),
    DTENSOR_PART(OLD_PLACEMENTS, "Shard"),
    DTENSOR_PART(PLACEMENTS, "Replicate"),
    DTENSOR_PART(OLD_PLACEMENTS, "Replicate"),
    DTENSOR_PART("torch.distributed.device_mesh", "DeviceMesh"),
    DTENSOR_PART("torch.distributed._mesh_layout", "_MeshLayout"),
    DTENSOR_PART("torch.distributed._mesh_layout", "_FlatLayout"),
    NAME(SPEC, "ShardOrderEntry", PLAIN, an_order, NULL, BY_NEW),
    NAME(SPEC, "TensorMeta", PLAIN, a_meta, NULL, BY_NEW),
    NAME(OLD_PLACEMENTS, "TensorMeta", PLAIN, a_meta, NULL, BY_NEW),
};

enum { N_NAMES = sizeof names / sizeof *names };

static const struct name *name_at(uint16_t place)
{
    return place < N_NAMES ? &names[place] : &dtensor_names[place - N_NAMES];
}

/*
 * Returns the position of "MODULE\nNAME", N bytes, among the allowed names; -1 when it is none of
 * them. DTENSORS allows those of DTensors, too.
 */
static int find_name(const unsigned char *both, size_t n, bool dtensors)
{
    const size_t all = N_NAMES + (dtensors ? sizeof dtensor_names / sizeof *dtensor_names : 0);

    for (uint16_t i = 0; i < all; i++)
        if (name_at(i)->bytes == n && memcmp(name_at(i)->text, both, n) == 0)
            return (int)i;
    return -1;
}

/* Says whether Python makes a CALL (or a NEW) like this when it pickles an object of that name. */
static bool may_call(const struct rfs_node *call)
{
    const struct name *name = name_at(call->of.call.callee->of.global.allowed);

    return name->called && (name->takes == BY_NEW) == (call->kind == RFS_NODE_NEW) &&
           name->called(&call->of.call.args->of.items);
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

/* ---- the stack ------------------------------------------------------------------------------- */

struct unpickler {
    struct rfs_pickle *pickle;
    const char *file;
    struct rfs_error *err;             /* or NULL */
    const unsigned char *p, *end, *op; /* op: the opcode at hand */
    RFS_VEC(struct rfs_node *) stack;
    RFS_VEC(uint32_t) marks; /* heights of the stack */
    RFS_VEC(struct rfs_node *) memo;
    uint32_t pushes;
    size_t most; /* bytes of memory that it may take */
    struct rfs_budget *budget;
    uint64_t offset; /* where the pickle begins in the file */
    uint16_t origin;
    bool dtensors;
};

/* Returns where the opcode at hand is, for messages. */
static struct rfs_where here(const struct unpickler *machine)
{
    return RFS_AT(machine->file,
                  machine->offset + (uint64_t)(machine->op - machine->pickle->bytes));
}

static int fail(const struct unpickler *machine, const char *what)
{
    return rfs_fail(machine->err, -EINVAL, here(machine), REMEDY_COPY,
                    "the pickle in it is damaged: %s", what);
}

/* Fails as new_node did. */
static int fail_node(const struct unpickler *machine)
{
    if (machine->pickle->n_nodes < RFS_PICKLE_NODES && machine->pushes <= PUSHES_MOST)
        return rfs_fail_memory(machine->err);
    return rfs_fail(machine->err, -EINVAL, RFS_IN(machine->file), NULL,
                    "the pickle in it has more than %u values", RFS_PICKLE_NODES);
}

/* Pushes a node, or fails if NODE is NULL, as new_node returns it. */
static int push(struct unpickler *machine, struct rfs_node *node)
{
    if (!node || ++machine->pushes > PUSHES_MOST)
        return fail_node(machine);
    return RFS_PUSH(&machine->stack, node) ? 0 : rfs_fail_memory(machine->err);
}

/* Returns how many nodes lie above the last mark (or the bottom): only those may be taken. */
static size_t above_mark(const struct unpickler *machine)
{
    const size_t n = machine->marks.n;
    return machine->stack.n - (n > 0 ? machine->marks.data[n - 1] : 0);
}

static struct rfs_node *pop(struct unpickler *machine)
{
    return above_mark(machine) > 0 ? machine->stack.data[--machine->stack.n] : NULL;
}

static struct rfs_node *top(const struct unpickler *machine)
{
    return above_mark(machine) > 0 ? machine->stack.data[machine->stack.n - 1] : NULL;
}

/* Takes the last mark off. Returns the height that it marks, or -EINVAL with the error filled. */
static int64_t pop_mark(struct unpickler *machine)
{
    if (machine->marks.n == 0)
        return fail(machine, "no mark is set");
    return machine->marks.data[--machine->marks.n];
}

/* Makes a node of the pickle; NULL when there are too many, or out of memory. */
static struct rfs_node *new_node(struct unpickler *machine, enum rfs_node_kind kind)
{
    if (machine->pickle->n_nodes >= RFS_PICKLE_NODES)
        return NULL;
    /* Numbers take no more room than they need: there may be millions. */
    const bool is_number = kind == RFS_NODE_INT || kind == RFS_NODE_FLOAT;
    const size_t bytes =
        is_number ? offsetof(struct rfs_node, of) + sizeof(int64_t) : sizeof(struct rfs_node);
    struct rfs_node *node = rfs_arena_alloc(&machine->pickle->arena, bytes);
    if (node) {
        memset(node, 0, bytes);
        node->kind = (uint8_t)kind;
        node->origin = machine->origin;
        node->number = machine->pickle->n_nodes++;
    }
    return node;
}

/* ---- opcodes that make nodes of those on the stack ------------------------------------------- */

/* Moves the nodes above HEIGHT to ITEMS. */
static int move_items(struct unpickler *machine, size_t height, struct rfs_items *items)
{
    const size_t n = machine->stack.n - height;

    /* A stack that was never used has no memory. */
    if (n > 0 &&
        !rfs_pickle_add_items(&machine->pickle->arena, items, machine->stack.data + height, n))
        return rfs_fail_memory(machine->err);
    machine->stack.n = height;
    return 0;
}

/* Called once, when a tuple is made: a memo may hand the tuple to any number of calls. */
static bool check_counts(const struct rfs_items *items)
{
    for (uint32_t i = 0; i < items->n; i++)
        if (items->data[i]->kind != RFS_NODE_INT || items->data[i]->of.integer < 0)
            return false;
    return true;
}

/* Makes a node of those from HEIGHT on. A negative HEIGHT is an error, which is handed on. */
static int make_container(struct unpickler *machine, enum rfs_node_kind kind, int64_t height)
{
    struct rfs_node *node = new_node(machine, kind);

    if (height < 0)
        return (int)height;
    if (!node)
        return fail_node(machine);
    if (kind == RFS_NODE_DICT && (machine->stack.n - (size_t)height) % 2 != 0)
        return fail(machine, "a key without a value");
    const int rc = move_items(machine, (size_t)height, &node->of.items);
    node->callable = rc == 0 && kind == RFS_NODE_TUPLE && check_counts(&node->of.items);
    return rc ? rc : push(machine, node);
}

static int make_tuple(struct unpickler *machine, size_t n)
{
    if (above_mark(machine) < n)
        return fail(machine, "too few values for a tuple");
    return make_container(machine, RFS_NODE_TUPLE, (int64_t)(machine->stack.n - n));
}

static struct rfs_after *after_of(struct unpickler *machine, struct rfs_node *node)
{
    if (!node->of.call.after) {
        node->of.call.after = rfs_arena_alloc(&machine->pickle->arena, sizeof(struct rfs_after));
        if (node->of.call.after)
            *node->of.call.after = (struct rfs_after){NULL, NULL, NULL};
    }
    return node->of.call.after;
}

static bool is_call(const struct rfs_node *node)
{
    return node->kind == RFS_NODE_CALL || node->kind == RFS_NODE_NEW;
}

/* Gives the items that are appended to the object of a call or, DICT, set on it. */
static int items_after(struct unpickler *machine, struct rfs_node *call, bool dict,
                       struct rfs_items **items)
{
    struct rfs_after *after = after_of(machine, call);

    if (!after)
        return rfs_fail_memory(machine->err);
    struct rfs_node **slot = dict ? &after->dict : &after->list;
    if (!*slot)
        *slot = new_node(machine, dict ? RFS_NODE_DICT : RFS_NODE_LIST);
    if (!*slot)
        return fail_node(machine);
    *items = &(*slot)->of.items;
    return 0;
}

/* Adds the nodes from HEIGHT on to the list, dict or call below them. */
static int add(struct unpickler *machine, int64_t height, bool dict)
{
    const size_t below = machine->marks.n > 0 ? machine->marks.data[machine->marks.n - 1] : 0;
    struct rfs_items *items = NULL;

    if (height < 0)
        return (int)height;
    if ((size_t)height <= below)
        return fail(machine, "items without a container");
    if (dict && (machine->stack.n - (size_t)height) % 2 != 0)
        return fail(machine, "a key without a value");
    struct rfs_node *node = machine->stack.data[(size_t)height - 1];
    if (node->kind == (dict ? RFS_NODE_DICT : RFS_NODE_LIST)) {
        items = &node->of.items;
    } else if (is_call(node) && may_add(node, dict)) {
        const int rc = items_after(machine, node, dict, &items);
        if (rc)
            return rc;
    } else {
        return fail(machine, dict ? "items are set on something that is not a dict"
                                  : "items are added to something that is not a list");
    }
    return move_items(machine, (size_t)height, items);
}

/* Adds the last N nodes to the list, dict or call below them. */
static int add_last(struct unpickler *machine, size_t n, bool dict)
{
    if (above_mark(machine) < n + 1)
        return fail(machine, "items without a container");
    return add(machine, (int64_t)(machine->stack.n - n), dict);
}

static int push_global(struct unpickler *machine)
{
    const unsigned char *module = machine->p;
    const size_t left = (size_t)(machine->end - module);
    const unsigned char *first = memchr(module, '\n', left);
    const unsigned char *name = first ? first + 1 : NULL;
    const unsigned char *last = name ? memchr(name, '\n', (size_t)(machine->end - name)) : NULL;

    if (!last || first - module > NAME_MOST || last - name > NAME_MOST)
        return fail(machine, "a name without an end");
    machine->p = last + 1;
    const int place = find_name(module, (size_t)(last - module), machine->dtensors);
    if (place < 0)
        return rfs_fail(machine->err, -ENOTSUP, here(machine), REMEDY_PLAIN,
                        "the pickle in it names %.*s.%.*s, which is not read; nothing was executed",
                        (int)(first - module), (const char *)module, (int)(last - name),
                        (const char *)name);
    struct rfs_node *node = new_node(machine, RFS_NODE_GLOBAL);
    if (node) {
        node->callable = (uint8_t)name_at((uint16_t)place)->callable;
        node->of.global.module = (const char *)module;
        node->of.global.module_bytes = (uint16_t)(first - module);
        node->of.global.name_bytes = (uint16_t)(last - name);
        node->of.global.allowed = (uint16_t)place;
    }
    return push(machine, node);
}

static int fail_call(const struct unpickler *machine, const struct rfs_node *callee)
{
    return rfs_fail(
        machine->err, -ENOTSUP, here(machine), REMEDY_PLAIN,
        "the pickle in it uses %.*s.%.*s in a way that is not read; nothing was executed",
        (int)callee->of.global.module_bytes, callee->of.global.module,
        (int)callee->of.global.name_bytes, rfs_pickle_global_name(callee));
}

static int make_call(struct unpickler *machine, enum rfs_node_kind kind)
{
    struct rfs_node *args = pop(machine);
    struct rfs_node *callee = pop(machine);
    struct rfs_node *node = new_node(machine, kind);

    if (!args || !callee || args->kind != RFS_NODE_TUPLE || callee->kind != RFS_NODE_GLOBAL)
        return fail(machine, "a call of something that is not callable");
    if (!node)
        return fail_node(machine);
    node->of.call.callee = callee;
    node->of.call.args = args;
    return may_call(node) ? push(machine, node) : fail_call(machine, callee);
}

/* Gives the object below a state. */
static int give_state(struct unpickler *machine)
{
    struct rfs_node *state = pop(machine);
    struct rfs_node *node = top(machine);

    if (!state || !node || !is_call(node))
        return fail(machine, "a state without an object");
    if (!may_build(node, state))
        return fail_call(machine, node->of.call.callee);
    struct rfs_after *after = after_of(machine, node);
    if (!after)
        return rfs_fail_memory(machine->err);
    if (after->state)
        return fail(machine, "an object with two states");
    after->state = state;
    return 0;
}

/* Makes a storage of a persistent id: there are no others. */
static int make_storage(struct unpickler *machine)
{
    struct rfs_node *id = pop(machine);
    struct rfs_node *node = new_node(machine, RFS_NODE_STORAGE);

    if (!id || id->kind != RFS_NODE_TUPLE)
        return fail(machine, "a persistent id that is not a storage");
    struct rfs_node **item = id->of.items.data;
    if (id->of.items.n != 5 || !rfs_pickle_is_text(item[0], "storage") ||
        item[1]->kind != RFS_NODE_GLOBAL || item[1]->callable != RFS_CALL_STORAGE_CLASS ||
        item[2]->kind != RFS_NODE_TEXT || item[3]->kind != RFS_NODE_TEXT ||
        item[4]->kind != RFS_NODE_INT || item[4]->of.integer < 0)
        return fail(machine, "a persistent id that is not a storage");
    if (node)
        node->of.items = id->of.items;
    return push(machine, node);
}

/* ---- opcodes that read arguments ------------------------------------------------------------- */

/* Takes N bytes of an argument; NULL at the end of the pickle. */
static const unsigned char *take(struct unpickler *machine, size_t n)
{
    const unsigned char *at = machine->p;
    if (n > (size_t)(machine->end - at))
        return NULL;
    machine->p += n;
    return at;
}

static bool take_number(struct unpickler *machine, unsigned n, uint32_t *number)
{
    const unsigned char *p = take(machine, n);
    *number = 0;
    for (unsigned i = 0; p && i < n; i++)
        *number |= (uint32_t)p[i] << (8 * i);
    return p != NULL;
}

static int push_int(struct unpickler *machine, int64_t value)
{
    if (value >= 0 && value <= UINT16_MAX)
        return push(machine, constant(RFS_NODE_INT, (uint16_t)value));
    struct rfs_node *node = new_node(machine, RFS_NODE_INT);
    if (node)
        node->of.integer = value;
    return push(machine, node);
}

/* Pushes a little-endian two's complement of N bytes. */
static int push_long(struct unpickler *machine, uint32_t n)
{
    const unsigned char *p = take(machine, n);
    if (!p)
        return fail(machine, "it ends within a number");
    if (n <= 8) {
        uint64_t bits = n > 0 && p[n - 1] & 0x80 ? UINT64_MAX : 0;
        for (uint32_t i = n; i-- > 0;)
            bits = bits << 8 | p[i];
        int64_t value;
        memcpy(&value, &bits, sizeof value);
        return push_int(machine, value);
    }
    struct rfs_node *node = new_node(machine, RFS_NODE_LONG);
    if (node) {
        node->of.text.data = (const char *)p;
        node->of.text.n = n;
    }
    return push(machine, node);
}

static int push_float(struct unpickler *machine)
{
    const unsigned char *p = take(machine, 8);
    struct rfs_node *node = new_node(machine, RFS_NODE_FLOAT);
    if (!p)
        return fail(machine, "it ends within a number");
    for (unsigned i = 0; node && i < 8; i++)
        node->of.bits = node->of.bits << 8 | p[i];
    return push(machine, node);
}

/* Pushes a text with a length of LENGTH_BYTES before it; ASCII: it is a str of Python 2. */
static int push_text(struct unpickler *machine, unsigned length_bytes, bool ascii)
{
    uint32_t n;
    const unsigned char *p = take_number(machine, length_bytes, &n) ? take(machine, n) : NULL;
    struct rfs_node *node = new_node(machine, RFS_NODE_TEXT);
    if (!p)
        return fail(machine, "it ends within a text");
    for (uint32_t i = 0; ascii && i < n; i++)
        if (p[i] >= 0x80)
            return fail(machine, "a byte string of Python 2 that is not ASCII");
    if (!ascii && !rfs_text_is_python((const char *)p, n))
        return fail(machine, "a text that is not UTF-8");
    if (node) {
        node->of.text.data = (const char *)p;
        node->of.text.n = n;
    }
    return push(machine, node);
}

static int memo_put(struct unpickler *machine, unsigned bytes)
{
    uint32_t at;
    struct rfs_node *node = top(machine);

    if (!take_number(machine, bytes, &at) || !node)
        return fail(machine, "nothing to remember");
    if (at > machine->memo.n)
        return fail(machine, "a memo number out of order");
    if (at < machine->memo.n) {
        machine->memo.data[at] = node;
        return 0;
    }
    return RFS_PUSH(&machine->memo, node) ? 0 : rfs_fail_memory(machine->err);
}

static int memo_get(struct unpickler *machine, unsigned bytes)
{
    uint32_t at;

    if (!take_number(machine, bytes, &at) || at >= machine->memo.n)
        return fail(machine, "a memo number that was never set");
    return push(machine, machine->memo.data[at]);
}

static int refuse(const struct unpickler *machine)
{
    return rfs_fail(machine->err, -ENOTSUP, here(machine), REMEDY_SAVE,
                    "the pickle in it has the opcode 0x%02x, which torch.save does not write",
                    *machine->op);
}

static int protocol(struct unpickler *machine)
{
    const unsigned char *version = take(machine, 1);

    if (!version || machine->op != machine->pickle->bytes)
        return fail(machine, "a protocol number in the middle");
    if (*version != 2)
        return rfs_fail(machine->err, -ENOTSUP, RFS_IN(machine->file),
                        "save it again without pickle_protocol=",
                        "the pickle in it is of protocol %u; protocol 2 is read", *version);
    return 0;
}

static int push_sized_int(struct unpickler *machine, unsigned bytes)
{
    uint32_t number;
    int32_t with_sign;

    if (!take_number(machine, bytes, &number))
        return fail(machine, "it ends within a number");
    memcpy(&with_sign, &number, sizeof with_sign);
    return push_int(machine, bytes == 4 ? with_sign : (int64_t)number);
}

static int push_sized_long(struct unpickler *machine, unsigned bytes)
{
    uint32_t n;
    return take_number(machine, bytes, &n) ? push_long(machine, n)
                                           : fail(machine, "it ends within a number");
}

static int set_mark(struct unpickler *machine)
{
    if (++machine->pushes > PUSHES_MOST)
        return fail_node(machine);
    return RFS_PUSH(&machine->marks, (uint32_t)machine->stack.n) ? 0
                                                                 : rfs_fail_memory(machine->err);
}

static int drop_to_mark(struct unpickler *machine)
{
    const int64_t height = pop_mark(machine);
    if (height < 0)
        return (int)height;
    machine->stack.n = (size_t)height;
    return 0;
}

/* Returns the bytes of nodes and items, of the stack, the memo and marks. */
static size_t memory_of(const struct unpickler *machine)
{
    return machine->pickle->arena.bytes +
           (machine->stack.cap + machine->memo.cap) * sizeof(struct rfs_node *) +
           machine->marks.cap * sizeof *machine->marks.data;
}

static int fail_size(const struct unpickler *machine)
{
    if (machine->budget && memory_of(machine) > rfs_budget_rest(machine->budget))
        return rfs_budget_fail(machine->budget, machine->file, machine->err);
    return rfs_fail(machine->err, -EFBIG, here(machine), REMEDY_LISTS,
                    "the pickle in it would take more than %zu bytes of memory", machine->most);
}

static int step(struct unpickler *machine, unsigned char op)
{
    switch (op) {
    case 0x80:
        return protocol(machine);
    case '(':
        return set_mark(machine);
    case '0':
        return pop(machine) ? 0 : fail(machine, "nothing to drop");
    case '1':
        return drop_to_mark(machine);
    case '2':
        return top(machine) ? push(machine, top(machine)) : fail(machine, "nothing to repeat");
    case 'N':
        return push(machine, constant(RFS_NODE_NONE, 0));
    case 0x88:
    case 0x89:
        return push(machine, constant(RFS_NODE_BOOL, op == 0x88));
    case 'K':
        return push_sized_int(machine, 1);
    case 'M':
        return push_sized_int(machine, 2);
    case 'J':
        return push_sized_int(machine, 4);
    case 0x8a:
        return push_sized_long(machine, 1);
    case 0x8b:
        return push_sized_long(machine, 4);
    case 'G':
        return push_float(machine);
    case 'X':
        return push_text(machine, 4, false);
    case 'U':
        return push_text(machine, 1, true);
    case 'T':
        return push_text(machine, 4, true);
    case 'c':
        return push_global(machine);
    case ')':
        return make_tuple(machine, 0);
    case 't':
        return make_container(machine, RFS_NODE_TUPLE, pop_mark(machine));
    case 0x85:
    case 0x86:
    case 0x87:
        return make_tuple(machine, op - 0x84u);
    case ']':
        return push(machine, new_node(machine, RFS_NODE_LIST));
    case 'l':
        return make_container(machine, RFS_NODE_LIST, pop_mark(machine));
    case 'a':
        return add_last(machine, 1, false);
    case 'e':
        return add(machine, pop_mark(machine), false);
    case '}':
        return push(machine, new_node(machine, RFS_NODE_DICT));
    case 'd':
        return make_container(machine, RFS_NODE_DICT, pop_mark(machine));
    case 's':
        return add_last(machine, 2, true);
    case 'u':
        return add(machine, pop_mark(machine), true);
    case 'q':
        return memo_put(machine, 1);
    case 'r':
        return memo_put(machine, 4);
    case 'h':
        return memo_get(machine, 1);
    case 'j':
        return memo_get(machine, 4);
    case 'R':
        return make_call(machine, RFS_NODE_CALL);
    case 0x81:
        return make_call(machine, RFS_NODE_NEW);
    case 'b':
        return give_state(machine);
    case 'Q':
        return make_storage(machine);
    default:
        return refuse(machine);
    }
}

static int run(struct unpickler *machine)
{
    for (;;) {
        machine->op = machine->p;
        if (machine->p == machine->end)
            return fail(machine, "it has no end");
        const unsigned char op = *machine->p++;
        if (op == '.')
            break;
        int rc = step(machine, op);
        if (rc == 0 && memory_of(machine) > machine->most)
            rc = fail_size(machine);
        if (rc < 0)
            return rc;
    }
    if (machine->stack.n != 1 || machine->marks.n != 0)
        return fail(machine, "it ends with values left over, or with none");
    if (machine->p != machine->end)
        return fail(machine, "something follows its end");
    machine->pickle->root = machine->stack.data[0];
    return 0;
}

int rfs_pickle_read(unsigned char *bytes, size_t n, const struct rfs_pickle_from *from,
                    struct rfs_pickle *out, struct rfs_error *err)
{
    struct unpickler machine = {.pickle = out,
                                .most = rfs_pickle_memory(n),
                                .budget = from->budget,
                                .file = from->file,
                                .offset = from->offset,
                                .origin = from->origin,
                                .dtensors = from->dtensors,
                                .err = err};

    *out = (struct rfs_pickle){.bytes = bytes, .n_bytes = n};
    machine.p = machine.op = bytes;
    machine.end = bytes + n;
    int rc = 0;
    if (machine.budget) {
        rc = rfs_budget_take(machine.budget, n, from->file, err);
        machine.most = (size_t)rfs_min_u64(machine.most, rfs_budget_rest(machine.budget));
    }
    if (rc == 0)
        rc = run(&machine);
    if (rc == 0 && machine.budget)
        rc = rfs_budget_take(machine.budget, out->arena.bytes, from->file, err);
    free(machine.stack.data);
    free(machine.marks.data);
    free(machine.memo.data);
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
