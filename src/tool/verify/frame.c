/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of the tree's files beside tensors: headers, metadata, checksums. They are compared
 * with the files that a mount of the source would show; each of their bytes is known. A file of
 * another size or order was not made by the same options: that is a note, as its tensors have been
 * compared.
 */
#include "tool/verify/verify.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/pool.h"
#include "base/store.h"
#include "base/text.h"
#include "source/io/files.h"
#include "view/internal.h"

#include <sys/stat.h>

#define STEP 16384 /* bytes that are compared at once */

/* A file of the tree, and the mount's file of that name. */
struct frame {
    struct rfs_verify *verify;
    bool faults; /* there are differences already, which are reason enough for others */
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

/* The same of all that is not a tensor; the size of the file if all is the same. */
static int64_t compare_frame(struct frame *frame, struct rfs_error *err)
{
    const struct rfs_image *image = frame->image;

    for (size_t i = 0; i < image->n; i++) {
        const uint64_t end = rfs_image_end(image, i);
        if (image->regions[i].target < RFS_NO_TARGET)
            continue;
        const int64_t at = compare_range(frame, image->regions[i].start, end, err);
        if (at != (int64_t)end)
            return at;
    }
    return (int64_t)image->bytes;
}

/* Whether a tensor's bytes lie where they would be shown. */
static bool lies_there(const struct frame *frame, const struct rfs_index *index,
                       const struct rfs_region *region)
{
    struct rfs_catalog *catalog = frame->verify->tree.catalog;
    const struct rfs_target *target = &frame->image->params->targets[region->target];
    const char *name = rfs_catalog_name(frame->view->catalog, target->shown_name);
    const uint32_t id = rfs_intern_find(rfs_catalog_tables(catalog)->names, name, strlen(name));
    const struct rfs_entry *entry = id == RFS_NO_ID ? NULL : rfs_index_find(index, id);

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
        if (image->regions[i].target < RFS_NO_TARGET)
            alike = image->params && lies_there(frame, index, &image->regions[i]);
    rfs_catalog_end(catalog, &use);
    return rc < 0 ? rc : alike;
}

static void find(const struct frame *frame, enum rfs_finding_kind kind, uint64_t offset)
{
    struct rfs_catalog *catalog = frame->verify->tree.catalog;
    struct rfs_finding finding = {.kind = kind, .rank = RFS_NO_RANK, .at = RFS_NOWHERE_AT};
    char where[NAME_MAX + 32];

    if (kind == RFS_FOUND_OTHERWISE && frame->faults)
        return;
    snprintf(where, sizeof where, "%s offset %" PRIu64, frame->file->name, offset);
    if (frame->verify->tree.ranks > 1) {
        finding.rank = frame->rank;
        finding.file =
            rfs_files_path(rfs_catalog_files(catalog), rfs_catalog_file(catalog, frame->rank));
        finding.offset = offset;
    } else if (kind == RFS_FOUND_FRAME) {
        finding.detail = where;
    }
    rfs_findings_add(&frame->verify->findings, &finding);
}

/* Whether the tree has a file of the size that is shown; or -errno with *err filled. */
static int has_that_size(const struct frame *frame, struct rfs_error *err)
{
    struct stat st;
    const int rc = rfs_store_stat(frame->path, &st);

    if (rc == -ENOENT || rc == -ENOTDIR)
        return 0;
    if (rc < 0)
        return rfs_files_fail(err, frame->path, rc);
    return S_ISREG(st.st_mode) && (uint64_t)st.st_size == frame->image->bytes;
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

static int compare_file(struct frame *frame, struct rfs_error *err)
{
    int alike = has_that_size(frame, err);
    int64_t at = 0;

    if (alike > 0) {
        struct rfs_files *files = rfs_files_new(NULL);
        at = read_frame(frame, files, err);
        rfs_files_free(files);
        if (at == (int64_t)frame->image->bytes)
            return 0;
        alike = at < 0 ? (int)at : is_alike(frame, err);
    }
    if (alike < 0)
        return alike;
    find(frame, alike ? RFS_FOUND_FRAME : RFS_FOUND_OTHERWISE, (uint64_t)at);
    return 0;
}

/* Fills path, to be freed. 0 or -ENOMEM. */
static int find_path(struct frame *frame)
{
    const struct rfs_whole *tree = &frame->verify->tree;

    if (!frame->view->kind->by_rank) { /* parts, which have a folder, are not compared by file */
        frame->path = rfs_text_printf("%s/%s", rfs_catalog_path(tree->catalog), frame->file->name);
    } else if (rfs_verify_has_rank(frame->verify, frame->rank)) {
        frame->path = strdup(rfs_files_path(rfs_catalog_files(tree->catalog),
                                            rfs_catalog_file(tree->catalog, frame->rank)));
    } else {
        return 0;
    }
    return frame->path ? 0 : -ENOMEM;
}

struct comparing {
    struct rfs_verify *verify;
    bool faults;
    struct rfs_first_error first;
};

static bool is_partial(const struct rfs_whole *whole)
{
    return whole->lacking.damaged.n > 0 || whole->lacking.from.n > 0;
}

static int compare_one(void *ctx, size_t number)
{
    struct comparing *comparing = ctx;
    struct rfs_verify *verify = comparing->verify;
    struct rfs_view *view = verify->src.view;
    struct frame frame = {.verify = verify,
                          .faults = comparing->faults,
                          .view = view,
                          .file = &view->files[number],
                          .rank = view->files[number].rank};
    struct rfs_error err = {0};

    int rc = find_path(&frame);
    if (frame.path && rc == 0)
        rc = rfs_view_image(view, number, &frame.image, &err);
    if (frame.path && rc == 0)
        rc = rfs_view_reader(view, number, &frame.reader);
    if (frame.reader) {
        rfs_view_scatter(frame.reader);
        rc = compare_file(&frame, &err);
        reshard_reader_close(frame.reader);
    }
    free(frame.path);
    rfs_progress_file(&verify->progress);
    rfs_progress_tick(&verify->progress);
    /* A mount of a damaged source lacks such a file, which is among the findings. */
    if (!frame.image && rc != -ENOMEM && (is_partial(&verify->src) || is_partial(&verify->shown)))
        return 0;
    return rfs_first_error_note(&comparing->first, rc, &err);
}

int rfs_verify_frames(struct rfs_verify *verify, struct rfs_error *err)
{
    struct comparing comparing = {.verify = verify,
                                  .faults = rfs_findings_fault(&verify->findings, NULL),
                                  .first = RFS_FIRST_ERROR};
    const struct rfs_view *view = verify->src.view;

    /*
     * Where only some tensors are asked for, or the tree is cut and nobody says how, it equals no
     * view. Of hfai's parts the values are compared.
     */
    if (!view || verify->tree.parts || verify->src.parts || verify->options->globs.n > 0 ||
        (!verify->shown.view && verify->tree.ranks > 1))
        return 0;
    rfs_progress_begin(&verify->progress, "comparing files", 0, view->n_files);
    int rc = rfs_pool_for(verify->tree.view->set->pool, view->n_files, compare_one, &comparing);
    rfs_progress_end(&verify->progress);
    rc = rfs_first_error_take(&comparing.first, rc, err);
    return rc && err->code == 0 ? rfs_fail_memory(err) : rc;
}
