/* SPDX-License-Identifier: Apache-2.0 */
/* Reading windows: jobs of the pool, and threads that need a window at once. */
#include "assemble/prefetch_internal.h"
#include "base/checked.h"
#include "base/store.h"

/* Windows of one file that follow each other. */
struct request {
    uint32_t file;
    uint64_t from, to;
    uint64_t began; /* ns */
    unsigned n;
    struct rfs_prefetch_window *windows[RFS_CONCURRENCY_TOGETHER];
    struct iovec spans[RFS_CONCURRENCY_TOGETHER]; /* memory of the budget */
};

/*
 * Takes memory for the windows, or for the first of them, and for none beyond the file's end: how
 * many have some.
 */
static unsigned take_room(struct rfs_prefetch *prefetch, struct request *request, uint64_t size)
{
    const uint64_t end = rfs_min_u64(request->to, size);
    unsigned n = 0;

    request->to = request->from;
    while (n < request->n && request->to < end) {
        void *data = rfs_cache_take_room(prefetch->cache);
        if (!data)
            break;
        const uint64_t bytes =
            rfs_min_u64(end - request->to, request->windows[n]->to - request->windows[n]->from);
        request->spans[n++] = (struct iovec){data, (size_t)bytes};
        request->to += bytes;
    }
    return n;
}

/* How many of the windows were read, to the spans; 0 when it failed, or there is no room. */
static unsigned read_windows(struct rfs_prefetch *prefetch, struct request *request,
                             struct rfs_wait *wait)
{
    struct iovec spans[RFS_CONCURRENCY_TOGETHER];
    struct rfs_reading reading;
    if (rfs_reading_begin_ahead(prefetch->files, request->file, &reading) < 0)
        return 0;
    unsigned n = take_room(prefetch, request, reading.size);
    memcpy(spans, request->spans, n * sizeof *spans);
    rfs_wait_begin(wait);
    const int rc = n > 0 ? rfs_reading_preadv(&reading, spans, (int)n, request->from) : 0;
    rfs_prefetch_watch(prefetch, wait, request->to - request->from);
    rfs_reading_leave(&reading);
    while (rc < 0 && n > 0)
        rfs_cache_give_room(prefetch->cache, request->spans[--n].iov_base);
    return n;
}

static unsigned count(const struct rfs_prefetch *prefetch, enum rfs_prefetch_state state)
{
    unsigned n = 0;
    for (unsigned i = 0; i < prefetch->room; i++)
        n += prefetch->windows[i].state == state;
    return n;
}

/* The queued window that is wanted first, or NULL. */
static struct rfs_prefetch_window *next_queued(struct rfs_prefetch *prefetch)
{
    struct rfs_prefetch_window *next = NULL;
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct rfs_prefetch_window *window = &prefetch->windows[i];
        if (window->state == RFS_WINDOW_QUEUED && (!next || window->order < next->order))
            next = window;
    }
    return next;
}

/* The queued window behind the request's, which is as urgent; or NULL. */
static struct rfs_prefetch_window *next_behind(struct rfs_prefetch *prefetch,
                                               const struct request *request)
{
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct rfs_prefetch_window *window = &prefetch->windows[i];
        if (window->state == RFS_WINDOW_QUEUED && window->file == request->file &&
            window->from == request->to && window->order >> 63 == request->windows[0]->order >> 63)
            return window;
    }
    return NULL;
}

/* The window, with others that follow it. The caller has the lock. */
static void begin(struct rfs_prefetch *prefetch, struct rfs_prefetch_window *window,
                  struct request *request)
{
    const unsigned most = rfs_concurrency_together(&prefetch->concurrency);

    *request = (struct request){
        .file = window->file, .from = window->from, .to = window->from, .began = rfs_wait_now()};
    for (; window; window = request->n < most ? next_behind(prefetch, request) : NULL) {
        window->state = RFS_WINDOW_READING;
        request->windows[request->n++] = window;
        request->to = window->to;
    }
    prefetch->reading += request->n;
    prefetch->at_once =
        prefetch->reading > prefetch->at_once ? prefetch->reading : prefetch->at_once;
}

/* The first N of its windows are there. The caller has the lock. */
static void end(struct rfs_prefetch *prefetch, const struct request *request, unsigned n,
                struct rfs_prefetch_later *later)
{
    const uint64_t now = rfs_wait_now();

    prefetch->reads += n > 0;
    /* One that failed, or had no room, says nothing of the storage. */
    if (n == request->n)
        rfs_concurrency_note(&prefetch->concurrency,
                             &(struct rfs_concurrency_end){
                                 .reads = n,
                                 .bytes = request->to - request->from,
                                 .now = now,
                                 .took = now - request->began,
                                 .round_trip = rfs_store_objects()->round_trip(),
                                 .starved = !next_queued(prefetch),
                             });
    prefetch->reading -= request->n;
    for (unsigned i = 0; i < request->n; i++) {
        struct rfs_prefetch_window *window = request->windows[i];
        window->state = i < n ? RFS_WINDOW_READY : RFS_WINDOW_FAILED;
        window->touched = now;
        if (i < n) {
            window->data = request->spans[i].iov_base;
            window->to = window->from + request->spans[i].iov_len;
        }
        if (window->pins == 0 && (i >= n || prefetch->stopped))
            rfs_prefetch_retire(window, later);
    }
}

void rfs_prefetch_read(struct rfs_prefetch *prefetch, struct rfs_prefetch_window *window,
                       struct rfs_wait *wait)
{
    struct rfs_prefetch_later later = {.n = 0};
    struct request request;
    begin(prefetch, window, &request);
    pthread_mutex_unlock(&prefetch->lock);
    const unsigned n = read_windows(prefetch, &request, wait);
    pthread_mutex_lock(&prefetch->lock);
    end(prefetch, &request, n, &later);
    pthread_cond_broadcast(&prefetch->changed);
    if (later.n > 0) {
        rfs_prefetch_unlock(prefetch, &later);
        pthread_mutex_lock(&prefetch->lock);
    }
}

/* A job of the pool: reads until nothing is queued, or it is one too many. */
static void run(void *arg)
{
    struct rfs_prefetch *prefetch = arg;
    struct rfs_prefetch_window *window;
    struct rfs_wait wait = {0};
    pthread_mutex_lock(&prefetch->lock);
    while (prefetch->reading < prefetch->concurrency.now && (window = next_queued(prefetch)))
        rfs_prefetch_read(prefetch, window, &wait);
    prefetch->runners--;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->lock);
}

void rfs_prefetch_start(struct rfs_prefetch *prefetch)
{
    pthread_mutex_lock(&prefetch->lock);
    const unsigned now = prefetch->concurrency.now;
    const unsigned together = rfs_concurrency_together(&prefetch->concurrency);
    const unsigned queued = count(prefetch, RFS_WINDOW_QUEUED);
    unsigned going = prefetch->reading;
    for (unsigned left = queued; left > 0 && going < now;
         left -= left < together ? left : together) {
        if (prefetch->runners == RFS_CONCURRENCY_REQUESTS || prefetch->stopped)
            break;
        going += together;
        prefetch->runners++;
        pthread_mutex_unlock(&prefetch->lock);
        const bool started = rfs_pool_submit_waiting(prefetch->pool, run, prefetch);
        pthread_mutex_lock(&prefetch->lock);
        if (started)
            continue;
        prefetch->runners--; /* running jobs do it, or the thread that holds it */
        pthread_cond_broadcast(&prefetch->changed);
        break;
    }
    pthread_mutex_unlock(&prefetch->lock);
}
