/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/rules_report.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "plan/by_rules.h"
#include "quant/scheme.h"
#include "reshard.h"
#include "rules/hf_config.h"
#include "rules/rules.h"
#include "view/contents.h"

/* The lists of shipped rules, as texts in the making. */
struct shipped_lists {
    FILE *models, *options;
};

static void put_words(void *ctx, const char *option, const struct rfs_rules_word *words)
{
    const struct shipped_lists *lists = ctx;
    FILE *out = option ? lists->options : lists->models;
    const char *before = ftell(out) > 0 ? " " : "";

    if (option)
        fprintf(out, "%s%s=", before, option);
    for (; words; words = words->next) {
        fprintf(out, "%s%s", option ? "" : before, words->text);
        fputs(option && words->next ? "|" : "", out);
        before = " ";
    }
}

/* Writes the two lists of RULES. 0 or -ENOMEM. */
static int write_lists(const struct rfs_rules *rules, char **models, char **options)
{
    size_t n;
    struct shipped_lists lists = {open_memstream(models, &n), open_memstream(options, &n)};
    bool good = lists.models && lists.options;

    if (good)
        rfs_rules_each_words(rules, put_words, &lists);
    good = good && !ferror(lists.models) && !ferror(lists.options);
    good = (!lists.models || fclose(lists.models) == 0) && good;
    good = (!lists.options || fclose(lists.options) == 0) && good;
    return good ? 0 : -ENOMEM;
}

int rfs_inspect_shipped(int (*each)(void *ctx, const struct rfs_inspect_shipped *rules,
                                    struct rfs_error *err),
                        void *ctx, struct rfs_error *err)
{
    char *name;
    int rc = 0;

    for (size_t i = 0; rc == 0 && (name = rfs_rules_name_at(i)); i++) {
        struct rfs_rules *rules;
        char *models = NULL;
        char *options = NULL;
        rc = rfs_rules_named(name, &rules, err);
        if (rc == 0 && write_lists(rules, &models, &options))
            rc = rfs_fail_memory(err);
        if (rc == 0)
            rc = each(
                ctx,
                &(struct rfs_inspect_shipped){
                    name, {rfs_rules_side(rules, 0), rfs_rules_side(rules, 1)}, models, options},
                err);
        rfs_rules_free(rules);
        free(models);
        free(options);
        free(name);
    }
    return rc;
}

int rfs_inspect_rules(reshard_view *set, struct rfs_inspect_rules *out, struct rfs_error *err)
{
    struct rfs_view *view = rfs_view_only(set);

    if (!out)
        return rfs_view_compare_all_copies(set, err);
    if (!view)
        return rfs_fail_usage(err, "-o step=N, or -o epoch=N", "step=all shows several saves");
    const struct rfs_by_rules *by_rules = rfs_view_contents(view).by_rules;
    if (!by_rules)
        return rfs_fail_usage(err, "a checkpoint of a model", "the source cannot be converted");
    const struct rfs_rules_map *map = by_rules->map;
    *out = (struct rfs_inspect_rules){.from = map->side[!map->from_left],
                                      .to = map->side[map->from_left],
                                      .sources = by_rules->plan->params->n,
                                      .dropped = map->dropped,
                                      .first_dropped = map->first_dropped,
                                      .made = map->made.n,
                                      .incomplete = rfs_by_rules_incomplete(by_rules)};
    return rfs_view_compare_all_copies(set, err);
}

void rfs_inspect_made(reshard_view *set, size_t i, struct rfs_inspect_made *out)
{
    const struct rfs_rules_map *map = rfs_view_contents(rfs_view_only(set)).by_rules->map;
    const struct rfs_rules_made *made = &map->made.data[i];

    *out = (struct rfs_inspect_made){.name = made->name,
                                     .type = &made->type,
                                     .shown = made->shown,
                                     .file = made->file,
                                     .line = made->line};
    for (size_t k = 0; k < made->n; k++) {
        const struct rfs_rules_link *link = &map->links.data[made->links + k];
        const bool again = k > 0 && link->source == link[-1].source && !link[-1].zeros;
        out->sources += !again && !link->zeros;
    }
}

int rfs_inspect_model(struct rfs_store *store, const char *path, struct rfs_inspect_model *out,
                      struct rfs_error *err)
{
    struct rfs_hf_config *config = NULL;
    struct rfs_hf_cuts cuts;
    const int rc = rfs_hf_config_open(store, path, &config, err);

    *out = (struct rfs_inspect_model){0};
    if (rc)
        return rc;
    const struct rfs_hf_value *type = rfs_hf_config_find(config, "model_type");
    const bool typed = type && type->kind == RFS_HF_TEXT;
    RFS_FREE char *folder = rfs_store_folder(path);
    out->quantized = rfs_hf_config_quantization(config, &cuts) ||
                     (folder && rfs_quant_scheme_is_beside(store, folder));
    out->type = typed ? strdup(type->text) : NULL;
    rfs_hf_config_free(config);
    return typed && !out->type ? rfs_fail_memory(err) : 0;
}

void rfs_inspect_model_free(struct rfs_inspect_model *model)
{
    free(model->type);
    *model = (struct rfs_inspect_model){0};
}
