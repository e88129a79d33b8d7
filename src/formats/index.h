/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of one source file: the name, type and place of each value. Immutable once built, so
 * readers take no lock. Files of one pipeline stage differ in content only, so ranks whose headers
 * are equal byte for byte share one index.
 *
 * Cost: 24 bytes an entry + 4 for the order by name, and 16 an extra extent (tensors over 512 MiB).
 * A rank of several files (parts) takes 4 more an entry; a strided entry 136.
 */
#pragma once

#include "base/intern.h"
#include "formats/dtype.h"

#include <stdatomic.h>

#define RFS_MAX_DIMS 16

enum rfs_kind {
    RFS_TENSOR, /* dims, dtype, content; a scalar has ndim 0 */
    RFS_STRING, /* dtype RFS_STR; dims as they are stored ([0]) */
    RFS_MAP, /* a map tensor: an extent for each message of it, which covers its MapTensorProto */
};

/*
 * A type, interned (as these bytes) in the catalogue: equal types have equal ids. dims beyond ndim
 * and padding are zero. A .ckpt scalar stored with dims [0] has ndim 0 here.
 */
struct rfs_type {
    uint64_t bytes; /* bytes of the content */
    uint64_t dims[RFS_MAX_DIMS];
    uint8_t ndim;
    uint8_t dtype; /* enum rfs_dtype */
    uint8_t kind;  /* enum rfs_kind */
    uint8_t pad[5];
};

/*
 * Takes a tensor: NAME and TYPE last for the call, OFFSET is that of its bytes in the file. False
 * when out of memory.
 */
typedef bool rfs_index_each_fn(void *ctx, const char *name, const struct rfs_type *type,
                               uint64_t offset);

struct rfs_extent {
    uint64_t offset; /* from the beginning of the file */
    uint64_t bytes;
};

struct rfs_quant; /* quant/quant.h */

/*
 * The place of a content: extents in its order, or with none, one range at offset. Some contents
 * are computed of what is stored there: rfs_content_is_stored.
 */
struct rfs_content {
    uint64_t offset;
    uint32_t n;
    const struct rfs_extent *extents;
    const struct rfs_quant *quant; /* the range has codes, which stand for the content; or NULL */
    int16_t plus;                  /* a number that is added to each element, of type DTYPE */
    uint8_t dtype;
    bool zeros; /* nothing is stored: all bytes are 0 */
};

/* Says whether the bytes of a content are those of the file. */
static inline bool rfs_content_is_stored(const struct rfs_content *content)
{
    return !content->quant && content->plus == 0 && !content->zeros;
}

struct rfs_entry {
    uint64_t offset;       /* where the content, or its first extent, begins in the file */
    uint32_t name;         /* id in the catalogue's names */
    uint32_t type;         /* id in the catalogue's types */
    uint32_t extent;       /* position of the first in rfs_index.extents, when extent_count > 0 */
    uint32_t extent_count; /* number of extents; 0: one range of type.bytes at offset */
};

/* An entry whose content does not lie row by row: strides in bytes, one for each axis. */
struct rfs_strided {
    uint32_t entry; /* position in rfs_index.entries */
    uint64_t stride[RFS_MAX_DIMS];
};

/* An entry that is shown as numbers, and stored as codes at its offset. */
struct rfs_quantized {
    uint32_t entry;                /* position in rfs_index.entries */
    const struct rfs_quant *quant; /* borrowed */
};

struct rfs_index {
    size_t n;
    struct rfs_entry *entries; /* entries in file order, each name once */
    uint32_t *by_name;         /* positions in entries, ascending by name id */
    size_t n_extents;
    struct rfs_extent *extents; /* an entry's extents are consecutive and in content order */
    size_t n_strided;
    struct rfs_strided *strided; /* ascending by entry; those of torch, and quantized tensors */
    size_t n_quantized;
    struct rfs_quantized *quantized; /* ascending by entry */
    uint32_t *file_of;   /* [n] number of the rank's file with the entry; NULL: there is one file */
    uint64_t file_bytes; /* size of the file it was built from */
    bool has_crc;        /* the file has a checksum: a crc_num trailer, or metadata of that name */
    bool redundancy_removed; /* the file says that parameters of other ranks were left out */
    /* The safetensors file that it was built from; another that shares it may differ in crc. */
    uint64_t crc;            /* crc_num, when has_crc; UINT64_MAX: no number */
    uint64_t header_bytes;   /* bytes of the JSON text */
    uint64_t header_hash[2]; /* XXH3-128 of the JSON text */
    uint64_t serial;         /* a number that no other index of the process has, or had */
    atomic_uint shares;      /* number of owners, less one */
    uint32_t number;         /* scratch while indexes are saved; catalog/kept_index.c */
};

/* Returns the entry of that name, or NULL. O(log n). */
const struct rfs_entry *rfs_index_find(const struct rfs_index *index, uint32_t name);
/* Returns the strides of an entry, or NULL when its content is row-major. O(log n_strided). */
const uint64_t *rfs_index_strides(const struct rfs_index *index, const struct rfs_entry *entry);
/* Returns what an entry is quantized by, or NULL when it is stored as it is. O(log n_quantized). */
const struct rfs_quant *rfs_index_quant(const struct rfs_index *index,
                                        const struct rfs_entry *entry);
/* Returns the bytes of memory that an index takes. */
size_t rfs_index_memory(const struct rfs_index *index);
/* Adds an owner. */
struct rfs_index *rfs_index_share(struct rfs_index *index);
/* Removes an owner, and frees the index of the last one. Returns the bytes freed. NULL is fine. */
size_t rfs_index_free(struct rfs_index *index);

/*
 * Computes the bytes of a tensor, whose dims and dtype are set; a content in a file may have
 * another number. False when they are more than 2^63 - 1, counting each dimension of 0 as 1.
 */
bool rfs_type_bytes(const struct rfs_type *type, uint64_t *bytes);
/* Returns the number of the element at PLACE of a tensor, row by row. */
uint64_t rfs_type_number(const struct rfs_type *type, const uint64_t *place);
/* Gives the place of the element with that number. */
void rfs_type_place(const struct rfs_type *type, uint64_t number, uint64_t *place);

/* The type that a caller asked for last, which the next one mostly is; begins as {0}. */
struct rfs_last_type {
    struct rfs_type type;
    uint32_t number; /* 1 + its id; 0: there is none */
};

/* Returns the id of a type in a table of types, or RFS_NO_ID when out of memory. */
static inline uint32_t rfs_type_id(struct rfs_intern *types, struct rfs_last_type *last,
                                   const struct rfs_type *type)
{
    if (last->number == 0 || memcmp(&last->type, type, sizeof *type) != 0) {
        last->type = *type;
        last->number = 1 + rfs_intern_add(types, type, sizeof *type);
    }
    return last->number - 1; /* RFS_NO_ID + 1 is 0, and 0 - 1 is RFS_NO_ID */
}

/*
 * Sorts by_name, which it allocates if it is NULL, while an index is built. 0, -ENOMEM, or 1 when a
 * name comes twice: then *second is the first entry whose name came before, and *first is where.
 */
int rfs_index_order_names(struct rfs_index *index, size_t *first, size_t *second);
