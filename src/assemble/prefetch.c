/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/prefetch.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/store.h"

#include <pthread.h>

/* Windows that were unused for that time may be freed; ns. */
#define FORGOTTEN UINT64_C(1000000000)
/* A read waits if it takes longer than this and a ns for each 4 bytes. */
#define LEAST_NS UINT64_C(150000)
/* With less room there is nothing to read ahead into. */
#define LEAST_WINDOWS 4

struct rfs_prefetch {
    struct rfs_files *files;
    struct rfs_cache *cache;
    struct rfs_pool *pool;
    unsigned room; /* for so many windows; 0: nothing is read ahead */
    struct rfs_latency latency;
    pthread_mutex_t lock;   /* of the rest; a leaf lock */
    pthread_cond_t changed; /* a window was read, or a runner ended */
    struct rfs_concurrency concurrency;
    struct rfs_prefetch_window windows[RFS_PREFETCH_MOST];
    uint64_t order;   /* of the next window to be added */
    unsigned runners; /* pool jobs that read windows */
    unsigned reading; /* windows that are being read */
    bool stopped;
    uint64_t reads;
    unsigned at_once;
};

/* Memory that is given back when the lock is released. */
struct later {
    void *room[RFS_PREFETCH_MOST];
    unsigned n;
};

struct rfs_prefetch *rfs_prefetch_new(struct rfs_files *files, bool remote, struct rfs_cache *cache,
                                      uint64_t budget, struct rfs_pool *pool)
{
    struct rfs_prefetch *prefetch = calloc(1, sizeof *prefetch);
    if (!prefetch)
        return NULL;
    prefetch->files = files;
    prefetch->cache = cache;
    prefetch->pool = pool;
    const uint64_t room = budget / 4 * 3 / RFS_PREFETCH_WINDOW;
    if (pool && room >= LEAST_WINDOWS && !rfs_files_secret(files))
        prefetch->room =
            (unsigned)rfs_min_u64(room, remote ? RFS_PREFETCH_MOST : RFS_PREFETCH_NEAR);
    pthread_mutex_init(&prefetch->lock, NULL);
    rfs_cancel_init_cond(&prefetch->changed);
    rfs_concurrency_init(&prefetch->concurrency, remote, prefetch->room);
    atomic_init(&prefetch->latency.slow, remote);
    return prefetch;
}

static void unlock(struct rfs_prefetch *prefetch, struct later *later)
{
    pthread_mutex_unlock(&prefetch->lock);
    while (later->n > 0)
        rfs_cache_give_room(prefetch->cache, later->room[--later->n]);
}

/* Frees the window, which is not pinned. */
static void retire(struct rfs_prefetch_window *window, struct later *later)
{
    if (window->data)
        later->room[later->n++] = window->data;
    *window = (struct rfs_prefetch_window){0};
}

/*
 * Drops windows that are not being read or used; of the complete ones, those not used since BEFORE.
 */
static void drop(struct rfs_prefetch *prefetch, uint64_t before, bool queued, struct later *later)
{
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct rfs_prefetch_window *window = &prefetch->windows[i];
        if (window->pins > 0)
            continue;
        if ((window->state == RFS_WINDOW_READY && window->touched < before) ||
            (window->state == RFS_WINDOW_QUEUED && queued))
            retire(window, later);
    }
}

void rfs_prefetch_stop(struct rfs_prefetch *prefetch)
{
    struct later later = {.n = 0};
    pthread_mutex_lock(&prefetch->lock);
    prefetch->stopped = true;
    drop(prefetch, UINT64_MAX, true, &later);
    unlock(prefetch, &later);
}

void rfs_prefetch_free(struct rfs_prefetch *prefetch)
{
    if (!prefetch)
        return;
    rfs_prefetch_stop(prefetch);
    pthread_mutex_lock(&prefetch->lock);
    while (prefetch->runners > 0)
        pthread_cond_wait(&prefetch->changed, &prefetch->lock);
    pthread_mutex_unlock(&prefetch->lock);
    rfs_prefetch_stop(prefetch); /* reads that have begun */
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->lock);
    free(prefetch);
}

/* ---- reading --------------------------------------------------------------------------------- */

void rfs_prefetch_watch(struct rfs_prefetch *prefetch, struct rfs_wait *wait, uint64_t size)
{
    struct later later = {.n = 0};
    if (!rfs_latency_note(&prefetch->latency, rfs_wait_end(wait, LEAST_NS + size / 4)))
        return;
    /* Fast sources are read as quickly on demand. */
    pthread_mutex_lock(&prefetch->lock);
    drop(prefetch, UINT64_MAX, true, &later);
    unlock(prefetch, &later);
}

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
                struct later *later)
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
            retire(window, later);
    }
}

/* Reads a queued window; the caller has the lock, which is released meanwhile. */
static void make(struct rfs_prefetch *prefetch, struct rfs_prefetch_window *window,
                 struct rfs_wait *wait)
{
    struct later later = {.n = 0};
    struct request request;
    begin(prefetch, window, &request);
    pthread_mutex_unlock(&prefetch->lock);
    const unsigned n = read_windows(prefetch, &request, wait);
    pthread_mutex_lock(&prefetch->lock);
    end(prefetch, &request, n, &later);
    pthread_cond_broadcast(&prefetch->changed);
    if (later.n > 0) {
        unlock(prefetch, &later);
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
        make(prefetch, window, &wait);
    prefetch->runners--;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->lock);
}

/* As many runners as there may be and as have something to do. */
static void start_runners(struct rfs_prefetch *prefetch)
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

/* ---- wanting --------------------------------------------------------------------------------- */

bool rfs_prefetch_is_slow(const struct rfs_prefetch *prefetch)
{
    return prefetch->room > 0 && rfs_latency_is_slow(&prefetch->latency);
}

uint64_t rfs_prefetch_reach(struct rfs_prefetch *prefetch)
{
    if (!rfs_prefetch_is_slow(prefetch))
        return 0;
    pthread_mutex_lock(&prefetch->lock);
    const unsigned windows = prefetch->concurrency.now * 2;
    pthread_mutex_unlock(&prefetch->lock);
    /* Some are still being copied from. */
    return rfs_min_u64(windows, prefetch->room * 3 / 4) * RFS_PREFETCH_WINDOW;
}

/*
 * Makes room for N windows, if it can: those that were used go first, as little may be left to want
 * of them.
 */
static void make_room(struct rfs_prefetch *prefetch, unsigned n, struct later *later)
{
    unsigned room = 0;
    for (unsigned i = 0; i < prefetch->room; i++)
        room += prefetch->windows[i].state == RFS_WINDOW_FREE;
    if (room < n)
        drop(prefetch, rfs_wait_now() - FORGOTTEN, false, later);
    for (; room < n; room++) {
        struct rfs_prefetch_window *oldest = NULL;
        for (unsigned i = 0; i < prefetch->room; i++) {
            struct rfs_prefetch_window *window = &prefetch->windows[i];
            if (window->state == RFS_WINDOW_READY && window->pins == 0 && window->used > 0 &&
                (!oldest || window->touched < oldest->touched))
                oldest = window;
        }
        if (!oldest)
            return;
        retire(oldest, later);
    }
}

/*
 * Adds what is missing of the wishes. False when there is never room for all. The caller has the
 * lock.
 */
static bool add(struct rfs_prefetch *prefetch, const struct rfs_prefetch_wishes *wishes,
                bool urgent, struct later *later)
{
    struct rfs_prefetch_plan plan;
    rfs_prefetch_plan(prefetch->windows, prefetch->room, wishes, !urgent, &plan);
    unsigned added = 0;
    make_room(prefetch, plan.n, later);
    for (unsigned i = 0; i < prefetch->room && added < plan.n && !prefetch->stopped; i++) {
        struct rfs_prefetch_window *window = &prefetch->windows[i];
        if (window->state != RFS_WINDOW_FREE)
            continue;
        *window = plan.windows[added];
        window->state = RFS_WINDOW_QUEUED;
        /* Windows that a thread waits for come before all read ahead. */
        window->order = (urgent ? 0 : UINT64_C(1) << 63) + prefetch->order++;
        added++;
    }
    return !plan.cut && plan.n <= prefetch->room;
}

/* Whether one request does not read them. */
static bool take_several(const struct rfs_gather_ranges *ranges)
{
    return ranges->requests > 1 ||
           (ranges->n > 0 && ranges->data[0].to - ranges->data[0].from > RFS_PREFETCH_WINDOW);
}

void rfs_prefetch_want(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges,
                       bool now)
{
    struct rfs_prefetch_wishes wishes;
    struct later later = {.n = 0};
    if (prefetch->room == 0 || (now && !take_several(ranges)) ||
        !rfs_prefetch_wish(ranges, &wishes))
        return;
    pthread_mutex_lock(&prefetch->lock);
    add(prefetch, &wishes, now, &later);
    unlock(prefetch, &later);
    free(wishes.data);
    start_runners(prefetch);
}

/* ---- holding --------------------------------------------------------------------------------- */

/* Pins the windows that have bytes of the wishes. The caller has the lock. */
static void pin(struct rfs_prefetch *prefetch, const struct rfs_prefetch_wishes *wishes,
                struct rfs_prefetch_hold *hold)
{
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct rfs_prefetch_window *window = &prefetch->windows[i];
        const uint64_t bytes = rfs_prefetch_overlap(window, wishes);
        if (bytes == 0)
            continue;
        window->pins++;
        hold->windows[hold->n_windows] = (uint16_t)i;
        hold->bytes[hold->n_windows++] = bytes;
    }
}

/*
 * Until the window is read, or has failed, or the caller's work is given up. The caller has the
 * lock.
 */
static void settle(struct rfs_prefetch *prefetch, struct rfs_prefetch_window *window,
                   struct rfs_wait *wait)
{
    while (window->state == RFS_WINDOW_QUEUED || window->state == RFS_WINDOW_READING) {
        if (rfs_cancelled())
            return;
        if (window->state == RFS_WINDOW_QUEUED)
            make(prefetch, window, wait);
        else
            rfs_cancel_wait(&prefetch->changed, &prefetch->lock);
    }
}

void rfs_prefetch_hold(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges,
                       struct rfs_prefetch_hold *hold)
{
    struct rfs_prefetch_wishes wishes;
    struct later later = {.n = 0};
    struct rfs_wait wait = {0};
    hold->n = 0;
    hold->n_windows = 0;
    hold->partly = false;
    if (prefetch->room == 0 || !rfs_prefetch_wish(ranges, &wishes))
        return;
    pthread_mutex_lock(&prefetch->lock);
    bool some = take_several(ranges);
    for (unsigned i = 0; i < prefetch->room && !some; i++)
        some = rfs_prefetch_overlap(&prefetch->windows[i], &wishes) > 0;
    if (some)
        hold->partly = !add(prefetch, &wishes, true, &later);
    pin(prefetch, &wishes, hold);
    unlock(prefetch, &later);
    free(wishes.data);
    if (hold->n_windows == 0)
        return;
    start_runners(prefetch);
    pthread_mutex_lock(&prefetch->lock);
    for (size_t i = 0; i < hold->n_windows; i++) {
        struct rfs_prefetch_window *window = &prefetch->windows[hold->windows[i]];
        settle(prefetch, window, &wait);
        if (window->state == RFS_WINDOW_READY)
            hold->parts[hold->n++] =
                (struct rfs_held){window->file, window->from, window->to, window->data};
    }
    pthread_mutex_unlock(&prefetch->lock);
}

/*
 * Whether a window without holders is freed. One that is being read stays as it is: its reader has
 * no lock, and puts the bytes into it. Its holders may be gone by then, as their work can be
 * cancelled.
 */
static bool is_done_with(const struct rfs_prefetch *prefetch,
                         const struct rfs_prefetch_window *window)
{
    if (window->pins > 0 || window->state == RFS_WINDOW_READING)
        return false;
    return window->used >= window->wanted || !window->data || prefetch->stopped ||
           !rfs_latency_is_slow(&prefetch->latency);
}

void rfs_prefetch_release(struct rfs_prefetch *prefetch, const struct rfs_prefetch_hold *hold)
{
    struct later later = {.n = 0};
    if (hold->n_windows == 0)
        return;
    const uint64_t now = rfs_wait_now();
    pthread_mutex_lock(&prefetch->lock);
    for (size_t i = 0; i < hold->n_windows; i++) {
        struct rfs_prefetch_window *window = &prefetch->windows[hold->windows[i]];
        window->pins--;
        if (window->state == RFS_WINDOW_READY) {
            window->used += hold->bytes[i];
            window->touched = now;
        }
        if (is_done_with(prefetch, window))
            retire(window, &later);
    }
    unlock(prefetch, &later);
}

void rfs_prefetch_count(struct rfs_prefetch *prefetch, struct rfs_prefetch_counters *out)
{
    pthread_mutex_lock(&prefetch->lock);
    *out = (struct rfs_prefetch_counters){.reads = prefetch->reads, .at_once = prefetch->at_once};
    for (unsigned i = 0; i < prefetch->room; i++)
        out->windows += prefetch->windows[i].state != RFS_WINDOW_FREE;
    pthread_mutex_unlock(&prefetch->lock);
}
