/* SPDX-License-Identifier: Apache-2.0 */
/* A file whose bytes lie in source files as they are. */
#include "base/cleanup.h"
#include "image/build.h"

static bool add(struct rfs_storages *storages, const struct rfs_copied *copied)
{
    const struct rfs_zip_entry record = {.offset = copied->offset, .bytes = copied->bytes};
    const struct rfs_range range = {.record = &record, .bytes = copied->bytes};

    return rfs_storages_begin(storages) && rfs_storages_add(storages, copied->file, &range);
}

int rfs_image_copied(const struct rfs_copied *copied, size_t n, struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    struct rfs_storages storages = {.shown = 0};
    bool ok = true;

    *out = NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok = add(&storages, &copied[i]);
        rfs_image_add(&builder, (uint32_t)i, 0, copied[i].bytes);
    }
    const int rc = ok ? rfs_image_finish(&builder, NULL, out) : -ENOMEM;
    struct rfs_storages *kept = rc == 0 ? malloc(sizeof *kept) : NULL;
    if (!kept) {
        rfs_storages_free(&storages);
        rfs_image_free(*out);
        *out = NULL;
        return rc ? rc : -ENOMEM;
    }
    *kept = storages;
    (*out)->storages = kept;
    return 0;
}
