/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/layout_rules.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/intern.h"
#include "base/lex.h"
#include "base/suggest.h"
#include "base/vec.h"
#include "layout/grid.h"

#include <ctype.h>

#define REMEDY_RULE "a line such as \"*.weight: axis 0 over tp\", or \"*: whole\""
#define NO_RULE UINT32_MAX

#define REMEDY_AXES "a line such as \"axes dp=2 tp=4\""
#define REMEDY_STAGE "\"stage first\", \"stage last\", \"stage layer\" or \"stage all\""
#define REMEDY_ALONE "a rule for this parameter alone"
#define REMEDY_LIKE "\"like source\", or \"like source with dp 8 -> 6\""

#define LAYOUT_RULES_ALL "all" /* the device axis when no others are named */
#define LAYOUT_RULES_AXIS_NAME 32

/* Pieces of an optimizer shard over all that is left. */
#define LAYOUT_RULES_REST UINT32_MAX

#define FIELDS_MOST 64
#define STAGES_MOST 1024 /* each costs something for each parameter */
#define NEXTN "num_nextn_predict_layers"
#define LAYERS "num_hidden_layers"

/* The stages that have a rule's parameters. */
enum { STAGE_FIRST = 1, STAGE_LAST = 2, STAGE_LAYER = 4, STAGE_ALL = 8 };

/* The device axes of a line of axes. */
struct device_axes {
    uint32_t line; /* 0: there is none, and one axis has all ranks */
    uint32_t n;
    struct {
        char name[LAYOUT_RULES_AXIS_NAME];
        uint32_t extent; /* devices; 0: all ranks */
    } dev[RFS_MAX_DEVICE_AXES];
};

struct rule {
    const char *pattern;
    uint32_t line;
    bool literal; /* no character in it means anything but itself */
    /*
     * Tensor axis axis[k] is cut by device axis by[k], a position in the matrix; outer to inner
     * where an axis comes several times.
     */
    uint8_t n_cuts;
    int8_t axis[RFS_MAX_DEVICE_AXES];
    uint8_t by[RFS_MAX_DEVICE_AXES];
    uint32_t optimizer; /* pieces; 0: none */
    uint32_t fields;    /* of the axis of cut number fields_of; 0 or 1: it is one */
    uint8_t fields_of;
    uint32_t axes;    /* position in the device axes */
    uint32_t stage;   /* STAGE_ bits */
    const char *unit; /* the key of the number of parts that stay whole; NULL: none */
    int8_t unit_axis; /* the tensor axis with these parts */
};

struct rfs_layout_rules {
    struct rfs_arena arena; /* that of the name, the patterns and all lists */
    const char *name;
    struct rfs_intern *literals;  /* literal patterns */
    RFS_VEC(uint32_t) literal_at; /* the first rule of each, a position in rules */

    RFS_VEC(struct device_axes) axes; /* at least one; the last is that of the next rule */

    uint32_t stages_line; /* the line of stages; 0: there is none */
    uint32_t stages;
    uint32_t stage; /* of the next rule: STAGE_ bits */

    uint32_t like_line; /* the line "like source"; 0: there is none */
    uint32_t from, to;  /* replicas; 0: they stay */

    RFS_VEC(struct rule) rules;
};

/* ---- from text to rules; layout_rules.h has the grammar -------------------------------------- */

/* Part of a line, for messages. */
struct shown {
    char text[64];
};

static struct shown show(const char *text, size_t n)
{
    struct shown out;

    snprintf(out.text, sizeof out.text, "%.*s%s", (int)(n < 48 ? n : 48), text, n > 48 ? "…" : "");
    return out;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the next text, for a message that something else was expected. */
static struct shown next(struct rfs_lex *p)
{
    rfs_lex_skip(p);
    return p->at < p->end ? show(p->at, (size_t)(p->end - p->at)) : show("the end of the line", 19);
}

/* Takes a number from 0 to RFS_MAX_DEVICES. */
static bool take_number(struct rfs_lex *p, uint32_t *number)
{
    const size_t n = rfs_lex_word(p);

    *number = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(p->at[i]))
            return false;
        *number = *number * 10 + (uint32_t)(p->at[i] - '0');
        if (*number > RFS_MAX_DEVICES)
            return false;
    }
    p->at += n;
    return n > 0;
}

static bool is_reserved(struct rfs_lex *p)
{
    static const char *const words[] = {"and",  "axes", "axis",      "fields", "in",
                                        "like", "over", "optimizer", "with",   "whole"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (rfs_lex_is(p, words[i]))
            return true;
    return false;
}

static const struct device_axes *last_axes(const struct rfs_layout_rules *rules)
{
    return &rules->axes.data[rules->axes.n - 1];
}

/* Returns the position of the device axis of the name that is next, or -1. */
static int find_axis(const struct device_axes *axes, struct rfs_lex *p)
{
    for (uint32_t i = 0; i < axes->n; i++)
        if (rfs_lex_is(p, axes->dev[i].name))
            return (int)i;
    return -1;
}

static int parse_device_axis(struct device_axes *axes, struct rfs_lex *p, uint64_t *devices)
{
    const size_t n = rfs_lex_word(p);
    const char *name = p->at;
    uint32_t extent;

    if (n == 0 || is_digit(*name) || is_reserved(p))
        return RFS_LEX_FAIL(p, REMEDY_AXES, "'%s' is not the name of a device axis", next(p).text);
    if (n >= LAYOUT_RULES_AXIS_NAME)
        return RFS_LEX_FAIL(p, NULL, "the name of a device axis has more than %d characters",
                            LAYOUT_RULES_AXIS_NAME - 1);
    if (find_axis(axes, p) >= 0)
        return RFS_LEX_FAIL(p, NULL, "there are two device axes '%s'", show(name, n).text);
    if (axes->n == RFS_MAX_DEVICE_AXES)
        return RFS_LEX_FAIL(p, NULL, "there are more than %d device axes", RFS_MAX_DEVICE_AXES);
    p->at += n;
    if (!rfs_lex_take(p, "=") || !take_number(p, &extent) || extent == 0)
        return RFS_LEX_FAIL(p, REMEDY_AXES, "device axis '%s' has no number of devices",
                            show(name, n).text);
    *devices *= extent;
    if (*devices > RFS_MAX_DEVICES)
        return RFS_LEX_FAIL(p, NULL, "the device axes have more than %u devices", RFS_MAX_DEVICES);
    memcpy(axes->dev[axes->n].name, name, n);
    axes->dev[axes->n++].extent = extent;
    return 0;
}

/* Returns the devices of a line of axes. */
static uint32_t devices_of(const struct device_axes *axes)
{
    uint32_t devices = 1;

    for (uint32_t p = 0; p < axes->n; p++)
        devices *= axes->dev[p].extent;
    return devices;
}

static int parse_axes(struct rfs_layout_rules *rules, struct rfs_lex *p)
{
    struct device_axes axes = {.line = p->line};
    const struct device_axes *before = last_axes(rules);
    uint64_t devices = 1;
    int rc = 0;

    if (before->line == 0 && rules->rules.n > 0)
        return RFS_LEX_FAIL(p, NULL, "the device axes must be given before the first rule");
    if (rfs_lex_end(p))
        return RFS_LEX_FAIL(p, REMEDY_AXES, "no device axis is named");
    while (rc == 0 && !rfs_lex_end(p))
        rc = parse_device_axis(&axes, p, &devices);
    if (rc != 0)
        return rc;
    if (before->line == 0)
        rules->axes.n = 0;
    else if (devices_of(before) != devices)
        return RFS_LEX_FAIL(p, NULL,
                            "the device axes have %u devices, and those in line %u have %u",
                            (uint32_t)devices, before->line, devices_of(before));
    RFS_ADD(&rules->arena, &rules->axes, axes);
    return rules->arena.failed ? rfs_fail_memory(p->err) : 0;
}

static int parse_stages(struct rfs_layout_rules *rules, struct rfs_lex *p)
{
    if (rules->stages_line > 0)
        return RFS_LEX_FAIL(p, NULL, "the stages are given already, in line %u",
                            rules->stages_line);
    rules->stages_line = p->line;
    if (!take_number(p, &rules->stages) || rules->stages == 0 || rules->stages > STAGES_MOST ||
        !rfs_lex_end(p))
        return RFS_LEX_FAIL(p, "a line such as \"stages 2\"", "'%s' is not a number of stages",
                            next(p).text);
    return 0;
}

/* Parses the stages that have the parameters of the rules that follow. */
static int parse_stage(struct rfs_layout_rules *rules, struct rfs_lex *p)
{
    static const char *const words[] = {"first", "last", "layer", "all"};

    rules->stage = 0;
    while (!rfs_lex_end(p)) {
        uint32_t i = 0;
        while (i < sizeof words / sizeof *words && !rfs_lex_take_word(p, words[i]))
            i++;
        if (i == sizeof words / sizeof *words)
            return RFS_LEX_FAIL(p, REMEDY_STAGE, "'%s' is not a stage", next(p).text);
        rules->stage |= 1U << i;
    }
    return rules->stage > 0 ? 0 : RFS_LEX_FAIL(p, REMEDY_STAGE, "no stage is named");
}

static int parse_like(struct rfs_layout_rules *rules, struct rfs_lex *p)
{
    if (rules->like_line > 0)
        return RFS_LEX_FAIL(p, NULL, "\"like source\" stands already in line %u", rules->like_line);
    rules->like_line = p->line;
    if (!rfs_lex_take_word(p, "source"))
        return RFS_LEX_FAIL(p, REMEDY_LIKE, "'source' must follow 'like', not '%s'", next(p).text);
    if (rfs_lex_end(p))
        return 0;
    if (!rfs_lex_take_word(p, "with") || !rfs_lex_take_word(p, "dp") ||
        !take_number(p, &rules->from) || !rfs_lex_take(p, "->") || !take_number(p, &rules->to) ||
        !rfs_lex_end(p))
        return RFS_LEX_FAIL(p, REMEDY_LIKE, "'%s' does not belong here", next(p).text);
    if (rules->from == 0 || rules->to == 0)
        return RFS_LEX_FAIL(p, REMEDY_LIKE, "a device axis of 0");
    return 0;
}

static int parse_tensor_axis(struct rfs_lex *p, const struct rule *rule, int8_t *axis)
{
    const bool negative = rfs_lex_take(p, "-");
    uint32_t number;

    if (!take_number(p, &number) || (negative && number == 0))
        return RFS_LEX_FAIL(p, REMEDY_RULE, "'axis' needs the number of an axis, not '%s'",
                            next(p).text);
    if (number > RFS_GRID_DIMS - (negative ? 0 : 1))
        return RFS_LEX_FAIL(p, NULL, "axis %s%u is beyond the %d axes that a tensor may have",
                            negative ? "-" : "", number, RFS_GRID_DIMS);
    *axis = (int8_t)(negative ? -(int)number : (int)number);
    for (uint32_t k = 0; k < rule->n_cuts; k++)
        if (rule->axis[k] == *axis)
            return RFS_LEX_FAIL(p, "the device axes of both in one: axis 0 over dp tp",
                                "axis %d is cut twice", *axis);
    return 0;
}

/* Parses the device axes after "over". */
static int parse_over(const struct rfs_layout_rules *rules, struct rfs_lex *p, struct rule *rule,
                      int8_t axis)
{
    size_t n = rfs_lex_word(p);

    if (n == 0 || is_reserved(p))
        return RFS_LEX_FAIL(p, REMEDY_RULE, "'over' needs the name of a device axis, not '%s'",
                            next(p).text);
    for (; n > 0 && !is_reserved(p); n = rfs_lex_word(p)) {
        const int by = find_axis(last_axes(rules), p);
        const struct shown name = show(p->at, n);
        if (by < 0)
            return RFS_LEX_FAIL(
                p, last_axes(rules)->line > 0 ? "one of those in the line of axes" : REMEDY_AXES,
                "there is no device axis '%s'", name.text);
        for (uint32_t k = 0; k < rule->n_cuts; k++)
            if (rule->by[k] == by)
                return RFS_LEX_FAIL(p, NULL, "device axis '%s' is used twice", name.text);
        rule->axis[rule->n_cuts] = axis;
        rule->by[rule->n_cuts++] = (uint8_t)by;
        p->at += n;
    }
    return 0;
}

/* Returns the length of a key of config.json that is next, with dots for what objects have. */
static size_t key_length(struct rfs_lex *p)
{
    size_t n = rfs_lex_word(p);
    size_t left = (size_t)(p->end - p->at);

    while (n > 0 && n + 1 < left && p->at[n] == '.' && isalpha((unsigned char)p->at[n + 1]))
        for (n += 1; n < left && (isalnum((unsigned char)p->at[n]) || p->at[n] == '_');)
            n++;
    return n;
}

/* Parses the name of the number of parts that the axis has; no part may be cut. */
static int parse_unit(struct rfs_layout_rules *rules, struct rfs_lex *p, struct rule *rule,
                      int8_t axis)
{
    const size_t n = key_length(p);

    if (n == 0 || is_digit(*p->at) || is_reserved(p))
        return RFS_LEX_FAIL(p, "a key of config.json, such as num_key_value_heads",
                            "'in' needs the name of a number, not '%s'", next(p).text);
    if (rule->unit != NULL)
        return RFS_LEX_FAIL(p, NULL, "there are two axes with 'in'");
    rule->unit = rfs_arena_text(&rules->arena, p->at, n);
    rule->unit_axis = axis;
    p->at += n;
    return rule->unit != NULL ? 0 : rfs_fail_memory(p->err);
}

static int parse_fields(struct rfs_lex *p, struct rule *rule)
{
    const struct shown given = next(p);

    if (!take_number(p, &rule->fields) || rule->fields == 0 || rule->fields > FIELDS_MOST)
        return RFS_LEX_FAIL(p, NULL, "'%s' is not a number of fields", given.text);
    if (rule->n_cuts == 0 || rule->axis[rule->n_cuts - 1] < 0)
        return RFS_LEX_FAIL(p, NULL, "fields follow the cut of an axis that is counted from 0");
    rule->fields_of = (uint8_t)(rule->n_cuts - 1);
    return 0;
}

static int parse_optimizer(struct rfs_lex *p, struct rule *rule)
{
    if (rule->optimizer != 0)
        return RFS_LEX_FAIL(p, NULL, "there are two optimizer shards");
    if (rfs_lex_word(p) == 0 || !is_digit(*p->at)) {
        rule->optimizer = LAYOUT_RULES_REST;
        return 0;
    }
    const struct shown given = next(p);
    if (take_number(p, &rule->optimizer) && rule->optimizer > 0)
        return 0;
    return RFS_LEX_FAIL(p, NULL, "'%s' is not a number of pieces", given.text);
}

static int parse_cut(struct rfs_layout_rules *rules, struct rfs_lex *p, struct rule *rule)
{
    int8_t axis = 0;

    if (rfs_lex_take_word(p, "optimizer"))
        return parse_optimizer(p, rule);
    if (rfs_lex_take_word(p, "fields"))
        return parse_fields(p, rule);
    if (!rfs_lex_take_word(p, "axis"))
        return RFS_LEX_FAIL(p, REMEDY_RULE,
                            "'axis', 'optimizer' or 'whole' must stand here, not '%s'",
                            next(p).text);
    int rc = parse_tensor_axis(p, rule, &axis);
    if (rc == 0 && !rfs_lex_take_word(p, "over"))
        return RFS_LEX_FAIL(p, REMEDY_RULE, "'over' must follow the number of the axis, not '%s'",
                            next(p).text);
    rc = rc ?: parse_over(rules, p, rule, axis);
    return rc == 0 && rfs_lex_take_word(p, "in") ? parse_unit(rules, p, rule, axis) : rc;
}

static int parse_cuts(struct rfs_layout_rules *rules, struct rfs_lex *p, struct rule *rule)
{
    int rc = 0;

    if (!rfs_lex_take_word(p, "whole")) {
        do
            rc = parse_cut(rules, p, rule);
        while (rc == 0 && (rfs_lex_take(p, ",") || rfs_lex_take_word(p, "and")));
        if (rc == 0 && rule->fields > 1 && rule->optimizer > 0)
            rc = RFS_LEX_FAIL(p, NULL, "fields and an optimizer shard do not go together");
        if (rc != 0)
            return rc;
    }
    return rfs_lex_end(p) ? 0
                          : RFS_LEX_FAIL(p, REMEDY_RULE, "'%s' does not belong here", next(p).text);
}

static int keep(struct rfs_layout_rules *rules, struct rfs_lex *p, const struct rule *rule)
{
    if (rules->rules.n >= UINT32_MAX)
        return rfs_fail_memory(p->err);
    RFS_ADD(&rules->arena, &rules->rules, *rule);
    const uint32_t id =
        rule->literal ? rfs_intern_add(rules->literals, rule->pattern, strlen(rule->pattern)) : 0;
    if (rule->literal && id == rules->literal_at.n)
        RFS_ADD(&rules->arena, &rules->literal_at, (uint32_t)rules->rules.n - 1);
    return rules->arena.failed || id == RFS_NO_ID ? rfs_fail_memory(p->err) : 0;
}

/* Parses a rule. The cuts never have a colon, so the last of the line ends the pattern. */
static int parse_rule(struct rfs_layout_rules *rules, struct rfs_lex *p, const char *colon)
{
    struct rule rule = {
        .line = p->line, .axes = (uint32_t)rules->axes.n - 1, .stage = rules->stage};
    const char *end = colon;

    rfs_lex_skip(p);
    while (end > p->at && is_blank(end[-1]))
        end--;
    if (end == p->at)
        return RFS_LEX_FAIL(p, REMEDY_RULE, "no parameter's name stands before ':'");
    rule.pattern = rfs_arena_text(&rules->arena, p->at, (size_t)(end - p->at));
    if (rule.pattern == NULL)
        return rfs_fail_memory(p->err);
    rule.literal = !rfs_glob_is_pattern(rule.pattern);
    p->at = colon + 1;
    return parse_cuts(rules, p, &rule) ?: keep(rules, p, &rule);
}

static int check_characters(struct rfs_lex *p)
{
    for (const char *c = p->at; c < p->end; c++)
        if ((unsigned char)*c < 0x20 && !is_blank(*c))
            return RFS_LEX_FAIL(p, "rules in plain text", "a control character, 0x%02x",
                                (unsigned char)*c);
    return 0;
}

static int parse_line(struct rfs_layout_rules *rules, struct rfs_lex *p)
{
    for (const char *c = p->at; c < p->end; c++)
        if (*c == '#' && (c == p->at || is_blank(c[-1]))) {
            p->end = c;
            break;
        }
    const int rc = check_characters(p);
    if (rc != 0 || rfs_lex_end(p))
        return rc;
    const char *colon = memrchr(p->at, ':', (size_t)(p->end - p->at));
    if (colon != NULL)
        return parse_rule(rules, p, colon);
    if (rfs_lex_take_word(p, "axes"))
        return parse_axes(rules, p);
    if (rfs_lex_take_word(p, "like"))
        return parse_like(rules, p);
    if (rfs_lex_take_word(p, "stages"))
        return parse_stages(rules, p);
    if (rfs_lex_take_word(p, "stage"))
        return parse_stage(rules, p);
    return RFS_LEX_FAIL(p, REMEDY_RULE, "'%s' is not a rule", next(p).text);
}

static int parse_lines(struct rfs_layout_rules *rules, const char *text, size_t size,
                       struct rfs_error *err)
{
    struct rfs_lex p = {.file = rules->name, .err = err, .line = 1, .at = text};
    const char *end = text + size;
    int rc = 0;

    while (rc == 0 && p.at < end) {
        const char *newline = memchr(p.at, '\n', (size_t)(end - p.at));
        p.end = newline != NULL ? newline : end;
        rc = parse_line(rules, &p);
        p.at = newline != NULL ? newline + 1 : end;
        p.line++;
    }
    if (rc == 0 && rules->rules.n == 0 && rules->like_line == 0)
        return rfs_lex_fail(rules->name, 0, NULL, REMEDY_RULE, err, "there are no rules in it");
    if (rc == 0 && rules->stages_line > 0 && rules->like_line > 0)
        return rfs_lex_fail(rules->name, rules->stages_line, NULL, "only one of them", err,
                            "\"like source\", in line %u, has the stages of the source",
                            rules->like_line);
    return rc;
}

int rfs_layout_rules_parse(const char *name, const char *text, size_t size,
                           struct rfs_layout_rules **out, struct rfs_error *err)
{
    struct rfs_layout_rules *rules = calloc(1, sizeof *rules);

    *out = rules;
    if (rules == NULL)
        return rfs_fail_memory(err);
    rules->name = rfs_arena_text(&rules->arena, name, strlen(name));
    rules->literals = rfs_intern_new();
    rules->stage = STAGE_ALL;
    RFS_ADD(&rules->arena, &rules->axes,
            ((struct device_axes){.n = 1, .dev[0].name = LAYOUT_RULES_ALL}));
    const int rc = rules->arena.failed || rules->literals == NULL
                       ? rfs_fail_memory(err)
                       : parse_lines(rules, text, size, err);
    if (rc != 0) {
        rfs_layout_rules_free(rules);
        *out = NULL;
    }
    return rc;
}

void rfs_layout_rules_free(struct rfs_layout_rules *rules)
{
    if (rules == NULL)
        return;
    rfs_intern_free(rules->literals);
    rfs_arena_free(&rules->arena);
    free(rules);
}

/* ---- layouts: of a rule, and of a source with another number of replicas --------------------- */

/* A strategy being made. */
struct making {
    const struct rfs_layout_rules *rules;
    const struct rfs_layout_rules_use *use;
    struct rfs_strategy_builder *builder;
    struct rfs_error *err;
    const char *param; /* the parameter at hand; NULL: none */
    uint32_t stages;
    uint32_t devices;    /* of a stage */
    uint64_t layers;     /* of the model, and of it the next */
    uint64_t nextn;      /* layers of multi-token prediction, with numbers behind the others */
    uint32_t *layout_of; /* [rules] ids */
    bool *taken;         /* [rules] by a parameter */
    uint32_t *like; /* [layouts of the source] id of the layout like it; RFS_NO_ID: not made yet */
};

#define FAIL(m, line, remedy, ...)                                                                 \
    rfs_lex_fail((m)->rules->name, line, (m)->param, remedy, (m)->err, __VA_ARGS__)

/*
 * Returns the stride in ranks of the rightmost device axis that is left for an optimizer shard; 0:
 * there is none.
 */
static uint32_t free_stride(const struct rfs_layout *layout)
{
    const uint32_t used = rfs_layout_used(layout);
    uint32_t stride = 1;

    for (uint32_t p = layout->n_dev; p-- > 0; stride *= layout->dev[p])
        if (layout->dev[p] > 1 && !(used >> p & 1))
            return stride;
    return 0;
}

/* Returns the number of devices that hold one slice, optimizer shards aside. */
static uint32_t repeats(const struct rfs_layout *layout)
{
    const uint32_t used = rfs_layout_used(layout);
    uint32_t devices = 1;

    for (uint32_t p = 0; p < layout->n_dev; p++)
        devices *= used >> p & 1 ? 1 : layout->dev[p];
    return devices;
}

/* Makes the map entries of the tensor axis that the rule calls AXIS. */
static void add_axis(const struct rule *rule, int axis, struct rfs_layout *out)
{
    uint32_t end = out->start[out->n_axes];

    for (uint32_t k = 0; k < rule->n_cuts; k++)
        if (rule->axis[k] == axis)
            out->map[end++] = (int32_t)(out->n_dev - 1 - rule->by[k]);
    out->start[++out->n_axes] = end;
}

static int set_optimizer(const struct making *m, const struct rule *rule, struct rfs_layout *out)
{
    const uint32_t most = repeats(out);
    const uint32_t size = rule->optimizer == LAYOUT_RULES_REST ? most : rule->optimizer;
    uint32_t part[RFS_MAX_DEVICE_AXES];

    if (rule->optimizer == LAYOUT_RULES_REST && most == 1)
        return FAIL(m, rule->line, NULL, "no device axis is left for an optimizer shard");
    if (size > most || !rfs_layout_opt_parts(out, size, part))
        return FAIL(m, rule->line, NULL,
                    "an optimizer shard of %u does not fit the device axes that are left "
                    "for it, %u devices in all",
                    size, most);
    if (size > 1) {
        out->opt_size = size;
        out->opt_step = free_stride(out);
    }
    return 0;
}

/* Says whether more than one device cuts an axis, one that is counted from 0. */
static bool cuts_axis(const struct rfs_layout *layout, uint32_t axis)
{
    bool cut = false;

    for (uint32_t k = layout->start[axis]; k < layout->start[axis + 1]; k++)
        cut = cut ||
              (layout->map[k] >= 0 && layout->dev[rfs_layout_position(layout, layout->map[k])] > 1);
    return cut;
}

static int make_layout(const struct making *m, const struct rule *rule, struct rfs_layout *out)
{
    const struct device_axes *axes = &m->rules->axes.data[rule->axes];
    int head = 0, tail = 0;

    memset(out, 0, sizeof *out);
    out->open = true;
    out->line = rule->line;
    out->n_dev = axes->n;
    out->devices = m->devices;
    for (uint32_t p = 0; p < axes->n; p++)
        out->dev[p] = axes->dev[p].extent > 0 ? axes->dev[p].extent : m->devices;
    for (uint32_t k = 0; k < rule->n_cuts; k++) {
        head = rule->axis[k] >= head ? rule->axis[k] + 1 : head;
        tail = -rule->axis[k] > tail ? -rule->axis[k] : tail;
    }
    for (int axis = 0; axis < head; axis++)
        add_axis(rule, axis, out);
    for (int axis = -tail; axis < 0; axis++)
        add_axis(rule, axis, out);
    out->n_tail = (uint32_t)tail;
    if (rule->fields > RFS_MAX_PARTS / out->devices)
        return FAIL(m, rule->line, NULL, "%u fields over %u devices are more than %d parts",
                    rule->fields, out->devices, RFS_MAX_PARTS);
    if (rule->fields > 1 && cuts_axis(out, (uint32_t)rule->axis[rule->fields_of])) {
        out->field = rule->fields;
        out->field_axis = (uint32_t)rule->axis[rule->fields_of];
    }
    return rule->optimizer > 0 ? set_optimizer(m, rule, out) : 0;
}

#define FAIL_LIKE(m, ...) FAIL(m, (m)->rules->like_line, REMEDY_ALONE, __VA_ARGS__)

/*
 * Says whether the tensor is whole in all devices, or cut by an optimizer shard over all of them.
 */
static bool is_alike(const struct rfs_layout *layout)
{
    return repeats(layout) == layout->devices &&
           (layout->opt_size <= 1 || layout->opt_size == layout->devices);
}

static int put_outermost(const struct making *m, uint32_t extent, struct rfs_layout *out)
{
    if (out->n_dev == RFS_MAX_DEVICE_AXES)
        return FAIL_LIKE(m, "its device matrix has no room for one more axis");
    memmove(out->dev + 1, out->dev, out->n_dev * sizeof *out->dev);
    out->dev[0] = extent;
    out->n_dev++;
    return 0;
}

/*
 * Scales a layout of which only the number of devices matters, not how they are arranged. The map
 * still names axes of one.
 */
static int scale_alike(const struct making *m, struct rfs_layout *out)
{
    const struct rfs_layout_rules *rules = m->rules;
    const uint64_t devices = (uint64_t)out->devices * rules->to;

    if (devices % rules->from != 0)
        return FAIL_LIKE(m, "its %u devices cannot become %u/%u of them", out->devices, rules->to,
                         rules->from);
    if (out->opt_size > 1)
        out->opt_size = (uint32_t)(devices / rules->from);
    for (uint32_t p = 0; p < out->n_dev; p++)
        out->dev[p] = 1;
    for (uint32_t p = 0; p < out->n_dev; p++)
        if (!(rfs_layout_used(out) >> p & 1)) {
            out->dev[p] = (uint32_t)(devices / rules->from);
            return 0;
        }
    return put_outermost(m, (uint32_t)(devices / rules->from), out);
}

/* Gives the position of the axis of replicas, n_dev when there is none. */
static int find_replicas(const struct making *m, const struct rfs_layout *layout, uint32_t *at)
{
    const uint32_t used = rfs_layout_used(layout);
    uint32_t found = 0;
    bool cut_between = false, matters = layout->opt_size > 1;

    *at = layout->n_dev;
    for (uint32_t p = 0; p < layout->n_dev; p++) {
        if (used >> p & 1) {
            cut_between |= found > 0 && layout->dev[p] > 1;
        } else if (layout->dev[p] == m->rules->from) {
            *at = found == 0 ? p : *at;
            matters |= found > 0 && cut_between;
            found++;
        }
    }
    if (found > 1 && matters)
        return FAIL_LIKE(
            m,
            "%u of its device axes have %u devices and cut no axis of the tensor, and the "
            "choice between them matters",
            found, m->rules->from);
    return 0;
}

/* Scales the axis at AT, of which the optimizer shard cuts PART. */
static int scale_axis(const struct making *m, uint32_t at, uint32_t part, struct rfs_layout *out)
{
    const struct rfs_layout_rules *rules = m->rules;

    out->dev[at] = rules->to;
    if (part == rules->from)
        out->opt_size = out->opt_size / rules->from * rules->to;
    else if (rules->to % part != 0)
        return FAIL_LIKE(
            m,
            "%u of the %u devices along that axis cut it as an optimizer shard, which %u "
            "devices cannot",
            part, rules->from, rules->to);
    return 0;
}

static int change_replicas(const struct making *m, struct rfs_layout *out)
{
    const struct rfs_layout_rules *rules = m->rules;
    uint32_t part[RFS_MAX_DEVICE_AXES];
    uint32_t at;

    if (out->field > 0)
        return FAIL_LIKE(m, "it is cut by field over all devices, so none of them are replicas");
    if (is_alike(out))
        return scale_alike(m, out);
    if (rules->from == 1)
        return put_outermost(m, rules->to, out);
    const int rc = find_replicas(m, out, &at);
    if (rc != 0)
        return rc;
    if (at == out->n_dev)
        return FAIL_LIKE(m, "none of its device axes has %u devices and cuts no axis of the tensor",
                         rules->from);
    rfs_layout_opt_parts(out, out->opt_size, part);
    return scale_axis(m, at, part[at], out);
}

static int make_like(const struct making *m, const struct rfs_layout *source,
                     struct rfs_layout *out)
{
    const struct rfs_layout_rules *rules = m->rules;

    *out = *source;
    out->line = rules->like_line;
    if (rules->from == rules->to)
        return 0;
    const uint64_t devices = (uint64_t)source->devices * rules->to / rules->from;
    if (devices > RFS_MAX_DEVICES)
        return FAIL_LIKE(m, "its device matrix would have more than %u devices", RFS_MAX_DEVICES);
    const int rc = change_replicas(m, out);
    if (rc != 0)
        return rc;
    out->devices = (uint32_t)devices;
    if (out->opt_size <= 1)
        out->opt_size = 0;
    out->opt_step = out->opt_size > 0 ? free_stride(out) : 0;
    return 0;
}

/* ---- strategies: a parameter takes the layout of the first rule that matches ----------------- */

static void making_end(struct making *making)
{
    rfs_strategy_builder_cleanup(&making->builder);
    free(making->layout_of);
    free(making->taken);
    free(making->like);
}

/*
 * Returns the first rule that matches, or NO_RULE. Names written out are looked up; globs are tried
 * in turn.
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

/* Returns the devices of a stage that the rules themselves name; 0: none. */
static uint32_t own_devices(const struct making *making)
{
    const struct rfs_layout_rules *rules = making->rules;
    const struct device_axes *axes = last_axes(rules);

    if (axes->line > 0)
        return devices_of(axes);
    if (rules->like_line == 0)
        return 0;
    const uint64_t devices = rfs_strategy_devices(making->use->source);
    return (uint32_t)(rules->from > 0 ? devices * rules->to / rules->from : devices);
}

static int set_scale(struct making *making)
{
    const struct rfs_layout_rules *rules = making->rules;
    const struct rfs_layout_rules_use *use = making->use;
    const uint32_t devices = own_devices(making);
    char remedy[64];

    making->stages = rules->like_line > 0     ? rfs_strategy_stages(use->source)
                     : rules->stages_line > 0 ? rules->stages
                                              : 1;
    if (use->ranks == 0 && devices > 0 && (uint64_t)devices * making->stages <= RFS_MAX_DEVICES) {
        making->devices = devices;
        return 0;
    }
    snprintf(remedy, sizeof remedy, "%s=8, or a line such as \"axes dp=2 tp=4\"",
             use->ranks_option);
    if (use->ranks == 0 && devices == 0)
        return rfs_fail_usage(making->err, remedy, "nothing says how many ranks %s is for",
                              rules->name);
    making->devices = use->ranks / making->stages;
    if (use->ranks == 0 || use->ranks % making->stages != 0 || use->ranks > RFS_MAX_DEVICES)
        return FAIL(making, 0, NULL, "%s=%u ranks cannot be made of %u stage%s", use->ranks_option,
                    use->ranks, making->stages, making->stages == 1 ? "" : "s");
    if (last_axes(rules)->line > 0 && devices != making->devices)
        return FAIL(making, last_axes(rules)->line, NULL,
                    "the device axes have %u devices, but %s=%u asks for %u%s", devices,
                    use->ranks_option, use->ranks, making->devices,
                    making->stages > 1 ? " in each stage" : "");
    return 0;
}

static int make_layouts(struct making *making)
{
    const struct rfs_layout_rules *rules = making->rules;
    struct rfs_layout layout;

    for (size_t i = 0; i < rules->rules.n; i++) {
        const int rc = make_layout(making, &rules->rules.data[i], &layout);
        if (rc != 0)
            return rc;
        making->layout_of[i] = rfs_strategy_builder_layout(making->builder, &layout);
    }
    return 0;
}

static int like_source(struct making *making, const struct rfs_layout *source, uint32_t *id)
{
    struct rfs_layout layout;

    *id = making->like[source->id];
    if (*id != RFS_NO_ID)
        return 0;
    const int rc = make_like(making, source, &layout);
    if (rc != 0)
        return rc;
    if (layout.devices != making->devices)
        return FAIL(making, making->rules->like_line, NULL,
                    "it would have %u devices%s, but %s=%u asks for %u", layout.devices,
                    making->stages > 1 ? " in each stage" : "", making->use->ranks_option,
                    making->devices * making->stages, making->devices);
    making->like[source->id] = *id = rfs_strategy_builder_layout(making->builder, &layout);
    return 0;
}

static int place(struct making *making, uint32_t stage, uint32_t layout)
{
    return rfs_strategy_builder_place(making->builder, making->param, strlen(making->param), stage,
                                      layout, making->err);
}

/* Places a parameter of "like source" in the stages in which the source has it. */
static int place_in_stages(struct making *making, size_t i, uint32_t rule)
{
    const struct rfs_strategy *source = making->use->source;
    int rc = 0;

    for (uint32_t stage = rfs_strategy_next_stage(source, i, 0); rc == 0 && stage != RFS_NO_STAGE;
         stage = rfs_strategy_next_stage(source, i, stage + 1)) {
        uint32_t id = rule == NO_RULE ? RFS_NO_ID : making->layout_of[rule];
        if (rule == NO_RULE)
            rc = like_source(making, rfs_strategy_layout(source, i, stage), &id);
        if (rc == 0)
            rc = place(making, stage, id);
    }
    return rc;
}

/* Finds a number that the rules name. 0, -ENOENT if nobody knows it, or -errno. */
static int find_number(const struct making *making, const char *key, uint64_t *number)
{
    const struct rfs_layout_rules_use *use = making->use;

    return use->number != NULL ? use->number(use->ctx, key, number, making->err) : -ENOENT;
}

/* Checks, for the first parameter of a rule, that its cut leaves parts of the axis whole. */
static int check_unit(const struct making *making, const struct rule *rule)
{
    const struct device_axes *axes = &making->rules->axes.data[rule->axes];
    uint64_t pieces = 1, number = 0;
    char remedy[64];

    for (uint32_t k = 0; k < rule->n_cuts; k++)
        if (rule->axis[k] == rule->unit_axis)
            pieces *=
                axes->dev[rule->by[k]].extent > 0 ? axes->dev[rule->by[k]].extent : making->devices;
    if (pieces == 1)
        return 0;
    const int rc = find_number(making, rule->unit, &number);
    if (rc == -ENOENT)
        return FAIL(making, rule->line, "hf_config=config.json",
                    "the rule needs %s of the model's config.json", rule->unit);
    snprintf(remedy, sizeof remedy, "a number of pieces that divides %" PRIu64, number);
    return rc ? rc
           : number > 0 && number % pieces == 0
               ? 0
               : FAIL(making, rule->line, remedy,
                      "%s is %" PRIu64 ", and a cut of axis %d into %" PRIu64
                      " pieces would go through one",
                      rule->unit, number, rule->unit_axis, pieces);
}

/* Returns the number of the layer in a name: its first part that is a number; -1: none. */
static int64_t layer_of(const char *name)
{
    for (const char *at = name; at != NULL; at = strchr(at, '.')) {
        at += *at == '.';
        const size_t n = strspn(at, "0123456789");
        if (n > 0 && n < 10 && (at[n] == '.' || at[n] == '\0'))
            return strtol(at, NULL, 10);
    }
    return -1;
}

static const char *name_at(const struct rfs_layout_rules_use *use, size_t i)
{
    return use->source != NULL ? rfs_strategy_param(use->source, i) : use->names[i];
}

/* Counts the layers: by the config, or by the names if there is none. */
static int set_layers(struct making *making, size_t n)
{
    const struct rfs_layout_rules *rules = making->rules;
    int rc = making->stages > 1 && rules->stages_line > 0
                 ? find_number(making, LAYERS, &making->layers)
                 : 0;

    if (making->stages == 1 || rules->stages_line == 0)
        return 0;
    if (rc == 0)
        rc = find_number(making, NEXTN, &making->nextn);
    else if (rc == -ENOENT)
        for (size_t i = 0; i < n; i++) {
            const uint32_t rule = find_rule(rules, name_at(making->use, i));
            if (rule != NO_RULE && rules->rules.data[rule].stage & STAGE_LAYER)
                making->layers =
                    rfs_max_u64(making->layers, (uint64_t)(layer_of(name_at(making->use, i)) + 1));
        }
    if (rc != 0 && rc != -ENOENT)
        return rc;
    return making->layers % making->stages == 0
               ? 0
               : FAIL(making, rules->stages_line, "a number of stages that divides the layers",
                      "%" PRIu64 " layers cannot be divided evenly over %u stages", making->layers,
                      making->stages);
}

/* Places a parameter of a rule in the stages that have it. */
static int place_by_stage(const struct making *making, const struct rule *rule, uint32_t layout)
{
    const uint32_t last = making->stages - 1;
    const int64_t layer = rule->stage & STAGE_LAYER ? layer_of(making->param) : -1;
    uint64_t own = UINT64_MAX;

    if (rule->stage & STAGE_LAYER && last > 0) {
        if (layer < 0)
            return FAIL(making, rule->line, "\"stage all\" before its rule",
                        "its name has no number of a layer");
        if ((uint64_t)layer >= making->layers + making->nextn)
            return FAIL(making, rule->line, "the config.json that belongs to these tensors",
                        "it is of layer %" PRId64 ", and the model has %" PRIu64 " layers", layer,
                        making->layers);
        own = (uint64_t)layer < making->layers ? (uint64_t)layer / (making->layers / making->stages)
                                               : last;
    }
    for (uint32_t stage = 0; stage <= last; stage++) {
        const bool has = rule->stage & STAGE_ALL || (rule->stage & STAGE_FIRST && stage == 0) ||
                         (rule->stage & STAGE_LAST && stage == last) || stage == own || last == 0;
        const int rc =
            has ? rfs_strategy_builder_place(making->builder, making->param, strlen(making->param),
                                             stage, layout, making->err)
                : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int place_parameter(struct making *making, size_t i)
{
    const struct rfs_layout_rules *rules = making->rules;

    making->param = name_at(making->use, i);
    const uint32_t at = find_rule(rules, making->param);
    const struct rule *rule = at == NO_RULE ? NULL : &rules->rules.data[at];
    int rc = 0;
    if (rule != NULL && !making->taken[at] && rule->unit != NULL)
        rc = check_unit(making, rule);
    if (rule != NULL)
        making->taken[at] = true;
    if (rc != 0)
        return rc;
    if (rules->like_line > 0)
        return place_in_stages(making, i, at);
    if (rule == NULL)
        return FAIL(making, 0, "a last rule \"*: whole\"", "no rule matches it");
    return place_by_stage(making, rule, making->layout_of[at]);
}

/* ---- rules that no parameter takes ----------------------------------------------------------- */

/* Returns the N-th dot from the end of a text, or its beginning. */
static const char *tail_of(const char *text, size_t dots)
{
    const char *at = text + strlen(text);

    while (at > text && (at[-1] != '.' || dots-- > 1))
        at--;
    return at;
}

/* Returns the name whose end is most like that of a pattern; the first one if none is. */
static const char *nearest(const struct making *making, const char *pattern, size_t n)
{
    const char *star = strrchr(pattern, '*');
    const char *end = star != NULL && star[1] != '\0' ? star + 1 : pattern;
    const char *found = name_at(making->use, 0);
    size_t dots = 1;

    end += *end == '.';
    for (const char *c = end; *c; c++)
        dots += *c == '.';
    struct rfs_suggest suggest = rfs_suggest_begin(end, UINT_MAX);
    for (size_t i = 0; i < n; i++)
        if (rfs_suggest_offer(&suggest, tail_of(name_at(making->use, i), dots)))
            found = name_at(making->use, i);
    return found;
}

static bool is_cut(const struct rule *rule)
{
    return rule->n_cuts > 0 || rule->optimizer > 0;
}

/* Refuses ready rules that cut no parameter over a device axis. */
static int check_ready(const struct making *making)
{
    const struct rfs_layout_rules *rules = making->rules;

    for (size_t a = 0; a < rules->axes.n; a++)
        for (uint32_t by = 0; by < rules->axes.data[a].n; by++) {
            const char *name = rules->axes.data[a].dev[by].name;
            bool used = strcmp(name, "dp") == 0 || rules->axes.data[a].dev[by].extent == 1;
            for (size_t i = 0; i < rules->rules.n && !used; i++) {
                const struct rule *rule = &rules->rules.data[i];
                for (uint32_t k = 0; k < rule->n_cuts; k++)
                    used |= making->taken[i] && rule->axes == a && rule->by[k] == by;
            }
            if (!used)
                return FAIL(making, 0, "leave it out", "%s cuts no parameter of this checkpoint",
                            name);
        }
    return 0;
}

/*
 * Refuses rules that are for other names: no parameter takes any of them, or any that cuts. Else
 * logs those that none takes.
 */
static int check_unused(const struct making *making, size_t n_names, struct rfs_log *log)
{
    const struct rfs_layout_rules *rules = making->rules;
    const struct rule *first = NULL, *cut = NULL;
    bool taken = false, cuts = false;
    size_t n = 0;

    for (size_t i = rules->rules.n; i-- > 0;) {
        const struct rule *rule = &rules->rules.data[i];
        taken |= making->taken[i];
        cuts |= making->taken[i] && is_cut(rule);
        if (making->taken[i])
            continue;
        first = rule;
        cut = is_cut(rule) ? rule : cut;
        n++;
    }
    if (first != NULL && (!taken || (cut != NULL && !cuts))) {
        const struct rule *rule = cut != NULL ? cut : first;
        char remedy[160];
        snprintf(remedy, sizeof remedy, "rules for names such as '%.120s'",
                 nearest(making, rule->pattern, n_names));
        return FAIL(making, rule->line, remedy, "no parameter takes the rule '%s', nor another%s",
                    rule->pattern, taken ? " that cuts" : "");
    }
    if (n == 1)
        rfs_log(log, RFS_WARNING, "%s: line %u: no parameter takes the rule '%s'", rules->name,
                first->line, first->pattern);
    else if (n > 1)
        rfs_log(log, RFS_WARNING, "%s: line %u: no parameter takes the rule '%s' (and %zu more)",
                rules->name, first->line, first->pattern, n - 1);
    return 0;
}

static int prepare(struct making *making)
{
    const struct rfs_layout_rules *rules = making->rules;
    const size_t n = rules->rules.n;
    const size_t n_like = rules->like_line > 0 ? rfs_strategy_layouts(making->use->source) : 0;

    making->builder =
        rfs_strategy_builder_new(rules->name, &(struct rfs_strategy_facts){.by_rules = true});
    making->layout_of = calloc(n + 1, sizeof *making->layout_of);
    making->taken = calloc(n + 1, sizeof *making->taken);
    making->like = malloc((n_like + 1) * sizeof *making->like);
    if (making->builder == NULL || making->layout_of == NULL || making->taken == NULL ||
        making->like == NULL)
        return rfs_fail_memory(making->err);
    for (size_t i = 0; i < n_like; i++)
        making->like[i] = RFS_NO_ID;
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
        return rfs_lex_fail(rules->name, rules->like_line, NULL, "rules for all parameters", err,
                            "there is no source strategy to be like");
    if (n == 0)
        return rfs_lex_fail(rules->name, 0, NULL, NULL, err, "there is no tensor for its rules");
    rc = set_scale(&making) ?: prepare(&making) ?: make_layouts(&making) ?: set_layers(&making, n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = place_parameter(&making, i);
    making.param = NULL;
    if (rc == 0)
        rc = use->ready ? check_ready(&making) : check_unused(&making, n, log);
    return rc ? rc : rfs_strategy_builder_finish(making.builder, out, err);
}

size_t rfs_layout_rules_unmatched(const struct rfs_layout_rules *rules,
                                  const struct rfs_layout_rules_use *use, size_t most,
                                  const char **first)
{
    const size_t n = use->source != NULL ? rfs_strategy_count(use->source) : use->n;
    size_t unmatched = 0;

    *first = NULL;
    for (size_t i = 0; i < n && unmatched < most; i++)
        if (find_rule(rules, name_at(use, i)) == NO_RULE && unmatched++ == 0)
            *first = name_at(use, i);
    return unmatched;
}
