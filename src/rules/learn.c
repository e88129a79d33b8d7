/* SPDX-License-Identifier: Apache-2.0 */
/* Statements that give names a value, and those that refuse a config. */
#include "rules/compile_internal.h"

int rfs_rules_check_model(struct compiling *c)
{
    const struct rfs_hf_value *model = rfs_hf_config_find(c->input->config, "model_type");
    char known[200] = "";
    size_t n = 0;

    for (const struct word *word = c->statement->words; word; word = word->next) {
        if (model && model->kind == RFS_HF_TEXT && strcmp(model->text, word->text) == 0)
            return 0;
        if (n < sizeof known)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n > 0 ? ", " : "",
                                  word->text);
    }
    return rfs_rules_fail(rfs_hf_config_name(c->input->config), 0, NULL,
                          "the rules for that model, or its own config.json", c->err,
                          "is for a model of type '%s', and the rules %s for %s",
                          model && model->kind == RFS_HF_TEXT ? model->text : "",
                          rfs_rules_name(c->rules), known);
}

static int learn(struct compiling *c, const struct known *known)
{
    if (rfs_rules_known(c, known->name))
        return CONVERT_FAIL(c, NULL, NULL, "'%s' is given twice", known->name);
    return rfs_intern_add(c->known_names, known->name, strlen(known->name)) != RFS_NO_ID &&
                   RFS_PUSH(&c->known, *known)
               ? 0
               : rfs_fail_memory(c->err);
}

int rfs_rules_learn_number(struct compiling *c)
{
    struct known known = {.kind = KNOWN_NUMBER, .name = c->statement->name};

    c->tied = false;
    const int rc = rfs_rules_number(c, c->statement->a, &known.value);
    known.tied = c->tied;
    return rc ? rc : learn(c, &known);
}

int rfs_rules_learn_index(struct compiling *c)
{
    struct known known = {.kind = KNOWN_INDEX, .name = c->statement->name};
    int rc = rfs_rules_number(c, c->statement->a, &known.from);

    if (rc == 0)
        rc = rfs_rules_number(c, c->statement->b, &known.to);
    if (rc == 0 && (known.from < 0 || known.to < known.from || known.to > INT32_MAX))
        return CONVERT_FAIL(c, NULL, "the config.json that belongs to the tensors",
                            "index '%s' would go from %lld to %lld", known.name,
                            (long long)known.from, (long long)known.to);
    return rc ? rc : learn(c, &known);
}

/* The words of an option, for a message. */
static void show_words(const struct word *words, char *out, size_t cap)
{
    size_t n = 0;

    for (; words && n < cap; words = words->next)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", n > 0 ? " or " : "", words->text);
}

/* The word that the user gives an option, or its first. */
int rfs_rules_learn_option(struct compiling *c)
{
    const struct statement *statement = c->statement;
    struct known known = {.kind = KNOWN_OPTION,
                          .name = statement->name,
                          .word = statement->words->text,
                          .words = statement->words};
    const size_t length = strlen(statement->name);

    for (const char *at = c->input->options; at && *at;) {
        const size_t n = strcspn(at, ":");
        if (n > length && at[length] == '=' && memcmp(at, statement->name, length) == 0) {
            const struct word *word = statement->words;
            const size_t given = n - length - 1;
            while (word &&
                   (strlen(word->text) != given || memcmp(word->text, at + length + 1, given) != 0))
                word = word->next;
            char words[200] = "";
            show_words(statement->words, words, sizeof words);
            if (!word)
                return rfs_fail_usage(c->err, words, "convert_options: '%s' cannot be '%.*s'",
                                      statement->name, (int)given, at + length + 1);
            known.word = word->text;
        }
        at += n + (at[n] == ':');
    }
    return learn(c, &known);
}

bool rfs_rules_is_given(const struct compiling *c, const char *option)
{
    const size_t length = strlen(option);

    for (const char *at = c->input->options; at && *at;) {
        const size_t n = strcspn(at, ":");
        if (n > length && at[length] == '=' && memcmp(at, option, length) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* Refuses options of the user that the rules do not have. */
int rfs_rules_check_options(const struct compiling *c)
{
    for (const char *at = c->input->options; at && *at;) {
        const size_t n = strcspn(at, ":");
        const char *equals = memchr(at, '=', n);
        const size_t length = equals ? (size_t)(equals - at) : n;
        const struct known *found = NULL;
        char names[300] = "";
        size_t used = 0;
        for (size_t i = 0; i < c->known.n; i++) {
            const struct known *known = &c->known.data[i];
            if (known->kind != KNOWN_OPTION)
                continue;
            if (strlen(known->name) == length && memcmp(known->name, at, length) == 0)
                found = known;
            if (used < sizeof names)
                used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                         used > 0 ? ", " : "", known->name);
        }
        if (!found)
            return rfs_fail_usage(
                c->err, "convert_options=NAME=WORD:NAME=WORD",
                "convert_options: '%.*s' is not an option of the rules %s; they have "
                "%s",
                (int)n, at, rfs_rules_name(c->rules), used > 0 ? names : "none");
        if (!equals) {
            show_words(found->words, names, sizeof names);
            return rfs_fail_usage(c->err, names, "convert_options: '%s' has no word after it",
                                  found->name);
        }
        at += n + (at[n] == ':');
    }
    return 0;
}

int rfs_rules_check_required(struct compiling *c)
{
    int64_t value;
    const int rc = rfs_rules_number(c, c->statement->a, &value);

    if (rc || value)
        return rc;
    return CONVERT_FAIL(c, NULL, "the rules for that model, or its own config.json",
                        "requires %s, and %s has another value", c->statement->text,
                        rfs_hf_config_name(c->input->config));
}
