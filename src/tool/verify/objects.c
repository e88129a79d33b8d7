/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a torch.distributed.checkpoint that are not tensors. Each item of the tree is
 * proved to be a file of torch.save. Where the source has such values, or the view of it would have
 * them, the bytes of each are compared with those that a mount passes on.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/order.h"
#include "base/pool.h"
#include "base/text.h"
#include "formats/chunks/dcp.h"
#include "tool/common/tool.h"
#include "tool/verify/verify.h"
#include "view/internal.h"

#define STEP ((size_t)1 << 20) /* bytes that are compared at once */

/* A value of one side, or of both; a side that lacks it has NULL. */
struct pair {
    const char *name; /* as shown; the view's */
    const struct rfs_chunked_object *tree, *src;
};

struct comparing {
    struct rfs_verify *verify;
    bool against; /* the source is compared, too */
    RFS_VEC(struct pair) pairs;
    struct rfs_first_error first;
};

static void find(const struct comparing *comparing, const struct pair *pair, const char *detail)
{
    rfs_verify_find(comparing->verify, RFS_FOUND_VALUE, pair->name, RFS_NO_RANK, detail);
}

/* ---- which there are ------------------------------------------------------------------------- */

/* The boxes of a torch.distributed.checkpoint, or NULL. */
static struct rfs_chunks *boxes_of(const struct rfs_whole *whole)
{
    struct rfs_chunks *boxes = whole->view ? rfs_catalog_chunks(whole->view->catalog) : NULL;

    return boxes && rfs_chunks_are_dcp(boxes) ? boxes : NULL;
}

/* Adds the objects of a side by the names that it shows them by. */
static int add(struct comparing *comparing, const struct rfs_whole *whole, bool of_tree,
               struct rfs_error *err)
{
    const struct rfs_chunks *boxes = boxes_of(whole);
    const int rc = boxes ? rfs_dcp_objects_apart(boxes, err) : 0;

    for (size_t i = 0; rc == 0 && boxes && i < boxes->objects.n; i++) {
        const struct rfs_chunked_object *object = &boxes->objects.data[i];
        const struct pair pair = {
            .name = rfs_output_map_name(whole->view->output_map,
                                        rfs_catalog_name(whole->view->catalog, object->name)),
            .tree = of_tree ? object : NULL,
            .src = of_tree ? NULL : object};
        if (pair.name && !RFS_PUSH(&comparing->pairs, pair))
            return rfs_fail_memory(err);
    }
    return rc;
}

RFS_COMPARE(by_name, struct pair, x, y, strcmp(x->name, y->name))

/* Joins what both sides have. A side has each name once: names= is checked for that. */
static void join(struct comparing *comparing)
{
    struct pair *pairs = comparing->pairs.data;
    size_t n = 0;

    RFS_SORT_ALL(&comparing->pairs, by_name);
    for (size_t i = 0; i < comparing->pairs.n; i++) {
        if (n > 0 && strcmp(pairs[n - 1].name, pairs[i].name) == 0) {
            pairs[n - 1].tree = pairs[n - 1].tree ? pairs[n - 1].tree : pairs[i].tree;
            pairs[n - 1].src = pairs[n - 1].src ? pairs[n - 1].src : pairs[i].src;
        } else {
            pairs[n++] = pairs[i];
        }
    }
    comparing->pairs.n = n;
}

/* ---- what they are --------------------------------------------------------------------------- */

/*
 * Gives 1 for a sound item, 0 for one that is among the findings now, or -errno with *err filled.
 */
static int prove(const struct comparing *comparing, const struct rfs_whole *whole,
                 const struct pair *pair, const struct rfs_chunked_object *object, const char *what,
                 struct rfs_error *err)
{
    struct rfs_error why = {0};
    char detail[sizeof why.text + 32];
    const int rc = rfs_dcp_prove_object(boxes_of(whole), object, true, &why);

    if (rc == -ENOMEM || rc == -EINTR) {
        *err = why;
        return rc;
    }
    if (rc == 0)
        return 1;
    snprintf(detail, sizeof detail, "%s: %s", what, why.text);
    find(comparing, pair, detail);
    return 0;
}

static int read_item(const struct rfs_whole *whole, const struct rfs_chunked_object *object,
                     uint64_t at, void *buf, size_t n, struct rfs_error *err)
{
    struct rfs_files *files = boxes_of(whole)->files;
    struct rfs_reading reading;
    int rc = rfs_reading_begin(files, object->file, &reading);

    if (rc == 0) {
        rc = rfs_reading_pread(&reading, buf, n, object->item + at);
        const int ended = rfs_reading_end(&reading);
        rc = ended ? ended : rc;
    }
    return rc ? rfs_files_fail(err, rfs_files_path(files, object->file), rc) : 0;
}

/* The two items are of the same size. */
static int compare(const struct comparing *comparing, const struct pair *pair, unsigned char *have,
                   unsigned char *want, struct rfs_error *err)
{
    struct rfs_verify *verify = comparing->verify;
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < pair->tree->item_bytes; at += STEP) {
        const size_t n = (size_t)rfs_min_u64(STEP, pair->tree->item_bytes - at);
        rc = read_item(&verify->tree, pair->tree, at, have, n, err)
                 ?: read_item(&verify->src, pair->src, at, want, n, err);
        if (rc || memcmp(have, want, n) == 0)
            continue;
        size_t first = 0;
        while (have[first] == want[first])
            first++;
        rfs_findings_add(
            &verify->findings,
            &(struct rfs_finding){
                .kind = RFS_FOUND_VALUE,
                .name = pair->name,
                .rank = RFS_NO_RANK,
                .detail = "has other bytes than the source",
                .file = rfs_files_path(boxes_of(&verify->tree)->files, pair->tree->file),
                .offset = pair->tree->item + at + first,
                .at = RFS_NOWHERE_AT});
        break;
    }
    return rc;
}

static int compare_pair(const struct comparing *comparing, const struct pair *pair,
                        struct rfs_error *err)
{
    const struct rfs_whole *tree = &comparing->verify->tree;
    const struct rfs_whole *src = &comparing->verify->src;
    int sound = 1;

    if (pair->tree)
        sound = prove(comparing, tree, pair, pair->tree, "cannot be read", err);
    if (sound > 0 && pair->src)
        sound = prove(comparing, src, pair, pair->src, "cannot be compared", err);
    if (sound <= 0 || !comparing->against)
        return sound < 0 ? sound : 0;
    if (!pair->tree || !pair->src) {
        find(comparing, pair, pair->src ? "is missing" : "should not be there");
        return 0;
    }
    if (pair->tree->item_bytes != pair->src->item_bytes) {
        find(comparing, pair, "is of another size than in the source");
        return 0;
    }
    const size_t n = (size_t)rfs_min_u64(STEP, pair->tree->item_bytes);
    unsigned char *have = rfs_whole_memory(tree, n);
    unsigned char *want = rfs_whole_memory(src, n);
    const int rc = have && want ? compare(comparing, pair, have, want, err) : rfs_fail_memory(err);
    if (have)
        rfs_whole_memory_free(tree, have, n);
    if (want)
        rfs_whole_memory_free(src, want, n);
    return rc;
}

static int compare_one(void *ctx, size_t i)
{
    struct comparing *comparing = ctx;
    struct rfs_error err = {0};

    return rfs_first_error_note(&comparing->first,
                                compare_pair(comparing, &comparing->pairs.data[i], &err), &err);
}

static void comparing_end(struct comparing *comparing)
{
    free(comparing->pairs.data);
}

/* Warns of values of the source, where the tree is of a format without such values. */
static void tell(const struct rfs_chunks *src)
{
    char line[96];

    if (!src || src->objects.n == 0)
        return;
    snprintf(line, sizeof line, "values of the source that are not tensors are not compared: %zu",
             src->objects.n);
    rfs_tool_warn(line, NULL);
}

int rfs_verify_objects(struct rfs_verify *verify, struct rfs_error *err)
{
    const struct rfs_chunks *src = boxes_of(&verify->src);
    const bool shown = verify->src.view && verify->src.view->dcp;
    RFS_CLEANUP(comparing_end)
    struct comparing comparing = {.verify = verify,
                                  .against = shown || (src && boxes_of(&verify->tree)),
                                  .first = RFS_FIRST_ERROR};

    if (verify->options->globs.n > 0)
        return 0;
    int rc = add(&comparing, &verify->tree, true, err);
    if (rc == 0 && comparing.against)
        rc = add(&comparing, &verify->src, false, err);
    else if (rc == 0)
        tell(src);
    if (rc)
        return rc;
    join(&comparing);
    verify->values = comparing.pairs.n;
    return rfs_first_error_take(
        &comparing.first,
        rfs_pool_for(verify->tree.view->set->pool, comparing.pairs.n, compare_one, &comparing),
        err);
}
