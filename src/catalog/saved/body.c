/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One index as it is saved:
 *
 *   u64 n, extents, strided, file_bytes, crc, header_bytes, header_hash[2]
 *   u32 flags: 1 has_crc, 2 redundancy_removed, 4 with parts; u32 0
 *   n entries as in memory: u64 offset, u32 name, type, extent, extent_count
 *   extents: u64 offset, u64 bytes
 *   strided: u64 entry, u64 stride[16]
 *   with parts: n times u32
 *
 * Names and types are numbers in the table of the file. The order by name is made anew.
 */
#include "catalog/saved/index.h"

#include "base/checked.h"

enum { HAS_CRC = 1, REDUNDANCY_REMOVED = 2, WITH_PARTS = 4, FLAGS = 7 };

void rfs_saved_body_put(struct rfs_bytes *out, const struct rfs_index *index,
                        const struct rfs_numbers *numbers)
{
    const uint64_t words[] = {
        index->n,   index->n_extents,    index->n_strided,      index->file_bytes,
        index->crc, index->header_bytes, index->header_hash[0], index->header_hash[1]};

    rfs_bytes_put(out, words, sizeof words);
    rfs_saved_put_u32(out, (index->has_crc ? HAS_CRC : 0) |
                               (index->redundancy_removed ? REDUNDANCY_REMOVED : 0) |
                               (index->part_of ? WITH_PARTS : 0));
    rfs_saved_put_u32(out, 0);
    for (size_t i = 0; i < index->n; i++) {
        struct rfs_entry entry = index->entries[i];
        entry.name = numbers->names[entry.name];
        entry.type = numbers->types[entry.type];
        rfs_bytes_put(out, &entry, sizeof entry);
    }
    rfs_bytes_put(out, index->extents, index->n_extents * sizeof *index->extents);
    for (size_t i = 0; i < index->n_strided; i++) {
        rfs_saved_put_u64(out, index->strided[i].entry);
        rfs_bytes_put(out, index->strided[i].stride, sizeof index->strided[i].stride);
    }
    if (index->part_of)
        rfs_bytes_put(out, index->part_of, index->n * sizeof *index->part_of);
}

bool rfs_saved_type_is_sound(const struct rfs_type *type)
{
    static const uint8_t pad[sizeof type->pad];
    uint64_t bytes;

    if (type->ndim > RFS_MAX_DIMS || type->dtype >= RFS_DTYPE_COUNT || type->kind > RFS_MAP ||
        type->bytes > INT64_MAX || memcmp(type->pad, pad, sizeof pad) != 0 ||
        !rfs_type_bytes(type, &bytes))
        return false;
    for (unsigned i = type->ndim; i < RFS_MAX_DIMS; i++)
        if (type->dims[i] != 0)
            return false;
    if (type->kind == RFS_STRING)
        return type->dtype == RFS_STR && type->bytes % 4 == 0;
    return type->kind == RFS_MAP || type->bytes == bytes;
}

/* Whether N bytes at OFFSET are in a file of SIZE bytes. */
static bool is_within(uint64_t offset, uint64_t n, uint64_t size)
{
    return offset <= size && n <= size - offset;
}

/* Whether the elements of a strided entry are in a file of SIZE bytes. */
static bool is_strided_within(const struct rfs_entry *entry, const struct rfs_type *type,
                              const uint64_t *stride, uint64_t size)
{
    uint64_t last = 0;
    uint64_t step;

    if (type->bytes == 0)
        return true;
    for (unsigned i = 0; i < type->ndim; i++)
        if (!rfs_mul_u64(type->dims[i] - 1, stride[i], &step) || !rfs_add_u64(last, step, &last))
            return false;
    return rfs_add_u64(last, entry->offset, &last) &&
           is_within(last, rfs_dtype_bytes((enum rfs_dtype)type->dtype), size);
}

static bool is_entry_sound(const struct rfs_index *index, size_t i, const struct rfs_type *type,
                           uint64_t size)
{
    const struct rfs_entry *entry = &index->entries[i];
    const uint64_t *stride = rfs_index_strides(index, entry);
    uint64_t sum = 0;

    if (stride)
        return type->kind == RFS_TENSOR && entry->extent_count == 0 &&
               is_strided_within(entry, type, stride, size);
    if (entry->extent_count == 0)
        return is_within(entry->offset, type->bytes, size);
    if (entry->extent > index->n_extents || entry->extent_count > index->n_extents - entry->extent)
        return false;
    const struct rfs_extent *extent = &index->extents[entry->extent];
    if (extent->offset != entry->offset)
        return false;
    for (uint32_t k = 0; k < entry->extent_count; k++)
        if (!is_within(extent[k].offset, extent[k].bytes, size) ||
            !rfs_add_u64(sum, extent[k].bytes, &sum))
            return false;
    return sum == type->bytes;
}

/* Numbers to ids, and whether everything is in the files. */
static bool settle(struct rfs_index *index, const struct rfs_numbers *numbers,
                   const struct rfs_intern *types, const uint64_t *file_bytes, uint32_t parts)
{
    size_t a;
    size_t b;

    for (size_t i = 0; i < index->n_strided; i++)
        if (index->strided[i].entry >= index->n ||
            (i > 0 && index->strided[i].entry <= index->strided[i - 1].entry))
            return false;
    for (size_t i = 0; i < index->n; i++) {
        struct rfs_entry *entry = &index->entries[i];
        const uint32_t part = index->part_of ? index->part_of[i] : 0;
        if (entry->name >= numbers->n_names || entry->type >= numbers->n_types || part >= parts)
            return false;
        entry->name = numbers->names[entry->name];
        entry->type = numbers->types[entry->type];
        const struct rfs_type *type = rfs_intern_bytes(types, entry->type, NULL);
        if (!is_entry_sound(index, i, type, file_bytes[part]))
            return false;
    }
    return rfs_index_order_names(index, &a, &b) == 0;
}

/* A copy of the next N items of SIZE bytes; NULL when they are not there, or there are none. */
static void *take_array(struct rfs_saved_in *in, uint64_t n, size_t size)
{
    size_t bytes;

    if (n > in->left || !rfs_mul_size((size_t)n, size, &bytes) || bytes > in->left) {
        in->bad = true;
        return NULL;
    }
    const void *from = rfs_saved_take(in, bytes);
    void *copy = from && bytes > 0 ? malloc(bytes) : NULL;
    if (copy)
        memcpy(copy, from, bytes);
    else
        in->bad |= bytes > 0;
    return copy;
}

static void take_strided(struct rfs_saved_in *in, struct rfs_index *index)
{
    if (index->n_strided > in->left / (sizeof(uint64_t) * (1 + RFS_MAX_DIMS))) {
        in->bad = true;
        return;
    }
    if (index->n_strided == 0)
        return;
    index->strided = calloc(index->n_strided, sizeof *index->strided);
    in->bad |= !index->strided;
    for (size_t i = 0; i < index->n_strided && !in->bad; i++) {
        const uint64_t entry = rfs_saved_take_u64(in);
        const void *stride = rfs_saved_take(in, sizeof index->strided[i].stride);
        index->strided[i].entry = entry < UINT32_MAX ? (uint32_t)entry : UINT32_MAX;
        if (stride)
            memcpy(index->strided[i].stride, stride, sizeof index->strided[i].stride);
    }
}

/* Fills an empty index. False for an invalid one. */
static bool take_index(struct rfs_saved_in *in, struct rfs_index *index, uint32_t parts)
{
    index->n = rfs_saved_take_u64(in);
    index->n_extents = rfs_saved_take_u64(in);
    index->n_strided = rfs_saved_take_u64(in);
    index->file_bytes = rfs_saved_take_u64(in);
    index->crc = rfs_saved_take_u64(in);
    index->header_bytes = rfs_saved_take_u64(in);
    index->header_hash[0] = rfs_saved_take_u64(in);
    index->header_hash[1] = rfs_saved_take_u64(in);
    const uint32_t flags = rfs_saved_take_u32(in);
    if (rfs_saved_take_u32(in) != 0 || flags > FLAGS || index->n > UINT32_MAX || index->n == 0 ||
        !(flags & WITH_PARTS) != (parts == 1))
        return false;
    index->has_crc = flags & HAS_CRC;
    index->redundancy_removed = flags & REDUNDANCY_REMOVED;
    index->entries = take_array(in, index->n, sizeof *index->entries);
    index->extents = take_array(in, index->n_extents, sizeof *index->extents);
    take_strided(in, index);
    if (flags & WITH_PARTS)
        index->part_of = take_array(in, index->n, sizeof *index->part_of);
    return !in->bad && in->left == 0;
}

struct rfs_index *rfs_saved_body_take(const void *bytes, size_t n,
                                      const struct rfs_numbers *numbers, struct rfs_intern *types,
                                      const uint64_t *file_bytes, uint32_t parts)
{
    struct rfs_saved_in in = {bytes, n, false};
    struct rfs_index *index = calloc(1, sizeof *index);

    if (index && take_index(&in, index, parts) && settle(index, numbers, types, file_bytes, parts))
        return index;
    rfs_index_free(index);
    return NULL;
}
