/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/patience.h"
#include "base/text.h"

#include <time.h>
#include <unistd.h>

#define DRAW_EVERY 0.2
#define TELL_EVERY 1.0
#define BAR 20
#define LINE 79 /* at most; the last column stays free, where some terminals break the line */
#define REST                                                                                       \
    62 /* beside bar and phase: " [] 100% 1023.9 MiB of 1023.9 GiB, 1023.9 MiB/s, 99:59:59 left" */

double rfs_progress_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void rfs_progress_init(struct rfs_progress *progress, bool json)
{
    *progress = (struct rfs_progress){.terminal = isatty(STDERR_FILENO) == 1, .json = json};
    pthread_mutex_init(&progress->lock, NULL);
}

void rfs_progress_destroy(struct rfs_progress *progress)
{
    rfs_progress_end(progress);
    pthread_mutex_destroy(&progress->lock);
}

void rfs_progress_begin(struct rfs_progress *progress, const char *phase, uint64_t bytes,
                        uint64_t files)
{
    rfs_patience_end();
    RFS_LOCKED(&progress->lock);
    progress->phase = phase;
    progress->bytes = bytes;
    progress->files = files;
    atomic_store(&progress->bytes_done, 0);
    atomic_store(&progress->files_done, 0);
    progress->begun = progress->drawn = progress->reported = progress->mark = rfs_progress_now();
    progress->mark_bytes = 0;
    progress->rate = 0;
}

void rfs_progress_add(struct rfs_progress *progress, uint64_t bytes)
{
    atomic_fetch_add_explicit(&progress->bytes_done, bytes, memory_order_relaxed);
}

void rfs_progress_file(struct rfs_progress *progress)
{
    atomic_fetch_add_explicit(&progress->files_done, 1, memory_order_relaxed);
}

/* Measures the rate. The caller has the lock. */
static void measure(struct rfs_progress *progress, double now, uint64_t done)
{
    const double passed = now - progress->mark;

    if (passed < 0.5)
        return;
    const double rate = (double)(done - progress->mark_bytes) / passed;
    progress->rate = progress->rate > 0 ? 0.7 * progress->rate + 0.3 * rate : rate;
    progress->mark = now;
    progress->mark_bytes = done;
}

/* Returns the columns that a line has now. */
static int line_width(void)
{
    const unsigned columns = rfs_text_columns(STDERR_FILENO);

    return columns > 0 && columns <= LINE ? (int)columns - 1 : LINE;
}

/*
 * Writes the line of bytes, of WIDTH columns: a bar that leaves room for the longest texts, what is
 * done and left.
 */
static void draw_bar(const struct rfs_progress *progress, uint64_t done, size_t width, char *line,
                     size_t cap)
{
    char bar[BAR + 1], rest[LINE + 1], have[RFS_TEXT_AMOUNT], all[RFS_TEXT_AMOUNT],
        rate[RFS_TEXT_AMOUNT], left[RFS_TEXT_AMOUNT];
    const double part = (double)done / (double)progress->bytes;
    /* Before the end neither the bar nor the number is full. */
    const int n = snprintf(rest, sizeof rest, "%3u%% %s of %s", (unsigned)(part * 100),
                           rfs_text_amount(done, have), rfs_text_amount(progress->bytes, all));

    if (progress->rate > 0 && done < progress->bytes)
        snprintf(rest + n, sizeof rest - (size_t)n, ", %s/s, %s left",
                 rfs_text_amount((uint64_t)progress->rate, rate),
                 rfs_text_duration((double)(progress->bytes - done) / progress->rate, left));
    const size_t other = strlen(progress->phase) + REST;
    const size_t length = other + BAR < width ? BAR : other < width ? width - other : 0;
    memset(bar, '.', length);
    memset(bar, '#', (size_t)(part * (double)length));
    bar[length] = '\0';
    if (length > 0)
        snprintf(line, cap, "%s [%s] %s", progress->phase, bar, rest);
    else
        snprintf(line, cap, "%s %s", progress->phase, rest);
}

/* Draws the line. The caller has the lock. */
static void draw(struct rfs_progress *progress, uint64_t done, uint64_t files)
{
    char line[160];
    const int width = line_width();

    if (progress->bytes > 0)
        draw_bar(progress, done, (size_t)width, line, sizeof line);
    else
        snprintf(line, sizeof line, "%s: %" PRIu64 " of %" PRIu64 " files", progress->phase, files,
                 progress->files);
    fprintf(stderr, "\r%-*.*s", width, width, line);
    fflush(stderr);
    progress->shown = true;
}

/* Prints the line of JSON. The caller has the lock. */
static void print_json(const struct rfs_progress *progress, double now, uint64_t done,
                       uint64_t files)
{
    struct rfs_json_write json = {.file = stdout};

    flockfile(stdout); /* where other threads print lines, too */
    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "event", "progress");
    rfs_json_put_text(&json, "phase", progress->phase);
    rfs_json_put_u64(&json, "bytes", done);
    rfs_json_put_u64(&json, "total_bytes", progress->bytes);
    rfs_json_put_u64(&json, "files", files);
    rfs_json_put_u64(&json, "total_files", progress->files);
    rfs_json_print(&json, "bytes_per_second", "%.0f", progress->rate);
    rfs_json_print(&json, "seconds", "%.3f", now - progress->begun);
    rfs_json_finish(&json);
    funlockfile(stdout);
    fflush(stdout);
}

void rfs_progress_tick(struct rfs_progress *progress)
{
    if ((!progress->terminal && !progress->json) || pthread_mutex_trylock(&progress->lock) != 0)
        return;
    const double now = rfs_progress_now();
    uint64_t done = atomic_load(&progress->bytes_done);
    const uint64_t files = atomic_load(&progress->files_done);

    if (done > progress->bytes)
        done = progress->bytes;
    measure(progress, now, done);
    if (progress->terminal && now - progress->drawn >= DRAW_EVERY) {
        draw(progress, done, files);
        progress->drawn = now;
    }
    if (progress->json && now - progress->reported >= TELL_EVERY) {
        print_json(progress, now, done, files);
        progress->reported = now;
    }
    pthread_mutex_unlock(&progress->lock);
}

void rfs_progress_end(struct rfs_progress *progress)
{
    RFS_LOCKED(&progress->lock);
    if (progress->shown) {
        if (progress->bytes > 0 && atomic_load(&progress->bytes_done) >= progress->bytes)
            draw(progress, progress->bytes, progress->files);
        fprintf(stderr, "\r%*s\r", line_width(), "");
        fflush(stderr);
    }
    progress->shown = false;
}
