/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/chunks/headers.h"

#include "base/path.h"
#include "base/text.h"
#include "formats/chunks/internal.h"
#include "formats/ckpt/crc.h"
#include "formats/safetensors/header.h"

#include <pthread.h>

/* The header of a file with copies; neither: it was not read yet. */
struct kept {
    struct rfs_index *index;
    struct rfs_error *failed;
    bool told; /* the log says that it is damaged */
};

struct rfs_chunks_by_file {
    struct rfs_intern *others; /* names of tensors in the files that the metadata lacks */
    uint32_t *chunks;          /* numbers, by file */
    pthread_mutex_t lock;      /* of the next, and of setting places; a leaf lock */
    struct kept *kept;         /* [n_all_files] */
    uint32_t n_kept;
    uint32_t first[]; /* [n_files + 1] in chunks */
};

struct rfs_chunks_by_file *rfs_chunks_by_file_new(const struct rfs_chunks *boxes)
{
    const struct rfs_chunk *chunks = boxes->chunks.data;
    const uint32_t n = boxes->n_files;
    struct rfs_chunks_by_file *by_file =
        calloc(1, sizeof *by_file + (n + 2) * sizeof by_file->first[0]);

    if (!by_file)
        return NULL;
    pthread_mutex_init(&by_file->lock, NULL);
    by_file->n_kept = boxes->copies ? boxes->n_all_files : 0;
    by_file->kept = calloc((size_t)by_file->n_kept + 1, sizeof *by_file->kept);
    by_file->chunks = malloc((boxes->chunks.n + 1) * sizeof *by_file->chunks);
    by_file->others = rfs_intern_new();
    if (!by_file->chunks || !by_file->kept || !by_file->others) {
        rfs_chunks_by_file_free(by_file);
        return NULL;
    }
    /* Counted one place further on, so that each count becomes the place of its file's first. */
    for (size_t i = 0; i < boxes->chunks.n; i++)
        by_file->first[chunks[i].file - boxes->first_file + 2]++;
    for (uint32_t i = 2; i < n + 2; i++)
        by_file->first[i] += by_file->first[i - 1];
    for (size_t i = 0; i < boxes->chunks.n; i++)
        by_file->chunks[by_file->first[chunks[i].file - boxes->first_file + 1]++] = (uint32_t)i;
    return by_file;
}

void rfs_chunks_by_file_free(struct rfs_chunks_by_file *by_file)
{
    if (!by_file)
        return;
    for (uint32_t i = 0; by_file->kept && i < by_file->n_kept; i++) {
        rfs_index_free(by_file->kept[i].index);
        free(by_file->kept[i].failed);
    }
    free(by_file->kept);
    free(by_file->chunks);
    pthread_mutex_destroy(&by_file->lock);
    rfs_intern_free(by_file->others);
    free(by_file);
}

/* LIKE (or NULL) is the index of another file: 1 when it is this one's, too. */
static int read_header(const struct rfs_chunks *boxes, uint32_t file, const struct rfs_index *like,
                       struct rfs_index **index, struct rfs_error *err)
{
    const char *path = rfs_files_path(boxes->files, file);
    struct rfs_reading reading;

    *index = NULL;
    int rc = rfs_reading_begin_quiet(boxes->files, file, &reading);
    if (rc < 0)
        return rfs_chunks_fail_file(boxes, file, rc, err);
    rc = rfs_safetensors_walk(rfs_reading_read, &reading, reading.size, path, boxes->tables, like,
                              index, err);
    const int end = rfs_reading_end(&reading);
    if (end < 0)
        rc = rfs_files_fail(err, path, end);
    if (rc < 0) {
        rfs_index_free(*index);
        *index = NULL;
    }
    return rc;
}

/* The file has no such chunk, but ENTRY; NULL: nothing of that name. */
static int fail_differs(const struct rfs_chunks *boxes, uint32_t chunk,
                        const struct rfs_entry *entry, struct rfs_error *err)
{
    static const char remedy[] =
        "a checkpoint whose save has ended; the metadata and this file are "
        "not of one save";
    const struct rfs_where where =
        RFS_OF(rfs_files_path(boxes->files, boxes->chunks.data[chunk].file),
               rfs_chunks_name_of(boxes, chunk));
    const struct rfs_type *want = rfs_chunks_type(boxes, boxes->chunks.data[chunk].type);
    char wanted[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
    char found[RFS_DIMS_TEXT(RFS_MAX_DIMS)];

    if (!entry)
        return rfs_fail(err, -EINVAL, where, remedy,
                        "the metadata stores a slice of it in this file, which has none");
    const struct rfs_type *has = rfs_chunks_type(boxes, entry->type);
    return rfs_fail(err, -EINVAL, where, remedy,
                    "the metadata describes its slice as %s%s, the file has %s%s",
                    rfs_dtype_name((enum rfs_dtype)want->dtype),
                    rfs_text_dims(wanted, sizeof wanted, want->ndim, want->dims),
                    rfs_dtype_name((enum rfs_dtype)has->dtype),
                    rfs_text_dims(found, sizeof found, has->ndim, has->dims));
}

/* Tells which tensors of a file the metadata lacks, but for those that another file had, too. */
static void tell_others(const struct rfs_chunks *boxes, const struct rfs_chunks_by_file *by_file,
                        uint32_t file, const struct rfs_index *index)
{
    const uint32_t before = rfs_intern_count(by_file->others);
    const char *first = NULL;

    for (size_t i = 0; i < index->n; i++) {
        const uint32_t name = index->entries[i].name;
        if (name < boxes->by_name.n && boxes->by_name.data[name])
            continue;
        const char *text = rfs_intern_text(boxes->tables->names, name);
        const uint32_t id = rfs_intern_add(by_file->others, text, strlen(text));
        first = !first && id >= before ? text : first;
    }
    const size_t n = rfs_intern_count(by_file->others) - before;
    if (first && n > 0)
        rfs_log_limited(boxes->log, RFS_WARNING,
                        n == 1 ? "%s: %zu tensor in it is not in the metadata, '%s', and "
                                 "is not shown"
                               : "%s: %zu tensors in it are not in the metadata, such as "
                                 "'%s', and are not shown",
                        rfs_files_path(boxes->files, file), n, first);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* What is kept of a file; false when it is to be read. */
static bool find_kept(struct rfs_chunks_by_file *by_file, uint32_t number, struct kept *out)
{
    pthread_mutex_lock(&by_file->lock);
    *out = by_file->kept[number];
    pthread_mutex_unlock(&by_file->lock);
    return out->index || out->failed;
}

/* Keeps what was read, unless another thread was faster; *read is what is kept then. */
static void keep(struct rfs_chunks_by_file *by_file, uint32_t number, struct kept *read)
{
    struct kept surplus = {NULL, NULL, false};

    pthread_mutex_lock(&by_file->lock);
    struct kept *slot = &by_file->kept[number];
    if (slot->index || slot->failed) {
        surplus = *read;
        *read = *slot;
    } else {
        *slot = *read;
    }
    pthread_mutex_unlock(&by_file->lock);
    rfs_index_free(surplus.index);
    free(surplus.failed);
}

/* The failure that is kept of a file. */
static int recall(const struct kept *kept, struct rfs_error *err)
{
    if (err)
        *err = *kept->failed;
    return kept->failed->code;
}

/* Whether two headers differ in nothing that places are found by. */
static bool is_same(const struct rfs_index *a, const struct rfs_index *b)
{
    return a->n == b->n && memcmp(a->entries, b->entries, a->n * sizeof *a->entries) == 0;
}

/* The index of a file, which is kept; LIKE (or NULL) may be its index. 0 or -errno. */
static int index_of(const struct rfs_chunks *boxes, struct rfs_chunks_by_file *by_file,
                    uint32_t file, struct rfs_index *like, struct rfs_index **out,
                    struct rfs_error *err)
{
    const uint32_t number = file - boxes->first_file;
    struct rfs_error why = {0};
    struct kept kept;

    if (!find_kept(by_file, number, &kept)) {
        const int rc = read_header(boxes, file, like, &kept.index, &why);
        if (rc == 0 && like && is_same(kept.index, like)) { /* only crc_num differs */
            rfs_index_free(kept.index);
            kept.index = NULL;
        }
        if (rc >= 0 && !kept.index)
            kept.index = rfs_index_share(like);
        if (rc < 0 && rfs_files_may_pass(rc)) {
            if (err)
                *err = why;
            return rc;
        }
        kept.failed = rc < 0 ? malloc(sizeof why) : NULL;
        if (rc < 0 && !kept.failed)
            return rfs_fail_memory(err);
        if (rc < 0)
            *kept.failed = why;
        keep(by_file, number, &kept);
    }
    *out = kept.index;
    return kept.failed ? recall(&kept, err) : 0;
}

int rfs_chunks_copy_in_header(struct rfs_chunks *boxes, struct rfs_chunks_by_file *by_file,
                              uint32_t chunk, struct rfs_chunked_copy *out, struct rfs_error *err)
{
    struct rfs_index *like = NULL;
    struct rfs_index *index = NULL;

    /* Ranks that hold the same mostly have the same headers. */
    index_of(boxes, by_file, boxes->chunks.data[chunk].file, NULL, &like, NULL);
    const int rc = index_of(boxes, by_file, out->file, like, &index, err);
    if (rc < 0)
        return rc;
    const struct rfs_entry *entry = rfs_index_find(index, rfs_chunks_tensor_of(boxes, chunk)->name);
    out->type = entry ? entry->type : RFS_NO_ID;
    out->at = entry ? entry->offset : 0;
    return 0;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Sets where a chunk is, unless another thread did. */
static void publish(struct rfs_chunks *boxes, struct rfs_chunks_by_file *by_file, uint32_t chunk,
                    uint32_t file, uint64_t at)
{
    struct rfs_chunk *of = &boxes->chunks.data[chunk];

    pthread_mutex_lock(&by_file->lock);
    if (atomic_load_explicit(&of->at, memory_order_relaxed) == RFS_NOT_LOCATED) {
        if (file != of->file)
            atomic_store_explicit(&boxes->copies[chunk].instead, file, memory_order_relaxed);
        atomic_store_explicit(&of->at, at, memory_order_release);
    }
    pthread_mutex_unlock(&by_file->lock);
}

/* The index of a chunk's own file, which is not kept; that it is damaged is remembered. */
static int read_own(const struct rfs_chunks *boxes, struct rfs_chunks_by_file *by_file,
                    uint32_t file, struct rfs_index **index, struct rfs_error *err)
{
    const uint32_t number = file - boxes->first_file;
    struct kept kept = {NULL, NULL, false};

    *index = NULL;
    if (by_file->n_kept > 0 && find_kept(by_file, number, &kept) && kept.failed)
        return recall(&kept, err);
    const int rc = read_header(boxes, file, NULL, index, err);
    if (rc == -EINVAL && by_file->n_kept > 0 && !kept.index) {
        kept.failed = malloc(sizeof *err);
        if (!kept.failed)
            return rfs_fail_memory(err);
        *kept.failed = *err;
        keep(by_file, number, &kept);
    }
    return rc;
}

/* Tells once of a damaged file, WHY, that COPY's is read instead. */
static void tell_damaged(const struct rfs_chunks *boxes, struct rfs_chunks_by_file *by_file,
                         uint32_t file, const struct rfs_chunked_copy *copy,
                         const struct rfs_error *why)
{
    const char *path = rfs_files_path(boxes->files, file);
    const size_t n = strlen(path);
    const bool named = strncmp(why->text, path, n) == 0 && why->text[n] == ':';

    pthread_mutex_lock(&by_file->lock);
    struct kept *kept = &by_file->kept[file - boxes->first_file];
    const bool told = kept->told;
    kept->told = true;
    pthread_mutex_unlock(&by_file->lock);
    if (!told)
        rfs_log_limited(boxes->log, RFS_WARNING,
                        "%s: slices come from copies in other files, such as '%s', as this one is "
                        "damaged: %s",
                        path, rfs_path_name(rfs_files_path(boxes->files, copy->file)),
                        why->text + (named ? n + 2 : 0));
}

/* Whether a failure is of this moment alone, and not of the file. */
static bool is_passing(int rc)
{
    return rfs_files_may_pass(rc) && rc != -EACCES && rc != -EPERM;
}

/* Locates a chunk whose own file is damaged, WHY, in the first of its copies that is sound. */
static int locate_elsewhere(struct rfs_chunks *boxes, struct rfs_chunks_by_file *by_file,
                            uint32_t chunk, const struct rfs_error *why, struct rfs_error *err)
{
    const struct rfs_chunk *of = &boxes->chunks.data[chunk];
    const uint32_t n = rfs_chunks_copies(boxes, chunk);

    for (uint32_t i = 0; i < n; i++) {
        struct rfs_chunked_copy copy = {.file = rfs_chunks_copy_at(boxes, chunk, i)};
        const int rc = rfs_chunks_copy_in_header(boxes, by_file, chunk, &copy, err)
                           ?: rfs_chunks_check_file(boxes, copy.file, err);
        if (is_passing(rc))
            return rc;
        if (rc < 0 || copy.type != of->type)
            continue;
        publish(boxes, by_file, chunk, copy.file, copy.at);
        tell_damaged(boxes, by_file, of->file, &copy, why);
        return 0;
    }
    if (err)
        *err = *why;
    return why->code;
}

/* Locates all chunks of CHUNK's file by its index. */
static int locate_all(struct rfs_chunks *boxes, struct rfs_chunks_by_file *by_file, uint32_t chunk,
                      const struct rfs_index *index, struct rfs_error *err)
{
    const uint32_t file = boxes->chunks.data[chunk].file;
    const uint32_t number = file - boxes->first_file;
    int rc = 0;

    for (uint32_t i = by_file->first[number]; i < by_file->first[number + 1]; i++) {
        const uint32_t c = by_file->chunks[i];
        const struct rfs_entry *entry = rfs_index_find(index, rfs_chunks_tensor_of(boxes, c)->name);
        if (entry && entry->type == boxes->chunks.data[c].type)
            publish(boxes, by_file, c, file, entry->offset);
        else if (c == chunk)
            rc = fail_differs(boxes, c, entry, err);
    }
    tell_others(boxes, by_file, file, index);
    return rc;
}

int rfs_chunks_locate_in_header(struct rfs_chunks *boxes, struct rfs_chunks_by_file *by_file,
                                uint32_t chunk, struct rfs_error *err)
{
    const uint32_t file = boxes->chunks.data[chunk].file;
    struct rfs_error why = {0};
    struct rfs_index *index;

    int rc = read_own(boxes, by_file, file, &index, &why);
    if (rc == -EINVAL)
        return locate_elsewhere(boxes, by_file, chunk, &why, err);
    if (rc < 0 && err)
        *err = why;
    if (rc == 0)
        rc = rfs_chunks_check_file(boxes, file, err)
                 ?: locate_all(boxes, by_file, chunk, index, err);
    rfs_index_free(index);
    return rc;
}

/* ---- checksums ------------------------------------------------------------------------------- */

int rfs_chunks_check_header(struct rfs_chunks *boxes, uint32_t file, struct rfs_error *err)
{
    const char *path = rfs_files_path(boxes->files, file);
    struct rfs_index *index = NULL;
    struct rfs_reading reading;

    int rc = rfs_reading_begin_quiet(boxes->files, file, &reading);
    if (rc < 0)
        return rfs_chunks_fail_file(boxes, file, rc, err);
    rc = rfs_safetensors_walk(rfs_reading_read, &reading, reading.size, path, boxes->tables, NULL,
                              &index, err);
    if (rc == 0)
        rc = rfs_crc_verify(rfs_reading_read, &reading, RFS_FORMAT_SAFETENSORS, index,
                            boxes->tables, path, err);
    const int ended = rfs_reading_end(&reading);
    rfs_index_free(index);
    if (rc == 1)
        rfs_chunks_tell_none(boxes, RFS_FORMAT_SAFETENSORS, file);
    return ended < 0 ? rfs_files_fail(err, path, ended) : rc == -ENODATA ? 0 : rc;
}
