/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/explained.h"

#include "base/cleanup.h"
#include "formats/chunks/chunks.h"
#include "tool/common/command.h"
#include "tool/common/open.h"
#include "tool/explain/parts.h"

static const struct rfs_argument arguments[] = {
    RFS_ARG_PLACE("SRC", struct rfs_explain, source, "one SRC"),
    RFS_ARG_DESTINATION(struct rfs_explain, options, "the strategies of SRC and of the destination",
                        "any option of the view, see reshardfs(1)"),
    RFS_ARG_VIEW_NAMED("format", "FORMAT", "format", struct rfs_explain, options,
                       "of the destination: ckpt, safetensors or pt"),
    RFS_ARG_TEXT("param", "NAME", struct rfs_explain, param,
                 "one parameter; without it, bytes by destination rank"),
    RFS_ARG_NUMBER("rank", "N", 0, UINT32_MAX - 1, "a rank of the destination, from 0 up",
                   struct rfs_explain, rank, "one destination rank, with every byte range"),
    RFS_ARG_RANKS(
        "ranks", "LIST", "ranks and ranges of them, such as --ranks 0-63,70", struct rfs_explain,
        ranks, "some ranks, such as 0-7 on one node; bytes that several\nof them take count once"),
    RFS_ARG_TEXT("svg", "FILE", struct rfs_explain, svg,
                 "also draws the parameter; - for the standard output"),
    RFS_ARG_FLAG("json", struct rfs_explain, json, "for scripts"),
    {0},
};

static int check(struct rfs_explain *explain, struct rfs_error *err)
{
    if (!explain->source || !*explain->source)
        return rfs_fail_usage(err, "reshard explain SRC -s FILE -d FILE --param NAME",
                              "explain takes a source");
    if (explain->svg && !explain->param)
        return rfs_fail_usage(err, "--param NAME", "--svg draws one parameter");
    explain->one = explain->rank >= 0;
    if (!explain->one)
        return 0;
    const struct rfs_rank_range one = {(uint32_t)explain->rank, (uint32_t)explain->rank};
    explain->ranks.n = 0;
    return RFS_PUSH(&explain->ranks, one) ? 0 : rfs_fail_memory(err);
}

/* ---- planning -------------------------------------------------------------------------------- */

static int select_ranks(struct rfs_explain *explain, struct rfs_error *err)
{
    const uint32_t n = explain->plans.n_ranks;
    const int rc = rfs_ranks_check(&explain->ranks, n, "", err);

    if (rc)
        return rc;
    explain->selected = calloc(n, sizeof *explain->selected);
    if (!explain->selected)
        return rfs_fail_memory(err);
    for (uint32_t rank = 0; rank < n; rank++)
        if (rfs_ranks_has(&explain->ranks, rank))
            explain->selected[explain->n_selected++] = rank;
    return 0;
}

struct planning {
    struct rfs_explain *explain;
    struct rfs_error *errors; /* [n_selected] */
};

static int plan_one(void *ctx, size_t i)
{
    const struct planning *planning = ctx;
    struct rfs_explain *explain = planning->explain;
    const struct rfs_rank_plan *plan;
    const int rc =
        rfs_planner_rank(explain->plans.planner, explain->selected[i], &plan, &planning->errors[i]);

    rfs_progress_file(&explain->progress);
    rfs_progress_tick(&explain->progress);
    return rc;
}

/* Of refused ranks the lowest that was tried is reported. */
static int plan_all(struct rfs_explain *explain, struct rfs_error *err)
{
    RFS_FREE struct rfs_error *errors = calloc(explain->n_selected, sizeof *errors);
    struct planning planning = {explain, errors};

    if (!errors)
        return rfs_fail_memory(err);
    rfs_progress_begin(&explain->progress, "planning", 0, explain->n_selected);
    /* The first by itself: the others are then predicted from its indexes. */
    int rc = plan_one(&planning, 0);
    if (rc == 0 && explain->n_selected > 1)
        rc = rfs_pool_for(explain->plans.pool, explain->n_selected, plan_one, &planning);
    rfs_progress_end(&explain->progress);
    for (size_t i = 0; rc && i < explain->n_selected; i++)
        if (errors[i].code) {
            *err = errors[i];
            return errors[i].code;
        }
    return rc;
}

static int prepare(struct rfs_explain *explain, struct rfs_error *err)
{
    static const struct rfs_explain_words ranks = {"rank",  "ranks",     "rank",
                                                   "ranks", "from rank", "from ranks"};
    static const struct rfs_explain_words parts = {"part",  "parts",     "part",
                                                   "parts", "from part", "from parts"};
    static const struct rfs_explain_words boxed = {"rank",  "ranks",     "file",
                                                   "files", "from file", "from files"};
    const struct rfs_by_rules *converted = explain->plans.converted;
    const struct rfs_chunks *boxes = rfs_catalog_chunks(explain->plans.stored);
    struct rfs_scale scale;

    explain->words = explain->plans.hfai ? &parts : boxes ? &boxed : &ranks;
    if (explain->plans.hfai) {
        explain->n_sources = rfs_hfai_parts(explain->plans.hfai);
        return rfs_explain_parts_open(explain, err);
    }
    rfs_planner_scale(converted ? rfs_by_rules_whole(converted) : explain->plans.planner, &scale);
    explain->n_sources = boxes ? boxes->n_files : scale.src_devices * scale.src_stages;
    rfs_planner_report(explain->plans.planner, RFS_TELL_ONE_SIDED);
    return plan_all(explain, err);
}

static int explain_all(struct rfs_explain *explain, struct rfs_error *err)
{
    int rc =
        rfs_tool_open(explain->source, &explain->options, NULL, NULL, NULL, &explain->view, err);

    if (rc == 0)
        rc = rfs_view_plans(explain->view, &explain->plans, err);
    if (rc == 0)
        rc = select_ranks(explain, err);
    if (rc == 0)
        rc = prepare(explain, err);
    if (rc == 0 && explain->param)
        rc = rfs_explain_check(explain, err);
    const bool by_rules = explain->plans.converted != NULL;
    if (rc == 0 && explain->svg)
        rc = by_rules ? rfs_explain_converted_picture(explain, err)
                      : rfs_explain_picture(explain, err);
    if (rc == 0 && explain->json)
        rc = rfs_explain_json(explain, err);
    else if (rc == 0 && (!explain->svg || strcmp(explain->svg, "-") != 0))
        rc = by_rules && explain->param ? rfs_explain_converted_text(explain, err)
                                        : rfs_explain_text(explain, err);
    return rc;
}

static int run(void *request, struct rfs_error *err)
{
    struct rfs_explain *explain = request;
    int rc = check(explain, err);

    if (rc)
        return rc;
    rfs_progress_init(&explain->progress, false);
    rc = explain_all(explain, err);
    rfs_progress_destroy(&explain->progress);
    rfs_explain_parts_free(explain->parts);
    reshard_close(explain->view);
    free(explain->selected);
    return rc;
}

static const struct rfs_explain defaults = {.rank = -1};

const struct rfs_command rfs_command_explain = {
    .name = "explain",
    .usage = "reshard explain SRC -s FILE -d FILE --param NAME [--rank N] [--svg FILE]\n"
             "reshard explain SRC -s FILE -d FILE [--ranks LIST]\n"
             "reshard explain PARTS -o nshards=N [--param NAME] [--rank N]\n",
    .summary = "shows the source ranks, files and bytes of a destination slice",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .run = run,
};
