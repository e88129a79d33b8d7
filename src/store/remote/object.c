/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/object.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/forks.h"
#include "store/remote/directory.h"
#include "store/remote/hub.h"
#include "store/remote/retries.h"

#include <pthread.h>
#include <stdatomic.h>

#define RANGE_BYTES ((uint64_t)8 << 20) /* of a large read, asked for at once */
#define SMALL ((uint64_t)64 << 10)      /* reads that blocks are made for */
#define TAIL ((uint64_t)4 << 10) /* of an object: counters, checksums, an archive's directory */
#define GUESS_BEFORE ((uint64_t)4 << 10)
#define BLOCKS_BYTES ((uint64_t)16 << 20)
#define BLOCKS_MOST 128
#define BLOCK_FIRST ((uint64_t)128 << 10)
#define BLOCK_LAST ((uint64_t)2 << 20)
#define NEAR ((uint64_t)64 << 10) /* reads that near each other are one to the guesses */
/* What is guessed has all reads that are near each other: short tensors are before a long one. */
#define GUESS_BYTES (GUESS_BEFORE + NEAR + GUESS_BEFORE)
#define SURE ((size_t)3)   /* as many jumps that repeat are no chance */
#define SLACK UINT64_C(64) /* names have other lengths: layers.9 and layers.10 */

/* ---- blocks of headers that were read -------------------------------------------------------- */

struct block {
    uint64_t number; /* the object's; 0: free */
    uint64_t from, used;
    size_t n;
    unsigned char *data;
};

static struct {
    pthread_mutex_t lock;
    struct block blocks[BLOCKS_MOST];
    uint64_t bytes, clock;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

RFS_FORKS_WITH(cache.lock, rfs_forks_nothing)

static void copy(const unsigned char *data, size_t n, const struct iovec *spans, int count)
{
    for (int i = 0; i < count && n > 0; i++) {
        const size_t take = n < spans[i].iov_len ? n : spans[i].iov_len;
        memcpy(spans[i].iov_base, data, take);
        data += take;
        n -= take;
    }
}

/* Copies N bytes of object NUMBER from OFFSET on to the spans, if one block has all of them. */
static bool copy_block(uint64_t number, uint64_t offset, size_t n, const struct iovec *spans,
                       int count)
{
    bool found = false;

    RFS_LOCKED(&cache.lock);
    for (size_t i = 0; i < BLOCKS_MOST && !found; i++) {
        struct block *block = &cache.blocks[i];
        if (block->number != number || offset < block->from || offset - block->from > block->n ||
            n > block->n - (offset - block->from))
            continue;
        copy(block->data + (offset - block->from), n, spans, count);
        block->used = ++cache.clock;
        found = true;
    }
    return found;
}

/*
 * Returns how many bytes to read from OFFSET on for a small read there: more where it goes on
 * behind the last block.
 */
static uint64_t next_block_bytes(uint64_t number, uint64_t offset)
{
    uint64_t size = BLOCK_FIRST;

    RFS_LOCKED(&cache.lock);
    for (size_t i = 0; i < BLOCKS_MOST; i++) {
        const struct block *block = &cache.blocks[i];
        const uint64_t end = block->from + block->n;
        /* The read begins in the block, or soon behind it. */
        if (block->number == number && offset >= block->from && offset <= end + block->n)
            size = rfs_max_u64(size, rfs_min_u64(2 * block->n, BLOCK_LAST));
    }
    return size;
}

static void free_block(struct block *block)
{
    cache.bytes -= block->n;
    free(block->data);
    *block = (struct block){0};
}

/* Returns a free block; the least recently used one goes for it, and until there is room. */
static struct block *make_room(size_t n)
{
    for (;;) {
        struct block *unused = NULL, *oldest = NULL;
        for (size_t i = 0; i < BLOCKS_MOST; i++) {
            struct block *block = &cache.blocks[i];
            if (block->number == 0)
                unused = block;
            else if (!oldest || block->used < oldest->used)
                oldest = block;
        }
        if (unused && cache.bytes + n <= BLOCKS_BYTES)
            return unused;
        if (!oldest)
            return unused;
        free_block(oldest);
    }
}

/* Adds a block, which it takes over. */
static void keep_block(uint64_t number, uint64_t offset, unsigned char *data, size_t n)
{
    RFS_LOCKED(&cache.lock);
    struct block *block = make_room(n);
    *block = (struct block){number, offset, ++cache.clock, n, data};
    cache.bytes += n;
}

/* Frees the blocks of one object. */
static void drop_blocks(uint64_t number)
{
    RFS_LOCKED(&cache.lock);
    for (size_t i = 0; i < BLOCKS_MOST; i++)
        if (cache.blocks[i].number == number)
            free_block(&cache.blocks[i]);
}

/* ---- where the next headers are -------------------------------------------------------------- */

void rfs_object_note_jump(struct rfs_object_jumps *jumps, uint64_t offset)
{
    const uint64_t last = jumps->n > 0 ? jumps->at[jumps->n - 1] : 0;

    if (jumps->n > 0 && offset >= last && offset - last < NEAR)
        return;
    if (jumps->n > 0 && offset < last)
        jumps->n = 0;
    if (jumps->n == RFS_OBJECT_JUMPS_MOST) {
        memmove(jumps->at, jumps->at + 1, (jumps->n - 1) * sizeof *jumps->at);
        jumps->n--;
    }
    jumps->at[jumps->n++] = offset;
}

static uint64_t jump(const struct rfs_object_jumps *jumps, size_t i)
{
    return jumps->at[i + 1] - jumps->at[i];
}

static bool alike(uint64_t a, uint64_t b)
{
    return a > b ? a - b <= SLACK : b - a <= SLACK;
}

/* Returns how many of the last jumps are those of PERIOD before. */
static size_t repeated(const struct rfs_object_jumps *jumps, size_t period)
{
    const size_t n = jumps->n - 1;
    size_t k = 0;

    while (k + period < n && alike(jump(jumps, n - 1 - k), jump(jumps, n - 1 - k - period)))
        k++;
    return k;
}

size_t rfs_object_guess_jumps(const struct rfs_object_jumps *jumps,
                              uint64_t out[RFS_OBJECT_JUMPS_AHEAD])
{
    size_t n = 0, period = 0, longest = 0;

    /* In a layer, too, tensors of one shape may follow each other: the longer repetition counts. */
    for (size_t each = 1; each + 1 < jumps->n; each++) {
        const size_t found = repeated(jumps, each);
        if ((found < each && found < SURE) || found <= longest)
            continue;
        longest = found;
        period = each;
    }
    uint64_t at = jumps->n > 0 ? jumps->at[jumps->n - 1] : 0;
    for (; n < RFS_OBJECT_JUMPS_AHEAD && n < 2 * longest; n++) {
        if (!rfs_add_u64(at, jump(jumps, jumps->n - 1 - period + n % period), &at))
            break;
        out[n] = at;
    }
    return n;
}

/* ---- versions -------------------------------------------------------------------------------- */

/* A version of an object. */
struct rfs_object {
    struct rfs_account *account; /* that reaches it; borrowed */
    uint64_t number;             /* of its blocks */
    char *url;
    struct rfs_attributes attributes;
    pthread_mutex_t lock; /* of the rest; a leaf lock */
    char *place;          /* of a hub's file: where its bytes are; owned; NULL: not known now */
    char tag[256];        /* the ETag of answers from there */
    struct rfs_object_jumps jumps;
    unsigned fetching; /* threads that fetch blocks */
};

static int hold_version(struct rfs_account *account, const char *url,
                        const struct rfs_attributes *attributes, struct rfs_object **out)
{
    static atomic_uint_fast64_t numbers;
    struct rfs_object *object = calloc(1, sizeof *object);

    *out = object;
    if (!object || !(object->url = strdup(url))) {
        free(object);
        *out = NULL;
        return -ENOMEM;
    }
    object->account = account;
    object->number = atomic_fetch_add(&numbers, 1) + 1;
    object->attributes = *attributes;
    pthread_mutex_init(&object->lock, NULL);
    return 0;
}

static void let_go(struct rfs_object *object)
{
    if (!object)
        return;
    drop_blocks(object->number);
    pthread_mutex_destroy(&object->lock);
    free(object->place);
    free(object->url);
    free(object);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Bytes [from, from + n), to the spans from SKIP bytes of them on. */
struct range {
    uint64_t from, n;
    const struct iovec *spans;
    int count;
    uint64_t skip;
};

/* Where the bytes of a hub's file are, as one thread knows it. */
struct place {
    char *at; /* owned */
    char tag[256];
};

/* Finds the place of a hub's file. Of other stores there is none. */
static int find_place(struct rfs_object *object, const struct rfs_bucket *bucket, struct place *out)
{
    if (!bucket->hub)
        return 0;
    pthread_mutex_lock(&object->lock);
    const bool known = object->place != NULL;
    out->at = known ? strdup(object->place) : NULL;
    memcpy(out->tag, object->tag, sizeof out->tag);
    pthread_mutex_unlock(&object->lock);
    if (known)
        return out->at ? 0 : -ENOMEM;
    const struct rfs_attributes *attributes = &object->attributes;
    int rc = rfs_hub_locate(bucket, object->url, attributes->etag, attributes->size, &out->at);
    if (rc < 0)
        return rc == -EREMOTE ? -EIO : rc;
    snprintf(out->tag, sizeof out->tag, "%s",
             rfs_bucket_has(bucket, out->at) ? attributes->etag : "");
    char *copied = strdup(out->at);
    RFS_LOCKED(&object->lock);
    free(object->place);
    object->place = copied;
    memcpy(object->tag, out->tag, sizeof out->tag);
    return copied ? 0 : -ENOMEM;
}

/* Forgets a place that refuses; another thread may have found a new one. */
static void forget_place(struct rfs_object *object, const struct place *place)
{
    RFS_LOCKED(&object->lock);
    if (!object->place || strcmp(object->place, place->at) != 0)
        return;
    free(object->place);
    object->place = NULL;
}

/* Compares the ETags that one place gave, and notes the first. */
static int note_tags(struct rfs_object *object, const struct place *place,
                     const struct rfs_remote_request *requests, size_t n)
{
    const char *tag = requests->tag;
    bool same = true;

    for (size_t i = 1; i < n; i++)
        same &= strcmp(tag, requests[i].tag) == 0;
    RFS_LOCKED(&object->lock);
    /* Another thread may have found another place, which has ETags of its own. */
    if (place->at && object->place && strcmp(object->place, place->at) == 0) {
        if (!object->tag[0])
            memcpy(object->tag, tag, sizeof object->tag);
        same &= strcmp(object->tag, tag) == 0;
    }
    return same ? 0 : rfs_store_fail(-ESTALE, "the object was changed while in use");
}

static int fetch_from(struct rfs_object *object, const struct rfs_bucket *bucket,
                      const struct place *place, const struct range *ranges, size_t n)
{
    RFS_FREE struct rfs_remote_request *requests = calloc(n, sizeof *requests);

    if (!requests)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        requests[i] = (struct rfs_remote_request){
            .bucket = bucket,
            .at = place->at,
            .url = object->url,
            .key = bucket->key,
            .from = ranges[i].from,
            .n = ranges[i].n,
            .size = object->attributes.size,
            .spans = ranges[i].spans,
            .count = ranges[i].count,
            .skip = ranges[i].skip,
            .etag = object->attributes.etag,
            .modified = object->attributes.when,
        };
        memcpy(requests[i].tag, place->tag, sizeof requests[i].tag);
    }
    int rc = rfs_retries_make(requests, n);
    if (rc == 0)
        rc = note_tags(object, place, requests, n);
    for (size_t i = 0; i < n; i++)
        rfs_retries_free(&requests[i]);
    return rc;
}

/* Fetches ranges, all at once. */
static int fetch(struct rfs_object *object, const struct range *ranges, size_t n)
{
    int rc = -EREMOTE;

    for (int tries = 0; rc == -EREMOTE && tries < 3; tries++) {
        RFS_CLEANUP(rfs_bucket_free) struct rfs_bucket bucket = {0};
        struct place place = {0};
        rc = rfs_bucket_of(object->account, object->url, &bucket);
        if (rc == 0)
            rc = find_place(object, &bucket, &place);
        if (rc == 0)
            rc = fetch_from(object, &bucket, &place, ranges, n);
        if (rc == -EREMOTE && place.at)
            forget_place(object, &place);
        if (rc == -EREMOTE && place.at && tries == 2)
            rc = -EACCES; /* the reason is known by that errno */
        free(place.at);
    }
    return rc == -EREMOTE ? -EIO : rc;
}

static int read_large(struct rfs_object *object, const struct iovec *spans, int count,
                      uint64_t offset, uint64_t n)
{
    const size_t most = (size_t)((n + RANGE_BYTES - 1) / RANGE_BYTES);
    RFS_FREE struct range *ranges = calloc(most, sizeof *ranges);

    if (!ranges)
        return -ENOMEM;
    for (size_t i = 0; i < most; i++) {
        const uint64_t skip = i * RANGE_BYTES;
        ranges[i] =
            (struct range){offset + skip, rfs_min_u64(n - skip, RANGE_BYTES), spans, count, skip};
    }
    return fetch(object, ranges, most);
}

/* Blocks that are fetched with one another. */
struct fetched {
    struct range ranges[1 + RFS_OBJECT_JUMPS_AHEAD];
    struct iovec spans[1 + RFS_OBJECT_JUMPS_AHEAD];
    size_t n;
};

static bool add_block(struct fetched *fetched, uint64_t from, uint64_t n)
{
    struct iovec *span = &fetched->spans[fetched->n];
    *span = (struct iovec){malloc((size_t)n), (size_t)n};
    fetched->ranges[fetched->n] = (struct range){from, n, span, 1, 0};
    fetched->n += span->iov_base != NULL;
    return span->iov_base != NULL;
}

/*
 * Adds headers that are probably read next, by one thread that walks: where they lie is a guess, so
 * a block begins before it.
 */
static void add_guesses(struct rfs_object *object, uint64_t end, struct fetched *fetched)
{
    uint64_t guesses[RFS_OBJECT_JUMPS_AHEAD];
    pthread_mutex_lock(&object->lock);
    if (object->fetching > 1)
        object->jumps.n = 0;
    const size_t n = rfs_object_guess_jumps(&object->jumps, guesses);
    pthread_mutex_unlock(&object->lock);
    for (size_t i = 0; i < n; i++) {
        const uint64_t from = guesses[i] > GUESS_BEFORE ? guesses[i] - GUESS_BEFORE : 0;
        const uint64_t size = object->attributes.size;
        if (from < end || from >= size ||
            !add_block(fetched, from, rfs_min_u64(size - from, GUESS_BYTES)))
            return;
    }
}

/*
 * Counts one more thread that fetches small ranges of the object, or one less; returns how many do
 * now.
 */
static unsigned count_fetching(struct rfs_object *object, int change)
{
    RFS_LOCKED(&object->lock);
    object->fetching += (unsigned)change;
    const unsigned fetching = object->fetching;
    return fetching;
}

/* Reads by a block around the range, which stays for later reads. */
static int read_block(struct rfs_object *object, const struct iovec *spans, int count,
                      uint64_t offset, size_t n)
{
    const uint64_t size = object->attributes.size;
    uint64_t length = rfs_max_u64(next_block_bytes(object->number, offset), n);
    /* Near the end, as the directory of an archive: the bytes before it are read next. */
    const uint64_t from = size - offset < length ? size - rfs_min_u64(size, length) : offset;
    length = rfs_min_u64(length, size - from);
    struct fetched fetched = {.n = 0};
    int rc = -ENOMEM;
    if (add_block(&fetched, from, length)) {
        add_guesses(object, from + length, &fetched);
        rc = fetch(object, fetched.ranges, fetched.n);
    }
    const unsigned char *data = fetched.spans[0].iov_base;
    size_t at = (size_t)(offset - from);
    for (int i = 0; rc == 0 && i < count; i++) {
        memcpy(spans[i].iov_base, data + at, spans[i].iov_len);
        at += spans[i].iov_len;
    }
    for (size_t i = 0; i < fetched.n; i++)
        if (rc == 0)
            keep_block(object->number, fetched.ranges[i].from, fetched.spans[i].iov_base,
                       fetched.spans[i].iov_len);
        else
            free(fetched.spans[i].iov_base);
    return rc;
}

/*
 * Reads a small range. A thread that is alone goes from header to header, and soon needs the bytes
 * that follow. Several at once know where each header lies, and need no more than that. The end is
 * read again, for the values of counters.
 */
static int read_small(struct rfs_object *object, const struct iovec *spans, int count,
                      uint64_t offset, size_t n)
{
    pthread_mutex_lock(&object->lock);
    rfs_object_note_jump(&object->jumps, offset);
    pthread_mutex_unlock(&object->lock);
    if (copy_block(object->number, offset, n, spans, count))
        return 0;
    const struct range exact = {offset, n, spans, count, 0};
    const bool alone = count_fetching(object, 1) == 1;
    const int rc = alone || object->attributes.size - offset <= TAIL
                       ? read_block(object, spans, count, offset, n)
                       : fetch(object, &exact, 1);
    count_fetching(object, -1);
    return rc;
}

static int read_version(struct rfs_object *object, struct iovec *spans, int count, uint64_t offset)
{
    const uint64_t size = object->attributes.size;
    uint64_t n = 0;

    for (int i = 0; i < count; i++)
        n += spans[i].iov_len;
    if (n == 0)
        return 0;
    if (offset > size || n > size - offset)
        return rfs_store_fail(-ESTALE, "the object has become shorter");
    return n <= SMALL ? read_small(object, spans, count, offset, (size_t)n)
                      : read_large(object, spans, count, offset, n);
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int hold_object(struct rfs_store *store, const char *url, struct rfs_object **out,
                       struct stat *st)
{
    struct rfs_account *account = rfs_account_of(store);
    RFS_FREE char *plain = rfs_hub_pin(account, url);
    struct rfs_attributes attributes = {0};
    int rc = plain ? rfs_directory_find(account, plain, &attributes, st) : -errno;

    *out = NULL;
    if (rc == 0 && attributes.folder)
        rc = rfs_store_fail(-EISDIR, "it is a folder");
    return rc ? rc : hold_version(account, plain, &attributes, out);
}

static int read_object(struct rfs_object *object, struct iovec *spans, int count, uint64_t offset)
{
    const int rc = read_version(object, spans, count, offset);

    if (rc == -ESTALE)
        rfs_directory_drop(object->account->directory); /* the others may have changed with it */
    return rc;
}

static uint64_t round_trip(struct rfs_store *store)
{
    return atomic_load_explicit(&rfs_account_of(store)->client.round_trip, memory_order_relaxed);
}

const struct rfs_store_objects rfs_object_calls = {
    .hold = hold_object,
    .read = read_object,
    .let_go = let_go,
    .round_trip = round_trip,
};
