/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks whose source strides are in any order: transposed tensors, expanded ones. The runs of a
 * range are divided into boxes; of a box, the loop with the longest source stride is stepped
 * through, the others within, until the rest lies close together: that is read as one window, gaps
 * included, and scattered. So a source byte is read once for a box, however the destination jumps.
 */
#include "assemble/gather_job.h"

#include "assemble/gather.h"
#include "assemble/kernels.h"
#include "assemble/transpose.h"
#include "base/checked.h"

/* Windows have at most so many bytes for each that is wanted. */
#define SPARSE 8

/* Loops of a box, the longest source stride first. */
struct box {
    uint32_t n;
    struct rfs_loop loop[RFS_MAX_DIMS];
    /* source bytes from the first to the last of the loops from i on */
    uint64_t span[RFS_MAX_DIMS + 1];
    uint64_t wanted[RFS_MAX_DIMS + 1]; /* bytes that they move */
};

static void box_init(struct box *box, const struct rfs_shape *shape, uint32_t level, uint64_t steps)
{
    box->n = 0;
    for (uint32_t i = level; i < shape->n; i++) {
        struct rfs_loop loop = shape->loop[i];
        uint32_t at = box->n++;
        loop.count = i == level ? steps : loop.count;
        for (; at > 0 && box->loop[at - 1].src_stride < loop.src_stride; at--)
            box->loop[at] = box->loop[at - 1];
        box->loop[at] = loop;
    }
    box->span[box->n] = shape->run;
    box->wanted[box->n] = shape->run;
    for (uint32_t i = box->n; i-- > 0;) {
        box->span[i] = box->span[i + 1] + (box->loop[i].count - 1) * box->loop[i].src_stride;
        box->wanted[i] = box->wanted[i + 1] * box->loop[i].count;
    }
}

/* Scatters loops from LEVEL on, the first of them COUNT steps. */
static void scatter(const struct box *box, uint32_t level, uint64_t count, uint64_t run,
                    unsigned char *dst, const unsigned char *src)
{
    if (level == box->n) {
        memcpy(dst, src, (size_t)run);
        return;
    }
    const struct rfs_loop *loop = &box->loop[level];
    if (level + 1 == box->n && loop->src_stride >= run) {
        rfs_copy_runs(dst, (size_t)loop->dst_stride, src, (size_t)loop->src_stride, (size_t)run,
                      (size_t)count);
        return;
    }
    if (level + 2 == box->n && loop->dst_stride == run && loop[1].src_stride == run &&
        rfs_transpose_knows(run)) {
        rfs_transpose(dst, (size_t)loop[1].dst_stride, src, (size_t)loop->src_stride, (size_t)run,
                      (size_t)count, (size_t)loop[1].count);
        return;
    }
    const uint64_t inner = level + 1 < box->n ? box->loop[level + 1].count : 1;
    for (uint64_t i = 0; i < count; i++)
        scatter(box, level + 1, inner, run, dst + i * loop->dst_stride, src + i * loop->src_stride);
}

/* How many steps of loop LEVEL make a window that is worth reading at once; 0: not even one. */
static uint64_t steps_at_once(const struct box *box, uint32_t level)
{
    const struct rfs_loop *loop = &box->loop[level];
    const uint64_t inner = box->span[level + 1];

    if (inner > RFS_SCRATCH || inner / SPARSE > box->wanted[level + 1])
        return 0;
    if (loop->src_stride == 0)
        return loop->count;
    const bool near = loop->src_stride / SPARSE <= box->wanted[level + 1] ||
                      loop->src_stride < inner + RFS_LONG_GAP / SPARSE;
    return near ? rfs_min_u64(loop->count, (RFS_SCRATCH - inner) / loop->src_stride + 1) : 1;
}

static int fetch(const struct rfs_gather_job *job, const struct box *box, uint32_t level,
                 uint64_t place, uint64_t source)
{
    const uint64_t run = job->shape.run;

    if (level == box->n)
        return rfs_gather_read_run(job, place, run, source);
    const struct rfs_loop *loop = &box->loop[level];
    const uint64_t group = steps_at_once(box, level);
    for (uint64_t i = 0, n; i < loop->count; i += n) {
        const uint64_t to = place + i * loop->dst_stride;
        const uint64_t from = source + i * loop->src_stride;
        n = group > 0 ? rfs_min_u64(group, loop->count - i) : 1;
        if (group == 0) {
            const int rc = fetch(job, box, level + 1, to, from);
            if (rc < 0)
                return rc;
            continue;
        }
        const uint64_t size = box->span[level + 1] + (n - 1) * loop->src_stride;
        const unsigned char *window;
        const int rc = rfs_gather_window(job, size, from, &window);
        if (rc < 0)
            return rc;
        if (window)
            scatter(box, level, n, run, job->dst + to, window);
    }
    return 0;
}

/* Whole runs [a, b), all within one step of the loop above LEVEL. */
static int fetch_level(const struct rfs_gather_job *job, uint32_t level, uint64_t a, uint64_t b)
{
    const struct rfs_shape *shape = &job->shape;
    struct box box;

    if (a >= b)
        return 0;
    if (level == shape->n)
        return rfs_gather_read_run(job, rfs_gather_place(job, a, 0), shape->run,
                                   rfs_shape_src(shape, a));
    const uint64_t inner = shape->inner[level];
    if (a % inner != 0) {
        const uint64_t stop = rfs_min_u64(b, (a / inner + 1) * inner);
        const int rc = fetch_level(job, level + 1, a, stop);
        if (rc < 0)
            return rc;
        a = stop;
    }
    const uint64_t steps = (b - a) / inner;
    if (steps > 0) {
        box_init(&box, shape, level, steps);
        const int rc = fetch(job, &box, 0, rfs_gather_place(job, a, 0), rfs_shape_src(shape, a));
        if (rc < 0)
            return rc;
        a += steps * inner;
    }
    return fetch_level(job, level + 1, a, b);
}

static int fetch_part(const struct rfs_gather_job *job, uint64_t k)
{
    uint64_t size;
    const uint64_t from = rfs_gather_wanted(job, k, &size);

    return rfs_gather_read_run(job, rfs_gather_place(job, k, from), size,
                               rfs_shape_src(&job->shape, k) + from);
}

int rfs_gather_strided(const struct rfs_gather_job *job)
{
    uint64_t a = job->first;
    uint64_t b = job->last + 1;
    int rc = 0;

    if (job->head > 0 || (a == job->last && job->tail < job->shape.run))
        rc = fetch_part(job, a++);
    if (rc == 0 && a < b && job->tail < job->shape.run)
        rc = fetch_part(job, --b);
    return rc < 0 ? rc : fetch_level(job, 0, a, b);
}
