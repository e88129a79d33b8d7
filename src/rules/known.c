/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/known.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/text.h"
#include "rules/shipped.h"
#include "rules/statements.h"

#define LAYERS_MOST 4096
#define LAYERS_DISTINCT 16 /* that are compared */
#define WHOLE "a whole checkpoint, or the config.json that belongs to it"

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

const char *rfs_known_example(const struct rfs_known *known)
{
    return known->patterns.data[0];
}

/* ---- what a checkpoint lacks ----------------------------------------------------------------- */

/* A checkpoint by its names. */
struct names {
    const struct rfs_known *known;
    const char *const *data;
    size_t n;
};

/* Tensors of layers, by their kinds. */
struct layers {
    size_t n, kinds;
    uint32_t *counts; /* [n][kinds]; owned */
    bool any;
};

static void free_layers(struct layers *layers)
{
    free(layers->counts);
}

/* What a name says of a tensor that each layer has. */
struct layer_tensor {
    size_t kind;    /* number of its pattern */
    uint64_t layer; /* 3 of "model.layers.3.mlp.weight" */
};

/* Finds it in a name that has a number in the place of the first "*". False: no. O(names). */
static bool find_kind(const struct rfs_known *known, const char *name, struct layer_tensor *out)
{
    for (size_t i = 0; i < known->patterns.n; i++) {
        const char *pattern = known->patterns.data[i];
        const size_t before = strcspn(pattern, "*");
        const size_t digits = pattern[before] && strncmp(name, pattern, before) == 0
                                  ? strspn(name + before, "0123456789")
                                  : 0;
        if (digits > 0 && digits < 10 &&
            rfs_glob_match(pattern + before + 1, name + before + digits)) {
            *out = (struct layer_tensor){i, strtoull(name + before, NULL, 10)};
            return true;
        }
    }
    return false;
}

/* Counts the tensors of N layers. 0 or -ENOMEM. */
static int count_layers(const struct names *names, size_t n, struct layers *out)
{
    struct layer_tensor of;

    *out = (struct layers){.n = n, .kinds = names->known->patterns.n};
    out->counts = calloc(n * out->kinds + 1, sizeof *out->counts);
    for (size_t k = 0; out->counts && k < names->n; k++)
        if (find_kind(names->known, names->data[k], &of) && of.layer < n) {
            out->counts[of.layer * out->kinds + of.kind]++;
            out->any = true;
        }
    return out->counts ? 0 : -ENOMEM;
}

static const uint32_t *counts_of(const struct layers *layers, size_t layer)
{
    return layers->counts + layer * layers->kinds;
}

static bool is_empty(const struct layers *layers, size_t layer)
{
    for (size_t k = 0; k < layers->kinds; k++)
        if (counts_of(layers, layer)[k] > 0)
            return false;
    return true;
}

/* Returns a kind that layer A has less of than B, where B has all that A has; else SIZE_MAX. */
static size_t find_less(const struct layers *layers, size_t a, size_t b)
{
    const uint32_t *x = counts_of(layers, a);
    const uint32_t *y = counts_of(layers, b);
    size_t less = SIZE_MAX;

    for (size_t k = 0; k < layers->kinds; k++) {
        if (x[k] > y[k])
            return SIZE_MAX;
        less = x[k] < y[k] && less == SIZE_MAX ? k : less;
    }
    return less;
}

/* Finds the first layers that differ from all before them. Returns how many there are. */
static size_t find_distinct(const struct layers *layers, size_t distinct[LAYERS_DISTINCT])
{
    const size_t bytes = layers->kinds * sizeof *layers->counts;
    size_t n = 0;

    for (size_t i = 0; i < layers->n && n < LAYERS_DISTINCT; i++) {
        bool again = false;
        for (size_t k = 0; k < n; k++)
            again |= memcmp(counts_of(layers, i), counts_of(layers, distinct[k]), bytes) == 0;
        distinct[n] = i;
        n += !again;
    }
    return n;
}

/*
 * Looks for a layer that has all of its kinds of tensors in common with another one, which has
 * more. Layers of two kinds, such as those with experts and without, each have some of their own.
 */
static int find_poor_layer(const struct names *names, const struct layers *layers,
                           const char *source, struct rfs_error *missed)
{
    size_t distinct[LAYERS_DISTINCT];
    const size_t n = find_distinct(layers, distinct);

    for (size_t i = 0; i < n * n; i++) {
        const size_t a = distinct[i / n], b = distinct[i % n];
        const size_t less = find_less(layers, a, b);
        if (less == SIZE_MAX)
            continue;
        rfs_fail(missed, -EINVAL, RFS_IN(source), WHOLE,
                 "layer %zu has %" PRIu32 " tensors like '%s', and layer %zu has %" PRIu32
                 ": a loader would make random weights",
                 a, counts_of(layers, a)[less], names->known->patterns.data[less], b,
                 counts_of(layers, b)[less]);
        return 1;
    }
    return 0;
}

/* Looks for layers of the model without a tensor, and for those that have less than others. */
static int find_layer(const struct names *names, const struct rfs_hf_config *config,
                      const char *source, struct rfs_error *missed)
{
    const struct rfs_hf_value *value = rfs_hf_config_find(config, "num_hidden_layers");
    const size_t n =
        value && value->number > 0 && value->number <= LAYERS_MOST ? (size_t)value->number : 0;
    RFS_CLEANUP(free_layers) struct layers layers;

    if (count_layers(names, n, &layers))
        return -ENOMEM;
    for (size_t i = 0; i < n && layers.any; i++)
        if (is_empty(&layers, i)) {
            rfs_fail(missed, -EINVAL, RFS_IN(source), WHOLE,
                     "no tensor is of layer %zu, and the model has %zu: a loader would make random "
                     "weights",
                     i, n);
            return 1;
        }
    return find_poor_layer(names, &layers, source, missed);
}

/* Says whether a tensor is there. *others says whether there is one of another model, too. */
static bool has_tensor(const struct names *names, const char *name, bool *others)
{
    *others = false;
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->data[i], name) == 0)
            return true;
        *others = *others || !rfs_known_has(names->known, names->data[i]);
    }
    return false;
}

/*
 * Looks for the tensors that a model has once. The output layer may be tied to another tensor, if
 * config.json does not deny it, or another one may be in its place: that of a classifier.
 */
static int find_single(const struct names *names, const struct rfs_hf_config *config,
                       const char *source, struct rfs_error *missed)
{
    static const char *const singles[] = {"model.embed_tokens.weight", "model.norm.weight",
                                          "lm_head.weight"};
    const struct rfs_hf_value *tied = rfs_hf_config_find(config, "tie_word_embeddings");
    const bool untied = tied && tied->kind == RFS_HF_NUMBER && tied->number == 0;
    const size_t n = sizeof singles / sizeof *singles - !untied;

    for (size_t i = 0; i < n; i++) {
        bool others;
        if (!rfs_known_has(names->known, singles[i]) || has_tensor(names, singles[i], &others) ||
            (i == 2 && others))
            continue;
        rfs_fail(missed, -EINVAL, RFS_IN(source), WHOLE,
                 "the tensor '%s' of the model is not there: a loader would make random weights",
                 singles[i]);
        return 1;
    }
    return 0;
}

int rfs_known_find_missing(const struct rfs_known *known, const struct rfs_hf_config *config,
                           const char *const *data, size_t n, const char *source,
                           struct rfs_error *missed)
{
    const struct names names = {known, data, n};

    return find_layer(&names, config, source, missed)
               ?: find_single(&names, config, source, missed);
}
