/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the files of the tree beside tensors: headers, metadata, checksums. It is compared
 * with the files that a mount of the source would show, of which each byte is known. A file of
 * another size or order was not made by the same options: that is a note, as its tensors have been
 * compared.
 */
#include "tool/verify/verify.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/pool.h"
#include "view/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP 16384 /* bytes that are compared at once */

/* A file of the tree, and what a mount would show as it. */
struct frame {
    struct rfs_verify *verify;
    bool faults; /* there are differences already, which are reason enough for others */
    struct rfs_view *view;
    const struct shown_file *file;
    const struct rfs_image *image;
    struct reshard_reader *reader;
    uint32_t rank; /* of the tree */
    const char *path;
    int fd;
};

/* The first offset of [begin, end) that differs, END if none does, or -errno. */
static int64_t compare_range(const struct frame *frame, uint64_t begin, uint64_t end)
{
    unsigned char have[STEP], want[STEP];

    for (uint64_t at = begin; at < end;) {
        const size_t n = (size_t)rfs_min_u64(STEP, end - at);
        const ssize_t got = pread(frame->fd, have, n, (off_t)at);
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got == 0)
            return (int64_t)at; /* it was cut off meanwhile */
        if (got < 0)
            continue;
        const ssize_t shown = rfs_view_fetch(frame->reader, want, (size_t)got, at);
        if (shown != got)
            return shown < 0 ? shown : -EIO;
        for (ssize_t i = 0; i < got; i++)
            if (have[i] != want[i])
                return (int64_t)at + i;
        at += (uint64_t)got;
    }
    return (int64_t)end;
}

/* The same of all that is not a tensor; the size of the file if all is the same. */
static int64_t compare_frame(const struct frame *frame)
{
    const struct rfs_image *image = frame->image;

    for (size_t i = 0; i < image->n; i++) {
        const uint64_t end = rfs_image_end(image, i);
        if (image->regions[i].target < RFS_NO_TARGET)
            continue;
        const int64_t at = compare_range(frame, image->regions[i].start, end);
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
 * reason.
 */
static bool is_alike(const struct frame *frame)
{
    struct rfs_catalog *catalog = frame->verify->tree.catalog;
    const struct rfs_image *image = frame->image;
    const struct rfs_index *index;
    struct rfs_use use;
    bool alike = false;

    rfs_catalog_begin(catalog, &use);
    if (rfs_catalog_index(catalog, frame->rank, RFS_NO_RANK, &index, NULL) == 0) {
        alike = true;
        for (size_t i = 0; alike && i < image->n; i++)
            if (image->regions[i].target < RFS_NO_TARGET)
                alike = image->params && lies_there(frame, index, &image->regions[i]);
    }
    rfs_catalog_end(catalog, &use);
    return alike;
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

static int compare_file(struct frame *frame, struct rfs_error *err)
{
    struct stat st;
    RFS_CLOSE int fd = open(frame->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != frame->image->bytes) {
        find(frame, RFS_FOUND_OTHERWISE, 0);
        return 0;
    }
    frame->fd = fd;
    const int64_t at = compare_frame(frame);
    if (at < 0)
        return rfs_fail(err, (int)at, RFS_IN(frame->path), "again", "cannot be read: %s",
                        strerror((int)-at));
    if (at < (int64_t)frame->image->bytes)
        find(frame, is_alike(frame) ? RFS_FOUND_FRAME : RFS_FOUND_OTHERWISE, (uint64_t)at);
    return 0;
}

/*
 * Where the tree has a file of the view, or what it has instead; malloc'ed. NULL: nowhere, or out
 * of memory.
 */
static char *path_of(const struct frame *frame)
{
    const struct rfs_whole *tree = &frame->verify->tree;
    const struct rfs_view *view = frame->view;
    char *path;

    if (!view->kind->by_rank) /* parts, which have a folder, are not compared file by file */
        return asprintf(&path, "%s/%s", rfs_catalog_path(tree->catalog), frame->file->name) < 0
                   ? NULL
                   : path;
    if (!rfs_verify_has_rank(frame->verify, frame->rank))
        return NULL;
    return strdup(rfs_files_path(rfs_catalog_files(tree->catalog),
                                 rfs_catalog_file(tree->catalog, frame->rank)));
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
                          .fd = -1};
    struct rfs_error err = {0};
    RFS_FREE char *path = NULL;

    frame.rank = frame.file->rank;
    frame.path = path = path_of(&frame);
    int rc = path ? rfs_view_image(view, number, &frame.image, &err) : 0;
    if (path && rc == 0)
        rc = rfs_view_reader(view, number, &frame.reader);
    if (frame.reader) {
        rfs_view_scatter(frame.reader);
        rc = compare_file(&frame, &err);
        reshard_reader_close(frame.reader);
    }
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
