/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/compile.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/text.h"
#include "rules/compile_internal.h"

/* Rules run twice: for the names that they know, then for the links. */
enum pass { FIND_SIDE, MAKE };

/* The words of options that are tried where the rules do not fit. */
#define CONVERT_MOST_WORDS 6

static void compiling_end(struct compiling *c)
{
    for (int side = 0; side < 2; side++) {
        if (c->sides[side].names)
            rfs_intern_free(c->sides[side].names);
        free(c->sides[side].tensors.data);
    }
    if (c->known_names)
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

/* Names that a rule knows, with the first value of each index. */
static int sight_right(struct compiling *c, const struct node *node, const char *left,
                       struct sighting *sighting)
{
    struct known *index = node->kind == NODE_STACK ? rfs_rules_known(c, node->index) : NULL;
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
    const struct node *left = c->statement->left;
    const struct node *right = c->statement->right;
    struct turns turns;
    int rc = rfs_rules_turns_begin(c, left, &turns);

    while (left->kind == NODE_ROWS)
        left = left->kids;
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

/* ---- rules ----------------------------------------------------------------------------------- */

/* The rows that a left side takes of its tensor. */
static int read_left_rows(struct compiling *c, const struct node *left, const struct shape *real,
                          struct left_rows *rows, struct taking *taking, struct shape *taken)
{
    int rc = rfs_rules_axis(c, left->axis, real->ndim, &taking->axis);

    taking->step = 1;
    if (!rc)
        rc = rfs_rules_count(c, left->first, "the first row", 0, &taking->first);
    if (!rc)
        rc = rfs_rules_count(c, left->n, "the number of rows", 1, &taking->count);
    if (!rc && left->step)
        rc = rfs_rules_count(c, left->step, "the step from row to row", 1, &taking->step);
    if (rc)
        return rc;
    *taken = *real;
    taken->dims[taking->axis] = taking->count;
    *rows = (struct left_rows){taking->axis, taking->first, taking->step};
    return 0;
}

/*
 * The shape that an expression makes. A tensor of the source may have the axes that the rule joins
 * or splits in the end: its elements are in the same order.
 */
static int find_shape(struct compiling *c, const struct node **right, uint32_t ndim,
                      struct shape *shape)
{
    int rc = rfs_rules_shape(c, *right, shape);

    while (rc == 0 && shape->known &&
           (((*right)->kind == NODE_JOIN && ndim > shape->ndim) ||
            ((*right)->kind == NODE_SPLIT && ndim < shape->ndim))) {
        *right = (*right)->kids;
        rc = rfs_rules_shape(c, *right, shape);
    }
    return rc;
}

/* The source is on the left: its tensor has the shape that the rule has to make. */
static int make_from_left(struct compiling *c, const struct node *left)
{
    const struct node *right = c->statement->right;
    const struct node *leaf = left;
    struct left_rows rows;
    struct taking taking;
    struct shape want;
    struct shape shape;
    uint32_t tensor;

    while (leaf->kind == NODE_ROWS)
        leaf = leaf->kids;
    int rc = rfs_rules_spell(c, leaf->name);
    if (!rc)
        rc = rfs_rules_need(c, c->text.data, &tensor);
    if (rc)
        return rc;
    const char *name = rfs_rules_tensor_name(c, SIDE_LEFT, tensor);
    struct side_tensor *of = &c->sides[SIDE_LEFT].tensors.data[tensor];
    want = of->shape;
    rc = rfs_rules_annotated(c, leaf, &shape);
    if (!rc)
        rc = rfs_rules_unify(c, name, &want, &shape);
    if (!rc && left != leaf && left->kids != leaf)
        rc = CONVERT_FAIL(c, name, NULL, "takes rows of rows");
    if (!rc && left != leaf) {
        of->loose = true;
        rc = read_left_rows(c, left, &of->shape, &rows, &taking, &want);
    }
    if (!rc)
        rc = left != leaf ? rfs_rules_take_rows(c, SIDE_LEFT, tensor, &taking)
                          : rfs_rules_take_all(c, SIDE_LEFT, tensor);
    if (!rc)
        rc = find_shape(c, &right, want.ndim, &shape);
    if (rc)
        return rc;
    rc = rfs_rules_unify(c, name, &want, &shape);
    if (!rc)
        rc = rfs_rules_pieces(c, right, &shape);
    return rc ? rc : rfs_rules_link(c, tensor, &rows, left != leaf, &want);
}

/* The source is on the right. */
static int make_from_right(struct compiling *c, const struct node *left)
{
    struct shape shape;
    struct shape annotated;

    if (left->kind == NODE_ROWS)
        return CONVERT_FAIL(c, rfs_rules_leaf_name(c, left), "the other direction",
                            "is made of rows alone: this rule cannot be inverted");
    int rc = rfs_rules_shape(c, c->statement->right, &shape);
    if (!rc)
        rc = rfs_rules_annotated(c, left, &annotated);
    if (!rc)
        rc = rfs_rules_spell(c, left->name);
    if (rc)
        return rc;
    const uint32_t tensor = rfs_rules_tensor_add(c, SIDE_LEFT, c->text.data);
    if (tensor == NO_TENSOR)
        return -EINVAL;
    const char *name = rfs_rules_tensor_name(c, SIDE_LEFT, tensor);
    rc = rfs_rules_unify(c, name, &annotated, &shape);
    if (!rc)
        rc = rfs_rules_take_all(c, SIDE_LEFT, tensor);
    if (!rc)
        rc = rfs_rules_pieces(c, c->statement->right, &shape);
    return rc ? rc : rfs_rules_link(c, tensor, NULL, 0, &shape);
}

static int make_rule(struct compiling *c)
{
    const struct node *left = c->statement->left;
    struct turns turns;
    int rc = rfs_rules_turns_begin(c, left, &turns);

    while (rc == 0 && rfs_rules_turns_next(&turns)) {
        c->pieces.n = 0;
        rc = c->source == SIDE_LEFT ? make_from_left(c, left) : make_from_right(c, left);
    }
    rfs_rules_turns_end(&turns);
    return rc;
}

/* ---- running the statements ------------------------------------------------------------------ */

/* TIED: the statement counts because of tie_word_embeddings. */
static int run_statement(struct compiling *c, enum pass pass, struct sighting *sighting, bool tied)
{
    const struct waiting waiting = {c->statement, tied};

    switch (c->statement->kind) {
    case STATEMENT_MODELS:
        return rfs_rules_check_model(c);
    case STATEMENT_LET:
        return rfs_rules_learn_number(c);
    case STATEMENT_OPTION:
        return rfs_rules_learn_option(c);
    case STATEMENT_INDEX:
        return rfs_rules_learn_index(c);
    case STATEMENT_REQUIRE:
        return rfs_rules_check_required(c);
    case STATEMENT_RULE:
        if (pass == FIND_SIDE)
            return sight_rule(c, sighting);
        return RFS_PUSH(&c->applied, c->statement) ? make_rule(c) : rfs_fail_memory(c->err);
    default:
        return pass == FIND_SIDE || RFS_PUSH(&c->waiting, waiting) ? 0 : rfs_fail_memory(c->err);
    }
}

/* The branches that are open: whether this one counts, and whether one of its condition did. */
struct branches {
    struct {
        bool counts, done, outer, last;
        bool tied; /* its condition holds because of tie_word_embeddings */
    } open[CONVERT_LEVELS];
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

static int condition(struct compiling *c, bool asked, bool *value, bool *tied)
{
    int64_t number = 1;

    c->tied = false;
    const int rc = asked && c->statement->a ? rfs_rules_number(c, c->statement->a, &number) : 0;
    *value = asked && number != 0;
    *tied = c->tied;
    return rc;
}

static int branch(struct compiling *c, struct branches *branches)
{
    const bool outer = counts(branches);

    if (c->statement->kind == STATEMENT_IF) {
        if (branches->n == CONVERT_LEVELS)
            return CONVERT_FAIL(c, NULL, NULL, "conditions are nested more than %d times",
                                CONVERT_LEVELS);
        branches->open[branches->n].outer = outer;
        branches->open[branches->n].last = false;
        const int rc = condition(c, outer, &branches->open[branches->n].counts,
                                 &branches->open[branches->n].tied);
        branches->open[branches->n].done = branches->open[branches->n].counts;
        branches->n++;
        return rc;
    }
    if (branches->n == 0)
        return CONVERT_FAIL(c, NULL, NULL, "there is no 'if' before this");
    if (c->statement->kind == STATEMENT_END) {
        branches->n--;
        return 0;
    }
    struct branches *b = branches;
    const unsigned i = b->n - 1;
    if (b->open[i].last)
        return CONVERT_FAIL(c, NULL, NULL, "there is no 'if' before this");
    b->open[i].last = c->statement->a == NULL;
    const int rc =
        condition(c, b->open[i].outer && !b->open[i].done, &b->open[i].counts, &b->open[i].tied);
    b->open[i].done |= b->open[i].counts;
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
        return CONVERT_FAIL(c, NULL, NULL, "the rules end before the 'end' of a condition");
    return rc;
}

/* ---- tensors of no rule ---------------------------------------------------------------------- */

static bool like_any(const struct word *patterns, const char *name)
{
    for (; patterns; patterns = patterns->next)
        if (rfs_glob_match(patterns->text, name))
            return true;
    return false;
}

void rfs_rules_drop(struct compiling *c, uint32_t tensor)
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
            rfs_rules_drop(c, tensor);
            return 0;
        }
        if (statement->kind == STATEMENT_KEEP && like_any(statement->words, name)) {
            uint32_t same;
            int rc = rfs_rules_need(c, name, &same);
            if (rc == 0)
                rc = rfs_rules_take_all(c, c->source, tensor);
            return rc ? rc : rfs_rules_link_same(c, tensor, name);
        }
    }
    return 0;
}

/* Whether rules would drop a tensor of the source with that name. */
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

/* ---- all of it ------------------------------------------------------------------------------- */

/* The source's tensors, in its order, as those of a side. */
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
    if (c->known_names)
        rfs_intern_free(c->known_names);
    c->known_names = rfs_intern_new();
    if (!c->known_names)
        return rfs_fail_memory(c->err);
    for (int side = 0; side < 2; side++) {
        if (c->sides[side].names)
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
    const char *rules = rfs_rules_name(c->rules);
    int rc = renew_names(c);

    if (!rc)
        rc = take_source(c, SIDE_LEFT); /* names alone matter here */
    if (!rc)
        rc = run(c, FIND_SIDE, &sighting);
    if (!rc)
        rc = rfs_rules_check_options(c);
    if (rc)
        return rc;
    if (sighting.seen[SIDE_LEFT] > 0 && sighting.seen[SIDE_RIGHT] > 0)
        return rfs_rules_fail(c->input->source, 0, NULL, "a source with the names of one side",
                              c->err, "has names of both sides of %s: '%s' of %s, and '%s' of %s",
                              rules, sighting.names[SIDE_LEFT], c->rules->sides[SIDE_LEFT],
                              sighting.names[SIDE_RIGHT], c->rules->sides[SIDE_RIGHT]);
    if (sighting.seen[SIDE_LEFT] == 0 && sighting.seen[SIDE_RIGHT] == 0)
        return rfs_rules_fail(c->input->source, 0,
                              c->input->n > 0 ? c->input->tensors[0].name : NULL,
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
        size_t number; /* of the option */
    } data[CONVERT_MOST_WORDS];
};

static void take_options(const struct compiling *c, struct options *options)
{
    for (size_t i = 0; i < c->known.n; i++) {
        const struct known *known = &c->known.data[i];
        if (known->kind != KNOWN_OPTION || rfs_rules_is_given(c, known->name))
            continue;
        for (const struct word *word = known->words->next; word && options->n < CONVERT_MOST_WORDS;
             word = word->next) {
            const size_t cap = sizeof options->data[0].text;
            char *text = options->data[options->n].text;
            if ((size_t)snprintf(text, cap, "%s=%s", known->name, word->text) >= cap)
                continue;
            options->data[options->n++].number = i;
        }
    }
}

/* WORK is counted on. OPTIONS, if it is not NULL, gets the words that might be given. */
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
    if (!rc)
        rc = renew_names(&c);
    if (!rc)
        rc = take_source(&c, c.source);
    if (!rc)
        rc = run(&c, MAKE, NULL);
    if (!rc)
        rc = rfs_rules_repeat(&c);
    for (uint32_t i = 0; !rc && i < input->n; i++)
        if (!c.sides[c.source].tensors.data[i].taken && !c.sides[c.source].tensors.data[i].dropped)
            rc = settle(&c, i);
    if (!rc)
        rc = rfs_rules_prove(&c);
    if (!rc)
        rc = rfs_rules_link_finish(&c);
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

/* Whether the rules fit with MORE options, one or two of them, than the user gave. */
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

/* The fewest options by which the rules fit, or NULL; owned. */
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

    if (rc == -EINVAL && !own.usage && work <= CONVERT_MOST_WORK) {
        RFS_FREE char *fitting = find_fitting(rules, input, &work, &options);
        if (fitting)
            name_fitting(fitting, &own);
    }
    if (rc && err)
        *err = own;
    return rc;
}
