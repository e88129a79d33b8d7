/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of the tree: which each rank lists, which are incomplete for want of a rank, and
 * their bytes, against those of the source, and those of the other ranks that hold copies.
 */
#include "survey/verify/verify.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/differ.h"
#include "base/pages.h"
#include "base/pool.h"
#include "survey/sweep.h"

/* Writes "[768, 24]" and the like; returns OUT. */
static const char *shape_text(const struct rfs_type *type, char out[RFS_SHAPE_TEXT])
{
    return rfs_text_dims(out, RFS_SHAPE_TEXT, type->ndim, type->dims);
}

#define MOST_RUNS 4096 /* differing runs of a piece that are looked up */

static int cannot_read(const struct rfs_whole *whole, const char *name, int rc,
                       struct rfs_error *err)
{
    return rfs_fail(err, rc, RFS_OF(whole->list.path, name), NULL, "cannot be read: %s",
                    strerror(-rc));
}

static bool takes(const struct rfs_verify *verify, const char *name)
{
    return verify->wishes.match(verify->wishes.match_ctx, name);
}

static bool has_source(const struct rfs_verify *verify)
{
    return verify->src.list.view != NULL;
}

/* Returns whether there is a destination, and the source as it should be there. */
static bool has_shown(const struct rfs_verify *verify)
{
    return verify->shown.list.view != NULL;
}

static bool is_lost(const struct rfs_verify *verify, struct rfs_tensor tensor)
{
    return tensor.list == &verify->lost;
}

static bool is_own(const struct rfs_verify *verify, struct rfs_tensor tensor)
{
    return !is_lost(verify, tensor) && rfs_whole_is_own(&verify->tree, tensor.i);
}

/* ---- differences ----------------------------------------------------------------------------- */

/* The source of a byte of a tensor as shown. */
struct place {
    const char *file; /* NULL: nowhere; the catalogue's */
    uint32_t rank;
    uint64_t offset; /* offset of the byte's element in the file */
    /* bytes of the tensor, as shown, that go on from there in this file; at least 1 */
    uint64_t left;
};

/* Finds where the tree has byte AT of a tensor; SLICE is a copy of the tensor. */
static struct place locate(const struct rfs_verify *verify, struct rfs_tensor tensor,
                           const struct rfs_slice *slice, uint64_t at)
{
    struct rfs_catalog *catalog = verify->tree.of.catalog;
    const struct rfs_files *files = rfs_catalog_files(catalog);
    struct place place = {.rank = RFS_NO_RANK, .left = 1};
    struct rfs_casting cast;
    uint64_t end = at + 1;
    uint64_t from = 0;
    uint64_t left = 1;
    const bool converted = rfs_tensors_is_cast(tensor.list, tensor.i, &cast);

    if (converted)
        rfs_assemble_uncast(&cast, &at, &end);
    const struct rfs_block *block = rfs_slice_find(slice, at, &from, &left);
    if (!block)
        return place;
    place.left = left;
    if (converted)
        place.left = left / rfs_dtype_bytes(cast.from) * rfs_dtype_bytes(cast.to);
    if (block->content.zeros)
        return place;
    place.file = rfs_files_path(files, block->file);
    place.offset =
        rfs_files_offset(files, block->file, rfs_catalog_content_offset(&block->content, from));
    /* Files of a checkpoint that describes itself are those of ranks that it does not number. */
    const uint32_t ranks = rfs_catalog_chunks(catalog) ? 0 : rfs_catalog_ranks(catalog);
    for (uint32_t r = 0; r < ranks; r++)
        if (rfs_catalog_has(catalog, r) && !rfs_catalog_stands_in(catalog, r) &&
            block->file - rfs_catalog_file(catalog, r) < rfs_catalog_file_count(catalog, r))
            place.rank = r;
    return place;
}

/*
 * Compares bytes [begin, begin + n) of a tensor, which GOT are, with WANTED: adds one finding of
 * KIND for each rank whose bytes differ. SLICE says whose they are.
 */
static void compare_bytes(struct rfs_verify *verify, struct rfs_tensor tensor,
                          const struct rfs_slice *slice, enum rfs_finding_kind kind, uint64_t begin,
                          const unsigned char *got, const unsigned char *wanted, size_t n)
{
    size_t at = rfs_differ_at(got, wanted, 0, n);

    for (unsigned runs = 0; at < n && runs < MOST_RUNS; runs++) {
        const struct place place = locate(verify, tensor, slice, begin + at);
        rfs_findings_add(&verify->findings, &(struct rfs_finding){.kind = kind,
                                                                  .name = rfs_tensor_name(tensor),
                                                                  .rank = place.rank,
                                                                  .file = place.file,
                                                                  .offset = place.offset,
                                                                  .at = begin + at});
        if (place.left >= n - at)
            break;
        at = rfs_differ_at(got, wanted, at + (size_t)rfs_max_u64(place.left, 1), n);
    }
}

/* ---- the lists of ranks ---------------------------------------------------------------------- */

bool rfs_verify_has_rank(const struct rfs_verify *verify, uint32_t rank)
{
    struct rfs_catalog *tree = verify->tree.list.catalog;

    return rank < rfs_catalog_ranks(tree) && rfs_catalog_has(tree, rank) &&
           !rfs_lacking_file(verify->tree.lacking, rank);
}

/* ---- indexes --------------------------------------------------------------------------------- */

static void index_rank(struct rfs_verify *verify, uint32_t rank, uint32_t like)
{
    struct rfs_catalog *catalog = verify->tree.list.catalog;
    const struct rfs_index *index;
    struct rfs_error err = {0};
    struct rfs_use use;

    rfs_catalog_begin(catalog, &use);
    if (rank >= rfs_catalog_ranks(catalog) || !rfs_catalog_has(catalog, rank))
        rfs_findings_add_plain(&verify->findings, RFS_FOUND_RANK, NULL, rank,
                               "there is no checkpoint of it");
    else if (rfs_catalog_index(catalog, rank, like, &index, &err) &&
             !rfs_catalog_is_empty(catalog, rank))
        rfs_findings_add_plain(&verify->findings, RFS_FOUND_RANK, NULL, rank, err.text);
    rfs_catalog_end(catalog, &use);
}

/* Indexes the first rank of a stage, from whose headers those of the others are predicted. */
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
    struct rfs_catalog *catalog = verify->tree.list.catalog;
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
    struct rfs_tensors expected;
    const struct rfs_index *index;
    bool *met; /* [index->n] */
    size_t found;
    const struct rfs_params *last_params; /* those of the rank before */
    uint64_t last_serial;                 /* serial number of the index of the rank before */
};

static void find_in_rank(struct listing *listing, enum rfs_finding_kind kind, const char *name,
                         const char *detail)
{
    listing->found++;
    rfs_findings_add_plain(&listing->verify->findings, kind, name, listing->rank, detail);
}

static void check_expected(struct listing *listing, size_t i)
{
    struct rfs_verify *verify = listing->verify;
    struct rfs_catalog *tree = verify->tree.list.catalog;
    const char *name = rfs_tensors_name(&listing->expected, i);
    const struct rfs_type *want = rfs_tensors_type(&listing->expected, i);
    const uint32_t id = rfs_intern_find(rfs_catalog_tables(tree)->names, name, strlen(name));
    const struct rfs_entry *entry = id == RFS_NO_ID ? NULL : rfs_index_find(listing->index, id);

    if (entry)
        listing->met[entry - listing->index->entries] = true;
    if (!takes(verify, name))
        return;
    /*
     * MindSpore saves no tensor without bytes, and parameters that other ranks keep may have been
     * left out.
     */
    if (!entry && want->bytes > 0 && !listing->index->redundancy_removed)
        find_in_rank(listing, RFS_FOUND_MISSING, name, NULL);
    const struct rfs_type *have = entry ? rfs_catalog_type(tree, entry->type) : want;
    if (memcmp(have, want, sizeof *have) != 0) {
        char detail[2 * RFS_SHAPE_TEXT + 64];
        char shape[2][RFS_SHAPE_TEXT];
        snprintf(detail, sizeof detail, "%s %s, not %s %s", rfs_whole_dtype(have),
                 shape_text(have, shape[0]), rfs_whole_dtype(want), shape_text(want, shape[1]));
        find_in_rank(listing, RFS_FOUND_TYPE, name, detail);
    }
}

static int check_listing(struct listing *listing, struct rfs_error *err)
{
    struct rfs_verify *verify = listing->verify;

    listing->met = calloc(listing->index->n + 1, sizeof *listing->met);
    if (!listing->met)
        return rfs_fail_memory(err);
    listing->found = 0;
    for (size_t i = 0; i < rfs_tensors_count(&listing->expected); i++)
        check_expected(listing, i);
    for (size_t i = 0; i < listing->index->n; i++) {
        const char *name =
            rfs_catalog_name(verify->tree.list.catalog, listing->index->entries[i].name);
        if (!listing->met[i] && !rfs_whole_lacks(&verify->shown, name) && takes(verify, name))
            find_in_rank(listing, RFS_FOUND_EXTRA, name, NULL);
    }
    free(listing->met);
    return 0;
}

/*
 * Checks the list of a rank. Ranks of a stage share the expected list, and mostly the actual one:
 * then one comparison is enough.
 */
static int check_rank_list(struct listing *listing, struct rfs_error *err)
{
    if (listing->last_serial == listing->index->serial &&
        listing->last_params == listing->expected.params && listing->found == 0)
        return 0;
    listing->last_serial = listing->index->serial;
    listing->last_params = listing->expected.params;
    return check_listing(listing, err);
}

static int check_listings(struct rfs_verify *verify, struct rfs_error *err)
{
    struct rfs_catalog *tree = verify->tree.list.catalog;
    struct listing listing = {.verify = verify};
    struct rfs_view *shown = verify->shown.list.view;
    const uint32_t ranks = verify->shown.of.n_ranks;
    int rc = 0;

    for (uint32_t rank = 0; rc == 0 && rank < ranks; rank++) {
        struct rfs_use use;
        rc = rfs_tensors_of_rank(shown, verify->shown.list.planner, rank, &listing.expected, err);
        if (rc || !rfs_verify_has_rank(verify, rank))
            continue;
        listing.rank = rank;
        rfs_catalog_begin(tree, &use);
        if (rfs_catalog_index(tree, rank, RFS_NO_RANK, &listing.index, NULL) == 0)
            rc = check_rank_list(&listing, err);
        rfs_catalog_end(tree, &use);
    }
    return rc;
}

/* Leaves ranks alone from now on that cannot be indexed. */
static int pass_over(struct rfs_verify *verify, struct rfs_error *err)
{
    struct rfs_lacking *lacking = verify->tree.lacking;

    for (size_t i = 0; i < verify->findings.list.n; i++) {
        const uint32_t rank = verify->findings.list.data[i].rank;
        verify->damaged = true;
        if (!rfs_lacking_file(lacking, rank) && !RFS_PUSH(&lacking->damaged, rank))
            return rfs_fail_memory(err);
    }
    return 0;
}

/* Indexes every rank of the tree; compares their lists with the source's view. */
static int check_ranks(struct rfs_verify *verify, struct rfs_error *err)
{
    struct rfs_pool *pool = verify->tree.of.pool;

    if (verify->tree.parts) /* all of their headers are read when they are opened */
        return 0;
    rfs_pool_for(pool, verify->tree.stages, index_stage, verify);
    rfs_pool_for(pool, verify->tree.ranks, index_other, verify);
    const int rc = pass_over(verify, err);
    return rc == 0 && has_shown(verify) ? check_listings(verify, err) : rc;
}

/* ---- incomplete tensors ---------------------------------------------------------------------- */

static void find_lost(struct rfs_verify *verify, enum rfs_finding_kind kind, const char *name,
                      const struct rfs_whole *whole, uint32_t rank)
{
    char why[96];

    snprintf(why, sizeof why, "rank %u%s %s", rank,
             kind == RFS_FOUND_UNCOMPARED ? " of the source" : "",
             !rfs_catalog_has(whole->of.source, rank) ? "is missing"
             : rfs_lacking_file(whole->lacking, rank) ? "is damaged"
                                                      : "does not have it");
    rfs_findings_add_plain(&verify->findings, kind, name, RFS_NO_RANK, why);
}

static void check_source(struct rfs_verify *verify, const struct rfs_whole *source)
{
    uint32_t rank;

    for (size_t i = 0; i < source->lacking->damaged.n; i++) {
        const struct rfs_index *index;
        struct rfs_error why = {0};
        rank = source->lacking->damaged.data[i];
        if (rfs_catalog_index(source->list.catalog, rank, RFS_NO_RANK, &index, &why) == 0)
            snprintf(why.text, sizeof why.text,
                     "at first it could not be read, and cannot be compared; try again");
        rfs_findings_add_plain(&verify->findings, RFS_FOUND_SOURCE_RANK, NULL, rank, why.text);
    }
    uint32_t at = 0;
    for (const char *name; (name = rfs_whole_lost(source, &at, &rank));)
        if (takes(verify, name))
            find_lost(verify, RFS_FOUND_UNCOMPARED, name, source, rank);
}

/* Lists lost tensors of the tree, for which there is room. */
static void check_tree(struct rfs_verify *verify)
{
    struct rfs_params *lost = verify->lost_params;
    const bool logged = !has_shown(verify) || verify->wishes.wants_sums;
    uint32_t at = 0;
    uint32_t rank;

    for (const char *name; (name = rfs_whole_lost(&verify->tree, &at, &rank));) {
        if (!takes(verify, name))
            continue;
        if (logged)
            find_lost(verify, RFS_FOUND_PARTIAL, name, &verify->tree, rank);
        const struct rfs_tensor src = rfs_tensors_find(&verify->src.list, name);
        if (!has_shown(verify) || !src.list)
            continue;
        lost->targets[lost->n] = *rfs_tensors_target(src.list, src.i);
        lost->targets[lost->n].type = lost->targets[lost->n].shown_type; /* as they are shown */
        lost->n++;
    }
}

/*
 * Finds tensors that damaged and missing ranks had a part of alone, which have no whole. Beside a
 * source and its destination, the other ranks' slices of them are compared rank by rank; without,
 * they are among the findings. Tensors that the source has lost are compared with nothing.
 */
static int check_lost(struct rfs_verify *verify, struct rfs_error *err)
{
    const size_t most = verify->tree.lacking->from.n;
    struct rfs_params *lost = malloc(sizeof *lost + most * sizeof *lost->targets);

    if (!lost)
        return rfs_fail_memory(err);
    lost->n = 0;
    verify->lost_params = lost;
    verify->lost = verify->tree.list;
    verify->lost.catalog = verify->src.list.catalog;
    verify->lost.params = lost;
    verify->lost.by_name = NULL;
    if (has_source(verify))
        check_source(verify, &verify->src);
    if (has_shown(verify))
        check_source(verify, &verify->shown);
    check_tree(verify);
    return 0;
}

/* ---- rank by rank ---------------------------------------------------------------------------- */

/*
 * Values that no strategy knows, or only one of the two, have no whole, and ranks may differ in
 * them. Each rank's is compared with the value that a mount would show in that rank.
 */

/* A value of one rank, in the tree and as it should be. */
struct value {
    struct rfs_tensors list; /* what a mount would show in the rank */
    uint32_t i;              /* the value's number there, if it is there */
    struct rfs_slice wanted, got;
    const struct rfs_type *type;
    unsigned char *buffers[2]; /* of the wanted and the got bytes; borrowed */
    size_t n;                  /* their size */
    bool quiet, differs;       /* quiet: a difference sets differs, and is no finding */
    bool met;                  /* there is such a value on both sides */
};

/*
 * Finds the value that a mount would show in a planned rank by that name. Ranks of a stage mostly
 * share a list, and VALUE has that of the rank before.
 */
static bool find_shown(const struct rfs_verify *verify, uint32_t rank, const char *name,
                       struct value *value)
{
    const struct rfs_rank_plan *plan = rank < verify->shown.of.n_ranks
                                           ? rfs_planner_ready(verify->shown.list.planner, rank)
                                           : NULL;
    const struct rfs_params *params = value->list.params;

    if (!plan)
        return false;
    value->list = verify->shown.list;
    value->list.rank = rank;
    value->list.plan = plan;
    value->list.params = plan->params;
    if (plan->params != params) {
        const uint32_t id =
            rfs_intern_find(rfs_catalog_tables(value->list.catalog)->names, name, strlen(name));
        value->i = 0;
        while (value->i < plan->params->n && plan->params->targets[value->i].shown_name != id)
            value->i++;
    }
    return value->i < plan->params->n;
}

/* Sets value->got to all of an entry of a rank. 0 or -ENOMEM. */
static int take_entry(const struct rfs_verify *verify, uint32_t rank, const struct rfs_index *index,
                      const struct rfs_entry *entry, struct value *value)
{
    struct rfs_catalog *catalog = verify->tree.list.catalog;

    value->type = rfs_catalog_type(catalog, entry->type);
    value->got.n = 0;
    struct rfs_block *block = rfs_slice_add(&value->got);
    if (!block)
        return -ENOMEM;
    *block = (struct rfs_block){.file = rfs_catalog_entry_file(catalog, rank, index, entry)};
    if (rfs_catalog_content(catalog, index, entry, &block->content))
        return -ENOMEM;
    rfs_slice_block_whole(block, value->type, rfs_index_strides(index, entry));
    value->got.bytes = value->type->bytes;
    rfs_slice_name(&value->got);
    return 0;
}

/* Takes the value that a rank of the tree has by that name: 1, 0 when it has none, or -ENOMEM. */
static int take_rank(const struct rfs_verify *verify, uint32_t rank, const char *name,
                     struct value *value)
{
    struct rfs_catalog *catalog = verify->tree.list.catalog;
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

static int compare_value(struct rfs_verify *verify, struct rfs_tensor tensor, struct value *value,
                         uint64_t begin, size_t n, struct rfs_error *err)
{
    unsigned char *wanted = value->buffers[0], *got = value->buffers[1];
    const struct rfs_tensor shown = {&value->list, value->i};
    int rc = rfs_tensor_read(tensor, &value->got, begin, n, got, err)
                 ?: rfs_tensor_read(shown, &value->wanted, begin, n, wanted, err);

    if (rc == 0 && value->quiet)
        value->differs |= rfs_differ_at(got, wanted, 0, n) < n;
    else if (rc == 0)
        compare_bytes(verify, tensor, &value->got, RFS_FOUND_BYTES, begin, got, wanted, n);
    return rc;
}

/*
 * Compares the value of one rank, if the tree and a mount have it: its buffers' bytes from BEGIN
 * on, or where it is longer than the first rank's, all of it at once.
 */
static int check_value(struct rfs_verify *verify, struct rfs_tensor tensor, uint32_t rank,
                       struct value *value, uint64_t begin, struct rfs_error *err)
{
    const size_t n = value->n;
    const char *name = rfs_tensor_name(tensor);

    if (!find_shown(verify, rank, name, value))
        return 0;
    const struct rfs_type *shown = rfs_tensors_type(&value->list, value->i);
    int rc = take_rank(verify, rank, name, value);
    if (rc < 0)
        return rfs_fail_memory(err);
    if (rc == 0 || memcmp(shown, value->type, sizeof *shown) != 0)
        return 0; /* a finding says so already */
    value->met = true;
    rc = rfs_tensors_slice(&value->list, value->i, &value->wanted);
    if (rc)
        return cannot_read(&verify->shown, name, rc, err);
    if (!value->quiet && shown->bytes == rfs_tensor_type(tensor)->bytes)
        return compare_value(verify, tensor, value, begin, n, err);
    for (uint64_t at = 0; begin == 0 && rc == 0 && n > 0 && at < shown->bytes; at += n)
        rc = compare_value(verify, tensor, value, at, (size_t)rfs_min_u64(n, shown->bytes - at),
                           err);
    return rc;
}

static void value_end(struct value *value)
{
    rfs_slice_free(&value->wanted);
    rfs_slice_free(&value->got);
}

/* Compares a tensor rank by rank, from byte BEGIN on, by way of two buffers of N bytes. */
static int check_by_rank(struct rfs_verify *verify, struct rfs_tensor tensor, uint64_t begin,
                         size_t n, unsigned char *got, unsigned char *wanted, struct rfs_error *err)
{
    RFS_CLEANUP(value_end) struct value value = {.buffers = {wanted, got}, .n = n};
    int rc = 0;

    for (uint32_t rank = 0; rc == 0 && rank < verify->shown.of.n_ranks; rank++)
        rc = check_value(verify, tensor, rank, &value, begin, err);
    return rc;
}

/*
 * Returns whether all that a rank has of a tensor has the bytes that would be shown there: 1, 0 or
 * -errno; by way of two buffers of N bytes.
 */
static int is_shown(struct rfs_verify *verify, struct rfs_tensor tensor, uint32_t rank, size_t n,
                    unsigned char *got, unsigned char *wanted, struct rfs_error *err)
{
    RFS_CLEANUP(value_end) struct value value = {.buffers = {wanted, got}, .n = n, .quiet = true};
    const int rc = check_value(verify, tensor, rank, &value, 0, err);

    return rc ? rc : value.met && !value.differs;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The bytes that a piece's copies are compared with. */
struct reference {
    const unsigned char *bytes;
    enum rfs_finding_kind kind;
};

static void find_odd(struct rfs_verify *verify, struct rfs_tensor tensor, uint32_t rank)
{
    rfs_findings_add_plain(&verify->findings,
                           is_own(verify, tensor) ? RFS_FOUND_OWN : RFS_FOUND_TYPE,
                           rfs_tensor_name(tensor), rank, "not what other ranks have");
}

/* The tensor whose copies have no bytes to compare. */
struct telling {
    struct rfs_verify *verify;
    const char *name;
};

static void find_bad(void *ctx, const struct rfs_bad_copy *bad)
{
    const struct telling *telling = ctx;
    char detail[2 * RFS_SHAPE_TEXT + 64];
    char shape[2][RFS_SHAPE_TEXT];

    if (bad->why) { /* all tensors that the file should have */
        rfs_findings_add_plain(&telling->verify->findings, RFS_FOUND_FILE, NULL, RFS_NO_RANK,
                               bad->why->text);
        return;
    }
    if (bad->type)
        snprintf(detail, sizeof detail, "a copy of its slice is %s %s, not %s %s",
                 rfs_whole_dtype(bad->type), shape_text(bad->type, shape[0]),
                 rfs_whole_dtype(bad->want), shape_text(bad->want, shape[1]));
    else
        snprintf(detail, sizeof detail, "there is no copy of its slice");
    rfs_findings_add(&telling->verify->findings, &(struct rfs_finding){.kind = RFS_FOUND_TYPE,
                                                                       .name = telling->name,
                                                                       .rank = RFS_NO_RANK,
                                                                       .detail = detail,
                                                                       .file = bad->file,
                                                                       .offset = bad->at,
                                                                       .at = bad->begin});
}

static int find_bad_copies(struct rfs_verify *verify, struct rfs_tensor tensor,
                           struct rfs_error *err)
{
    struct telling telling = {verify, rfs_tensor_name(tensor)};
    const int rc = rfs_planner_bad_copies(
        tensor.list->planner, 0, rfs_tensors_target(tensor.list, tensor.i), find_bad, &telling);

    return rc ? cannot_read(&verify->tree, telling.name, rc, err) : 0;
}

static int check_copy(struct rfs_verify *verify, struct rfs_sweep_worker *worker,
                      struct rfs_tensor tensor, const struct rfs_target *twin, uint32_t number,
                      const struct rfs_sweep_piece *piece, const struct reference *reference,
                      struct rfs_error *err)
{
    const struct rfs_target *target = rfs_tensors_target(tensor.list, tensor.i);
    struct rfs_slice *slice = &worker->slice[2];
    struct rfs_copy copy;
    int rc = rfs_planner_copy(tensor.list->planner, 0, twin, number, slice, &copy);

    if (rc && rc != -ENOMEM && verify->damaged && twin->stage != target->stage) {
        char why[96];
        snprintf(why, sizeof why, "not all of it is left in pipeline stage %u", twin->stage);
        rfs_findings_add_plain(&verify->findings, RFS_FOUND_PARTIAL, rfs_tensor_name(tensor),
                               RFS_NO_RANK, why);
        return 0;
    }
    if (rc)
        return cannot_read(&verify->tree, rfs_tensor_name(tensor), rc, err);
    if (copy.odd != RFS_NO_RANK)
        find_odd(verify, tensor, copy.odd);
    if (number > 0 && copy.others == 0)
        return 0;
    rc = rfs_tensor_read(tensor, slice, piece->begin, (size_t)piece->n, worker->bytes[2], err);
    if (rc == 0)
        compare_bytes(verify, tensor, slice, reference->kind, piece->begin, worker->bytes[2],
                      reference->bytes, (size_t)piece->n);
    return rc;
}

/* Compares all copies but the first one of the first stage, which has been compared. */
static int check_copies(struct rfs_verify *verify, struct rfs_sweep_worker *worker,
                        struct rfs_tensor tensor, const struct rfs_sweep_piece *piece,
                        const struct reference *reference, struct rfs_error *err)
{
    const struct rfs_target *target = rfs_tensors_target(tensor.list, tensor.i);
    struct rfs_planner *planner = tensor.list->planner;
    const int bad = piece->begin == 0 ? find_bad_copies(verify, tensor, err) : 0;

    if (bad)
        return bad;
    for (uint32_t stage = 0; stage < verify->tree.stages; stage++) {
        struct rfs_target twin;
        int rc = rfs_planner_twin(planner, 0, target, stage, &twin, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (twin.type != target->type) {
            find_odd(verify, tensor,
                     verify->tree.first + stage * (verify->tree.ranks / verify->tree.stages));
            continue;
        }
        const uint32_t copies = rfs_planner_copies(planner, &twin);
        for (uint32_t copy = stage == target->stage; copy < copies; copy++) {
            rc = check_copy(verify, worker, tensor, &twin, copy, piece, reference, err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static uint64_t units(void *ctx, size_t item)
{
    const struct rfs_verify *verify = ctx;

    return rfs_tensor_type(verify->items[item].tree)->bytes;
}

static struct rfs_tensor tensor_of(void *ctx, size_t item, unsigned side)
{
    static const struct rfs_tensor none;
    const struct rfs_verify *verify = ctx;
    const struct rfs_verify_item *one = &verify->items[item];

    return is_lost(verify, one->tree) ? none : side == 0 ? one->tree : side == 1 ? one->src : none;
}

static int check_piece(void *ctx, struct rfs_sweep_worker *worker,
                       const struct rfs_sweep_piece *piece, struct rfs_error *err)
{
    struct rfs_verify *verify = ctx;
    const struct rfs_verify_item *item = &verify->items[piece->item];

    if (item->by_rank)
        return check_by_rank(verify, item->tree, piece->begin, (size_t)piece->n, worker->bytes[1],
                             worker->bytes[2], err);
    struct reference reference = {worker->bytes[0],
                                  is_own(verify, item->tree) ? RFS_FOUND_OWN : RFS_FOUND_REPLICA};
    if (item->src.list) {
        reference = (struct reference){worker->bytes[1], RFS_FOUND_BYTES};
        compare_bytes(verify, item->tree, &worker->slice[0], RFS_FOUND_BYTES, piece->begin,
                      worker->bytes[0], worker->bytes[1], (size_t)piece->n);
    }
    return verify->wishes.no_replicas
               ? 0
               : check_copies(verify, worker, item->tree, piece, &reference, err);
}

static int sum_up(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                  struct rfs_error *err)
{
    struct rfs_verify *verify = ctx;
    struct rfs_verify_item *item = &verify->items[piece->item];

    if (is_lost(verify, item->tree))
        return 0;
    if (piece->begin == 0) {
        item->state = XXH3_createState();
        if (!item->state)
            return rfs_fail_memory(err);
        XXH3_128bits_reset(item->state);
    }
    XXH3_128bits_update(item->state, worker->bytes[0], (size_t)piece->n);
    if (piece->last) {
        item->hash = rfs_hash_of(item->state);
        XXH3_freeState(item->state);
        item->state = NULL;
    }
    return 0;
}

/* ---- all tensors ----------------------------------------------------------------------------- */

/* Returns whether all of a tensor is left in each pipeline stage that has a copy of it. */
static bool has_all_copies(const struct rfs_verify *verify, struct rfs_tensor tensor)
{
    const struct rfs_target *target = rfs_tensors_target(tensor.list, tensor.i);
    struct rfs_planner *planner = tensor.list->planner;
    struct rfs_slice slice = {0};
    bool all = true;

    if (!verify->damaged || verify->wishes.no_replicas)
        return true;
    for (uint32_t stage = 0; all && stage < verify->tree.stages; stage++) {
        struct rfs_target twin;
        struct rfs_copy copy;
        if (rfs_planner_twin(planner, 0, target, stage, &twin, NULL) == 1)
            all = rfs_planner_copy(planner, 0, &twin, 0, &slice, &copy) == 0;
    }
    rfs_slice_free(&slice);
    return all;
}

/*
 * Lists what the first rank of each stage has by a tree's view that describes whole tensors
 * (view=dcp, view=mindformers).
 */
static int list_cuts(struct rfs_verify *verify, struct rfs_error *err)
{
    const struct rfs_tensors *cut = &verify->cut.list;
    const struct rfs_scale *scale = &verify->cut.of.scale;
    const uint32_t stages = scale->dst_stages;
    int rc = 0;

    verify->cuts = calloc((size_t)stages + 1, sizeof *verify->cuts);
    if (!verify->cuts)
        return rfs_fail_memory(err);
    for (; rc == 0 && verify->n_cuts < stages; verify->n_cuts++) {
        struct rfs_tensors *list = &verify->cuts[verify->n_cuts];
        rc = rfs_tensors_of_rank(cut->view, cut->planner, verify->n_cuts * scale->dst_devices, list,
                                 err);
        list->path = cut->path;
        if (rc == 0 && rfs_tensors_sort_names(list))
            rc = rfs_fail_memory(err);
    }
    return rc;
}

/*
 * Returns the tensor of the source that one of the tree should be, or none. A tensor that only one
 * of the two strategies has is not cut in a view that describes whole tensors, and is there what
 * the first rank has of it.
 */
static struct rfs_tensor source_of(const struct rfs_verify *verify, const char *name)
{
    const struct rfs_tensor whole = rfs_tensors_find(&verify->src.list, name);

    for (uint32_t stage = 0; whole.list && stage < verify->n_cuts; stage++) {
        const struct rfs_tensor cut = rfs_tensors_find(&verify->cuts[stage], name);
        if (cut.list)
            return rfs_tensors_target(cut.list, cut.i)->geometry == RFS_NO_ID ? cut : whole;
    }
    return whole;
}

static bool is_own_of(const struct rfs_whole *whole, const char *name)
{
    const struct rfs_tensor tensor = rfs_tensors_find(&whole->list, name);

    return tensor.list && rfs_whole_is_own(whole, tensor.i);
}

/* Finds the tensor of the source that an item is compared with. */
static void match(struct rfs_verify *verify, struct rfs_verify_item *item)
{
    const char *name = rfs_tensor_name(item->tree);
    const struct rfs_tensor src = source_of(verify, name);

    item->by_rank = has_shown(verify) &&
                    (is_own(verify, item->tree) || is_own_of(&verify->src, name) ||
                     is_own_of(&verify->shown, name) || !has_all_copies(verify, item->tree));
    if (!has_source(verify) || item->by_rank)
        return;
    if (!src.list) {
        if (!has_shown(verify) && !rfs_whole_lacks(&verify->src, name)) /* else it is reported */
            rfs_findings_add_plain(&verify->findings, RFS_FOUND_EXTRA, name, RFS_NO_RANK, NULL);
        return;
    }
    const struct rfs_type *have = rfs_tensor_type(item->tree);
    const struct rfs_type *want = rfs_tensor_type(src);
    if (memcmp(have, want, sizeof *have) == 0) {
        item->src = src;
        return;
    }
    if (rfs_findings_fault(&verify->findings, name))
        return; /* the ranks have reported it */
    char detail[2 * RFS_SHAPE_TEXT + 64];
    char shape[2][RFS_SHAPE_TEXT];
    snprintf(detail, sizeof detail, "%s %s as a whole, not %s %s", rfs_whole_dtype(have),
             shape_text(have, shape[0]), rfs_whole_dtype(want), shape_text(want, shape[1]));
    rfs_findings_add_plain(&verify->findings, RFS_FOUND_TYPE, name, RFS_NO_RANK, detail);
}

/* Finds the tensors of the source that the tree lacks. */
static void find_missing(struct rfs_verify *verify)
{
    const struct rfs_tensors *src = &verify->src.list;

    for (size_t i = 0; !has_shown(verify) && i < rfs_tensors_count(src); i++) {
        const char *name = rfs_tensors_name(src, i);
        if (rfs_tensor_type(source_of(verify, name))->bytes > 0 &&
            !rfs_tensors_find(&verify->tree.list, name).list &&
            !rfs_whole_lacks(&verify->tree, name))
            rfs_findings_add_plain(&verify->findings, RFS_FOUND_MISSING, name, RFS_NO_RANK, NULL);
    }
}

/*
 * Looks at differences again. Where ranks of the source differ in what they should hold alike, a
 * mount shows each rank what the source rank has that it takes after: that is no fault.
 */
static int look_again(struct rfs_verify *verify, unsigned char *got, unsigned char *wanted,
                      struct rfs_error *err)
{
    for (size_t i = 0; i < verify->findings.list.n; i++) {
        struct rfs_finding *finding = &verify->findings.list.data[i];
        if (finding->kind != RFS_FOUND_BYTES)
            continue;
        const struct rfs_tensor tensor = rfs_tensors_find(&verify->tree.list, finding->name);
        if (!tensor.list || is_own(verify, tensor))
            continue;
        const int rc = is_shown(verify, tensor, finding->rank, RFS_SWEEP_PIECE, got, wanted, err);
        if (rc < 0)
            return rc;
        if (rc > 0)
            finding->kind = RFS_FOUND_SOURCE;
    }
    return 0;
}

static int recheck(struct rfs_verify *verify, struct rfs_error *err)
{
    unsigned char *bytes = rfs_pages_alloc(2 * RFS_SWEEP_PIECE);
    const int rc =
        bytes ? look_again(verify, bytes, bytes + RFS_SWEEP_PIECE, err) : rfs_fail_memory(err);

    rfs_pages_free(bytes, 2 * RFS_SWEEP_PIECE);
    return rc;
}

/* Compares each tensor of the tree, and every copy of it; sums it up. */
static int check_content(struct rfs_verify *verify, struct rfs_error *err)
{
    const size_t n = rfs_tensors_count(&verify->tree.list);
    const struct rfs_sweep sweep = {
        .ctx = verify,
        .n = n + rfs_tensors_count(&verify->lost),
        .sides = 3, /* one for another copy */
        .tensor = tensor_of,
        .units = units,
        .work = check_piece,
        .fold = sum_up,
        .progress = &verify->progress,
        .phase = "verifying",
    };

    verify->items = calloc(sweep.n + 1, sizeof *verify->items);
    if (!verify->items)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < sweep.n; i++) {
        struct rfs_verify_item *item = &verify->items[i];
        item->tree = i < n ? (struct rfs_tensor){&verify->tree.list, (uint32_t)i}
                           : (struct rfs_tensor){&verify->lost, (uint32_t)(i - n)};
        item->by_rank = i >= n;
        if (i < n)
            match(verify, item);
    }
    find_missing(verify);
    int rc = rfs_sweep_run(&sweep, verify->wishes.threads, err);
    if (rc == 0 && has_shown(verify) && verify->findings.list.n > 0)
        rc = recheck(verify, err);
    for (size_t i = 0; i < n; i++)
        XXH3_freeState(verify->items[i].state);
    return rc;
}

int rfs_verify_tensors(struct rfs_verify *verify, struct rfs_error *err)
{
    return list_cuts(verify, err)
               ?: check_ranks(verify, err)
               ?: check_lost(verify, err)
               ?: check_content(verify, err);
}
