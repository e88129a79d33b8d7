/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   {"state_dict_metadata": {
 *      "w": {"properties": {"dtype": "BFloat16", "replica_id": …, …}, "global_shape": [8, 6],
 *            "axis_fragmentations": [2, 2],
 *            "layout": {"device_matrix": [2, 2, 2], "tensor_map": [0, 2],
 *                       "interleaved_parallel": false, "alias_name": …, "rank_list": …} or null,
 *            "chunk": [{"global_offset": [0], "local_shape": [4, 3]}, …]}, …},
 *    "storage_data": {"('w', (0,))": [{"file_name": …, "storage_rank": 0, "rank_group": …}, …], …}}
 *
 * Source: save_metadata of MindSpore Transformers 2.0 and 2.1, which write the two in this order.
 *
 * The text may be gigabytes, mostly lists of ranks, which are passed over. Each slice is taken from
 * the lowest rank whose file is in the folder; all other files that storage_data names for it, also
 * those that are missing, have further copies.
 */
#include "formats/chunks/mindformers.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "formats/chunks/headers.h"
#include "formats/chunks/mindformers_internal.h"
#include "formats/numbered.h"

#include <dirent.h>

#define TENSORS "state_dict_metadata"
#define STORAGE "storage_data"
#define REMEDY "an iteration whose save has ended, such as the one before"

bool rfs_mf_keep(struct rfs_mf_text *text, const char *data, size_t n)
{
    if (!rfs_vec_reserve((void **)&text->data, &text->cap, 0, n + 1, 1))
        return false;
    memcpy(text->data, data, n);
    text->data[n] = '\0';
    text->n = n;
    return true;
}

int rfs_mf_ended(const struct rfs_mf *mf)
{
    const struct rfs_json_read *json = &mf->json;

    if (!json->wrong)
        return 0;
    if (json->no_memory)
        return rfs_fail_memory_of(mf->err, mf->path);
    if (json->failed)
        return rfs_files_fail(mf->err, mf->path, json->failed);
    return rfs_fail(mf->err, -EINVAL, RFS_AT(mf->path, rfs_json_read_place(json)), REMEDY,
                    "not valid JSON of a Checkpoint 2.0: %s", json->wrong);
}

void rfs_mf_end(struct rfs_mf *mf)
{
    rfs_json_read_free(&mf->json);
    free(mf->name.data);
    free(mf->slices.data);
    free(mf->copies.data);
    free(mf->seen.data);
    free(mf->file.data);
    free(mf->best.data);
    free(mf->first.data);
    rfs_intern_free(mf->listing);
    free(mf->named.data);
    rfs_intern_free(mf->missing);
}

/* Whether an entry of the folder is there; links may lead nowhere. */
static bool is_there(const struct rfs_mf *mf, const struct dirent *entry)
{
    RFS_FREE char *path =
        entry->d_type == DT_LNK ? rfs_path_join(mf->boxes->folder, entry->d_name) : NULL;

    return !path || rfs_store_there(path);
}

/* The names of what is in the folder. */
static int list_folder(struct rfs_mf *mf)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    const int failed = rfs_dir_open(mf->boxes->folder, &dir);

    if (failed)
        return rfs_fail_read(mf->err, RFS_IN(mf->boxes->folder), failed);
    mf->listing = rfs_intern_new();
    while (mf->listing && (entry = rfs_dir_next(&dir)) != NULL) {
        if (!is_there(mf, entry) ||
            (rfs_intern_add(mf->listing, entry->d_name, strlen(entry->d_name)) != RFS_NO_ID &&
             RFS_PUSH(&mf->named, 0)))
            continue;
        rfs_intern_free(mf->listing);
        mf->listing = NULL;
    }
    const int code = errno;
    if (!mf->listing)
        return rfs_fail_memory(mf->err);
    return code ? rfs_fail_read(mf->err, RFS_IN(mf->boxes->folder), -code) : 0;
}

static int fill(void *ctx, void *buf, size_t n, uint64_t offset, size_t *got)
{
    struct rfs_reading *reading = ctx;
    const uint64_t rest = offset < reading->size ? reading->size - offset : 0;

    *got = rest < n ? (size_t)rest : n;
    return *got ? rfs_reading_pread(reading, buf, *got, offset) : 0;
}

/* Where the parts of the text are; UINT64_MAX: nowhere. */
struct parts {
    uint64_t tensors, storage;
};

static int read_part(struct rfs_mf *mf, struct parts *parts)
{
    struct rfs_json_read *json = &mf->json;
    const bool tensors = rfs_json_read_is(json, TENSORS);
    const bool storage = rfs_json_read_is(json, STORAGE);
    uint64_t *place = tensors ? &parts->tensors : &parts->storage;

    if (!tensors && !storage) {
        rfs_json_read_skip(json);
        return 0;
    }
    if (*place != UINT64_MAX)
        return rfs_fail(mf->err, -EINVAL, RFS_AT(mf->path, rfs_json_read_place(json)), REMEDY,
                        "'%s' comes twice", json->text);
    *place = rfs_json_read_place(json);
    if (tensors) {
        const int rc = rfs_mf_read_tensors(mf);
        return rc || mf->layouts ? rc : rfs_chunks_declared(mf->boxes, mf->err);
    }
    if (parts->tensors != UINT64_MAX)
        return rfs_mf_read_storage(mf);
    rfs_json_read_skip(json); /* for later, when the tensors are known */
    return 0;
}

static int read_text(struct rfs_mf *mf, struct rfs_reading *reading)
{
    struct parts parts = {UINT64_MAX, UINT64_MAX};
    bool first = true;
    int rc = 0;

    mf->json = rfs_json_read_begin_blocks(fill, reading, 0);
    while (rc == 0 && rfs_json_read_member(&mf->json, &first))
        rc = read_part(mf, &parts);
    if (rc == 0) {
        rfs_json_read_end(&mf->json);
        rc = rfs_mf_ended(mf);
    }
    if (rc)
        return rc;
    if (parts.tensors == UINT64_MAX || parts.storage == UINT64_MAX)
        return rfs_fail(mf->err, -EINVAL, RFS_IN(mf->path),
                        "the folder of an iteration of MindSpore Transformers",
                        "it has no '%s'; that of a Checkpoint 2.0 has one",
                        parts.tensors == UINT64_MAX ? TENSORS : STORAGE);
    if (parts.storage > parts.tensors)
        return 0;
    rfs_json_read_free(&mf->json);
    mf->json = rfs_json_read_begin_blocks(fill, reading, parts.storage);
    return rfs_mf_read_storage(mf);
}

int rfs_mf_read(struct rfs_mf *mf)
{
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(mf->boxes->files, mf->boxes->metadata, &reading);

    if (rc < 0) {
        rfs_files_fail(mf->err, mf->path, rc);
        rfs_files_reason(mf->boxes->files, mf->boxes->metadata, rc, mf->err);
        return rc;
    }
    rc = read_text(mf, &reading);
    const int end = rfs_reading_end(&reading);
    return end < 0 ? rfs_files_fail(mf->err, mf->path, end) : rc;
}

static void tell_missing(const struct rfs_mf *mf)
{
    const uint32_t others = mf->missing ? rfs_intern_count(mf->missing) - 1 : 0;

    if (mf->missing)
        rfs_log(mf->boxes->log, RFS_WARNING,
                "%s: %" PRIu64 " %s from copies in other files: '%s'%s missing", mf->path,
                mf->stand_ins, mf->stand_ins == 1 ? "slice comes" : "slices come",
                rfs_intern_text(mf->missing, 0),
                others == 0   ? " is"
                : others == 1 ? " and another file are"
                              : " and other files are");
}

/* Files of the save that the metadata does not name: MindSpore Transformers writes it twice. */
static void tell_others(const struct rfs_mf *mf)
{
    const char *first = NULL;
    size_t n = 0;

    for (uint32_t i = 0; i < mf->named.n; i++) {
        const char *name = rfs_intern_text(mf->listing, i);
        if (mf->named.data[i] || rfs_numbered_count(RFS_NUMBERED_MINDFORMERS, name) == 0)
            continue;
        n++;
        first = !first || strcmp(name, first) < 0 ? name : first;
    }
    if (n > 0)
        rfs_log(mf->boxes->log, RFS_WARNING,
                n == 1 ? "%s: %zu file of the save is not named in it, '%s': what only that file "
                         "has is not shown"
                       : "%s: %zu files of the save are not named in it, such as '%s': what only "
                         "they have is not shown",
                mf->path, n, first);
}

/* ---- boxes of this format ---- */

static int locate(struct rfs_chunks *boxes, uint32_t chunk, struct rfs_error *err)
{
    return rfs_chunks_locate_in_header(boxes, boxes->own, chunk, err);
}

static int locate_copy(struct rfs_chunks *boxes, uint32_t chunk, struct rfs_chunked_copy *out,
                       struct rfs_error *err)
{
    return rfs_chunks_copy_in_header(boxes, boxes->own, chunk, out, err);
}

static void free_own(void *own)
{
    rfs_chunks_by_file_free(own);
}

static const struct rfs_chunks_format format = {.name = "MindSpore Transformers, Checkpoint 2.0",
                                                .locate = locate,
                                                .locate_copy = locate_copy,
                                                .check = rfs_chunks_check_header,
                                                .free = free_own};

bool rfs_chunks_are_mindformers(const struct rfs_chunks *boxes)
{
    return boxes->format == &format;
}

static int build(struct rfs_chunks *boxes, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_mf_end)
    struct rfs_mf mf = {
        .boxes = boxes, .path = rfs_files_path(boxes->files, boxes->metadata), .err = err};

    int rc = list_folder(&mf) ?: rfs_mf_read(&mf) ?: rfs_chunks_finish(boxes, err);
    if (rc)
        return rc;
    tell_missing(&mf);
    tell_others(&mf);
    boxes->own = rfs_chunks_by_file_new(boxes);
    return boxes->own ? 0 : rfs_fail_memory_of(err, mf.path);
}

int rfs_mindformers_open(const char *folder, struct rfs_files *files, struct rfs_tables *tables,
                         struct rfs_log *log, struct rfs_chunks **out, struct rfs_error *err)
{
    struct rfs_chunks *boxes = rfs_chunks_new(&format, folder, 0, files, tables, log);
    struct rfs_error own = {0};

    *out = NULL;
    if (!boxes)
        return rfs_fail_memory(err);
    const int rc = build(boxes, err ? err : &own);
    if (rc) {
        rfs_chunks_free(boxes);
        return rc;
    }
    *out = boxes;
    return 0;
}
