/* SPDX-License-Identifier: Apache-2.0 */
#include "view/rules_view.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/pages.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "plan/by_rules.h"
#include "plan/own_config.h"
#include "rules/rules.h"
#include "view/model_files.h"

RFS_CLEANUP_OF(free_rules, struct rfs_rules *, rfs_rules_free)
RFS_CLEANUP_OF(free_config, struct rfs_hf_config *, rfs_hf_config_free)

/* ---- tensors that are left out as copies ----------------------------------------------------- */

#define CHUNK_BYTES (UINT64_C(4) << 20) /* bytes that a thread compares at a time */
#define LANES 8                         /* threads that compare, each with two pieces in memory */

/* A copy and its original. */
struct pair {
    struct rfs_view *view;
    struct rfs_slice slices[2];
};

static void pair_end(struct pair *pair)
{
    rfs_slice_free(&pair->slices[0]);
    rfs_slice_free(&pair->slices[1]);
}

static const char *name_of(const struct rfs_view *view, uint32_t source)
{
    return rfs_catalog_name(view->source, rfs_by_rules_target(view->rules->made, source)->name);
}

/*
 * Returns 0 if the bytes are equal, 1 if they differ, or -errno. TWICE is room for a piece of each.
 */
static int compare_piece(const struct pair *pair, uint64_t begin, size_t size, unsigned char *twice)
{
    const int rc = rfs_assemble(pair->view->assembler, &pair->slices[0], begin, size, true, twice)
                       ?: rfs_assemble(pair->view->assembler, &pair->slices[1], begin, size, true,
                                       twice + RFS_PIECE);

    return rc ? rc : memcmp(twice, twice + RFS_PIECE, size) != 0;
}

/* Compares every LANES-th chunk, from number LANE on. */
static int compare_lane(void *ctx, size_t lane)
{
    const struct pair *pair = ctx;
    unsigned char *twice = rfs_pages_alloc(2 * RFS_PIECE);
    const uint64_t bytes = pair->slices[0].bytes;
    int rc = twice ? 0 : -ENOMEM;

    for (uint64_t begin = lane * CHUNK_BYTES; begin < bytes && rc == 0;
         begin += LANES * CHUNK_BYTES) {
        const uint64_t end = rfs_min_u64(begin + CHUNK_BYTES, bytes);
        for (uint64_t at = begin; at < end && rc == 0; at += RFS_PIECE)
            rc = rfs_cancelled()
                     ? -EINTR
                     : compare_piece(pair, at, (size_t)rfs_min_u64(RFS_PIECE, end - at), twice);
    }
    rfs_pages_free(twice, 2 * RFS_PIECE);
    return rc;
}

static int fail(const struct rfs_view *view, const struct rfs_rules_copy *copy, int rc,
                struct rfs_error *err)
{
    const struct rfs_where where =
        RFS_OF(rfs_catalog_path(view->source), name_of(view, copy->copy));
    const char *original = name_of(view, copy->original);

    if (rc > 0)
        return rfs_fail(err, -EINVAL, where, copy->remedy,
                        "has other bytes than '%s', of which it should be a copy: %s: line %u",
                        original, copy->file, copy->line);
    return rc == -ENOMEM
               ? rfs_fail_memory(err)
               : rfs_fail(err, rc, where, NULL,
                          "cannot be compared with '%s', of which it should be a copy: %s",
                          original, strerror(-rc));
}

static int compare_pair(struct rfs_view *view, const struct rfs_rules_copy *copy,
                        struct rfs_error *err)
{
    RFS_CLEANUP(pair_end) struct pair pair = {.view = view};
    const uint32_t sources[] = {copy->copy, copy->original};
    int rc = 0;

    for (unsigned i = 0; i < 2 && rc == 0; i++)
        rc = rfs_planner_slice(view->rules->whole, 0,
                               rfs_by_rules_target(view->rules->made, sources[i]), &pair.slices[i]);
    if (rc == 0)
        rc = rfs_pool_for(
            view->set->pool,
            (size_t)rfs_min_u64(LANES, (pair.slices[0].bytes + CHUNK_BYTES - 1) / CHUNK_BYTES),
            compare_lane, &pair);
    return rc ? fail(view, copy, rc, err) : 0;
}

static int compare_all(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_rules_map *map = view->rules->made->map;
    int rc = 0;

    rfs_log(&view->log, RFS_INFO,
            "%zu tensor%s that the rules leave out as copies: compared with their originals; the "
            "first is '%s'",
            map->copies.n, map->copies.n == 1 ? "" : "s", name_of(view, map->copies.data[0].copy));
    for (size_t i = 0; i < map->copies.n && rc == 0; i++)
        if (rfs_by_rules_can_compare(view->rules->made, &map->copies.data[i]))
            rc = compare_pair(view, &map->copies.data[i], err);
    return rc;
}

int rfs_view_compare_copies(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_error own = {0};

    if (!view->rules || view->rules->made->map->copies.n == 0)
        return 0;
    pthread_mutex_lock(&view->lock);
    int rc = rfs_once_begin(&view->rules->compared, &view->made, &view->lock);
    if (rc == 1) {
        pthread_mutex_unlock(&view->lock);
        rc = compare_all(view, &own);
        pthread_mutex_lock(&view->lock);
        if (rc == -EINVAL)
            view->rules->differs = own;
        rfs_once_end(&view->rules->compared, &view->made, rc == 0 || rc == -EINVAL);
    } else if (rc == 0) {
        own = view->rules->differs;
        rc = own.code;
    }
    pthread_mutex_unlock(&view->lock);
    if (rc && err)
        *err = own;
    return rc;
}

/* ---- the rules and the config ---------------------------------------------------------------- */

/* The rules between the two forms of experts in HuggingFace's names, fused to the left. */
#define EXPERTS_RULES "fused_experts"

/*
 * Opens the rules that the option names: by a path, or by the name of installed rules. NULL: those
 * of experts.
 */
static int open_rules(struct rfs_store *store, const char *value, struct rfs_rules **out,
                      struct rfs_error *err)
{
    if (!value)
        return rfs_rules_named(EXPERTS_RULES, out, err);
    return strchr(value, '/') || rfs_text_ends(value, ".rules")
               ? rfs_rules_open(store, value, out, err)
               : rfs_rules_named(value, out, err);
}

static void find_experts(void *found, const char *option, const struct rfs_rules_word *words)
{
    (void)words;
    *(bool *)found |= option && strcmp(option, "experts") == 0;
}

/*
 * Writes the options of the rules, with the form of experts for rules that the user names. *OUT is
 * owned by the caller; NULL: none.
 */
static int write_options(const struct rfs_options *options, const struct rfs_rules *rules,
                         char **out, struct rfs_error *err)
{
    const char *given = options->convert_options;
    bool known = false;

    *out = NULL;
    if (!given && (!options->convert || options->experts < 0))
        return 0;
    rfs_rules_each_words(rules, find_experts, &known);
    if (options->convert && options->experts >= 0 && !known)
        return rfs_fail_usage(err, "leave experts= out",
                              "option experts is for models with experts, and rules %s know of "
                              "none",
                              options->convert);
    *out = options->convert && options->experts >= 0
               ? rfs_text_printf("%s%sexperts=%s", given ? given : "", given ? ":" : "",
                                 rfs_option_word("experts", options->experts))
               : strdup(given);
    return *out ? 0 : rfs_fail_memory(err);
}

/* Compares copies for a caller that passes on the number alone, so that the log gets the text. */
static int compare(void *ctx)
{
    struct rfs_error err = {0};
    const int rc = rfs_view_compare_copies(ctx, &err);

    return rc ? rfs_view_log_failure(ctx, rc, &err) : 0;
}

/* Returns the first made tensor whose elements are no plain floating-point numbers, or NULL. */
static const struct rfs_rules_made *find_coded(const struct rfs_rules_map *map)
{
    for (size_t i = 0; i < map->made.n; i++)
        if (!rfs_dtype_is_float_target(map->made.data[i].shown))
            return &map->made.data[i];
    return NULL;
}

/* Logs an error that others follow. */
static void report(void *ctx, const struct rfs_error *err)
{
    struct rfs_view *view = ctx;

    rfs_log(&view->log, RFS_ERROR, "%s", err->text);
}

void rfs_view_rules_free(struct rfs_view_rules *rules)
{
    if (!rules)
        return;
    rfs_by_rules_free(rules->made);
    rfs_planner_free(rules->whole);
    rfs_names_free(rules->names);
    rfs_strategy_free(rules->src);
    free(rules->incomplete.damaged.data);
    free(rules->incomplete.from.data);
    rfs_view_model_config_end(&rules->model);
    free(rules);
}

RFS_CLEANUP_OF(free_own, struct rfs_view_rules *, rfs_view_rules_free)

int rfs_view_rules_open(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    RFS_CLEANUP(free_rules) struct rfs_rules *rules = NULL;
    RFS_CLEANUP(free_config) struct rfs_hf_config *config = NULL;

    RFS_FREE char *given = NULL;

    if (!options->convert && options->experts < 0)
        return 0;
    RFS_CLEANUP(free_own) struct rfs_view_rules *own = calloc(1, sizeof *own);
    if (!own)
        return rfs_fail_memory(err);
    int rc = open_rules(view->set->store, options->convert, &rules, err)
                 ?: rfs_view_model_find(view, &own->model, err);
    if (rc == 0 && options->hf_config)
        rc = rfs_plan_given_config(view->set->store, own->model.config,
                                   rfs_catalog_path(view->source), view->source, &config, err);
    else if (rc == 0 && own->model.config)
        rc = rfs_hf_config_open(view->set->store, own->model.config, &config, err);
    else if (rc == 0)
        rc = rfs_plan_file_config(view->source, &config, err);
    if (rc == 0 && !config)
        rc = rfs_fail_usage(err, "hf_config=config.json",
                            "option %s needs the model's config.json, and the source has none",
                            options->convert ? "convert" : "experts");
    rc = rc ?: write_options(options, rules, &given, err);
    if (rc)
        return rc;
    const struct rfs_names_config names = {.drop = options->drop_source,
                                           .drop_option = "drop_source"};
    rc = rfs_names_open(&names, &own->names, err);
    if (rc)
        return rc;
    struct rfs_planner_config whole = rfs_view_planning(view);
    whole.keep_empty = true;
    whole.names = own->names;
    whole.lost = RFS_LOST_LISTED;
    whole.lacking = &own->incomplete;
    rc = rfs_planner_new(&whole, &own->whole, err);
    if (rc)
        return rc;
    const struct rfs_by_rules_config converted = {
        .whole = own->whole,
        .catalog = view->source,
        .rules = rules,
        .hf_config = config,
        .options = given,
        .compare = compare,
        .report = view->set->how.all_errors ? report : NULL,
        .ctx = view,
    };
    rc = rfs_by_rules_new(&converted, &own->made, err);
    if (rc)
        return rc;
    const struct rfs_rules_map *map = own->made->map;
    if (!options->convert && map->from_left == (options->experts == RFS_EXPERTS_FUSED))
        return 0; /* the source has that form */
    if (map->dropped > 0)
        rfs_log(&view->log, RFS_INFO,
                "conversion leaves out %zu of %zu values, which the rules drop: '%s'%s",
                map->dropped, own->made->plan->params->n, map->first_dropped,
                map->dropped > 1 ? " and others" : "");
    const bool adapter = strcmp(map->side[1], "peft") == 0;
    if ((options->shown == RFS_SHOW_HUGGINGFACE || options->shown == RFS_SHOW_PEFT) &&
        !map->from_left && options->convert)
        return rfs_fail_usage(err, "view=unified or view=mindformers; or leave convert out",
                              "view=%s is for the names of %s, and of this source the rules make "
                              "those of %s",
                              rfs_option_word("view", options->shown), map->side[1], map->side[0]);
    if (adapter && options->shown == RFS_SHOW_HUGGINGFACE)
        return rfs_fail_usage(err, "view=peft",
                              "view=huggingface is for a model, and the rules make an adapter");
    const struct rfs_rules_made *coded = find_coded(map);
    rfs_view_model_cut(view, &own->model, config, coded ? coded->name : NULL,
                       coded ? coded->shown : RFS_FLOAT32);
    view->catalog = own->made->catalog;
    own->src = view->src;
    view->src = NULL;
    view->rules = RFS_STEAL(own);
    return 0;
}
