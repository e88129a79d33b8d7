/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and conditions; rules.h has the grammar. */
#include "rules/internal.h"

#define MOST_TERMS 200 /* one in the other, as they are evaluated */

static const struct number *make(struct convert_parser *p, enum number_kind kind,
                                 const struct number *a, const struct number *b)
{
    const unsigned of_b = b ? b->depth : 0;
    struct number *number = rfs_rules_alloc(p, sizeof *number);

    if (number)
        *number = (struct number){.kind = kind, .a = a, .b = b};
    if (number)
        number->depth = 1 + (a->depth > of_b ? a->depth : of_b);
    if (!number || number->depth <= MOST_TERMS)
        return number;
    rfs_rules_fail(p->file, p->line, NULL, NULL, p->err, "a number has more than %d terms",
                   MOST_TERMS);
    return NULL;
}

static const struct number *parse_integer(struct convert_parser *p, size_t n)
{
    char text[24] = "";
    char *end;

    if (n < sizeof text)
        memcpy(text, p->at, n);
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return rfs_rules_expected(p, "a number");
    struct number *number = rfs_rules_alloc(p, sizeof *number);
    if (number)
        *number = (struct number){.kind = NUMBER_INTEGER, .value = value};
    p->at += n;
    return number;
}

static const char *parse_key(struct convert_parser *p)
{
    const char *key = p->at;

    do {
        const size_t n = rfs_rules_word_length(p);
        if (n == 0)
            return rfs_rules_expected(p, "a key of the config");
        p->at += n;
    } while (p->at < p->end && *p->at == '.' && p->at + 1 < p->end && p->at[1] != '.' &&
             p->at++ != NULL);
    return rfs_rules_copy_text(p, key, (size_t)(p->at - key));
}

/* "is WORD" behind a name or a key. */
static const struct number *parse_is(struct convert_parser *p, const struct number *a)
{
    if (!a || !rfs_rules_accept_word(p, "is"))
        return a;
    struct number *number = rfs_rules_alloc(p, sizeof *number);
    if (!number)
        return NULL;
    const size_t n = rfs_rules_word_length(p);
    if (n == 0)
        return rfs_rules_expected(p, "a word");
    *number = (struct number){.kind = NUMBER_IS, .a = a, .name = rfs_rules_copy_text(p, p->at, n)};
    p->at += n;
    return number->name ? number : NULL;
}

static const struct number *parse_primary(struct convert_parser *p)
{
    const size_t n = rfs_rules_word_length(p);

    if (n == 0 && rfs_rules_accept(p, "(")) {
        const struct number *inner = rfs_rules_parse_number(p);
        if (inner && !rfs_rules_accept(p, ")"))
            return rfs_rules_expected(p, "')'");
        return inner;
    }
    if (n == 0)
        return rfs_rules_expected(p, "a number");
    if (*p->at >= '0' && *p->at <= '9')
        return parse_integer(p, n);
    struct number *number = rfs_rules_alloc(p, sizeof *number);
    if (!number)
        return NULL;
    if (rfs_rules_accept_word(p, "true") || rfs_rules_accept_word(p, "false")) {
        *number = (struct number){.kind = NUMBER_INTEGER, .value = n == strlen("true")};
        return number;
    }
    if (rfs_rules_accept(p, "config."))
        *number = (struct number){.kind = NUMBER_CONFIG, .name = parse_key(p)};
    else
        *number = (struct number){.kind = NUMBER_NAME, .name = rfs_rules_parse_word(p, "a number")};
    return number->name ? parse_is(p, number) : NULL;
}

static const struct number *parse_unary(struct convert_parser *p)
{
    if (!rfs_rules_nest(p))
        return NULL;
    const bool negative = rfs_rules_accept(p, "-");
    const struct number *a = negative ? parse_unary(p) : parse_primary(p);
    p->level--;
    return a && negative ? make(p, NUMBER_NEGATIVE, a, NULL) : a;
}

/* Operators of one strength, from the left. */
struct op {
    const char *text;
    enum number_kind kind;
};

static bool take_operator(struct convert_parser *p, const struct op *op)
{
    const bool word = op->text[0] == 'a' || op->text[0] == 'o';

    return word ? rfs_rules_accept_word(p, op->text) : rfs_rules_accept(p, op->text);
}

static const struct number *parse_chain(struct convert_parser *p, const struct op *ops,
                                        const struct number *(*parse)(struct convert_parser *))
{
    const struct number *a = parse(p);

    while (a) {
        const struct op *op = ops;
        while (op->text && !take_operator(p, op))
            op++;
        if (!op->text)
            return a;
        const struct number *b = parse(p);
        a = b ? make(p, op->kind, a, b) : NULL;
    }
    return NULL;
}

static const struct number *parse_product(struct convert_parser *p)
{
    static const struct op operators[] = {
        {"*", NUMBER_MULTIPLY}, {"/", NUMBER_DIVIDE}, {"%", NUMBER_REMAINDER}, {NULL, 0}};

    return parse_chain(p, operators, parse_unary);
}

static const struct number *parse_sum(struct convert_parser *p)
{
    static const struct op operators[] = {{"+", NUMBER_ADD}, {"-", NUMBER_SUBTRACT}, {NULL, 0}};

    return parse_chain(p, operators, parse_product);
}

static const struct number *parse_compared(struct convert_parser *p)
{
    static const struct op operators[] = {{"==", NUMBER_EQUAL},
                                          {"!=", NUMBER_UNEQUAL},
                                          {"<=", NUMBER_AT_MOST},
                                          {">=", NUMBER_AT_LEAST},
                                          {"<", NUMBER_LESS},
                                          {">", NUMBER_MORE},
                                          {NULL, 0}};

    return parse_chain(p, operators, parse_sum);
}

static const struct number *parse_negation(struct convert_parser *p)
{
    if (!rfs_rules_nest(p))
        return NULL;
    const bool negated = rfs_rules_accept_word(p, "not");
    const struct number *a = negated ? parse_negation(p) : parse_compared(p);
    p->level--;
    return a && negated ? make(p, NUMBER_NOT, a, NULL) : a;
}

static const struct number *parse_both(struct convert_parser *p)
{
    static const struct op operators[] = {{"and", NUMBER_AND}, {NULL, 0}};

    return parse_chain(p, operators, parse_negation);
}

static const struct number *parse_either(struct convert_parser *p)
{
    static const struct op operators[] = {{"or", NUMBER_OR}, {NULL, 0}};

    return parse_chain(p, operators, parse_both);
}

const struct number *rfs_rules_parse_number(struct convert_parser *p)
{
    static const struct op operators[] = {{"??", NUMBER_DEFAULT}, {NULL, 0}};

    if (!rfs_rules_nest(p))
        return NULL;
    const struct number *number = parse_chain(p, operators, parse_either);
    p->level--;
    return number;
}
