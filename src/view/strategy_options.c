/* SPDX-License-Identifier: Apache-2.0 */
#include "view/strategy_options.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "plan/geometry.h"
#include "plan/meta_llama.h"
#include "plan/names.h"
#include "plan/strategy_files.h"
#include "view/internal.h"
#include "view/rules_view.h"

/*
 * Names of the tensors of the files; those that were seen are marked by their ids in the catalogue.
 */
struct names {
    RFS_VEC(const char *) list;
    RFS_VEC(unsigned char) seen;
};

static void names_end(struct names *names)
{
    free(names->list.data);
    free(names->seen.data);
}

/* Takes away the names that options leave out: no rule has to say how these are cut. */
static void drop_unshown(const struct rfs_names *shown, struct names *names)
{
    size_t n = 0;

    for (size_t i = 0; i < names->list.n; i++)
        if (rfs_names_shown(shown, names->list.data[i]))
            names->list.data[n++] = names->list.data[i];
    names->list.n = n;
}

static bool add_names(struct rfs_catalog *catalog, const struct rfs_index *index,
                      struct names *names)
{
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        if (rfs_catalog_type(catalog, entry->type)->kind != RFS_TENSOR)
            continue;
        unsigned char *seen = RFS_VEC_AT(&names->seen, entry->name, 0);
        if (!seen || (!*seen && !RFS_PUSH(&names->list, rfs_catalog_name(catalog, entry->name))))
            return false;
        *seen = 1;
    }
    return true;
}

/*
 * Adds the names of one rank; sets whether they are all that there are, and all that there were
 * before. *ERR gets the last of the damaged files that a late view passes over.
 */
static int read_rank(const struct rfs_view *view, uint32_t rank, uint32_t lead, struct names *names,
                     bool *complete, struct rfs_error *err)
{
    struct rfs_catalog *catalog = view->catalog;
    const struct rfs_index *index;
    const size_t before = names->list.n;
    size_t tensors = 0;
    const int rc = rfs_catalog_index(catalog, rank, rank == lead ? RFS_NO_RANK : lead, &index, err);

    *complete = false;
    if (rc && rfs_catalog_is_empty(catalog, rank))
        return 0; /* redundancy was removed, and this rank keeps nothing */
    if (rc)
        return view->set->how.late && rc != -ENOMEM ? 0 : rc;
    for (size_t i = 0; i < index->n; i++)
        tensors += rfs_catalog_type(catalog, index->entries[i].type)->kind == RFS_TENSOR;
    if (!add_names(catalog, index, names))
        return rfs_fail_memory(err);
    *complete = !index->redundancy_removed && names->list.n == tensors &&
                (rank == lead || before == tensors);
    return 0;
}

/*
 * Reads the names of the first rank and of the last. If these list the same, so do all, as far as
 * can be known without reading them: planning refuses a tensor that turns up nevertheless. If they
 * differ, replicas were left out, and all ranks are read.
 */
static int read_names(const struct rfs_view *view, struct names *names, struct rfs_error *err)
{
    const uint32_t lead = rfs_catalog_lowest(view->catalog);
    const uint32_t last = rfs_catalog_ranks(view->catalog) - 1;
    bool first;
    bool complete = true;
    int rc = read_rank(view, lead, lead, names, &first, err);

    if (!rc && last > lead)
        rc = read_rank(view, last, lead, names, &complete, err);
    for (uint32_t rank = lead + 1; !rc && !(first && complete) && rank < last; rank++)
        if (rfs_catalog_has(view->catalog, rank)) {
            bool unused;
            rc = read_rank(view, rank, lead, names, &unused, err);
        }
    return !rc && names->list.n == 0 && view->set->how.late && err->code ? err->code : rc;
}

/*
 * Makes the strategy by rules for the parameters of use->source, or if that is NULL of the files.
 * If view->names is open, the parameters of files that it leaves out need no rule.
 */
static int make_strategy(struct rfs_view *view, const char *option, const char *value,
                         const struct rfs_layout_rules_use *use, struct rfs_log *log,
                         struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(names_end) struct names names = {0};
    RFS_CLEANUP(rfs_plan_model_end)
    struct rfs_plan_model model = {view->set->store, view->options.hf_config,
                                   rfs_catalog_path(view->source), view->source, NULL};
    int rc = use->source ? 0 : read_names(view, &names, err);

    drop_unshown(view->names, &names);
    struct rfs_layout_rules_use named = *use;
    named.by_columns = rfs_plan_meta_by_columns(view->source);
    named.names = names.list.data;
    named.n = names.list.n;
    named.number = rfs_plan_model_number;
    named.ctx = &model;
    return rc ? rc
              : rfs_plan_strategy_by_rules(view->set->store, option, value, &named, log, out, err);
}

/* Stands for a model without a config: whatever number a rule asks for is the number of ranks. */
struct unknown_model {
    uint32_t ranks;
    bool asked;
};

static int take_any_number(void *ctx, const char *key, uint64_t *number, struct rfs_error *err)
{
    struct unknown_model *model = ctx;

    (void)key;
    (void)err;
    model->asked = true;
    *number = model->ranks;
    return 0;
}

void rfs_view_offer_cuts(const struct rfs_view *view, struct rfs_error *err)
{
    static const char remedy[] = "; try: " RFS_STRATEGY_WANTED;
    RFS_CLEANUP(names_end) struct names names = {0};
    struct unknown_model model = {.ranks = rfs_catalog_ranks(view->catalog)};
    struct rfs_strategy *made = NULL;
    struct rfs_error unused = {0};

    if (!rfs_text_ends(err->text, remedy) || read_names(view, &names, &unused))
        return;
    RFS_FREE char *cuts = rfs_text_printf("tp%" PRIu32, model.ranks);
    struct rfs_layout_rules_use use = {
        .names = names.list.data, .n = names.list.n, .number = take_any_number, .ctx = &model};
    if (!cuts ||
        rfs_plan_strategy_by_rules(view->set->store, "src_rules", cuts, &use, NULL, &made, &unused))
        return;
    rfs_strategy_free(made);
    const size_t n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n,
             "; or src_rules=%s%s, where they are tensor-parallel ranks", cuts,
             model.asked && !view->options.hf_config ? ",hf_config=config.json" : "");
}

/* Returns the layout that rules give to a parameter, or NULL. */
static const struct rfs_layout *find_layout(const struct rfs_strategy *strategy, const char *param)
{
    const ptrdiff_t i = strategy && rfs_strategy_facts(strategy)->by_rules
                            ? rfs_strategy_find(strategy, param)
                            : -1;

    return i < 0 ? NULL : rfs_strategy_layout(strategy, (size_t)i, 0);
}

/* Returns whether rules had headers of the source read; otherwise planning compares shapes. */
static bool has_read_headers(const struct rfs_view *view)
{
    const struct rfs_strategy *rules = view->src ? view->src : view->dst;

    return rules && rfs_strategy_facts(rules)->by_rules;
}

/* Checks that the rules fit the tensors whose headers have been read by then. */
static int check_rules(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_catalog *catalog = view->catalog;
    const struct rfs_index *index =
        has_read_headers(view) ? rfs_catalog_ready(catalog, rfs_catalog_lowest(catalog)) : NULL;
    const char *src_name = view->src ? rfs_strategy_name(view->src) : NULL;
    const char *dst_name = view->dst ? rfs_strategy_name(view->dst) : NULL;
    struct rfs_geometry geometry;
    int rc = 0;

    for (size_t i = 0; index && !rc && i < index->n; i++) {
        const struct rfs_type *type = rfs_catalog_type(catalog, index->entries[i].type);
        const char *param = rfs_catalog_name(catalog, index->entries[i].name);
        if (type->kind == RFS_TENSOR && type->bytes > 0)
            rc = rfs_geometry_resolve(type, find_layout(view->src, param),
                                      find_layout(view->dst, param), src_name, dst_name, param,
                                      &geometry, err);
    }
    return rc;
}

/* ---- the strategies of a view ---------------------------------------------------------------- */

/*
 * Takes the strategy by the rules VALUE if they are given, or of the files that TEXT names, or
 * none.
 */
static int take_strategy(struct rfs_view *view, const char *text, const char *option,
                         const char *value, const struct rfs_layout_rules_use *use,
                         struct rfs_log *log, struct rfs_strategy **out, struct rfs_error *err)
{
    return value  ? make_strategy(view, option, value, use, log, out, err)
           : text ? rfs_plan_read_strategy(view->set->store, text, out, err)
                  : 0;
}

/* Takes the strategy of the destination; that of the source is there. */
static int take_destination(struct rfs_view *view, struct rfs_log *log, struct rfs_strategy **out,
                            struct rfs_error *err)
{
    const struct rfs_options *o = &view->options;
    const struct rfs_layout_rules_use use = {
        .source = view->src, .ranks = o->dst_ranks, .ranks_option = "dst_ranks"};

    return take_strategy(view, o->dst_strategy, "dst_rules", o->dst_rules, &use, log, out, err);
}

static const char *show_name(const void *ctx, const char *name)
{
    return rfs_names_shown(ctx, name);
}

/*
 * Takes the strategy of files that MAKER made: that of its destination, made again for the names
 * that its source has, some of which the files may lack, by the names that it shows.
 */
static int take_made(struct rfs_view *view, struct rfs_view *maker, struct rfs_error *err)
{
    const int rc = maker->dst && !rfs_options_describes(&maker->options)
                       ? take_destination(maker, NULL, &view->src, err)
                       : 0;

    if (rc == 0 && view->src && rfs_strategy_rename(view->src, show_name, maker->names))
        return rfs_fail_memory(err);
    return rc;
}

/*
 * Takes the ready cuts of ranks whose files have the names of Meta's, and proves that none is
 * missing.
 */
static int take_meta(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_layout_rules_use use = {.ranks = 0};
    RFS_CLEANUP(rfs_plan_model_end)
    struct rfs_plan_model model = {view->set->store, view->options.hf_config,
                                   rfs_catalog_path(view->source), view->source, NULL};
    const uint32_t ranks = rfs_catalog_ranks(view->source);
    RFS_FREE char *cuts = rfs_text_printf("tp%" PRIu32, ranks);
    struct rfs_error unread; /* has its message when the file is */

    if (!cuts)
        return rfs_fail_memory(err);
    int rc = rfs_plan_model_open(&model, err);
    if (rc == 0 && ranks > 1)
        rc = make_strategy(view, "src_rules", cuts, &use, &view->log, &view->src, err);
    const struct rfs_index *index;
    if (rc || rfs_catalog_index(view->source, 0, RFS_NO_RANK, &index, &unread) != 0)
        return rc;
    return rfs_plan_meta_prove(view->source, view->src, index, model.config, err);
}

static int take_source(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *o = &view->options;
    const struct rfs_layout_rules_use use = {.ranks = o->src_ranks, .ranks_option = "src_ranks"};

    if (rfs_catalog_is_model_parallel(view->source) && !o->src_strategy && !o->src_rules)
        return take_meta(view, err);
    return view->set->how.maker && !o->src_strategy && !o->src_rules
               ? take_made(view, view->set->how.maker, err)
               : take_strategy(view, o->src_strategy, "src_rules", o->src_rules, &use, &view->log,
                               &view->src, err);
}

/* Opens the names that are shown. */
static int take_names(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    struct rfs_names_config names = {.names = options->names,
                                     .store = view->set->store,
                                     .only = options->only,
                                     .drop = options->drop,
                                     .dtype = options->dtype};

    names.weights =
        options->shown == RFS_SHOW_HUGGINGFACE && !options->names && !options->only && !view->rules;
    names.adapters = options->shown == RFS_SHOW_PEFT && !options->names && !view->rules;
    names.weights |= names.adapters;
    if (names.adapters) {
        names.names = "view=peft";
        names.adapter = options->adapter;
    } else if (options->adapter) {
        return rfs_fail_usage(err, "one of the two",
                              "option adapter is for the names of PEFT's own model, and "
                              "names= or convert= makes others");
    }
    return rfs_names_open(&names, &view->names, err);
}

int rfs_view_take_strategies(struct rfs_view *view, struct rfs_error *err)
{
    return take_source(view, err)
               ?: rfs_view_rules_open(view, err)
               ?: take_names(view, err)
               ?: take_destination(view, &view->log, &view->dst, err)
               ?: check_rules(view, err);
}
