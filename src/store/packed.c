/* SPDX-License-Identifier: Apache-2.0 */
#include "store/packed.h"

#include "base/checked.h"

#include <zstd.h>
#include <zstd_errors.h>

uint64_t rfs_packed_bound(uint64_t plain)
{
    const size_t bound = plain < SIZE_MAX / 2 ? ZSTD_compressBound((size_t)plain) : 0;

    return bound == 0 || ZSTD_isError(bound) ? UINT64_MAX : bound;
}

int rfs_packed_add(struct rfs_packed *packed, uint64_t stored, uint64_t bytes, uint64_t most,
                   uint64_t *begin)
{
    const struct rfs_packed_item item = {packed->end, stored, bytes};
    uint64_t end;

    if (!rfs_add_u64(packed->end, most, &end) || end > INT64_MAX || packed->items.n >= UINT32_MAX)
        return -EFBIG;
    if (!RFS_PUSH(&packed->items, item))
        return -ENOMEM;
    *begin = packed->end;
    packed->end = end;
    return 0;
}

/* Returns where the plain bytes of an item may end. */
static uint64_t end_of(const struct rfs_packed *packed, size_t number)
{
    return number + 1 < packed->items.n ? packed->items.data[number + 1].begin : packed->end;
}

/* The making of a block: the item's plain bytes, and behind their room the compressed ones. */
struct unpacking {
    const struct rfs_packed_input *input;
    const struct rfs_packed_item *item;
    size_t room; /* bytes for the plain bytes */
    bool cut;    /* the room is less than the item may have */
    struct rfs_error *err;
};

static int fail(const struct unpacking *work, const char *what)
{
    return rfs_fail(work->err, -EINVAL, RFS_AT(work->input->path, work->item->stored),
                    "compare the file with its original, or save the checkpoint again",
                    "the item there, which is compressed by zstd, is damaged: %s", what);
}

static int fail_room(const struct unpacking *work)
{
    return rfs_fail(work->err, -EFBIG, RFS_AT(work->input->path, work->item->stored),
                    "a larger cache=",
                    "the item there is compressed by zstd, and the cache has no room for it: it is "
                    "decompressed as a whole, and has more than %zu bytes",
                    work->room);
}

/*
 * Says whether N bytes have a frame of a format before version 1, which the library may read by
 * code of its time. What is no frame at all is left to the library.
 */
static bool has_old_frame(const unsigned char *data, size_t n)
{
    static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd}; /* RFC 8878 */

    for (size_t at = 0; n - at > sizeof magic;) {
        const bool skipped = data[at] >> 4 == 5 && memcmp(data + at + 1, "\x2a\x4d\x18", 3) == 0;
        if (!skipped && memcmp(data + at, magic, sizeof magic) != 0)
            return true;
        const size_t bytes = ZSTD_findFrameCompressedSize(data + at, n - at);
        if (ZSTD_isError(bytes))
            return false;
        at += bytes;
    }
    return false;
}

/* Decompresses what lies behind the room into it. */
static int decompress(const struct unpacking *work, unsigned char *data, size_t *bytes)
{
    const size_t stored = (size_t)work->item->bytes;
    if (has_old_frame(data + work->room, stored))
        return fail(work, "it is not of zstd, or of a version before 1");
    ZSTD_DCtx *context = ZSTD_createDCtx();

    if (!context)
        return -ENOMEM;
    const size_t n = ZSTD_decompressDCtx(context, data, work->room, data + work->room, stored);
    ZSTD_freeDCtx(context);
    if (!ZSTD_isError(n)) {
        *bytes = n;
        return n > 0 ? 0 : fail(work, "it is empty");
    }
    if (ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
        return -ENOMEM;
    if (ZSTD_getErrorCode(n) != ZSTD_error_dstSize_tooSmall)
        return fail(work, ZSTD_getErrorName(n));
    return work->cut ? fail_room(work) : fail(work, "it has more bytes than it may have");
}

static int unpack(void *ctx, unsigned char *data, size_t *bytes)
{
    const struct unpacking *work = ctx;
    const struct rfs_packed_input *input = work->input;
    const int rc =
        input->read(input->ctx, data + work->room, (size_t)work->item->bytes, work->item->stored);

    return rc ? rc : decompress(work, data, bytes);
}

/* Gets the block of item NUMBER. */
static int get(const struct rfs_packed *packed, const struct rfs_packed_input *input, size_t number,
               struct rfs_block_held *held, struct rfs_error *err)
{
    const struct rfs_packed_item *item = &packed->items.data[number];
    struct unpacking work = {.input = input, .item = item, .err = err};
    const uint64_t most = end_of(packed, number) - item->begin;
    const uint64_t largest = rfs_blocks_largest(input->blocks);

    if (item->stored > input->file_bytes || item->bytes > input->file_bytes - item->stored)
        return fail(&work, "the file ends before it");
    const uint64_t rest = largest > item->bytes ? largest - item->bytes : 0;
    work.room = (size_t)rfs_min_u64(most, rest);
    work.cut = work.room < most;
    const int rc = work.room == 0
                       ? fail_room(&work)
                       : rfs_blocks_get(input->blocks, input->file, (uint32_t)number,
                                        work.room + (size_t)item->bytes, unpack, &work, held);
    return rc == -EFBIG && err->code == 0 ? fail_room(&work) : rc;
}

int rfs_packed_read(const struct rfs_packed *packed, const struct rfs_packed_input *input,
                    void *buf, size_t size, uint64_t offset, uint64_t *bytes, struct rfs_error *err)
{
    unsigned char *out = buf;
    struct rfs_block_held held;
    int rc = 0;

    while (rc == 0 && (size > 0 || !out)) {
        const size_t number = rfs_packed_number(packed, offset);
        const uint64_t within = offset - packed->items.data[number].begin;
        rc = get(packed, input, number, &held, err);
        if (rc)
            return rc;
        const size_t n = (size_t)rfs_min_u64(size, end_of(packed, number) - offset);
        if (!out)
            *bytes = held.bytes;
        else if (within > held.bytes || n > held.bytes - within)
            rc = -ESTALE;
        else
            memcpy(out, held.data + within, n);
        rfs_blocks_put(input->blocks, &held);
        if (!out)
            break;
        out += n;
        size -= n;
        offset += n;
    }
    return rc;
}
