/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that write, and the order of their work. */
#include "tool/export/write.h"

#include "base/checked.h"
#include "base/order.h"
#include "tool/common/stop.h"
#include "view/ranges.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#define TICK 200 /* ms */

/* The first failure is the one that is reported. */
static void fail(struct rfs_writing_run *run, int rc, const struct rfs_error *err)
{
    pthread_mutex_lock(&run->lock);
    if (!run->failed) {
        run->failed = rc;
        run->err = *err;
    }
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

/* ---- the threads ----------------------------------------------------------------------------- */

/* Makes the next wave the run's; the caller has the lock, which is released meanwhile. */
static void next_wave(struct rfs_writing_run *run)
{
    struct rfs_error err = {0};
    struct rfs_wave *old = run->wave;
    struct rfs_wave *wave;

    run->preparing = true;
    pthread_mutex_unlock(&run->lock);
    const int rc = rfs_wave_begin(run, &wave, &err);
    pthread_mutex_lock(&run->lock);
    run->preparing = false;
    if (rc && !run->failed) {
        run->failed = rc;
        run->err = err;
    }
    run->wave = wave;
    if (old && --old->refs > 0)
        old = NULL;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    if (old)
        rfs_wave_free(old);
    pthread_mutex_lock(&run->lock);
}

/* The next item of all, and its wave, to be given back; NULL when there is none, or it is over. */
static const struct rfs_wave_item *take_item(struct rfs_writing_run *run, struct rfs_wave **out)
{
    const struct rfs_wave_item *item = NULL;

    pthread_mutex_lock(&run->lock);
    while (!item && run->wave && !run->failed && !rfs_stopped()) {
        struct rfs_wave *wave = run->wave;
        if (wave->next < wave->plan.items.n) {
            item = &wave->plan.items.data[wave->next++];
            wave->refs++;
            *out = wave;
        } else if (run->preparing) {
            pthread_cond_wait(&run->changed, &run->lock);
        } else {
            next_wave(run);
        }
    }
    pthread_mutex_unlock(&run->lock);
    return item;
}

static void give_back(struct rfs_writing_run *run, struct rfs_wave *wave)
{
    pthread_mutex_lock(&run->lock);
    const bool last = --wave->refs == 0;
    pthread_mutex_unlock(&run->lock);
    if (last)
        rfs_wave_free(wave);
}

static void *work_on(void *arg)
{
    struct rfs_writing_run *run = arg;
    const size_t room = (size_t)run->piece + RESHARD_SCRATCH_EXTRA;
    void *scratch = rfs_export_buffer(run->export, room);
    const struct rfs_wave_item *item;
    struct rfs_wave *wave;
    struct rfs_error err = {0};

    if (!scratch)
        fail(run, rfs_fail_memory(&err), &err);
    while (scratch && (item = take_item(run, &wave))) {
        const int rc = rfs_wave_write(run, wave, item, scratch, &err);
        if (rc)
            fail(run, rc, &err);
        give_back(run, wave);
        rfs_progress_tick(&run->export->progress);
    }
    if (scratch)
        rfs_export_buffer_free(run->export, scratch, room);
    pthread_mutex_lock(&run->lock);
    const bool last = --run->workers == 0;
    pthread_mutex_unlock(&run->lock);
    if (last && write(run->wake, "", 1) < 0)
        return NULL; /* full: the main thread is awake */
    return NULL;
}

/* Signals are for the main thread. How many were started. */
static unsigned start_workers(struct rfs_writing_run *run, pthread_t *threads)
{
    sigset_t all;
    sigset_t before;
    unsigned n = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&run->lock);
    while (n < run->export->threads && pthread_create(&threads[n], NULL, work_on, run) == 0)
        n++;
    run->workers = n;
    pthread_mutex_unlock(&run->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

/* Until all workers have ended. */
static void watch(struct rfs_writing_run *run, int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    bool busy = true;

    while (busy) {
        char drained[16];
        if (poll(&poll_fd, 1, TICK) > 0 && read(fd, drained, sizeof drained) < 0)
            continue; /* interrupted */
        rfs_progress_tick(&run->export->progress);
        pthread_mutex_lock(&run->lock);
        busy = run->workers > 0;
        if (rfs_stopped())
            pthread_cond_broadcast(&run->changed);
        pthread_mutex_unlock(&run->lock);
    }
}

static int run_threads(struct rfs_writing_run *run, struct rfs_error *err)
{
    pthread_t threads[RFS_MOST_THREADS];
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return rfs_fail(err, -errno, RFS_NOWHERE, NULL, "no pipe can be made: %s", strerror(errno));
    run->wake = ends[1];
    rfs_stop_wake(ends[1]);
    int rc = rfs_wave_begin(run, &run->wave, err);
    if (rc == 0) {
        const unsigned n = start_workers(run, threads);
        if (n == 0)
            rc = rfs_fail(err, -EAGAIN, RFS_NOWHERE, "-j 1", "no thread can be started");
        else
            watch(run, ends[0]);
        for (unsigned i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
    }
    if (run->wave)
        rfs_wave_free(run->wave); /* nobody works: the reference is the run's */
    rfs_stop_wake(-1);
    close(ends[0]);
    close(ends[1]);
    if (rc == 0 && run->failed) {
        *err = run->err;
        rc = run->failed;
    }
    return rc;
}

/* ---- the step -------------------------------------------------------------------------------- */

RFS_COMPARE(by_number, uint32_t, x, y, RFS_ORDER(*x, *y))

/* The file's sources by their numbers among all of this export. */
static int place_file(const struct rfs_export *export, size_t i, struct rfs_wave_file *out)
{
    const struct rfs_export_file *file = &export->files.data[i];
    struct rfs_files *files;
    uint32_t n;
    const uint32_t *sources = rfs_view_sources(export->view, file->id, &n, &files);
    uint32_t *numbers = calloc((size_t)n + 1, sizeof *numbers);

    if (!numbers)
        return -ENOMEM;
    *out =
        (struct rfs_wave_file){.file = i, .size = file->size, .sources = numbers, .n_sources = n};
    rfs_view_has_crc(export->view, file->id, &out->cut);
    for (uint32_t s = 0; s < n; s++) {
        const char *path = rfs_files_path(files, sources[s]);
        numbers[s] = rfs_intern_find(export->source_paths, path, strlen(path));
    }
    RFS_SORT(numbers, n, by_number);
    return 0;
}

static int put_in_order(struct rfs_writing_run *run)
{
    const struct rfs_export *export = run->export;
    int rc = 0;

    run->order = calloc(export->files.n + 1, sizeof *run->order);
    if (!run->order)
        return -ENOMEM;
    for (size_t i = 0; rc == 0 && i < export->files.n; i++) {
        const struct rfs_export_file *file = &export->files.data[i];
        if (rfs_export_is_mine(export, file) && file->todo != RFS_EXPORT_KEEP)
            rc = place_file(export, i, &run->order[run->n++]);
    }
    if (rc)
        return rc;
    run->flat = run->n > 0 &&
                rfs_view_rank(export->view, export->files.data[run->order->file].id) == RFS_NO_RANK;
    rfs_wave_sort(run->order, run->n, run->flat);
    return 0;
}

int rfs_export_write(struct rfs_export *export, struct rfs_error *err)
{
    struct rfs_writing_run run = {
        .export = export,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .piece =
            rfs_max_u64(RFS_EXPORT_PIECE_LEAST,
                        rfs_min_u64(RFS_EXPORT_PIECE_MOST, RFS_EXPORT_PIECES / export->threads) &
                            ~UINT64_C(0xffff)),
    };
    uint64_t bytes = 0;
    int rc = put_in_order(&run);

    if (rc)
        rfs_fail_memory(err);
    for (size_t i = 0; i < run.n; i++)
        bytes += run.order[i].size;
    rfs_copier_init(&run.copier, export->dest.fd);
    rfs_progress_begin(&export->progress, "writing", bytes, run.n);
    if (rc == 0 && run.n > 0)
        rc = run_threads(&run, err);
    rfs_progress_end(&export->progress);
    export->bytes_taken = atomic_load(&run.copier.bytes_taken);
    for (size_t i = 0; i < run.n; i++)
        free((void *)(uintptr_t)run.order[i].sources);
    free(run.order);
    return rc;
}
