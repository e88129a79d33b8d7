/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/built.h"

#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/intern.h"
#include "base/order.h"
#include "catalog/merge.h"
#include "formats/ckpt/crc.h"
#include "formats/foreign.h"
#include "formats/formats.h"

struct rfs_built *rfs_built_new(uint32_t n_files)
{
    struct rfs_built *built = calloc(1, sizeof *built + n_files * sizeof *built->files);

    if (built) {
        built->n_files = n_files;
        built->from = RFS_NO_ID;
    }
    return built;
}

size_t rfs_built_free(struct rfs_built *built)
{
    size_t bytes = 0;

    if (!built)
        return 0;
    for (uint32_t i = 0; i < built->n_files; i++)
        bytes += rfs_index_free(built->files[i]);
    bytes += rfs_index_free(built->merged);
    free(built);
    return bytes;
}

/* What the log says of a file. */
struct told {
    size_t left_out; /* values that are not tensors */
    struct rfs_outside outside;
    bool no_crc; /* its checksum should be compared, and it has none */
};

/* A rank that is being indexed. */
struct job {
    struct rfs_builder *builder;
    uint32_t file; /* id of its first file */
    struct rfs_built *prediction;
    struct rfs_built *built;
    struct told *told; /* [n_files] */
    bool by_name;      /* entries are sorted by name */
    struct rfs_first_error first;
};

static int fail_memory(const struct rfs_builder *builder, uint32_t file, struct rfs_error *err)
{
    return rfs_fail_memory_of(err, rfs_files_path(builder->files, file));
}

static int compare_names(const void *a, const void *b, void *ctx)
{
    const struct rfs_entry *x = a;
    const struct rfs_entry *y = b;
    return strcmp(rfs_intern_text(ctx, x->name), rfs_intern_text(ctx, y->name));
}

/* Sorts entries by the bytes of their names, as Python does. */
static int sort_entries(const struct rfs_builder *builder, struct rfs_index *index)
{
    size_t a;
    size_t b;
    RFS_SORT_BY(index->entries, index->n, compare_names, builder->tables->names);
    return rfs_index_order_names(index, &a, &b);
}

/* Logs what the files of a rank lack and what is left out of them: each once for all files. */
static void tell(const struct job *job)
{
    struct rfs_builder *builder = job->builder;

    for (uint32_t i = 0; i < job->built->n_files; i++) {
        const struct told *told = &job->told[i];
        const char *path = rfs_files_path(builder->files, job->file + i);
        if (told->no_crc)
            rfs_crc_tell_none(builder->log, &builder->warned_no_crc,
                              rfs_formats[builder->format].records, path);
        if (told->outside.n > 0 && !atomic_exchange(&builder->warned_outside, true))
            rfs_log(builder->log, RFS_WARNING,
                    "%s: entry=%s is the beginning of names: %zu tensor%s without it %s left out, "
                    "such as '%s'",
                    path, builder->entry, told->outside.n, told->outside.n == 1 ? "" : "s",
                    told->outside.n == 1 ? "is" : "are", told->outside.first);
        if (told->outside.n > 0)
            atomic_store(&job->built->warned, true);
        if (told->left_out == 0)
            continue;
        atomic_store(&job->built->warned, true);
        if (!atomic_exchange(&builder->warned_left_out, true))
            rfs_log(builder->log, RFS_WARNING,
                    told->left_out == 1 ? "%s: %zu value that is not a tensor is left out"
                                        : "%s: %zu values that are not tensors are left out",
                    path, told->left_out);
    }
}

static int verify(const struct rfs_builder *builder, const struct rfs_format_file *file,
                  const struct rfs_index *index, struct told *told, struct rfs_error *err)
{
    if (!builder->check_crc)
        return 0;
    rfs_format_verify_fn *const compare = rfs_formats[builder->format].verify;
    const int rc = compare ? compare(file, index, err) : 1;
    told->no_crc = rc == 1;
    return rc < 0 ? rc : 0;
}

/* Says whether two indexes are equal: of files whose headers may differ, as in a crc_num. */
static bool is_same(const struct rfs_index *a, const struct rfs_index *b)
{
    return a->n == b->n && a->file_bytes == b->file_bytes && a->has_crc == b->has_crc &&
           a->redundancy_removed == b->redundancy_removed && a->n_extents == 0 &&
           a->n_strided == 0 && b->n_strided == 0 && b->n_extents == 0 &&
           memcmp(a->entries, b->entries, a->n * sizeof *a->entries) == 0;
}

/*
 * Leaves the entries of an index whose names begin with ENTRY and a dot, by the rest of these. 0,
 * or -errno with *err filled.
 */
static int take_entry(const struct rfs_builder *builder, const char *path, struct rfs_index *index,
                      struct rfs_outside *outside, struct rfs_error *err)
{
    const char *entry = builder->entry;
    const size_t bytes = strlen(entry);
    size_t n = 0;
    size_t strided = 0;
    size_t first;
    size_t second;

    for (size_t i = 0, k = 0; i < index->n; i++) {
        const char *name = rfs_intern_text(builder->tables->names, index->entries[i].name);
        const bool is_strided = k < index->n_strided && index->strided[k].entry == i;
        k += is_strided;
        if (strncmp(name, entry, bytes) != 0 || name[bytes] != '.' || !name[bytes + 1]) {
            rfs_outside_note(outside, name, strlen(name));
            continue;
        }
        if (is_strided) {
            index->strided[strided] = index->strided[k - 1];
            index->strided[strided++].entry = (uint32_t)n;
        }
        index->entries[n] = index->entries[i];
        index->entries[n].name =
            rfs_intern_add(builder->tables->names, name + bytes + 1, strlen(name + bytes + 1));
        if (index->entries[n++].name == RFS_NO_ID)
            return rfs_fail_memory_of(err, path);
    }
    index->n = n;
    index->n_strided = strided;
    if (n == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(path), "leave entry out",
                        "no name in it begins with that of entry=%s", entry);
    return rfs_index_order_names(index, &first, &second) < 0 ? rfs_fail_memory_of(err, path) : 0;
}

/* Gives the index of one file: PREDICTION, shared, or one of its own. */
static int build_file(const struct job *job, uint32_t file, struct rfs_index *prediction,
                      struct rfs_index **out, struct rfs_error *err)
{
    struct rfs_builder *builder = job->builder;
    struct told *told = &job->told[file - job->file];
    const char *path = rfs_files_path(builder->files, file);
    struct rfs_index *fresh = NULL;
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(builder->files, file, &reading);
    if (rc < 0)
        return rfs_files_fail(err, path, rc);
    struct rfs_format_file read = {.from = RFS_READING_SOURCE(&reading, path),
                                   .tables = builder->tables,
                                   .pool = builder->pool,
                                   .entry = builder->entry};
    /* Names in keyed formats are read by the entry already. */
    const bool renames = builder->entry && *builder->entry && !rfs_formats[builder->format].keyed;
    prediction = renames ? NULL : prediction;
    rc = rfs_formats[builder->format].index(&read, prediction, &fresh, err);
    if (rc == 0)
        told->left_out = read.left_out;
    told->outside = read.outside;
    rc = rfs_format_explain(&rfs_formats[builder->format], read.from, rc, err);
    if (rc >= 0)
        rc = verify(builder, &read, fresh ? fresh : prediction, told, err);
    if (rc == 0 && renames)
        rc = take_entry(builder, path, fresh, &told->outside, err);
    const int end = rfs_reading_end(&reading);
    if (end < 0)
        rc = rfs_files_fail(err, path, end);
    if (rc == 0 && fresh && job->by_name && sort_entries(builder, fresh) < 0)
        rc = fail_memory(builder, file, err);
    if (rc < 0 || (fresh && prediction && is_same(fresh, prediction))) {
        rfs_index_free(fresh);
        fresh = NULL;
    }
    *out = fresh || rc < 0 || !prediction ? fresh : rfs_index_share(prediction);
    return rc;
}

static int build_one(void *ctx, size_t i)
{
    struct job *job = ctx;
    struct rfs_error err = {0};
    struct rfs_index *prediction =
        job->prediction && job->prediction->n_files == job->built->n_files
            ? job->prediction->files[i]
            : NULL;
    const int rc =
        build_file(job, job->file + (uint32_t)i, prediction, &job->built->files[i], &err);
    if (rc < 0)
        rfs_files_reason(job->builder->files, job->file + (uint32_t)i, rc, &err);
    return rfs_first_error_note(&job->first, i, rc, &err);
}

static bool is_predicted(const struct job *job)
{
    if (!job->prediction || job->prediction->n_files != job->built->n_files)
        return false;
    for (uint32_t i = 0; i < job->built->n_files; i++)
        if (job->built->files[i] != job->prediction->files[i])
            return false;
    return true;
}

static int merge(const struct job *job, const char *weight_map, struct rfs_mapfile *map,
                 struct rfs_error *err)
{
    const struct rfs_builder *builder = job->builder;
    struct rfs_built *built = job->built;
    const uint32_t n = built->n_files;
    RFS_FREE const char **files = malloc(n * sizeof *files);
    RFS_FREE const struct rfs_index **indexes = malloc(n * sizeof *indexes);
    if (!files || !indexes)
        return fail_memory(builder, job->file, err);
    for (uint32_t i = 0; i < n; i++) {
        files[i] = rfs_files_path(builder->files, job->file + i);
        indexes[i] = built->files[i];
    }
    const struct rfs_merge work = {.files = files,
                                   .indexes = indexes,
                                   .n = n,
                                   .beneath = rfs_files_beneath(builder->files),
                                   .store = rfs_files_store(builder->files),
                                   .weight_map = weight_map,
                                   .map = map,
                                   .last_counts = builder->last_counts,
                                   .skip = builder->skip,
                                   .tables = builder->tables,
                                   .log = builder->log};
    const int rc = rfs_merge(&work, &built->merged, err);
    built->index = built->merged;
    return rc;
}

/* Makes the index of a rank show its quantized weights as plain tensors. */
static int dequantize(const struct job *job, struct rfs_error *err)
{
    const struct rfs_builder *builder = job->builder;
    struct rfs_built *built = job->built;
    const struct rfs_quant_source source = {.scheme = builder->scheme,
                                            .files = builder->files,
                                            .first_file = job->file,
                                            .tables = builder->tables,
                                            .quants = builder->quants,
                                            .pool = builder->pool};
    struct rfs_index *index;
    const int rc = rfs_quant_pair(&source, built->index, &index, err);

    if (rc)
        return rc;
    rfs_index_free(built->merged);
    built->index = built->merged = index;
    return 0;
}

/*
 * MindSpore gets the tensors of a rank's safetensors file sorted by name (load_file of safetensors
 * 0.5, and load_checkpoint's own), and those of an unsharded checkpoint by its map (merge.c).
 */
int rfs_built_make(struct rfs_builder *builder, uint32_t file, uint32_t n_files,
                   const char *weight_map, struct rfs_mapfile *map, struct rfs_built *prediction,
                   struct rfs_built **out, struct rfs_error *err)
{
    const bool merged = n_files > 1 || weight_map || builder->skip;
    struct rfs_built *built = rfs_built_new(n_files);
    RFS_FREE struct told *told = calloc(n_files + 1, sizeof *told);
    struct job job = {.builder = builder,
                      .file = file,
                      .prediction = prediction,
                      .built = built,
                      .told = told,
                      .first = RFS_FIRST_ERROR};
    *out = NULL;
    if (!built || !told) {
        rfs_built_free(built);
        return fail_memory(builder, file, err);
    }
    job.by_name = !merged && rfs_formats[builder->format].by_name;
    int rc = 0;
    if (builder->pool && n_files > 1)
        rc = rfs_pool_for(builder->pool, n_files, build_one, &job);
    for (uint32_t i = 0; (!builder->pool || n_files == 1) && rc == 0 && i < n_files; i++)
        rc = build_one(&job, i);
    tell(&job);
    rc = rfs_first_error_take(&job.first, rc, err);
    if (rc == -ENODATA && merged) { /* another file of the rank may have parameters */
        rc = -EINVAL;
        if (err)
            err->code = rc;
    }
    if (rc == 0 && is_predicted(&job)) {
        rfs_built_free(built);
        *out = prediction;
        return 0;
    }
    built->index = built->files[0];
    if (rc == 0 && merged)
        rc = merge(&job, weight_map, map, err);
    if (rc == 0 && builder->scheme)
        rc = dequantize(&job, err);
    for (uint32_t i = 0; rc == 0 && merged && prediction && i < n_files; i++) {
        rfs_index_free(built->files[i]);
        built->files[i] = NULL;
    }
    if (rc < 0)
        rfs_built_free(built);
    else
        *out = built;
    return rc;
}
