/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A .ckpt file is a protobuf message that is never in memory as a whole, as a concatenation of
 * messages is one message too:
 *
 *   file       = { 0a len value } [ trailer ]
 *   value      = 0a len tag        the parameter's name
 *                12 len tensor     or  1a len map
 *   tensor     = { 08 dim }        one a dimension, row-major; or 0a len { dim } (packed)
 *                12 len type       "Float32" …
 *                1a len content    little-endian
 *   map        = { 0a len tensor } keys, values, status
 *   trailer    = "crc_num" crc     10 bytes, big-endian crc32 of all before it; 17 bytes in all
 *
 * dim and len are varints. Fields may come in any order and unknown ones are skipped (wire.c),
 * though no known writer does either. A tensor over 512 MiB is several consecutive values of one
 * name, each with the whole tensor's dims, and the contents one after the other. A scalar has no
 * dims, or one that is 0; a string has the type "str", one dim that is 0 and UTF-32LE for content.
 */
#include "formats/ckpt/walk.h"

#include "base/checked.h"
#include "base/vec.h"
#include "formats/ckpt/value.h"
#include "formats/ckpt/wire.h"
#include "store/crypt/cipher.h"

#define TRAILER_BYTES 17u
#define FILE_LIMIT ((uint64_t)INT64_MAX) /* where a message may claim to end */

#define REMEDY_COPY "compare the file with its original, or save it again"

struct walk {
    struct rfs_wire wire;
    struct rfs_tables *tables;
    RFS_VEC(struct rfs_entry) entries;
    RFS_VEC(struct rfs_extent) extents;
    bool has_crc;
    /* The parameter that the next value may continue. */
    bool pending;
    struct rfs_value first; /* its first value */
    uint64_t sum;           /* bytes of its contents so far */
    uint64_t expected;      /* of a tensor, by its dims */
    size_t first_extent;
    uint32_t extent_count; /* 0 while there is one value only */
};

static const char *walk_name(const struct walk *walk, uint32_t name)
{
    return rfs_intern_text(walk->tables->names, name);
}

/* The bytes of the tensor that begins with this value. */
static int tensor_bytes(const struct walk *walk, struct rfs_value *value, uint64_t *bytes)
{
    if (value->type.ndim == 1 && value->type.dims[0] == 0 && value->extent.bytes > 0)
        value->type.ndim = 0; /* the loader takes it for a scalar, too */
    return rfs_type_bytes(&value->type, bytes)
               ? 0
               : rfs_wire_fail(&walk->wire, -EINVAL, value->begin, REMEDY_COPY,
                               "the dimensions multiply to more than 2^63 bytes");
}

/* Adds the pending parameter to the index. */
static int flush(struct walk *walk)
{
    if (!walk->pending)
        return 0;
    const struct rfs_value *first = &walk->first;
    walk->pending = false;
    walk->wire.param = walk_name(walk, first->name);
    if (first->type.kind == RFS_TENSOR && walk->sum != walk->expected)
        return rfs_wire_fail(&walk->wire, -EINVAL, first->extent.offset, REMEDY_COPY,
                             "the tensor has %llu bytes, its dimensions and element type make it "
                             "%llu",
                             (unsigned long long)walk->sum, (unsigned long long)walk->expected);
    if (first->type.kind == RFS_STRING && walk->sum % 4 != 0)
        return rfs_wire_fail(&walk->wire, -EINVAL, first->extent.offset, REMEDY_COPY,
                             "the string has %llu bytes, which is not a multiple of 4",
                             (unsigned long long)walk->sum);
    struct rfs_type type = first->type;
    type.bytes = walk->sum;
    struct rfs_entry entry = {.offset = first->extent.offset, .name = first->name};
    entry.type = rfs_intern_add(walk->tables->types, &type, sizeof type);
    if (walk->extent_count > 0) {
        entry.extent = (uint32_t)walk->first_extent;
        entry.extent_count = walk->extent_count;
    }
    if (entry.type == RFS_NO_ID || walk->entries.n >= UINT32_MAX ||
        !RFS_PUSH(&walk->entries, entry))
        return rfs_wire_fail(&walk->wire, -ENOMEM, first->begin, NULL, "out of memory");
    return 0;
}

static int fail_duplicate(const struct walk *walk, uint64_t offset, uint64_t before)
{
    return rfs_wire_fail(&walk->wire, -EINVAL, offset, "save it again with each parameter once",
                         "the parameter comes twice, first at offset %llu",
                         (unsigned long long)before);
}

/* Whether the value goes on with the pending tensor's contents; -EINVAL when it contradicts it. */
static int continues(const struct walk *walk, const struct rfs_value *value)
{
    const struct rfs_value *first = &walk->first;
    if (!walk->pending || value->name != first->name)
        return 0;
    if (first->type.kind == RFS_TENSOR && value->type.kind == RFS_TENSOR &&
        walk->sum >= walk->expected)
        return fail_duplicate(walk, value->begin, first->begin);
    if (memcmp(&value->type, &first->type, sizeof value->type) != 0)
        return rfs_wire_fail(&walk->wire, -EINVAL, value->begin, REMEDY_COPY,
                             "this piece's dimensions or element type are not those of the piece "
                             "at offset %llu",
                             (unsigned long long)first->begin);
    return 1;
}

static int add_value(struct walk *walk, struct rfs_value *value)
{
    int rc = continues(walk, value);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        rc = flush(walk);
        walk->wire.param = walk_name(walk, value->name);
        if (rc == 0 && value->type.kind == RFS_TENSOR)
            rc = tensor_bytes(walk, value, &walk->expected);
        walk->first = *value;
        walk->pending = true;
        walk->sum = value->extent.bytes;
        walk->extent_count = 0;
        walk->first_extent = walk->extents.n;
        return rc;
    }
    const bool second = walk->extent_count == 0;
    if (walk->extents.n >= UINT32_MAX - 2 ||
        (second && !RFS_PUSH(&walk->extents, walk->first.extent)) ||
        !RFS_PUSH(&walk->extents, value->extent))
        return rfs_wire_fail(&walk->wire, -ENOMEM, value->begin, NULL, "out of memory");
    walk->extent_count += second ? 2 : 1;
    walk->sum += value->extent.bytes; /* no overflow: contents don't overlap in the file */
    return 0;
}

/* 1 when the trailer, and nothing else, is left. */
static int at_trailer(struct walk *walk)
{
    struct rfs_wire *wire = &walk->wire;
    if (wire->size - wire->pos != TRAILER_BYTES)
        return 0;
    const uint64_t begin = wire->pos;
    const unsigned char *bytes;
    const int rc = rfs_wire_bytes(wire, TRAILER_BYTES, &bytes);
    if (rc < 0)
        return rc;
    wire->pos = begin;
    return memcmp(bytes, "crc_num", 7) == 0;
}

static int walk_values(struct walk *walk)
{
    struct rfs_wire *wire = &walk->wire;
    while (wire->pos < wire->size) {
        int rc = at_trailer(walk);
        walk->has_crc = rc == 1;
        if (rc != 0)
            return rc < 0 ? rc : flush(walk);
        struct rfs_value value = {.begin = wire->pos};
        uint32_t field;
        enum rfs_wire_type type;
        uint64_t length;
        wire->param = NULL;
        rc = rfs_wire_key(wire, FILE_LIMIT, &field, &type);
        if (rc == 0 && field == 1 && type == RFS_LEN) {
            rc = rfs_wire_length(wire, FILE_LIMIT, &length);
            value.end = wire->pos + (rc == 0 ? length : 0);
            if (rc == 0)
                rc = rfs_value_read(wire, walk->tables, &value);
            if (rc == 0)
                rc = add_value(walk, &value);
        } else if (rc == 0 && field == 1) {
            rc = rfs_wire_fail(wire, -EINVAL, value.begin, REMEDY_COPY,
                               "not a parameter: the file is damaged, or not a checkpoint");
        } else if (rc == 0) {
            rc = rfs_wire_skip(wire, FILE_LIMIT, field, type);
        }
        if (rc < 0)
            return rc;
    }
    return flush(walk);
}

/* Refuses files that are plainly of another kind, and names the kind. */
static int detect(struct walk *walk)
{
    struct rfs_wire *wire = &walk->wire;
    const unsigned char *head;
    if (wire->size == 0)
        return rfs_fail(wire->err, -ENODATA, RFS_IN(wire->file),
                        "copy or save it again; a full disk leaves such files",
                        "the file is empty");
    const size_t n = (size_t)rfs_min_u64(wire->size, 16);
    const int rc = rfs_wire_bytes(wire, n, &head);
    if (rc < 0)
        return rc;
    wire->pos = 0;
    if (n >= 4 && rfs_cipher_detect(head) != RFS_NOT_ENCRYPTED)
        return rfs_fail(wire->err, -EINVAL, RFS_IN(wire->file),
                        "-o key_file=FILE, key_env=NAME or key_fd=N",
                        "the file is encrypted (%s), and there is no key",
                        rfs_cipher_name(rfs_cipher_detect(head)));
    if (n >= 9 && head[8] == '{' && head[5] == 0 && head[6] == 0 && head[7] == 0)
        return rfs_fail(wire->err, -EINVAL, RFS_IN(wire->file), "give it a name in .safetensors",
                        "the file is a safetensors file, not a .ckpt");
    if (n >= 4 && memcmp(head, "PK\x03\x04", 4) == 0)
        return rfs_fail(wire->err, -EINVAL, RFS_IN(wire->file),
                        "a name in .pt for a file of torch.save; unpack any other",
                        "the file is a zip archive, as PyTorch writes, not a MindSpore .ckpt");
    if (n >= 16 && memcmp(head, "version https://", 16) == 0)
        return rfs_fail(wire->err, -EINVAL, RFS_IN(wire->file), "git lfs pull",
                        "the file is a Git LFS pointer, not the checkpoint itself");
    return 0;
}

/* Cuts an array to its length; keeps it when realloc doesn't want to. */
static void *trim(void *data, size_t n, size_t size)
{
    void *less = n > 0 ? realloc(data, n * size) : NULL;
    return less ? less : data;
}

static int finish(struct walk *walk, struct rfs_index **out)
{
    struct rfs_wire *wire = &walk->wire;
    const size_t n = walk->entries.n;
    wire->param = NULL;
    if (n == 0) /* MindSpore writes nothing but a checksum for an empty list */
        return rfs_fail(wire->err,
                        walk->has_crc && wire->size == TRAILER_BYTES ? -ENODATA : -EINVAL,
                        RFS_IN(wire->file), REMEDY_COPY, "the file holds no parameters");
    struct rfs_index *index = calloc(1, sizeof *index);
    if (!index)
        return rfs_fail_memory_of(wire->err, wire->file);
    index->n = n;
    index->entries = trim(walk->entries.data, n, sizeof *walk->entries.data);
    index->n_extents = walk->extents.n;
    index->extents = trim(walk->extents.data, walk->extents.n, sizeof *walk->extents.data);
    index->file_bytes = wire->size;
    index->has_crc = walk->has_crc;
    walk->entries.data = NULL;
    walk->extents.data = NULL;
    size_t a;
    size_t b;
    int rc = rfs_index_order_names(index, &a, &b);
    if (rc == 1) {
        wire->param = walk_name(walk, index->entries[b].name);
        rc = fail_duplicate(walk, index->entries[b].offset, index->entries[a].offset);
    } else if (rc < 0) {
        rc = rfs_fail_memory_of(wire->err, wire->file);
    }
    if (rc < 0)
        rfs_index_free(index);
    else
        *out = index;
    return rc;
}

int rfs_ckpt_walk(rfs_read_fn *read, void *ctx, uint64_t size, const char *file,
                  struct rfs_tables *tables, struct rfs_index **out, struct rfs_error *err)
{
    struct walk walk = {.tables = tables};
    walk.wire.read = read;
    walk.wire.ctx = ctx;
    walk.wire.size = size;
    walk.wire.file = file;
    walk.wire.err = err;
    *out = NULL;
    int rc = size > FILE_LIMIT ? rfs_fail(err, -EFBIG, RFS_IN(file), NULL, "the file is too large")
                               : detect(&walk);
    if (rc == 0)
        rc = walk_values(&walk);
    if (rc == 0)
        rc = finish(&walk, out);
    free(walk.entries.data);
    free(walk.extents.data);
    rfs_wire_release(&walk.wire);
    return rc;
}
