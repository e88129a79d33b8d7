/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/object.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "store/remote/blocks.h"
#include "store/remote/jumps.h"
#include "store/remote/make.h"
#include "store/remote/settings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <xxhash.h>

#define SMALL ((uint64_t)64 << 10) /* reads that blocks are made for */
#define TAIL ((uint64_t)4 << 10)   /* of an object: counters, checksums, an archive's directory */
#define GUESS_BYTES ((uint64_t)32 << 10)
#define GUESS_BEFORE ((uint64_t)4 << 10)
#define FIRST_BITS 63 /* an inode of 0 or below is none to some programs */

struct rfs_object {
    uint64_t number; /* of its blocks */
    char *url;
    struct rfs_attributes attributes;
    pthread_mutex_t lock; /* of the rest; a leaf lock */
    struct rfs_jumps jumps;
    unsigned fetching; /* threads that fetch blocks */
};

/* ---- attributes ------------------------------------------------------------------------------ */

bool rfs_attributes_set(struct rfs_attributes *out, uint64_t size, time_t modified,
                        const char *etag, const char *when)
{
    *out = (struct rfs_attributes){.size = size, .modified = modified};
    if (strlen(etag) >= sizeof out->etag || strlen(when) >= sizeof out->when)
        return false;
    memcpy(out->etag, etag, strlen(etag) + 1);
    memcpy(out->when, when, strlen(when) + 1);
    return rfs_etag_is_strong(etag) || (when[0] && modified != 0);
}

void rfs_attributes_stat(const struct rfs_attributes *attributes, const char *url, struct stat *st)
{
    const bool open = rfs_remote_settings()->anonymous || strncmp(url, "s3:", 3) != 0;
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
    const uint64_t seed = XXH3_64bits(url, strlen(url));
    st->st_ino = (ino_t)(XXH3_64bits_withSeed(attributes->etag, strlen(attributes->etag), seed) >>
                         (64 - FIRST_BITS)) |
                 1;
}

/* Whether it leads, or has led, to a name with a slash at its end: an index of a folder. */
static bool leads_to_folder(const struct rfs_http *http)
{
    const size_t n = strcspn(http->location, "?#");
    return n > 0 && http->location[n - 1] == '/';
}

static int take_answer(const struct rfs_http *http, struct rfs_attributes *out)
{
    if (leads_to_folder(http)) {
        *out = (struct rfs_attributes){.folder = true};
        return 0;
    }
    if (http->status >= 300)
        return rfs_store_fail(-EIO, "status %ld leads to '%.200s', which is not followed",
                              http->status, http->location);
    if (http->length < 0)
        return rfs_store_fail(-ENOTSUP, "the server does not say how long it is");
    if (!rfs_attributes_set(out, (uint64_t)http->length, rfs_http_time(http->modified), http->etag,
                            http->modified))
        return rfs_store_fail(-ENOTSUP,
                              "the server gives neither a strong ETag nor the time of the last "
                              "change, so a change would not be noticed");
    return 0;
}

int rfs_object_ask(const struct rfs_place *place, const char *url, struct rfs_attributes *out)
{
    struct rfs_request request = {.place = place, .url = url, .key = place->key, .head = true};
    int rc = rfs_requests_make(&request, 1);

    if (rc == 0 && request.http.status >= 300 && !leads_to_folder(&request.http)) {
        rfs_request_free(&request);
        request = (struct rfs_request){
            .place = place, .url = url, .key = place->key, .head = true, .follow = true};
        rc = rfs_requests_make(&request, 1);
    }
    if (rc == 0)
        rc = take_answer(&request.http, out);
    rfs_request_free(&request);
    return rc;
}

/* ---- versions -------------------------------------------------------------------------------- */

int rfs_object_new(const char *url, const struct rfs_attributes *attributes,
                   struct rfs_object **out)
{
    static atomic_uint_fast64_t numbers;
    struct rfs_object *object = calloc(1, sizeof *object);

    *out = object;
    if (!object || !(object->url = strdup(url))) {
        free(object);
        *out = NULL;
        return -ENOMEM;
    }
    object->number = atomic_fetch_add(&numbers, 1) + 1;
    object->attributes = *attributes;
    pthread_mutex_init(&object->lock, NULL);
    return 0;
}

void rfs_object_free(struct rfs_object *object)
{
    if (!object)
        return;
    rfs_block_drop(object->number);
    pthread_mutex_destroy(&object->lock);
    free(object->url);
    free(object);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Bytes [from, from + n), to the spans from SKIP bytes of them on. */
struct part {
    uint64_t from, n;
    const struct iovec *spans;
    int count;
    uint64_t skip;
};

static int fetch_from(const struct rfs_object *object, const struct rfs_place *place,
                      const struct part *parts, size_t n)
{
    RFS_FREE struct rfs_request *requests = calloc(n, sizeof *requests);

    if (!requests)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        requests[i] = (struct rfs_request){
            .place = place,
            .url = object->url,
            .key = place->key,
            .from = parts[i].from,
            .n = parts[i].n,
            .size = object->attributes.size,
            .spans = parts[i].spans,
            .count = parts[i].count,
            .skip = parts[i].skip,
            .etag = object->attributes.etag,
            .modified = object->attributes.when,
        };
    const int rc = rfs_requests_make(requests, n);
    for (size_t i = 0; i < n; i++)
        rfs_request_free(&requests[i]);
    return rc;
}

/* All at once. */
static int fetch(const struct rfs_object *object, const struct part *parts, size_t n)
{
    int rc = -EREMOTE;

    for (int tries = 0; rc == -EREMOTE && tries < 3; tries++) {
        RFS_CLEANUP(rfs_place_free) struct rfs_place place = {0};
        rc = rfs_place_of(object->url, &place);
        if (rc == 0)
            rc = fetch_from(object, &place, parts, n);
    }
    return rc == -EREMOTE ? -EIO : rc;
}

static int read_large(const struct rfs_object *object, const struct iovec *spans, int count,
                      uint64_t offset, uint64_t n)
{
    const size_t most = (size_t)((n + RFS_PART_BYTES - 1) / RFS_PART_BYTES);
    RFS_FREE struct part *parts = calloc(most, sizeof *parts);

    if (!parts)
        return -ENOMEM;
    for (size_t i = 0; i < most; i++) {
        const uint64_t skip = i * RFS_PART_BYTES;
        parts[i] =
            (struct part){offset + skip, rfs_min_u64(n - skip, RFS_PART_BYTES), spans, count, skip};
    }
    return fetch(object, parts, most);
}

/* Blocks that are fetched with one another. */
struct fetched {
    struct part parts[1 + RFS_JUMPS_AHEAD];
    struct iovec spans[1 + RFS_JUMPS_AHEAD];
    size_t n;
};

static bool add_block(struct fetched *fetched, uint64_t from, uint64_t n)
{
    struct iovec *span = &fetched->spans[fetched->n];
    *span = (struct iovec){malloc((size_t)n), (size_t)n};
    fetched->parts[fetched->n] = (struct part){from, n, span, 1, 0};
    fetched->n += span->iov_base != NULL;
    return span->iov_base != NULL;
}

/*
 * Headers that are probably read next, by one thread that walks: where they lie is a guess, so a
 * block begins before it.
 */
static void add_guesses(struct rfs_object *object, uint64_t end, struct fetched *fetched)
{
    uint64_t guesses[RFS_JUMPS_AHEAD];
    pthread_mutex_lock(&object->lock);
    if (object->fetching > 1)
        object->jumps.n = 0;
    const size_t n = rfs_jumps_guess(&object->jumps, guesses);
    pthread_mutex_unlock(&object->lock);
    for (size_t i = 0; i < n; i++) {
        const uint64_t from = guesses[i] > GUESS_BEFORE ? guesses[i] - GUESS_BEFORE : 0;
        const uint64_t size = object->attributes.size;
        if (from < end || from >= size ||
            !add_block(fetched, from, rfs_min_u64(size - from, GUESS_BYTES)))
            return;
    }
}

/* One more thread fetches small ranges of the object, or one less; how many do now. */
static unsigned count_fetching(struct rfs_object *object, int change)
{
    pthread_mutex_lock(&object->lock);
    object->fetching += (unsigned)change;
    const unsigned fetching = object->fetching;
    pthread_mutex_unlock(&object->lock);
    return fetching;
}

/* By a block around it, which is kept. */
static int read_block(struct rfs_object *object, const struct iovec *spans, int count,
                      uint64_t offset, size_t n)
{
    const uint64_t size = object->attributes.size;
    uint64_t length = rfs_max_u64(rfs_block_size(object->number, offset), n);
    /* Near the end, as the directory of an archive: the bytes before it are read next. */
    const uint64_t from = size - offset < length ? size - rfs_min_u64(size, length) : offset;
    length = rfs_min_u64(length, size - from);
    struct fetched fetched = {.n = 0};
    int rc = -ENOMEM;
    if (add_block(&fetched, from, length)) {
        add_guesses(object, from + length, &fetched);
        rc = fetch(object, fetched.parts, fetched.n);
    }
    const unsigned char *data = fetched.spans[0].iov_base;
    size_t at = (size_t)(offset - from);
    for (int i = 0; rc == 0 && i < count; i++) {
        memcpy(spans[i].iov_base, data + at, spans[i].iov_len);
        at += spans[i].iov_len;
    }
    for (size_t i = 0; i < fetched.n; i++)
        if (rc == 0)
            rfs_block_keep(object->number, fetched.parts[i].from, fetched.spans[i].iov_base,
                           fetched.spans[i].iov_len);
        else
            free(fetched.spans[i].iov_base);
    return rc;
}

/*
 * A thread that is alone goes from header to header, and soon needs the bytes that follow. Several
 * at once know where each header lies, and need no more than that. The end is read again, for the
 * values of counters.
 */
static int read_small(struct rfs_object *object, const struct iovec *spans, int count,
                      uint64_t offset, size_t n)
{
    pthread_mutex_lock(&object->lock);
    rfs_jumps_note(&object->jumps, offset);
    pthread_mutex_unlock(&object->lock);
    if (rfs_block_copy(object->number, offset, n, spans, count))
        return 0;
    const struct part exact = {offset, n, spans, count, 0};
    const bool alone = count_fetching(object, 1) == 1;
    const int rc = alone || object->attributes.size - offset <= TAIL
                       ? read_block(object, spans, count, offset, n)
                       : fetch(object, &exact, 1);
    count_fetching(object, -1);
    return rc;
}

int rfs_object_read(struct rfs_object *object, struct iovec *spans, int count, uint64_t offset)
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
