/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/archive.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

static void put(struct bytes *b, uint64_t number, unsigned n)
{
    unsigned char little[8];
    for (unsigned i = 0; i < n; i++)
        little[i] = (unsigned char)(number >> 8 * i);
    bytes_add(b, little, n);
}

static void put_fill(struct bytes *b, size_t n)
{
    while (n-- > 0)
        bytes_add(b, "Z", 1);
}

uint64_t archive_add(struct archive *archive, const struct member *m)
{
    struct bytes *out = &archive->file;
    struct bytes *dir = &archive->directory;
    const uint32_t crc = m->no_crc ? 0 : (uint32_t)crc32(0, m->content, (uInt)m->n);
    const char *local_name = m->local_name ? m->local_name : m->name;
    const uint64_t header = out->n;
    const unsigned flags = m->flags | (m->local_sizes ? 0x0800 : 0x0808);
    const uint32_t local_size = m->local_sizes ? (uint32_t)m->n + m->local_says : 0;

    bytes_add(out, "PK\3\4", 4);
    put(out, 0, 2);
    put(out, flags, 2);
    put(out, m->local_method, 2);
    put(out, 0, 4);
    put(out, m->local_sizes ? crc : 0, 4);
    put(out, local_size, 4);
    put(out, local_size, 4);
    put(out, strlen(local_name), 2);
    put(out, m->fill, 2);
    bytes_add(out, local_name, strlen(local_name));
    put_fill(out, m->fill);
    const uint64_t content = out->n;
    if (m->n > 0)
        bytes_add(out, m->content, m->n);
    if (!m->local_sizes) {
        bytes_add(out, "PK\7\10", 4);
        put(out, crc, 4);
        put(out, m->n, 4);
        put(out, m->n, 4);
    }

    bytes_add(dir, "PK\1\2", 4);
    put(dir, 0, 4);
    put(dir, flags, 2);
    put(dir, m->method, 2);
    put(dir, 0, 4);
    put(dir, crc, 4);
    put(dir, m->wide ? UINT32_MAX : m->n + m->says + m->csays, 4);
    put(dir, m->wide ? UINT32_MAX : m->n + m->says, 4);
    put(dir, strlen(m->name), 2);
    put(dir, m->wide ? 4 + 2 + 4 + 24 : 0, 2);
    put(dir, 0, 2);
    put(dir, 0, 8);
    put(dir, m->wide ? UINT32_MAX : (uint64_t)((int64_t)header + m->shift), 4);
    bytes_add(dir, m->name, strlen(m->name));
    if (m->wide) { /* after a field that is nobody's */
        put(dir, 0x4646, 2);
        put(dir, 2, 2);
        put(dir, 0, 2);
        put(dir, 1, 2);
        put(dir, 24, 2);
        put(dir, m->n + m->says, 8);
        put(dir, m->n + m->says + m->csays, 8);
        put(dir, (uint64_t)((int64_t)header + m->shift), 8);
    }
    archive->n++;
    return content;
}

uint64_t archive_put(struct archive *archive, const char *name, const void *content, size_t n)
{
    char path[300];
    snprintf(path, sizeof path, "x/%s", name);
    return archive_add(archive, &(struct member){.name = path, .content = content, .n = n});
}

void archive_end(struct archive *archive, enum archive_end end)
{
    struct bytes *out = &archive->file;
    const uint64_t begin = out->n;
    const uint64_t size = archive->directory.n;
    const unsigned n = archive->n + (end == END_MORE ? 1u : 0u) - (end == END_FEWER ? 1u : 0u);

    bytes_add(out, archive->directory.data, size);
    if (end == END_WIDE || end == END_DIFFERS) {
        const uint64_t at = out->n;
        bytes_add(out, "PK\6\6", 4);
        put(out, 44, 8);
        put(out, 0, 4);
        put(out, 0, 8);
        put(out, n, 8);
        put(out, n, 8);
        put(out, size, 8);
        put(out, begin, 8);
        bytes_add(out, "PK\6\7", 4);
        put(out, 0, 4);
        put(out, at, 8);
        put(out, 1, 4);
    }
    bytes_add(out, "PK\5\6", 4);
    put(out, end == END_SPLIT, 2);
    put(out, 0, 2);
    put(out, n, 2);
    put(out, n, 2);
    put(out, end == END_WIDE ? UINT32_MAX : size, 4);
    put(out, end == END_WIDE ? UINT32_MAX : begin - (end == END_DIFFERS), 4);
    put(out, end == END_COMMENT ? 5000 : 0, 2);
    if (end == END_COMMENT)
        put_fill(out, 5000);
}

void archive_free(struct archive *archive)
{
    bytes_free(&archive->file);
    bytes_free(&archive->directory);
    *archive = (struct archive){0};
}
