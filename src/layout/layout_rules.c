/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strategy from rules: each parameter takes the layout of the first rule that matches its name.
 */
#include "layout/layout_rules.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "layout/layout_rules_internal.h"

#define NO_RULE UINT32_MAX

/* A strategy being made. */
struct making {
    const struct rfs_layout_rules *rules;
    const struct rfs_layout_rules_use *use;
    struct rfs_strategy_builder *builder;
    struct rfs_error *err;
    uint32_t stages;
    uint32_t devices;    /* of a stage */
    uint32_t *layout_of; /* [rules] ids */
    bool *taken;         /* [rules] by a parameter */
    uint32_t *like; /* [layouts of the source] id of the layout like it; RFS_NO_ID: not made yet */
};

static void making_end(struct making *making)
{
    rfs_strategy_builder_free(making->builder);
    free(making->layout_of);
    free(making->taken);
    free(making->like);
}

/*
 * The first rule that matches, or NO_RULE. Names written out are looked up; globs are tried in
 * turn.
 */
static uint32_t find_rule(const struct rfs_layout_rules *rules, const char *name)
{
    const uint32_t id = rfs_intern_find(rules->literals, name, strlen(name));
    const uint32_t literal = id == RFS_NO_ID ? NO_RULE : rules->literal_at.data[id];

    for (uint32_t i = 0; i < rules->rules.n && i < literal; i++) {
        const struct rule *rule = &rules->rules.data[i];
        if (!rule->literal && rfs_glob_match(rule->pattern, name))
            return i;
    }
    return literal;
}

static int set_scale(struct making *making)
{
    const struct rfs_layout_rules *rules = making->rules;
    const struct rfs_layout_rules_use *use = making->use;
    uint32_t devices = 1;

    making->stages = rules->like_line > 0 ? rfs_strategy_stages(use->source) : 1;
    making->devices = use->ranks / making->stages;
    if (use->ranks == 0 || use->ranks % making->stages != 0 || use->ranks > RFS_MAX_DEVICES)
        return rfs_layout_rules_fail(rules, 0, NULL, NULL, making->err,
                                     "%s=%u ranks cannot be made of %u stage%s", use->ranks_option,
                                     use->ranks, making->stages, making->stages == 1 ? "" : "s");
    if (rules->axes_line == 0)
        return 0;
    for (uint32_t p = 0; p < rules->n_dev; p++)
        devices *= rules->dev[p].extent;
    if (devices != making->devices)
        return rfs_layout_rules_fail(rules, rules->axes_line, NULL, NULL, making->err,
                                     "the device axes have %u devices, but %s=%u asks for %u%s",
                                     devices, use->ranks_option, use->ranks, making->devices,
                                     making->stages > 1 ? " in each stage" : "");
    return 0;
}

static int make_layouts(struct making *making)
{
    const struct rfs_layout_rules *rules = making->rules;
    uint32_t dev[RFS_MAX_DEVICE_AXES];
    struct rfs_layout layout;

    for (uint32_t p = 0; p < rules->n_dev; p++)
        dev[p] = rules->dev[p].extent > 0 ? rules->dev[p].extent : making->devices;
    for (size_t i = 0; i < rules->rules.n; i++) {
        const int rc =
            rfs_layout_rules_layout(rules, &rules->rules.data[i], dev, &layout, making->err);
        if (rc != 0)
            return rc;
        if (!rfs_strategy_builder_layout(making->builder, &layout, &making->layout_of[i]))
            return rfs_fail_memory(making->err);
    }
    return 0;
}

static int like_source(struct making *making, const char *param, const struct rfs_layout *source,
                       uint32_t *id)
{
    struct rfs_layout layout;
    int rc;

    *id = making->like[source->id];
    if (*id != RFS_NO_ID)
        return 0;
    rc = rfs_layout_rules_like(making->rules, source, param, &layout, making->err);
    if (rc != 0)
        return rc;
    if (layout.devices != making->devices)
        return rfs_layout_rules_fail(
            making->rules, making->rules->like_line, param, NULL, making->err,
            "it would have %u devices%s, but %s=%u asks for %u", layout.devices,
            making->stages > 1 ? " in each stage" : "", making->use->ranks_option,
            making->use->ranks, making->devices);
    if (!rfs_strategy_builder_layout(making->builder, &layout, id))
        return rfs_fail_memory(making->err);
    making->like[source->id] = *id;
    return 0;
}

static int place(struct making *making, const char *param, uint32_t stage, uint32_t layout)
{
    return rfs_strategy_builder_place(making->builder, param, strlen(param), stage, layout,
                                      making->err);
}

/* "like source": in the stages in which the source has it. */
static int place_in_stages(struct making *making, size_t i, uint32_t rule)
{
    const struct rfs_strategy *source = making->use->source;
    const char *param = rfs_strategy_param(source, i);
    int rc = 0;

    for (uint32_t stage = rfs_strategy_next_stage(source, i, 0); rc == 0 && stage != RFS_NO_STAGE;
         stage = rfs_strategy_next_stage(source, i, stage + 1)) {
        uint32_t id = rule == NO_RULE ? RFS_NO_ID : making->layout_of[rule];
        if (rule == NO_RULE)
            rc = like_source(making, param, rfs_strategy_layout(source, i, stage), &id);
        if (rc == 0)
            rc = place(making, param, stage, id);
    }
    return rc;
}

static int place_parameter(struct making *making, size_t i)
{
    const struct rfs_layout_rules *rules = making->rules;
    const struct rfs_layout_rules_use *use = making->use;
    const char *param = use->source != NULL ? rfs_strategy_param(use->source, i) : use->names[i];
    const uint32_t rule = find_rule(rules, param);

    if (rule != NO_RULE)
        making->taken[rule] = true;
    if (rules->like_line > 0)
        return place_in_stages(making, i, rule);
    if (rule == NO_RULE)
        return rfs_layout_rules_fail(rules, 0, param, "a last rule \"*: whole\"", making->err,
                                     "no rule matches it");
    return place(making, param, 0, making->layout_of[rule]);
}

static void log_unused(const struct making *making, struct rfs_log *log)
{
    const struct rfs_layout_rules *rules = making->rules;
    const struct rule *first = NULL;
    size_t n = 0;

    for (size_t i = rules->rules.n; i-- > 0;)
        if (!making->taken[i]) {
            first = &rules->rules.data[i];
            n++;
        }
    if (n == 1)
        rfs_log(log, RFS_WARNING, "%s: line %u: no parameter takes the rule '%s'", rules->name,
                first->line, first->pattern);
    else if (n > 1)
        rfs_log(log, RFS_WARNING, "%s: line %u: no parameter takes the rule '%s' (and %zu more)",
                rules->name, first->line, first->pattern, n - 1);
}

static int prepare(struct making *making)
{
    const struct rfs_layout_rules *rules = making->rules;
    const size_t n = rules->rules.n;
    const size_t n_like = rules->like_line > 0 ? rfs_strategy_layouts(making->use->source) : 0;

    making->builder = rfs_strategy_builder_new(rules->name);
    making->layout_of = calloc(n + 1, sizeof *making->layout_of);
    making->taken = calloc(n + 1, sizeof *making->taken);
    making->like = malloc((n_like + 1) * sizeof *making->like);
    if (making->builder == NULL || making->layout_of == NULL || making->taken == NULL ||
        making->like == NULL)
        return rfs_fail_memory(making->err);
    for (size_t i = 0; i < n_like; i++)
        making->like[i] = RFS_NO_ID;
    rfs_strategy_builder_by_rules(making->builder);
    return 0;
}

int rfs_layout_rules_strategy(const struct rfs_layout_rules *rules,
                              const struct rfs_layout_rules_use *use, struct rfs_log *log,
                              struct rfs_strategy **out, struct rfs_error *err)
{
    struct making making RFS_CLEANUP(making_end) = {.rules = rules, .use = use, .err = err};
    const size_t n = use->source != NULL ? rfs_strategy_count(use->source) : use->n;
    int rc = 0;

    *out = NULL;
    if (rules->like_line > 0 && use->source == NULL)
        return rfs_layout_rules_fail(rules, rules->like_line, NULL, "rules for all parameters", err,
                                     "there is no source strategy to be like");
    if (n == 0)
        return rfs_layout_rules_fail(rules, 0, NULL, NULL, err, "there is no tensor for its rules");
    rc = set_scale(&making) ?: prepare(&making) ?: make_layouts(&making);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = place_parameter(&making, i);
    if (rc == 0)
        rc = rfs_strategy_builder_finish(making.builder, out, err);
    if (rc == 0)
        log_unused(&making, log);
    return rc;
}
