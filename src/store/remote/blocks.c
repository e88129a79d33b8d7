/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/blocks.h"

#include "base/checked.h"

#include <pthread.h>

#define MOST 128
#define FIRST ((uint64_t)128 << 10)
#define LAST ((uint64_t)2 << 20)

struct block {
    uint64_t number; /* 0: free */
    uint64_t from, used;
    size_t n;
    unsigned char *data;
};

static struct {
    pthread_mutex_t lock;
    struct block blocks[MOST];
    uint64_t bytes, clock;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void copy(const unsigned char *data, size_t n, const struct iovec *spans, int count)
{
    for (int i = 0; i < count && n > 0; i++) {
        const size_t part = n < spans[i].iov_len ? n : spans[i].iov_len;
        memcpy(spans[i].iov_base, data, part);
        data += part;
        n -= part;
    }
}

bool rfs_block_copy(uint64_t number, uint64_t offset, size_t n, const struct iovec *spans,
                    int count)
{
    bool found = false;

    pthread_mutex_lock(&all.lock);
    for (size_t i = 0; i < MOST && !found; i++) {
        struct block *block = &all.blocks[i];
        if (block->number != number || offset < block->from || offset - block->from > block->n ||
            n > block->n - (offset - block->from))
            continue;
        copy(block->data + (offset - block->from), n, spans, count);
        block->used = ++all.clock;
        found = true;
    }
    pthread_mutex_unlock(&all.lock);
    return found;
}

uint64_t rfs_block_size(uint64_t number, uint64_t offset)
{
    uint64_t size = FIRST;

    pthread_mutex_lock(&all.lock);
    for (size_t i = 0; i < MOST; i++) {
        const struct block *block = &all.blocks[i];
        const uint64_t end = block->from + block->n;
        /* The read begins in the block, or soon behind it. */
        if (block->number == number && offset >= block->from && offset <= end + block->n)
            size = rfs_max_u64(size, rfs_min_u64(2 * block->n, LAST));
    }
    pthread_mutex_unlock(&all.lock);
    return size;
}

static void free_block(struct block *block)
{
    all.bytes -= block->n;
    free(block->data);
    *block = (struct block){0};
}

/* A free place; the least recently used block goes for it, and until there is room. */
static struct block *make_room(size_t n)
{
    for (;;) {
        struct block *place = NULL, *oldest = NULL;
        for (size_t i = 0; i < MOST; i++) {
            struct block *block = &all.blocks[i];
            if (block->number == 0)
                place = block;
            else if (!oldest || block->used < oldest->used)
                oldest = block;
        }
        if (place && all.bytes + n <= RFS_BLOCKS_BYTES)
            return place;
        if (!oldest)
            return place;
        free_block(oldest);
    }
}

void rfs_block_keep(uint64_t number, uint64_t offset, unsigned char *data, size_t n)
{
    pthread_mutex_lock(&all.lock);
    struct block *block = make_room(n);
    *block = (struct block){number, offset, ++all.clock, n, data};
    all.bytes += n;
    pthread_mutex_unlock(&all.lock);
}

void rfs_block_drop(uint64_t number)
{
    pthread_mutex_lock(&all.lock);
    for (size_t i = 0; i < MOST; i++)
        if (all.blocks[i].number != 0 && (number == 0 || all.blocks[i].number == number))
            free_block(&all.blocks[i]);
    pthread_mutex_unlock(&all.lock);
}
