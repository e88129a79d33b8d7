/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the tree's files beside tensors.
 *
 * Objects are the values of a checkpoint of torch or of HyperParallel that are not tensors. Each of
 * the tree is proved to be what its format says. Where a mount passes those of the source on, or
 * both are of one format and nobody says how the tree was made, the bytes of each are compared.
 *
 * Frames are the bytes beside tensors: headers, metadata, checksums. They are compared with the
 * files that a mount of the source would show; each of their bytes is known. A file of another size
 * or order was not made by the same options: that is a note, as its tensors have been compared. A
 * file without tensors that a mount passes on has no other order. Nor has one that describes files
 * with tensors, where all of these have the order of a mount's.
 *
 * hfai's parts have values, too, and can be damaged by themselves: the state is in all of them
 * together, so nothing else is compared then.
 */
#include "base/options.h"
#include "survey/verify/verify.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/differ.h"
#include "base/first_error.h"
#include "base/io.h"
#include "base/order.h"
#include "base/pages.h"
#include "base/pool.h"
#include "base/store.h"
#include "base/text.h"
#include "formats/chunks/chunks.h"
#include "formats/dcp/dcp.h"
#include "formats/hfai/hfai.h"
#include "formats/torch/torch.h"
#include "reshard.h"
#include "store/files.h"
#include "view/hfai_view.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define OBJECT_STEP ((size_t)1 << 20) /* bytes of an object that are compared at once */
#define FRAME_STEP 8192               /* bytes of a frame */

/* ---- values of checkpoints of torch and HyperParallel ---------------------------------------- */

/* A value of one side, or of both; a side that lacks it has NULL. */
struct pair {
    const char *name; /* name as shown; owned by the view */
    const struct rfs_chunked_object *tree, *src;
};

/* The comparison of all objects. */
struct objects {
    struct rfs_verify *verify;
    bool against; /* objects are compared with the source */
    RFS_VEC(struct pair) pairs;
    struct rfs_first_error first;
};

static void find_object(const struct objects *objects, const struct pair *pair, const char *detail)
{
    rfs_findings_add_plain(&objects->verify->findings, RFS_FOUND_VALUE, pair->name, RFS_NO_RANK,
                           detail);
}

/* ---- which objects there are ----------------------------------------------------------------- */

/* Returns the chunks of a side, which its objects are among, or NULL. */
static struct rfs_chunks *chunks_of(const struct rfs_whole *whole)
{
    return whole->list.view ? rfs_catalog_chunks(whole->of.catalog) : NULL;
}

/* Adds the objects of a side by the names that it shows them by. */
static int add_objects(struct objects *objects, const struct rfs_whole *whole, bool of_tree,
                       struct rfs_error *err)
{
    const struct rfs_chunks *chunks = chunks_of(whole);
    const int rc = chunks ? rfs_dcp_objects_apart(chunks, err) : 0;

    for (size_t i = 0; rc == 0 && chunks && i < chunks->objects.n; i++) {
        const struct rfs_chunked_object *object = &chunks->objects.data[i];
        const struct pair pair = {
            .name =
                rfs_names_shown(whole->of.names, rfs_catalog_name(whole->of.catalog, object->name)),
            .tree = of_tree ? object : NULL,
            .src = of_tree ? NULL : object};
        if (pair.name && !RFS_PUSH(&objects->pairs, pair))
            return rfs_fail_memory(err);
    }
    return rc;
}

RFS_COMPARE(by_name, struct pair, x, y, strcmp(x->name, y->name))

/* Joins what both sides have. A side has each name once: names= is checked for that. */
static void join(struct objects *objects)
{
    struct pair *pairs = objects->pairs.data;
    size_t n = 0;

    RFS_SORT_ALL(&objects->pairs, by_name);
    for (size_t i = 0; i < objects->pairs.n; i++) {
        if (n > 0 && strcmp(pairs[n - 1].name, pairs[i].name) == 0) {
            pairs[n - 1].tree = pairs[n - 1].tree ? pairs[n - 1].tree : pairs[i].tree;
            pairs[n - 1].src = pairs[n - 1].src ? pairs[n - 1].src : pairs[i].src;
        } else {
            pairs[n++] = pairs[i];
        }
    }
    objects->pairs.n = n;
}

/* ---- what objects are ------------------------------------------------------------------------ */

/*
 * Proves an item: 1 if it is sound, 0 if it is among the findings now, or -errno with *err filled.
 */
static int prove(const struct objects *objects, const struct rfs_whole *whole,
                 const struct pair *pair, const struct rfs_chunked_object *object, const char *what,
                 struct rfs_error *err)
{
    struct rfs_error why = {0};
    char detail[sizeof why.text + 32];
    struct rfs_chunks *chunks = chunks_of(whole);
    const int rc = chunks->format->prove(chunks, object, true, &why);

    if (rc == -ENOMEM || rc == -EINTR) {
        *err = why;
        return rc;
    }
    if (rc == 0)
        return 1;
    snprintf(detail, sizeof detail, "%s: %s", what, why.text);
    find_object(objects, pair, detail);
    return 0;
}

static int read_item(const struct rfs_whole *whole, const struct rfs_chunked_object *object,
                     uint64_t at, void *buf, size_t n, struct rfs_error *err)
{
    struct rfs_files *files = chunks_of(whole)->files;
    struct rfs_reading reading;
    int rc = rfs_reading_begin(files, object->file, &reading);

    if (rc == 0) {
        rc = rfs_reading_pread(&reading, buf, n, object->item + at);
        const int ended = rfs_reading_end(&reading);
        rc = ended ? ended : rc;
    }
    return rc ? rfs_files_fail(err, rfs_files_path(files, object->file), rc) : 0;
}

/* Compares two items of BYTES. */
static int compare_items(const struct objects *objects, const struct pair *pair, uint64_t bytes,
                         unsigned char *have, unsigned char *want, struct rfs_error *err)
{
    struct rfs_verify *verify = objects->verify;
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < bytes; at += OBJECT_STEP) {
        const size_t n = (size_t)rfs_min_u64(OBJECT_STEP, bytes - at);
        rc = read_item(&verify->tree, pair->tree, at, have, n, err)
                 ?: read_item(&verify->src, pair->src, at, want, n, err);
        const size_t first = rc ? n : rfs_differ_at(have, want, 0, n);
        if (first == n)
            continue;
        rfs_findings_add(
            &verify->findings,
            &(struct rfs_finding){
                .kind = RFS_FOUND_VALUE,
                .name = pair->name,
                .rank = RFS_NO_RANK,
                .detail = "has other bytes than the source",
                .file = rfs_files_path(chunks_of(&verify->tree)->files, pair->tree->file),
                .offset = rfs_files_offset(chunks_of(&verify->tree)->files, pair->tree->file,
                                           pair->tree->item + at + first),
                .at = RFS_FOUND_NOWHERE});
        break;
    }
    return rc;
}

static int compare_pair(const struct objects *objects, const struct pair *pair,
                        struct rfs_error *err)
{
    const struct rfs_whole *tree = &objects->verify->tree;
    const struct rfs_whole *src = &objects->verify->src;
    int sound = 1;

    if (pair->tree)
        sound = prove(objects, tree, pair, pair->tree, "cannot be read", err);
    if (sound > 0 && pair->src)
        sound = prove(objects, src, pair, pair->src, "cannot be compared", err);
    if (sound <= 0 || !objects->against)
        return sound < 0 ? sound : 0;
    if (!pair->tree || !pair->src) {
        find_object(objects, pair, pair->src ? "is missing" : "should not be there");
        return 0;
    }
    uint64_t bytes;
    uint64_t src_bytes;
    int rc = rfs_chunks_object_bytes(chunks_of(tree), pair->tree, &bytes, err)
                 ?: rfs_chunks_object_bytes(chunks_of(src), pair->src, &src_bytes, err);
    if (rc)
        return rc;
    if (bytes != src_bytes) {
        find_object(objects, pair, "is of another size than in the source");
        return 0;
    }
    const size_t n = (size_t)rfs_min_u64(OBJECT_STEP, bytes);
    unsigned char *have = rfs_pages_alloc(n);
    unsigned char *want = rfs_pages_alloc(n);
    rc = have && want ? compare_items(objects, pair, bytes, have, want, err) : rfs_fail_memory(err);
    rfs_pages_free(have, n);
    rfs_pages_free(want, n);
    return rc;
}

static int compare_one_object(void *ctx, size_t i)
{
    struct objects *objects = ctx;
    struct rfs_error err = {0};

    return rfs_first_error_note(&objects->first, i,
                                compare_pair(objects, &objects->pairs.data[i], &err), &err);
}

static void objects_end(struct objects *objects)
{
    free(objects->pairs.data);
}

/* Warns of values of the source, where the tree is of a view without such values. */
static void warn_uncompared(const struct rfs_verify *verify)
{
    const struct rfs_chunks *src = chunks_of(&verify->src);
    char line[96];

    if (!src || src->objects.n == 0)
        return;
    snprintf(line, sizeof line, "values of the source that are not tensors are not compared: %zu",
             src->objects.n);
    verify->wishes.warn(line);
}

/* Says whether both sides have values of one kind, where nobody says how the tree was made. */
static bool are_alike(const struct rfs_verify *verify)
{
    const struct rfs_chunks *tree = chunks_of(&verify->tree);
    const struct rfs_chunks *src = chunks_of(&verify->src);

    return tree && src && tree->format == src->format &&
           !rfs_options_describes(verify->src.of.options);
}

/* Compares the objects. 0, or -errno with *err filled. */
static int check_objects(struct rfs_verify *verify, struct rfs_error *err)
{
    const struct rfs_view *shown = verify->src.list.view;
    const bool passed = are_alike(verify) || (shown && rfs_view_objects_passed(shown));
    /* A tree of a view that passes none on has none. */
    RFS_CLEANUP(objects_end)
    struct objects objects = {.verify = verify,
                              .against = passed ||
                                         (shown && rfs_options_describes(verify->src.of.options)),
                              .first = RFS_FIRST_ERROR};

    if (verify->wishes.some)
        return 0;
    int rc = add_objects(&objects, &verify->tree, true, err);
    if (rc == 0 && passed)
        rc = add_objects(&objects, &verify->src, false, err);
    else if (rc == 0)
        warn_uncompared(verify);
    if (rc)
        return rc;
    join(&objects);
    verify->values = objects.pairs.n;
    return rfs_first_error_take(
        &objects.first,
        rfs_pool_for(verify->tree.of.pool, objects.pairs.n, compare_one_object, &objects), err);
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* A file of the tree, and the mount's file of that name. */
struct frame {
    struct rfs_verify *verify;
    struct rfs_view *view;
    size_t number; /* number of the mount's file */
    struct rfs_view_shown file;
    const struct rfs_image *image; /* held; or NULL */
    struct reshard_reader *reader;
    uint32_t rank; /* rank of the tree */
    char *path;    /* path in the tree, or where it would be; NULL: nowhere */
    struct rfs_reading reading;
};

static void frame_end(struct frame *frame)
{
    rfs_image_free(frame->image);
    free(frame->path);
}

/* Returns the first offset of [begin, end) that differs, or END, or -errno with *err filled. */
static int64_t compare_range(struct frame *frame, uint64_t begin, uint64_t end,
                             struct rfs_error *err)
{
    unsigned char have[FRAME_STEP], want[FRAME_STEP];

    for (uint64_t at = begin; at < end;) {
        const size_t n = (size_t)rfs_min_u64(FRAME_STEP, end - at);
        const int rc = rfs_reading_pread(&frame->reading, have, n, at);
        if (rc < 0)
            return rfs_files_fail(err, frame->path, rc);
        const ssize_t shown = rfs_view_reader_read(frame->reader, want, n, at);
        if (shown != (ssize_t)n)
            return rfs_fail(err, shown < 0 ? (int)shown : -EIO, RFS_IN(frame->file.name), "again",
                            "cannot be read: %s", strerror(shown < 0 ? (int)-shown : EIO));
        const size_t first = rfs_differ_at(have, want, 0, n);
        if (first < n)
            return (int64_t)(at + first);
        at += n;
    }
    return (int64_t)end;
}

/*
 * Returns whether a region has bytes of a tensor. Images with storages pass files on as they are.
 */
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

/*
 * Returns the first differing offset of all that is not a tensor, or the size of the file, or
 * -errno with *err filled.
 */
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

/* Returns whether a chunk of that tensor begins at START of the file, in a chunked tree. */
static bool chunk_lies_there(const struct frame *frame, const struct rfs_chunks *chunks,
                             const char *name, uint64_t start)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(chunks, name, strlen(name));

    for (uint32_t i = 0; tensor && i < tensor->n; i++) {
        const struct rfs_chunk *chunk = &chunks->chunks.data[tensor->first + i];
        if (atomic_load(&chunk->at) == start &&
            strcmp(rfs_files_path(chunks->files, rfs_chunks_file_of(chunks, tensor->first + i)),
                   frame->path) == 0)
            return true;
    }
    return false;
}

/* Returns whether a tensor's bytes lie where they would be shown. */
static bool lies_there(const struct frame *frame, const struct rfs_index *index,
                       const struct rfs_region *region)
{
    struct rfs_catalog *catalog = frame->verify->tree.list.catalog;
    const struct rfs_tensors shown = rfs_tensors_of_file(frame->view, frame->number, frame->image);
    const char *name = rfs_tensors_name(&shown, region->target);
    const struct rfs_chunks *chunks = rfs_catalog_chunks(catalog);
    const uint32_t id = rfs_intern_find(rfs_catalog_tables(catalog)->names, name, strlen(name));
    const struct rfs_entry *entry = id == RFS_NO_ID ? NULL : rfs_index_find(index, id);

    if (chunks)
        return chunk_lies_there(frame, chunks, name, region->start);
    if (!entry)
        return false;
    const uint32_t file = rfs_catalog_entry_file(catalog, frame->rank, index, entry);
    const struct rfs_content content = rfs_catalog_content_of(index, entry);
    return region->at < rfs_catalog_type(catalog, entry->type)->bytes &&
           rfs_catalog_content_offset(&content, region->at) == region->start &&
           strcmp(rfs_files_path(rfs_catalog_files(catalog), file), frame->path) == 0;
}

/*
 * Returns whether all tensors lie as a mount would show them, so that what differs around them has
 * no reason; or -errno with *err filled.
 */
static int is_alike(const struct frame *frame, struct rfs_error *err)
{
    struct rfs_catalog *catalog = frame->verify->tree.list.catalog;
    const struct rfs_image *image = frame->image;
    const struct rfs_index *index;
    struct rfs_use use;

    rfs_catalog_begin(catalog, &use);
    const int rc = rfs_catalog_index(catalog, frame->rank, RFS_NO_RANK, &index, err);
    bool alike = rc == 0;
    for (size_t i = 0; alike && i < image->n; i++)
        if (is_tensor(image, i))
            alike = lies_there(frame, index, &image->regions[i]);
    rfs_catalog_end(catalog, &use);
    return rc < 0 ? rc : alike;
}

/* Adds a finding of file NUMBER of the view: of its rank, where the tree has ranks. */
static void find_in_file(struct rfs_verify *verify, size_t number, enum rfs_finding_kind kind,
                         uint64_t offset)
{
    struct rfs_catalog *catalog = verify->tree.list.catalog;
    const struct rfs_view_shown file = rfs_view_shown(verify->src.list.view, number);
    struct rfs_finding finding = {.kind = kind, .rank = RFS_NO_RANK, .at = RFS_FOUND_NOWHERE};
    char where[NAME_MAX + 32];

    snprintf(where, sizeof where, "%s offset %" PRIu64, file.name, offset);
    if (verify->tree.ranks > 1) {
        finding.rank = file.rank;
        finding.file =
            rfs_files_path(rfs_catalog_files(catalog), rfs_catalog_file(catalog, file.rank));
        finding.offset = offset;
    } else if (kind == RFS_FOUND_FRAME) {
        finding.detail = where;
    }
    rfs_findings_add(&verify->findings, &finding);
}

/* The comparison of a file of the tree with the mount's. */
enum verdict {
    SAME,
    DIFFERS, /* its tensors lie where the mount's do, if it has any */
    OTHERWISE,
    MISSING,
};

/* Returns the store that reads the tree's files, or NULL. */
static struct rfs_store *store_of(const struct frame *frame)
{
    return rfs_files_store(rfs_catalog_files(frame->verify->tree.list.catalog));
}

/* Returns the size of a file of the tree, -ENOENT for none, or another -errno with *err filled. */
static int64_t size_of(const struct frame *frame, struct rfs_error *err)
{
    struct stat st;
    const int rc = rfs_store_stat(store_of(frame), frame->path, &st);

    if (rc == -ENOENT || rc == -ENOTDIR || (rc == 0 && !S_ISREG(st.st_mode)))
        return -ENOENT;
    return rc < 0 ? rfs_files_fail(err, frame->path, rc) : st.st_size;
}

/* Opens the file by FILES, which has no other, and returns what compare_frame does. */
static int64_t read_frame(struct frame *frame, struct rfs_files *files, struct rfs_error *err)
{
    if (!files || rfs_files_add(files, frame->path) != 0)
        return rfs_fail_memory(err);
    rfs_files_set_store(files, store_of(frame));
    int rc = rfs_reading_begin(files, 0, &frame->reading);
    if (rc < 0)
        return rfs_files_fail(err, frame->path, rc);
    const int64_t at = compare_frame(frame, err);
    rc = rfs_reading_end(&frame->reading);
    return at < 0 || rc == 0 ? at : rfs_files_fail(err, frame->path, rc);
}

/* Returns an enum verdict, and sets *FIRST to the first difference; or -errno with *err filled. */
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

/* Sets frame->path, to be freed. 0 or -ENOMEM. */
static int find_path(struct frame *frame)
{
    const struct rfs_whole *tree = &frame->verify->tree;
    const struct rfs_chunks *chunks = rfs_catalog_chunks(tree->list.catalog);

    if (!frame->verify->src.of.by_rank) { /* parts, which have a folder, are not compared by file */
        frame->path =
            rfs_text_printf("%s/%s", chunks ? chunks->folder : rfs_catalog_path(tree->list.catalog),
                            frame->file.name);
    } else if (rfs_verify_has_rank(frame->verify, frame->rank)) {
        frame->path = strdup(rfs_files_path(rfs_catalog_files(tree->list.catalog),
                                            rfs_catalog_file(tree->list.catalog, frame->rank)));
    } else {
        return 0;
    }
    return frame->path ? 0 : -ENOMEM;
}

/* The findings of a file. */
struct outcome {
    enum verdict verdict;
    uint64_t at;             /* the first difference */
    bool tensors, passed_on; /* the file has tensors; it is a file of the source as it is */
};

/* The comparison of all files. */
struct frames {
    struct rfs_verify *verify;
    size_t objects;           /* number of the file of objects, if some are findings; or 0 */
    struct outcome *outcomes; /* [n_files] owned */
    struct rfs_first_error first;
};

static bool is_partial(const struct rfs_whole *whole)
{
    return whole->lacking && (whole->lacking->damaged.n > 0 || whole->lacking->from.n > 0);
}

/* Compares a file, if the tree may have it. 0 or -errno with *err filled. */
static int compare_shown(struct frame *frame, struct outcome *outcome, struct rfs_error *err)
{
    int rc = find_path(frame);

    if (frame->path && rc == 0)
        rc = rfs_view_image(frame->view, frame->number, &frame->image, err);
    if (frame->path && rc == 0)
        rc = rfs_view_reader_open(frame->view, frame->number, &frame->reader);
    if (!frame->reader)
        return rc;
    rfs_view_reader_scatter(frame->reader);
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

static int compare_one_file(void *ctx, size_t number)
{
    struct frames *frames = ctx;
    struct rfs_verify *verify = frames->verify;
    struct rfs_view *view = verify->src.list.view;
    RFS_CLEANUP(frame_end)
    struct frame frame = {
        .verify = verify, .view = view, .number = number, .file = rfs_view_shown(view, number)};
    struct rfs_error err = {0};
    int rc = 0;

    frame.rank = verify->src.of.by_rank ? frame.file.rank : 0;
    /* The differences of this file are findings of its values. */
    if (frames->objects == 0 || number != frames->objects)
        rc = compare_shown(&frame, &frames->outcomes[number], &err);
    rfs_progress_file(&verify->progress);
    rfs_progress_tick(&verify->progress);
    /* A mount of a damaged source lacks such a file, which is among the findings. */
    if (!frame.image && rc != -ENOMEM &&
        (is_partial(&verify->src) || is_partial(&verify->shown) || is_partial(&verify->cut)))
        return 0;
    return rfs_first_error_note(&frames->first, number, rc, &err);
}

static void find_file(const struct frames *frames, size_t number)
{
    const char *name = rfs_view_shown(frames->verify->src.list.view, number).name;
    const bool missing = frames->outcomes[number].verdict == MISSING;
    char detail[NAME_MAX + 48];

    snprintf(detail, sizeof detail,
             missing ? "%s: is missing" : "%s: is of another size than in a mount", name);
    rfs_findings_add_plain(&frames->verify->findings, RFS_FOUND_FILE, NULL, RFS_NO_RANK, detail);
}

/*
 * Judges differing files, missing ones and those of another size: other options can change files
 * with tensors and those that describe them, but no file that is passed on. Faults are reason
 * enough for another size.
 */
static void judge(const struct frames *frames, bool faults)
{
    const struct rfs_view_contents *of = &frames->verify->src.of;
    const bool describes = rfs_options_describes(of->options);
    bool otherwise = of->by_rank;

    for (size_t i = 0; i < of->n_files; i++)
        otherwise |= frames->outcomes[i].tensors && frames->outcomes[i].verdict >= OTHERWISE;
    for (size_t i = 0; i < of->n_files; i++) {
        const struct outcome *outcome = &frames->outcomes[i];
        const bool fixed =
            outcome->passed_on || (!otherwise && (outcome->verdict == MISSING || describes));
        if (outcome->verdict == DIFFERS)
            find_in_file(frames->verify, i, RFS_FOUND_FRAME, outcome->at);
        else if (outcome->verdict != SAME && !outcome->tensors && fixed)
            find_file(frames, i);
        else if (outcome->verdict != SAME && !faults)
            find_in_file(frames->verify, i, RFS_FOUND_OTHERWISE, outcome->at);
    }
}

static bool has_bad_values(const struct rfs_verify *verify)
{
    for (size_t i = 0; i < verify->findings.list.n; i++)
        if (verify->findings.list.data[i].kind == RFS_FOUND_VALUE)
            return true;
    return false;
}

/* Compares the frames of all files. 0, or -errno with *err filled. */
static int check_frames(struct rfs_verify *verify, struct rfs_error *err)
{
    const bool faults = rfs_findings_fault(&verify->findings, NULL);
    struct frames frames = {.verify = verify, .first = RFS_FIRST_ERROR};
    const struct rfs_view *view = verify->src.list.view;
    const size_t n = verify->src.of.n_files;

    /*
     * Where only some tensors are asked for, or the tree is cut and nobody says how, it equals no
     * view. hfai's parts are compared by their values.
     */
    if (!view || verify->tree.parts || verify->src.parts || verify->wishes.some ||
        (!verify->shown.list.view && verify->tree.ranks > 1))
        return 0;
    frames.objects = has_bad_values(verify) ? rfs_view_dcp_objects_file(view) : 0;
    frames.outcomes = calloc(n + 1, sizeof *frames.outcomes);
    if (!frames.outcomes)
        return rfs_fail_memory(err);
    rfs_progress_begin(&verify->progress, "comparing files", 0, n);
    int rc = rfs_pool_for(verify->tree.of.pool, n, compare_one_file, &frames);
    rfs_progress_end(&verify->progress);
    rc = rfs_first_error_take(&frames.first, rc, err);
    if (rc == 0)
        judge(&frames, faults);
    free(frames.outcomes);
    return rc && err->code == 0 ? rfs_fail_memory(err) : rc;
}

/* ---- values of hfai's parts ------------------------------------------------------------------ */

static void find_value(struct rfs_verify *verify, const char *name, const char *detail)
{
    rfs_findings_add_plain(&verify->findings, RFS_FOUND_VALUE, name, RFS_NO_RANK, detail);
}

/*
 * Compares values that are not tensors, where both sides are hfai's parts, however these divide
 * them: numbers, texts, lists, and which dicts there are, by their path in the state.
 */
static void check_values(struct rfs_verify *verify)
{
    size_t i = 0;
    size_t k = 0;

    if (!verify->tree.parts || !verify->src.parts || verify->wishes.some)
        return;
    /* They are sorted by name and hash. */
    const size_t n_tree = verify->tree.parts->state.values.n;
    const size_t n_src = verify->src.parts->state.values.n;
    const struct rfs_hfai_value *tree = verify->tree.parts->state.values.data;
    const struct rfs_hfai_value *src = verify->src.parts->state.values.data;
    while (i < n_tree || k < n_src) {
        const int order = i == n_tree ? 1 : k == n_src ? -1 : strcmp(tree[i].name, src[k].name);
        if (order < 0)
            find_value(verify, tree[i].name, "should not be there");
        else if (order > 0)
            find_value(verify, src[k].name, "is missing");
        else if (memcmp(tree[i].hash, src[k].hash, sizeof src[k].hash) != 0)
            find_value(verify, tree[i].name, "differs from the source");
        i += order <= 0;
        k += order >= 0;
    }
    verify->values = n_src;
}

/* ---- hfai's parts that do not open as a whole ------------------------------------------------ */

/* Reads from a descriptor; a reader of rfs_torch_open. */
static int read_part(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const int *fd = ctx;

    return rfs_io_pread_all(*fd, buf, n, offset);
}

/* Raises *N to the number of parts that a sound part says. */
static int check_part(const char *path, uint32_t *n, struct rfs_error *err)
{
    struct rfs_torch torch;
    struct stat st;
    RFS_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) != 0)
        return rfs_fail(err, -errno, RFS_IN(path), "a file that you may read", "cannot open: %s",
                        strerror(errno));
    int rc = rfs_torch_open(RFS_BYTES_SOURCE(read_part, &fd, (uint64_t)st.st_size, path), 0, &torch,
                            err);
    if (rc)
        return rc;
    rc = rfs_torch_check(&torch, path, err);
    const struct rfs_node *shards = torch.pickle.root->kind == RFS_NODE_DICT
                                        ? rfs_pickle_get(torch.pickle.root, "__nshards__")
                                        : NULL;
    if (shards && shards->kind == RFS_NODE_INT && shards->of.integer > *n &&
        shards->of.integer <= RFS_HFAI_PARTS)
        *n = (uint32_t)shards->of.integer;
    rfs_torch_free(&torch);
    return rc;
}

bool rfs_verify_parts(struct rfs_verify *verify, const char *folder, enum rfs_finding_kind kind)
{
    uint32_t n = 0;
    bool *missing = calloc(RFS_HFAI_PARTS, sizeof *missing);

    for (uint32_t part = 0; missing && part < RFS_HFAI_PARTS; part++) {
        struct rfs_error why = {0};
        RFS_FREE char *path = rfs_text_printf("%s/PART_%03u.pt", folder, part);
        if (!path)
            break;
        missing[part] = access(path, F_OK) != 0;
        if (missing[part])
            continue;
        n = n > part + 1 ? n : part + 1;
        if (check_part(path, &n, &why))
            rfs_findings_add_plain(&verify->findings, kind, NULL, part, why.text);
    }
    for (uint32_t part = 0; missing && part < n; part++)
        if (missing[part]) /* and another part says that there is one */
            rfs_findings_add_plain(&verify->findings, kind, NULL, part, "there is no such part");
    free(missing);
    return verify->findings.list.n > 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

int rfs_verify_begin(struct rfs_verify *verify, struct rfs_error *err)
{
    rfs_progress_init(&verify->progress, false);
    return rfs_findings_init(&verify->findings) ? rfs_fail_memory(err) : 0;
}

void rfs_verify_end(struct rfs_verify *verify)
{
    rfs_progress_destroy(&verify->progress);
    free(verify->items);
    for (uint32_t i = 0; i < verify->n_cuts; i++)
        free(verify->cuts[i].by_name);
    free(verify->cuts);
    free(verify->lost_params);
    rfs_findings_free(&verify->findings);
    rfs_whole_close(&verify->shown);
    rfs_whole_close(&verify->cut);
    rfs_whole_close(&verify->src);
    rfs_whole_close(&verify->tree);
}

int rfs_verify_all(struct rfs_verify *verify, struct rfs_error *err)
{
    const char *parts = rfs_whole_match(&verify->tree, &verify->src);

    if (parts)
        rfs_findings_add_plain(&verify->findings, RFS_FOUND_MODELS, NULL, RFS_NO_RANK, parts);
    const int rc = rfs_verify_tensors(verify, err)
                       ?: check_objects(verify, err)
                       ?: check_frames(verify, err);
    if (rc == 0)
        check_values(verify);
    return rc;
}
