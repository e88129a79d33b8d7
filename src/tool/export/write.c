/* SPDX-License-Identifier: Apache-2.0 */
/* One item: assembled, written to each of its files, and added to their checksums in turn. */
#include "tool/export/write.h"

#include "base/checked.h"
#include "view/ranges.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <zlib.h>

#define SPANS 64

/* ---- spans ----------------------------------------------------------------------------------- */

struct spans {
    struct iovec iov[SPANS];
    int n;
};

/* Those of bytes [from, to) of them. */
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
        const uint64_t stop = from + RFS_EXPORT_AT_ONCE - (offset + from) % RFS_EXPORT_AT_ONCE;
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

/* ---- one item -------------------------------------------------------------------------------- */

struct item_at_work {
    struct rfs_writing_run *run;
    struct rfs_wave *wave;
    const struct rfs_wave_item *item;
    struct spans spans;
    uint32_t crc; /* of the spans, where that is wanted */
    struct rfs_error *err;
};

static struct rfs_writing *member(const struct item_at_work *work, uint32_t m)
{
    return &work->wave->files[work->wave->plan.members.data[work->item->first + m]];
}

/*
 * Whether all before the item is in the file's checksum; WAIT until it is. False also when all is
 * over.
 */
static bool has_turn(struct item_at_work *work, const struct rfs_writing *writing, bool wait)
{
    struct rfs_writing_run *run = work->run;

    pthread_mutex_lock(&run->lock);
    while (wait && writing->hashed != work->item->offset && !run->failed)
        pthread_cond_wait(&run->changed, &run->lock);
    const bool turn = writing->hashed == work->item->offset;
    pthread_mutex_unlock(&run->lock);
    return turn;
}

/* Only by the thread that has the turn. */
static void add_to_hash(struct item_at_work *work, struct rfs_writing *writing)
{
    struct rfs_writing_run *run = work->run;
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

/* Lets the file system share or copy ranges; the rest is written. */
static int write_member(struct item_at_work *work, struct rfs_writing *writing)
{
    struct rfs_writing_run *run = work->run;
    struct rfs_export *export = run->export;
    const uint64_t begin = work->item->offset;
    const uint64_t end = begin + work->item->size;
    const int fd = writing->partial.fd;
    uint64_t written = begin;
    int rc = 0;

    for (uint64_t at = begin; rc == 0 && atomic_load(&run->copier.way) != RFS_COPY_NOT;) {
        struct rfs_plain plain;
        struct rfs_files *files;
        uint32_t n;
        uint64_t from;
        uint64_t to;
        if (rfs_view_plain(export->view, writing->file->id, at, end, RFS_COPY_LEAST, &plain) != 1)
            break;
        rfs_view_sources(export->view, writing->file->id, &n, &files);
        rc = rfs_copier_take(&run->copier, files, &plain, fd, &from, &to);
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

static bool is_last(struct rfs_writing_run *run, struct rfs_writing *writing)
{
    pthread_mutex_lock(&run->lock);
    const bool last = --writing->left == 0 && writing->hashed == writing->file->size;
    pthread_mutex_unlock(&run->lock);
    return last;
}

static int write_item(struct item_at_work *work, void *scratch)
{
    struct rfs_writing *first = member(work, 0);
    const struct rfs_wave_item *item = work->item;
    reshard_loan *loan;

    if (first->has_crc && item->offset == first->trailer) {
        if (!has_turn(work, first, true))
            return 0; /* it is over */
        rfs_view_tell_crc(work->run->export->view, first->file->id, first->crc);
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
            rc = rfs_writing_finish(work->run, member(work, m), work->err);
    return rc;
}

int rfs_wave_write(struct rfs_writing_run *run, struct rfs_wave *wave,
                   const struct rfs_wave_item *item, void *scratch, struct rfs_error *err)
{
    struct item_at_work work = {.run = run, .wave = wave, .item = item, .err = err};

    return write_item(&work, scratch);
}
