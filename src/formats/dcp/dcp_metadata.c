/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .metadata of torch.distributed.checkpoint is a pickle. It is read by a stack machine without
 * effects, for the opcodes that Python writes with protocols 4 and 5:
 *
 *     80 V                 protocol V                95 u8                a frame of so many bytes
 *     28                   mark                      2e                   stop: the top is the result
 *     4e 88 89             None, True, False         4b u1 4d u2 4a s4    integers
 *     8a n …               an integer of n bytes     47 8 bytes           a float
 *     8c n … 58 nnnn …     texts                     93                   the name of two texts
 *     29 74 85 86 87       tuples: empty, to mark, of one, two, three
 *     5d 61 65             a list: empty; append one, append to mark
 *     7d 73 75             a dict: empty; set one, set to mark
 *     94                   memo: remember the top    68 u1 6a u4          push a remembered value
 *     52 81 62             call, new object, build: give the object below a state
 *
 * The objects in it:
 *
 *     Metadata               state_dict_metadata {name: TensorStorageMetadata | BytesStorageMetadata},
 *                            storage_data {MetadataIndex: _StorageInfo}, version "1.0.0" or none;
 *                            planner_data, storage_meta: ignored; mcore_data of Megatron-Core:
 *                            {name: {"nd_reformulated_orig_global_shape": shape} or an empty dict},
 *                            and all_local_plans, not looked at
 *     TensorStorageMetadata  properties, size, chunks [ChunkStorageMetadata]
 *     TensorProperties       (dtype, layout, …) or, by name, dtype, layout, …
 *     ChunkStorageMetadata   offsets, sizes
 *     MetadataIndex          fqn, offset of a chunk or none, index: a hint that is not needed
 *     _StorageInfo           relative_path, offset, length, transform_descriptors or none
 *
 * Source: pickletools of CPython; which of these torch writes: the .metadata of 2.1 to 2.15; their
 * names: torch/distributed/checkpoint/metadata.py and filesystem.py.
 */
#include "formats/dcp/dcp_metadata.h"

#include "base/budget.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "formats/dcp/dcp.h"

#define REMEDY_COPY "compare the file with its original, or save the checkpoint again"
#define CHUNKS_BEYOND 1000 /* chunks that are described, and may be stored nowhere */
#define REMEDY_SAVE "save it with torch.distributed.checkpoint.save of torch 2.1 or later"

/* ---- looking at values ----------------------------------------------------------------------- */

/* No class of torch has as many fields: the rest of an object that has more is ignored. */
#define FIELDS_MOST 16

/* Returns the number in a value. */
static uint32_t number_of(uint32_t value)
{
    return value >> RFS_DCP_KIND_BITS;
}

static const uint32_t *at(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return pickle->words.data + number_of(value);
}

bool rfs_dcp_integer(const struct rfs_dcp_pickle *pickle, uint32_t value, int64_t *integer)
{
    if (rfs_dcp_kind(value) == RFS_DCP_INT)
        *integer = number_of(value);
    else if (rfs_dcp_kind(value) == RFS_DCP_BIG)
        memcpy(integer, at(pickle, value), sizeof *integer);
    else
        return false;
    return true;
}

const char *rfs_dcp_text(const struct rfs_dcp_pickle *pickle, uint32_t value, size_t *bytes)
{
    return rfs_dcp_kind(value) == RFS_DCP_TEXT
               ? rfs_intern_bytes(pickle->texts, number_of(value), bytes)
               : NULL;
}

const uint32_t *rfs_dcp_tuple(const struct rfs_dcp_pickle *pickle, uint32_t value, uint32_t *n)
{
    if (rfs_dcp_kind(value) != RFS_DCP_TUPLE)
        return NULL;
    *n = *at(pickle, value);
    return at(pickle, value) + 1;
}

enum rfs_dcp_class rfs_dcp_class(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return rfs_dcp_kind(value) == RFS_DCP_OBJECT ? (enum rfs_dcp_class) * at(pickle, value)
                                                 : RFS_DCP_NO_CLASS;
}

uint32_t rfs_dcp_state(const struct rfs_dcp_pickle *pickle, uint32_t object)
{
    return rfs_dcp_kind(object) == RFS_DCP_OBJECT ? at(pickle, object)[1]
                                                  : rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

/* Returns the value of a dict by a key; None when it is not among the first 16. O(1). */
static uint32_t get(const struct rfs_dcp_pickle *pickle, uint32_t dict, enum rfs_dcp_word key)
{
    struct rfs_dcp_each each = rfs_dcp_each(pickle, dict);
    uint32_t name;
    uint32_t value;

    for (int i = 0; i < FIELDS_MOST && rfs_dcp_next(&each, &name) && rfs_dcp_next(&each, &value);
         i++)
        if (rfs_dcp_is_word(name, key))
            return value;
    return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

uint32_t rfs_dcp_field(const struct rfs_dcp_pickle *pickle, uint32_t object, enum rfs_dcp_word name)
{
    return get(pickle, rfs_dcp_state(pickle, object), name);
}

static bool has_items(uint32_t value)
{
    return rfs_dcp_kind(value) == RFS_DCP_LIST || rfs_dcp_kind(value) == RFS_DCP_DICT;
}

uint32_t rfs_dcp_count(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return has_items(value) ? *at(pickle, value) : 0;
}

struct rfs_dcp_each rfs_dcp_each(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return (struct rfs_dcp_each){pickle, has_items(value) ? at(pickle, value)[1] : 0, 0};
}

bool rfs_dcp_next(struct rfs_dcp_each *each, uint32_t *value)
{
    /* A block: the place of the next one, how many items, the items; none is empty. */
    const uint32_t *block = each->pickle->words.data + each->block;

    if (each->block == 0)
        return false;
    *value = block[2 + each->at++];
    if (each->at == block[1]) {
        each->block = block[0];
        each->at = 0;
    }
    return true;
}

/* ---- words and names ------------------------------------------------------------------------- */

static const char *const word_texts[RFS_DCP_WORDS] = {
    [RFS_DCP_STATE_DICT_METADATA] = "state_dict_metadata",
    [RFS_DCP_STORAGE_DATA] = "storage_data",
    [RFS_DCP_VERSION] = "version",
    [RFS_DCP_PROPERTIES] = "properties",
    [RFS_DCP_SIZE] = "size",
    [RFS_DCP_CHUNKS] = "chunks",
    [RFS_DCP_OFFSETS] = "offsets",
    [RFS_DCP_SIZES] = "sizes",
    [RFS_DCP_FQN] = "fqn",
    [RFS_DCP_OFFSET] = "offset",
    [RFS_DCP_RELATIVE_PATH] = "relative_path",
    [RFS_DCP_LENGTH] = "length",
    [RFS_DCP_TRANSFORMS] = "transform_descriptors",
    [RFS_DCP_DTYPE] = "dtype",
    [RFS_DCP_LAYOUT] = "layout",
    [RFS_DCP_STRIDED] = "torch.strided",
    [RFS_DCP_MCORE_DATA] = "mcore_data",
    [RFS_DCP_ORIGINAL_SHAPE] = "nd_reformulated_orig_global_shape",
};

/* The use of a name. */
enum use {
    USE_CLASS, /* an object of it is made, and given a state */
    USE_SHAPE, /* called with a tuple, which is its result */
    USE_SAME,  /* called with a text, which is its result */
    USE_ENUM,  /* called with a number; the result is not looked at */
    USE_PATH,  /* called with texts; the result is not looked at */
    USE_DICT,  /* called with nothing: an empty dict */
    USE_DTYPE, /* not called */
};

#define DCP "torch.distributed.checkpoint."
#define MCORE "megatron.core.dist_checkpointing."
#define SHARDED "torch.distributed._shard.sharded_tensor.metadata"

static const struct {
    const char *module;
    const char *name;
    enum use use;
    enum rfs_dcp_class class; /* class of a USE_CLASS */
} allowed[] = {
    {DCP "metadata", "Metadata", USE_CLASS, RFS_DCP_METADATA},
    {DCP "metadata", "TensorStorageMetadata", USE_CLASS, RFS_DCP_TENSOR},
    {DCP "metadata", "BytesStorageMetadata", USE_CLASS, RFS_DCP_BYTES},
    {DCP "metadata", "ChunkStorageMetadata", USE_CLASS, RFS_DCP_CHUNK},
    {DCP "metadata", "TensorProperties", USE_CLASS, RFS_DCP_TENSOR_PROPERTIES},
    {DCP "metadata", "MetadataIndex", USE_CLASS, RFS_DCP_INDEX},
    {DCP "metadata", "StorageMeta", USE_CLASS, RFS_DCP_STORAGE_META},
    {DCP "metadata", "_MEM_FORMAT_ENCODING", USE_ENUM, RFS_DCP_NO_CLASS},
    {DCP "filesystem", "_StorageInfo", USE_CLASS, RFS_DCP_STORAGE_INFO},
    {DCP "planner", "WriteItem", USE_CLASS, RFS_DCP_PLAN},
    {DCP "planner", "TensorWriteData", USE_CLASS, RFS_DCP_PLAN},
    {DCP "planner", "BytesIOWriteData", USE_CLASS, RFS_DCP_PLAN},
    {DCP "planner", "WriteItemType", USE_ENUM, RFS_DCP_NO_CLASS},
    {MCORE "strategies.torch", "MCoreSavePlan", USE_CLASS, RFS_DCP_PLAN},
    {SHARDED, "TensorProperties", USE_CLASS, RFS_DCP_TENSOR_PROPERTIES},
    {SHARDED, "MEM_FORMAT_ENCODING", USE_ENUM, RFS_DCP_NO_CLASS},
    {"torch", "Size", USE_SHAPE, RFS_DCP_NO_CLASS},
    {"torch.serialization", "_get_layout", USE_SAME, RFS_DCP_NO_CLASS},
    {"pathlib", "PosixPath", USE_PATH, RFS_DCP_NO_CLASS},
    {"pathlib._local", "PosixPath", USE_PATH, RFS_DCP_NO_CLASS},
    {"collections", "OrderedDict", USE_DICT, RFS_DCP_NO_CLASS},
};

/* Element types of torch that are not read. Source: torch/_C/__init__.pyi of torch 2.15. */
#define IS "its elements are torch."
static const char *const unread[] = {
    IS "float8_e8m0fnu",
    IS "float8_e4m3fnuz",
    IS "float8_e5m2fnuz",
    IS "float4_e2m1fn_x2",
    IS "complex32",
    IS "qint8",
    IS "quint8",
    IS "qint32",
    IS "quint4x2",
    IS "quint2x4",
    IS "bits8",
    IS "bits16",
    IS "bits1x8",
    IS "bits2x4",
    IS "bits4x2",
    IS "uint1",
    IS "uint2",
    IS "uint3",
    IS "uint4",
    IS "uint5",
    IS "uint6",
    IS "uint7",
    IS "int1",
    IS "int2",
    IS "int3",
    IS "int4",
    IS "int5",
    IS "int6",
    IS "int7",
};

enum {
    N_NAMES = sizeof allowed / sizeof *allowed,
    N_UNREAD = sizeof unread / sizeof *unread,
    DTYPES = RFS_DCP_NAMES + N_NAMES,
    UNREAD = DTYPES + RFS_DTYPE_COUNT,
};

/* Puts the words that mean something first into an empty table. False when out of memory. */
static bool add_words(struct rfs_intern *texts)
{
    for (uint32_t i = 0; i < RFS_DCP_WORDS; i++)
        if (rfs_intern_add(texts, word_texts[i], strlen(word_texts[i])) != i)
            return false;
    return true;
}

/* Returns the value of a name; None when the name may not stand in the file. */
static uint32_t find_name(const char *module, const char *name)
{
    for (uint32_t i = 0; i < N_NAMES; i++)
        if (strcmp(allowed[i].module, module) == 0 && strcmp(allowed[i].name, name) == 0)
            return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NAMES + i);
    for (uint32_t i = 0; strcmp(module, "torch") == 0 && i < RFS_DTYPE_COUNT; i++) {
        const char *dtype = rfs_torch_dtype_name((enum rfs_dtype)i);
        if (dtype && strcmp(dtype, name) == 0)
            return rfs_dcp_value(RFS_DCP_PLAIN, DTYPES + i);
    }
    for (uint32_t i = 0; strcmp(module, "torch") == 0 && i < N_UNREAD; i++)
        if (strcmp(unread[i] + strlen(IS), name) == 0)
            return rfs_dcp_value(RFS_DCP_PLAIN, UNREAD + i);
    return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

/* Says whether a value is a name, and gives its use. */
static bool find_use(uint32_t value, enum use *use)
{
    const uint32_t number = number_of(value);

    if (rfs_dcp_kind(value) != RFS_DCP_PLAIN || number < RFS_DCP_NAMES)
        return false;
    *use = number < DTYPES ? allowed[number - RFS_DCP_NAMES].use : USE_DTYPE;
    return true;
}

/* Returns the class that a name is, if its use is that. */
static enum rfs_dcp_class class_of(uint32_t value)
{
    return allowed[number_of(value) - RFS_DCP_NAMES].class;
}

bool rfs_dcp_dtype(uint32_t value, enum rfs_dtype *dtype)
{
    enum use use;

    if (!find_use(value, &use) || use != USE_DTYPE || rfs_dcp_unread_dtype(value))
        return false;
    *dtype = (enum rfs_dtype)(number_of(value) - DTYPES);
    return true;
}

const char *rfs_dcp_unread_dtype(uint32_t value)
{
    const uint32_t number = number_of(value);

    return rfs_dcp_kind(value) == RFS_DCP_PLAIN && number >= UNREAD ? unread[number - UNREAD]
                                                                    : NULL;
}

/* ---- the stack ------------------------------------------------------------------------------- */

enum {
    WINDOW_BYTES = 1 << 17,
    TEXT_MOST = 1 << 16,                         /* bytes: no name and no path is longer */
    NAME_MOST = 256,                             /* bytes of a module's or a class's name */
    LIST_WORDS = 3,                              /* words of the head of a list */
    BLOCK_WORDS = 2,                             /* words of the head of a block of items */
    EMPTY_TUPLE = 1,                             /* place of the empty tuple */
    NUMBER_MOST = 1 << (32 - RFS_DCP_KIND_BITS), /* numbers in a value */
};

struct machine {
    struct rfs_dcp_pickle *pickle;
    rfs_read_fn *read;
    void *ctx;
    uint64_t size;
    const char *file;
    struct rfs_error *err;
    size_t most;       /* bytes of memory that it may take */
    size_t text_bytes; /* bytes of memory of the texts */
    RFS_VEC(uint32_t) stack;
    RFS_VEC(uint32_t) marks; /* heights of the stack */
    RFS_VEC(uint32_t) memo;
    uint64_t op; /* where the opcode at hand is in the file */
    uint64_t at; /* where the window is */
    size_t p, n; /* position of the next byte in the window, and bytes of the window */
    unsigned char window[WINDOW_BYTES];
};

static struct rfs_where here(const struct machine *machine)
{
    return RFS_AT(machine->file, machine->op);
}

static int damaged(const struct machine *machine, const char *what)
{
    return rfs_fail(machine->err, -EINVAL, here(machine), REMEDY_COPY,
                    "the pickle in it is damaged: %s", what);
}

static int too_large(const struct machine *machine)
{
    return rfs_fail(machine->err, -EFBIG, here(machine), REMEDY_SAVE,
                    "the pickle in it would take more than %zu bytes of memory", machine->most);
}

static int push(struct machine *machine, uint32_t value)
{
    return RFS_PUSH(&machine->stack, value) ? 0 : rfs_fail_memory(machine->err);
}

/* Adds N words, zeroes, at *place. */
static int new_words(struct machine *machine, size_t n, uint32_t *place)
{
    struct rfs_dcp_pickle *pickle = machine->pickle;

    if (n > NUMBER_MOST - pickle->words.n)
        return too_large(machine);
    if (!RFS_RESERVE(&pickle->words, n))
        return rfs_fail_memory(machine->err);
    *place = (uint32_t)pickle->words.n;
    memset(pickle->words.data + *place, 0, n * sizeof(uint32_t));
    pickle->words.n += n;
    return 0;
}

/* Returns how many values lie above the last mark (or the bottom): only those may be taken. */
static size_t above_mark(const struct machine *machine)
{
    const size_t n = machine->marks.n;
    return machine->stack.n - (n > 0 ? machine->marks.data[n - 1] : 0);
}

static int pop(struct machine *machine, uint32_t *value)
{
    if (above_mark(machine) == 0)
        return damaged(machine, "a value is missing");
    *value = machine->stack.data[--machine->stack.n];
    return 0;
}

/* ---- operations on values -------------------------------------------------------------------- */

/* Makes a tuple of the values from HEIGHT on. */
static int tuple_from(struct machine *machine, size_t height)
{
    const size_t n = machine->stack.n - height;
    uint32_t place = EMPTY_TUPLE;
    const int rc = n > 0 ? new_words(machine, n + 1, &place) : 0;

    if (rc)
        return rc;
    if (n > 0) {
        machine->pickle->words.data[place] = (uint32_t)n;
        memcpy(machine->pickle->words.data + place + 1, machine->stack.data + height,
               n * sizeof(uint32_t));
    }
    machine->stack.n = height;
    return push(machine, rfs_dcp_value(RFS_DCP_TUPLE, place));
}

/* Makes a tuple of the last N values. */
static int make_tuple(struct machine *machine, size_t n)
{
    return above_mark(machine) < n ? damaged(machine, "a value is missing")
                                   : tuple_from(machine, machine->stack.n - n);
}

static int make_empty(struct machine *machine, enum rfs_dcp_kind kind)
{
    uint32_t place = 0;
    const int rc = new_words(machine, LIST_WORDS, &place);
    return rc ? rc : push(machine, rfs_dcp_value(kind, place));
}

/* Adds the values from HEIGHT on, as one block, to the list or dict below them. */
static int add_from(struct machine *machine, size_t height, enum rfs_dcp_kind kind)
{
    const size_t n = machine->stack.n - height;
    const size_t below = machine->marks.n > 0 ? machine->marks.data[machine->marks.n - 1] : 0;
    uint32_t place = 0;

    if (height <= below || rfs_dcp_kind(machine->stack.data[height - 1]) != kind)
        return damaged(machine, "items without a container");
    if (kind == RFS_DCP_DICT && n % 2 != 0)
        return damaged(machine, "a key without a value");
    if (n == 0)
        return 0;
    const int rc = new_words(machine, BLOCK_WORDS + n, &place);
    if (rc)
        return rc;
    uint32_t *words = machine->pickle->words.data;
    uint32_t *head = words + number_of(machine->stack.data[height - 1]);
    if (n > UINT32_MAX - head[0])
        return too_large(machine);
    words[place + 1] = (uint32_t)n;
    memcpy(words + place + BLOCK_WORDS, machine->stack.data + height, n * sizeof(uint32_t));
    *(head[2] ? &words[head[2]] : &head[1]) = place;
    head[2] = place;
    head[0] += (uint32_t)n;
    machine->stack.n = height;
    return 0;
}

/* Adds the last N values to the list or dict below them. */
static int add_last(struct machine *machine, size_t n, enum rfs_dcp_kind kind)
{
    return above_mark(machine) < n ? damaged(machine, "a value is missing")
                                   : add_from(machine, machine->stack.n - n, kind);
}

/* Takes the last mark off; *height is that of the stack below the values above it. */
static int pop_mark(struct machine *machine, size_t *height)
{
    if (machine->marks.n == 0)
        return damaged(machine, "no mark is set");
    *height = machine->marks.data[--machine->marks.n];
    return 0;
}

/* Makes a tuple of the values above the last mark, or adds them to the list or dict below it. */
static int add_to_mark(struct machine *machine, enum rfs_dcp_kind kind)
{
    size_t height = 0;
    const int rc = pop_mark(machine, &height);

    if (rc)
        return rc;
    return kind == RFS_DCP_TUPLE ? tuple_from(machine, height) : add_from(machine, height, kind);
}

static int push_name(struct machine *machine)
{
    uint32_t values[2];
    size_t n[2];
    int rc = pop(machine, &values[1]) ?: pop(machine, &values[0]);

    if (rc)
        return rc;
    const char *module = rfs_dcp_text(machine->pickle, values[0], &n[0]);
    const char *name = rfs_dcp_text(machine->pickle, values[1], &n[1]);
    if (!module || !name || n[0] > NAME_MOST || n[1] > NAME_MOST || strlen(module) != n[0] ||
        strlen(name) != n[1])
        return damaged(machine, "a name that is not one");
    const uint32_t value = find_name(module, name);
    if (value == rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE))
        return rfs_fail(machine->err, -ENOTSUP, here(machine), REMEDY_SAVE,
                        "the pickle in it names %s.%s, which is not read; nothing was executed",
                        module, name);
    return push(machine, value);
}

/* Pops a function, and the tuple of its arguments. */
static int pop_call(struct machine *machine, uint32_t *callee, enum use *use, const uint32_t **args,
                    uint32_t *n)
{
    uint32_t tuple = 0;
    int rc = pop(machine, &tuple) ?: pop(machine, callee);

    if (rc)
        return rc;
    *args = rfs_dcp_tuple(machine->pickle, tuple, n);
    return *args && find_use(*callee, use)
               ? 0
               : damaged(machine, "a call of something that is not callable");
}

static bool are_texts(const uint32_t *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (rfs_dcp_kind(values[i]) != RFS_DCP_TEXT)
            return false;
    return true;
}

static int make_call(struct machine *machine)
{
    uint32_t callee = 0;
    uint32_t n = 0;
    enum use use = USE_DTYPE;
    const uint32_t *args = NULL;
    const int rc = pop_call(machine, &callee, &use, &args, &n);

    if (rc)
        return rc;
    if ((use == USE_SHAPE && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_TUPLE) ||
        (use == USE_SAME && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_TEXT))
        return push(machine, args[0]);
    if ((use == USE_ENUM && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_INT) ||
        (use == USE_PATH && are_texts(args, n)))
        return push(machine, rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_OPAQUE));
    if (use == USE_DICT && n == 0)
        return make_empty(machine, RFS_DCP_DICT);
    return damaged(machine, "a call that torch does not write");
}

static int make_object(struct machine *machine)
{
    uint32_t callee = 0;
    uint32_t n = 0;
    uint32_t place = 0;
    enum use use = USE_DTYPE;
    const uint32_t *args;
    int rc = pop_call(machine, &callee, &use, &args, &n);

    if (rc)
        return rc;
    if (use != USE_CLASS || n != 0)
        return damaged(machine, "an object that torch does not write");
    rc = new_words(machine, 2, &place);
    if (rc)
        return rc;
    machine->pickle->words.data[place] = class_of(callee);
    return push(machine, rfs_dcp_value(RFS_DCP_OBJECT, place));
}

static int give_state(struct machine *machine)
{
    uint32_t state = 0;
    const int rc = pop(machine, &state);

    if (rc)
        return rc;
    if (above_mark(machine) == 0 ||
        (rfs_dcp_kind(state) != RFS_DCP_DICT && rfs_dcp_kind(state) != RFS_DCP_TUPLE))
        return damaged(machine, "a state without an object");
    const uint32_t object = machine->stack.data[machine->stack.n - 1];
    uint32_t *words = machine->pickle->words.data + number_of(object);
    if (rfs_dcp_kind(object) != RFS_DCP_OBJECT ||
        words[1] != rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE))
        return damaged(machine, "a state without an object");
    words[1] = state;
    return 0;
}

/* ---- bytes of the file ----------------------------------------------------------------------- */

/* Moves the window so that N bytes from the next one on are in it, and all that fit. */
static int refill(struct machine *machine, size_t n)
{
    const uint64_t next = machine->at + machine->p;

    if (n > machine->size - next)
        return damaged(machine, "it has no end");
    const uint64_t left = machine->size - next;
    const size_t fill = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
    const int rc = machine->read(machine->ctx, machine->window, fill, next);
    if (rc)
        return rfs_fail_read(machine->err, RFS_AT(machine->file, next), rc);
    machine->at = next;
    machine->p = 0;
    machine->n = fill;
    return 0;
}

/* Takes N bytes, valid until the next call. 0 or -errno with the error filled. */
static int take(struct machine *machine, size_t n, const unsigned char **bytes)
{
    const int rc = n > machine->n - machine->p ? refill(machine, n) : 0;

    *bytes = machine->window + machine->p;
    machine->p += rc ? 0 : n;
    return rc;
}

static int take_number(struct machine *machine, unsigned n, uint64_t *number)
{
    const unsigned char *p;
    const int rc = take(machine, n, &p);

    *number = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++)
        *number |= (uint64_t)p[i] << (8 * i);
    return rc;
}

/* ---- values that opcodes have in them -------------------------------------------------------- */

static int push_plain(struct machine *machine, enum rfs_dcp_plain plain)
{
    return push(machine, rfs_dcp_value(RFS_DCP_PLAIN, plain));
}

static int push_int(struct machine *machine, int64_t value)
{
    uint32_t place = 0;

    if (value >= 0 && value < NUMBER_MOST)
        return push(machine, rfs_dcp_value(RFS_DCP_INT, (uint32_t)value));
    const int rc = new_words(machine, sizeof value / sizeof(uint32_t), &place);
    if (rc)
        return rc;
    memcpy(machine->pickle->words.data + place, &value, sizeof value);
    return push(machine, rfs_dcp_value(RFS_DCP_BIG, place));
}

/* Pushes an integer of N bytes, little-endian; WITH_SIGN: two's complement. */
static int read_int(struct machine *machine, unsigned n, bool with_sign)
{
    uint64_t bits;
    int64_t value;
    const int rc = take_number(machine, n, &bits);

    if (rc)
        return rc;
    if (with_sign && n > 0 && n < 8 && bits >> (8 * n - 1))
        bits |= UINT64_MAX << 8 * n;
    memcpy(&value, &bits, sizeof value);
    return push_int(machine, value);
}

static int read_long(struct machine *machine)
{
    uint64_t n;
    const int rc = take_number(machine, 1, &n);

    if (rc)
        return rc;
    return n <= 8 ? read_int(machine, (unsigned)n, true)
                  : damaged(machine, "an integer of more than 64 bits");
}

static int read_text(struct machine *machine, unsigned length_bytes)
{
    const unsigned char *p;
    uint64_t n;
    int rc = take_number(machine, length_bytes, &n);

    if (rc == 0 && n > TEXT_MOST)
        rc = rfs_fail(machine->err, -ENOTSUP, here(machine), REMEDY_SAVE,
                      "a text in it has more than %d bytes", TEXT_MOST);
    if (rc == 0)
        rc = take(machine, (size_t)n, &p);
    if (rc)
        return rc;
    if (!rfs_text_is_python((const char *)p, (size_t)n))
        return damaged(machine, "a text that is not UTF-8");
    const uint32_t id = rfs_intern_add(machine->pickle->texts, p, (size_t)n);
    if (id == RFS_NO_ID)
        return rfs_fail_memory(machine->err);
    machine->text_bytes = rfs_intern_memory(machine->pickle->texts);
    return id < NUMBER_MOST ? push(machine, rfs_dcp_value(RFS_DCP_TEXT, id)) : too_large(machine);
}

/* ---- opcodes --------------------------------------------------------------------------------- */

static int protocol(struct machine *machine)
{
    uint64_t version;
    const int rc = take_number(machine, 1, &version);

    if (rc)
        return rc;
    if (machine->op != 0)
        return damaged(machine, "a protocol number in the middle");
    if (version != 4 && version != 5)
        return rfs_fail(machine->err, -ENOTSUP, RFS_IN(machine->file), REMEDY_SAVE,
                        "the pickle in it is of protocol %u; protocols 4 and 5 are read",
                        (unsigned)version);
    return 0;
}

/* Skips the head of a frame, which only says how much to read at once. */
static int frame(struct machine *machine)
{
    uint64_t n;
    const int rc = take_number(machine, 8, &n);

    if (rc)
        return rc;
    return n <= machine->size - (machine->at + machine->p)
               ? 0
               : damaged(machine, "it has no end: a frame is longer than the file");
}

static int skip_float(struct machine *machine)
{
    const unsigned char *p;
    const int rc = take(machine, 8, &p);
    return rc ? rc : push_plain(machine, RFS_DCP_OPAQUE);
}

static int set_mark(struct machine *machine)
{
    return RFS_PUSH(&machine->marks, (uint32_t)machine->stack.n) ? 0
                                                                 : rfs_fail_memory(machine->err);
}

static int memo_put(struct machine *machine)
{
    if (above_mark(machine) == 0)
        return damaged(machine, "nothing to remember");
    return RFS_PUSH(&machine->memo, machine->stack.data[machine->stack.n - 1])
               ? 0
               : rfs_fail_memory(machine->err);
}

static int memo_get(struct machine *machine, unsigned bytes)
{
    uint64_t i;
    const int rc = take_number(machine, bytes, &i);

    if (rc)
        return rc;
    return i < machine->memo.n ? push(machine, machine->memo.data[i])
                               : damaged(machine, "a memo number that was never set");
}

static int refuse(const struct machine *machine, unsigned char op)
{
    return rfs_fail(machine->err, -ENOTSUP, here(machine), REMEDY_SAVE,
                    "the pickle in it has the opcode 0x%02x, which torch does not write here", op);
}

static int step(struct machine *machine, unsigned char op)
{
    switch (op) {
    case 0x80:
        return protocol(machine);
    case 0x95:
        return frame(machine);
    case '(':
        return set_mark(machine);
    case 'N':
        return push_plain(machine, RFS_DCP_NONE);
    case 0x88:
        return push_plain(machine, RFS_DCP_TRUE);
    case 0x89:
        return push_plain(machine, RFS_DCP_FALSE);
    case 'K':
        return read_int(machine, 1, false);
    case 'M':
        return read_int(machine, 2, false);
    case 'J':
        return read_int(machine, 4, true);
    case 0x8a:
        return read_long(machine);
    case 'G':
        return skip_float(machine);
    case 0x8c:
        return read_text(machine, 1);
    case 'X':
        return read_text(machine, 4);
    case 0x93:
        return push_name(machine);
    case ')':
        return make_tuple(machine, 0);
    case 't':
        return add_to_mark(machine, RFS_DCP_TUPLE);
    case 0x85:
    case 0x86:
    case 0x87:
        return make_tuple(machine, op - 0x84u);
    case ']':
        return make_empty(machine, RFS_DCP_LIST);
    case 'a':
        return add_last(machine, 1, RFS_DCP_LIST);
    case 'e':
        return add_to_mark(machine, RFS_DCP_LIST);
    case '}':
        return make_empty(machine, RFS_DCP_DICT);
    case 's':
        return add_last(machine, 2, RFS_DCP_DICT);
    case 'u':
        return add_to_mark(machine, RFS_DCP_DICT);
    case 0x94:
        return memo_put(machine);
    case 'h':
        return memo_get(machine, 1);
    case 'j':
        return memo_get(machine, 4);
    case 'R':
        return make_call(machine);
    case 0x81:
        return make_object(machine);
    case 'b':
        return give_state(machine);
    default:
        return refuse(machine, op);
    }
}

/* Returns the bytes of the values, the stack, the memo and marks. */
static size_t memory_of(const struct machine *machine)
{
    return machine->text_bytes +
           (machine->pickle->words.n + machine->stack.n + machine->marks.n + machine->memo.n) *
               sizeof(uint32_t);
}

static int run(struct machine *machine)
{
    for (;;) {
        const unsigned char *op;
        machine->op = machine->at + machine->p;
        int rc = take(machine, 1, &op);
        if (rc == 0 && *op == '.')
            break;
        if (rc == 0)
            rc = step(machine, *op);
        if (rc == 0 && memory_of(machine) > machine->most)
            rc = too_large(machine);
        if (rc)
            return rc;
    }
    if (machine->stack.n != 1 || machine->marks.n != 0)
        return damaged(machine, "it ends with values left over, or with none");
    if (machine->at + machine->p != machine->size)
        return damaged(machine, "something follows its end");
    machine->pickle->root = machine->stack.data[0];
    return 0;
}

static int begin(struct machine *machine)
{
    struct rfs_dcp_pickle *pickle = machine->pickle;
    uint32_t place;

    pickle->texts = rfs_intern_new();
    if (!pickle->texts || !add_words(pickle->texts))
        return rfs_fail_memory(machine->err);
    /* Nothing is at place 0; the empty tuple is at 1. */
    return new_words(machine, EMPTY_TUPLE + 1, &place);
}

static int fail_file_size(const struct machine *machine)
{
    return rfs_fail(machine->err, -EFBIG, RFS_IN(machine->file), NULL,
                    "the file has more than %llu bytes", (unsigned long long)RFS_DCP_MOST);
}

int rfs_dcp_pickle_read(rfs_read_fn *read, void *ctx, uint64_t size, const char *file,
                        struct rfs_dcp_pickle *out, struct rfs_error *err)
{
    RFS_FREE struct machine *machine = malloc(sizeof *machine);

    *out = (struct rfs_dcp_pickle){.root = rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE)};
    if (!machine)
        return rfs_fail_memory(err);
    memset(machine, 0, offsetof(struct machine, window));
    machine->pickle = out;
    machine->read = read;
    machine->ctx = ctx;
    machine->size = size;
    machine->file = file;
    machine->err = err;
    machine->most = rfs_dcp_memory(size);
    int rc = size <= RFS_DCP_MOST ? begin(machine) : fail_file_size(machine);
    if (rc == 0)
        rc = run(machine);
    free(machine->stack.data);
    free(machine->marks.data);
    free(machine->memo.data);
    if (rc)
        rfs_dcp_pickle_free(out);
    return rc;
}

void rfs_dcp_pickle_free(struct rfs_dcp_pickle *pickle)
{
    free(pickle->words.data);
    rfs_intern_free(pickle->texts);
    *pickle = (struct rfs_dcp_pickle){.root = rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE)};
}

/* ---- what it describes ----------------------------------------------------------------------- */

struct metadata {
    struct rfs_dcp_pickle pickle;
    const char *file; /* path of .metadata */
    struct rfs_chunks *chunks;
    struct rfs_error *err;
    size_t n_stored; /* entries of storage_data */
    size_t n_chunks; /* declared so far */
};

static int fail(const struct metadata *metadata, const char *param, const char *what)
{
    return rfs_fail(metadata->err, -EINVAL, RFS_OF(metadata->file, param), REMEDY_COPY,
                    "the metadata is damaged: %s", what);
}

static bool is_none(uint32_t value)
{
    return value == rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

/* Gives the numbers of an offset or a size. False when it is none. */
static bool take_shape(const struct rfs_dcp_pickle *pickle, uint32_t value, uint32_t *n,
                       uint64_t *out)
{
    const uint32_t *items = rfs_dcp_tuple(pickle, value, n);

    if (!items || *n > RFS_MAX_DIMS)
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        int64_t number;
        if (!rfs_dcp_integer(pickle, items[i], &number) || number < 0)
            return false;
        out[i] = (uint64_t)number;
    }
    return true;
}

/*
 * Reads TensorProperties, whose state is a tuple, or the fields by name. *WHY is set for a tensor
 * that is not read, and else NULL.
 */
static int read_properties(const struct metadata *metadata, const char *name, uint32_t properties,
                           struct rfs_type *type, const char **why)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    uint32_t n = 0;
    const uint32_t *items = rfs_dcp_tuple(pickle, rfs_dcp_state(pickle, properties), &n);
    const uint32_t named = n >= 2 ? items[0] : rfs_dcp_field(pickle, properties, RFS_DCP_DTYPE);
    const uint32_t layout = n >= 2 ? items[1] : rfs_dcp_field(pickle, properties, RFS_DCP_LAYOUT);
    enum rfs_dtype dtype = RFS_BOOL;

    *why = rfs_dcp_unread_dtype(named);
    if (rfs_dcp_class(pickle, properties) != RFS_DCP_TENSOR_PROPERTIES ||
        (!*why && !rfs_dcp_dtype(named, &dtype)) || rfs_dcp_kind(layout) != RFS_DCP_TEXT)
        return fail(metadata, name, "a tensor without a dtype or a layout");
    type->dtype = (uint8_t)dtype;
    if (!rfs_dcp_is_word(layout, RFS_DCP_STRIDED))
        *why = "its layout is not torch.strided";
    return 0;
}

static int declare_chunk(struct metadata *metadata, const char *name, const struct rfs_type *type,
                         uint32_t chunk)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    uint64_t corner[RFS_MAX_DIMS];
    uint64_t sizes[RFS_MAX_DIMS];
    uint32_t n[2] = {0, 0};

    if (rfs_dcp_class(pickle, chunk) != RFS_DCP_CHUNK ||
        !take_shape(pickle, rfs_dcp_field(pickle, chunk, RFS_DCP_OFFSETS), &n[0], corner) ||
        !take_shape(pickle, rfs_dcp_field(pickle, chunk, RFS_DCP_SIZES), &n[1], sizes) ||
        n[0] != type->ndim || n[1] != type->ndim)
        return fail(metadata, name, "a chunk without offsets and sizes");
    /*
     * A few bytes can name a long list of chunks again and again. Of a few too many, the one that
     * is described twice is a copy, and one that is stored nowhere is found, with its tensor,
     * later.
     */
    if (++metadata->n_chunks > metadata->n_stored + CHUNKS_BEYOND)
        return fail(metadata, NULL, "it stores fewer chunks than it describes");
    return rfs_chunks_add_chunk(metadata->chunks, corner, sizes, metadata->err);
}

static int declare_tensor(struct metadata *metadata, uint32_t key, uint32_t value)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t chunks = rfs_dcp_field(pickle, value, RFS_DCP_CHUNKS);
    struct rfs_dcp_each each = rfs_dcp_each(pickle, chunks);
    struct rfs_type type = {.kind = RFS_TENSOR};
    uint32_t ndim = 0;
    uint32_t chunk;
    size_t n = 0;
    const char *name = rfs_dcp_text(pickle, key, &n);

    if (!take_shape(pickle, rfs_dcp_field(pickle, value, RFS_DCP_SIZE), &ndim, type.dims) ||
        rfs_dcp_kind(chunks) != RFS_DCP_LIST)
        return fail(metadata, name, "a tensor without a size or chunks");
    type.ndim = (uint8_t)ndim;
    const char *why;
    int rc = read_properties(metadata, name, rfs_dcp_field(pickle, value, RFS_DCP_PROPERTIES),
                             &type, &why);
    if (rc == 0 && why)
        return rfs_chunks_add_unread(metadata->chunks, name, n, why, metadata->err);
    if (rc == 0)
        rc = rfs_chunks_add_tensor(metadata->chunks, name, n, &type, metadata->err);
    while (rc == 0 && rfs_dcp_next(&each, &chunk))
        rc = declare_chunk(metadata, name, &type, chunk);
    return rc;
}

static int declare_all(struct metadata *metadata)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t names = rfs_dcp_field(pickle, pickle->root, RFS_DCP_STATE_DICT_METADATA);
    struct rfs_dcp_each each = rfs_dcp_each(pickle, names);
    uint32_t key;
    uint32_t value;
    int rc = 0;

    if (rfs_dcp_kind(names) != RFS_DCP_DICT)
        return fail(metadata, NULL, "it has no state_dict_metadata");
    while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        size_t n = 0;
        const char *name = rfs_dcp_text(pickle, key, &n);
        if (!name || n == 0 || !rfs_text_is_utf8(name, n))
            return fail(metadata, NULL, "a name that is not UTF-8 text without NULs");
        if (rfs_dcp_class(pickle, value) == RFS_DCP_TENSOR)
            rc = declare_tensor(metadata, key, value);
        else if (rfs_dcp_class(pickle, value) == RFS_DCP_BYTES)
            rc = rfs_chunks_add_object(metadata->chunks, name, n, metadata->err);
        else
            rc = fail(metadata, name, "it is neither a tensor nor an object");
    }
    return rc ? rc : rfs_chunks_sort(metadata->chunks, metadata->err);
}

/* The bytes of an item: the file, and the range in it. */
struct stored {
    uint32_t file;
    uint64_t offset, bytes;
};

static int read_stored(const struct metadata *metadata, const char *name, uint32_t info,
                       struct stored *out)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t transforms = rfs_dcp_field(pickle, info, RFS_DCP_TRANSFORMS);
    int64_t offset = -1;
    int64_t bytes = -1;
    size_t n = 0;
    const char *path = rfs_dcp_text(pickle, rfs_dcp_field(pickle, info, RFS_DCP_RELATIVE_PATH), &n);

    rfs_dcp_integer(pickle, rfs_dcp_field(pickle, info, RFS_DCP_OFFSET), &offset);
    rfs_dcp_integer(pickle, rfs_dcp_field(pickle, info, RFS_DCP_LENGTH), &bytes);
    if (!path || offset < 0 || bytes < 0 || bytes > INT64_MAX - offset)
        return fail(metadata, name, "it is stored without a file, an offset or a length");
    if (!is_none(transforms) && rfs_dcp_count(pickle, transforms) > 0)
        return rfs_fail(metadata->err, -ENOTSUP, RFS_OF(metadata->file, name),
                        "save it without extensions of the writer",
                        "is stored compressed, or by another extension of torch's writer");
    *out = (struct stored){.offset = (uint64_t)offset, .bytes = (uint64_t)bytes};
    out->file = rfs_chunks_add_file(metadata->chunks, path, n, metadata->err);
    return out->file != RFS_NO_ID ? 0 : metadata->err ? metadata->err->code : -EINVAL;
}

static int store_chunk(const struct metadata *metadata, const char *name, size_t n, uint32_t offset,
                       const struct stored *stored)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(metadata->chunks, name, n);
    uint64_t corner[RFS_MAX_DIMS];
    uint32_t ndim = 0;

    if (!tensor || !take_shape(&metadata->pickle, offset, &ndim, corner) ||
        ndim != rfs_chunks_type(metadata->chunks, tensor->type)->ndim)
        return fail(metadata, name, "it stores a chunk of a tensor that it does not describe");
    return rfs_chunks_store(metadata->chunks, tensor, corner, stored->file, stored->offset,
                            stored->bytes, metadata->err);
}

static int store(struct metadata *metadata, uint32_t index, uint32_t info)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t offset = rfs_dcp_field(pickle, index, RFS_DCP_OFFSET);
    struct stored stored = {.file = RFS_NO_ID};
    size_t n = 0;
    const char *name = rfs_dcp_text(pickle, rfs_dcp_field(pickle, index, RFS_DCP_FQN), &n);

    if (rfs_dcp_class(pickle, index) != RFS_DCP_INDEX ||
        rfs_dcp_class(pickle, info) != RFS_DCP_STORAGE_INFO || !name)
        return fail(metadata, NULL, "its storage_data has something else than places");
    if (rfs_chunks_is_unread(metadata->chunks, name, n))
        return 0;
    const int rc = read_stored(metadata, name, info, &stored);
    if (rc)
        return rc;
    if (!is_none(offset))
        return store_chunk(metadata, name, n, offset, &stored);
    if (rfs_chunks_find(metadata->chunks, name, n))
        return fail(metadata, name, "it stores a chunk without an offset");
    return rfs_chunks_store_object(metadata->chunks, name, n, stored.file, stored.offset,
                                   stored.bytes, metadata->err);
}

static int store_all(struct metadata *metadata)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    struct rfs_dcp_each each =
        rfs_dcp_each(pickle, rfs_dcp_field(pickle, pickle->root, RFS_DCP_STORAGE_DATA));
    uint32_t key;
    uint32_t value;
    int rc = 0;

    while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        rc = store(metadata, key, value);
    return rc ? rc : rfs_chunks_finish(metadata->chunks, metadata->err);
}

static int unflatten(const struct metadata *metadata, uint32_t key, uint32_t value)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t shape = get(pickle, value, RFS_DCP_ORIGINAL_SHAPE);
    uint64_t dims[RFS_MAX_DIMS];
    uint32_t ndim = 0;
    size_t n = 0;
    const char *name = rfs_dcp_text(pickle, key, &n);

    if (is_none(shape))
        return 0;
    return name && take_shape(pickle, shape, &ndim, dims)
               ? rfs_chunks_unflatten(metadata->chunks, name, n, ndim, dims, metadata->err)
               : fail(metadata, name, "a shape in mcore_data that is none");
}

/*
 * Checks a tensor when there is no mcore_data, which some versions of torch lose. A tensor that is
 * the state of another one, and may have been flattened, was: its order is not known for certain.
 */
static int check_state(const struct metadata *metadata, const struct rfs_chunked_tensor *tensor)
{
    static const char state[] = "optimizer.state.";
    struct rfs_chunks *chunks = metadata->chunks;
    const char *name = rfs_intern_text(chunks->tables->names, tensor->name);
    const char *kind = strstr(name, state);
    const char *dot = kind ? strchr(kind + strlen(state), '.') : NULL;
    const struct rfs_chunked_tensor *of =
        dot ? rfs_chunks_find(chunks, dot + 1, strlen(dot + 1)) : NULL;

    if (!of || !rfs_chunks_may_be_flat(chunks, tensor, of))
        return 0;
    return rfs_chunks_add_unread(chunks, name, strlen(name),
                                 "Megatron-Core flattened it, and the metadata lacks its shape "
                                 "(mcore_data)",
                                 metadata->err);
}

static int unflatten_all(struct metadata *metadata)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t data = rfs_dcp_field(pickle, pickle->root, RFS_DCP_MCORE_DATA);
    struct rfs_dcp_each each = rfs_dcp_each(pickle, data);
    uint32_t key;
    uint32_t value;
    int rc = 0;

    metadata->chunks->mcore_data = rfs_dcp_kind(data) == RFS_DCP_DICT;
    while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        rc = unflatten(metadata, key, value);
    for (size_t i = 0; rc == 0 && !metadata->chunks->mcore_data && i < metadata->chunks->tensors.n;
         i++)
        rc = check_state(metadata, &metadata->chunks->tensors.data[i]);
    return rc;
}

static int check_root(struct metadata *metadata)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t version = rfs_dcp_field(pickle, pickle->root, RFS_DCP_VERSION);
    const uint32_t data = rfs_dcp_field(pickle, pickle->root, RFS_DCP_STORAGE_DATA);
    const char *text = rfs_dcp_text(pickle, version, NULL);

    if (rfs_dcp_class(pickle, pickle->root) != RFS_DCP_METADATA)
        return fail(metadata, NULL, "it is another object");
    if (!is_none(version) && (!text || strncmp(text, "1.", 2) != 0))
        return rfs_fail(metadata->err, -ENOTSUP, RFS_IN(metadata->file), NULL,
                        "the metadata is of version %s; version 1 is read",
                        text ? text : "unknown");
    if (rfs_dcp_kind(data) != RFS_DCP_DICT)
        return fail(metadata, NULL, "it has no storage_data");
    metadata->n_stored = rfs_dcp_count(pickle, data) / 2;
    return 0;
}

int rfs_dcp_describe(rfs_read_fn *read, void *ctx, uint64_t size, struct rfs_chunks *chunks,
                     struct rfs_error *err)
{
    struct metadata metadata = {
        .file = rfs_files_path(chunks->files, chunks->metadata), .chunks = chunks, .err = err};
    RFS_BUDGET_SHARE share = 0;

    int rc = rfs_budget_share_take(&share, rfs_dcp_memory(size));
    if (rc < 0)
        return rfs_files_fail(err, metadata.file, rc);
    rc = rfs_dcp_pickle_read(read, ctx, size, metadata.file, &metadata.pickle, err)
            ?: check_root(&metadata)
            ?: declare_all(&metadata)
            ?: store_all(&metadata)
            ?: unflatten_all(&metadata);
    rfs_dcp_pickle_free(&metadata.pickle);
    return rc;
}
