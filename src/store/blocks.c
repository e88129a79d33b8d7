/* SPDX-License-Identifier: Apache-2.0 */
#include "store/blocks.h"

#include "base/aged.h"
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/pages.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS 1024 /* a power of two */

enum state {
    MAKING, /* its thread writes data; the others wait */
    READY,
    GONE, /* out of the table; freed with the last pin */
};

struct block {
    uint32_t file, number;
    enum state state;
    int rc;        /* why it is gone */
    uint32_t pins; /* of threads that hold it or wait for it */
    pthread_t maker;
    int64_t ready_at; /* milliseconds */
    unsigned char *data;
    size_t bytes;                /* that are of use */
    size_t mapped;               /* bytes */
    struct block *chain;         /* of the bucket */
    struct block *newer, *older; /* of those that are ready */
};

struct waiter {
    int64_t since;
    struct waiter *next;
};

struct rfs_blocks {
    size_t page;
    pthread_mutex_t lock; /* of all that follows; a leaf lock */
    pthread_cond_t changed;
    uint64_t budget;
    uint64_t bytes; /* mapped, or about to be */
    uint32_t n;     /* in the table */
    struct block *newest, *oldest;
    struct waiter *waiters; /* for room, the first first */
    uint64_t made, evictions;
    struct block *buckets[BUCKETS];
};

/* Returns the time in milliseconds, from any beginning. */
static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct rfs_blocks *rfs_blocks_new(uint64_t budget)
{
    struct rfs_blocks *blocks = calloc(1, sizeof *blocks);
    if (!blocks)
        return NULL;
    blocks->budget = budget;
    blocks->page = (size_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&blocks->lock, NULL);
    rfs_cancel_init_cond(&blocks->changed);
    return blocks;
}

void rfs_blocks_free(struct rfs_blocks *blocks)
{
    if (!blocks)
        return;
    rfs_blocks_drop(blocks);
    pthread_cond_destroy(&blocks->changed);
    pthread_mutex_destroy(&blocks->lock);
    free(blocks);
}

static struct block **bucket_of(struct rfs_blocks *blocks, uint32_t file, uint32_t number)
{
    return &blocks->buckets[(file * UINT32_C(2654435761) + number) & (BUCKETS - 1)];
}

static struct block *find(struct rfs_blocks *blocks, uint32_t file, uint32_t number)
{
    struct block *block = *bucket_of(blocks, file, number);
    while (block && (block->file != file || block->number != number))
        block = block->chain;
    return block;
}

/* Takes a block out of the table and of the list; its memory still counts. */
static void forget(struct rfs_blocks *blocks, struct block *block, int rc)
{
    struct block **link = bucket_of(blocks, block->file, block->number);
    while (*link != block)
        link = &(*link)->chain;
    *link = block->chain;
    blocks->n--;
    if (block->state == READY)
        RFS_AGED_REMOVE(blocks, block);
    block->state = GONE;
    block->rc = rc;
}

/*
 * Returns the least recently used block that may go for ME, or NULL; *later is then when one may,
 * or INT64_MAX.
 */
static struct block *find_victim(struct rfs_blocks *blocks, pthread_t me, int64_t *later)
{
    const int64_t now = now_ms();
    const bool patient = !blocks->waiters || now - blocks->waiters->since < RFS_BLOCK_PATIENCE;
    *later = INT64_MAX;
    for (struct block *block = blocks->oldest; block; block = block->newer) {
        const int64_t free_at = block->ready_at + RFS_BLOCK_TURN;
        if (block->pins > 0)
            continue;
        if (free_at <= now || (patient && pthread_equal(block->maker, me)))
            return block;
        *later = free_at < *later ? free_at : *later;
    }
    return NULL;
}

static void wait_until(struct rfs_blocks *blocks, int64_t until)
{
    const struct timespec at = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
    if (until == INT64_MAX)
        rfs_cancel_wait(&blocks->changed, &blocks->lock);
    else
        pthread_cond_timedwait(&blocks->changed, &blocks->lock, &at);
}

/*
 * Gives back the memory of a block that is gone, which counts until then. The lock is held before
 * and after.
 */
static void give_back(struct rfs_blocks *blocks, unsigned char *data, size_t mapped)
{
    pthread_mutex_unlock(&blocks->lock);
    rfs_pages_free(data, mapped);
    pthread_mutex_lock(&blocks->lock);
    blocks->bytes -= mapped;
    pthread_cond_broadcast(&blocks->changed);
}

/*
 * Takes room for MAPPED bytes, counted from now on; *data is memory of just that size that comes
 * with it, or NULL. False when there is none until *LATER, or (then it is 0) when the lock was
 * released meanwhile, so that the block is to be looked up again.
 */
static bool take_room(struct rfs_blocks *blocks, size_t mapped, unsigned char **data,
                      int64_t *later)
{
    *data = NULL;
    if (blocks->n < RFS_BLOCKS_MOST && blocks->bytes <= blocks->budget - mapped) {
        blocks->bytes += mapped;
        return true;
    }
    struct block *victim = find_victim(blocks, pthread_self(), later);
    if (!victim)
        return false;
    forget(blocks, victim, 0);
    blocks->evictions++;
    unsigned char *memory = victim->data;
    const size_t size = victim->mapped;
    free(victim);
    if (size == mapped && blocks->bytes <= blocks->budget) {
        *data = memory;
        return true;
    }
    give_back(blocks, memory, size);
    *later = 0;
    return false;
}

static void enter_queue(struct rfs_blocks *blocks, struct waiter *waiter)
{
    struct waiter **last = &blocks->waiters;
    while (*last)
        last = &(*last)->next;
    *waiter = (struct waiter){now_ms(), NULL};
    *last = waiter;
}

static void leave_queue(struct rfs_blocks *blocks, const struct waiter *waiter)
{
    struct waiter **link = &blocks->waiters;
    while (*link != waiter)
        link = &(*link)->next;
    *link = waiter->next;
}

/* Pins the block, or gives the reason for which it is gone, or not waited for. */
static int await(struct rfs_blocks *blocks, struct block *block)
{
    int rc = 0;
    block->pins++;
    while (block->state == MAKING && rc == 0)
        rc = rfs_cancel_wait(&blocks->changed, &blocks->lock);
    if (block->state == READY) {
        RFS_AGED_REMOVE(blocks, block);
        RFS_AGED_ADD(blocks, block);
        return 0;
    }
    if (block->state == GONE)
        rc = block->rc;
    if (--block->pins == 0)
        free(block);
    return rc;
}

/* Returns the bytes of whole pages that have so many. */
static size_t pages_of(const struct rfs_blocks *blocks, size_t bytes)
{
    return (bytes + blocks->page - 1) / blocks->page * blocks->page;
}

static struct block *insert(struct rfs_blocks *blocks, uint32_t file, uint32_t number, size_t bytes,
                            unsigned char *data)
{
    struct block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    struct block **bucket = bucket_of(blocks, file, number);
    *block = (struct block){.file = file,
                            .number = number,
                            .state = MAKING,
                            .pins = 1,
                            .maker = pthread_self(),
                            .data = data,
                            .bytes = bytes,
                            .mapped = pages_of(blocks, bytes),
                            .chain = *bucket};
    *bucket = block;
    blocks->n++;
    return block;
}

/*
 * Finds a block, and pins it in *out: 0 when it is ready, 1 when the caller is to make it; or
 * -errno.
 */
static int claim(struct rfs_blocks *blocks, uint32_t file, uint32_t number, size_t bytes,
                 struct block **out)
{
    const size_t mapped = pages_of(blocks, bytes);
    struct waiter waiter;
    unsigned char *data = NULL;
    bool queued = false, room = false, large = false;

    while (!(*out = find(blocks, file, number)) && !room && !large && !rfs_cancelled()) {
        int64_t later = 0;
        large = mapped > blocks->budget;
        room = !large && take_room(blocks, mapped, &data, &later);
        if (room || large)
            continue;
        if (!queued) /* before it waits: who gives a block back wakes those in the queue */
            enter_queue(blocks, &waiter);
        queued = true;
        if (later > 0)
            wait_until(blocks, later);
    }
    if (queued)
        leave_queue(blocks, &waiter);
    if (*out)
        return await(blocks, *out);
    if (!room)
        return large ? -EFBIG : -EINTR;
    *out = insert(blocks, file, number, bytes, data);
    if (*out)
        return 1;
    give_back(blocks, data, mapped);
    return -ENOMEM;
}

/* Ends the making of a claimed block. The lock is held. */
static void publish(struct rfs_blocks *blocks, struct block *block, int rc)
{
    if (rc == 0) {
        block->state = READY;
        block->ready_at = now_ms();
        RFS_AGED_ADD(blocks, block);
        blocks->made++;
        pthread_cond_broadcast(&blocks->changed);
        return;
    }
    unsigned char *data = block->data;
    const size_t mapped = block->mapped;
    forget(blocks, block, rc);
    if (--block->pins == 0)
        free(block);
    give_back(blocks, data, mapped);
}

/* Makes the block that the caller claimed. 0 or -errno. */
static int make_block(struct rfs_blocks *blocks, struct block *block, rfs_block_make *make,
                      void *ctx)
{
    if (!block->data)
        block->data = rfs_pages_alloc(block->mapped);
    const int rc = block->data ? make(ctx, block->data, &block->bytes) : -ENOMEM;
    const size_t kept =
        rc == 0 && block->bytes > 0 ? pages_of(blocks, block->bytes) : block->mapped;
    const size_t surplus = block->mapped - kept;
    if (surplus > 0)
        rfs_pages_free(block->data + kept, surplus);
    RFS_LOCKED(&blocks->lock);
    block->mapped = kept;
    blocks->bytes -= surplus;
    publish(blocks, block, rc);
    return rc;
}

int rfs_blocks_get(struct rfs_blocks *blocks, uint32_t file, uint32_t number, size_t bytes,
                   rfs_block_make *make, void *ctx, struct rfs_block_held *out)
{
    struct block *block;
    int rc;
    do {
        pthread_mutex_lock(&blocks->lock);
        rc = claim(blocks, file, number, bytes, &block);
        pthread_mutex_unlock(&blocks->lock);
        if (rc == 1)
            rc = make_block(blocks, block, make, ctx);
    } while (rc == -EINTR && !rfs_cancelled()); /* its maker was cancelled */
    if (rc == 0)
        *out = (struct rfs_block_held){block->data, block->bytes, block};
    return rc;
}

void rfs_blocks_put(struct rfs_blocks *blocks, const struct rfs_block_held *held)
{
    struct block *block = held->own;
    pthread_mutex_lock(&blocks->lock);
    if (--block->pins == 0 && blocks->waiters)
        pthread_cond_broadcast(&blocks->changed);
    pthread_mutex_unlock(&blocks->lock);
}

void rfs_blocks_drop(struct rfs_blocks *blocks)
{
    RFS_LOCKED(&blocks->lock);
    for (struct block *block = blocks->oldest; block;) {
        if (block->pins > 0) {
            block = block->newer;
            continue;
        }
        unsigned char *data = block->data;
        const size_t mapped = block->mapped;
        forget(blocks, block, 0);
        free(block);
        give_back(blocks, data, mapped);
        block = blocks->oldest; /* the lock was let go */
    }
}

void rfs_blocks_limit(struct rfs_blocks *blocks, uint64_t budget)
{
    pthread_mutex_lock(&blocks->lock);
    blocks->budget = budget;
    const bool over = blocks->bytes > budget;
    pthread_cond_broadcast(&blocks->changed);
    pthread_mutex_unlock(&blocks->lock);
    if (over)
        rfs_blocks_drop(blocks);
}

uint64_t rfs_blocks_largest(struct rfs_blocks *blocks)
{
    RFS_LOCKED(&blocks->lock);
    return blocks->budget / blocks->page * blocks->page;
}

void rfs_blocks_count(struct rfs_blocks *blocks, struct rfs_blocks_counters *out)
{
    RFS_LOCKED(&blocks->lock);
    *out = (struct rfs_blocks_counters){blocks->budget, blocks->bytes, blocks->made,
                                        blocks->evictions};
}
