/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules are those of the readers of such checkpoints.
 *
 * load_segmented_checkpoints of MindSpore updates one dict by file after file: a name has the last
 * file's value and the first one's place. Names with a prefix of filter_prefix are left out of
 * each. unified_safetensors' output is read by its map (_load_parallel_checkpoint): a tensor that
 * the map does not list is not read, but those of hyper_param.safetensors, which the map does not
 * name, all are. Readers of HuggingFace's files read all that is in them.
 */
#include "catalog/merge.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"

#define REMEDY_SAVE "copy the folder again, or save the checkpoint again"

/* A value that may get into the index. */
struct candidate {
    uint64_t order; /* ascending in the result */
    const struct rfs_entry *entry;
    uint32_t part;
};

struct work {
    const struct rfs_merge *merge;
    struct rfs_error *err;
    struct candidate *list; /* owned */
    size_t n;
    bool *named; /* [merge->n] whether the map names the file; owned */
    size_t unlisted;
};

static int fail_memory(const struct work *work)
{
    return rfs_fail_memory_of(work->err, work->merge->files[0]);
}

static const char *name_text(const struct work *work, uint32_t name)
{
    return rfs_intern_text(work->merge->tables->names, name);
}

static bool is_skipped(const char *skip, const char *name)
{
    while (skip && *skip) {
        const size_t n = strcspn(skip, ":");
        if (n > 0 && strncmp(name, skip, n) == 0)
            return true;
        skip += n + (skip[n] == ':');
    }
    return false;
}

/* Every entry of the map must be in its file. */
static int check_map(const struct work *work)
{
    const struct rfs_merge *merge = work->merge;
    for (size_t i = 0; merge->map && i < merge->map->n; i++) {
        const struct rfs_mapped *mapped = &merge->map->data[i];
        work->named[mapped->part] = true;
        if (!rfs_index_find(merge->indexes[mapped->part], mapped->name))
            return rfs_fail(work->err, -EINVAL,
                            RFS_OF(merge->map->path, name_text(work, mapped->name)), REMEDY_SAVE,
                            "should be in %s, but is not", merge->files[mapped->part]);
    }
    return 0;
}

static void add(struct work *work, uint32_t part, const struct rfs_entry *entry)
{
    const struct rfs_merge *merge = work->merge;
    const struct rfs_mapped *mapped =
        merge->map ? rfs_part_map_find(merge->map, entry->name) : NULL;
    uint64_t order = (merge->map ? merge->map->n : 0) + work->n;
    if (is_skipped(merge->skip, name_text(work, entry->name)))
        return;
    if (mapped && mapped->part == part)
        order = (uint64_t)(mapped - merge->map->data);
    else if (merge->map && merge->map->closed && work->named[part]) {
        work->unlisted++;
        return;
    }
    work->list[work->n++] = (struct candidate){order, entry, part};
}

RFS_COMPARE(compare_names, struct candidate, x, y,
            RFS_ORDER(x->entry->name, y->entry->name) ?: RFS_ORDER(x->part, y->part))

RFS_COMPARE(compare_orders, struct candidate, x, y, RFS_ORDER(x->order, y->order))

/* Leaves each name once. */
static int settle_names(struct work *work)
{
    const struct rfs_merge *merge = work->merge;
    size_t n = 0;
    RFS_SORT(work->list, work->n, compare_names);
    for (size_t i = 0; i < work->n; i++) {
        const struct candidate *one = &work->list[i];
        struct candidate *last = n > 0 ? &work->list[n - 1] : NULL;
        if (!last || last->entry->name != one->entry->name) {
            work->list[n++] = *one;
            continue;
        }
        if (!merge->last_counts)
            return rfs_fail(work->err, -EINVAL,
                            RFS_OF(merge->files[one->part], name_text(work, one->entry->name)),
                            "remove the file that does not belong there",
                            "is in %s, too, and only one of the two can count",
                            merge->files[last->part]);
        last->order = rfs_min_u64(last->order, one->order);
        last->entry = one->entry;
        last->part = one->part;
    }
    work->n = n;
    RFS_SORT(work->list, work->n, compare_orders);
    return 0;
}

static struct rfs_index *allocate(const struct work *work)
{
    struct rfs_index *index = calloc(1, sizeof *index);
    size_t extents = 0;
    size_t strided = 0;
    if (!index)
        return NULL;
    for (size_t i = 0; i < work->merge->n; i++) {
        extents += work->merge->indexes[i]->n_extents;
        strided += work->merge->indexes[i]->n_strided;
    }
    index->entries = malloc(work->n * sizeof *index->entries);
    index->extents = extents > 0 ? malloc(extents * sizeof *index->extents) : NULL;
    index->strided = strided > 0 ? malloc(strided * sizeof *index->strided) : NULL;
    index->part_of = work->merge->n > 1 ? malloc(work->n * sizeof *index->part_of) : NULL;
    if (index->entries && (index->extents || extents == 0) && (index->strided || strided == 0) &&
        (index->part_of || work->merge->n == 1))
        return index;
    rfs_index_free(index);
    return NULL;
}

/* Appends an entry with all that belongs to it; there is room. False for too many extents. */
static bool take(struct rfs_index *index, const struct candidate *one, const struct rfs_index *from)
{
    const uint64_t *strides = rfs_index_strides(from, one->entry);
    struct rfs_entry *to = &index->entries[index->n];

    *to = *one->entry;
    if (to->extent_count > 0) {
        if (index->n_extents > UINT32_MAX - to->extent_count)
            return false;
        memcpy(index->extents + index->n_extents, from->extents + to->extent,
               to->extent_count * sizeof *index->extents);
        to->extent = (uint32_t)index->n_extents;
        index->n_extents += to->extent_count;
    }
    if (strides) {
        struct rfs_strided *strided = &index->strided[index->n_strided++];
        strided->entry = (uint32_t)index->n;
        memcpy(strided->stride, strides, sizeof strided->stride);
    }
    if (index->part_of)
        index->part_of[index->n] = one->part;
    index->n++;
    return true;
}

static int fill(const struct work *work, struct rfs_index *index)
{
    const struct rfs_merge *merge = work->merge;
    for (size_t i = 0; i < work->n; i++)
        if (!take(index, &work->list[i], merge->indexes[work->list[i].part]))
            return -ENOMEM;
    for (size_t i = 0; i < merge->n; i++) {
        if (!rfs_add_u64(index->file_bytes, merge->indexes[i]->file_bytes, &index->file_bytes))
            index->file_bytes = UINT64_MAX;
        index->has_crc |= merge->indexes[i]->has_crc;
        index->redundancy_removed |= merge->indexes[i]->redundancy_removed;
    }
    size_t a;
    size_t b;
    return rfs_index_order_names(index, &a, &b);
}

static int collect(struct work *work)
{
    const struct rfs_merge *merge = work->merge;
    size_t most = 0;
    for (size_t i = 0; i < merge->n; i++)
        most += merge->indexes[i]->n;
    work->list = malloc(most * sizeof *work->list + 1);
    work->named = calloc(merge->n, sizeof *work->named);
    if (!work->list || !work->named)
        return fail_memory(work);
    const int rc = check_map(work);
    for (size_t i = 0; rc == 0 && i < merge->n; i++)
        for (size_t k = 0; k < merge->indexes[i]->n; k++)
            add(work, (uint32_t)i, &merge->indexes[i]->entries[k]);
    return rc;
}

int rfs_merge(const struct rfs_merge *merge, struct rfs_index **out, struct rfs_error *err)
{
    struct work work = {.merge = merge, .err = err};
    struct rfs_index *index = NULL;
    *out = NULL;
    int rc = collect(&work) ?: settle_names(&work);
    if (rc == 0 && (work.n == 0 || work.n > UINT32_MAX))
        rc = rfs_fail(err, -EINVAL, RFS_IN(merge->files[0]),
                      merge->skip ? "fewer prefixes in segmented_skip" : REMEDY_SAVE,
                      work.n == 0 ? "no parameter is left" : "too many parameters");
    if (rc == 0) {
        index = allocate(&work);
        if (!index || fill(&work, index) != 0)
            rc = fail_memory(&work);
    }
    if (rc == 0 && work.unlisted > 0)
        rfs_log(merge->log, RFS_WARNING,
                "%s: lists %zu of the parameters fewer than the files have; "
                "they are left out, as MindSpore leaves them",
                merge->map->path, work.unlisted);
    if (rc < 0)
        rfs_index_free(index);
    else
        *out = index;
    free(work.list);
    free(work.named);
    return rc;
}
