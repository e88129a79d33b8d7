/* SPDX-License-Identifier: Apache-2.0 */
/* Parsed rules: parse.c makes them, and the rest of this room applies them. Of this room alone. */
#pragma once

#include "base/lex.h"
#include "base/vec.h"
#include "formats/dtype.h"
#include "rules/rules.h"

enum { SIDE_LEFT, SIDE_RIGHT };

/* Nesting of expressions and of conditions. */
#define RULES_LEVELS 48

/* ---- numbers --------------------------------------------------------------------------------- */

enum number_kind {
    NUMBER_INTEGER,
    NUMBER_NAME,   /* a name that let or index gives a meaning */
    NUMBER_CONFIG, /* NAME is the key */
    NUMBER_ENTRY,  /* NAME is the key of a list, A the number of the entry */
    NUMBER_COUNT,  /* of the entries of the list NAME */
    NUMBER_SOURCE, /* NAME is a pattern of names in the source */
    NUMBER_IS,     /* A is a name, a key or an entry, NAME the word */
    NUMBER_HAS,    /* A is the key of a list, NAME the word */
    NUMBER_IN,     /* B is the key of a list */
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
    unsigned depth; /* nesting of operators */
};

/* ---- tensors --------------------------------------------------------------------------------- */

/* One step of a name: text, then the number of a hole, if there is one. */
struct name_part {
    const char *text;
    size_t n;
    const struct number *hole;
    const struct name_part *next;
};

struct size {
    const struct number *number; /* NULL: any */
    const char *text;            /* the size as it is written, for messages */
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
    NODE_PLUS,
    NODE_PAD,
};

struct node {
    enum node_kind kind;
    const struct node *kids, *next;

    const struct name_part *name; /* tensor */
    const struct node *also;      /* a tensor with another name that the first may have, or NULL */
    bool sized;                   /* a tensor has a list of sizes */
    const struct size *sizes;

    const char *index;          /* stack */
    const struct number *axis;  /* all that have one */
    const struct number *n;     /* groups, split; rows: how many; plus; pad: the size */
    const struct number *first; /* rows */
    const struct number *step;  /* rows; NULL: 1 */
    const struct number *parts; /* rows: of how many equal parts of the axis each; NULL: 1 */
    bool casts[2];              /* cast; by side; false: same */
    enum rfs_dtype dtypes[2];
};

/* ---- statements ------------------------------------------------------------------------------ */

enum statement_kind {
    STATEMENT_MODELS,
    STATEMENT_LET,
    STATEMENT_OPTION,
    STATEMENT_INDEX,
    STATEMENT_STACKED,
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

struct statement {
    enum statement_kind kind;
    const char *file;
    uint32_t line;
    const char *text; /* condition or right-hand side, in one line */
    const char *hint; /* what to say when it fails, or NULL */
    const char *name; /* the one that let, option or index gives a meaning; stacked */
    const struct rfs_rules_word *words; /* models, option, keep, drop */
    int side;                           /* drop, repeat, copy */
    const struct number *a, *b;         /* let, index, require, if, else (or NULL) */
    const struct number *where;         /* index, or NULL */
    const struct node *left, *right;    /* rule */
    const struct name_part *names[2];   /* repeat, copy */
};

struct rfs_rules {
    struct rfs_arena arena; /* owns all that follows but the list of statements */
    const char *name;
    const char *sides[2];
    const char *hint;                     /* while they are parsed: of the next statement */
    RFS_VEC(struct statement) statements; /* owned */
};

/* Returns the tensor that a left side is, or takes rows of. */
static inline const struct node *rfs_rules_left_tensor(const struct node *left)
{
    while (left->kind == NODE_ROWS)
        left = left->kids;
    return left;
}
