/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Further copies of a checkpoint that describes itself: counted and found for verify, and compared
 * before a file is shown.
 *
 * Files of FSDP, and shards of torch.distributed.checkpoint, name their tensors each for itself. A
 * tensor that several of them have whole, or that more files have than its placements say, is one
 * that nothing proves to be the same: ranks may have parts of their own under one name. Such a
 * tensor is taken from the first file, on trust, and the log names it. Where copies differ, the log
 * says so. This is seen by samples, as of rank files (unproved.c), within the same limit.
 *
 * strict compares all bytes of what is taken on trust, and samples of all copies that placements
 * promise, and refuses a tensor whose copies differ.
 *
 * The copies of a Checkpoint 2.0 are what its metadata.json says; only verify reads them.
 */
#include "plan/boxed.h"
#include "plan/copies.h"

#include "base/checked.h"
#include "base/cleanup.h"

#define NOWHERE UINT64_MAX
#define STEP ((size_t)64 << 10) /* bytes that are compared at once */
#define SAMPLE (RFS_SAMPLE_BYTES / 3)

/* A further copy of a chunk, to be compared with the chunk. */
struct pair {
    const struct rfs_target *target;
    uint32_t chunk, copy;
    bool whole;      /* all bytes are compared, not samples */
    uint32_t file;   /* of the copy */
    uint64_t offset; /* of the first difference, in that file; NOWHERE: none was seen */
};

struct comparing {
    struct planning *planning;
    struct rfs_chunks *boxes;
    RFS_VEC(struct pair) pairs;
};

static void comparing_end(struct comparing *comparing)
{
    free(comparing->pairs.data);
}

static const struct rfs_chunked_tensor *tensor_of(const struct comparing *comparing,
                                                  const struct rfs_target *target)
{
    return rfs_plan_chunked_tensor(comparing->planning->planner, target);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Two ranges of two files. */
struct ranges {
    struct rfs_reading reading[2];
    uint64_t at[2]; /* where they begin */
    unsigned char *bytes;
};

/* The first of N bytes from FROM on that differs, NOWHERE in *at when none does. 0 or -errno. */
static int compare_range(struct ranges *ranges, uint64_t from, uint64_t n, uint64_t *at)
{
    unsigned char *const a = ranges->bytes;
    unsigned char *const b = ranges->bytes + STEP;

    for (uint64_t done = 0; done < n;) {
        const size_t part = (size_t)rfs_min_u64(STEP, n - done);
        const uint64_t begin = from + done;
        const int rc =
            rfs_reading_pread(&ranges->reading[0], a, part, ranges->at[0] + begin)
                ?: rfs_reading_pread(&ranges->reading[1], b, part, ranges->at[1] + begin);
        if (rc)
            return rc;
        if (memcmp(a, b, part) != 0) {
            for (*at = begin; a[*at - begin] == b[*at - begin];)
                ++*at;
            return 0;
        }
        done += part;
    }
    return 0;
}

static int compare_bytes(struct ranges *ranges, uint64_t bytes, bool whole, uint64_t *at)
{
    int rc = 0;

    *at = NOWHERE;
    if (whole || bytes <= RFS_SAMPLE_BYTES)
        return compare_range(ranges, 0, bytes, at);
    for (unsigned i = 0; rc == 0 && *at == NOWHERE && i < 3; i++)
        rc = compare_range(ranges, (bytes - SAMPLE) / 2 * i, SAMPLE, at);
    return rc;
}

static int read_pair(const struct comparing *comparing, struct pair *pair, struct ranges *ranges)
{
    const struct rfs_chunk *chunk = &comparing->boxes->chunks.data[pair->chunk];
    const uint64_t bytes = rfs_chunks_type(comparing->boxes, chunk->type)->bytes;
    struct rfs_files *files = comparing->boxes->files;
    uint64_t at = NOWHERE;

    int rc = rfs_reading_begin(files, chunk->file, &ranges->reading[0]);
    if (rc)
        return rc;
    rc = rfs_reading_begin(files, pair->file, &ranges->reading[1]);
    if (rc == 0) {
        rc = compare_bytes(ranges, bytes, pair->whole, &at);
        const int ended = rfs_reading_end(&ranges->reading[1]);
        rc = ended ? ended : rc;
    }
    const int ended = rfs_reading_end(&ranges->reading[0]);
    rc = ended ? ended : rc;
    pair->offset = at == NOWHERE ? NOWHERE : ranges->at[1] + at;
    return rc;
}

/* Refuses a pair that differs. */
static int refuse(const struct comparing *comparing, const struct pair *pair)
{
    const struct rfs_chunks *boxes = comparing->boxes;
    const struct rfs_where where = {rfs_files_path(boxes->files, pair->file), (int64_t)pair->offset,
                                    rfs_chunks_name_of(boxes, pair->chunk)};

    return rfs_fail(comparing->planning->err, -EINVAL, where,
                    "files of one save; or without -o strict, to copy it as one file has it",
                    "has other bytes than its copy in %s",
                    rfs_files_path(boxes->files, boxes->chunks.data[pair->chunk].file));
}

static int compare_one(const struct comparing *comparing, struct pair *pair, struct rfs_error *err)
{
    const struct rfs_chunks *boxes = comparing->boxes;
    RFS_FREE unsigned char *bytes = malloc(2 * STEP);
    struct ranges ranges = {.bytes = bytes};
    struct rfs_chunked_copy copy;

    if (!bytes)
        return rfs_fail_memory(err);
    /* This file may need other chunks of the tensor alone. */
    int rc = rfs_chunks_locate(comparing->boxes, pair->chunk, err)
                 ?: rfs_chunks_locate_copy(comparing->boxes, pair->chunk, pair->copy, &copy, err);
    if (rc)
        return rc;
    pair->file = copy.file;
    const struct rfs_chunk *chunk = &boxes->chunks.data[pair->chunk];
    const struct rfs_where where =
        RFS_OF(rfs_files_path(boxes->files, pair->file), rfs_chunks_name_of(boxes, pair->chunk));
    if (!rfs_chunks_alike(comparing->boxes, rfs_chunks_type(boxes, chunk->type),
                          atomic_load(&chunk->at), copy.at, ranges.at))
        return rfs_fail(err, -ENOTSUP, where,
                        "reshard verify, which compares them; then without -o strict",
                        "has other strides than its copy in %s, or gaps between its elements, and "
                        "-o strict compares neither",
                        rfs_files_path(boxes->files, chunk->file));
    rc = read_pair(comparing, pair, &ranges);
    return rc ? rfs_fail(err, rc, where, NULL,
                         "cannot be compared with its copy in another file: %s", strerror(-rc))
              : 0;
}

static int compare_pair(void *ctx, size_t i)
{
    const struct comparing *comparing = ctx;
    const int rc = compare_one(comparing, &comparing->pairs.data[i], NULL);

    /* Without strict, files that cannot be read are left to their readers. */
    return comparing->planning->planner->config.strict || rc == -EINTR || rc == -ENOMEM ? rc : 0;
}

static int compare_all(struct comparing *comparing)
{
    struct planning *planning = comparing->planning;
    const size_t n = comparing->pairs.n;
    int rc = rfs_pool_for(planning->planner->config.pool, n, compare_pair, comparing);

    if (rc == 0 || rc == -EINTR)
        return rc;
    rc = 0; /* again, one after the other, for the message of the first that fails */
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = compare_one(comparing, &comparing->pairs.data[i], planning->err);
    return rc;
}

/* ---- which are compared ---------------------------------------------------------------------- */

/* Whether the copies of a tensor were compared for another file of the view. */
static bool was_compared(struct rfs_planner *planner, uint32_t name)
{
    pthread_mutex_lock(&planner->lock);
    const bool was =
        name < planner->reported.n && (planner->reported.data[name] & RFS_COPIES_COMPARED);
    pthread_mutex_unlock(&planner->lock);
    return was;
}

/* False when out of memory. */
static bool note_compared(struct rfs_planner *planner, uint32_t name)
{
    bool room = true;

    pthread_mutex_lock(&planner->lock);
    while (room && planner->reported.n <= name)
        room = RFS_PUSH(&planner->reported, 0);
    if (room)
        planner->reported.data[name] |= RFS_COPIES_COMPARED;
    pthread_mutex_unlock(&planner->lock);
    return room;
}

/* Adds copy number ROUND, from the last one on, of each chunk. How many; -1: no memory. */
static int add_round(struct comparing *comparing, const struct rfs_target *target, uint32_t round,
                     bool bounded)
{
    const struct rfs_chunked_tensor *tensor = tensor_of(comparing, target);
    int added = 0;

    for (uint32_t c = tensor->first; c < tensor->first + tensor->n; c++) {
        const uint32_t n = rfs_chunks_copies(comparing->boxes, c);
        if (round >= n || (bounded && !rfs_plan_may_look(comparing->planning->planner)))
            continue;
        const struct pair pair = {.target = target,
                                  .chunk = c,
                                  .copy = n - 1 - round,
                                  .whole = !bounded && tensor->on_trust,
                                  .offset = NOWHERE};
        if (!RFS_PUSH(&comparing->pairs, pair))
            return -1;
        added++;
    }
    return added;
}

/* The targets of a plan whose copies are to be compared. */
struct news {
    RFS_VEC(const struct rfs_target *) list;
};

static void news_end(struct news *news)
{
    free(news->list.data);
}

static int find_news(const struct comparing *comparing, const struct rfs_params *params,
                     struct news *news)
{
    struct planning *planning = comparing->planning;

    for (size_t i = 0; i < params->n; i++) {
        const struct rfs_target *target = &params->targets[i];
        const struct rfs_chunked_tensor *tensor = tensor_of(comparing, target);
        bool any = false;
        for (uint32_t c = 0; tensor && !any && c < tensor->n; c++)
            any = rfs_chunks_copies(comparing->boxes, tensor->first + c) > 0;
        if (any && !was_compared(planning->planner, target->name) && !RFS_PUSH(&news->list, target))
            return rfs_fail_memory(planning->err);
    }
    return 0;
}

/* ---- by strict ------------------------------------------------------------------------------- */

static int compare_strictly(struct comparing *comparing, const struct rfs_target *target)
{
    struct planning *planning = comparing->planning;
    int added = 1;

    comparing->pairs.n = 0;
    for (uint32_t round = 0; added > 0; round++)
        added = add_round(comparing, target, round, false);
    int rc = added < 0 ? rfs_fail_memory(planning->err) : compare_all(comparing);
    for (size_t i = 0; rc == 0 && i < comparing->pairs.n; i++)
        if (comparing->pairs.data[i].offset != NOWHERE)
            rc = refuse(comparing, &comparing->pairs.data[i]);
    return rc == 0 && !note_compared(planning->planner, target->name)
               ? rfs_fail_memory(planning->err)
               : rc;
}

/* ---- for the log ----------------------------------------------------------------------------- */

/*
 * Round by round, so that many tensors have a look at one copy rather than few at all, and those on
 * trust first.
 */
static int choose(struct comparing *comparing, const struct news *news, bool on_trust)
{
    int added = 1;

    for (uint32_t round = 0; added > 0; round++) {
        added = 0;
        for (size_t i = 0; i < news->list.n; i++) {
            const struct rfs_target *target = news->list.data[i];
            const int more = tensor_of(comparing, target)->on_trust == on_trust
                                 ? add_round(comparing, target, round, true)
                                 : 0;
            if (more < 0)
                return rfs_fail_memory(comparing->planning->err);
            added += more;
        }
    }
    return 0;
}

static int add_unproved(struct planning *planning, const struct rfs_target *target, uint32_t from,
                        uint32_t other)
{
    const struct unproved found = {.name = target->name,
                                   .type = target->type,
                                   .from = from,
                                   .other = other,
                                   .where = RFS_IN_SEVERAL_FILES};

    return RFS_PUSH(&planning->unproved, found) ? 0 : rfs_fail_memory(planning->err);
}

static int note_all(struct comparing *comparing, const struct news *news)
{
    struct planning *planning = comparing->planning;
    struct rfs_catalog *catalog = planning->planner->config.catalog;
    const struct rfs_chunk *chunks = comparing->boxes->chunks.data;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < comparing->pairs.n; i++) {
        const struct pair *pair = &comparing->pairs.data[i];
        if (pair->offset != NOWHERE)
            rc = add_unproved(planning, pair->target, chunks[pair->chunk].file, pair->file);
    }
    for (size_t i = 0; rc == 0 && i < news->list.n; i++) {
        const struct rfs_target *target = news->list.data[i];
        const struct rfs_chunked_tensor *tensor = tensor_of(comparing, target);
        if (tensor->on_trust && !rfs_plan_one_element(rfs_catalog_type(catalog, target->type)))
            rc = add_unproved(planning, target, chunks[tensor->first].file, RFS_NO_RANK);
        if (rc == 0 && !note_compared(planning->planner, target->name))
            rc = rfs_fail_memory(planning->err);
    }
    return rc ? rc : rfs_plan_report_unproved(planning);
}

int rfs_plan_compare_copies(struct planning *planning, const struct rfs_params *params)
{
    struct rfs_planner *planner = planning->planner;
    RFS_CLEANUP(comparing_end)
    struct comparing comparing = {.planning = planning,
                                  .boxes = rfs_catalog_chunks(planner->config.catalog)};
    RFS_CLEANUP(news_end) struct news news = {.list = {0}};
    const bool strict = planner->config.strict;

    if (!comparing.boxes->copies || comparing.boxes->format->locate_copy ||
        (!strict && atomic_load(&planner->telling) == RFS_TELL_ONE_SIDED))
        return 0;
    int rc = find_news(&comparing, params, &news);
    for (size_t i = 0; strict && rc == 0 && i < news.list.n; i++)
        rc = compare_strictly(&comparing, news.list.data[i]);
    if (strict || rc)
        return rc;
    return choose(&comparing, &news, true)
               ?: choose(&comparing, &news, false)
               ?: compare_all(&comparing)
               ?: note_all(&comparing, &news);
}

/* ---- for verify ------------------------------------------------------------------------------ */

uint32_t rfs_plan_chunked_copies(struct rfs_planner *planner, const struct rfs_target *target)
{
    const struct rfs_chunks *boxes = rfs_catalog_chunks(planner->config.catalog);
    const struct rfs_chunked_tensor *tensor = rfs_plan_chunked_tensor(planner, target);
    uint32_t most = 0;

    for (uint32_t i = 0; boxes->copies && tensor && i < tensor->n; i++) {
        const uint32_t n = rfs_chunks_copies(boxes, tensor->first + i);
        most = n > most ? n : most;
    }
    return 1 + most;
}

static void tell_bad(const struct rfs_chunked_walk *walk, const struct rfs_chunked_copy *copy,
                     const struct rfs_error *why, rfs_bad_copy_fn *each, void *ctx)
{
    const struct rfs_chunks *boxes = walk->boxes;
    const struct rfs_chunk *chunk = &boxes->chunks.data[walk->part.chunk];
    const struct rfs_type *want = rfs_chunks_type(boxes, chunk->type);
    const struct rfs_bad_copy bad = {
        .file = rfs_files_path(boxes->files, copy->file),
        .why = why->code ? why : NULL,
        .type = copy->type == RFS_NO_ID ? NULL : rfs_chunks_type(boxes, copy->type),
        .at = copy->at,
        .want = want,
        .begin = chunk->corner * rfs_dtype_bytes((enum rfs_dtype)want->dtype),
    };

    each(ctx, &bad);
}

int rfs_plan_chunked_bad_copies(struct rfs_planner *planner, uint32_t local,
                                const struct rfs_target *target, rfs_bad_copy_fn *each, void *ctx)
{
    struct rfs_chunked_walk walk;
    int rc = rfs_chunked_walk_begin(planner, local, target, &walk);

    while (rc == 0 && walk.boxes->copies && rfs_chunked_walk_next(&walk)) {
        const uint32_t n = rfs_chunks_copies(walk.boxes, walk.part.chunk);
        /* A damaged file is one of the copies then; its readers see other failures. */
        rc = rfs_chunks_locate((struct rfs_chunks *)walk.boxes, walk.part.chunk, NULL);
        rc = rc == -EINTR || rc == -ENOMEM ? rc : 0;
        for (uint32_t i = 0; rc >= 0 && i < n; i++) {
            struct rfs_chunked_copy copy;
            struct rfs_error why = {0};
            rc = rfs_chunked_walk_copy(&walk, i, &copy, &why);
            if (rc == 0)
                tell_bad(&walk, &copy, &why, each, ctx);
        }
        rc = rc < 0 ? rc : 0;
    }
    return rc;
}
