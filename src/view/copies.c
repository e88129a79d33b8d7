/* SPDX-License-Identifier: Apache-2.0 */
#include "view/copies.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/secret.h"
#include "plan/converted.h"

#define CHUNK_BYTES (UINT64_C(4) << 20) /* that a thread compares at a time */
#define LANES 8                         /* threads that compare, each with two pieces in memory */

/* One copy and its original. */
struct pair {
    struct rfs_view *view;
    struct rfs_slice slices[2];
};

static void pair_end(struct pair *pair)
{
    rfs_slice_free(&pair->slices[0]);
    rfs_slice_free(&pair->slices[1]);
}

static const char *name_of(const struct rfs_view *view, uint32_t source)
{
    return rfs_catalog_name(view->stored, rfs_by_rules_target(view->convert.made, source)->name);
}

/* 0 if the bytes are the same, 1 if they differ, or -errno. TWICE: room for a piece of each. */
static int compare_piece(const struct pair *pair, uint64_t begin, size_t size, unsigned char *twice)
{
    struct rfs_assembler *assembler = pair->view->assembler;
    const int rc =
        rfs_assemble(assembler, &pair->slices[0], begin, size, true, twice)
            ?: rfs_assemble(assembler, &pair->slices[1], begin, size, true, twice + RFS_PIECE);

    return rc ? rc : memcmp(twice, twice + RFS_PIECE, size) != 0;
}

/* Every LANES-th chunk, from number LANE on. */
static int compare_lane(void *ctx, size_t lane)
{
    const struct pair *pair = ctx;
    struct rfs_secret *secret = rfs_files_secret(rfs_catalog_files(pair->view->stored));
    unsigned char *twice = secret ? rfs_secret_map(secret, 2 * RFS_PIECE) : malloc(2 * RFS_PIECE);
    const uint64_t bytes = pair->slices[0].bytes;
    int rc = twice ? 0 : -ENOMEM;

    for (uint64_t begin = lane * CHUNK_BYTES; begin < bytes && rc == 0;
         begin += LANES * CHUNK_BYTES) {
        const uint64_t end = rfs_min_u64(begin + CHUNK_BYTES, bytes);
        for (uint64_t at = begin; at < end && rc == 0; at += RFS_PIECE)
            rc = rfs_cancelled()
                     ? -EINTR
                     : compare_piece(pair, at, (size_t)rfs_min_u64(RFS_PIECE, end - at), twice);
    }
    if (secret)
        rfs_secret_unmap(twice, 2 * RFS_PIECE);
    else
        free(twice);
    return rc;
}

static int fail(const struct rfs_view *view, const struct rfs_rules_copy *copy, int rc,
                struct rfs_error *err)
{
    const struct rfs_where where =
        RFS_OF(rfs_catalog_path(view->stored), name_of(view, copy->copy));
    const char *original = name_of(view, copy->original);

    if (rc > 0)
        return rfs_fail(err, -EINVAL, where, copy->remedy,
                        "has other bytes than '%s', of which it should be a copy: %s: line %u",
                        original, copy->file, copy->line);
    return rc == -ENOMEM
               ? rfs_fail_memory(err)
               : rfs_fail(err, rc, where, NULL,
                          "cannot be compared with '%s', of which it should be a copy: %s",
                          original, strerror(-rc));
}

static int compare_pair(struct rfs_view *view, const struct rfs_rules_copy *copy,
                        struct rfs_error *err)
{
    RFS_CLEANUP(pair_end) struct pair pair = {.view = view};
    const uint32_t sources[] = {copy->copy, copy->original};
    int rc = 0;

    for (unsigned i = 0; i < 2 && rc == 0; i++)
        rc =
            rfs_planner_slice(view->convert.whole, 0,
                              rfs_by_rules_target(view->convert.made, sources[i]), &pair.slices[i]);
    if (rc == 0)
        rc = rfs_pool_for(
            view->set->pool,
            (size_t)rfs_min_u64(LANES, (pair.slices[0].bytes + CHUNK_BYTES - 1) / CHUNK_BYTES),
            compare_lane, &pair);
    return rc ? fail(view, copy, rc, err) : 0;
}

static int compare_all(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_rules_map *map = rfs_by_rules_map(view->convert.made);
    int rc = 0;

    rfs_log(&view->log, RFS_INFO,
            "%zu tensor%s that the rules leave out as copies: compared with their originals; the "
            "first is '%s'",
            map->copies.n, map->copies.n == 1 ? "" : "s", name_of(view, map->copies.data[0].copy));
    for (size_t i = 0; i < map->copies.n && rc == 0; i++)
        if (rfs_by_rules_can_compare(view->convert.made, &map->copies.data[i]))
            rc = compare_pair(view, &map->copies.data[i], err);
    return rc;
}

int rfs_view_compare(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_error own = {0};

    if (!view->convert.made || rfs_by_rules_map(view->convert.made)->copies.n == 0)
        return 0;
    pthread_mutex_lock(&view->lock);
    int rc = rfs_once_begin(&view->convert.compared, &view->made, &view->lock);
    if (rc == 1) {
        pthread_mutex_unlock(&view->lock);
        rc = compare_all(view, &own);
        pthread_mutex_lock(&view->lock);
        if (rc == -EINVAL)
            view->convert.differs = own;
        rfs_once_end(&view->convert.compared, &view->made, rc == 0 || rc == -EINVAL);
    } else if (rc == 0) {
        own = view->convert.differs;
        rc = own.code;
    }
    pthread_mutex_unlock(&view->lock);
    if (rc && err)
        *err = own;
    return rc;
}

int rfs_view_compare_for(struct rfs_view *view, const struct rfs_image *image,
                         struct rfs_error *err)
{
    if (!view->convert.made || rfs_by_rules_map(view->convert.made)->copies.n == 0 ||
        !image->params || image->storages)
        return 0;
    for (size_t i = 0; i < image->n; i++) {
        const uint32_t target = image->regions[i].target;
        if (target < RFS_NO_TARGET &&
            rfs_by_rules_is_compared(view->convert.made, image->params->targets[target].name))
            return rfs_view_compare(view, err);
    }
    return 0;
}
