/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of slices are read as they come while sources are fast, and by way of windows that are
 * read ahead while they are slow.
 *
 * Windows are requests as storage likes them: as few as may be, of up to a MiB. They begin and end
 * at multiples of a page, which is how network file systems cache and send; so a byte's place in
 * its page is the same in memory and in the file, as distance.h requires.
 */
#include "assemble/prefetch.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/order.h"
#include "base/store.h"
#include "base/thread.h"
#include "base/wait.h"

#include <pthread.h>

/* ---- how fast sources are -------------------------------------------------------------------- */

/* No single wait counts for more ns: it may be one in a thousand. */
#define WAIT_MOST UINT64_C(1000000)
/* Reads are slow from such an average on, and fast again below the other one; ns. */
#define SLOW UINT64_C(300000)
#define FAST UINT64_C(40000)

/* Reads of a round, for each that is made at once. */
#define ROUND 2
/* Rounds with as many reads as were found best. */
#define REST 32
/* Rounds before more objects are tried, as they take memory that a short reading never repays. */
#define REST_FIRST 4
/* Twice as many reads must bring so much more. */
#define REWARD 1.25
#define REWARD_REMOTE 1.17
/* Multiples of the round trip, as prefetch.h explains them. */
#define IDLE 1.1
#define NOT_BUSY 4
#define BUSY 7
/* Bytes a ns: twice what 10 Gbit/s are, so that the network is busy while some wait. */
#define EXPECTED_RATE 2.5
#define EXPECTED_READ 1048576

bool rfs_latency_note(struct rfs_latency *latency, uint64_t waited)
{
    uint64_t average = atomic_load_explicit(&latency->waited, memory_order_relaxed);

    if (waited == 0 && average == 0)
        return false;
    if (waited > WAIT_MOST)
        waited = WAIT_MOST;
    if (waited >= average)
        average += (waited - average) / 4;
    else
        average -= (average - waited + 3) / 4;
    atomic_store_explicit(&latency->waited, average, memory_order_relaxed);
    if (average > SLOW)
        atomic_store_explicit(&latency->slow, true, memory_order_relaxed);
    return average < FAST && atomic_exchange_explicit(&latency->slow, false, memory_order_relaxed);
}

static void begin_round(struct rfs_concurrency *concurrency, uint64_t now)
{
    concurrency->began = now;
    concurrency->bytes = 0;
    concurrency->reads = 0;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

void rfs_concurrency_init(struct rfs_concurrency *concurrency, bool remote, unsigned room)
{
    *concurrency = (struct rfs_concurrency){
        .remote = remote,
        .most = least(remote ? RFS_CONCURRENCY_MOST_REMOTE : RFS_CONCURRENCY_MOST, room),
        .now = least(remote ? RFS_CONCURRENCY_REMOTE : RFS_CONCURRENCY_LEAST, room),
        .rest = remote ? REST_FIRST : 0,
        .requests = remote ? RFS_CONCURRENCY_REQUESTS : RFS_CONCURRENCY_MOST,
    };
}

/* Changes the number of reads. RATE: that with half as many, if there are more now; else 0. */
static void change(struct rfs_concurrency *concurrency, unsigned now, double rate)
{
    concurrency->now = now;
    concurrency->before = rate;
    concurrency->settling = now;
}

/* The first answer has come: sets the number of reads that such a network probably needs. */
static void expect(struct rfs_concurrency *concurrency, uint64_t round_trip)
{
    const double bytes = EXPECTED_RATE * (double)round_trip;
    unsigned now = concurrency->now;

    while (now < concurrency->most && now * EXPECTED_READ < bytes)
        now = least(2 * now, concurrency->most);
    concurrency->expected = true;
    if (now != concurrency->now)
        change(concurrency, now, 0);
}

/* Compares how long reads take with the time that all have to wait. */
static void heed_waits(struct rfs_concurrency *concurrency, const struct rfs_concurrency_end *end)
{
    const double wait = (double)end->round_trip;

    /* The time of fewer reads does not count, unless the network was busy with these. */
    if (end->starved && (double)end->took < BUSY * wait)
        return;
    concurrency->taken += end->took * end->reads;
    concurrency->timed += end->reads;
    if (concurrency->timed < concurrency->now) /* the reads that end first are short */
        return;
    const double times = (double)concurrency->taken / concurrency->timed / wait;
    concurrency->taken = concurrency->timed = 0;
    concurrency->busy = times >= BUSY;
    if (concurrency->busy && concurrency->requests > RFS_CONCURRENCY_FEWEST &&
        2 * rfs_concurrency_together(concurrency) <= RFS_CONCURRENCY_TOGETHER)
        concurrency->requests /= 2;
    else if (times < NOT_BUSY)
        concurrency->requests = RFS_CONCURRENCY_REQUESTS;
    if (times < IDLE && concurrency->now < concurrency->most)
        change(concurrency, least(2 * concurrency->now, concurrency->most), 0);
}

void rfs_concurrency_note(struct rfs_concurrency *concurrency,
                          const struct rfs_concurrency_end *end)
{
    const double reward = concurrency->remote ? REWARD_REMOTE : REWARD;

    if (concurrency->settling > 0) { /* begun when there were fewer, or more */
        concurrency->settling -= least(end->reads, concurrency->settling);
        begin_round(concurrency, end->now);
        return;
    }
    if (end->round_trip > 0 && !concurrency->expected)
        expect(concurrency, end->round_trip);
    else if (end->round_trip > 0)
        heed_waits(concurrency, end);
    if (concurrency->began == 0 || end->starved || concurrency->settling > 0) {
        begin_round(concurrency, end->now);
        return;
    }
    concurrency->bytes += end->bytes;
    concurrency->reads += end->reads;
    if (concurrency->reads < ROUND * concurrency->now || end->now <= concurrency->began)
        return;
    const double rate = (double)concurrency->bytes / (double)(end->now - concurrency->began);
    begin_round(concurrency, end->now);
    if (concurrency->rest > 0) {
        concurrency->rest--;
    } else if (concurrency->before > 0 && rate < concurrency->before * reward) {
        change(concurrency, concurrency->now / 2, 0);
        concurrency->rest = REST;
    } else if (concurrency->now < concurrency->most && !concurrency->busy) {
        change(concurrency, least(2 * concurrency->now, concurrency->most), rate);
    } else {
        concurrency->rest = REST;
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The most windows: of objects, and of files. With many sources they are small. */
#define MOST_WINDOWS 512
#define MOST_NEAR 192
/* Windows of files are not read ahead beyond so many bytes in use. */
#define MOST_AHEAD (UINT64_C(84) << 20)
/* Windows that were unused for so many ns may be freed. */
#define FORGOTTEN UINT64_C(1000000000)
/* A read waits if it takes longer than this and a ns for each 4 bytes. */
#define LEAST_NS UINT64_C(150000)
/* Least number of windows that there must be room for: else nothing is read ahead. */
#define LEAST_WINDOWS 4
/* This part of the room is for windows that a thread waits for. */
#define RESERVED 8
/* A gap of so many bytes is read over: a round trip to slow storage takes longer. */
#define GAP (UINT64_C(32) << 10)
/* A range of one block that has no room for its windows is halved, down to so many bytes. */
#define HALVE_LEAST (UINT64_C(4) << 10)

enum window_state {
    WINDOW_FREE,
    WINDOW_QUEUED, /* no memory yet */
    WINDOW_READING,
    WINDOW_READY,
    WINDOW_FAILED, /* pinned by a thread; without memory */
};

/*
 * Bytes [from, to) of a file: at most RFS_PREFETCH_WINDOW. Both ends are multiples of
 * RFS_PREFETCH_PAGE; only the file's end may be another number.
 */
struct window {
    enum window_state state;
    uint32_t file;
    uint32_t pins;
    uint64_t order; /* windows are read in ascending order */
    uint64_t from, to;
    uint64_t wanted;  /* bytes that were requested ahead */
    uint64_t used;    /* bytes that were copied; the window may go when all that are wanted were */
    uint64_t touched; /* time when it was read or used last, ns */
    unsigned char *data;
};

/* A range that a reader will need. */
struct wish {
    uint32_t file;
    uint32_t order; /* number of the range */
    uint64_t from, to;
    uint64_t next; /* where the reader goes on behind it; else RFS_NO_SOURCE */
};

/* Wishes, sorted by file and offset. */
struct wishes {
    struct wish *data; /* owned */
    size_t n;
};

/* Windows to be added. */
struct plan {
    struct window windows[MOST_WINDOWS]; /* sorted by need */
    unsigned n;
    bool cut; /* there was no room for more windows */
};

struct rfs_prefetch {
    struct rfs_files *files;
    struct rfs_cache *cache;
    struct rfs_pool *pool;
    unsigned room; /* number of windows that there may be; 0: nothing is read ahead */
    struct rfs_latency latency;
    pthread_mutex_t lock;   /* guards the rest; a leaf lock */
    pthread_cond_t changed; /* broadcast when a window was read, or a runner ended */
    struct rfs_concurrency concurrency;
    struct plan *plan; /* memory for the one that plans; too large for a stack; owned */
    uint64_t order;    /* order of the next window to be added */
    unsigned runners;  /* pool jobs that read windows */
    unsigned crowd;    /* threads that wait until others hold fewer windows */
    unsigned reading;  /* windows that are being read */
    bool stopped;
    uint64_t reads;
    unsigned at_once;
    struct window windows[]; /* [room] */
};

/* Memory to be given back when the lock is released. */
struct later {
    void *room[MOST_WINDOWS];
    unsigned n;
};

/* Returns how many windows are in a state. The caller has the lock. */
static unsigned count_windows(const struct rfs_prefetch *prefetch, enum window_state state)
{
    unsigned n = 0;
    for (unsigned i = 0; i < prefetch->room; i++)
        n += prefetch->windows[i].state == state;
    return n;
}

/* Releases the lock, and gives memory back. */
static void unlock(struct rfs_prefetch *prefetch, struct later *later)
{
    pthread_mutex_unlock(&prefetch->lock);
    while (later->n > 0)
        rfs_cache_give_room(prefetch->cache, later->room[--later->n]);
}

/* Frees the window, which is not pinned. The caller has the lock. */
static void retire(struct window *window, struct later *later)
{
    if (window->data)
        later->room[later->n++] = window->data;
    *window = (struct window){0};
}

/*
 * Says whether a window that was read is probably wanted no more: all of its bytes were used, or
 * none since BEFORE.
 */
static bool may_go(const struct window *window, uint64_t before)
{
    return window->state == WINDOW_READY && window->pins == 0 &&
           (window->touched < before || (window->used > 0 && window->used + 2 * RFS_PREFETCH_PAGE >=
                                                                 window->to - window->from));
}

/* Drops windows that may go (BEFORE is for those), and with QUEUED those that wait. */
static void drop(struct rfs_prefetch *prefetch, uint64_t before, bool queued, struct later *later)
{
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct window *window = &prefetch->windows[i];
        if (may_go(window, before) ||
            (queued && window->state == WINDOW_QUEUED && window->pins == 0))
            retire(window, later);
    }
}

/*
 * Notes how long a read of SIZE bytes of a source has waited since WAIT began, which is {0} at
 * first and each thread's own.
 */
static void watch(struct rfs_prefetch *prefetch, struct rfs_wait *wait, uint64_t size)
{
    struct later later = {.n = 0};
    if (!rfs_latency_note(&prefetch->latency, rfs_wait_end(wait, LEAST_NS + size / 4)))
        return;
    /* Fast sources are read as quickly on demand. */
    pthread_mutex_lock(&prefetch->lock);
    drop(prefetch, UINT64_MAX, true, &later);
    unlock(prefetch, &later);
}

/* ---- which windows ranges become: no lock, no I/O -------------------------------------------- */

RFS_COMPARE(by_place, struct wish, x, y, RFS_ORDER(x->file, y->file) ?: RFS_ORDER(x->from, y->from))

RFS_COMPARE(by_order, struct window, x, y, RFS_ORDER(x->order, y->order))

/* Lists wishes for the ranges; returns false when there is none, or no memory. */
static bool list_wishes(const struct rfs_gather_ranges *ranges, struct wishes *wishes)
{
    *wishes = (struct wishes){0};
    if (ranges->n == 0)
        return false;
    wishes->data = calloc(ranges->n, sizeof *wishes->data);
    if (!wishes->data)
        return false;
    for (size_t i = 0; i < ranges->n; i++)
        wishes->data[wishes->n++] =
            (struct wish){ranges->data[i].file, (uint32_t)i, ranges->data[i].from,
                          ranges->data[i].to, ranges->data[i].next};
    RFS_SORT_ALL(wishes, by_place);
    return true;
}

/* Returns how many bytes of the wishes the window has, or will have. */
static uint64_t overlap(const struct window *window, const struct wishes *wishes)
{
    uint64_t bytes = 0;

    if (window->state == WINDOW_FREE || window->state == WINDOW_FAILED)
        return 0;
    for (size_t i = 0; i < wishes->n; i++) {
        const struct wish *wish = &wishes->data[i];
        const uint64_t from = rfs_max_u64(wish->from, window->from);
        const uint64_t to = rfs_min_u64(wish->to, window->to);
        if (wish->file == window->file && from < to)
            bytes += to - from;
    }
    return bytes;
}

/* Returns the end of the bytes that windows have from AT on, or AT; *next is where more begin. */
static uint64_t there_until(const struct window *windows, unsigned n, uint32_t file, uint64_t at,
                            uint64_t *next)
{
    *next = UINT64_MAX;
    for (unsigned i = 0; i < n; i++) {
        const struct window *window = &windows[i];
        if (window->state == WINDOW_FREE || window->state == WINDOW_FAILED ||
            window->file != file || window->to <= at)
            continue;
        if (window->from <= at)
            return window->to;
        *next = rfs_min_u64(*next, window->from);
    }
    return at;
}

/* A window that is being made, from wishes in ascending order. */
struct making {
    struct plan *plan;
    bool ahead;           /* nothing waits for them yet */
    struct window window; /* none yet when its end is 0 */
};

static void finish(struct making *making)
{
    struct plan *plan = making->plan;
    struct window *window = &making->window;

    if (window->to == 0)
        return;
    window->to = rfs_min_u64((window->to + RFS_PREFETCH_PAGE - 1) & ~(RFS_PREFETCH_PAGE - 1),
                             window->from + RFS_PREFETCH_WINDOW);
    if (plan->n < MOST_WINDOWS)
        plan->windows[plan->n++] = *window;
    else
        plan->cut = true;
    *window = (struct window){0};
}

/* Puts [from, to), which is in no window, into the window that is being made, or into new ones. */
static void take(struct making *making, const struct wish *wish, uint64_t from, uint64_t to)
{
    struct window *window = &making->window;

    while (from < to) {
        const bool goes_on = window->to > 0 && window->file == wish->file &&
                             from <= window->to + GAP && from < window->from + RFS_PREFETCH_WINDOW;
        if (!goes_on) {
            /* The rest is in the window that will begin in its page, when the reader goes on. */
            if (making->ahead && window->to > 0 && window->to == from &&
                wish->next / RFS_PREFETCH_PAGE == from / RFS_PREFETCH_PAGE)
                return;
            finish(making);
            *window = (struct window){
                .file = wish->file, .order = wish->order, .from = from & ~(RFS_PREFETCH_PAGE - 1)};
        }
        const uint64_t end = rfs_min_u64(to, window->from + RFS_PREFETCH_WINDOW);
        window->order = rfs_min_u64(window->order, wish->order);
        window->wanted += end - from;
        window->to = rfs_max_u64(window->to, end);
        from = end;
    }
}

/*
 * Plans the windows that are missing for the wishes, beside the N that there are. AHEAD: nothing
 * waits for them yet.
 */
static void plan_windows(const struct window *windows, unsigned n, const struct wishes *wishes,
                         bool ahead, struct plan *out)
{
    struct making making = {.plan = out, .ahead = ahead};

    out->n = 0;
    out->cut = false;
    for (size_t i = 0; i < wishes->n && !out->cut; i++) {
        const struct wish *wish = &wishes->data[i];
        for (uint64_t at = wish->from; at < wish->to;) {
            uint64_t next;
            uint64_t end = rfs_min_u64(wish->to, there_until(windows, n, wish->file, at, &next));
            if (end == at) {
                end = rfs_min_u64(wish->to, next);
                take(&making, wish, at, end);
            }
            at = end;
        }
    }
    finish(&making);
    RFS_SORT(out->windows, out->n, by_order);
}

/* ---- reading windows, by jobs of the pool or threads that need one at once ------------------- */

/* A request for windows of one file that follow each other. */
struct request {
    uint32_t file;
    uint64_t from, to;
    uint64_t began; /* ns */
    unsigned n;
    struct window *windows[RFS_CONCURRENCY_TOGETHER];
    struct iovec spans[RFS_CONCURRENCY_TOGETHER]; /* memory of the budget */
};

/*
 * Takes memory for the windows, or for the first of them, and for none beyond the file's end.
 * Returns how many have some.
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

/* Reads the windows to the spans. Returns how many; 0 when it failed, or there is no room. */
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
    watch(prefetch, wait, request->to - request->from);
    rfs_reading_leave(&reading);
    while (rc < 0 && n > 0)
        rfs_cache_give_room(prefetch->cache, request->spans[--n].iov_base);
    return n;
}

/* Returns the queued window that is wanted first, or NULL. */
static struct window *next_queued(struct rfs_prefetch *prefetch)
{
    struct window *next = NULL;
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct window *window = &prefetch->windows[i];
        if (window->state == WINDOW_QUEUED && (!next || window->order < next->order))
            next = window;
    }
    return next;
}

/* Returns the queued window behind the request's that is as urgent, or NULL. */
static struct window *next_behind(struct rfs_prefetch *prefetch, const struct request *request)
{
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct window *window = &prefetch->windows[i];
        if (window->state == WINDOW_QUEUED && window->file == request->file &&
            window->from == request->to && window->order >> 63 == request->windows[0]->order >> 63)
            return window;
    }
    return NULL;
}

/* Begins a request for the window, and others that follow it. The caller has the lock. */
static void begin(struct rfs_prefetch *prefetch, struct window *window, struct request *request)
{
    const unsigned most = rfs_concurrency_together(&prefetch->concurrency);

    *request = (struct request){
        .file = window->file, .from = window->from, .to = window->from, .began = rfs_wait_now()};
    for (; window; window = request->n < most ? next_behind(prefetch, request) : NULL) {
        window->state = WINDOW_READING;
        request->windows[request->n++] = window;
        request->to = window->to;
    }
    prefetch->reading += request->n;
    prefetch->at_once =
        prefetch->reading > prefetch->at_once ? prefetch->reading : prefetch->at_once;
}

/* Returns the store's round trip, ns; 0: there is none. */
static uint64_t round_trip(const struct rfs_prefetch *prefetch)
{
    struct rfs_store *store = rfs_files_store(prefetch->files);

    return store ? store->objects->round_trip(store) : 0;
}

/* Ends a request, whose first N windows were read. The caller has the lock. */
static void end(struct rfs_prefetch *prefetch, const struct request *request, unsigned n,
                struct later *later)
{
    const uint64_t now = rfs_wait_now();

    prefetch->reads += n > 0;
    /* A request that failed, or had no room, says nothing about the storage. */
    if (n == request->n)
        rfs_concurrency_note(&prefetch->concurrency, &(struct rfs_concurrency_end){
                                                         .reads = n,
                                                         .bytes = request->to - request->from,
                                                         .now = now,
                                                         .took = now - request->began,
                                                         .round_trip = round_trip(prefetch),
                                                         .starved = !next_queued(prefetch),
                                                     });
    prefetch->reading -= request->n;
    for (unsigned i = 0; i < request->n; i++) {
        struct window *window = request->windows[i];
        window->state = i < n ? WINDOW_READY : WINDOW_FAILED;
        window->touched = now;
        if (i < n) {
            window->data = request->spans[i].iov_base;
            window->to = window->from + request->spans[i].iov_len;
        }
        if (window->pins == 0 && (i >= n || prefetch->stopped))
            retire(window, later);
    }
}

/* Reads a queued window. The caller has the lock, which is released meanwhile. */
static void read_queued(struct rfs_prefetch *prefetch, struct window *window, struct rfs_wait *wait)
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
    struct window *window;
    struct rfs_wait wait = {0};
    pthread_mutex_lock(&prefetch->lock);
    while (prefetch->reading < prefetch->concurrency.now && (window = next_queued(prefetch)))
        read_queued(prefetch, window, &wait);
    prefetch->runners--;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->lock);
}

/* Starts as many jobs as there may be and as have something to read. */
static void start(struct rfs_prefetch *prefetch)
{
    pthread_mutex_lock(&prefetch->lock);
    const unsigned now = prefetch->concurrency.now;
    const unsigned together = rfs_concurrency_together(&prefetch->concurrency);
    const unsigned queued = count_windows(prefetch, WINDOW_QUEUED);
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

/* ---- starting and stopping ------------------------------------------------------------------- */

struct rfs_prefetch *rfs_prefetch_new(struct rfs_files *files, bool remote, struct rfs_cache *cache,
                                      uint64_t budget, struct rfs_pool *pool)
{
    const uint64_t most = budget / 4 * 3 / RFS_PREFETCH_WINDOW;
    const bool any = pool && most >= LEAST_WINDOWS && rfs_files_are_raw(files);
    const unsigned room = any ? (unsigned)rfs_min_u64(most, remote ? MOST_WINDOWS : MOST_NEAR) : 0;
    struct rfs_prefetch *prefetch = calloc(1, sizeof *prefetch + room * sizeof(struct window));
    if (!prefetch)
        return NULL;
    if (room > 0 && !(prefetch->plan = malloc(sizeof *prefetch->plan))) {
        free(prefetch);
        return NULL;
    }
    prefetch->files = files;
    prefetch->cache = cache;
    prefetch->pool = pool;
    prefetch->room = room;
    pthread_mutex_init(&prefetch->lock, NULL);
    rfs_cancel_init_cond(&prefetch->changed);
    rfs_concurrency_init(&prefetch->concurrency, remote, prefetch->room);
    atomic_init(&prefetch->latency.slow, remote);
    return prefetch;
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
    free(prefetch->plan);
    free(prefetch);
}

void rfs_prefetch_count(struct rfs_prefetch *prefetch, struct rfs_prefetch_counters *out)
{
    pthread_mutex_lock(&prefetch->lock);
    *out = (struct rfs_prefetch_counters){prefetch->reads, prefetch->at_once,
                                          prefetch->room - count_windows(prefetch, WINDOW_FREE)};
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

/* Returns the windows that are left for threads that wait for some. */
static unsigned reserved(const struct rfs_prefetch *prefetch)
{
    return prefetch->room < 2 * RESERVED ? 1 : prefetch->room / RESERVED;
}

/* Queues what was planned, in its order, in at most MOST of the free windows. */
static void queue_planned(struct rfs_prefetch *prefetch, unsigned most, bool urgent)
{
    const struct plan *plan = prefetch->plan;
    unsigned added = 0;

    for (unsigned i = 0; i < prefetch->room && added < least(plan->n, most); i++) {
        struct window *window = &prefetch->windows[i];
        if (window->state != WINDOW_FREE || prefetch->stopped)
            continue;
        *window = plan->windows[added++];
        window->state = WINDOW_QUEUED;
        /* Windows that a thread waits for come before all read ahead. */
        window->order = (urgent ? 0 : UINT64_C(1) << 63) + prefetch->order++;
    }
}

/*
 * Plans for a thread that waits; returns whether there is room for all that is missing. Where there
 * is not, windows that may go are dropped. The caller has the lock.
 */
static bool plan_urgent(struct rfs_prefetch *prefetch, const struct wishes *wishes,
                        struct later *later)
{
    struct plan *plan = prefetch->plan;

    plan_windows(prefetch->windows, prefetch->room, wishes, false, plan);
    if (count_windows(prefetch, WINDOW_FREE) < plan->n) {
        drop(prefetch, rfs_wait_now() - FORGOTTEN, false, later);
        plan_windows(prefetch->windows, prefetch->room, wishes, false, plan);
    }
    return !plan->cut && plan->n <= count_windows(prefetch, WINDOW_FREE);
}

/*
 * Queues reads ahead if there is room for all of them beside the windows that are in use and some
 * for threads that wait, or none is in use. Returns whether it did; else it drops none, as the last
 * bytes of one that may go can still be wanted. The caller has the lock.
 */
static bool add_ahead(struct rfs_prefetch *prefetch, const struct wishes *wishes,
                      struct later *later)
{
    const unsigned most = prefetch->room - reserved(prefetch);
    const uint64_t before = rfs_wait_now() - FORGOTTEN;
    struct plan *plan = prefetch->plan;
    unsigned in_use = 0;
    uint64_t bytes = 0;

    plan_windows(prefetch->windows, prefetch->room, wishes, true, plan);
    for (unsigned i = 0; i < plan->n; i++)
        bytes += plan->windows[i].to - plan->windows[i].from;
    for (unsigned i = 0; i < prefetch->room; i++) {
        const struct window *window = &prefetch->windows[i];
        const bool is_used = window->state != WINDOW_FREE && !may_go(window, before);
        in_use += is_used;
        bytes += is_used ? window->to - window->from : 0;
    }
    const bool far = prefetch->concurrency.remote;
    if (in_use > 0 && (in_use + plan->n > most || (!far && bytes > MOST_AHEAD)))
        return false;
    for (unsigned i = 0; i < prefetch->room; i++)
        prefetch->windows[i].wanted += overlap(&prefetch->windows[i], wishes);
    if (count_windows(prefetch, WINDOW_FREE) < plan->n)
        drop(prefetch, before, false, later);
    queue_planned(prefetch, most, false);
    return true;
}

/* Says whether the ranges need more than one request. */
static bool need_several(const struct rfs_gather_ranges *ranges)
{
    return ranges->requests > 1 ||
           (ranges->n > 0 && ranges->data[0].to - ranges->data[0].from > RFS_PREFETCH_WINDOW);
}

bool rfs_prefetch_want(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges)
{
    struct wishes wishes;
    struct later later = {.n = 0};
    if (prefetch->room == 0 || !list_wishes(ranges, &wishes))
        return true;
    pthread_mutex_lock(&prefetch->lock);
    const bool added = add_ahead(prefetch, &wishes, &later);
    unlock(prefetch, &later);
    free(wishes.data);
    start(prefetch); /* what has no room may wait for windows that no job reads any more */
    return added;
}

/* Queues reads of ranges that are fetched soon; without the room queues none and returns false. */
static bool want_soon(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges)
{
    struct wishes wishes;
    struct later later = {.n = 0};
    if (!need_several(ranges) || !list_wishes(ranges, &wishes))
        return true;
    pthread_mutex_lock(&prefetch->lock);
    const bool room = plan_urgent(prefetch, &wishes, &later);
    if (room)
        queue_planned(prefetch, prefetch->room, true);
    unlock(prefetch, &later);
    free(wishes.data);
    start(prefetch);
    return room;
}

/* ---- holding --------------------------------------------------------------------------------- */

/* Windows that a thread copies from. */
struct hold {
    struct rfs_held held[MOST_WINDOWS]; /* windows that were read */
    size_t n;
    bool crowded; /* none is held, as there is no room for all: fewer ranges at once may have it */
    uint16_t windows[MOST_WINDOWS]; /* all windows, also those that were not read */
    uint64_t bytes[MOST_WINDOWS];   /* bytes of each that are wanted here */
    size_t n_windows;
};

/* Pins the windows that have bytes of the wishes. The caller has the lock. */
static void pin(struct rfs_prefetch *prefetch, const struct wishes *wishes, struct hold *hold)
{
    for (unsigned i = 0; i < prefetch->room; i++) {
        struct window *window = &prefetch->windows[i];
        const uint64_t bytes = overlap(window, wishes);
        if (bytes == 0)
            continue;
        window->pins++;
        hold->windows[hold->n_windows] = (uint16_t)i;
        hold->bytes[hold->n_windows++] = bytes;
    }
}

/*
 * Waits until the window is read, or has failed, or the caller's work is given up. The caller has
 * the lock.
 */
static void settle(struct rfs_prefetch *prefetch, struct window *window, struct rfs_wait *wait)
{
    while (window->state == WINDOW_QUEUED || window->state == WINDOW_READING) {
        if (rfs_cancelled())
            return;
        if (window->state == WINDOW_QUEUED)
            read_queued(prefetch, window, wait);
        else
            rfs_cancel_wait(&prefetch->changed, &prefetch->lock);
    }
}

/* Says whether threads hold windows now. The caller has the lock. */
static bool is_held(const struct rfs_prefetch *prefetch)
{
    for (unsigned i = 0; i < prefetch->room; i++)
        if (prefetch->windows[i].pins > 0)
            return true;
    return false;
}

/*
 * Queues what is missing of the wishes. While other threads hold all windows, it waits: they wait
 * for none that hold nothing. Returns false, and queues nothing, if there is room for some of it
 * only, which DIVIDE allows to say. The caller has the lock.
 */
static bool make_missing(struct rfs_prefetch *prefetch, const struct wishes *wishes, bool divide,
                         struct later *later)
{
    bool room = plan_urgent(prefetch, wishes, later);

    while (!room && count_windows(prefetch, WINDOW_FREE) == 0 && is_held(prefetch) &&
           !prefetch->stopped && !rfs_cancelled()) {
        prefetch->crowd++;
        rfs_cancel_wait(&prefetch->changed, &prefetch->lock);
        prefetch->crowd--;
        room = plan_urgent(prefetch, wishes, later);
    }
    if (!room && divide && count_windows(prefetch, WINDOW_FREE) > 0)
        return false;
    queue_planned(prefetch, prefetch->room, true);
    return true;
}

/*
 * Holds the windows of the ranges, after waiting for reads that are under way. Missing windows are
 * read first, all at once, if that takes several requests. Ranges that one request reads anyway are
 * left to the caller, and so are those without room, unless it can DIVIDE them. Release must
 * follow.
 */
static void hold_windows(struct rfs_prefetch *prefetch, const struct rfs_gather_ranges *ranges,
                         bool divide, struct hold *hold)
{
    struct wishes wishes;
    struct later later = {.n = 0};
    struct rfs_wait wait = {0};
    hold->n = 0;
    hold->n_windows = 0;
    hold->crowded = false;
    if (prefetch->room == 0 || !list_wishes(ranges, &wishes))
        return;
    pthread_mutex_lock(&prefetch->lock);
    bool some = need_several(ranges);
    for (unsigned i = 0; i < prefetch->room && !some; i++)
        some = overlap(&prefetch->windows[i], &wishes) > 0;
    if (some)
        hold->crowded = !make_missing(prefetch, &wishes, divide, &later);
    if (!hold->crowded)
        pin(prefetch, &wishes, hold);
    unlock(prefetch, &later);
    free(wishes.data);
    if (hold->n_windows == 0)
        return;
    start(prefetch);
    pthread_mutex_lock(&prefetch->lock);
    for (size_t i = 0; i < hold->n_windows; i++) {
        struct window *window = &prefetch->windows[hold->windows[i]];
        settle(prefetch, window, &wait);
        if (window->state == WINDOW_READY)
            hold->held[hold->n++] =
                (struct rfs_held){window->file, window->from, window->to, window->data};
    }
    pthread_mutex_unlock(&prefetch->lock);
}

/*
 * Says whether a window without holders is to be freed. One that is being read stays as it is:
 * its reader has no lock, and puts the bytes into it. Its holders may be gone by then, as their
 * work can be cancelled.
 */
static bool is_done_with(const struct rfs_prefetch *prefetch, const struct window *window)
{
    if (window->pins > 0 || window->state == WINDOW_READING)
        return false;
    return window->used >= window->wanted || !window->data || prefetch->stopped ||
           !rfs_latency_is_slow(&prefetch->latency);
}

static void release(struct rfs_prefetch *prefetch, const struct hold *hold)
{
    struct later later = {.n = 0};
    if (hold->n_windows == 0)
        return;
    const uint64_t now = rfs_wait_now();
    pthread_mutex_lock(&prefetch->lock);
    for (size_t i = 0; i < hold->n_windows; i++) {
        struct window *window = &prefetch->windows[hold->windows[i]];
        window->pins--;
        if (window->state == WINDOW_READY) {
            window->used += hold->bytes[i];
            window->touched = now;
        }
        if (is_done_with(prefetch, window))
            retire(window, &later);
    }
    if (prefetch->crowd > 0)
        pthread_cond_broadcast(&prefetch->changed);
    unlock(prefetch, &later);
}

/* ---- fetching -------------------------------------------------------------------------------- */

/* A range that is being fetched. */
struct fetch {
    struct rfs_prefetch *prefetch;
    const struct rfs_slice *slice;
    unsigned char *scratch;
    unsigned char *dst; /* address for byte BEGIN */
    uint64_t begin;
    enum rfs_gather_proof proof;
    bool ahead;
};

static int fetch_plainly(const struct fetch *fetch, uint64_t begin, uint64_t end)
{
    static _Thread_local struct rfs_wait wait;
    struct rfs_prefetch *prefetch = fetch->prefetch;

    rfs_wait_begin(&wait);
    const int rc = rfs_gather(prefetch->files, fetch->slice, begin, end, fetch->scratch,
                              fetch->dst + (begin - fetch->begin), fetch->proof,
                              &(struct rfs_gather_held){.ahead = fetch->ahead});
    watch(prefetch, &wait, end - begin);
    return rc;
}

/* Fetches a range, unless it is to be divided, as there is no room for all of it: *crowded. */
static RFS_APART int fetch_at_once(const struct fetch *fetch, uint64_t begin, uint64_t end,
                                   bool *crowded)
{
    struct rfs_prefetch *prefetch = fetch->prefetch;
    struct rfs_gather_ranges ranges = {0};
    struct hold hold;

    int rc = rfs_gather_note(fetch->slice, begin, end, &ranges);
    if (rc == 0)
        hold_windows(prefetch, &ranges, fetch->slice->n > 1 || end - begin > HALVE_LEAST, &hold);
    free(ranges.data);
    if (rc < 0)
        return rc;
    *crowded = hold.crowded;
    if (hold.crowded)
        return 0;
    if (hold.n_windows == 0)
        return fetch_plainly(fetch, begin, end);
    rc = rfs_gather(
        prefetch->files, fetch->slice, begin, end, fetch->scratch,
        fetch->dst + (begin - fetch->begin), fetch->proof,
        &(struct rfs_gather_held){.ranges = hold.held, .n = hold.n, .ahead = fetch->ahead});
    release(prefetch, &hold);
    return rc;
}

/*
 * Fetches what blocks [first, first + n) have of a range. Without room for all, it divides the
 * blocks, so that each source is still read in as large requests as there may be; then the range
 * of one block. So no source byte is read twice.
 */
static int fetch_by_windows(const struct fetch *fetch, size_t first, size_t n, uint64_t begin,
                            uint64_t end)
{
    const struct rfs_block *blocks = fetch->slice->blocks;
    bool crowded = false;

    while (n > 0 && !rfs_gather_touches(&blocks[first], begin, end)) {
        first++;
        n--;
    }
    while (n > 0 && !rfs_gather_touches(&blocks[first + n - 1], begin, end))
        n--;
    if (n == 0)
        return 0;
    const struct rfs_slice part = {.blocks = fetch->slice->blocks + first, .n = n};
    struct fetch some = *fetch;
    some.slice = &part;
    const int rc = fetch_at_once(&some, begin, end, &crowded);
    if (rc < 0 || !crowded)
        return rc;
    const uint64_t middle = begin + (end - begin) / 2;
    return n > 1 ? fetch_by_windows(fetch, first, n / 2, begin, end)
                       ?: fetch_by_windows(fetch, first + n / 2, n - n / 2, begin, end)
                 : fetch_by_windows(fetch, first, n, begin, middle)
                       ?: fetch_by_windows(fetch, first, n, middle, end);
}

int rfs_prefetch_fetch(struct rfs_prefetch *prefetch, const struct rfs_slice *slice, uint64_t begin,
                       uint64_t end, unsigned char *scratch, unsigned char *dst,
                       enum rfs_gather_proof proof, bool ahead)
{
    const struct fetch fetch = {prefetch, slice, scratch, dst, begin, proof, ahead};

    return rfs_prefetch_is_slow(prefetch) ? fetch_by_windows(&fetch, 0, slice->n, begin, end)
                                          : fetch_plainly(&fetch, begin, end);
}

void rfs_prefetch_soon(struct rfs_prefetch *prefetch, const struct rfs_slice *slice, uint64_t begin,
                       uint64_t end)
{
    bool done = !rfs_prefetch_is_slow(prefetch);

    /* Its beginning needs the windows of all sources, so that half of the range is of more use. */
    for (; !done && begin < end; end = begin + (end - begin) / 2) {
        struct rfs_gather_ranges ranges = {0};
        done = rfs_gather_note(slice, begin, end, &ranges) < 0 || want_soon(prefetch, &ranges) ||
               end - begin <= RFS_PREFETCH_WINDOW;
        free(ranges.data);
    }
}
