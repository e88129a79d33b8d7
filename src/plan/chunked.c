/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of a checkpoint that describes itself: slices that are made of chunks, the files of a plan,
 * and further copies of chunks, which are counted and found for verify, and compared before a file
 * is shown.
 *
 * Files of FSDP, and shards of torch.distributed.checkpoint, name their tensors each for itself. A
 * tensor that several of them have whole, or that more files have than its placements say, is one
 * that nothing proves to be the same: ranks may have parts of their own under one name. Such a
 * tensor is taken from the first file, on trust, and a note names it. Where copies differ, a note
 * says so. This is seen by samples, as it is for rank files (unproved.c), within the same limit.
 *
 * strict compares all bytes of what is taken on trust, and samples of all copies that placements
 * promise, and refuses a tensor whose copies differ.
 *
 * The copies of a Checkpoint 2.0 are what its metadata.json says; only verify reads them.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/differ.h"
#include "base/order.h"
#include "base/text.h"
#include "formats/chunks/boxes.h"
#include "plan/pieces.h"
#include "plan/sample.h"

#define NOWHERE UINT64_MAX
#define STEP ((size_t)256 << 10) /* bytes that are compared at once */

/* A further copy of a chunk that is compared with the chunk. */
struct pair {
    const struct rfs_target *target;
    uint32_t chunk, copy;
    bool whole;      /* all bytes are compared, not samples */
    uint32_t file;   /* where the copy is */
    uint64_t offset; /* in that file, of the first difference; NOWHERE: none was seen */
};

struct comparing {
    struct rfs_planning *planning;
    struct rfs_chunks *chunks;
    RFS_VEC(const struct rfs_target *) targets; /* whose copies were not compared yet */
    RFS_VEC(struct pair) pairs;
};

static void comparing_end(struct comparing *comparing)
{
    free(comparing->targets.data);
    free(comparing->pairs.data);
}

static bool is_packed(const struct rfs_chunks *chunks, uint32_t chunk)
{
    return rfs_files_is_packed(chunks->files, chunks->chunks.data[chunk].file);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Two ranges of two files. */
struct ranges {
    struct rfs_files *files;
    uint32_t file[2];
    uint64_t at[2]; /* where they begin */
    unsigned char *bytes;
};

/* Reads a part of one of the ranges. No thread holds a file while it begins to read another. */
static int read_part(struct ranges *ranges, unsigned i, uint64_t begin, size_t n)
{
    struct rfs_reading reading;
    int rc = rfs_reading_begin(ranges->files, ranges->file[i], &reading);

    if (rc)
        return rc;
    rc = rfs_reading_pread(&reading, ranges->bytes + i * STEP, n, ranges->at[i] + begin);
    const int ended = rfs_reading_end(&reading);
    return ended ? ended : rc;
}

/*
 * Finds the first of N bytes from FROM on that differs; *at stays when none does. 0 or -errno.
 */
static int compare_range(struct ranges *ranges, uint64_t from, uint64_t n, uint64_t *at)
{
    const unsigned char *const a = ranges->bytes;
    const unsigned char *const b = ranges->bytes + STEP;

    for (uint64_t done = 0; done < n;) {
        const size_t part = (size_t)rfs_min_u64(STEP, n - done);
        const uint64_t begin = from + done;
        const int rc = read_part(ranges, 0, begin, part) ?: read_part(ranges, 1, begin, part);
        if (rc)
            return rc;
        const size_t first = rfs_differ_at(a, b, 0, part);
        if (first < part) {
            *at = begin + first;
            return 0;
        }
        done += part;
    }
    return 0;
}

static int compare_bytes(struct ranges *ranges, uint64_t bytes, bool whole, uint64_t *at)
{
    uint64_t from;
    int rc = 0;

    *at = NOWHERE;
    if (whole)
        return compare_range(ranges, 0, bytes, at);
    for (unsigned p = 0; rc == 0 && *at == NOWHERE && p < RFS_SAMPLE_PARTS; p++) {
        const size_t n = rfs_sample_part(bytes, p, &from);
        rc = compare_range(ranges, from, n, at);
    }
    return rc;
}

static int read_pair(const struct comparing *comparing, struct pair *pair, struct ranges *ranges)
{
    const struct rfs_chunk *chunk = &comparing->chunks->chunks.data[pair->chunk];
    const uint64_t bytes = rfs_chunks_type(comparing->chunks, chunk->type)->bytes;
    uint64_t at = NOWHERE;

    ranges->files = comparing->chunks->files;
    ranges->file[0] = chunk->file;
    ranges->file[1] = pair->file;
    const int rc = compare_bytes(ranges, bytes, pair->whole, &at);
    pair->offset = at == NOWHERE
                       ? NOWHERE
                       : rfs_files_offset(comparing->chunks->files, pair->file, ranges->at[1] + at);
    return rc;
}

/* Refuses a pair that differs. */
static int refuse(const struct comparing *comparing, const struct pair *pair)
{
    const struct rfs_chunks *chunks = comparing->chunks;
    const struct rfs_where where = {rfs_files_path(chunks->files, pair->file),
                                    (int64_t)pair->offset, rfs_chunks_name_of(chunks, pair->chunk)};

    return rfs_fail(comparing->planning->err, -EINVAL, where,
                    "files of one save; or without -o strict, to copy it as one file has it",
                    "has other bytes than its copy in %s",
                    rfs_files_path(chunks->files, chunks->chunks.data[pair->chunk].file));
}

static int compare_one(const struct comparing *comparing, struct pair *pair, struct rfs_error *err)
{
    const struct rfs_chunks *chunks = comparing->chunks;
    RFS_FREE unsigned char *bytes = malloc(2 * STEP);
    struct ranges ranges = {.bytes = bytes};
    struct rfs_chunked_copy copy;

    if (!bytes)
        return rfs_fail_memory(err);
    /* The file that is planned may need other chunks of the tensor only. */
    int rc = rfs_chunks_locate(comparing->chunks, pair->chunk, err)
                 ?: rfs_chunks_locate_copy(comparing->chunks, pair->chunk, pair->copy, &copy, err);
    if (rc)
        return rc;
    pair->file = copy.file;
    const struct rfs_chunk *chunk = &chunks->chunks.data[pair->chunk];
    const struct rfs_where where =
        RFS_OF(rfs_files_path(chunks->files, pair->file), rfs_chunks_name_of(chunks, pair->chunk));
    if (copy.type != chunk->type)
        return rfs_fail(err, -EINVAL, where, "files of one save that has ended",
                        "the file has no copy of that type and shape, and the metadata says so");
    if (!rfs_chunks_are_alike(comparing->chunks, rfs_chunks_type(chunks, chunk->type),
                              atomic_load(&chunk->at), copy.at, ranges.at))
        return rfs_fail(err, -ENOTSUP, where,
                        "reshard verify, which compares them; then without -o strict",
                        "has other strides than its copy in %s, or gaps between its elements, and "
                        "-o strict compares neither",
                        rfs_files_path(chunks->files, chunk->file));
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
    const size_t n = comparing->pairs.n;
    int rc = rfs_pool_for(comparing->planning->planner->config.pool, n, compare_pair, comparing);

    if (rc == 0 || rc == -EINTR)
        return rc;
    rc = 0; /* again, one after the other, for the message of the first that fails */
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = compare_one(comparing, &comparing->pairs.data[i], comparing->planning->err);
    return rc;
}

/* ---- which are compared ---------------------------------------------------------------------- */

/* Says whether the copies of a tensor were compared for another file of the view. */
static bool was_compared(struct rfs_planner *planner, uint32_t name)
{
    RFS_LOCKED(&planner->lock);
    return name < planner->compared.n && planner->compared.data[name];
}

/* Notes that the copies of a tensor were compared. False when out of memory. */
static bool note_compared(struct rfs_planner *planner, uint32_t name)
{
    RFS_LOCKED(&planner->lock);
    bool *compared = RFS_VEC_AT(&planner->compared, name, false);
    if (compared)
        *compared = true;
    return compared;
}

/*
 * Adds one copy of each chunk: number ROUND from the last one on. Returns how many were added, or
 * -1 when out of memory.
 */
static int add_round(struct comparing *comparing, const struct rfs_target *target, uint32_t round,
                     bool bounded)
{
    const struct rfs_chunked_tensor *tensor =
        rfs_plan_chunked_tensor(comparing->planning->planner, target);
    int added = 0;

    for (uint32_t c = tensor->first; c < tensor->first + tensor->n; c++) {
        const uint32_t n = rfs_chunks_count_copies(comparing->chunks, c);
        /* A sample of a compressed item would take all of it. */
        if (round >= n || (bounded && (is_packed(comparing->chunks, c) ||
                                       !rfs_plan_may_look(comparing->planning->planner))))
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

static int find_targets(struct comparing *comparing, const struct rfs_params *params)
{
    struct rfs_planner *planner = comparing->planning->planner;

    for (size_t i = 0; i < params->n; i++) {
        const struct rfs_target *target = &params->targets[i];
        if (rfs_planner_copies(planner, target) > 1 && !was_compared(planner, target->name) &&
            !RFS_PUSH(&comparing->targets, target))
            return rfs_fail_memory(comparing->planning->err);
    }
    return 0;
}

/* ---- by strict ------------------------------------------------------------------------------- */

static int compare_strictly(struct comparing *comparing, const struct rfs_target *target)
{
    int added = 1;

    comparing->pairs.n = 0;
    for (uint32_t round = 0; added > 0; round++)
        added = add_round(comparing, target, round, false);
    int rc = added < 0 ? rfs_fail_memory(comparing->planning->err) : compare_all(comparing);
    for (size_t i = 0; rc == 0 && i < comparing->pairs.n; i++)
        if (comparing->pairs.data[i].offset != NOWHERE)
            rc = refuse(comparing, &comparing->pairs.data[i]);
    return rc == 0 && !note_compared(comparing->planning->planner, target->name)
               ? rfs_fail_memory(comparing->planning->err)
               : rc;
}

/* ---- for notes ------------------------------------------------------------------------------- */

/*
 * Chooses copies of the tensors that are taken on trust, or of the others, round by round: so one
 * copy of many tensors is looked at rather than all of few.
 */
static int choose(struct comparing *comparing, bool on_trust)
{
    int added = 1;

    for (uint32_t round = 0; added > 0; round++) {
        added = 0;
        for (size_t i = 0; i < comparing->targets.n; i++) {
            const struct rfs_target *target = comparing->targets.data[i];
            const int more =
                rfs_plan_chunked_tensor(comparing->planning->planner, target)->on_trust == on_trust
                    ? add_round(comparing, target, round, true)
                    : 0;
            if (more < 0)
                return rfs_fail_memory(comparing->planning->err);
            added += more;
        }
    }
    return 0;
}

static int add_unproved(struct rfs_planning *planning, const struct rfs_target *target,
                        uint32_t from, uint32_t other)
{
    const struct rfs_unproved found = {.name = target->name,
                                       .type = target->type,
                                       .from = from,
                                       .other = other,
                                       .where = RFS_IN_SEVERAL_FILES};

    return RFS_PUSH(&planning->unproved, found) ? 0 : rfs_fail_memory(planning->err);
}

static int note_all(struct comparing *comparing)
{
    struct rfs_planning *planning = comparing->planning;
    struct rfs_catalog *catalog = planning->catalog;
    const struct rfs_chunk *chunks = comparing->chunks->chunks.data;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < comparing->pairs.n; i++) {
        const struct pair *pair = &comparing->pairs.data[i];
        if (pair->offset != NOWHERE)
            rc = add_unproved(planning, pair->target, chunks[pair->chunk].file, pair->file);
    }
    for (size_t i = 0; rc == 0 && i < comparing->targets.n; i++) {
        const struct rfs_target *target = comparing->targets.data[i];
        const struct rfs_chunked_tensor *tensor =
            rfs_plan_chunked_tensor(comparing->planning->planner, target);
        if (tensor->on_trust && !rfs_plan_one_element(rfs_catalog_type(catalog, target->type)))
            rc = add_unproved(planning, target, chunks[tensor->first].file, RFS_NO_RANK);
        if (rc == 0 && !note_compared(planning->planner, target->name))
            rc = rfs_fail_memory(planning->err);
    }
    if (rc == 0)
        rfs_plan_note_unproved(planning);
    return rc;
}

/*
 * Compares copies of the tensors of a plan whose chunks are located. Copies that differ are refused
 * by strict, else noted. 0 or -errno with *err filled.
 */
static int compare_copies(struct rfs_planning *planning, const struct rfs_params *params)
{
    RFS_CLEANUP(comparing_end)
    struct comparing comparing = {.planning = planning,
                                  .chunks = rfs_catalog_chunks(planning->planner->config.catalog)};
    const bool strict = planning->planner->config.strict;

    if (!comparing.chunks->copies ||
        (comparing.chunks->format->locate_copy && !comparing.chunks->format->again) ||
        (!strict && rfs_notes_form(planning->planner) == RFS_TELL_ONE_SIDED))
        return 0;
    int rc = find_targets(&comparing, params);
    for (size_t i = 0; strict && rc == 0 && i < comparing.targets.n; i++)
        rc = compare_strictly(&comparing, comparing.targets.data[i]);
    if (strict || rc)
        return rc;
    return choose(&comparing, true)
               ?: choose(&comparing, false)
               ?: compare_all(&comparing)
               ?: note_all(&comparing);
}

/* ---- the files of a plan --------------------------------------------------------------------- */

/* The chunks of a plan, and the files that they are in. */
struct locating {
    struct rfs_chunks *chunks;
    RFS_VEC(uint32_t) list; /* chunks that are to be located, by file */
    RFS_VEC(size_t) files;  /* where the chunks of each file begin in the list */
    unsigned char *needed;  /* [all files] */
};

static void locating_end(struct locating *locating)
{
    free(locating->list.data);
    free(locating->files.data);
    free(locating->needed);
}

/* Marks the file that a located chunk is read from. */
static void note_file(const struct locating *locating, uint32_t chunk)
{
    const struct rfs_chunks *chunks = locating->chunks;

    locating->needed[rfs_chunks_file_of(chunks, chunk) - chunks->first_file] = 1;
}

static int note_chunk(void *ctx, const struct rfs_piece_source *source)
{
    struct locating *locating = ctx;
    const struct rfs_chunk *chunk = &locating->chunks->chunks.data[source->chunk];

    /* A compressed one is located when it is read, as it is decompressed for that. */
    if (atomic_load_explicit(&chunk->at, memory_order_acquire) == RFS_NOT_LOCATED &&
        !is_packed(locating->chunks, source->chunk))
        return RFS_PUSH(&locating->list, source->chunk) ? 0 : -ENOMEM;
    note_file(locating, source->chunk);
    return 0;
}

static int by_file(const void *a, const void *b, void *ctx)
{
    const struct rfs_chunks *chunks = ctx;
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    const uint32_t of_x = chunks->chunks.data[x].file;
    const uint32_t of_y = chunks->chunks.data[y].file;

    return of_x != of_y ? (of_x < of_y ? -1 : 1) : (x > y) - (x < y);
}

/* Sorts the list by file. False when out of memory. */
static bool group(struct locating *locating)
{
    const struct rfs_chunk *chunks = locating->chunks->chunks.data;
    const uint32_t *list = locating->list.data;

    RFS_SORT_BY(locating->list.data, locating->list.n, by_file, locating->chunks);
    for (size_t i = 0; i < locating->list.n; i++)
        if ((i == 0 || chunks[list[i]].file != chunks[list[i - 1]].file) &&
            !RFS_PUSH(&locating->files, i))
            return false;
    return RFS_PUSH(&locating->files, locating->list.n);
}

static int locate_file(const struct locating *locating, size_t file, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = locating->files.data[file]; rc == 0 && i < locating->files.data[file + 1]; i++)
        rc = rfs_chunks_locate(locating->chunks, locating->list.data[i], err);
    return rc;
}

static int locate_job(void *ctx, size_t i)
{
    return locate_file(ctx, i, NULL);
}

static int locate_all(struct rfs_planning *planning, struct locating *locating)
{
    if (!group(locating))
        return rfs_fail_memory(planning->err);
    const size_t n = locating->files.n - 1;
    int rc = rfs_pool_for(planning->planner->config.pool, n, locate_job, locating);
    if (rc == 0 || rc == -EINTR)
        return rc;
    rc = 0; /* again, one after the other, for the message of the first that fails */
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = locate_file(locating, i, planning->err);
    return rc;
}

/* A file that was written after the metadata that names it, and the times of both. */
struct newer {
    uint32_t file, metadata;
    struct timespec times[2];
};

/*
 * Refuses (strict) or reports files that were written after the metadata, which is written last:
 * when a save into the folder breaks off, the metadata is that of the save before. Copies of a
 * folder may look so, too.
 */
static int tell_newer(struct rfs_planning *planning, const struct rfs_chunks *chunks,
                      const struct newer *newer)
{
    const struct rfs_planner_config *config = &planning->planner->config;
    const bool strict =
        config->strict || (planning->planner->from && planning->planner->from->config.strict);
    const char *path = rfs_files_path(chunks->files, newer->file);
    const char *metadata = rfs_path_name(rfs_files_path(chunks->files, newer->metadata));
    char times[2][RFS_TIME_TEXT];

    rfs_text_time(times[0], newer->times[0]);
    rfs_text_time(times[1], newer->times[1]);
    if (strict)
        return rfs_fail(planning->err, -EINVAL, RFS_IN(path),
                        "a save that has ended, copied with its times (cp -a)",
                        "the file is of %s, newer than '%s' of %s, which is written last", times[0],
                        metadata, times[1]);
    if (rfs_notes_are_new(planning->planner, RFS_NOTE_NEWER_FILE, 0))
        rfs_notes_add(planning->planner, RFS_NOTE_NEWER_FILE, RFS_WARNING,
                      "%s: the file is of %s, newer than '%s' of %s, which is written last: it may "
                      "be of another save, or a copy that lost its times; try: cp -a",
                      path, times[0], metadata, times[1]);
    return 0;
}

/* Takes a file into the attributes of a plan, and gives its time. */
static int add_file(const struct rfs_planning *planning, uint32_t file, struct rfs_rank_plan *plan,
                    struct timespec *time)
{
    const struct timespec last = plan->mtime;
    const bool first = plan->n_sources == 0;

    plan->mtime = (struct timespec){.tv_sec = INT64_MIN};
    const int rc =
        rfs_plan_add_file(rfs_catalog_chunks(planning->catalog)->files, file, plan, planning->err);
    *time = plan->mtime;
    if (!first && !rfs_plan_is_later(*time, last))
        plan->mtime = last;
    return rc;
}

/*
 * Takes the needed files, and the metadata that names them, into the attributes of a plan, when all
 * is located.
 */
static int add_files(struct rfs_planning *planning, const struct locating *locating,
                     struct rfs_rank_plan *plan)
{
    const struct rfs_chunks *chunks = locating->chunks;
    struct newer newer = {.file = RFS_NO_ID};
    struct timespec times[2]; /* of a file, and of the metadata that names it */
    uint32_t metadata = chunks->metadata;

    for (size_t i = 0; i < locating->list.n; i++)
        note_file(locating, locating->list.data[i]);
    int rc = add_file(planning, metadata, plan, &times[1]);
    for (uint32_t i = 0; rc == 0 && i < chunks->n_all_files; i++) {
        if (!locating->needed[i])
            continue;
        if (chunks->named_by.n > 0 && chunks->named_by.data[i] != metadata) {
            metadata = chunks->named_by.data[i];
            rc = add_file(planning, metadata, plan, &times[1]);
        }
        rc = rc ?: add_file(planning, chunks->first_file + i, plan, &times[0]);
        if (rc == 0 && chunks->times_tell && rfs_plan_is_later(times[0], times[1]) &&
            (newer.file == RFS_NO_ID || rfs_plan_is_later(times[0], newer.times[0])))
            newer = (struct newer){chunks->first_file + i, metadata, {times[0], times[1]}};
    }
    return rc || newer.file == RFS_NO_ID ? rc : tell_newer(planning, chunks, &newer);
}

int rfs_plan_chunked_attributes(struct rfs_planning *planning, struct rfs_rank_plan *plan)
{
    struct rfs_chunks *chunks = rfs_catalog_chunks(planning->catalog);
    RFS_CLEANUP(locating_end) struct locating locating = {.chunks = chunks};
    int rc = 0;

    locating.needed = calloc((size_t)chunks->n_all_files + 1, 1);
    if (!locating.needed)
        return rfs_fail_memory(planning->err);
    for (size_t i = 0; rc == 0 && i < plan->params->n; i++)
        rc = rfs_plan_chunks(planning->planner, planning->local, &plan->params->targets[i],
                             note_chunk, &locating);
    if (rc)
        return rc == -ENOMEM ? rfs_fail_memory(planning->err) : rc;
    rc = locate_all(planning, &locating) ?: compare_copies(planning, plan->params);
    if (rc)
        return rc;
    plan->mode = 0444;
    plan->sources =
        malloc(((size_t)chunks->n_all_files + chunks->first_file + 1) * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(planning->err);
    return add_files(planning, &locating, plan);
}
