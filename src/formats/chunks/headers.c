/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/chunks/headers.h"

#include "base/path.h"
#include "base/text.h"
#include "formats/chunks/chunk_reader.h"
#include "formats/ckpt/crc.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch/torch.h"

#include <pthread.h>

/* The header of a file with copies, or why it can't be read; neither: it was not read yet. */
struct header {
    struct rfs_index *index;
    struct rfs_error *failed;
    bool logged; /* the log says that it is damaged */
};

/* The chunks of a checkpoint, by file, and headers of files. */
struct by_file {
    struct rfs_intern *others; /* names of tensors in the files that the metadata lacks */
    uint32_t *chunks;          /* numbers of chunks, by file */
    pthread_mutex_t lock;      /* guards the next member, and setting places; a leaf lock */
    struct header *headers;    /* [n_all_files] */
    uint32_t n_headers;
    uint32_t first[]; /* [n_files + 1] positions in chunks */
};

int rfs_chunks_own_headers(struct rfs_chunks *chunks)
{
    const struct rfs_chunk *all = chunks->chunks.data;
    const uint32_t n = chunks->n_files;
    struct by_file *by_file = calloc(1, sizeof *by_file + (n + 2) * sizeof by_file->first[0]);

    if (!by_file)
        return -ENOMEM;
    pthread_mutex_init(&by_file->lock, NULL);
    by_file->n_headers = chunks->copies ? chunks->n_all_files : 0;
    by_file->headers = calloc((size_t)by_file->n_headers + 1, sizeof *by_file->headers);
    by_file->chunks = malloc((chunks->chunks.n + 1) * sizeof *by_file->chunks);
    by_file->others = rfs_intern_new();
    if (!by_file->chunks || !by_file->headers || !by_file->others) {
        rfs_chunks_free_headers(by_file);
        return -ENOMEM;
    }
    /* Counted one place further on, so that each count becomes the place of its file's first. */
    for (size_t i = 0; i < chunks->chunks.n; i++)
        by_file->first[all[i].file - chunks->first_file + 2]++;
    for (uint32_t i = 2; i < n + 2; i++)
        by_file->first[i] += by_file->first[i - 1];
    for (size_t i = 0; i < chunks->chunks.n; i++)
        by_file->chunks[by_file->first[all[i].file - chunks->first_file + 1]++] = (uint32_t)i;
    chunks->own = by_file;
    return 0;
}

void rfs_chunks_free_headers(void *own)
{
    struct by_file *by_file = own;

    if (!by_file)
        return;
    for (uint32_t i = 0; by_file->headers && i < by_file->n_headers; i++) {
        rfs_index_free(by_file->headers[i].index);
        free(by_file->headers[i].failed);
    }
    free(by_file->headers);
    free(by_file->chunks);
    pthread_mutex_destroy(&by_file->lock);
    rfs_intern_free(by_file->others);
    free(by_file);
}

/* Returns the name under which a chunk's own file has it. */
static uint32_t key_of(const struct rfs_chunks *chunks, uint32_t chunk)
{
    return chunks->format->keyed ? (uint32_t)chunks->chunks.data[chunk].item
                                 : rfs_chunks_tensor_of(chunks, chunk)->name;
}

/* Says whether a file is of torch.save: 1 or 0, or a read's error. Only keyed formats have some. */
static int is_zip(const struct rfs_chunks *chunks, struct rfs_reading *reading)
{
    char head[4] = "";
    const int rc = chunks->format->keyed && reading->size >= sizeof head
                       ? rfs_reading_pread(reading, head, sizeof head, 0)
                       : 0;

    return rc ? rc : memcmp(head, "PK\3\4", sizeof head) == 0;
}

/*
 * Makes the index of a file of torch.save. Offsets of entries that do not lie row by row are values
 * for rfs_chunk.at.
 */
static int read_zip(struct rfs_chunks *chunks, struct rfs_reading *reading, const char *path,
                    struct rfs_index **index, struct rfs_error *err)
{
    size_t left_out;
    int rc = rfs_torch_walk(RFS_READING_SOURCE(reading, path), NULL, chunks->tables, index,
                            &left_out, NULL, err);

    for (size_t i = 0; rc == 0 && i < (*index)->n_strided; i++) {
        const struct rfs_strided *strided = &(*index)->strided[i];
        struct rfs_entry *entry = &(*index)->entries[strided->entry];
        entry->offset = rfs_chunks_add_strided(
            chunks, entry->offset, rfs_chunks_type(chunks, entry->type)->ndim, strided->stride);
        if (entry->offset == RFS_NOT_LOCATED)
            rc = rfs_fail_memory(err);
    }
    return rc;
}

/* Makes the index of a file that is being read, as read_header does. */
static int read_index(struct rfs_chunks *chunks, struct rfs_reading *reading, const char *path,
                      const struct rfs_index *like, struct rfs_index **index, struct rfs_error *err)
{
    const int zip = is_zip(chunks, reading);

    if (zip < 0)
        return rfs_files_fail(err, path, zip);
    return zip ? read_zip(chunks, reading, path, index, err)
               : rfs_safetensors_walk(RFS_READING_SOURCE(reading, path), chunks->tables, like,
                                      index, err);
}

/* Reads a header. LIKE (or NULL) is the index of another file: 1 when it is this one's, too. */
static int read_header(struct rfs_chunks *chunks, uint32_t file, const struct rfs_index *like,
                       struct rfs_index **index, struct rfs_error *err)
{
    const char *path = rfs_files_path(chunks->files, file);
    struct rfs_reading reading;

    *index = NULL;
    int rc = rfs_reading_begin_quiet(chunks->files, file, &reading);
    if (rc < 0)
        return rfs_chunks_fail_file(chunks, file, rc, err);
    rc = read_index(chunks, &reading, path, like, index, err);
    const int end = rfs_reading_end(&reading);
    if (end < 0)
        rc = rfs_files_fail(err, path, end);
    if (rc < 0) {
        rfs_index_free(*index);
        *index = NULL;
    }
    return rc;
}

/* Fails because the file has ENTRY in place of a chunk; NULL: nothing of that name. */
static int fail_differs(const struct rfs_chunks *chunks, uint32_t chunk,
                        const struct rfs_entry *entry, struct rfs_error *err)
{
    static const char remedy[] =
        "a checkpoint whose save has ended; the metadata and this file are "
        "not of one save";
    const struct rfs_where where =
        RFS_OF(rfs_files_path(chunks->files, chunks->chunks.data[chunk].file),
               rfs_chunks_name_of(chunks, chunk));
    const struct rfs_type *want = rfs_chunks_type_of(chunks, chunk);
    char wanted[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
    char found[RFS_DIMS_TEXT(RFS_MAX_DIMS)];

    if (!entry)
        return rfs_fail(err, -EINVAL, where, remedy,
                        "the metadata stores a slice of it in this file, which has none");
    const struct rfs_type *has = rfs_chunks_type(chunks, entry->type);
    return rfs_fail(err, -EINVAL, where, remedy,
                    "the metadata describes its slice as %s%s, the file has %s%s",
                    rfs_dtype_name((enum rfs_dtype)want->dtype),
                    rfs_text_dims(wanted, sizeof wanted, want->ndim, want->dims),
                    rfs_dtype_name((enum rfs_dtype)has->dtype),
                    rfs_text_dims(found, sizeof found, has->ndim, has->dims));
}

/* Logs which tensors of a file the metadata lacks, unless another file had them, too. */
static void log_others(const struct rfs_chunks *chunks, const struct by_file *by_file,
                       uint32_t file, const struct rfs_index *index)
{
    const uint32_t before = rfs_intern_count(by_file->others);
    const char *first = NULL;

    for (size_t i = 0; i < index->n; i++) {
        const uint32_t name = index->entries[i].name;
        if (name < chunks->by_name.n && chunks->by_name.data[name])
            continue;
        const char *text = rfs_intern_text(chunks->tables->names, name);
        const uint32_t id = rfs_intern_add(by_file->others, text, strlen(text));
        first = !first && id >= before ? text : first;
    }
    const size_t n = rfs_intern_count(by_file->others) - before;
    if (first && n > 0)
        rfs_log_limited(chunks->log, RFS_WARNING,
                        n == 1 ? "%s: %zu tensor in it is not in the metadata, '%s', and "
                                 "is not shown"
                               : "%s: %zu tensors in it are not in the metadata, such as "
                                 "'%s', and are not shown",
                        rfs_files_path(chunks->files, file), n, first);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Finds the header of a file; false when it is to be read. */
static bool find_header(struct by_file *by_file, uint32_t number, struct header *out)
{
    pthread_mutex_lock(&by_file->lock);
    *out = by_file->headers[number];
    pthread_mutex_unlock(&by_file->lock);
    return out->index || out->failed;
}

/* Keeps what was read, unless another thread was faster: then *read is what that one kept. */
static void keep(struct by_file *by_file, uint32_t number, struct header *read)
{
    struct header surplus = {NULL, NULL, false};

    pthread_mutex_lock(&by_file->lock);
    struct header *slot = &by_file->headers[number];
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

/* Fails as reading the header failed. */
static int recall(const struct header *header, struct rfs_error *err)
{
    if (err)
        *err = *header->failed;
    return header->failed->code;
}

/* Says whether two headers differ in nothing that places are found by. */
static bool is_same(const struct rfs_index *a, const struct rfs_index *b)
{
    return a->n == b->n && memcmp(a->entries, b->entries, a->n * sizeof *a->entries) == 0;
}

/* Gives the index of a file, which stays; LIKE (or NULL) may be its index. 0 or -errno. */
static int index_of(struct rfs_chunks *chunks, struct by_file *by_file, uint32_t file,
                    struct rfs_index *like, struct rfs_index **out, struct rfs_error *err)
{
    const uint32_t number = file - chunks->first_file;
    struct rfs_error why = {0};
    struct header header;

    if (!find_header(by_file, number, &header)) {
        const int rc = read_header(chunks, file, like, &header.index, &why);
        if (rc == 0 && like && is_same(header.index, like)) { /* only crc_num differs */
            rfs_index_free(header.index);
            header.index = NULL;
        }
        if (rc >= 0 && !header.index)
            header.index = rfs_index_share(like);
        if (rc < 0 && rfs_files_may_pass(chunks->files, rc)) {
            if (err)
                *err = why;
            return rc;
        }
        header.failed = rc < 0 ? malloc(sizeof why) : NULL;
        if (rc < 0 && !header.failed)
            return rfs_fail_memory(err);
        if (rc < 0)
            *header.failed = why;
        keep(by_file, number, &header);
    }
    *out = header.index;
    return header.failed ? recall(&header, err) : 0;
}

int rfs_chunks_copy_in_header(struct rfs_chunks *chunks, uint32_t chunk,
                              struct rfs_chunked_copy *out, struct rfs_error *err)
{
    struct by_file *by_file = chunks->own;
    struct rfs_index *like = NULL;
    struct rfs_index *index = NULL;

    /* Ranks that hold equal chunks mostly have equal headers. */
    index_of(chunks, by_file, chunks->chunks.data[chunk].file, NULL, &like, NULL);
    const int rc = index_of(chunks, by_file, out->file, like, &index, err);
    if (rc < 0)
        return rc;
    const struct rfs_entry *entry =
        rfs_index_find(index, chunks->format->keyed ? (uint32_t)out->at : key_of(chunks, chunk));
    out->type = entry ? entry->type : RFS_NO_ID;
    out->at = entry ? entry->offset : 0;
    return 0;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Sets where a chunk is, unless another thread did. */
static void publish(struct rfs_chunks *chunks, struct by_file *by_file, uint32_t chunk,
                    uint32_t file, uint64_t at)
{
    struct rfs_chunk *of = &chunks->chunks.data[chunk];

    pthread_mutex_lock(&by_file->lock);
    if (atomic_load_explicit(&of->at, memory_order_relaxed) == RFS_NOT_LOCATED) {
        if (file != of->file)
            atomic_store_explicit(&chunks->copies[chunk].instead, file, memory_order_relaxed);
        /* rfs_chunks_locate and the planner acquire it, and with it "instead". */
        atomic_store_explicit(&of->at, at, memory_order_release);
    }
    pthread_mutex_unlock(&by_file->lock);
}

/* Reads the index of a chunk's own file, for the caller alone; that it is damaged is remembered. */
static int read_own(struct rfs_chunks *chunks, struct by_file *by_file, uint32_t file,
                    struct rfs_index **index, struct rfs_error *err)
{
    const uint32_t number = file - chunks->first_file;
    struct header header = {NULL, NULL, false};

    *index = NULL;
    if (by_file->n_headers > 0 && find_header(by_file, number, &header) && header.failed)
        return recall(&header, err);
    const int rc = read_header(chunks, file, NULL, index, err);
    if (rc == -EINVAL && by_file->n_headers > 0 && !header.index) {
        header.failed = malloc(sizeof *err);
        if (!header.failed)
            return rfs_fail_memory(err);
        *header.failed = *err;
        keep(by_file, number, &header);
    }
    return rc;
}

/* Logs once that the file of COPY is read instead of a damaged one, WHY. */
static void log_damaged(const struct rfs_chunks *chunks, struct by_file *by_file, uint32_t file,
                        const struct rfs_chunked_copy *copy, const struct rfs_error *why)
{
    const char *path = rfs_files_path(chunks->files, file);
    const size_t n = strlen(path);
    const bool named = strncmp(why->text, path, n) == 0 && why->text[n] == ':';

    pthread_mutex_lock(&by_file->lock);
    struct header *header = &by_file->headers[file - chunks->first_file];
    const bool logged = header->logged;
    header->logged = true;
    pthread_mutex_unlock(&by_file->lock);
    if (!logged)
        rfs_log_limited(chunks->log, RFS_WARNING,
                        "%s: slices come from copies in other files, such as '%s', as this one is "
                        "damaged: %s",
                        path, rfs_path_name(rfs_files_path(chunks->files, copy->file)),
                        why->text + (named ? n + 2 : 0));
}

/* Says whether a failure may pass, and does not come from the file. */
static bool is_passing(const struct rfs_chunks *chunks, int rc)
{
    return rfs_files_may_pass(chunks->files, rc) && rc != -EACCES && rc != -EPERM;
}

/* Locates a chunk whose own file is damaged, WHY, in the first of its copies that is sound. */
static int locate_elsewhere(struct rfs_chunks *chunks, struct by_file *by_file, uint32_t chunk,
                            const struct rfs_error *why, struct rfs_error *err)
{
    const struct rfs_chunk *of = &chunks->chunks.data[chunk];
    const uint32_t n = rfs_chunks_count_copies(chunks, chunk);

    for (uint32_t i = 0; i < n; i++) {
        struct rfs_chunked_copy copy;
        rfs_chunks_copy_at(chunks, chunk, i, &copy);
        const int rc = rfs_chunks_copy_in_header(chunks, chunk, &copy, err)
                           ?: rfs_chunks_check_file(chunks, copy.file, err);
        if (is_passing(chunks, rc))
            return rc;
        if (rc < 0 || copy.type != of->type)
            continue;
        publish(chunks, by_file, chunk, copy.file, copy.at);
        log_damaged(chunks, by_file, of->file, &copy, why);
        return 0;
    }
    if (err)
        *err = *why;
    return why->code;
}

/* Locates all chunks of CHUNK's file by its index. */
static int locate_all(struct rfs_chunks *chunks, struct by_file *by_file, uint32_t chunk,
                      const struct rfs_index *index, struct rfs_error *err)
{
    const uint32_t file = chunks->chunks.data[chunk].file;
    const uint32_t number = file - chunks->first_file;
    int rc = 0;

    for (uint32_t i = by_file->first[number]; i < by_file->first[number + 1]; i++) {
        const uint32_t c = by_file->chunks[i];
        const struct rfs_entry *entry = rfs_index_find(index, key_of(chunks, c));
        if (entry && entry->type == chunks->chunks.data[c].type)
            publish(chunks, by_file, c, file, entry->offset);
        else if (c == chunk)
            rc = fail_differs(chunks, c, entry, err);
    }
    if (!chunks->format->keyed) /* keys need not be names of tensors */
        log_others(chunks, by_file, file, index);
    return rc;
}

int rfs_chunks_locate_in_header(struct rfs_chunks *chunks, uint32_t chunk, struct rfs_error *err)
{
    struct by_file *by_file = chunks->own;
    const uint32_t file = chunks->chunks.data[chunk].file;
    struct rfs_error why = {0};
    struct rfs_index *index;

    int rc = read_own(chunks, by_file, file, &index, &why);
    if (rc == -EINVAL)
        return locate_elsewhere(chunks, by_file, chunk, &why, err);
    if (rc < 0 && err)
        *err = why;
    if (rc == 0)
        rc = rfs_chunks_check_file(chunks, file, err)
                 ?: locate_all(chunks, by_file, chunk, index, err);
    rfs_index_free(index);
    return rc;
}

/* ---- checksums ------------------------------------------------------------------------------- */

int rfs_chunks_check_header(struct rfs_chunks *chunks, uint32_t file, struct rfs_error *err)
{
    const char *path = rfs_files_path(chunks->files, file);
    struct rfs_index *index = NULL;
    struct rfs_reading reading;

    int rc = rfs_reading_begin_quiet(chunks->files, file, &reading);
    if (rc < 0)
        return rfs_chunks_fail_file(chunks, file, rc, err);
    const int zip = is_zip(chunks, &reading);
    if (zip > 0)
        rc = rfs_zip_verify(RFS_READING_SOURCE(&reading, path), err);
    else
        rc = zip < 0 ? rfs_files_fail(err, path, zip)
                     : rfs_safetensors_walk(RFS_READING_SOURCE(&reading, path), chunks->tables,
                                            NULL, &index, err);
    if (rc == 0 && index)
        rc = rfs_crc_verify(RFS_READING_SOURCE(&reading, path), false, index, chunks->tables, err);
    const int ended = rfs_reading_end(&reading);
    rfs_index_free(index);
    if (rc == 1)
        rfs_chunks_tell_none(chunks, zip != 0, file);
    return ended < 0 ? rfs_files_fail(err, path, ended) : rc == -ENODATA ? 0 : rc;
}

int rfs_chunks_check_zip(struct rfs_chunks *chunks, uint32_t file, struct rfs_error *err)
{
    const char *path = rfs_files_path(chunks->files, file);
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(chunks->files, file, &reading);

    if (rc < 0)
        return rfs_chunks_fail_file(chunks, file, rc, err);
    rc = rfs_zip_verify(RFS_READING_SOURCE(&reading, path), err);
    const int ended = rfs_reading_end(&reading);
    if (rc == 1)
        rfs_chunks_tell_none(chunks, true, file);
    return ended < 0 ? rfs_files_fail(err, path, ended) : rc;
}
