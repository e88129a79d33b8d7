/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/catalog.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/once.h"
#include "base/options.h"
#include "base/order.h"
#include "base/path.h"
#include "base/store.h"
#include "base/vec.h"
#include "catalog/built.h"
#include "catalog/kept_index.h"
#include "catalog/scan/scan.h"
#include "formats/ckpt/ckpt.h"
#include "formats/safetensors/safetensors.h"

#include <pthread.h>
#include <stdatomic.h>

/* A rank, with its index once there is one. */
struct catalog_rank {
    uint32_t file;           /* id of its first file, UINT32_MAX: none */
    uint32_t n_files;        /* their ids follow each other */
    bool stands_in;          /* they are another rank's */
    char *weight_map;        /* path of the file that maps parameters to files, or NULL; owned */
    struct rfs_built *built; /* set before index; in catalog->owned */
    _Atomic(const struct rfs_index *) index; /* that of built; NULL: it is absent */
    atomic_uint_least64_t used;              /* number of uses begun when it was last requested */
    /* Under the lock: */
    bool busy;  /* a thread is indexing it */
    int failed; /* 0, or the -errno of the failure that is remembered */
    bool empty; /* that failure is that its file holds no parameters */
    char *text; /* message of that failure; owned; NULL when there was no memory for it */
};

struct rfs_catalog {
    const struct rfs_catalog *from; /* owns the files and tables of a derived one; or NULL */
    char *path;
    struct rfs_log *log; /* borrowed, as the pool */
    struct rfs_pool *pool;
    struct rfs_files *files;
    struct rfs_tables tables;
    struct rfs_builder builder;
    uint32_t n_ranks;
    uint32_t present;
    uint32_t lacks;             /* the lowest rank with a folder and no files; or RFS_NO_RANK */
    struct catalog_rank *ranks; /* [n_ranks] */
    pthread_mutex_t lock;       /* a leaf lock, not held while indexing */
    pthread_cond_t done;
    RFS_VEC(struct rfs_built *) owned; /* under the lock */
    atomic_uint_fast64_t indexed, predicted, from_disk, index_bytes, dropped;
    void (*indexed_fn)(const void *ctx, uint64_t done, uint64_t total); /* the spec's */
    const void *indexed_ctx;
    bool has_parts, model_parallel;
    enum rfs_format gives;
    struct rfs_chunks *chunks;       /* owned; NULL: the ranks' own headers describe their values */
    struct rfs_index *wholes;        /* rank 0's index of whole tensors, never dropped; owned */
    struct rfs_aside aside;          /* files of tensors that are not read */
    struct rfs_mapfile map;          /* what rank 0's weight_map says, until a thread indexes it */
    struct rfs_intern *extents;      /* lists of those of contents that the catalogue has copied */
    struct rfs_intern *quants;       /* quantized weights, each a struct rfs_quant */
    struct rfs_quant_scheme *scheme; /* of them; owned; NULL: they are shown as they are */
    struct rfs_intern *lengths;      /* lists of those of the messages of map tensors */
    uint64_t serials;                /* given to indexes; under the lock */

    struct rfs_use *first, *last; /* the oldest and the latest use; under the lock */
    atomic_uint_least64_t uses;   /* begun so far */
    uint64_t most;                /* bytes of indexes; 0: any */
    void (*marking)(void *ctx);   /* NULL, except in tests */
    void *marking_ctx;

    struct timespec opened;         /* before anything of the source was looked at */
    struct rfs_kept *kept;          /* borrowed; NULL: nothing is kept */
    char *key;                      /* names the kept indexes; owned */
    struct rfs_once loading;        /* guards on_disk and from_kept; under the lock */
    struct rfs_kept_index *on_disk; /* indexes of an earlier view, or NULL; owned */
    struct rfs_built **from_kept;   /* [numbers of on_disk] those in memory; under the lock */
    bool unkept;                    /* there are indexes that are not on disk; under the lock */
    bool keeping;                   /* a thread is writing; under the lock */
};

/* Returns a catalogue of nothing yet, or NULL when out of memory. */
static struct rfs_catalog *catalog_new(struct rfs_log *log, struct rfs_pool *pool)
{
    struct rfs_catalog *catalog = calloc(1, sizeof *catalog);

    if (!catalog)
        return NULL;
    pthread_mutex_init(&catalog->lock, NULL);
    rfs_cancel_init_cond(&catalog->done);
    catalog->log = log;
    catalog->pool = pool;
    catalog->lacks = RFS_NO_RANK;
    return catalog;
}

/*
 * Makes rank 0's index of ENTRIES, malloc'ed and taken over in any case, which have no place in a
 * file. False when out of memory, also for ENTRIES of NULL.
 */
static bool set_wholes(struct rfs_catalog *catalog, struct rfs_entry *entries, size_t n)
{
    struct rfs_index *index = catalog->wholes = calloc(1, sizeof *index);
    size_t first;
    size_t second;

    if (!index || !entries) {
        free(entries);
        return false;
    }
    index->entries = entries;
    index->n = n;
    if (rfs_index_order_names(index, &first, &second) < 0)
        return false;
    index->serial = ++catalog->serials;
    atomic_store(&catalog->indexed, 1);
    atomic_store(&catalog->ranks[0].index, index);
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Notes what the folder tells of the save as a whole. */
static int note_doubt(const struct rfs_scan *scan, const char *folder, struct rfs_chunks *chunks,
                      struct rfs_error *err)
{
    const char *metadata = rfs_path_name(rfs_files_path(chunks->files, chunks->metadata));

    /* ".metadata", "__0.metadata", "0.metadata" or ".rank0_metadata" */
    chunks->written_last = rfs_text_ends(metadata, "metadata") && !scan->exported;
    chunks->times_tell = chunks->written_last && !rfs_store_is_url(folder);
    if (!scan->doubt)
        return 0;
    rfs_log(chunks->log, RFS_WARNING, "%s: %s", folder, scan->doubt);
    chunks->doubt = strdup(scan->doubt);
    return chunks->doubt ? 0 : rfs_fail_memory_of(err, folder);
}

/* Reads the metadata of a checkpoint that describes itself: the first file of rank 0. */
static int read_chunks(struct rfs_catalog *catalog, const struct rfs_scan *scan, const char *entry,
                       struct rfs_error *err)
{
    const char *metadata = rfs_files_path(catalog->files, 0);
    const char *slash = strrchr(metadata, '/');
    RFS_FREE char *folder = strndup(metadata, slash ? (size_t)(slash - metadata) : 0);
    const struct rfs_chunks_source source = {.folder = folder,
                                             .files = catalog->files,
                                             .tables = &catalog->tables,
                                             .log = catalog->log,
                                             .entry = entry,
                                             .lost = scan->lost};

    if (!folder)
        return rfs_fail_memory_of(err, metadata);
    return scan->described->open(&source, &catalog->chunks, err)
               ?: note_doubt(scan, folder, catalog->chunks, err);
}

/* Makes rank 0's index of the tensors that chunks make up. */
static int index_chunks(struct rfs_catalog *catalog, struct rfs_error *err)
{
    const struct rfs_chunks *chunks = catalog->chunks;
    struct rfs_entry *entries = calloc(chunks->tensors.n + 1, sizeof *entries);

    for (size_t i = 0; entries && i < chunks->tensors.n; i++) {
        const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[i];
        entries[i] = (struct rfs_entry){.name = tensor->name, .type = tensor->type};
    }
    return set_wholes(catalog, entries, chunks->tensors.n) ? 0
                                                           : rfs_fail_memory_of(err, catalog->path);
}

/* Sets the key by which a source is known again. 0 or -ENOMEM. */
static int set_key(struct rfs_catalog *catalog, const struct rfs_source_spec *spec)
{
    size_t n;
    FILE *out = open_memstream(&catalog->key, &n);

    if (!out)
        return -ENOMEM;
    fprintf(out, "%s,%d,", PACKAGE_VERSION, (int)catalog->builder.format);
    rfs_settings_write(out, "path", catalog->path); /* escaped, so that no two lists make one key */
    fputc(',', out);
    rfs_options_write(spec->options, RFS_OPTION_INDEX, out);
    const bool bad = ferror(out) != 0;
    return fclose(out) != 0 || bad || !catalog->key ? -ENOMEM : 0;
}

/*
 * Returns the format of files of ranks that are made of a source, as far as its names tell it: that
 * of MindSpore, where it may have written files of others: in folders of ranks, or with its map.
 */
static enum rfs_format find_gives(const struct rfs_scan *scan)
{
    const struct rfs_format_row *row =
        scan->described ? scan->described : &rfs_formats[scan->format];
    const char *map = scan->n > 0 ? scan->data[0].weight_map : NULL;
    const bool ranks = !scan->whole && row->by_mindspore;
    enum rfs_weight_map_style style;

    return ranks || (map && rfs_safetensors_map_style(rfs_path_name(map), &style) &&
                     style == RFS_WEIGHT_MAP_MINDSPORE)
               ? RFS_FORMAT_CKPT
               : row->gives;
}

/* Registers each rank's files: the ids follow the ranks. */
static int add_files(struct rfs_catalog *catalog, const struct rfs_scan *scan,
                     struct rfs_error *err)
{
    for (size_t i = 0; i < scan->n; i++)
        if (scan->data[i].n_files > 0)
            catalog->n_ranks = scan->data[i].rank + 1;
    catalog->builder.format = scan->format;
    catalog->gives = find_gives(scan);
    catalog->has_parts = scan->parts;
    catalog->model_parallel = scan->model_parallel;
    catalog->ranks = calloc(catalog->n_ranks, sizeof *catalog->ranks);
    if (!catalog->ranks)
        return rfs_fail_memory_of(err, catalog->path);
    for (uint32_t rank = 0; rank < catalog->n_ranks; rank++)
        catalog->ranks[rank].file = UINT32_MAX;
    for (size_t i = 0; i < scan->n; i++) {
        const struct rfs_scanned *item = &scan->data[i];
        if (item->n_files == 0) {
            if (catalog->lacks == RFS_NO_RANK) /* they ascend */
                catalog->lacks = item->rank;
            continue;
        }
        struct catalog_rank *rank = &catalog->ranks[item->rank];
        rank->stands_in = item->stands_in;
        if (item->weight_map) {
            rank->weight_map = strdup(item->weight_map);
            if (!rank->weight_map)
                return rfs_fail_memory_of(err, catalog->path);
        }
        for (size_t k = 0; k < item->n_files; k++) {
            const uint32_t id = rfs_files_add(catalog->files, item->files[k]);
            if (id == UINT32_MAX)
                return rfs_fail_memory_of(err, catalog->path);
            rank->file = k == 0 ? id : rank->file;
            rank->n_files++;
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

static void set_keeping(struct rfs_catalog *catalog, const struct rfs_source_spec *spec)
{
    /*
     * Headers of encrypted files are not for the disk; a checksum is verified again by each view;
     * and the contents of a map of files do not show in the files.
     */
    const bool never = spec->encrypted || spec->options->check >= 0 || catalog->has_parts ||
                       catalog->chunks || catalog->scheme || has_weight_map(catalog);
    catalog->kept = never ? NULL : spec->kept;
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
    builder->last_counts = spec->options->segmented;
    builder->skip = spec->options->segmented_skip;
    builder->entry = spec->options->entry;
    builder->check_crc = spec->options->check >= 0;
    builder->scheme = catalog->scheme;
    builder->quants = catalog->quants;
}

/* A map names all files: what a web server says of SRC itself does not matter. */
static int find_path(const struct rfs_source_spec *spec, char **path, struct rfs_error *err)
{
    if (!spec->options->files || !rfs_store_is_url(spec->path))
        return rfs_path_resolve(spec->store, spec->path, path, err);
    *path = rfs_store_without_slash(spec->path);
    return *path ? 0 : rfs_fail_memory_of(err, spec->path);
}

/* Finds the files of each rank, and reads the metadata of a checkpoint that describes itself. */
static int find_files(struct rfs_catalog *catalog, const struct rfs_source_spec *spec,
                      struct rfs_error *err)
{
    RFS_CLEANUP(rfs_scan_free) struct rfs_scan scan = {0};
    struct rfs_source_spec resolved = *spec;
    int rc = find_path(spec, &catalog->path, err);

    resolved.path = catalog->path;
    if (rc == 0)
        rc = rfs_scan_open(&resolved, catalog->log, &scan, err) ?: add_files(catalog, &scan, err);
    catalog->aside = scan.aside;
    scan.aside = (struct rfs_aside){0};
    /* The maps of many saves, which wait for their readers, could take any amount of memory. */
    if (!spec->saves) {
        catalog->map = scan.map;
        scan.map = (struct rfs_mapfile){0};
    }
    if (rc || !scan.described)
        return rc;
    rc = read_chunks(catalog, &scan, spec->options->entry, err);
    if (rc)
        return rc;
    if (spec->options->check >= 0 && rfs_chunks_set_checked(catalog->chunks))
        return rfs_fail_memory_of(err, catalog->path);
    return index_chunks(catalog, err);
}

/* Makes the tables, which derived catalogues borrow. False when out of memory. */
static bool make_tables(struct rfs_catalog *catalog, const struct rfs_source_spec *spec)
{
    catalog->files = rfs_files_sharing(catalog->log, spec->fds);
    catalog->tables.names = rfs_intern_new();
    catalog->tables.types = rfs_intern_new();
    catalog->extents = rfs_intern_new();
    catalog->lengths = rfs_intern_new();
    catalog->quants = rfs_intern_new();
    if (!catalog->files || !catalog->tables.names || !catalog->tables.types || !catalog->extents ||
        !catalog->lengths || !catalog->quants)
        return false;
    rfs_files_set_encrypted(catalog->files, spec->encrypted);
    rfs_files_set_beneath(catalog->files, spec->beneath);
    rfs_files_set_store(catalog->files, spec->store);
    if (spec->for_others)
        rfs_files_set_for_others(catalog->files);
    return true;
}

/* Reads how weights are quantized, if they are to be shown as plain ones. */
static int find_scheme(struct rfs_catalog *catalog, const struct rfs_source_spec *spec,
                       struct rfs_error *err)
{
    RFS_FREE char *folder = NULL;
    const enum rfs_dtype to = spec->wide ? RFS_FLOAT32 : RFS_BFLOAT16;
    const bool whole = !catalog->chunks && !catalog->has_parts && catalog->n_ranks == 1;

    if (!spec->options->dequantize)
        return 0;
    const struct rfs_format_row *row = &rfs_formats[catalog->builder.format];
    if (whole && row->blocks) {
        catalog->scheme = rfs_quant_scheme_blocks(catalog->path, to);
        return catalog->scheme ? 0 : rfs_fail_memory_of(err, catalog->path);
    }
    if (!whole || !row->coded)
        return rfs_fail(err, -ENOTSUP, RFS_IN(catalog->path), "leave dequantize out",
                        "option dequantize is for one whole checkpoint of HuggingFace");
    folder = rfs_store_parent(rfs_files_path(catalog->files, 0));
    return folder ? rfs_quant_scheme_find(spec->store, folder, spec->options->hf_config, to,
                                          &catalog->scheme, err)
                  : rfs_fail_memory_of(err, catalog->path);
}

RFS_CLEANUP_OF(free_catalog, struct rfs_catalog *, rfs_catalog_close)

int rfs_catalog_open(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_pool *pool,
                     struct rfs_catalog **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_catalog) struct rfs_catalog *catalog = catalog_new(log, pool);

    *out = NULL;
    if (!catalog || !make_tables(catalog, spec))
        return rfs_fail_memory_of(err, spec->path);
    catalog->opened = spec->opened;
    if (spec->opened.tv_sec == 0)
        clock_gettime(CLOCK_REALTIME, &catalog->opened);
    const int rc = find_files(catalog, spec, err) ?: find_scheme(catalog, spec, err);
    if (rc)
        return rc;
    set_builder(catalog, spec);
    set_keeping(catalog, spec);
    if (catalog->kept && set_key(catalog, spec))
        return rfs_fail_memory_of(err, catalog->path);
    *out = RFS_STEAL(catalog);
    return 0;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Frees what a derived catalogue borrows. */
static void free_tables(struct rfs_catalog *catalog)
{
    rfs_files_free(catalog->files);
    rfs_intern_free(catalog->extents);
    rfs_intern_free(catalog->lengths);
    rfs_intern_free(catalog->quants);
    rfs_quant_scheme_free(catalog->scheme);
    rfs_intern_free(catalog->tables.names);
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
    rfs_kept_index_free(catalog->on_disk);
    free(catalog->from_kept);
    free(catalog->key);
    rfs_aside_free(&catalog->aside);
    rfs_mapfile_free(&catalog->map);
    rfs_index_free(catalog->wholes);
    rfs_chunks_free(catalog->chunks);
    if (!catalog->from)
        free_tables(catalog);
    pthread_cond_destroy(&catalog->done);
    pthread_mutex_destroy(&catalog->lock);
    free(catalog->ranks);
    free(catalog->path);
    free(catalog);
}

/* ---- derived catalogues ---------------------------------------------------------------------- */

bool rfs_catalog_is_derived(const struct rfs_catalog *catalog)
{
    return catalog->from != NULL;
}

/* Makes a derived catalogue of nothing yet, or returns NULL when out of memory. */
static struct rfs_catalog *derive(struct rfs_catalog *from)
{
    RFS_CLEANUP(free_catalog)
    struct rfs_catalog *catalog = catalog_new(from->log, from->pool);

    if (!catalog)
        return NULL;
    catalog->from = from;
    catalog->files = from->files;
    catalog->tables = from->tables;
    catalog->extents = from->extents;
    catalog->lengths = from->lengths;
    catalog->quants = from->quants;
    catalog->opened = from->opened;
    catalog->builder.format = RFS_FORMAT_CKPT; /* entries are in the order of the list */
    catalog->n_ranks = catalog->present = 1;
    catalog->path = strdup(from->path);
    catalog->ranks = calloc(1, sizeof *catalog->ranks);
    if (!catalog->path || !catalog->ranks)
        return NULL;
    catalog->ranks[0].file = rfs_catalog_file(from, rfs_catalog_lowest(from));
    catalog->ranks[0].n_files = 1;
    return RFS_STEAL(catalog);
}

int rfs_catalog_derive(struct rfs_catalog *from, const struct rfs_entry *entries, size_t n,
                       struct rfs_catalog **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_catalog) struct rfs_catalog *catalog = derive(from);
    struct rfs_entry *copy;

    *out = NULL;
    if (!catalog)
        return rfs_fail_memory(err);
    copy = calloc(n + 1, sizeof *copy);
    if (copy)
        memcpy(copy, entries, n * sizeof *copy);
    if (!set_wholes(catalog, copy, n))
        return rfs_fail_memory(err);
    *out = RFS_STEAL(catalog);
    return 0;
}

struct rfs_chunks_source rfs_catalog_chunks_source(struct rfs_catalog *catalog)
{
    return (struct rfs_chunks_source){.folder = catalog->path,
                                      .files = catalog->files,
                                      .tables = &catalog->tables,
                                      .log = catalog->log};
}

int rfs_catalog_list_parts(struct rfs_catalog *from, const struct rfs_hfai *hfai,
                           struct rfs_hfai_listing how, struct rfs_hfai_list *list,
                           struct rfs_catalog **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_catalog) struct rfs_catalog *catalog = derive(from);

    *list = (struct rfs_hfai_list){.n_models = 0};
    *out = NULL;
    if (!catalog)
        return rfs_fail_memory(err);
    how.to = rfs_catalog_chunks_source(from);
    int rc = rfs_hfai_list(hfai, &how, list, err);
    catalog->chunks = RFS_STEAL(list->chunks);
    rc = rc ?: index_chunks(catalog, err);
    if (rc == 0)
        *out = RFS_STEAL(catalog);
    return rc;
}

/* ---- what it has ----------------------------------------------------------------------------- */

const char *rfs_catalog_path(const struct rfs_catalog *catalog)
{
    return catalog->path;
}

uint32_t rfs_catalog_ranks(const struct rfs_catalog *catalog)
{
    return catalog->n_ranks;
}

uint32_t rfs_catalog_lacks(const struct rfs_catalog *catalog)
{
    return catalog->lacks;
}

uint32_t rfs_catalog_present(const struct rfs_catalog *catalog)
{
    return catalog->present;
}

uint32_t rfs_catalog_file(const struct rfs_catalog *catalog, uint32_t rank)
{
    return rank < catalog->n_ranks ? catalog->ranks[rank].file : UINT32_MAX;
}

uint32_t rfs_catalog_file_count(const struct rfs_catalog *catalog, uint32_t rank)
{
    return rank < catalog->n_ranks ? catalog->ranks[rank].n_files : 0;
}

struct rfs_aside *rfs_catalog_aside(struct rfs_catalog *catalog)
{
    return &catalog->aside;
}

bool rfs_catalog_is_model_parallel(const struct rfs_catalog *catalog)
{
    return catalog->model_parallel;
}

bool rfs_catalog_has_parts(const struct rfs_catalog *catalog)
{
    return catalog->has_parts;
}

static uint32_t file_of(const void *ctx, uint32_t part)
{
    return rfs_catalog_file(ctx, part);
}

struct rfs_chunks_parts rfs_catalog_parts(const struct rfs_catalog *catalog, bool uneven_steps)
{
    return (struct rfs_chunks_parts){.folder = catalog->path,
                                     .files = catalog->files,
                                     .n_parts = catalog->n_ranks,
                                     .most = catalog->most > 0 ? catalog->most : UINT64_MAX,
                                     .uneven_steps = uneven_steps,
                                     .part = file_of,
                                     .ctx = catalog};
}

int rfs_catalog_open_parts(struct rfs_catalog *catalog, bool uneven_steps, struct rfs_hfai **out,
                           struct rfs_error *err)
{
    const struct rfs_chunks_parts parts = rfs_catalog_parts(catalog, uneven_steps);

    return rfs_hfai_open(&parts, out, err);
}

struct rfs_chunks *rfs_catalog_chunks(const struct rfs_catalog *catalog)
{
    return catalog->chunks;
}

void rfs_catalog_keep_values(struct rfs_catalog *catalog)
{
    atomic_store(&catalog->builder.warned_left_out, true);
}

enum rfs_format rfs_catalog_format(const struct rfs_catalog *catalog)
{
    return catalog->builder.format;
}

enum rfs_format rfs_catalog_gives(const struct rfs_catalog *catalog)
{
    const struct rfs_format_row *row = &rfs_formats[catalog->builder.format];
    unsigned char head[RFS_FORMAT_WRITER];
    const uint32_t file = rfs_catalog_file(catalog, rfs_catalog_lowest(catalog));

    if (!row->by_mindspore || catalog->chunks || catalog->gives != row->gives)
        return catalog->gives;
    const ssize_t n = rfs_store_head(rfs_files_store(catalog->files),
                                     rfs_files_path(catalog->files, file), head, sizeof head);
    return n > 0 && row->by_mindspore(head, (size_t)n) ? RFS_FORMAT_CKPT : catalog->gives;
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

struct rfs_tables *rfs_catalog_tables(struct rfs_catalog *catalog)
{
    return &catalog->tables;
}

struct rfs_kept *rfs_catalog_kept(const struct rfs_catalog *catalog)
{
    return catalog->kept;
}

const char *rfs_catalog_key(const struct rfs_catalog *catalog)
{
    return catalog->key;
}

struct timespec rfs_catalog_opened(const struct rfs_catalog *catalog)
{
    return catalog->opened;
}

/* ---- uses ------------------------------------------------------------------------------------ */

/*
 * An index may be dropped to make room only if it was not requested since the oldest current use
 * began: uses that requested it before have ended.
 *
 * rfs_catalog_ready takes no lock. It marks the rank as used and then loads the rank's index.
 * Dropping makes the index absent and then loads the mark; indexes marked since the oldest use
 * began are put back. Each side stores its own before it loads the other's, all in one order
 * (memory_order_seq_cst), so at least one of the two sees the other: the reader finds no index, or
 * the index stays. That needs marks that never fall. A thread may be held up between its look at
 * the count of uses and its mark, while a later use marks the rank: so a mark is only ever raised.
 */
/* Marks the rank as requested by the uses that have begun. */
static void mark(const struct rfs_catalog *catalog, struct catalog_rank *rank)
{
    const uint64_t uses = atomic_load(&catalog->uses);
    uint64_t used = atomic_load(&rank->used);

    if (catalog->marking)
        catalog->marking(catalog->marking_ctx);
    while (used < uses && !atomic_compare_exchange_weak(&rank->used, &used, uses))
        continue;
}

void rfs_catalog_watch_marks(struct rfs_catalog *catalog, void (*fn)(void *ctx), void *ctx)
{
    catalog->marking_ctx = ctx;
    catalog->marking = fn;
}

void rfs_catalog_begin(struct rfs_catalog *catalog, struct rfs_use *use)
{
    RFS_LOCKED(&catalog->lock);
    *use = (struct rfs_use){atomic_fetch_add(&catalog->uses, 1) + 1, catalog->last, NULL};
    if (use->before)
        use->before->after = use;
    else
        catalog->first = use;
    catalog->last = use;
}

/* ---- making room ----------------------------------------------------------------------------- */

RFS_COMPARE(by_use, struct rfs_built *, x, y, RFS_ORDER((*x)->used, (*y)->used))

/* Returns the bytes of its indexes, without those that it owns together with others. */
static size_t memory_of(const struct rfs_built *built)
{
    size_t bytes = built->merged ? rfs_index_memory(built->merged) : 0;
    for (uint32_t i = 0; i < built->n_files; i++)
        if (built->files[i] && atomic_load(&built->files[i]->shares) == 0)
            bytes += rfs_index_memory(built->files[i]);
    return bytes;
}

/* Chooses the indexes to drop among those requested before OLDEST. Returns whether there is any. */
static bool choose(struct rfs_catalog *catalog, uint64_t oldest, uint64_t bytes)
{
    const uint64_t enough = catalog->most - catalog->most / 4; /* the next index finds room, too */
    bool any = false;

    for (size_t i = 0; i < catalog->owned.n; i++) {
        catalog->owned.data[i]->used = 0;
        catalog->owned.data[i]->dropped = false;
    }
    for (uint32_t r = 0; r < catalog->n_ranks; r++) {
        struct rfs_built *built = catalog->ranks[r].built;
        const uint64_t used = atomic_load(&catalog->ranks[r].used);
        if (built && built->used < used)
            built->used = used;
    }
    RFS_SORT_ALL(&catalog->owned, by_use);
    for (size_t i = 0; i < catalog->owned.n && bytes > enough; i++) {
        struct rfs_built *built = catalog->owned.data[i];
        const uint64_t less = memory_of(built);
        if (built->used >= oldest)
            break;
        built->dropped = true;
        any = true;
        bytes -= less < bytes ? less : bytes;
    }
    return any;
}

static void make_absent(struct rfs_catalog *catalog, uint64_t oldest)
{
    for (uint32_t r = 0; r < catalog->n_ranks; r++)
        if (catalog->ranks[r].built && catalog->ranks[r].built->dropped)
            atomic_store(&catalog->ranks[r].index, NULL);
    for (uint32_t r = 0; r < catalog->n_ranks; r++)
        if (catalog->ranks[r].built && atomic_load(&catalog->ranks[r].used) >= oldest)
            catalog->ranks[r].built->dropped = false;
    for (uint32_t r = 0; r < catalog->n_ranks; r++) {
        struct catalog_rank *rank = &catalog->ranks[r];
        if (rank->built && rank->built->dropped)
            rank->built = NULL;
        else if (rank->built)
            atomic_store(&rank->index, rank->built->index);
    }
}

static void make_room(struct rfs_catalog *catalog)
{
    const uint64_t oldest = catalog->first ? catalog->first->since : UINT64_MAX;
    size_t left = 0;

    if (!choose(catalog, oldest, atomic_load(&catalog->index_bytes)))
        return;
    make_absent(catalog, oldest);
    for (size_t i = 0; i < catalog->owned.n; i++) {
        struct rfs_built *built = catalog->owned.data[i];
        if (!built->dropped) {
            catalog->owned.data[left++] = built;
            continue;
        }
        if (built->from != RFS_NO_ID)
            catalog->from_kept[built->from] = NULL;
        atomic_fetch_sub(&catalog->index_bytes, rfs_built_free(built));
        atomic_fetch_add(&catalog->dropped, 1);
    }
    catalog->owned.n = left;
}

void rfs_catalog_end(struct rfs_catalog *catalog, struct rfs_use *use)
{
    RFS_LOCKED(&catalog->lock);
    if (use->before)
        use->before->after = use->after;
    else
        catalog->first = use->after;
    if (use->after)
        use->after->before = use->before;
    else
        catalog->last = use->before;
    if (catalog->most > 0 && atomic_load(&catalog->index_bytes) > catalog->most)
        make_room(catalog);
}

/* ---- indexing -------------------------------------------------------------------------------- */

/*
 * Loads the indexes of an earlier view, once. Called with the lock held, which is released
 * meanwhile. 0 or -EINTR.
 */
static int load_kept(struct rfs_catalog *catalog)
{
    const int rc = rfs_once_begin(&catalog->loading, &catalog->done, &catalog->lock);

    if (rc <= 0)
        return rc;
    pthread_mutex_unlock(&catalog->lock);
    struct rfs_kept_index *index =
        rfs_kept_index_load(catalog->kept, catalog->key, &catalog->tables);
    struct rfs_built **built = index ? calloc(index->builts.n + 1, sizeof *built) : NULL;
    if (!built) {
        rfs_kept_index_free(index);
        index = NULL;
    }
    pthread_mutex_lock(&catalog->lock);
    catalog->on_disk = index;
    catalog->from_kept = built;
    rfs_once_end(&catalog->loading, &catalog->done, true);
    return 0;
}

const struct rfs_index *rfs_catalog_ready(const struct rfs_catalog *catalog, uint32_t rank)
{
    if (!rfs_catalog_has(catalog, rank))
        return NULL;
    struct catalog_rank *slot = &catalog->ranks[rank];
    mark(catalog, slot);
    return atomic_load(&slot->index);
}

/* Sources of an index. */
enum index_origin { WALKED, PREDICTED, FROM_DISK, FROM_DISK_SHARED };

/* Gives a rank its index; *built is freed when it cannot be kept. Called with the lock held. */
static int keep(struct rfs_catalog *catalog, struct catalog_rank *rank, struct rfs_built *built,
                enum index_origin origin, struct rfs_error *err)
{
    const bool fresh = origin == WALKED || origin == FROM_DISK;
    if (fresh && !RFS_PUSH(&catalog->owned, built)) {
        rfs_built_free(built);
        return rfs_fail_memory_of(err, catalog->path);
    }
    if (fresh) {
        atomic_fetch_add(&catalog->index_bytes, memory_of(built));
        struct rfs_index *index = built->merged ? built->merged : built->files[0];
        index->serial = index->serial ? index->serial : ++catalog->serials;
    }
    atomic_fetch_add(&catalog->indexed, 1);
    if (origin == PREDICTED)
        atomic_fetch_add(&catalog->predicted, 1);
    if (origin == FROM_DISK || origin == FROM_DISK_SHARED)
        atomic_fetch_add(&catalog->from_disk, 1);
    else if (!atomic_load(&built->warned))
        catalog->unkept = true;
    rank->built = built;
    mark(catalog, rank);
    atomic_store(&rank->index, built->index); /* for rfs_catalog_ready, which takes no lock */
    return 0;
}

static void end_busy(struct rfs_catalog *catalog, struct catalog_rank *rank)
{
    rank->busy = false;
    pthread_cond_broadcast(&catalog->done);
}

/* Publishes an index, or the failure to make one. Called with the lock held. */
static int publish(struct rfs_catalog *catalog, struct catalog_rank *rank, int rc,
                   struct rfs_built *built, enum index_origin origin, struct rfs_error *err)
{
    if (rc == 0)
        rc = keep(catalog, rank, built, origin, err);
    if (rc < 0 && !rfs_files_may_pass(catalog->files, rc)) {
        rank->empty = rc == -ENODATA;
        rc = rank->empty ? -EINVAL : rc;
        err->code = rc;
        rank->failed = rc;
        rank->text = strdup(err->text);
    }
    end_busy(catalog, rank);
    return rc;
}

/*
 * Publishes an index from the disk. False when it cannot be kept: the rank stays busy then, to be
 * built.
 */
static bool publish_kept(struct rfs_catalog *catalog, struct catalog_rank *rank,
                         struct rfs_built *built, enum index_origin origin)
{
    if (keep(catalog, rank, built, origin, NULL) < 0)
        return false;
    end_busy(catalog, rank);
    return true;
}

/* Takes a rank's index from the disk. False when there is none that is good. */
static bool take_kept(struct rfs_catalog *catalog, struct catalog_rank *slot, uint32_t rank)
{
    if (!catalog->on_disk)
        return false;
    const uint32_t number =
        rfs_kept_index_find(catalog->on_disk, rank, catalog->files, slot->file, slot->n_files);
    if (number == RFS_NO_ID)
        return false;
    pthread_mutex_lock(&catalog->lock);
    bool there = catalog->from_kept[number];
    if (there)
        publish_kept(catalog, slot, catalog->from_kept[number], FROM_DISK_SHARED);
    pthread_mutex_unlock(&catalog->lock);
    if (there)
        return true;
    struct rfs_built *fresh =
        rfs_kept_index_read(catalog->on_disk, number, &catalog->tables, catalog->files, slot->file);
    if (!fresh)
        return false;
    RFS_LOCKED(&catalog->lock);
    struct rfs_built *built = catalog->from_kept[number];
    there = built;
    if (there)
        rfs_built_free(fresh);
    else
        fresh->from = number;
    const bool good =
        publish_kept(catalog, slot, there ? built : fresh, there ? FROM_DISK_SHARED : FROM_DISK);
    if (good)
        catalog->from_kept[number] = slot->built;
    return good;
}

/* Takes what a rank's map says; only rank 0 has one. An index that is made again reads it anew. */
static struct rfs_mapfile take_map(struct rfs_catalog *catalog, const struct catalog_rank *slot)
{
    const struct rfs_mapfile map = slot->weight_map ? catalog->map : (struct rfs_mapfile){0};

    if (slot->weight_map)
        catalog->map = (struct rfs_mapfile){0};
    return map;
}

/* Builds a rank's index from its files. */
static int make(struct rfs_catalog *catalog, struct catalog_rank *slot, uint32_t predictor,
                struct rfs_error *err)
{
    /* The text is remembered even if the caller wants none. */
    struct rfs_error failure = {0};
    struct rfs_built *built = NULL;
    struct rfs_built *prediction = NULL;
    RFS_CLEANUP(rfs_mapfile_free) struct rfs_mapfile map = take_map(catalog, slot);
    if (predictor != RFS_NO_RANK && rfs_catalog_ready(catalog, predictor))
        prediction = catalog->ranks[predictor].built;
    int rc = rfs_built_make(&catalog->builder, slot->file, slot->n_files, slot->weight_map, &map,
                            prediction, &built, &failure);

    pthread_mutex_lock(&catalog->lock);
    rc = publish(catalog, slot, rc, built, built == prediction ? PREDICTED : WALKED, &failure);
    pthread_mutex_unlock(&catalog->lock);
    if (rc < 0 && err)
        *err = failure;
    return rc;
}

/* Gives the failure that is remembered. Called with the lock held. */
static int recall(const struct catalog_rank *rank, struct rfs_error *err)
{
    if (err) {
        *err = (struct rfs_error){.code = rank->failed};
        snprintf(err->text, sizeof err->text, "%s",
                 rank->text ? rank->text : strerror(-rank->failed));
    }
    return rank->failed;
}

int rfs_catalog_index(struct rfs_catalog *catalog, uint32_t rank, uint32_t predictor,
                      const struct rfs_index **out, struct rfs_error *err)
{
    const uint32_t id = rfs_catalog_file(catalog, rank);
    struct rfs_error own = {0};
    if (!err)
        err = &own; /* its text is remembered for later requests */
    if (id == UINT32_MAX)
        return rfs_fail(err, -ENOENT, RFS_IN(catalog->path), "copy it there",
                        "rank %u has no checkpoint", rank);
    *out = rfs_catalog_ready(catalog, rank);
    if (*out)
        return 0;
    struct catalog_rank *slot = &catalog->ranks[rank];
    pthread_mutex_lock(&catalog->lock);
    int waited = catalog->kept ? load_kept(catalog) : 0;
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

    const int rc = take_kept(catalog, slot, rank) ? 0 : make(catalog, slot, predictor, err);
    if (catalog->indexed_fn)
        catalog->indexed_fn(catalog->indexed_ctx, atomic_load(&catalog->indexed), catalog->present);
    if (rc == 0)
        *out = atomic_load(&slot->index);
    return rc;
}

/* Samples of an encrypted file: each takes the decryption of a block, the first and the last. */
#define SAMPLES_ENCRYPTED 2

int rfs_catalog_resembles(struct rfs_catalog *catalog, uint32_t rank, uint32_t predictor,
                          size_t samples)
{
    const struct catalog_rank *slot = &catalog->ranks[rank];
    const struct rfs_built *prediction = catalog->ranks[predictor].built;
    const struct rfs_builder *builder = &catalog->builder;
    const struct rfs_format_row *row = &rfs_formats[builder->format];
    struct rfs_reading reading;

    if (slot->n_files != 1 || slot->weight_map || !row->resembles || prediction->n_files != 1 ||
        prediction->merged)
        return 0;
    if (rfs_files_are_encrypted(builder->files))
        samples = SAMPLES_ENCRYPTED;
    int rc = rfs_reading_begin(builder->files, slot->file, &reading);
    if (rc < 0)
        return rc;
    rc = row->resembles(RFS_READING_SOURCE(&reading, NULL), prediction->index, builder->tables,
                        samples);
    const int end = rfs_reading_end(&reading);
    return end < 0 ? end : rc;
}

bool rfs_catalog_is_empty(struct rfs_catalog *catalog, uint32_t rank)
{
    if (!rfs_catalog_has(catalog, rank))
        return false;
    RFS_LOCKED(&catalog->lock);
    return catalog->ranks[rank].empty;
}

void rfs_catalog_count(struct rfs_catalog *catalog, struct rfs_catalog_counters *out)
{
    out->indexed = atomic_load(&catalog->indexed);
    out->predicted = atomic_load(&catalog->predicted);
    out->kept = atomic_load(&catalog->from_disk);
    out->index_bytes = atomic_load(&catalog->index_bytes);
    out->dropped = atomic_load(&catalog->dropped);
}

/* ---- keeping --------------------------------------------------------------------------------- */

/*
 * Lists the ranks that can be kept. Indexes that are in memory stay there as long as the use that
 * the caller has begun.
 */
static size_t collect(struct rfs_catalog *catalog, struct rfs_keeping *list)
{
    size_t n = 0;

    for (uint32_t r = 0; r < catalog->n_ranks; r++) {
        struct catalog_rank *rank = &catalog->ranks[r];
        struct rfs_keeping one = {r, rank->file, rank->n_files, rank->built, RFS_NO_ID};
        if (rank->file == UINT32_MAX || rank->failed ||
            (rank->built && atomic_load(&rank->built->warned)))
            continue;
        atomic_store(&rank->used, atomic_load(&catalog->uses));
        if (one.built || catalog->on_disk)
            list[n++] = one;
    }
    return n;
}

/* Finds the kept data of ranks that are not in memory, and leaves out ranks without any. */
static size_t find_before(struct rfs_catalog *catalog, struct rfs_keeping *list, size_t n)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++) {
        if (!list[i].built)
            list[i].before = rfs_kept_index_find(catalog->on_disk, list[i].rank, catalog->files,
                                                 list[i].first, list[i].n_files);
        if (list[i].built || list[i].before != RFS_NO_ID)
            list[found++] = list[i];
    }
    return found;
}

void rfs_catalog_keep(struct rfs_catalog *catalog)
{
    if (!catalog->kept)
        return;
    RFS_FREE struct rfs_keeping *list = malloc(catalog->n_ranks * sizeof *list);
    struct rfs_use use;
    size_t n = 0;

    if (!list)
        return;
    rfs_catalog_begin(catalog, &use);
    pthread_mutex_lock(&catalog->lock);
    const bool mine = catalog->unkept && !catalog->keeping;
    if (mine) {
        catalog->keeping = true;
        catalog->unkept = false;
        n = collect(catalog, list);
    }
    pthread_mutex_unlock(&catalog->lock);
    if (mine) {
        n = find_before(catalog, list, n);
        rfs_kept_index_store(catalog->kept, catalog->key, &catalog->tables, catalog->files,
                             catalog->opened, catalog->on_disk, list, n);
        RFS_LOCKED(&catalog->lock);
        catalog->keeping = false;
    }
    rfs_catalog_end(catalog, &use);
}

/* ---- quantized tensors ----------------------------------------------------------------------- */

enum rfs_dtype rfs_catalog_plain_dtype(struct rfs_catalog *catalog, uint32_t name,
                                       enum rfs_dtype from)
{
    if (!catalog->scheme || from != RFS_FLOAT32)
        return from;
    const struct rfs_index *index = rfs_catalog_ready(catalog, rfs_catalog_lowest(catalog));
    const struct rfs_entry *entry = index ? rfs_index_find(index, name) : NULL;
    return entry && rfs_index_quant(index, entry) ? RFS_BFLOAT16 : from;
}

const char *rfs_catalog_quant_config(const struct rfs_catalog *catalog)
{
    return catalog->scheme ? catalog->scheme->config : NULL;
}

/* ---- contents -------------------------------------------------------------------------------- */

int rfs_catalog_content(struct rfs_catalog *catalog, const struct rfs_index *index,
                        const struct rfs_entry *entry, struct rfs_content *out)
{
    *out = rfs_catalog_content_of(index, entry);
    if (out->n == 0)
        return 0;
    const uint32_t id =
        rfs_intern_add(catalog->extents, out->extents, out->n * sizeof *out->extents);
    if (id == RFS_NO_ID)
        return -ENOMEM;
    out->extents = rfs_intern_bytes(catalog->extents, id, NULL);
    return 0;
}

int rfs_catalog_lengths(struct rfs_catalog *catalog, const struct rfs_index *index,
                        const struct rfs_entry *entry, uint32_t *id)
{
    const struct rfs_content content = rfs_catalog_content_of(index, entry);
    const struct rfs_type *type = rfs_catalog_type(catalog, entry->type);
    const uint32_t n = content.n > 0 ? content.n : 1;
    RFS_FREE uint64_t *lengths = malloc(n * sizeof *lengths);

    if (!lengths)
        return -ENOMEM;
    lengths[0] = type->bytes;
    for (uint32_t i = 0; i < content.n; i++)
        lengths[i] = content.extents[i].bytes;
    *id = rfs_intern_add(catalog->lengths, lengths, n * sizeof *lengths);
    return *id == RFS_NO_ID ? -ENOMEM : 0;
}

const uint64_t *rfs_catalog_lengths_of(const struct rfs_catalog *catalog, uint32_t id, size_t *n)
{
    const uint64_t *lengths = rfs_intern_bytes(catalog->lengths, id, n);

    *n /= sizeof *lengths;
    return lengths;
}

uint64_t rfs_catalog_content_offset(const struct rfs_content *content, uint64_t offset)
{
    const struct rfs_extent *extent = content->extents;
    if (content->quant)
        return content->offset + rfs_quant_code_at(content->quant, offset);
    if (content->n == 0)
        return content->offset + offset;
    for (uint32_t i = 1; i < content->n && offset >= extent->bytes; i++, extent++)
        offset -= extent->bytes;
    return extent->offset + offset;
}

int rfs_catalog_content_pread(struct rfs_reading *reading, const struct rfs_content *content,
                              struct rfs_quant_scales *scales, void *buf, size_t size,
                              uint64_t offset)
{
    unsigned char *p = buf;
    if (content->quant)
        return rfs_quant_pread(reading, content->quant, content->offset, scales, buf, size, offset);
    if (content->n == 0)
        return content->offset > UINT64_MAX - offset
                   ? -EINVAL
                   : rfs_reading_pread(reading, p, size, content->offset + offset);
    const struct rfs_extent *extent = content->extents;
    for (uint32_t i = 0; i < content->n && size > 0; i++, extent++) {
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
