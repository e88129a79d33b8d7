/* SPDX-License-Identifier: Apache-2.0 */
#include "assemble/stage.h"

#include "assemble/stage_plan.h"
#include "base/cancel.h"
#include "base/checked.h"

#include <pthread.h>
#include <stdlib.h>

/* Windows that nobody has come for in that time may go; ns. */
#define FORGOTTEN UINT64_C(1000000000)
/* A read waits if it takes longer than this and a ns for each 4 bytes. */
#define LEAST_NS UINT64_C(150000)
/* With less room there is nothing to read ahead into. */
#define LEAST_WINDOWS 4

struct rfs_stage {
    struct rfs_files *files;
    struct rfs_cache *cache;
    struct rfs_pool *pool;
    unsigned room; /* windows; 0: there is no stage */
    struct rfs_pace pace;
    pthread_mutex_t lock;   /* of the rest; a leaf lock */
    pthread_cond_t changed; /* a window was read, or a runner ended */
    struct rfs_depth depth;
    struct rfs_stage_window windows[RFS_STAGE_MOST];
    uint64_t order;   /* of the next window to be added */
    unsigned runners; /* pool jobs that read windows */
    unsigned reading; /* windows that are being read */
    bool stopped;
    uint64_t reads;
    unsigned at_once;
};

/* Memory that is given back when the lock is released. */
struct later {
    void *room[RFS_STAGE_MOST];
    unsigned n;
};

struct rfs_stage *rfs_stage_new(struct rfs_files *files, struct rfs_cache *cache, uint64_t budget,
                                struct rfs_pool *pool)
{
    struct rfs_stage *stage = calloc(1, sizeof *stage);
    if (!stage)
        return NULL;
    stage->files = files;
    stage->cache = cache;
    stage->pool = pool;
    const uint64_t room = budget / 4 * 3 / RFS_STAGE_WINDOW;
    if (pool && room >= LEAST_WINDOWS && !rfs_files_secret(files))
        stage->room = (unsigned)rfs_min_u64(room, RFS_STAGE_MOST);
    pthread_mutex_init(&stage->lock, NULL);
    rfs_cancel_init_cond(&stage->changed);
    rfs_depth_init(&stage->depth);
    return stage;
}

static void unlock(struct rfs_stage *stage, struct later *later)
{
    pthread_mutex_unlock(&stage->lock);
    while (later->n > 0)
        rfs_cache_give_room(stage->cache, later->room[--later->n]);
}

/* The window is gone; nobody has it pinned. */
static void retire(struct rfs_stage_window *window, struct later *later)
{
    if (window->data)
        later->room[later->n++] = window->data;
    *window = (struct rfs_stage_window){0};
}

/* Drops those that nobody reads or uses, and of those that are there the ones that nobody came for since BEFORE. */
static void drop(struct rfs_stage *stage, uint64_t before, bool queued, struct later *later)
{
    for (unsigned i = 0; i < stage->room; i++) {
        struct rfs_stage_window *window = &stage->windows[i];
        if (window->pins > 0)
            continue;
        if ((window->state == RFS_STAGE_READY && window->touched < before) ||
            (window->state == RFS_STAGE_QUEUED && queued))
            retire(window, later);
    }
}

void rfs_stage_stop(struct rfs_stage *stage)
{
    struct later later = {.n = 0};
    pthread_mutex_lock(&stage->lock);
    stage->stopped = true;
    drop(stage, UINT64_MAX, true, &later);
    unlock(stage, &later);
}

void rfs_stage_free(struct rfs_stage *stage)
{
    if (!stage)
        return;
    rfs_stage_stop(stage);
    pthread_mutex_lock(&stage->lock);
    while (stage->runners > 0)
        pthread_cond_wait(&stage->changed, &stage->lock);
    pthread_mutex_unlock(&stage->lock);
    rfs_stage_stop(stage); /* what was being read */
    pthread_cond_destroy(&stage->changed);
    pthread_mutex_destroy(&stage->lock);
    free(stage);
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static void note(struct rfs_stage *stage, uint64_t waited)
{
    struct later later = {.n = 0};
    if (!rfs_pace_note(&stage->pace, waited))
        return;
    /* Fast: what is wanted is as quickly read when it is asked for. */
    pthread_mutex_lock(&stage->lock);
    drop(stage, UINT64_MAX, true, &later);
    unlock(stage, &later);
}

void rfs_stage_watch(struct rfs_stage *stage, struct rfs_wait *wait, uint64_t size)
{
    note(stage, rfs_wait_end(wait, LEAST_NS + size / 4));
}

/* One request, into memory of the budget; NULL when it failed, or there is no room. *to is cut at the file's end. */
static unsigned char *read_window(struct rfs_stage *stage, uint32_t file, uint64_t from,
                                  uint64_t *to, struct rfs_wait *wait)
{
    struct rfs_reading reading;
    unsigned char *data = rfs_cache_take_room(stage->cache);
    int rc = data ? rfs_reading_begin_ahead(stage->files, file, &reading) : -1;
    if (rc == 0) {
        *to = rfs_min_u64(*to, reading.size);
        rfs_wait_begin(wait);
        rc = from < *to ? rfs_reading_pread(&reading, data, (size_t)(*to - from), from) : -1;
        rfs_stage_watch(stage, wait, *to - from);
        rfs_reading_leave(&reading);
    }
    if (rc == 0 || !data)
        return data;
    rfs_cache_give_room(stage->cache, data);
    return NULL;
}

static bool any_queued(const struct rfs_stage *stage)
{
    for (unsigned i = 0; i < stage->room; i++)
        if (stage->windows[i].state == RFS_STAGE_QUEUED)
            return true;
    return false;
}

/* Reads a queued window; the caller has the lock, which is released meanwhile. */
static void make(struct rfs_stage *stage, struct rfs_stage_window *window, struct rfs_wait *wait)
{
    struct later later = {.n = 0};
    window->state = RFS_STAGE_READING;
    stage->reading++;
    stage->at_once = stage->reading > stage->at_once ? stage->reading : stage->at_once;
    uint64_t to = window->to;
    pthread_mutex_unlock(&stage->lock);
    unsigned char *data = read_window(stage, window->file, window->from, &to, wait);
    const uint64_t now = rfs_wait_now();
    pthread_mutex_lock(&stage->lock);
    stage->reading--;
    stage->reads += data != NULL;
    /* One that failed, or had no room, says as little of the storage as one that was alone. */
    rfs_depth_note(&stage->depth, to - window->from, now, !data || !any_queued(stage));
    window->to = to;
    window->data = data;
    window->state = data ? RFS_STAGE_READY : RFS_STAGE_FAILED;
    window->touched = now;
    if (window->pins == 0 && (!data || stage->stopped))
        retire(window, &later);
    pthread_cond_broadcast(&stage->changed);
    if (later.n > 0) {
        unlock(stage, &later);
        pthread_mutex_lock(&stage->lock);
    }
}

/* The one that is wanted first, or NULL. */
static struct rfs_stage_window *next_queued(struct rfs_stage *stage)
{
    struct rfs_stage_window *next = NULL;
    for (unsigned i = 0; i < stage->room; i++) {
        struct rfs_stage_window *window = &stage->windows[i];
        if (window->state == RFS_STAGE_QUEUED && (!next || window->order < next->order))
            next = window;
    }
    return next;
}

/* A job of the pool: reads until nothing is queued, or it is one too many. */
static void run(void *arg)
{
    struct rfs_stage *stage = arg;
    struct rfs_stage_window *window;
    struct rfs_wait wait = {0};
    pthread_mutex_lock(&stage->lock);
    while (stage->reading < stage->depth.now && (window = next_queued(stage)))
        make(stage, window, &wait);
    stage->runners--;
    pthread_cond_broadcast(&stage->changed);
    pthread_mutex_unlock(&stage->lock);
}

/* As many runners as there may be and as have something to do. */
static void start_runners(struct rfs_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    unsigned queued = 0;
    for (unsigned i = 0; i < stage->room; i++)
        queued += stage->windows[i].state == RFS_STAGE_QUEUED;
    while (queued > 0 && stage->runners < stage->depth.now && !stage->stopped) {
        stage->runners++;
        queued--;
        pthread_mutex_unlock(&stage->lock);
        const bool started = rfs_pool_submit_waiting(stage->pool, run, stage);
        pthread_mutex_lock(&stage->lock);
        if (started)
            continue;
        stage->runners--; /* those that run do it, or who holds it */
        pthread_cond_broadcast(&stage->changed);
        break;
    }
    pthread_mutex_unlock(&stage->lock);
}

/* ---- wanting ---------------------------------------------------------------------------------------- */

bool rfs_stage_is_slow(const struct rfs_stage *stage)
{
    return stage->room > 0 && rfs_pace_is_slow(&stage->pace);
}

uint64_t rfs_stage_reach(struct rfs_stage *stage)
{
    if (!rfs_stage_is_slow(stage))
        return 0;
    pthread_mutex_lock(&stage->lock);
    const unsigned windows = stage->depth.now * 2;
    pthread_mutex_unlock(&stage->lock);
    /* Some are still being copied from. */
    return rfs_min_u64(windows, stage->room * 3 / 4) * RFS_STAGE_WINDOW;
}

/* Makes room for N windows, if it can: those that were used go first, as little may be left to want of them. */
static void make_room(struct rfs_stage *stage, unsigned n, struct later *later)
{
    unsigned room = 0;
    for (unsigned i = 0; i < stage->room; i++)
        room += stage->windows[i].state == RFS_STAGE_FREE;
    if (room < n)
        drop(stage, rfs_wait_now() - FORGOTTEN, false, later);
    for (; room < n; room++) {
        struct rfs_stage_window *oldest = NULL;
        for (unsigned i = 0; i < stage->room; i++) {
            struct rfs_stage_window *window = &stage->windows[i];
            if (window->state == RFS_STAGE_READY && window->pins == 0 && window->used > 0 &&
                (!oldest || window->touched < oldest->touched))
                oldest = window;
        }
        if (!oldest)
            return;
        retire(oldest, later);
    }
}

/* Adds what is missing of the wishes. False when there is never room for all. The caller has the lock. */
static bool add(struct rfs_stage *stage, const struct rfs_stage_wishes *wishes, bool urgent,
                struct later *later)
{
    struct rfs_stage_plan plan;
    rfs_stage_plan(stage->windows, stage->room, wishes, !urgent, &plan);
    unsigned added = 0;
    make_room(stage, plan.n, later);
    for (unsigned i = 0; i < stage->room && added < plan.n && !stage->stopped; i++) {
        struct rfs_stage_window *window = &stage->windows[i];
        if (window->state != RFS_STAGE_FREE)
            continue;
        *window = plan.windows[added];
        window->state = RFS_STAGE_QUEUED;
        /* What somebody waits for goes before all that is read ahead. */
        window->order = (urgent ? 0 : UINT64_C(1) << 63) + stage->order++;
        added++;
    }
    return !plan.cut && plan.n <= stage->room;
}

/* Whether one request does not read them. */
static bool take_several(const struct rfs_gather_ranges *ranges)
{
    return ranges->requests > 1 ||
           (ranges->n > 0 && ranges->data[0].to - ranges->data[0].from > RFS_STAGE_WINDOW);
}

void rfs_stage_want(struct rfs_stage *stage, const struct rfs_gather_ranges *ranges, bool now)
{
    struct rfs_stage_wishes wishes;
    struct later later = {.n = 0};
    if (stage->room == 0 || (now && !take_several(ranges)) || !rfs_stage_wish(ranges, &wishes))
        return;
    pthread_mutex_lock(&stage->lock);
    add(stage, &wishes, now, &later);
    unlock(stage, &later);
    free(wishes.data);
    start_runners(stage);
}

/* ---- holding ---------------------------------------------------------------------------------------- */

/* Pins the windows that have bytes of the wishes. The caller has the lock. */
static void pin(struct rfs_stage *stage, const struct rfs_stage_wishes *wishes,
                struct rfs_stage_hold *hold)
{
    for (unsigned i = 0; i < stage->room; i++) {
        struct rfs_stage_window *window = &stage->windows[i];
        const uint64_t bytes = rfs_stage_overlap(window, wishes);
        if (bytes == 0)
            continue;
        window->pins++;
        hold->windows[hold->n_windows] = (uint16_t)i;
        hold->bytes[hold->n_windows++] = bytes;
    }
}

/* Until the window is read, or has failed, or the caller's work is given up. The caller has the lock. */
static void settle(struct rfs_stage *stage, struct rfs_stage_window *window, struct rfs_wait *wait)
{
    while (window->state == RFS_STAGE_QUEUED || window->state == RFS_STAGE_READING) {
        if (rfs_cancelled())
            return;
        if (window->state == RFS_STAGE_QUEUED)
            make(stage, window, wait);
        else
            rfs_cancel_wait(&stage->changed, &stage->lock);
    }
}

void rfs_stage_hold(struct rfs_stage *stage, const struct rfs_gather_ranges *ranges,
                    struct rfs_stage_hold *hold)
{
    struct rfs_stage_wishes wishes;
    struct later later = {.n = 0};
    struct rfs_wait wait = {0};
    hold->n = 0;
    hold->n_windows = 0;
    hold->partly = false;
    if (stage->room == 0 || !rfs_stage_wish(ranges, &wishes))
        return;
    pthread_mutex_lock(&stage->lock);
    bool some = take_several(ranges);
    for (unsigned i = 0; i < stage->room && !some; i++)
        some = rfs_stage_overlap(&stage->windows[i], &wishes) > 0;
    if (some)
        hold->partly = !add(stage, &wishes, true, &later);
    pin(stage, &wishes, hold);
    unlock(stage, &later);
    free(wishes.data);
    if (hold->n_windows == 0)
        return;
    start_runners(stage);
    pthread_mutex_lock(&stage->lock);
    for (size_t i = 0; i < hold->n_windows; i++) {
        struct rfs_stage_window *window = &stage->windows[hold->windows[i]];
        settle(stage, window, &wait);
        if (window->state == RFS_STAGE_READY)
            hold->parts[hold->n++] =
                (struct rfs_held){window->file, window->from, window->to, window->data};
    }
    pthread_mutex_unlock(&stage->lock);
}

/*
 * Whether a window that nobody holds any more goes. One that is being read stays as it is: its reader has no lock, and
 * puts the bytes into it. Those who held it may be gone by then, as their work can be given up.
 */
static bool is_done_with(const struct rfs_stage *stage, const struct rfs_stage_window *window)
{
    if (window->pins > 0 || window->state == RFS_STAGE_READING)
        return false;
    return window->used >= window->wanted || !window->data || stage->stopped ||
           !rfs_pace_is_slow(&stage->pace);
}

void rfs_stage_release(struct rfs_stage *stage, const struct rfs_stage_hold *hold)
{
    struct later later = {.n = 0};
    if (hold->n_windows == 0)
        return;
    const uint64_t now = rfs_wait_now();
    pthread_mutex_lock(&stage->lock);
    for (size_t i = 0; i < hold->n_windows; i++) {
        struct rfs_stage_window *window = &stage->windows[hold->windows[i]];
        window->pins--;
        if (window->state == RFS_STAGE_READY) {
            window->used += hold->bytes[i];
            window->touched = now;
        }
        if (is_done_with(stage, window))
            retire(window, &later);
    }
    unlock(stage, &later);
}

void rfs_stage_count(struct rfs_stage *stage, struct rfs_stage_counters *out)
{
    pthread_mutex_lock(&stage->lock);
    *out = (struct rfs_stage_counters){.reads = stage->reads, .at_once = stage->at_once};
    for (unsigned i = 0; i < stage->room; i++)
        out->windows += stage->windows[i].state != RFS_STAGE_FREE;
    pthread_mutex_unlock(&stage->lock);
}
