/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF file (github.com/ggml-org/ggml, docs/gguf.md), version 2 or 3; all numbers are
 * little-endian, and a text is 8 bytes n, then n bytes:
 *
 *   file     = "GGUF" version:4 tensors:8 values:8 { value } { tensor } padding data
 *   value    = key:text type:4 content              what describes the model and its tokenizer
 *   content  = a number | text | type:4 n:8 { content }        by the type; arrays may be nested
 *   tensor   = name:text dims:4 { dim:8 } type:4 offset:8
 *   data     = { bytes padding }
 *
 * The first dim is that whose elements follow each other: dims are in the reverse order of ours. A
 * tensor begins at a multiple of the alignment, which is the value general.alignment or 32, and
 * where the one before it ends with its padding, as llama.cpp has it. Its offset counts from the
 * begin of the data. Padding behind the last one may be missing.
 *
 * A split file is several such files, X-00001-of-00002.gguf and so on. Each says how many there
 * are, split.count, and how many are before it, split.no: the first has 0.
 */
#include "formats/gguf/gguf.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"

#include <math.h>

#define MAGIC "GGUF"
#define WINDOW 16384   /* bytes that are read at once */
#define NAME_MOST 4096 /* bytes of the longest name; llama.cpp takes 63 */
#define KEY_MOST 65535 /* bytes of the longest key, as in llama.cpp */
#define KEY_KNOWN 40   /* bytes that are enough for the keys that have a meaning here */
#define KEY_SHOWN 1024 /* bytes of a key and of a text that are listed */
#define TEXT_SHOWN 4096
#define ARRAYS_MOST 8             /* in each other */
#define HEADERS_MOST (1ULL << 28) /* bytes; a hole in a sparse file is not read as a whole */
#define VALUE_LEAST 13            /* bytes of a value with an empty key */
#define TENSOR_LEAST 24           /* bytes of the header of a scalar without a name */

#define REMEDY_COPY "compare the file with its original, or save it again"
#define REMEDY_TYPE                                                                                \
    "the model in F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K or Q6_K, or in safetensors as it was before"

/* The types of tensors by their numbers, and the dtypes of those that are read. */
static const struct {
    const char *name; /* NULL: no type, or one that has gone */
    bool read;
    enum rfs_dtype dtype;
} types[] = {
    [0] = {"F32", true, RFS_FLOAT32},
    [1] = {"F16", true, RFS_FLOAT16},
    [2] = {"Q4_0", true, RFS_Q4_0},
    [3] = {.name = "Q4_1"},
    [6] = {.name = "Q5_0"},
    [7] = {.name = "Q5_1"},
    [8] = {"Q8_0", true, RFS_Q8_0},
    [9] = {.name = "Q8_1"},
    [10] = {.name = "Q2_K"},
    [11] = {.name = "Q3_K"},
    [12] = {"Q4_K", true, RFS_Q4_K},
    [13] = {"Q5_K", true, RFS_Q5_K},
    [14] = {"Q6_K", true, RFS_Q6_K},
    [15] = {.name = "Q8_K"},
    [16] = {.name = "IQ2_XXS"},
    [17] = {.name = "IQ2_XS"},
    [18] = {.name = "IQ3_XXS"},
    [19] = {.name = "IQ1_S"},
    [20] = {.name = "IQ4_NL"},
    [21] = {.name = "IQ3_S"},
    [22] = {.name = "IQ2_S"},
    [23] = {.name = "IQ4_XS"},
    [24] = {"I8", true, RFS_INT8},
    [25] = {"I16", true, RFS_INT16},
    [26] = {"I32", true, RFS_INT32},
    [27] = {"I64", true, RFS_INT64},
    [28] = {"F64", true, RFS_FLOAT64},
    [29] = {.name = "IQ1_M"},
    [30] = {"BF16", true, RFS_BFLOAT16},
    [34] = {.name = "TQ1_0"},
    [35] = {.name = "TQ2_0"},
    [39] = {.name = "MXFP4"},
    [40] = {.name = "NVFP4"},
    [41] = {.name = "Q1_0"},
};
#define N_TYPES (sizeof types / sizeof *types)

/* Bytes of values that have a size. */
static const unsigned char value_bytes[RFS_GGUF_VALUES] = {
    [RFS_GGUF_UINT8] = 1,  [RFS_GGUF_INT8] = 1,  [RFS_GGUF_UINT16] = 2,  [RFS_GGUF_INT16] = 2,
    [RFS_GGUF_UINT32] = 4, [RFS_GGUF_INT32] = 4, [RFS_GGUF_FLOAT32] = 4, [RFS_GGUF_BOOL] = 1,
    [RFS_GGUF_UINT64] = 8, [RFS_GGUF_INT64] = 8, [RFS_GGUF_FLOAT64] = 8};

static const char *const value_names[RFS_GGUF_VALUES] = {
    [RFS_GGUF_UINT8] = "uint8",     [RFS_GGUF_INT8] = "int8",     [RFS_GGUF_UINT16] = "uint16",
    [RFS_GGUF_INT16] = "int16",     [RFS_GGUF_UINT32] = "uint32", [RFS_GGUF_INT32] = "int32",
    [RFS_GGUF_FLOAT32] = "float32", [RFS_GGUF_BOOL] = "bool",     [RFS_GGUF_STRING] = "string",
    [RFS_GGUF_ARRAY] = "array",     [RFS_GGUF_UINT64] = "uint64", [RFS_GGUF_INT64] = "int64",
    [RFS_GGUF_FLOAT64] = "float64"};

int rfs_gguf_type(enum rfs_dtype dtype)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].read && types[i].dtype == dtype)
            return (int)i;
    return -1;
}

struct walk {
    const struct rfs_bytes_source *from;
    struct rfs_tables *tables;
    struct rfs_error *err;
    uint64_t at; /* where in the file the next bytes are */
    uint64_t window_at;
    size_t window_n;   /* bytes of the window, which begins at window_at */
    const char *param; /* the tensor at hand; borrowed */
    uint64_t alignment;
    bool has_alignment;
    uint64_t parts, part;              /* split.count and split.no; 0: the file does not say */
    RFS_VEC(struct rfs_entry) entries; /* offsets in the data, until all headers are read */
    unsigned char window[WINDOW];
};

/* ---- bytes ----------------------------------------------------------------------------------- */

#define FAIL(walk, code, remedy, ...)                                                              \
    rfs_fail((walk)->err, code,                                                                    \
             (struct rfs_where){(walk)->from->file, (int64_t)(walk)->at, (walk)->param}, remedy,   \
             __VA_ARGS__)

static int fail_memory(const struct walk *walk)
{
    return rfs_fail_memory_of(walk->err, walk->from->file);
}

static int fail_truncated(const struct walk *walk)
{
    return FAIL(walk, -EINVAL, REMEDY_COPY,
                "the file is truncated in its headers: it has %llu bytes",
                (unsigned long long)walk->from->size);
}

/* Passes N bytes over. */
static int skip(struct walk *walk, uint64_t n)
{
    if (n > walk->from->size - walk->at)
        return fail_truncated(walk);
    walk->at += n;
    return 0;
}

/* Gives the next N bytes, at most WINDOW, which are valid until more are taken. */
static int take(struct walk *walk, size_t n, const unsigned char **out)
{
    const uint64_t left = walk->from->size - walk->at;

    *out = walk->window;
    if (n > left)
        return fail_truncated(walk);
    if (walk->at > HEADERS_MOST)
        return FAIL(walk, -EINVAL, REMEDY_COPY, "its headers have more than %llu bytes",
                    (unsigned long long)HEADERS_MOST);
    if (walk->at < walk->window_at || walk->at + n > walk->window_at + walk->window_n) {
        const size_t size = (size_t)rfs_min_u64(left, WINDOW);
        const int rc = rfs_bytes_source_read(walk->from, walk->window, size, walk->at);
        walk->window_n = 0;
        if (rc < 0)
            return rfs_store_fail_read(walk->err, RFS_IN(walk->from->file), rc);
        walk->window_at = walk->at;
        walk->window_n = size;
    }
    *out = walk->window + (walk->at - walk->window_at);
    walk->at += n;
    return 0;
}

/* Takes a number of N bytes, at most 8. */
static int take_number(struct walk *walk, unsigned n, uint64_t *out)
{
    const unsigned char *bytes;
    const int rc = take(walk, n, &bytes);

    *out = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++)
        *out |= (uint64_t)bytes[i] << 8 * i;
    return rc;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int skip_text(struct walk *walk)
{
    uint64_t n;

    return take_number(walk, 8, &n) ?: skip(walk, n);
}

static int fail_value(struct walk *walk, uint64_t type)
{
    return FAIL(walk, -EINVAL, REMEDY_COPY, "a value has type %llu, which no GGUF file has",
                (unsigned long long)type);
}

static int skip_value(struct walk *walk, uint64_t type, unsigned arrays);

/* Each element takes at least a byte, so an array costs no more time than its file has bytes. */
static int skip_array(struct walk *walk, unsigned arrays)
{
    uint64_t type;
    uint64_t n;
    uint64_t bytes;
    int rc = take_number(walk, 4, &type) ?: take_number(walk, 8, &n);

    if (rc == 0 && type >= RFS_GGUF_VALUES)
        return fail_value(walk, type);
    if (rc == 0 && arrays == ARRAYS_MOST)
        return FAIL(walk, -EINVAL, REMEDY_COPY, "more than %d arrays are in each other",
                    ARRAYS_MOST);
    if (rc == 0 && value_bytes[type] > 0)
        return rfs_mul_u64(n, value_bytes[type], &bytes) ? skip(walk, bytes) : fail_truncated(walk);
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        rc = skip_value(walk, type, arrays + 1);
    return rc;
}

/* Passes a value over that lies in so many ARRAYS. */
static int skip_value(struct walk *walk, uint64_t type, unsigned arrays)
{
    return type >= RFS_GGUF_VALUES   ? fail_value(walk, type)
           : type == RFS_GGUF_STRING ? skip_text(walk)
           : type == RFS_GGUF_ARRAY  ? skip_array(walk, arrays)
                                     : skip(walk, value_bytes[type]);
}

static int read_alignment(struct walk *walk, uint64_t type)
{
    if (type != RFS_GGUF_UINT32)
        return FAIL(walk, -EINVAL, REMEDY_COPY,
                    "general.alignment has type %llu, and should be UINT32",
                    (unsigned long long)type);
    if (walk->has_alignment)
        return FAIL(walk, -EINVAL, REMEDY_COPY, "general.alignment comes twice");
    const int rc = take_number(walk, 4, &walk->alignment);
    walk->has_alignment = true;
    if (rc == 0 && (walk->alignment == 0 || (walk->alignment & (walk->alignment - 1)) != 0))
        return FAIL(walk, -EINVAL, REMEDY_COPY,
                    "general.alignment is %llu, and should be a power of 2",
                    (unsigned long long)walk->alignment);
    return rc;
}

/* Reads a number of a split file. It is a UINT16; others are not understood. */
static int read_split(struct walk *walk, uint64_t type, uint64_t *number)
{
    return type == RFS_GGUF_UINT16 ? take_number(walk, 2, number) : skip_value(walk, type, 0);
}

/* Refuses a part whose name is not that of its number: others find its tensors by the name. */
static int check_part(const struct walk *walk)
{
    char ending[40];

    snprintf(ending, sizeof ending, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", walk->part + 1,
             walk->parts);
    if (walk->parts <= 1 || rfs_text_ends(walk->from->file, ending))
        return 0;
    RFS_FREE char *remedy = rfs_text_printf("a name that ends in '%s', beside the others", ending);
    return rfs_fail(walk->err, -EINVAL, RFS_IN(walk->from->file), remedy,
                    "the file is part %" PRIu64 " of %" PRIu64
                    " of a split file, and its name says otherwise",
                    walk->part + 1, walk->parts);
}

/*
 * Reads a key and the type of its value. *n is the length of the key in the file; OUT gets the
 * first CAP - 1 bytes.
 */
static int read_key(struct walk *walk, char *out, size_t cap, uint64_t *n, uint64_t *type)
{
    const unsigned char *key;
    int rc = take_number(walk, 8, n);

    if (rc == 0 && *n > KEY_MOST)
        return FAIL(walk, -EINVAL, REMEDY_COPY, "the key of a value has %llu bytes",
                    (unsigned long long)*n);
    const size_t shown = (size_t)rfs_min_u64(*n, cap - 1);
    rc = rc ?: take(walk, shown, &key);
    if (rc == 0)
        memcpy(out, key, shown);
    out[rc == 0 ? shown : 0] = '\0';
    return rc ?: skip(walk, *n - shown) ?: take_number(walk, 4, type);
}

/* Returns whether a key of N bytes is WANTED, or begins so if that ends in a dot. */
static bool key_is(const char *key, uint64_t n, const char *wanted)
{
    const size_t length = strlen(wanted);

    return (n == length || (n > length && wanted[length - 1] == '.')) &&
           memcmp(key, wanted, length) == 0;
}

static int read_value(struct walk *walk)
{
    char key[KEY_KNOWN];
    uint64_t n;
    uint64_t type;
    const int rc = read_key(walk, key, sizeof key, &n, &type);

    return rc                                    ? rc
           : key_is(key, n, "general.alignment") ? read_alignment(walk, type)
           : key_is(key, n, "split.count")       ? read_split(walk, type, &walk->parts)
           : key_is(key, n, "split.no")          ? read_split(walk, type, &walk->part)
                                                 : skip_value(walk, type, 0);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int read_name(struct walk *walk, uint32_t *name)
{
    const unsigned char *text;
    uint64_t n;
    int rc = take_number(walk, 8, &n);

    if (rc == 0 && n > NAME_MOST)
        return FAIL(walk, -EINVAL, REMEDY_COPY, "the name of a tensor has %llu bytes, more than %d",
                    (unsigned long long)n, NAME_MOST);
    rc = rc ?: take(walk, (size_t)n, &text);
    if (rc == 0 && !rfs_text_is_utf8((const char *)text, (size_t)n))
        return FAIL(walk, -EINVAL, REMEDY_COPY, "the name of a tensor is not UTF-8");
    if (rc)
        return rc;
    *name = rfs_intern_add(walk->tables->names, text, (size_t)n);
    if (*name == RFS_NO_ID)
        return fail_memory(walk);
    walk->param = rfs_intern_text(walk->tables->names, *name);
    return 0;
}

static int read_dims(struct walk *walk, struct rfs_type *type)
{
    uint64_t ndim;
    int rc = take_number(walk, 4, &ndim);

    if (rc == 0 && ndim > RFS_MAX_DIMS)
        return FAIL(walk, -EINVAL, REMEDY_COPY, "%llu dimensions; no more than %d are supported",
                    (unsigned long long)ndim, RFS_MAX_DIMS);
    for (uint64_t i = 0; rc == 0 && i < ndim; i++)
        rc = take_number(walk, 8, &type->dims[ndim - 1 - i]);
    type->ndim = (uint8_t)ndim;
    return rc;
}

/* Reads the type, and counts blocks along the last dimension where numbers are in some. */
static int read_type(struct walk *walk, struct rfs_type *type)
{
    uint64_t number;
    const int rc = take_number(walk, 4, &number);

    if (rc)
        return rc;
    if (number >= N_TYPES || !types[number].name)
        return FAIL(walk, -EINVAL, REMEDY_COPY, "has type %llu, which GGUF files do not have",
                    (unsigned long long)number);
    if (!types[number].read)
        return FAIL(walk, -ENOTSUP, REMEDY_TYPE, "is of type %s, which is not read here",
                    types[number].name);
    type->dtype = (uint8_t)types[number].dtype;
    const uint32_t packed = rfs_dtype_packed(types[number].dtype);
    uint64_t *last = type->ndim > 0 ? &type->dims[type->ndim - 1] : NULL;
    if (packed > 1 && (!last || *last % packed != 0))
        return FAIL(walk, -EINVAL, REMEDY_COPY,
                    "is of type %s, in blocks of %u numbers, and its rows have %llu",
                    types[number].name, packed, last ? (unsigned long long)*last : 1ULL);
    if (last)
        *last /= packed;
    if (!rfs_type_bytes(type, &type->bytes))
        return FAIL(walk, -EINVAL, REMEDY_COPY, "the dimensions multiply to more than 2^63 bytes");
    return 0;
}

/* Reads the header of a tensor, which begins at END of the data; END is moved behind it. */
static int read_tensor(struct walk *walk, uint64_t *end)
{
    struct rfs_entry entry = {.offset = *end};
    struct rfs_type type = {.kind = RFS_TENSOR};
    uint64_t offset;
    const int rc = read_name(walk, &entry.name) ?: read_dims(walk, &type)
                   ?: read_type(walk, &type) ?: take_number(walk, 8, &offset);

    if (rc)
        return rc;
    if (offset != *end)
        return FAIL(walk, -EINVAL, REMEDY_COPY,
                    "begins at byte %llu of the data, but the one before it ends at %llu, with "
                    "its padding: tensors overlap or have a hole between them",
                    (unsigned long long)offset, (unsigned long long)*end);
    const uint64_t rest = type.bytes % walk->alignment;
    if (!rfs_add_u64(*end, type.bytes, end) ||
        (rest > 0 && !rfs_add_u64(*end, walk->alignment - rest, end)))
        return FAIL(walk, -EINVAL, REMEDY_COPY, "the tensors have more than 2^64 bytes");
    entry.type = rfs_intern_add(walk->tables->types, &type, sizeof type);
    if (entry.type == RFS_NO_ID || walk->entries.n >= UINT32_MAX ||
        !RFS_PUSH(&walk->entries, entry))
        return fail_memory(walk);
    walk->param = NULL;
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int fail_magic(const struct walk *walk, const unsigned char *head)
{
    if (memcmp(head, "vers", 4) == 0)
        return FAIL(walk, -EINVAL, "git lfs pull",
                    "the file is a Git LFS pointer, not the checkpoint itself");
    return FAIL(walk, -EINVAL, REMEDY_COPY,
                "the file is not a GGUF file: it does not begin with " MAGIC);
}

/* Reads what is before the values, and gives the number of tensors and of values. */
static int read_begin(struct walk *walk, uint64_t *tensors, uint64_t *values)
{
    const unsigned char *head;
    uint64_t version;
    int rc = walk->from->size == 0
                 ? FAIL(walk, -EINVAL, "copy or save it again; a full disk leaves such files",
                        "the file is empty")
                 : take(walk, 4, &head);

    if (rc == 0 && memcmp(head, MAGIC, 4) != 0)
        return fail_magic(walk, head);
    rc = rc ?: take_number(walk, 4, &version);
    if (rc)
        return rc;
    if ((version & 0xffff) == 0)
        return FAIL(walk, -ENOTSUP, "the file in little-endian, as llama.cpp has it by default",
                    "the file is big-endian, which is not read here");
    if (version != 2 && version != 3)
        return FAIL(walk, -ENOTSUP, "the file in version 3",
                    "the file is of version %llu of GGUF, and 2 and 3 are read",
                    (unsigned long long)version);
    rc = take_number(walk, 8, tensors) ?: take_number(walk, 8, values);
    if (rc)
        return rc;
    const uint64_t left = walk->from->size - walk->at;
    if (*values > left / VALUE_LEAST || *tensors > left / TENSOR_LEAST)
        return FAIL(walk, -EINVAL, REMEDY_COPY,
                    "the file says that it has %llu values and %llu tensors, and is too short for "
                    "them: %llu bytes",
                    (unsigned long long)*values, (unsigned long long)*tensors,
                    (unsigned long long)walk->from->size);
    return 0;
}

/* Checks that the data of tensors, which END with padding, are all of the file behind DATA. */
static int check_data(const struct walk *walk, uint64_t data, uint64_t end)
{
    const uint64_t size = walk->from->size;
    const struct rfs_entry *last = &walk->entries.data[walk->entries.n - 1];
    const struct rfs_type *type = rfs_intern_bytes(walk->tables->types, last->type, NULL);
    const uint64_t least = last->offset + type->bytes; /* without padding */
    const uint64_t have = size > data ? size - data : 0;

    if (have < least || size < data)
        return rfs_fail(walk->err, -EINVAL, RFS_IN(walk->from->file), REMEDY_COPY,
                        "the file is truncated: its tensors end at byte %llu of the data, and it "
                        "has %llu",
                        (unsigned long long)least, (unsigned long long)have);
    if (have > end)
        return rfs_fail(walk->err, -EINVAL, RFS_IN(walk->from->file), REMEDY_COPY,
                        "%llu bytes follow the last tensor", (unsigned long long)(have - end));
    return 0;
}

/* Makes the index of a file whose tensors begin at DATA. */
static int finish(struct walk *walk, uint64_t data, struct rfs_index **out)
{
    struct rfs_index *index = calloc(1, sizeof *index);
    size_t first;
    size_t second;

    if (!index)
        return fail_memory(walk);
    index->n = walk->entries.n;
    index->entries = RFS_STEAL(walk->entries.data);
    index->file_bytes = walk->from->size;
    for (size_t i = 0; i < index->n; i++)
        index->entries[i].offset += data;
    int rc = rfs_index_order_names(index, &first, &second);
    if (rc == 1) {
        const uint32_t name = index->entries[second].name;
        rc = rfs_fail(walk->err, -EINVAL,
                      RFS_OF(walk->from->file, rfs_intern_text(walk->tables->names, name)),
                      REMEDY_COPY, "the tensor comes twice in the headers");
    } else if (rc < 0) {
        rc = fail_memory(walk);
    }
    if (rc == 0)
        *out = index;
    else
        rfs_index_free(index);
    return rc;
}

static int read_file(struct walk *walk, struct rfs_index **out, size_t *n_values)
{
    uint64_t tensors = 0;
    uint64_t values = 0;
    uint64_t end = 0;
    int rc = read_begin(walk, &tensors, &values);

    *n_values = (size_t)values; /* fewer than the file has bytes */
    for (uint64_t i = 0; rc == 0 && i < values; i++)
        rc = read_value(walk);
    rc = rc ?: check_part(walk);
    for (uint64_t i = 0; rc == 0 && i < tensors; i++)
        rc = read_tensor(walk, &end);
    if (rc)
        return rc;
    if (tensors == 0 && walk->parts <= 1)
        return rfs_fail(walk->err, -ENODATA, RFS_IN(walk->from->file), REMEDY_COPY,
                        "the file holds no parameters");
    const uint64_t rest = walk->at % walk->alignment;
    const uint64_t data = walk->at + (rest > 0 ? walk->alignment - rest : 0);
    return (tensors > 0 ? check_data(walk, data, end) : 0) ?: finish(walk, data, out);
}

int rfs_gguf_walk(const struct rfs_bytes_source *from, struct rfs_tables *tables,
                  struct rfs_index **out, size_t *values, struct rfs_error *err)
{
    RFS_FREE struct walk *walk = calloc(1, sizeof *walk);

    *out = NULL;
    *values = 0;
    if (!walk)
        return rfs_fail_memory_of(err, from->file);
    walk->from = from;
    walk->tables = tables;
    walk->err = err;
    walk->alignment = RFS_GGUF_ALIGNMENT;
    const int rc = from->size > INT64_MAX
                       ? rfs_fail(err, -EFBIG, RFS_IN(from->file), NULL, "the file is too large")
                       : read_file(walk, out, values);
    free(walk->entries.data);
    return rc;
}

/* ---- values for others ----------------------------------------------------------------------- */

/* Begins to read the values of a file. *out is malloc'ed and the caller's, also when it fails. */
static int begin_values(const struct rfs_bytes_source *from, struct walk **out, uint64_t *values,
                        struct rfs_error *err)
{
    uint64_t tensors;

    *out = calloc(1, sizeof **out);
    if (!*out)
        return rfs_fail_memory_of(err, from->file);
    (*out)->from = from;
    (*out)->err = err;
    return read_begin(*out, &tensors, values);
}

/* Writes a number as JSON has it, or as a text: NaN and infinite ones. */
static void print_number(uint64_t type, uint64_t bits, char out[32], bool *is_text)
{
    const unsigned unused = 64 - 8U * value_bytes[type]; /* bits above those of the number */
    const bool narrow = type == RFS_GGUF_FLOAT32;
    const uint32_t low = (uint32_t)bits;
    double number = 0;
    float single;

    memcpy(&single, &low, sizeof single);
    memcpy(&number, &bits, sizeof number);
    if (narrow)
        number = (double)single;
    *is_text = false;
    switch ((enum rfs_gguf_value)type) {
    case RFS_GGUF_BOOL:
        snprintf(out, 32, "%s", bits ? "true" : "false");
        break;
    case RFS_GGUF_FLOAT32:
    case RFS_GGUF_FLOAT64:
        snprintf(out, 32, narrow ? "%.9g" : "%.17g", number);
        *is_text = !isfinite(number);
        break;
    case RFS_GGUF_INT8:
    case RFS_GGUF_INT16:
    case RFS_GGUF_INT32:
    case RFS_GGUF_INT64:
        snprintf(out, 32, "%" PRId64, (int64_t)(bits << unused) >> unused);
        break;
    default:
        snprintf(out, 32, "%" PRIu64, bits);
    }
}

/* Returns how many of the first bytes of a text of N bytes are characters of UTF-8 as a whole. */
static size_t whole_characters(const unsigned char *text, size_t first, uint64_t n)
{
    size_t end = first;

    while (first < n && end > 0 && (text[end - 1] & 0xc0) == 0x80)
        end--;
    return first < n && end > 0 && text[end - 1] >= 0x80 ? end - 1 : end;
}

/* Gives the value of a type behind its key: what it holds, in TEXT, and its size. */
static int list_value(struct walk *walk, uint64_t type, char text[TEXT_SHOWN + 1],
                      struct rfs_format_value *value)
{
    const unsigned char *bytes;
    const uint64_t at = walk->at;
    uint64_t bits;
    int rc;

    if (type >= RFS_GGUF_VALUES)
        return fail_value(walk, type);
    if (type == RFS_GGUF_ARRAY) {
        rc = take_number(walk, 4, &type) ?: take_number(walk, 8, &value->n);
        walk->at = at;
        rc = rc ?: skip_array(walk, 0);
        value->type = value_names[rc == 0 ? type : 0];
        return rc;
    }
    value->type = value_names[type];
    value->text = text;
    if (type != RFS_GGUF_STRING) {
        rc = take_number(walk, value_bytes[type], &bits);
        if (rc == 0)
            print_number(type, bits, text, &value->is_text);
        return rc;
    }
    value->is_text = true;
    rc = take_number(walk, 8, &value->n);
    const size_t shown = (size_t)rfs_min_u64(value->n, TEXT_SHOWN);
    rc = rc ?: take(walk, shown, &bytes);
    const size_t kept = rc == 0 ? whole_characters(bytes, shown, value->n) : 0;
    if (kept > 0)
        memcpy(text, bytes, kept);
    text[kept] = '\0';
    return rc ?: skip(walk, value->n - shown);
}

int rfs_gguf_values(const struct rfs_bytes_source *from, rfs_format_value_fn *each, void *ctx,
                    struct rfs_error *err)
{
    RFS_FREE struct walk *walk = NULL;
    char key[KEY_SHOWN + 1];
    char text[TEXT_SHOWN + 1];
    uint64_t values;
    uint64_t n;
    uint64_t type;
    int rc = begin_values(from, &walk, &values, err);

    for (uint64_t i = 0; rc == 0 && i < values; i++) {
        struct rfs_format_value value = {.name = key};
        rc = read_key(walk, key, sizeof key, &n, &type) ?: list_value(walk, type, text, &value);
        if (rc == 0 && !each(ctx, &value))
            rc = fail_memory(walk);
    }
    return rc;
}

/* Appends bytes [BEGIN, walk->at) of the file. */
static int copy_bytes(struct walk *walk, uint64_t begin, struct rfs_bytes *out)
{
    const uint64_t end = walk->at;
    const unsigned char *bytes;
    int rc = 0;

    for (walk->at = begin; rc == 0 && walk->at < end;) {
        const size_t n = (size_t)rfs_min_u64(end - walk->at, WINDOW);
        rc = take(walk, n, &bytes);
        if (rc == 0)
            rfs_bytes_put(out, bytes, n);
    }
    return rc == 0 && out->failed ? fail_memory(walk) : rc;
}

int rfs_gguf_copy_values(const struct rfs_bytes_source *from, bool plain, struct rfs_bytes *out,
                         uint64_t *n, struct rfs_error *err)
{
    RFS_FREE struct walk *walk = NULL;
    char key[KEY_KNOWN];
    uint64_t values;
    uint64_t length;
    uint64_t type;
    int rc = begin_values(from, &walk, &values, err);

    for (uint64_t i = 0; rc == 0 && i < values; i++) {
        const uint64_t begin = walk->at;
        rc = read_key(walk, key, sizeof key, &length, &type) ?: skip_value(walk, type, 0);
        if (rc == 0 && (key_is(key, length, "general.alignment") || key_is(key, length, "split.") ||
                        (plain && (key_is(key, length, "general.file_type") ||
                                   key_is(key, length, "general.quantization_version")))))
            continue;
        rc = rc ?: copy_bytes(walk, begin, out);
        *n += rc == 0;
    }
    return rc;
}
