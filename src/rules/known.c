/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/known.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/text.h"
#include "rules/shipped.h"
#include "rules/statements.h"

struct rfs_known {
    struct rfs_arena memory; /* that of the patterns */
    RFS_VEC(const char *) patterns;
};

void rfs_known_free(struct rfs_known *known)
{
    if (!known)
        return;
    rfs_arena_free(&known->memory);
    free(known);
}

RFS_CLEANUP_OF(known_cleanup, struct rfs_known *, rfs_known_free)
RFS_CLEANUP_OF(rules_cleanup, struct rfs_rules *, rfs_rules_free)

/* Adds a pattern, which lies in the memory, unless it is there. */
static void add(struct rfs_known *known, const char *pattern)
{
    bool there = known->memory.failed;

    for (size_t i = 0; i < known->patterns.n && !there; i++)
        there = strcmp(known->patterns.data[i], pattern) == 0;
    if (!there)
        RFS_ADD(&known->memory, &known->patterns, pattern);
}

/* Adds a name with holes. */
static void add_name(struct rfs_known *known, const struct name_part *part)
{
    const char *text = "";

    for (; part && !known->memory.failed; part = part->next)
        text = rfs_arena_printf(&known->memory, "%s%.*s%s", text, (int)part->n, part->text,
                                part->hole ? "*" : "");
    add(known, text);
}

/* Adds the tensors that a side of a rule is made of. Rules nest no deeper than RULES_LEVELS. */
static void add_tensors(struct rfs_known *known, const struct node *node)
{
    for (; node; node = node->next) {
        if (node->kind != NODE_TENSOR)
            add_tensors(known, node->kids);
        for (const struct node *name = node; node->kind == NODE_TENSOR && name; name = name->also)
            add_name(known, name->name);
    }
}

/*
 * Adds what a statement drops of a training's names. What it drops on a condition is a part of the
 * model, which other models have as well.
 */
static void take_states(struct rfs_known *known, const struct statement *statement,
                        unsigned conditions)
{
    const bool drops =
        statement->kind == STATEMENT_DROP && statement->side == SIDE_LEFT && conditions == 0;

    for (const struct rfs_rules_word *word = drops ? statement->words : NULL; word;
         word = word->next)
        add(known, rfs_arena_text(&known->memory, word->text, strlen(word->text)));
}

/* Adds the tensors of HuggingFace that a statement is about. */
static void take_tensors(struct rfs_known *known, const struct statement *statement,
                         unsigned conditions)
{
    (void)conditions;
    if (statement->kind == STATEMENT_RULE)
        add_tensors(known, statement->right);
    else if ((statement->kind == STATEMENT_REPEAT || statement->kind == STATEMENT_COPY) &&
             statement->side == SIDE_RIGHT)
        add_name(known, statement->names[0]);
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

/* Takes a statement, which stands inside so many conditions. */
typedef void take_fn(struct rfs_known *known, const struct statement *statement,
                     unsigned conditions);

/* Takes all statements of rules. */
static void take_all(struct rfs_known *known, take_fn *take, const struct rfs_rules *rules)
{
    unsigned conditions = 0;

    for (size_t i = 0; i < rules->statements.n; i++) {
        const struct statement *statement = &rules->statements.data[i];
        conditions -= statement->kind == STATEMENT_END;
        take(known, statement, conditions);
        conditions += statement->kind == STATEMENT_IF;
    }
}

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
        if (is_for(rules, model_type))
            take_all(known, take, rules);
    }
    if (known->memory.failed)
        return rfs_fail_memory(err);
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

bool rfs_known_layer(const struct rfs_known *known, const char *name, struct rfs_known_tensor *out)
{
    for (size_t i = 0; known && i < known->patterns.n; i++) {
        const char *pattern = known->patterns.data[i];
        const size_t before = strcspn(pattern, "*");
        const size_t digits = pattern[before] && strncmp(name, pattern, before) == 0
                                  ? strspn(name + before, "0123456789")
                                  : 0;
        if (digits > 0 && digits < 10 &&
            rfs_glob_match(pattern + before + 1, name + before + digits)) {
            *out = (struct rfs_known_tensor){i, strtoull(name + before, NULL, 10)};
            return true;
        }
    }
    return false;
}

size_t rfs_known_kinds(const struct rfs_known *known)
{
    return known->patterns.n;
}

const char *rfs_known_kind(const struct rfs_known *known, size_t kind)
{
    return known->patterns.data[kind];
}

const char *rfs_known_example(const struct rfs_known *known)
{
    return known->patterns.data[0];
}
