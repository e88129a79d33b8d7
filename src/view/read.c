/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: regions to bytes. A reader that goes on from where it was is read ahead of: pieces of
 * the next regions are assembled in the background while the kernel takes this answer.
 *
 * The checksum at the end of a .ckpt file, and those of storages in an archive, are summed up when
 * their bytes are read: the file's own bytes are read through once. Other readers of a .ckpt file's
 * checksum wait meanwhile.
 */
#include "assemble/sequential.h"
#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/once.h"
#include "base/pages.h"
#include "base/store.h"
#include "base/wait.h"
#include "formats/chunks/chunks.h"
#include "plan/by_rules.h"
#include "reshard.h"
#include "view/hidden.h"
#include "view/internal.h"
#include "view/rules_view.h"

#include <zlib.h>

#define BORROW_LEAST (UINT64_C(64) << 10) /* shorter spans are cheaper copied than sent apart */

_Static_assert(RESHARD_SCRATCH_EXTRA >= RFS_DISTANCE_STEP, "callers' scratch has room for moving");

struct reshard_reader {
    struct rfs_view *view;
    size_t file;                   /* number of a shown file; unused for a tensor's own file */
    const struct rfs_image *image; /* held */
    struct rfs_tensors tensors;    /* the targets of the image */
    bool scattered;                /* nothing is read ahead; constant once it is used */
    pthread_mutex_t lock;          /* guards the rest; a leaf lock */
    struct rfs_sequential sequential;
    struct rfs_slice
        slice; /* slice of slice_target; slice.n is 0 while it is taken, or there is none */
    uint32_t slice_target;
    struct rfs_bytes written; /* those of a region of RFS_WRITTEN; owned; n is 0 while taken */
    size_t written_region;
};

struct reshard_loan {
    struct rfs_assembler *assembler;
    struct rfs_pins pins;
};

/* An answer: bytes copied to BUF, or given as a REPLY. */
struct answer {
    unsigned char *buf; /* where the next bytes go; NULL with a reply */
    struct rfs_reply *reply;
    size_t done;
};

/* Returns where the next bytes are to be copied. */
static unsigned char *answer_at(const struct answer *answer)
{
    return answer->reply ? answer->reply->at : answer->buf;
}

/* Notes that SIZE bytes were put at answer_at. */
static int answer_copied(struct answer *answer, size_t size)
{
    answer->done += size;
    if (answer->reply)
        return rfs_assemble_copied(answer->reply, size);
    answer->buf += size;
    return 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int answer_slice(const struct reshard_reader *reader, uint32_t target,
                        const struct rfs_slice *slice, uint64_t begin, size_t size, bool sequential,
                        struct answer *answer)
{
    struct rfs_view *view = reader->view;
    struct rfs_casting cast;

    if (rfs_tensors_is_cast(&reader->tensors, target, &cast)) {
        const int rc = rfs_assemble_cast(view->assembler, slice, &cast, begin, size, sequential,
                                         answer_at(answer));
        return rc ? rc : answer_copied(answer, size);
    }
    struct rfs_reply *reply = answer->reply;

    /* Borrowing may use all entries but two: the rest is copied to one, in one piece. */
    if (reply && size >= BORROW_LEAST && reply->iov_count + 3 <= reply->iov_max) {
        reply->iov_max -= 2;
        const int rc = rfs_assemble_borrow(view->assembler, slice, begin, size, sequential, reply);
        reply->iov_max += 2;
        answer->done += rc ? 0 : size;
        return rc;
    }
    const int rc = rfs_assemble(view->assembler, slice, begin, size, sequential, answer_at(answer));
    return rc ? rc : answer_copied(answer, size);
}

/* Takes the reader's slice of a target, or makes one; put_slice puts it back. */
static int take_slice(struct reshard_reader *reader, uint32_t target, struct rfs_slice *slice)
{
    *slice = (struct rfs_slice){0};
    pthread_mutex_lock(&reader->lock);
    if (reader->slice.n > 0) {
        *slice = reader->slice;
        reader->slice = (struct rfs_slice){0};
    }
    const bool same = slice->n > 0 && reader->slice_target == target;
    pthread_mutex_unlock(&reader->lock);
    if (same)
        return 0;
    return rfs_tensors_slice(&reader->tensors, target, slice);
}

static void put_slice(struct reshard_reader *reader, uint32_t target, struct rfs_slice *slice)
{
    pthread_mutex_lock(&reader->lock);
    struct rfs_slice old = reader->slice;
    reader->slice = *slice;
    reader->slice_target = target;
    pthread_mutex_unlock(&reader->lock);
    rfs_slice_free(&old);
    *slice = (struct rfs_slice){0};
}

/* ---- reading ahead --------------------------------------------------------------------------- */

/* Reads ahead in a target; NEXT is the target behind it in the file. */
static void ahead_of_target(struct reshard_reader *reader, uint32_t target, uint32_t next,
                            struct rfs_windows *windows)
{
    struct rfs_slice slice = {0};
    struct rfs_slice beside = {0};
    struct rfs_casting cast;

    if (rfs_tensors_is_cast(&reader->tensors, target, &cast)) {
        rfs_assemble_uncast(&cast, &windows->kept.begin, &windows->kept.end);
        rfs_assemble_uncast(&cast, &windows->lent.begin, &windows->lent.end);
    }
    if (rfs_tensors_slice(&reader->tensors, target, &slice)) {
        rfs_slice_free(&slice);
        return;
    }
    if (next < RFS_NO_TARGET && rfs_assemble_joins(&slice) &&
        rfs_tensors_slice(&reader->tensors, next, &beside))
        rfs_slice_free(&beside);
    rfs_assemble_ahead(reader->view->assembler, &slice, &beside, windows);
}

/* Returns what a window has of a region, as bytes of the region's target. */
static struct rfs_window clip(const struct rfs_window *window, const struct rfs_region *region,
                              uint64_t region_end)
{
    const uint64_t from = rfs_max_u64(region->start, window->begin);
    const uint64_t to = rfs_min_u64(region_end, window->end);

    if (from >= to)
        return (struct rfs_window){0};
    return (struct rfs_window){region->at + from - region->start, region->at + to - region->start};
}

/* Starts on the bytes that a sequential reader will need next. */
static void read_ahead(struct reshard_reader *reader, const struct rfs_windows *windows)
{
    const struct rfs_image *image = reader->image;
    const struct rfs_window hull = rfs_assemble_hull(windows);

    if (hull.begin >= rfs_min_u64(hull.end, image->bytes))
        return;
    for (size_t i = rfs_image_find(image, hull.begin); i < image->n; i++) {
        const struct rfs_region *region = &image->regions[i];
        const uint64_t region_end = rfs_image_end(image, i);
        if (region->start >= hull.end)
            break;
        if (region->target >= RFS_NO_TARGET || region_end - region->start < RFS_SMALL)
            continue;
        struct rfs_windows parts = {clip(&windows->kept, region, region_end),
                                    clip(&windows->lent, region, region_end), windows->bytes};
        const uint32_t next = i + 1 < image->n ? region[1].target : RFS_NO_TARGET;
        if (parts.kept.end > 0 || parts.lent.end > 0)
            ahead_of_target(reader, region->target, next, &parts);
    }
}

/*
 * Has the window's ranges of slow sources read. All parameters in it are noted first: what follows
 * each other in a source file is read by one request, however small they are. Returns false if
 * there is no room for them now.
 */
static bool stage_step(struct reshard_reader *reader, const struct rfs_window *window)
{
    const struct rfs_image *image = reader->image;
    const uint64_t end = rfs_min_u64(window->end, image->bytes);
    struct rfs_gather_ranges ranges = {0};
    int rc = 0;

    for (size_t i = window->begin < end ? rfs_image_find(image, window->begin) : image->n;
         rc == 0 && i < image->n && image->regions[i].start < end; i++) {
        const struct rfs_region *region = &image->regions[i];
        struct rfs_slice slice = {0};
        struct rfs_casting cast;
        if (region->target >= RFS_NO_TARGET)
            continue;
        struct rfs_window part = clip(window, region, rfs_image_end(image, i));
        if (rfs_tensors_is_cast(&reader->tensors, region->target, &cast))
            rfs_assemble_uncast(&cast, &part.begin, &part.end);
        rc = rfs_tensors_slice(&reader->tensors, region->target, &slice)
                 ?: rfs_gather_note(&slice, part.begin, part.end, &ranges);
        rfs_slice_free(&slice);
    }
    const bool staged = rfs_assemble_prefetch(reader->view->assembler, &ranges);
    free(ranges.data);
    return staged;
}

/*
 * Has slow sources read ahead of a read at OFFSET, as far as that is worth it. Returns false if
 * there was no room for all of it.
 */
static bool stage_ahead(struct reshard_reader *reader, uint64_t offset)
{
    const struct rfs_view *view = reader->view;
    const uint64_t reach = rfs_assemble_reach(view->assembler);
    const unsigned times = rfs_store_is_url(rfs_catalog_path(view->catalog)) ? RFS_REMOTE_TIMES : 1;

    while (reach > 0) {
        pthread_mutex_lock(&reader->lock);
        const struct rfs_window window = rfs_sequential_prefetch(
            &reader->sequential, offset, reach, reader->tensors.plan->n_sources, times);
        pthread_mutex_unlock(&reader->lock);
        if (window.end == 0)
            return true;
        const bool room = stage_step(reader, &window);
        pthread_mutex_lock(&reader->lock);
        rfs_sequential_staged(&reader->sequential, &window, room);
        pthread_mutex_unlock(&reader->lock);
        if (!room)
            return false;
    }
    return true;
}

/* Notes a read, returns whether it continues the last one, and reads ahead then. */
static bool note_read(struct reshard_reader *reader, uint64_t offset, uint64_t end)
{
    struct rfs_windows ahead;

    if (reader->scattered)
        return false;
    pthread_mutex_lock(&reader->lock);
    const bool sequential = rfs_sequential_note(&reader->sequential, offset, end, &ahead);
    pthread_mutex_unlock(&reader->lock);
    /* Pieces that are made without it would take the room by many small requests. */
    const bool room = !sequential || stage_ahead(reader, offset);
    if (room && (ahead.kept.end > 0 || ahead.lent.end > 0))
        read_ahead(reader, &ahead);
    return sequential;
}

/* ---- checksums ------------------------------------------------------------------------------- */

/* Sums up the checksum of the file's bytes [begin, end). */
static int sum_up(struct rfs_view *view, size_t file, uint64_t begin, uint64_t end, uint32_t *crc)
{
    unsigned char *buf = rfs_pages_alloc(RFS_PIECE);
    struct reshard_reader *reader = NULL;
    uLong sum = crc32_z(0, NULL, 0);
    ssize_t n = 0;

    int rc = buf ? rfs_view_reader_open(view, file, &reader) : -ENOMEM;
    for (uint64_t at = begin; at < end && rc == 0; at += (uint64_t)n) {
        if (rfs_cancelled()) { /* all that it reads may be there already */
            rc = -EINTR;
            break;
        }
        n = rfs_view_reader_read(reader, buf, (size_t)rfs_min_u64(RFS_PIECE, end - at), at);
        rc = n < 0 ? (int)n : n == 0 ? -EIO : 0;
        if (rc == 0)
            sum = crc32_z(sum, buf, (size_t)n);
    }
    reshard_reader_close(reader);
    rfs_pages_free(buf, RFS_PIECE);
    *crc = (uint32_t)sum;
    return rc;
}

static int file_crc(struct rfs_view *view, size_t file, uint32_t *crc)
{
    struct rfs_view_file *shown = &view->files[file];

    pthread_mutex_lock(&view->lock);
    int rc = rfs_once_begin(&shown->crc_made, &view->made, &view->lock);
    if (rc == 1) {
        pthread_mutex_unlock(&view->lock);
        uint64_t bytes;
        (void)rfs_view_is_planned(view, file, &bytes); /* it has a reader */
        rc = sum_up(view, file, 0, bytes - RFS_CRC_TRAILER, crc);
        pthread_mutex_lock(&view->lock);
        shown->crc = *crc;
        rfs_once_end(&shown->crc_made, &view->made, rc == 0);
    }
    *crc = shown->crc;
    pthread_mutex_unlock(&view->lock);
    return rc;
}

/*
 * Gives the checksum of a storage; two readers of it at once both compute it, with equal results.
 */
static int storage_crc(struct reshard_reader *reader, size_t region, uint32_t *crc)
{
    struct rfs_view *view = reader->view;
    struct rfs_view_file *shown = &view->files[reader->file];
    const uint32_t target = reader->image->regions[region].target;

    pthread_mutex_lock(&view->lock);
    if (!shown->storage_crcs)
        shown->storage_crcs =
            calloc(rfs_tensors_count(&reader->tensors), sizeof *shown->storage_crcs);
    const bool room = shown->storage_crcs != NULL;
    const uint64_t known = room ? shown->storage_crcs[target] : 0;
    pthread_mutex_unlock(&view->lock);
    *crc = (uint32_t)known;
    if (known || !room)
        return room ? 0 : -ENOMEM;
    const int rc = sum_up(view, reader->file, reader->image->regions[region].start,
                          rfs_image_end(reader->image, region), crc);
    if (rc)
        return rc;
    RFS_LOCKED(&view->lock);
    shown->storage_crcs[target] = UINT64_C(1) << 32 | *crc;
    return 0;
}

/* Answers bytes of a checksum: a file's has its highest byte first, a storage's its lowest. */
static int answer_crc(struct reshard_reader *reader, const struct rfs_region *region, uint64_t skip,
                      size_t size, struct answer *answer)
{
    const bool of_file = region->target == RFS_CRC;
    const uint64_t at =
        region->at + skip; /* for a storage: number of its region << 3 | number of the byte */
    uint32_t crc;
    const int rc = of_file ? file_crc(reader->view, reader->file, &crc)
                           : storage_crc(reader, (size_t)(at >> 3), &crc);
    if (rc)
        return rc;
    for (size_t i = 0; i < size; i++)
        answer_at(answer)[i] =
            (unsigned char)(crc >> 8 * (of_file ? RFS_CRC_BYTES - 1 - skip - i : (at & 7) + i));
    return answer_copied(answer, size);
}

/* Answers bytes that are written now, if the reader does not have them. */
static int answer_written(struct reshard_reader *reader, const struct rfs_region *region,
                          uint64_t skip, size_t size, struct answer *answer)
{
    RFS_CLEANUP(rfs_bytes_free) struct rfs_bytes bytes = {0};
    const size_t number = (size_t)(region - reader->image->regions);

    pthread_mutex_lock(&reader->lock);
    const bool there = reader->written.n > 0 && reader->written_region == number;
    bytes = reader->written;
    reader->written = (struct rfs_bytes){0};
    pthread_mutex_unlock(&reader->lock);
    const int rc = there ? 0 : rfs_image_write(reader->image, number, &bytes);
    if (rc)
        return rc;
    memcpy(answer_at(answer), bytes.data + skip, size);
    pthread_mutex_lock(&reader->lock);
    const struct rfs_bytes other = reader->written; /* that another thread put there meanwhile */
    reader->written = bytes;
    reader->written_region = number;
    pthread_mutex_unlock(&reader->lock);
    bytes = other;
    return answer_copied(answer, size);
}

/* ---- answers --------------------------------------------------------------------------------- */

static int answer_region(struct reshard_reader *reader, const struct rfs_region *region,
                         uint64_t skip, size_t size, bool sequential, struct answer *answer)
{
    struct rfs_slice slice;

    if (region->target == RFS_CRC || region->target == RFS_STORAGE_CRC)
        return answer_crc(reader, region, skip, size, answer);
    if (region->target == RFS_WRITTEN)
        return answer_written(reader, region, skip, size, answer);
    if (region->target == RFS_LITERAL) {
        memcpy(answer_at(answer), reader->image->literals + region->at + skip, size);
        return answer_copied(answer, size);
    }
    int rc = take_slice(reader, region->target, &slice)
                 ?: answer_slice(reader, region->target, &slice, region->at + skip, size,
                                 sequential, answer);
    if (rc)
        rfs_slice_free(&slice);
    else
        put_slice(reader, region->target, &slice);
    return rc;
}

int rfs_view_check_sources(const struct rfs_view *view, const struct rfs_rank_plan *plan)
{
    const struct rfs_files *files = rfs_catalog_files(view->catalog);

    for (uint32_t i = 0; i < plan->n_sources; i++) {
        const int rc = rfs_files_state(files, plan->sources[i]);
        if (rc)
            return rc;
    }
    return 0;
}

static ssize_t answer_bytes(struct reshard_reader *reader, size_t size, uint64_t offset,
                            struct answer *answer)
{
    const struct rfs_image *image = reader->image;

    if (offset >= image->bytes || size == 0)
        return 0;
    if (size > image->bytes - offset)
        size = (size_t)(image->bytes - offset);
    if (size > SSIZE_MAX)
        size = SSIZE_MAX;
    int rc = rfs_view_check_sources(reader->view, reader->tensors.plan);
    if (rc)
        return rc;
    const bool sequential = note_read(reader, offset, offset + size);
    for (size_t i = rfs_image_find(image, offset); answer->done < size; i++) {
        const uint64_t at = offset + answer->done;
        const uint64_t n = rfs_min_u64(rfs_image_end(image, i) - at, size - answer->done);
        rc = rfs_cancelled()
                 ? -EINTR
                 : answer_region(reader, &image->regions[i], at - image->regions[i].start,
                                 (size_t)n, sequential, answer);
        if (rc)
            return rc;
    }
    return (ssize_t)size;
}

/* Answers a read, and counts it. */
static ssize_t answer_read(struct reshard_reader *reader, size_t size, uint64_t offset,
                           struct answer *answer)
{
    const uint64_t since = rfs_wait_now();
    const ssize_t n = answer_bytes(reader, size, offset, answer);

    rfs_view_count_read(&reader->view->save.counters, size, n, rfs_wait_now() - since);
    return n;
}

/* ---- readers --------------------------------------------------------------------------------- */

/*
 * Compares copies if a tensor in the image is made of an original. Returns 0 or -errno with *err
 * filled.
 */
static int compare_copies_for(struct rfs_view *view, const struct rfs_image *image,
                              const struct rfs_tensors *tensors, struct rfs_error *err)
{
    if (!view->rules || view->rules->made->map->copies.n == 0 || !tensors->params ||
        tensors->storages)
        return 0;
    for (size_t i = 0; i < image->n; i++) {
        const uint32_t target = image->regions[i].target;
        if (target < RFS_NO_TARGET &&
            rfs_by_rules_is_compared(view->rules->made, rfs_tensors_target(tensors, target)->name))
            return rfs_view_compare_copies(view, err);
    }
    return 0;
}

/*
 * Begins a reader whose image was made with the result RC, once copies are compared. Returns RC, or
 * their failure.
 */
static int begin(struct reshard_reader *reader, int rc, struct rfs_error *err)
{
    if (rc == 0)
        rc = compare_copies_for(reader->view, reader->image, &reader->tensors, err);
    if (rc) {
        rfs_image_free(reader->image);
        return rfs_view_log_failure(reader->view, rc, err);
    }
    pthread_mutex_init(&reader->lock, NULL);
    return 0;
}

static int init_shown(struct rfs_view *view, size_t file, struct reshard_reader *reader)
{
    struct rfs_error err = {0};

    *reader = (struct reshard_reader){.view = view, .file = file};
    const int rc = rfs_view_image(view, file, &reader->image, &err);
    if (rc == 0)
        reader->tensors = rfs_tensors_of_file(view, file, reader->image);
    return begin(reader, rc, &err);
}

static int init_tensor(struct rfs_view *view, const struct rfs_view_hidden_object *object,
                       struct reshard_reader *reader)
{
    struct rfs_error err = {0};

    *reader = (struct reshard_reader){.view = view};
    struct rfs_image *image = NULL;
    const int rc = rfs_view_hidden_image(view, object, &reader->tensors, &image, &err);
    reader->image = image;
    return begin(reader, rc, &err);
}

int rfs_view_check_metadata(const struct rfs_view *view)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);

    return chunked && !rfs_store_is_url(chunked->folder)
               ? rfs_files_check(chunked->files, chunked->metadata)
               : 0;
}

static int reader_init(reshard_view *set, uint64_t id, struct reshard_reader *reader)
{
    RFS_VIEW_TAKEN *view = rfs_view_take(set, id);
    size_t file;

    if (!view)
        return id == RESHARD_ROOT || id == RFS_HIDDEN_TOP || id == RFS_HIDDEN_TENSORS ? -EISDIR
               : set->follow && id >> RFS_VIEW_SAVE_SHIFT                             ? -ESTALE
                                                                                      : -ENOENT;
    int rc = rfs_view_check_metadata(view);
    if (rc)
        return rc;
    if (rfs_view_hidden_owns(view, id)) {
        const struct rfs_view_hidden_object object = rfs_view_hidden_find(view, id);
        rc = object.kind == RFS_VIEW_HIDDEN_FILE ? init_tensor(view, &object, reader)
             : object.kind == RFS_VIEW_HIDDEN_NONE && id != RFS_HIDDEN_TOP ? -ENOENT
                                                                           : -EISDIR;
    } else {
        const enum rfs_view_entry_kind kind = rfs_view_entry(view, id, &file);
        rc = kind == RFS_ENTRY_FILE   ? init_shown(view, file, reader)
             : kind == RFS_ENTRY_NONE ? -ENOENT
                                      : -EISDIR;
    }
    if (rc == 0)
        (void)RFS_STEAL(view); /* the reader has taken it */
    return rc;
}

static void reader_end(struct reshard_reader *reader)
{
    rfs_image_free(reader->image);
    rfs_view_leave(reader->view);
    rfs_slice_free(&reader->slice);
    rfs_bytes_free(&reader->written);
    pthread_mutex_destroy(&reader->lock);
}

static int give_reader(struct reshard_reader *reader, int rc, struct reshard_reader **out)
{
    *out = rc ? NULL : reader;
    if (rc)
        free(reader);
    return rc;
}

int rfs_view_reader_open(struct rfs_view *view, size_t file, struct reshard_reader **out)
{
    struct reshard_reader *reader = malloc(sizeof *reader);

    return give_reader(reader, reader ? init_shown(view, file, reader) : -ENOMEM, out);
}

void rfs_view_reader_scatter(struct reshard_reader *reader)
{
    reader->scattered = true;
}

int reshard_reader_open(reshard_view *view, uint64_t id, reshard_reader **out)
{
    struct reshard_reader *reader = malloc(sizeof *reader);

    return give_reader(reader, reader ? reader_init(view, id, reader) : -ENOMEM, out);
}

void reshard_reader_close(reshard_reader *reader)
{
    if (!reader)
        return;
    reader_end(reader);
    free(reader);
}

ssize_t reshard_reader_pread(reshard_reader *reader, void *buf, size_t size, uint64_t offset)
{
    struct answer answer = {.buf = buf};
    return answer_read(reader, size, offset, &answer);
}

ssize_t rfs_view_reader_read(struct reshard_reader *reader, void *buf, size_t size, uint64_t offset)
{
    struct answer answer = {.buf = buf};
    return answer_bytes(reader, size, offset, &answer);
}

ssize_t reshard_pread(reshard_view *view, uint64_t id, void *buf, size_t size, uint64_t offset)
{
    struct reshard_reader reader;

    const int rc = reader_init(view, id, &reader);
    if (rc)
        return rc;
    reader.scattered = true; /* one read is no sequence */
    const ssize_t n = reshard_reader_pread(&reader, buf, size, offset);
    reader_end(&reader);
    return n;
}

/* Makes the owner of the pins; *LOAN is NULL when there are none. */
static int make_loan(struct rfs_assembler *assembler, const struct rfs_pins *pins,
                     struct reshard_loan **loan)
{
    *loan = pins->n > 0 ? malloc(sizeof **loan) : NULL;
    if (pins->n > 0 && !*loan)
        return -ENOMEM;
    if (*loan)
        **loan = (struct reshard_loan){assembler, *pins};
    return 0;
}

ssize_t reshard_reader_borrow(reshard_reader *reader, void *scratch, size_t size, uint64_t offset,
                              struct iovec *iov, int iov_max, int *iov_count, reshard_loan **loan)
{
    struct rfs_pins pins = {0};
    struct rfs_reply reply = {.at = scratch, .iov = iov, .iov_max = iov_max, .pins = &pins};
    struct answer answer = {.reply = &reply};

    *iov_count = 0;
    *loan = NULL;
    if (iov_max < 1)
        return -EINVAL;
    ssize_t n = answer_read(reader, size, offset, &answer);
    if (n >= 0) {
        const int rc = make_loan(reader->view->assembler, &pins, loan);
        n = rc < 0 ? rc : n;
    }
    if (n < 0) {
        rfs_assemble_unpin(reader->view->assembler, &pins);
        return n;
    }
    *iov_count = reply.iov_count;
    return n;
}

void reshard_return(reshard_loan *loan)
{
    if (!loan)
        return;
    rfs_assemble_unpin(loan->assembler, &loan->pins);
    free(loan);
}
