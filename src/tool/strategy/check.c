/* SPDX-License-Identifier: Apache-2.0 */
/* reshard strategy check: every mismatch between a strategy and a tree. */
#include "base/cleanup.h"
#include "tool/strategy/strategy.h"
#include "view/strategy_files.h"

static const struct rfs_column columns[] = {
    {"kind", RFS_CELL_TEXT},    {"mismatch", RFS_CELL_JSON}, {"parameter", RFS_CELL_TEXT},
    {"stage", RFS_CELL_NUMBER}, {"rank", RFS_CELL_NUMBER},   {"text", RFS_CELL_TEXT},
};

RFS_CLEANUP_OF(free_strategy, struct rfs_strategy *, rfs_strategy_free)

static void add_number(struct rfs_table *table, int64_t number)
{
    if (number < 0)
        rfs_table_none(table, "");
    else
        rfs_table_add(table, "%" PRId64, number);
}

static void print_json(const struct rfs_strategy_args *args, const struct rfs_strategy *strategy,
                       const struct rfs_fit_findings *findings, bool fits)
{
    struct rfs_table table = RFS_TABLE(columns, true);
    struct rfs_json_write json = {.file = stdout};

    for (size_t i = 0; i < findings->list.n; i++) {
        const struct rfs_fit_finding *finding = &findings->list.data[i];
        rfs_table_text(&table, finding->kind);
        rfs_table_bool(&table, finding->bad || args->strict);
        rfs_table_text(&table, finding->param ? finding->param : "");
        add_number(&table, finding->stage);
        add_number(&table, finding->rank);
        rfs_table_text(&table, finding->text);
    }
    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "kind", "check");
    rfs_json_put_text(&json, "strategy", args->places.data[0]);
    rfs_json_put_text(&json, "tree", args->places.data[1]);
    rfs_json_put_bool(&json, "fits", fits);
    rfs_strategy_json(&json, strategy);
    rfs_table_put_json(&table, &json, "rows");
    rfs_json_finish(&json);
    rfs_table_free(&table);
}

static void print(const struct rfs_strategy_args *args, const struct rfs_strategy *strategy,
                  const struct rfs_fit_findings *findings)
{
    size_t bad = findings->bad;

    if (args->strict)
        bad = findings->list.n;
    rfs_fit_findings_print(findings, "mismatch", args->strict, SIZE_MAX);
    char summary[256];
    rfs_strategy_summary(strategy, summary, sizeof summary);
    printf("%s%s\n", findings->list.n > 0 ? "\n" : "", summary);
    if (bad == 0)
        printf("fits: %s\n", args->places.data[1]);
    else
        printf("does not fit: %s: %zu mismatch%s\n", args->places.data[1], bad,
               bad == 1 ? "" : "es");
}

static int check(const struct rfs_strategy_args *args, const struct rfs_strategy *strategy,
                 const struct rfs_strategy *source, struct rfs_strategy_tree *tree,
                 struct rfs_error *err)
{
    RFS_CLEANUP(rfs_fit_findings_free) struct rfs_fit_findings findings = {.bad = 0};
    struct rfs_fit from;

    rfs_fit_begin(&tree->headers, strategy, &tree->fit);
    if (source) {
        rfs_fit_begin(&tree->headers, source, &from);
        tree->fit.source = &from;
    }
    tree->fit.whole = args->whole;
    int rc = rfs_fit_check(&tree->fit, &findings, err);
    if (rc)
        return rc;
    const bool fits = (args->strict ? findings.list.n : findings.bad) == 0;
    if (args->json)
        print_json(args, strategy, &findings, fits);
    else
        print(args, strategy, &findings);
    return !fits;
}

int rfs_strategy_check(const struct rfs_strategy_args *args, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_strategy_tree_close) struct rfs_strategy_tree tree = {0};
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    RFS_CLEANUP(free_strategy) struct rfs_strategy *source = NULL;

    if (args->whole && args->source)
        return rfs_fail_usage(err, "one of them",
                              "-s says how the tree is cut, and --whole that it is not");
    int rc = rfs_view_read_strategy(args->places.data[0], &strategy, err);
    if (rc == 0 && args->source)
        rc = rfs_view_read_strategy(args->source, &source, err);
    if (rc == 0)
        rc = rfs_strategy_tree_open(args->places.data[1], &args->options, &tree, err);
    return rc ? rc : check(args, strategy, source, &tree, err);
}
