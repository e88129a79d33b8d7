/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of values, wherever in a file they are. */
#include "catalog/internal.h"

#include "base/cleanup.h"

int rfs_catalog_content(struct rfs_catalog *catalog, const struct rfs_index *index,
                        const struct rfs_entry *entry, struct rfs_content *out)
{
    *out = rfs_content_of(index, entry);
    if (out->n == 0)
        return 0;
    const uint32_t id =
        rfs_intern_add(catalog->extents, out->extents, out->n * sizeof *out->extents);
    if (id == RFS_NO_ID)
        return -ENOMEM;
    out->extents = rfs_intern_bytes(catalog->extents, id, NULL);
    return 0;
}

int rfs_catalog_lengths(struct rfs_catalog *catalog, const struct rfs_index *index,
                        const struct rfs_entry *entry, uint32_t *id)
{
    const struct rfs_content content = rfs_content_of(index, entry);
    const struct rfs_type *type = rfs_catalog_type(catalog, entry->type);
    const uint32_t n = content.n > 0 ? content.n : 1;
    RFS_FREE uint64_t *lengths = malloc(n * sizeof *lengths);

    if (!lengths)
        return -ENOMEM;
    lengths[0] = type->bytes;
    for (uint32_t i = 0; i < content.n; i++)
        lengths[i] = content.extents[i].bytes;
    *id = rfs_intern_add(catalog->lengths, lengths, n * sizeof *lengths);
    return *id == RFS_NO_ID ? -ENOMEM : 0;
}

const uint64_t *rfs_catalog_lengths_of(const struct rfs_catalog *catalog, uint32_t id, size_t *n)
{
    const uint64_t *lengths = rfs_intern_bytes(catalog->lengths, id, n);

    *n /= sizeof *lengths;
    return lengths;
}

uint64_t rfs_content_offset(const struct rfs_content *content, uint64_t offset)
{
    const struct rfs_extent *extent = content->extents;
    if (content->n == 0)
        return content->offset + offset;
    for (uint32_t i = 1; i < content->n && offset >= extent->bytes; i++, extent++)
        offset -= extent->bytes;
    return extent->offset + offset;
}

int rfs_content_pread(struct rfs_reading *reading, const struct rfs_content *content, void *buf,
                      size_t size, uint64_t offset)
{
    unsigned char *p = buf;
    if (content->n == 0)
        return content->offset > UINT64_MAX - offset
                   ? -EINVAL
                   : rfs_reading_pread(reading, p, size, content->offset + offset);
    const struct rfs_extent *extent = content->extents;
    for (uint32_t i = 0; i < content->n && size > 0; i++, extent++) {
        if (offset >= extent->bytes) {
            offset -= extent->bytes;
            continue;
        }
        const uint64_t left = extent->bytes - offset;
        const size_t take = size < left ? size : (size_t)left;
        const int rc = rfs_reading_pread(reading, p, take, extent->offset + offset);
        if (rc < 0)
            return rc;
        p += take;
        size -= take;
        offset = 0;
    }
    return size == 0 ? 0 : -EINVAL;
}
