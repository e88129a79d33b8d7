/* SPDX-License-Identifier: Apache-2.0 */
/* reshard strategy new: a strategy file from rules, or from a tree that says how it is cut. */
#include "base/cleanup.h"
#include "formats/chunks/mindformers.h"
#include "layout/builder.h"
#include "layout/layout_rules.h"
#include "tool/strategy/strategy.h"
#include "view/rules.h"
#include "view/strategy_files.h"

RFS_CLEANUP_OF(free_rules, struct rfs_layout_rules *, rfs_layout_rules_free)

RFS_CLEANUP_OF(free_strategy, struct rfs_strategy *, rfs_strategy_free)

/* ---- from a Checkpoint 2.0: the layouts that it has of its ranks ---- */

static int add_axes(struct rfs_layout_builder *item, const struct rfs_mf_layout *layout)
{
    uint64_t entry = 0;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < layout->n_axes; i++) {
        rc = rfs_layout_add_axis(item);
        for (; rc == 0 && layout->n_dev > 0 && entry < layout->end[i]; entry++)
            rc = rfs_layout_add_cut(item, layout->map[entry]);
    }
    return rc;
}

/* A tensor without a layout is whole in all devices. */
static int fill(struct rfs_layout_builder *item, const struct rfs_mf_layouts *layouts,
                const struct rfs_mf_layout *layout)
{
    int rc = layout->n_dev == 0 ? rfs_layout_add_dev(item, (int64_t)layouts->devices) : 0;

    for (uint32_t i = 0; rc == 0 && i < layout->n_dev; i++)
        rc = rfs_layout_add_dev(item, (int64_t)layout->dev[i]);
    if (rc == 0)
        rc = add_axes(item, layout);
    return rc ? rc : rfs_layout_check(item);
}

static int place(struct rfs_strategy_builder *builder, struct rfs_layout_builder *item,
                 const struct rfs_chunks *boxes, const struct rfs_mf_layouts *layouts,
                 const struct rfs_mf_held *held)
{
    const char *name =
        rfs_intern_text(boxes->tables->names, boxes->tensors.data[held->tensor].name);
    uint32_t id;

    rfs_layout_begin(item, name, strlen(name));
    const int rc = fill(item, layouts, rfs_mf_layout_of(layouts, held->tensor));
    if (rc)
        return rc;
    if (!rfs_strategy_builder_layout(builder, &item->layout, &id))
        return rfs_fail_memory(item->err);
    return rfs_strategy_builder_place(builder, name, strlen(name), held->stage, id, item->err);
}

/*
 * The strategy of the training that saved the tree, which describes it. 0 with *out owned by the
 * caller, or -errno with *err filled.
 */
static int derive(const struct rfs_strategy_tree *tree, const char *name, struct rfs_strategy **out,
                  struct rfs_error *err)
{
    struct rfs_chunks *boxes = rfs_catalog_chunks(tree->source.catalog);
    RFS_CLEANUP(rfs_mf_layouts_free) struct rfs_mf_layouts layouts = {0};
    RFS_CLEANUP(rfs_layout_end) struct rfs_layout_builder item = {.file = name, .err = err};
    RFS_CLEANUP(rfs_strategy_builder_cleanup) struct rfs_strategy_builder *builder = NULL;

    if (!boxes || !rfs_chunks_are_mindformers(boxes))
        return rfs_fail(err, -EINVAL, RFS_IN(name), "--rules with --ranks",
                        "only a Checkpoint 2.0 with metadata.json says which ranks held what");
    int rc = rfs_mindformers_layouts(boxes, &layouts, err);
    if (rc)
        return rc;
    builder = rfs_strategy_builder_new(name);
    if (!builder)
        return rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < layouts.held.n; i++)
        rc = place(builder, &item, boxes, &layouts, &layouts.held.data[i]);
    return rc ? rc : rfs_strategy_builder_finish(builder, out, err);
}

/* ---- from rules ---- */

/* Where the number of a tensor's axes is known from. */
struct known {
    const struct rfs_headers *headers;
    const struct rfs_strategy *source; /* or NULL */
};

/* By the tree, else by a source strategy in which nothing is flattened. */
static int ndim_of(void *ctx, const char *param, uint32_t stage)
{
    const struct known *known = ctx;
    struct rfs_catalog *catalog = known->headers->catalog;
    const uint32_t name =
        catalog ? rfs_intern_find(rfs_catalog_tables(catalog)->names, param, strlen(param))
                : RFS_NO_ID;

    for (size_t k = 0; name != RFS_NO_ID && k < known->headers->kinds.n; k++) {
        const struct rfs_entry *entry = rfs_index_find(known->headers->kinds.data[k].index, name);
        if (entry)
            return rfs_catalog_type(catalog, entry->type)->ndim;
    }
    const ptrdiff_t at = known->source ? rfs_strategy_find(known->source, param) : -1;
    const struct rfs_layout *layout =
        at < 0 ? NULL : rfs_strategy_layout(known->source, (size_t)at, stage);
    if (!layout && at >= 0)
        layout = rfs_strategy_layout(known->source, (size_t)at,
                                     rfs_strategy_next_stage(known->source, (size_t)at, 0));
    return layout && !layout->open && layout->n_expanded == 0 ? (int)layout->n_axes : -1;
}

/* The tensors of the tree, each once. */
static int list_names(const struct rfs_headers *headers, const char ***names, size_t *n,
                      struct rfs_error *err)
{
    struct rfs_catalog *catalog = headers->catalog;
    const uint32_t most = catalog ? rfs_intern_count(rfs_catalog_tables(catalog)->names) : 0;
    RFS_FREE bool *seen = calloc((size_t)most + 1, sizeof *seen);

    *names = calloc((size_t)most + 1, sizeof **names);
    *n = 0;
    if (!seen || !*names)
        return rfs_fail_memory(err);
    for (size_t k = 0; k < headers->kinds.n; k++) {
        const struct rfs_index *index = headers->kinds.data[k].index;
        for (size_t e = 0; e < index->n; e++) {
            const struct rfs_entry *entry = &index->entries[e];
            if (seen[entry->name] || rfs_catalog_type(catalog, entry->type)->kind != RFS_TENSOR)
                continue;
            seen[entry->name] = true;
            (*names)[(*n)++] = rfs_catalog_name(catalog, entry->name);
        }
    }
    return 0;
}

/* A tree with a rank that cannot be read has tensors that nobody knows. */
static int check_readable(const struct rfs_headers *headers, struct rfs_error *err)
{
    for (uint32_t i = 0; i < headers->n; i++)
        if (headers->ranks[i].code && !headers->ranks[i].empty) {
            *err = (struct rfs_error){.code = headers->ranks[i].code};
            snprintf(err->text, sizeof err->text, "%s",
                     headers->ranks[i].why ? headers->ranks[i].why : "out of memory");
            return err->code;
        }
    return 0;
}

/* RULES NULL: as the tree says itself. */
static int make(const struct rfs_strategy_args *args, struct rfs_strategy_tree *tree,
                const struct rfs_layout_rules *rules, const struct rfs_strategy *source,
                struct rfs_doc *doc, struct rfs_strategy **made, struct rfs_error *err)
{
    RFS_FREE const char **names = NULL;
    struct rfs_layout_rules_use use = {
        .source = source, .ranks = args->ranks, .ranks_option = "--ranks"};
    struct known known = {&tree->headers, source};
    const struct rfs_doc_tensors tensors = {ndim_of, &known};
    int rc = rules ? list_names(&tree->headers, &names, &use.n, err)
                   : derive(tree, args->tree, made, err);

    use.names = names;
    if (rc == 0 && rules)
        rc = rfs_layout_rules_strategy(rules, &use, &tree->source.log, made, err);
    return rc ? rc : rfs_doc_make(*made, &tensors, doc, err);
}

int rfs_strategy_new(const struct rfs_strategy_args *args, struct rfs_error *err)
{
    const char *out = args->places.data[0];
    RFS_CLEANUP(rfs_strategy_tree_close) struct rfs_strategy_tree tree = {0};
    RFS_CLEANUP(free_rules) struct rfs_layout_rules *rules = NULL;
    RFS_CLEANUP(free_strategy) struct rfs_strategy *source = NULL;
    RFS_CLEANUP(free_strategy) struct rfs_strategy *made = NULL;
    RFS_CLEANUP(rfs_doc_free) struct rfs_doc doc = {0};

    const bool derived = !args->rules && args->ranks == 0 && !args->source && args->tree;

    if (!derived && (!args->rules || args->ranks == 0))
        return rfs_fail_usage(err, "--rules '*: whole' --ranks 8", "new needs --rules and --ranks");
    if (!args->tree && !args->source)
        return rfs_fail_usage(err, "--tree SRC, or -s FILE", "there is no list of the parameters");
    const int json = rfs_strategy_form(args, out, false, err);
    int rc = json < 0 ? json : 0;
    if (rc == 0 && !derived)
        rc = rfs_view_read_rules("--rules", args->rules, &rules, err);
    if (rc == 0 && args->source)
        rc = rfs_view_read_strategy(args->source, &source, err);
    if (rc == 0)
        rc = rfs_strategy_tree_open(args->tree, &args->options, &tree, err);
    if (rc == 0)
        rc = check_readable(&tree.headers, err);
    if (rc == 0)
        rc = make(args, &tree, rules, source, &doc, &made, err);
    /* A tree whose cuts are in the source strategy has the shapes that JSON is to have. */
    if (rc == 0 && args->tree && source) {
        struct rfs_fit from;
        rfs_fit_begin(&tree.headers, source, &from);
        rfs_fit_begin(&tree.headers, made, &tree.fit);
        tree.fit.source = &from;
        rc = rfs_fit_ranks(&from, err) ?: rfs_strategy_shapes(&tree.fit, &doc, err);
    } else if (rc == 0 && args->tree) {
        rfs_fit_begin(&tree.headers, made, &tree.fit);
        tree.fit.whole = args->whole || derived;
        rc = json ? rfs_fit_ranks(&tree.fit, err) : 0; /* protobuf has no shapes */
        if (rc == 0)
            rc = rfs_strategy_shapes(&tree.fit, &doc, err);
    }
    return rc ? rc : rfs_strategy_write(args, out, json, rfs_strategy_stages(made) > 1, &doc, err);
}
