/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of virtual files: sorted regions that cover a file without a hole, each literal bytes
 * (headers), a range of a target's bytes, computed bytes (a checksum), or bytes that are written
 * for each reader (large metadata). Immutable once encoded, and the same for all ranks with equal
 * tensors: which rank's bytes fill the tensor regions, and what they sum up to, is the reader's
 * business.
 *
 * Cost: 24 bytes a region (two for each tensor of up to 512 MiB of a .ckpt, one for each of a
 * safetensors file) and the header bytes.
 */
#pragma once

#include "base/vec.h"
#include "formats/storages.h"

#include <stdatomic.h>

#define RFS_LITERAL UINT32_MAX
/*
 * Target of the last bytes of a file: the crc32 of its bytes before the trailer that ends with
 * them, big-endian.
 */
#define RFS_CRC (UINT32_MAX - 1)
#define RFS_CRC_BYTES 4
#define RFS_CRC_TRAILER 17
/*
 * Target of four bytes: the crc32 of the bytes of region number region.at >> 3, little-endian,
 * from byte region.at & 7 on.
 */
#define RFS_STORAGE_CRC (UINT32_MAX - 2)
/* Target of bytes that the image's writer makes when they are read: those of part number at. */
#define RFS_WRITTEN (UINT32_MAX - 3)
#define RFS_NO_TARGET RFS_WRITTEN /* numbers from here on are no targets */

struct rfs_region {
    uint64_t start;  /* offset in the file; it ends where the next one starts */
    uint64_t at;     /* offset in image.literals, or in the target's bytes */
    uint32_t target; /* number of a tensor or of a storage, RFS_LITERAL, or RFS_CRC… */
};

/*
 * Makes text that would take much memory, part by part. Any thread may use it. What it borrows
 * lasts as long as the image's last reader.
 */
struct rfs_image_writer {
    /* Appends a part: always the same bytes, as many as its region has. */
    void (*put)(const struct rfs_image_writer *writer, uint64_t part, struct rfs_bytes *out);
    void (*free)(struct rfs_image_writer *writer);
};

struct rfs_image {
    struct rfs_image_writer *writer; /* owned; NULL: no region is written */
    /* owned; its items are the targets; NULL: targets are the numbers that the encoder was given */
    struct rfs_storages *storages;
    uint64_t bytes; /* bytes of the file */
    size_t n;
    struct rfs_region *regions;
    unsigned char *literals; /* bytes that come several times may be here once */
    size_t literal_bytes;
    atomic_uint holders; /* others than the one that it was made for */
};

/* A tensor or other value that an encoder is given. All is borrowed for the call. */
struct rfs_image_tensor {
    const char *name;
    size_t name_bytes;
    const char *source_name; /* name for messages */
    const struct rfs_type *type;
    uint32_t target;         /* number of its regions' target */
    uint64_t at;             /* where it begins in the target's bytes; safetensors only, else 0 */
    const uint64_t *lengths; /* [n_lengths] bytes of the messages of a map tensor */
    size_t n_lengths;
};

/* A range of a source file. */
struct rfs_copied {
    uint32_t file; /* number in struct rfs_files */
    uint64_t offset, bytes;
};
/* Makes a file of ranges that lie in source files, one after the other. 0, -ENOMEM, or -EFBIG. */
int rfs_image_copied(const struct rfs_copied *copied, size_t n, struct rfs_image **out);

/* Frees an image with its last holder. NULL is fine. */
void rfs_image_free(const struct rfs_image *image);
/* Takes an image once more. Returns it. */
const struct rfs_image *rfs_image_hold(const struct rfs_image *image);
static inline void rfs_image_leave(const struct rfs_image *const *image)
{
    rfs_image_free(*image);
}
/* Frees a held image at the end of the block. */
#define RFS_IMAGE_HELD __attribute__((cleanup(rfs_image_leave))) const struct rfs_image
/* Returns how many bytes of memory an image takes. */
size_t rfs_image_memory(const struct rfs_image *image);

/* Returns the region that holds byte OFFSET, which is below image->bytes. O(log n). */
size_t rfs_image_find(const struct rfs_image *image, uint64_t offset);
/* Returns the offset in the file where a region ends. */
static inline uint64_t rfs_image_end(const struct rfs_image *image, size_t region)
{
    return region + 1 < image->n ? image->regions[region + 1].start : image->bytes;
}

/*
 * Makes the bytes of a region of RFS_WRITTEN: the contents of OUT after that. 0, -ENOMEM, or -EIO
 * if they are not as many as the region's.
 */
int rfs_image_write(const struct rfs_image *image, size_t region, struct rfs_bytes *out);

/* ---- for encoders: putting images together --------------------------------------------------- */

/*
 * An image in the making. Bytes are put into the literals, and regions of targets between them
 * are added, in the order of the file. rfs_image_finish returns failures. Zero-initialise;
 * rfs_image_builder_end frees data that was not taken over.
 */
struct rfs_image_builder {
    struct rfs_bytes literals;
    size_t covered;  /* bytes of the literals that are in a region */
    uint64_t offset; /* offset in the file of the literals that are in none */
    RFS_VEC(struct rfs_region) regions;
    bool failed;    /* out of memory */
    bool too_large; /* the file would be larger than a file can be */
};

/* Returns the offset in the file of the next data put or added. */
static inline uint64_t rfs_image_here(const struct rfs_image_builder *builder)
{
    return builder->offset + (builder->literals.n - builder->covered);
}

/* Appends a little-endian number of N bytes, at most 8. */
bool rfs_image_put_little(struct rfs_bytes *bytes, uint64_t number, unsigned n);

/* Adds a region of a target's bytes, or RFS_CRC…, and returns its number; none when BYTES is 0. */
size_t rfs_image_add(struct rfs_image_builder *builder, uint32_t target, uint64_t at,
                     uint64_t bytes);
/* Ends the region of the literals; returns the number of the next region. */
size_t rfs_image_cut(struct rfs_image_builder *builder);
/*
 * Adds regions [FIRST, END), which begin and end where the builder was cut, once more: with equal
 * literals, and bytes of TARGET from AT on.
 */
void rfs_image_repeat(struct rfs_image_builder *builder, size_t first, size_t end, uint32_t target,
                      uint64_t at);
/*
 * Makes the image, which takes the builder's arrays over. 0, -ENOMEM, or -EFBIG when it is larger
 * than a file can be.
 */
int rfs_image_finish(struct rfs_image_builder *builder, struct rfs_image **out);
/* Frees what the builder still has. */
void rfs_image_builder_end(struct rfs_image_builder *builder);
/*
 * Makes storages the targets of an image, which takes them over. False when out of memory: they are
 * still the caller's then.
 */
bool rfs_image_take_storages(struct rfs_image *image, struct rfs_storages *storages);
