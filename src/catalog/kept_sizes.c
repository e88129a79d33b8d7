/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of kept sizes, behind the key:
 *
 *   u32 n, source files by id: u32 length, path, u64 inode, size, mtime, its ns, ctime, its ns
 *   u32 n, files shown: u64 size, or UINT64_MAX for one that is not known; u32 sources; for each
 *                       u32 id
 */
#include "catalog/kept_sizes.h"

#include "base/cancel.h"
#include "base/store.h"

#include <xxhash.h>

#define BATCH 64        /* files looked at in one task */
#define FRESH_SECONDS 1 /* after which they are looked at again */

struct rfs_kept_sizes {
    struct rfs_catalog *catalog; /* borrowed, as the pool */
    struct rfs_pool *pool;
    struct rfs_kept_file table;
    RFS_VEC(struct rfs_kept_source) sources;
    RFS_VEC(struct rfs_kept_size) files;
    atomic_llong checked; /* when the sources were, in seconds of CLOCK_MONOTONIC */
};

void rfs_kept_sizes_free(struct rfs_kept_sizes *sizes)
{
    if (!sizes)
        return;
    rfs_kept_end(&sizes->table);
    free(sizes->sources.data);
    free(sizes->files.data);
    free(sizes);
}

static bool take_files(struct rfs_kept_sizes *sizes)
{
    struct rfs_kept_in *in = &sizes->table.in;
    uint32_t n = rfs_kept_take_count(in, sizeof(struct rfs_kept_mark));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rfs_kept_source source;
        if (!rfs_kept_source_take(in, &source) || !RFS_PUSH(&sizes->sources, source))
            return false;
    }
    n = rfs_kept_take_count(in, sizeof(uint64_t) + sizeof(uint32_t));
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rfs_kept_size file = {.size = rfs_kept_take_u64(in)};
        file.n = rfs_kept_take_count(in, sizeof(uint32_t));
        file.sources = rfs_kept_take(in, (size_t)file.n * sizeof(uint32_t));
        const bool known = file.size != RFS_KEPT_UNKNOWN;
        if (!file.sources || known != (file.n > 0) || (known && file.size > INT64_MAX) ||
            !RFS_PUSH(&sizes->files, file))
            return false;
        for (uint32_t k = 0; k < file.n; k++) {
            uint32_t id;
            memcpy(&id, file.sources + k * sizeof id, sizeof id);
            if (id >= sizes->sources.n)
                return false;
        }
    }
    return !in->bad && in->left == 0;
}

bool rfs_kept_sizes_mark_is(const struct rfs_kept_sizes *sizes, uint32_t id, const struct stat *st)
{
    return rfs_kept_source_has_mark(&sizes->sources.data[id], st);
}

/* Examines files without recording their identities, as they are not read yet. */
struct looking {
    const struct rfs_kept_sizes *sizes;
    size_t batch; /* how many in one task */
};

static int look_at(void *ctx, size_t batch)
{
    const struct looking *looking = ctx;
    const struct rfs_kept_sizes *sizes = looking->sizes;
    struct rfs_files *files = rfs_catalog_files(sizes->catalog);
    const size_t n = sizes->sources.n;

    for (size_t i = batch * looking->batch; i < n && i < (batch + 1) * looking->batch; i++) {
        const struct rfs_kept_source *source = &sizes->sources.data[i];
        const char *path = rfs_files_path(files, (uint32_t)i);
        struct stat st;
        if (!rfs_kept_source_has_path(source, path) || rfs_cancelled() ||
            rfs_files_leads_home(files, (uint32_t)i) ||
            rfs_store_stat(rfs_files_store(files), path, &st) != 0 ||
            !rfs_kept_source_has_mark(source, &st))
            return -1;
    }
    return 0;
}

static long long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec;
}

bool rfs_kept_sizes_hold(struct rfs_kept_sizes *sizes)
{
    const long long time = now();
    const size_t batch = rfs_pool_expects_waits(sizes->pool) ? 1 : BATCH;
    struct looking looking = {sizes, batch};

    if (time - atomic_load(&sizes->checked) <= FRESH_SECONDS)
        return true;
    if (rfs_pool_for(sizes->pool, (sizes->sources.n + batch - 1) / batch, look_at, &looking) != 0)
        return false;
    atomic_store(&sizes->checked, time);
    return true;
}

struct rfs_kept_sizes *rfs_kept_sizes_load(struct rfs_catalog *catalog, struct rfs_pool *pool,
                                           const char *key, size_t n_files)
{
    struct rfs_kept_file table;

    if (!rfs_kept_read(rfs_catalog_kept(catalog), RFS_KEPT_SIZES, key, &table))
        return NULL;
    struct rfs_kept_sizes *sizes = calloc(1, sizeof *sizes);
    if (!sizes) {
        rfs_kept_end(&table);
        return NULL;
    }
    sizes->catalog = catalog;
    sizes->pool = pool;
    sizes->table = table;
    atomic_init(&sizes->checked, now() - FRESH_SECONDS - 1);
    if (take_files(sizes) && sizes->files.n == n_files &&
        sizes->sources.n == rfs_files_count_paths(rfs_catalog_files(catalog)) &&
        rfs_kept_sizes_hold(sizes))
        return sizes;
    rfs_kept_sizes_free(sizes);
    return NULL;
}

struct rfs_kept_size rfs_kept_sizes_file(const struct rfs_kept_sizes *sizes, size_t file)
{
    return sizes->files.data[file];
}

/* ---- keeping --------------------------------------------------------------------------------- */

bool rfs_kept_sizes_ranks(const struct rfs_catalog *catalog, uint64_t *hash)
{
    struct rfs_bytes out = {0};

    for (uint32_t r = 0; r < rfs_catalog_ranks(catalog); r++) {
        rfs_kept_put_u32(&out, rfs_catalog_file(catalog, r));
        rfs_kept_put_u32(&out, rfs_catalog_file_count(catalog, r));
        rfs_kept_put_u32(&out, rfs_catalog_stands_in(catalog, r));
    }
    *hash = XXH3_64bits(out.data, out.n);
    free(out.data);
    return !out.failed;
}

bool rfs_kept_sizes_begin(struct rfs_catalog *catalog, const struct rfs_kept_sizes **before,
                          size_t n_files, struct rfs_bytes *table)
{
    struct rfs_files *files = rfs_catalog_files(catalog);
    const uint32_t n = rfs_files_count_paths(files);
    struct rfs_kept_device place = {0};

    rfs_kept_put_u32(table, n);
    for (uint32_t id = 0; id < n; id++) {
        struct stat st;
        if (rfs_files_look(files, id, &st) != 0)
            return false;
        const struct rfs_kept_mark mark = rfs_kept_mark_of(&st);
        if (!rfs_kept_mark_is_settled(&mark, rfs_catalog_opened(catalog)) ||
            !rfs_kept_mark_tells(rfs_files_path(files, id), &st, &place))
            return false;
        if (*before && !rfs_kept_sizes_mark_is(*before, id, &st))
            *before = NULL;
        rfs_kept_mark_put(table, rfs_files_path(files, id), &mark);
    }
    rfs_kept_put_u32(table, (uint32_t)n_files);
    return true;
}

void rfs_kept_sizes_put(struct rfs_bytes *table, uint64_t size, const void *sources, uint32_t n)
{
    rfs_kept_put_u64(table, size);
    rfs_kept_put_u32(table, n);
    if (n > 0)
        rfs_bytes_put(table, sources, n * sizeof(uint32_t));
}

void rfs_kept_sizes_finish(struct rfs_catalog *catalog, const char *key, struct rfs_bytes *table)
{
    struct rfs_kept_draft draft;

    if (rfs_kept_begin(rfs_catalog_kept(catalog), RFS_KEPT_SIZES, key, &draft))
        rfs_kept_finish(&draft, table);
}
