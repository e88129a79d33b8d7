/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/prefetch.h"

#include "base/cancel.h"
#include "base/checked.h"

#include <pthread.h>
#include <stdlib.h>

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

struct rfs_prefetch *rfs_prefetch_new(struct rfs_files *files, struct rfs_cache *cache,
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
        prefetch->room = (unsigned)rfs_min_u64(room, RFS_PREFETCH_MOST);
    pthread_mutex_init(&prefetch->lock, NULL);
    rfs_cancel_init_cond(&prefetch->changed);
    rfs_concurrency_init(&prefetch->concurrency);
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
    rfs_prefetch_stop(prefetch); /* what was being read */
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->lock);
    free(prefetch);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void note(struct rfs_prefetch *prefetch, uint64_t waited)
{
    struct later later = {.n = 0};
    if (!rfs_latency_note(&prefetch->latency, waited))
        return;
    /* Fast sources are read as quickly on demand. */
    pthread_mutex_lock(&prefetch->lock);
    drop(prefetch, UINT64_MAX, true, &later);
    unlock(prefetch, &later);
}

void rfs_prefetch_watch(struct rfs_prefetch *prefetch, struct rfs_wait *wait, uint64_t size)
{
    note(prefetch, rfs_wait_end(wait, LEAST_NS + size / 4));
}

/*
 * One request, into memory of the budget; NULL when it failed, or there is no room. *to is cut at
 * the file's end.
 */
static unsigned char *read_window(struct rfs_prefetch *prefetch, uint32_t file, uint64_t from,
                                  uint64_t *to, struct rfs_wait *wait)
{
    struct rfs_reading reading;
    unsigned char *data = rfs_cache_take_room(prefetch->cache);
    int rc = data ? rfs_reading_begin_ahead(prefetch->files, file, &reading) : -1;
    if (rc == 0) {
        *to = rfs_min_u64(*to, reading.size);
        rfs_wait_begin(wait);
        rc = from < *to ? rfs_reading_pread(&reading, data, (size_t)(*to - from), from) : -1;
        rfs_prefetch_watch(prefetch, wait, *to - from);
        rfs_reading_leave(&reading);
    }
    if (rc == 0 || !data)
        return data;
    rfs_cache_give_room(prefetch->cache, data);
    return NULL;
}

static bool any_queued(const struct rfs_prefetch *prefetch)
{
    for (unsigned i = 0; i < prefetch->room; i++)
        if (prefetch->windows[i].state == RFS_WINDOW_QUEUED)
            return true;
    return false;
}

/* Reads a queued window; the caller has the lock, which is released meanwhile. */
static void make(struct rfs_prefetch *prefetch, struct rfs_prefetch_window *window,
                 struct rfs_wait *wait)
{
    struct later later = {.n = 0};
    window->state = RFS_WINDOW_READING;
    prefetch->reading++;
    prefetch->at_once =
        prefetch->reading > prefetch->at_once ? prefetch->reading : prefetch->at_once;
    uint64_t to = window->to;
    pthread_mutex_unlock(&prefetch->lock);
    unsigned char *data = read_window(prefetch, window->file, window->from, &to, wait);
    const uint64_t now = rfs_wait_now();
    pthread_mutex_lock(&prefetch->lock);
    prefetch->reading--;
    prefetch->reads += data != NULL;
    /* One that failed, or had no room, says as little of the storage as one that was alone. */
    rfs_concurrency_note(&prefetch->concurrency, to - window->from, now,
                         !data || !any_queued(prefetch));
    window->to = to;
    window->data = data;
    window->state = data ? RFS_WINDOW_READY : RFS_WINDOW_FAILED;
    window->touched = now;
    if (window->pins == 0 && (!data || prefetch->stopped))
        retire(window, &later);
    pthread_cond_broadcast(&prefetch->changed);
    if (later.n > 0) {
        unlock(prefetch, &later);
        pthread_mutex_lock(&prefetch->lock);
    }
}

/* The one that is wanted first, or NULL. */
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
    unsigned queued = 0;
    for (unsigned i = 0; i < prefetch->room; i++)
        queued += prefetch->windows[i].state == RFS_WINDOW_QUEUED;
    while (queued > 0 && prefetch->runners < prefetch->concurrency.now && !prefetch->stopped) {
        prefetch->runners++;
        queued--;
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
