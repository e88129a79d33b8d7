/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that no strategy knows, or only one of the two: they have no whole, and ranks may differ
 * in them. Each rank's is compared with the value that a mount would show in that rank.
 */
#include "tool/verify/verify.h"

#include "base/checked.h"
#include "view/internal.h"

/* A value of one rank, in the tree and as it should be. */
struct value {
    struct rfs_whole_tensor shown;
    struct rfs_slice wanted, got;
    const struct rfs_type *type;
    bool quiet, differs; /* QUIET: sets DIFFERS instead of adding findings */
    bool met;            /* there is such a value on both sides */
};

static const struct rfs_target *find_target(const struct rfs_verify *verify,
                                            const struct rfs_params *params, const char *name)
{
    const uint32_t id =
        rfs_intern_find(rfs_catalog_tables(verify->shown.catalog)->names, name, strlen(name));

    for (size_t i = 0; id != RFS_NO_ID && i < params->n; i++)
        if (params->targets[i].shown_name == id)
            return &params->targets[i];
    return NULL;
}

/* Sets the slice that is all of an entry of a rank. 0 or -ENOMEM. */
static int take_entry(const struct rfs_verify *verify, uint32_t rank, const struct rfs_index *index,
                      const struct rfs_entry *entry, struct value *value)
{
    struct rfs_catalog *catalog = verify->tree.catalog;

    value->type = rfs_catalog_type(catalog, entry->type);
    value->got.n = 0;
    struct rfs_block *block = rfs_slice_add(&value->got);
    if (!block)
        return -ENOMEM;
    *block = (struct rfs_block){.file = rfs_catalog_entry_file(catalog, rank, index, entry)};
    if (rfs_catalog_content(catalog, index, entry, &block->content))
        return -ENOMEM;
    rfs_block_whole(block, value->type, rfs_index_strides(index, entry));
    value->got.bytes = value->type->bytes;
    rfs_slice_name(&value->got);
    return 0;
}

/* Takes the value that a rank of the tree has by that name: 1, 0 when it has none, or -ENOMEM. */
static int take_rank(const struct rfs_verify *verify, uint32_t rank, const char *name,
                     struct value *value)
{
    struct rfs_catalog *catalog = verify->tree.catalog;
    const uint32_t id = rfs_intern_find(rfs_catalog_tables(catalog)->names, name, strlen(name));
    const struct rfs_entry *entry = NULL;
    const struct rfs_index *index;
    struct rfs_use use;
    int rc = 0;

    if (!rfs_verify_has_rank(verify, rank) || id == RFS_NO_ID)
        return 0;
    rfs_catalog_begin(catalog, &use);
    if (rfs_catalog_index(catalog, rank, RFS_NO_RANK, &index, NULL) == 0)
        entry = rfs_index_find(index, id);
    if (entry)
        rc = take_entry(verify, rank, index, entry, value);
    rfs_catalog_end(catalog, &use);
    return rc ? rc : entry != NULL;
}

static int compare(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor,
                   struct value *value, uint64_t begin, size_t n, unsigned char *got,
                   unsigned char *wanted, struct rfs_error *err)
{
    int rc =
        rfs_whole_read(&verify->tree, tensor, &value->got, begin, n, got, err)
            ?: rfs_whole_read(&verify->shown, &value->shown, &value->wanted, begin, n, wanted, err);

    if (rc == 0 && value->quiet)
        value->differs |= memcmp(got, wanted, n) != 0;
    else if (rc == 0)
        rfs_verify_compare(verify, tensor, &value->got, RFS_FOUND_BYTES, begin, got, wanted, n);
    return rc;
}

/*
 * One rank's part of the work: where its value is longer than the first rank's, all of it at once.
 */
static int check_rank(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor,
                      uint32_t rank, const struct rfs_target *target, struct value *value,
                      uint64_t begin, size_t n, unsigned char *got, unsigned char *wanted,
                      struct rfs_error *err)
{
    const struct rfs_type *shown = rfs_catalog_type(verify->shown.catalog, target->shown_type);
    int rc = take_rank(verify, rank, tensor->name, value);

    if (rc < 0)
        return rfs_fail_memory(err);
    if (rc == 0 || memcmp(shown, value->type, sizeof *shown) != 0)
        return 0; /* that is among the findings already */
    value->met = true;
    value->shown = (struct rfs_whole_tensor){.name = tensor->name, .type = shown, .target = target};
    rc = rfs_planner_slice(verify->shown.planner, rank, target, &value->wanted);
    if (rc)
        return rfs_fail(err, rc, RFS_OF(verify->shown.path, tensor->name), NULL,
                        "cannot be read: %s", strerror(-rc));
    if (!value->quiet && shown->bytes == tensor->type->bytes)
        return compare(verify, tensor, value, begin, n, got, wanted, err);
    for (uint64_t at = 0; begin == 0 && rc == 0 && n > 0 && at < shown->bytes; at += n)
        rc = compare(verify, tensor, value, at, (size_t)rfs_min_u64(n, shown->bytes - at), got,
                     wanted, err);
    return rc;
}

int rfs_verify_own(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor, uint64_t begin,
                   size_t n, unsigned char *got, unsigned char *wanted, struct rfs_error *err)
{
    const struct rfs_params *params = NULL;
    const struct rfs_target *target = NULL;
    struct value value = {0};
    int rc = 0;

    for (uint32_t rank = 0; rc == 0 && rank < verify->shown.view->n_ranks; rank++) {
        const struct rfs_rank_plan *plan = rfs_planner_ready(verify->shown.planner, rank);
        if (plan && plan->params != params) {
            params = plan->params;
            target = find_target(verify, params, tensor->name);
        }
        if (plan && target)
            rc = check_rank(verify, tensor, rank, target, &value, begin, n, got, wanted, err);
    }
    rfs_slice_free(&value.wanted);
    rfs_slice_free(&value.got);
    return rc;
}

int rfs_verify_is_shown(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor,
                        uint32_t rank, size_t n, unsigned char *got, unsigned char *wanted,
                        struct rfs_error *err)
{
    struct value value = {.quiet = true};
    const struct rfs_rank_plan *plan =
        rank < verify->shown.view->n_ranks ? rfs_planner_ready(verify->shown.planner, rank) : NULL;
    const struct rfs_target *target = plan ? find_target(verify, plan->params, tensor->name) : NULL;
    const int rc =
        target ? check_rank(verify, tensor, rank, target, &value, 0, n, got, wanted, err) : 0;

    rfs_slice_free(&value.wanted);
    rfs_slice_free(&value.got);
    return rc ? rc : value.met && !value.differs;
}
