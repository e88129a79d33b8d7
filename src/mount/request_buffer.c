/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/request_buffer.h"

#include "base/pages.h"

#include <pthread.h>

struct buffer {
    void *bytes;
    size_t size;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_error;

static void unmap(struct buffer *b)
{
    rfs_pages_free(b->bytes, b->size);
    b->bytes = NULL;
    b->size = 0;
}

static void drop(void *p)
{
    struct buffer *b = p;

    unmap(b);
    free(b);
}

static void make_key(void)
{
    key_error = pthread_key_create(&key, drop);
}

/* Returns the calling thread's buffer, made at the first call. */
static struct buffer *mine(void)
{
    struct buffer *b;

    pthread_once(&once, make_key);
    if (key_error)
        return NULL;
    b = pthread_getspecific(key);
    if (b)
        return b;
    b = calloc(1, sizeof *b);
    if (b && pthread_setspecific(key, b) != 0) {
        free(b);
        return NULL;
    }
    return b;
}

void rfs_request_buffer_drop(void)
{
    struct buffer *b = mine();

    if (b)
        unmap(b);
}

void *rfs_request_buffer_get(size_t size)
{
    struct buffer *b = mine();
    const size_t wanted = size > RFS_REQUEST_BYTES ? size : RFS_REQUEST_BYTES;
    void *bytes;

    if (!b)
        return NULL;
    if (b->size >= wanted)
        return b->bytes;
    bytes = rfs_pages_alloc(wanted);
    if (!bytes)
        return NULL;
    unmap(b);
    b->bytes = bytes;
    b->size = wanted;
    return bytes;
}
