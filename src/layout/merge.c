/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging as MindSpore 2.10 does it (_merge_protobuf_strategy, _merge_json_strategy): the stage of
 * a file is that of its first strategy item, and each parameter goes by "<stage>-<name>". MindSpore
 * takes the first file of a stage that the folder lists, and no other; which one that is has no
 * meaning, so files of one stage that differ are refused here. They need not be the same bytes:
 * every rank of a stage may have saved one, and the compiler writes layouts in hash order.
 */
#include "layout/merge.h"

#include "base/cleanup.h"
#include "base/intern.h"
#include "base/vec.h"
#include "layout/builder.h"
#include "layout/document.h"

#include <xxhash.h>

#define REMEDY_COMPILER "the strategy files as the runs of the stages saved them"

struct stage_file {
    uint32_t stage;
    struct rfs_strategy *strategy; /* owned; its name is the file's */
};

struct rfs_merge {
    char *name;
    struct rfs_intern *seen; /* hashes of the files' bytes */
    RFS_VEC(struct stage_file) stages;
    struct rfs_strategy_doc *doc; /* the caller's; or NULL */
};

RFS_CLEANUP_OF(strategy_cleanup, struct rfs_strategy *, rfs_strategy_free)

int rfs_merge_new(const char *name, struct rfs_strategy_doc *doc, struct rfs_merge **out,
                  struct rfs_error *err)
{
    struct rfs_merge *merge = calloc(1, sizeof *merge);

    *out = merge;
    if (merge == NULL)
        return rfs_fail_memory_of(err, name);
    merge->name = strdup(name);
    merge->seen = rfs_intern_new();
    merge->doc = doc;
    if (merge->name != NULL && merge->seen != NULL &&
        (doc == NULL || rfs_strategy_doc_begin(doc, name)))
        return 0;
    rfs_merge_free(merge);
    *out = NULL;
    return rfs_fail_memory_of(err, name);
}

void rfs_merge_free(struct rfs_merge *merge)
{
    if (merge == NULL)
        return;
    for (size_t i = 0; i < merge->stages.n; i++)
        rfs_strategy_free(merge->stages.data[i].strategy);
    free(merge->stages.data);
    rfs_intern_free(merge->seen);
    free(merge->name);
    free(merge);
}

/* A file that may be one of several: of one stage, which it names, and not merged before. */
static int check_alone(const struct rfs_strategy *strategy, struct rfs_error *err)
{
    const struct rfs_where where = RFS_IN(rfs_strategy_name(strategy));

    if (rfs_strategy_is_merged(strategy))
        return rfs_fail(
            err, -EINVAL, where, "that file by itself, or the files that it was merged from",
            "it is a merge of several stages already, and cannot be merged with others");
    if (!rfs_strategy_has_items(strategy))
        return rfs_fail(err, -EINVAL, where, REMEDY_COMPILER,
                        "it has no strategy items, so its stage is unknown");
    if (rfs_strategy_first_item_stage(strategy) >= RFS_MAX_DEVICES)
        return rfs_fail(err, -EINVAL, where, REMEDY_COMPILER,
                        "the stage of its first strategy item, %u, is too large",
                        rfs_strategy_first_item_stage(strategy));
    return 0;
}

/* The first parameter of A that B does not cut alike, or -1. */
static ptrdiff_t first_difference(const struct rfs_strategy *a, const struct rfs_strategy *b)
{
    for (size_t i = 0; i < rfs_strategy_count(a); i++) {
        const ptrdiff_t at = rfs_strategy_find(b, rfs_strategy_param(a, i));
        if (at < 0 ||
            !rfs_layout_same(rfs_strategy_layout(a, i, 0), rfs_strategy_layout(b, (size_t)at, 0)))
            return (ptrdiff_t)i;
    }
    return -1;
}

static int check_same(const struct rfs_strategy *first, const struct rfs_strategy *again,
                      uint32_t stage, struct rfs_error *err)
{
    const struct rfs_strategy *has = again;
    ptrdiff_t i = first_difference(again, first);

    if (i < 0 && rfs_strategy_count(first) > rfs_strategy_count(again)) {
        has = first;
        i = first_difference(first, again);
    }
    if (i < 0)
        return 0;
    return rfs_fail(err, -EINVAL,
                    RFS_OF(rfs_strategy_name(again), rfs_strategy_param(has, (size_t)i)),
                    "the strategy files of one run only",
                    "stage %u is given twice: %s is of the same stage and cuts it differently",
                    stage, rfs_strategy_name(first));
}

static struct stage_file *find_stage(struct rfs_merge *merge, uint32_t stage)
{
    for (size_t i = 0; i < merge->stages.n; i++)
        if (merge->stages.data[i].stage == stage)
            return &merge->stages.data[i];
    return NULL;
}

/*
 * Whether a file of the same bytes was added; remembers this one. False with *rc < 0 without
 * memory.
 */
static bool seen_before(struct rfs_merge *merge, const void *data, size_t size, int *rc)
{
    const XXH128_hash_t hash = XXH3_128bits(data, size);
    const uint64_t key[] = {hash.low64, hash.high64, size};
    const uint32_t n = rfs_intern_count(merge->seen);
    const uint32_t id = rfs_intern_add(merge->seen, key, sizeof key);

    *rc = id == RFS_NO_ID ? -ENOMEM : 0;
    return *rc == 0 && id < n;
}

/* A file that was read: that of a new stage is kept, and added to the document. */
static int add_strategy(struct rfs_merge *merge, struct rfs_strategy **strategy,
                        const struct rfs_strategy_doc *doc, struct rfs_error *err)
{
    const int rc = check_alone(*strategy, err);

    if (rc != 0)
        return rc;
    const uint32_t stage = rfs_strategy_first_item_stage(*strategy);
    const char *file = rfs_strategy_name(*strategy);
    const struct stage_file *first = find_stage(merge, stage);
    if (first != NULL)
        return check_same(first->strategy, *strategy, stage, err);
    if (doc != NULL && doc->lost.code != 0) {
        if (err != NULL)
            *err = doc->lost;
        return doc->lost.code;
    }
    if (doc != NULL && !rfs_strategy_doc_merge(merge->doc, doc, stage))
        return rfs_fail_memory_of(err, file);
    if (!RFS_PUSH(&merge->stages, (struct stage_file){stage, *strategy}))
        return rfs_fail_memory_of(err, file);
    *strategy = NULL;
    return 0;
}

int rfs_merge_add(struct rfs_merge *merge, const char *file, const void *data, size_t size,
                  struct rfs_error *err)
{
    struct rfs_strategy *strategy RFS_CLEANUP(strategy_cleanup) = NULL;
    struct rfs_strategy_doc doc RFS_CLEANUP(rfs_strategy_doc_free) = {0};
    struct rfs_strategy_doc *kept = merge->doc != NULL ? &doc : NULL;
    int rc;

    if (merge->stages.n > 0) {
        const char *first = rfs_strategy_name(merge->stages.data[0].strategy);
        if (rfs_strategy_is_json(first) != rfs_strategy_is_json(file))
            return rfs_fail(
                err, -EINVAL, RFS_IN(file), "files of one kind",
                "some strategy files of the stages are JSON and some protobuf: this one and %s",
                first);
    }
    if (seen_before(merge, data, size, &rc))
        return 0;
    if (rc != 0 || (kept != NULL && !rfs_strategy_doc_begin(kept, file)))
        return rfs_fail_memory_of(err, file);
    rc = rfs_strategy_doc_read(file, data, size, kept, &strategy, err);
    return rc == 0 ? add_strategy(merge, &strategy, kept, err) : rc;
}

size_t rfs_merge_stages(const struct rfs_merge *merge)
{
    return merge->stages.n;
}

static int add_stage(struct rfs_strategy_builder *builder, const struct stage_file *file,
                     struct rfs_error *err)
{
    const struct rfs_strategy *strategy = file->strategy;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < rfs_strategy_count(strategy); i++) {
        const char *param = rfs_strategy_param(strategy, i);
        struct rfs_layout layout = *rfs_strategy_layout(strategy, i, 0);
        uint32_t id;
        if (!rfs_strategy_builder_layout(builder, &layout, &id))
            return rfs_fail_memory_of(err, rfs_strategy_name(strategy));
        rc = rfs_strategy_builder_place(builder, param, strlen(param), file->stage, id, err);
    }
    return rc;
}

int rfs_merge_finish(struct rfs_merge *merge, struct rfs_strategy **out, struct rfs_error *err)
{
    struct rfs_strategy_builder *builder RFS_CLEANUP(rfs_strategy_builder_cleanup) =
        rfs_strategy_builder_new(merge->name);
    int rc = 0;

    *out = NULL;
    if (builder == NULL)
        return rfs_fail_memory_of(err, merge->name);
    for (size_t i = 0; rc == 0 && i < merge->stages.n; i++)
        rc = add_stage(builder, &merge->stages.data[i], err);
    return rc == 0 ? rfs_strategy_builder_finish(builder, out, err) : rc;
}
