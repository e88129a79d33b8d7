/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which bytes are read straight from the sources, which go through pieces, and which are
 * borrowed from them.
 */
#include "assemble/ahead.h"
#include "assemble/band.h"
#include "assemble/internal.h"

#include "base/checked.h"
#include "base/store.h"
#include "base/vec.h"

#include <unistd.h>

#define MOST_RUNNERS 4

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
    assembler->secret = rfs_files_secret(assembler->files);
    rfs_cache_keep_secret(assembler->cache, assembler->secret);
    assembler->prefetch = rfs_prefetch_new(assembler->files, rfs_is_url(rfs_catalog_path(catalog)),
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
    rfs_ahead_drop(assembler);
    rfs_prefetch_stop(assembler->prefetch);
}

void rfs_assembler_free(struct rfs_assembler *assembler)
{
    if (!assembler)
        return;
    rfs_ahead_stop(assembler);
    rfs_prefetch_free(assembler->prefetch);
    rfs_cache_free(assembler->cache);
    while (assembler->scratch) {
        struct scratch *scratch = assembler->scratch;
        assembler->scratch = scratch->next;
        if (assembler->secret)
            rfs_secret_unmap(scratch, sizeof *scratch);
        else
            free(scratch);
    }
    pthread_cond_destroy(&assembler->idle);
    pthread_mutex_destroy(&assembler->lock);
    free(assembler);
}

struct scratch *rfs_scratch_take(struct rfs_assembler *assembler)
{
    pthread_mutex_lock(&assembler->lock);
    struct scratch *scratch = assembler->scratch;
    if (scratch)
        assembler->scratch = scratch->next;
    pthread_mutex_unlock(&assembler->lock);
    if (!scratch)
        scratch = assembler->secret ? rfs_secret_map(assembler->secret, sizeof *scratch)
                                    : malloc(sizeof *scratch);
    return scratch;
}

void rfs_scratch_give(struct rfs_assembler *assembler, struct scratch *scratch)
{
    pthread_mutex_lock(&assembler->lock);
    scratch->next = assembler->scratch;
    assembler->scratch = scratch;
    pthread_mutex_unlock(&assembler->lock);
}

void rfs_piece_note_files(struct rfs_piece *piece, const struct rfs_slice *slice, uint64_t begin)
{
    const uint64_t end = begin + piece->size;
    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        uint32_t seen = 0;
        if (!rfs_gather_touches(block, begin, end))
            continue;
        while (seen < piece->n_files && piece->files[seen] != block->file)
            seen++;
        if (seen == piece->n_files)
            piece->files[piece->n_files++] = block->file;
    }
}

int rfs_piece_get(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t number,
                  enum rfs_cache_want want, bool passing, struct rfs_piece **out)
{
    const uint64_t begin = number * RFS_PIECE;
    const size_t size = (size_t)rfs_min_u64(RFS_PIECE, slice->bytes - begin);
    const struct rfs_piece_key key = {{slice->id[0], slice->id[1]}, number};
    int got = rfs_cache_get(assembler->cache, &key, size, slice->n, want, out);
    if (got == RFS_GOT_CLAIM) {
        (*out)->passing = passing;
        rfs_piece_note_files(*out, slice, begin);
        const bool ahead = want == RFS_WANT_ABSENT;
        int rc = rfs_band_make(assembler, slice, number, *out, ahead);
        if (rc > 0)
            rc = rfs_fetch(assembler, slice, begin, begin + size, (*out)->data, RFS_GATHER_UNPROVEN,
                           ahead);
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

int rfs_reply_copied(struct rfs_reply *reply, size_t size)
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

static struct rfs_piece **pin_at(struct rfs_pins *pins, size_t i)
{
    return i < RFS_PINS_FEW ? &pins->few[i] : &pins->more[i - RFS_PINS_FEW];
}

/*
 * Lends [from, from + size) of the piece if there is room; the last entry is kept for copied bytes.
 */
static bool lend(struct rfs_reply *reply, struct rfs_piece *piece, size_t from, size_t size)
{
    struct rfs_pins *pins = reply->pins;
    if (reply->iov_count + 2 > reply->iov_max)
        return false;
    if (pins->n >= RFS_PINS_FEW && pins->n - RFS_PINS_FEW == pins->cap &&
        !rfs_vec_grow((void **)&pins->more, &pins->cap, pins->cap, sizeof(struct rfs_piece *)))
        return false;
    *pin_at(pins, pins->n++) = piece;
    reply->iov[reply->iov_count++] = (struct iovec){piece->data + from, size};
    reply->at += size; /* its room stays unused */
    return true;
}

void rfs_pins_release(struct rfs_assembler *assembler, struct rfs_pins *pins)
{
    for (size_t i = 0; i < pins->n; i++)
        rfs_cache_unpin(assembler->cache, *pin_at(pins, i));
    free(pins->more);
    *pins = (struct rfs_pins){0};
}

/* A range of a slice that is read, into buf or as a reply. */
struct request {
    struct rfs_assembler *assembler;
    const struct rfs_slice *slice;
    uint64_t begin, end;
    bool sequential;
    unsigned char *buf;      /* where byte BEGIN goes; NULL with a reply */
    struct rfs_reply *reply; /* or NULL */
    /* the last one that bytes came from, whose files are not checked yet; pinned */
    struct rfs_piece *piece;
    bool lent; /* the loan unpins it */
};

/*
 * Bytes come from PIECE now, or from none any more. Pieces that follow each other are mostly made
 * from the same files, named in the same order: to check a file after the last of them is enough. 0
 * or -errno.
 */
static int turn_to(struct request *request, struct rfs_piece *piece)
{
    struct rfs_assembler *assembler = request->assembler;
    struct rfs_piece *before = request->piece;
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
    reply->moved = source != RFS_NO_SOURCE && rfs_place_is_slow(reply->at, source, end - begin);
    reply->at += reply->moved ? RFS_PLACE_STEP : 0;
}

static int answer_directly(const struct request *request, uint64_t begin, uint64_t end)
{
    struct rfs_reply *reply = request->reply;
    if (begin == end)
        return 0;
    if (reply)
        move_reply(request, begin, end);
    unsigned char *at = reply ? reply->at : request->buf + (begin - request->begin);
    const int rc =
        rfs_fetch(request->assembler, request->slice, begin, end, at, RFS_GATHER_PROVEN, false);
    return rc < 0 || !reply ? rc : rfs_reply_copied(reply, (size_t)(end - begin));
}

/* [begin, end) lies in the request's piece. */
static int answer_from_piece(struct request *request, uint64_t begin, uint64_t end)
{
    struct rfs_piece *piece = request->piece;
    const size_t from = (size_t)(begin % RFS_PIECE), size = (size_t)(end - begin);
    struct rfs_reply *reply = request->reply;
    if (from + size == piece->size)
        atomic_store(&piece->read_through, true);
    request->lent = reply && lend(reply, piece, from, size);
    if (request->lent)
        return 0;
    memcpy(reply ? reply->at : request->buf + (begin - request->begin), piece->data + from, size);
    return reply ? rfs_reply_copied(reply, size) : 0;
}

/*
 * A piece of a request that was not read ahead: if it is not there, those behind it are missing as
 * well, most likely, and slow sources are read for all of them at once.
 */
static int make_with_next(const struct request *request, uint64_t number, struct rfs_piece **piece)
{
    struct rfs_assembler *assembler = request->assembler;
    const int got = rfs_piece_get(assembler, request->slice, number, RFS_WANT_PASSED, false, piece);
    if (got != RFS_GOT_NOTHING)
        return got;
    rfs_fetch_soon(assembler, request->slice, number * RFS_PIECE, request->end);
    return rfs_piece_get(assembler, request->slice, number, RFS_WANT_MADE, false, piece);
}

/* A gathered piece is kept; a contiguous one is there only if it was read ahead. */
static int find_piece(const struct request *request, uint64_t number, bool gathered,
                      struct rfs_piece **piece)
{
    struct rfs_assembler *assembler = request->assembler;
    const bool keep = request->sequential || request->end - request->begin >= RFS_SMALL;
    *piece = NULL;
    if (gathered && keep && !request->sequential && rfs_prefetch_is_slow(assembler->prefetch) &&
        (number + 1) * RFS_PIECE < request->end)
        return make_with_next(request, number, piece);
    if (gathered)
        return rfs_piece_get(assembler, request->slice, number,
                             keep ? RFS_WANT_MADE : RFS_WANT_FOUND, false, piece);
    if (!request->sequential)
        return RFS_GOT_NOTHING;
    rfs_ahead_cancel(assembler, request->slice, number);
    return rfs_piece_get(assembler, request->slice, number, RFS_WANT_PASSED, true, piece);
}

static int answer(struct request *request)
{
    const struct rfs_slice *slice = request->slice;
    uint64_t waiting = request->begin; /* from here to at: to be read directly, in one go */
    for (uint64_t at = request->begin, next; at < request->end; at = next) {
        struct rfs_piece *piece;
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
    return assemble(&(struct request){.assembler = assembler,
                                      .slice = slice,
                                      .begin = begin,
                                      .end = begin + size,
                                      .sequential = sequential,
                                      .buf = buf});
}

int rfs_assemble_borrow(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                        uint64_t begin, size_t size, bool sequential, struct rfs_reply *reply)
{
    return assemble(&(struct request){.assembler = assembler,
                                      .slice = slice,
                                      .begin = begin,
                                      .end = begin + size,
                                      .sequential = sequential,
                                      .reply = reply});
}

void rfs_assembler_count(struct rfs_assembler *assembler, struct rfs_assembler_counters *out)
{
    *out = (struct rfs_assembler_counters){.budget = assembler->budget};
    rfs_cache_count(assembler->cache, &out->cache);
    pthread_mutex_lock(&assembler->lock);
    out->ahead = assembler->ahead;
    pthread_mutex_unlock(&assembler->lock);
}
