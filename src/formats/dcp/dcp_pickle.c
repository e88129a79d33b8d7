/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pickle of protocol 4 or 5, as formats/torch/unpickler.h reads it. dcp_metadata.c draws the
 * objects in it.
 */
#include "formats/dcp/dcp_pickle.h"

#include "base/cleanup.h"
#include "formats/torch/torch.h"
#include "formats/torch/unpickler.h"

#define REMEDY_COPY "compare the file with its original, or save the checkpoint again"

/* ---- looking at values ----------------------------------------------------------------------- */

/* No class of torch has as many fields: the rest of an object that has more is ignored. */
#define FIELDS_MOST 16

static const uint32_t *at(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return pickle->words.data + rfs_dcp_number(value);
}

bool rfs_dcp_integer(const struct rfs_dcp_pickle *pickle, uint32_t value, int64_t *integer)
{
    if (rfs_dcp_kind(value) == RFS_DCP_INT)
        *integer = rfs_dcp_number(value);
    else if (rfs_dcp_kind(value) == RFS_DCP_BIG)
        memcpy(integer, at(pickle, value), sizeof *integer);
    else
        return false;
    return true;
}

const char *rfs_dcp_text(const struct rfs_dcp_pickle *pickle, uint32_t value, size_t *bytes)
{
    return rfs_dcp_kind(value) == RFS_DCP_TEXT
               ? rfs_intern_bytes(pickle->texts, rfs_dcp_number(value), bytes)
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

uint32_t rfs_dcp_get(const struct rfs_dcp_pickle *pickle, uint32_t dict, enum rfs_dcp_word key)
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

static bool has_items(uint32_t value)
{
    return rfs_dcp_kind(value) == RFS_DCP_LIST || rfs_dcp_kind(value) == RFS_DCP_DICT;
}

struct rfs_dcp_each rfs_dcp_each(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    const uint32_t *head = has_items(value) ? at(pickle, value) : NULL;

    return (struct rfs_dcp_each){pickle, head ? head[1] : 0, 0, head ? head[0] : 0};
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
    [RFS_DCP_TENSOR_KEY] = "tensor_key",
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
#define HYPER "hyper_parallel.core."
#define HYPER_ROWS(package)                                                                        \
    {HYPER package ".metadata", "Metadata", USE_CLASS, RFS_DCP_METADATA},                          \
        {HYPER package ".metadata", "TensorStorageMetadata", USE_CLASS, RFS_DCP_TENSOR},           \
        {HYPER package ".metadata", "BytesStorageMetadata", USE_CLASS, RFS_DCP_BYTES},             \
        {HYPER package ".metadata", "ChunkStorageMetadata", USE_CLASS, RFS_DCP_CHUNK},             \
        {HYPER package ".metadata", "TensorProperties", USE_CLASS, RFS_DCP_TENSOR_PROPERTIES},     \
        {HYPER package ".metadata", "MetadataIndex", USE_CLASS, RFS_DCP_INDEX},                    \
    {                                                                                              \
        HYPER package ".storage", "StorageInfo", USE_CLASS, RFS_DCP_STORAGE_INFO                   \
    }

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
    HYPER_ROWS("distributed_checkpoint"),
    HYPER_ROWS("checkpoint"), /* before April 2026 */
};

/* Returns the program that has the name of a row. */
static enum rfs_dcp_program program_of(size_t row)
{
    return strncmp(allowed[row].module, HYPER, sizeof HYPER - 1) == 0 ? RFS_DCP_HYPER
                                                                      : RFS_DCP_TORCH;
}

void rfs_dcp_class_name(enum rfs_dcp_program program, enum rfs_dcp_class class, const char **module,
                        const char **name)
{
    size_t i = 0;

    while (allowed[i].class != class || program_of(i) != program)
        i++;
    *module = allowed[i].module;
    *name = allowed[i].name;
}

/* Element types of torch that are not read here. Source: torch/_C/__init__.pyi of torch 2.15. */
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
    for (uint32_t i = 0; strcmp(module, "torch") == 0 && i < N_UNREAD; i++)
        if (strcmp(unread[i] + strlen(IS), name) == 0)
            return rfs_dcp_value(RFS_DCP_PLAIN, UNREAD + i);
    for (uint32_t i = 0; strcmp(module, "torch") == 0 && i < RFS_DTYPE_COUNT; i++) {
        const char *dtype = rfs_torch_dtype_name((enum rfs_dtype)i);
        if (dtype && strcmp(dtype, name) == 0)
            return rfs_dcp_value(RFS_DCP_PLAIN, DTYPES + i);
    }
    return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

/* Says whether a value is a name, and gives its use. */
static bool find_use(uint32_t value, enum use *use)
{
    const uint32_t number = rfs_dcp_number(value);

    if (rfs_dcp_kind(value) != RFS_DCP_PLAIN || number < RFS_DCP_NAMES)
        return false;
    *use = number < DTYPES ? allowed[number - RFS_DCP_NAMES].use : USE_DTYPE;
    return true;
}

/* Returns the class that a name is, if its use is that. */
static enum rfs_dcp_class class_of(uint32_t value)
{
    return allowed[rfs_dcp_number(value) - RFS_DCP_NAMES].class;
}

bool rfs_dcp_dtype(uint32_t value, enum rfs_dtype *dtype, const char **why)
{
    const uint32_t number = rfs_dcp_number(value);
    enum use use;

    *why =
        rfs_dcp_kind(value) == RFS_DCP_PLAIN && number >= UNREAD ? unread[number - UNREAD] : NULL;
    if (*why)
        return true;
    if (!find_use(value, &use) || use != USE_DTYPE)
        return false;
    *dtype = (enum rfs_dtype)(number - DTYPES);
    return true;
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
    uint32_t *head = words + rfs_dcp_number(value);
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

    pickle_of(machine)->programs[program_of(rfs_dcp_number(callee) - RFS_DCP_NAMES)] = true;
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
    uint32_t *words = pickle_of(machine)->words.data + rfs_dcp_number((uint32_t)object);

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

#define REMEDY_SAVE                                                                                \
    "save it with torch.distributed.checkpoint.save of torch 2.1 or later, or with HyperParallel"

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

int rfs_dcp_pickle_read(const struct rfs_bytes_source *from, struct rfs_dcp_pickle *out,
                        struct rfs_error *err)
{
    struct building building = {.pickle = out};
    struct rfs_unpickler machine = {.builder = &builder,
                                    .ctx = &building,
                                    .file = from->file,
                                    .err = err,
                                    .most = rfs_dcp_memory(from->size),
                                    .values_most = UINT32_MAX,
                                    .from = from,
                                    .size = from->size};
    uint64_t root = 0;

    *out = (struct rfs_dcp_pickle){.root = rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE)};
    if (from->size > RFS_DCP_MOST)
        return rfs_fail(err, -EFBIG, RFS_IN(from->file), NULL, "the file has more than %llu bytes",
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
