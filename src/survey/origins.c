/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/origins.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "reshard.h"
#include "store/encrypted.h"
#include "view/contents.h"

#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

/* The first word of a key, so that keys of different things never meet. */
enum { LITERAL = 1, TARGET, CAST, FILE_CRC, STORAGE_CRC };

/* A shown file that is planned. */
struct shown {
    struct rfs_view *view;
    size_t file;
    const struct rfs_image *image; /* held */
    struct rfs_tensors tensors;
};

static void shown_end(struct shown *shown)
{
    rfs_image_free(shown->image);
}
#define SHOWN RFS_CLEANUP(shown_end) struct shown

/* Finds a planned file. *OUT is zero-initialised. False: there is none, or it is not planned. */
static bool find(struct reshard_view *set, uint64_t id, struct shown *out)
{
    if (!rfs_view_find_file(set, id, &out->view, &out->file))
        return false;
    out->image = rfs_view_ready_image(out->view, out->file);
    if (out->image)
        out->tensors = rfs_tensors_of_file(out->view, out->file, out->image);
    return out->image != NULL;
}

/* ---- ranges of sources ----------------------------------------------------------------------- */

/*
 * Finds the part of a block's one run that lies in one piece in its file, from byte SKIP of the run
 * on.
 */
static void run_piece(const struct rfs_block *block, uint64_t skip, struct rfs_origins_run *out,
                      uint64_t *bytes)
{
    uint64_t at = block->src + skip;

    *bytes = block->run - skip;
    out->file = block->file;
    out->source = rfs_catalog_content_offset(&block->content, at);
    const struct rfs_extent *extent = block->content.extents;
    for (uint32_t i = 0; i < block->content.n; i++, extent++) {
        if (at < extent->bytes) {
            *bytes = rfs_min_u64(*bytes, extent->bytes - at);
            break;
        }
        at -= extent->bytes;
    }
}

/*
 * Finds the first piece of [begin, end) of the slice, of at least LEAST bytes; *out is in the
 * slice's bytes then. Blocks that go on where the one before ends, in the slice and in the file,
 * are one piece.
 */
static bool find_piece(const struct rfs_slice *slice, uint64_t begin, uint64_t end, uint64_t least,
                       struct rfs_origins_run *out)
{
    struct rfs_origins_run found = {0};

    for (size_t i = 0; i < slice->n && slice->blocks[i].dst < end; i++) {
        const struct rfs_block *block = &slice->blocks[i];
        uint64_t at = rfs_max_u64(begin, block->dst);
        uint64_t bytes;

        if (block->n_loops > 0 || !rfs_content_is_stored(&block->content))
            continue;
        for (; at < rfs_min_u64(end, block->dst_end); at += bytes) {
            struct rfs_origins_run piece = {.begin = at};
            run_piece(block, at - block->dst, &piece, &bytes);
            bytes = rfs_min_u64(bytes, end - at);
            const bool goes_on = found.end == at && found.end > 0 && found.file == piece.file &&
                                 found.source + (found.end - found.begin) == piece.source;
            if (!goes_on && found.end - found.begin >= least) {
                *out = found;
                return true;
            }
            if (!goes_on)
                found = piece;
            found.end = at + bytes;
        }
    }
    *out = found;
    return found.end - found.begin >= least;
}

static int find_in_region(const struct shown *shown, const struct rfs_region *region, uint64_t from,
                          uint64_t to, uint64_t least, struct rfs_origins_run *out)
{
    struct rfs_slice slice = {0};
    struct rfs_casting cast;

    if (region->target >= RFS_NO_TARGET || to - from < least ||
        rfs_tensors_is_cast(&shown->tensors, region->target, &cast))
        return 0;
    const uint64_t shift = region->at - region->start; /* modulo 2^64 */
    int rc = rfs_tensors_slice(&shown->tensors, region->target, &slice);
    if (rc == 0 && find_piece(&slice, from + shift, to + shift, least, out)) {
        out->begin -= shift;
        out->end -= shift;
        rc = 1;
    }
    rfs_slice_free(&slice);
    return rc;
}

int rfs_origins_find_run(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                         uint64_t least, struct rfs_origins_run *out)
{
    SHOWN shown = {.image = NULL};
    int rc = 0;

    if (!find(view, id, &shown))
        return -ENOENT;
    end = rfs_min_u64(end, shown.image->bytes);
    if (begin >= end || !rfs_files_are_raw(rfs_catalog_files(shown.tensors.catalog)))
        return 0;
    for (size_t i = rfs_image_find(shown.image, begin); rc == 0 && i < shown.image->n; i++) {
        const struct rfs_region *region = &shown.image->regions[i];
        if (region->start >= end)
            break;
        rc = find_in_region(&shown, region, rfs_max_u64(begin, region->start),
                            rfs_min_u64(end, rfs_image_end(shown.image, i)), least, out);
    }
    out->id = id;
    return rc;
}

int rfs_origins_lend(struct reshard_view *set, const struct rfs_origins_run *run,
                     rfs_origins_use_fn *use, void *ctx)
{
    struct rfs_reading reading;
    SHOWN shown = {.image = NULL};

    if (!find(set, run->id, &shown))
        return -ENOENT;
    const int rc = rfs_reading_begin(rfs_catalog_files(shown.tensors.catalog), run->file, &reading);
    if (rc)
        return rc;
    if (run->source <= reading.size && run->end - run->begin <= reading.size - run->source)
        use(ctx, reading.fd);
    return rfs_reading_end(&reading);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int add_target(XXH3_state_t *state, const struct shown *shown, uint32_t target,
                      uint64_t from, uint64_t bytes)
{
    struct rfs_slice slice = {0};
    struct rfs_casting cast = {0};

    const bool is_cast = rfs_tensors_is_cast(&shown->tensors, target, &cast);
    const int rc = rfs_tensors_slice(&shown->tensors, target, &slice);
    if (rc == 0) {
        const uint64_t words[] = {
            is_cast ? CAST : TARGET, slice.id[0], slice.id[1], from, bytes, cast.from, cast.to,
            cast.by_float32};
        XXH3_128bits_update(state, words, sizeof words);
    }
    rfs_slice_free(&slice);
    return rc;
}

static void add_literal(XXH3_state_t *state, const unsigned char *data, uint64_t bytes)
{
    const uint64_t words[] = {LITERAL, bytes};

    XXH3_128bits_update(state, words, sizeof words);
    XXH3_128bits_update(state, data, (size_t)bytes);
}

static int add_written(XXH3_state_t *state, const struct rfs_image *image, size_t region,
                       uint64_t from, uint64_t to)
{
    RFS_CLEANUP(rfs_bytes_free) struct rfs_bytes bytes = {0};
    const int rc = rfs_image_write(image, region, &bytes);

    if (rc == 0)
        add_literal(state, bytes.data + from, to - from);
    return rc;
}

/* Adds bytes [from, to) of a region, counted from its start. */
static int add_region(XXH3_state_t *state, const struct shown *shown, uint64_t id, size_t number,
                      uint64_t from, uint64_t to)
{
    const struct rfs_region *region = &shown->image->regions[number];

    if (region->target == RFS_LITERAL) {
        add_literal(state, shown->image->literals + region->at + from, to - from);
        return 0;
    }
    if (region->target == RFS_WRITTEN)
        return add_written(state, shown->image, number, from, to);
    if (region->target == RFS_CRC) {
        const uint64_t words[] = {FILE_CRC, id, from, to - from};
        XXH3_128bits_update(state, words, sizeof words);
        return 0;
    }
    if (region->target != RFS_STORAGE_CRC)
        return add_target(state, shown, region->target, region->at + from, to - from);
    /* The checksum is that of another region, which is no checksum. */
    const size_t of = (size_t)(region->at >> 3);
    const uint64_t bytes = rfs_image_end(shown->image, of) - shown->image->regions[of].start;
    const uint64_t words[] = {STORAGE_CRC, (region->at & 7) + from, to - from};
    XXH3_128bits_update(state, words, sizeof words);
    return add_target(state, shown, shown->image->regions[of].target, shown->image->regions[of].at,
                      bytes);
}

int rfs_origins_key(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                    uint64_t key[2])
{
    XXH3_state_t state;
    SHOWN shown = {.image = NULL};
    int rc = 0;

    if (!find(view, id, &shown))
        return -ENOENT;
    XXH3_128bits_reset(&state);
    end = rfs_min_u64(end, shown.image->bytes);
    for (size_t i = begin < end ? rfs_image_find(shown.image, begin) : shown.image->n;
         rc == 0 && i < shown.image->n; i++) {
        const struct rfs_region *region = &shown.image->regions[i];
        if (region->start >= end)
            break;
        rc = add_region(&state, &shown, id, i, rfs_max_u64(begin, region->start) - region->start,
                        rfs_min_u64(end, rfs_image_end(shown.image, i)) - region->start);
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    key[0] = hash.low64;
    key[1] = hash.high64;
    return rc;
}

/* ---- the rest -------------------------------------------------------------------------------- */

int rfs_origins_plan_file(struct reshard_view *set, uint64_t id, struct rfs_error *err)
{
    struct rfs_view *view;
    uint64_t bytes;
    size_t file;

    if (!rfs_view_find_file(set, id, &view, &file))
        return rfs_fail(err, -ENOENT, RFS_IN(NULL), NULL, "there is no such file");
    return rfs_view_plan_file(view, file, &bytes, err);
}

int rfs_origins_source(struct reshard_view *set, uint64_t id, uint32_t i, const char **path,
                       struct stat *st)
{
    SHOWN shown = {.image = NULL};

    if (!find(set, id, &shown) || i >= shown.tensors.plan->n_sources)
        return 0;
    struct rfs_files *files = rfs_catalog_files(shown.tensors.catalog);
    const uint32_t source = shown.tensors.plan->sources[i];
    const int rc = st ? rfs_files_stat(files, source, st) : 0;
    *path = rfs_files_path(files, source);
    return rc ? rc : 1;
}

int rfs_origins_source_failed(struct reshard_view *set, uint64_t id, const char *path, int code,
                              struct rfs_error *err)
{
    SHOWN shown = {.image = NULL};
    const bool planned = find(set, id, &shown);

    for (uint32_t i = 0; planned && i < shown.tensors.plan->n_sources; i++) {
        struct rfs_files *files = rfs_catalog_files(shown.tensors.catalog);
        const uint32_t source = shown.tensors.plan->sources[i];
        const int stuck = rfs_files_state(files, source);
        if (stuck && rfs_files_reason(files, source, stuck, err))
            return code;
        if (stuck)
            return rfs_fail(err, code, RFS_IN(rfs_files_path(files, source)),
                            code == -ESTALE ? "the same command again, once nothing writes to it"
                                            : "check the disk, then the same command again",
                            "the source cannot be read for %s: %s", path, strerror(-code));
    }
    return code == -ENOMEM ? rfs_fail_memory(err)
                           : rfs_fail(err, code, RFS_IN(path), NULL,
                                      "its sources cannot be read: %s", strerror(-code));
}

void rfs_origins_about(struct reshard_view *set, uint64_t id, struct rfs_origins_about *out)
{
    struct rfs_view *view;
    SHOWN shown = {.image = NULL};
    size_t file;

    *out = (struct rfs_origins_about){.rank = RFS_NO_RANK, .kin = id}; /* each for itself */
    if (!rfs_view_find_file(set, id, &view, &file))
        return;
    const struct rfs_view_contents of = rfs_view_contents(view);
    out->source = rfs_catalog_path(of.catalog);
    if (of.by_rank) {
        const uint32_t devices = of.scale.dst_devices > 0 ? of.scale.dst_devices : 1;
        out->rank = rfs_view_shown(view, file).rank;
        out->kin = (id >> RFS_VIEW_SAVE_SHIFT) << 32 | out->rank / devices;
    }
    out->has_crc = find(set, id, &shown) && shown.image->n > 0 &&
                   shown.image->regions[shown.image->n - 1].target == RFS_CRC;
    if (out->has_crc)
        out->trailer = shown.image->bytes - RFS_CRC_TRAILER;
}

int rfs_origins_open_scattered(struct reshard_view *view, uint64_t id, struct reshard_reader **out)
{
    const int rc = reshard_reader_open(view, id, out);

    if (rc == 0)
        rfs_view_reader_scatter(*out);
    return rc;
}

void rfs_origins_set_crc(struct reshard_view *set, uint64_t id, uint32_t crc)
{
    struct rfs_view *view;
    size_t file;

    if (rfs_view_find_file(set, id, &view, &file))
        rfs_view_set_crc(view, file, crc);
}
