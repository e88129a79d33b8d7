/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .metadata of torch.distributed.checkpoint is a pickle of protocol 4 or 5, which
 * formats/torch/unpickler.h reads.
 *
 * The objects in it:
 *
 *     Metadata               state_dict_metadata {name: TensorStorageMetadata | BytesStorageMetadata},
 *                            storage_data {MetadataIndex: _StorageInfo}, version "1.0.0" or none;
 *                            planner_data {name: (key, …)}, the keys that lead to a value, texts
 *                            and the numbers of items of lists; storage_meta: ignored; mcore_data
 *                            of Megatron-Core:
 *                            {name: {"nd_reformulated_orig_global_shape": shape} or an empty dict},
 *                            and all_local_plans, not looked at
 *     TensorStorageMetadata  properties, size, chunks [ChunkStorageMetadata]
 *     TensorProperties       (dtype, layout, …) or, by name, dtype, layout, …
 *     ChunkStorageMetadata   offsets, sizes
 *     MetadataIndex          fqn, offset of a chunk or none, index: a hint that is not needed
 *     _StorageInfo           relative_path, offset, length, transform_descriptors or none
 *
 * Source: torch/distributed/checkpoint/metadata.py and filesystem.py of torch 2.1 to 2.15.
 */
#include "formats/dcp/dcp_metadata.h"

#include "base/budget.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "formats/dcp/dcp.h"
#include "formats/torch/torch.h"
#include "formats/torch/unpickler.h"

#define REMEDY_COPY "compare the file with its original, or save the checkpoint again"
#define CHUNKS_BEYOND 1000 /* chunks that are described, and may be stored nowhere */

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

const char *const rfs_dcp_words[RFS_DCP_WORDS] = {
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
    [RFS_DCP_INDEX_HINT] = "index",
    [RFS_DCP_PLANNER_DATA] = "planner_data",
    [RFS_DCP_STORAGE_META_FIELD] = "storage_meta",
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

void rfs_dcp_class_name(enum rfs_dcp_class class, const char **module, const char **name)
{
    size_t i = 0;

    while (allowed[i].class != class)
        i++;
    *module = allowed[i].module;
    *name = allowed[i].name;
}

/* Element types of torch that are not read. Source: torch/_C/__init__.pyi of torch 2.15. */
#define IS "its elements are torch."
static const char *const unread[] = {
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
        if (rfs_intern_add(texts, rfs_dcp_words[i], strlen(rfs_dcp_words[i])) != i)
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

/* ---- the builder ----------------------------------------------------------------------------- */

enum {
    TEXT_MOST = 1 << 16,                         /* bytes: no name and no path is longer */
    NAME_MOST = 256,                             /* bytes of a module's or a class's name */
    LIST_WORDS = 3,                              /* words of the head of a list */
    BLOCK_WORDS = 2,                             /* words of the head of a block of items */
    EMPTY_TUPLE = 1,                             /* place of the empty tuple */
    NUMBER_MOST = 1 << (32 - RFS_DCP_KIND_BITS), /* numbers in a value */
};

struct building {
    struct rfs_dcp_pickle *pickle;
    size_t text_bytes; /* bytes of memory of the texts */
};

static struct rfs_dcp_pickle *pickle_of(const struct rfs_unpickler *machine)
{
    const struct building *building = machine->ctx;
    return building->pickle;
}

/* Adds N words, zeroes, and returns their place; 0 after a failure. */
static uint32_t new_words(struct rfs_unpickler *machine, size_t n)
{
    struct rfs_dcp_pickle *pickle = pickle_of(machine);
    const uint32_t place = (uint32_t)pickle->words.n;

    if (n > NUMBER_MOST - pickle->words.n)
        return (uint32_t)rfs_unpickler_fail_size(machine);
    if (!RFS_RESERVE(&pickle->words, n))
        return (uint32_t)rfs_unpickler_fail_memory(machine);
    memset(pickle->words.data + place, 0, n * sizeof(uint32_t));
    pickle->words.n += n;
    return place;
}

static uint64_t make_constant(struct rfs_unpickler *machine, unsigned char op)
{
    (void)machine;
    return rfs_dcp_value(RFS_DCP_PLAIN, op == 'N'    ? RFS_DCP_NONE
                                        : op == 0x88 ? RFS_DCP_TRUE
                                                     : RFS_DCP_FALSE);
}

static uint64_t make_int(struct rfs_unpickler *machine, int64_t value)
{
    if (value >= 0 && value < NUMBER_MOST)
        return rfs_dcp_value(RFS_DCP_INT, (uint32_t)value);
    const uint32_t place = new_words(machine, sizeof value / sizeof(uint32_t));
    if (place)
        memcpy(pickle_of(machine)->words.data + place, &value, sizeof value);
    return rfs_dcp_value(RFS_DCP_BIG, place);
}

static uint64_t make_float(struct rfs_unpickler *machine, uint64_t bits)
{
    (void)machine;
    (void)bits;
    return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_OPAQUE);
}

static uint64_t make_text(struct rfs_unpickler *machine, const unsigned char *bytes, size_t n)
{
    struct building *building = machine->ctx;
    const uint32_t id = rfs_intern_add(building->pickle->texts, bytes, n);

    if (id == RFS_NO_ID)
        return rfs_unpickler_fail_memory(machine);
    building->text_bytes = rfs_intern_memory(building->pickle->texts);
    return id < NUMBER_MOST ? rfs_dcp_value(RFS_DCP_TEXT, id) : rfs_unpickler_fail_size(machine);
}

/* Makes N words of the values of the stack from HEIGHT on, behind HEAD others; 0: a failure. */
static uint32_t copy_values(struct rfs_unpickler *machine, size_t height, uint32_t head)
{
    const size_t n = machine->stack.n - height;
    const uint32_t place = new_words(machine, head + n);
    uint32_t *words = pickle_of(machine)->words.data + place;

    if (place) {
        words[head - 1] = (uint32_t)n;
        memcpy(words + head, (const uint32_t *)machine->stack.data + height, n * sizeof *words);
    }
    return place;
}

static uint64_t make_container(struct rfs_unpickler *machine, unsigned char kind, size_t height)
{
    if (kind == 't')
        return rfs_dcp_value(RFS_DCP_TUPLE, machine->stack.n > height
                                                ? copy_values(machine, height, 1)
                                                : EMPTY_TUPLE);
    return rfs_dcp_value(kind == 'd' ? RFS_DCP_DICT : RFS_DCP_LIST, new_words(machine, LIST_WORDS));
}

/* Adds the values from HEIGHT on, as one block, to a list or dict. */
static void add(struct rfs_unpickler *machine, uint64_t container, size_t height, bool dict)
{
    const size_t n = machine->stack.n - height;
    const uint32_t value = (uint32_t)container;

    if (rfs_dcp_kind(value) != (dict ? RFS_DCP_DICT : RFS_DCP_LIST))
        rfs_unpickler_fail(machine, "items without a container");
    else if (dict && n % 2 != 0)
        rfs_unpickler_fail(machine, "a key without a value");
    const uint32_t place =
        n > 0 && machine->rc == 0 ? copy_values(machine, height, BLOCK_WORDS) : 0;
    if (place == 0)
        return;
    uint32_t *words = pickle_of(machine)->words.data;
    uint32_t *head = words + number_of(value);
    *(head[2] ? &words[head[2]] : &head[1]) = place;
    head[2] = place;
    head[0] += (uint32_t)n;
}

/* Returns a text that may be a name; NULL for all else. */
static const char *name_text(const struct rfs_unpickler *machine, uint64_t value)
{
    size_t n = 0;
    const char *text = rfs_dcp_text(pickle_of(machine), (uint32_t)value, &n);
    return text && n <= NAME_MOST && strlen(text) == n ? text : NULL;
}

static uint64_t make_name(struct rfs_unpickler *machine)
{
    const char *name = name_text(machine, rfs_unpickler_pop(machine, NULL));
    const char *module = name_text(machine, rfs_unpickler_pop(machine, NULL));

    if (!module || !name)
        return rfs_unpickler_fail(machine, "a name that is not one");
    return find_name(module, name)
               ?: rfs_unpickler_fail_name(machine, module, strlen(module), name, strlen(name));
}

static bool are_texts(const uint32_t *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (rfs_dcp_kind(values[i]) != RFS_DCP_TEXT)
            return false;
    return true;
}

static uint64_t make_object(struct rfs_unpickler *machine, uint32_t callee)
{
    const uint32_t place = new_words(machine, 2);

    if (place)
        pickle_of(machine)->words.data[place] = class_of(callee);
    return rfs_dcp_value(RFS_DCP_OBJECT, place);
}

static uint64_t make_call(struct rfs_unpickler *machine, uint64_t function, uint64_t tuple,
                          bool is_new)
{
    const uint32_t callee = (uint32_t)function;
    enum use use = USE_DTYPE;
    uint32_t n = 0;
    const uint32_t *args = rfs_dcp_tuple(pickle_of(machine), (uint32_t)tuple, &n);

    if (!args || !find_use(callee, &use))
        return rfs_unpickler_fail(machine, "a call of something that is not callable");
    if (is_new)
        return use == USE_CLASS && n == 0
                   ? make_object(machine, callee)
                   : rfs_unpickler_fail(machine, "an object that torch does not write");
    if ((use == USE_SHAPE && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_TUPLE) ||
        (use == USE_SAME && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_TEXT))
        return args[0];
    if ((use == USE_ENUM && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_INT) ||
        (use == USE_PATH && are_texts(args, n)))
        return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_OPAQUE);
    if (use == USE_DICT && n == 0)
        return rfs_dcp_value(RFS_DCP_DICT, new_words(machine, LIST_WORDS));
    return rfs_unpickler_fail(machine, "a call that torch does not write");
}

static void give_state(struct rfs_unpickler *machine, uint64_t object, uint64_t state)
{
    const enum rfs_dcp_kind kind = rfs_dcp_kind((uint32_t)state);
    uint32_t *words = pickle_of(machine)->words.data + number_of((uint32_t)object);

    if ((kind == RFS_DCP_DICT || kind == RFS_DCP_TUPLE) &&
        rfs_dcp_kind((uint32_t)object) == RFS_DCP_OBJECT &&
        words[1] == rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE))
        words[1] = (uint32_t)state;
    else
        rfs_unpickler_fail(machine, "a state without an object");
}

static size_t memory_of(const struct rfs_unpickler *machine)
{
    const struct building *building = machine->ctx;

    return building->text_bytes +
           (building->pickle->words.n + machine->stack.n + machine->marks.n + machine->memo.n) *
               sizeof(uint32_t);
}

#define REMEDY_SAVE "save it with torch.distributed.checkpoint.save of torch 2.1 or later"

static const struct rfs_unpickler_builder builder = {
    .newer = true,
    .text_most = TEXT_MOST,
    .constant = make_constant,
    .integer = make_int,
    .real = make_float,
    .text = make_text,
    .make = make_container,
    .add = add,
    .name = make_name,
    .call = make_call,
    .state = give_state,
    .memory = memory_of,
    .damaged = REMEDY_COPY,
    .protocol = REMEDY_SAVE,
    .opcode = REMEDY_SAVE,
    .named = REMEDY_SAVE,
    .size = REMEDY_SAVE,
};

int rfs_dcp_pickle_read(rfs_read_fn *read, void *ctx, uint64_t size, const char *file,
                        struct rfs_dcp_pickle *out, struct rfs_error *err)
{
    struct building building = {.pickle = out};
    struct rfs_unpickler machine = {.builder = &builder,
                                    .ctx = &building,
                                    .file = file,
                                    .err = err,
                                    .most = rfs_dcp_memory(size),
                                    .values_most = UINT32_MAX,
                                    .read = read,
                                    .read_ctx = ctx,
                                    .size = size};
    uint64_t root = 0;

    *out = (struct rfs_dcp_pickle){.root = rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE)};
    if (size > RFS_DCP_MOST)
        return rfs_fail(err, -EFBIG, RFS_IN(file), NULL, "the file has more than %llu bytes",
                        (unsigned long long)RFS_DCP_MOST);
    /* Nothing is at place 0; the empty tuple is at 1. */
    out->texts = rfs_intern_new();
    if (!out->texts || !add_words(out->texts))
        rfs_unpickler_fail_memory(&machine);
    else
        new_words(&machine, EMPTY_TUPLE + 1);
    const int rc = rfs_unpickler_run(&machine, &root);
    out->root = (uint32_t)root;
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
    uint32_t *paths; /* by text id: the keys that lead to that name, or None; owned */
    /* The part of the state dict that entry= names. */
    size_t part_bytes;  /* bytes of its name; 0: it is all of it */
    uint32_t part_keys; /* keys that lead to it; 0: no path does, and the names tell */
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

/* ---- the part of the state dict that entry= names -------------------------------------------- */

#define DICTS_MOST 16 /* dicts of tensors that are noted; with more, none is */

/* Returns the keys that lead to a name; NULL: none are known. */
static const uint32_t *keys_of(const struct metadata *metadata, uint32_t key, uint32_t *n)
{
    *n = 0;
    return rfs_dcp_kind(key) == RFS_DCP_TEXT
               ? rfs_dcp_tuple(&metadata->pickle, metadata->paths[number_of(key)], n)
               : NULL;
}

/* Notes the paths of names. */
static int read_paths(struct metadata *metadata)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    struct rfs_dcp_each each =
        rfs_dcp_each(pickle, rfs_dcp_field(pickle, pickle->root, RFS_DCP_PLANNER_DATA));
    uint32_t key;
    uint32_t value;

    metadata->paths = calloc((size_t)rfs_intern_count(pickle->texts) + 1, sizeof(uint32_t));
    if (!metadata->paths)
        return rfs_fail_memory(metadata->err);
    while (rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        if (rfs_dcp_kind(key) == RFS_DCP_TEXT)
            metadata->paths[number_of(key)] = value;
    return 0;
}

/*
 * Returns how many keys of a name's path lead to the entry; 0: it is elsewhere. A key with dots is
 * found as a whole, as in rfs_torch_find_dict.
 */
static uint32_t keys_to_part(const struct metadata *metadata, uint32_t key)
{
    const char *rest = metadata->chunks->entry;
    uint32_t n;
    const uint32_t *keys = keys_of(metadata, key, &n);

    for (uint32_t i = 0; keys && i + 1 < n; i++) {
        size_t bytes = 0;
        const char *text = rfs_dcp_text(&metadata->pickle, keys[i], &bytes);
        const size_t first = strcspn(rest, ".");
        if (!text || strlen(rest) < bytes || memcmp(rest, text, bytes) != 0)
            return 0;
        if (!rest[bytes])
            return i + 1;
        if (bytes != first)
            return 0;
        rest += first + 1;
    }
    return 0;
}

/* Says whether a name begins as those in the entry do. */
static bool begins_with_part(const struct metadata *metadata, const char *name, size_t n)
{
    const size_t part = metadata->part_bytes;

    return n > part + 1 && memcmp(name, metadata->chunks->entry, part) == 0 && name[part] == '.';
}

/* Says whether a value is in the part, whose number of keys is known. */
static bool is_in_part(const struct metadata *metadata, uint32_t key)
{
    size_t n = 0;
    uint32_t keys;
    const char *name = rfs_dcp_text(&metadata->pickle, key, &n);

    if (!name || !begins_with_part(metadata, name, n))
        return false;
    if (metadata->part_keys > 0)
        return keys_to_part(metadata, key) == metadata->part_keys;
    keys_of(metadata, key, &keys);
    return keys <= 1;
}

/* Returns the name by which the checkpoint has a value; NULL: it is outside of the part. */
static const char *name_in_part(const struct metadata *metadata, uint32_t key, size_t *n)
{
    const char *name = rfs_dcp_text(&metadata->pickle, key, n);

    if (metadata->part_bytes == 0)
        return name;
    if (!is_in_part(metadata, key))
        return NULL;
    *n -= metadata->part_bytes + 1;
    return name + metadata->part_bytes + 1;
}

/*
 * Returns the key of the dict at the top that a value is in; without a path, what its name begins
 * with. NULL: it is in none, or the text is one of SEEN, a mark for each id.
 */
static const char *dict_of(const struct metadata *metadata, uint32_t key, unsigned char *seen,
                           size_t *bytes)
{
    uint32_t n;
    const uint32_t *keys = keys_of(metadata, key, &n);
    const uint32_t text = n > 1 ? keys[0] : key;
    const char *name = rfs_dcp_text(&metadata->pickle, text, bytes);

    if (!name || seen[number_of(text)])
        return NULL;
    seen[number_of(text)] = 1;
    const char *dot = n > 1 ? NULL : memchr(name, '.', *bytes);
    if (dot)
        *bytes = (size_t)(dot - name);
    return n > 1 || dot ? name : NULL;
}

/* Reports that nothing is at the entry, with the dicts at the top. */
static int fail_entry(const struct metadata *metadata, uint32_t names)
{
    struct rfs_dcp_each each = rfs_dcp_each(&metadata->pickle, names);
    RFS_FREE unsigned char *seen = calloc((size_t)rfs_intern_count(metadata->pickle.texts) + 1, 1);
    struct rfs_intern *told = rfs_intern_new();
    struct rfs_text_names dicts = {0};
    uint32_t key;
    uint32_t value;

    while (seen && told && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        char shown[RFS_TORCH_ENTRY_SHOWN];
        size_t n = 0;
        const char *dict = dict_of(metadata, key, seen, &n);
        if (!dict || !rfs_intern_is_new(told, dict, n))
            continue;
        snprintf(shown, sizeof shown, "'%.*s'", (int)rfs_min_u64(n, sizeof shown), dict);
        rfs_text_add_name(&dicts, RFS_TORCH_ENTRIES_SHOWN, shown);
    }
    rfs_intern_free(told);
    return seen && told
               ? rfs_torch_no_entry(metadata->file, metadata->chunks->entry, &dicts, metadata->err)
               : rfs_fail_memory(metadata->err);
}

/* Finds the rule that tells the entry's values from others: their keys, or their names. */
static int find_part(struct metadata *metadata, uint32_t names)
{
    const char *entry = metadata->chunks->entry;
    struct rfs_dcp_each each = rfs_dcp_each(&metadata->pickle, names);
    bool any = false;
    uint32_t key;
    uint32_t value;

    if (!entry || !*entry)
        return 0;
    metadata->part_bytes = strlen(entry);
    while (rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        const uint32_t keys = keys_to_part(metadata, key);
        if (keys > 0 && (metadata->part_keys == 0 || keys < metadata->part_keys))
            metadata->part_keys = keys;
    }
    each = rfs_dcp_each(&metadata->pickle, names);
    while (!any && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        any = is_in_part(metadata, key);
    return any ? 0 : fail_entry(metadata, names);
}

/* Notes the dicts at the top that have tensors, if all tensors are in one of a few. */
static int note_dicts(const struct metadata *metadata, uint32_t names)
{
    struct rfs_path_list *dicts = &metadata->chunks->dicts;
    struct rfs_dcp_each each = rfs_dcp_each(&metadata->pickle, names);
    uint32_t found[DICTS_MOST];
    size_t n_found = 0;
    uint32_t key;
    uint32_t value;

    while (rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        uint32_t n;
        const uint32_t *keys = keys_of(metadata, key, &n);
        size_t at = 0;
        if (rfs_dcp_class(&metadata->pickle, value) != RFS_DCP_TENSOR)
            continue;
        while (n > 1 && at < n_found && found[at] != keys[0])
            at++;
        if (n <= 1 || at == DICTS_MOST || !rfs_dcp_text(&metadata->pickle, keys[0], NULL))
            return 0;
        found[at] = keys[0];
        n_found += at == n_found;
    }
    for (size_t i = 0; i < n_found; i++)
        if (!rfs_path_list_add(dicts, strdup(rfs_dcp_text(&metadata->pickle, found[i], NULL))))
            return rfs_fail_memory(metadata->err);
    return 0;
}

/* ---- tensors and objects --------------------------------------------------------------------- */

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
    const char *name = name_in_part(metadata, key, &n);

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

    if (rfs_dcp_kind(names) != RFS_DCP_DICT)
        return fail(metadata, NULL, "it has no state_dict_metadata");
    int rc = read_paths(metadata) ?: find_part(metadata, names);
    if (rc == 0 && metadata->part_bytes == 0)
        rc = note_dicts(metadata, names);
    while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        size_t n = 0;
        const char *name = rfs_dcp_text(pickle, key, &n);
        if (!name || n == 0 || !rfs_text_is_utf8(name, n))
            return fail(metadata, NULL, "a name that is not UTF-8 text without NULs");
        name = name_in_part(metadata, key, &n);
        if (!name)
            continue;
        if (rfs_dcp_class(pickle, value) == RFS_DCP_TENSOR)
            rc = declare_tensor(metadata, key, value);
        else if (rfs_dcp_class(pickle, value) == RFS_DCP_BYTES)
            rc = rfs_chunks_add_object(metadata->chunks, name, n, metadata->err);
        else
            rc = fail(metadata, name, "it is neither a tensor nor an object");
    }
    if (rc == 0 && metadata->part_bytes > 0 && metadata->chunks->tensors.n == 0 &&
        metadata->chunks->unread.n == 0)
        rc = rfs_fail(metadata->err, -EINVAL, RFS_IN(metadata->file),
                      "-o entry=NAME, which says where in it the state dict is",
                      "the dict in it has no tensors");
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
    const uint32_t key = rfs_dcp_field(pickle, index, RFS_DCP_FQN);

    if (rfs_dcp_class(pickle, index) != RFS_DCP_INDEX ||
        rfs_dcp_class(pickle, info) != RFS_DCP_STORAGE_INFO || !rfs_dcp_text(pickle, key, NULL))
        return fail(metadata, NULL, "its storage_data has something else than places");
    const char *name = name_in_part(metadata, key, &n);
    if (!name)
        return 0;
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
    if (name && metadata->part_bytes > 0 && !(name = name_in_part(metadata, key, &n)))
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
    const char *part = metadata->part_bytes > 0 ? chunks->entry : "";
    RFS_FREE char *full = rfs_text_printf("%s%s%s", part, *part ? "." : "", name);
    const char *kind = full ? strstr(full, state) : NULL;
    const char *dot = kind ? strchr(kind + strlen(state), '.') : NULL;
    const struct rfs_chunked_tensor *of =
        dot ? rfs_chunks_find(chunks, dot + 1, strlen(dot + 1)) : NULL;
    /* The other tensor may be outside of the part: its shape is not known then. */
    const bool outside =
        dot && *part &&
        rfs_intern_find(metadata->pickle.texts, dot + 1, strlen(dot + 1)) != RFS_NO_ID;

    if (!full)
        return rfs_fail_memory(metadata->err);
    if (!outside && (!of || !rfs_chunks_may_be_flat(chunks, tensor, of)))
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
    free(metadata.paths);
    return rc;
}
