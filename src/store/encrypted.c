/* SPDX-License-Identifier: Apache-2.0 */
#include "store/encrypted.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/pages.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

/* ---- decrypted blocks ------------------------------------------------------------------------ */

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
    size_t mapped;               /* bytes */
    struct block *chain;         /* of the bucket */
    struct block *newer, *older; /* of those that are ready */
};

struct waiter {
    int64_t since;
    struct waiter *next;
};

struct rfs_blocks {
    uint64_t budget;
    size_t page;
    pthread_mutex_t lock; /* of all that follows; a leaf lock */
    pthread_cond_t changed;
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

static void list_remove(struct rfs_blocks *blocks, struct block *block)
{
    *(block->newer ? &block->newer->older : &blocks->newest) = block->older;
    *(block->older ? &block->older->newer : &blocks->oldest) = block->newer;
}

static void list_add(struct rfs_blocks *blocks, struct block *block)
{
    block->newer = NULL;
    block->older = blocks->newest;
    *(blocks->newest ? &blocks->newest->newer : &blocks->oldest) = block;
    blocks->newest = block;
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
        list_remove(blocks, block);
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
 * with it, or NULL. False when the lock was released meanwhile, so that the block is to be looked
 * up again.
 */
static bool take_room(struct rfs_blocks *blocks, size_t mapped, unsigned char **data)
{
    int64_t later;
    *data = NULL;
    if (blocks->n < RFS_BLOCKS_MOST && blocks->bytes <= blocks->budget - mapped) {
        blocks->bytes += mapped;
        return true;
    }
    struct block *victim = find_victim(blocks, pthread_self(), &later);
    if (!victim) {
        wait_until(blocks, later);
        return false;
    }
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
        list_remove(blocks, block);
        list_add(blocks, block);
        return 0;
    }
    if (block->state == GONE)
        rc = block->rc;
    if (--block->pins == 0)
        free(block);
    return rc;
}

static struct block *insert(struct rfs_blocks *blocks, uint32_t file, uint32_t number,
                            size_t mapped, unsigned char *data)
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
                            .mapped = mapped,
                            .chain = *bucket};
    *bucket = block;
    blocks->n++;
    return block;
}

/*
 * Finds a block, and pins it in *out: 0 when it is ready, 1 when the caller is to make it; or
 * -errno.
 */
static int claim(struct rfs_blocks *blocks, uint32_t file, uint32_t number, size_t mapped,
                 struct block **out)
{
    struct waiter waiter;
    unsigned char *data = NULL;
    bool queued = false, room = false;

    while (!(*out = find(blocks, file, number)) && !room && !rfs_cancelled()) {
        room = take_room(blocks, mapped, &data);
        if (!room && !queued)
            enter_queue(blocks, &waiter);
        queued |= !room;
    }
    if (queued)
        leave_queue(blocks, &waiter);
    if (*out)
        return await(blocks, *out);
    if (!room)
        return -EINTR;
    *out = insert(blocks, file, number, mapped, data);
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
        list_add(blocks, block);
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
    const int rc = block->data ? make(ctx, block->data) : -ENOMEM;
    RFS_LOCKED(&blocks->lock);
    publish(blocks, block, rc);
    return rc;
}

int rfs_blocks_get(struct rfs_blocks *blocks, uint32_t file, uint32_t number, size_t bytes,
                   rfs_block_make *make, void *ctx, struct rfs_block_held *out)
{
    const size_t mapped = (bytes + blocks->page - 1) / blocks->page * blocks->page;
    struct block *block;
    int rc;
    if (mapped > blocks->budget)
        return -EFBIG;
    do {
        pthread_mutex_lock(&blocks->lock);
        rc = claim(blocks, file, number, mapped, &block);
        pthread_mutex_unlock(&blocks->lock);
        if (rc == 1)
            rc = make_block(blocks, block, make, ctx);
    } while (rc == -EINTR && !rfs_cancelled()); /* its maker was cancelled */
    if (rc == 0)
        *out = (struct rfs_block_held){block->data, block};
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

void rfs_blocks_count(struct rfs_blocks *blocks, struct rfs_blocks_counters *out)
{
    RFS_LOCKED(&blocks->lock);
    *out = (struct rfs_blocks_counters){blocks->budget, blocks->bytes, blocks->made,
                                        blocks->evictions};
}

/* ---- files ----------------------------------------------------------------------------------- */

struct rfs_encrypted {
    const struct rfs_key *key;
    struct rfs_log *log;
    struct rfs_blocks *blocks;
    uint32_t block_bytes;
    atomic_uint next;   /* id of a file */
    atomic_bool warned; /* that a mode does not authenticate */
};

struct rfs_encrypted *rfs_encrypted_new(const struct rfs_key *key, uint64_t budget,
                                        struct rfs_log *log)
{
    struct rfs_encrypted *encrypted = calloc(1, sizeof *encrypted);
    if (!encrypted)
        return NULL;
    rfs_pages_wipe_all();
    encrypted->key = key;
    encrypted->log = log;
    encrypted->block_bytes = RFS_CIPHER_BLOCK;
    encrypted->blocks = rfs_blocks_new(budget);
    if (!encrypted->blocks) {
        free(encrypted);
        return NULL;
    }
    return encrypted;
}

void rfs_encrypted_free(struct rfs_encrypted *encrypted)
{
    if (!encrypted)
        return;
    rfs_blocks_free(encrypted->blocks);
    free(encrypted);
}

void rfs_encrypted_set_block(struct rfs_encrypted *encrypted, uint32_t block_bytes)
{
    encrypted->block_bytes = block_bytes;
}

struct rfs_blocks *rfs_encrypted_blocks(struct rfs_encrypted *encrypted)
{
    return encrypted->blocks;
}

static void warn(struct rfs_encrypted *encrypted, const struct rfs_cipher *cipher, const char *path)
{
    if (cipher->mode == RFS_AES_GCM || atomic_exchange(&encrypted->warned, true))
        return;
    rfs_log(encrypted->log, RFS_WARNING,
            "%s: the file is encrypted by %s, which does not detect changes: a writer of the file "
            "can change the values in it; try: AES-GCM",
            path, rfs_cipher_name(cipher->mode));
}

int rfs_encrypted_open(struct rfs_encrypted *encrypted, const struct rfs_cipher_input *input,
                       struct rfs_cipher **out, struct rfs_error *err)
{
    struct rfs_cipher cipher;
    int rc = rfs_cipher_scan(input, rfs_key_mode(encrypted->key), encrypted->block_bytes, &cipher, err)
            ?: rfs_cipher_takes_key(&cipher, encrypted->key, input->path, err)
            ?: rfs_cipher_measure(&cipher, input, encrypted->key, err);
    if (rc < 0)
        return rc;
    *out = malloc(sizeof cipher);
    if (!*out)
        return rfs_fail_memory(err);
    cipher.id = atomic_fetch_add(&encrypted->next, 1);
    memcpy(*out, &cipher, sizeof cipher);
    warn(encrypted, &cipher, input->path);
    return 0;
}

/* The arguments of making a block. */
struct work {
    struct rfs_encrypted *encrypted;
    const struct rfs_cipher *cipher;
    const struct rfs_cipher_input *input;
    uint32_t number;
    struct rfs_error *err;
};

static int open_block(void *ctx, unsigned char *data)
{
    const struct work *work = ctx;
    return rfs_cipher_open_block(work->cipher, work->input, work->encrypted->key, work->number,
                                 data, work->err);
}

/* Reads a part of one block. */
static int read_part(struct work *work, void *buf, size_t size, uint32_t offset)
{
    const struct rfs_cipher *cipher = work->cipher;
    struct rfs_blocks *blocks = work->encrypted->blocks;
    struct rfs_block_held held;
    if (cipher->mode != RFS_AES_GCM)
        return rfs_cipher_pread(cipher, work->input, work->encrypted->key, work->number, buf, size,
                                offset, work->err);
    const int rc = rfs_blocks_get(blocks, cipher->id, work->number,
                                  rfs_cipher_plain(cipher, work->number), open_block, work, &held);
    if (rc < 0)
        return rc;
    memcpy(buf, held.data + offset, size);
    rfs_blocks_put(blocks, &held);
    return 0;
}

int rfs_encrypted_pread(struct rfs_encrypted *encrypted, const struct rfs_cipher *cipher,
                        const struct rfs_cipher_input *input, void *buf, size_t size,
                        uint64_t offset, struct rfs_error *err)
{
    struct work work = {encrypted, cipher, input, 0, err};
    unsigned char *out = buf;
    int rc = 0;
    while (rc == 0 && size > 0) {
        const uint32_t within = (uint32_t)(offset % cipher->block_bytes);
        work.number = (uint32_t)(offset / cipher->block_bytes);
        const uint32_t plain = rfs_cipher_plain(cipher, work.number);
        const size_t take = (size_t)rfs_min_u64(size, plain - within);
        rc = read_part(&work, out, take, within);
        out += take;
        size -= take;
        offset += take;
    }
    return rc;
}
