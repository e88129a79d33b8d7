/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both checksums are zlib's crc32 (_exec_save and load_checkpoint in
 * mindspore/train/serialization.py):
 *
 *   .ckpt         of everything before the trailer "crc_num" + 10 bytes, which are the number,
 *                 big-endian
 *   .safetensors  run over the tensors, sorted by name (as UTF-8): the name, then the bytes of the
 *                 content; the number is in the metadata as "crc_num", in decimal
 *
 * One thing in the latter is odd. MindSpore takes Python's bytes() of the numpy array. For an array
 * of whole numbers without dimensions that is not its content, but as many zero bytes as the
 * number: a global_step of 1000 counts as 1000 zeros.
 */
#include "formats/ckpt/crc.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/secret.h"
#include "base/store.h"

#include <zlib.h>

#define TRAILER_BYTES 17u
#define TAG_BYTES 7u
#define BUFFER ((size_t)1 << 20)

struct work {
    const struct rfs_bytes_source *from;
    const struct rfs_index *index;
    const struct rfs_tables *tables;
    struct rfs_error *err;
    unsigned char *buf; /* BUFFER bytes; owned */
    uLong crc;
};

static int read_some(struct work *work, void *buf, size_t n, uint64_t offset)
{
    const int rc = rfs_bytes_source_read(work->from, buf, n, offset);
    return rc < 0 ? rfs_store_fail_read(work->err, RFS_AT(work->from->file, offset), rc) : 0;
}

static int add_range(struct work *work, uint64_t offset, uint64_t bytes)
{
    while (bytes > 0) {
        const size_t n = (size_t)rfs_min_u64(bytes, BUFFER);
        const int rc = read_some(work, work->buf, n, offset);
        if (rc < 0)
            return rc;
        work->crc = crc32(work->crc, work->buf, (uInt)n);
        offset += n;
        bytes -= n;
    }
    return 0;
}

/* Adds N zero bytes, however many, by doubling. */
static void add_zeros(struct work *work, uint64_t n)
{
    static const unsigned char zero;
    uLong run = crc32(0, &zero, 1); /* the checksum of LENGTH zeros */
    for (uint64_t length = 1; n > 0; length *= 2) {
        if (n & length) {
            work->crc = crc32_combine(work->crc, run, (z_off_t)length);
            n -= length;
        }
        if (n > 0)
            run = crc32_combine(run, run, (z_off_t)length);
    }
}

static bool is_whole(enum rfs_dtype dtype, bool *has_sign)
{
    switch (dtype) {
    case RFS_INT4:
    case RFS_INT8:
    case RFS_INT16:
    case RFS_INT32:
    case RFS_INT64:
        *has_sign = true;
        return true;
    case RFS_UINT8:
    case RFS_UINT16:
    case RFS_UINT32:
    case RFS_UINT64:
        *has_sign = false;
        return true;
    default:
        return false;
    }
}

/*
 * Adds a whole number without dimensions. A negative number has no such bytes(), nor has one above
 * 2^63 - 1: MindSpore wrote no such file.
 */
static int add_scalar(struct work *work, const struct rfs_entry *entry, uint32_t bytes, bool sign)
{
    unsigned char raw[8];
    uint64_t value = 0;
    const int rc = read_some(work, raw, bytes, entry->offset);
    if (rc < 0)
        return rc;
    for (unsigned i = bytes; i-- > 0;)
        value = value << 8 | raw[i];
    if (value > INT64_MAX || (sign && value >> (8 * bytes - 1)))
        work->crc = crc32(work->crc, raw, bytes);
    else
        add_zeros(work, value);
    return 0;
}

static int add_entry(struct work *work, const struct rfs_entry *entry)
{
    const struct rfs_type *type = rfs_intern_bytes(work->tables->types, entry->type, NULL);
    size_t n;
    const unsigned char *name = rfs_intern_bytes(work->tables->names, entry->name, &n);
    bool sign;
    work->crc = crc32(work->crc, name, (uInt)n);
    if (type->ndim == 0 && is_whole((enum rfs_dtype)type->dtype, &sign))
        return add_scalar(work, entry, (uint32_t)type->bytes, sign);
    return add_range(work, entry->offset, type->bytes);
}

/* Compares names by their bytes, which is as Python sorts text. */
static int compare_names(const void *a, const void *b, void *ctx)
{
    const struct work *work = ctx;
    const struct rfs_entry *entries = work->index->entries;
    return strcmp(rfs_intern_text(work->tables->names, entries[*(const uint32_t *)a].name),
                  rfs_intern_text(work->tables->names, entries[*(const uint32_t *)b].name));
}

static int sum_tensors(struct work *work)
{
    const size_t n = work->index->n;
    RFS_FREE uint32_t *sorted = malloc(n * sizeof *sorted + 1);
    if (!sorted)
        return rfs_fail_memory_of(work->err, work->from->file);
    for (size_t i = 0; i < n; i++)
        sorted[i] = (uint32_t)i;
    RFS_SORT_BY(sorted, n, compare_names, work);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_entry(work, &work->index->entries[sorted[i]]);
    return rc;
}

/* Reads the trailer's number; UINT64_MAX if it is too large. */
static int read_trailer(struct work *work, uint64_t *says)
{
    unsigned char trailer[TRAILER_BYTES];
    const int rc =
        read_some(work, trailer, sizeof trailer, work->index->file_bytes - TRAILER_BYTES);
    *says = 0;
    for (unsigned i = TAG_BYTES; rc == 0 && i < TRAILER_BYTES; i++)
        *says = *says >> 56 ? UINT64_MAX : *says << 8 | trailer[i];
    return rc;
}

int rfs_crc_verify(const struct rfs_bytes_source *from, bool trailer, const struct rfs_index *index,
                   const struct rfs_tables *tables, struct rfs_error *err)
{
    struct work work = {from, index, tables, err, NULL, crc32(0, NULL, 0)};
    uint64_t says = index->crc;
    int rc = 0;
    if (!index->has_crc)
        return 1;
    work.buf = malloc(BUFFER);
    if (!work.buf)
        return rfs_fail_memory_of(err, from->file);
    if (trailer) {
        rc = read_trailer(&work, &says) ?: add_range(&work, 0, index->file_bytes - TRAILER_BYTES);
    } else {
        rc = sum_tensors(&work);
    }
    rfs_secret_wipe(work.buf, BUFFER); /* the file may be encrypted */
    free(work.buf);
    if (rc < 0 || says == work.crc)
        return rc;
    return rfs_fail(err, -EINVAL, RFS_IN(from->file), "copy the file again from where it is whole",
                    "the file is damaged: it says that its crc_num is %llu, but its content makes "
                    "it %lu",
                    (unsigned long long)says, work.crc);
}

void rfs_crc_tell_none(struct rfs_log *log, atomic_bool *told, bool records, const char *file)
{
    if (atomic_exchange(told, true))
        return;
    rfs_log(log, RFS_WARNING,
            records ? "%s: has records without a checksum, so check=crc does not verify these, nor "
                      "those of other files"
                    : "%s: has no checksum, so check=crc does not verify this file, nor others "
                      "without one",
            file);
}
