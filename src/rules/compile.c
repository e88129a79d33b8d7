/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/compile.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/text.h"
#include "quant/quant.h"
#include "rules/compile_internal.h"

/* Passes of the rules: for the names that they know, then for the links. */
enum pass { FIND_SIDE, MAKE };

/* The words of options that are tried where the rules do not fit. */
#define RULES_MOST_WORDS 6

static void compiling_end(struct compiling *c)
{
    for (int side = 0; side < 2; side++) {
        rfs_intern_free(c->sides[side].names);
        free(c->sides[side].tensors.data);
    }
    rfs_intern_free(c->known_names);
    rfs_intern_free(c->shapes);
    rfs_intern_free(c->digits.known);
    rfs_intern_free(c->ats.known);
    free(c->digits.first.data);
    free(c->ats.first.data);
    free(c->known.data);
    free(c->takings.data);
    free(c->pieces.data);
    free(c->text.data);
    free(c->applied.data);
    free(c->waiting.data);
    free(c->sought.data);
    free(c->failed.data);
    rfs_rules_map_free(c->map);
}

static bool new_tables(struct compiling *c)
{
    for (int side = 0; side < 2; side++)
        c->sides[side].names = rfs_intern_new();
    c->shapes = rfs_intern_new();
    c->digits.known = rfs_intern_new();
    c->ats.known = rfs_intern_new();
    return c->sides[0].names && c->sides[1].names && c->shapes && c->digits.known && c->ats.known;
}

/* ---- which side the source is ---------------------------------------------------------------- */

struct sighting {
    size_t seen[2]; /* names of a side that the source has */
    char names[2][256];
};

static void see(struct compiling *c, struct sighting *sighting, int side, const char *name)
{
    if (rfs_intern_find(c->sides[SIDE_LEFT].names, name, strlen(name)) == RFS_NO_ID)
        return;
    if (sighting->seen[side]++ == 0)
        snprintf(sighting->names[side], sizeof sighting->names[side], "%s", name);
}

/*
 * Sees the names of a tensor, but those that the rule has on both sides, whatever numbers are in
 * them: they are no sign of either.
 */
static int sight_tensor(struct compiling *c, const struct node *node, int side,
                        struct sighting *sighting)
{
    int rc = 0;

    for (const struct node *of = node; rc == 0 && of; of = of->also) {
        rc = rfs_rules_spell(c, of->name);
        if (rc == 0 && !rfs_rules_has_name(c->statement, !side, c->text.data))
            see(c, sighting, side, c->text.data);
    }
    return rc;
}

/* Sees the names to the right, with the first value of each index. */
static int sight_right(struct compiling *c, const struct node *node, struct sighting *sighting)
{
    struct rfs_rules_known *index =
        node->kind == NODE_STACK ? rfs_rules_known(c, node->index) : NULL;
    int rc = 0;

    if (node->kind == NODE_TENSOR)
        return sight_tensor(c, node, SIDE_RIGHT, sighting);
    if (index && rfs_rules_values(index) > 0) {
        rfs_rules_bind(index, 0);
    } else if (index) { /* an error that the second pass finds */
        index->bound = true;
        index->value = index->from;
    }
    for (const struct node *kid = node->kids; kid && rc == 0; kid = kid->next)
        rc = sight_right(c, kid, sighting);
    if (index)
        index->bound = false;
    return rc;
}

static int sight_rule(struct compiling *c, struct sighting *sighting)
{
    const struct node *left = rfs_rules_left_tensor(c->statement->left);
    struct turns turns;
    int rc = rfs_rules_turns_begin(c, left->name, &turns);

    if (rc == 0 && rfs_rules_turns_next(&turns))
        rc = sight_right(c, c->statement->right, sighting)
                 ?: sight_tensor(c, left, SIDE_LEFT, sighting);
    rfs_rules_turns_end(&turns);
    return rc;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* Shows words with BETWEEN between them, for a message. */
static void show_words(const struct rfs_rules_word *words, const char *between, char *out,
                       size_t cap)
{
    size_t n = 0;

    for (; words && n < cap; words = words->next)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", n > 0 ? between : "", words->text);
}

/* Checks that one of all statements "models" has the model of the config. */
static int check_model(struct compiling *c)
{
    const struct rfs_hf_value *model = rfs_hf_config_find(c->input->config, "model_type");
    const char *type = model && model->kind == RFS_HF_TEXT ? model->text : NULL;
    char known[400] = "";
    size_t n = 0;

    for (size_t i = 0; i < c->rules->statements.n; i++) {
        const struct statement *statement = &c->rules->statements.data[i];
        if (statement->kind != STATEMENT_MODELS)
            continue;
        if (type && rfs_rules_has_word(statement->words, type))
            return 0;
        if (n > 0 && n + 2 < sizeof known)
            n += (size_t)snprintf(known + n, sizeof known - n, ", ");
        show_words(statement->words, ", ", known + n, sizeof known - n);
        n = strlen(known);
    }
    return rfs_lex_fail(rfs_hf_config_name(c->input->config), 0, NULL,
                        "the rules for that model, or its own config.json", c->err,
                        "is for a model of type '%s', and the rules %s for %s", type ? type : "",
                        c->rules->name, known);
}

static int learn(struct compiling *c, const struct rfs_rules_known *known)
{
    if (rfs_rules_known(c, known->name))
        return RULES_FAIL(c, NULL, NULL, "'%s' is given twice", known->name);
    return rfs_intern_add(c->known_names, known->name, strlen(known->name)) != RFS_NO_ID &&
                   RFS_PUSH(&c->known, *known)
               ? 0
               : rfs_fail_memory(c->err);
}

/* Remembers, after a failure RC, that the statement gives no meaning to its name. */
static int learn_failed(struct compiling *c, int rc)
{
    const struct rfs_rules_known known = {.kind = KNOWN_FAILED, .name = c->statement->name};

    return c->failures && !rfs_rules_known(c, known.name) ? learn(c, &known) ?: rc : rc;
}

static int learn_number(struct compiling *c)
{
    struct rfs_rules_known known = {.kind = KNOWN_NUMBER, .name = c->statement->name};

    c->tied = false;
    const int rc = rfs_rules_number(c, c->statement->a, &known.value);
    known.tied = c->tied;
    return rc ? learn_failed(c, rc) : learn(c, &known);
}

#define MOST_CHOSEN (UINT64_C(1) << 20) /* values to choose from */

/* Chooses the values of an index by the condition of the present statement. */
static int choose_values(struct compiling *c, struct rfs_rules_known *index)
{
    const uint64_t all = rfs_rules_values(index);
    int64_t chosen;
    int rc = 0;

    if (all > MOST_CHOSEN)
        return RULES_FAIL(c, NULL, "indexes with fewer values",
                          "index '%s' has %" PRIu64 " values to choose from, more than %" PRIu64,
                          index->name, all, MOST_CHOSEN);
    rc = rfs_rules_work(c, 16 * all); /* so that all lists together are small */
    if (rc)
        return rc;
    uint32_t *values = rfs_arena_alloc(&c->map->arena, (all + 1) * sizeof *values);
    if (!values)
        return rfs_fail_memory(c->err);
    for (uint64_t at = 0; rc == 0 && at < all; at++) {
        rfs_rules_bind(index, at);
        rc = rfs_rules_number(c, c->statement->where, &chosen);
        if (rc == 0 && chosen)
            values[index->n++] = (uint32_t)index->value;
    }
    index->bound = false;
    index->chosen = values;
    return rc;
}

static int learn_index(struct compiling *c)
{
    struct rfs_rules_known known = {.kind = KNOWN_INDEX, .name = c->statement->name};
    int rc = rfs_rules_number(c, c->statement->a, &known.from)
                 ?: rfs_rules_number(c, c->statement->b, &known.to);

    if (rc == 0 && (known.from < 0 || known.to < known.from || known.to > INT32_MAX))
        rc = RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
                        "index '%s' would go from %lld to %lld", known.name, (long long)known.from,
                        (long long)known.to);
    if (rc || !c->statement->where)
        return rc ? learn_failed(c, rc) : learn(c, &known);
    rc = learn(c, &known);
    if (rc == 0 && (rc = choose_values(c, &c->known.data[c->known.n - 1])) != 0)
        c->known.data[c->known.n - 1].kind = KNOWN_FAILED;
    return rc;
}

/*
 * Passes the user's options from *AT on until OPTION=WORD is passed. Returns WORD, of N characters,
 * or NULL.
 */
static const char *next_given(const char **at, const char *option, size_t *n)
{
    const size_t length = strlen(option);

    while (*at && **at) {
        const char *one = *at;
        const size_t size = strcspn(one, ":");
        *at += size + (one[size] == ':');
        if (size > length && one[length] == '=' && memcmp(one, option, length) == 0) {
            *n = size - length - 1;
            return one + length + 1;
        }
    }
    return NULL;
}

#define MOST_FIGURES 18 /* of an option, so that it has 64 bits */

/* Reads the number of an option. False: it is none. */
static bool read_figures(const char *text, size_t n, int64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *value = n > MOST_FIGURES ? 0 : 10 * *value + (text[i] - '0');
    }
    return n > 0 && n <= MOST_FIGURES;
}

/* Gives an option the word or the number that the user gives it, or its first. */
static int learn_option(struct compiling *c)
{
    const struct statement *statement = c->statement;
    struct rfs_rules_known known = {.kind = KNOWN_OPTION,
                                    .name = statement->name,
                                    .word = statement->words->text,
                                    .words = statement->words};
    const char *at = c->input->options;
    const char *given;
    size_t n;

    known.counts = !known.words->next && read_figures(known.word, strlen(known.word), &known.value);
    while ((given = next_given(&at, statement->name, &n)) != NULL) {
        const struct rfs_rules_word *word = statement->words;
        if (known.counts && read_figures(given, n, &known.value))
            continue;
        if (known.counts)
            return rfs_fail_usage(c->err, "a whole number",
                                  "convert_options: '%s' cannot be '%.*s'", statement->name, (int)n,
                                  given);
        while (word && (strlen(word->text) != n || memcmp(word->text, given, n) != 0))
            word = word->next;
        if (!word) {
            char words[200] = "";
            show_words(statement->words, " or ", words, sizeof words);
            return rfs_fail_usage(c->err, words, "convert_options: '%s' cannot be '%.*s'",
                                  statement->name, (int)n, given);
        }
        known.word = word->text;
    }
    return learn(c, &known);
}

static bool is_given(const struct compiling *c, const char *option)
{
    const char *at = c->input->options;
    size_t n;

    return next_given(&at, option, &n) != NULL;
}

/* Refuses options of the user that the rules do not have. */
static int check_options(const struct compiling *c)
{
    for (const char *at = c->input->options; at && *at;) {
        const size_t n = strcspn(at, ":");
        const char *equals = memchr(at, '=', n);
        const size_t length = equals ? (size_t)(equals - at) : n;
        const struct rfs_rules_known *found = NULL;
        char names[300] = "";
        size_t used = 0;
        for (size_t i = 0; i < c->known.n; i++) {
            const struct rfs_rules_known *known = &c->known.data[i];
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
                (int)n, at, c->rules->name, used > 0 ? names : "none");
        if (!equals) {
            show_words(found->words, " or ", names, sizeof names);
            return rfs_fail_usage(c->err, names, "convert_options: '%s' has no word after it",
                                  found->name);
        }
        at += n + (at[n] == ':');
    }
    return 0;
}

static int learn_stacked(struct compiling *c)
{
    struct rfs_rules_known *known = rfs_rules_known(c, c->statement->name);

    if (!known || known->kind != KNOWN_INDEX) {
        c->follows = known && known->kind == KNOWN_FAILED;
        return RULES_FAIL(c, NULL, NULL, "'%s' is not an index", c->statement->name);
    }
    known->stacked = true;
    return 0;
}

/*
 * Returns the left name without ".{INDEX}" of a stacked index, with *INDEX its name, or NAME
 * itself, if it has none; NULL: no memory.
 */
static const struct name_part *unstacked(struct compiling *c, const struct name_part *name,
                                         const char **index)
{
    const struct number *hole = name ? name->hole : NULL;
    const struct rfs_rules_known *known =
        hole && hole->kind == NUMBER_NAME ? rfs_rules_known(c, hole->name) : NULL;
    const bool here = known && known->stacked && name->n > 0 && name->text[name->n - 1] == '.';

    if (!name)
        return NULL;
    const struct name_part *next = here ? name->next : unstacked(c, name->next, index);
    if (!here && next == name->next)
        return name;
    struct name_part *part = rfs_arena_alloc(&c->map->arena, sizeof *part);
    if (!part)
        return NULL;
    *part = *name;
    part->next = next;
    if (here) {
        *index = known->name;
        part->hole = NULL;
        part->n--;
    }
    return part;
}

/* Makes the other names of a tensor names without ".{INDEX}", too. 0 or -ENOMEM. */
static int unstack_others(struct compiling *c, struct node *tensor)
{
    const char *index = NULL;
    struct node *last = tensor;

    for (const struct node *of = tensor->also; of; of = of->also) {
        struct node *made = rfs_arena_alloc(&c->map->arena, sizeof *made);
        if (!made)
            return rfs_fail_memory(c->err);
        *made = *of;
        made->name = unstacked(c, of->name, &index);
        if (!made->name)
            return rfs_fail_memory(c->err);
        last->also = made;
        last = made;
    }
    return 0;
}

/*
 * Makes a rule whose left name has a stacked index the rule for the tensor of all its values.
 * *EMPTY: there are none, and the rule makes nothing.
 */
static int stack_rule(struct compiling *c, bool *empty)
{
    const struct statement *of = c->statement;
    const struct node *tensor = rfs_rules_left_tensor(of->left);
    const char *index = NULL;
    const struct name_part *name = unstacked(c, tensor->name, &index);

    *empty = index && rfs_rules_values(rfs_rules_known(c, index)) == 0;
    if (name == tensor->name || *empty)
        return 0;
    if (index && (of->left != tensor || tensor->sized))
        return RULES_FAIL(c, NULL, "the name alone to the left",
                          "the index '%s' is stacked, and the left side is not a name alone",
                          index);
    struct made_rule {
        struct statement statement;
        struct node left, right;
        struct number axis;
    } *made = rfs_arena_alloc(&c->map->arena, sizeof *made);
    if (!made || !name)
        return rfs_fail_memory(c->err);
    *made = (struct made_rule){.statement = *of, .left = *tensor};
    made->axis.kind = NUMBER_INTEGER;
    made->left.name = name;
    made->right.kind = NODE_STACK;
    made->right.index = index;
    made->right.axis = &made->axis;
    made->right.kids = of->right;
    made->statement.left = &made->left;
    made->statement.right = &made->right;
    c->statement = &made->statement;
    return unstack_others(c, &made->left);
}

static int check_required(struct compiling *c)
{
    int64_t value;
    const int rc = rfs_rules_number(c, c->statement->a, &value);

    if (rc || value)
        return rc;
    return RULES_FAIL(c, NULL, "the rules for that model, or its own config.json",
                      "requires %s, and %s has another value", c->statement->text,
                      rfs_hf_config_name(c->input->config));
}

/* ---- running the statements ------------------------------------------------------------------ */

static int run_rule(struct compiling *c, enum pass pass, struct sighting *sighting)
{
    bool empty;
    const int rc = stack_rule(c, &empty);

    if (rc || empty)
        return rc;
    if (pass == FIND_SIDE)
        return sight_rule(c, sighting);
    RULES_PUSH(c, &c->applied, c->statement);
    return rfs_rules_make(c);
}

/* Runs a statement. TIED: it counts because of tie_word_embeddings. */
static int run_statement(struct compiling *c, enum pass pass, struct sighting *sighting, bool tied)
{
    const struct waiting waiting = {c->statement, tied};

    switch (c->statement->kind) {
    case STATEMENT_MODELS:
        return check_model(c);
    case STATEMENT_LET:
        return learn_number(c);
    case STATEMENT_OPTION:
        return learn_option(c);
    case STATEMENT_INDEX:
        return learn_index(c);
    case STATEMENT_STACKED:
        return learn_stacked(c);
    case STATEMENT_REQUIRE:
        return check_required(c);
    case STATEMENT_RULE:
        return run_rule(c, pass, sighting);
    default:
        if (pass != FIND_SIDE)
            RULES_PUSH(c, &c->waiting, waiting);
        return 0;
    }
}

/* A branch of a condition that is open. */
struct open {
    bool counts, done; /* this branch counts, or one before it did */
    bool outer, last;  /* the branch around it counts; no other branch may follow */
    bool tied;         /* its condition holds because of tie_word_embeddings */
};

struct branches {
    struct open open[RULES_LEVELS];
    unsigned n;
};

static bool counts(const struct branches *branches)
{
    return branches->n == 0 || branches->open[branches->n - 1].counts;
}

static bool is_tied(const struct branches *branches)
{
    for (unsigned i = 0; i < branches->n; i++)
        if (branches->open[i].tied)
            return true;
    return false;
}

/* Says whether a branch counts, if that is ASKED. */
static int condition(struct compiling *c, bool asked, struct open *open)
{
    int64_t number = 1;

    c->tied = false;
    const int rc = asked && c->statement->a ? rfs_rules_number(c, c->statement->a, &number) : 0;
    open->counts = asked && rc == 0 && number != 0;
    open->done |= open->counts || rc;
    open->tied = c->tied;
    c->doubt |= rc != 0;
    return rfs_rules_survive(c, rc);
}

static int branch(struct compiling *c, struct branches *branches)
{
    const bool outer = counts(branches);
    struct open *open = &branches->open[branches->n];

    if (c->statement->kind == STATEMENT_IF) {
        if (branches->n == RULES_LEVELS)
            return RULES_FAIL(c, NULL, NULL, "conditions are nested more than %d times",
                              RULES_LEVELS);
        branches->n++;
        open->outer = outer;
        open->last = false;
        open->done = false;
        return condition(c, outer, open);
    }
    if (branches->n > 0 && c->statement->kind == STATEMENT_END) {
        branches->n--;
        return 0;
    }
    if (branches->n == 0 || (--open)->last)
        return RULES_FAIL(c, NULL, NULL, "there is no 'if' before this");
    open->last = c->statement->a == NULL;
    return condition(c, open->outer && !open->done, open);
}

static int run(struct compiling *c, enum pass pass, struct sighting *sighting)
{
    struct branches branches = {.n = 0};
    int rc = 0;

    c->known.n = 0;
    for (size_t i = 0; i < c->rules->statements.n && rc == 0; i++) {
        c->statement = &c->rules->statements.data[i];
        const enum statement_kind kind = c->statement->kind;
        if (kind == STATEMENT_IF || kind == STATEMENT_ELSE || kind == STATEMENT_END)
            rc = branch(c, &branches);
        else if (counts(&branches))
            rc = rfs_rules_survive(c, run_statement(c, pass, sighting, is_tied(&branches)));
    }
    if (rc == 0 && branches.n > 0)
        return RULES_FAIL(c, NULL, NULL, "the rules end before the 'end' of a condition");
    return rc;
}

/* ---- tensors of no rule ---------------------------------------------------------------------- */

static bool like_any(const struct rfs_rules_word *patterns, const char *name)
{
    for (; patterns; patterns = patterns->next)
        if (rfs_glob_match(patterns->text, name))
            return true;
    return false;
}

/* Leaves out a tensor of the source. */
static void drop(struct compiling *c, uint32_t tensor)
{
    c->sides[c->source].tensors.data[tensor].dropped = true;
    if (c->map->dropped++ == 0)
        c->map->first_dropped = c->input->tensors[tensor].name;
}

/*
 * Refuses to keep a part of a quantized weight that rules change: the two would not belong together
 * any longer.
 */
static int check_part(struct compiling *c, const char *name)
{
    const char *tail;
    size_t stem;

    if (!rfs_quant_weight_of(name, &stem, &tail))
        return 0;
    RFS_FREE char *weight = rfs_text_printf("%.*s%s", (int)stem, name, tail);
    if (!weight)
        return rfs_fail_memory(c->err);
    const uint32_t of = rfs_rules_tensor_find(c, c->source, weight);
    const struct statement *taken =
        of == NO_TENSOR ? NULL : c->sides[c->source].tensors.data[of].taken;
    if (!taken || taken->kind != STATEMENT_RULE)
        return 0;
    return rfs_lex_fail(c->input->source, 0, name, "-o dequantize, which shows them as bfloat16",
                        c->err,
                        "belongs to '%s', which is quantized and becomes another tensor by %s: "
                        "line %u",
                        weight, taken->file, taken->line);
}

static int settle(struct compiling *c, uint32_t tensor)
{
    const char *name = rfs_rules_tensor_name(c, c->source, tensor);

    for (size_t i = 0; i < c->waiting.n; i++) {
        const struct statement *statement = c->waiting.data[i].statement;
        c->statement = statement;
        if (statement->kind == STATEMENT_DROP && statement->side == c->source &&
            like_any(statement->words, name)) {
            drop(c, tensor);
            return 0;
        }
        if (statement->kind == STATEMENT_KEEP && like_any(statement->words, name)) {
            uint32_t same;
            return rfs_rules_need(c, name, &same)
                   ?: check_part(c, name)
                   ?: rfs_rules_take_all(c, c->source, tensor)
                   ?: rfs_rules_link_same(c, tensor, name);
        }
    }
    return 0;
}

/* Says whether rules would drop a tensor of the source with that name. */
static bool drops(const struct compiling *c, const char *name)
{
    if (rfs_rules_is_named(c, name))
        return false;
    for (size_t i = 0; i < c->waiting.n; i++) {
        const struct statement *statement = c->waiting.data[i].statement;
        const bool drop = statement->kind == STATEMENT_DROP && statement->side == c->source;
        if ((drop || statement->kind == STATEMENT_KEEP) && like_any(statement->words, name))
            return drop;
    }
    return false;
}

static void find_lost(struct compiling *c)
{
    while (c->map->lost < c->input->n_lost && drops(c, c->input->lost[c->map->lost]))
        c->map->lost++;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Gives the tensor NAME of the made side the links of another. */
static int repeat_links(struct compiling *c, uint32_t from, const char *name)
{
    struct rfs_rules_map *map = c->map;
    const int side = !c->source;
    const uint32_t to = rfs_rules_tensor_add(c, side, name);

    if (to == NO_TENSOR)
        return c->err->code;
    struct side_tensor *tensors = c->sides[side].tensors.data;
    if (tensors[to].taken)
        return rfs_rules_take_all(c, side, to);
    tensors[to] = tensors[from];
    tensors[to].takings = 0;
    tensors[to].taken = c->statement;
    const size_t n = map->links.n;
    for (size_t i = 0; i < n; i++) {
        struct rfs_rules_link link = map->links.data[i];
        if (link.made != from)
            continue;
        link.made = to;
        RULES_PUSH(c, &map->links, link);
    }
    return 0;
}

/* Returns, in the map's arena, how the bytes of a copy can be made to agree. */
static const char *remedy_of(struct compiling *c, bool tied)
{
    return tied
               ? rfs_arena_printf(&c->map->arena,
                                  "\"tie_word_embeddings\": false in %s, if the model's output has "
                                  "weights of its own",
                                  rfs_hf_config_name(c->input->config))
               : "rules of your own that make a tensor of each";
}

/* Leaves out a tensor of the source that should be a copy of another. */
static int leave_out(struct compiling *c, uint32_t original, uint32_t copy, bool tied)
{
    const struct side_tensor *of = &c->sides[c->source].tensors.data[original];
    const struct side_tensor *like = &c->sides[c->source].tensors.data[copy];
    struct rfs_rules_copy found = {.copy = copy, .original = original, .line = c->statement->line};

    found.remedy = remedy_of(c, tied);
    found.file = rfs_arena_text(&c->map->arena, c->statement->file, strlen(c->statement->file));
    if (like->kind != of->kind || like->dtype != of->dtype || like->shape != of->shape)
        return RULES_FAIL(
            c, rfs_rules_tensor_name(c, c->source, copy), found.remedy,
            "is %s %s, and '%s', of which it should be a copy, is %s %s",
            rfs_dtype_name((enum rfs_dtype)like->dtype), rfs_rules_show(like->shape).text,
            rfs_rules_tensor_name(c, c->source, original),
            rfs_dtype_name((enum rfs_dtype)of->dtype), rfs_rules_show(of->shape).text);
    drop(c, copy);
    c->sides[c->source].tensors.data[original].original = true;
    RULES_PUSH(c, &c->map->copies, found);
    return 0;
}

static int repeat_one(struct compiling *c, bool tied)
{
    const struct statement *statement = c->statement;
    int rc = rfs_rules_spell(c, statement->names[1]);

    if (rc)
        return rc;
    const uint32_t from = rfs_rules_tensor_find(c, statement->side, c->text.data);
    if (from == NO_TENSOR || !c->sides[statement->side].tensors.data[from].taken) {
        c->follows = rfs_rules_is_blamed(c, statement->side, c->text.data);
        return RULES_FAIL(c, c->text.data, NULL, "is repeated, but no rule %s it",
                          statement->side == c->source ? "uses" : "makes");
    }
    rc = rfs_rules_spell(c, statement->names[0]);
    if (rc)
        return rc;
    if (statement->side != c->source)
        return statement->kind == STATEMENT_COPY ? 0 : repeat_links(c, from, c->text.data);
    const uint32_t copy = rfs_rules_tensor_find(c, c->source, c->text.data);
    if (copy == NO_TENSOR || c->sides[c->source].tensors.data[copy].taken ||
        c->sides[c->source].tensors.data[copy].dropped)
        return 0;
    return leave_out(c, from, copy, tied);
}

/*
 * Makes the copies that rules name, or leaves them out of the source and notes with what they are
 * to be compared.
 */
static int repeat(struct compiling *c)
{
    int rc = 0;

    for (size_t i = 0; i < c->waiting.n && rc == 0; i++) {
        struct turns turns;
        c->statement = c->waiting.data[i].statement;
        if (c->statement->kind != STATEMENT_REPEAT && c->statement->kind != STATEMENT_COPY)
            continue;
        rc = rfs_rules_turns_begin(c, c->statement->names[0], &turns);
        while (rc == 0 && rfs_rules_turns_next(&turns))
            rc = repeat_one(c, c->waiting.data[i].tied);
        rfs_rules_turns_end(&turns);
        rc = rfs_rules_survive(c, rc);
    }
    return rc;
}

/* ---- made tensors ---------------------------------------------------------------------------- */

/* A tensor to be made, and the first source tensor that it is made of. */
struct order {
    uint32_t made, source;
};

RFS_COMPARE(by_source, struct order, x, y,
            RFS_ORDER(x->source, y->source) ?: RFS_ORDER(x->made, y->made))

RFS_COMPARE(by_digits, struct rfs_rules_link, x, y, RFS_ORDER(x->digits, y->digits))

/* Returns the name of a file of rules, among the names that the map keeps; NULL: no memory. */
static const char *keep_file(struct compiling *c, const char *file)
{
    struct rfs_intern *names = c->sides[!c->source].names;
    const uint32_t id = rfs_intern_add(names, file, strlen(file));

    return id == RFS_NO_ID ? NULL : rfs_intern_text(names, id);
}

static int add_made(struct compiling *c, uint32_t tensor)
{
    struct rfs_rules_map *map = c->map;
    const int side = !c->source;
    const struct side_tensor *of = &c->sides[side].tensors.data[tensor];
    const char *name = rfs_rules_tensor_name(c, side, tensor);
    struct rfs_rules_made made = {
        .name = name, .shown = (enum rfs_dtype)of->kind, .line = of->taken->line};

    c->statement = of->taken;
    made.file = keep_file(c, of->taken->file);
    made.type.ndim = (uint8_t)of->shape->ndim;
    made.type.dtype = of->dtype;
    made.type.kind = RFS_TENSOR;
    memcpy(made.type.dims, of->shape->dims, of->shape->ndim * sizeof *of->shape->dims);
    if (!rfs_type_bytes(&made.type, &made.type.bytes))
        return RULES_FAIL(c, name, NULL, "would have more than 2^63 bytes");
    map->arena.failed |= made.file == NULL;
    RULES_PUSH(c, &map->made, made);
    return 0;
}

/* Orders links by the tensor that they make, then by their digits. */
static int order_links(struct compiling *c)
{
    struct rfs_rules_map *map = c->map;
    struct rfs_rules_link *ordered = malloc(map->links.n * sizeof *ordered + 1);
    size_t first = 0;

    if (!ordered)
        return rfs_fail_memory(c->err);
    for (size_t i = 0; i < map->links.n; i++)
        map->made.data[map->links.data[i].made].n++;
    for (size_t i = 0; i < map->made.n; i++) {
        map->made.data[i].links = first;
        first += map->made.data[i].n;
        map->made.data[i].n = 0;
    }
    for (size_t i = 0; i < map->links.n; i++) {
        struct rfs_rules_made *made = &map->made.data[map->links.data[i].made];
        ordered[made->links + made->n++] = map->links.data[i];
    }
    for (size_t i = 0; i < map->made.n; i++)
        RFS_SORT(ordered + map->made.data[i].links, map->made.data[i].n, by_digits);
    free(map->links.data);
    map->links.data = ordered;
    map->links.cap = map->links.n;
    return 0;
}

/* Lists the tensors that are made, and gives each its links. */
static int finish_made(struct compiling *c)
{
    struct rfs_rules_map *map = c->map;
    const size_t n = c->sides[!c->source].tensors.n;
    RFS_FREE struct order *order = calloc(n + 1, sizeof *order);
    RFS_FREE uint32_t *position = calloc(n + 1, sizeof *position);
    size_t used = 0;

    if (!order || !position)
        return rfs_fail_memory(c->err);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (struct order){i, UINT32_MAX};
    for (size_t i = 0; i < map->links.n; i++) {
        struct order *of = &order[map->links.data[i].made];
        if (map->links.data[i].source < of->source)
            of->source = map->links.data[i].source;
    }
    RFS_SORT(order, n, by_source);
    for (size_t i = 0; i < n; i++) {
        if (!c->sides[!c->source].tensors.data[order[i].made].there)
            continue;
        position[order[i].made] = (uint32_t)used++;
        const int rc = add_made(c, order[i].made);
        if (rc)
            return rc;
    }
    if (map->arena.failed)
        return rfs_fail_memory(c->err);
    for (size_t i = 0; i < map->links.n; i++)
        map->links.data[i].made = position[map->links.data[i].made];
    for (size_t i = 0; i < map->links.n; i++)
        map->made.data[map->links.data[i].made].compared |=
            c->sides[c->source].tensors.data[map->links.data[i].source].original;
    return order_links(c);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Interns the names of the source's tensors, in their order, as those of the left side. */
static int take_names(struct compiling *c)
{
    if (c->input->n > RULES_MOST_TENSORS)
        return rfs_lex_fail(c->input->source, 0, NULL, "a part of it", c->err,
                            "has more than %zu tensors", RULES_MOST_TENSORS);
    for (size_t i = 0; i < c->input->n; i++) {
        const char *name = c->input->tensors[i].name;
        if (rfs_intern_add(c->sides[SIDE_LEFT].names, name, strlen(name)) == RFS_NO_ID)
            return rfs_fail_memory(c->err);
    }
    return 0;
}

/* Adds the source's tensors, whose names are the left side's, to their side. */
static int take_source(struct compiling *c)
{
    struct side *side = &c->sides[c->source];

    if (c->source != SIDE_LEFT) {
        struct rfs_intern *names = side->names;
        side->names = c->sides[SIDE_LEFT].names;
        c->sides[SIDE_LEFT].names = names;
    }
    if (!RFS_RESERVE(&side->tensors, c->input->n))
        return rfs_fail_memory(c->err);
    for (size_t i = 0; i < c->input->n; i++) {
        const struct rfs_type *type = c->input->tensors[i].type;
        struct shape shape = {.known = true, .ndim = type->ndim};
        memcpy(shape.dims, type->dims, sizeof shape.dims);
        const struct side_tensor tensor = {.shape = rfs_rules_keep_shape(c, &shape),
                                           .dtype = type->dtype,
                                           .kind = type->kind,
                                           .there = true};
        if (!tensor.shape || !RFS_PUSH(&side->tensors, tensor))
            return rfs_fail_memory(c->err);
    }
    return 0;
}

/* Forgets the names that a pass has learned. */
static int renew_known(struct compiling *c)
{
    rfs_intern_free(c->known_names);
    c->known_names = rfs_intern_new();
    return c->known_names ? 0 : rfs_fail_memory(c->err);
}

static void forget_failures(struct compiling *c)
{
    if (c->failures)
        c->failures->n = 0;
    c->failed.n = 0;
    c->doubt = false;
}

static int find_side(struct compiling *c)
{
    struct sighting sighting = {.seen = {0, 0}};
    const char *rules = c->rules->name;
    const int rc =
        renew_known(c) ?: take_names(c) ?: run(c, FIND_SIDE, &sighting) ?: check_options(c);

    if (rc || (c->failures && c->failures->n > 0 &&
               (sighting.seen[SIDE_LEFT] > 0) == (sighting.seen[SIDE_RIGHT] > 0)))
        return rc ? rc : -EINVAL;
    forget_failures(c); /* the second pass finds them again */
    if (sighting.seen[SIDE_LEFT] > 0 && sighting.seen[SIDE_RIGHT] > 0)
        return rfs_lex_fail(c->input->source, 0, NULL, "a source with the names of one side",
                            c->err, "has names of both sides of %s: '%s' of %s, and '%s' of %s",
                            rules, sighting.names[SIDE_LEFT], c->rules->sides[SIDE_LEFT],
                            sighting.names[SIDE_RIGHT], c->rules->sides[SIDE_RIGHT]);
    if (sighting.seen[SIDE_LEFT] == 0 && sighting.seen[SIDE_RIGHT] == 0)
        return rfs_lex_fail(c->input->source, 0, c->input->n > 0 ? c->input->tensors[0].name : NULL,
                            "the rules for these tensors", c->err,
                            "the source has names of neither side of %s, %s or %s", rules,
                            c->rules->sides[SIDE_LEFT], c->rules->sides[SIDE_RIGHT]);
    c->source = sighting.seen[SIDE_LEFT] > 0 ? SIDE_LEFT : SIDE_RIGHT;
    return 0;
}

/* Words of options that the user did not give, as "NAME=WORD"; the default of each is left out. */
struct options {
    size_t n;
    struct {
        char text[80];
        size_t number; /* the option's, in known */
    } data[RULES_MOST_WORDS];
};

static void take_options(const struct compiling *c, struct options *options)
{
    for (size_t i = 0; i < c->known.n; i++) {
        const struct rfs_rules_known *known = &c->known.data[i];
        if (known->kind != KNOWN_OPTION || is_given(c, known->name))
            continue;
        for (const struct rfs_rules_word *word = known->words->next;
             word && options->n < RULES_MOST_WORDS; word = word->next) {
            const size_t cap = sizeof options->data[0].text;
            char *text = options->data[options->n].text;
            if ((size_t)snprintf(text, cap, "%s=%s", known->name, word->text) >= cap)
                continue;
            options->data[options->n++].number = i;
        }
    }
}

/*
 * Compiles the rules once. WORK is counted on. OPTIONS, if it is not NULL, gets the words that
 * might be given.
 */
static int compile(const struct rfs_rules *rules, const struct rfs_rules_input *input,
                   uint64_t *work, struct options *options, struct rfs_rules_failures *failures,
                   struct rfs_rules_map **out, struct rfs_error *err)
{
    RFS_CLEANUP(compiling_end)
    struct compiling c = {
        .rules = rules, .input = input, .err = err, .work = work, .failures = failures};

    *out = NULL;
    c.map = calloc(1, sizeof *c.map);
    if (!c.map || !RFS_PUSH(&c.text, '\0') || !new_tables(&c))
        return rfs_fail_memory(err);
    int rc = find_side(&c);
    if (options)
        take_options(&c, options);
    rc = rc ?: renew_known(&c) ?: take_source(&c) ?: run(&c, MAKE, NULL) ?: repeat(&c);
    for (uint32_t i = 0; !rc && i < input->n; i++)
        if (!c.sides[c.source].tensors.data[i].taken && !c.sides[c.source].tensors.data[i].dropped)
            rc = rfs_rules_survive(&c, settle(&c, i));
    rc = rfs_rules_failures_end(&c, rc ?: rfs_rules_prove(&c)) ?: finish_made(&c);
    if (rc)
        return rc;
    find_lost(&c);
    c.map->from_left = c.source == SIDE_LEFT;
    for (int side = 0; side < 2; side++) {
        const char *name = rules->sides[side];
        c.map->side[side] = rfs_arena_text(&c.map->arena, name, strlen(name));
    }
    if (c.map->arena.failed)
        return rfs_fail_memory(err);
    c.map->names = RFS_STEAL(c.sides[!c.source].names);
    *out = RFS_STEAL(c.map);
    return 0;
}

/* ---- options that would fit ------------------------------------------------------------------ */

/* Says whether the rules fit with MORE options, one or two of them, than the user gave. */
static bool fits(const struct rfs_rules *rules, const struct rfs_rules_input *input, uint64_t *work,
                 const char *more)
{
    RFS_FREE char *all = input->options && *input->options
                             ? rfs_text_printf("%s:%s", input->options, more)
                             : strdup(more);
    struct rfs_rules_input other = *input;
    struct rfs_rules_map *map = NULL;
    struct rfs_error err = {0};

    other.options = all;
    const bool good = all && compile(rules, &other, work, NULL, NULL, &map, &err) == 0;
    rfs_rules_map_free(map);
    return good;
}

/* Returns the fewest options by which the rules fit, or NULL; the caller's. */
static char *find_fitting(const struct rfs_rules *rules, const struct rfs_rules_input *input,
                          uint64_t *work, const struct options *options)
{
    for (size_t i = 0; i < options->n; i++)
        if (fits(rules, input, work, options->data[i].text))
            return strdup(options->data[i].text);
    for (size_t i = 0; i < options->n; i++)
        for (size_t k = i + 1; k < options->n; k++) {
            RFS_FREE char *both =
                options->data[i].number == options->data[k].number
                    ? NULL
                    : rfs_text_printf("%s:%s", options->data[i].text, options->data[k].text);
            if (both && fits(rules, input, work, both))
                return RFS_STEAL(both);
        }
    return NULL;
}

/* Puts options by which the rules fit before the remedy of a failure. */
static void name_fitting(const char *fitting, struct rfs_error *err)
{
    RFS_FREE char *text =
        rfs_text_printf("try: convert_options=%s, by which the rules fit", fitting);

    if (text)
        rfs_rules_insert(err, text, ", or ");
}

/* Reports all failures but the last, which *ERR gets. */
static void report(const struct rfs_rules_input *input, const struct rfs_rules_failures *failures,
                   struct rfs_error *err)
{
    const size_t last = failures->more ? failures->n : failures->n - 1;

    for (size_t i = 0; i < last; i++)
        input->report(input->ctx, &failures->list[i]);
    if (failures->more)
        rfs_lex_fail(input->source, 0, NULL, "once more when those are mended", err,
                     "there are more errors than these %d", RFS_RULES_ERRORS);
    else
        *err = failures->list[last];
}

int rfs_rules_compile(const struct rfs_rules *rules, const struct rfs_rules_input *input,
                      struct rfs_rules_map **out, struct rfs_error *err)
{
    RFS_FREE struct rfs_rules_failures *failures = NULL;
    struct options options = {.n = 0};
    struct rfs_error own = {0};
    uint64_t work = 0;

    *out = NULL;
    if (input->report && !(failures = calloc(1, sizeof *failures)))
        return rfs_fail_memory(err);
    const int rc = compile(rules, input, &work, &options, failures, out, &own);
    const bool told = rc == -EINVAL && failures && failures->n > 0;
    struct rfs_error *first = told ? &failures->list[0] : &own;

    if (rc == -EINVAL && !own.usage && work <= RULES_MOST_WORK) {
        RFS_FREE char *fitting = find_fitting(rules, input, &work, &options);
        if (fitting)
            name_fitting(fitting, first);
        if (fitting && told)
            failures->n = 1; /* the others would be gone, too */
        if (fitting && told)
            failures->more = false;
    }
    if (told && !own.usage)
        report(input, failures, &own);
    if (rc && err)
        *err = own;
    return rc;
}
