/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes files, by several threads. A thread takes the next item of the wave, has the view assemble
 * it, writes it to each file that it is for, and adds it to each file's checksum when all before it
 * has been added. Items are taken in order, so whoever waits for its turn waits for a thread that
 * works.
 */
#include "tool/export/export.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/pool.h"
#include "tool/common/tool.h"
#include "tool/export/wave.h"
#include "view/ranges.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#define TICK 200 /* ms */
#define SPANS 64

/* Memory of all threads' pieces together, and the most and the least of one; bytes. */
#define PIECES_BYTES (UINT64_C(64) << 20)
#define PIECE_MOST (UINT64_C(4) << 20)
#define PIECE_LEAST (UINT64_C(256) << 10)
/*
 * Bytes of one write, which ends at a multiple of this in the file. Larger ones make the kernel
 * keep them in pages of 2 MiB, which on virtual machines are just those that are given back to the
 * host when they are free: the next write waits for the host then, and took up to five times as
 * long.
 */
#define WRITE_BYTES (UINT64_C(1) << 20)

/* A file of a wave while it is written. */
struct writing {
    struct rfs_export_file *file;
    reshard_reader *reader; /* owned */
    struct rfs_dest_partial partial;
    bool has_crc; /* the last bytes are a checksum, from trailer on */
    uint64_t trailer;
    /* Members of the thread that has the turn: its item begins at hashed. */
    XXH3_state_t *hash; /* owned */
    uint32_t crc;       /* CRC of the bytes before the trailer */
    /* Members under the run's lock. */
    uint64_t hashed; /* bytes in the checksum so far */
    uint64_t left;   /* pieces that are not done */
};

struct wave {
    size_t n;
    struct writing *files; /* [n] owned */
    struct rfs_wave_plan plan;
    size_t next;   /* item; under the run's lock */
    unsigned refs; /* threads at work, and the run; under its lock */
};

/* The files that are written, and the threads that write. */
struct run {
    struct rfs_export *export;
    struct rfs_dest_copier copier;
    uint64_t piece; /* bytes */
    bool flat;
    struct rfs_wave_file *order; /* [n] files to be written; owned, with their sources */
    size_t n;
    int wake; /* pipe for a byte to the main thread: the last worker has ended */

    pthread_mutex_t lock;   /* guards the next members; a leaf lock */
    pthread_cond_t changed; /* somebody's turn has come, there is a wave, or it is over */
    size_t begun;           /* files that are in a wave, or were */
    struct wave *wave;      /* NULL: all files are begun */
    bool preparing;
    unsigned workers;
    int failed; /* the first -errno */
    struct rfs_error err;
};

/* ---- complete files -------------------------------------------------------------------------- */

/* Names a file whose pieces are all written and summed. 0, or -errno with *err filled. */
static int finish_file(struct run *run, struct writing *writing, struct rfs_error *err)
{
    struct rfs_export *export = run->export;
    const struct rfs_export_file *file = writing->file;
    struct rfs_manifest_entry entry = {
        .size = file->size,
        .hash = rfs_hash_of(writing->hash),
        .written_ms = rfs_manifest_now(),
    };
    int rc = rfs_export_made_of(export, file, &entry.made_of);

    if (rc)
        return rfs_export_source_failed(export, file, rc, err);
    rc = rfs_dest_partial_finish(&export->dest, &writing->partial, file->todo == RFS_EXPORT_REPLACE,
                                 !export->options->no_fsync, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&run->lock);
    export->files_written++;
    export->bytes_written += file->size;
    pthread_mutex_unlock(&run->lock);
    rfs_progress_file(&export->progress);
    return rfs_manifest_saver_add(&export->saver, file->path, &entry, err);
}

/* ---- spans ----------------------------------------------------------------------------------- */

struct spans {
    struct iovec iov[SPANS];
    int n;
};

/* Sets OUT to bytes [from, to) of some spans. */
static void cut_spans(const struct spans *spans, uint64_t from, uint64_t to, struct spans *out)
{
    uint64_t at = 0;

    out->n = 0;
    for (int i = 0; i < spans->n && at < to; i++) {
        const uint64_t size = spans->iov[i].iov_len;
        const uint64_t first = from > at ? from - at : 0;
        const uint64_t last = rfs_min_u64(size, to - at);
        if (first < last)
            out->iov[out->n++] = (struct iovec){(unsigned char *)spans->iov[i].iov_base + first,
                                                (size_t)(last - first)};
        at += size;
    }
}

static int write_spans(int fd, const struct spans *spans, uint64_t from, uint64_t to,
                       uint64_t offset)
{
    while (from < to) {
        struct spans left;
        const uint64_t stop = from + WRITE_BYTES - (offset + from) % WRITE_BYTES;
        cut_spans(spans, from, rfs_min_u64(to, stop), &left);
        const ssize_t n = pwritev(fd, left.iov, left.n, (off_t)(offset + from));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        from += (uint64_t)n;
    }
    return 0;
}

/* ---- items ----------------------------------------------------------------------------------- */

struct item_at_work {
    struct run *run;
    struct wave *wave;
    const struct rfs_wave_item *item;
    struct spans spans;
    uint32_t crc; /* CRC of the spans, where a file has one */
    struct rfs_error *err;
};

static struct writing *member(const struct item_at_work *work, uint32_t m)
{
    return &work->wave->files[work->wave->plan.members.data[work->item->first + m]];
}

/*
 * Returns whether all before the item is in the file's checksum; WAIT: waits until it is. False
 * also when the run has failed.
 */
static bool has_turn(struct item_at_work *work, const struct writing *writing, bool wait)
{
    struct run *run = work->run;

    pthread_mutex_lock(&run->lock);
    while (wait && writing->hashed != work->item->offset && !run->failed)
        pthread_cond_wait(&run->changed, &run->lock);
    const bool turn = writing->hashed == work->item->offset;
    pthread_mutex_unlock(&run->lock);
    return turn;
}

/* Adds the item to a file's checksums. Only for the thread that has the turn. */
static void add_to_hash(struct item_at_work *work, struct writing *writing)
{
    struct run *run = work->run;
    const uint32_t size = work->item->size;

    for (int i = 0; i < work->spans.n; i++)
        XXH3_128bits_update(writing->hash, work->spans.iov[i].iov_base, work->spans.iov[i].iov_len);
    if (writing->has_crc && work->item->offset < writing->trailer)
        writing->crc = (uint32_t)crc32_combine(writing->crc, work->crc, (z_off_t)size);
    pthread_mutex_lock(&run->lock);
    writing->hashed += size;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

/* Writes the item to a file; lets the file system share or copy ranges where it can. */
static int write_member(struct item_at_work *work, struct writing *writing)
{
    struct run *run = work->run;
    struct rfs_export *export = run->export;
    const uint64_t begin = work->item->offset;
    const uint64_t end = begin + work->item->size;
    const int fd = writing->partial.fd;
    uint64_t written = begin;
    int rc = 0;

    for (uint64_t at = begin; rc == 0 && atomic_load(&run->copier.way) != RFS_DEST_COPY_NOT;) {
        struct rfs_view_run plain;
        struct rfs_files *files;
        uint32_t n;
        uint64_t from;
        uint64_t to;
        if (rfs_view_find_run(export->view, writing->file->id, at, end, RFS_DEST_COPY_LEAST,
                              &plain) != 1)
            break;
        rfs_view_sources(export->view, writing->file->id, &n, &files);
        rc = rfs_dest_copier_take(&run->copier, files, &plain, fd, &from, &to);
        if (rc)
            return rfs_export_source_failed(export, writing->file, rc, work->err);
        if (from < to) {
            rc = write_spans(fd, &work->spans, written - begin, from - begin, begin);
            written = to;
        }
        at = plain.end;
    }
    if (rc == 0)
        rc = write_spans(fd, &work->spans, written - begin, end - begin, begin);
    if (rc)
        return rfs_dest_failed(&export->dest, writing->file->path, "cannot write", -rc, work->err);
    if (!export->options->no_fsync) /* so that fsync has little left to wait for */
        sync_file_range(fd, (off_t)begin, (off_t)(end - begin), SYNC_FILE_RANGE_WRITE);
    rfs_progress_add(&export->progress, work->item->size);
    return 0;
}

/* Sets the CRC of the spans. */
static void sum_up(struct item_at_work *work)
{
    uLong crc = crc32_z(0, NULL, 0);

    for (int i = 0; i < work->spans.n; i++)
        crc = crc32_z(crc, work->spans.iov[i].iov_base, work->spans.iov[i].iov_len);
    work->crc = (uint32_t)crc;
}

static int write_members(struct item_at_work *work)
{
    bool hashed[RFS_WAVE_MOST] = {false};
    int rc = 0;

    for (uint32_t m = 0; m < work->item->n; m++) {
        hashed[m] = has_turn(work, member(work, m), false);
        if (hashed[m])
            add_to_hash(work, member(work, m));
    }
    for (uint32_t m = 0; rc == 0 && m < work->item->n; m++)
        rc = write_member(work, member(work, m));
    for (uint32_t m = 0; rc == 0 && m < work->item->n; m++)
        if (!hashed[m] && has_turn(work, member(work, m), true))
            add_to_hash(work, member(work, m));
    return rc;
}

static bool is_last(struct run *run, struct writing *writing)
{
    pthread_mutex_lock(&run->lock);
    const bool last = --writing->left == 0 && writing->hashed == writing->file->size;
    pthread_mutex_unlock(&run->lock);
    return last;
}

/*
 * Writes an item, with RUN->piece + RESHARD_SCRATCH_EXTRA bytes of memory for it, and finishes the
 * files that end with it. 0, or -errno with *err filled; also 0 when another thread has failed
 * meanwhile.
 */
static int write_item(struct item_at_work *work, void *scratch)
{
    struct writing *first = member(work, 0);
    const struct rfs_wave_item *item = work->item;
    reshard_loan *loan;

    if (first->has_crc && item->offset == first->trailer) {
        if (!has_turn(work, first, true))
            return 0; /* the run has failed */
        rfs_view_set_crc(work->run->export->view, first->file->id, first->crc);
    }
    const ssize_t n = reshard_reader_borrow(first->reader, scratch, item->size, item->offset,
                                            work->spans.iov, SPANS, &work->spans.n, &loan);
    int rc = n < 0 ? (int)n : n == (ssize_t)item->size ? 0 : -EIO;
    if (rc)
        rfs_export_source_failed(work->run->export, first->file, rc, work->err);
    if (rc == 0 && first->has_crc && item->offset < first->trailer)
        sum_up(work);
    if (rc == 0)
        rc = write_members(work);
    reshard_return(loan);
    for (uint32_t m = 0; rc == 0 && m < item->n; m++)
        if (is_last(work->run, member(work, m)))
            rc = finish_file(work->run, member(work, m), work->err);
    return rc;
}

/* ---- waves ----------------------------------------------------------------------------------- */

static int begin_file(struct run *run, const struct rfs_wave_file *entry, struct writing *out,
                      struct rfs_error *err)
{
    struct rfs_export *export = run->export;

    out->file = &export->files.data[entry->file];
    out->has_crc = rfs_view_has_crc(export->view, out->file->id, &out->trailer);
    out->left = rfs_wave_pieces(entry, run->piece);
    out->hash = XXH3_createState();
    if (!out->hash)
        return rfs_fail_memory(err);
    XXH3_128bits_reset(out->hash);
    const int rc = rfs_view_reader_open_scattered(export->view, out->file->id, &out->reader);
    if (rc)
        return rfs_export_source_failed(export, out->file, rc, err);
    return rfs_dest_partial_begin(&export->dest, out->file->path, out->file->mode | S_IRUSR,
                                  &out->partial, err);
}

/* Frees a wave that no thread works on, and removes its files that are not complete. */
static void free_wave(struct wave *wave)
{
    for (size_t f = 0; f < wave->n; f++) {
        struct writing *writing = &wave->files[f];
        if (writing->file)
            rfs_dest_partial_drop(&writing->partial);
        reshard_reader_close(writing->reader);
        XXH3_freeState(writing->hash);
    }
    rfs_wave_plan_free(&wave->plan);
    free(wave->files);
    free(wave);
}

/* The sources of the pieces of a wave: which pieces are the same. */
struct naming {
    struct run *run;
    const struct rfs_wave_file *files;
    struct rfs_wave_key **keys; /* [n] owned */
};

static int name_pieces(void *ctx, size_t f)
{
    struct naming *naming = ctx;
    const struct rfs_wave_file *entry = &naming->files[f];
    const struct rfs_export *export = naming->run->export;
    const uint64_t n = rfs_wave_pieces(entry, naming->run->piece);
    struct rfs_wave_key *keys = calloc(n + 1, sizeof *keys);
    int rc = keys ? 0 : -ENOMEM;

    naming->keys[f] = keys;
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        uint64_t offset;
        uint64_t size;
        rfs_wave_piece(entry, naming->run->piece, i, &offset, &size);
        rc = rfs_view_key(export->view, export->files.data[entry->file].id, offset, offset + size,
                          keys[i].word);
    }
    return rc;
}

static int plan_wave(struct run *run, const struct rfs_wave_file *files, size_t n, bool share,
                     struct rfs_wave_plan *out)
{
    RFS_FREE struct rfs_wave_key **keys = share ? calloc(n, sizeof *keys) : NULL;
    struct naming naming = {run, files, keys};
    int rc = share && !keys ? -ENOMEM : 0;

    if (rc == 0 && share) {
        struct rfs_pool *pool = rfs_pool_new(run->export->threads - 1);
        rc = pool ? rfs_pool_for(pool, n, name_pieces, &naming) : -ENOMEM;
        rfs_pool_free(pool);
    }
    if (rc == 0)
        rc = rfs_wave_plan(files, n, run->piece, keys, out);
    for (size_t f = 0; keys && f < n; f++)
        free(keys[f]);
    return rc;
}

/*
 * Begins the files of the next wave: *out, or NULL when there is none. 0, or -errno with *err
 * filled.
 */
static int begin_wave(struct run *run, struct wave **out, struct rfs_error *err)
{
    const struct rfs_wave_file *files = run->order + run->begun;
    struct wave *wave = NULL;
    size_t n;
    bool share;
    int rc = rfs_wave_next(files, run->n - run->begun, run->export->threads, run->flat, &n, &share);

    *out = NULL;
    if (rc == 0 && n == 0)
        return 0;
    if (rc == 0)
        wave = calloc(1, sizeof *wave);
    if (!wave)
        return rfs_fail_memory(err);
    wave->refs = 1;
    wave->files = calloc(n, sizeof *wave->files);
    if (!wave->files || plan_wave(run, files, n, share, &wave->plan)) {
        free_wave(wave);
        return rfs_fail_memory(err);
    }
    for (wave->n = 0; rc == 0 && wave->n < n; wave->n++) {
        wave->files[wave->n].partial = RFS_DEST_PARTIAL_NONE;
        rc = begin_file(run, &files[wave->n], &wave->files[wave->n], err);
    }
    /* Empty files are complete. */
    for (size_t f = 0; rc == 0 && f < n; f++)
        if (wave->files[f].left == 0)
            rc = finish_file(run, &wave->files[f], err);
    if (rc) {
        free_wave(wave);
        return rc;
    }
    run->begun += n;
    *out = wave;
    return 0;
}

/* ---- the threads ----------------------------------------------------------------------------- */

/* Notes a failure; the first is reported. The caller has the lock. */
static void note_failure(struct run *run, int rc, const struct rfs_error *err)
{
    if (run->failed)
        return;
    run->failed = rc;
    run->err = *err;
}

static void fail(struct run *run, int rc, const struct rfs_error *err)
{
    pthread_mutex_lock(&run->lock);
    note_failure(run, rc, err);
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

/* Begins the run's next wave; the caller has the lock, which is released meanwhile. */
static void next_wave(struct run *run)
{
    struct rfs_error err = {0};
    struct wave *old = run->wave;
    struct wave *wave;

    run->preparing = true;
    pthread_mutex_unlock(&run->lock);
    const int rc = begin_wave(run, &wave, &err);
    pthread_mutex_lock(&run->lock);
    run->preparing = false;
    if (rc)
        note_failure(run, rc, &err);
    run->wave = wave;
    if (old && --old->refs > 0)
        old = NULL;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    if (old)
        free_wave(old);
    pthread_mutex_lock(&run->lock);
}

/* Takes the next item, and its wave, to be given back; NULL when there is none, or a failure. */
static const struct rfs_wave_item *take_item(struct run *run, struct wave **out)
{
    const struct rfs_wave_item *item = NULL;

    pthread_mutex_lock(&run->lock);
    while (!item && run->wave && !run->failed && !rfs_tool_stopped()) {
        struct wave *wave = run->wave;
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

static void give_back(struct run *run, struct wave *wave)
{
    pthread_mutex_lock(&run->lock);
    const bool last = --wave->refs == 0;
    pthread_mutex_unlock(&run->lock);
    if (last)
        free_wave(wave);
}

static void *work_on(void *arg)
{
    struct run *run = arg;
    const size_t room = (size_t)run->piece + RESHARD_SCRATCH_EXTRA;
    void *scratch = rfs_export_buffer(run->export, room);
    const struct rfs_wave_item *item;
    struct wave *wave;
    struct rfs_error err = {0};

    if (!scratch)
        fail(run, rfs_fail_memory(&err), &err);
    while (scratch && (item = take_item(run, &wave))) {
        struct item_at_work work = {.run = run, .wave = wave, .item = item, .err = &err};
        const int rc = write_item(&work, scratch);
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

/* Starts threads, and returns their number. Signals are for the main thread. */
static unsigned start_workers(struct run *run, pthread_t *threads)
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

/* Waits until all workers have ended. */
static void watch(struct run *run, int fd)
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
        if (rfs_tool_stopped())
            pthread_cond_broadcast(&run->changed);
        pthread_mutex_unlock(&run->lock);
    }
}

static int run_threads(struct run *run, struct rfs_error *err)
{
    pthread_t threads[RFS_MOST_THREADS];
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return rfs_fail(err, -errno, RFS_NOWHERE, NULL, "no pipe can be made: %s", strerror(errno));
    run->wake = ends[1];
    rfs_tool_wake(ends[1]);
    int rc = begin_wave(run, &run->wave, err);
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
        free_wave(run->wave); /* nobody works: the reference is the run's */
    rfs_tool_wake(-1);
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

/* Makes the wave file of file I: its sources by their numbers among all of this export. */
static int set_wave_file(const struct rfs_export *export, size_t i, struct rfs_wave_file *out)
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

static int put_in_order(struct run *run)
{
    const struct rfs_export *export = run->export;
    int rc = 0;

    run->order = calloc(export->files.n + 1, sizeof *run->order);
    if (!run->order)
        return -ENOMEM;
    for (size_t i = 0; rc == 0 && i < export->files.n; i++) {
        const struct rfs_export_file *file = &export->files.data[i];
        if (rfs_export_is_mine(export, file) && file->todo != RFS_EXPORT_KEEP)
            rc = set_wave_file(export, i, &run->order[run->n++]);
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
    struct run run = {
        .export = export,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .piece = rfs_max_u64(PIECE_LEAST, rfs_min_u64(PIECE_MOST, PIECES_BYTES / export->threads) &
                                              ~UINT64_C(0xffff)),
    };
    uint64_t bytes = 0;
    int rc = put_in_order(&run);

    if (rc)
        rfs_fail_memory(err);
    for (size_t i = 0; i < run.n; i++)
        bytes += run.order[i].size;
    rfs_dest_copier_init(&run.copier, export->dest.fd);
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
