/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests as storage likes them: as few as may be, of up to a MiB. They begin and end at multiples
 * of a page, which is how network file systems cache and send; so a byte's place in its page is the
 * same in memory and in the file, as place.h requires.
 */
#include "assemble/prefetch_plan.h"

#include "base/checked.h"
#include "base/order.h"

/* A gap of so many bytes is read over: a round trip to slow storage takes longer. */
#define GAP (UINT64_C(32) << 10)

RFS_COMPARE(by_place, struct rfs_prefetch_wish, x, y,
            RFS_ORDER(x->file, y->file) ?: RFS_ORDER(x->from, y->from))

static int by_order(const void *a, const void *b)
{
    const uint64_t x = ((const struct rfs_prefetch_window *)a)->order;
    const uint64_t y = ((const struct rfs_prefetch_window *)b)->order;

    return x < y ? -1 : x > y;
}

bool rfs_prefetch_wish(const struct rfs_gather_ranges *ranges, struct rfs_prefetch_wishes *wishes)
{
    *wishes = (struct rfs_prefetch_wishes){0};
    if (ranges->n == 0)
        return false;
    wishes->data = calloc(ranges->n, sizeof *wishes->data);
    if (!wishes->data)
        return false;
    for (size_t i = 0; i < ranges->n; i++)
        wishes->data[wishes->n++] = (struct rfs_prefetch_wish){
            ranges->data[i].file, (uint32_t)i, ranges->data[i].from, ranges->data[i].to};
    RFS_SORT_ALL(wishes, by_place);
    return true;
}

uint64_t rfs_prefetch_overlap(const struct rfs_prefetch_window *window,
                              const struct rfs_prefetch_wishes *wishes)
{
    uint64_t bytes = 0;

    if (window->state == RFS_WINDOW_FREE || window->state == RFS_WINDOW_FAILED)
        return 0;
    for (size_t i = 0; i < wishes->n; i++) {
        const struct rfs_prefetch_wish *wish = &wishes->data[i];
        const uint64_t from = rfs_max_u64(wish->from, window->from);
        const uint64_t to = rfs_min_u64(wish->to, window->to);
        if (wish->file == window->file && from < to)
            bytes += to - from;
    }
    return bytes;
}

/* The end of the bytes that are there from AT on, or AT; *next is where the next ones begin. */
static uint64_t there_until(struct rfs_prefetch_window *windows, unsigned n, uint32_t file,
                            uint64_t at, uint64_t *next, struct rfs_prefetch_window **has)
{
    *next = UINT64_MAX;
    for (unsigned i = 0; i < n; i++) {
        struct rfs_prefetch_window *window = &windows[i];
        if (window->state == RFS_WINDOW_FREE || window->state == RFS_WINDOW_FAILED ||
            window->file != file || window->to <= at)
            continue;
        if (window->from <= at) {
            *has = window;
            return window->to;
        }
        *next = rfs_min_u64(*next, window->from);
    }
    return at;
}

/* One that is being made, from wishes in ascending order. */
struct making {
    struct rfs_prefetch_plan *plan;
    struct rfs_prefetch_window window; /* none when to is 0 */
};

static void finish(struct making *making)
{
    struct rfs_prefetch_plan *plan = making->plan;
    struct rfs_prefetch_window *window = &making->window;

    if (window->to == 0)
        return;
    window->to = rfs_min_u64((window->to + RFS_PREFETCH_PAGE - 1) & ~(RFS_PREFETCH_PAGE - 1),
                             window->from + RFS_PREFETCH_WINDOW);
    if (plan->n < RFS_PREFETCH_MOST)
        plan->windows[plan->n++] = *window;
    else
        plan->cut = true;
    *window = (struct rfs_prefetch_window){0};
}

/* Puts [from, to), which is in no window, into the window that is being made, or into new ones. */
static void take(struct making *making, const struct rfs_prefetch_wish *wish, uint64_t from,
                 uint64_t to)
{
    struct rfs_prefetch_window *window = &making->window;

    while (from < to) {
        const bool goes_on = window->to > 0 && window->file == wish->file &&
                             from <= window->to + GAP && from < window->from + RFS_PREFETCH_WINDOW;
        if (!goes_on) {
            /* The rest of a page is in the window that begins in it, of the next wish. */
            if (window->to > 0 && window->to == from && to - from < RFS_PREFETCH_PAGE)
                return;
            finish(making);
            *window = (struct rfs_prefetch_window){
                .file = wish->file, .order = wish->order, .from = from & ~(RFS_PREFETCH_PAGE - 1)};
        }
        const uint64_t end = rfs_min_u64(to, window->from + RFS_PREFETCH_WINDOW);
        window->order = rfs_min_u64(window->order, wish->order);
        window->wanted += end - from;
        window->to = rfs_max_u64(window->to, end);
        from = end;
    }
}

void rfs_prefetch_plan(struct rfs_prefetch_window *windows, unsigned n,
                       const struct rfs_prefetch_wishes *wishes, bool count,
                       struct rfs_prefetch_plan *out)
{
    struct making making = {.plan = out};

    out->n = 0;
    out->cut = false;
    for (size_t i = 0; i < wishes->n && !out->cut; i++) {
        const struct rfs_prefetch_wish *wish = &wishes->data[i];
        for (uint64_t at = wish->from; at < wish->to;) {
            struct rfs_prefetch_window *has = NULL;
            uint64_t next;
            uint64_t end =
                rfs_min_u64(wish->to, there_until(windows, n, wish->file, at, &next, &has));
            if (end > at) {
                has->wanted += count ? end - at : 0;
            } else {
                end = rfs_min_u64(wish->to, next);
                take(&making, wish, at, end);
            }
            at = end;
        }
    }
    finish(&making);
    RFS_SORT(out->windows, out->n, by_order);
}
