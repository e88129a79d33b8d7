/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging as MindSpore 2.10 does it (_merge_protobuf_strategy, _merge_json_strategy): the stage of
 * a file is that of its first strategy item, and each parameter goes by "<stage>-<name>". MindSpore
 * takes the first file of a stage that the folder lists, and no other; which one that is has no
 * meaning, so files of one stage that differ are refused here. They need not be the same bytes:
 * every rank of a stage may have saved one, and the compiler writes layouts in hash order.
 */
#include "layout/stages.h"

#include "base/cleanup.h"
#include "base/intern.h"
#include "base/vec.h"
#include "layout/strategy.h"
#include "layout/strategy_doc.h"

#include <xxhash.h>

#define REMEDY_COMPILER "the strategy files as the runs of the stages saved them"

/* A file of a stage; both are owned, and have the file's name. */
struct stage_file {
    uint32_t stage;
    struct rfs_strategy *strategy;
    struct rfs_strategy_doc doc;
};

struct rfs_stages {
    char *name;
    struct rfs_intern *seen; /* hashes of the files' bytes */
    RFS_VEC(struct stage_file) stages;
    struct rfs_strategy_doc doc; /* of all stages; borrows from theirs */
};

int rfs_stages_new(const char *name, struct rfs_stages **out, struct rfs_error *err)
{
    struct rfs_stages *merge = calloc(1, sizeof *merge);

    *out = merge;
    if (merge == NULL)
        return rfs_fail_memory_of(err, name);
    merge->name = strdup(name);
    merge->seen = rfs_intern_new();
    rfs_strategy_doc_begin(&merge->doc, merge->name);
    if (merge->name != NULL && merge->seen != NULL)
        return 0;
    rfs_stages_free(merge);
    *out = NULL;
    return rfs_fail_memory_of(err, name);
}

static void stage_file_free(struct stage_file *file)
{
    rfs_strategy_free(file->strategy);
    rfs_strategy_doc_free(&file->doc);
}

void rfs_stages_free(struct rfs_stages *merge)
{
    if (merge == NULL)
        return;
    for (size_t i = 0; i < merge->stages.n; i++)
        stage_file_free(&merge->stages.data[i]);
    free(merge->stages.data);
    rfs_strategy_doc_free(&merge->doc);
    rfs_intern_free(merge->seen);
    free(merge->name);
    free(merge);
}

/* Checks that a file may be one of several: of one stage, which it names, and not merged before. */
static int check_alone(const struct rfs_strategy *strategy, struct rfs_error *err)
{
    const struct rfs_where where = RFS_IN(rfs_strategy_name(strategy));

    if (rfs_strategy_facts(strategy)->merged)
        return rfs_fail(
            err, -EINVAL, where, "that file by itself, or the files that it was merged from",
            "it is a merge of several stages already, and cannot be merged with others");
    if (!rfs_strategy_facts(strategy)->has_items)
        return rfs_fail(err, -EINVAL, where, REMEDY_COMPILER,
                        "it has no strategy items, so its stage is unknown");
    if (rfs_strategy_facts(strategy)->first_item_stage >= RFS_MAX_DEVICES)
        return rfs_fail(err, -EINVAL, where, REMEDY_COMPILER,
                        "the stage of its first strategy item, %u, is too large",
                        rfs_strategy_facts(strategy)->first_item_stage);
    return 0;
}

/* Returns the first parameter of A that B does not cut alike, or -1. */
static ptrdiff_t first_difference(const struct rfs_strategy *a, const struct rfs_strategy *b)
{
    for (size_t i = 0; i < rfs_strategy_count(a); i++) {
        const ptrdiff_t at = rfs_strategy_find(b, rfs_strategy_param(a, i));
        if (at < 0 || !rfs_strategy_same_layout(rfs_strategy_layout(a, i, 0),
                                                rfs_strategy_layout(b, (size_t)at, 0)))
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

static struct stage_file *find_stage(struct rfs_stages *merge, uint32_t stage)
{
    for (size_t i = 0; i < merge->stages.n; i++)
        if (merge->stages.data[i].stage == stage)
            return &merge->stages.data[i];
    return NULL;
}

/*
 * Says whether a file of equal bytes was added; remembers this one. False with *rc < 0 without
 * memory.
 */
static bool seen_before(struct rfs_stages *merge, const void *data, size_t size, int *rc)
{
    const XXH128_hash_t hash = XXH3_128bits(data, size);
    const uint64_t key[] = {hash.low64, hash.high64, size};
    const uint32_t n = rfs_intern_count(merge->seen);
    const uint32_t id = rfs_intern_add(merge->seen, key, sizeof key);

    *rc = id == RFS_NO_ID ? -ENOMEM : 0;
    return *rc == 0 && id < n;
}

/* Adds a file that was read: a new stage takes it over, and leaves *FILE empty. */
static int add_file(struct rfs_stages *merge, struct stage_file *file, struct rfs_error *err)
{
    const int rc = check_alone(file->strategy, err);

    if (rc != 0)
        return rc;
    file->stage = rfs_strategy_facts(file->strategy)->first_item_stage;
    const struct stage_file *first = find_stage(merge, file->stage);
    if (first != NULL)
        return check_same(first->strategy, file->strategy, file->stage, err);
    if (merge->doc.lost.code == 0)
        merge->doc.lost = file->doc.lost;
    if (!rfs_strategy_doc_append(&merge->doc, &file->doc, file->stage) ||
        !RFS_PUSH(&merge->stages, *file))
        return rfs_fail_memory_of(err, file->doc.name);
    *file = (struct stage_file){0};
    return 0;
}

int rfs_stages_add(struct rfs_stages *merge, const char *file, const void *data, size_t size,
                   struct rfs_error *err)
{
    RFS_CLEANUP(stage_file_free) struct stage_file added = {0};
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
    if (rc != 0)
        return rfs_fail_memory_of(err, file);
    rfs_strategy_doc_begin(&added.doc, file);
    return rfs_strategy_doc_parse(&added.doc, data, size, err)
               ?: rfs_strategy_doc_build(&added.doc, &added.strategy, err)
               ?: add_file(merge, &added, err);
}

const struct rfs_strategy_doc *rfs_stages_document(const struct rfs_stages *merge)
{
    return &merge->doc;
}

int rfs_stages_finish(struct rfs_stages *merge, struct rfs_strategy **out, struct rfs_error *err)
{
    return rfs_strategy_doc_build(&merge->doc, out, err);
}
