/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices of another element type than their sources have: source bytes are assembled as they are, a
 * little at a time, so that they are still in the processor's cache when they are converted. What
 * the assembler keeps are source bytes, so slices that differ in their conversion only share its
 * pieces.
 */
#include "assemble/internal.h"

#include "assemble/convert.h"
#include "base/checked.h"

/*
 * Entries of an answer for RFS_SCRATCH bytes: they lie in two pieces, and one is kept for copied
 * bytes.
 */
#define SPANS 4

_Static_assert(RFS_SCRATCH < RFS_PIECE && RFS_PIECE % sizeof(uint64_t) == 0,
               "the borrowed bytes are whole elements of at most two pieces");

/* One answer while it is made: bytes [begin, end) of the converted slice. */
struct job {
    struct rfs_assembler *assembler;
    const struct rfs_slice *slice;
    const struct rfs_conversion *conversion;
    size_t from_bytes, to_bytes; /* of an element */
    uint64_t begin, end;
    bool sequential;
    unsigned char *scratch;
    unsigned char *dst; /* where byte BEGIN goes */
};

static void convert(const struct rfs_conversion *conversion, void *dst, const void *src,
                    size_t count)
{
    if (conversion->by_float32)
        rfs_convert_by_float32(conversion->to, dst, src, count);
    else
        rfs_convert(conversion->to, dst, conversion->from, src, count);
}

/* The requested part of one element: replies may begin and end anywhere. */
static void convert_part(const struct job *job, uint64_t element, const unsigned char *src)
{
    const uint64_t at = element * job->to_bytes;
    const uint64_t from = rfs_max_u64(at, job->begin);
    const uint64_t to = rfs_min_u64(at + job->to_bytes, job->end);
    unsigned char whole[sizeof(uint64_t)];

    convert(job->conversion, whole, src, 1);
    memcpy(job->dst + (from - job->begin), whole + (from - at), (size_t)(to - from));
}

/* COUNT elements from FIRST on, all requested, if only in part. */
static void convert_elements(const struct job *job, uint64_t first, size_t count,
                             const unsigned char *src)
{
    const size_t head = first * job->to_bytes < job->begin;
    const size_t tail = count > head && (first + count) * job->to_bytes > job->end;
    const size_t whole = count - head - tail;
    const unsigned char *middle = src + head * job->from_bytes;

    if (head > 0)
        convert_part(job, first, src);
    if (whole > 0)
        convert(job->conversion, job->dst + ((first + head) * job->to_bytes - job->begin), middle,
                whole);
    if (tail > 0)
        convert_part(job, first + count - 1, middle + whole * job->from_bytes);
}

/* Of at most RFS_SCRATCH source bytes. */
static int convert_chunk(const struct job *job, uint64_t first, size_t count)
{
    struct iovec iov[SPANS];
    struct rfs_pins pins = {0};
    struct rfs_reply reply = {.at = job->scratch, .iov = iov, .iov_max = SPANS, .pins = &pins};
    const int rc = rfs_assemble_borrow(job->assembler, job->slice, first * job->from_bytes,
                                       count * job->from_bytes, job->sequential, &reply);

    for (int i = 0; rc == 0 && i < reply.iov_count; i++) {
        const size_t n = iov[i].iov_len / job->from_bytes;
        convert_elements(job, first, n, iov[i].iov_base);
        first += n;
    }
    rfs_pins_release(job->assembler, &pins);
    return rc;
}

int rfs_assemble_converted(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                           const struct rfs_conversion *conversion, uint64_t begin, size_t size,
                           bool sequential, void *buf)
{
    struct job job = {
        .assembler = assembler,
        .slice = slice,
        .conversion = conversion,
        .from_bytes = rfs_dtype_bytes(conversion->from),
        .to_bytes = rfs_dtype_bytes(conversion->to),
        .begin = begin,
        .sequential = sequential,
        .dst = buf,
    };
    const size_t most = (size_t)RFS_SCRATCH / job.from_bytes;
    int rc = 0;

    if (slice->bytes % job.from_bytes != 0 || !rfs_add_u64(begin, size, &job.end))
        return -EINVAL;
    const uint64_t last = job.end / job.to_bytes + (job.end % job.to_bytes > 0);
    if (last > slice->bytes / job.from_bytes)
        return -EINVAL;
    struct scratch *scratch = rfs_scratch_take(assembler);
    if (!scratch)
        return -ENOMEM;
    job.scratch = scratch->bytes;
    for (uint64_t at = begin / job.to_bytes; rc == 0 && size > 0 && at < last; at += most)
        rc = convert_chunk(&job, at, (size_t)rfs_min_u64(most, last - at));
    rfs_scratch_give(assembler, scratch);
    return rc;
}

void rfs_assemble_unconverted(const struct rfs_conversion *conversion, uint64_t *begin,
                              uint64_t *end)
{
    const uint32_t from = rfs_dtype_bytes(conversion->from);
    const uint32_t to = rfs_dtype_bytes(conversion->to);

    *begin = *begin / to * from;
    *end = (*end / to + (*end % to > 0)) * from;
}
