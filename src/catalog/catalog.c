/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/catalog.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "catalog/described.h"
#include "catalog/internal.h"
#include "catalog/scan/scan.h"

#include <pthread.h>
#include <stdatomic.h>

static int no_memory(struct rfs_error *err, const char *path)
{
    return rfs_fail_memory_of(err, path);
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
        struct catalog_rank *rank = &catalog->ranks[item->rank];
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

static bool has_weight_map(const struct rfs_catalog *catalog)
{
    for (uint32_t r = 0; catalog->ranks && r < catalog->n_ranks; r++)
        if (catalog->ranks[r].weight_map)
            return true;
    return false;
}

static void set_saving(struct rfs_catalog *catalog, const struct rfs_source_spec *spec)
{
    /*
     * Headers of encrypted files are not for the disk; a checksum is verified again by each view;
     * and the contents of a map of files do not show in the files.
     */
    const bool never = spec->encrypted || spec->check_crc || catalog->has_parts || catalog->boxes ||
                       has_weight_map(catalog);
    catalog->saved = never ? NULL : spec->saved;
    catalog->most = spec->index_most;
    catalog->indexed_fn = spec->indexed;
    catalog->indexed_ctx = spec->indexed_ctx;
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

/* Rank 0's index of the tensors that boxes describe. */
static int index_boxes(struct rfs_catalog *catalog, struct rfs_error *err)
{
    const struct rfs_chunks *boxes = catalog->boxes;
    struct rfs_entry *entries = calloc(boxes->tensors.n + 1, sizeof *entries);

    for (size_t i = 0; entries && i < boxes->tensors.n; i++) {
        const struct rfs_chunked_tensor *tensor = &boxes->tensors.data[i];
        entries[i] = (struct rfs_entry){.name = tensor->name, .type = tensor->type};
    }
    return rfs_catalog_set_wholes(catalog, entries, boxes->tensors.n)
               ? 0
               : no_memory(err, catalog->path);
}

/* A map names all files: what a web server says of SRC itself does not matter. */
static int find_path(const struct rfs_source_spec *spec, char **path, struct rfs_error *err)
{
    if (!spec->files || !rfs_is_url(spec->path))
        return rfs_path_resolve(spec->path, path, err);
    *path = rfs_store_without_slash(spec->path);
    return *path ? 0 : no_memory(err, spec->path);
}

int rfs_catalog_open(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_pool *pool,
                     struct rfs_catalog **out, struct rfs_error *err)
{
    *out = NULL;
    struct rfs_catalog *catalog = rfs_catalog_new(log, pool);
    if (!catalog)
        return no_memory(err, spec->path);
    catalog->files = rfs_files_sharing(log, spec->fds);
    catalog->tables.names = rfs_intern_new();
    catalog->tables.types = rfs_intern_new();
    catalog->extents = rfs_intern_new();
    catalog->lengths = rfs_intern_new();
    catalog->opened = spec->opened;
    if (spec->opened.tv_sec == 0)
        clock_gettime(CLOCK_REALTIME, &catalog->opened);
    RFS_CLEANUP(rfs_scan_free) struct rfs_scan scan = {0};
    int rc = 0;
    if (!catalog->files || !catalog->tables.names || !catalog->tables.types || !catalog->extents ||
        !catalog->lengths)
        rc = no_memory(err, spec->path);
    else
        rfs_files_set_encrypted(catalog->files, spec->encrypted);
    if (rc == 0)
        rfs_files_set_beneath(catalog->files, spec->beneath);
    if (rc == 0 && spec->for_others)
        rfs_files_set_for_others(catalog->files);
    if (rc == 0)
        rc = find_path(spec, &catalog->path, err);
    struct rfs_source_spec resolved = *spec;
    resolved.path = catalog->path;
    if (rc == 0)
        rc = rfs_scan_open(&resolved, log, &scan, err);
    if (rc == 0)
        rc = add_files(catalog, &scan, err);
    if (rc == 0 && scan.described)
        rc = rfs_chunks_open(&scan, spec->entry, catalog->files, &catalog->tables, log,
                             &catalog->boxes, err);
    if (rc == 0 && scan.described && spec->check_crc && rfs_chunks_set_checked(catalog->boxes))
        rc = no_memory(err, catalog->path);
    if (rc == 0 && scan.described)
        rc = index_boxes(catalog, err);
    set_builder(catalog, spec);
    set_saving(catalog, spec);
    if (rc == 0 && catalog->saved)
        rc = rfs_catalog_set_key(catalog, spec) ? no_memory(err, catalog->path) : 0;
    if (rc < 0) {
        rfs_catalog_close(catalog);
        return rc;
    }
    *out = catalog;
    return 0;
}

/* The tables that a derived catalogue borrows. */
static void free_tables(struct rfs_catalog *catalog)
{
    rfs_files_free(catalog->files);
    if (catalog->extents)
        rfs_intern_free(catalog->extents);
    if (catalog->lengths)
        rfs_intern_free(catalog->lengths);
    if (catalog->tables.names)
        rfs_intern_free(catalog->tables.names);
    if (catalog->tables.types)
        rfs_intern_free(catalog->tables.types);
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
    rfs_saved_index_free(catalog->on_disk);
    free(catalog->from_saved);
    free(catalog->key);
    rfs_index_free(catalog->wholes);
    rfs_chunks_free(catalog->boxes);
    if (!catalog->from)
        free_tables(catalog);
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

struct rfs_chunks *rfs_catalog_chunks(const struct rfs_catalog *catalog)
{
    return catalog->boxes;
}

enum rfs_format rfs_catalog_format(const struct rfs_catalog *catalog)
{
    return catalog->builder.format;
}

bool rfs_catalog_has(const struct rfs_catalog *catalog, uint32_t rank)
{
    return rfs_catalog_file(catalog, rank) != UINT32_MAX;
}

uint32_t rfs_catalog_lowest(const struct rfs_catalog *catalog)
{
    uint32_t rank = 0;

    while (!rfs_catalog_has(catalog, rank))
        rank++; /* a catalogue has one rank at least */
    return rank;
}

bool rfs_catalog_stands_in(const struct rfs_catalog *catalog, uint32_t rank)
{
    return rfs_catalog_has(catalog, rank) && catalog->ranks[rank].stands_in;
}

struct rfs_files *rfs_catalog_files(struct rfs_catalog *catalog)
{
    return catalog->files;
}

uint64_t rfs_catalog_index_most(const struct rfs_catalog *catalog)
{
    return catalog->most > 0 ? catalog->most : UINT64_MAX;
}

struct rfs_tables *rfs_catalog_tables(struct rfs_catalog *catalog)
{
    return &catalog->tables;
}

const struct rfs_index *rfs_catalog_ready(const struct rfs_catalog *catalog, uint32_t rank)
{
    if (!rfs_catalog_has(catalog, rank))
        return NULL;
    struct catalog_rank *slot = &catalog->ranks[rank];
    rfs_catalog_mark(catalog, slot);
    return atomic_load(&slot->index);
}

/* Where an index comes from. */
enum origin { WALKED, PREDICTED, FROM_DISK, FROM_DISK_SHARED };

/* Gives a rank its index; *built is freed when it cannot be kept. Called with the lock held. */
static int keep(struct rfs_catalog *catalog, struct catalog_rank *rank, struct rfs_built *built,
                enum origin origin, struct rfs_error *err)
{
    const bool fresh = origin == WALKED || origin == FROM_DISK;
    if (fresh && !RFS_PUSH(&catalog->owned, built)) {
        rfs_built_free(built);
        return rfs_fail_memory_of(err, catalog->path);
    }
    if (fresh) {
        atomic_fetch_add(&catalog->index_bytes, rfs_built_memory(built));
        struct rfs_index *index = built->merged ? built->merged : built->pieces[0];
        index->serial = index->serial ? index->serial : ++catalog->serials;
    }
    atomic_fetch_add(&catalog->indexed, 1);
    if (origin == PREDICTED)
        atomic_fetch_add(&catalog->predicted, 1);
    if (origin == FROM_DISK || origin == FROM_DISK_SHARED)
        atomic_fetch_add(&catalog->from_disk, 1);
    else if (!atomic_load(&built->warned))
        catalog->unsaved = true;
    rank->built = built;
    rfs_catalog_mark(catalog, rank);
    atomic_store(&rank->index, built->index);
    return 0;
}

static void end_busy(struct rfs_catalog *catalog, struct catalog_rank *rank)
{
    rank->busy = false;
    pthread_cond_broadcast(&catalog->done);
}

/* Publishes an index, or that there is none. Called with the lock held. */
static int publish(struct rfs_catalog *catalog, struct catalog_rank *rank, int rc,
                   struct rfs_built *built, enum origin origin, struct rfs_error *err)
{
    if (rc == 0)
        rc = keep(catalog, rank, built, origin, err);
    if (rc < 0 && !rfs_files_may_pass(rc)) {
        rank->empty = rc == -ENODATA;
        rc = rank->empty ? -EINVAL : rc;
        err->code = rc;
        rank->failed = rc;
        rank->text = strdup(err->text);
    }
    end_busy(catalog, rank);
    return rc;
}

/* The same of one from the disk; without it the rank stays busy, as it is to be built then. */
static bool publish_saved(struct rfs_catalog *catalog, struct catalog_rank *rank,
                          struct rfs_built *built, enum origin origin)
{
    if (keep(catalog, rank, built, origin, NULL) < 0)
        return false;
    end_busy(catalog, rank);
    return true;
}

/* Takes a rank's index from the disk. False when there is none that is good. */
static bool take_saved(struct rfs_catalog *catalog, struct catalog_rank *slot, uint32_t rank)
{
    if (!catalog->on_disk)
        return false;
    const uint32_t number =
        rfs_saved_index_find(catalog->on_disk, rank, catalog->files, slot->file, slot->parts);
    if (number == RFS_NO_ID)
        return false;
    pthread_mutex_lock(&catalog->lock);
    bool there = catalog->from_saved[number];
    if (there)
        publish_saved(catalog, slot, catalog->from_saved[number], FROM_DISK_SHARED);
    pthread_mutex_unlock(&catalog->lock);
    if (there)
        return true;
    struct rfs_built *fresh = rfs_saved_index_read(catalog->on_disk, number, &catalog->tables,
                                                   catalog->files, slot->file);
    if (!fresh)
        return false;
    pthread_mutex_lock(&catalog->lock);
    struct rfs_built *built = catalog->from_saved[number];
    there = built;
    if (there)
        rfs_built_free(fresh);
    else
        fresh->from = number;
    const bool kept =
        publish_saved(catalog, slot, there ? built : fresh, there ? FROM_DISK_SHARED : FROM_DISK);
    if (kept)
        catalog->from_saved[number] = slot->built;
    pthread_mutex_unlock(&catalog->lock);
    return kept;
}

/* Builds a rank's index from its files. */
static int make(struct rfs_catalog *catalog, struct catalog_rank *slot, uint32_t template,
                struct rfs_error *err)
{
    /* An error of our own, as its text is kept even if the caller wants none. */
    struct rfs_error failure = {0};
    struct rfs_built *built = NULL;
    struct rfs_built *prediction = NULL;
    if (template != RFS_NO_RANK && rfs_catalog_ready(catalog, template))
        prediction = catalog->ranks[template].built;
    int rc = rfs_build(&catalog->builder, slot->file, slot->parts, slot->weight_map, prediction,
                       &built, &failure);

    pthread_mutex_lock(&catalog->lock);
    rc = publish(catalog, slot, rc, built, built == prediction ? PREDICTED : WALKED, &failure);
    pthread_mutex_unlock(&catalog->lock);
    if (rc < 0 && err)
        *err = failure;
    return rc;
}

/* The failure that is remembered. Called with the lock held. */
static int recall(const struct catalog_rank *rank, struct rfs_error *err)
{
    if (err) {
        *err = (struct rfs_error){.code = rank->failed};
        snprintf(err->text, sizeof err->text, "%s",
                 rank->text ? rank->text : strerror(-rank->failed));
    }
    return rank->failed;
}

int rfs_catalog_index(struct rfs_catalog *catalog, uint32_t rank, uint32_t template,
                      const struct rfs_index **out, struct rfs_error *err)
{
    const uint32_t id = rfs_catalog_file(catalog, rank);
    struct rfs_error own = {0};
    if (!err)
        err = &own; /* its text is kept for later requests */
    if (id == UINT32_MAX)
        return rfs_fail(err, -ENOENT, RFS_IN(catalog->path), "copy it there",
                        "rank %u has no checkpoint", rank);
    *out = rfs_catalog_ready(catalog, rank);
    if (*out)
        return 0;
    struct catalog_rank *slot = &catalog->ranks[rank];
    pthread_mutex_lock(&catalog->lock);
    int waited = catalog->saved ? rfs_catalog_load(catalog) : 0;
    while (slot->busy && waited == 0)
        waited = rfs_cancel_wait(&catalog->done, &catalog->lock);
    if (waited || slot->busy) {
        pthread_mutex_unlock(&catalog->lock);
        return waited;
    }
    *out = rfs_catalog_ready(catalog, rank);
    if (*out || slot->failed != 0) {
        const int rc = *out ? 0 : recall(slot, err);
        pthread_mutex_unlock(&catalog->lock);
        return rc;
    }
    slot->busy = true;
    pthread_mutex_unlock(&catalog->lock);

    const int rc = take_saved(catalog, slot, rank) ? 0 : make(catalog, slot, template, err);
    if (catalog->indexed_fn)
        catalog->indexed_fn(catalog->indexed_ctx, atomic_load(&catalog->indexed), catalog->present);
    if (rc == 0)
        *out = atomic_load(&slot->index);
    return rc;
}

int rfs_catalog_resembles(struct rfs_catalog *catalog, uint32_t rank, uint32_t template,
                          size_t samples)
{
    const struct catalog_rank *slot = &catalog->ranks[rank];
    if (slot->parts != 1 || slot->weight_map)
        return 0;
    return rfs_build_resembles(&catalog->builder, slot->file, catalog->ranks[template].built,
                               samples);
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
    out->saved = atomic_load(&catalog->from_disk);
    out->index_bytes = atomic_load(&catalog->index_bytes);
    out->dropped = atomic_load(&catalog->dropped);
}
