/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, conditions and names, by the config and the indexes. */
#include "rules/compile_internal.h"

#include "base/text.h"

/* The config lacks a key; "??" then gives the default. */
#define LACKING 1

int rfs_rules_work(struct compiling *c, uint64_t work)
{
    *c->work += work;
    return *c->work <= RULES_MOST_WORK
               ? 0
               : RULES_FAIL(c, NULL, "indexes with fewer values",
                            "the rules take more than %" PRIu64 " steps of work", RULES_MOST_WORK);
}

struct rfs_rules_known *rfs_rules_known(struct compiling *c, const char *name)
{
    const uint32_t id = rfs_intern_find(c->known_names, name, strlen(name));

    return id < c->known.n ? &c->known.data[id] : NULL;
}

static int evaluate(struct compiling *c, const struct number *number, int64_t *value);

static int of_name(struct compiling *c, const struct number *number, int64_t *value)
{
    const struct rfs_rules_known *known = rfs_rules_known(c, number->name);

    if (!known)
        return RULES_FAIL(c, NULL,
                          "let NAME = …, index NAME = …, or config.NAME for a key of the config",
                          "'%s' is not defined", number->name);
    if (known->kind == KNOWN_OPTION)
        return RULES_FAIL(c, NULL, "NAME is WORD", "option '%s' has a word, not a number",
                          number->name);
    if (known->kind == KNOWN_INDEX && !known->bound)
        return RULES_FAIL(c, NULL, "stack(INDEX, …), or a name to the left with that index",
                          "index '%s' has no value here", number->name);
    *value = known->value;
    c->tied |= known->tied;
    return 0;
}

/* Says whether a key tells that the embeddings are the output's weights, too. */
static bool ties(const char *key)
{
    return rfs_text_ends(key, "tie_word_embeddings");
}

static int of_config(struct compiling *c, const struct number *number, int64_t *value)
{
    const char *config = rfs_hf_config_name(c->input->config);
    const struct rfs_hf_value *found = rfs_hf_config_find(c->input->config, number->name);

    if (!found && rfs_rules_work(c, 64)) /* for the message that a default makes needless */
        return -EINVAL;
    if (!found) {
        RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
                   "needs '%s' of %s, which does not have it", number->name, config);
        return LACKING;
    }
    if (found->kind != RFS_HF_NUMBER)
        return RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
                          "'%s' of %s is not a whole number", number->name, config);
    *value = found->number;
    c->tied |= *value != 0 && ties(number->name);
    return 0;
}

static bool has_word(const struct rfs_rules_word *words, const char *word)
{
    for (; words; words = words->next)
        if (strcmp(words->text, word) == 0)
            return true;
    return false;
}

/* Says whether an option, or a text of the config, is a word. */
static int of_is(struct compiling *c, const struct number *number, int64_t *value)
{
    const char *name = number->a->name;

    *value = 0;
    if (number->a->kind == NUMBER_CONFIG) {
        const struct rfs_hf_value *found = rfs_hf_config_find(c->input->config, name);
        *value = found && found->kind == RFS_HF_TEXT && strcmp(found->text, number->name) == 0;
        return 0;
    }
    const struct rfs_rules_known *known =
        number->a->kind == NUMBER_NAME ? rfs_rules_known(c, name) : NULL;
    if (!known || known->kind != KNOWN_OPTION)
        return RULES_FAIL(c, NULL, "an option, or a key of the config",
                          "'is %s' follows something that has no words", number->name);
    if (!has_word(known->words, number->name))
        return RULES_FAIL(c, NULL, NULL, "option '%s' is never '%s'", name, number->name);
    *value = strcmp(known->word, number->name) == 0;
    return 0;
}

static int overflow(struct compiling *c)
{
    return RULES_FAIL(c, NULL, NULL, "a number has more than 64 bits");
}

static int divide(struct compiling *c, enum number_kind kind, int64_t a, int64_t b, int64_t *value)
{
    if (b == 0 || (a == INT64_MIN && b == -1))
        return RULES_FAIL(c, NULL, NULL, "%lld cannot be divided by %lld", (long long)a,
                          (long long)b);
    *value = a % b;
    if (kind == NUMBER_REMAINDER)
        return 0;
    if (*value != 0)
        return RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
                          "%lld is not divisible by %lld", (long long)a, (long long)b);
    *value = a / b;
    return 0;
}

static int of_two(struct compiling *c, const struct number *number, int64_t *value)
{
    int64_t a;
    int64_t b;
    int rc = evaluate(c, number->a, &a);

    if (rc == 0 && ((number->kind == NUMBER_AND && !a) || (number->kind == NUMBER_OR && a))) {
        *value = a != 0;
        return 0;
    }
    if (rc == 0)
        rc = evaluate(c, number->b, &b);
    if (rc)
        return rc;
    switch (number->kind) {
    case NUMBER_ADD:
        return __builtin_add_overflow(a, b, value) ? overflow(c) : 0;
    case NUMBER_SUBTRACT:
        return __builtin_sub_overflow(a, b, value) ? overflow(c) : 0;
    case NUMBER_MULTIPLY:
        return __builtin_mul_overflow(a, b, value) ? overflow(c) : 0;
    case NUMBER_DIVIDE:
    case NUMBER_REMAINDER:
        return divide(c, number->kind, a, b, value);
    default: /* of and, or the second one decides */
        *value = number->kind == NUMBER_EQUAL      ? a == b
                 : number->kind == NUMBER_UNEQUAL  ? a != b
                 : number->kind == NUMBER_LESS     ? a < b
                 : number->kind == NUMBER_AT_MOST  ? a <= b
                 : number->kind == NUMBER_MORE     ? a > b
                 : number->kind == NUMBER_AT_LEAST ? a >= b
                                                   : b != 0;
        return 0;
    }
}

static int evaluate(struct compiling *c, const struct number *number, int64_t *value)
{
    int rc = rfs_rules_work(c, 1);

    if (rc)
        return rc;
    switch (number->kind) {
    case NUMBER_INTEGER:
        *value = number->value;
        return 0;
    case NUMBER_NAME:
        return of_name(c, number, value);
    case NUMBER_CONFIG:
        return of_config(c, number, value);
    case NUMBER_IS:
        return of_is(c, number, value);
    case NUMBER_NEGATIVE:
        rc = evaluate(c, number->a, value);
        return rc ? rc : __builtin_sub_overflow(0, *value, value) ? overflow(c) : 0;
    case NUMBER_NOT:
        rc = evaluate(c, number->a, value);
        *value = rc == 0 && *value == 0;
        return rc;
    case NUMBER_DEFAULT:
        rc = evaluate(c, number->a, value);
        return rc == LACKING ? evaluate(c, number->b, value) : rc;
    default:
        return of_two(c, number, value);
    }
}

int rfs_rules_number(struct compiling *c, const struct number *number, int64_t *value)
{
    *value = 0;
    const int rc = evaluate(c, number, value);

    return rc == LACKING ? -EINVAL : rc;
}

int rfs_rules_count(struct compiling *c, const struct number *number, const char *name,
                    int64_t least, uint64_t *value)
{
    int64_t of = 0;
    const int rc = rfs_rules_number(c, number, &of);

    if (!rc && of < least)
        return RULES_FAIL(c, NULL, NULL, "%s is %lld, less than %lld", name, (long long)of,
                          (long long)least);
    *value = (uint64_t)of;
    return rc;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int append(struct compiling *c, const char *text, size_t n)
{
    const int rc = rfs_rules_work(c, 1 + n / 12);

    if (rc)
        return rc;
    if (!RFS_RESERVE(&c->text, n + 1))
        return rfs_fail_memory(c->err);
    memcpy(c->text.data + c->text.n, text, n);
    c->text.n += n;
    c->text.data[c->text.n] = '\0';
    return 0;
}

int rfs_rules_spell(struct compiling *c, const struct name_part *name)
{
    char digits[24];
    int rc = 0;

    c->text.n = 0;
    for (; name && rc == 0; name = name->next) {
        rc = append(c, name->text, name->n);
        if (rc || !name->hole)
            continue;
        uint64_t value;
        rc = rfs_rules_count(c, name->hole, "the number in a name", 0, &value);
        if (rc == 0)
            rc = append(c, digits,
                        (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)value));
    }
    return rc;
}

/* ---- the values of indexes ------------------------------------------------------------------- */

static int add_turns(struct compiling *c, const struct number *number, struct turns *turns)
{
    if (!number)
        return 0;
    struct rfs_rules_known *known =
        number->kind == NUMBER_NAME ? rfs_rules_known(c, number->name) : NULL;
    if (known && known->kind == KNOWN_INDEX) {
        for (uint32_t i = 0; i < turns->n; i++)
            if (turns->index[i] == known)
                return 0;
        if (turns->n == sizeof turns->index / sizeof *turns->index)
            return RULES_FAIL(c, NULL, NULL, "a name has more than 4 indexes");
        turns->index[turns->n++] = known;
    }
    if (number->kind == NUMBER_NAME)
        return 0;
    return add_turns(c, number->a, turns) ?: add_turns(c, number->b, turns);
}

int rfs_rules_turns_begin(struct compiling *c, const struct name_part *name, struct turns *turns)
{
    int rc = 0;

    *turns = (struct turns){.n = 0};
    for (; name && rc == 0; name = name->next)
        rc = add_turns(c, name->hole, turns);
    for (uint32_t i = 0; rc == 0 && i < turns->n; i++)
        turns->index[i]->value = turns->index[i]->from;
    return rc;
}

bool rfs_rules_turns_next(struct turns *turns)
{
    if (!turns->begun) {
        turns->begun = true;
        for (uint32_t i = 0; i < turns->n; i++) {
            turns->index[i]->bound = true;
            if (turns->index[i]->from >= turns->index[i]->to)
                return false;
        }
        return true;
    }
    for (uint32_t i = turns->n; i-- > 0;) {
        if (++turns->index[i]->value < turns->index[i]->to)
            return true;
        turns->index[i]->value = turns->index[i]->from;
    }
    return false;
}

void rfs_rules_turns_end(struct turns *turns)
{
    for (uint32_t i = 0; i < turns->n; i++)
        turns->index[i]->bound = false;
}
