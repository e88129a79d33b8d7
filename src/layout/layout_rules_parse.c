/* SPDX-License-Identifier: Apache-2.0 */
/* From the text of rules to rules; rules.h has the grammar. */
#include "base/cleanup.h"
#include "base/glob.h"
#include "layout/layout_rules_internal.h"

#define REMEDY_RULE "a line such as \"*.weight: axis 0 over tp\", or \"*: whole\""
#define REMEDY_AXES "a line such as \"axes dp=2 tp=4\""
#define REMEDY_LIKE "\"like source\", or \"like source with dp 8 -> 6\""

/* One line of the text. */
struct parser {
    struct rfs_layout_rules *rules;
    struct rfs_error *err;
    uint32_t line;
    const char *at;
    const char *end;
};

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

int rfs_layout_rules_fail(const struct rfs_layout_rules *rules, uint32_t line, const char *param,
                          const char *remedy, struct rfs_error *err, const char *fmt, ...)
{
    char place[1024];
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (line > 0)
        snprintf(place, sizeof place, "%s: line %u", rules->name, line);
    else
        snprintf(place, sizeof place, "%s", rules->name);
    return rfs_fail(err, -EINVAL, RFS_OF(place, param), remedy, "%s", text);
}

#define FAIL(p, remedy, ...)                                                                       \
    rfs_layout_rules_fail((p)->rules, (p)->line, NULL, remedy, (p)->err, __VA_ARGS__)

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(struct parser *p)
{
    while (p->at < p->end && is_blank(*p->at))
        p->at++;
}

/* The next text, for a message that something else was expected. */
static struct shown next(struct parser *p)
{
    skip_blanks(p);
    return p->at < p->end ? show(p->at, (size_t)(p->end - p->at)) : show("the end of the line", 19);
}

/* The word that is next, without taking it. */
static size_t peek_word(struct parser *p)
{
    size_t n = 0;

    skip_blanks(p);
    while (p->at + n < p->end && is_word(p->at[n]))
        n++;
    return n;
}

static bool take(struct parser *p, const char *text)
{
    const size_t n = strlen(text);

    skip_blanks(p);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0)
        return false;
    p->at += n;
    return true;
}

static bool take_word(struct parser *p, const char *word)
{
    const size_t n = peek_word(p);

    return n == strlen(word) && take(p, word);
}

/* A number from 0 to RFS_MAX_DEVICES. */
static bool take_number(struct parser *p, uint32_t *number)
{
    const size_t n = peek_word(p);

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

static bool at_end(struct parser *p)
{
    skip_blanks(p);
    return p->at == p->end;
}

static bool is_reserved(const char *word, size_t n)
{
    static const char *const words[] = {"and",  "axes",      "axis", "like",
                                        "over", "optimizer", "with", "whole"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0)
            return true;
    return false;
}

/* Position of the device axis of that name, or -1. */
static int find_axis(const struct rfs_layout_rules *rules, const char *name, size_t n)
{
    for (uint32_t i = 0; i < rules->n_dev; i++)
        if (strlen(rules->dev[i].name) == n && memcmp(rules->dev[i].name, name, n) == 0)
            return (int)i;
    return -1;
}

static int parse_device_axis(struct parser *p, uint64_t *devices)
{
    struct rfs_layout_rules *rules = p->rules;
    const size_t n = peek_word(p);
    const char *name = p->at;
    uint32_t extent;

    if (n == 0 || is_digit(*name) || is_reserved(name, n))
        return FAIL(p, REMEDY_AXES, "'%s' is not the name of a device axis", next(p).text);
    if (n >= RULES_AXIS_NAME)
        return FAIL(p, NULL, "the name of a device axis has more than %d characters",
                    RULES_AXIS_NAME - 1);
    if (find_axis(rules, name, n) >= 0)
        return FAIL(p, NULL, "there are two device axes '%s'", show(name, n).text);
    if (rules->n_dev == RFS_MAX_DEVICE_AXES)
        return FAIL(p, NULL, "there are more than %d device axes", RFS_MAX_DEVICE_AXES);
    p->at += n;
    if (!take(p, "=") || !take_number(p, &extent) || extent == 0)
        return FAIL(p, REMEDY_AXES, "device axis '%s' has no number of devices",
                    show(name, n).text);
    *devices *= extent;
    if (*devices > RFS_MAX_DEVICES)
        return FAIL(p, NULL, "the device axes have more than %u devices", RFS_MAX_DEVICES);
    memcpy(rules->dev[rules->n_dev].name, name, n);
    rules->dev[rules->n_dev++].extent = extent;
    return 0;
}

static int parse_axes(struct parser *p)
{
    struct rfs_layout_rules *rules = p->rules;
    uint64_t devices = 1;
    int rc = 0;

    if (rules->axes_line > 0)
        return FAIL(p, NULL, "the device axes are given already, in line %u", rules->axes_line);
    if (rules->rules.n > 0)
        return FAIL(p, NULL, "the device axes must be given before the first rule");
    rules->axes_line = p->line;
    memset(rules->dev, 0, sizeof rules->dev);
    rules->n_dev = 0;
    if (at_end(p))
        return FAIL(p, REMEDY_AXES, "no device axis is named");
    while (rc == 0 && !at_end(p))
        rc = parse_device_axis(p, &devices);
    return rc;
}

static int parse_like(struct parser *p)
{
    struct rfs_layout_rules *rules = p->rules;

    if (rules->like_line > 0)
        return FAIL(p, NULL, "\"like source\" stands already in line %u", rules->like_line);
    rules->like_line = p->line;
    if (!take_word(p, "source"))
        return FAIL(p, REMEDY_LIKE, "'source' must follow 'like', not '%s'", next(p).text);
    if (at_end(p))
        return 0;
    if (!take_word(p, "with") || !take_word(p, "dp") || !take_number(p, &rules->from) ||
        !take(p, "->") || !take_number(p, &rules->to) || !at_end(p))
        return FAIL(p, REMEDY_LIKE, "'%s' does not belong here", next(p).text);
    if (rules->from == 0 || rules->to == 0)
        return FAIL(p, REMEDY_LIKE, "a device axis of 0");
    return 0;
}

static int parse_tensor_axis(struct parser *p, const struct rule *rule, int8_t *axis)
{
    const bool negative = take(p, "-");
    uint32_t number;

    if (!take_number(p, &number) || (negative && number == 0))
        return FAIL(p, REMEDY_RULE, "'axis' needs the number of an axis, not '%s'", next(p).text);
    if (number > RFS_GRID_DIMS - (negative ? 0 : 1))
        return FAIL(p, NULL, "axis %s%u is beyond the %d axes that a tensor may have",
                    negative ? "-" : "", number, RFS_GRID_DIMS);
    *axis = (int8_t)(negative ? -(int)number : (int)number);
    for (uint32_t k = 0; k < rule->n_cuts; k++)
        if (rule->axis[k] == *axis)
            return FAIL(p, "the device axes of both in one: axis 0 over dp tp",
                        "axis %d is cut twice", *axis);
    return 0;
}

/* The device axes after "over". */
static int parse_over(struct parser *p, struct rule *rule, int8_t axis)
{
    size_t n = peek_word(p);

    if (n == 0 || is_reserved(p->at, n))
        return FAIL(p, REMEDY_RULE, "'over' needs the name of a device axis, not '%s'",
                    next(p).text);
    for (; n > 0 && !is_reserved(p->at, n); n = peek_word(p)) {
        const int by = find_axis(p->rules, p->at, n);
        const struct shown name = show(p->at, n);
        if (by < 0)
            return FAIL(p,
                        p->rules->axes_line > 0 ? "one of those in the line of axes" : REMEDY_AXES,
                        "there is no device axis '%s'", name.text);
        for (uint32_t k = 0; k < rule->n_cuts; k++)
            if (rule->by[k] == by)
                return FAIL(p, NULL, "device axis '%s' is used twice", name.text);
        rule->axis[rule->n_cuts] = axis;
        rule->by[rule->n_cuts++] = (uint8_t)by;
        p->at += n;
    }
    return 0;
}

static int parse_optimizer(struct parser *p, struct rule *rule)
{
    if (rule->optimizer != 0)
        return FAIL(p, NULL, "there are two optimizer shards");
    if (peek_word(p) == 0 || !is_digit(*p->at)) {
        rule->optimizer = RULES_REST;
        return 0;
    }
    const struct shown given = next(p);
    if (take_number(p, &rule->optimizer) && rule->optimizer > 0)
        return 0;
    return FAIL(p, NULL, "'%s' is not a number of pieces", given.text);
}

static int parse_cut(struct parser *p, struct rule *rule)
{
    int8_t axis = 0;
    int rc;

    if (take_word(p, "optimizer"))
        return parse_optimizer(p, rule);
    if (!take_word(p, "axis"))
        return FAIL(p, REMEDY_RULE, "'axis', 'optimizer' or 'whole' must stand here, not '%s'",
                    next(p).text);
    rc = parse_tensor_axis(p, rule, &axis);
    if (rc == 0 && !take_word(p, "over"))
        return FAIL(p, REMEDY_RULE, "'over' must follow the number of the axis, not '%s'",
                    next(p).text);
    return rc == 0 ? parse_over(p, rule, axis) : rc;
}

static int parse_cuts(struct parser *p, struct rule *rule)
{
    int rc = 0;

    if (!take_word(p, "whole")) {
        do
            rc = parse_cut(p, rule);
        while (rc == 0 && (take(p, ",") || take_word(p, "and")));
        if (rc != 0)
            return rc;
    }
    return at_end(p) ? 0 : FAIL(p, REMEDY_RULE, "'%s' does not belong here", next(p).text);
}

static int keep(struct parser *p, const struct rule *rule)
{
    struct rfs_layout_rules *rules = p->rules;

    if (rules->rules.n >= UINT32_MAX || !RFS_PUSH(&rules->rules, *rule))
        return rfs_fail_memory(p->err);
    if (!rule->literal)
        return 0;
    const uint32_t id = rfs_intern_add(rules->literals, rule->pattern, strlen(rule->pattern));
    if (id == RFS_NO_ID)
        return rfs_fail_memory(p->err);
    if (id < rules->literal_at.n)
        return 0;
    return RFS_PUSH(&rules->literal_at, (uint32_t)rules->rules.n - 1) ? 0 : rfs_fail_memory(p->err);
}

/* The cuts never have a colon, so the last of the line ends the pattern. */
static int parse_rule(struct parser *p, const char *colon)
{
    struct rule rule = {.line = p->line};
    const char *end = colon;
    int rc;

    skip_blanks(p);
    while (end > p->at && is_blank(end[-1]))
        end--;
    if (end == p->at)
        return FAIL(p, REMEDY_RULE, "no parameter's name stands before ':'");
    rule.pattern = rfs_arena_text(&p->rules->arena, p->at, (size_t)(end - p->at));
    if (rule.pattern == NULL)
        return rfs_fail_memory(p->err);
    rule.literal = !rfs_glob_is_pattern(rule.pattern);
    p->at = colon + 1;
    rc = parse_cuts(p, &rule);
    return rc == 0 ? keep(p, &rule) : rc;
}

static int check_characters(struct parser *p)
{
    for (const char *c = p->at; c < p->end; c++)
        if ((unsigned char)*c < 0x20 && !is_blank(*c))
            return FAIL(p, "rules in plain text", "a control character, 0x%02x", (unsigned char)*c);
    return 0;
}

static int parse_line(struct parser *p)
{
    const char *colon;
    int rc;

    for (const char *c = p->at; c < p->end; c++)
        if (*c == '#' && (c == p->at || is_blank(c[-1]))) {
            p->end = c;
            break;
        }
    rc = check_characters(p);
    if (rc != 0 || at_end(p))
        return rc;
    colon = memrchr(p->at, ':', (size_t)(p->end - p->at));
    if (colon != NULL)
        return parse_rule(p, colon);
    if (take_word(p, "axes"))
        return parse_axes(p);
    if (take_word(p, "like"))
        return parse_like(p);
    return FAIL(p, REMEDY_RULE, "'%s' is not a rule", next(p).text);
}

static int parse_lines(struct rfs_layout_rules *rules, const char *text, size_t size,
                       struct rfs_error *err)
{
    struct parser p = {.rules = rules, .err = err, .line = 1, .at = text};
    const char *end = text + size;
    int rc = 0;

    while (rc == 0 && p.at < end) {
        const char *newline = memchr(p.at, '\n', (size_t)(end - p.at));
        p.end = newline != NULL ? newline : end;
        rc = parse_line(&p);
        p.at = newline != NULL ? newline + 1 : end;
        p.line++;
    }
    if (rc == 0 && rules->rules.n == 0 && rules->like_line == 0)
        return rfs_layout_rules_fail(rules, 0, NULL, REMEDY_RULE, err, "there are no rules in it");
    return rc;
}

int rfs_layout_rules_parse(const char *name, const char *text, size_t size,
                           struct rfs_layout_rules **out, struct rfs_error *err)
{
    struct rfs_layout_rules *rules = calloc(1, sizeof *rules);
    int rc = 0;

    *out = rules;
    if (rules == NULL)
        return rfs_fail_memory(err);
    rules->name = strdup(name);
    rules->literals = rfs_intern_new();
    rules->n_dev = 1;
    strcpy(rules->dev[0].name, RULES_ALL);
    if (rules->name == NULL || rules->literals == NULL)
        rc = rfs_fail_memory(err);
    if (rc == 0)
        rc = parse_lines(rules, text, size, err);
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
    free(rules->rules.data);
    free(rules->literal_at.data);
    rfs_intern_free(rules->literals);
    rfs_arena_free(&rules->arena);
    free(rules->name);
    free(rules);
}
