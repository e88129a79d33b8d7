/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/scratch.h"

#include <pthread.h>
#include <sys/mman.h>

struct scratch {
    void *bytes;
    size_t size;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_error;

static struct rfs_secret *guard; /* NULL: buffers hold nothing secret; set before threads are */

void rfs_scratch_keep_secret(struct rfs_secret *secret)
{
    guard = secret;
}

static void unmap(struct scratch *s)
{
    if (guard)
        rfs_secret_unmap(s->bytes, s->size);
    else if (s->bytes)
        munmap(s->bytes, s->size);
    s->bytes = NULL;
    s->size = 0;
}

static void drop(void *p)
{
    struct scratch *s = p;

    unmap(s);
    free(s);
}

static void make_key(void)
{
    key_error = pthread_key_create(&key, drop);
}

static struct scratch *mine(void)
{
    struct scratch *s;

    pthread_once(&once, make_key);
    if (key_error)
        return NULL;
    s = pthread_getspecific(key);
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (s && pthread_setspecific(key, s) != 0) {
        free(s);
        return NULL;
    }
    return s;
}

void rfs_scratch_drop(void)
{
    struct scratch *s = mine();

    if (s)
        unmap(s);
}

void *rfs_scratch_get(size_t size)
{
    struct scratch *s = mine();
    const size_t wanted = size > RFS_REQUEST_BYTES ? size : RFS_REQUEST_BYTES;
    void *bytes;

    if (!s)
        return NULL;
    if (s->size >= wanted)
        return s->bytes;
    bytes = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                 -1, 0);
    if (bytes == MAP_FAILED)
        return NULL;
    if (guard)
        rfs_secret_guard(guard, bytes, wanted);
    unmap(s);
    s->bytes = bytes;
    s->size = wanted;
    return bytes;
}
