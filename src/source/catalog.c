/* SPDX-License-Identifier: Apache-2.0 */
#include "source/catalog.h"

#include "base/cleanup.h"
#include "base/vec.h"
#include "source/build.h"
#include "source/scan.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rank {
    uint32_t file;           /* id of its first file, UINT32_MAX: none */
    uint32_t parts;          /* how many files it has; their ids follow each other */
    bool stands_in;          /* they are another rank's */
    char *weight_map;        /* path of the file that says which of them has what, or NULL; owned */
    struct rfs_built *built; /* set before index; in catalog->owned */
    _Atomic(const struct rfs_index *) index; /* set once, with release; that of built */
    bool busy;                               /* somebody is indexing it; under the lock */
    int failed; /* 0, or the -errno of the failure that is remembered; under the lock */
    bool empty; /* that failure is that its file holds no parameters; under the lock */
    char *text; /* of that failure; owned; NULL when there was no memory for it */
};

struct rfs_catalog {
    char *path;
    struct rfs_log *log; /* borrowed, as the pool */
    struct rfs_pool *pool;
    struct rfs_files *files;
    struct rfs_tables tables;
    struct rfs_builder builder;
    uint32_t n_ranks;
    uint32_t present;
    struct rank *ranks;   /* [n_ranks] */
    pthread_mutex_t lock; /* a leaf lock, not held while indexing */
    pthread_cond_t done;
    RFS_VEC(struct rfs_built *) owned; /* under the lock */
    atomic_uint_fast64_t indexed, predicted, index_bytes;
    bool has_parts;
};

static void free_scan(struct rfs_scan *scan)
{
    rfs_scan_free(scan);
}

static int no_memory(struct rfs_error *err, const char *path)
{
    return rfs_fail(err, -ENOMEM, RFS_IN(path), NULL, "out of memory");
}

/* Registers each rank's files: the ids follow the ranks. */
static int add_files(struct rfs_catalog *catalog, const struct rfs_scan *scan,
                     struct rfs_error *err)
{
    for (size_t i = 0; i < scan->n; i++)
        if (scan->data[i].n_files > 0)
            catalog->n_ranks = scan->data[i].rank + 1;
    catalog->builder.format = scan->format;
    catalog->has_parts = scan->parts;
    catalog->ranks = calloc(catalog->n_ranks, sizeof *catalog->ranks);
    if (!catalog->ranks)
        return no_memory(err, catalog->path);
    for (uint32_t rank = 0; rank < catalog->n_ranks; rank++)
        catalog->ranks[rank].file = UINT32_MAX;
    for (size_t i = 0; i < scan->n; i++) {
        const struct rfs_scanned *item = &scan->data[i];
        if (item->n_files == 0)
            continue;
        struct rank *rank = &catalog->ranks[item->rank];
        rank->stands_in = item->stands_in;
        if (item->weight_map) {
            rank->weight_map = strdup(item->weight_map);
            if (!rank->weight_map)
                return no_memory(err, catalog->path);
        }
        for (size_t k = 0; k < item->n_files; k++) {
            const uint32_t id = rfs_files_add(catalog->files, item->files[k]);
            if (id == UINT32_MAX)
                return no_memory(err, catalog->path);
            rank->file = k == 0 ? id : rank->file;
            rank->parts++;
        }
        catalog->present++;
    }
    return 0;
}

static void set_builder(struct rfs_catalog *catalog, const struct rfs_source_spec *spec)
{
    struct rfs_builder *builder = &catalog->builder;
    builder->files = catalog->files;
    builder->tables = &catalog->tables;
    builder->pool = catalog->pool;
    builder->log = catalog->log;
    builder->last_counts = spec->segmented;
    builder->skip = spec->segmented_skip;
    builder->entry = spec->entry;
    builder->check_crc = spec->check_crc;
}

int rfs_catalog_open(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_pool *pool,
                     struct rfs_catalog **out, struct rfs_error *err)
{
    *out = NULL;
    struct rfs_catalog *catalog = calloc(1, sizeof *catalog);
    if (!catalog)
        return no_memory(err, spec->path);
    pthread_mutex_init(&catalog->lock, NULL);
    pthread_cond_init(&catalog->done, NULL);
    catalog->log = log;
    catalog->pool = pool;
    catalog->files = rfs_files_sharing(log, spec->fds);
    catalog->tables.names = rfs_intern_new();
    catalog->tables.types = rfs_intern_new();
    RFS_CLEANUP(free_scan) struct rfs_scan scan = {0};
    int rc = 0;
    if (!catalog->files || !catalog->tables.names || !catalog->tables.types)
        rc = no_memory(err, spec->path);
    else
        rfs_files_set_sealed(catalog->files, spec->sealed);
    if (rc == 0)
        rc = rfs_scan_resolve(spec->path, &catalog->path, err);
    struct rfs_source_spec resolved = *spec;
    resolved.path = catalog->path;
    if (rc == 0)
        rc = rfs_scan_open(&resolved, log, &scan, err);
    if (rc == 0)
        rc = add_files(catalog, &scan, err);
    set_builder(catalog, spec);
    if (rc < 0) {
        rfs_catalog_close(catalog);
        return rc;
    }
    *out = catalog;
    return 0;
}

void rfs_catalog_close(struct rfs_catalog *catalog)
{
    if (!catalog)
        return;
    for (uint32_t i = 0; catalog->ranks && i < catalog->n_ranks; i++) {
        free(catalog->ranks[i].text);
        free(catalog->ranks[i].weight_map);
    }
    for (size_t i = 0; i < catalog->owned.n; i++)
        rfs_built_free(catalog->owned.data[i]);
    free(catalog->owned.data);
    rfs_files_free(catalog->files);
    if (catalog->tables.names)
        rfs_intern_free(catalog->tables.names);
    if (catalog->tables.types)
        rfs_intern_free(catalog->tables.types);
    pthread_cond_destroy(&catalog->done);
    pthread_mutex_destroy(&catalog->lock);
    free(catalog->ranks);
    free(catalog->path);
    free(catalog);
}

const char *rfs_catalog_path(const struct rfs_catalog *catalog)
{
    return catalog->path;
}

uint32_t rfs_catalog_ranks(const struct rfs_catalog *catalog)
{
    return catalog->n_ranks;
}

uint32_t rfs_catalog_present(const struct rfs_catalog *catalog)
{
    return catalog->present;
}

uint32_t rfs_catalog_file(const struct rfs_catalog *catalog, uint32_t rank)
{
    return rank < catalog->n_ranks ? catalog->ranks[rank].file : UINT32_MAX;
}

uint32_t rfs_catalog_parts(const struct rfs_catalog *catalog, uint32_t rank)
{
    return rank < catalog->n_ranks ? catalog->ranks[rank].parts : 0;
}

bool rfs_catalog_has_parts(const struct rfs_catalog *catalog)
{
    return catalog->has_parts;
}

enum rfs_format rfs_catalog_format(const struct rfs_catalog *catalog)
{
    return catalog->builder.format;
}

bool rfs_catalog_has(const struct rfs_catalog *catalog, uint32_t rank)
{
    return rfs_catalog_file(catalog, rank) != UINT32_MAX;
}

bool rfs_catalog_stands_in(const struct rfs_catalog *catalog, uint32_t rank)
{
    return rfs_catalog_has(catalog, rank) && catalog->ranks[rank].stands_in;
}

struct rfs_files *rfs_catalog_files(struct rfs_catalog *catalog)
{
    return catalog->files;
}

struct rfs_tables *rfs_catalog_tables(struct rfs_catalog *catalog)
{
    return &catalog->tables;
}

const struct rfs_index *rfs_catalog_ready(const struct rfs_catalog *catalog, uint32_t rank)
{
    if (!rfs_catalog_has(catalog, rank))
        return NULL;
    return atomic_load_explicit(&catalog->ranks[rank].index, memory_order_acquire);
}

/* Whether the next try might end otherwise, so that a failure is not remembered. */
static bool is_passing(int code)
{
    return code == -ENOMEM || code == -EMFILE || code == -ENFILE || code == -EINTR ||
           code == -EAGAIN;
}

/* Publishes what rfs_build gave; LIKE is what it was given. Called with the lock held. */
static int publish(struct rfs_catalog *catalog, struct rank *rank, int rc, struct rfs_built *built,
                   const struct rfs_built *like, struct rfs_error *err)
{
    const bool fresh = built != like;
    if (rc == 0 && fresh && !RFS_PUSH(&catalog->owned, built)) {
        rfs_built_free(built);
        rc = rfs_fail(err, -ENOMEM, RFS_IN(catalog->path), NULL, "out of memory");
    }
    if (rc == 0) {
        atomic_fetch_add(&catalog->indexed, 1);
        if (fresh)
            atomic_fetch_add(&catalog->index_bytes, rfs_built_memory(built));
        else
            atomic_fetch_add(&catalog->predicted, 1);
        rank->built = built;
        atomic_store_explicit(&rank->index, built->index, memory_order_release);
    } else if (!is_passing(rc)) {
        rank->empty = rc == -ENODATA;
        rc = rank->empty ? -EINVAL : rc;
        err->code = rc;
        rank->failed = rc;
        rank->text = strdup(err->text);
    }
    rank->busy = false;
    pthread_cond_broadcast(&catalog->done);
    return rc;
}

/* The failure that is remembered. Called with the lock held. */
static int recall(const struct rank *rank, struct rfs_error *err)
{
    if (err) {
        *err = (struct rfs_error){.code = rank->failed};
        snprintf(err->text, sizeof err->text, "%s",
                 rank->text ? rank->text : strerror(-rank->failed));
    }
    return rank->failed;
}

int rfs_catalog_index(struct rfs_catalog *catalog, uint32_t rank, uint32_t like,
                      const struct rfs_index **out, struct rfs_error *err)
{
    const uint32_t id = rfs_catalog_file(catalog, rank);
    if (id == UINT32_MAX)
        return rfs_fail(err, -ENOENT, RFS_IN(catalog->path), "copy it there",
                        "rank %u has no checkpoint", rank);
    *out = rfs_catalog_ready(catalog, rank);
    if (*out)
        return 0;
    struct rank *slot = &catalog->ranks[rank];
    pthread_mutex_lock(&catalog->lock);
    while (slot->busy)
        pthread_cond_wait(&catalog->done, &catalog->lock);
    *out = atomic_load_explicit(&slot->index, memory_order_acquire);
    if (*out || slot->failed != 0) {
        const int rc = *out ? 0 : recall(slot, err);
        pthread_mutex_unlock(&catalog->lock);
        return rc;
    }
    slot->busy = true;
    pthread_mutex_unlock(&catalog->lock);

    /* An error of our own, as its text is kept even if the caller wants none. */
    struct rfs_error failure = {0};
    struct rfs_built *built = NULL;
    struct rfs_built *prediction = NULL;
    if (like != RFS_NO_RANK && rfs_catalog_ready(catalog, like))
        prediction = catalog->ranks[like].built;
    int rc = rfs_build(&catalog->builder, id, slot->parts, slot->weight_map, prediction, &built,
                       &failure);

    pthread_mutex_lock(&catalog->lock);
    rc = publish(catalog, slot, rc, built, prediction, &failure);
    pthread_mutex_unlock(&catalog->lock);
    if (rc == 0)
        *out = atomic_load_explicit(&slot->index, memory_order_relaxed);
    else if (err)
        *err = failure;
    return rc;
}

int rfs_catalog_resembles(struct rfs_catalog *catalog, uint32_t rank, uint32_t like, size_t samples)
{
    const struct rank *slot = &catalog->ranks[rank];
    if (slot->parts != 1 || slot->weight_map)
        return 0;
    return rfs_build_resembles(&catalog->builder, slot->file, catalog->ranks[like].built, samples);
}

bool rfs_catalog_is_empty(struct rfs_catalog *catalog, uint32_t rank)
{
    if (!rfs_catalog_has(catalog, rank))
        return false;
    pthread_mutex_lock(&catalog->lock);
    const bool empty = catalog->ranks[rank].empty;
    pthread_mutex_unlock(&catalog->lock);
    return empty;
}

void rfs_catalog_count(struct rfs_catalog *catalog, struct rfs_catalog_counters *out)
{
    out->indexed = atomic_load(&catalog->indexed);
    out->predicted = atomic_load(&catalog->predicted);
    out->index_bytes = atomic_load(&catalog->index_bytes);
}

uint64_t rfs_content_offset(const struct rfs_index *index, const struct rfs_entry *entry,
                            uint64_t offset)
{
    if (entry->extent_count == 0)
        return entry->offset + offset;
    const struct rfs_extent *extent = &index->extents[entry->extent];
    for (uint32_t i = 1; i < entry->extent_count && offset >= extent->bytes; i++, extent++)
        offset -= extent->bytes;
    return extent->offset + offset;
}

int rfs_content_pread(struct rfs_reading *reading, const struct rfs_index *index,
                      const struct rfs_entry *entry, void *buf, size_t size, uint64_t offset)
{
    unsigned char *p = buf;
    if (entry->extent_count == 0)
        return entry->offset > UINT64_MAX - offset
                   ? -EINVAL
                   : rfs_reading_pread(reading, p, size, entry->offset + offset);
    const struct rfs_extent *extent = &index->extents[entry->extent];
    for (uint32_t i = 0; i < entry->extent_count && size > 0; i++, extent++) {
        if (offset >= extent->bytes) {
            offset -= extent->bytes;
            continue;
        }
        const uint64_t left = extent->bytes - offset;
        const size_t take = size < left ? size : (size_t)left;
        const int rc = rfs_reading_pread(reading, p, take, extent->offset + offset);
        if (rc < 0)
            return rc;
        p += take;
        size -= take;
        offset = 0;
    }
    return size == 0 ? 0 : -EINVAL;
}
