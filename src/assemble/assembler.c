/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which bytes are read straight from the sources, which go through pieces, and which are
 * borrowed from them.
 *
 * Pieces are made ahead by a short queue and a few threads. A piece is claimed when it is begun,
 * not when it is queued, so that a reader never waits for a piece that no thread works on.
 * Gathering is worth all processors. Reading contiguous data only has to keep up with the answers,
 * which need a processor too: with one more thread on two processors it was slower, by a sixth.
 *
 * Where elements are cast, source bytes are assembled as they are, a little at a time, so that they
 * are still in the processor's cache when they are cast. What the cache has are source bytes, so
 * slices that differ in their casts only share its pieces.
 */
#include "assemble/band.h"
#include "assemble/cast.h"
#include "assemble/distance.h"
#include "assemble/internal.h"
#include "base/checked.h"
#include "base/pages.h"
#include "base/store.h"
#include "base/vec.h"

#include <unistd.h>

#define MOST_RUNNERS 4
/* Pieces made ahead would push each other out if the budget had room for fewer. */
#define ROOM_PIECES 8
/* Contiguous ranges that are shorter are read as quickly on demand. */
#define PASSING_LEAST (RFS_PIECE / 4)
/* A reader that has read less may have what it wants before a band is made. */
#define BAND_LEAST (16 * RFS_PIECE)

/* ---- pieces ---------------------------------------------------------------------------------- */

struct rfs_scratch *rfs_scratch_take(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    struct rfs_scratch *scratch = assembler->scratch;
    if (scratch)
        assembler->scratch = scratch->next;
    pthread_mutex_unlock(&assembler->lock);
    if (!scratch)
        scratch = rfs_pages_alloc(sizeof *scratch);
    return scratch;
}

void rfs_scratch_give(struct rfs_assembler *assembler, struct rfs_scratch *scratch)
{
    pthread_mutex_lock(&assembler->lock);
    scratch->next = assembler->scratch;
    assembler->scratch = scratch;
    pthread_mutex_unlock(&assembler->lock);
}

/* Reads bytes [begin, end) of the slice from its sources; see rfs_prefetch_fetch. */
static int fetch(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t begin,
                 uint64_t end, unsigned char *dst, enum rfs_gather_proof proof, bool ahead)
{
    struct rfs_scratch *scratch = rfs_scratch_take(assembler);

    if (!scratch)
        return -ENOMEM;
    const int rc = rfs_prefetch_fetch(assembler->prefetch, slice, begin, end, scratch->bytes, dst,
                                      proof, ahead);
    rfs_scratch_give(assembler, scratch);
    return rc;
}

static void note_file(struct rfs_cache_piece *piece, uint32_t file)
{
    uint32_t seen = 0;

    while (seen < piece->n_files && piece->files[seen] != file)
        seen++;
    if (seen == piece->n_files)
        piece->files[piece->n_files++] = file;
}

/* Lists the files that the bytes of the piece come from, each once. */
static void note_files(struct rfs_cache_piece *piece, const struct rfs_slice *slice, uint64_t begin)
{
    const uint64_t end = begin + piece->size;
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        const struct rfs_quant *quant = block->content.quant;
        if (!rfs_gather_touches(block, begin, end))
            continue;
        note_file(piece, block->file);
        if (quant)
            note_file(piece, quant->scale_file);
        if (quant && quant->zero != RFS_QUANT_Z_NONE)
            note_file(piece, quant->zero_file);
    }
}

/* Returns the most files that the bytes of a slice can come from. */
static size_t most_files(const struct rfs_slice *slice)
{
    size_t n = 0;

    for (size_t i = 0; i < slice->n; i++)
        n += slice->blocks[i].content.quant ? 1 + RFS_QUANT_SIDES : 1;
    return n;
}

int rfs_assemble_claim(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                       uint64_t number, enum rfs_cache_want want, const atomic_bool *passed,
                       struct rfs_cache_piece **out)
{
    const uint64_t begin = number * RFS_PIECE;
    const size_t size = (size_t)rfs_min_u64(RFS_PIECE, slice->bytes - begin);
    const struct rfs_cache_key key = {{slice->id[0], slice->id[1]}, number};
    const int got =
        rfs_cache_get(assembler->cache, &key, size, most_files(slice), want, passed, out);

    if (got == RFS_GOT_CLAIM)
        note_files(*out, slice, begin);
    return got;
}

/*
 * Gets a piece of the slice, pinned: RFS_GOT_CLAIM if it was made here, RFS_GOT_PIECE if by another
 * thread; RFS_GOT_NOTHING when it is not to be cached; or -errno. Its bytes are valid only if its
 * files are found unchanged afterwards, whichever thread made it; so the maker need not check. JOB
 * makes it ahead (RFS_WANT_ABSENT), or is NULL.
 */
static int get_piece(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                     uint64_t number, enum rfs_cache_want want, const struct rfs_ahead_job *job,
                     struct rfs_cache_piece **out)
{
    int got = rfs_assemble_claim(assembler, slice, number, want, job ? &job->passed : NULL, out);
    if (got == RFS_GOT_CLAIM) {
        const uint64_t begin = number * RFS_PIECE;
        const bool ahead = job != NULL;
        (*out)->passing = ahead && job->passing;
        int rc = rfs_band_make(assembler, slice, number, *out, ahead);
        if (rc > 0)
            rc = fetch(assembler, slice, begin, begin + (*out)->size, (*out)->data,
                       RFS_GATHER_UNPROVEN, ahead);
        /*
         * A thread that waits for a piece that was refused ahead, or cancelled, makes it itself or
         * meets the failure.
         */
        const bool unmade = rc == -EINTR || (rc < 0 && ahead);
        rfs_cache_publish(assembler->cache, *out, unmade ? RFS_PUBLISH_NOTHING : rc);
        got = rc < 0 ? rc : got;
    }
    if (got < 0)
        *out = NULL;
    return got;
}

/* ---- making pieces ahead --------------------------------------------------------------------- */

/* A slice that all jobs of one call share. */
struct rfs_shared_slice {
    atomic_uint owners;
    struct rfs_slice slice;
    struct rfs_slice beside; /* slice of the next tensor, or without blocks */
};

static void release(struct rfs_shared_slice *shared)
{
    if (atomic_fetch_sub(&shared->owners, 1) != 1)
        return;
    rfs_slice_free(&shared->slice);
    rfs_slice_free(&shared->beside);
    free(shared);
}

static bool is_for(const struct rfs_ahead_job *job, const struct rfs_slice *slice, uint64_t number)
{
    return job->number == number && job->slice->slice.id[0] == slice->id[0] &&
           job->slice->slice.id[1] == slice->id[1];
}

/* Takes job I out of the queue; the caller has the lock and now the share. */
static struct rfs_ahead_job take_job(struct rfs_assembler *assembler, unsigned i)
{
    const struct rfs_ahead_job job = assembler->queue[i];
    assembler->n_queued--;
    memmove(&assembler->queue[i], &assembler->queue[i + 1], (assembler->n_queued - i) * sizeof job);
    return job;
}

/* Returns the position of the job in the queue, or n_queued. The caller has the lock. */
static unsigned find_job(const struct rfs_assembler *assembler, const struct rfs_slice *slice,
                         uint64_t number)
{
    unsigned i = 0;
    while (i < assembler->n_queued && !is_for(&assembler->queue[i], slice, number))
        i++;
    return i;
}

/* Makes the piece of a job ahead, or its band; returns whether it did. */
static bool make(struct rfs_assembler *assembler, const struct rfs_ahead_job *job)
{
    const struct rfs_slice *slice = &job->slice->slice;
    bool made = false;
    /*
     * Failures are ignored here: they recur when the reader requests the piece. Contiguous bytes
     * are in no band.
     */
    if (job->passing ||
        !rfs_band_ahead(assembler, slice, &job->slice->beside, job->number, &job->passed, &made)) {
        struct rfs_cache_piece *piece;
        made =
            get_piece(assembler, slice, job->number, RFS_WANT_ABSENT, job, &piece) == RFS_GOT_CLAIM;
        if (piece)
            rfs_cache_unpin(assembler->cache, piece);
    }
    return made;
}

/* Makes pieces until none is queued. The assembler may be freed once the job is marked as done. */
static void run_queue(void *arg)
{
    struct rfs_assembler *assembler = arg;
    pthread_mutex_lock(&assembler->lock);
    while (assembler->n_queued > 0) {
        struct rfs_ahead_job job = take_job(assembler, 0);
        job.next = assembler->begun;
        assembler->begun = &job;
        pthread_mutex_unlock(&assembler->lock);
        const bool made = make(assembler, &job);
        pthread_mutex_lock(&assembler->lock);
        assembler->ahead += made;
        struct rfs_ahead_job **link = &assembler->begun;
        while (*link != &job)
            link = &(*link)->next;
        *link = job.next;
        release(job.slice); /* not before: until now cancel_ahead looks at it */
    }
    assembler->n_runners--;
    pthread_cond_broadcast(&assembler->idle);
    pthread_mutex_unlock(&assembler->lock);
}

/* Drops the queued jobs. The caller has the lock. */
static void drop_queue(struct rfs_assembler *assembler)
{
    while (assembler->n_queued > 0)
        release(take_job(assembler, 0).slice);
}

/* Drops the queued jobs, and waits until nothing is being made. */
static void stop_ahead(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    drop_queue(assembler);
    while (assembler->n_runners > 0)
        pthread_cond_wait(&assembler->idle, &assembler->lock);
    pthread_mutex_unlock(&assembler->lock);
}

/* Queues a job for a piece, and starts a runner if one more may work. */
static void enqueue(struct rfs_assembler *assembler, struct rfs_shared_slice *shared,
                    uint64_t number, bool passing)
{
    pthread_mutex_lock(&assembler->lock);
    const bool fine = assembler->n_queued < RFS_AHEAD_QUEUE &&
                      find_job(assembler, &shared->slice, number) == assembler->n_queued;
    const unsigned most =
        passing && assembler->runners > 1 ? assembler->runners - 1 : assembler->runners;
    const bool runner = fine && assembler->n_runners < most;
    if (fine) {
        atomic_fetch_add(&shared->owners, 1);
        assembler->queue[assembler->n_queued++] =
            (struct rfs_ahead_job){.slice = shared, .number = number, .passing = passing};
    }
    assembler->n_runners += runner;
    pthread_mutex_unlock(&assembler->lock);
    if (!runner || rfs_pool_submit(assembler->pool, run_queue, assembler, assembler->runners))
        return;
    pthread_mutex_lock(&assembler->lock);
    if (--assembler->n_runners == 0)
        drop_queue(assembler);
    pthread_cond_broadcast(&assembler->idle);
    pthread_mutex_unlock(&assembler->lock);
}

/*
 * Cancels the job of a piece that the reader has reached, unless the piece is claimed. Else a
 * thread that comes late would make it when all readers are past it.
 */
static void cancel_ahead(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                         uint64_t number)
{
    struct rfs_shared_slice *shared = NULL;
    pthread_mutex_lock(&assembler->lock);
    const unsigned i = find_job(assembler, slice, number);
    if (i < assembler->n_queued)
        shared = take_job(assembler, i).slice;
    for (struct rfs_ahead_job *job = assembler->begun; job; job = job->next)
        if (is_for(job, slice, number))
            atomic_store(&job->passed, true);
    pthread_mutex_unlock(&assembler->lock);
    if (shared)
        release(shared);
}

struct rfs_window rfs_assemble_hull(const struct rfs_windows *windows)
{
    if (windows->kept.end == 0)
        return windows->lent;
    if (windows->lent.end == 0)
        return windows->kept;
    return (struct rfs_window){rfs_min_u64(windows->kept.begin, windows->lent.begin),
                               rfs_max_u64(windows->kept.end, windows->lent.end)};
}

/* Says whether a piece is to be made, and in *passing whether for one reader only. */
static bool is_wanted(const struct rfs_slice *slice, uint64_t at, uint64_t size,
                      const struct rfs_windows *windows, bool *passing)
{
    *passing = !rfs_gather_needed(slice, at, at + size);
    if (*passing)
        return size >= PASSING_LEAST && windows->lent.begin <= at && at + size <= windows->lent.end;
    return windows->kept.begin <= at && at < windows->kept.end;
}

void rfs_assemble_ahead(struct rfs_assembler *assembler, struct rfs_slice *slice,
                        struct rfs_slice *beside, const struct rfs_windows *windows)
{
    struct rfs_shared_slice *shared = NULL;
    const struct rfs_window hull = rfs_assemble_hull(windows);
    const uint64_t end = rfs_min_u64(hull.end, slice->bytes);
    if (hull.begin < end && assembler->pool && assembler->budget >= ROOM_PIECES * RFS_PIECE)
        shared = malloc(sizeof *shared);
    if (!shared) {
        rfs_slice_free(slice);
        rfs_slice_free(beside);
        return;
    }
    atomic_init(&shared->owners, 1);
    shared->slice = *slice;
    shared->beside = *beside;
    *slice = *beside = (struct rfs_slice){0};
    /* The reader is in the middle of a piece that begins before: it gets that by itself. */
    for (uint64_t number = rfs_assemble_pieces(hull.begin); number * RFS_PIECE < end; number++) {
        const uint64_t at = number * RFS_PIECE;
        bool passing;
        if (is_wanted(&shared->slice, at, rfs_min_u64(RFS_PIECE, shared->slice.bytes - at), windows,
                      &passing))
            enqueue(assembler, shared, number, passing);
    }
    /* A reader of whole bands needs the next one as soon as this one is made. */
    const uint64_t next = windows->bytes >= BAND_LEAST
                              ? rfs_band_next(&shared->slice, rfs_band_most(assembler->budget),
                                              hull.begin / RFS_PIECE)
                              : UINT64_MAX;
    if (next != UINT64_MAX && windows->kept.end > 0)
        enqueue(assembler, shared, next, false);
    release(shared);
}

/* ---- answering ------------------------------------------------------------------------------- */

int rfs_assemble_copied(struct rfs_reply *reply, size_t size)
{
    struct iovec *last = reply->iov_count > 0 ? &reply->iov[reply->iov_count - 1] : NULL;
    if (size == 0)
        return 0;
    if (last && (unsigned char *)last->iov_base + last->iov_len == reply->at)
        last->iov_len += size;
    else if (reply->iov_count < reply->iov_max)
        reply->iov[reply->iov_count++] = (struct iovec){reply->at, size};
    else
        return -ENOSPC;
    reply->at += size;
    return 0;
}

static struct rfs_cache_piece **pin_at(struct rfs_pins *pins, size_t i)
{
    return i < RFS_PINS_FEW ? &pins->few[i] : &pins->more[i - RFS_PINS_FEW];
}

/*
 * Lends [from, from + size) of the piece if there is room; the last entry stays free for copied
 * bytes.
 */
static bool lend(struct rfs_reply *reply, struct rfs_cache_piece *piece, size_t from, size_t size)
{
    struct rfs_pins *pins = reply->pins;
    if (reply->iov_count + 2 > reply->iov_max)
        return false;
    if (pins->n >= RFS_PINS_FEW && pins->n - RFS_PINS_FEW == pins->cap &&
        !rfs_vec_grow((void **)&pins->more, &pins->cap, pins->cap,
                      sizeof(struct rfs_cache_piece *)))
        return false;
    *pin_at(pins, pins->n++) = piece;
    reply->iov[reply->iov_count++] = (struct iovec){piece->data + from, size};
    reply->at += size; /* the room for them stays unused */
    return true;
}

void rfs_assemble_unpin(struct rfs_assembler *assembler, struct rfs_pins *pins)
{
    for (size_t i = 0; i < pins->n; i++)
        rfs_cache_unpin(assembler->cache, *pin_at(pins, i));
    free(pins->more);
    *pins = (struct rfs_pins){0};
}

/* A request for a range of a slice, to be put into buf or a reply. */
struct request {
    struct rfs_assembler *assembler;
    const struct rfs_slice *slice;
    uint64_t begin, end;
    bool sequential;
    unsigned char *buf;      /* address for byte BEGIN; NULL with a reply */
    struct rfs_reply *reply; /* NULL with buf */
    bool once;               /* the bytes are not wanted again */
    /* the last piece that bytes came from, whose files are not checked yet; pinned */
    struct rfs_cache_piece *piece;
    bool lent; /* the loan unpins it */
};

/*
 * Notes that bytes come from PIECE now, or from none any more. Pieces that follow each other are
 * mostly made from the same files, named in the same order: to check a file after the last of them
 * is enough. 0 or -errno.
 */
static int turn_to(struct request *request, struct rfs_cache_piece *piece)
{
    struct rfs_assembler *assembler = request->assembler;
    struct rfs_cache_piece *before = request->piece;
    int rc = 0;
    for (uint32_t i = 0; before && i < before->n_files && rc == 0; i++) {
        const bool again = piece && i < piece->n_files && piece->files[i] == before->files[i];
        rc = again ? 0 : rfs_files_check(assembler->files, before->files[i]);
    }
    if (rc < 0)
        rfs_cache_drop(assembler->cache, before);
    if (before && !request->lent)
        rfs_cache_unpin(assembler->cache, before);
    request->piece = piece;
    request->lent = false;
    return rc;
}

/* Moves the reply to where reading [begin, end) of the slice is fast. */
static void move_reply(const struct request *request, uint64_t begin, uint64_t end)
{
    struct rfs_reply *reply = request->reply;
    if (reply->moved || reply->iov_count >= reply->iov_max)
        return;
    const uint64_t source = rfs_gather_source(request->slice, begin);
    reply->moved = source != RFS_NO_SOURCE && rfs_distance_is_slow(reply->at, source, end - begin);
    reply->at += reply->moved ? RFS_DISTANCE_STEP : 0;
}

/* Answers [begin, end) straight from the sources. */
static int answer_directly(const struct request *request, uint64_t begin, uint64_t end)
{
    struct rfs_reply *reply = request->reply;
    if (begin == end)
        return 0;
    if (reply)
        move_reply(request, begin, end);
    unsigned char *at = reply ? reply->at : request->buf + (begin - request->begin);
    const int rc =
        fetch(request->assembler, request->slice, begin, end, at, RFS_GATHER_PROVEN, false);
    return rc < 0 || !reply ? rc : rfs_assemble_copied(reply, (size_t)(end - begin));
}

/* Answers [begin, end), which lies in the request's piece. */
static int answer_from_piece(struct request *request, uint64_t begin, uint64_t end)
{
    struct rfs_cache_piece *piece = request->piece;
    const size_t from = (size_t)(begin % RFS_PIECE), size = (size_t)(end - begin);
    struct rfs_reply *reply = request->reply;
    if (from + size == piece->size)
        atomic_store(&piece->read_through, true);
    request->lent = reply && lend(reply, piece, from, size);
    if (request->lent)
        return 0;
    memcpy(reply ? reply->at : request->buf + (begin - request->begin), piece->data + from, size);
    return reply ? rfs_assemble_copied(reply, size) : 0;
}

/*
 * Gets a piece for a request that was not read ahead. If it is not there, the pieces behind it are
 * missing as well, most likely, and slow sources are read for all of them at once.
 */
static int make_with_next(const struct request *request, uint64_t number,
                          struct rfs_cache_piece **piece)
{
    struct rfs_assembler *assembler = request->assembler;
    const int got = get_piece(assembler, request->slice, number, RFS_WANT_PASSED, NULL, piece);
    if (got != RFS_GOT_NOTHING)
        return got;
    rfs_prefetch_soon(assembler->prefetch, request->slice, number * RFS_PIECE, request->end);
    return get_piece(assembler, request->slice, number, RFS_WANT_MADE, NULL, piece);
}

/* Says whether bands are made of a slice, so that its source bytes are wanted more than once. */
static bool is_strided(const struct rfs_slice *slice)
{
    for (size_t i = 0; i < slice->n; i++)
        if (slice->blocks[i].strided)
            return true;
    return false;
}

/*
 * Gets a piece for a request. A gathered piece is cached; a contiguous one is there only if it was
 * read ahead.
 */
static int find_piece(const struct request *request, uint64_t number, bool gathered,
                      struct rfs_cache_piece **piece)
{
    struct rfs_assembler *assembler = request->assembler;
    const bool cache = request->sequential || request->end - request->begin >= RFS_SMALL;
    *piece = NULL;
    if (request->once && !is_strided(request->slice))
        return RFS_GOT_NOTHING;
    if (request->sequential)
        cancel_ahead(assembler, request->slice, number);
    if (gathered && cache && !request->sequential && rfs_prefetch_is_slow(assembler->prefetch) &&
        (number + 1) * RFS_PIECE < request->end)
        return make_with_next(request, number, piece);
    if (gathered)
        return get_piece(assembler, request->slice, number, cache ? RFS_WANT_MADE : RFS_WANT_FOUND,
                         NULL, piece);
    return request->sequential
               ? get_piece(assembler, request->slice, number, RFS_WANT_PASSED, NULL, piece)
               : RFS_GOT_NOTHING;
}

static int answer(struct request *request)
{
    const struct rfs_slice *slice = request->slice;
    uint64_t waiting = request->begin; /* bytes from here to AT are read directly, in one go */
    for (uint64_t at = request->begin, next; at < request->end; at = next) {
        struct rfs_cache_piece *piece;
        const uint64_t number = at / RFS_PIECE;
        const uint64_t piece_begin = number * RFS_PIECE;
        const uint64_t piece_end = piece_begin + rfs_min_u64(RFS_PIECE, slice->bytes - piece_begin);
        next = rfs_min_u64(request->end, piece_end);
        const bool gathered = rfs_gather_needed(slice, piece_begin, piece_end);
        int rc = find_piece(request, number, gathered, &piece);
        if (rc < 0)
            return rc;
        if (!piece)
            continue;
        rc = turn_to(request, piece);
        if (rc == 0)
            rc = answer_directly(request, waiting, at);
        if (rc == 0)
            rc = answer_from_piece(request, at, next);
        if (rc < 0)
            return rc;
        waiting = next;
    }
    return answer_directly(request, waiting, request->end);
}

static int assemble(struct request *request)
{
    const struct rfs_slice *slice = request->slice;
    if (request->begin > request->end || request->end > slice->bytes)
        return -EINVAL;
    const int rc = answer(request);
    const int turned = turn_to(request, NULL);
    return rc < 0 ? rc : turned;
}

int rfs_assemble(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t begin,
                 size_t size, bool sequential, void *buf)
{
    return assemble(
        &(struct request){assembler, slice, begin, begin + size, sequential, .buf = buf});
}

static int borrow(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t begin,
                  size_t size, bool sequential, bool once, struct rfs_reply *reply)
{
    return assemble(&(struct request){assembler, slice, begin, begin + size, sequential,
                                      .reply = reply, .once = once});
}

int rfs_assemble_borrow(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                        uint64_t begin, size_t size, bool sequential, struct rfs_reply *reply)
{
    return borrow(assembler, slice, begin, size, sequential, false, reply);
}

/* ---- casting --------------------------------------------------------------------------------- */

/*
 * Entries of a reply with RFS_SCRATCH bytes, which lie in two pieces at most; and one for copied
 * bytes.
 */
#define SPANS 4

_Static_assert(RFS_SCRATCH < RFS_PIECE && RFS_PIECE % sizeof(uint64_t) == 0,
               "the borrowed bytes are whole elements of at most two pieces");

/* A request for bytes [begin, end) of the slice as it is cast. */
struct casting {
    struct rfs_assembler *assembler;
    const struct rfs_slice *slice;
    const struct rfs_casting *types;
    size_t from_bytes, to_bytes; /* bytes of an element */
    uint64_t begin, end;
    bool sequential, once;
    unsigned char *scratch;
    unsigned char *dst; /* address for byte BEGIN */
};

static void cast(const struct rfs_casting *types, void *dst, const void *src, size_t count)
{
    if (types->by_float32)
        rfs_cast_by_float32(types->to, dst, src, count);
    else
        rfs_cast(types->to, dst, types->from, src, count);
}

/* Casts one element, and puts its requested part: requests may begin and end anywhere. */
static void cast_part(const struct casting *casting, uint64_t element, const unsigned char *src)
{
    const uint64_t at = element * casting->to_bytes;
    const uint64_t from = rfs_max_u64(at, casting->begin);
    const uint64_t to = rfs_min_u64(at + casting->to_bytes, casting->end);
    unsigned char whole[sizeof(uint64_t)];

    cast(casting->types, whole, src, 1);
    memcpy(casting->dst + (from - casting->begin), whole + (from - at), (size_t)(to - from));
}

/* Casts COUNT elements from FIRST on, all requested, if only in part. */
static void cast_elements(const struct casting *casting, uint64_t first, size_t count,
                          const unsigned char *src)
{
    const size_t head = first * casting->to_bytes < casting->begin;
    const size_t tail = count > head && (first + count) * casting->to_bytes > casting->end;
    const size_t whole = count - head - tail;
    const unsigned char *middle = src + head * casting->from_bytes;

    if (head > 0)
        cast_part(casting, first, src);
    if (whole > 0)
        cast(casting->types, casting->dst + ((first + head) * casting->to_bytes - casting->begin),
             middle, whole);
    if (tail > 0)
        cast_part(casting, first + count - 1, middle + whole * casting->from_bytes);
}

/* Assembles and casts COUNT elements from FIRST on, of at most RFS_SCRATCH source bytes. */
static int cast_some(const struct casting *casting, uint64_t first, size_t count)
{
    struct iovec iov[SPANS];
    struct rfs_pins pins = {0};
    struct rfs_reply reply = {.at = casting->scratch, .iov = iov, .iov_max = SPANS, .pins = &pins};
    const int rc = borrow(casting->assembler, casting->slice, first * casting->from_bytes,
                          count * casting->from_bytes, casting->sequential, casting->once, &reply);

    for (int i = 0; rc == 0 && i < reply.iov_count; i++) {
        const size_t n = iov[i].iov_len / casting->from_bytes;
        cast_elements(casting, first, n, iov[i].iov_base);
        first += n;
    }
    rfs_assemble_unpin(casting->assembler, &pins);
    return rc;
}

/* Assembles and casts bytes up to casting->begin + SIZE. */
static int cast_all(struct casting *casting, size_t size)
{
    const struct rfs_slice *slice = casting->slice;
    int rc = 0;

    casting->from_bytes = rfs_dtype_bytes(casting->types->from);
    casting->to_bytes = rfs_dtype_bytes(casting->types->to);
    const size_t most = (size_t)RFS_SCRATCH / casting->from_bytes;
    if (slice->bytes % casting->from_bytes != 0 ||
        !rfs_add_u64(casting->begin, size, &casting->end))
        return -EINVAL;
    const uint64_t last = rfs_ceil_u64(casting->end, casting->to_bytes);
    if (last > slice->bytes / casting->from_bytes)
        return -EINVAL;
    struct rfs_scratch *scratch = rfs_scratch_take(casting->assembler);
    if (!scratch)
        return -ENOMEM;
    casting->scratch = scratch->bytes;
    for (uint64_t at = casting->begin / casting->to_bytes; rc == 0 && size > 0 && at < last;
         at += most)
        rc = cast_some(casting, at, (size_t)rfs_min_u64(most, last - at));
    rfs_scratch_give(casting->assembler, scratch);
    return rc;
}

int rfs_assemble_cast(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                      const struct rfs_casting *types, uint64_t begin, size_t size, bool sequential,
                      void *buf)
{
    struct casting casting = {.assembler = assembler,
                              .slice = slice,
                              .types = types,
                              .begin = begin,
                              .sequential = sequential,
                              .dst = buf};

    return cast_all(&casting, size);
}

int rfs_assemble_once(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                      const struct rfs_casting *types, uint64_t begin, size_t size, void *buf)
{
    struct casting casting = {.assembler = assembler,
                              .slice = slice,
                              .types = types,
                              .begin = begin,
                              .once = true,
                              .dst = buf};

    return types ? cast_all(&casting, size)
                 : assemble(&(struct request){assembler, slice, begin, begin + size, .buf = buf,
                                              .once = true});
}

void rfs_assemble_uncast(const struct rfs_casting *types, uint64_t *begin, uint64_t *end)
{
    const uint32_t from = rfs_dtype_bytes(types->from);
    const uint32_t to = rfs_dtype_bytes(types->to);

    *begin = *begin / to * from;
    *end = rfs_ceil_u64(*end, to) * from;
}

/* ---- the assembler --------------------------------------------------------------------------- */

uint64_t rfs_assemble_reach(struct rfs_assembler *assembler)
{
    return rfs_prefetch_reach(assembler->prefetch);
}

bool rfs_assemble_prefetch(struct rfs_assembler *assembler, const struct rfs_gather_ranges *ranges)
{
    return rfs_prefetch_want(assembler->prefetch, ranges);
}

struct rfs_assembler *rfs_assembler_new(struct rfs_catalog *catalog, uint64_t budget,
                                        struct rfs_pool *pool)
{
    struct rfs_assembler *assembler = calloc(1, sizeof *assembler);
    if (!assembler)
        return NULL;
    assembler->cache = rfs_cache_new(budget);
    if (!assembler->cache) {
        free(assembler);
        return NULL;
    }
    assembler->files = rfs_catalog_files(catalog);
    assembler->prefetch =
        rfs_prefetch_new(assembler->files, rfs_store_is_url(rfs_catalog_path(catalog)),
                         assembler->cache, budget, pool);
    if (!assembler->prefetch) {
        rfs_cache_free(assembler->cache);
        free(assembler);
        return NULL;
    }
    assembler->budget = budget;
    assembler->pool = pool;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    assembler->runners =
        processors < 2 ? 1 : (unsigned)rfs_min_u64((uint64_t)processors, MOST_RUNNERS);
    pthread_mutex_init(&assembler->lock, NULL);
    pthread_cond_init(&assembler->idle, NULL);
    return assembler;
}

void rfs_assembler_stop(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    drop_queue(assembler);
    pthread_mutex_unlock(&assembler->lock);
    rfs_prefetch_stop(assembler->prefetch);
}

void rfs_assembler_free(struct rfs_assembler *assembler)
{
    if (!assembler)
        return;
    stop_ahead(assembler);
    rfs_prefetch_free(assembler->prefetch);
    rfs_cache_free(assembler->cache);
    while (assembler->scratch) {
        struct rfs_scratch *scratch = assembler->scratch;
        assembler->scratch = scratch->next;
        rfs_pages_free(scratch, sizeof *scratch);
    }
    pthread_cond_destroy(&assembler->idle);
    pthread_mutex_destroy(&assembler->lock);
    free(assembler);
}

void rfs_assembler_limit(struct rfs_assembler *assembler, uint64_t budget)
{
    rfs_cache_limit(assembler->cache, budget);
}

void rfs_assembler_count(struct rfs_assembler *assembler, struct rfs_assembler_counters *out)
{
    *out = (struct rfs_assembler_counters){.budget = assembler->budget};
    rfs_cache_count(assembler->cache, &out->cache);
    pthread_mutex_lock(&assembler->lock);
    out->ahead = assembler->ahead;
    pthread_mutex_unlock(&assembler->lock);
}
