/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the convert room only: rules as they are parsed. */
#pragma once

#include "base/arena.h"
#include "base/vec.h"
#include "formats/dtype.h"
#include "rules/rules.h"

enum { SIDE_LEFT, SIDE_RIGHT };

/* Nesting of expressions, conditions and included files. */
#define CONVERT_LEVELS 48
#define CONVERT_INCLUDES 8
#define CONVERT_BYTES ((size_t)4 << 20)

/* ---- numbers --------------------------------------------------------------------------------- */

enum number_kind {
    NUMBER_INTEGER,
    NUMBER_NAME,   /* of let, index */
    NUMBER_CONFIG, /* NAME is the key */
    NUMBER_IS,     /* A is a name or a key, NAME the word */
    NUMBER_NEGATIVE,
    NUMBER_NOT,
    NUMBER_ADD,
    NUMBER_SUBTRACT,
    NUMBER_MULTIPLY,
    NUMBER_DIVIDE,
    NUMBER_REMAINDER,
    NUMBER_EQUAL,
    NUMBER_UNEQUAL,
    NUMBER_LESS,
    NUMBER_AT_MOST,
    NUMBER_MORE,
    NUMBER_AT_LEAST,
    NUMBER_AND,
    NUMBER_OR,
    NUMBER_DEFAULT,
};

struct number {
    enum number_kind kind;
    int64_t value;
    const char *name;
    const struct number *a, *b;
    unsigned depth; /* of operators in it */
};

/* ---- tensors --------------------------------------------------------------------------------- */

/* A piece of a name: text, then the number of a hole, if there is one. */
struct name_part {
    const char *text;
    size_t n;
    const struct number *hole;
    const struct name_part *next;
};

struct size {
    const struct number *number; /* NULL: any */
    const char *text;            /* as it is written, for messages */
    const struct size *next;
};

enum node_kind {
    NODE_TENSOR,
    NODE_CONCAT,
    NODE_GROUPS,
    NODE_STACK,
    NODE_TRANSPOSE,
    NODE_JOIN,
    NODE_SPLIT,
    NODE_ROWS,
    NODE_CAST,
};

struct node {
    enum node_kind kind;
    const struct node *kids, *next;

    const struct name_part *name; /* of a tensor */
    bool sized;                   /* it has a list of sizes */
    const struct size *sizes;

    const char *index;          /* of stack */
    const struct number *axis;  /* of all that have one */
    const struct number *n;     /* groups, split; rows: how many */
    const struct number *first; /* rows */
    const struct number *step;  /* rows; NULL: 1 */
    bool casts[2];              /* cast: by side, false: same */
    enum rfs_dtype dtypes[2];
};

/* ---- statements ------------------------------------------------------------------------------ */

enum statement_kind {
    STATEMENT_MODELS,
    STATEMENT_LET,
    STATEMENT_OPTION,
    STATEMENT_INDEX,
    STATEMENT_RULE,
    STATEMENT_REPEAT,
    STATEMENT_COPY,
    STATEMENT_KEEP,
    STATEMENT_DROP,
    STATEMENT_REQUIRE,
    STATEMENT_IF,
    STATEMENT_ELSE,
    STATEMENT_END,
};

struct word {
    const char *text;
    const struct word *next;
};

struct statement {
    enum statement_kind kind;
    const char *file;
    uint32_t line;
    const char *text;                 /* of a condition or a right-hand side, in one line */
    const char *name;                 /* of let, option, index */
    const struct word *words;         /* models, option, keep, drop */
    int side;                         /* drop, repeat, copy */
    const struct number *a, *b;       /* let, index, require, if, else (or NULL) */
    const struct node *left, *right;  /* rule */
    const struct name_part *names[2]; /* repeat, copy */
};

struct rfs_rules {
    struct rfs_arena arena; /* of all that follows */
    const char *name;
    const char *sides[2];
    RFS_VEC(struct statement) statements; /* owned */
};

/* -EINVAL: "FILE: line N: parameter 'PARAM': …". */
int rfs_rules_fail(const char *file, uint32_t line, const char *param, const char *remedy,
                   struct rfs_error *err, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* The parser at work on one statement of a file: its lines, without comments. */
struct convert_parser {
    struct rfs_rules *rules;
    struct rfs_error *err;
    const char *file;
    uint32_t line;
    const char *at, *end;
    unsigned level;
};

/* parse_number.c. NULL: it failed, *err is filled. */
const struct number *rfs_rules_parse_number(struct convert_parser *p);
/* parse_tensor.c; the same. */
const struct node *rfs_rules_parse_tensor(struct convert_parser *p);
const struct name_part *rfs_rules_parse_name(struct convert_parser *p);

/* parse_text.c, used by all parsers. */
void rfs_rules_skip_blanks(struct convert_parser *p);
/* Moves behind TEXT if it is next, after blanks; else false. */
bool rfs_rules_accept(struct convert_parser *p, const char *text);
/* The same of a whole word. */
bool rfs_rules_accept_word(struct convert_parser *p, const char *word);
/* The length of the word (letters, digits, _) that is next. */
size_t rfs_rules_word_length(struct convert_parser *p);
/* A word that begins with a letter or _, in the arena; NULL: it failed. */
const char *rfs_rules_parse_word(struct convert_parser *p, const char *what);
/* In the arena; NULL: it failed. Memory is zeroed. */
const char *rfs_rules_copy_text(struct convert_parser *p, const char *text, size_t n);
void *rfs_rules_alloc(struct convert_parser *p, size_t size);
/* Fails at this statement; SOMETHING was expected and something else comes. Returns NULL. */
void *rfs_rules_expected(struct convert_parser *p, const char *something);
/* One level deeper; false, having failed, when expressions are nested too deeply. */
bool rfs_rules_nest(struct convert_parser *p);
