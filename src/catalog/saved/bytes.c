/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/saved/bytes.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <xxhash.h>

const char *rfs_saved_magic(enum rfs_saved_kind kind)
{
    return kind == RFS_SAVED_INDEX ? "rfsindex" : "rfssizes";
}

void rfs_saved_put_u32(struct rfs_bytes *out, uint32_t value)
{
    rfs_bytes_put(out, &value, sizeof value);
}

void rfs_saved_put_u64(struct rfs_bytes *out, uint64_t value)
{
    rfs_bytes_put(out, &value, sizeof value);
}

void rfs_saved_put_text(struct rfs_bytes *out, const char *text, size_t n)
{
    out->failed |= n > UINT32_MAX;
    rfs_saved_put_u32(out, (uint32_t)n);
    rfs_bytes_put(out, text, n);
}

const void *rfs_saved_take(struct rfs_saved_in *in, size_t n)
{
    const unsigned char *p = in->p;

    if (in->bad || n > in->left) {
        in->bad = true;
        return NULL;
    }
    in->p += n;
    in->left -= n;
    return p;
}

uint32_t rfs_saved_take_u32(struct rfs_saved_in *in)
{
    uint32_t value = 0;
    const void *p = rfs_saved_take(in, sizeof value);

    if (p)
        memcpy(&value, p, sizeof value);
    return value;
}

uint64_t rfs_saved_take_u64(struct rfs_saved_in *in)
{
    uint64_t value = 0;
    const void *p = rfs_saved_take(in, sizeof value);

    if (p)
        memcpy(&value, p, sizeof value);
    return value;
}

const char *rfs_saved_take_text(struct rfs_saved_in *in, size_t *n)
{
    *n = rfs_saved_take_u32(in);
    const char *text = rfs_saved_take(in, *n);

    *n = text ? *n : 0;
    return text;
}

uint32_t rfs_saved_take_count(struct rfs_saved_in *in, size_t least)
{
    const uint32_t n = rfs_saved_take_u32(in);

    if (n <= in->left / least)
        return n;
    in->bad = true;
    return 0;
}

/* All of N bytes at OFFSET, or false. */
static bool read_at(const struct rfs_saved_file *file, void *buf, size_t n, uint64_t offset)
{
    if (offset > file->size || n > file->size - offset)
        return false;
    if (file->fd < 0) {
        memcpy(buf, file->memory + offset, n);
        return true;
    }
    return rfs_pread_all(file->fd, buf, n, offset) == 0;
}

void *rfs_saved_body(const struct rfs_saved_file *file, uint64_t offset, uint64_t n, uint64_t hash)
{
    if (offset > file->size || n > file->size - offset)
        return NULL;
    RFS_FREE void *bytes = malloc((size_t)n + 1);
    if (!bytes || !read_at(file, bytes, (size_t)n, offset) || XXH3_64bits(bytes, (size_t)n) != hash)
        return NULL;
    return RFS_STEAL(bytes);
}

/* The table, if its place in the header is valid. */
static bool read_table(enum rfs_saved_kind kind, struct rfs_saved_file *file)
{
    unsigned char start[RFS_SAVED_START];
    struct rfs_saved_in in = {start, sizeof start, false};

    if (!read_at(file, start, sizeof start, 0) ||
        memcmp(rfs_saved_take(&in, 8), rfs_saved_magic(kind), 8) != 0 ||
        rfs_saved_take_u32(&in) != RFS_SAVED_VERSION || rfs_saved_take_u32(&in) != RFS_SAVED_MARK)
        return false;
    const uint64_t offset = rfs_saved_take_u64(&in);
    const uint64_t bytes = rfs_saved_take_u64(&in);
    const uint64_t hash = rfs_saved_take_u64(&in);
    if (bytes > RFS_SAVED_TABLE)
        return false;
    file->table = rfs_saved_body(file, offset, bytes, hash);
    file->in = (struct rfs_saved_in){file->table, (size_t)bytes, false};
    return file->table != NULL;
}

bool rfs_saved_parse(enum rfs_saved_kind kind, const char *key, int fd, const void *memory,
                     uint64_t size, struct rfs_saved_file *file)
{
    *file = (struct rfs_saved_file){.fd = fd, .memory = memory, .size = size};
    size_t n;
    const char *text = read_table(kind, file) ? rfs_saved_take_text(&file->in, &n) : NULL;

    if (text && n == strlen(key) && memcmp(text, key, n) == 0)
        return true;
    rfs_saved_end(file);
    return false;
}

void rfs_saved_end(struct rfs_saved_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->table);
    *file = (struct rfs_saved_file){.fd = -1};
}
