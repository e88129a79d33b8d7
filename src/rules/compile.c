/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/compile.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/text.h"
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
    free(c->known.data);
    free(c->takings.data);
    free(c->pieces.data);
    free(c->text.data);
    free(c->applied.data);
    free(c->waiting.data);
    rfs_rules_map_free(c->map);
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

/* Sees the names that a rule knows, with the first value of each index. */
static int sight_right(struct compiling *c, const struct node *node, const char *left,
                       struct sighting *sighting)
{
    struct rfs_rules_known *index =
        node->kind == NODE_STACK ? rfs_rules_known(c, node->index) : NULL;
    int rc = 0;

    if (node->kind == NODE_TENSOR) {
        rc = rfs_rules_spell(c, node->name);
        if (rc == 0 && strcmp(c->text.data, left) != 0)
            see(c, sighting, SIDE_RIGHT, c->text.data);
        return rc;
    }
    if (index) {
        index->bound = true;
        index->value = index->from;
    }
    for (const struct node *kid = node->kids; kid && rc == 0; kid = kid->next)
        rc = sight_right(c, kid, left, sighting);
    if (index)
        index->bound = false;
    return rc;
}

static int sight_rule(struct compiling *c, struct sighting *sighting)
{
    const struct node *left = rfs_rules_left_tensor(c->statement->left);
    const struct node *right = c->statement->right;
    struct turns turns;
    int rc = rfs_rules_turns_begin(c, left->name, &turns);

    if (rc == 0 && rfs_rules_turns_next(&turns)) {
        rc = rfs_rules_spell(c, left->name);
        RFS_FREE char *name = rc == 0 ? strdup(c->text.data) : NULL;
        if (rc == 0 && !name)
            rc = rfs_fail_memory(c->err);
        if (rc == 0)
            rc = sight_right(c, right, name, sighting);
        if (rc == 0 && (right->kind != NODE_TENSOR || strcmp(name, c->text.data) != 0))
            see(c, sighting, SIDE_LEFT, name);
    }
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

static int check_model(struct compiling *c)
{
    const struct rfs_hf_value *model = rfs_hf_config_find(c->input->config, "model_type");
    const char *type = model && model->kind == RFS_HF_TEXT ? model->text : NULL;
    char known[200] = "";

    for (const struct rfs_rules_word *word = c->statement->words; type && word; word = word->next)
        if (strcmp(type, word->text) == 0)
            return 0;
    show_words(c->statement->words, ", ", known, sizeof known);
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

static int learn_number(struct compiling *c)
{
    struct rfs_rules_known known = {.kind = KNOWN_NUMBER, .name = c->statement->name};

    c->tied = false;
    const int rc = rfs_rules_number(c, c->statement->a, &known.value);
    known.tied = c->tied;
    return rc ? rc : learn(c, &known);
}

static int learn_index(struct compiling *c)
{
    struct rfs_rules_known known = {.kind = KNOWN_INDEX, .name = c->statement->name};
    const int rc = rfs_rules_number(c, c->statement->a, &known.from)
                       ?: rfs_rules_number(c, c->statement->b, &known.to);

    if (rc == 0 && (known.from < 0 || known.to < known.from || known.to > INT32_MAX))
        return RULES_FAIL(c, NULL, "the config.json that belongs to the tensors",
                          "index '%s' would go from %lld to %lld", known.name,
                          (long long)known.from, (long long)known.to);
    return rc ? rc : learn(c, &known);
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

/* Gives an option the word that the user gives it, or its first. */
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

    while ((given = next_given(&at, statement->name, &n)) != NULL) {
        const struct rfs_rules_word *word = statement->words;
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
    case STATEMENT_REQUIRE:
        return check_required(c);
    case STATEMENT_RULE:
        if (pass == FIND_SIDE)
            return sight_rule(c, sighting);
        return RFS_PUSH(&c->applied, c->statement) ? rfs_rules_make(c) : rfs_fail_memory(c->err);
    default:
        return pass == FIND_SIDE || RFS_PUSH(&c->waiting, waiting) ? 0 : rfs_fail_memory(c->err);
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
    open->counts = asked && number != 0;
    open->tied = c->tied;
    return rc;
}

static int branch(struct compiling *c, struct branches *branches)
{
    const bool outer = counts(branches);
    struct open *open = &branches->open[branches->n];
    int rc;

    if (c->statement->kind == STATEMENT_IF) {
        if (branches->n == RULES_LEVELS)
            return RULES_FAIL(c, NULL, NULL, "conditions are nested more than %d times",
                              RULES_LEVELS);
        branches->n++;
        open->outer = outer;
        open->last = false;
        rc = condition(c, outer, open);
        open->done = open->counts;
        return rc;
    }
    if (branches->n > 0 && c->statement->kind == STATEMENT_END) {
        branches->n--;
        return 0;
    }
    if (branches->n == 0 || (--open)->last)
        return RULES_FAIL(c, NULL, NULL, "there is no 'if' before this");
    open->last = c->statement->a == NULL;
    rc = condition(c, open->outer && !open->done, open);
    open->done |= open->counts;
    return rc;
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
            rc = run_statement(c, pass, sighting, is_tied(&branches));
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
        return -EINVAL;
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
        if (!RFS_PUSH(&map->links, link))
            return rfs_fail_memory(c->err);
    }
    return 0;
}

/* Returns, in the map's arena, how the bytes of a copy can be made to agree. */
static const char *remedy_of(struct compiling *c, bool tied)
{
    RFS_FREE char *text =
        tied ? rfs_text_printf("\"tie_word_embeddings\": false in %s, if the model's output has "
                               "weights of its own",
                               rfs_hf_config_name(c->input->config))
             : strdup("rules of your own that make a tensor of each");

    return text ? rfs_arena_text(&c->map->arena, text, strlen(text)) : NULL;
}

/* Leaves out a tensor of the source that should be a copy of another. */
static int leave_out(struct compiling *c, uint32_t original, uint32_t copy, bool tied)
{
    const struct side_tensor *of = &c->sides[c->source].tensors.data[original];
    const struct side_tensor *like = &c->sides[c->source].tensors.data[copy];
    struct rfs_rules_copy found = {.copy = copy, .original = original, .line = c->statement->line};

    found.remedy = remedy_of(c, tied);
    found.file = rfs_arena_text(&c->map->arena, c->statement->file, strlen(c->statement->file));
    if (!found.file || !found.remedy)
        return rfs_fail_memory(c->err);
    if (like->kind != of->kind || like->dtype != of->dtype || like->shape.ndim != of->shape.ndim ||
        memcmp(like->shape.dims, of->shape.dims, sizeof of->shape.dims) != 0)
        return RULES_FAIL(
            c, rfs_rules_tensor_name(c, c->source, copy), found.remedy,
            "is %s %s, and '%s', of which it should be a copy, is %s %s",
            rfs_dtype_name((enum rfs_dtype)like->dtype), rfs_rules_show(&like->shape).text,
            rfs_rules_tensor_name(c, c->source, original),
            rfs_dtype_name((enum rfs_dtype)of->dtype), rfs_rules_show(&of->shape).text);
    drop(c, copy);
    c->sides[c->source].tensors.data[original].original = true;
    return RFS_PUSH(&c->map->copies, found) ? 0 : rfs_fail_memory(c->err);
}

static int repeat_one(struct compiling *c, bool tied)
{
    const struct statement *statement = c->statement;
    int rc = rfs_rules_spell(c, statement->names[1]);

    if (rc)
        return rc;
    const uint32_t from = rfs_rules_tensor_find(c, statement->side, c->text.data);
    if (from == NO_TENSOR || !c->sides[statement->side].tensors.data[from].taken)
        return RULES_FAIL(c, c->text.data, NULL, "is repeated, but no rule %s it",
                          statement->side == c->source ? "uses" : "makes");
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

RFS_COMPARE(by_made, struct rfs_rules_link, x, y,
            RFS_ORDER(x->made, y->made) ?: RFS_ORDER(x->digits, y->digits))

static int add_made(struct compiling *c, uint32_t tensor)
{
    struct rfs_rules_map *map = c->map;
    const int side = !c->source;
    const struct side_tensor *of = &c->sides[side].tensors.data[tensor];
    const char *name = rfs_rules_tensor_name(c, side, tensor);
    struct rfs_rules_made made = {
        .shown = (enum rfs_dtype)of->kind, .file = of->taken->file, .line = of->taken->line};

    c->statement = of->taken;
    made.name = rfs_arena_text(&map->arena, name, strlen(name));
    made.file = rfs_arena_text(&map->arena, made.file, strlen(made.file));
    made.type.ndim = (uint8_t)of->shape.ndim;
    made.type.dtype = of->dtype;
    made.type.kind = RFS_TENSOR;
    memcpy(made.type.dims, of->shape.dims, of->shape.ndim * sizeof *of->shape.dims);
    if (!rfs_type_bytes(&made.type, &made.type.bytes))
        return RULES_FAIL(c, name, NULL, "would have more than 2^63 bytes");
    return made.name && made.file && RFS_PUSH(&map->made, made) ? 0 : rfs_fail_memory(c->err);
}

/* Orders links by the tensor that they make, and lists those tensors. */
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
    for (size_t i = 0; i < map->links.n; i++)
        map->links.data[i].made = position[map->links.data[i].made];
    RFS_SORT_ALL(&map->links, by_made);
    for (size_t i = 0; i < map->links.n; i++) {
        struct rfs_rules_made *made = &map->made.data[map->links.data[i].made];
        made->links = made->n++ == 0 ? i : made->links;
        made->compared |= c->sides[c->source].tensors.data[map->links.data[i].source].original;
    }
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Adds the source's tensors to a side, in their order. */
static int take_source(struct compiling *c, int side)
{
    for (size_t i = 0; i < c->input->n; i++) {
        const struct rfs_rules_tensor *from = &c->input->tensors[i];
        const uint32_t id = rfs_rules_tensor_add(c, side, from->name);
        if (id == NO_TENSOR)
            return -ENOMEM;
        struct side_tensor *tensor = &c->sides[side].tensors.data[id];
        tensor->there = true;
        tensor->kind = from->type->kind;
        tensor->dtype = from->type->dtype;
        tensor->shape = (struct shape){.known = true, .ndim = from->type->ndim};
        memcpy(tensor->shape.dims, from->type->dims, sizeof tensor->shape.dims);
    }
    return 0;
}

static int renew_names(struct compiling *c)
{
    rfs_intern_free(c->known_names);
    c->known_names = rfs_intern_new();
    if (!c->known_names)
        return rfs_fail_memory(c->err);
    for (int side = 0; side < 2; side++) {
        rfs_intern_free(c->sides[side].names);
        c->sides[side].names = rfs_intern_new();
        c->sides[side].tensors.n = 0;
        if (!c->sides[side].names)
            return rfs_fail_memory(c->err);
    }
    return 0;
}

static int find_side(struct compiling *c)
{
    struct sighting sighting = {.seen = {0, 0}};
    const char *rules = c->rules->name;
    const int rc = renew_names(c)
                   ?: take_source(c, SIDE_LEFT) /* names alone matter here */
                   ?: run(c, FIND_SIDE, &sighting)
                   ?: check_options(c);

    if (rc)
        return rc;
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
                   uint64_t *work, struct options *options, struct rfs_rules_map **out,
                   struct rfs_error *err)
{
    RFS_CLEANUP(compiling_end)
    struct compiling c = {.rules = rules, .input = input, .err = err, .work = work};

    *out = NULL;
    c.map = calloc(1, sizeof *c.map);
    if (!c.map || !RFS_PUSH(&c.text, '\0'))
        return rfs_fail_memory(err);
    int rc = find_side(&c);
    if (!rc && options)
        take_options(&c, options);
    rc = rc ?: renew_names(&c) ?: take_source(&c, c.source) ?: run(&c, MAKE, NULL) ?: repeat(&c);
    for (uint32_t i = 0; !rc && i < input->n; i++)
        if (!c.sides[c.source].tensors.data[i].taken && !c.sides[c.source].tensors.data[i].dropped)
            rc = settle(&c, i);
    rc = rc ?: rfs_rules_prove(&c) ?: finish_made(&c);
    if (rc)
        return rc;
    find_lost(&c);
    c.map->from_left = c.source == SIDE_LEFT;
    for (int side = 0; side < 2; side++) {
        const char *name = rules->sides[side];
        c.map->side[side] = rfs_arena_text(&c.map->arena, name, strlen(name));
        if (!c.map->side[side])
            return rfs_fail_memory(err);
    }
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
    const bool good = all && compile(rules, &other, work, NULL, &map, &err) == 0;
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
    static const char remedy[] = "; try: ";
    const struct rfs_error before = *err;
    const char *at = strstr(before.text, remedy);

    snprintf(err->text, sizeof err->text, "%.*s%sconvert_options=%s, by which the rules fit%s%s",
             at ? (int)(at - before.text) : (int)strlen(before.text), before.text, remedy, fitting,
             at ? ", or " : "", at ? at + strlen(remedy) : "");
}

int rfs_rules_compile(const struct rfs_rules *rules, const struct rfs_rules_input *input,
                      struct rfs_rules_map **out, struct rfs_error *err)
{
    struct options options = {.n = 0};
    struct rfs_error own = {0};
    uint64_t work = 0;
    const int rc = compile(rules, input, &work, &options, out, &own);

    if (rc == -EINVAL && !own.usage && work <= RULES_MOST_WORK) {
        RFS_FREE char *fitting = find_fitting(rules, input, &work, &options);
        if (fitting)
            name_fitting(fitting, &own);
    }
    if (rc && err)
        *err = own;
    return rc;
}
