/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/build.h"

#include "base/cleanup.h"
#include "base/first_error.h"
#include "catalog/merge.h"
#include "formats/ckpt/crc.h"
#include "formats/ckpt/walk.h"
#include "formats/safetensors/header.h"
#include "formats/torch/index.h"
#include "formats/torch/zip.h"

/* One rank at work. */
struct job {
    struct rfs_builder *builder;
    uint32_t file; /* id of its first one */
    struct rfs_built *template;
    struct rfs_built *built;
    bool by_name; /* sort the entries of a safetensors file */
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

/* As the bytes of the names are, which is how Python sorts them. */
static int sort_entries(const struct rfs_builder *builder, struct rfs_index *index)
{
    size_t a;
    size_t b;
    qsort_r(index->entries, index->n, sizeof *index->entries, compare_names,
            builder->tables->names);
    return rfs_index_order_names(index, &a, &b);
}

/* Of .ckpt files: 1 when TEMPLATE is the file's index too, 0 with *fresh, or -errno. */
static int index_ckpt(const struct rfs_builder *builder, struct rfs_reading *reading,
                      const char *path, const struct rfs_index *template, struct rfs_index **fresh,
                      struct rfs_error *err)
{
    int rc = 0;
    if (template)
        rc = rfs_ckpt_matches(rfs_reading_read, reading, reading->size, template, builder->tables,
                              builder->pool);
    if (rc < 0)
        return rfs_files_fail(err, path, rc);
    if (rc == 1)
        return 1;
    return rfs_ckpt_walk(rfs_reading_read, reading, reading->size, path, builder->tables, fresh,
                         err);
}

static int index_torch(struct rfs_builder *builder, struct rfs_reading *reading, const char *path,
                       struct rfs_index **fresh, atomic_bool *warned, struct rfs_error *err)
{
    size_t left_out = 0;
    const int rc = rfs_torch_walk(rfs_reading_read, reading, reading->size, path, builder->entry,
                                  builder->tables, fresh, &left_out, err);
    if (rc == 0 && left_out > 0)
        atomic_store(warned, true);
    if (rc == 0 && left_out > 0 && !atomic_exchange(&builder->warned_left_out, true))
        rfs_log(builder->log, RFS_WARNING,
                left_out == 1 ? "%s: %zu value that is not a tensor is left out"
                              : "%s: %zu values that are not tensors are left out",
                path, left_out);
    return rc;
}

static int verify(struct rfs_builder *builder, struct rfs_reading *reading, const char *path,
                  const struct rfs_index *index, struct rfs_error *err)
{
    if (!builder->check_crc)
        return 0;
    const int rc = builder->format == RFS_FORMAT_TORCH
                       ? rfs_zip_verify(rfs_reading_read, reading, reading->size, path, err)
                       : rfs_crc_verify(rfs_reading_read, reading, builder->format, index,
                                        builder->tables, path, err);
    if (rc == 1)
        rfs_crc_tell_none(builder->log, &builder->warned_no_crc, builder->format, path);
    return rc < 0 ? rc : 0;
}

/* Whether two files differ in their headers (a crc_num), but not in the part that matters. */
static bool is_same(const struct rfs_index *a, const struct rfs_index *b)
{
    return a->n == b->n && a->file_bytes == b->file_bytes && a->has_crc == b->has_crc &&
           a->redundancy_removed == b->redundancy_removed && a->n_extents == 0 &&
           a->n_strided == 0 && b->n_strided == 0 && b->n_extents == 0 &&
           memcmp(a->entries, b->entries, a->n * sizeof *a->entries) == 0;
}

/* The index of one file: TEMPLATE, or one of its own. */
static int build_piece(const struct job *job, uint32_t file, struct rfs_index *template,
                       struct rfs_index **piece, struct rfs_error *err)
{
    struct rfs_builder *builder = job->builder;
    const char *path = rfs_files_path(builder->files, file);
    struct rfs_index *fresh = NULL;
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(builder->files, file, &reading);
    if (rc < 0)
        return rfs_files_fail(err, path, rc);
    if (builder->format == RFS_FORMAT_SAFETENSORS)
        rc = rfs_safetensors_walk(rfs_reading_read, &reading, reading.size, path, builder->tables,
                                  template, &fresh, err);
    else if (builder->format == RFS_FORMAT_TORCH)
        rc = index_torch(builder, &reading, path, &fresh, &job->built->warned, err);
    else
        rc = index_ckpt(builder, &reading, path, template, &fresh, err);
    if (rc >= 0)
        rc = verify(builder, &reading, path, fresh ? fresh : template, err);
    const int end = rfs_reading_end(&reading);
    if (end < 0)
        rc = rfs_files_fail(err, path, end);
    if (rc == 0 && fresh && job->by_name && sort_entries(builder, fresh) < 0)
        rc = fail_memory(builder, file, err);
    if (rc < 0 || (fresh && template && is_same(fresh, template))) {
        rfs_index_free(fresh);
        fresh = NULL;
    }
    *piece = fresh || rc < 0 || !template ? fresh : rfs_index_share(template);
    return rc;
}

static int build_one(void *ctx, size_t i)
{
    struct job *job = ctx;
    struct rfs_error err = {0};
    struct rfs_index *template = job->template && job->template->n_pieces == job->built->n_pieces
                                     ? job->template->pieces[i]
                                     : NULL;
    const int rc =
        build_piece(job, job->file + (uint32_t)i, template, &job->built->pieces[i], &err);
    if (rc < 0)
        rfs_files_reason(job->builder->files, job->file + (uint32_t)i, rc, &err);
    return rfs_first_error_note(&job->first, rc, &err);
}

static bool is_template(const struct job *job)
{
    if (!job->template || job->template->n_pieces != job->built->n_pieces)
        return false;
    for (uint32_t i = 0; i < job->built->n_pieces; i++)
        if (job->built->pieces[i] != job->template->pieces[i])
            return false;
    return true;
}

static int merge(const struct job *job, const char *weight_map, struct rfs_error *err)
{
    const struct rfs_builder *builder = job->builder;
    struct rfs_built *built = job->built;
    const uint32_t n = built->n_pieces;
    RFS_FREE const char **files = malloc(n * sizeof *files);
    RFS_FREE const struct rfs_index **indexes = malloc(n * sizeof *indexes);
    RFS_CLEANUP(rfs_part_map_free) struct rfs_part_map map = {0};
    int rc = 0;
    if (!files || !indexes)
        return fail_memory(builder, job->file, err);
    for (uint32_t i = 0; i < n; i++) {
        files[i] = rfs_files_path(builder->files, job->file + i);
        indexes[i] = built->pieces[i];
    }
    if (weight_map)
        rc = rfs_part_map_read(rfs_files_beneath(builder->files), weight_map, files, n,
                               builder->tables, &map, err);
    const struct rfs_merge work = {
        files,         indexes,         n,           weight_map ? &map : NULL, builder->last_counts,
        builder->skip, builder->tables, builder->log};
    if (rc == 0)
        rc = rfs_merge(&work, &built->merged, err);
    built->index = built->merged;
    return rc;
}

/*
 * MindSpore gets the tensors of a rank's safetensors file sorted by name (load_file of safetensors
 * 0.5, and load_checkpoint's own), and those of an unsharded checkpoint by its map (merge.c).
 */
int rfs_build(struct rfs_builder *builder, uint32_t file, uint32_t parts, const char *weight_map,
              struct rfs_built *template, struct rfs_built **out, struct rfs_error *err)
{
    const bool merged = parts > 1 || weight_map || builder->skip;
    struct rfs_built *built = rfs_built_new(parts);
    struct job job = {.builder = builder,
                      .file = file,
                      .template = template,
                      .built = built,
                      .first = RFS_FIRST_ERROR};
    *out = NULL;
    if (!built)
        return fail_memory(builder, file, err);
    job.by_name = !merged && builder->format == RFS_FORMAT_SAFETENSORS;
    int rc = 0;
    if (builder->pool && parts > 1)
        rc = rfs_pool_for(builder->pool, parts, build_one, &job);
    for (uint32_t i = 0; (!builder->pool || parts == 1) && rc == 0 && i < parts; i++)
        rc = build_one(&job, i);
    rc = rfs_first_error_take(&job.first, rc, err);
    if (rc == -ENODATA && merged) { /* a part without parameters is not a rank without */
        rc = -EINVAL;
        if (err)
            err->code = rc;
    }
    if (rc == 0 && is_template(&job)) {
        rfs_built_free(built);
        *out = template;
        return 0;
    }
    built->index = built->pieces[0];
    if (rc == 0 && merged)
        rc = merge(&job, weight_map, err);
    for (uint32_t i = 0; rc == 0 && merged && template && i < parts; i++) {
        rfs_index_free(built->pieces[i]);
        built->pieces[i] = NULL;
    }
    if (rc < 0)
        rfs_built_free(built);
    else
        *out = built;
    return rc;
}

/* One of the first block and one of the last: each takes the decryption of a block. */
#define SAMPLES_ENCRYPTED 2

int rfs_build_resembles(struct rfs_builder *builder, uint32_t file,
                        const struct rfs_built *template, size_t samples)
{
    struct rfs_reading reading;

    if (builder->format != RFS_FORMAT_CKPT || template->n_pieces != 1 || template->merged)
        return 0;
    if (rfs_files_secret(builder->files))
        samples = SAMPLES_ENCRYPTED;
    int rc = rfs_reading_begin(builder->files, file, &reading);
    if (rc < 0)
        return rc;
    rc = rfs_ckpt_resembles(rfs_reading_read, &reading, reading.size, template->index,
                            builder->tables, samples);
    const int end = rfs_reading_end(&reading);
    return end < 0 ? end : rc;
}
