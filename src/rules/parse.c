/* SPDX-License-Identifier: Apache-2.0 */
/* From files and texts of rules to statements; rules.h has the grammar. */
#include "base/cleanup.h"
#include "base/origin.h"
#include "base/store.h"
#include "base/text.h"
#include "rules/shipped.h"
#include "rules/statements.h"

#include <strings.h>
#include <unistd.h>

#define MOST_INCLUDES 8 /* nesting of included files */
#define MOST_BYTES ((size_t)4 << 20)

void rfs_rules_free(struct rfs_rules *rules)
{
    if (!rules)
        return;
    free(rules->statements.data);
    rfs_arena_free(&rules->arena);
    free(rules);
}

RFS_CLEANUP_OF(rules_cleanup, struct rfs_rules *, rfs_rules_free)

/* ---- words ----------------------------------------------------------------------------------- */

/* Copies a text into the arena. NULL: it failed, p->err is filled. */
static const char *copy_text(struct rfs_lex *p, const char *text, size_t n)
{
    const char *copy = rfs_arena_text(p->arena, text, n);

    if (!copy)
        rfs_fail_memory(p->err);
    return copy;
}

/* Takes zeroed memory of the arena. NULL: it failed, p->err is filled. */
static void *alloc(struct rfs_lex *p, size_t size)
{
    void *fresh = rfs_arena_zeros(p->arena, 1, size);

    if (!fresh)
        rfs_fail_memory(p->err);
    return fresh;
}

/* Fails: SOMETHING was expected and something else comes. Returns NULL. */
static void *expected(struct rfs_lex *p, const char *something)
{
    rfs_lex_skip(p);
    const size_t left = (size_t)(p->end - p->at);

    if (left == 0)
        RFS_LEX_FAIL(p, NULL, "the statement ends where %s should be", something);
    else
        RFS_LEX_FAIL(p, NULL, "'%.*s%s' stands where %s should be", (int)(left < 40 ? left : 40),
                     p->at, left > 40 ? "…" : "", something);
    return NULL;
}

/* Passes TEXT. False: something else comes, and it failed. */
static bool pass(struct rfs_lex *p, const char *text)
{
    char quoted[8];

    snprintf(quoted, sizeof quoted, "'%s'", text);
    return rfs_lex_take(p, text) || expected(p, quoted) != NULL;
}

/* Passes a word that begins with a letter or _, and copies it. NULL: it failed. */
static const char *parse_word(struct rfs_lex *p, const char *what)
{
    const size_t n = rfs_lex_word(p);

    if (n == 0 || (*p->at >= '0' && *p->at <= '9'))
        return expected(p, what);
    const char *name = copy_text(p, p->at, n);
    p->at += n;
    return name;
}

/* Goes one level deeper. False, having failed, when expressions are nested too deeply. */
static bool nest(struct rfs_lex *p)
{
    if (p->level == RULES_LEVELS)
        RFS_LEX_FAIL(p, NULL, "expressions are nested more than %d times", RULES_LEVELS);
    return p->level++ < RULES_LEVELS;
}

/* ---- numbers and conditions ------------------------------------------------------------------ */

#define MOST_TERMS 200 /* nested as they are evaluated */

static const struct number *make(struct rfs_lex *p, enum number_kind kind, const struct number *a,
                                 const struct number *b)
{
    const unsigned of_b = b ? b->depth : 0;
    struct number *number = alloc(p, sizeof *number);

    if (number)
        *number = (struct number){.kind = kind, .a = a, .b = b};
    if (number)
        number->depth = 1 + (a->depth > of_b ? a->depth : of_b);
    if (!number || number->depth <= MOST_TERMS)
        return number;
    RFS_LEX_FAIL(p, NULL, "a number has more than %d terms", MOST_TERMS);
    return NULL;
}

static const struct number *parse_integer(struct rfs_lex *p, size_t n)
{
    char text[24] = "";
    char *end;

    if (n < sizeof text)
        memcpy(text, p->at, n);
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return expected(p, "a number");
    struct number *number = alloc(p, sizeof *number);
    if (number)
        *number = (struct number){.kind = NUMBER_INTEGER, .value = value};
    p->at += n;
    return number;
}

static const char *parse_key(struct rfs_lex *p)
{
    const char *key = p->at;

    do {
        const size_t n = rfs_lex_word(p);
        if (n == 0)
            return expected(p, "a key of the config");
        p->at += n;
    } while (p->at < p->end && *p->at == '.' && p->at + 1 < p->end && p->at[1] != '.' &&
             p->at++ != NULL);
    return copy_text(p, key, (size_t)(p->at - key));
}

/* Passes "is WORD" behind a name, a key or an entry, or "has WORD" behind a key. */
static const struct number *parse_is(struct rfs_lex *p, const struct number *a)
{
    const bool has = a && a->kind == NUMBER_CONFIG && rfs_lex_take_word(p, "has");

    if (!a || (!has && !rfs_lex_take_word(p, "is")))
        return a;
    struct number *number = alloc(p, sizeof *number);
    if (!number)
        return NULL;
    const size_t n = rfs_lex_word(p);
    if (n == 0)
        return expected(p, "a word");
    *number = (struct number){.kind = has ? NUMBER_HAS : NUMBER_IS,
                              .a = a,
                              .name = copy_text(p, p->at, n),
                              .depth = a->depth};
    p->at += n;
    return number->name ? number : NULL;
}

static const struct number *parse_number(struct rfs_lex *p);

/* Passes "config.KEY" behind "config.", or an entry of that list. */
static bool parse_config(struct rfs_lex *p, struct number *number)
{
    *number = (struct number){.kind = NUMBER_CONFIG, .name = parse_key(p)};
    if (!number->name || p->at == p->end || *p->at != '[')
        return number->name != NULL;
    p->at++;
    number->kind = NUMBER_ENTRY;
    number->a = parse_number(p);
    number->depth = number->a ? number->a->depth + 1 : 0;
    return number->a && pass(p, "]");
}

/* Passes "config.KEY)" behind "count(". */
static bool parse_count(struct rfs_lex *p, struct number *number)
{
    if (!rfs_lex_take(p, "config."))
        return expected(p, "config.KEY") != NULL;
    *number = (struct number){.kind = NUMBER_COUNT, .name = parse_key(p)};
    return number->name && pass(p, ")");
}

/* Passes "PATTERN)" behind "has(". */
static bool parse_source(struct rfs_lex *p, struct number *number)
{
    const char *begin = p->at;

    while (p->at < p->end && *p->at != ')' && *p->at != ' ' && *p->at != '\n')
        p->at++;
    if (p->at == begin)
        return expected(p, "a pattern of names") != NULL;
    *number = (struct number){.kind = NUMBER_SOURCE,
                              .name = copy_text(p, begin, (size_t)(p->at - begin))};
    return number->name && pass(p, ")");
}

static const struct number *parse_primary(struct rfs_lex *p)
{
    const size_t n = rfs_lex_word(p);

    if (n == 0 && rfs_lex_take(p, "(")) {
        const struct number *inner = parse_number(p);
        return inner && pass(p, ")") ? inner : NULL;
    }
    if (n == 0)
        return expected(p, "a number");
    if (*p->at >= '0' && *p->at <= '9')
        return parse_integer(p, n);
    struct number *number = alloc(p, sizeof *number);
    if (!number)
        return NULL;
    if (rfs_lex_take_word(p, "true") || rfs_lex_take_word(p, "false")) {
        *number = (struct number){.kind = NUMBER_INTEGER, .value = n == strlen("true")};
        return number;
    }
    if (rfs_lex_take(p, "config."))
        return parse_config(p, number) ? parse_is(p, number) : NULL;
    if (rfs_lex_take(p, "count("))
        return parse_count(p, number) ? number : NULL;
    if (rfs_lex_take(p, "has("))
        return parse_source(p, number) ? number : NULL;
    *number = (struct number){.kind = NUMBER_NAME, .name = parse_word(p, "a number")};
    return number->name ? parse_is(p, number) : NULL;
}

static const struct number *parse_unary(struct rfs_lex *p)
{
    if (!nest(p))
        return NULL;
    const bool negative = rfs_lex_take(p, "-");
    const struct number *a = negative ? parse_unary(p) : parse_primary(p);
    p->level--;
    return a && negative ? make(p, NUMBER_NEGATIVE, a, NULL) : a;
}

/* Operators of one strength, from the left. */
struct op {
    const char *text;
    enum number_kind kind;
};

static bool take_operator(struct rfs_lex *p, const struct op *op)
{
    const bool word = op->text[0] == 'a' || op->text[0] == 'o';

    return word ? rfs_lex_take_word(p, op->text) : rfs_lex_take(p, op->text);
}

/*
 * Passes what the operators of LEVELS join. Those of the last level bind strongest. PARSE passes
 * the terms.
 */
static const struct number *parse_joined(struct rfs_lex *p, const struct op *const *levels,
                                         const struct number *(*parse)(struct rfs_lex *))
{
    const struct number *a = *levels ? parse_joined(p, levels + 1, parse) : parse(p);

    while (a && *levels) {
        const struct op *op = *levels;
        while (op->text && !take_operator(p, op))
            op++;
        if (!op->text)
            return a;
        const struct number *b = parse_joined(p, levels + 1, parse);
        a = b ? make(p, op->kind, a, b) : NULL;
    }
    return a;
}

/* Passes a number, or "NUMBER in config.KEY". */
static const struct number *parse_member(struct rfs_lex *p)
{
    static const struct op product[] = {
        {"*", NUMBER_MULTIPLY}, {"/", NUMBER_DIVIDE}, {"%", NUMBER_REMAINDER}, {NULL, 0}};
    static const struct op sum[] = {{"+", NUMBER_ADD}, {"-", NUMBER_SUBTRACT}, {NULL, 0}};
    static const struct op compared[] = {{"==", NUMBER_EQUAL},
                                         {"!=", NUMBER_UNEQUAL},
                                         {"<=", NUMBER_AT_MOST},
                                         {">=", NUMBER_AT_LEAST},
                                         {"<", NUMBER_LESS},
                                         {">", NUMBER_MORE},
                                         {NULL, 0}};
    static const struct op *const levels[] = {compared, sum, product, NULL};
    const struct number *a = parse_joined(p, levels, parse_unary);

    if (!a || !rfs_lex_take_word(p, "in"))
        return a;
    rfs_lex_skip(p);
    const struct number *b = rfs_lex_take(p, "config.") ? alloc(p, sizeof *b) : NULL;
    if (!b)
        return expected(p, "config.KEY");
    *(struct number *)b = (struct number){.kind = NUMBER_CONFIG, .name = parse_key(p)};
    return b->name ? make(p, NUMBER_IN, a, b) : NULL;
}

static const struct number *parse_negation(struct rfs_lex *p)
{
    if (!nest(p))
        return NULL;
    const bool negated = rfs_lex_take_word(p, "not");
    const struct number *a = negated ? parse_negation(p) : parse_member(p);
    p->level--;
    return a && negated ? make(p, NUMBER_NOT, a, NULL) : a;
}

static const struct number *parse_number(struct rfs_lex *p)
{
    static const struct op default_[] = {{"??", NUMBER_DEFAULT}, {NULL, 0}};
    static const struct op either[] = {{"or", NUMBER_OR}, {NULL, 0}};
    static const struct op both[] = {{"and", NUMBER_AND}, {NULL, 0}};
    static const struct op *const levels[] = {default_, either, both, NULL};

    if (!nest(p))
        return NULL;
    const struct number *number = parse_joined(p, levels, parse_negation);
    p->level--;
    return number;
}

/* ---- names and tensors ----------------------------------------------------------------------- */

#define MOST_SIZES 16

static bool ends_name(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == '(' || c == ')' ||
           c == '[' || c == ']' || c == '=';
}

/* Returns the length of a name, with its braces. */
static size_t name_length(struct rfs_lex *p)
{
    size_t n = 0;
    bool hole = false;

    rfs_lex_skip(p);
    while (p->at + n < p->end && (hole || !ends_name(p->at[n]))) {
        hole = p->at[n] == '{' || (hole && p->at[n] != '}');
        n++;
    }
    return n;
}

/* Passes the number in a hole, whose brace is passed already. */
static const struct number *parse_hole(struct rfs_lex *p, const char *end)
{
    const char *close = memchr(p->at, '}', (size_t)(end - p->at));

    if (!close)
        return expected(p, "a number and '}'");
    struct rfs_lex inner = *p;
    inner.end = close;
    const struct number *number = parse_number(&inner);
    rfs_lex_skip(&inner);
    if (number && inner.at < inner.end)
        return expected(&inner, "'}'");
    p->at = close + 1;
    return number;
}

static const struct name_part *parse_name(struct rfs_lex *p)
{
    const size_t n = name_length(p);
    const char *end = p->at + n;
    const struct name_part *first = NULL;
    const struct name_part **last = &first;

    if (n == 0)
        return expected(p, "the name of a tensor");
    if (memchr(p->at, '"', n) || memchr(p->at, '\'', n))
        return expected(p, "a name without quotes");
    while (p->at < end) {
        struct name_part *part = alloc(p, sizeof *part);
        if (!part)
            return NULL;
        const char *open = memchr(p->at, '{', (size_t)(end - p->at));
        part->n = (size_t)((open ? open : end) - p->at);
        if (memchr(p->at, '*', part->n))
            return expected(p, "the name of one tensor, without '*',");
        part->text = copy_text(p, p->at, part->n);
        p->at += part->n;
        if (open) {
            p->at++;
            part->hole = parse_hole(p, end);
        }
        if (!part->text || (open && !part->hole))
            return NULL;
        *last = part;
        last = (const struct name_part **)&part->next;
    }
    return first;
}

/* ---- a tensor with its sizes ----------------------------------------------------------------- */

static const struct size *parse_size(struct rfs_lex *p)
{
    struct size *size = alloc(p, sizeof *size);

    if (!size)
        return NULL;
    rfs_lex_skip(p);
    const char *begin = p->at;
    if (!rfs_lex_take_word(p, "_")) {
        size->number = parse_number(p);
        if (!size->number)
            return NULL;
    }
    size->text = copy_text(p, begin, (size_t)(p->at - begin));
    return size->text ? size : NULL;
}

static bool parse_sizes(struct rfs_lex *p, struct node *node)
{
    const struct size **last = &node->sizes;
    unsigned n = 0;

    node->sized = rfs_lex_take(p, "[");
    if (!node->sized || rfs_lex_take(p, "]"))
        return true;
    do {
        const struct size *size = parse_size(p);
        if (!size)
            return false;
        if (++n > MOST_SIZES)
            return expected(p, "']', as a tensor has 16 axes at most,") != NULL;
        *last = size;
        last = (const struct size **)&((struct size *)size)->next;
    } while (rfs_lex_take(p, ","));
    return rfs_lex_take(p, "]") || expected(p, "',' or ']'") != NULL;
}

static const struct node *parse_leaf(struct rfs_lex *p)
{
    struct node *node = alloc(p, sizeof *node);

    if (!node)
        return NULL;
    node->kind = NODE_TENSOR;
    node->name = parse_name(p);
    for (struct node *last = node; node->name && rfs_lex_take(p, "|");) {
        struct node *also = alloc(p, sizeof *also);
        if (!also || !(also->name = parse_name(p)))
            return NULL;
        last->also = also;
        last = also;
    }
    return node->name && parse_sizes(p, node) ? node : NULL;
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Says whether another argument follows before the last one of the function. */
static bool has_step(const struct rfs_lex *p)
{
    unsigned open = 0;

    for (const char *c = p->at; c < p->end; c++) {
        open += *c == '(' || *c == '[' || *c == '{';
        if (*c == ')' || *c == ']' || *c == '}') {
            if (open == 0)
                return false;
            open--;
        }
        if (*c == ',' && open == 0)
            return true;
    }
    return false;
}

static bool parse_dtype(struct rfs_lex *p, struct node *node, int side)
{
    const size_t n = rfs_lex_word(p);

    for (unsigned d = 0; d < RFS_DTYPE_COUNT; d++) {
        const enum rfs_dtype dtype = (enum rfs_dtype)d;
        const char *name = rfs_dtype_name(dtype);
        if (rfs_dtype_is_float_target(dtype) && strlen(name) == n &&
            strncasecmp(p->at, name, n) == 0) {
            node->casts[side] = true;
            node->dtypes[side] = dtype;
            p->at += n;
            return true;
        }
    }
    return rfs_lex_take_word(p, "same") ||
           expected(p, "float16, bfloat16, float32, float64 or same") != NULL;
}

/* Passes the argument that LETTER stands for in the table of functions. */
static bool parse_argument(struct rfs_lex *p, char letter, struct node *node)
{
    switch (letter) {
    case 'a':
        return (node->axis = parse_number(p)) != NULL;
    case 'n':
        return (node->n = parse_number(p)) != NULL;
    case 'f':
        return (node->first = parse_number(p)) != NULL;
    case 'p':
        return (node->parts = parse_number(p)) != NULL;
    case 's':
        return (node->step = parse_number(p)) != NULL;
    case 'i':
        return (node->index = parse_word(p, "the name of an index")) != NULL;
    default:
        return parse_dtype(p, node, letter == 'l' ? SIDE_LEFT : SIDE_RIGHT);
    }
}

static const struct node *parse_tensor(struct rfs_lex *p);

static bool parse_kids(struct rfs_lex *p, struct node *node, bool several)
{
    const struct node **last = &node->kids;

    do {
        const struct node *kid = parse_tensor(p);
        if (!kid)
            return false;
        *last = kid;
        last = (const struct node **)&((struct node *)kid)->next;
    } while (several && rfs_lex_take(p, ","));
    return true;
}

static const struct function {
    const char *name;
    enum node_kind kind;
    /*
     * Arguments before the tensors: axis, n, first, step (which may be missing), parts, index,
     * dtypes to the left and right.
     */
    const char *arguments;
    bool several; /* it takes any number of tensors */
} functions[] = {
    {"concat", NODE_CONCAT, "a", true},  {"groups", NODE_GROUPS, "na", true},
    {"stack", NODE_STACK, "ia", false},  {"transpose", NODE_TRANSPOSE, "", false},
    {"join", NODE_JOIN, "a", false},     {"split", NODE_SPLIT, "an", false},
    {"rows", NODE_ROWS, "afns", false},  {"cast", NODE_CAST, "lr", false},
    {"plus", NODE_PLUS, "n", false},     {"pad", NODE_PAD, "an", false},
    {"parts", NODE_ROWS, "pafn", false},
};

static bool parse_arguments(struct rfs_lex *p, const struct function *function, struct node *node)
{
    for (const char *letter = function->arguments; *letter; letter++) {
        if (*letter == 's' && !has_step(p))
            continue;
        if (!parse_argument(p, *letter, node) || !pass(p, ","))
            return false;
    }
    return parse_kids(p, node, function->several);
}

/* Passes a function that is next, with its bracket; *CALLED: there is one, known or not. */
static const struct function *accept_function(struct rfs_lex *p, bool *called)
{
    const size_t n = rfs_lex_word(p);
    const char *next = p->at + n;

    while (next < p->end && *next == ' ')
        next++;
    *called = n > 0 && next < p->end && *next == '(';
    if (!*called)
        return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (rfs_lex_is(p, functions[i].name)) {
            p->at = next + 1;
            return &functions[i];
        }
    return NULL;
}

static const struct node *parse_tensor(struct rfs_lex *p)
{
    if (!nest(p))
        return NULL;
    bool called;
    const struct function *function = accept_function(p, &called);
    if (!function && called)
        return expected(p,
                        "concat, groups, parts, stack, transpose, join, split, rows, cast, plus or "
                        "pad");
    if (!function) {
        p->level--;
        return parse_leaf(p);
    }
    struct node *node = alloc(p, sizeof *node);
    if (!node)
        return NULL;
    node->kind = function->kind;
    if (!parse_arguments(p, function, node))
        return NULL;
    p->level--;
    return pass(p, ")") ? node : NULL;
}

/* ---- statements ------------------------------------------------------------------------------ */

static int failed(const struct rfs_lex *p)
{
    return p->err && p->err->code == -ENOMEM ? -ENOMEM : -EINVAL;
}

/* Passes words up to the end of the statement, with BETWEEN in between, or blanks alone. */
static bool parse_words(struct rfs_lex *p, const char *between, const struct rfs_rules_word **out)
{
    const struct rfs_rules_word **last = out;

    do {
        size_t n = 0;
        rfs_lex_skip(p);
        while (p->at + n < p->end && p->at[n] != ' ' && p->at[n] != '\t' &&
               (!between || p->at[n] != *between))
            n++;
        if (n == 0)
            return expected(p, "a word") != NULL;
        struct rfs_rules_word *word = alloc(p, sizeof *word);
        if (!word || !(word->text = copy_text(p, p->at, n)))
            return false;
        p->at += n;
        *last = word;
        last = &word->next;
    } while (between ? rfs_lex_take(p, between) : !rfs_lex_end(p));
    return true;
}

static bool parse_side(struct rfs_lex *p, struct statement *statement)
{
    statement->side = rfs_lex_take_word(p, "left")    ? SIDE_LEFT
                      : rfs_lex_take_word(p, "right") ? SIDE_RIGHT
                                                      : -1;
    return statement->side >= 0 || expected(p, "left or right") != NULL;
}

static bool parse_patterns(struct rfs_lex *p, struct statement *statement)
{
    return parse_words(p, NULL, &statement->words);
}

static bool parse_let(struct rfs_lex *p, struct statement *statement)
{
    statement->name = parse_word(p, "a name");
    return statement->name && pass(p, "=") && (statement->a = parse_number(p));
}

static bool parse_option(struct rfs_lex *p, struct statement *statement)
{
    statement->name = parse_word(p, "a name");
    return statement->name && pass(p, "=") && parse_words(p, "|", &statement->words);
}

static bool parse_index(struct rfs_lex *p, struct statement *statement)
{
    statement->name = parse_word(p, "a name");
    if (!statement->name || !pass(p, "=") || !(statement->a = parse_number(p)) || !pass(p, ".."))
        return false;
    statement->b = parse_number(p);
    if (statement->b && rfs_lex_take_word(p, "where"))
        return (statement->where = parse_number(p)) != NULL;
    return statement->b != NULL;
}

static bool parse_stacked(struct rfs_lex *p, struct statement *statement)
{
    return (statement->name = parse_word(p, "the name of an index")) != NULL;
}

static bool parse_repeat(struct rfs_lex *p, struct statement *statement)
{
    return parse_side(p, statement) && (statement->names[0] = parse_name(p)) && pass(p, "=") &&
           (statement->names[1] = parse_name(p));
}

static bool parse_drop(struct rfs_lex *p, struct statement *statement)
{
    return parse_side(p, statement) && parse_words(p, NULL, &statement->words);
}

/* Copies the text from BEGIN to here, in one line. */
static const char *text_since(struct rfs_lex *p, const char *begin)
{
    char *text = alloc(p, (size_t)(p->at - begin) + 1);
    size_t n = 0;

    for (; text && begin < p->at; begin++)
        if (!strchr(" \t\r\n", *begin))
            text[n++] = *begin;
        else if (n > 0 && text[n - 1] != ' ')
            text[n++] = ' ';
    return text;
}

static bool parse_condition(struct rfs_lex *p, struct statement *statement)
{
    const char *begin = p->at;

    return (statement->a = parse_number(p)) && (statement->text = text_since(p, begin));
}

static bool parse_else(struct rfs_lex *p, struct statement *statement)
{
    return !rfs_lex_take_word(p, "if") || parse_condition(p, statement);
}

static bool parse_rule(struct rfs_lex *p, struct statement *statement)
{
    statement->kind = STATEMENT_RULE;
    statement->left = parse_tensor(p);
    if (!statement->left)
        return false;
    if (rfs_rules_left_tensor(statement->left)->kind != NODE_TENSOR || statement->left->parts)
        return expected(p, "a rule with one tensor to the left, or rows of one,") != NULL;
    if (!pass(p, "="))
        return false;
    const char *begin = p->at;
    return (statement->right = parse_tensor(p)) && (statement->text = text_since(p, begin));
}

static const struct keyword {
    const char *word;
    enum statement_kind kind;
    bool (*parse)(struct rfs_lex *p, struct statement *statement); /* NULL: nothing follows */
} keywords[] = {
    {"models", STATEMENT_MODELS, parse_patterns},
    {"let", STATEMENT_LET, parse_let},
    {"option", STATEMENT_OPTION, parse_option},
    {"index", STATEMENT_INDEX, parse_index},
    {"stacked", STATEMENT_STACKED, parse_stacked},
    {"repeat", STATEMENT_REPEAT, parse_repeat},
    {"copy", STATEMENT_COPY, parse_repeat},
    {"keep", STATEMENT_KEEP, parse_patterns},
    {"drop", STATEMENT_DROP, parse_drop},
    {"require", STATEMENT_REQUIRE, parse_condition},
    {"if", STATEMENT_IF, parse_condition},
    {"else", STATEMENT_ELSE, parse_else},
    {"end", STATEMENT_END, NULL},
};

/* Passes WORD if it begins a statement: it is alone, and no "=" follows. */
static bool take_keyword(struct rfs_lex *p, const char *word)
{
    const size_t n = strlen(word);
    const char *begin = p->at;

    if (!rfs_lex_is(p, word) || (p->at + n < p->end && p->at[n] != ' ' && p->at[n] != '\t'))
        return false;
    p->at += n;
    rfs_lex_skip(p);
    const bool name = p->at < p->end && *p->at == '=';
    if (name)
        p->at = begin;
    return !name;
}

static int parse_sides(struct rfs_lex *p, struct rfs_rules *rules)
{
    if (rules->sides[0])
        return RFS_LEX_FAIL(p, NULL, "the sides have their names already");
    for (unsigned side = 0; side < 2; side++) {
        rules->sides[side] = parse_word(p, "the name of a side");
        if (!rules->sides[side])
            return failed(p);
    }
    return 0;
}

#define MOST_HINT 300 /* characters */

/* Passes the text of a hint, which is kept for the next statement. */
static int parse_hint(struct rfs_lex *p, struct rfs_rules *rules)
{
    const char *begin = p->at;

    p->at = p->end;
    while (p->at > begin && strchr(" \t", p->at[-1]))
        p->at--;
    rules->hint = text_since(p, begin);
    p->at = p->end;
    if (!rules->hint)
        return failed(p);
    const size_t n = strlen(rules->hint);
    return n > 0 && n <= MOST_HINT
               ? 0
               : RFS_LEX_FAIL(p, NULL, "a hint has 1 to %d characters, not %zu", MOST_HINT, n);
}

/* Gives a statement the hint that stands before it. */
static int take_hint(struct rfs_lex *p, struct rfs_rules *rules, struct statement *statement)
{
    static const bool can_fail[] = {
        [STATEMENT_RULE] = true,   [STATEMENT_REQUIRE] = true, [STATEMENT_LET] = true,
        [STATEMENT_INDEX] = true,  [STATEMENT_REPEAT] = true,  [STATEMENT_COPY] = true,
        [STATEMENT_MODELS] = true, [STATEMENT_END] = false};

    if (rules->hint && !(statement && can_fail[statement->kind]))
        return RFS_LEX_FAIL(p, NULL,
                            "a hint stands before this, and not before a rule, models, "
                            "let, index, require, repeat or copy");
    if (statement)
        statement->hint = rules->hint;
    rules->hint = NULL;
    return 0;
}

#define MOST_PARAMETERS 16 /* of an include; each "$" looks through them */

/* A text that an include gives to the file. */
struct parameter {
    const char *name, *text;
    const struct parameter *next;
};

/* One file while it is read. */
struct reader {
    struct rfs_rules *rules;
    rfs_rules_include *include;
    void *ctx;
    unsigned level; /* nesting of included files */
    size_t *bytes;  /* sum of all files so far */
    const struct parameter *parameters;
    struct rfs_error *err;
};

static int read_text(const struct reader *reader, const char *name, const char *text, size_t n);

/* Passes "with NAME=TEXT NAME=TEXT". */
static bool parse_parameters(struct rfs_lex *p, const struct parameter **out)
{
    for (unsigned n = 0; !rfs_lex_end(p); n++) {
        struct parameter *parameter = alloc(p, sizeof *parameter);
        if (n == MOST_PARAMETERS)
            return expected(p, "the end of the 16 parameters") != NULL;
        if (!parameter || !(parameter->name = parse_word(p, "the name of a parameter")) ||
            !pass(p, "="))
            return false;
        const char *begin = p->at;
        while (p->at < p->end && !strchr(" \t\n", *p->at))
            p->at++;
        if (p->at == begin)
            return expected(p, "the text of a parameter") != NULL;
        parameter->text = copy_text(p, begin, (size_t)(p->at - begin));
        if (!parameter->text)
            return false;
        parameter->next = *out;
        *out = parameter;
    }
    return true;
}

static int parse_include(struct rfs_lex *p, const struct reader *reader)
{
    RFS_FREE char *full = NULL;
    RFS_FREE char *text = NULL;
    struct reader inner = *reader;
    size_t n = 0;

    while (p->at + n < p->end && !strchr(" \t\n", p->at[n]))
        n++;
    const char *file = n > 0 ? copy_text(p, p->at, n) : expected(p, "the name of a file");
    if (!file)
        return failed(p);
    p->at += n;
    inner.parameters = NULL;
    if (rfs_lex_take_word(p, "with") && !parse_parameters(p, &inner.parameters))
        return failed(p);
    if (!rfs_lex_end(p) || !reader->include)
        return RFS_LEX_FAIL(p, NULL,
                            reader->include ? "an include names one file"
                                            : "no file can be included here");
    if (++inner.level > MOST_INCLUDES)
        return RFS_LEX_FAIL(p, NULL, "files include each other more than %d times", MOST_INCLUDES);
    return reader->include(reader->ctx, p->file, file, &full, &text, &n, p->err)
               ?: read_text(&inner, full, text, n);
}

/* Fails if the statement goes on. */
static int parse_rest(struct rfs_lex *p)
{
    return rfs_lex_end(p) ? 0 : (expected(p, "the end of the statement"), failed(p));
}

static int parse_statement(struct rfs_lex *p, const struct reader *reader)
{
    struct statement statement = {.kind = STATEMENT_RULE, .file = p->file, .line = p->line};
    bool (*parse)(struct rfs_lex *, struct statement *) = parse_rule;

    if (take_keyword(p, "include"))
        return take_hint(p, reader->rules, NULL) ?: parse_include(p, reader);
    if (take_keyword(p, "sides"))
        return take_hint(p, reader->rules, NULL) ?: parse_sides(p, reader->rules) ?: parse_rest(p);
    if (take_keyword(p, "hint"))
        return take_hint(p, reader->rules, NULL) ?: parse_hint(p, reader->rules);
    for (size_t i = 0; parse == parse_rule && i < sizeof keywords / sizeof *keywords; i++)
        if (take_keyword(p, keywords[i].word)) {
            statement.kind = keywords[i].kind;
            parse = keywords[i].parse;
        }
    if (parse && !parse(p, &statement))
        return failed(p);
    return parse_rest(p)
               ?: take_hint(p, reader->rules, &statement)
               ?: (RFS_PUSH(&reader->rules->statements, statement) ? 0 : rfs_fail_memory(p->err));
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Returns the length of a statement that begins at TEXT; *LINES gets how many lines it takes. */
static size_t statement_length(const char *text, size_t n, uint32_t *lines)
{
    unsigned open = 0;
    char last = '\0';
    size_t i;

    *lines = 1;
    for (i = 0; i < n; i++) {
        const char c = text[i];
        if (c == '\n' && open == 0 && last != '=' && last != ',')
            break;
        *lines += c == '\n';
        open += c == '(' || c == '[';
        open -= (c == ')' || c == ']') && open > 0;
        if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
            last = c;
    }
    return i;
}

/* Turns comments into blanks. */
static void blank_comments(char *text, size_t n)
{
    bool comment = false;
    char before = '\n';

    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        comment = c != '\n' &&
                  (comment || (c == '#' && (before == '\n' || before == ' ' || before == '\t')));
        before = c;
        if (comment || c == '\r')
            text[i] = ' ';
    }
}

/* Refuses bytes outside of comments that would end or hide a name, such as NUL. */
static int check_ascii(const struct rfs_lex *p, const char *text, size_t n)
{
    uint32_t line = 1;

    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        line += c == '\n';
        if ((c < ' ' && c != '\t' && c != '\n') || c > '~')
            return rfs_lex_fail(p->file, line, NULL, "names in ASCII", p->err,
                                "byte \\x%02x stands outside of a comment", c);
    }
    return 0;
}

/* Returns the parameter with the name TEXT, of N characters, or NULL. */
static const struct parameter *find_parameter(const struct reader *reader, const char *text,
                                              size_t n)
{
    const struct parameter *parameter = reader->parameters;

    while (parameter && (strlen(parameter->name) != n || memcmp(parameter->name, text, n) != 0))
        parameter = parameter->next;
    return parameter;
}

/*
 * Puts the texts of parameters where "$NAME" stands. *OUT, of *N bytes, is in the arena; if there
 * are none, both stay.
 */
static int put_parameters(const struct reader *reader, struct rfs_lex *p, const char *text,
                          size_t *n, char **out)
{
    if (!memchr(text, '$', *n))
        return 0;
    RFS_FREE char *made = NULL;
    size_t used = 0;
    FILE *to = open_memstream(&made, &used);
    uint32_t line = 1;
    int rc = to ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < *n;) {
        line += text[i] == '\n';
        if (text[i] != '$') {
            rc = fputc(text[i++], to) == EOF ? -ENOMEM : 0;
            continue;
        }
        struct rfs_lex word = {.at = text + i + 1, .end = text + *n};
        const size_t length = rfs_lex_word(&word);
        const struct parameter *found = find_parameter(reader, text + i + 1, length);
        if (!found)
            rc = rfs_lex_fail(p->file, line, NULL, "include FILE with NAME=TEXT", p->err,
                              "the file is not given the parameter '%.*s'",
                              (int)(length < 40 ? length : 40), text + i + 1);
        else if ((size_t)ftell(to) + strlen(found->text) > MOST_BYTES)
            rc = rfs_lex_fail(p->file, line, NULL, NULL, p->err,
                              "the rules have more than %zu bytes", MOST_BYTES);
        else
            rc = fputs(found->text, to) == EOF ? -ENOMEM : 0;
        i += 1 + length;
    }
    if (to && fclose(to) != 0)
        rc = rc ?: -ENOMEM;
    if (rc == 0 && !(*out = rfs_arena_text(p->arena, made, used)))
        rc = -ENOMEM;
    *n = used;
    return rc == -ENOMEM ? rfs_fail_memory(p->err) : rc;
}

static int read_text(const struct reader *reader, const char *name, const char *text, size_t n)
{
    struct rfs_rules *rules = reader->rules;
    struct rfs_lex p = {.arena = &rules->arena, .err = reader->err, .line = 1};
    char *copy = rfs_arena_text(&rules->arena, text, n);

    p.file = rfs_arena_text(&rules->arena, name, strlen(name));
    if (!copy || !p.file)
        return rfs_fail_memory(reader->err);
    *reader->bytes += n;
    if (*reader->bytes > MOST_BYTES)
        return rfs_lex_fail(p.file, 0, NULL, NULL, reader->err,
                            "the rules have more than %zu bytes", MOST_BYTES);
    blank_comments(copy, n);
    const size_t given = n;
    const int wrong = check_ascii(&p, copy, n) ?: put_parameters(reader, &p, copy, &n, &copy);
    if (wrong)
        return wrong;
    *reader->bytes += n > given ? n - given : 0;
    for (size_t at = 0; at < n;) {
        uint32_t lines;
        const size_t length = statement_length(copy + at, n - at, &lines);
        p.at = copy + at;
        p.end = p.at + length;
        p.level = 0;
        const int rc = rfs_lex_end(&p) ? 0 : parse_statement(&p, reader);
        if (rc)
            return rc;
        p.line += lines;
        at += length + 1;
    }
    return take_hint(&p, rules, NULL);
}

int rfs_rules_parse(const char *name, const char *text, size_t n, rfs_rules_include *include,
                    void *ctx, struct rfs_rules **out, struct rfs_error *err)
{
    RFS_CLEANUP(rules_cleanup) struct rfs_rules *rules = calloc(1, sizeof *rules);
    struct rfs_error own = {0};
    size_t bytes = 0;

    *out = NULL;
    if (!rules || !(rules->name = rfs_arena_text(&rules->arena, name, strlen(name))))
        return rfs_fail_memory(err);
    const struct reader reader = {rules, include, ctx, 0, &bytes, NULL, err ? err : &own};
    const int rc = read_text(&reader, name, text, n);
    if (rc)
        return rc;
    if (!rules->sides[0])
        return rfs_lex_fail(name, 0, NULL, "sides mindformers huggingface", err,
                            "the rules do not name the two sides");
    *out = RFS_STEAL(rules);
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

#define FOLDER RFS_SHIPPED_FOLDER
#define ENDING ".rules"

static const struct rfs_rules_file *find_shipped(const char *name)
{
    const struct rfs_rules_file *file = rfs_rules_shipped;

    while (file->name && strcmp(file->name, name) != 0)
        file++;
    return file->name ? file : NULL;
}

/* Returns whether convert= may name a shipped file; the others are parts of these. */
static bool is_named(const struct rfs_rules_file *file)
{
    return strncmp(file->name, "common", strlen("common")) != 0;
}

static int name_bytes(const struct rfs_rules_file *file)
{
    return (int)(strlen(file->name) - strlen(ENDING));
}

static bool is_shipped(const char *path)
{
    return strncmp(path, FOLDER, strlen(FOLDER)) == 0 && find_shipped(path + strlen(FOLDER));
}

/*
 * Reads a file beside the one that includes it, by the store CTX if that is a URL, or a shipped
 * one; these include only shipped ones.
 */
static int include_file(void *ctx, const char *from, const char *name, char **full, char **text,
                        size_t *n, struct rfs_error *err)
{
    const char *slash = strrchr(from, '/');
    const struct rfs_rules_file *shipped = find_shipped(name);

    if (!rfs_origin_stays(name))
        return rfs_fail(err, -EINVAL, RFS_IN(from), "a file beside it",
                        "it includes '%s', which is not below its own folder", name);
    *full = rfs_text_printf("%.*s/%s", slash ? (int)(slash - from) : 1, slash ? from : ".", name);
    if (!*full)
        return rfs_fail_memory(err);
    if (!shipped || (!is_shipped(from) && access(*full, F_OK) == 0))
        return rfs_store_read_whole(ctx, *full, MOST_BYTES, text, n, err);
    free(*full);
    *full = rfs_text_printf(FOLDER "%s", name);
    *text = strdup(shipped->text);
    *n = strlen(shipped->text);
    return *full && *text ? 0 : rfs_fail_memory(err);
}

int rfs_rules_open(struct rfs_store *store, const char *path, struct rfs_rules **out,
                   struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t n;

    *out = NULL;
    return rfs_store_read_whole(store, path, MOST_BYTES, &text, &n, err)
               ?: rfs_rules_parse(path, text, n, include_file, store, out, err);
}

int rfs_rules_named(const char *name, struct rfs_rules **out, struct rfs_error *err)
{
    *out = NULL;
    RFS_FREE char *path = rfs_text_printf(FOLDER "%s" ENDING, name);
    if (!path)
        return rfs_fail_memory(err);
    const struct rfs_rules_file *shipped = find_shipped(path + strlen(FOLDER));
    if (shipped)
        return rfs_rules_parse(path, shipped->text, strlen(shipped->text), include_file, NULL, out,
                               err);
    char names[400] = "";
    size_t n = 0;
    for (size_t i = 0; rfs_rules_shipped[i].name && n < sizeof names; i++)
        if (is_named(&rfs_rules_shipped[i]))
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s",
                                  n > 0 ? ", " : "convert=", name_bytes(&rfs_rules_shipped[i]),
                                  rfs_rules_shipped[i].name);
    return rfs_fail_usage(err, names, "there are no conversion rules '%s'", name);
}

/* ---- what rules say of themselves ------------------------------------------------------------ */

char *rfs_rules_name_at(size_t i)
{
    const struct rfs_rules_file *file = rfs_rules_shipped;

    for (; file->name; file++)
        if (is_named(file) && i-- == 0)
            return strndup(file->name, (size_t)name_bytes(file));
    return NULL;
}

const char *rfs_rules_side(const struct rfs_rules *rules, int side)
{
    return rules->sides[side];
}

void rfs_rules_each_words(const struct rfs_rules *rules,
                          void (*take)(void *ctx, const char *option,
                                       const struct rfs_rules_word *words),
                          void *ctx)
{
    for (size_t i = 0; i < rules->statements.n; i++) {
        const struct statement *statement = &rules->statements.data[i];
        if (statement->kind == STATEMENT_MODELS || statement->kind == STATEMENT_OPTION)
            take(ctx, statement->kind == STATEMENT_OPTION ? statement->name : NULL,
                 statement->words);
    }
}
