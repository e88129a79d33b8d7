/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids index items, which live in chunks that never move: chunk k holds 2^(k + FIRST_BITS) of them,
 * so id + 2^FIRST_BITS has the chunk in its highest bit and the place in the rest. A reader that
 * has an id got it after the item and its chunk were written, so it needs no lock. The slots (open
 * addressing, linear probing) are for adding and finding only, and belong to the lock. A slot has
 * the hash beside the id: what a probe passes by lies in one or two lines of the slots, and only an
 * id that is most likely the right one is followed to its item and bytes, which are in no cache
 * when there are many.
 */
#include "base/intern.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/cleanup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <xxhash.h>

enum { FIRST_BITS = 6, CHUNKS = 32 - FIRST_BITS, FIRST_SLOTS = 128 };

struct item {
    const char *bytes; /* in the arena */
    uint32_t length;
};

struct slot {
    uint32_t id; /* or RFS_NO_ID */
    uint32_t hash;
};

struct rfs_intern {
    pthread_mutex_t lock;
    uint64_t seed; /* hostile names should not be able to collide on purpose */
    struct rfs_arena arena;
    struct slot *slots; /* at most 3/4 are used */
    size_t slot_count;  /* a power of two */
    size_t item_bytes;  /* memory of the chunks */
    _Atomic uint32_t count;
    _Atomic(struct item *) chunks[CHUNKS];
};

static bool new_slots(size_t count, struct slot **out)
{
    size_t bytes;

    if (!rfs_mul_size(count, sizeof **out, &bytes))
        return false;
    *out = malloc(bytes);
    if (!*out)
        return false;
    memset(*out, 0xFF, bytes); /* RFS_NO_ID */
    return true;
}

struct rfs_intern *rfs_intern_new(void)
{
    struct rfs_intern *table = calloc(1, sizeof *table);

    if (!table)
        return NULL;
    if (!new_slots(FIRST_SLOTS, &table->slots)) {
        free(table);
        return NULL;
    }
    table->slot_count = FIRST_SLOTS;
    if (getrandom(&table->seed, sizeof table->seed, GRND_NONBLOCK) != (ssize_t)sizeof table->seed)
        table->seed = (uintptr_t)table;
    pthread_mutex_init(&table->lock, NULL);
    return table;
}

void rfs_intern_free(struct rfs_intern *table)
{
    if (!table)
        return;
    for (size_t k = 0; k < CHUNKS; k++)
        free(atomic_load_explicit(&table->chunks[k], memory_order_relaxed));
    free(table->slots);
    rfs_arena_free(&table->arena);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

static void locate(uint32_t id, unsigned *chunk, uint64_t *place)
{
    const uint64_t at = (uint64_t)id + (UINT64_C(1) << FIRST_BITS);
    const unsigned high = 63u - (unsigned)__builtin_clzll(at);

    *chunk = high - FIRST_BITS;
    *place = at - (UINT64_C(1) << high);
}

static const struct item *item_of(const struct rfs_intern *table, uint32_t id)
{
    unsigned chunk;
    uint64_t place;

    locate(id, &chunk, &place);
    return atomic_load_explicit(&table->chunks[chunk], memory_order_acquire) + place;
}

/* Finds the slot that holds these bytes, or the empty one where they belong. Under the lock. */
static struct slot *probe(const struct rfs_intern *table, const void *bytes, size_t length,
                          uint32_t hash)
{
    const size_t mask = table->slot_count - 1;

    for (size_t at = hash & mask;; at = (at + 1) & mask) {
        struct slot *slot = &table->slots[at];
        if (slot->id == RFS_NO_ID)
            return slot;
        if (slot->hash != hash)
            continue;
        const struct item *item = item_of(table, slot->id);
        if (item->length == length && (length == 0 || memcmp(item->bytes, bytes, length) == 0))
            return slot;
    }
}

/* Finds the empty slot where an id belongs that is in no slot. */
static struct slot *empty_slot(struct slot *slots, size_t count, uint32_t hash)
{
    size_t at = hash & (count - 1);

    while (slots[at].id != RFS_NO_ID)
        at = (at + 1) & (count - 1);
    return &slots[at];
}

/* Says whether a quarter of the slots stays empty with one more item. */
static bool has_room(const struct rfs_intern *table, uint32_t count)
{
    return count < table->slot_count - table->slot_count / 4;
}

/* Doubles the slots. Under the lock. */
static bool make_room(struct rfs_intern *table)
{
    struct slot *slots;
    size_t want;

    if (!rfs_mul_size(table->slot_count, 2, &want) || !new_slots(want, &slots))
        return false;
    for (size_t i = 0; i < table->slot_count; i++)
        if (table->slots[i].id != RFS_NO_ID)
            *empty_slot(slots, want, table->slots[i].hash) = table->slots[i];
    free(table->slots);
    table->slots = slots;
    table->slot_count = want;
    return true;
}

/* Finds the place of a new id's item, whose chunk is made for the first. Under the lock. */
static struct item *new_item(struct rfs_intern *table, uint32_t id)
{
    struct item *items;
    unsigned chunk;
    uint64_t place;

    locate(id, &chunk, &place);
    if (chunk >= CHUNKS)
        return NULL;
    items = atomic_load_explicit(&table->chunks[chunk], memory_order_relaxed);
    if (!items) {
        const size_t n = (size_t)1 << (chunk + FIRST_BITS);
        items = calloc(n, sizeof *items);
        if (!items)
            return NULL;
        table->item_bytes += n * sizeof *items;
        /* item_of acquires it. */
        atomic_store_explicit(&table->chunks[chunk], items, memory_order_release);
    }
    return items + place;
}

static uint32_t add_locked(struct rfs_intern *table, const void *bytes, size_t length,
                           uint32_t hash)
{
    const uint32_t id = atomic_load_explicit(&table->count, memory_order_relaxed);
    struct slot *slot = probe(table, bytes, length, hash);
    struct item *item;
    const char *copy;

    if (slot->id != RFS_NO_ID)
        return slot->id;
    if (!has_room(table, id)) {
        if (!make_room(table))
            return RFS_NO_ID;
        slot = empty_slot(table->slots, table->slot_count, hash);
    }
    item = new_item(table, id);
    if (!item)
        return RFS_NO_ID;
    copy = rfs_arena_text(&table->arena, bytes, length);
    if (!copy)
        return RFS_NO_ID;
    *item = (struct item){copy, (uint32_t)length};
    *slot = (struct slot){id, hash};
    /* rfs_intern_bytes and rfs_intern_count acquire it, and with it the item and its bytes. */
    atomic_store_explicit(&table->count, id + 1, memory_order_release);
    return id;
}

static uint32_t hash_of(const struct rfs_intern *table, const void *bytes, size_t length)
{
    const uint64_t hash = XXH3_64bits_withSeed(bytes, length, table->seed);

    return (uint32_t)(hash ^ (hash >> 32));
}

/* Interns bytes; *fresh gets whether they were not there. */
static uint32_t add(struct rfs_intern *table, const void *bytes, size_t length, bool *fresh)
{
    if (length >= UINT32_MAX)
        return RFS_NO_ID;
    const uint32_t hash = hash_of(table, bytes, length);
    RFS_LOCKED(&table->lock);
    const uint32_t before = atomic_load_explicit(&table->count, memory_order_relaxed);
    const uint32_t id = add_locked(table, bytes, length, hash);
    *fresh = id == before;
    return id;
}

uint32_t rfs_intern_add(struct rfs_intern *table, const void *bytes, size_t length)
{
    bool fresh;
    return add(table, bytes, length, &fresh);
}

bool rfs_intern_is_new(struct rfs_intern *table, const void *bytes, size_t length)
{
    bool fresh = false;

    return add(table, bytes, length, &fresh) == RFS_NO_ID || fresh;
}

uint32_t rfs_intern_find(struct rfs_intern *table, const void *bytes, size_t length)
{
    if (length >= UINT32_MAX)
        return RFS_NO_ID;
    const uint32_t hash = hash_of(table, bytes, length);
    RFS_LOCKED(&table->lock);
    return probe(table, bytes, length, hash)->id;
}

const void *rfs_intern_bytes(const struct rfs_intern *table, uint32_t id, size_t *length)
{
    const struct item *item;

    if (id >= atomic_load_explicit(&table->count, memory_order_acquire)) {
        if (length)
            *length = 0;
        return NULL;
    }
    item = item_of(table, id);
    if (length)
        *length = item->length;
    return item->bytes;
}

uint32_t rfs_intern_count(struct rfs_intern *table)
{
    return atomic_load_explicit(&table->count, memory_order_acquire);
}

size_t rfs_intern_memory(struct rfs_intern *table)
{
    RFS_LOCKED(&table->lock);
    return sizeof *table + table->arena.bytes + table->item_bytes +
           table->slot_count * sizeof *table->slots;
}
