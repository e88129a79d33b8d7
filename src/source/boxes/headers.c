/* SPDX-License-Identifier: Apache-2.0 */
#include "source/boxes/headers.h"

#include "base/text.h"
#include "source/boxes/internal.h"
#include "source/safetensors/header.h"

struct rfs_boxes_by_file {
    struct rfs_intern *others; /* names of tensors in the files that the metadata lacks */
    uint32_t *chunks;          /* numbers, by file */
    uint32_t first[];          /* [n_files + 1] in chunks */
};

struct rfs_boxes_by_file *rfs_boxes_by_file_new(const struct rfs_boxes *boxes)
{
    const struct rfs_chunk *chunks = boxes->chunks.data;
    const uint32_t n = boxes->n_files;
    struct rfs_boxes_by_file *by_file =
        calloc(1, sizeof *by_file + (n + 2) * sizeof by_file->first[0]);

    if (!by_file)
        return NULL;
    by_file->chunks = malloc((boxes->chunks.n + 1) * sizeof *by_file->chunks);
    by_file->others = rfs_intern_new();
    if (!by_file->chunks || !by_file->others) {
        rfs_boxes_by_file_free(by_file);
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

void rfs_boxes_by_file_free(struct rfs_boxes_by_file *by_file)
{
    if (!by_file)
        return;
    free(by_file->chunks);
    if (by_file->others)
        rfs_intern_free(by_file->others);
    free(by_file);
}

static int read_header(const struct rfs_boxes *boxes, uint32_t file, struct rfs_index **index,
                       struct rfs_error *err)
{
    const char *path = rfs_files_path(boxes->files, file);
    struct rfs_reading reading;

    *index = NULL;
    int rc = rfs_reading_begin_quiet(boxes->files, file, &reading);
    if (rc < 0)
        return rfs_boxes_fail_file(boxes, file, rc, err);
    rc = rfs_safetensors_walk(rfs_reading_read, &reading, reading.size, path, boxes->tables, NULL,
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
static int fail_differs(const struct rfs_boxes *boxes, uint32_t chunk,
                        const struct rfs_entry *entry, struct rfs_error *err)
{
    static const char remedy[] =
        "a checkpoint whose save has ended; the metadata and this file are "
        "not of one save";
    const struct rfs_where where =
        RFS_OF(rfs_files_path(boxes->files, boxes->chunks.data[chunk].file),
               rfs_boxes_name_of(boxes, chunk));
    const struct rfs_type *want = rfs_boxes_type(boxes, boxes->chunks.data[chunk].type);
    char wanted[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
    char found[RFS_DIMS_TEXT(RFS_MAX_DIMS)];

    if (!entry)
        return rfs_fail(err, -EINVAL, where, remedy,
                        "the metadata stores a slice of it in this file, which has none");
    const struct rfs_type *has = rfs_boxes_type(boxes, entry->type);
    return rfs_fail(err, -EINVAL, where, remedy,
                    "the metadata describes its slice as %s%s, the file has %s%s",
                    rfs_dtype_name((enum rfs_dtype)want->dtype),
                    rfs_text_dims(wanted, sizeof wanted, want->ndim, want->dims),
                    rfs_dtype_name((enum rfs_dtype)has->dtype),
                    rfs_text_dims(found, sizeof found, has->ndim, has->dims));
}

/* Tells which tensors of a file the metadata lacks, but for those that another file had, too. */
static void tell_others(const struct rfs_boxes *boxes, const struct rfs_boxes_by_file *by_file,
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

int rfs_boxes_locate_in_header(struct rfs_boxes *boxes, const struct rfs_boxes_by_file *by_file,
                               uint32_t chunk, struct rfs_error *err)
{
    const uint32_t number = boxes->chunks.data[chunk].file - boxes->first_file;
    struct rfs_index *index;
    int rc = read_header(boxes, boxes->chunks.data[chunk].file, &index, err);

    if (rc < 0)
        return rc;
    for (uint32_t i = by_file->first[number]; i < by_file->first[number + 1]; i++) {
        const uint32_t c = by_file->chunks[i];
        const struct rfs_entry *entry = rfs_index_find(index, rfs_boxes_tensor_of(boxes, c)->name);
        if (entry && entry->type == boxes->chunks.data[c].type)
            atomic_store_explicit(&boxes->chunks.data[c].at, entry->offset, memory_order_release);
        else if (c == chunk)
            rc = fail_differs(boxes, c, entry, err);
    }
    tell_others(boxes, by_file, boxes->chunks.data[chunk].file, index);
    rfs_index_free(index);
    return rc;
}
