/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/slice.h"

#include "base/order.h"
#include "base/vec.h"
#include "quant/quant.h"

#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

void rfs_slice_free(struct rfs_slice *slice)
{
    free(slice->blocks);
    *slice = (struct rfs_slice){0};
}

struct rfs_block *rfs_slice_add(struct rfs_slice *slice)
{
    if (slice->n == slice->cap &&
        !rfs_vec_grow((void **)&slice->blocks, &slice->cap, slice->n, sizeof *slice->blocks))
        return NULL;
    return &slice->blocks[slice->n++];
}

RFS_COMPARE(by_destination, struct rfs_block, x, y, RFS_ORDER(x->dst, y->dst))

/* Says whether a block's bytes follow those of another in the slice and in the file. */
static bool follows(const struct rfs_block *block, const struct rfs_block *last)
{
    return block->n_loops == 0 && last->n_loops == 0 && block->file == last->file &&
           block->content.n == 0 && last->content.n == 0 && block->dst == last->dst_end &&
           block->content.quant == last->content.quant &&
           block->content.plus == last->content.plus &&
           block->content.zeros == last->content.zeros &&
           (!block->content.quant || block->content.offset == last->content.offset) &&
           block->content.offset + block->src == last->content.offset + last->src + last->run;
}

void rfs_slice_sort(struct rfs_slice *slice)
{
    size_t n = slice->n > 0;

    RFS_SORT(slice->blocks, slice->n, by_destination);
    for (size_t i = 1; i < slice->n; i++) {
        struct rfs_block *last = &slice->blocks[n - 1];
        if (follows(&slice->blocks[i], last)) {
            last->run += slice->blocks[i].run;
            last->dst_end = slice->blocks[i].dst_end;
        } else {
            slice->blocks[n++] = slice->blocks[i];
        }
    }
    slice->n = n;
}

void rfs_slice_name(struct rfs_slice *slice)
{
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < slice->n; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        const struct rfs_content *content = &block->content;
        const uint64_t words[] = {slice->bytes, block->file, content->offset, block->dst,
                                  block->src,   block->run,  block->n_loops};
        const int16_t computed[] = {content->plus, content->dtype, content->zeros};
        XXH3_128bits_update(&state, words, sizeof words);
        XXH3_128bits_update(&state, block->loop, block->n_loops * sizeof *block->loop);
        if (content->quant)
            XXH3_128bits_update(&state, content->quant, sizeof *content->quant);
        if (content->plus != 0 || content->zeros)
            XXH3_128bits_update(&state, computed, sizeof computed);
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    slice->id[0] = hash.low64;
    slice->id[1] = hash.high64;
}

/*
 * Finds byte AT of the slice in a block. Destination strides are at least the extent of the inner
 * loops, so that at most one run holds a byte.
 */
static bool block_has(const struct rfs_block *block, uint64_t at, uint64_t *from, uint64_t *left)
{
    if (at < block->dst || at >= block->dst_end)
        return false;
    at -= block->dst;
    *from = block->src;
    for (uint32_t i = 0; i < block->n_loops; i++) {
        const struct rfs_loop *loop = &block->loop[i];
        const uint64_t step = at / loop->dst_stride;
        if (step >= loop->count)
            return false;
        at -= step * loop->dst_stride;
        *from += step * loop->src_stride;
    }
    *from += at;
    *left = block->run - at;
    return at < block->run;
}

const struct rfs_block *rfs_slice_find(const struct rfs_slice *slice, uint64_t at, uint64_t *from,
                                       uint64_t *left)
{
    for (size_t i = 0; i < slice->n; i++)
        if (block_has(&slice->blocks[i], at, from, left))
            return &slice->blocks[i];
    return NULL;
}

/* Appends a loop, or folds it into the one outside of it when the two step evenly on both sides. */
static void add_inner_loop(struct rfs_block *block, uint64_t count, uint64_t dst_stride,
                           uint64_t src_stride)
{
    if (block->n_loops > 0) {
        struct rfs_loop *outer = &block->loop[block->n_loops - 1];
        if (outer->dst_stride == count * dst_stride && outer->src_stride == count * src_stride) {
            *outer = (struct rfs_loop){outer->count * count, dst_stride, src_stride};
            return;
        }
    }
    block->loop[block->n_loops++] = (struct rfs_loop){count, dst_stride, src_stride};
}

void rfs_slice_block_box(struct rfs_block *block, uint32_t ndim, const uint64_t *len, uint64_t item,
                         const uint64_t *dst_stride, const uint64_t *src_stride)
{
    /* The run: the innermost axes up to and including the first that is not whole on both sides. */
    uint32_t inner = ndim;
    block->run = item;
    block->n_loops = 0;
    while (inner > 0 && (len[inner - 1] == 1 || (dst_stride[inner - 1] == block->run &&
                                                 src_stride[inner - 1] == block->run))) {
        inner--;
        block->run *= len[inner];
    }
    uint64_t last = block->dst + block->run;
    for (uint32_t i = 0; i < inner; i++) {
        last += (len[i] - 1) * dst_stride[i];
        if (len[i] > 1)
            add_inner_loop(block, len[i], dst_stride[i], src_stride[i]);
    }
    block->dst_end = last;
}

void rfs_slice_block_part(struct rfs_block *block, const struct rfs_type *type,
                          const uint64_t *strides, const uint64_t *lo, const uint64_t *hi)
{
    const uint64_t item = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    uint64_t len[RFS_MAX_DIMS];
    uint64_t dst_stride[RFS_MAX_DIMS];
    uint64_t src_stride[RFS_MAX_DIMS];
    uint64_t dst_step = item;
    uint64_t src_step = item;

    block->dst = 0;
    block->src = 0;
    block->strided = strides != NULL;
    for (uint32_t i = type->ndim; i-- > 0;) {
        len[i] = hi[i] - lo[i];
        dst_stride[i] = dst_step;
        src_stride[i] = strides ? strides[i] : src_step;
        block->src += lo[i] * src_stride[i];
        dst_step *= len[i];
        src_step *= type->dims[i];
    }
    rfs_slice_block_box(block, type->ndim, len, item, dst_stride, src_stride);
}

void rfs_slice_block_whole(struct rfs_block *block, const struct rfs_type *type,
                           const uint64_t *strides)
{
    static const uint64_t corner[RFS_MAX_DIMS];

    if (strides) {
        rfs_slice_block_part(block, type, strides, corner, type->dims);
        return;
    }
    block->dst = 0;
    block->src = 0;
    block->run = type->bytes;
    block->dst_end = type->bytes;
    block->n_loops = 0;
    block->strided = false;
}

int rfs_slice_storage(const struct rfs_storages *storages, uint32_t number, struct rfs_slice *slice)
{
    const struct rfs_storage_item *item = &storages->items.data[number];
    uint64_t at = 0;

    slice->n = 0;
    slice->bytes = item->bytes;
    for (size_t i = 0; i < item->n; i++) {
        const struct rfs_storage_range *range = &storages->ranges.data[item->first + i];
        struct rfs_block *block = rfs_slice_add(slice);
        if (!block)
            return -ENOMEM;
        *block = (struct rfs_block){.file = range->file,
                                    .content = {.offset = range->offset},
                                    .dst = at,
                                    .run = range->bytes,
                                    .dst_end = at + range->bytes};
        at += range->bytes;
    }
    rfs_slice_name(slice);
    return 0;
}
