/* SPDX-License-Identifier: Apache-2.0 */
/* From the text of rules to statements; rules.h has the grammar. */
#include "base/cleanup.h"
#include "rules/internal.h"

/* One file while it is read. */
struct reader {
    struct rfs_rules *rules;
    rfs_rules_include *include;
    void *ctx;
    unsigned level; /* of included files */
    size_t *bytes;  /* of all files so far */
    struct rfs_error *err;
};

void rfs_rules_free(struct rfs_rules *rules)
{
    if (!rules)
        return;
    free(rules->statements.data);
    rfs_arena_free(&rules->arena);
    free(rules);
}

RFS_CLEANUP_OF(rules_cleanup, struct rfs_rules *, rfs_rules_free)

const char *rfs_rules_name(const struct rfs_rules *rules)
{
    return rules->name;
}

const char *rfs_rules_side(const struct rfs_rules *rules, unsigned side)
{
    return rules->sides[side];
}

/* ---- statements ------------------------------------------------------------------------------ */

static int failed(const struct convert_parser *p)
{
    return p->err && p->err->code == -ENOMEM ? -ENOMEM : -EINVAL;
}

static bool at_end(struct convert_parser *p)
{
    rfs_rules_skip_blanks(p);
    return p->at == p->end;
}

/* Words up to the end of the statement, with BETWEEN in between, or blanks alone. */
static bool parse_words(struct convert_parser *p, const char *between, const struct word **out)
{
    const struct word **last = out;

    do {
        size_t n = 0;
        rfs_rules_skip_blanks(p);
        while (p->at + n < p->end && p->at[n] != ' ' && p->at[n] != '\t' &&
               (!between || p->at[n] != *between))
            n++;
        if (n == 0)
            return rfs_rules_expected(p, "a word") != NULL;
        struct word *word = rfs_rules_alloc(p, sizeof *word);
        if (!word || !(word->text = rfs_rules_copy_text(p, p->at, n)))
            return false;
        p->at += n;
        *last = word;
        last = &word->next;
    } while (between ? rfs_rules_accept(p, between) : !at_end(p));
    return true;
}

static bool parse_side(struct convert_parser *p, struct statement *statement)
{
    statement->side = rfs_rules_accept_word(p, "left")    ? SIDE_LEFT
                      : rfs_rules_accept_word(p, "right") ? SIDE_RIGHT
                                                          : -1;
    return statement->side >= 0 || rfs_rules_expected(p, "left or right") != NULL;
}

static bool take_equals(struct convert_parser *p)
{
    return rfs_rules_accept(p, "=") || rfs_rules_expected(p, "'='") != NULL;
}

static bool parse_models(struct convert_parser *p, struct statement *statement)
{
    return parse_words(p, NULL, &statement->words);
}

static bool parse_let(struct convert_parser *p, struct statement *statement)
{
    statement->name = rfs_rules_parse_word(p, "a name");
    return statement->name && take_equals(p) && (statement->a = rfs_rules_parse_number(p));
}

static bool parse_option(struct convert_parser *p, struct statement *statement)
{
    statement->name = rfs_rules_parse_word(p, "a name");
    return statement->name && take_equals(p) && parse_words(p, "|", &statement->words);
}

static bool parse_index(struct convert_parser *p, struct statement *statement)
{
    statement->name = rfs_rules_parse_word(p, "a name");
    if (!statement->name || !take_equals(p) || !(statement->a = rfs_rules_parse_number(p)))
        return false;
    if (!rfs_rules_accept(p, ".."))
        return rfs_rules_expected(p, "'..'") != NULL;
    return (statement->b = rfs_rules_parse_number(p)) != NULL;
}

static bool parse_repeat(struct convert_parser *p, struct statement *statement)
{
    return parse_side(p, statement) && (statement->names[0] = rfs_rules_parse_name(p)) &&
           take_equals(p) && (statement->names[1] = rfs_rules_parse_name(p));
}

static bool parse_keep(struct convert_parser *p, struct statement *statement)
{
    return parse_words(p, NULL, &statement->words);
}

static bool parse_drop(struct convert_parser *p, struct statement *statement)
{
    return parse_side(p, statement) && parse_words(p, NULL, &statement->words);
}

/* The text from BEGIN to here, in one line. */
static const char *text_since(struct convert_parser *p, const char *begin)
{
    char *text = rfs_rules_alloc(p, (size_t)(p->at - begin) + 1);
    size_t n = 0;

    for (; text && begin < p->at; begin++)
        if (!strchr(" \t\r\n", *begin))
            text[n++] = *begin;
        else if (n > 0 && text[n - 1] != ' ')
            text[n++] = ' ';
    return text;
}

static bool parse_condition(struct convert_parser *p, struct statement *statement)
{
    const char *begin = p->at;

    return (statement->a = rfs_rules_parse_number(p)) && (statement->text = text_since(p, begin));
}

static bool parse_else(struct convert_parser *p, struct statement *statement)
{
    return !rfs_rules_accept_word(p, "if") || parse_condition(p, statement);
}

static bool parse_end(struct convert_parser *p, struct statement *statement)
{
    (void)p;
    (void)statement;
    return true;
}

static bool is_left(const struct node *node)
{
    while (node->kind == NODE_ROWS)
        node = node->kids;
    return node->kind == NODE_TENSOR;
}

static bool parse_rule(struct convert_parser *p, struct statement *statement)
{
    statement->kind = STATEMENT_RULE;
    statement->left = rfs_rules_parse_tensor(p);
    if (!statement->left)
        return false;
    if (!is_left(statement->left))
        return rfs_rules_expected(p, "a rule with one tensor to the left, or rows of one,") != NULL;
    if (!take_equals(p))
        return false;
    const char *begin = p->at;
    return (statement->right = rfs_rules_parse_tensor(p)) &&
           (statement->text = text_since(p, begin));
}

static const struct keyword {
    const char *word;
    enum statement_kind kind;
    bool (*parse)(struct convert_parser *p, struct statement *statement);
} keywords[] = {
    {"models", STATEMENT_MODELS, parse_models},
    {"let", STATEMENT_LET, parse_let},
    {"option", STATEMENT_OPTION, parse_option},
    {"index", STATEMENT_INDEX, parse_index},
    {"repeat", STATEMENT_REPEAT, parse_repeat},
    {"copy", STATEMENT_COPY, parse_repeat},
    {"keep", STATEMENT_KEEP, parse_keep},
    {"drop", STATEMENT_DROP, parse_drop},
    {"require", STATEMENT_REQUIRE, parse_condition},
    {"if", STATEMENT_IF, parse_condition},
    {"else", STATEMENT_ELSE, parse_else},
    {"end", STATEMENT_END, parse_end},
};

/* Passes WORD if it begins a statement: it is alone, and no "=" follows. */
static bool take_keyword(struct convert_parser *p, const char *word)
{
    const size_t n = strlen(word);
    const char *begin = p->at;

    if (rfs_rules_word_length(p) != n || memcmp(p->at, word, n) != 0 ||
        (p->at + n < p->end && p->at[n] != ' ' && p->at[n] != '\t'))
        return false;
    p->at += n;
    rfs_rules_skip_blanks(p);
    const bool name = p->at < p->end && *p->at == '=';
    if (name)
        p->at = begin;
    return !name;
}

static int parse_sides(struct convert_parser *p)
{
    struct rfs_rules *rules = p->rules;

    if (rules->sides[0])
        return rfs_rules_fail(p->file, p->line, NULL, NULL, p->err,
                              "the sides have their names already");
    for (unsigned side = 0; side < 2; side++) {
        rules->sides[side] = rfs_rules_parse_word(p, "the name of a side");
        if (!rules->sides[side])
            return failed(p);
    }
    return 0;
}

static int read_text(const struct reader *reader, const char *name, const char *text, size_t n);

static int parse_include(struct convert_parser *p, const struct reader *reader)
{
    const struct word *file;
    RFS_FREE char *full = NULL;
    RFS_FREE char *text = NULL;
    struct reader inner = *reader;
    size_t n;

    if (!parse_words(p, NULL, &file))
        return failed(p);
    if (file->next || !reader->include)
        return rfs_rules_fail(p->file, p->line, NULL, NULL, p->err,
                              file->next ? "an include names one file"
                                         : "no file can be included here");
    if (++inner.level > CONVERT_INCLUDES)
        return rfs_rules_fail(p->file, p->line, NULL, NULL, p->err,
                              "files include each other more than %d times", CONVERT_INCLUDES);
    const int rc = reader->include(reader->ctx, p->file, file->text, &full, &text, &n, p->err);
    return rc ? rc : read_text(&inner, full, text, n);
}

static int parse_statement(struct convert_parser *p, const struct reader *reader)
{
    struct statement statement = {.kind = STATEMENT_RULE, .file = p->file, .line = p->line};
    bool (*parse)(struct convert_parser *, struct statement *) = parse_rule;

    if (take_keyword(p, "include"))
        return parse_include(p, reader);
    if (take_keyword(p, "sides")) {
        const int rc = parse_sides(p);
        return rc || at_end(p) ? rc
                               : (rfs_rules_expected(p, "the end of the statement"), failed(p));
    }
    for (size_t i = 0; parse == parse_rule && i < sizeof keywords / sizeof *keywords; i++)
        if (take_keyword(p, keywords[i].word)) {
            statement.kind = keywords[i].kind;
            parse = keywords[i].parse;
        }
    if (!parse(p, &statement))
        return failed(p);
    if (!at_end(p)) {
        rfs_rules_expected(p, "the end of the statement");
        return failed(p);
    }
    return RFS_PUSH(&p->rules->statements, statement) ? 0 : rfs_fail_memory(p->err);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Where a statement ends that begins at TEXT; *LINES gets how many lines it takes. */
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

/* Comments become blanks. */
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

/* Comments may be in any language; a NUL or another byte elsewhere would end or hide a name. */
static int check_ascii(const struct convert_parser *p, const char *text, size_t n)
{
    uint32_t line = 1;

    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        line += c == '\n';
        if ((c < ' ' && c != '\t' && c != '\n') || c > '~')
            return rfs_rules_fail(p->file, line, NULL, "names in ASCII", p->err,
                                  "byte \\x%02x stands outside of a comment", c);
    }
    return 0;
}

static int read_text(const struct reader *reader, const char *name, const char *text, size_t n)
{
    struct rfs_rules *rules = reader->rules;
    struct convert_parser p = {.rules = rules, .err = reader->err, .line = 1};
    char *copy = rfs_arena_text(&rules->arena, text, n);

    p.file = rfs_arena_text(&rules->arena, name, strlen(name));
    if (!copy || !p.file)
        return rfs_fail_memory(reader->err);
    *reader->bytes += n;
    if (*reader->bytes > CONVERT_BYTES)
        return rfs_rules_fail(p.file, 0, NULL, NULL, reader->err,
                              "the rules have more than %zu bytes", CONVERT_BYTES);
    blank_comments(copy, n);
    const int wrong = check_ascii(&p, copy, n);
    if (wrong)
        return wrong;
    for (size_t at = 0; at < n;) {
        uint32_t lines;
        const size_t length = statement_length(copy + at, n - at, &lines);
        p.at = copy + at;
        p.end = p.at + length;
        p.level = 0;
        const int rc = at_end(&p) ? 0 : parse_statement(&p, reader);
        if (rc)
            return rc;
        p.line += lines;
        at += length + 1;
    }
    return 0;
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
    const struct reader reader = {rules, include, ctx, 0, &bytes, err ? err : &own};
    const int rc = read_text(&reader, name, text, n);
    if (rc)
        return rc;
    if (!rules->sides[0])
        return rfs_rules_fail(name, 0, NULL, "sides mindformers huggingface", err,
                              "the rules do not name the two sides");
    *out = RFS_STEAL(rules);
    return 0;
}
