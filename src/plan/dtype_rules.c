/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     RULES    RULE [ ; RULE ] …           spaces around a rule and around its = are dropped
 *     RULE     PATTERN = TO | TO           the one without a pattern is for all that no pattern is like
 *     TO       float16 | bfloat16 | float32 | float64 | keep          in any case; or F16, BF16, F32, F64
 *
 * PATTERN is as base/glob.h says, and may hold a = itself: the last one counts. Of several patterns
 * that a name is like, the first counts.
 */
#include "plan/dtype_rules.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/vec.h"

#include <strings.h>

#define REMEDY "dtype=bfloat16, or dtype=bfloat16;*.norm.*=float32;lm_head.*=keep"
#define KEEP RFS_DTYPE_COUNT

struct rule {
    const char *pattern; /* in text */
    enum rfs_dtype to;   /* or KEEP */
};

struct rfs_dtype_rules {
    char *text; /* owned; cut into rules */
    RFS_VEC(struct rule) rules;
    bool has_other; /* a rule without a pattern was there: */
    enum rfs_dtype other;
};

void rfs_dtype_rules_free(struct rfs_dtype_rules *rules)
{
    if (!rules)
        return;
    free(rules->rules.data);
    free(rules->text);
    free(rules);
}

RFS_CLEANUP_OF(free_rules, struct rfs_dtype_rules *, rfs_dtype_rules_free)

/* Without the spaces around it. */
static char *trim(char *text)
{
    size_t n;

    while (*text == ' ')
        text++;
    for (n = strlen(text); n > 0 && text[n - 1] == ' '; n--)
        text[n - 1] = '\0';
    return text;
}

static bool parse_target(const char *text, enum rfs_dtype *to)
{
    if (strcasecmp(text, "keep") == 0) {
        *to = KEEP;
        return true;
    }
    for (unsigned d = 0; d < RFS_DTYPE_COUNT; d++) {
        *to = (enum rfs_dtype)d;
        if (rfs_dtype_is_float_target(*to) && (strcasecmp(text, rfs_dtype_name(*to)) == 0 ||
                                               strcasecmp(text, rfs_dtype_safetensors(*to)) == 0))
            return true;
    }
    return false;
}

static int add_rule(struct rfs_dtype_rules *rules, char *text, struct rfs_error *err)
{
    char *equals = strrchr(text, '=');
    struct rule rule = {.pattern = NULL};

    if (equals) {
        *equals = '\0';
        rule.pattern = trim(text);
    }
    const char *to = trim(equals ? equals + 1 : text);
    if (!parse_target(to, &rule.to))
        return rfs_fail_usage(
            err, REMEDY, "option dtype: '%s' is not float16, bfloat16, float32, float64 or keep",
            to);
    if (rule.pattern)
        return !*rule.pattern
                   ? rfs_fail_usage(err, REMEDY, "option dtype: a rule has no pattern before its =")
               : RFS_PUSH(&rules->rules, rule) ? 0
                                               : rfs_fail_memory(err);
    if (rules->has_other)
        return rfs_fail_usage(err, REMEDY, "option dtype: two rules are without a pattern");
    rules->has_other = true;
    rules->other = rule.to;
    return 0;
}

int rfs_dtype_rules_parse(const char *text, struct rfs_dtype_rules **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_rules) struct rfs_dtype_rules *rules = calloc(1, sizeof *rules);

    *out = NULL;
    if (!rules || !(rules->text = strdup(text)))
        return rfs_fail_memory(err);
    for (char *rest = rules->text; rest;) {
        char *rule = rest;
        rest = strchr(rule, ';');
        if (rest)
            *rest++ = '\0';
        const int rc = add_rule(rules, trim(rule), err);
        if (rc)
            return rc;
    }
    *out = RFS_STEAL(rules);
    return 0;
}

enum rfs_dtype rfs_dtype_rules_find(const struct rfs_dtype_rules *rules, const char *name,
                                    enum rfs_dtype from)
{
    enum rfs_dtype to = rules->has_other ? rules->other : KEEP;

    for (size_t i = 0; i < rules->rules.n; i++)
        if (rfs_glob_match(rules->rules.data[i].pattern, name)) {
            to = rules->rules.data[i].to;
            break;
        }
    return to == KEEP ? from : to;
}
