/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/verify/verify.h"

#include "base/checked.h"
#include "tool/common/sweep.h"

#define MOST_RUNS 4096

/* ---- differences ----------------------------------------------------------------------------- */

/* Where the first difference at AT or behind it is, or N. */
static size_t next_difference(const unsigned char *a, const unsigned char *b, size_t at, size_t n)
{
    for (; at + 4096 <= n && memcmp(a + at, b + at, 4096) == 0; at += 4096)
        ;
    while (at < n && a[at] == b[at])
        at++;
    return at;
}

void rfs_verify_compare(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor,
                        const struct rfs_slice *slice, enum rfs_finding_kind kind, uint64_t begin,
                        const unsigned char *got, const unsigned char *wanted, size_t n)
{
    size_t at = next_difference(got, wanted, 0, n);

    for (unsigned runs = 0; at < n && runs < MOST_RUNS; runs++) {
        const struct rfs_whole_place place =
            rfs_whole_locate(&verify->tree, tensor, slice, begin + at);
        rfs_findings_add(&verify->findings, &(struct rfs_finding){.kind = kind,
                                                                  .name = tensor->name,
                                                                  .rank = place.rank,
                                                                  .file = place.file,
                                                                  .offset = place.offset,
                                                                  .at = begin + at});
        if (place.left >= n - at)
            break;
        at = next_difference(got, wanted, at + (size_t)rfs_max_u64(place.left, 1), n);
    }
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The bytes that a piece's copies are compared with. */
struct reference {
    const unsigned char *bytes;
    enum rfs_finding_kind kind;
};

static void find_odd(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor,
                     uint32_t rank)
{
    rfs_verify_find(verify, tensor->own ? RFS_FOUND_OWN : RFS_FOUND_TYPE, tensor->name, rank,
                    "not what other ranks have");
}

/* A copy that has no bytes to compare. */
struct telling {
    struct rfs_verify *verify;
    const char *name;
};

static void find_bad(void *ctx, const struct rfs_bad_copy *bad)
{
    const struct telling *telling = ctx;
    char detail[2 * RFS_SHAPE_TEXT + 64];
    char shape[2][RFS_SHAPE_TEXT];

    if (bad->why) { /* of all tensors that the file should have */
        rfs_verify_find(telling->verify, RFS_FOUND_FILE, NULL, RFS_NO_RANK, bad->why->text);
        return;
    }
    if (bad->type)
        snprintf(detail, sizeof detail, "a copy of its slice is %s %s, not %s %s",
                 rfs_whole_dtype(bad->type), rfs_whole_shape(bad->type, shape[0]),
                 rfs_whole_dtype(bad->want), rfs_whole_shape(bad->want, shape[1]));
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

static int find_bad_copies(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor,
                           struct rfs_error *err)
{
    struct telling telling = {verify, tensor->name};
    const int rc =
        rfs_planner_bad_copies(verify->tree.planner, 0, tensor->target, find_bad, &telling);

    return rc ? rfs_fail(err, rc, RFS_OF(verify->tree.path, tensor->name), NULL,
                         "cannot be read: %s", strerror(-rc))
              : 0;
}

static int check_copy(struct rfs_verify *verify, struct rfs_sweep_worker *worker,
                      const struct rfs_whole_tensor *tensor, const struct rfs_target *twin,
                      uint32_t number, const struct rfs_sweep_piece *piece,
                      const struct reference *reference, struct rfs_error *err)
{
    struct rfs_slice *slice = &worker->slice[2];
    struct rfs_copy copy;
    int rc = rfs_planner_copy(verify->tree.planner, 0, twin, number, slice, &copy);

    if (rc && rc != -ENOMEM && verify->damaged && twin->stage != tensor->target->stage) {
        char why[96];
        snprintf(why, sizeof why, "not all of it is left in pipeline stage %u", twin->stage);
        rfs_verify_find(verify, RFS_FOUND_PARTIAL, tensor->name, RFS_NO_RANK, why);
        return 0;
    }
    if (rc)
        return rfs_fail(err, rc, RFS_OF(verify->tree.path, tensor->name), NULL,
                        "cannot be read: %s", strerror(-rc));
    if (copy.odd != RFS_NO_RANK)
        find_odd(verify, tensor, copy.odd);
    if (number > 0 && copy.others == 0)
        return 0;
    rc = rfs_whole_read(&verify->tree, tensor, slice, piece->begin, (size_t)piece->n,
                        worker->bytes[2], err);
    if (rc == 0)
        rfs_verify_compare(verify, tensor, slice, reference->kind, piece->begin, worker->bytes[2],
                           reference->bytes, (size_t)piece->n);
    return rc;
}

/* All but the first copy of the first stage, which has been compared. */
static int check_copies(struct rfs_verify *verify, struct rfs_sweep_worker *worker,
                        const struct rfs_whole_tensor *tensor, const struct rfs_sweep_piece *piece,
                        const struct reference *reference, struct rfs_error *err)
{
    struct rfs_planner *planner = verify->tree.planner;
    const int bad = piece->begin == 0 ? find_bad_copies(verify, tensor, err) : 0;

    if (bad)
        return bad;
    for (uint32_t stage = 0; stage < verify->tree.stages; stage++) {
        struct rfs_target twin;
        int rc = rfs_planner_twin(planner, 0, tensor->target, stage, &twin, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (twin.type != tensor->target->type) {
            find_odd(verify, tensor,
                     verify->tree.first + stage * (verify->tree.ranks / verify->tree.stages));
            continue;
        }
        const uint32_t copies = rfs_planner_copies(planner, &twin);
        for (uint32_t copy = stage == tensor->target->stage; copy < copies; copy++) {
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

    return verify->items[item].tree->type->bytes;
}

static const struct rfs_whole_tensor *tensor_of(void *ctx, size_t item, unsigned side)
{
    const struct rfs_verify *verify = ctx;
    const struct rfs_verify_item *one = &verify->items[item];

    return one->lost ? NULL : side == 0 ? one->tree : one->src;
}

static int check(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                 struct rfs_error *err)
{
    struct rfs_verify *verify = ctx;
    const struct rfs_verify_item *item = &verify->items[piece->item];

    if (item->by_rank)
        return rfs_verify_own(verify, item->tree, piece->begin, (size_t)piece->n, worker->bytes[1],
                              worker->bytes[2], err);
    struct reference reference = {worker->bytes[0],
                                  item->tree->own ? RFS_FOUND_OWN : RFS_FOUND_REPLICA};
    if (item->src) {
        reference = (struct reference){worker->bytes[1], RFS_FOUND_BYTES};
        rfs_verify_compare(verify, item->tree, &worker->slice[0], RFS_FOUND_BYTES, piece->begin,
                           worker->bytes[0], worker->bytes[1], (size_t)piece->n);
    }
    return verify->options->no_replicas || verify->tree.parts
               ? 0
               : check_copies(verify, worker, item->tree, piece, &reference, err);
}

static int sum_up(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                  struct rfs_error *err)
{
    struct rfs_verify *verify = ctx;
    struct rfs_verify_item *item = &verify->items[piece->item];

    if (item->lost)
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

/* ---- all ------------------------------------------------------------------------------------- */

/* Whether all of a tensor is left in each pipeline stage that keeps a copy of it. */
static bool has_all_copies(const struct rfs_verify *verify, const struct rfs_whole_tensor *tensor)
{
    struct rfs_planner *planner = verify->tree.planner;
    struct rfs_slice slice = {0};
    bool all = true;

    if (!verify->damaged || verify->options->no_replicas)
        return true;
    for (uint32_t stage = 0; all && stage < verify->tree.stages; stage++) {
        struct rfs_target twin;
        struct rfs_copy copy;
        if (rfs_planner_twin(planner, 0, tensor->target, stage, &twin, NULL) == 1)
            all = rfs_planner_copy(planner, 0, &twin, 0, &slice, &copy) == 0;
    }
    rfs_slice_free(&slice);
    return all;
}

/* The tensor of the source that one of the tree is compared with. */
static void match(struct rfs_verify *verify, struct rfs_verify_item *item)
{
    const struct rfs_whole_tensor *src =
        verify->src.view ? rfs_whole_find(&verify->src, item->tree->name) : NULL;

    const struct rfs_whole_tensor *shown = rfs_whole_find(&verify->shown, item->tree->name);
    item->by_rank =
        verify->shown.view && (item->tree->own || (src && src->own) || (shown && shown->own) ||
                               !has_all_copies(verify, item->tree));
    if (!verify->src.view || item->by_rank)
        return;
    if (!src) {
        if (!verify->shown.view &&
            !rfs_whole_lacks(&verify->src, item->tree->name)) /* else it is reported */
            rfs_verify_find(verify, RFS_FOUND_EXTRA, item->tree->name, RFS_NO_RANK, NULL);
        return;
    }
    const struct rfs_type *have = item->tree->type;
    if (memcmp(have, src->type, sizeof *have) == 0) {
        item->src = src;
        return;
    }
    if (rfs_findings_fault(&verify->findings, item->tree->name))
        return; /* the ranks have reported it */
    char detail[2 * RFS_SHAPE_TEXT + 64];
    char shape[2][RFS_SHAPE_TEXT];
    snprintf(detail, sizeof detail, "%s %s as a whole, not %s %s", rfs_whole_dtype(have),
             rfs_whole_shape(have, shape[0]), rfs_whole_dtype(src->type),
             rfs_whole_shape(src->type, shape[1]));
    rfs_verify_find(verify, RFS_FOUND_TYPE, item->tree->name, RFS_NO_RANK, detail);
}

/*
 * Where ranks of the source differ in what they should hold alike, a mount shows each rank what the
 * source rank has that it takes after. So a difference counts only if that is not it.
 */
static int look_again(struct rfs_verify *verify, struct rfs_sweep_worker *worker,
                      struct rfs_error *err)
{
    for (size_t i = 0; i < verify->findings.list.n; i++) {
        struct rfs_finding *finding = &verify->findings.list.data[i];
        const struct rfs_whole_tensor *tensor =
            finding->kind == RFS_FOUND_BYTES ? rfs_whole_find(&verify->tree, finding->name) : NULL;
        if (!tensor || tensor->own)
            continue;
        const int rc = rfs_verify_is_shown(verify, tensor, finding->rank, RFS_SWEEP_PIECE,
                                           worker->bytes[0], worker->bytes[1], err);
        if (rc < 0)
            return rc;
        if (rc > 0)
            finding->kind = RFS_FOUND_SOURCE;
    }
    return 0;
}

static int recheck(struct rfs_verify *verify, const struct rfs_sweep *sweep, struct rfs_error *err)
{
    struct rfs_sweep_worker *worker = rfs_sweep_worker_new(sweep);

    if (!worker)
        return rfs_fail_memory(err);
    const int rc = look_again(verify, worker, err);
    rfs_sweep_worker_free(sweep, worker);
    return rc;
}

int rfs_verify_content(struct rfs_verify *verify, struct rfs_error *err)
{
    const struct rfs_sweep sweep = {
        .ctx = verify,
        .n = verify->tree.n + verify->n_lost,
        .whole = {&verify->tree, &verify->src},
        .sides = 3, /* one for another copy */
        .tensor = tensor_of,
        .units = units,
        .work = check,
        .fold = sum_up,
        .progress = &verify->progress,
        .phase = "verifying",
    };

    verify->items = calloc(sweep.n + 1, sizeof *verify->items);
    if (!verify->items)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < verify->tree.n; i++) {
        verify->items[i].tree = &verify->tree.tensors[i];
        match(verify, &verify->items[i]);
    }
    for (size_t i = 0; i < verify->n_lost; i++) {
        verify->items[verify->tree.n + i] =
            (struct rfs_verify_item){.tree = &verify->lost[i], .lost = true, .by_rank = true};
    }
    for (size_t i = 0; !verify->shown.view && i < verify->src.n; i++)
        if (verify->src.tensors[i].type->bytes > 0 &&
            !rfs_whole_find(&verify->tree, verify->src.tensors[i].name) &&
            !rfs_whole_lacks(&verify->tree, verify->src.tensors[i].name))
            rfs_verify_find(verify, RFS_FOUND_MISSING, verify->src.tensors[i].name, RFS_NO_RANK,
                            NULL);
    int rc = rfs_sweep_run(&sweep, verify->options->threads, err);
    if (rc == 0 && verify->shown.view && verify->findings.list.n > 0)
        rc = recheck(verify, &sweep, err);
    for (size_t i = 0; i < verify->tree.n; i++)
        XXH3_freeState(verify->items[i].state);
    return rc;
}
