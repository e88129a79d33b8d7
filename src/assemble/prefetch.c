/* SPDX-License-Identifier: Apache-2.0 */
/* Which windows are wanted, and which are held. */
#include "assemble/prefetch_internal.h"
#include "base/cancel.h"
#include "base/checked.h"

/* Windows that were unused for that time may be freed; ns. */
#define FORGOTTEN UINT64_C(1000000000)
/* A read waits if it takes longer than this and a ns for each 4 bytes. */
#define LEAST_NS UINT64_C(150000)
/* With less room there is nothing to read ahead into. */
#define LEAST_WINDOWS 4

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

void rfs_prefetch_unlock(struct rfs_prefetch *prefetch, struct rfs_prefetch_later *later)
{
    pthread_mutex_unlock(&prefetch->lock);
    while (later->n > 0)
        rfs_cache_give_room(prefetch->cache, later->room[--later->n]);
}

void rfs_prefetch_retire(struct rfs_prefetch_window *window, struct rfs_prefetch_later *later)
{
    if (window->data)
        later->room[later->n++] = window->data;
    *window = (struct rfs_prefetch_window){0};
}

/*
 * Drops windows that are not being read or used; of the complete ones, those not used since BEFORE.
 */
static void drop(struct rfs_prefetch *prefetch, uint64_t before, bool queued,
                 struct rfs_prefetch_later *later)
{
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct rfs_prefetch_window *window = &prefetch->windows[i];
        if (window->pins > 0)
            continue;
        if ((window->state == RFS_WINDOW_READY && window->touched < before) ||
            (window->state == RFS_WINDOW_QUEUED && queued))
            rfs_prefetch_retire(window, later);
    }
}

void rfs_prefetch_stop(struct rfs_prefetch *prefetch)
{
    struct rfs_prefetch_later later = {.n = 0};
    pthread_mutex_lock(&prefetch->lock);
    prefetch->stopped = true;
    drop(prefetch, UINT64_MAX, true, &later);
    rfs_prefetch_unlock(prefetch, &later);
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

void rfs_prefetch_watch(struct rfs_prefetch *prefetch, struct rfs_wait *wait, uint64_t size)
{
    struct rfs_prefetch_later later = {.n = 0};
    if (!rfs_latency_note(&prefetch->latency, rfs_wait_end(wait, LEAST_NS + size / 4)))
        return;
    /* Fast sources are read as quickly on demand. */
    pthread_mutex_lock(&prefetch->lock);
    drop(prefetch, UINT64_MAX, true, &later);
    rfs_prefetch_unlock(prefetch, &later);
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
static void make_room(struct rfs_prefetch *prefetch, unsigned n, struct rfs_prefetch_later *later)
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
        rfs_prefetch_retire(oldest, later);
    }
}

/*
 * Adds what is missing of the wishes. False when there is never room for all. The caller has the
 * lock.
 */
static bool add(struct rfs_prefetch *prefetch, const struct rfs_prefetch_wishes *wishes,
                bool urgent, struct rfs_prefetch_later *later)
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
    struct rfs_prefetch_later later = {.n = 0};
    if (prefetch->room == 0 || (now && !take_several(ranges)) ||
        !rfs_prefetch_wish(ranges, &wishes))
        return;
    pthread_mutex_lock(&prefetch->lock);
    add(prefetch, &wishes, now, &later);
    rfs_prefetch_unlock(prefetch, &later);
    free(wishes.data);
    rfs_prefetch_start(prefetch);
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
            rfs_prefetch_read(prefetch, window, wait);
        else
            rfs_cancel_wait(&prefetch->changed, &prefetch->lock);
    }
}

void rfs_prefetch_hold(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges,
                       struct rfs_prefetch_hold *hold)
{
    struct rfs_prefetch_wishes wishes;
    struct rfs_prefetch_later later = {.n = 0};
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
    rfs_prefetch_unlock(prefetch, &later);
    free(wishes.data);
    if (hold->n_windows == 0)
        return;
    rfs_prefetch_start(prefetch);
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
    struct rfs_prefetch_later later = {.n = 0};
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
            rfs_prefetch_retire(window, &later);
    }
    rfs_prefetch_unlock(prefetch, &later);
}

void rfs_prefetch_count(struct rfs_prefetch *prefetch, struct rfs_prefetch_counters *out)
{
    pthread_mutex_lock(&prefetch->lock);
    *out = (struct rfs_prefetch_counters){.reads = prefetch->reads, .at_once = prefetch->at_once};
    for (unsigned i = 0; i < prefetch->room; i++)
        out->windows += prefetch->windows[i].state != RFS_WINDOW_FREE;
    pthread_mutex_unlock(&prefetch->lock);
}
