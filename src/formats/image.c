/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/image.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"

const struct rfs_image *rfs_image_hold(const struct rfs_image *image)
{
    atomic_fetch_add(&((struct rfs_image *)(uintptr_t)image)->holders, 1);
    return image;
}

size_t rfs_image_memory(const struct rfs_image *image)
{
    return sizeof *image + image->n * sizeof *image->regions + image->literal_bytes;
}

void rfs_image_free(const struct rfs_image *held)
{
    struct rfs_image *image = (struct rfs_image *)(uintptr_t)held; /* the last holder's */

    if (!image || atomic_fetch_sub(&image->holders, 1) > 0)
        return;
    if (image->writer)
        image->writer->free(image->writer);
    if (image->storages)
        rfs_storages_free(image->storages);
    free(image->storages);
    free(image->regions);
    free(image->literals);
    free(image);
}

size_t rfs_image_find(const struct rfs_image *image, uint64_t offset)
{
    const size_t behind = RFS_BISECT(i, image->n, image->regions[i].start > offset);

    return behind > 0 ? behind - 1 : 0;
}

int rfs_image_write(const struct rfs_image *image, size_t region, struct rfs_bytes *out)
{
    const uint64_t bytes = rfs_image_end(image, region) - image->regions[region].start;

    out->n = 0;
    if (rfs_bytes_room(out, (size_t)bytes))
        image->writer->put(image->writer, image->regions[region].at, out);
    return out->failed ? -ENOMEM : out->n != bytes ? -EIO : 0;
}

/* ---- builders -------------------------------------------------------------------------------- */

bool rfs_image_put_little(struct rfs_bytes *bytes, uint64_t number, unsigned n)
{
    unsigned char little[8];

    for (unsigned i = 0; i < n; i++)
        little[i] = (unsigned char)(number >> (8 * i));
    return rfs_bytes_put(bytes, little, n);
}

static void add_region(struct rfs_image_builder *builder, uint32_t target, uint64_t at,
                       uint64_t bytes)
{
    const struct rfs_region region = {builder->offset, at, target};

    if (!rfs_add_u64(builder->offset, bytes, &builder->offset) || builder->offset > INT64_MAX)
        builder->too_large = true;
    if (!RFS_PUSH(&builder->regions, region))
        builder->failed = true;
}

static void cover_literals(struct rfs_image_builder *builder)
{
    const size_t at = builder->covered;

    builder->covered = builder->literals.n;
    if (builder->covered > at)
        add_region(builder, RFS_LITERAL, at, builder->covered - at);
}

size_t rfs_image_add(struct rfs_image_builder *builder, uint32_t target, uint64_t at,
                     uint64_t bytes)
{
    if (bytes == 0)
        return builder->regions.n;
    cover_literals(builder);
    add_region(builder, target, at, bytes);
    return builder->regions.n - 1;
}

size_t rfs_image_cut(struct rfs_image_builder *builder)
{
    cover_literals(builder);
    return builder->regions.n;
}

void rfs_image_repeat(struct rfs_image_builder *builder, size_t first, size_t end, uint32_t target,
                      uint64_t at)
{
    const uint64_t moved = rfs_image_cut(builder) - first;

    for (size_t i = first; i < end && !builder->failed; i++) {
        const struct rfs_region region = builder->regions.data[i];
        const uint64_t next =
            i + 1 < builder->regions.n ? builder->regions.data[i + 1].start : builder->offset;
        const uint64_t length = next - region.start;
        if (region.target < RFS_NO_TARGET)
            add_region(builder, target, at, length);
        else if (region.target == RFS_STORAGE_CRC) /* it names a region */
            add_region(builder, RFS_STORAGE_CRC, region.at + (moved << 3), length);
        else
            add_region(builder, region.target, region.at, length);
    }
}

int rfs_image_finish(struct rfs_image_builder *builder, struct rfs_image **out)
{
    struct rfs_image *image = *out = NULL;

    cover_literals(builder);
    if (builder->too_large)
        return -EFBIG;
    if (builder->failed || builder->literals.failed || !(image = calloc(1, sizeof *image)))
        return -ENOMEM;
    image->bytes = builder->offset;
    image->n = builder->regions.n;
    image->literal_bytes = builder->literals.n;
    image->regions = RFS_STEAL(builder->regions.data);
    image->literals = RFS_STEAL(builder->literals.data);
    *out = image;
    return 0;
}

void rfs_image_builder_end(struct rfs_image_builder *builder)
{
    free(builder->regions.data);
    free(builder->literals.data);
}

bool rfs_image_take_storages(struct rfs_image *image, struct rfs_storages *storages)
{
    image->storages = calloc(1, sizeof *image->storages);
    if (!image->storages)
        return false;
    *image->storages = *storages;
    *storages = (struct rfs_storages){0};
    return true;
}

int rfs_image_copied(const struct rfs_copied *copied, size_t n, struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    struct rfs_storages storages = {.ranges = {0}};
    bool ok = true;

    *out = NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok = rfs_storages_begin(&storages) &&
             rfs_storages_add(&storages, copied[i].file, copied[i].offset, copied[i].bytes, 0);
        rfs_image_add(&builder, (uint32_t)i, 0, copied[i].bytes);
    }
    const int rc = ok ? rfs_image_finish(&builder, out) : -ENOMEM;
    if (rc == 0 && rfs_image_take_storages(*out, &storages))
        return 0;
    rfs_storages_free(&storages);
    rfs_image_free(*out);
    *out = NULL;
    return rc ? rc : -ENOMEM;
}
