/* SPDX-License-Identifier: Apache-2.0 */
/* Waves of files that are begun, and files that are complete. */
#include "tool/export/write.h"

#include "base/cleanup.h"
#include "base/pool.h"
#include "view/ranges.h"

static int begin_file(struct rfs_writing_run *run, const struct rfs_wave_file *place,
                      struct rfs_writing *out, struct rfs_error *err)
{
    struct rfs_export *export = run->export;

    out->file = &export->files.data[place->file];
    out->has_crc = rfs_view_has_crc(export->view, out->file->id, &out->trailer);
    out->left = rfs_wave_pieces(place, run->piece);
    out->hash = XXH3_createState();
    if (!out->hash)
        return rfs_fail_memory(err);
    XXH3_128bits_reset(out->hash);
    const int rc = rfs_view_reader_scattered(export->view, out->file->id, &out->reader);
    if (rc)
        return rfs_export_source_failed(export, out->file, rc, err);
    return rfs_partial_begin(&export->dest, out->file->path, out->file->mode | S_IRUSR,
                             &out->partial, err);
}

void rfs_wave_free(struct rfs_wave *wave)
{
    for (size_t f = 0; f < wave->n; f++) {
        struct rfs_writing *writing = &wave->files[f];
        if (writing->file)
            rfs_partial_drop(&writing->partial);
        reshard_reader_close(writing->reader);
        XXH3_freeState(writing->hash);
    }
    rfs_wave_plan_free(&wave->plan);
    free(wave->files);
    free(wave);
}

/* ---- which pieces are the same --------------------------------------------------------------- */

struct naming {
    struct rfs_writing_run *run;
    const struct rfs_wave_file *files;
    struct rfs_wave_key **keys; /* [n] owned */
};

static int name_pieces(void *ctx, size_t f)
{
    struct naming *naming = ctx;
    const struct rfs_wave_file *place = &naming->files[f];
    const struct rfs_export *export = naming->run->export;
    const uint64_t n = rfs_wave_pieces(place, naming->run->piece);
    struct rfs_wave_key *keys = calloc(n + 1, sizeof *keys);
    int rc = keys ? 0 : -ENOMEM;

    naming->keys[f] = keys;
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        uint64_t offset;
        uint64_t size;
        rfs_wave_piece(place, naming->run->piece, i, &offset, &size);
        rc = rfs_view_key(export->view, export->files.data[place->file].id, offset, offset + size,
                          keys[i].word);
    }
    return rc;
}

static int plan_wave(struct rfs_writing_run *run, const struct rfs_wave_file *files, size_t n,
                     bool share, struct rfs_wave_plan *out)
{
    RFS_FREE struct rfs_wave_key **keys = share ? calloc(n, sizeof *keys) : NULL;
    struct naming naming = {run, files, keys};
    int rc = share && !keys ? -ENOMEM : 0;

    if (rc == 0 && share) {
        struct rfs_pool *pool = rfs_pool_new(run->export->threads - 1);
        rc = pool ? rfs_pool_for(pool, n, name_pieces, &naming) : -ENOMEM;
        rfs_pool_free(pool);
    }
    if (rc == 0)
        rc = rfs_wave_plan(files, n, run->piece, keys, out);
    for (size_t f = 0; keys && f < n; f++)
        free(keys[f]);
    return rc;
}

int rfs_wave_begin(struct rfs_writing_run *run, struct rfs_wave **out, struct rfs_error *err)
{
    const struct rfs_wave_file *files = run->order + run->begun;
    struct rfs_wave *wave = NULL;
    size_t n;
    bool share;
    int rc = rfs_wave_next(files, run->n - run->begun, run->export->threads, run->flat, &n, &share);

    *out = NULL;
    if (rc == 0 && n == 0)
        return 0;
    if (rc == 0)
        wave = calloc(1, sizeof *wave);
    if (!wave)
        return rfs_fail_memory(err);
    wave->refs = 1;
    wave->files = calloc(n, sizeof *wave->files);
    if (!wave->files || plan_wave(run, files, n, share, &wave->plan)) {
        rfs_wave_free(wave);
        return rfs_fail_memory(err);
    }
    for (wave->n = 0; rc == 0 && wave->n < n; wave->n++) {
        wave->files[wave->n].partial = RFS_PARTIAL_NONE;
        rc = begin_file(run, &files[wave->n], &wave->files[wave->n], err);
    }
    /* Empty files are complete. */
    for (size_t f = 0; rc == 0 && f < n; f++)
        if (wave->files[f].left == 0)
            rc = rfs_writing_finish(run, &wave->files[f], err);
    if (rc) {
        rfs_wave_free(wave);
        return rc;
    }
    run->begun += n;
    *out = wave;
    return 0;
}

/* ---- complete files -------------------------------------------------------------------------- */

int rfs_writing_finish(struct rfs_writing_run *run, struct rfs_writing *writing,
                       struct rfs_error *err)
{
    struct rfs_export *export = run->export;
    const struct rfs_export_file *file = writing->file;
    struct rfs_manifest_entry entry = {
        .size = file->size,
        .hash = rfs_hash_of(writing->hash),
        .written_ms = rfs_record_now(),
    };
    int rc = rfs_export_made_of(export, file, &entry.made_of);

    if (rc)
        return rfs_export_source_failed(export, file, rc, err);
    rc = rfs_partial_finish(&export->dest, &writing->partial, file->todo == RFS_EXPORT_REPLACE,
                            !export->options->no_fsync, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&run->lock);
    export->files_written++;
    export->bytes_written += file->size;
    pthread_mutex_unlock(&run->lock);
    rfs_progress_file(&export->progress);
    return rfs_record_add(&export->record, file->path, &entry, err);
}
