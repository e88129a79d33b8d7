/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes files, by several threads. A thread takes the next item of the wave, has the view assemble
 * it, adds it to the checksum of each file that it is for when all before it has been added, and
 * writes it to these files.
 *
 * Files that take from the same sources are written side by side, in a wave: the first piece of
 * each, then the second of each, and so on. So a source's bytes that several files want are wanted
 * at about the same time, and are read from the disk once; and where pieces of several files are
 * made of the same (replicas of data parallelism), one is assembled and written to all of them.
 * Files that share nothing go side by side only as far as there are threads, so that files that
 * were begun are soon complete.
 */
#include "tool/export/export.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/pages.h"
#include "base/pool.h"
#include "base/turns.h"
#include "layout/strategy.h"
#include "reshard.h"
#include "tool/common/tool.h"

#include <stdatomic.h>
#include <sys/uio.h>
#include <zlib.h>

/* ---- the order of the pieces ----------------------------------------------------------------- */

static int by_sources(const void *a, const void *b)
{
    const struct rfs_wave_file *x = a, *y = b;

    for (uint32_t i = 0; i < x->n_sources && i < y->n_sources; i++)
        if (x->sources[i] != y->sources[i])
            return RFS_ORDER(x->sources[i], y->sources[i]);
    return RFS_ORDER(x->n_sources, y->n_sources) ?: RFS_ORDER(x->file, y->file);
}

void rfs_wave_sort(struct rfs_wave_file *files, size_t n, bool flat)
{
    if (!flat)
        RFS_SORT(files, n, by_sources);
}

/*
 * Returns whether half of the sources of the one with fewer are the other's, too; MARKED are A's.
 */
static bool shares(const struct rfs_wave_file *a, const unsigned char *marked, uint32_t most,
                   const struct rfs_wave_file *b)
{
    uint64_t both = 0;

    for (uint32_t i = 0; i < b->n_sources; i++)
        both += b->sources[i] <= most && marked[b->sources[i]];
    return both > 0 && 2 * both >= rfs_min_u64(a->n_sources, b->n_sources);
}

int rfs_wave_next(const struct rfs_wave_file *files, size_t n, unsigned threads, bool flat,
                  size_t *count, bool *share)
{
    uint32_t most = 0;

    *count = n > 0;
    *share = false;
    for (uint32_t i = 0; n > 0 && i < files->n_sources; i++)
        most = files->sources[i] > most ? files->sources[i] : most;
    RFS_FREE unsigned char *marked = calloc((size_t)most + 1, 1);
    if (!marked)
        return -ENOMEM;
    for (uint32_t i = 0; n > 0 && i < files->n_sources; i++)
        marked[files->sources[i]] = 1;
    while (*count < n && *count < RFS_WAVE_MOST) {
        const bool both = !flat && shares(files, marked, most, &files[*count]);
        if (!both && *count >= threads)
            break;
        *share |= both;
        ++*count;
    }
    return 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Returns the bytes before the cut. */
static uint64_t before_cut(const struct rfs_wave_file *file)
{
    return file->cut > 0 && file->cut < file->size ? file->cut : file->size;
}

uint64_t rfs_wave_pieces(const struct rfs_wave_file *file, uint64_t piece)
{
    const uint64_t first = before_cut(file);
    const uint64_t rest = file->size - first;

    return rfs_ceil_u64(first, piece) + rfs_ceil_u64(rest, piece);
}

void rfs_wave_piece(const struct rfs_wave_file *file, uint64_t piece, uint64_t i, uint64_t *offset,
                    uint64_t *size)
{
    const uint64_t first = before_cut(file);
    const uint64_t n = rfs_ceil_u64(first, piece);

    *offset = i < n ? i * piece : first + (i - n) * piece;
    *size = rfs_min_u64(piece, (i < n ? first : file->size) - *offset);
}

/* ---- items ----------------------------------------------------------------------------------- */

/*
 * Appends the item of piece I of file F, with all files behind it whose piece is equal. False when
 * out of memory.
 */
static bool add_item(const struct rfs_wave_file *files, size_t n, uint64_t piece, uint64_t i,
                     size_t f, struct rfs_wave_key *const *keys, bool *taken,
                     struct rfs_wave_plan *out)
{
    struct rfs_wave_item item = {.first = out->members.n};
    uint64_t size;

    rfs_wave_piece(&files[f], piece, i, &item.offset, &size);
    item.size = (uint32_t)size;
    for (size_t g = f; g < (keys ? n : f + 1); g++) {
        uint64_t offset = item.offset;
        uint64_t other = size;

        if (taken[g] || i >= rfs_wave_pieces(&files[g], piece))
            continue;
        rfs_wave_piece(&files[g], piece, i, &offset, &other);
        if (g != f && (memcmp(&keys[f][i], &keys[g][i], sizeof **keys) != 0 ||
                       offset != item.offset || other != size))
            continue;
        taken[g] = true;
        if (!RFS_PUSH(&out->members, (uint32_t)g))
            return false;
        item.n++;
    }
    return RFS_PUSH(&out->items, item);
}

int rfs_wave_plan(const struct rfs_wave_file *files, size_t n, uint64_t piece,
                  struct rfs_wave_key *const *keys, struct rfs_wave_plan *out)
{
    bool more = true;

    *out = (struct rfs_wave_plan){0};
    for (uint64_t i = 0; more; i++) {
        bool taken[RFS_WAVE_MOST] = {false};
        more = false;
        for (size_t f = 0; f < n; f++) {
            if (i >= rfs_wave_pieces(&files[f], piece))
                continue;
            more = true;
            if (!taken[f] && !add_item(files, n, piece, i, f, keys, taken, out))
                return -ENOMEM;
        }
    }
    return 0;
}

void rfs_wave_plan_free(struct rfs_wave_plan *plan)
{
    free(plan->items.data);
    free(plan->members.data);
    *plan = (struct rfs_wave_plan){0};
}

/* ---- the files ------------------------------------------------------------------------------- */

/* A file that is written. */
struct writing {
    struct rfs_export_file *file; /* NULL: it is not begun */
    reshard_reader *reader;       /* owned, as the hash, until it is complete */
    struct rfs_dest_partial partial;
    struct rfs_origins_about about;
    /* Members of the thread that has the turn. */
    XXH3_state_t *hash;
    uint32_t crc; /* CRC of the bytes before the trailer */
    /* Counts of bytes, under the lock of the turns. */
    uint64_t summed, written;
};

/* The files that are written, in waves. */
struct run {
    struct rfs_export *export;
    struct rfs_dest_copier copier;
    uint64_t piece; /* bytes */
    bool flat;
    struct rfs_wave_file *order; /* [n] files to be written; owned, with their sources */
    struct writing *files;       /* [n] the same; owned */
    size_t n;

    struct rfs_turns turns; /* its lock guards the next members and the counts of EXPORT */
    size_t begun;           /* files that are in a wave, or were */
    struct writing *wave;   /* the files of the wave, to which its plan belongs */
    struct rfs_wave_plan plan;
    size_t next;    /* item of the plan */
    bool preparing; /* a thread begins the next wave */
};

/* ---- the manifest ---------------------------------------------------------------------------- */

/*
 * The manifest is saved when a file is complete, but not so often that saving takes most of the
 * time, and at the end.
 */
#define SAVE_EVERY 1.0 /* seconds between two saves, at least */
#define SAVE_SHARE 20  /* times as long as a save took, at least */

/* Saves the manifest. The caller has the lock and set saving; the lock is released meanwhile. */
static int save_locked(struct rfs_export *export, struct rfs_error *err)
{
    RFS_FREE char *name = NULL;
    RFS_FREE char *text = NULL;
    size_t size = 0;
    int rc = rfs_manifest_text(&export->saver.manifest, &name, &text, &size);

    pthread_mutex_unlock(&export->saver.lock);
    const double begun = rfs_progress_now();
    rc = rc ? rfs_fail_memory(err)
            : export->dest.kind->save(&export->dest, name, text, size, !export->options->no_fsync,
                                      err);
    const double took = rfs_progress_now() - begun;
    pthread_mutex_lock(&export->saver.lock);
    export->saver.due =
        begun + took + (took * SAVE_SHARE > SAVE_EVERY ? took * SAVE_SHARE : SAVE_EVERY);
    export->saver.saving = false;
    return rc;
}

/* Adds a complete file to the manifest, which is saved if it is due. From any thread. */
static int add_entry(struct rfs_export *export, const char *path,
                     const struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    pthread_mutex_lock(&export->saver.lock);
    int rc = rfs_manifest_put(&export->saver.manifest, path, entry);
    const bool save = rc == 0 && !export->saver.saving && rfs_progress_now() >= export->saver.due;
    if (save) {
        export->saver.saving = true;
        rc = save_locked(export, err);
    } else if (rc) {
        rfs_fail_memory(err);
    }
    pthread_mutex_unlock(&export->saver.lock);
    return rc;
}

static int save_manifest(struct rfs_export *export, struct rfs_error *err)
{
    pthread_mutex_lock(&export->saver.lock);
    export->saver.saving = true;
    const int rc = save_locked(export, err);
    pthread_mutex_unlock(&export->saver.lock);
    return rc;
}

/* ---- complete files -------------------------------------------------------------------------- */

/* Frees what a file holds; removes it if it is not complete. */
static void drop_file(struct writing *writing)
{
    if (!writing->file)
        return;
    rfs_dest_drop(&writing->partial);
    reshard_reader_close(writing->reader);
    XXH3_freeState(writing->hash);
    writing->file = NULL;
}

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
        return rfs_origins_source_failed(export->view, file->id, file->path, rc, err);
    rc = rfs_dest_finish(&writing->partial, err);
    if (rc)
        return rc;
    drop_file(writing);
    rfs_turns_add(&run->turns, &export->files_written, 1);
    rfs_turns_add(&run->turns, &export->bytes_written, file->size);
    rfs_progress_file(&export->progress);
    return add_entry(export, file->path, &entry, err);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* An item of a wave, the files that it is for, and its bytes. */
struct item {
    struct rfs_wave_item at;
    struct writing *files[RFS_WAVE_MOST];
    struct iovec spans[RFS_DEST_SPANS];
    int n_spans;
    uint32_t crc; /* CRC of the spans, where a file has one */
};

/* Returns whether the file ends with a checksum that covers the item. */
static bool is_summed(const struct writing *writing, const struct item *item)
{
    return writing->about.has_crc && item->at.offset < writing->about.trailer;
}

/* Adds the item to a file's checksums, when its turn has come. */
static int add_to_sums(struct rfs_turns *turns, const struct item *item, struct writing *writing)
{
    const int rc = rfs_turns_wait(turns, &writing->summed, item->at.offset);

    if (rc)
        return rc;
    for (int i = 0; i < item->n_spans; i++)
        XXH3_128bits_update(writing->hash, item->spans[i].iov_base, item->spans[i].iov_len);
    if (is_summed(writing, item))
        writing->crc = (uint32_t)crc32_combine(writing->crc, item->crc, (z_off_t)item->at.size);
    rfs_turns_add(turns, &writing->summed, item->at.size);
    return 0;
}

/* A range of a source that the file system may take over into FD, and how much of it it took. */
struct taking {
    struct rfs_dest_copier *copier;
    struct rfs_origins_run plain;
    int fd;
    uint64_t begin, end;
};

static void take_over(void *ctx, int source)
{
    struct taking *taking = ctx;

    rfs_dest_copier_take(taking->copier, source, &taking->plain, taking->fd, &taking->begin,
                         &taking->end);
}

/* Writes the item to a file; lets the file system share or copy ranges where it can. */
static int write_member(struct run *run, const struct item *item, struct writing *writing,
                        struct rfs_error *err)
{
    struct rfs_export *export = run->export;
    const uint64_t begin = item->at.offset;
    const uint64_t end = begin + item->at.size;
    struct rfs_dest_partial *partial = &writing->partial;
    const struct rfs_dest_kind *kind = export->dest.kind;
    uint64_t written = begin;
    int rc = 0;

    for (uint64_t at = begin; rc == 0 && atomic_load(&run->copier.way) != RFS_DEST_COPY_NOT;) {
        struct taking taking = {.copier = &run->copier, .fd = partial->fd};
        if (rfs_origins_find_run(export->view, writing->file->id, at, end, RFS_DEST_COPY_LEAST,
                                 &taking.plain) != 1)
            break;
        rc = rfs_origins_lend(export->view, &taking.plain, take_over, &taking);
        if (rc)
            return rfs_origins_source_failed(export->view, writing->file->id, writing->file->path,
                                             rc, err);
        if (taking.begin < taking.end) {
            rc = kind->write(partial, item->spans, item->n_spans, written - begin,
                             taking.begin - begin, begin);
            written = taking.end;
        }
        at = taking.plain.end;
    }
    if (rc == 0)
        rc = kind->write(partial, item->spans, item->n_spans, written - begin, end - begin, begin);
    if (rc)
        return rfs_dest_failed(&export->dest, writing->file->path, "cannot write", -rc, err);
    rfs_progress_add(&export->progress, item->at.size);
    return 0;
}

/* Sums up an item, and writes it to all files that it is for. */
static int write_members(struct run *run, struct item *item, struct rfs_error *err)
{
    uLong crc = crc32_z(0, NULL, 0);
    int rc = 0;

    for (int i = 0; is_summed(item->files[0], item) && i < item->n_spans; i++)
        crc = crc32_z(crc, item->spans[i].iov_base, item->spans[i].iov_len);
    item->crc = (uint32_t)crc;
    for (uint32_t m = 0; rc == 0 && m < item->at.n; m++)
        rc = add_to_sums(&run->turns, item, item->files[m]);
    for (uint32_t m = 0; rc == 0 && m < item->at.n; m++)
        rc = write_member(run, item, item->files[m], err);
    return rc;
}

/*
 * Writes an item, with RUN->piece + RESHARD_SCRATCH_EXTRA bytes of memory for it, and finishes the
 * files that end with it. 0, or -errno with *err filled, unless another thread has failed.
 */
static int write_item(struct run *run, struct item *item, void *scratch, struct rfs_error *err)
{
    struct writing *first = item->files[0];
    reshard_loan *loan;

    if (first->about.has_crc && item->at.offset == first->about.trailer) {
        const int rc = rfs_turns_wait(&run->turns, &first->summed, item->at.offset);
        if (rc)
            return rc;
        rfs_origins_set_crc(run->export->view, first->file->id, first->crc);
    }
    const ssize_t n = reshard_reader_borrow(first->reader, scratch, item->at.size, item->at.offset,
                                            item->spans, RFS_DEST_SPANS, &item->n_spans, &loan);
    int rc = n < 0 ? (int)n : n == (ssize_t)item->at.size ? 0 : -EIO;
    if (rc)
        rfs_origins_source_failed(run->export->view, first->file->id, first->file->path, rc, err);
    else
        rc = write_members(run, item, err);
    reshard_return(loan);
    for (uint32_t m = 0; rc == 0 && m < item->at.n; m++) {
        struct writing *writing = item->files[m];
        const uint64_t size = writing->file->size; /* another thread may drop the file after this */
        if (rfs_turns_add(&run->turns, &writing->written, item->at.size) == size)
            rc = finish_file(run, writing, err);
    }
    return rc;
}

/* ---- waves ----------------------------------------------------------------------------------- */

static int begin_file(struct run *run, const struct rfs_wave_file *entry, struct writing *out,
                      struct rfs_error *err)
{
    struct rfs_export *export = run->export;

    out->file = &export->files.data[entry->file];
    out->partial = (struct rfs_dest_partial){.dest = &export->dest,
                                             .path = out->file->path,
                                             .size = out->file->size,
                                             .piece = run->piece,
                                             .mode = out->file->mode | S_IRUSR,
                                             .replace = out->file->todo == RFS_EXPORT_REPLACE,
                                             .sync = !export->options->no_fsync};
    rfs_origins_about(export->view, out->file->id, &out->about);
    out->hash = XXH3_createState();
    if (!out->hash)
        return rfs_fail_memory(err);
    XXH3_128bits_reset(out->hash);
    const int rc = rfs_origins_open_scattered(export->view, out->file->id, &out->reader);
    if (rc)
        return rfs_origins_source_failed(export->view, out->file->id, out->file->path, rc, err);
    return rfs_dest_begin(&out->partial, err);
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
        rc = rfs_origins_key(export->view, export->files.data[entry->file].id, offset,
                             offset + size, keys[i].word);
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
 * Begins the files of the next wave, and plans it. N is the number of its files. 0, or -errno with
 * *err filled.
 */
static int begin_wave(struct run *run, struct rfs_wave_plan *plan, size_t *n, struct rfs_error *err)
{
    const struct rfs_wave_file *entries = run->order + run->begun;
    struct writing *files = run->files + run->begun;
    bool share;
    int rc = rfs_wave_next(entries, run->n - run->begun, run->export->threads, run->flat, n, &share)
                 ?: plan_wave(run, entries, *n, share, plan);

    if (rc)
        return rfs_fail_memory(err);
    for (size_t f = 0; rc == 0 && f < *n; f++)
        rc = begin_file(run, &entries[f], &files[f], err);
    /* Empty files are complete. */
    for (size_t f = 0; rc == 0 && f < *n; f++)
        if (files[f].file->size == 0)
            rc = finish_file(run, &files[f], err);
    return rc;
}

/* Begins the next wave. The caller has the lock, which is released meanwhile. */
static int next_wave(struct run *run, struct rfs_error *err)
{
    struct rfs_wave_plan plan = {0};
    size_t n = 0;

    run->preparing = true;
    pthread_mutex_unlock(&run->turns.lock);
    const int rc = begin_wave(run, &plan, &n, err);
    pthread_mutex_lock(&run->turns.lock);
    if (rc) { /* its files have not all begun: nobody may take its items, nor begin another wave */
        rfs_wave_plan_free(&plan);
        n = run->n - run->begun;
    }
    rfs_wave_plan_free(&run->plan);
    run->plan = plan;
    run->next = 0;
    run->wave = run->files + run->begun;
    run->begun += n;
    run->preparing = false;
    pthread_cond_broadcast(&run->turns.changed);
    return rc;
}

/* ---- the threads ----------------------------------------------------------------------------- */

/* Returns whether there are items left, or files that are in no wave yet; under the lock. */
static bool has_more(const struct run *run)
{
    return !run->turns.failed && !rfs_tool_stopped() &&
           (run->preparing || run->next < run->plan.items.n || run->begun < run->n);
}

/*
 * Takes the next item; one without files when there is none, or a thread has failed. 0, or -errno
 * with *err filled.
 */
static int take_item(struct run *run, struct item *out, struct rfs_error *err)
{
    int rc = 0;

    *out = (struct item){.at.n = 0};
    pthread_mutex_lock(&run->turns.lock);
    while (rc == 0 && out->at.n == 0 && has_more(run)) {
        if (run->preparing)
            pthread_cond_wait(&run->turns.changed, &run->turns.lock);
        else if (run->next == run->plan.items.n)
            rc = next_wave(run, err);
        else
            out->at = run->plan.items.data[run->next++];
    }
    for (uint32_t m = 0; m < out->at.n; m++)
        out->files[m] = &run->wave[run->plan.members.data[out->at.first + m]];
    pthread_mutex_unlock(&run->turns.lock);
    return rc;
}

static int work_on(void *ctx, struct rfs_error *err)
{
    struct run *run = ctx;
    const size_t room = (size_t)run->piece + RESHARD_SCRATCH_EXTRA;
    void *scratch = rfs_pages_alloc(room);
    struct item item;

    if (!scratch)
        return rfs_fail_memory(err);
    int rc = take_item(run, &item, err);
    while (rc == 0 && item.at.n > 0) {
        rc = write_item(run, &item, scratch, err) ?: take_item(run, &item, err);
        rfs_progress_tick(&run->export->progress);
    }
    rfs_pages_free(scratch, room);
    return rc;
}

/* ---- the step -------------------------------------------------------------------------------- */

RFS_COMPARE(by_number, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Makes the wave file of file I: its sources by their numbers among all of this export. */
static int set_wave_file(const struct rfs_export *export, size_t i, struct rfs_wave_file *out)
{
    const struct rfs_export_file *file = &export->files.data[i];
    RFS_VEC(uint32_t) numbers = {0};
    struct rfs_origins_about about;
    const char *path;

    while (rfs_origins_source(export->view, file->id, (uint32_t)numbers.n, &path, NULL) == 1)
        if (!RFS_PUSH(&numbers, rfs_intern_find(export->source_paths, path, strlen(path)))) {
            free(numbers.data);
            return -ENOMEM;
        }
    RFS_SORT(numbers.data, numbers.n, by_number);
    rfs_origins_about(export->view, file->id, &about);
    *out = (struct rfs_wave_file){.file = i,
                                  .size = file->size,
                                  .cut = about.trailer,
                                  .sources = numbers.data,
                                  .n_sources = (uint32_t)numbers.n};
    return 0;
}

static int put_in_order(struct run *run)
{
    const struct rfs_export *export = run->export;
    struct rfs_origins_about first;
    int rc = 0;

    run->order = calloc(export->files.n + 1, sizeof *run->order);
    run->files = calloc(export->files.n + 1, sizeof *run->files);
    if (!run->order || !run->files)
        return -ENOMEM;
    for (size_t i = 0; rc == 0 && i < export->files.n; i++) {
        const struct rfs_export_file *file = &export->files.data[i];
        if (rfs_export_is_mine(export, file) && file->todo != RFS_EXPORT_KEEP)
            rc = set_wave_file(export, i, &run->order[run->n++]);
    }
    if (rc || run->n == 0)
        return rc;
    rfs_origins_about(export->view, export->files.data[run->order->file].id, &first);
    run->flat = first.rank == RFS_NO_RANK;
    rfs_wave_sort(run->order, run->n, run->flat);
    return 0;
}

/* Writes the files that are not there, in waves. */
static int write_all(struct rfs_export *export, struct rfs_error *err)
{
    struct run run = {.export = export, .turns = RFS_TURNS};
    uint64_t bytes = 0;
    uint64_t largest = 0;
    int rc = put_in_order(&run);

    if (rc)
        rfs_fail_memory(err);
    for (size_t i = 0; i < run.n; i++) {
        bytes += run.order[i].size;
        largest = rfs_max_u64(largest, run.order[i].size);
    }
    run.piece = export->dest.kind->piece(export->threads, largest);
    rfs_dest_copier_init(&run.copier, export->dest.fd);
    rfs_progress_begin(&export->progress, "writing", bytes, run.n);
    if (rc == 0 && run.n > 0)
        rc = rfs_turns_run(&run.turns, export->threads, work_on, &run, err);
    rfs_progress_end(&export->progress);
    export->bytes_taken = atomic_load(&run.copier.bytes_taken);
    for (size_t i = 0; i < run.n; i++) {
        free((void *)(uintptr_t)run.order[i].sources);
        drop_file(&run.files[i]);
    }
    rfs_wave_plan_free(&run.plan);
    free(run.files);
    free(run.order);
    return rc;
}

RFS_COMPARE(by_text, char *, x, y, strcmp(*x, *y))

/* Removes stale files. */
static int remove_stale(struct rfs_export *export, struct rfs_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < export->stale.entries.n; i++) {
        const char *path = rfs_intern_text(export->stale.names, i);
        if (!rfs_export_is_stale(export, i))
            continue;
        const int gone = export->dest.kind->remove(&export->dest, path);
        export->files_removed += gone == 0;
        if (gone && gone != -ENOENT) /* another task was first */
            rc = rfs_dest_failed(&export->dest, path, "cannot remove", -gone, err);
    }
    return rc;
}

/* Removes what killed exports have left of this task's files. */
static int sweep(const struct rfs_export *export, struct rfs_error *err)
{
    RFS_FREE const char **paths = calloc(export->files.n + 1, sizeof *paths);
    size_t n = 0;

    if (!paths)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < export->files.n; i++)
        if (rfs_export_is_mine(export, &export->files.data[i]))
            paths[n++] = export->files.data[i].path;
    RFS_SORT(paths, n, by_text);
    return export->dest.kind->sweep(&export->dest, paths, n, err);
}

int rfs_export_write(struct rfs_export *export, struct rfs_error *err)
{
    struct rfs_error later = {0};

    rfs_tool_catch_signals(); /* from the first temporary file on, which is the manifest's */
    /* The manifest comes before anything that it vouches for. */
    int rc = export->dest.kind->make(&export->dest, err)
             ?: remove_stale(export, err)
             ?: save_manifest(export, err)
             ?: sweep(export, err);

    if (rc)
        return rc;
    /*
     * This manifest has all entries of the others, except for files that the view shows no longer.
     */
    if (export->stale.entries.n > 0 && export->task.number == 0)
        rfs_export_other_manifests(export, export->task.count, true);
    rc = write_all(export, err);
    const int saved = save_manifest(export, &later);
    if (rc == 0 && saved) {
        *err = later;
        return saved;
    }
    if (rc == 0 && rfs_tool_stopped())
        rc = rfs_fail(err, -EINTR, RFS_IN(export->dest.path), "the same command, to go on",
                      "stopped by a signal: %" PRIu64 " files are complete",
                      export->files_written + export->files_kept);
    return rc;
}
