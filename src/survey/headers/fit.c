/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/headers/fit.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "base/order.h"
#include "base/text.h"
#include "plan/planner.h"
#include "survey/headers/rank_headers.h"

void rfs_fit_findings_free(struct rfs_fit_findings *findings)
{
    free(findings->list.data);
    rfs_arena_free(&findings->arena);
    *findings = (struct rfs_fit_findings){0};
}

void rfs_fit_findings_add(struct rfs_fit_findings *findings, const char *kind, bool bad,
                          struct rfs_fit_place at, const char *fmt, ...)
{
    struct rfs_fit_finding finding = {.kind = kind, .bad = bad, .at = at};
    va_list args;

    va_start(args, fmt);
    RFS_FREE char *text = rfs_text_vprintf(fmt, args);
    va_end(args);
    finding.text = text ? rfs_arena_text(&findings->arena, text, strlen(text)) : NULL;
    if (at.param && finding.text)
        finding.at.param = rfs_arena_text(&findings->arena, at.param, strlen(at.param));
    findings->bad += bad;
    if (!finding.text || !RFS_PUSH(&findings->list, finding))
        findings->failed = true;
}

void rfs_fit_begin(const struct rfs_headers *headers, const struct rfs_strategy *strategy,
                   struct rfs_fit *out)
{
    const uint32_t stages = rfs_strategy_stages(strategy);
    const uint32_t devices = rfs_strategy_devices(strategy);
    const uint32_t first = stages == 1 ? rfs_strategy_facts(strategy)->first_item_stage : 0;

    *out = (struct rfs_fit){.headers = headers,
                            .strategy = strategy,
                            .stages = stages,
                            .devices = devices,
                            /* A stage that is absurd has no rank. */
                            .base = first <= RFS_MAX_DEVICES / devices ? first * devices : 0};
}

int rfs_fit_ranks(const struct rfs_fit *fit, struct rfs_error *err)
{
    const uint32_t last = fit->headers->end - 1;
    const uint32_t end = fit->base + fit->stages * fit->devices - 1;

    if (fit->whole || fit->source || last == end)
        return 0;
    return rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(fit->headers->catalog)),
                    "the checkpoint that was saved under the strategy",
                    "its last rank is rank_%u, but the strategy %s ends with rank_%u", last,
                    rfs_strategy_name(fit->strategy), end);
}

/* Returns the type of the parameter with that id in a rank, or NULL. */
static const struct rfs_type *type_of_rank(const struct rfs_headers *headers,
                                           const struct rfs_headers_rank *rank, uint32_t id)
{
    return rank && rank->kind != RFS_NO_KIND
               ? rfs_headers_type_in(headers, &headers->kinds.data[rank->kind], id)
               : NULL;
}

/* Finds the first rank of the stage that has a tensor of that name. */
static const struct rfs_type *find_slice(const struct rfs_fit *fit, const char *param,
                                         uint32_t stage, uint32_t *rank)
{
    const struct rfs_headers_parameter *known = rfs_headers_parameter(fit->headers, param);
    const uint32_t first = fit->whole ? 0 : fit->base + stage * fit->devices;
    const uint32_t end = fit->whole ? UINT32_MAX : first + fit->devices;

    for (uint32_t i = 0; known && i < fit->headers->n; i++) {
        const struct rfs_headers_rank *at = &fit->headers->ranks[i];
        if (at->rank < first || at->rank >= end)
            continue;
        const struct rfs_type *type = type_of_rank(fit->headers, at, known->id);
        if (type && type->kind == RFS_TENSOR) {
            *rank = at->rank;
            return type;
        }
    }
    return NULL;
}

int rfs_fit_tensor(const struct rfs_fit *fit, size_t param, uint32_t stage,
                   struct rfs_fit_tensor *out, struct rfs_error *err)
{
    const char *name = rfs_strategy_param(fit->strategy, param);
    const struct rfs_where where = RFS_OF(rfs_strategy_name(fit->strategy), name);
    struct rfs_fit_tensor cut = {.slice = NULL};

    out->layout = rfs_strategy_layout(fit->strategy, param, stage);
    if (!out->layout)
        return 0;
    int rc = fit->source ? rfs_fit_find(fit->source, name, &cut, err) : 0;
    if (!fit->source)
        cut.slice = find_slice(fit, name, stage, &cut.rank);
    if (rc < 0 || !cut.slice)
        return rc;
    out->slice = cut.slice;
    out->rank = cut.rank;
    rc = rfs_grid_resolve(out->layout, cut.slice->ndim, fit->source ? cut.whole : cut.slice->dims,
                          fit->source || fit->whole ? RFS_DIMS_OF_WHOLE : RFS_DIMS_OF_SLICE,
                          &out->grid, out->whole, NULL, where, err);
    return rc == 0 ? 1 : rc;
}

int rfs_fit_find(const struct rfs_fit *fit, const char *param, struct rfs_fit_tensor *out,
                 struct rfs_error *err)
{
    const ptrdiff_t at = rfs_strategy_find(fit->strategy, param);
    int rc = 0;

    for (uint32_t stage = 0; rc == 0 && at >= 0 && stage < fit->stages; stage++)
        rc = rfs_fit_tensor(fit, (size_t)at, stage, out, err);
    return rc;
}

/* ---- all that does not fit ---- */

/* Returns the rank, or NULL. O(log n). */
static const struct rfs_headers_rank *find_rank(const struct rfs_headers *headers, uint32_t rank)
{
    const size_t at = RFS_BISECT_KEY(i, headers->n, headers->ranks[i].rank, rank);
    return at < headers->n ? &headers->ranks[at] : NULL;
}

/*
 * Adds findings of ranks from FIRST to END - 1 that the tree does not have, and of any that could
 * not be read, or have no parameters.
 */
static void check_files(const struct rfs_headers *headers, uint32_t first, uint32_t end,
                        struct rfs_fit_findings *findings)
{
    for (uint32_t rank = first; rank < end; rank++) {
        uint32_t to = rank;
        while (to < end && !find_rank(headers, to))
            to++;
        if (to - rank == 1)
            rfs_fit_findings_add(findings, "ranks", true, RFS_FIT_AT(NULL, -1, rank),
                                 "rank_%" PRIu32 " has no checkpoint", rank);
        else if (to > rank)
            rfs_fit_findings_add(findings, "ranks", true, RFS_FIT_AT(NULL, -1, rank),
                                 "rank_%" PRIu32 " to rank_%" PRIu32 " have no checkpoint", rank,
                                 to - 1);
        rank = to;
    }
    for (uint32_t i = 0; i < headers->n; i++) {
        const struct rfs_headers_rank *rank = &headers->ranks[i];
        if (rank->code)
            rfs_fit_findings_add(findings, rank->empty ? "no parameters" : "unreadable",
                                 !rank->empty, RFS_FIT_AT(NULL, -1, rank->rank), "%s",
                                 rank->why ? rank->why : "out of memory");
    }
}

struct checking {
    const struct rfs_fit *fit;
    struct rfs_fit_findings *findings;
    size_t common;
};

#define ADD(c, ...) rfs_fit_findings_add((c)->findings, __VA_ARGS__)

static void check_ranks(struct checking *c)
{
    const struct rfs_fit *fit = c->fit;
    const bool cut = !fit->whole && !fit->source;
    const uint32_t end = fit->base + fit->stages * fit->devices;
    uint32_t beyond = 0;
    uint32_t last = 0;

    check_files(fit->headers, fit->base, cut ? end : fit->base, c->findings);
    for (uint32_t i = 0; cut && i < fit->headers->n; i++)
        if (fit->headers->ranks[i].rank < fit->base || fit->headers->ranks[i].rank >= end) {
            beyond++;
            last = fit->headers->ranks[i].rank;
        }
    if (beyond > 0)
        ADD(c, "ranks", true, RFS_FIT_AT(NULL, -1, last),
            "the strategy is of rank_%" PRIu32 " to rank_%" PRIu32 "; the tree has %" PRIu32
            " other%s, rank_%" PRIu32 " the last",
            fit->base, end - 1, beyond, beyond == 1 ? "" : "s", last);
}

static bool same_dims(const struct rfs_type *type, const uint64_t *dims)
{
    return memcmp(type->dims, dims, type->ndim * sizeof *dims) == 0;
}

#define SHAPE RFS_DIMS_TEXT(RFS_MAX_DIMS)

/*
 * Checks one rank's slice against the tensor that the others make. Returns whether the parameter is
 * worth no more words.
 */
static bool check_slice(struct checking *c, const char *param, uint32_t stage,
                        const struct rfs_fit_tensor *tensor, uint32_t rank,
                        const struct rfs_type *type)
{
    uint64_t dims[RFS_MAX_DIMS] = {0};
    char has[SHAPE];
    char wants[SHAPE];

    if (type->kind != RFS_TENSOR || type->dtype != tensor->slice->dtype) {
        ADD(c, "type", true, RFS_FIT_AT(param, stage, rank),
            "rank_%" PRIu32 " has it as %s, rank_%" PRIu32 " as %s", rank,
            type->kind == RFS_TENSOR ? rfs_dtype_name((enum rfs_dtype)type->dtype) : "no tensor",
            tensor->rank, rfs_dtype_name((enum rfs_dtype)tensor->slice->dtype));
        return true;
    }
    rfs_grid_slice(&tensor->grid, tensor->whole, rank - c->fit->base - stage * c->fit->devices,
                   dims);
    if (type->ndim == tensor->slice->ndim && same_dims(type, dims))
        return false;
    rfs_text_dims(has, sizeof has, type->ndim, type->dims);
    rfs_text_dims(wants, sizeof wants, tensor->slice->ndim, dims);
    ADD(c, "shape", true, RFS_FIT_AT(param, stage, rank),
        "rank_%" PRIu32 " has %s, where the cuts and the slice of rank_%" PRIu32 " ask for %s",
        rank, has, tensor->rank, wants);
    return true;
}

/* Finds slices of a parameter that no rank of the stage holds; HELD is by slice. */
static void check_holes(struct checking *c, const char *param, uint32_t stage,
                        const struct rfs_layout *layout, const bool *held)
{
    const uint32_t first = c->fit->base + stage * c->fit->devices;

    for (uint32_t i = 0; i < c->fit->devices; i++) {
        const struct rfs_headers_rank *rank = find_rank(c->fit->headers, first + i);
        /*
         * A rank that is missing, or cannot be read, is reported once, and not for each parameter.
         */
        if (!rank || (rank->code && !rank->empty) || held[rfs_layout_slice(layout, i)])
            continue;
        ADD(c, "hole", true, RFS_FIT_AT(param, stage, first + i),
            "rank_%" PRIu32 " does not have it, nor has any other with the same slice", first + i);
        return;
    }
}

static void check_stage(struct checking *c, size_t i, uint32_t stage,
                        const struct rfs_fit_tensor *tensor, bool *held)
{
    const struct rfs_fit *fit = c->fit;
    const char *param = rfs_strategy_param(fit->strategy, i);
    const struct rfs_headers_parameter *known = rfs_headers_parameter(fit->headers, param);
    const uint32_t first = fit->base + stage * fit->devices;
    uint32_t seen = RFS_NO_KIND;   /* a kind that was found right, unless slices differ by rank */
    uint32_t looked = RFS_NO_KIND; /* the kind with TYPE */
    const struct rfs_type *type = NULL;
    bool odd = false;

    memset(held, 0, fit->devices * sizeof *held);
    for (uint32_t r = 0; r < fit->headers->n; r++) {
        const struct rfs_headers_rank *rank = &fit->headers->ranks[r];
        if (rank->rank < first || rank->rank >= first + fit->devices)
            continue;
        if (rank->kind != looked) {
            type = known ? type_of_rank(fit->headers, rank, known->id) : NULL;
            looked = rank->kind;
        }
        if (!type || rank->kind == RFS_NO_KIND)
            continue;
        held[rfs_layout_slice(tensor->layout, rank->rank - first)] = true;
        if (odd || (rank->kind == seen && !tensor->grid.edge))
            continue;
        odd = check_slice(c, param, stage, tensor, rank->rank, type);
        seen = rank->kind;
    }
    check_holes(c, param, stage, tensor->layout, held);
}

/* Compares the whole shapes of the stages that share a parameter. */
static void check_stages_agree(struct checking *c, const char *param, uint32_t stage,
                               const struct rfs_fit_tensor *first,
                               const struct rfs_fit_tensor *tensor)
{
    char one[SHAPE];
    char other[SHAPE];

    if (first->slice->ndim == tensor->slice->ndim &&
        memcmp(first->whole, tensor->whole, tensor->slice->ndim * sizeof *first->whole) == 0)
        return;
    rfs_text_dims(one, sizeof one, first->slice->ndim, first->whole);
    rfs_text_dims(other, sizeof other, tensor->slice->ndim, tensor->whole);
    ADD(c, "shape", true, RFS_FIT_AT(param, stage, -1),
        "the whole tensor is %s in stage %" PRIu32 ", and %s in an earlier one", other, stage, one);
}

static void check_param(struct checking *c, size_t i, bool *held)
{
    const struct rfs_fit *fit = c->fit;
    const char *param = rfs_strategy_param(fit->strategy, i);
    struct rfs_fit_tensor first = {.slice = NULL};

    for (uint32_t stage = rfs_strategy_next_stage(fit->strategy, i, 0); stage != RFS_NO_STAGE;
         stage = rfs_strategy_next_stage(fit->strategy, i, stage + 1)) {
        struct rfs_fit_tensor tensor = {.slice = NULL};
        struct rfs_error why = {0};
        const int rc = rfs_fit_tensor(fit, i, stage, &tensor, &why);
        if (rc < 0) {
            c->common++;
            ADD(c, "shape", true, RFS_FIT_AT(param, stage, -1), "%s", why.text);
            continue;
        }
        if (rc == 0) {
            ADD(c, "only in the strategy", false, RFS_FIT_AT(param, stage, -1),
                "no rank of stage %" PRIu32 " has it", stage);
            continue;
        }
        c->common++;
        if (!fit->whole && !fit->source)
            check_stage(c, i, stage, &tensor, held);
        if (first.slice)
            check_stages_agree(c, param, stage, &first, &tensor);
        else
            first = tensor;
    }
}

/*
 * Finds parameters of the tree that the strategy lacks, such as a step or a rate, which are equal
 * on all ranks.
 */
static void check_others(struct checking *c)
{
    const struct rfs_headers *headers = c->fit->headers;

    for (size_t i = 0; i < headers->parameters.n; i++) {
        const char *param = headers->parameters.data[i].name;
        if (rfs_strategy_find(c->fit->strategy, param) < 0)
            ADD(c, "only in the tree", false, RFS_FIT_AT(param, -1, -1),
                "the strategy does not have it, so it is copied unchanged");
    }
}

/* Takes a note of a planner if it is that ranks contradict the strategy. */
static void take_note(void *ctx, const struct rfs_note *note)
{
    const struct checking *c = ctx;

    if (note->kind == RFS_NOTE_ALIKE)
        ADD(c, "bytes", !c->fit->headers->source->options->trust_strategy, RFS_FIT_ALL, "%s",
            note->text);
}

RFS_CLEANUP_OF(planner_cleanup, struct rfs_planner *, rfs_planner_free)

/* Compares the ranks with each other. 0, or -ENOMEM or -EINTR with *err filled. */
static int check_bytes(struct checking *c, struct rfs_error *err)
{
    const struct rfs_headers_source *source = c->fit->headers->source;
    RFS_CLEANUP(rfs_notes_free) struct rfs_notes notes = {0};
    RFS_CLEANUP(planner_cleanup) struct rfs_planner *planner = NULL;
    const struct rfs_planner_config config = {
        .catalog = c->fit->headers->catalog,
        .src = c->fit->strategy,
        .pool = source->pool,
        .notes = &notes,
        .unlike = RFS_UNLIKE_TOLD,
        .lost = RFS_LOST_REPORTED,
    };
    const struct rfs_rank_plan *plan; /* of all ranks: the destination is whole */
    struct rfs_error why = {0};

    if (rfs_notes_init(&notes, take_note, c))
        return rfs_fail_memory(err);
    const int rc =
        rfs_planner_new(&config, &planner, &why) ?: rfs_planner_rank(planner, 0, &plan, &why);
    if (rc == -ENOMEM || rc == -EINTR) {
        *err = why;
        return rc;
    }
    if (rc)
        ADD(c, "bytes", true, RFS_FIT_ALL, "%s", why.text);
    return 0;
}

int rfs_fit_check(const struct rfs_fit *fit, struct rfs_fit_findings *findings,
                  struct rfs_error *err)
{
    struct checking c = {.fit = fit, .findings = findings};
    const size_t before = findings->bad;
    RFS_FREE bool *held = calloc((size_t)fit->devices + 1, sizeof *held);

    if (!held)
        return rfs_fail_memory(err);
    if (fit->strategy)
        check_ranks(&c);
    else
        check_files(fit->headers, 0, fit->headers->end, findings);
    for (size_t i = 0; fit->strategy && i < rfs_strategy_count(fit->strategy) && !findings->failed;
         i++)
        check_param(&c, i, held);
    if (fit->strategy && c.common == 0)
        ADD(&c, "only in the strategy", true, RFS_FIT_ALL, "none of its parameters is in the tree");
    if (fit->strategy)
        check_others(&c);
    const bool bytes = fit->bytes && !fit->whole && !fit->source;
    const int rc = bytes && findings->bad == before ? check_bytes(&c, err) : 0;
    return rc == 0 && findings->failed ? rfs_fail_memory(err) : rc;
}
