/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/object.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/remote/hub.h"
#include "store/remote/listing.h"
#include "store/remote/retries.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <xxhash.h>

#define RANGE_BYTES ((uint64_t)8 << 20) /* of a large read, asked for at once */
#define BESIDE 63 /* folders that are listed with one, of a server that lists each by itself */
#define SMALL ((uint64_t)64 << 10) /* reads that blocks are made for */
#define TAIL ((uint64_t)4 << 10)   /* of an object: counters, checksums, an archive's directory */
#define GUESS_BYTES ((uint64_t)32 << 10)
#define GUESS_BEFORE ((uint64_t)4 << 10)
#define INODE_BITS 63 /* an inode of 0 or below is none to some programs */
#define BLOCKS_BYTES ((uint64_t)16 << 20)
#define BLOCKS_MOST 128
#define BLOCK_FIRST ((uint64_t)128 << 10)
#define BLOCK_LAST ((uint64_t)2 << 20)
#define NEAR ((uint64_t)64 << 10) /* reads that near each other are one to the guesses */
#define SLACK UINT64_C(64)        /* names have other lengths: layers.9 and layers.10 */

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

/* Frees the blocks of one object; 0: of all. */
static void drop_blocks(uint64_t number)
{
    RFS_LOCKED(&cache.lock);
    for (size_t i = 0; i < BLOCKS_MOST; i++)
        if (cache.blocks[i].number != 0 && (number == 0 || cache.blocks[i].number == number))
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
    size_t n = 0;

    for (size_t period = 1; n == 0 && jumps->n > 2 * period; period++) {
        const size_t found = repeated(jumps, period);
        if (found < period)
            continue;
        uint64_t at = jumps->at[jumps->n - 1];
        for (; n < RFS_OBJECT_JUMPS_AHEAD && n < 2 * found; n++) {
            if (!rfs_add_u64(at, jump(jumps, jumps->n - 1 - period + n % period), &at))
                break;
            out[n] = at;
        }
    }
    return n;
}

/* ---- attributes ------------------------------------------------------------------------------ */

struct attributes {
    bool folder;
    uint64_t size;
    time_t modified;
    char etag[256], when[64]; /* "" where there is none; the second as the server wrote it */
};

static bool set_attributes(struct attributes *out, uint64_t size, time_t modified, const char *etag,
                           const char *when)
{
    *out = (struct attributes){.size = size, .modified = modified};
    if (strlen(etag) >= sizeof out->etag || strlen(when) >= sizeof out->when)
        return false;
    memcpy(out->etag, etag, strlen(etag) + 1);
    memcpy(out->when, when, strlen(when) + 1);
    return rfs_http_etag_is_strong(etag) || (when[0] && modified != 0);
}

static void fill_stat(const struct rfs_account *account, const struct attributes *attributes,
                      const char *url, struct stat *st)
{
    const bool open = account->anonymous || strncmp(url, "http", 4) == 0;
    const mode_t who = open ? 0444 : 0400;

    *st = (struct stat){
        .st_dev = (dev_t)XXH3_64bits("objects", 7),
        .st_nlink = 1,
        .st_uid = geteuid(),
        .st_gid = getegid(),
        .st_mode = attributes->folder ? S_IFDIR | who | (who >> 2 & 0111) : S_IFREG | who,
        .st_size = (off_t)attributes->size,
        .st_blksize = 1 << 20,
        .st_blocks = (blkcnt_t)((attributes->size + 511) / 512),
        .st_mtim = {attributes->modified, 0},
        .st_ctim = {attributes->modified, 0},
        .st_atim = {attributes->modified, 0},
    };
    const bool s3 = strncmp(url, "s3://", 5) == 0; /* other URLs name their server */
    const uint64_t seed = XXH3_64bits_withSeed(url, strlen(url), s3 ? account->origin : 0);
    st->st_ino = (ino_t)(XXH3_64bits_withSeed(attributes->etag, strlen(attributes->etag), seed) >>
                         (64 - INODE_BITS)) |
                 1;
}

/*
 * Says whether an answer leads, or has led, to a name with a slash at its end: an index of a
 * folder.
 */
static bool leads_to_folder(const struct rfs_http *http)
{
    const size_t n = strcspn(http->location, "?#");
    return n > 0 && http->location[n - 1] == '/';
}

static int take_answer(const struct rfs_http *http, struct attributes *out)
{
    if (leads_to_folder(http)) {
        *out = (struct attributes){.folder = true};
        return 0;
    }
    if (http->status >= 300)
        return rfs_store_fail(-EIO, "status %ld leads to '%.200s', which is not followed",
                              http->status, http->location);
    if (http->length < 0)
        return rfs_store_fail(-ENOTSUP, "the server does not say how long it is");
    if (!set_attributes(out, (uint64_t)http->length, rfs_http_time(http->modified), http->etag,
                        http->modified))
        return rfs_store_fail(-ENOTSUP,
                              "the server gives neither a strong ETag nor the time of the last "
                              "change, so a change would not be noticed");
    return 0;
}

static int ask_server(const struct rfs_bucket *bucket, const char *url, struct attributes *out)
{
    struct rfs_remote_request request = {
        .bucket = bucket, .url = url, .key = bucket->key, .head = true};
    int rc = rfs_retries_make(&request, 1);

    if (rc == 0 && request.http.status >= 300 && !leads_to_folder(&request.http)) {
        rfs_retries_free(&request);
        request = (struct rfs_remote_request){
            .bucket = bucket, .url = url, .key = bucket->key, .head = true, .follow = true};
        rc = rfs_retries_make(&request, 1);
    }
    if (rc == 0)
        rc = take_answer(&request.http, out);
    rfs_retries_free(&request);
    return rc;
}

/* ---- versions -------------------------------------------------------------------------------- */

/* A version of an object. */
struct rfs_object {
    struct rfs_account *account; /* that reaches it; borrowed */
    uint64_t number;             /* of its blocks */
    char *url;
    struct attributes attributes;
    pthread_mutex_t lock; /* of the rest; a leaf lock */
    char *place;          /* of a hub's file: where its bytes are; owned; NULL: not known now */
    char tag[256];        /* the ETag of answers from there */
    struct rfs_object_jumps jumps;
    unsigned fetching; /* threads that fetch blocks */
};

static int hold_version(struct rfs_account *account, const char *url,
                        const struct attributes *attributes, struct rfs_object **out)
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

void rfs_object_let_go(struct rfs_object *object)
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
    const struct attributes *attributes = &object->attributes;
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

/* ---- lists that were made -------------------------------------------------------------------- */

/* A listing that was made. Constant but for its uses. */
struct listed {
    struct rfs_object_known *known; /* that has it */
    char *url;                      /* of the folder; owned */
    struct rfs_remote_listing listing;
    time_t newest; /* of its objects */
    unsigned uses; /* under the lock */
    struct listed *next;
};

/* A name that was asked for by itself. */
struct asked {
    char *url; /* owned */
    int rc;    /* -ENOENT, or 0 */
    struct attributes attributes;
};

struct rfs_object_known {
    pthread_mutex_t lock; /* a leaf lock */
    struct listed *listed;
    RFS_VEC(struct asked) asked; /* in the order of their URLs */
};

struct rfs_object_known *rfs_object_new_known(void)
{
    struct rfs_object_known *known = calloc(1, sizeof *known);

    if (known)
        pthread_mutex_init(&known->lock, NULL);
    return known;
}

static void free_listed(struct listed *listed)
{
    rfs_remote_listing_free(&listed->listing);
    free(listed->url);
    free(listed);
}

static void give_listed(struct listed *const *listed)
{
    if (!*listed)
        return;
    struct rfs_object_known *known = (*listed)->known;
    pthread_mutex_lock(&known->lock);
    const bool last = --(*listed)->uses == 0;
    pthread_mutex_unlock(&known->lock);
    if (last)
        free_listed(*listed);
}
#define GIVE_LISTED RFS_CLEANUP(give_listed)

/* Returns the part of URL below a folder: "" for itself; NULL when it is not below. */
static const char *below(const char *folder, const char *url)
{
    const size_t n = strlen(folder);

    if (strncmp(url, folder, n) != 0 || (url[n] && url[n] != '/'))
        return NULL;
    return url + n + (url[n] == '/');
}

/*
 * Returns the list that has URL: of a folder above, or (AS_FOLDER) of its own. The caller gives it
 * back.
 */
static struct listed *find_listed(struct rfs_object_known *known, const char *url, bool as_folder)
{
    struct listed *found = NULL;

    RFS_LOCKED(&known->lock);
    for (struct listed *listed = known->listed; listed && !found; listed = listed->next) {
        const char *rest = below(listed->url, url);
        if (!rest)
            continue;
        if (listed->listing.deep || (as_folder ? !*rest : !strchr(rest, '/')))
            found = listed;
    }
    if (found)
        found->uses++;
    return found;
}

/* Remembers the list, which it takes, with USES uses of callers. NULL when out of memory. */
static struct listed *keep_listed(struct rfs_remote_folder *folder, unsigned uses)
{
    struct rfs_object_known *known = folder->bucket.account->known;
    struct listed *listed = calloc(1, sizeof *listed);

    if (!listed)
        return NULL;
    *listed = (struct listed){
        .known = known, .url = folder->url, .listing = folder->listing, .uses = uses + 1};
    folder->url = NULL;
    folder->listing = (struct rfs_remote_listing){0};
    for (size_t i = 0; i < listed->listing.n; i++)
        if (listed->listing.data[i].modified > listed->newest)
            listed->newest = listed->listing.data[i].modified;
    RFS_LOCKED(&known->lock);
    listed->next = known->listed;
    known->listed = listed;
    return listed;
}

static void free_folders(struct rfs_remote_folder *folders, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(folders[i].url);
        rfs_bucket_free(&folders[i].bucket);
        rfs_remote_listing_free(&folders[i].listing);
    }
}

/* Says whether another folder beside URL is listed. */
static bool is_second(struct rfs_object_known *known, const char *parent, const char *url)
{
    bool found = false;

    RFS_LOCKED(&known->lock);
    for (const struct listed *listed = known->listed; listed && !found; listed = listed->next) {
        const char *rest = below(parent, listed->url);
        found = rest && *rest && !strchr(rest, '/') && strcmp(listed->url, url) != 0;
    }
    return found;
}

/*
 * Adds folders beside URL that are listed with it, as they are listed one after the other: from the
 * second on. Returns how many; fewer when out of memory.
 */
static size_t add_beside(struct rfs_account *account, const char *url,
                         struct rfs_remote_folder *out, size_t most)
{
    struct rfs_object_known *known = account->known;
    RFS_FREE char *parent = rfs_store_parent(url);
    GIVE_LISTED struct listed *listed = parent ? find_listed(known, parent, true) : NULL;
    size_t n = 0;

    if (!listed || listed->listing.deep || strcmp(listed->url, parent) != 0 ||
        !is_second(known, parent, url))
        return 0;
    for (size_t i = 0; i < listed->listing.n && n < most; i++) {
        const struct rfs_remote_entry *entry = &listed->listing.data[i];
        RFS_FREE char *path = NULL;
        if (!entry->folder)
            continue;
        path = rfs_text_printf("%s/%s", parent, entry->name);
        if (!path)
            break;
        out[n] = (struct rfs_remote_folder){.url = rfs_store_without_slash(path)};
        GIVE_LISTED struct listed *there = out[n].url ? find_listed(known, out[n].url, true) : NULL;
        if (!out[n].url || there || strcmp(out[n].url, url) == 0 ||
            rfs_bucket_of(account, out[n].url, &out[n].bucket) < 0)
            free_folders(&out[n], 1);
        else
            n++;
    }
    return n;
}

/*
 * Lists a folder, with others that will be needed. Failures to list the other folders are ignored.
 */
static int fetch_listed(struct rfs_remote_folder *folder)
{
    struct rfs_remote_folder folders[BESIDE + 1] = {*folder};
    const bool deep = folder->bucket.s3 || folder->bucket.hub;
    const size_t n =
        deep ? 0 : add_beside(folder->bucket.account, folder->url, folders + 1, BESIDE);
    int rc = n > 0 ? rfs_listing_fetch(folders, n + 1) : -EAGAIN;

    for (size_t i = 1; rc == 0 && i <= n; i++)
        keep_listed(&folders[i], 0);
    free_folders(folders + 1, n);
    if (rc < 0 && n > 0)
        rfs_remote_listing_free(&folders[0].listing);
    if (rc < 0)
        rc = rfs_listing_fetch(folders, 1);
    folder->listing = folders[0].listing;
    return rc;
}

/* Makes a list of a folder, and remembers it. */
static int make_listed(struct rfs_account *account, const char *url, struct listed **out)
{
    int rc = -EREMOTE;

    *out = NULL;
    for (int tries = 0; rc == -EREMOTE && tries < 3; tries++) {
        struct rfs_remote_folder folder = {.url = strdup(url)};
        rc = folder.url ? rfs_bucket_of(account, url, &folder.bucket) : -ENOMEM;
        if (rc == 0)
            rc = fetch_listed(&folder);
        if (rc == 0 && !(*out = keep_listed(&folder, 1)))
            rc = -ENOMEM;
        free_folders(&folder, 1);
    }
    return rc == -EREMOTE ? -EIO : rc;
}

/* Returns the first entry whose name is not before NAME. */
static size_t find_name(const struct rfs_remote_listing *listing, const char *name)
{
    return RFS_BISECT(i, listing->n, strcmp(listing->data[i].name, name) >= 0);
}

/* Returns the first entry in the folder NAME, without a slash at its end; n when there is none. */
static size_t first_in(const struct rfs_remote_listing *listing, const char *name)
{
    if (!*name)
        return 0;
    RFS_FREE char *prefix = rfs_text_printf("%s/", name);
    if (!prefix)
        return listing->n;
    const size_t at = find_name(listing, prefix);
    const bool in = at < listing->n && strncmp(listing->data[at].name, prefix, strlen(prefix)) == 0;
    return in ? at : listing->n;
}

/* ---- attributes that were asked for ---------------------------------------------------------- */

static size_t asked_at(const struct rfs_object_known *known, const char *url)
{
    return RFS_BISECT(i, known->asked.n, strcmp(known->asked.data[i].url, url) >= 0);
}

static bool find_asked(struct rfs_object_known *known, const char *url, int *rc,
                       struct attributes *out)
{
    pthread_mutex_lock(&known->lock);
    const size_t at = asked_at(known, url);
    const bool found = at < known->asked.n && strcmp(known->asked.data[at].url, url) == 0;
    if (found) {
        *rc = known->asked.data[at].rc;
        *out = known->asked.data[at].attributes;
    }
    pthread_mutex_unlock(&known->lock);
    if (found && *rc == -ENOENT)
        rfs_store_fail(-ENOENT, "there is no such object");
    return found;
}

static uint64_t asked_bytes(const char *url)
{
    return 2 * sizeof(struct asked) + strlen(url) + 32;
}

/* Remembers an answer. Where memory is short, the store is asked again. */
static void keep_asked(struct rfs_object_known *known, const char *url, int rc,
                       const struct attributes *attributes)
{
    struct asked asked = {NULL, rc, *attributes};

    if (!rfs_retries_take_memory(asked_bytes(url)))
        return;
    asked.url = strdup(url);
    pthread_mutex_lock(&known->lock);
    const size_t at = asked_at(known, url);
    const bool there = at < known->asked.n && strcmp(known->asked.data[at].url, url) == 0;
    const bool kept = asked.url && !there && RFS_PUSH(&known->asked, asked);
    if (kept) {
        struct asked *data = known->asked.data;
        memmove(data + at + 1, data + at, (known->asked.n - 1 - at) * sizeof *data);
        data[at] = asked;
    }
    pthread_mutex_unlock(&known->lock);
    if (kept)
        return;
    rfs_retries_give_memory(asked_bytes(url));
    free(asked.url);
}

/*
 * Looks URL up in a listing: 1 if its entry is complete, 0 if the store has to be asked, or
 * -ENOENT.
 */
static int by_listing(const struct listed *listed, const char *url, struct attributes *out)
{
    const struct rfs_remote_listing *listing = &listed->listing;
    const char *name = below(listed->url, url);
    const size_t at = find_name(listing, name);
    const bool exact = at < listing->n && strcmp(listing->data[at].name, name) == 0;

    if (exact && !listing->data[at].folder) {
        const struct rfs_remote_entry *entry = &listing->data[at];
        return entry->known && set_attributes(out, entry->size, entry->modified, entry->etag, "");
    }
    if (!*name || exact || first_in(listing, name) < listing->n) {
        *out = (struct attributes){.folder = true, .modified = listed->newest};
        return 1;
    }
    if (!listing->deep) /* it may be hidden */
        return 0;
    return rfs_store_fail(-ENOENT, "there is no such object");
}

/* Looks for a folder of S3: it is there while something is in it. */
static int look_below(struct rfs_account *account, const char *url, struct attributes *out)
{
    GIVE_LISTED struct listed *listed = NULL;
    const int rc = make_listed(account, url, &listed);

    if (rc < 0)
        return rc;
    *out = (struct attributes){.folder = true, .modified = listed->newest};
    return listed->listing.n > 0 ? 0 : rfs_store_fail(-ENOENT, "there is no such object");
}

/* Looks for a file or a folder of a commit, in the one list of all its files. */
static int look_in_commit(const char *url, const struct rfs_bucket *bucket, struct attributes *out)
{
    RFS_FREE char *root = rfs_text_printf("hf://%s@%s", bucket->name, bucket->revision);
    GIVE_LISTED struct listed *listed = NULL;
    int rc = root ? make_listed(bucket->account, root, &listed) : -ENOMEM;

    if (rc == 0)
        rc = by_listing(listed, url, out);
    return rc == 1 ? 0 : rc == 0 ? -EIO : rc;
}

/* Asks the store. Stores also refuse requests for objects that do not exist. */
static int ask(struct rfs_account *account, const char *url, struct attributes *out)
{
    RFS_CLEANUP(rfs_bucket_free) struct rfs_bucket bucket = {0};
    int rc = rfs_bucket_of(account, url, &bucket);

    if (rc < 0)
        return rc;
    if (bucket.hub)
        return look_in_commit(url, &bucket, out);
    if (bucket.s3 && !*bucket.key)
        return look_below(account, url, out);
    rc = ask_server(&bucket, url, out);
    if (!bucket.s3 || (rc != -ENOENT && rc != -EACCES))
        return rc;
    return look_below(account, url, out);
}

static int find_attributes(struct rfs_account *account, const char *url, struct attributes *out)
{
    GIVE_LISTED struct listed *listed = find_listed(account->known, url, false);
    int rc = listed ? by_listing(listed, url, out) : 0;

    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (find_asked(account->known, url, &rc, out))
        return rc;
    rc = ask(account, url, out);
    for (int tries = 0; rc == -EREMOTE && tries < 2; tries++)
        rc = ask(account, url, out);
    if (rc == 0 || rc == -ENOENT)
        keep_asked(account->known, url, rc, out);
    return rc == -EREMOTE ? -EIO : rc;
}

char *rfs_object_pin(struct rfs_store *store, const char *url)
{
    return rfs_hub_pin(rfs_account_of(store), url);
}

int rfs_object_stat(struct rfs_store *store, const char *url, struct stat *st)
{
    struct rfs_account *account = rfs_account_of(store);
    RFS_FREE char *plain = rfs_hub_pin(account, url);
    struct attributes attributes = {0};
    const int rc = plain ? find_attributes(account, plain, &attributes) : -errno;

    if (rc == 0)
        fill_stat(account, &attributes, plain, st);
    return rc;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int add_shown(struct rfs_store_names *out, const char *name, size_t n, bool folder)
{
    if (out->n > 0 && folder == out->data[out->n - 1].folder &&
        strncmp(out->data[out->n - 1].name, name, n) == 0 && !out->data[out->n - 1].name[n])
        return 0;
    struct rfs_store_name entry = {strndup(name, n), folder};
    if (entry.name && RFS_PUSH(out, entry))
        return 0;
    free(entry.name);
    return -ENOMEM;
}

int rfs_object_list(struct rfs_store *store, const char *url, struct rfs_store_names *out)
{
    struct rfs_account *account = rfs_account_of(store);
    RFS_FREE char *plain = rfs_hub_pin(account, url);
    int rc = plain ? 0 : -errno;
    GIVE_LISTED struct listed *listed = plain ? find_listed(account->known, plain, true) : NULL;
    struct attributes attributes = {0};

    *out = (struct rfs_store_names){0};
    if (rc == 0 && !listed)
        rc = find_attributes(account, plain, &attributes);
    if (rc == 0 && !listed && !attributes.folder)
        rc = rfs_store_fail(-ENOTDIR, "it is an object, not a folder");
    if (rc == 0 && !listed)
        /* Finding that out may have taken a listing. */
        listed = find_listed(account->known, plain, true);
    if (rc == 0 && !listed)
        rc = make_listed(account, plain, &listed);
    if (rc < 0)
        return rc;
    const struct rfs_remote_listing *listing = &listed->listing;
    const char *folder = below(listed->url, plain);
    const size_t skip = *folder ? strlen(folder) + 1 : 0;
    const size_t first = first_in(listing, folder);
    if (first == listing->n && *folder)
        return by_listing(listed, plain, &attributes) == 1 && !attributes.folder
                   ? rfs_store_fail(-ENOTDIR, "it is an object, not a folder")
                   : rfs_store_fail(-ENOENT, "there is nothing below it");
    for (size_t i = first; rc == 0 && i < listing->n; i++) {
        const char *name = listing->data[i].name;
        if (skip > 0 && (strncmp(name, folder, skip - 1) != 0 || name[skip - 1] != '/'))
            break;
        const size_t n = strcspn(name + skip, "/");
        rc = add_shown(out, name + skip, n, listing->data[i].folder || name[skip + n] == '/');
    }
    return rc;
}

static void forget(struct rfs_object_known *known)
{
    pthread_mutex_lock(&known->lock);
    struct listed *listed = known->listed;
    struct asked *asked = known->asked.data;
    const size_t n = known->asked.n;
    known->listed = NULL;
    known->asked.data = NULL;
    known->asked.n = known->asked.cap = 0;
    pthread_mutex_unlock(&known->lock);
    for (struct listed *next; listed; listed = next) {
        next = listed->next;
        give_listed(&listed);
    }
    for (size_t i = 0; i < n; i++) {
        rfs_retries_give_memory(asked_bytes(asked[i].url));
        free(asked[i].url);
    }
    free(asked);
}

void rfs_object_forget(struct rfs_store *store)
{
    forget(rfs_account_of(store)->known);
    rfs_hub_forget(rfs_account_of(store)->hub);
}

void rfs_object_free_known(struct rfs_object_known *known)
{
    if (!known)
        return;
    forget(known);
    pthread_mutex_destroy(&known->lock);
    free(known);
}

/* ---- the calls ------------------------------------------------------------------------------- */

int rfs_object_hold(struct rfs_store *store, const char *url, struct rfs_object **out,
                    struct stat *st)
{
    struct rfs_account *account = rfs_account_of(store);
    RFS_FREE char *plain = rfs_hub_pin(account, url);
    struct attributes attributes = {0};
    int rc = plain ? find_attributes(account, plain, &attributes) : -errno;

    *out = NULL;
    if (rc == 0 && attributes.folder)
        rc = rfs_store_fail(-EISDIR, "it is a folder");
    if (rc == 0)
        rc = hold_version(account, plain, &attributes, out);
    if (rc == 0)
        fill_stat(account, &attributes, plain, st);
    return rc;
}

int rfs_object_read(struct rfs_object *object, struct iovec *spans, int count, uint64_t offset)
{
    const int rc = read_version(object, spans, count, offset);

    if (rc == -ESTALE)
        forget(object->account->known); /* the others may have changed with it */
    return rc;
}

uint64_t rfs_object_round_trip(struct rfs_store *store)
{
    return atomic_load_explicit(&rfs_account_of(store)->client.round_trip, memory_order_relaxed);
}
