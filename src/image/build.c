/* SPDX-License-Identifier: Apache-2.0 */
#include "image/build.h"

#include "base/checked.h"
#include "base/cleanup.h"

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

int rfs_image_finish(struct rfs_image_builder *builder, const struct rfs_params *params,
                     struct rfs_image **out)
{
    struct rfs_image *image = *out = NULL;

    cover_literals(builder);
    if (builder->too_large)
        return -EFBIG;
    if (builder->failed || builder->literals.failed || !(image = calloc(1, sizeof *image)))
        return -ENOMEM;
    image->params = params;
    image->bytes = builder->offset;
    image->n = builder->regions.n;
    image->literal_bytes = builder->literals.n;
    image->regions = RFS_STEAL(builder->regions.data);
    image->literals = RFS_STEAL(builder->literals.data);
    *out = image;
    return 0;
}

int rfs_image_bytes(struct rfs_bytes *bytes, struct rfs_image **out)
{
    struct rfs_image_builder builder = {.literals = *bytes};

    *bytes = (struct rfs_bytes){0};
    const int rc = rfs_image_finish(&builder, NULL, out);
    rfs_image_builder_end(&builder);
    return rc;
}

void rfs_image_builder_end(struct rfs_image_builder *builder)
{
    free(builder->regions.data);
    free(builder->literals.data);
}
