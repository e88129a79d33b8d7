/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual file: sorted regions that cover it without a hole, each literal bytes (headers), a
 * range of a target's bytes, or computed bytes (a checksum). Immutable once encoded, and the same
 * for all ranks that share a parameter list: which rank's bytes fill the tensor regions, and what
 * they sum up to, is the reader's business.
 *
 * Cost: 24 bytes a region (two for each tensor of up to 512 MiB of a .ckpt, one for each of a
 * safetensors file) and the header bytes.
 */
#pragma once

#include "base/bytes.h"
#include "hfai/storages.h"
#include "plan/planner.h"

#define RFS_LITERAL UINT32_MAX
/*
 * The last bytes of a file: the crc32 of its bytes before the trailer that ends with them,
 * big-endian.
 */
#define RFS_CRC (UINT32_MAX - 1)
#define RFS_CRC_BYTES 4
#define RFS_CRC_TRAILER 17
/*
 * Four bytes: the crc32 of the bytes of region number region.at >> 3, little-endian, from byte
 * region.at & 7 on.
 */
#define RFS_STORAGE_CRC (UINT32_MAX - 2)
#define RFS_NO_TARGET RFS_STORAGE_CRC /* from here on it is no target */

struct rfs_region {
    uint64_t start;  /* in the file; it ends where the next one starts */
    uint64_t at;     /* in image.literals, or in the target's bytes */
    uint32_t target; /* position in the parameter list or the storages, RFS_LITERAL, or RFS_CRC… */
};

struct rfs_image {
    const struct rfs_params *params; /* NULL: it has literal regions only, or storages */
    /* owned; the targets are its items then; NULL: the parameter list's */
    struct rfs_storages *storages;
    uint64_t bytes; /* of the file */
    size_t n;
    struct rfs_region *regions;
    unsigned char *literals;
    size_t literal_bytes;
};

/*
 * The .ckpt file that save_checkpoint writes for the parameter list; ckpt.c draws it. CRC: with its
 * trailer. 0, -ENOMEM, or -EFBIG when it would be larger than a file can be.
 */
int rfs_image_ckpt(struct rfs_catalog *catalog, const struct rfs_params *params, bool crc,
                   struct rfs_image **out);
/*
 * The bytes that such a file has before CONTENT bytes of a tensor, or of a chunk of one; TYPE has
 * the dims of the whole tensor. False when out of memory.
 */
#define RFS_CKPT_CHUNK (UINT64_C(512) << 20)
bool rfs_image_ckpt_head(struct rfs_bytes *out, const char *name, size_t name_bytes,
                         const struct rfs_type *type, uint64_t content);

/* The targets of a parameter list that a file holds. */
struct rfs_selection {
    const struct rfs_params *params;
    const uint32_t *positions; /* NULL: all of them */
    size_t n;                  /* of positions */
    /*
     * the option that makes more and smaller files, for a message; NULL: the format can be another
     */
    const char *divide;
};

/*
 * The safetensors file that the library writes for these targets with the metadata "format":
 * FORMAT, or as its save_file does by itself, for NULL; safetensors.c draws it. 0, -ENOMEM, or
 * -EINVAL with *err filled for what the format cannot hold.
 */
int rfs_image_safetensors(struct rfs_catalog *catalog, const struct rfs_selection *selection,
                          const char *format, struct rfs_image **out, struct rfs_error *err);

/* The file of each parameter; weight_map.c draws the JSON file. */
enum rfs_weight_map_style { RFS_WEIGHT_MAP_HUGGINGFACE, RFS_WEIGHT_MAP_MINDSPORE };
struct rfs_weight_map {
    enum rfs_weight_map_style style;
    uint64_t total_size; /* bytes of all tensors */
    size_t n;
    const uint32_t *names;    /* [n] ids in the catalogue's names */
    const char *const *files; /* [n] borrowed, not kept */
};
/* 0 or -ENOMEM. */
int rfs_image_weight_map(struct rfs_catalog *catalog, const struct rfs_weight_map *map,
                         struct rfs_image **out);

/* A file of these bytes, which it takes over. 0 or -ENOMEM. */
int rfs_image_bytes(struct rfs_bytes *bytes, struct rfs_image **out);

/* A range of a source file. */
struct rfs_copied {
    uint32_t file; /* in the catalogue's files */
    uint64_t offset, bytes;
};
/* A file of these ranges, one after the other. 0, -ENOMEM, or -EFBIG. */
int rfs_image_copied(const struct rfs_copied *copied, size_t n, struct rfs_image **out);

void rfs_image_free(struct rfs_image *image);

/* The region that holds byte OFFSET, which is below image->bytes. O(log n). */
size_t rfs_image_find(const struct rfs_image *image, uint64_t offset);
static inline uint64_t rfs_image_end(const struct rfs_image *image, size_t region)
{
    return region + 1 < image->n ? image->regions[region + 1].start : image->bytes;
}
