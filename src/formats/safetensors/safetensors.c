/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A safetensors file (github.com/huggingface/safetensors, safetensors/src/tensor.rs):
 *
 *   file     = n header data
 *   n        = 8 bytes, little-endian: how long the header is
 *   header   = JSON, padded with spaces:
 *              { "__metadata__": { "key": "text", … },
 *                "name": { "dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128] }, … }
 *   data     = the tensors, little-endian and row-major; data_offsets count from its begin
 *
 * The tensors follow each other without holes from the begin of the data to its end. The library
 * reads no other files; it writes headers in this order, and other writers sort names. In
 * MindSpore's metadata "remove_redundancy" is "True" in a file without the parameters that other
 * ranks keep, "crc_num" is a decimal checksum (described in crc.c), and a parameter's name says
 * "Int4" of a tensor that is stored as I8.
 */
#include "formats/safetensors/safetensors.h"

#include "base/budget.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/order.h"
#include "base/store.h"
#include "base/vec.h"

#include <xxhash.h>

#define PREFIX_BYTES 8u
#define LONG_HEADER (16u << 20)
#define NAME_MOST (1u << 20) /* bytes of the longest name, as in .ckpt files */

#define REMEDY_COPY "compare the file with its original, or save it again"

struct header {
    struct rfs_json_read json;
    struct rfs_tables *tables;
    const char *file;
    const char *param; /* the tensor at hand; borrowed */
    struct rfs_error *err;
    uint64_t data_bytes;               /* bytes of the file behind the header */
    uint64_t end;                      /* of the last tensor, in the data */
    bool sorted;                       /* each tensor so far begins behind those before it */
    RFS_VEC(struct rfs_entry) entries; /* offsets in the data, until all is read */
    RFS_VEC(uint32_t) int4;            /* names that are Int4 by the metadata */
    bool has_metadata, has_crc, redundancy_removed;
    uint64_t crc;
};

/* The description of a tensor, as far as it has been read. */
struct description {
    bool has[3]; /* dtype, shape and data_offsets */
    struct rfs_type type;
    uint64_t begin, end;
};

static int fail_memory(const struct header *header)
{
    return rfs_fail_memory_of(header->err, header->file);
}

/* Fails because the JSON has another form than it should. */
static int fail_json(const struct header *header)
{
    const struct rfs_json_read *json = &header->json;
    struct rfs_where where = RFS_AT(header->file, PREFIX_BYTES + json->at);
    if (json->no_memory)
        return fail_memory(header);
    where.param = header->param;
    return rfs_fail(header->err, -EINVAL, where, REMEDY_COPY,
                    "the header is not that of a safetensors file: %s", json->wrong);
}

#define FAIL_TENSOR(header, ...)                                                                   \
    rfs_fail((header)->err, -EINVAL, RFS_OF((header)->file, (header)->param), REMEDY_COPY,         \
             __VA_ARGS__)

static bool text_is(const struct rfs_json_read *json, const char *text)
{
    return json->text_n == strlen(text) && memcmp(json->text, text, json->text_n) == 0;
}

static uint64_t parse_crc(const struct rfs_json_read *json)
{
    uint64_t value = 0;
    for (size_t i = 0; i < json->text_n; i++)
        if (json->text[i] < '0' || json->text[i] > '9' || !rfs_mul_u64(value, 10, &value) ||
            !rfs_add_u64(value, (uint64_t)(json->text[i] - '0'), &value))
            return UINT64_MAX;
    return json->text_n > 0 ? value : UINT64_MAX;
}

/* Reads the value of a key of the metadata. */
static int read_metadatum(struct header *header, bool *seen_redundancy)
{
    struct rfs_json_read *json = &header->json;
    const bool is_crc = text_is(json, "crc_num");
    const bool is_redundancy = text_is(json, "remove_redundancy");
    RFS_FREE char *key = NULL;
    size_t key_n = 0;
    if ((is_crc && header->has_crc) || (is_redundancy && *seen_redundancy)) {
        rfs_json_read_fail(json, "this key comes twice in the metadata");
        return fail_json(header);
    }
    if (!is_crc && !is_redundancy && json->text_n <= NAME_MOST) {
        key_n = json->text_n;
        key = malloc(key_n + 1);
        if (!key)
            return fail_memory(header);
        memcpy(key, json->text, key_n);
    }
    if (!rfs_json_read_string(json))
        return fail_json(header);
    if (is_crc) {
        header->has_crc = true;
        header->crc = parse_crc(json);
    } else if (is_redundancy) {
        *seen_redundancy = true;
        header->redundancy_removed = text_is(json, "True");
    } else if (key && text_is(json, "Int4")) {
        const uint32_t name = rfs_intern_add(header->tables->names, key, key_n);
        if (name == RFS_NO_ID || !RFS_PUSH(&header->int4, name))
            return fail_memory(header);
    }
    return 0;
}

static int read_metadata(struct header *header)
{
    struct rfs_json_read *json = &header->json;
    bool first = true;
    bool seen_redundancy = false;
    if (header->has_metadata) {
        rfs_json_read_fail(json, "__metadata__ comes twice");
        return fail_json(header);
    }
    header->has_metadata = true;
    if (rfs_json_read_null(json))
        return 0;
    while (rfs_json_read_member(json, &first)) {
        const int rc = read_metadatum(header, &seen_redundancy);
        if (rc < 0)
            return rc;
    }
    return json->wrong ? fail_json(header) : 0;
}

static int read_dtype(struct header *header, struct description *tensor)
{
    struct rfs_json_read *json = &header->json;
    if (!rfs_json_read_string(json))
        return fail_json(header);
    enum rfs_dtype dtype;
    if (!rfs_dtype_parse_safetensors(json->text, json->text_n, &dtype))
        return rfs_fail(header->err, -EINVAL, RFS_OF(header->file, header->param),
                        "save it with an element type that this release knows",
                        "unknown element type '%.64s'", json->text);
    tensor->type.dtype = (uint8_t)dtype;
    return 0;
}

static int read_shape(struct header *header, struct description *tensor)
{
    struct rfs_json_read *json = &header->json;
    bool first = true;
    while (rfs_json_read_element(json, &first)) {
        uint64_t dim;
        if (!rfs_json_read_u64(json, &dim))
            return fail_json(header);
        if (tensor->type.ndim == RFS_MAX_DIMS)
            return rfs_fail(header->err, -EINVAL, RFS_OF(header->file, header->param), NULL,
                            "more than %d dimensions; no more are supported", RFS_MAX_DIMS);
        tensor->type.dims[tensor->type.ndim++] = dim;
    }
    return json->wrong ? fail_json(header) : 0;
}

static int read_offsets(struct header *header, struct description *tensor)
{
    struct rfs_json_read *json = &header->json;
    if (!rfs_json_read_take(json, '[') || !rfs_json_read_u64(json, &tensor->begin) ||
        !rfs_json_read_take(json, ',') || !rfs_json_read_u64(json, &tensor->end) ||
        !rfs_json_read_take(json, ']'))
        return fail_json(header);
    return 0;
}

/* The members of a description. */
static const struct {
    const char *key;
    int (*read)(struct header *header, struct description *tensor);
} fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
enum { FIELDS = sizeof fields / sizeof *fields };

/* Reads the value of a key of a tensor. Unknown keys are passed over, as the library does. */
static int read_field(struct header *header, struct description *tensor)
{
    struct rfs_json_read *json = &header->json;

    for (unsigned i = 0; i < FIELDS; i++) {
        if (!text_is(json, fields[i].key))
            continue;
        if (tensor->has[i]) {
            rfs_json_read_fail(json, "this key comes twice");
            return fail_json(header);
        }
        tensor->has[i] = true;
        return fields[i].read(header, tensor);
    }
    return rfs_json_read_skip(json) ? 0 : fail_json(header);
}

static int read_object(struct header *header, struct description *tensor)
{
    struct rfs_json_read *json = &header->json;
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        const int rc = read_field(header, tensor);
        if (rc < 0)
            return rc;
    }
    return json->wrong ? fail_json(header) : 0;
}

/* Reads a description without keys, ["F32", [4, 8], [0, 128]], which the library takes, too. */
static int read_list(struct header *header, struct description *tensor)
{
    struct rfs_json_read *json = &header->json;
    const size_t begin = json->at;
    unsigned i = 0;

    for (bool first = true; i <= FIELDS && rfs_json_read_element(json, &first); i++) {
        const int rc = i < FIELDS ? fields[i].read(header, tensor) : 0;
        if (rc < 0)
            return rc;
        if (i < FIELDS)
            tensor->has[i] = true;
    }
    if (!json->wrong && i != FIELDS) {
        json->at = begin;
        rfs_json_read_fail(json, "an object is expected here");
    }
    return json->wrong ? fail_json(header) : 0;
}

/* Counts elements along the last dimension instead of numbers, where these do not fill bytes. */
static int pack(const struct header *header, struct rfs_type *type)
{
    const uint32_t packed = rfs_dtype_packed((enum rfs_dtype)type->dtype);
    uint64_t *last = type->ndim > 0 ? &type->dims[type->ndim - 1] : NULL;

    if (packed == 1)
        return 0;
    if (!last || *last % packed != 0)
        return rfs_fail(header->err, -EINVAL, RFS_OF(header->file, header->param),
                        "a last dimension that is a multiple of that",
                        "is of type %s, and %u of its numbers fill whole bytes: along the last "
                        "dimension it has %llu",
                        rfs_dtype_safetensors((enum rfs_dtype)type->dtype), packed,
                        last ? (unsigned long long)*last : 1ULL);
    *last /= packed;
    return 0;
}

static int check_size(const struct header *header, const struct description *tensor)
{
    const uint64_t bytes = tensor->type.bytes;
    if (tensor->end < tensor->begin || tensor->end - tensor->begin != bytes)
        return FAIL_TENSOR(header,
                           "its data_offsets are %llu and %llu, its dimensions and element type "
                           "make it %llu bytes",
                           (unsigned long long)tensor->begin, (unsigned long long)tensor->end,
                           (unsigned long long)bytes);
    return 0;
}

static int add_tensor(struct header *header, uint32_t name, struct description *tensor)
{
    for (unsigned i = 0; i < FIELDS; i++)
        if (!tensor->has[i])
            return FAIL_TENSOR(header, "the header lacks its %s", fields[i].key);
    int rc = pack(header, &tensor->type);
    if (rc == 0 && !rfs_type_bytes(&tensor->type, &tensor->type.bytes))
        rc = FAIL_TENSOR(header, "the dimensions multiply to more than 2^63 bytes");
    rc = rc ?: check_size(header, tensor);
    if (rc < 0)
        return rc;
    struct rfs_entry entry = {.offset = tensor->begin, .name = name};
    entry.type = rfs_intern_add(header->tables->types, &tensor->type, sizeof tensor->type);
    if (entry.type == RFS_NO_ID || header->entries.n >= UINT32_MAX ||
        !RFS_PUSH(&header->entries, entry))
        return fail_memory(header);
    header->sorted = header->sorted && tensor->begin >= header->end;
    header->end = tensor->end;
    return 0;
}

/* Reads the description of a tensor, whose name was read. */
static int read_tensor(struct header *header)
{
    struct rfs_json_read *json = &header->json;
    struct description tensor = {0};
    if (json->text_n > NAME_MOST) {
        rfs_json_read_fail(json, "a name of more than 2^20 bytes");
        return fail_json(header);
    }
    const uint32_t name = rfs_intern_add(header->tables->names, json->text, json->text_n);
    if (name == RFS_NO_ID)
        return fail_memory(header);
    header->param = rfs_intern_text(header->tables->names, name);
    int rc =
        rfs_json_read_peek(json, '[') ? read_list(header, &tensor) : read_object(header, &tensor);
    rc = rc ?: add_tensor(header, name, &tensor);
    header->param = NULL;
    return rc;
}

static uint64_t bytes_of(const struct header *header, const struct rfs_entry *entry)
{
    const struct rfs_type *type = rfs_intern_bytes(header->tables->types, entry->type, NULL);

    return type->bytes;
}

/* Orders by place; what has no bytes stands before what begins there. */
static int compare_places(const void *a, const void *b, void *ctx)
{
    const struct rfs_entry *x = a;
    const struct rfs_entry *y = b;

    return RFS_ORDER(x->offset, y->offset) ?: RFS_ORDER(bytes_of(ctx, x), bytes_of(ctx, y))
           ?: RFS_ORDER(x->name, y->name);
}

/* Sorts the tensors by place, and checks that they are all of the data, each part once. */
static int check_places(struct header *header)
{
    uint64_t end = 0;

    if (!header->sorted)
        RFS_SORT_BY(header->entries.data, header->entries.n, compare_places, header);
    for (size_t i = 0; i < header->entries.n; i++) {
        const struct rfs_entry *entry = &header->entries.data[i];
        header->param = rfs_intern_text(header->tables->names, entry->name);
        if (entry->offset != end)
            return FAIL_TENSOR(header,
                               "its data_offsets begin at %llu, but the one before it ends at "
                               "%llu: tensors overlap or have a hole between them",
                               (unsigned long long)entry->offset, (unsigned long long)end);
        end += bytes_of(header, entry);
        if (end > header->data_bytes)
            return FAIL_TENSOR(header,
                               "the file is truncated: the tensor ends at %llu, and the file has "
                               "%llu bytes of data",
                               (unsigned long long)end, (unsigned long long)header->data_bytes);
    }
    header->param = NULL;
    return end == header->data_bytes ? 0
                                     : rfs_fail(header->err, -EINVAL, RFS_IN(header->file),
                                                REMEDY_COPY, "%llu bytes follow the last tensor",
                                                (unsigned long long)(header->data_bytes - end));
}

static int read_header(struct header *header)
{
    struct rfs_json_read *json = &header->json;
    bool first = true;
    if (json->n == 0 || json->data[0] != '{')
        rfs_json_read_fail(json, "it does not begin with a brace");
    while (rfs_json_read_member(json, &first)) {
        const int rc =
            text_is(json, RFS_SAFETENSORS_METADATA) ? read_metadata(header) : read_tensor(header);
        if (rc < 0)
            return rc;
    }
    if (!rfs_json_read_end(json))
        return fail_json(header);
    if (header->entries.n == 0)
        return rfs_fail(header->err, header->data_bytes == 0 ? -ENODATA : -EINVAL,
                        RFS_IN(header->file), REMEDY_COPY, "the file holds no parameters");
    return check_places(header);
}

/* Sets types to Int4: the metadata may come after the tensors that it describes. */
static int apply_int4(const struct header *header, struct rfs_index *index)
{
    for (size_t i = 0; i < header->int4.n; i++) {
        const struct rfs_entry *found = rfs_index_find(index, header->int4.data[i]);
        if (!found)
            continue;
        struct rfs_type type =
            *(const struct rfs_type *)rfs_intern_bytes(header->tables->types, found->type, NULL);
        if (type.dtype == RFS_INT4)
            continue;
        if (type.dtype != RFS_INT8)
            return rfs_fail(
                header->err, -EINVAL,
                RFS_OF(header->file, rfs_intern_text(header->tables->names, found->name)),
                REMEDY_COPY, "is %s, but the metadata says Int4, which is stored as I8",
                rfs_dtype_safetensors((enum rfs_dtype)type.dtype));
        type.dtype = RFS_INT4;
        const uint32_t id = rfs_intern_add(header->tables->types, &type, sizeof type);
        if (id == RFS_NO_ID)
            return fail_memory(header);
        index->entries[found - index->entries].type = id;
    }
    return 0;
}

static int finish(struct header *header, uint64_t size, struct rfs_index **out)
{
    struct rfs_index *index = calloc(1, sizeof *index);
    size_t a;
    size_t b;
    if (!index)
        return fail_memory(header);
    index->n = header->entries.n;
    index->entries = RFS_STEAL(header->entries.data);
    index->file_bytes = size;
    index->has_crc = header->has_crc;
    index->crc = header->crc;
    index->redundancy_removed = header->redundancy_removed;
    index->header_bytes = header->json.n;
    const XXH128_hash_t hash = XXH3_128bits(header->json.data, header->json.n);
    index->header_hash[0] = hash.low64;
    index->header_hash[1] = hash.high64;
    for (size_t i = 0; i < index->n; i++)
        index->entries[i].offset += PREFIX_BYTES + header->json.n;
    int rc = rfs_index_order_names(index, &a, &b);
    if (rc == 1) {
        header->param = rfs_intern_text(header->tables->names, index->entries[b].name);
        rc = FAIL_TENSOR(header, "the parameter comes twice in the header");
    } else if (rc < 0) {
        rc = fail_memory(header);
    }
    if (rc == 0)
        rc = apply_int4(header, index);
    if (rc < 0)
        rfs_index_free(index);
    else
        *out = index;
    return rc;
}

/* Fails for a file that cannot begin like this, and names its likely format. */
static int fail_start(const unsigned char start[PREFIX_BYTES], uint64_t length, uint64_t size,
                      const char *file, struct rfs_error *err)
{
    if (memcmp(start, "version ", 8) == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(file), "git lfs pull",
                        "the file is a Git LFS pointer, not the checkpoint itself");
    if (length > RFS_SAFETENSORS_HEADER_MOST)
        return rfs_fail(err, -EINVAL, RFS_IN(file), REMEDY_COPY,
                        "its header would have %llu bytes, and no more than %llu are allowed: the "
                        "file is damaged, or not a safetensors file",
                        (unsigned long long)length,
                        (unsigned long long)RFS_SAFETENSORS_HEADER_MOST);
    return rfs_fail(err, -EINVAL, RFS_IN(file), REMEDY_COPY,
                    "the file is truncated in its header: it has %llu bytes, the header %llu",
                    (unsigned long long)size, (unsigned long long)length);
}

/*
 * Checks that a long header ends as one: so a hole in a sparse file is not read as a whole to find
 * out.
 */
static int look(const struct rfs_bytes_source *from, uint64_t length, struct rfs_error *err)
{
    unsigned char last = '}';
    const int rc =
        length > LONG_HEADER ? rfs_bytes_source_read(from, &last, 1, PREFIX_BYTES + length - 1) : 0;

    if (rc < 0)
        return rfs_store_fail_read(err, RFS_IN(from->file), rc);
    return memchr("} \t\n\r", last, 5)
               ? 0
               : rfs_fail(err, -EINVAL, RFS_AT(from->file, PREFIX_BYTES + length - 1), REMEDY_COPY,
                          "the header is not that of a safetensors file: it does not end as one");
}

/* Reads the header's JSON. *text is owned by the caller, as is *SHARE of the memory for it. */
static int load(const struct rfs_bytes_source *from, unsigned char **text, size_t *n, size_t *share,
                struct rfs_error *err)
{
    unsigned char start[PREFIX_BYTES];
    const uint64_t size = from->size;
    uint64_t length = 0;
    if (size < PREFIX_BYTES)
        return rfs_fail(err, -EINVAL, RFS_IN(from->file),
                        "copy or save it again; a full disk leaves such files",
                        size == 0 ? "the file is empty" : "the file is truncated in its header");
    int rc = rfs_bytes_source_read(from, start, sizeof start, 0);
    if (rc < 0)
        return rfs_store_fail_read(err, RFS_IN(from->file), rc);
    for (unsigned i = PREFIX_BYTES; i-- > 0;)
        length = length << 8 | start[i];
    if (length > RFS_SAFETENSORS_HEADER_MOST || length > size - PREFIX_BYTES)
        return fail_start(start, length, size, from->file, err);
    rc = look(from, length, err);
    if (rc < 0)
        return rc;
    rc = rfs_budget_share_take(share, (size_t)length);
    if (rc < 0)
        return rfs_store_fail_read(err, RFS_IN(from->file), rc);
    RFS_FREE unsigned char *bytes = malloc((size_t)length + 1);
    if (!bytes)
        return rfs_fail_memory_of(err, from->file);
    rc = rfs_bytes_source_read(from, bytes, (size_t)length, PREFIX_BYTES);
    if (rc < 0)
        return rfs_store_fail_read(err, RFS_IN(from->file), rc);
    *n = (size_t)length;
    *text = RFS_STEAL(bytes);
    return 0;
}

static bool is_like(const struct rfs_index *like, uint64_t size, const unsigned char *text,
                    size_t n)
{
    if (!like || like->file_bytes != size || like->header_bytes != n)
        return false;
    const XXH128_hash_t hash = XXH3_128bits(text, n);
    return hash.low64 == like->header_hash[0] && hash.high64 == like->header_hash[1];
}

int rfs_safetensors_walk(const struct rfs_bytes_source *from, struct rfs_tables *tables,
                         const struct rfs_index *like, struct rfs_index **out,
                         struct rfs_error *err)
{
    RFS_BUDGET_SHARE share = 0;
    RFS_FREE unsigned char *text = NULL;
    size_t n = 0;
    *out = NULL;
    int rc = from->size > INT64_MAX
                 ? rfs_fail(err, -EFBIG, RFS_IN(from->file), NULL, "the file is too large")
                 : load(from, &text, &n, &share, err);
    if (rc < 0)
        return rc;
    if (is_like(like, from->size, text, n))
        return 1;
    struct header header = {.json = rfs_json_read_begin(text, n), .tables = tables};
    header.file = from->file;
    header.err = err;
    header.data_bytes = from->size - PREFIX_BYTES - n;
    header.sorted = true;
    rc = read_header(&header) ?: finish(&header, from->size, out);
    free(header.entries.data);
    free(header.int4.data);
    rfs_json_read_free(&header.json);
    return rc;
}
