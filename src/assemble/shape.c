/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/shape.h"

#include "base/checked.h"

/* Joins the last two loops while the outer one goes on where the inner one ends. */
static void join_last(struct rfs_shape *shape)
{
    while (shape->n >= 2) {
        struct rfs_loop *outer = &shape->loop[shape->n - 2];
        const struct rfs_loop *inner = &shape->loop[shape->n - 1];
        if (outer->dst_stride != inner->count * inner->dst_stride ||
            outer->src_stride != inner->count * inner->src_stride)
            return;
        *outer =
            (struct rfs_loop){outer->count * inner->count, inner->dst_stride, inner->src_stride};
        shape->n--;
    }
}

void rfs_shape_init(struct rfs_shape *shape, const struct rfs_block *block)
{
    shape->run = block->run;
    shape->empty = block->run == 0;
    shape->n = 0;
    for (uint32_t i = 0; i < block->n_loops; i++) {
        shape->empty = shape->empty || block->loop[i].count == 0;
        if (block->loop[i].count == 1)
            continue;
        shape->loop[shape->n++] = block->loop[i];
        join_last(shape);
    }
    while (shape->n > 0) {
        const struct rfs_loop *last = &shape->loop[shape->n - 1];
        if (last->dst_stride != shape->run || last->src_stride != shape->run)
            break;
        shape->run *= last->count;
        shape->n--;
    }
    uint64_t inner = 1, span = shape->run;
    for (uint32_t i = shape->n; i-- > 0;) {
        shape->inner[i] = inner;
        shape->src_span[i] = span;
        inner *= shape->loop[i].count;
        span += (shape->loop[i].count - 1) * shape->loop[i].src_stride;
    }
}

uint64_t rfs_shape_src(const struct rfs_shape *shape, uint64_t k)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < shape->n; i++) {
        offset += k / shape->inner[i] * shape->loop[i].src_stride;
        k %= shape->inner[i];
    }
    return offset;
}

uint64_t rfs_shape_dst(const struct rfs_shape *shape, uint64_t k)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < shape->n; i++) {
        offset += k / shape->inner[i] * shape->loop[i].dst_stride;
        k %= shape->inner[i];
    }
    return offset;
}

/*
 * Returns the last step of a loop that begins at or before *offset, which becomes relative to it.
 */
static uint64_t steps_before(uint64_t count, uint64_t stride, uint64_t *offset)
{
    const uint64_t fit = stride > 0 ? *offset / stride : count - 1;
    const uint64_t step = rfs_min_u64(fit, count - 1);
    *offset -= step * stride;
    return step;
}

uint64_t rfs_shape_at(const struct rfs_shape *shape, enum rfs_shape_side side, uint64_t offset)
{
    uint64_t k = 0;
    for (uint32_t i = 0; i < shape->n; i++) {
        const struct rfs_loop *loop = &shape->loop[i];
        const uint64_t stride = side == RFS_SHAPE_SRC ? loop->src_stride : loop->dst_stride;
        k += steps_before(loop->count, stride, &offset) * shape->inner[i];
    }
    return k;
}
