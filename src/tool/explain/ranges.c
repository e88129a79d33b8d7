/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/ranges.h"

#include "base/checked.h"
#include "catalog/catalog.h"

uint64_t rfs_block_source_bytes(const struct rfs_block *block)
{
    uint64_t bytes = block->run;

    for (uint32_t k = 0; k < block->n_loops; k++)
        bytes *= block->loop[k].src_stride > 0 ? block->loop[k].count : 1;
    return bytes;
}

/* Where in the content the extent ends that holds byte AT of it. */
static uint64_t extent_end(const struct rfs_block *block, uint64_t at)
{
    const struct rfs_content *content = &block->content;
    uint64_t end = 0;

    if (content->n == 0)
        return UINT64_MAX;
    for (uint32_t i = 0; i < content->n && end <= at; i++)
        end += content->extents[i].bytes;
    return end;
}

/* From the first byte of the loops from LEVEL on to one past their last. */
static uint64_t span_of(const struct rfs_block *block, uint32_t level)
{
    uint64_t span = block->run;

    for (uint32_t k = level; k < block->n_loops; k++)
        span += (block->loop[k].count - 1) * block->loop[k].src_stride;
    return span;
}

/* Loops whose steps leave no gap are one run, or one loop. */
static void fold(struct rfs_file_range *range)
{
    while (range->n_loops > 0) {
        const uint64_t count = range->loop[range->n_loops - 1].count;
        if (range->loop[range->n_loops - 1].stride != range->run)
            break;
        range->run *= count;
        range->n_loops--;
    }
    for (uint32_t k = range->n_loops; k-- > 1;) {
        const uint64_t inner = range->loop[k].count * range->loop[k].stride;
        if (inner == 0 || range->loop[k - 1].stride != inner)
            continue;
        range->loop[k - 1].count *= range->loop[k].count;
        range->loop[k - 1].stride = range->loop[k].stride;
        for (uint32_t i = k; i + 1 < range->n_loops; i++)
            range->loop[i] = range->loop[i + 1];
        range->n_loops--;
    }
}

void rfs_range_sort(struct rfs_file_range *range)
{
    for (uint32_t k = 1; k < range->n_loops; k++)
        for (uint32_t i = k; i > 0 && range->loop[i - 1].stride < range->loop[i].stride; i--) {
            const uint64_t count = range->loop[i].count;
            const uint64_t stride = range->loop[i].stride;
            range->loop[i] = range->loop[i - 1];
            range->loop[i - 1].count = count;
            range->loop[i - 1].stride = stride;
        }
    fold(range);
}

/*
 * The loops from LEVEL on, COUNT times the first of them, at byte AT of the content; all in one
 * extent.
 */
static bool push(const struct rfs_block *block, uint32_t level, uint64_t count, uint64_t at,
                 uint64_t run, struct rfs_file_ranges *out)
{
    struct rfs_file_range range = {.offset = rfs_content_offset(&block->content, at), .run = run};

    for (uint32_t k = level; k < block->n_loops; k++) {
        const uint64_t times = k == level ? count : block->loop[k].count;
        if (times == 1)
            continue;
        range.loop[range.n_loops].count = times;
        range.loop[range.n_loops++].stride = block->loop[k].src_stride;
    }
    fold(&range);
    return RFS_PUSH(out, range);
}

static bool add_run(const struct rfs_block *block, uint64_t at, struct rfs_file_ranges *out)
{
    for (uint64_t left = block->run, bytes; left > 0; left -= bytes, at += bytes) {
        bytes = rfs_min_u64(left, extent_end(block, at) - at);
        if (!push(block, block->n_loops, 1, at, bytes, out))
            return false;
    }
    return true;
}

/* Recurses once for each of at most RFS_MAX_DIMS loops. */
static bool add_level(const struct rfs_block *block, uint32_t level, uint64_t at,
                      struct rfs_file_ranges *out)
{
    if (level == block->n_loops)
        return add_run(block, at, out);
    const struct rfs_loop *loop = &block->loop[level];
    const uint64_t inner = span_of(block, level + 1);

    for (uint64_t i = 0, times; i < loop->count; i += times, at += times * loop->src_stride) {
        const uint64_t room = extent_end(block, at) - at;
        times = loop->count - i;
        if (room < inner) {
            times = 1;
            if (!add_level(block, level + 1, at, out))
                return false;
            continue;
        }
        if (loop->src_stride > 0)
            times = rfs_min_u64(times, (room - inner) / loop->src_stride + 1);
        if (!push(block, level, times, at, block->run, out))
            return false;
    }
    return true;
}

bool rfs_ranges_add(const struct rfs_block *block, struct rfs_file_ranges *out)
{
    return add_level(block, 0, block->src, out);
}
