/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of the tree's ranks: every header is read, none of a tensor's bytes. */
#include "tool/verify/verify.h"

#include "base/pool.h"
#include "view/internal.h"

/* ---- indexes --------------------------------------------------------------------------------- */

static void index_rank(struct rfs_verify *verify, uint32_t rank, uint32_t like)
{
    struct rfs_catalog *catalog = verify->tree.catalog;
    const struct rfs_index *index;
    struct rfs_error err = {0};
    struct rfs_use use;

    rfs_catalog_begin(catalog, &use);
    if (rank >= rfs_catalog_ranks(catalog) || !rfs_catalog_has(catalog, rank))
        rfs_verify_find(verify, RFS_FOUND_RANK, NULL, rank, "there is no checkpoint of it");
    else if (rfs_catalog_index(catalog, rank, like, &index, &err) &&
             !rfs_catalog_is_empty(catalog, rank))
        rfs_verify_find(verify, RFS_FOUND_RANK, NULL, rank, err.text);
    rfs_catalog_end(catalog, &use);
}

/* The first rank of each stage, from whose headers those of the others are predicted. */
static int index_stage(void *ctx, size_t stage)
{
    struct rfs_verify *verify = ctx;
    const uint32_t devices = verify->tree.ranks / verify->tree.stages;

    index_rank(verify, verify->tree.first + (uint32_t)stage * devices, RFS_NO_RANK);
    return 0;
}

static int index_other(void *ctx, size_t i)
{
    struct rfs_verify *verify = ctx;
    struct rfs_catalog *catalog = verify->tree.catalog;
    const uint32_t devices = verify->tree.ranks / verify->tree.stages;
    const uint32_t rank = verify->tree.first + (uint32_t)i;
    const uint32_t lead = rank - (uint32_t)i % devices;
    const bool ready = lead < rfs_catalog_ranks(catalog) && rfs_catalog_ready(catalog, lead);

    if (rank != lead)
        index_rank(verify, rank, ready ? lead : RFS_NO_RANK);
    return 0;
}

/* ---- against the view ------------------------------------------------------------------------ */

/* A destination rank: the parameters that it should list, and those that it does. */
struct listing {
    struct rfs_verify *verify;
    uint32_t rank;
    const struct rfs_params *params;
    const struct rfs_index *index;
    bool *met; /* [index->n] */
    size_t found;
    const struct rfs_params *last_params; /* of the rank before, and */
    uint64_t last_serial;                 /* of its index */
};

static void find(struct listing *listing, enum rfs_finding_kind kind, const char *name,
                 const char *detail)
{
    listing->found++;
    rfs_verify_find(listing->verify, kind, name, listing->rank, detail);
}

static void check_target(struct listing *listing, const struct rfs_target *target)
{
    struct rfs_verify *verify = listing->verify;
    struct rfs_catalog *tree = verify->tree.catalog;
    const char *name = rfs_catalog_name(verify->shown.catalog, target->shown_name);
    const struct rfs_type *want = rfs_catalog_type(verify->shown.catalog, target->shown_type);
    const uint32_t id = rfs_intern_find(rfs_catalog_tables(tree)->names, name, strlen(name));
    const struct rfs_entry *entry = id == RFS_NO_ID ? NULL : rfs_index_find(listing->index, id);

    if (entry)
        listing->met[entry - listing->index->entries] = true;
    if (!rfs_globs_match(&verify->options->globs, name))
        return;
    /*
     * MindSpore saves no tensor without bytes, and parameters that other ranks keep may have been
     * left out.
     */
    if (!entry && want->bytes > 0 && !listing->index->redundancy_removed)
        find(listing, RFS_FOUND_MISSING, name, NULL);
    const struct rfs_type *have = entry ? rfs_catalog_type(tree, entry->type) : want;
    if (memcmp(have, want, sizeof *have) != 0) {
        char detail[2 * RFS_SHAPE_TEXT + 64];
        char shape[2][RFS_SHAPE_TEXT];
        snprintf(detail, sizeof detail, "%s %s, not %s %s", rfs_whole_dtype(have),
                 rfs_whole_shape(have, shape[0]), rfs_whole_dtype(want),
                 rfs_whole_shape(want, shape[1]));
        find(listing, RFS_FOUND_TYPE, name, detail);
    }
}

static int check_listing(struct listing *listing, struct rfs_error *err)
{
    struct rfs_verify *verify = listing->verify;

    listing->met = calloc(listing->index->n + 1, sizeof *listing->met);
    if (!listing->met)
        return rfs_fail_memory(err);
    listing->found = 0;
    for (size_t i = 0; i < listing->params->n; i++)
        check_target(listing, &listing->params->targets[i]);
    for (size_t i = 0; i < listing->index->n; i++) {
        const char *name = rfs_catalog_name(verify->tree.catalog, listing->index->entries[i].name);
        if (!listing->met[i] && !rfs_whole_lacks(&verify->shown, name) &&
            rfs_globs_match(&verify->options->globs, name))
            find(listing, RFS_FOUND_EXTRA, name, NULL);
    }
    free(listing->met);
    return 0;
}

/*
 * Ranks of a stage share the expected list, and mostly the actual one: then one comparison is
 * enough.
 */
static int check_rank(struct listing *listing, struct rfs_error *err)
{
    if (listing->last_serial == listing->index->serial && listing->last_params == listing->params &&
        listing->found == 0)
        return 0;
    listing->last_serial = listing->index->serial;
    listing->last_params = listing->params;
    return check_listing(listing, err);
}

static int check_listings(struct rfs_verify *verify, struct rfs_error *err)
{
    struct rfs_catalog *tree = verify->tree.catalog;
    struct listing listing = {.verify = verify};
    const uint32_t ranks = verify->shown.view->n_ranks;
    int rc = 0;

    for (uint32_t rank = 0; rc == 0 && rank < ranks; rank++) {
        const struct rfs_rank_plan *plan;
        struct rfs_use use;
        rc = rfs_planner_rank(verify->shown.planner, rank, &plan, err);
        if (rc || !rfs_verify_has_rank(verify, rank))
            continue;
        listing.rank = rank;
        listing.params = plan->params;
        rfs_catalog_begin(tree, &use);
        if (rfs_catalog_index(tree, rank, RFS_NO_RANK, &listing.index, NULL) == 0)
            rc = check_rank(&listing, err);
        rfs_catalog_end(tree, &use);
    }
    return rc;
}

bool rfs_verify_has_rank(const struct rfs_verify *verify, uint32_t rank)
{
    struct rfs_catalog *tree = verify->tree.catalog;

    return rank < rfs_catalog_ranks(tree) && rfs_catalog_has(tree, rank) &&
           !rfs_lacking_file(&verify->tree.lacking, rank);
}

/* Each of those that failed once is left alone from now on. */
static int pass_over(struct rfs_verify *verify, struct rfs_error *err)
{
    struct rfs_lacking *lacking = &verify->tree.lacking;

    for (size_t i = 0; i < verify->findings.list.n; i++) {
        const uint32_t rank = verify->findings.list.data[i].rank;
        verify->damaged = true;
        if (!rfs_lacking_file(lacking, rank) && !RFS_PUSH(&lacking->damaged, rank))
            return rfs_fail_memory(err);
    }
    return 0;
}

int rfs_verify_ranks(struct rfs_verify *verify, struct rfs_error *err)
{
    struct rfs_pool *pool = verify->tree.view->set->pool;

    if (verify->tree.parts) /* all of their headers are read when they are opened */
        return 0;
    rfs_pool_for(pool, verify->tree.stages, index_stage, verify);
    rfs_pool_for(pool, verify->tree.ranks, index_other, verify);
    const int rc = pass_over(verify, err);
    return rc == 0 && verify->shown.view ? check_listings(verify, err) : rc;
}
