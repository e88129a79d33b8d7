/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/known.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/text.h"
#include "rules/shipped.h"
#include "rules/statements.h"

struct rfs_known {
    RFS_VEC(char *) patterns; /* each owned */
};

void rfs_known_free(struct rfs_known *known)
{
    if (!known)
        return;
    for (size_t i = 0; i < known->patterns.n; i++)
        free(known->patterns.data[i]);
    free(known->patterns.data);
    free(known);
}

RFS_CLEANUP_OF(known_cleanup, struct rfs_known *, rfs_known_free)
RFS_CLEANUP_OF(rules_cleanup, struct rfs_rules *, rfs_rules_free)

/* Adds a pattern, which it takes over, unless it is there. False when out of memory. */
static bool add(struct rfs_known *known, char *pattern)
{
    RFS_FREE char *own = pattern;

    if (!own)
        return false;
    for (size_t i = 0; i < known->patterns.n; i++)
        if (strcmp(known->patterns.data[i], own) == 0)
            return true;
    if (!RFS_PUSH(&known->patterns, own))
        return false;
    own = NULL;
    return true;
}

/* Adds a name with holes. */
static bool add_name(struct rfs_known *known, const struct name_part *part)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    if (!out)
        return false;
    for (; part; part = part->next)
        fprintf(out, "%.*s%s", (int)part->n, part->text, part->hole ? "*" : "");
    if (fclose(out) != 0) {
        free(text);
        return false;
    }
    return add(known, text);
}

/* Adds all names of a tensor. */
static bool add_names(struct rfs_known *known, const struct node *tensor)
{
    for (; tensor; tensor = tensor->also)
        if (!add_name(known, tensor->name))
            return false;
    return true;
}

/* Adds the tensors that a side of a rule is made of. Rules nest no deeper than RULES_LEVELS. */
static bool add_tensors(struct rfs_known *known, const struct node *node)
{
    for (; node; node = node->next)
        if (!(node->kind == NODE_TENSOR ? add_names(known, node) : add_tensors(known, node->kids)))
            return false;
    return true;
}

static bool add_words(struct rfs_known *known, const struct rfs_rules_word *word)
{
    for (; word; word = word->next)
        if (!add(known, strdup(word->text)))
            return false;
    return true;
}

/* Adds what a statement drops of a training's names. */
static bool take_states(struct rfs_known *known, const struct statement *statement)
{
    return statement->kind != STATEMENT_DROP || statement->side != SIDE_LEFT ||
           add_words(known, statement->words);
}

/* Adds the tensors of HuggingFace that a statement is about. */
static bool take_tensors(struct rfs_known *known, const struct statement *statement)
{
    switch (statement->kind) {
    case STATEMENT_RULE:
        return add_tensors(known, statement->right);
    case STATEMENT_REPEAT:
    case STATEMENT_COPY:
        return statement->side != SIDE_RIGHT || add_name(known, statement->names[0]);
    default:
        return true;
    }
}

/* Returns whether rules are for a type of models; NULL is any. */
static bool is_for(const struct rfs_rules *rules, const char *model_type)
{
    bool any = model_type == NULL;

    for (size_t i = 0; i < rules->statements.n && !any; i++)
        if (rules->statements.data[i].kind == STATEMENT_MODELS)
            for (const struct rfs_rules_word *word = rules->statements.data[i].words; word;
                 word = word->next)
                any |= strcmp(word->text, model_type) == 0;
    return any;
}

typedef bool take_fn(struct rfs_known *known, const struct statement *statement);

/* Goes through the shipped rules of a type of models. Files that others include are skipped. */
static int find(const char *model_type, take_fn *take, struct rfs_known **out,
                struct rfs_error *err)
{
    RFS_CLEANUP(known_cleanup) struct rfs_known *known = calloc(1, sizeof *known);

    *out = NULL;
    if (!known)
        return rfs_fail_memory(err);
    for (const struct rfs_rules_file *file = rfs_rules_shipped; file->name; file++) {
        RFS_CLEANUP(rules_cleanup) struct rfs_rules *rules = NULL;
        RFS_FREE char *name = strndup(file->name, strcspn(file->name, "."));
        if (!name)
            return rfs_fail_memory(err);
        if (strncmp(name, "common", strlen("common")) == 0)
            continue;
        const int rc = rfs_rules_named(name, &rules, err);
        if (rc)
            return rc;
        if (strcmp(rfs_rules_side(rules, SIDE_RIGHT), "huggingface") != 0)
            continue; /* adapters, whose rules drop weights */
        for (size_t i = 0; i < rules->statements.n && is_for(rules, model_type); i++)
            if (!take(known, &rules->statements.data[i]))
                return rfs_fail_memory(err);
    }
    if (known->patterns.n > 0)
        *out = RFS_STEAL(known);
    return 0;
}

int rfs_known_states(struct rfs_known **out, struct rfs_error *err)
{
    return find(NULL, take_states, out, err);
}

int rfs_known_tensors(const char *model_type, struct rfs_known **out, struct rfs_error *err)
{
    return find(model_type, take_tensors, out, err);
}

bool rfs_known_has(const struct rfs_known *known, const char *name)
{
    for (size_t i = 0; known && i < known->patterns.n; i++)
        if (rfs_glob_match(known->patterns.data[i], name))
            return true;
    return false;
}

uint64_t rfs_known_number(const struct rfs_known *known, const char *name)
{
    for (size_t i = 0; known && i < known->patterns.n; i++) {
        const char *pattern = known->patterns.data[i];
        const size_t before = strcspn(pattern, "*");
        const size_t digits = pattern[before] && strncmp(name, pattern, before) == 0
                                  ? strspn(name + before, "0123456789")
                                  : 0;
        if (digits > 0 && digits < 10 &&
            rfs_glob_match(pattern + before + 1, name + before + digits))
            return strtoull(name + before, NULL, 10);
    }
    return RFS_KNOWN_NO_NUMBER;
}

const char *rfs_known_example(const struct rfs_known *known)
{
    return known->patterns.data[0];
}
