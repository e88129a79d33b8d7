/* SPDX-License-Identifier: Apache-2.0 */
/* Names with holes, and expressions of tensors; rules.h has the grammar. */
#include "rules/internal.h"

#include <strings.h>

#define MOST_SIZES 16

static bool ends_name(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == '(' || c == ')' ||
           c == '[' || c == ']' || c == '=';
}

/* A name up to its end, with its braces. */
static size_t name_length(struct convert_parser *p)
{
    size_t n = 0;
    bool hole = false;

    rfs_rules_skip_blanks(p);
    while (p->at + n < p->end && (hole || !ends_name(p->at[n]))) {
        hole = p->at[n] == '{' || (hole && p->at[n] != '}');
        n++;
    }
    return n;
}

/* The number in a hole, whose brace is passed. */
static const struct number *parse_hole(struct convert_parser *p, const char *end)
{
    const char *close = memchr(p->at, '}', (size_t)(end - p->at));

    if (!close)
        return rfs_rules_expected(p, "a number and '}'");
    struct convert_parser inner = *p;
    inner.end = close;
    const struct number *number = rfs_rules_parse_number(&inner);
    rfs_rules_skip_blanks(&inner);
    if (number && inner.at < inner.end)
        return rfs_rules_expected(&inner, "'}'");
    p->at = close + 1;
    return number;
}

const struct name_part *rfs_rules_parse_name(struct convert_parser *p)
{
    const size_t n = name_length(p);
    const char *end = p->at + n;
    const struct name_part *first = NULL;
    const struct name_part **last = &first;

    if (n == 0)
        return rfs_rules_expected(p, "the name of a tensor");
    if (memchr(p->at, '"', n) || memchr(p->at, '\'', n))
        return rfs_rules_expected(p, "a name without quotes");
    while (p->at < end) {
        struct name_part *part = rfs_rules_alloc(p, sizeof *part);
        if (!part)
            return NULL;
        const char *open = memchr(p->at, '{', (size_t)(end - p->at));
        part->n = (size_t)((open ? open : end) - p->at);
        if (memchr(p->at, '*', part->n))
            return rfs_rules_expected(p, "the name of one tensor, without '*',");
        part->text = rfs_rules_copy_text(p, p->at, part->n);
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

static const struct size *parse_size(struct convert_parser *p)
{
    struct size *size = rfs_rules_alloc(p, sizeof *size);

    if (!size)
        return NULL;
    rfs_rules_skip_blanks(p);
    const char *begin = p->at;
    if (!rfs_rules_accept_word(p, "_")) {
        size->number = rfs_rules_parse_number(p);
        if (!size->number)
            return NULL;
    }
    size->text = rfs_rules_copy_text(p, begin, (size_t)(p->at - begin));
    return size->text ? size : NULL;
}

static bool parse_sizes(struct convert_parser *p, struct node *node)
{
    const struct size **last = &node->sizes;
    unsigned n = 0;

    node->sized = rfs_rules_accept(p, "[");
    if (!node->sized || rfs_rules_accept(p, "]"))
        return true;
    do {
        const struct size *size = parse_size(p);
        if (!size)
            return false;
        if (++n > MOST_SIZES)
            return rfs_rules_expected(p, "']', as a tensor has 16 axes at most,") != NULL;
        *last = size;
        last = (const struct size **)&((struct size *)size)->next;
    } while (rfs_rules_accept(p, ","));
    return rfs_rules_accept(p, "]") || rfs_rules_expected(p, "',' or ']'") != NULL;
}

static const struct node *parse_leaf(struct convert_parser *p)
{
    struct node *node = rfs_rules_alloc(p, sizeof *node);

    if (!node)
        return NULL;
    node->kind = NODE_TENSOR;
    node->name = rfs_rules_parse_name(p);
    return node->name && parse_sizes(p, node) ? node : NULL;
}

/* ---- functions ------------------------------------------------------------------------------- */

static bool take_comma(struct convert_parser *p)
{
    return rfs_rules_accept(p, ",") || rfs_rules_expected(p, "','") != NULL;
}

/* A number and the comma behind it. */
static bool parse_argument(struct convert_parser *p, const struct number **out)
{
    *out = rfs_rules_parse_number(p);
    return *out && take_comma(p);
}

static bool parse_kids(struct convert_parser *p, struct node *node, bool several)
{
    const struct node **last = &node->kids;

    do {
        const struct node *kid = rfs_rules_parse_tensor(p);
        if (!kid)
            return false;
        *last = kid;
        last = (const struct node **)&((struct node *)kid)->next;
    } while (several && rfs_rules_accept(p, ","));
    return true;
}

static bool parse_concat(struct convert_parser *p, struct node *node)
{
    return parse_argument(p, &node->axis) && parse_kids(p, node, true);
}

static bool parse_groups(struct convert_parser *p, struct node *node)
{
    return parse_argument(p, &node->n) && parse_argument(p, &node->axis) &&
           parse_kids(p, node, true);
}

static bool parse_stack(struct convert_parser *p, struct node *node)
{
    node->index = rfs_rules_parse_word(p, "the name of an index");
    return node->index && take_comma(p) && parse_argument(p, &node->axis) &&
           parse_kids(p, node, false);
}

static bool parse_transpose(struct convert_parser *p, struct node *node)
{
    return parse_kids(p, node, false);
}

static bool parse_join(struct convert_parser *p, struct node *node)
{
    return parse_argument(p, &node->axis) && parse_kids(p, node, false);
}

static bool parse_split(struct convert_parser *p, struct node *node)
{
    return parse_argument(p, &node->axis) && parse_argument(p, &node->n) &&
           parse_kids(p, node, false);
}

/* Whether another argument follows before the one that ends with the bracket of the function. */
static bool has_step(const struct convert_parser *p)
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

static bool parse_rows(struct convert_parser *p, struct node *node)
{
    if (!parse_argument(p, &node->axis) || !parse_argument(p, &node->first) ||
        !parse_argument(p, &node->n) || (has_step(p) && !parse_argument(p, &node->step)))
        return false;
    return parse_kids(p, node, false);
}

static bool parse_dtype(struct convert_parser *p, struct node *node, int side)
{
    const size_t n = rfs_rules_word_length(p);

    for (unsigned d = 0; d < RFS_DTYPE_COUNT; d++) {
        const enum rfs_dtype dtype = (enum rfs_dtype)d;
        const char *name = rfs_dtype_name(dtype);
        if (rfs_dtype_is_float_target(dtype) && strlen(name) == n &&
            strncasecmp(p->at, name, n) == 0) {
            node->casts[side] = true;
            node->dtypes[side] = dtype;
            p->at += n;
            return take_comma(p);
        }
    }
    return rfs_rules_accept_word(p, "same")
               ? take_comma(p)
               : rfs_rules_expected(p, "float16, bfloat16, float32, float64 or same") != NULL;
}

static bool parse_cast(struct convert_parser *p, struct node *node)
{
    return parse_dtype(p, node, SIDE_LEFT) && parse_dtype(p, node, SIDE_RIGHT) &&
           parse_kids(p, node, false);
}

static const struct function {
    const char *name;
    enum node_kind kind;
    bool (*parse)(struct convert_parser *p, struct node *node);
} functions[] = {
    {"concat", NODE_CONCAT, parse_concat}, {"groups", NODE_GROUPS, parse_groups},
    {"stack", NODE_STACK, parse_stack},    {"transpose", NODE_TRANSPOSE, parse_transpose},
    {"join", NODE_JOIN, parse_join},       {"split", NODE_SPLIT, parse_split},
    {"rows", NODE_ROWS, parse_rows},       {"cast", NODE_CAST, parse_cast},
};

/* The function that is next, passed with its bracket; *CALLED: there is one, known or not. */
static const struct function *accept_function(struct convert_parser *p, bool *called)
{
    const size_t n = rfs_rules_word_length(p);
    const char *next = p->at + n;

    while (next < p->end && *next == ' ')
        next++;
    *called = n > 0 && next < p->end && *next == '(';
    if (!*called)
        return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == n && memcmp(functions[i].name, p->at, n) == 0) {
            p->at = next + 1;
            return &functions[i];
        }
    return NULL;
}

const struct node *rfs_rules_parse_tensor(struct convert_parser *p)
{
    if (!rfs_rules_nest(p))
        return NULL;
    bool called;
    const struct function *function = accept_function(p, &called);
    if (!function && called)
        return rfs_rules_expected(p, "concat, groups, stack, transpose, join, split, rows or cast");
    if (!function) {
        p->level--;
        return parse_leaf(p);
    }
    struct node *node = rfs_rules_alloc(p, sizeof *node);
    if (!node)
        return NULL;
    node->kind = function->kind;
    if (!function->parse(p, node))
        return NULL;
    p->level--;
    return rfs_rules_accept(p, ")") ? node : rfs_rules_expected(p, "')'");
}
