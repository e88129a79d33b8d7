/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block at a time. Runs that are long, or far apart in the source, are read one by one straight
 * to their places. Others are read as windows of the source, gaps included, and copied from there
 * while the window is in the processor's cache.
 */
#include "assemble/gather.h"
#include "assemble/gather_job.h"

#include "assemble/kernels.h"
#include "assemble/place.h"
#include "assemble/shape.h"
#include "base/checked.h"

/* Runs of this length are not worth keeping: they read as fast as a copy from the cache. */
#define KEEP_RUN (UINT64_C(64) << 10)
/* Of longer runs, at most a part of the bytes is read in vain: of whole files a tenth or so. */
#define EXACT_RUN (UINT64_C(2) << 10)
#define EXACT_SHARE 8
/* A kernel's own cost is lost in this many runs. */
#define MANY_RUNS 16

static bool overlap(const struct rfs_block *block, uint64_t *begin, uint64_t *end)
{
    *begin = rfs_max_u64(*begin, block->dst);
    *end = rfs_min_u64(*end, block->dst_end);
    return *begin < *end;
}

/* False when no run of the block has a byte in [begin, end). */
static bool job_init(struct rfs_gather_job *job, const struct rfs_block *block, uint64_t begin,
                     uint64_t end)
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
    job->first = rfs_shape_at_dst(shape, from);
    job->head = from - rfs_shape_dst(shape, job->first);
    if (job->head >= shape->run) {
        job->first++;
        job->head = 0;
    }
    job->last = rfs_shape_at_dst(shape, to - 1);
    job->tail = rfs_min_u64(shape->run, to - rfs_shape_dst(shape, job->last));
    return job->first <= job->last;
}

/* The wanted part of run K: its first byte in the run and, in *size, its length. */
uint64_t rfs_gather_wanted(const struct rfs_gather_job *job, uint64_t k, uint64_t *size)
{
    const uint64_t from = k == job->first ? job->head : 0;
    *size = (k == job->last ? job->tail : job->shape.run) - from;
    return from;
}

uint64_t rfs_gather_place(const struct rfs_gather_job *job, uint64_t k, uint64_t from)
{
    return rfs_shape_dst(&job->shape, k) + from - job->dst_from;
}

/* Where in the file byte OFFSET of the block is. */
static uint64_t file_offset(const struct rfs_block *block, uint64_t offset)
{
    return rfs_content_offset(&block->content, block->src + offset);
}

/*
 * Adds a range of the block's file to those noted; one that goes on where the last one ends becomes
 * part of it.
 */
static int note_range(const struct rfs_gather_job *job, uint64_t from, uint64_t size)
{
    struct rfs_gather_ranges *ranges = job->ranges;
    struct rfs_gather_range *last = ranges->n > 0 ? &ranges->data[ranges->n - 1] : NULL;
    ranges->requests++;
    if (last && last->file == job->block->file && last->to == from) {
        last->to += size;
        return 0;
    }
    if (ranges->n >= RFS_GATHER_MOST)
        return 0;
    const struct rfs_gather_range range = {job->block->file, from, from + size};
    return RFS_PUSH(ranges, range) ? 0 : -ENOMEM;
}

/* The same for SIZE bytes from OFFSET of the block, which may lie in several extents. */
static int note_content(const struct rfs_gather_job *job, uint64_t size, uint64_t offset)
{
    const struct rfs_block *block = job->block;
    const struct rfs_content *content = &block->content;
    if (content->n == 0)
        return note_range(job, file_offset(block, offset), size);
    uint64_t at = block->src + offset;
    for (uint32_t i = 0; i < content->n && size > 0; i++) {
        const struct rfs_extent *extent = &content->extents[i];
        if (at < extent->bytes) {
            const uint64_t take = rfs_min_u64(size, extent->bytes - at);
            const int rc = note_range(job, extent->offset + at, take);
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

/* SIZE bytes from OFFSET of the block's source, relative to its first run. 0 or -errno. */
static int read_content(const struct rfs_gather_job *job, void *buf, uint64_t size, uint64_t offset)
{
    const struct rfs_block *block = job->block;
    return rfs_content_pread(job->reading, &block->content, buf, (size_t)size, block->src + offset);
}

int rfs_gather_window(const struct rfs_gather_job *job, uint64_t size, uint64_t offset,
                      const unsigned char **window)
{
    *window = NULL;
    if (job->ranges)
        return note_content(job, size, offset);
    const uint64_t from = file_offset(job->block, offset);
    if (job->reading->n_held > 0 && file_offset(job->block, offset + size - 1) == from + size - 1)
        *window = rfs_reading_find(job->reading, (size_t)size, from);
    if (*window)
        return 0;
    unsigned char *scratch =
        rfs_place_is_slow(job->scratch, from, size) ? job->scratch + RFS_PLACE_STEP : job->scratch;
    *window = scratch;
    return read_content(job, scratch, size, offset);
}

/* A read whose bytes have to go where copying is slow: by a window from which it is not. */
static int read_by_window(const struct rfs_gather_job *job, unsigned char *dst, uint64_t size,
                          uint64_t offset)
{
    for (uint64_t n; size > 0; size -= n, dst += n, offset += n) {
        const uint64_t from = file_offset(job->block, offset);
        unsigned char *window = job->scratch;
        n = rfs_min_u64(size, RFS_SCRATCH);
        /* Two places are too near at most: one to the file's bytes, one to the destination. */
        while (rfs_place_is_slow(window, from, n) || rfs_place_is_slow(dst, (uintptr_t)window, n))
            window += RFS_PLACE_STEP;
        const int rc = read_content(job, window, n, offset);
        if (rc < 0)
            return rc;
        memcpy(dst, window, (size_t)n);
    }
    return 0;
}

int rfs_gather_read_run(const struct rfs_gather_job *job, uint64_t place, uint64_t size,
                        uint64_t offset)
{
    if (job->ranges)
        return note_content(job, size, offset);
    unsigned char *dst = job->dst + place;
    return rfs_place_is_slow(dst, file_offset(job->block, offset), size)
               ? read_by_window(job, dst, size, offset)
               : read_content(job, dst, size, offset);
}

static int read_runs(const struct rfs_gather_job *job)
{
    for (uint64_t k = job->first; k <= job->last; k++) {
        uint64_t size;
        const uint64_t from = rfs_gather_wanted(job, k, &size);
        const int rc = rfs_gather_read_run(job, rfs_gather_place(job, k, from), size,
                                           rfs_shape_src(&job->shape, k) + from);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/*
 * A box of runs that is being copied; loop ALONG goes to the kernel, the others are counted here.
 */
struct box {
    const struct rfs_shape *shape;
    uint32_t level; /* the outermost loop of the box */
    uint32_t along;
    uint64_t count[RFS_MAX_DIMS];
    uint64_t at[RFS_MAX_DIMS];
    unsigned char *dst;
    const unsigned char *src;
};

/* The next row of the box; false when there is none. */
static bool next_row(struct box *box)
{
    for (uint32_t i = box->shape->n; i-- > box->level;) {
        const struct rfs_loop *loop = &box->shape->loop[i];
        if (i == box->along)
            continue;
        if (++box->at[i] < box->count[i]) {
            box->dst += loop->dst_stride;
            box->src += loop->src_stride;
            return true;
        }
        box->dst -= (box->count[i] - 1) * loop->dst_stride;
        box->src -= (box->count[i] - 1) * loop->src_stride;
        box->at[i] = 0;
    }
    return false;
}

/*
 * STEPS steps of loop LEVEL with all that is inside. Runs are handed to the kernel along the
 * innermost loop, or along the longest if the innermost is short; a window has no order to keep.
 */
static void copy_box(const struct rfs_shape *shape, uint32_t level, uint64_t steps,
                     unsigned char *dst, const unsigned char *src)
{
    struct box box = {.shape = shape, .level = level, .dst = dst, .src = src};
    box.count[level] = steps;
    for (uint32_t i = level + 1; i < shape->n; i++)
        box.count[i] = shape->loop[i].count;
    box.along = shape->n - 1;
    if (box.count[box.along] < MANY_RUNS) {
        for (uint32_t i = level; i < shape->n; i++)
            box.along = box.count[i] > box.count[box.along] ? i : box.along;
    }
    const struct rfs_loop *row = &shape->loop[box.along];
    do
        rfs_copy_runs(box.dst, (size_t)row->dst_stride, box.src, (size_t)row->src_stride,
                      (size_t)shape->run, (size_t)box.count[box.along]);
    while (next_row(&box));
}

/* Whole runs [a, b), all within one step of the loop above LEVEL; src is where run A is. */
static void copy_level(const struct rfs_gather_job *job, uint32_t level, uint64_t a, uint64_t b,
                       const unsigned char *src)
{
    const struct rfs_shape *shape = &job->shape;
    const uint64_t base = rfs_shape_src(shape, a);
    const uint64_t inner = shape->inner[level];
    uint64_t k = a;
    if (k < b && k % inner != 0) {
        const uint64_t stop = rfs_min_u64(b, (k / inner + 1) * inner);
        copy_level(job, level + 1, k, stop, src);
        k = stop;
    }
    const uint64_t steps = (b - k) / inner;
    if (steps > 0) {
        copy_box(shape, level, steps, job->dst + rfs_gather_place(job, k, 0),
                 src + (rfs_shape_src(shape, k) - base));
        k += steps * inner;
    }
    if (k < b)
        copy_level(job, level + 1, k, b, src + (rfs_shape_src(shape, k) - base));
}

/* Runs [a, b) from the window, whose first byte is SOURCE of the block. */
static void copy_window(const struct rfs_gather_job *job, uint64_t a, uint64_t b, uint64_t source,
                        const unsigned char *window)
{
    const struct rfs_shape *shape = &job->shape;
    uint64_t size;
    if (a == job->first && (job->head > 0 || a == job->last)) {
        const uint64_t from = rfs_gather_wanted(job, a, &size);
        memcpy(job->dst + rfs_gather_place(job, a, from), window, (size_t)size);
        a++;
    }
    if (a < b && b - 1 == job->last && job->tail < shape->run) {
        b--;
        memcpy(job->dst + rfs_gather_place(job, b, 0), window + (rfs_shape_src(shape, b) - source),
               (size_t)job->tail);
    }
    if (a < b)
        copy_level(job, 0, a, b, window + (rfs_shape_src(shape, a) - source));
}

/* Windows never span the long gaps: runs in groups of GROUP follow each other without one. */
static int read_windows(const struct rfs_gather_job *job, uint64_t group)
{
    const struct rfs_shape *shape = &job->shape;
    for (uint64_t a = job->first; a <= job->last;) {
        uint64_t size;
        const uint64_t source = rfs_shape_src(shape, a) + rfs_gather_wanted(job, a, &size);
        uint64_t b = rfs_min_u64(job->last + 1, (a / group + 1) * group);
        b = rfs_min_u64(b, rfs_shape_at_src(shape, source + RFS_SCRATCH - shape->run) + 1);
        const uint64_t final = rfs_shape_src(shape, b - 1) + rfs_gather_wanted(job, b - 1, &size);
        const unsigned char *window;
        const int rc = rfs_gather_window(job, final + size - source, source, &window);
        if (rc < 0)
            return rc;
        if (window)
            copy_window(job, a, b, source, window);
        a = b;
    }
    return 0;
}

/*
 * Whether steps of a loop are read with the gaps between them: if these are short, and reading the
 * steps one by one would take many calls, or few more bytes are read.
 */
static bool is_near(const struct rfs_shape *shape, uint32_t i)
{
    const uint64_t span = shape->src_span[i];
    const uint64_t gap = shape->loop[i].src_stride - span;

    return gap < RFS_LONG_GAP && (span < EXACT_RUN || gap <= span / EXACT_SHARE);
}

static int run_job(const struct rfs_gather_job *job)
{
    const struct rfs_shape *shape = &job->shape;
    uint64_t group = 1;
    if (job->block->strided)
        return rfs_gather_strided(job);
    uint32_t i = shape->n;
    while (i > 0 && is_near(shape, i - 1))
        group *= shape->loop[--i].count;
    return group == 1 || shape->run >= RFS_LONG_RUN ? read_runs(job) : read_windows(job, group);
}

int rfs_gather_note(const struct rfs_slice *slice, uint64_t begin, uint64_t end,
                    struct rfs_gather_ranges *ranges)
{
    int rc = 0;
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end && rc == 0; i++) {
        struct rfs_gather_job job = {.ranges = ranges};
        if (!job_init(&job, &slice->blocks[i], begin, end))
            continue;
        job.dst_from = begin - job.block->dst;
        rc = run_job(&job);
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
               unsigned char *scratch, unsigned char *dst, enum rfs_gather_proof proof)
{
    return rfs_gather_with(files, slice, begin, end, scratch, dst, proof,
                           &(struct rfs_gather_held){0});
}

int rfs_gather_with(struct rfs_files *files, const struct rfs_slice *slice, uint64_t begin,
                    uint64_t end, unsigned char *scratch, unsigned char *dst,
                    enum rfs_gather_proof proof, const struct rfs_gather_held *held)
{
    struct rfs_reading reading;
    bool open = false;
    int rc = 0;
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end && rc == 0; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        struct rfs_gather_job job = {.scratch = scratch, .dst = dst, .reading = &reading};
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
            reading.held = held->parts;
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
    struct rfs_gather_job job;
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
