/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers one block at a time. Runs that are long, or far apart in the source, are read one by
 * one straight to their destination. Others are read as windows of the source, gaps included, and
 * copied from there while the window is in the processor's cache.
 *
 * The source strides of some blocks are in any order: transposed tensors, expanded ones. The runs
 * of a range are then divided into boxes; of a box, the loop with the longest source stride is
 * stepped through, the others within, until the rest lies close together: that is read as one
 * window, gaps included, and scattered. So a source byte is read once for a box, however the
 * destination jumps.
 */
#include "assemble/gather.h"

#include "assemble/computed.h"
#include "assemble/distance.h"
#include "assemble/kernels.h"
#include "assemble/shape.h"
#include "assemble/transpose.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "store/files.h"

/* Runs of this length are not worth keeping: they read as fast as a copy from the cache. */
#define KEEP_RUN (UINT64_C(64) << 10)
/* Reading over gaps may cost longer runs a part of the bytes: a tenth or so of whole files. */
#define EXACT_RUN (UINT64_C(2) << 10)
#define EXACT_SHARE 8
/* Shorter runs of codes are read with gaps, as a system call for each costs more. */
#define SHORT_CODES 256
/* A kernel's own cost is lost in this many runs. */
#define MANY_RUNS 16
/* From this length on, a system call for each run costs less than copying it twice. */
#define LONG_RUN (UINT64_C(16) << 10)
/* Reading over a gap of this many bytes costs about as much as a system call. */
#define LONG_GAP (UINT64_C(8) << 10)
/* Windows of strided blocks have at most so many bytes for each that is wanted. */
#define SPARSE 8

/*
 * A block's share of a range: runs [first, last]; the first may begin late, the last may end early.
 */
struct job {
    struct rfs_shape shape;
    const struct rfs_block *block;
    struct rfs_reading *reading;
    struct rfs_quant_scales *scales;
    unsigned char *scratch;
    unsigned char *dst; /* address for byte dst_from of the block; NULL where ranges are noted */
    uint64_t dst_from;
    uint64_t first, last;
    uint64_t head; /* bytes of the first run to leave out */
    uint64_t tail; /* bytes of the last run to take; head counts in when they are the same run */
    /* NULL to read. Else nothing is copied: the ranges to read are noted here. */
    struct rfs_gather_ranges *ranges;
};

static bool overlap(const struct rfs_block *block, uint64_t *begin, uint64_t *end)
{
    *begin = rfs_max_u64(*begin, block->dst);
    *end = rfs_min_u64(*end, block->dst_end);
    return *begin < *end;
}

/* Sets the job; returns false when no run of the block has a byte in [begin, end). */
static bool job_init(struct job *job, const struct rfs_block *block, uint64_t begin, uint64_t end)
{
    uint64_t from = begin, to = end;
    if (!overlap(block, &from, &to))
        return false;
    struct rfs_shape *shape = &job->shape;
    rfs_shape_init(shape, block);
    if (shape->empty)
        return false;
    from -= block->dst;
    to -= block->dst;
    job->block = block;
    job->first = rfs_shape_at(shape, RFS_SHAPE_DST, from);
    job->head = from - rfs_shape_dst(shape, job->first);
    if (job->head >= shape->run) {
        job->first++;
        job->head = 0;
    }
    job->last = rfs_shape_at(shape, RFS_SHAPE_DST, to - 1);
    job->tail = rfs_min_u64(shape->run, to - rfs_shape_dst(shape, job->last));
    return job->first <= job->last;
}

/* Returns the first wanted byte of run K, counted in the run; *size is how many there are. */
static uint64_t wanted_of(const struct job *job, uint64_t k, uint64_t *size)
{
    const uint64_t from = k == job->first ? job->head : 0;
    *size = (k == job->last ? job->tail : job->shape.run) - from;
    return from;
}

/* Returns where byte FROM of run K goes: bytes from job->dst on. */
static uint64_t dst_of(const struct job *job, uint64_t k, uint64_t from)
{
    return rfs_shape_dst(&job->shape, k) + from - job->dst_from;
}

/* Returns where in the file byte OFFSET of the block is. */
static uint64_t file_offset(const struct rfs_block *block, uint64_t offset)
{
    return rfs_catalog_content_offset(&block->content, block->src + offset);
}

/*
 * Adds a range of a file to those noted; one that goes on where the last one ends becomes part of
 * it.
 */
static int note_range(const struct job *job, uint32_t file, uint64_t from, uint64_t size)
{
    struct rfs_gather_ranges *ranges = job->ranges;
    struct rfs_gather_range *last = ranges->n > 0 ? &ranges->data[ranges->n - 1] : NULL;
    ranges->requests++;
    if (last && last->file == file && last->to == from) {
        last->to += size;
        last->next = RFS_NO_SOURCE;
        return 0;
    }
    if (ranges->n >= RFS_GATHER_MOST)
        return 0;
    const struct rfs_gather_range range = {file, from, from + size, RFS_NO_SOURCE};
    return RFS_PUSH(ranges, range) ? 0 : -ENOMEM;
}

/* Notes the codes and scales of SIZE bytes from OFFSET of the block. */
static int note_quantized(const struct job *job, uint64_t size, uint64_t offset)
{
    const struct rfs_block *block = job->block;
    const struct rfs_quant *quant = block->content.quant;
    struct rfs_quant_range sides[RFS_QUANT_SIDES];
    const unsigned n = rfs_quant_sides(quant, size, block->src + offset, sides);
    uint64_t from, to;

    rfs_quant_codes(quant, size, block->src + offset, &from, &to);
    int rc = note_range(job, block->file, block->content.offset + from, to - from);

    for (unsigned i = 0; rc == 0 && i < n; i++)
        rc = note_range(job, sides[i].file, sides[i].from, sides[i].to - sides[i].from);
    return rc;
}

/* Notes SIZE bytes from OFFSET of the block, which may lie in several extents. */
static int note_content(const struct job *job, uint64_t size, uint64_t offset)
{
    const struct rfs_block *block = job->block;
    const struct rfs_content *content = &block->content;
    if (content->zeros)
        return 0;
    if (content->quant)
        return note_quantized(job, size, offset);
    if (content->n == 0)
        return note_range(job, block->file, file_offset(block, offset), size);
    uint64_t at = block->src + offset;
    for (uint32_t i = 0; i < content->n && size > 0; i++) {
        const struct rfs_extent *extent = &content->extents[i];
        if (at < extent->bytes) {
            const uint64_t take = rfs_min_u64(size, extent->bytes - at);
            const int rc = note_range(job, block->file, extent->offset + at, take);
            if (rc < 0)
                return rc;
            size -= take;
            at = 0;
        } else {
            at -= extent->bytes;
        }
    }
    return 0;
}

/* Reads SIZE bytes from OFFSET of the block's source, relative to its first run. 0 or -errno. */
static int read_content(const struct job *job, void *buf, uint64_t size, uint64_t offset)
{
    const struct rfs_block *block = job->block;
    return rfs_computed_pread(job->reading, &block->content, job->scales, buf, (size_t)size,
                              block->src + offset);
}

/*
 * Gets SIZE bytes, at most RFS_SCRATCH, from OFFSET of the block, where they can be copied from: in
 * the scratch, or where they are held. *window is NULL when there is nothing to copy. 0 or -errno.
 */
static int read_window(const struct job *job, uint64_t size, uint64_t offset,
                       const unsigned char **window)
{
    *window = NULL;
    if (job->ranges)
        return note_content(job, size, offset);
    const uint64_t from = file_offset(job->block, offset);
    if (job->reading->n_held > 0 && rfs_content_is_stored(&job->block->content) &&
        file_offset(job->block, offset + size - 1) == from + size - 1)
        *window = rfs_reading_find(job->reading, (size_t)size, from);
    if (*window)
        return 0;
    unsigned char *scratch = rfs_distance_is_slow(job->scratch, from, size)
                                 ? job->scratch + RFS_DISTANCE_STEP
                                 : job->scratch;
    *window = scratch;
    return read_content(job, scratch, size, offset);
}

/* Reads bytes that have to go where copying is slow by way of a window from which it is not. */
static int read_by_window(const struct job *job, unsigned char *dst, uint64_t size, uint64_t offset)
{
    for (uint64_t n; size > 0; size -= n, dst += n, offset += n) {
        const uint64_t from = file_offset(job->block, offset);
        unsigned char *window = job->scratch;
        n = rfs_min_u64(size, RFS_SCRATCH);
        /* At most two windows are too near: one to the file's bytes, one to the destination. */
        while (rfs_distance_is_slow(window, from, n) ||
               rfs_distance_is_slow(dst, (uintptr_t)window, n))
            window += RFS_DISTANCE_STEP;
        const int rc = read_content(job, window, n, offset);
        if (rc < 0)
            return rc;
        memcpy(dst, window, (size_t)n);
    }
    return 0;
}

/*
 * Reads SIZE bytes from OFFSET of the block's source, relative to its first run, to byte TO of the
 * destination, where reading may be slow. 0 or -errno.
 */
static int read_run(const struct job *job, uint64_t to, uint64_t size, uint64_t offset)
{
    if (job->ranges)
        return note_content(job, size, offset);
    unsigned char *dst = job->dst + to;
    return rfs_distance_is_slow(dst, file_offset(job->block, offset), size)
               ? read_by_window(job, dst, size, offset)
               : read_content(job, dst, size, offset);
}

/* Reads the wanted part of run K. */
static int read_part(const struct job *job, uint64_t k)
{
    uint64_t size;
    const uint64_t from = wanted_of(job, k, &size);

    return read_run(job, dst_of(job, k, from), size, rfs_shape_src(&job->shape, k) + from);
}

static int read_runs(const struct job *job)
{
    int rc = 0;
    for (uint64_t k = job->first; k <= job->last && rc == 0; k++)
        rc = read_part(job, k);
    return rc;
}

/* ---- boxes of runs --------------------------------------------------------------------------- */

/* Loops of a box, the longest source stride first. */
struct nest {
    uint32_t n;
    struct rfs_loop loop[RFS_MAX_DIMS];
    /* source bytes from the first to the last of the loops from i on */
    uint64_t span[RFS_MAX_DIMS + 1];
    uint64_t wanted[RFS_MAX_DIMS + 1]; /* bytes that they move */
};

static void nest_init(struct nest *nest, const struct rfs_shape *shape, uint32_t level,
                      uint64_t steps)
{
    nest->n = 0;
    for (uint32_t i = level; i < shape->n; i++) {
        struct rfs_loop loop = shape->loop[i];
        uint32_t at = nest->n++;
        loop.count = i == level ? steps : loop.count;
        for (; at > 0 && nest->loop[at - 1].src_stride < loop.src_stride; at--)
            nest->loop[at] = nest->loop[at - 1];
        nest->loop[at] = loop;
    }
    nest->span[nest->n] = shape->run;
    nest->wanted[nest->n] = shape->run;
    for (uint32_t i = nest->n; i-- > 0;) {
        nest->span[i] = nest->span[i + 1] + (nest->loop[i].count - 1) * nest->loop[i].src_stride;
        nest->wanted[i] = nest->wanted[i + 1] * nest->loop[i].count;
    }
}

/* Scatters loops from LEVEL on, the first of them COUNT steps. */
static void scatter(const struct nest *nest, uint32_t level, uint64_t count, uint64_t run,
                    unsigned char *dst, const unsigned char *src)
{
    if (level == nest->n) {
        memcpy(dst, src, (size_t)run);
        return;
    }
    const struct rfs_loop *loop = &nest->loop[level];
    if (level + 1 == nest->n && loop->src_stride >= run) {
        rfs_kernels_copy(dst, (size_t)loop->dst_stride, src, (size_t)loop->src_stride, (size_t)run,
                         (size_t)count);
        return;
    }
    if (level + 2 == nest->n && loop->dst_stride == run && loop[1].src_stride == run &&
        rfs_transpose_knows(run)) {
        rfs_transpose(dst, (size_t)loop[1].dst_stride, src, (size_t)loop->src_stride, (size_t)run,
                      (size_t)count, (size_t)loop[1].count);
        return;
    }
    const uint64_t inner = level + 1 < nest->n ? nest->loop[level + 1].count : 1;
    for (uint64_t i = 0; i < count; i++)
        scatter(nest, level + 1, inner, run, dst + i * loop->dst_stride,
                src + i * loop->src_stride);
}

/*
 * Copies a box from a window, where its first run is at SRC. Runs are handed to the kernel along
 * the innermost loop, or along the longest if the innermost is short; a window has no order to
 * keep.
 */
static void copy_box(const struct job *job, struct nest *nest, uint64_t dst,
                     const unsigned char *src)
{
    struct rfs_loop *last = &nest->loop[nest->n - 1];
    struct rfs_loop *longest = last;

    for (uint32_t i = 0; i < nest->n && last->count < MANY_RUNS; i++)
        longest = nest->loop[i].count > longest->count ? &nest->loop[i] : longest;
    const struct rfs_loop other = *last;
    *last = *longest;
    *longest = other;
    scatter(nest, 0, nest->loop[0].count, job->shape.run, job->dst + dst, src);
}

/* Returns how many steps of loop LEVEL are worth reading as one window; 0: not even one. */
static uint64_t steps_at_once(const struct nest *nest, uint32_t level)
{
    const struct rfs_loop *loop = &nest->loop[level];
    const uint64_t inner = nest->span[level + 1];

    if (inner > RFS_SCRATCH || inner / SPARSE > nest->wanted[level + 1])
        return 0;
    if (loop->src_stride == 0)
        return loop->count;
    const bool near = loop->src_stride / SPARSE <= nest->wanted[level + 1] ||
                      loop->src_stride < inner + LONG_GAP / SPARSE;
    return near ? rfs_min_u64(loop->count, (RFS_SCRATCH - inner) / loop->src_stride + 1) : 1;
}

/* Reads a box from loop LEVEL on; its first run begins at SOURCE and goes to byte DST. */
static int fetch(const struct job *job, const struct nest *nest, uint32_t level, uint64_t dst,
                 uint64_t source)
{
    const uint64_t run = job->shape.run;

    if (level == nest->n)
        return read_run(job, dst, run, source);
    const struct rfs_loop *loop = &nest->loop[level];
    const uint64_t group = steps_at_once(nest, level);
    for (uint64_t i = 0, n; i < loop->count; i += n) {
        const uint64_t to = dst + i * loop->dst_stride;
        const uint64_t from = source + i * loop->src_stride;
        n = group > 0 ? rfs_min_u64(group, loop->count - i) : 1;
        if (group == 0) {
            const int rc = fetch(job, nest, level + 1, to, from);
            if (rc < 0)
                return rc;
            continue;
        }
        const uint64_t size = nest->span[level + 1] + (n - 1) * loop->src_stride;
        const unsigned char *window;
        const int rc = read_window(job, size, from, &window);
        if (rc < 0)
            return rc;
        if (window)
            scatter(nest, level, n, run, job->dst + to, window);
    }
    return 0;
}

/*
 * Takes whole runs [a, b), all within one step of the loop above LEVEL: copies them from a window,
 * where run A is at SRC, or reads them if that is NULL.
 */
static int take_level(const struct job *job, uint32_t level, uint64_t a, uint64_t b,
                      const unsigned char *src)
{
    const struct rfs_shape *shape = &job->shape;
    struct nest nest;
    int rc = 0;

    if (a >= b)
        return 0;
    if (level == shape->n)
        return read_run(job, dst_of(job, a, 0), shape->run, rfs_shape_src(shape, a));
    const uint64_t inner = shape->inner[level];
    const uint64_t base = rfs_shape_src(shape, a);
    if (a % inner != 0) {
        const uint64_t stop = rfs_min_u64(b, (a / inner + 1) * inner);
        rc = take_level(job, level + 1, a, stop, src);
        a = stop;
    }
    const uint64_t steps = (b - a) / inner;
    if (rc == 0 && steps > 0) {
        const uint64_t source = rfs_shape_src(shape, a);
        nest_init(&nest, shape, level, steps);
        if (src)
            copy_box(job, &nest, dst_of(job, a, 0), src + (source - base));
        else
            rc = fetch(job, &nest, 0, dst_of(job, a, 0), source);
        a += steps * inner;
    }
    if (rc < 0 || a >= b)
        return rc;
    return take_level(job, level + 1, a, b, src ? src + (rfs_shape_src(shape, a) - base) : NULL);
}

/* ---- blocks whose source strides descend ----------------------------------------------------- */

/* Copies runs [a, b) from the window, whose first byte is SOURCE of the block. */
static void copy_window(const struct job *job, uint64_t a, uint64_t b, uint64_t source,
                        const unsigned char *window)
{
    const struct rfs_shape *shape = &job->shape;
    uint64_t size;
    if (a == job->first && (job->head > 0 || a == job->last)) {
        const uint64_t from = wanted_of(job, a, &size);
        memcpy(job->dst + dst_of(job, a, from), window, (size_t)size);
        a++;
    }
    if (a < b && b - 1 == job->last && job->tail < shape->run) {
        b--;
        memcpy(job->dst + dst_of(job, b, 0), window + (rfs_shape_src(shape, b) - source),
               (size_t)job->tail);
    }
    if (a < b)
        (void)take_level(job, 0, a, b, window + (rfs_shape_src(shape, a) - source));
}

/*
 * Reads all runs by windows, which never span the long gaps: runs in groups of GROUP follow each
 * other without one.
 */
static int read_windows(const struct job *job, uint64_t group)
{
    const struct rfs_shape *shape = &job->shape;
    for (uint64_t a = job->first; a <= job->last;) {
        uint64_t size;
        const uint64_t source = rfs_shape_src(shape, a) + wanted_of(job, a, &size);
        uint64_t b = rfs_min_u64(job->last + 1, (a / group + 1) * group);
        b = rfs_min_u64(b,
                        rfs_shape_at(shape, RFS_SHAPE_SRC, source + RFS_SCRATCH - shape->run) + 1);
        const uint64_t final = rfs_shape_src(shape, b - 1) + wanted_of(job, b - 1, &size);
        const unsigned char *window;
        const int rc = read_window(job, final + size - source, source, &window);
        if (rc < 0)
            return rc;
        if (window)
            copy_window(job, a, b, source, window);
        a = b;
    }
    return 0;
}

/*
 * Says whether steps of a loop are read with the gaps between them: if these are short, and
 * reading the steps one by one would take many calls, or few more bytes are read. Gaps between
 * codes cost more, because they are expanded, too.
 */
static bool is_near(const struct rfs_block *block, const struct rfs_shape *shape, uint32_t i)
{
    const uint64_t span = shape->src_span[i];
    const uint64_t gap = shape->loop[i].src_stride - span;

    if (block->content.quant)
        return gap <= span / EXACT_SHARE ||
               (rfs_quant_code_bytes(block->content.quant, span) < SHORT_CODES &&
                rfs_quant_code_bytes(block->content.quant, gap) < EXACT_RUN);

    return gap < LONG_GAP && (span < EXACT_RUN || gap <= span / EXACT_SHARE);
}

/* ---- blocks whose source strides are in any order -------------------------------------------- */

static int read_strided(const struct job *job)
{
    uint64_t a = job->first;
    uint64_t b = job->last + 1;
    int rc = 0;

    if (job->head > 0 || (a == job->last && job->tail < job->shape.run))
        rc = read_part(job, a++);
    if (rc == 0 && a < b && job->tail < job->shape.run)
        rc = read_part(job, --b);
    return rc < 0 ? rc : take_level(job, 0, a, b, NULL);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static int run_job(const struct job *job)
{
    const struct rfs_shape *shape = &job->shape;
    uint64_t group = 1;
    if (job->block->strided)
        return read_strided(job);
    uint32_t i = shape->n;
    while (i > 0 && is_near(job->block, shape, i - 1))
        group *= shape->loop[--i].count;
    return group == 1 || shape->run >= LONG_RUN ? read_runs(job) : read_windows(job, group);
}

/* Returns how far behind the job's last byte its block goes on in the source. */
static uint64_t gap_behind(const struct job *job)
{
    const struct rfs_shape *shape = &job->shape;
    const uint64_t runs = shape->n > 0 ? shape->inner[0] * shape->loop[0].count : 1;

    if (job->tail < shape->run)
        return 0;
    if (job->last + 1 >= runs)
        return RFS_NO_SOURCE;
    const uint64_t end = rfs_shape_src(shape, job->last) + shape->run;
    const uint64_t next = rfs_shape_src(shape, job->last + 1);
    return next >= end ? next - end : RFS_NO_SOURCE;
}

int rfs_gather_note(const struct rfs_slice *slice, uint64_t begin, uint64_t end,
                    struct rfs_gather_ranges *ranges)
{
    int rc = 0;
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end && rc == 0; i++) {
        struct job job = {.ranges = ranges};
        if (!job_init(&job, &slice->blocks[i], begin, end))
            continue;
        job.dst_from = begin - job.block->dst;
        const size_t before = ranges->requests;
        rc = run_job(&job);
        const uint64_t gap = gap_behind(&job);
        if (rc == 0 && ranges->requests > before && gap < RFS_NO_SOURCE)
            ranges->data[ranges->n - 1].next = ranges->data[ranges->n - 1].to + gap;
    }
    return rc;
}

static int end_reading(struct rfs_reading *reading, enum rfs_gather_proof proof)
{
    if (proof == RFS_GATHER_PROVEN)
        return rfs_reading_end(reading);
    rfs_reading_leave(reading);
    return 0;
}

int rfs_gather(struct rfs_files *files, const struct rfs_slice *slice, uint64_t begin, uint64_t end,
               unsigned char *scratch, unsigned char *dst, enum rfs_gather_proof proof,
               const struct rfs_gather_held *held)
{
    RFS_CLEANUP(rfs_quant_scales_end) struct rfs_quant_scales scales = {0};
    struct rfs_reading reading;
    bool open = false;
    int rc = 0;
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end && rc == 0; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        struct job job = {.scratch = scratch, .dst = dst, .reading = &reading, .scales = &scales};
        if (!job_init(&job, block, begin, end))
            continue;
        job.dst_from = begin - block->dst;
        if (open && reading.id != block->file) {
            rc = end_reading(&reading, proof);
            open = false;
        }
        if (rc == 0 && !open) {
            rc = rfs_reading_take(files, block->file, &reading);
            open = rc == 0;
        }
        if (rc == 0) {
            reading.ahead = held->ahead;
            reading.held = held->ranges;
            reading.n_held = held->n;
            rc = run_job(&job);
        }
    }
    if (open) {
        const int ended = end_reading(&reading, proof);
        rc = rc == 0 ? ended : rc;
    }
    return rc;
}

uint64_t rfs_gather_source(const struct rfs_slice *slice, uint64_t begin)
{
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst <= begin; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        if (block->n_loops == 0 && begin < block->dst_end)
            return file_offset(block, begin - block->dst);
    }
    return RFS_NO_SOURCE;
}

bool rfs_gather_touches(const struct rfs_block *block, uint64_t begin, uint64_t end)
{
    struct job job;
    return job_init(&job, block, begin, end);
}

bool rfs_gather_needed(const struct rfs_slice *slice, uint64_t begin, uint64_t end)
{
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        uint64_t from = begin, to = end;
        if (block->n_loops > 0 && (block->run < KEEP_RUN || block->strided) &&
            overlap(block, &from, &to) && to - from > block->run)
            return true;
    }
    return false;
}
