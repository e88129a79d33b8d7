/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of the tree's files beside tensors: headers, metadata, checksums. They are compared
 * with the files that a mount of the source would show; each of their bytes is known. A file of
 * another size or order was not made by the same options: that is a note, as its tensors have been
 * compared. A file without tensors that a mount passes on has no other order. Nor has one that
 * describes files with tensors, where all of these have the order of a mount's.
 */
#include "tool/verify/verify.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/pool.h"
#include "base/store.h"
#include "base/text.h"
#include "formats/chunks/chunks.h"
#include "store/files.h"
#include "view/dcp.h"
#include "view/internal.h"

#include <sys/stat.h>

#define STEP 16384 /* bytes that are compared at once */

/* A file of the tree, and the mount's file of that name. */
struct frame {
    struct rfs_verify *verify;
    struct rfs_view *view;
    const struct shown_file *file;
    const struct rfs_image *image;
    struct reshard_reader *reader;
    uint32_t rank; /* of the tree */
    char *path;    /* where the tree has it, or would have it; NULL: nowhere */
    struct rfs_reading reading;
};

/* The first offset of [begin, end) that differs, END if none does, or -errno with *err filled. */
static int64_t compare_range(struct frame *frame, uint64_t begin, uint64_t end,
                             struct rfs_error *err)
{
    unsigned char have[STEP], want[STEP];

    for (uint64_t at = begin; at < end;) {
        const size_t n = (size_t)rfs_min_u64(STEP, end - at);
        const int rc = rfs_reading_pread(&frame->reading, have, n, at);
        if (rc < 0)
            return rfs_files_fail(err, frame->path, rc);
        const ssize_t shown = rfs_view_fetch(frame->reader, want, n, at);
        if (shown != (ssize_t)n)
            return rfs_fail(err, shown < 0 ? (int)shown : -EIO, RFS_IN(frame->file->name), "again",
                            "cannot be read: %s", strerror(shown < 0 ? (int)-shown : EIO));
        for (size_t i = 0; i < n; i++)
            if (have[i] != want[i])
                return (int64_t)(at + i);
        at += n;
    }
    return (int64_t)end;
}

/* Whether a region has bytes of a tensor. Images with storages pass files on as they are. */
static bool is_tensor(const struct rfs_image *image, size_t region)
{
    return image->regions[region].target < RFS_NO_TARGET && !image->storages;
}

static bool has_tensors(const struct rfs_image *image)
{
    for (size_t i = 0; i < image->n; i++)
        if (is_tensor(image, i))
            return true;
    return false;
}

/* The same of all that is not a tensor; the size of the file if all is the same. */
static int64_t compare_frame(struct frame *frame, struct rfs_error *err)
{
    const struct rfs_image *image = frame->image;

    for (size_t i = 0; i < image->n; i++) {
        const uint64_t end = rfs_image_end(image, i);
        if (is_tensor(image, i))
            continue;
        const int64_t at = compare_range(frame, image->regions[i].start, end, err);
        if (at != (int64_t)end)
            return at;
    }
    return (int64_t)image->bytes;
}

/* Whether a chunk of that tensor begins there, in a tree that describes itself. */
static bool chunk_lies_there(const struct frame *frame, const struct rfs_chunks *boxes,
                             const char *name, uint64_t start)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(boxes, name, strlen(name));

    for (uint32_t i = 0; tensor && i < tensor->n; i++) {
        const struct rfs_chunk *chunk = &boxes->chunks.data[tensor->first + i];
        if (atomic_load(&chunk->at) == start &&
            strcmp(rfs_files_path(boxes->files, rfs_chunks_file_of(boxes, tensor->first + i)),
                   frame->path) == 0)
            return true;
    }
    return false;
}

/* Whether a tensor's bytes lie where they would be shown. */
static bool lies_there(const struct frame *frame, const struct rfs_index *index,
                       const struct rfs_region *region)
{
    struct rfs_catalog *catalog = frame->verify->tree.catalog;
    const struct rfs_target *target = &frame->image->params->targets[region->target];
    const char *name = rfs_catalog_name(frame->view->catalog, target->shown_name);
    const struct rfs_chunks *boxes = rfs_catalog_chunks(catalog);
    const uint32_t id = rfs_intern_find(rfs_catalog_tables(catalog)->names, name, strlen(name));
    const struct rfs_entry *entry = id == RFS_NO_ID ? NULL : rfs_index_find(index, id);

    if (boxes)
        return chunk_lies_there(frame, boxes, name, region->start);
    if (!entry)
        return false;
    const uint32_t file = rfs_catalog_entry_file(catalog, frame->rank, index, entry);
    const struct rfs_content content = rfs_content_of(index, entry);
    return region->at < rfs_catalog_type(catalog, entry->type)->bytes &&
           rfs_content_offset(&content, region->at) == region->start &&
           strcmp(rfs_files_path(rfs_catalog_files(catalog), file), frame->path) == 0;
}

/*
 * Whether all tensors lie as a mount would show them, so that what differs around them has no
 * reason; or -errno with *err filled.
 */
static int is_alike(const struct frame *frame, struct rfs_error *err)
{
    struct rfs_catalog *catalog = frame->verify->tree.catalog;
    const struct rfs_image *image = frame->image;
    const struct rfs_index *index;
    struct rfs_use use;

    rfs_catalog_begin(catalog, &use);
    const int rc = rfs_catalog_index(catalog, frame->rank, RFS_NO_RANK, &index, err);
    bool alike = rc == 0;
    for (size_t i = 0; alike && i < image->n; i++)
        if (is_tensor(image, i))
            alike = image->params && lies_there(frame, index, &image->regions[i]);
    rfs_catalog_end(catalog, &use);
    return rc < 0 ? rc : alike;
}

/* Adds a finding of file NUMBER of the view: of its rank, where the tree has ranks. */
static void find(struct rfs_verify *verify, size_t number, enum rfs_finding_kind kind,
                 uint64_t offset)
{
    struct rfs_catalog *catalog = verify->tree.catalog;
    const struct shown_file *file = &verify->src.view->files[number];
    struct rfs_finding finding = {.kind = kind, .rank = RFS_NO_RANK, .at = RFS_NOWHERE_AT};
    char where[NAME_MAX + 32];

    snprintf(where, sizeof where, "%s offset %" PRIu64, file->name, offset);
    if (verify->tree.ranks > 1) {
        finding.rank = file->rank;
        finding.file =
            rfs_files_path(rfs_catalog_files(catalog), rfs_catalog_file(catalog, file->rank));
        finding.offset = offset;
    } else if (kind == RFS_FOUND_FRAME) {
        finding.detail = where;
    }
    rfs_findings_add(&verify->findings, &finding);
}

/* How a file of the tree compares with the mount's. */
enum verdict {
    SAME,
    DIFFERS, /* its tensors lie where the mount's do, if it has any */
    OTHERWISE,
    MISSING,
};

/* The size of a file of the tree, -ENOENT for none, or another -errno with *err filled. */
static int64_t size_of(const struct frame *frame, struct rfs_error *err)
{
    struct stat st;
    const int rc = rfs_store_stat(frame->path, &st);

    if (rc == -ENOENT || rc == -ENOTDIR || (rc == 0 && !S_ISREG(st.st_mode)))
        return -ENOENT;
    return rc < 0 ? rfs_files_fail(err, frame->path, rc) : st.st_size;
}

/* compare_frame of the file as FILES, which has no other, reads it. */
static int64_t read_frame(struct frame *frame, struct rfs_files *files, struct rfs_error *err)
{
    if (!files || rfs_files_add(files, frame->path) != 0)
        return rfs_fail_memory(err);
    int rc = rfs_reading_begin(files, 0, &frame->reading);
    if (rc < 0)
        return rfs_files_fail(err, frame->path, rc);
    const int64_t at = compare_frame(frame, err);
    rc = rfs_reading_end(&frame->reading);
    return at < 0 || rc == 0 ? at : rfs_files_fail(err, frame->path, rc);
}

/* Gives an enum verdict, and where they differ first in *FIRST; or -errno with *err filled. */
static int compare_file(struct frame *frame, uint64_t *first, struct rfs_error *err)
{
    const int64_t size = size_of(frame, err);

    if (size < 0)
        return size == -ENOENT ? MISSING : (int)size;
    if ((uint64_t)size != frame->image->bytes)
        return OTHERWISE;
    struct rfs_files *files = rfs_files_new(NULL);
    const int64_t at = read_frame(frame, files, err);
    rfs_files_free(files);
    if (at < 0 || at == (int64_t)frame->image->bytes)
        return at < 0 ? (int)at : SAME;
    *first = (uint64_t)at;
    const int alike = is_alike(frame, err);
    return alike < 0 ? alike : alike ? DIFFERS : OTHERWISE;
}

/* Fills path, to be freed. 0 or -ENOMEM. */
static int find_path(struct frame *frame)
{
    const struct rfs_whole *tree = &frame->verify->tree;
    const struct rfs_chunks *boxes = rfs_catalog_chunks(tree->catalog);

    if (!frame->view->kind->by_rank) { /* parts, which have a folder, are not compared by file */
        frame->path = rfs_text_printf(
            "%s/%s", boxes ? boxes->folder : rfs_catalog_path(tree->catalog), frame->file->name);
    } else if (rfs_verify_has_rank(frame->verify, frame->rank)) {
        frame->path = strdup(rfs_files_path(rfs_catalog_files(tree->catalog),
                                            rfs_catalog_file(tree->catalog, frame->rank)));
    } else {
        return 0;
    }
    return frame->path ? 0 : -ENOMEM;
}

struct outcome {
    enum verdict verdict;
    uint64_t at;             /* the first difference */
    bool tensors, passed_on; /* the file has tensors; it is one of the source as it is */
};

struct comparing {
    struct rfs_verify *verify;
    size_t objects;           /* the file of the objects, if they are among the findings; or 0 */
    struct outcome *outcomes; /* [n_files] owned */
    struct rfs_first_error first;
};

static bool is_partial(const struct rfs_whole *whole)
{
    return whole->lacking.damaged.n > 0 || whole->lacking.from.n > 0;
}

/* Compares a file, if the tree may have it. 0 or -errno with *err filled. */
static int compare_shown(struct frame *frame, size_t number, struct outcome *outcome,
                         struct rfs_error *err)
{
    int rc = find_path(frame);

    if (frame->path && rc == 0)
        rc = rfs_view_image(frame->view, number, &frame->image, err);
    if (frame->path && rc == 0)
        rc = rfs_view_reader(frame->view, number, &frame->reader);
    if (!frame->reader)
        return rc;
    rfs_view_scatter(frame->reader);
    rc = compare_file(frame, &outcome->at, err);
    reshard_reader_close(frame->reader);
    if (rc < 0)
        return rc;
    *outcome = (struct outcome){.verdict = (enum verdict)rc,
                                .at = outcome->at,
                                .tensors = has_tensors(frame->image),
                                .passed_on = frame->image->storages != NULL};
    return 0;
}

static int compare_one(void *ctx, size_t number)
{
    struct comparing *comparing = ctx;
    struct rfs_verify *verify = comparing->verify;
    struct rfs_view *view = verify->src.view;
    struct frame frame = {.verify = verify,
                          .view = view,
                          .file = &view->files[number],
                          .rank = view->kind->by_rank ? view->files[number].rank : 0};
    struct rfs_error err = {0};
    int rc = 0;

    /* What differs in this file has been said of each value in it. */
    if (comparing->objects == 0 || number != comparing->objects)
        rc = compare_shown(&frame, number, &comparing->outcomes[number], &err);
    free(frame.path);
    rfs_progress_file(&verify->progress);
    rfs_progress_tick(&verify->progress);
    /* A mount of a damaged source lacks such a file, which is among the findings. */
    if (!frame.image && rc != -ENOMEM &&
        (is_partial(&verify->src) || is_partial(&verify->shown) || is_partial(&verify->cut)))
        return 0;
    return rfs_first_error_note(&comparing->first, rc, &err);
}

static void find_file(const struct comparing *comparing, size_t number)
{
    const struct rfs_view *view = comparing->verify->src.view;
    const bool missing = comparing->outcomes[number].verdict == MISSING;
    char detail[NAME_MAX + 48];

    snprintf(detail, sizeof detail,
             missing ? "%s: is missing" : "%s: is of another size than in a mount",
             view->files[number].name);
    rfs_verify_find(comparing->verify, RFS_FOUND_FILE, NULL, RFS_NO_RANK, detail);
}

/*
 * Tells what to make of missing files and of those of another size: other options can change files
 * with tensors and those that describe them, but no file that is passed on. Faults are reason
 * enough for another size.
 */
static void judge(const struct comparing *comparing, bool faults)
{
    const struct rfs_view *view = comparing->verify->src.view;
    const bool describes = view->dcp || view->mf;
    bool otherwise = view->kind->by_rank;

    for (size_t i = 0; i < view->n_files; i++)
        otherwise |= comparing->outcomes[i].tensors && comparing->outcomes[i].verdict >= OTHERWISE;
    for (size_t i = 0; i < view->n_files; i++) {
        const struct outcome *outcome = &comparing->outcomes[i];
        const bool fixed =
            outcome->passed_on || (!otherwise && (outcome->verdict == MISSING || describes));
        if (outcome->verdict == DIFFERS)
            find(comparing->verify, i, RFS_FOUND_FRAME, outcome->at);
        else if (outcome->verdict != SAME && !outcome->tensors && fixed)
            find_file(comparing, i);
        else if (outcome->verdict != SAME && !faults)
            find(comparing->verify, i, RFS_FOUND_OTHERWISE, outcome->at);
    }
}

static bool has_bad_values(const struct rfs_verify *verify)
{
    for (size_t i = 0; i < verify->findings.list.n; i++)
        if (verify->findings.list.data[i].kind == RFS_FOUND_VALUE)
            return true;
    return false;
}

int rfs_verify_frames(struct rfs_verify *verify, struct rfs_error *err)
{
    const bool faults = rfs_findings_fault(&verify->findings, NULL);
    struct comparing comparing = {.verify = verify, .first = RFS_FIRST_ERROR};
    const struct rfs_view *view = verify->src.view;

    /*
     * Where only some tensors are asked for, or the tree is cut and nobody says how, it equals no
     * view. Of hfai's parts the values are compared.
     */
    if (!view || verify->tree.parts || verify->src.parts || verify->options->globs.n > 0 ||
        (!verify->shown.view && verify->tree.ranks > 1))
        return 0;
    comparing.objects = has_bad_values(verify) ? rfs_dcp_objects_file(view) : 0;
    comparing.outcomes = calloc(view->n_files + 1, sizeof *comparing.outcomes);
    if (!comparing.outcomes)
        return rfs_fail_memory(err);
    rfs_progress_begin(&verify->progress, "comparing files", 0, view->n_files);
    int rc = rfs_pool_for(verify->tree.view->set->pool, view->n_files, compare_one, &comparing);
    rfs_progress_end(&verify->progress);
    rc = rfs_first_error_take(&comparing.first, rc, err);
    if (rc == 0)
        judge(&comparing, faults);
    free(comparing.outcomes);
    return rc && err->code == 0 ? rfs_fail_memory(err) : rc;
}
