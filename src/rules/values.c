/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, conditions and names, by the config and the indexes. */
#include "rules/compile_internal.h"

#include "base/glob.h"
#include "base/text.h"

/* The config lacks a key; "??" then gives the default. */
#define LACKING 1

int rfs_rules_room(struct compiling *c, uint64_t work)
{
    return *c->work <= RULES_MOST_WORK && work <= RULES_MOST_WORK - *c->work
               ? 0
               : RULES_FAIL(c, NULL, "indexes with fewer values",
                            "the rules take more than %" PRIu64 " steps of work", RULES_MOST_WORK);
}

int rfs_rules_work(struct compiling *c, uint64_t work)
{
    *c->work += work;
    return rfs_rules_room(c, 0);
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

    c->follows |= known && known->kind == KNOWN_FAILED;
    if (!known || known->kind == KNOWN_FAILED)
        return RULES_FAIL(c, NULL,
                          "let NAME = …, index NAME = …, or config.NAME for a key of the config",
                          "'%s' is not defined", number->name);
    if (known->kind == KNOWN_OPTION && !known->counts)
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

/*
 * Finds the list of a key. 0 with *list NULL if the config lacks it; c->err then has what a message
 * without a default says.
 */
static int find_list(struct compiling *c, const char *key, const struct rfs_hf_value **list)
{
    const char *config = rfs_hf_config_name(c->input->config);

    *list = rfs_hf_config_find(c->input->config, key);
    if (*list && (*list)->kind != RFS_HF_LIST)
        return RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
                          "'%s' of %s is not a list", key, config);
    if (*list)
        return 0;
    RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
               "needs '%s' of %s, which does not have it", key, config);
    return rfs_rules_work(c, 64);
}

/* Gives the place in brackets behind the key of a list or text of N. */
static int find_place(struct compiling *c, const struct number *number, size_t n, int64_t *at)
{
    const int wrong = evaluate(c, number->a, at);

    if (wrong)
        return wrong == LACKING ? -EINVAL : wrong;
    if (*at < 0 || (uint64_t)*at >= n)
        return RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
                          "'%s' of %s has %zu entries, and no entry %lld", number->name,
                          rfs_hf_config_name(c->input->config), n, (long long)*at);
    return 0;
}

/* Finds an entry of a list; *ENTRY is NULL if the config lacks the list. */
static int find_entry(struct compiling *c, const struct number *number,
                      const struct rfs_hf_value **entry)
{
    const struct rfs_hf_value *list;
    int64_t at;
    const int rc = find_list(c, number->name, &list);

    *entry = NULL;
    if (rc || !list)
        return rc;
    const int wrong = find_place(c, number, list->n, &at);
    if (wrong == 0)
        *entry = &list->list[at];
    return wrong;
}

static int of_entry(struct compiling *c, const struct number *number, int64_t *value)
{
    const struct rfs_hf_value *text = rfs_hf_config_find(c->input->config, number->name);

    if (text && text->kind == RFS_HF_TEXT) {
        const int wrong = find_place(c, number, text->n, value);
        if (wrong == 0)
            *value = (unsigned char)text->text[*value]; /* the code of a letter */
        return wrong;
    }
    const struct rfs_hf_value *entry;
    const int rc = find_entry(c, number, &entry);
    if (rc || !entry)
        return rc ? rc : LACKING;
    *value = entry->number;
    return entry->kind == RFS_HF_NUMBER
               ? 0
               : RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
                            "'%s' of %s has entries that are not whole numbers", number->name,
                            rfs_hf_config_name(c->input->config));
}

static int of_count(struct compiling *c, const struct number *number, int64_t *value)
{
    const struct rfs_hf_value *list;
    const int rc = find_list(c, number->name, &list);

    if (rc || !list)
        return rc ? rc : LACKING;
    *value = (int64_t)list->n;
    return 0;
}

static bool is_text(const struct rfs_hf_value *value, const char *word)
{
    return value && value->kind == RFS_HF_TEXT && strcmp(value->text, word) == 0;
}

/* Says whether a list has a word. */
static int of_has(struct compiling *c, const struct number *number, int64_t *value)
{
    const struct rfs_hf_value *list;
    int rc = find_list(c, number->a->name, &list);

    if (rc || !list)
        return rc ? rc : LACKING;
    rc = rfs_rules_work(c, list->n);
    *value = 0;
    for (size_t i = 0; i < list->n && !*value; i++)
        *value = is_text(&list->list[i], number->name);
    return rc;
}

/* Says whether a name of the source, or of its lost tensors, is like a pattern. */
static bool has_name_like(const struct rfs_rules_input *input, const char *pattern)
{
    for (size_t i = 0; i < input->n; i++)
        if (rfs_glob_match(pattern, input->tensors[i].name))
            return true;
    for (size_t i = 0; i < input->n_lost; i++)
        if (rfs_glob_match(pattern, input->lost[i]))
            return true;
    return false;
}

/* Both passes ask the same: the answer is kept. */
static int of_source(struct compiling *c, const struct number *number, int64_t *value)
{
    const struct rfs_rules_input *input = c->input;
    const int rc = rfs_rules_work(c, input->n + input->n_lost);

    *value = 0;
    for (size_t i = 0; i < c->sought.n; i++)
        if (c->sought.data[i].number == number) {
            *value = c->sought.data[i].found;
            return rc;
        }
    if (rc)
        return rc;
    *value = has_name_like(input, number->name);
    RULES_PUSH(c, &c->sought, (struct sought){number, *value != 0});
    return 0;
}

/* Says whether a list has a number. */
static int of_in(struct compiling *c, const struct number *number, int64_t *value)
{
    const struct rfs_hf_value *list;
    int64_t wanted;
    int rc = evaluate(c, number->a, &wanted) ?: find_list(c, number->b->name, &list);

    if (rc || !list)
        return rc ? rc : LACKING;
    rc = rfs_rules_work(c, list->n);
    *value = 0;
    for (size_t i = 0; i < list->n && !*value; i++)
        *value = list->list[i].kind == RFS_HF_NUMBER && list->list[i].number == wanted;
    return rc;
}

bool rfs_rules_has_word(const struct rfs_rules_word *words, const char *word)
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
        *value = is_text(found, number->name);
        return 0;
    }
    if (number->a->kind == NUMBER_ENTRY) {
        const struct rfs_hf_value *found;
        const int rc = find_entry(c, number->a, &found);
        *value = is_text(found, number->name);
        return rc ? rc : found ? 0 : LACKING;
    }
    const struct rfs_rules_known *known =
        number->a->kind == NUMBER_NAME ? rfs_rules_known(c, name) : NULL;
    if (!known || known->kind != KNOWN_OPTION || known->counts)
        return RULES_FAIL(c, NULL, "an option, or a key of the config",
                          "'is %s' follows something that has no words", number->name);
    if (!rfs_rules_has_word(known->words, number->name))
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
    case NUMBER_ENTRY:
        return of_entry(c, number, value);
    case NUMBER_COUNT:
        return of_count(c, number, value);
    case NUMBER_SOURCE:
        return of_source(c, number, value);
    case NUMBER_IS:
        return of_is(c, number, value);
    case NUMBER_HAS:
        return of_has(c, number, value);
    case NUMBER_IN:
        return of_in(c, number, value);
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

static int append_number(struct compiling *c, uint64_t value)
{
    char digits[RFS_TEXT_DIGITS];
    const char *text = rfs_text_digits(value, digits);

    return append(c, text, strlen(text));
}

int rfs_rules_spell(struct compiling *c, const struct name_part *name)
{
    int rc = 0;

    c->text.n = 0;
    for (; name && rc == 0; name = name->next) {
        rc = append(c, name->text, name->n);
        if (rc || !name->hole)
            continue;
        uint64_t value;
        rc = rfs_rules_count(c, name->hole, "the number in a name", 0, &value);
        rc = rc ?: append_number(c, value);
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
    uint64_t count = 1;
    int rc = 0;

    *turns = (struct turns){.n = 0};
    for (; name && rc == 0; name = name->next)
        rc = add_turns(c, name->hole, turns);
    for (uint32_t i = 0; rc == 0 && i < turns->n; i++) {
        struct rfs_rules_known *index = turns->index[i];
        if (__builtin_mul_overflow(count, rfs_rules_values(index), &count))
            count = UINT64_MAX;
    }
    return rc ?: rfs_rules_room(c, count);
}

bool rfs_rules_turns_next(struct turns *turns)
{
    if (!turns->begun) {
        turns->begun = true;
        for (uint32_t i = 0; i < turns->n; i++) {
            if (rfs_rules_values(turns->index[i]) == 0)
                return false;
            rfs_rules_bind(turns->index[i], 0);
        }
        return true;
    }
    for (uint32_t i = turns->n; i-- > 0;) {
        const uint64_t next = turns->index[i]->at + 1;
        const bool more = next < rfs_rules_values(turns->index[i]);
        rfs_rules_bind(turns->index[i], more ? next : 0);
        if (more)
            return true;
    }
    return false;
}

void rfs_rules_turns_end(struct turns *turns)
{
    for (uint32_t i = 0; i < turns->n; i++)
        turns->index[i]->bound = false;
}
